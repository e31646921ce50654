"""The training loop: epochs, batches, the order of events, the clock, and when to stop."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from composer.core.event import Event
from composer.core.time import TimeUnit
from composer.core.timestamp import Timestamp
from composer.trainer.clock import BatchClock
from composer.trainer.data import TrainData, is_reiterable
from composer.trainer.evaluation import EvalLoop
from composer.trainer.metrics import computed
from composer.trainer.schedules import Schedules
from composer.trainer.step import TrainStep

if TYPE_CHECKING:
    from composer.core.engine import Engine
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["TrainLoop"]

log = logging.getLogger(__name__)

_BEFORE_DATALOADER = Event.BEFORE_DATALOADER
_AFTER_DATALOADER = Event.AFTER_DATALOADER
_BATCH_START = Event.BATCH_START
_BATCH_END = Event.BATCH_END
_BATCH_CHECKPOINT = Event.BATCH_CHECKPOINT


class TrainLoop:
    """Runs ``fit``.

    Args:
        state: The state of the run.
        engine: Dispatches the events.
        logger: Where losses and metrics are reported.
        data: The training data.
        step: Trains on one batch.
        schedules: The learning rate schedulers.
        evaluation: Runs what is due between batches and epochs.
        spin: Whether a started epoch goes on where it was; else it starts over.
        restore_random_state: Called right before the first new batch, once.
    """

    def __init__(
        self,
        state: State,
        engine: Engine,
        logger: Logger,
        *,
        data: TrainData,
        step: TrainStep,
        schedules: Schedules,
        evaluation: EvalLoop,
        spin: bool = True,
        restore_random_state: Callable[[], None] | None = None,
    ) -> None:
        self._state = state
        self._engine = engine
        self._logger = logger
        self._data = data
        self._step = step
        self._schedules = schedules
        self._evaluation = evaluation
        self._spin = spin
        self._restore = restore_random_state
        self._clock = BatchClock()
        total = state.max_duration
        self._needs_tokens = total is not None and total.unit is TimeUnit.TOKEN

    # ---- the whole ----------------------------------------------------------------------------

    def run(self) -> None:
        """Train until the state's maximum duration is reached."""
        state, run_event = self._state, self._engine.run_event
        run_event(Event.FIT_START)
        state.model.train()
        self._evaluation.restart()
        if not self._done():
            self._clock.restart()
            batches = self._enter()
            while True:
                if self._run_epoch(batches):
                    self._finish_epoch()
                else:
                    timestamp = state.timestamp
                    self._data.leave(batches, int(timestamp.epoch), int(timestamp.batch_in_epoch))
                if self._done():
                    break
                batches = self._start_epoch()
        step = int(state.timestamp.batch)
        self._logger.log_metrics(state.timestamp.log_values(), step=step)
        run_event(Event.FIT_END)
        self._evaluate(Event.FIT_END)

    def _enter(self) -> Any:
        """Come to the first new batch, in a fresh epoch or inside a started one."""
        state = self._state
        skip = int(state.timestamp.batch_in_epoch)
        if not skip:
            self._restore_random_state()
            if int(state.timestamp.epoch_in_iteration) == 0:
                self._engine.run_event(Event.ITERATION_START)
            return self._start_epoch()
        epoch = int(state.timestamp.epoch)
        batches = self._data.enter(epoch, skip) if self._spin else self._data.epoch(epoch)
        self._restore_random_state()
        return batches

    def _restore_random_state(self) -> None:
        if self._restore is not None:
            self._restore()
            self._restore = None

    def _start_epoch(self) -> Any:
        state = self._state
        self._engine.run_event(Event.EPOCH_START)
        if self._logger.destinations:
            epoch = int(state.timestamp.epoch)
            self._logger.log_metrics({"time/epoch": epoch}, step=int(state.timestamp.batch))
        return self._data.epoch(int(state.timestamp.epoch))

    def _done(self) -> bool:
        state = self._state
        total = state.max_duration
        assert total is not None
        return state.timestamp.count(total.unit) >= total.value

    # ---- one epoch ----------------------------------------------------------------------------

    def _limit(self) -> int | None:
        """After how many batches an epoch is cut, if it is cut before the loader ends."""
        length, own = self._state.dataloader_len, self._data.spec.num_batches
        if length is None or (own is not None and length.value >= own):
            return None
        return int(length.value)

    def _run_epoch(self, batches: Any) -> bool:
        """Train to the end of an epoch or of the run; whether the epoch was completed."""
        state, run_event, spec = self._state, self._engine.run_event, self._data.spec
        limit = self._limit()
        source: Iterator[Any] = batches
        transforms, count_samples = spec.batch_transforms, spec.get_num_samples_in_batch
        ended = False
        while True:
            run_event(_BEFORE_DATALOADER)
            if limit is not None and int(state.timestamp.batch_in_epoch) >= limit:
                break
            try:
                batch = next(source)
            except StopIteration:
                break
            source = batches.rest
            if ended:
                # The loader holds more than its length says, so the epoch is not over.
                batches.rest = itertools.chain([batch], source)
                return False
            if transforms is not None:
                batch = transforms(batch)
            samples = count_samples(batch)
            if not samples:
                self._refuse_empty_batch(samples)
            tokens = spec.get_num_tokens_in_batch(batch)
            if self._needs_tokens and not tokens:
                self._refuse_uncounted_tokens()
            state.batch = batch
            run_event(_AFTER_DATALOADER)
            run_event(_BATCH_START)
            if state.batch is not batch:
                self._train_batch(count_samples(state.batch), samples, tokens)
            else:
                self._train_batch(samples, samples, tokens)
            if self._done():
                if not self._at_epoch_end(limit):
                    return False
                ended = True  # one more draw lets the loader notice its end
        if state.timestamp.batch_in_epoch.value == 0:
            self._refuse_empty_epoch()
        return True

    def _at_epoch_end(self, limit: int | None) -> bool:
        """Whether the run's last batch is its epoch's last too."""
        length = limit if limit is not None else self._data.spec.num_batches
        return length is not None and self._state.timestamp.batch_in_epoch.value >= length

    def _refuse_empty_epoch(self) -> None:
        epoch, loader = int(self._state.timestamp.epoch), self._data.loader
        if epoch and not is_reiterable(loader):
            raise ValueError(
                f"the train dataloader is exhausted: it is a {type(loader).__name__}, which can "
                f"be passed over once, and epoch {epoch} found nothing left. Pass a DataLoader or "
                f"another iterable that starts anew, or set `max_duration` to one epoch"
            )
        raise ValueError(
            f"the train dataloader yielded no batches in epoch {epoch}; check that its dataset is "
            f"not empty, and that `drop_last` does not drop all of it"
        )

    def _refuse_empty_batch(self, samples: Any) -> None:
        raise ValueError(
            f"batch {int(self._state.timestamp.batch_in_epoch)} of epoch "
            f"{int(self._state.timestamp.epoch)} holds no samples (their number was given as "
            f"{samples!r}); leave empty batches out, or correct `get_num_samples_in_batch`"
        )

    def _refuse_uncounted_tokens(self) -> None:
        raise ValueError(
            f"max_duration={self._state.max_duration!s} counts tokens, but the batch has none that "
            f"can be counted, so the run would not end; pass `get_num_tokens_in_batch` to DataSpec"
        )

    # ---- one batch ----------------------------------------------------------------------------

    def _train_batch(self, num_in_batch: int | float, samples: int | float, tokens: int) -> None:
        state, logger, run_event = self._state, self._logger, self._engine.run_event
        before = state.timestamp
        losses = self._step.run(num_in_batch)
        named = {f"loss/train/{name}": value for name, value in losses.items()}
        state.total_loss_dict = named
        if logger.destinations:
            self._log_step(before, named)
        state.previous_timestamp = before
        state.timestamp = before.to_next_batch(int(samples), tokens, self._clock.lap())
        if state.schedulers:
            self._schedules.step_batch()
        run_event(_BATCH_END)
        if state.evaluators:
            self._evaluate(_BATCH_END)
        run_event(_BATCH_CHECKPOINT)

    def _log_step(self, timestamp: Timestamp, losses: dict[str, Any]) -> None:
        """One report per batch: where it stood, what it cost, what it scored."""
        state = self._state
        report: dict[str, Any] = timestamp.log_values()
        report.update(losses)
        report["trainer/device_train_microbatch_size"] = state.device_train_microbatch_size
        report.update(computed(state.dataloader_label, state.train_metrics))
        self._logger.log_metrics(report, step=report["time/batch"])

    # ---- between batches ----------------------------------------------------------------------

    def _evaluate(self, event: Event) -> None:
        # Asked at every batch and mostly answered with nothing: no more happens then.
        if due := self._evaluation.due(event):
            with self._clock.paused():
                self._evaluation.run_all(due)

    def _finish_epoch(self) -> None:
        state, run_event = self._state, self._engine.run_event
        self._data.finish()
        state.previous_timestamp = state.timestamp
        state.timestamp = state.timestamp.to_next_epoch()
        self._schedules.step_epoch()
        run_event(Event.EPOCH_END)
        self._evaluate(Event.EPOCH_END)
        run_event(Event.EPOCH_CHECKPOINT)
