"""Answers to "is it due now?" for saving, evaluating and whatever else recurs.

An interval is a time in any unit; it is due when its counter crossed a multiple since the previous
timestamp, so that counters which move by more than one (samples, tokens, seconds) never miss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from composer.core.event import Event
from composer.core.time import Time, TimeUnit

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["IntervalScheduler", "create_interval_scheduler"]


class IntervalScheduler:
    """Says at which events an interval is due.

    Use :func:`create_interval_scheduler` to make one.

    Args:
        interval: The interval.
        include_end_of_training: Whether the end of training is due too, if it was not already.
        checkpoint_events: Whether to look at the ``*_CHECKPOINT`` events instead of ``*_END``.
        final_events: The events at which the end of training is noticed.

    Raises:
        ValueError: If the interval is negative or counts iterations.

    Example:
        >>> IntervalScheduler(Time(2, "ep")).interval
        Time(2, TimeUnit.EPOCH)
    """

    interval: Time[Any]

    def __init__(
        self,
        interval: Time[Any],
        *,
        include_end_of_training: bool = True,
        checkpoint_events: bool = True,
        final_events: frozenset[Event] | None = None,
    ) -> None:
        self.interval = interval
        if interval.unit is TimeUnit.ITERATION:
            raise ValueError(
                f"the interval {interval!s} counts iterations, which no run advances; give epochs "
                f"('2ep'), batches ('500ba') or another unit"
            )
        if interval.value < 0:
            raise ValueError(f"the interval {interval!s} is negative; 0 means never")
        if interval.unit is TimeUnit.EPOCH:
            self.event = Event.EPOCH_CHECKPOINT if checkpoint_events else Event.EPOCH_END
        else:
            self.event = Event.BATCH_CHECKPOINT if checkpoint_events else Event.BATCH_END
        if final_events is None:
            final_events = frozenset({Event.BATCH_CHECKPOINT, Event.EPOCH_CHECKPOINT})
        self.final_events = final_events if include_end_of_training else frozenset()
        self._reported: tuple[int, int] | None = None
        # Most calls are about an event that can never be due; callers may look here first.
        self.events = self.final_events | {self.event}

    def __call__(self, state: State, event: Event) -> bool:
        """Say whether it is due.

        Args:
            state: The state of the run.
            event: The event that fires.

        Returns:
            True if so.

        Raises:
            ValueError: If a share of the run is asked for and its length is unknown.
        """
        if event not in self.events or self.interval.value <= 0:
            return False
        moment = self._moment(state)
        if moment == self._reported:
            return False
        due = event is self.event and self._crossed(state)
        if not due and event in self.final_events:
            elapsed = state.get_elapsed_duration()
            due = elapsed is not None and elapsed.value >= 1.0
        if due:
            self._reported = moment
        return due

    def restart(self) -> None:
        """Forget what was reported; a run does so when it starts, as its clock may have moved."""
        self._reported = None

    def note(self, state: State) -> None:
        """Take this moment for reported, so that it is not due again.

        Args:
            state: The state of the run.
        """
        self._reported = self._moment(state)

    @staticmethod
    def _moment(state: State) -> tuple[int, int]:
        # One object may serve several runs, so what was reported is known by run and batch.
        return id(state), int(state.timestamp.count(TimeUnit.BATCH))

    def _crossed(self, state: State) -> bool:
        unit, step = self.interval.unit, self.interval.value
        previous = state.previous_timestamp
        if unit is TimeUnit.DURATION:
            unit, step = self._share_of_run(state, float(step))
        now = state.timestamp.count(unit)
        if unit is TimeUnit.TOKEN and not now:
            raise ValueError(
                f"the interval {self.interval!s} counts tokens, but no tokens were counted in the "
                f"first batch; pass `get_num_tokens_in_batch` to DataSpec"
            )
        before = 0 if previous is None else previous.count(unit)
        return now // step != before // step

    def _share_of_run(self, state: State, share: float) -> tuple[TimeUnit, int]:
        total = state.max_duration
        if total is None:
            raise ValueError(f"the interval {self.interval!s} needs a `max_duration`")
        unit, amount = total.unit, total.value
        if unit is TimeUnit.EPOCH:
            if state.dataloader_len is None:
                raise ValueError(
                    f"the interval {self.interval!s} of a run of {total!s} needs a sized "
                    f"dataloader; give the interval or `max_duration` in batches, or set "
                    f"`train_subset_num_batches`"
                )
            unit, amount = TimeUnit.BATCH, amount * state.dataloader_len.value
        return unit, max(1, math.ceil(share * amount))


def create_interval_scheduler(
    interval: str | int | Time[Any] | Callable[[State, Event], bool],
    include_end_of_training: bool = True,
    checkpoint_events: bool = True,
    final_events: set[Event] | frozenset[Event] | None = None,
) -> Callable[[State, Event], bool]:
    """Make a function that says whether something recurring is due.

    Args:
        interval: An int (epochs), a time string, a time (zero: never), or a function of
            state and event, which is returned as it is.
        include_end_of_training: Whether the end of training is due too, if it was not already.
        checkpoint_events: Whether to look at the ``*_CHECKPOINT`` events instead of ``*_END``.
        final_events: The events at which the end of training is noticed; by default the batch and
            epoch checkpoint events.

    Returns:
        The function.

    Raises:
        ValueError: If ``interval`` is not a time.

    Example:
        >>> due = create_interval_scheduler("2ep")
        >>> due.interval
        Time(2, TimeUnit.EPOCH)
    """
    if callable(interval):
        return interval
    return IntervalScheduler(
        Time.from_input(interval, TimeUnit.EPOCH),
        include_end_of_training=include_end_of_training,
        checkpoint_events=checkpoint_events,
        final_events=None if final_events is None else frozenset(final_events),
    )
