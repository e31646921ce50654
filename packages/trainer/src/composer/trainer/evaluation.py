"""Evaluation: each set is passed over once, its metrics are computed and logged.

Nothing of an evaluation is kept for resumption: an evaluation is whole or it did not happen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data.distributed import DistributedSampler

from composer.core.evaluator import Evaluator
from composer.core.event import Event
from composer.core.intervals import IntervalScheduler
from composer.core.precision import autocast_factory
from composer.core.timestamp import Timestamp
from composer.distributed.flat import buffers_shared
from composer.trainer.auto_microbatch import MicrobatchSearch, evaluate_with_retries
from composer.trainer.data import derived_seed, host_streams
from composer.trainer.inference import evaluating, limited, loader_in_use
from composer.trainer.interruption import EvaluationInterrupted, Interruption
from composer.trainer.loader_facts import sampler_in_use
from composer.trainer.metrics import computed, to_host
from composer.utils import dist
from composer.utils.modules import unwrapped_model

if TYPE_CHECKING:
    from composer.core.data_spec import DataSpec
    from composer.core.engine import Engine
    from composer.core.logger import Logger
    from composer.core.state import State
    from composer.core.types import Batch

__all__ = ["EvalLoop", "own_samples"]

_NO_BATCH: Any = object()


def own_samples(dataloader: Any) -> int | None:
    """Count the samples that a rank evaluates, without those that only fill up the last batch.

    Torch's distributed sampler repeats the first samples so that all ranks have equally many; the
    repeated ones stand at the end of a rank's share.

    Args:
        dataloader: The loader.

    Returns:
        The number, or ``None`` if nothing is repeated.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> from torch.utils.data.distributed import DistributedSampler
        >>> data = list(range(9))
        >>> sampler = DistributedSampler(data, num_replicas=2, rank=1, shuffle=False)
        >>> len(list(sampler)), own_samples(DataLoader(data, sampler=sampler))
        (5, 4)
    """
    sampler = sampler_in_use(dataloader)
    if not isinstance(sampler, DistributedSampler) or sampler.drop_last:
        return None
    return len(range(sampler.rank, len(sampler.dataset), sampler.num_replicas))  # type: ignore[arg-type]


def _told(evaluator: Evaluator) -> str:
    interval = getattr(evaluator.eval_interval, "interval", None)
    return evaluator.label if interval is None else f"{evaluator.label} (every {interval!s})"


class EvalLoop:
    """Runs evaluation sets.

    Args:
        state: The state of the run.
        engine: Dispatches the events.
        logger: Where metrics are reported.

    Example:
        >>> import torch
        >>> from composer.core.engine import Engine
        >>> from composer.core.logger import Logger
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> from composer.models import ComposerClassifier
        >>> model = ComposerClassifier(torch.nn.Linear(2, 3), num_classes=3)
        >>> state = State(model, 0, "r", DeviceCPU())
        >>> state.eval_metrics = {"val": model.get_metrics(is_train=False)}
        >>> logger = Logger(state)
        >>> data = [(torch.ones(4, 2), torch.zeros(4, dtype=torch.long))]
        >>> evaluation = EvalLoop(state, Engine(state, logger), logger)
        >>> evaluation.run_standalone([Evaluator(label="val", dataloader=data)], None)
        >>> int(state.eval_timestamp.sample)
        4
    """

    def __init__(self, state: State, engine: Engine, logger: Logger) -> None:
        self._state = state
        self._engine = engine
        self._logger = logger
        self._searches: dict[str, MicrobatchSearch] = {}

    def agree(self, evaluators: Sequence[Evaluator]) -> None:
        """Refuse evaluation sets that not every rank has: one alone would wait for the others.

        Args:
            evaluators: This rank's.

        Raises:
            ValueError: On every rank, if they differ in their labels or in when they run.
        """
        if dist.get_world_size() == 1:
            return
        found = dist.all_gather_object([_told(evaluator) for evaluator in evaluators])
        for rank, others in enumerate(found):
            if others != found[0]:
                raise ValueError(
                    f"every rank must have the same evaluation sets, but rank 0 has {found[0]} and "
                    f"rank {rank} has {others}; give eval_dataloader on all ranks"
                )

    def restart(self) -> None:
        """Let every interval start over; a run does so when it starts."""
        for evaluator in self._state.evaluators:
            if isinstance(evaluator.eval_interval, IntervalScheduler):
                evaluator.eval_interval.restart()

    def note(self, evaluators: Sequence[Evaluator]) -> None:
        """Take evaluators for run at this moment, whatever their intervals say.

        Args:
            evaluators: Which.
        """
        for evaluator in evaluators:
            if isinstance(evaluator.eval_interval, IntervalScheduler):
                evaluator.eval_interval.note(self._state)

    def due(self, event: Event) -> list[Evaluator]:
        """Return the state's evaluators that are due at an event.

        Args:
            event: The event.

        Returns:
            The evaluators; asking notes that they are run now.
        """
        state = self._state
        return [
            evaluator
            for evaluator in state.evaluators
            if evaluator.eval_interval is not None and evaluator.eval_interval(state, event)
        ]

    def run_all(
        self, evaluators: Sequence[Evaluator], interruption: Interruption | None = None
    ) -> None:
        """Run evaluators in the course of training.

        Args:
            evaluators: Which; at least one.
            interruption: Knows whether the run was asked to end.

        Raises:
            EvaluationInterrupted: If it was; what was not finished is to be done again.
        """
        state, first, last = self._state, evaluators[0], evaluators[-1]
        with loader_in_use(state, first.dataloader.dataloader, first.label):
            self._engine.run_event(Event.EVAL_BEFORE_ALL)
        for evaluator in evaluators:
            self.run(evaluator, interruption=interruption)
            if state.pending_evaluations:
                state.pending_evaluations["left"].remove(evaluator.label)
        with loader_in_use(state, last.dataloader.dataloader, last.label):
            self._engine.run_event(Event.EVAL_AFTER_ALL)

    def run_standalone(
        self, evaluators: Sequence[Evaluator], subset_num_batches: int | None
    ) -> None:
        """Run evaluators because the user asked.

        Args:
            evaluators: Which.
            subset_num_batches: At most this many batches each; ``None`` for the evaluator's own.
        """
        self.agree(evaluators)
        self._engine.run_event(Event.EVAL_STANDALONE_START)
        for evaluator in evaluators:
            self.run(evaluator, subset_num_batches)
        self._engine.run_event(Event.EVAL_STANDALONE_END)

    def run(
        self,
        evaluator: Evaluator,
        subset_num_batches: int | None = None,
        *,
        interruption: Interruption | None = None,
    ) -> None:
        """Pass over one evaluation set and log its metrics.

        Args:
            evaluator: The set.
            subset_num_batches: At most this many batches; ``None`` for the evaluator's own.
            interruption: Knows whether the run was asked to end.

        Raises:
            EvaluationInterrupted: If it was.
        """
        try:
            self._run(evaluator, subset_num_batches, interruption or Interruption())
        except EvaluationInterrupted:
            raise
        except Exception as error:
            error.add_note(f"this happened in the evaluation set {evaluator.label!r}")
            raise

    def _run(
        self, evaluator: Evaluator, subset_num_batches: int | None, interruption: Interruption
    ) -> None:
        state, engine = self._state, self._engine
        spec, label = evaluator.dataloader, evaluator.label
        limit = subset_num_batches or evaluator.subset_num_batches or -1
        if spec.num_batches is not None and limit > spec.num_batches:
            limit = -1  # "at most" so many
        model = unwrapped_model(state.model)
        metrics = state.eval_metrics.get(label, {})
        for metric in metrics.values():
            metric.reset()
        # Its random numbers, a loader's seeds among them, are its own: whether and when a run is
        # evaluated does not change how it trains.
        streams = host_streams(
            derived_seed(state.seed, f"evaluation of {label}", int(state.timestamp.batch))
        )
        in_use = loader_in_use(state, spec.dataloader, label, limit)
        # Shared inside, since algorithms may have put other buffers in place, such as averages.
        with streams, in_use, evaluating(state), buffers_shared(state.model):
            state.eval_timestamp = Timestamp()
            self._set_epoch(spec.dataloader)
            engine.run_event(Event.EVAL_START)
            context = autocast_factory(state.precision, state.device.torch_type)
            for batch, samples in self._batches(spec, limit, interruption):
                if batch is not None:
                    self._run_batch(evaluator, model, metrics, batch, context)
                state.eval_timestamp = state.eval_timestamp.to_next_batch(samples=samples)
                if batch is not None:
                    engine.run_event(Event.EVAL_BATCH_END)
            if int(state.eval_timestamp.batch) == 0:
                raise ValueError(
                    f"the evaluation set {label!r} yielded no batches with samples, so its metrics "
                    f"would say nothing; check that its data is not empty, and that it is a loader "
                    f"that can be passed over again and not an iterator"
                )
            report = computed(label, metrics)
            if evaluator.auto_microbatching:
                found = evaluator.device_eval_microbatch_size
                report[f"trainer/{label}/device_eval_microbatch_size"] = found
            if report:
                self._logger.log_metrics(report, step=int(state.timestamp.batch))
            engine.run_event(Event.EVAL_END)

    def _batches(
        self, spec: DataSpec, limit: int, interruption: Interruption
    ) -> Iterator[tuple[Batch | None, int]]:
        """Yield this rank's batches, each with its number of samples over all ranks.

        A rank that has no more gets ``None`` until all have none, since ranks agree on each batch.
        """
        source = limited(spec.dataloader, None if limit == -1 else limit)
        left = own_samples(spec.dataloader)
        many = dist.get_world_size() > 1
        while True:
            batch, samples = _NO_BATCH, 0.0
            asked = interruption.asked
            try:
                for batch in () if asked else source:
                    if spec.batch_transforms is not None:
                        batch = spec.batch_transforms(batch)
                    samples = float(spec.get_num_samples_in_batch(batch))
                    if samples:
                        break
                    batch = _NO_BATCH  # without samples, as at the end of data that is dealt out
            except Exception:
                # Worker processes that got the signal too are gone; the other ranks are told.
                asked = interruption.asked
                if not asked:
                    raise
                batch, samples = _NO_BATCH, 0.0
            if batch is not _NO_BATCH and left is not None and samples > left:
                batch = spec.split_batch(batch, left)[0] if left else _NO_BATCH
                samples = float(left)
            if left is not None:
                left -= int(samples)
            has, stop = float(batch is not _NO_BATCH), float(asked)
            if many:
                has, stop, samples = dist.sum_over_ranks([has, stop, samples])
            if stop:
                raise EvaluationInterrupted
            if not has:
                return
            yield (None if batch is _NO_BATCH else batch), int(samples)

    def _set_epoch(self, dataloader: Any) -> None:
        """A distributed sampler gets the batch counter, so that shuffled sets differ in time."""
        set_epoch = getattr(sampler_in_use(dataloader), "set_epoch", None)
        if callable(set_epoch):
            set_epoch(int(self._state.timestamp.batch))

    def _run_batch(
        self,
        evaluator: Evaluator,
        model: Any,
        metrics: dict[str, Any],
        batch: Batch,
        context: Any,
    ) -> None:
        state, run_event, spec = self._state, self._engine.run_event, evaluator.dataloader
        state.batch = batch
        run_event(Event.EVAL_BATCH_START)
        if evaluator.auto_microbatching:
            self._run_automatically(evaluator, model, metrics, state.batch, context)
            return
        size = evaluator.device_eval_microbatch_size
        pieces = [state.batch] if size is None else spec.split_batch(state.batch, size)
        self._run_pieces(evaluator, model, metrics, pieces, context)

    def _run_automatically(
        self,
        evaluator: Evaluator,
        model: Any,
        metrics: dict[str, Any],
        batch: Batch,
        context: Any,
    ) -> None:
        spec = evaluator.dataloader
        samples = int(spec.get_num_samples_in_batch(batch))
        search = self._searches.setdefault(evaluator.label, MicrobatchSearch(samples))
        evaluate_with_retries(
            self._state,
            search,
            samples,
            metrics,
            lambda size: self._run_pieces(
                evaluator, model, metrics, spec.split_batch(batch, size), context
            ),
        )
        evaluator.device_eval_microbatch_size = search.size

    def _run_pieces(
        self,
        evaluator: Evaluator,
        model: Any,
        metrics: dict[str, Any],
        pieces: Sequence[Batch],
        context: Any,
    ) -> None:
        state, run_event, spec = self._state, self._engine.run_event, evaluator.dataloader
        for piece in pieces:
            piece = state.device.batch_to_device(piece)
            if spec.microbatch_transforms is not None:
                piece = spec.microbatch_transforms(piece)
            state.batch = piece
            run_event(Event.EVAL_BEFORE_FORWARD)
            with context():
                state.outputs = model.eval_forward(state.batch)
            run_event(Event.EVAL_AFTER_FORWARD)
            outputs, piece = state.outputs, state.batch
            if metrics and state.device.metrics_on_host:
                outputs, piece = to_host(outputs), to_host(piece)
            with context():
                for metric in metrics.values():
                    told = model.update_metric(piece, outputs, metric)
                    if told is not None:
                        state.metric_outputs = told
