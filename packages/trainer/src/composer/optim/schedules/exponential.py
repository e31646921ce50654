"""The schedule that falls by the same ratio in equal times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from composer.core.time import Time
from composer.optim.schedules.base import (
    ComposerScheduler,
    check_number,
    elapsed,
    parse_time,
    resolve_time,
)

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["ExponentialScheduler"]


class ExponentialScheduler(ComposerScheduler):
    """Decay continuously, by ``gamma`` every ``decay_period``.

    Args:
        gamma: The factor of one period.
        decay_period: The time in which the learning rate falls by ``gamma``.

    Raises:
        TypeError: If ``gamma`` is not a number.
        ValueError: If ``gamma`` is negative or not finite, or ``decay_period`` is not positive, or
            in seconds.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(ExponentialScheduler(0.25, "2ba"), "4ba")
        [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, gamma: float, decay_period: str | Time[Any] = "1ep") -> None:
        self.gamma = check_number("gamma", gamma)
        self.decay_period = parse_time("decay_period", decay_period)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        period = resolve_time("decay_period", self.decay_period, state, ssr)
        if period.value == 0:
            raise ValueError(
                f"decay_period={str(self.decay_period)!r} comes out as {period} in this run "
                f"(scale ratio {ssr:g}): make it longer"
            )
        return float(self.gamma ** (elapsed(state, period.unit) / period.value))
