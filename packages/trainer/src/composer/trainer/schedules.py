"""Turns what a user gave as schedulers into torch schedulers, and steps them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from composer.core import plugins
from composer.core.time import Time, stretched
from composer.optim.scheduler import compile_composer_scheduler, scale_pytorch_scheduler
from composer.trainer.rescheduling import TorchSchedule, begin_again, leaves, let_go
from composer.trainer.settings import describe_schedule
from composer.utils.iteration import ensure_tuple

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from composer.core.algorithm import Algorithm
    from composer.core.state import State

__all__ = ["Schedules", "scale_duration", "schedule_ratio"]


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
    scaled = stretched(duration, ratio)
    if scaled.value <= 0:
        raise ValueError(
            f"scale_schedule_ratio={ratio} leaves nothing of max_duration={duration!s}; use a "
            f"larger ratio or a longer duration"
        )
    return scaled


def schedule_ratio(ratio: float, algorithms: Iterable[Algorithm]) -> float:
    """Return by how much a run is longer than it says, with what methods have to say.

    Args:
        ratio: The trainer's or ``fit``'s scale schedule ratio.
        algorithms: The methods of the run.

    Returns:
        The product of all ratios.

    Example:
        >>> schedule_ratio(0.5, [])
        0.5
    """
    return math.prod([ratio, *(algorithm.schedule_ratio for algorithm in algorithms)])


class Schedules:
    """The schedulers of a run and when they step.

    Schedules of this library are functions of the state, so they are asked after the counters have
    moved: batch k, counted from zero, trains at the schedule's value at k. Torch's schedulers are
    stepped as torch documents. A batch that did not update the weights moves neither: schedules of
    this library then count without it. With several optimizers, a schedule of this library drives
    each of them, a torch scheduler steps when its optimizer did, and a turn that loss scaling
    skipped moves neither schedule of its optimizer.

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

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> from composer.optim import LinearScheduler
        >>> model = torch.nn.Linear(1, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> state = State(model, 0, "r", DeviceCPU(), max_duration="4ba", optimizers=optimizer)
        >>> schedules = Schedules(state, LinearScheduler())
        >>> state.timestamp = state.timestamp.to_next_batch(samples=8)
        >>> optimizer.step()
        >>> schedules.step_batch()
        >>> round(optimizer.param_groups[0]["lr"], 3)
        0.075
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
        self.described: list[tuple[dict[str, Any], TorchSchedule | None]] = []
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
                self.described.append((describe_schedule(scheduler), TorchSchedule.of(scheduler)))
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
        # One that wraps another shares its groups, which is what a schedule moves.
        groups = getattr(optimizer, "param_groups", None)
        if optimizer is not None and all(groups is not o.param_groups for o in optimizers):
            raise ValueError(
                f"the {type(scheduler).__name__} drives an optimizer that is not the one given to "
                f"the trainer; make it with that optimizer"
            )

    def step_batch(self) -> None:
        """Step what steps at every batch; the counters have moved already."""
        state = self._state
        if state.step_applied and any(state.optimizers_skipped):
            before, now = state.previous_timestamp, state.timestamp
            assert before is not None
            state.note_missed_turns(int(now.sample - before.sample), int(now.token - before.token))
        if self.every_batch and state.step_applied:
            self._step()

    def step_epoch(self) -> None:
        """Step what steps at every epoch; the counters have moved already."""
        if not self.every_batch:
            self._step()

    def _step(self) -> None:
        state = self._state
        missed = state.num_skipped_steps or state.missed_turns
        for scheduler in state.schedulers:
            if scheduler in self._own or self._stepped(scheduler):
                with self._counting_updates(scheduler.optimizer) if missed else nullcontext():
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
    def _counting_updates(self, optimizer: Optimizer) -> Iterator[None]:
        """Show the schedules a clock on which batches that did not update this did not happen."""
        state = self._state
        now = state.timestamp
        state.timestamp = state.update_timestamp_of(optimizer)
        try:
            yield
        finally:
            state.timestamp = now

    def take_base_rates(self) -> None:
        """Let schedulers whose state was just loaded start from the optimizers' initial rates.

        These are what script and checkpoint agreed on.
        """
        for scheduler in self._state.schedulers:
            for leaf in leaves(scheduler):
                groups = leaf.optimizer.param_groups
                bases = getattr(leaf, "base_lrs", None)
                if bases is not None and all("initial_lr" in group for group in groups):
                    leaf.base_lrs = [group["initial_lr"] for group in groups]

    def begin_again(
        self, changed: Sequence[TorchSchedule] | None, asked: Sequence[Sequence[dict[str, Any]]]
    ) -> None:
        """Bring torch's schedulers that the script changed to where the run is.

        Args:
            changed: Which; ``None`` for all, since they are of other kinds than those of the
                checkpoint. An optimizer that no schedule drives any more gets back its own rate.
            asked: What the script asks for of the optimizers.
        """
        for optimizer, options in zip(self._state.optimizers, asked, strict=True):
            mine = [
                schedule
                for _, schedule in self.described
                if schedule is not None and schedule.scheduler.optimizer is optimizer
            ]
            if changed is not None:
                if any(schedule in changed for schedule in mine):
                    begin_again(mine)
                continue
            ours = any(own.optimizer is optimizer for own in self._own)
            let_go(optimizer, options, scheduled=bool(mine) or ours)
            if mine:
                begin_again(mine, self._num_steps())

    def _num_steps(self) -> int:
        """How often schedulers have stepped up to here."""
        state = self._state
        return int(state.update_timestamp.batch if self.every_batch else state.timestamp.epoch)

    def refresh(self) -> None:
        """Set the learning rates of this library's schedules to their values now.

        A schedule or duration that changed since the checkpoint takes effect at the first batch.
        """
        for scheduler in self._own:
            with self._counting_updates(scheduler.optimizer):
                factors = [factor(0) for factor in scheduler.lr_lambdas]  # type: ignore[attr-defined]
            groups = scheduler.optimizer.param_groups
            for group, base, factor in zip(groups, scheduler.base_lrs, factors, strict=True):
                group["lr"] = base * factor
            scheduler._last_lr = [group["lr"] for group in groups]
