"""Whether an argument is a whole number: True and False are numbers to Python, and no counts."""

from __future__ import annotations

from typing import Any, TypeGuard

__all__ = ["is_count"]


def is_count(value: Any, *, least: int = 1) -> TypeGuard[int]:
    """Say whether a value counts something.

    Args:
        value: Anything.
        least: The smallest number that will do.

    Returns:
        True for a whole number from ``least`` on.

    Example:
        >>> is_count(1), is_count(0), is_count(True), is_count(1.0), is_count(0, least=0)
        (True, False, False, False, True)
    """
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
