"""Everything about a run that algorithms, callbacks and checkpoints share.

``State`` holds typed attributes and a few narrow helpers. It knows neither files nor engines: how
a field is saved is a table in ``composer.core.persistence``.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import torch

from composer.core.precision import Precision, ensure_precision
from composer.core.serializable import Serializable
from composer.core.time import Time, TimeUnit
from composer.core.timestamp import Timestamp
from composer.core.types import Batch, PyTorchScheduler
from composer.utils import dist
from composer.utils.batches import batch_get, batch_set
from composer.utils.iteration import ensure_tuple
from composer.utils.reproducibility import MAX_SEED

if TYPE_CHECKING:
    from composer.core.algorithm import Algorithm
    from composer.core.callback import Callback
    from composer.core.evaluator import Evaluator
    from composer.core.logger import Logger
    from composer.core.scaler import ClosureGradScaler
    from composer.devices.base import Device

__all__ = ["HandlerList", "MicrobatchFindings", "PendingEvaluations", "RunSettings", "State"]

T = TypeVar("T")


class PendingEvaluations(TypedDict, total=False):
    """An evaluation that is under way; empty if none is.

    Attributes:
        event: The event at which it became due.
        due: The labels of the sets that were due then.
        left: Those that are still to be passed over.

    Example:
        >>> pending: PendingEvaluations = {"event": "epoch_end", "due": ["a", "b"], "left": ["b"]}
        >>> pending["left"]
        ['b']
    """

    event: str
    due: list[str]
    left: list[str]


class MicrobatchFindings(TypedDict, total=False):
    """What automatic microbatching found out; empty if it did not begin.

    Attributes:
        size: The size to use.
        fits: The largest that worked; 0 for none.
        fails: The smallest that did not, or ``None``.

    Example:
        >>> found: MicrobatchFindings = {"size": 6, "fits": 6, "fails": 7}
        >>> found["size"]
        6
    """

    size: int
    fits: int
    fails: int | None


class RunSettings(TypedDict, total=False):
    """What a script asks for, in plain types.

    Attributes:
        optimizers: Per optimizer and parameter group, option to value.
        schedulers: Per schedule its type and settings.
        max_duration: The duration as a time string; ``None`` if it is not known yet.

    Example:
        >>> settings: RunSettings = {"max_duration": "2ep"}
        >>> settings["max_duration"]
        '2ep'
    """

    optimizers: list[list[dict[str, Any]]]
    schedulers: list[dict[str, Any]]
    max_duration: str | None


class HandlerList(list[T]):
    """A list that tells somebody when it changes.

    The engine keeps a table of who listens to what; this is how it learns that the table is stale.

    Args:
        items: The initial items.
        on_change: Called after each change.

    Example:
        >>> seen = []
        >>> handlers = HandlerList([1], lambda: seen.append("changed"))
        >>> handlers.append(2)
        >>> handlers, seen
        ([1, 2], ['changed'])
    """

    def __init__(self, items: Iterable[T] = (), on_change: Callable[[], None] | None = None):
        super().__init__(items)
        self._on_change = on_change


def _announcing(name: str) -> Callable[..., Any]:
    change = getattr(list, name)

    def method(self: HandlerList[Any], *args: Any, **kwargs: Any) -> Any:
        result = change(self, *args, **kwargs)
        if self._on_change is not None:
            self._on_change()
        return self if result is not None and name in ("__iadd__", "__imul__") else result

    method.__name__ = name
    return method


for _name in (
    *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"),
    *("__setitem__", "__delitem__", "__iadd__", "__imul__"),
):
    setattr(HandlerList, _name, _announcing(_name))


class State(Serializable):
    """The state of a run.

    Args:
        model: The model.
        rank_zero_seed: The seed of rank zero; every rank uses it plus its rank.
        run_name: Name of the run.
        device: The device.
        max_duration: How long to train.
        device_train_microbatch_size: Samples per forward and backward pass.
        auto_microbatching: Whether that size is found automatically.
        train_dataloader: Loader to train with.
        evaluators: Evaluation sets.
        dataloader: The loader in use now.
        dataloader_label: Its label.
        dataloader_len: Batches of one pass; -1 asks the loader.
        dataset_state: Position of the training data, or what knows it.
        dataset_resumption: Position still to be applied when the data arrives.
        precision: Number formats of the forward pass.
        precision_config: Settings of the FP8 recipe.
        optimizers: The optimizer.
        scaler: Gradient scaler, for ``amp_fp16``.
        save_metrics: Whether checkpoints hold the state of metrics.
        algorithms: Algorithms, in the user's order.
        callbacks: Callbacks, logger destinations first.
        parallelism_config: Sharding settings.

    Raises:
        ValueError: If the seed or the maximum duration is out of range.

    Example:
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "a-run", DeviceCPU(), max_duration="2ep")
        >>> state.get_elapsed_duration()
        Time(0.0, TimeUnit.DURATION)
    """

    # Model and optimisation
    model: torch.nn.Module
    scaler: ClosureGradScaler | None
    # The current step
    batch: Batch
    outputs: Any
    loss: torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor] | None
    # Progress
    timestamp: Timestamp
    previous_timestamp: Timestamp | None
    eval_timestamp: Timestamp
    predict_timestamp: Timestamp
    # Data
    train_dataloader: Iterable[Batch] | None
    #: What is applied to each microbatch on the device before the model sees it.
    train_microbatch_transforms: Callable[[Batch], Batch] | None
    dataset_state: Serializable | dict[str, Any] | None
    dataset_resumption: dict[str, Any]
    #: State of schedulers that was loaded before there were any.
    scheduler_resumption: list[dict[str, Any]]
    #: Random states of all ranks that were loaded, until they are put in place right before the
    #: first new batch. What is saved before then holds these, since the run goes on with them.
    random_resumption: list[dict[str, Any]] | None
    # Metrics
    train_metrics: dict[str, Any]
    eval_metrics: dict[str, dict[str, Any]]
    metric_outputs: dict[str, Any] | None
    # The run
    run_name: str
    rank_zero_seed: int
    load_path: str | None
    #: Whether this may go on with a run of an earlier process, whose files are then its own.
    is_continuation: bool
    profiler: Any
    save_metrics: bool
    # The system
    device: Device
    precision_config: dict[str, Any] | None
    device_train_microbatch_size: int | float | None
    auto_microbatching: bool
    parallelism_config: Any
    #: Whether the last batch updated the weights; false when a loss scale overflowed, or a loss was
    #: not finite and its batch was passed over.
    step_applied: bool
    #: Which of the optimizers stepped at the last batch, where several take turns; and whose step
    #: was skipped by loss scaling.
    optimizers_applied: list[bool]
    optimizers_skipped: list[bool]
    #: Batches that did not update the weights, and what they held.
    num_skipped_steps: int
    num_skipped_samples: int
    num_skipped_tokens: int
    #: Per optimizer the batches, samples and tokens that updated others and not this one, since its
    #: own step was skipped; empty if that never happened.
    missed_turns: list[list[int]]
    pending_evaluations: PendingEvaluations
    microbatch_search: MicrobatchFindings
    #: What the script asks for, and what it asked for when the checkpoint was made.
    settings: RunSettings
    stored_settings: RunSettings | None

    def __init__(
        self,
        model: torch.nn.Module,
        rank_zero_seed: int,
        run_name: str,
        device: Device,
        max_duration: str | Time[int] | None = None,
        device_train_microbatch_size: int | float | None = None,
        auto_microbatching: bool = False,
        train_dataloader: Iterable[Batch] | None = None,
        evaluators: Evaluator | Sequence[Evaluator] | None = None,
        dataloader: Iterable[Batch] | None = None,
        dataloader_label: str | None = None,
        dataloader_len: int | Time[int] = -1,
        dataset_state: Serializable | dict[str, Any] | None = None,
        dataset_resumption: dict[str, Any] | None = None,
        precision: str | Precision = Precision.FP32,
        precision_config: dict[str, Any] | None = None,
        optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
        scaler: ClosureGradScaler | None = None,
        save_metrics: bool = False,
        algorithms: Algorithm | Sequence[Algorithm] | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        parallelism_config: Any = None,
    ) -> None:
        if not 0 <= rank_zero_seed <= MAX_SEED:
            raise ValueError(f"a seed lies between 0 and {MAX_SEED}, not {rank_zero_seed}")
        self.model = model
        self.scaler = scaler
        self.batch = None
        self.outputs = None
        self.loss = None
        self._total_loss: dict[str, Any] = {}
        self.timestamp = Timestamp()
        self.previous_timestamp = None
        self.eval_timestamp = Timestamp()
        self.predict_timestamp = Timestamp()
        self.train_dataloader = train_dataloader
        self.train_microbatch_transforms = None
        self.dataset_state = dataset_state
        self.dataset_resumption = dataset_resumption or {}
        self.scheduler_resumption = []
        self.random_resumption = None
        self.train_metrics = {}
        self.eval_metrics = {}
        self.metric_outputs = None
        self.run_name = run_name
        self.rank_zero_seed = rank_zero_seed
        self.load_path = None
        self.is_continuation = False
        self.profiler = None
        self.save_metrics = save_metrics
        self.device = device
        self.precision = precision
        self.precision_config = precision_config
        self.device_train_microbatch_size = device_train_microbatch_size
        self.auto_microbatching = auto_microbatching
        self.parallelism_config = parallelism_config
        self.step_applied = True
        self.optimizers_applied = []
        self.optimizers_skipped = []
        self.num_skipped_steps = 0
        self.num_skipped_samples = 0
        self.num_skipped_tokens = 0
        self.missed_turns = []
        self.pending_evaluations = {}
        self.microbatch_search = {}
        self.settings = {}
        self.stored_settings = None

        self._handlers_changed: Callable[[], None] | None = None
        self._keep_stop: Callable[[], bool] | None = None
        self._max_duration: Time[int] | None = None
        self.max_duration = max_duration
        self.optimizers = optimizers
        self.schedulers = None
        self._evaluators: list[Evaluator] = list(ensure_tuple(evaluators))
        self.algorithms = algorithms
        self.callbacks = callbacks
        self._dataloader: Iterable[Batch] | None = None
        self._dataloader_label: str | None = None
        self._dataloader_len: Time[int] | None = None
        self.set_dataloader(dataloader, dataloader_label, dataloader_len)

    # ---- time ---------------------------------------------------------------------------------

    @property
    def max_duration(self) -> Time[int] | None:
        """How long to train; settable by time string, time or int (epochs)."""
        return self._max_duration

    @max_duration.setter
    def max_duration(self, value: str | int | Time[int] | None) -> None:
        if value is None:
            self._max_duration = None
            return
        time = Time.from_input(value, TimeUnit.EPOCH)
        if time.unit is TimeUnit.DURATION:
            raise ValueError(
                f"max_duration={value!s} is a share of itself; give epochs ('10ep'), batches "
                f"('500ba'), samples, tokens or wall clock ('1h30m')"
            )
        if time.value < 0:
            raise ValueError(f"max_duration must not be negative, not {time!s}")
        self._max_duration = time

    def get_elapsed_duration(self) -> Time[float] | None:
        """Return how much of the run is done.

        Returns:
            The current counter over the maximum duration, or ``None`` without a maximum.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU()).get_elapsed_duration() is None
            True
        """
        total = self._max_duration
        if total is None:
            return None
        if total.value == 0:
            return Time(1.0, TimeUnit.DURATION)
        return Time(self.timestamp.count(total.unit) / total.value, TimeUnit.DURATION)

    def stop_training(self) -> None:
        """End the run at the next check, by moving the maximum duration to now.

        With several ranks it is enough that one of them asks; they end together, so the maximum
        duration moves a little later, once all of them know.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU(), max_duration="5ep")
            >>> state.stop_training()
            >>> state.max_duration
            Time(0, TimeUnit.BATCH)
        """
        if self._keep_stop is not None and self._keep_stop():
            return
        unit = TimeUnit.BATCH if self._max_duration is None else self._max_duration.unit
        if unit in (TimeUnit.EPOCH, TimeUnit.SECOND, TimeUnit.ITERATION):
            unit = TimeUnit.BATCH
        self._max_duration = self.timestamp.get(unit)

    def on_stop(self, keep: Callable[[], bool] | None) -> None:
        """Say who is asked when training is to stop, before the maximum duration is moved.

        Args:
            keep: Called by :meth:`stop_training`; true if it takes care of it, and nothing moves
                now. ``None`` for nobody.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU(), max_duration="5ep")
            >>> state.on_stop(lambda: True)
            >>> state.stop_training()
            >>> state.max_duration
            Time(5, TimeUnit.EPOCH)
        """
        self._keep_stop = keep

    @property
    def update_timestamp(self) -> Timestamp:
        """The clock of the schedules: what was trained on without the batches that were skipped.

        Epochs and wall clock are the run's own.
        """
        if not self.num_skipped_steps:
            return self.timestamp
        now = self.timestamp
        return now.copy(
            batch=now.batch - self.num_skipped_steps,
            sample=now.sample - self.num_skipped_samples,
            token=now.token - self.num_skipped_tokens,
        )

    def note_skipped_step(self, samples: int, tokens: int) -> None:
        """Count a batch that did not update the weights.

        Args:
            samples: Its samples, over all ranks.
            tokens: Its tokens.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
            >>> state.note_skipped_step(4, 0)
            >>> state.num_skipped_steps
            1
        """
        self.num_skipped_steps += 1
        self.num_skipped_samples += samples
        self.num_skipped_tokens += tokens

    def note_missed_turns(self, samples: int, tokens: int) -> None:
        """Count a batch for those optimizers whose own step was skipped, while others stepped.

        Args:
            samples: Its samples, over all ranks.
            tokens: Its tokens.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> model = torch.nn.Linear(1, 1)
            >>> optimizers = [torch.optim.SGD([p], lr=0.1) for p in model.parameters()]
            >>> state = State(model, 0, "r", DeviceCPU(), optimizers=optimizers)
            >>> state.optimizers_skipped = [True, False]
            >>> state.note_missed_turns(4, 0)
            >>> state.missed_turns
            [[1, 4, 0], [0, 0, 0]]
        """
        if not self.missed_turns:
            self.missed_turns = [[0, 0, 0] for _ in self.optimizers]
        for i, skipped in enumerate(self.optimizers_skipped):
            if skipped:
                batches, before, seen = self.missed_turns[i]
                self.missed_turns[i] = [batches + 1, before + samples, seen + tokens]

    def update_timestamp_of(self, optimizer: torch.optim.Optimizer) -> Timestamp:
        """Return the clock of an optimizer's schedules: without the batches that did not update it.

        Args:
            optimizer: One of the state's.

        Returns:
            ``update_timestamp``, also without the turns that this optimizer alone has missed.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> model = torch.nn.Linear(1, 1)
            >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> state = State(model, 0, "r", DeviceCPU(), optimizers=optimizer)
            >>> int(state.update_timestamp_of(optimizer).batch)
            0
        """
        now = self.update_timestamp
        if not self.missed_turns:
            return now
        own = next(i for i, other in enumerate(self.optimizers) if other is optimizer)
        batches, samples, tokens = self.missed_turns[own]
        return now.copy(
            batch=now.batch - batches, sample=now.sample - samples, token=now.token - tokens
        )

    def restart_clock(self) -> None:
        """Set the clock to zero, as for a run that begins; weights and optimizers stay.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
            >>> state.restart_clock()
            >>> int(state.timestamp.batch)
            0
        """
        self.timestamp = Timestamp()
        self.previous_timestamp = None
        self.num_skipped_steps = self.num_skipped_samples = self.num_skipped_tokens = 0
        self.missed_turns = []

    @property
    def seed(self) -> int:
        """This rank's seed."""
        return self.rank_zero_seed + dist.get_global_rank()

    # ---- handlers -----------------------------------------------------------------------------

    def on_handlers_change(self, notify: Callable[[], None] | None) -> None:
        """Say whom to tell when algorithms or callbacks are added, removed or reordered.

        Args:
            notify: Called after each change; ``None`` for nobody.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
            >>> state.on_handlers_change(lambda: print("changed"))
            >>> state.callbacks = []
            changed
        """
        self._handlers_changed = notify

    def _notify(self) -> None:
        if self._handlers_changed is not None:
            self._handlers_changed()

    @property
    def algorithms(self) -> HandlerList[Algorithm]:
        """The algorithms, in the user's order."""
        return self._algorithms

    @algorithms.setter
    def algorithms(self, algorithms: Algorithm | Sequence[Algorithm] | None) -> None:
        self._algorithms = HandlerList(ensure_tuple(algorithms), self._notify)
        self._notify()

    @property
    def callbacks(self) -> HandlerList[Callback]:
        """The callbacks, logger destinations first."""
        return self._callbacks

    @callbacks.setter
    def callbacks(self, callbacks: Callback | Sequence[Callback] | None) -> None:
        self._callbacks = HandlerList(ensure_tuple(callbacks), self._notify)
        self._notify()

    @property
    def evaluators(self) -> list[Evaluator]:
        """The evaluation sets."""
        return self._evaluators

    @evaluators.setter
    def evaluators(self, evaluators: Evaluator | Sequence[Evaluator] | None) -> None:
        self._evaluators = list(ensure_tuple(evaluators))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers."""
        return self._optimizers

    @optimizers.setter
    def optimizers(
        self, optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None
    ) -> None:
        self._optimizers = list(ensure_tuple(optimizers))

    @property
    def schedulers(self) -> list[PyTorchScheduler]:
        """The learning rate schedulers, as torch's."""
        return self._schedulers

    @schedulers.setter
    def schedulers(self, schedulers: PyTorchScheduler | Sequence[PyTorchScheduler] | None) -> None:
        self._schedulers = list(ensure_tuple(schedulers))

    @property
    def precision(self) -> Precision:
        """Number formats of the forward pass; settable by name."""
        return self._precision

    @precision.setter
    def precision(self, precision: str | Precision) -> None:
        self._precision = ensure_precision(precision)

    # ---- batch --------------------------------------------------------------------------------

    def batch_get_item(self, key: Any) -> Any:
        """Return a member of the current batch.

        Args:
            key: Index, key, attribute name, sequence of keys, function, or pair of get and set
                functions.

        Returns:
            The member.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
            >>> state.batch = ("x", "y")
            >>> state.batch_get_item(1)
            'y'
        """
        return batch_get(self.batch, key)

    def batch_set_item(self, key: Any, value: Any) -> None:
        """Replace a member of the current batch.

        Args:
            key: As for :meth:`batch_get_item`.
            value: The new member.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
            >>> state.batch = ("x", "y")
            >>> state.batch_set_item(1, "z")
            >>> state.batch
            ('x', 'z')
        """
        # A loader may hand out the same container again, so it is not changed in place.
        mutable = isinstance(self.batch, (list, MutableMapping))
        self.batch = batch_set(copy.copy(self.batch) if mutable else self.batch, key, value)

    @property
    def total_loss_dict(self) -> dict[str, float]:
        """The last batch's losses as floats, ``loss/train/<name>`` to value.

        The step stores tensors; they become floats when somebody reads this, so that a device is
        not synchronised for nobody.
        """
        loss = self._total_loss
        for name, value in loss.items():
            if type(value) is not float:
                loss[name] = float(value)
        return loss

    @total_loss_dict.setter
    def total_loss_dict(self, losses: dict[str, Any]) -> None:
        self._total_loss = losses

    # ---- data ---------------------------------------------------------------------------------

    @property
    def dataloader(self) -> Iterable[Batch] | None:
        """The loader in use now."""
        return self._dataloader

    @property
    def dataloader_label(self) -> str | None:
        """Label of the loader in use now."""
        return self._dataloader_label

    @property
    def dataloader_len(self) -> Time[int] | None:
        """Batches of one pass over the loader in use; ``None`` if it cannot tell.

        Setting it cuts the pass; -1 asks the loader again.
        """
        return self._dataloader_len

    @dataloader_len.setter
    def dataloader_len(self, num_batches: int | Time[int]) -> None:
        if self._dataloader is None:
            raise RuntimeError("dataloader_len cannot be set before a dataloader is")
        count = int(Time.from_input(num_batches, TimeUnit.BATCH))
        if count < -1:
            raise ValueError(f"dataloader_len must be positive, or -1 for all, not {count}")
        own = self._own_length(self._dataloader)
        if count == -1:
            self._dataloader_len = None if own is None else Time(own, TimeUnit.BATCH)
            return
        if own is not None and count > own:
            warnings.warn(
                f"the dataloader {self._dataloader_label!r} holds {own} batches; dataloader_len="
                f"{count} asks for more, so all {own} are used",
                stacklevel=2,
            )
            count = own
        self._dataloader_len = Time(count, TimeUnit.BATCH)

    @staticmethod
    def _own_length(dataloader: Iterable[Batch]) -> int | None:
        try:
            return len(dataloader)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            return None

    def set_dataloader(
        self,
        dataloader: Iterable[Batch] | None = None,
        dataloader_label: str | None = None,
        dataloader_len: int | Time[int] = -1,
    ) -> None:
        """Make a loader the one in use.

        Args:
            dataloader: The loader; ``None`` for none.
            dataloader_label: Its label.
            dataloader_len: Batches of one pass; -1 asks the loader.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
            >>> state.set_dataloader([1, 2, 3], "train")
            >>> state.dataloader_len
            Time(3, TimeUnit.BATCH)
        """
        self._dataloader = dataloader
        self._dataloader_label = dataloader_label
        self._dataloader_len = None
        if dataloader is not None:
            self.dataloader_len = dataloader_len

    # ---- metrics ------------------------------------------------------------------------------

    @property
    def train_metric_values(self) -> dict[str, Any]:
        """Training metric name to its computed value."""
        return {name: metric.compute() for name, metric in self.train_metrics.items()}

    @property
    def eval_metric_values(self) -> dict[str, Any]:
        """Evaluation metrics, computed, under ``<label>/<name>``.

        A metric that only one evaluation set has is there under its bare name too.
        """
        values: dict[str, Any] = {}
        owners: dict[str, list[Any]] = {}
        for label, metrics in self.eval_metrics.items():
            for name, metric in metrics.items():
                value = metric.compute()
                values[f"{label}/{name}"] = value
                owners.setdefault(name, []).append(value)
        values.update({name: found[0] for name, found in owners.items() if len(found) == 1})
        return values

    # ---- parallelism --------------------------------------------------------------------------

    @property
    def is_model_ddp(self) -> bool:
        """Whether the model is wrapped for data parallelism."""
        return isinstance(self.model, torch.nn.parallel.DistributedDataParallel)

    @property
    def fsdp_enabled(self) -> bool:
        """Whether the model's parameters are sharded."""
        return False

    # ---- saving -------------------------------------------------------------------------------

    def get_model_state_dict(self) -> dict[str, Any]:
        """Return the model's parameters and buffers by name.

        Returns:
            The model's own ``state_dict``.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> sorted(State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU()).get_model_state_dict())
            ['bias', 'weight']
        """
        return self.model.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Return everything a checkpoint keeps, as plain types and tensors.

        Returns:
            Field name to saved form; see ``composer.core.persistence``.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU()).state_dict()["run_name"]
            'r'
        """
        from composer.core.persistence import collect

        return collect(self)

    def load_state_dict(
        self,
        state: dict[str, Any],
        logger: Logger | None = None,
        strict: bool = True,
        exclude_algorithms: Sequence[str] | None = None,
    ) -> None:
        """Restore what :meth:`state_dict` returned.

        Args:
            state: The saved fields.
            logger: Passed to algorithms that have to be applied again.
            strict: Whether the model's keys must match exactly.
            exclude_algorithms: Names of algorithms that must not be applied again.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
            >>> state.load_state_dict(state.state_dict())
        """
        from composer.core.persistence import restore

        restore(self, state, logger=logger, strict=strict, exclude_algorithms=exclude_algorithms)
