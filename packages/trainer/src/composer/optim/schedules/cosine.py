"""Schedules that follow half a cosine."""

from __future__ import annotations

import math
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

__all__ = [
    "CosineAnnealingScheduler",
    "CosineAnnealingWarmRestartsScheduler",
    "CosineAnnealingWithWarmupScheduler",
]


def _cosine(x: float, alpha_f: float) -> float:
    return alpha_f + (1.0 - alpha_f) * (1.0 + math.cos(math.pi * x)) / 2.0


class CosineAnnealingScheduler(ComposerScheduler):
    """Go along half a cosine from 1 to ``alpha_f``, then stay there.

    Args:
        t_max: When the cosine ends.
        alpha_f: The multiplier from then on.

    Raises:
        TypeError: If ``alpha_f`` is not a number.
        ValueError: If ``alpha_f`` is negative or not finite.

    Example:
        >>> from composer.optim import preview_schedule
        >>> [round(f, 3) for f in preview_schedule(CosineAnnealingScheduler(), "4ba")]
        [1.0, 0.854, 0.5, 0.146]
    """

    def __init__(self, t_max: str | Time[Any] = "1dur", alpha_f: float = 0.0) -> None:
        self.t_max = parse_time("t_max", t_max, zero=True)
        self.alpha_f = check_number("alpha_f", alpha_f)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        end = resolve_time("t_max", self.t_max, state, ssr)
        return _cosine(progress(elapsed(state, end.unit), end.value), self.alpha_f)


class CosineAnnealingWarmRestartsScheduler(ComposerScheduler):
    """Go along half a cosine again and again, each cycle ``t_mult`` times as long as the last.

    Args:
        t_0: The length of the first cycle.
        t_mult: The growth of the cycles; lengths are truncated to whole units.
        alpha_f: The multiplier that each cycle approaches.

    Raises:
        TypeError: If ``t_mult`` or ``alpha_f`` is not a number.
        ValueError: If ``t_0`` or ``t_mult`` is not positive, ``alpha_f`` is negative, or a number
            is not finite.

    Example:
        >>> from composer.optim import preview_schedule
        >>> schedule = CosineAnnealingWarmRestartsScheduler("2ba", t_mult=2.0)
        >>> [round(f, 3) for f in preview_schedule(schedule, "6ba")]
        [1.0, 0.5, 1.0, 0.854, 0.5, 0.146]
    """

    def __init__(self, t_0: str | Time[Any], t_mult: float = 1.0, alpha_f: float = 0.0) -> None:
        self.t_0 = parse_time("t_0", t_0)
        self.t_mult = check_number("t_mult", t_mult, zero=False)
        self.alpha_f = check_number("alpha_f", alpha_f)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        first = resolve_time("t_0", self.t_0, state, ssr)
        done, cycle = elapsed(state, first.unit), int(first.value)
        if self.t_mult == 1.0 and cycle > 0:
            return _cosine((done % cycle) / cycle, self.alpha_f)
        while done >= cycle:
            if cycle == 0:
                raise ValueError(
                    f"a cycle of the restarts has length 0 (t_0={str(self.t_0)!r}, t_mult="
                    f"{self.t_mult:g}, scale ratio {ssr:g}): make t_0 longer or t_mult larger"
                )
            done -= cycle
            cycle = int(cycle * self.t_mult + 1e-9)
        return _cosine(done / cycle, self.alpha_f)


class CosineAnnealingWithWarmupScheduler(ComposerScheduler):
    """Warm up from 0 to 1, then go along half a cosine to ``alpha_f`` at ``t_max``.

    Args:
        t_warmup: How long the warm-up takes.
        t_max: When the cosine ends, which must not lie before the end of the run.
        alpha_f: The multiplier from then on.
        scale_warmup: Whether the scale schedule ratio also applies to ``t_warmup``.

    Example:
        >>> from composer.optim import preview_schedule
        >>> schedule = CosineAnnealingWithWarmupScheduler("2ba")
        >>> [round(f, 3) for f in preview_schedule(schedule, "6ba")]
        [0.0, 0.5, 1.0, 0.854, 0.5, 0.146]
    """

    def __init__(
        self,
        t_warmup: str | Time[Any],
        t_max: str | Time[Any] = "1dur",
        alpha_f: float = 0.0,
        scale_warmup: bool = False,
    ) -> None:
        self.warmup_scheduler = WarmUp(t_warmup, scale_warmup=scale_warmup)
        self.t_warmup = self.warmup_scheduler.t_warmup
        self.t_max = parse_time("t_max", t_max)
        self.alpha_f = check_number("alpha_f", alpha_f)
        self.scale_warmup = scale_warmup

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        warmup, end = self.warmup_scheduler.length_before(self.t_max, state, ssr)
        done = elapsed(state, end.unit)
        if done < warmup.value:
            return self.warmup_scheduler.factor(done, warmup.value)
        x = progress(done - warmup.value, end.value - warmup.value)
        return _cosine(x, self.alpha_f)
