"""What a loss over many elements can become: their mean, their sum, or each on its own."""

from __future__ import annotations

from composer.utils.checks import check_choice

__all__ = ["check_reduction"]

_REDUCTIONS = ("mean", "sum", "none")


def check_reduction(reduction: str) -> None:
    """Refuse what is no reduction.

    Args:
        reduction: What the user gave.

    Raises:
        ValueError: If it is unknown.

    Example:
        >>> check_reduction("mean")
    """
    check_choice("reduction", reduction, _REDUCTIONS)
