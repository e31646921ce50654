"""Turns what a user gave as schedulers into torch schedulers, and steps them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from composer.core import plugins
from composer.core.time import Time
from composer.optim.scheduler import compile_composer_scheduler, scale_pytorch_scheduler
from composer.utils.iteration import ensure_tuple

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["Schedules", "scale_duration"]


def scale_duration(duration: Time[Any], ratio: float) -> Time[Any]:
    """Stretch or shrink a duration.

    Args:
        duration: The duration.
        ratio: The factor.

    Returns:
        The scaled duration in the same unit, truncated to whole units.

    Raises:
        ValueError: If nothing would be left.

    Example:
        >>> scale_duration(Time(10, "ep"), 0.5)
        Time(5, TimeUnit.EPOCH)
    """
    scaled = duration * ratio
    if scaled.value <= 0:
        raise ValueError(
            f"scale_schedule_ratio={ratio} leaves nothing of max_duration={duration!s}; use a "
            f"larger ratio or a longer duration"
        )
    return scaled


class Schedules:
    """The schedulers of a run and when they step.

    Schedules of this library are functions of the state, so they are asked after the counters have
    moved: batch k, counted from zero, trains at the schedule's value at k. Torch's schedulers are
    stepped as torch documents.

    Args:
        state: The state of the run; its optimizer, maximum duration and loader must be set.
        schedulers: One or several: schedules of this library or their plugin names, functions of
            the state, or torch's.
        ratio: The scale schedule ratio; the maximum duration must already be scaled.
        every_batch: Whether to step at every batch rather than at every epoch; by default at
            every epoch if any scheduler is torch's, else at every batch.

    Raises:
        ValueError: If a scheduler drives another optimizer, steps by a metric, or does not fit the
            run.
    """

    def __init__(
        self,
        state: State,
        schedulers: Any,
        *,
        ratio: float = 1.0,
        every_batch: bool | None = None,
    ) -> None:
        given: Sequence[LRScheduler | Callable[..., float]] = ensure_tuple(schedulers)
        self._state = state
        self._own: list[LRScheduler] = []
        compiled: list[LRScheduler] = []
        any_torch = False
        for scheduler in given:
            if isinstance(scheduler, str):
                scheduler = plugins.resolve("composer.schedulers", scheduler)
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    "ReduceLROnPlateau steps by a metric, which the trainer does not hand to "
                    "schedulers; use another schedule, or step it in a callback at EVAL_END"
                )
            if isinstance(scheduler, LRScheduler):
                any_torch = True
                self._check_optimizer(scheduler)
                if ratio != 1.0:
                    scale_pytorch_scheduler(scheduler, ratio)
                compiled.append(scheduler)
            else:
                own = compile_composer_scheduler(scheduler, state, ratio)
                self._own.append(own)
                compiled.append(own)
        state.schedulers = compiled
        self.every_batch = (not any_torch) if every_batch is None else every_batch

    def _check_optimizer(self, scheduler: LRScheduler) -> None:
        optimizer = getattr(scheduler, "optimizer", None)
        if optimizer is not None and all(optimizer is not o for o in self._state.optimizers):
            raise ValueError(
                f"the {type(scheduler).__name__} drives an optimizer that is not the one given to "
                f"the trainer; make it with that optimizer"
            )

    def step_batch(self) -> None:
        """Step what steps at every batch; the counters have moved already."""
        if self.every_batch:
            self._step()

    def step_epoch(self) -> None:
        """Step what steps at every epoch; the counters have moved already."""
        if not self.every_batch:
            self._step()

    def _step(self) -> None:
        state = self._state
        for scheduler in state.schedulers:
            if scheduler in self._own:
                if not state.step_applied:
                    # torch warns about a schedule that moves before the first update; when a loss
                    # scale overflowed at the first batch that is just what has to happen.
                    with warnings.catch_warnings():
                        warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler")
                        scheduler.step()
                else:
                    scheduler.step()
            elif state.step_applied or not self.every_batch:
                scheduler.step()

    def refresh(self) -> None:
        """Set the learning rates of this library's schedules to their values now.

        A schedule or duration that changed since the checkpoint takes effect at the first batch.
        """
        optimizer = self._state.optimizers[0] if self._state.optimizers else None
        for scheduler in self._own:
            assert optimizer is not None
            factors = [factor(0) for factor in scheduler.lr_lambdas]  # type: ignore[attr-defined]
            for group, base, factor in zip(
                optimizer.param_groups, scheduler.base_lrs, factors, strict=True
            ):
                group["lr"] = base * factor
            scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]
