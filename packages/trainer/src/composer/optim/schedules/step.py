"""Schedules that fall in steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

__all__ = ["MultiStepScheduler", "MultiStepWithWarmupScheduler", "StepScheduler"]


class StepScheduler(ComposerScheduler):
    """Multiply by ``gamma`` every ``step_size``.

    Args:
        step_size: The time between two steps.
        gamma: The factor of one step.

    Raises:
        TypeError: If ``gamma`` is not a number.
        ValueError: If ``gamma`` is negative or not finite, or ``step_size`` is not positive, or in
            seconds.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(StepScheduler("2ba", gamma=0.5), "5ba")
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, step_size: str | Time[Any], gamma: float = 0.1) -> None:
        self.step_size = parse_time("step_size", step_size)
        self.gamma = check_number("gamma", gamma)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        step = resolve_time("step_size", self.step_size, state, ssr)
        if step.value == 0:
            raise ValueError(
                f"step_size={str(self.step_size)!r} comes out as {step} in this run (scale ratio "
                f"{ssr:g}): make it longer"
            )
        return float(self.gamma ** (elapsed(state, step.unit) // step.value))


class MultiStepScheduler(ComposerScheduler):
    """Multiply by ``gamma`` at each milestone.

    Args:
        milestones: When to step; they may be in different units and in any order.
        gamma: The factor of one step.

    Raises:
        TypeError: If ``milestones`` is not a list of times, or ``gamma`` is not a number.
        ValueError: If ``gamma`` is negative or not finite, or a milestone is in seconds.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(MultiStepScheduler(["1ba", "0.75dur"], gamma=0.5), "4ba")
        [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, milestones: Sequence[str | Time[Any]], gamma: float = 0.1) -> None:
        if isinstance(milestones, (str, Time)) or not isinstance(milestones, Iterable):
            raise TypeError(f"milestones must be a list of times, got the single {milestones!r}")
        self.milestones = [
            parse_time(f"milestones[{i}]", milestone, zero=True)
            for i, milestone in enumerate(milestones)
        ]
        self.gamma = check_number("gamma", gamma)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        passed = 0
        for milestone in self.milestones:
            at = resolve_time("milestones", milestone, state, ssr)
            passed += elapsed(state, at.unit) >= at.value
        return float(self.gamma**passed)


class MultiStepWithWarmupScheduler(ComposerScheduler):
    """Warm up from 0 to 1, then multiply by ``gamma`` at each milestone.

    Milestones count from the start of training, not from the end of the warm-up.

    Args:
        t_warmup: How long the warm-up takes.
        milestones: When to step.
        gamma: The factor of one step.
        scale_warmup: Whether the scale schedule ratio also applies to ``t_warmup``.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(MultiStepWithWarmupScheduler("2ba", ["3ba"], gamma=0.5), "4ba")
        [0.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self,
        t_warmup: str | Time[Any],
        milestones: Sequence[str | Time[Any]],
        gamma: float = 0.1,
        scale_warmup: bool = False,
    ) -> None:
        self.warmup_scheduler = WarmUp(t_warmup, scale_warmup=scale_warmup)
        self.step_scheduler = MultiStepScheduler(milestones, gamma)
        self.t_warmup = self.warmup_scheduler.t_warmup
        self.milestones = self.step_scheduler.milestones
        self.gamma = gamma
        self.scale_warmup = scale_warmup

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        warmup = self.warmup_scheduler.length(state, ssr)
        done = elapsed(state, warmup.unit)
        if done < warmup.value:
            return self.warmup_scheduler.factor(done, warmup.value)
        return self.step_scheduler(state, ssr)
