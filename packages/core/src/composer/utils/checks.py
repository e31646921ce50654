"""Checks of arguments, in one wording.

What is used in the middle of a run must not find out there that an argument is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from composer.utils.suggestions import did_you_mean

__all__ = ["check_bool", "check_choice", "check_integer", "check_number"]


def check_number(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    infinite: bool = False,
) -> None:
    """Refuse what is not a finite number inside an interval.

    Args:
        name: Name of the argument.
        value: Its value.
        low: The lower bound.
        high: The upper bound.
        open_low: Whether the lower bound itself is refused.
        open_high: Whether the upper bound itself is refused.
        infinite: Whether infinity is accepted where there is no bound.

    Raises:
        TypeError: If it is not a number.
        ValueError: If it lies outside, or is not finite.

    Example:
        >>> check_number("alpha", 0.2, low=0.0)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r} must be a number, not {type(value).__name__}")
    above = value > low if open_low else value >= low
    below = value < high if open_high else value <= high
    if not (above and below):
        bounds = []
        if low > -math.inf:
            bounds.append(f"{'greater than' if open_low else 'at least'} {low:g}")
        if high < math.inf:
            bounds.append(f"{'less than' if open_high else 'at most'} {high:g}")
        raise ValueError(f"{name}={value!r} must be {' and '.join(bounds) or 'a number'}")
    # Compared, since a large integer cannot become a float.
    if not infinite and value in (math.inf, -math.inf):
        raise ValueError(f"{name}={value!r} must be finite")


def check_integer(name: str, value: Any, *, low: int | None = None) -> None:
    """Refuse what is not an integer, or one below a least value.

    Args:
        name: Name of the argument.
        value: Its value.
        low: The least value accepted; any by default.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is too small.

    Example:
        >>> check_integer("num_holes", 1, low=1)
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} must be an integer, not {type(value).__name__}")
    if low is not None and value < low:
        raise ValueError(f"{name}={value!r} must be at least {low}")


def check_bool(name: str, value: Any) -> None:
    """Refuse what is not true or false, such as the string ``"false"``.

    Args:
        name: Name of the argument.
        value: Its value.

    Raises:
        TypeError: If it is not a boolean.

    Example:
        >>> check_bool("interpolate_loss", True)
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be True or False, not {type(value).__name__}")


def check_choice(name: str, value: Any, accepted: Iterable[str]) -> None:
    """Refuse what is not one of a few words.

    Args:
        name: Name of the argument.
        value: Its value.
        accepted: The words.

    Raises:
        ValueError: If it is another.

    Example:
        >>> check_choice("mode", "crop", ("resize", "crop"))
    """
    accepted = tuple(accepted)
    # An array compares item by item, so only words are compared.
    if not isinstance(value, str) or value not in accepted:
        raise ValueError(
            f"{name}={value!r} must be one of {accepted}.{did_you_mean(str(value), accepted)}"
        )
