"""Checks of the numbers that factories take, in one wording."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from composer.models.initializers import Initializer

__all__ = ["check_counts", "check_share", "initialize"]


def check_counts(*, at_least: int = 1, **numbers: int) -> None:
    """Refuse what is no whole number of at least one.

    Args:
        at_least: The smallest number accepted.
        **numbers: Argument name to the number given.

    Raises:
        ValueError: If one is not accepted.
    """
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
            raise ValueError(f"{name}={value!r} must be a whole number of at least {at_least}")


def check_share(**numbers: float) -> None:
    """Refuse what is no share of a whole.

    Args:
        **numbers: Argument name to the number given.

    Raises:
        ValueError: If one is not in [0, 1).
    """
    for name, value in numbers.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value!r} must be at least 0 and less than 1")


def initialize(
    module: nn.Module, initializers: Sequence[str | Initializer] | None, default: Sequence[str] = ()
) -> nn.Module:
    """Set first weights.

    Args:
        module: The module.
        initializers: Ways to set them, applied in order; ``default`` if ``None``.
        default: What is applied without a choice of the user's.

    Returns:
        The module.
    """
    for initializer in default if initializers is None else initializers:
        apply: Callable[[nn.Module], None] = Initializer(initializer).get_initializer()
        module.apply(apply)
    return module
