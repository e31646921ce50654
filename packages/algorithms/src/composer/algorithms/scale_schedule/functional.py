"""A duration that is stretched or shrunk."""

from __future__ import annotations

from typing import Any, TypeVar

from composer.core.time import Time, stretched
from composer.utils.checks import check_number

__all__ = ["check_ratio", "scale_schedule"]

D = TypeVar("D", int, str, Time[Any])


def check_ratio(ratio: float) -> None:
    """Refuse what is no ratio.

    Args:
        ratio: The ratio.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is not positive and finite.

    Example:
        >>> check_ratio(0.5)
    """
    check_number("ratio", ratio, low=0.0, high=float("inf"), open_low=True, open_high=True)


def scale_schedule(duration: D, ratio: float) -> D:
    """Stretch or shrink the length of a run, or a milestone of its schedule.

    Args:
        duration: A number of batches or the like, a time string (``"90ep"``) or a time.
        ratio: The factor.

    Returns:
        The scaled length, of the same type and unit, truncated to whole units.

    Raises:
        TypeError: If the ratio is no number.
        ValueError: If the ratio is not positive and finite, or nothing would be left.

    Example:
        >>> scale_schedule(1000, 0.25), scale_schedule("90ep", 0.5)
        (250, '45ep')
    """
    check_ratio(ratio)
    time: Time[Any] = Time.from_input(duration, "ba")
    scaled = stretched(time, ratio)
    if scaled.value <= 0 < time.value:
        raise ValueError(f"ratio={ratio!r} leaves nothing of {duration!s}; use a larger one")
    if isinstance(duration, Time):
        return scaled
    return str(scaled) if isinstance(duration, str) else int(scaled.value)
