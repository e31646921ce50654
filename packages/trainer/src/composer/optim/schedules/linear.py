"""Schedules that follow a straight line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from composer.core.time import Time
from composer.optim.schedules.base import (
    ComposerScheduler,
    check_number,
    elapsed,
    parse_time,
    progress,
    resolve_time,
)
from composer.optim.schedules.warmup import WarmUp

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["LinearScheduler", "LinearWithWarmupScheduler"]


class LinearScheduler(ComposerScheduler):
    """Go in a straight line from ``alpha_i`` to ``alpha_f``, then stay there.

    Args:
        alpha_i: The multiplier at the start.
        alpha_f: The multiplier from ``t_max`` on.
        t_max: When the line ends.

    Raises:
        TypeError: If ``alpha_i`` or ``alpha_f`` is not a number.
        ValueError: If one of them is negative or not finite.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(LinearScheduler(), "4ba")
        [1.0, 0.75, 0.5, 0.25]
    """

    def __init__(
        self, alpha_i: float = 1.0, alpha_f: float = 0.0, t_max: str | Time[Any] = "1dur"
    ) -> None:
        self.alpha_i = check_number("alpha_i", alpha_i)
        self.alpha_f = check_number("alpha_f", alpha_f)
        self.t_max = parse_time("t_max", t_max, zero=True)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        end = resolve_time("t_max", self.t_max, state, ssr)
        x = progress(elapsed(state, end.unit), end.value)
        return self.alpha_i + (self.alpha_f - self.alpha_i) * x


class LinearWithWarmupScheduler(ComposerScheduler):
    """Warm up from 0 to ``alpha_i``, then go in a straight line to ``alpha_f`` at ``t_max``.

    Args:
        t_warmup: How long the warm-up takes.
        alpha_i: The multiplier at the end of the warm-up.
        alpha_f: The multiplier from ``t_max`` on.
        t_max: When the line ends, which must not lie before the end of the run.
        scale_warmup: Whether the scale schedule ratio also applies to ``t_warmup``.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(LinearWithWarmupScheduler("2ba"), "6ba")
        [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
    """

    def __init__(
        self,
        t_warmup: str | Time[Any],
        alpha_i: float = 1.0,
        alpha_f: float = 0.0,
        t_max: str | Time[Any] = "1dur",
        scale_warmup: bool = False,
    ) -> None:
        self.alpha_i = check_number("alpha_i", alpha_i)
        self.warmup_scheduler = WarmUp(t_warmup, alpha_i, scale_warmup)
        self.t_warmup = self.warmup_scheduler.t_warmup
        self.alpha_f = check_number("alpha_f", alpha_f)
        self.t_max = parse_time("t_max", t_max)
        self.scale_warmup = scale_warmup

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        warmup, end = self.warmup_scheduler.length_before(self.t_max, state, ssr)
        done = elapsed(state, end.unit)
        if done < warmup.value:
            return self.warmup_scheduler.factor(done, warmup.value)
        x = progress(done - warmup.value, end.value - warmup.value)
        return self.alpha_i + (self.alpha_f - self.alpha_i) * x
