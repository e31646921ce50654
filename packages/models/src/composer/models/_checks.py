"""Checks of what factories take, in one wording."""

from __future__ import annotations

from collections.abc import Iterable

from composer.utils.counts import is_count
from composer.utils.suggestions import did_you_mean

__all__ = ["check_counts", "check_name", "check_share"]


def check_counts(*, at_least: int = 1, **numbers: int) -> None:
    """Refuse what is no whole number, or too small a one.

    Args:
        at_least: The smallest number accepted.
        **numbers: Argument name to the number given.

    Raises:
        ValueError: If one is not accepted.

    Example:
        >>> check_counts(num_classes=3)
    """
    for name, value in numbers.items():
        if not is_count(value, least=at_least):
            raise ValueError(f"{name}={value!r} must be a whole number of at least {at_least}")


def check_share(**numbers: float) -> None:
    """Refuse what is no share of a whole.

    Args:
        **numbers: Argument name to the number given.

    Raises:
        ValueError: If one is not in [0, 1).

    Example:
        >>> check_share(dropout=0.1)
    """
    for name, value in numbers.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value!r} must be at least 0 and less than 1")


def check_name(known: Iterable[str], **names: str) -> None:
    """Refuse a name that is not among those there are.

    Args:
        known: The names.
        **names: Argument name to the name given.

    Raises:
        ValueError: If one is not among them.

    Example:
        >>> check_name(["small", "large"], size="small")
    """
    known = list(known)
    for argument, name in names.items():
        if name not in known:
            raise ValueError(
                f"{argument}={name!r} is unknown; accepted are {', '.join(known)}."
                f"{did_you_mean(name, known)}"
            )
