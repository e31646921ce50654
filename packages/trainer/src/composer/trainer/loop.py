"""The training loop: epochs, batches, the order of events, the clock, and when to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from composer.core.event import Event
from composer.core.time import TimeUnit
from composer.core.timestamp import Timestamp
from composer.trainer.clock import BatchClock
from composer.trainer.data import EpochIterator, TrainData, is_reiterable
from composer.trainer.evaluation import EvalLoop
from composer.trainer.interruption import EvaluationInterrupted, Interruption, TrainingInterrupted
from composer.trainer.metrics import computed
from composer.trainer.nonfinite import NonFiniteLossError, NonFinitePolicy
from composer.trainer.schedules import Schedules
from composer.utils import dist

if TYPE_CHECKING:
    from composer.core.engine import Engine
    from composer.core.evaluator import Evaluator
    from composer.core.logger import Logger
    from composer.core.state import State
    from composer.trainer.ranks import Ranks
    from composer.trainer.step import BatchStep

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
        interruption: Knows whether the run was asked to end.
        save: Saves a checkpoint of this moment, unless there is one, and returns its path.
        nonfinite: What to do about a loss that is not finite, if anybody looks.
        ranks: The other ranks, if there are any.

    Example:
        >>> import torch
        >>> from composer.core.data_spec import DataSpec
        >>> from composer.core.engine import Engine
        >>> from composer.core.logger import Logger
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> from composer.models import ComposerClassifier
        >>> from composer.trainer.step import TrainStep
        >>> model = ComposerClassifier(torch.nn.Linear(2, 3), num_classes=3)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> state = State(model, 0, "r", DeviceCPU(), max_duration="3ba", optimizers=optimizer)
        >>> spec = DataSpec([(torch.ones(4, 2), torch.zeros(4, dtype=torch.long))] * 2)
        >>> state.set_dataloader(spec.dataloader, "train")
        >>> logger = Logger(state)
        >>> engine = Engine(state, logger)
        >>> loop = TrainLoop(
        ...     state, engine, logger, data=TrainData(spec, state),
        ...     step=TrainStep(state, engine, spec), schedules=Schedules(state, None),
        ...     evaluation=EvalLoop(state, engine, logger),
        ... )
        >>> loop.run()
        >>> state.timestamp
        Timestamp(epoch=1, batch=3, sample=12, ...)
    """

    def __init__(
        self,
        state: State,
        engine: Engine,
        logger: Logger,
        *,
        data: TrainData,
        step: BatchStep,
        schedules: Schedules,
        evaluation: EvalLoop,
        spin: bool = True,
        restore_random_state: Callable[[], None] | None = None,
        interruption: Interruption | None = None,
        save: Callable[[], str | None] | None = None,
        nonfinite: NonFinitePolicy | None = None,
        ranks: Ranks | None = None,
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
        self._interruption = interruption or Interruption()
        self._save = save
        self._nonfinite = nonfinite
        self._ranks = ranks
        self._clock = BatchClock()
        self._to_stop = False
        self._finished_evaluation = False
        # Whether this rank wants to end and the others do not know; whether all of them do.
        self._stop_here = False
        self._stop_everywhere = False
        total = state.max_duration
        self._needs_tokens = total is not None and total.unit is TimeUnit.TOKEN

    # ---- the whole ----------------------------------------------------------------------------

    def run(self) -> None:
        """Train until the state's maximum duration is reached.

        Raises:
            TrainingInterrupted: If the run was asked to end.
            ValueError: If the data has no batches, or ranks do not do the same.
        """
        # A callback that runs a trainer of its own: what was asked of that one is asked of this.
        self._engine.on_exit = self._interruption.take_over
        if self._ranks is not None:
            self._state.on_stop(self._keep_stop)
        try:
            self._run()
        finally:
            self._engine.on_exit = None
            self._state.on_stop(None)

    def _run(self) -> None:
        state, run_event = self._state, self._engine.run_event
        self._evaluation.agree(state.evaluators)
        run_event(Event.FIT_START)
        pending = bool(state.pending_evaluations)
        state.model.train()
        self._evaluation.restart()
        self._finish_evaluation()
        self._agree_on_end()
        if not self._done():
            self._clock.restart()
            batches = self._enter()
            self._stop_before_start()
            while True:
                if self._run_epoch(batches):
                    self._finish_epoch()
                else:
                    timestamp = state.timestamp
                    self._data.leave(batches, int(timestamp.epoch), int(timestamp.batch_in_epoch))
                self._agree_on_end()
                if self._done():
                    break
                batches = self._start_epoch()
        elif self._is_inside_finished_epoch():
            self._data.skip()
            self._finish_epoch()
        elif self._restore is not None and not pending:
            # Loaded, and stopped by what had stopped it before: its end was evaluated then.
            self._evaluation.note(state.evaluators)
        step = int(state.timestamp.batch)
        self._logger.log_metrics(state.timestamp.log_values(), step=step)
        run_event(Event.FIT_END)
        self._evaluate(Event.FIT_END)
        self._stop_after_end()

    def _is_inside_finished_epoch(self) -> bool:
        """Whether a run that is continued trained on its last batch and no more."""
        inside = self._state.timestamp.batch_in_epoch.value
        return bool(inside) and self._at_epoch_end(self._limit())

    def _enter(self) -> EpochIterator:
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

    def _start_epoch(self) -> EpochIterator:
        state = self._state
        self._engine.run_event(Event.EPOCH_START)
        if self._logger.destinations:
            epoch = int(state.timestamp.epoch)
            self._logger.log_metrics({"time/epoch": epoch}, step=int(state.timestamp.batch))
        return self._data.epoch(int(state.timestamp.epoch))

    def _done(self) -> bool:
        state = self._state
        total = state.max_duration  # without one, `fit` does not come here
        return state.timestamp.count(total.unit) >= total.value  # type: ignore[union-attr]

    # ---- one epoch ----------------------------------------------------------------------------

    def _limit(self) -> int | None:
        """After how many batches an epoch is cut, if it is cut before the loader ends."""
        length, own = self._state.dataloader_len, self._data.spec.num_batches
        if length is None or (own is not None and length.value >= own):
            return None
        return int(length.value)

    def _run_epoch(self, batches: EpochIterator) -> bool:
        """Train to the end of an epoch or of the run; whether the epoch was completed."""
        state, run_event, spec = self._state, self._engine.run_event, self._data.spec
        ranks, interruption = self._ranks, self._interruption
        limit, needs_tokens = self._limit(), self._needs_tokens
        transforms, count_samples = spec.batch_transforms, spec.get_num_samples_in_batch
        ended = False
        while True:
            run_event(_BEFORE_DATALOADER)
            if limit is not None and int(state.timestamp.batch_in_epoch) >= limit:
                self._tell_no_batch()
                break
            try:
                drawn = batch = next(batches.rest)
            except StopIteration:
                self._tell_no_batch()
                break
            except Exception:
                # Worker processes that got the signal too are gone; all batches so far are whole.
                if not interruption.asked:
                    raise
                self._tell_no_batch(leave=True)
                self._stop()
            if ended:
                # The loader holds more than its length says, so the epoch is not over.
                if ranks is not None:
                    shared = ranks.share_batch(0, 0, stop=self._stop_here)
                    self._leave_with_others()
                    if shared is None:
                        break
                batches.put_back(drawn)
                if ranks is not None and ranks.stopped:
                    self._end_here()
                return False
            if transforms is not None:
                batch = transforms(batch)
            samples = count_samples(batch)
            if not samples:
                self._refuse_empty_batch(samples)
            tokens = spec.get_num_tokens_in_batch(batch)
            local = samples
            if ranks is not None:
                shared = ranks.share_batch(samples, tokens)
                if ranks.leaving:
                    self._leave_with_others()
                if ranks.stopped and (shared is not None or not self._at_epoch_end(limit)):
                    batches.put_back(drawn)
                    self._end_here()
                    return False
                if shared is None:
                    break  # another rank has no batch left
                samples, tokens = shared
            if needs_tokens and not tokens:
                self._refuse_uncounted_tokens()
            state.batch = batch
            run_event(_AFTER_DATALOADER)
            run_event(_BATCH_START)
            if state.batch is not batch:
                local = count_samples(state.batch)
            self._train_batch(local, samples, tokens)
            # Several ranks have agreed by now; a signal that came later waits for the next batch.
            if self._to_stop or (interruption.pending and ranks is None and interruption.asked):
                if self._agree_on_end():
                    run_event(_BATCH_CHECKPOINT)
                if not self._done():
                    self._stop()
            if self._done():
                self._stop_here = False
            elif not self._stop_here:
                continue
            if not self._at_epoch_end(limit):
                self._tell_stop()
                return False
            ended = True  # one more draw lets the loader notice its end
        if ranks is not None and ranks.stopped:
            if not self._at_epoch_end(limit):
                self._end_here()
                return False
            self._stop_together()
        if state.timestamp.batch_in_epoch.value == 0:
            self._refuse_empty_epoch()
        return True

    def _tell_no_batch(self, *, leave: bool = False) -> None:
        if self._ranks is not None:
            self._ranks.share_no_batch(stop=self._stop_here, leave=leave)
            self._leave_with_others()

    def _at_epoch_end(self, limit: int | None) -> bool:
        """Whether the run's last batch is its epoch's last too."""
        length = limit
        if length is None:
            known = self._state.dataloader_len
            length = self._data.spec.num_batches if known is None else int(known.value)
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
        if self._nonfinite is None:
            losses = self._step.run(num_in_batch)
        else:
            losses = self._run_guarded(self._nonfinite, num_in_batch)
        named = {f"loss/train/{name}": value for name, value in losses.items()}
        state.total_loss_dict = named
        if not state.step_applied:
            state.note_skipped_step(int(samples), tokens)
        if logger.destinations:
            self._log_step(before, named)
        state.previous_timestamp = before
        seconds = self._clock.lap()
        if self._ranks is not None:
            asked = self._interruption.asked
            self._to_stop, seconds = self._ranks.share_end(stop=asked, seconds=seconds)
        state.timestamp = before.to_next_batch(int(samples), tokens, seconds)
        if state.schedulers:
            self._schedules.step_batch()
        run_event(_BATCH_END)
        if state.evaluators:
            self._evaluate(_BATCH_END)
        run_event(_BATCH_CHECKPOINT)

    def _run_guarded(self, policy: NonFinitePolicy, num_in_batch: int | float) -> dict[str, Any]:
        policy.before_batch()
        batch = self._state.batch
        try:
            losses: dict[str, Any] = self._step.run(num_in_batch)
        except NonFiniteLossError as error:
            self._state.batch = batch
            policy.handle(error)
            found = error.losses
            return found if self._ranks is None else self._ranks.mean(found)
        return losses

    def _log_step(self, timestamp: Timestamp, losses: dict[str, Any]) -> None:
        """One report per batch: where it stood, what it cost, what it scored."""
        state = self._state
        report: dict[str, Any] = timestamp.log_values()
        report.update(losses)
        report["trainer/device_train_microbatch_size"] = state.device_train_microbatch_size
        if state.num_skipped_steps:
            report["trainer/num_skipped_steps"] = state.num_skipped_steps
        report.update(computed(state.dataloader_label, state.train_metrics))
        self._logger.log_metrics(report, step=report["time/batch"])

    # ---- between batches ----------------------------------------------------------------------

    def _evaluate(self, event: Event) -> None:
        # Asked at every batch and mostly answered with nothing: no more happens then.
        if due := self._evaluation.due(event):
            labels = [evaluator.label for evaluator in due]
            self._state.pending_evaluations = {
                "event": event.value,
                "due": labels,
                "left": list(labels),
            }
            self._run_pending(due)

    def _run_pending(self, evaluators: list[Evaluator]) -> None:
        try:
            with self._clock.paused():
                self._evaluation.run_all(evaluators, self._interruption)
        except EvaluationInterrupted:
            # Nothing of an evaluation is kept: it is whole or it is done again, by the run that
            # continues from here.
            self._stop()
        finally:
            self._state.pending_evaluations = {}

    def _finish_evaluation(self) -> None:
        """Do the evaluation during which the run that is continued was asked to end."""
        state, pending = self._state, self._state.pending_evaluations
        if not pending:
            return
        self._evaluation.note([e for e in state.evaluators if e.label in pending["due"]])
        left = [e for e in state.evaluators if e.label in pending["left"]]
        if left:
            self._run_pending(left)
        state.pending_evaluations = {}
        self._agree_on_end()
        self._finished_evaluation = True
        if pending["event"] == Event.BATCH_END:
            self._engine.run_event(_BATCH_CHECKPOINT)
        elif pending["event"] == Event.EPOCH_END:
            self._engine.run_event(Event.EPOCH_CHECKPOINT)
        elif self._save is not None:
            # Nothing else saves behind the end, and the newest checkpoint says it is still to do.
            self._save()

    def _finish_epoch(self) -> None:
        state, run_event = self._state, self._engine.run_event
        self._data.finish()
        state.previous_timestamp = state.timestamp
        state.timestamp = state.timestamp.to_next_epoch()
        self._schedules.step_epoch()
        run_event(Event.EPOCH_END)
        self._evaluate(Event.EPOCH_END)
        self._agree_on_end()
        run_event(Event.EPOCH_CHECKPOINT)

    # ---- an end on one rank -------------------------------------------------------------------

    def _keep_stop(self) -> bool:
        """Keep an end that this rank asks for until all ranks know of it.

        What asks how far the run is (saving, evaluating) would else do things on this rank alone.
        """
        if self._stop_everywhere:
            return False
        self._stop_here = True
        return True

    def _stop_together(self) -> None:
        self._stop_here = False
        self._stop_everywhere = True
        self._state.stop_training()

    def _tell_stop(self) -> None:
        """Tell the others, which are about to say that they have a batch."""
        if self._stop_here:
            assert self._ranks is not None
            self._ranks.share_batch(0, 0, stop=True)
            self._leave_with_others()
            self._end_here()

    def _leave_with_others(self) -> None:
        """Save and end with a rank that was asked to, and whose loader ended with the signal."""
        if self._ranks is not None and self._ranks.leaving:
            if self._ranks.stopped:
                self._end_here()
            self._stop()

    def _end_here(self) -> None:
        """End on every rank; what saves at the end of training is asked once more."""
        self._stop_together()
        self._engine.run_event(_BATCH_CHECKPOINT)

    def _agree_on_end(self) -> bool:
        """Let all ranks end if one wants to; whether that is before their time."""
        if self._ranks is None or self._done() or not dist.any_rank(self._stop_here):
            return False
        self._stop_together()
        return True

    # ---- ending early -------------------------------------------------------------------------

    def _stop(self) -> None:
        """Save once and end, because the run was asked to; every rank comes here together."""
        state = self._state
        reason = self._agreed_reason()
        saved = None if self._save is None else self._save()
        if self._ranks is not None:
            dist.barrier()  # a rank that ends takes the others along, so the writing one goes first
        where = "nothing is saved, since there is no save_folder"
        if self._save is not None:
            where = "rank zero saved it" if saved is None else f"it can be continued from {saved}"
        log.warning(
            "run %s ends at batch %d because of %s; %s",
            state.run_name,
            int(state.timestamp.batch),
            reason,
            where,
        )
        raise TrainingInterrupted(reason, saved)

    def _agreed_reason(self) -> str:
        """What asked for the end: on this rank, or on the first that knows."""
        reasons = [self._interruption.reason]
        if self._ranks is not None:
            reasons = dist.all_gather_object(self._interruption.reason)
        return next((reason for reason in reasons if reason is not None), "SIGTERM")

    def _stop_after_end(self) -> None:
        """End where a request came too late to cut anything: all is done and saved."""
        asked = self._to_stop or self._interruption.asked
        if self._ranks is not None:
            asked, _ = self._ranks.share_end(stop=asked, seconds=0.0)
        if asked:
            self._stop()

    def _stop_before_start(self) -> None:
        """End before the first batch, where there is nothing new to save."""
        asked = self._interruption.asked
        if self._ranks is not None:
            asked, _ = self._ranks.share_end(stop=asked, seconds=0.0)
        if asked and self._finished_evaluation:
            self._stop()  # or the next process would do that evaluation once more
        if asked:
            reason = self._agreed_reason()
            log.warning(
                "run %s ends before its first batch because of %s; nothing was trained, so "
                "nothing is saved",
                self._state.run_name,
                reason,
            )
            raise TrainingInterrupted(reason, None)
