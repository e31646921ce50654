"""Schedules that stay where they are."""

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
from composer.optim.schedules.warmup import WarmUp

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["ConstantScheduler", "ConstantWithWarmupScheduler"]


class ConstantScheduler(ComposerScheduler):
    """Multiply by ``alpha`` until ``t_max``, then leave the learning rate as it is.

    Args:
        alpha: The multiplier.
        t_max: When to go back to 1.

    Raises:
        TypeError: If ``alpha`` is not a number.
        ValueError: If ``alpha`` is negative or not finite.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(ConstantScheduler(0.5, t_max="2ba"), "4ba")
        [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(self, alpha: float = 1.0, t_max: str | Time[Any] = "1dur") -> None:
        self.alpha = check_number("alpha", alpha)
        self.t_max = parse_time("t_max", t_max, zero=True)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        end = resolve_time("t_max", self.t_max, state, ssr)
        return self.alpha if elapsed(state, end.unit) < end.value else 1.0


class ConstantWithWarmupScheduler(ComposerScheduler):
    """Warm up from 0 to ``alpha``, then stay there.

    Args:
        t_warmup: How long the warm-up takes.
        alpha: The multiplier after it.
        t_max: The end of the schedule, which must not lie before the end of the run.
        scale_warmup: Whether the scale schedule ratio also applies to ``t_warmup``.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(ConstantWithWarmupScheduler("2ba", alpha=0.5), "4ba")
        [0.0, 0.25, 0.5, 0.5]
    """

    def __init__(
        self,
        t_warmup: str | Time[Any],
        alpha: float = 1.0,
        t_max: str | Time[Any] = "1dur",
        scale_warmup: bool = False,
    ) -> None:
        self.warmup_scheduler = WarmUp(t_warmup, alpha, scale_warmup)
        self.t_warmup = self.warmup_scheduler.t_warmup
        self.alpha = alpha
        self.t_max = parse_time("t_max", t_max)
        self.scale_warmup = scale_warmup

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        warmup, _ = self.warmup_scheduler.length_before(self.t_max, state, ssr)
        return self.warmup_scheduler.factor(elapsed(state, warmup.unit), warmup.value)
