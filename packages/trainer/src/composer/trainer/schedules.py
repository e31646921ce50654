"""Turns what a user gave as schedulers into torch schedulers, and steps them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from composer.core import plugins
from composer.core.time import Time
from composer.optim.scheduler import compile_composer_scheduler, scale_pytorch_scheduler
from composer.trainer.settings import describe_schedule
from composer.utils.iteration import ensure_tuple

if TYPE_CHECKING:
    from torch.optim import Optimizer

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
    stepped as torch documents. A batch that did not update the weights moves neither: schedules of
    this library then count without it. With several optimizers, a schedule of this library drives
    each of them, and a torch scheduler steps when its optimizer did.

    Args:
        state: The state of the run; its optimizer, maximum duration and loader must be set.
        schedulers: One or several: schedules of this library or their plugin names, functions of
            the state, or torch's.
        ratio: The scale schedule ratio; the maximum duration must already be scaled.
        every_batch: Whether to step at every batch rather than at every epoch; by default at
            every epoch if any scheduler is torch's, else at every batch.
        own: Schedulers of single optimizers, as pairs of optimizer and schedulers.

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
        own: Sequence[tuple[Optimizer, Any]] = (),
    ) -> None:
        self._state = state
        self._own: list[LRScheduler] = []
        self.described: list[tuple[dict[str, Any], LRScheduler | None]] = []
        compiled: list[LRScheduler] = []
        any_torch = False
        wanted = [(s, list(state.optimizers)) for s in ensure_tuple(schedulers)]
        wanted += [(s, [optimizer]) for optimizer, given in own for s in ensure_tuple(given)]
        for scheduler, optimizers in wanted:
            if isinstance(scheduler, str):
                scheduler = plugins.resolve("composer.schedulers", scheduler)
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    "ReduceLROnPlateau steps by a metric, which the trainer does not hand to "
                    "schedulers; use another schedule, or step it in a callback at EVAL_END"
                )
            if isinstance(scheduler, LRScheduler):
                any_torch = True
                self._check_optimizer(scheduler, optimizers)
                if ratio != 1.0:
                    scale_pytorch_scheduler(scheduler, ratio)
                compiled.append(scheduler)
                self.described.append((describe_schedule(scheduler), scheduler))
            else:
                self.described.append((describe_schedule(scheduler), None))
                for optimizer in optimizers:
                    mine = compile_composer_scheduler(scheduler, state, ratio, optimizer=optimizer)
                    self._own.append(mine)
                    compiled.append(mine)
        state.schedulers = compiled
        self.every_batch = (not any_torch) if every_batch is None else every_batch

    def _check_optimizer(self, scheduler: LRScheduler, optimizers: Sequence[Optimizer]) -> None:
        optimizer = getattr(scheduler, "optimizer", None)
        if optimizer is not None and all(optimizer is not o for o in optimizers):
            raise ValueError(
                f"the {type(scheduler).__name__} drives an optimizer that is not the one given to "
                f"the trainer; make it with that optimizer"
            )

    def step_batch(self) -> None:
        """Step what steps at every batch; the counters have moved already."""
        if self.every_batch and self._state.step_applied:
            self._step()

    def step_epoch(self) -> None:
        """Step what steps at every epoch; the counters have moved already."""
        if not self.every_batch:
            self._step()

    def _step(self) -> None:
        if not self._state.num_skipped_steps:
            self._step_all()
            return
        with self._counting_updates():
            self._step_all()

    def _step_all(self) -> None:
        for scheduler in self._state.schedulers:
            if scheduler in self._own or self._stepped(scheduler):
                scheduler.step()

    def _stepped(self, scheduler: LRScheduler) -> bool:
        """Whether the optimizer that a torch scheduler drives took its turn."""
        state = self._state
        if not self.every_batch or not state.optimizers_applied:
            return True
        return any(
            applied and optimizer is scheduler.optimizer
            for optimizer, applied in zip(state.optimizers, state.optimizers_applied, strict=True)
        )

    @contextmanager
    def _counting_updates(self) -> Iterator[None]:
        """Show the schedules a clock on which skipped batches did not happen."""
        state = self._state
        if not state.num_skipped_steps:
            yield
            return
        now = state.timestamp
        state.timestamp = state.update_timestamp
        try:
            yield
        finally:
            state.timestamp = now

    def take_base_rates(self) -> None:
        """Let schedulers whose state was just loaded start from the optimizers' initial rates.

        These are what script and checkpoint agreed on.
        """
        for scheduler in self._state.schedulers:
            groups = scheduler.optimizer.param_groups
            bases = getattr(scheduler, "base_lrs", None)
            if bases is not None and all("initial_lr" in group for group in groups):
                scheduler.base_lrs = [group["initial_lr"] for group in groups]

    def refresh(self) -> None:
        """Set the learning rates of this library's schedules to their values now.

        A schedule or duration that changed since the checkpoint takes effect at the first batch.
        """
        with self._counting_updates():
            for scheduler in self._own:
                factors = [factor(0) for factor in scheduler.lr_lambdas]  # type: ignore[attr-defined]
                groups = scheduler.optimizer.param_groups
                for group, base, factor in zip(groups, scheduler.base_lrs, factors, strict=True):
                    group["lr"] = base * factor
                scheduler._last_lr = [group["lr"] for group in groups]
