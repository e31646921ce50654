"""Schedules that follow a power of what is left of the run."""

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

__all__ = ["PolynomialScheduler", "PolynomialWithWarmupScheduler"]


def _polynomial(x: float, power: float, alpha_f: float) -> float:
    return float(alpha_f + (1.0 - alpha_f) * (1.0 - x) ** power)


class PolynomialScheduler(ComposerScheduler):
    """Go from 1 to ``alpha_f`` along ``(1 - x) ** power``, then stay there.

    Args:
        power: The exponent.
        t_max: When the curve ends.
        alpha_f: The multiplier from then on.

    Raises:
        TypeError: If ``power`` or ``alpha_f`` is not a number.
        ValueError: If one of them is negative or not finite.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(PolynomialScheduler(power=2.0), "4ba")
        [1.0, 0.5625, 0.25, 0.0625]
    """

    def __init__(self, power: float, t_max: str | Time[Any] = "1dur", alpha_f: float = 0.0) -> None:
        self.power = check_number("power", power)
        self.t_max = parse_time("t_max", t_max, zero=True)
        self.alpha_f = check_number("alpha_f", alpha_f)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        end = resolve_time("t_max", self.t_max, state, ssr)
        x = progress(elapsed(state, end.unit), end.value)
        return _polynomial(x, self.power, self.alpha_f)


class PolynomialWithWarmupScheduler(ComposerScheduler):
    """Warm up from 0 to 1, then go to ``alpha_f`` along ``(1 - x) ** power``.

    Args:
        t_warmup: How long the warm-up takes.
        power: The exponent.
        t_max: When the curve ends, which must not lie before the end of the run.
        alpha_f: The multiplier from then on.
        scale_warmup: Whether the scale schedule ratio also applies to ``t_warmup``.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(PolynomialWithWarmupScheduler("2ba"), "6ba")
        [0.0, 0.5, 1.0, 0.5625, 0.25, 0.0625]
    """

    def __init__(
        self,
        t_warmup: str | Time[Any],
        power: float = 2.0,
        t_max: str | Time[Any] = "1dur",
        alpha_f: float = 0.0,
        scale_warmup: bool = False,
    ) -> None:
        self.warmup_scheduler = WarmUp(t_warmup, scale_warmup=scale_warmup)
        self.t_warmup = self.warmup_scheduler.t_warmup
        self.power = check_number("power", power)
        self.t_max = parse_time("t_max", t_max)
        self.alpha_f = check_number("alpha_f", alpha_f)
        self.scale_warmup = scale_warmup

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        warmup, end = self.warmup_scheduler.length_before(self.t_max, state, ssr)
        done = elapsed(state, end.unit)
        if done < warmup.value:
            return self.warmup_scheduler.factor(done, warmup.value)
        x = progress(done - warmup.value, end.value - warmup.value)
        return _polynomial(x, self.power, self.alpha_f)
