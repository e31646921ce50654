"""The trainer's public face: it assembles the parts and hands the work to them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import torch

from composer.checkpoint.layout import IgnoreKeys
from composer.checkpoint.save import save_checkpoint
from composer.core.algorithm import Algorithm
from composer.core.callback import Callback
from composer.core.data_spec import DataSpec, ensure_data_spec
from composer.core.engine import Engine
from composer.core.evaluator import Evaluator
from composer.core.event import Event
from composer.core.logger import Logger, LoggerDestination
from composer.core.model import ComposerModel
from composer.core.passes import AlgorithmPass
from composer.core.precision import Precision, ensure_precision, validate_precision
from composer.core.state import State
from composer.core.time import Time
from composer.core.types import Batch
from composer.devices import Device, get_device
from composer.distributed.sync import ensure_sync_strategy
from composer.trainer import assemble
from composer.trainer.alternating import (
    OptimizerStep,
    check_turns,
    follow_optimizers,
    split_optimizers,
)
from composer.trainer.batch_steps import SharedModel, make_step, share_model
from composer.trainer.data import TrainData
from composer.trainer.evaluation import EvalLoop
from composer.trainer.fit_arguments import (
    check_fit_arguments,
    check_scaling,
    set_duration,
    training_is_over,
    warn_default_optimizer,
)
from composer.trainer.interruption import Interruption, TrainingInterrupted, parse_wall_clock
from composer.trainer.loop import TrainLoop
from composer.trainer.metrics import fresh_metrics
from composer.trainer.nonfinite import NonFiniteAction, NonFinitePolicy, check_policy
from composer.trainer.options import (
    Interval,
    LoadOptions,
    SaveOptions,
    check_epoch_length,
    check_labels,
    check_later_features,
    check_microbatch_size,
    check_model,
    check_optimizers,
    check_seed,
    check_subset,
    parse_duration,
    unwrap_compiled,
    warn_replaced_labels,
)
from composer.trainer.prediction import predict
from composer.trainer.resume import Resumption, resume
from composer.trainer.rewinding import Rewinding
from composer.trainer.run_names import run_name as name_run
from composer.trainer.schedule_plan import SchedulePlan
from composer.trainer.schedules import scale_duration, schedule_ratio
from composer.trainer.settings import optimizer_settings
from composer.utils import dist
from composer.utils.hparams import extract_hparams
from composer.utils.iteration import ensure_tuple
from composer.utils.reproducibility import (
    configure_deterministic_mode,
    get_random_seed,
    load_rng_state,
    seed_all,
)

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

    from composer.callbacks.checkpoint_saver import CheckpointSaver
    from composer.checkpoint.inference import Transform
    from composer.models.export import ExportFormat, ExportReport
    from composer.optim.scheduler import ComposerScheduler
    from composer.utils.object_store import ObjectStore

__all__ = ["Trainer"]

log = logging.getLogger(__name__)

Loader = Iterable[Batch] | DataSpec | dict[str, Any]


class Trainer:
    """Trains, evaluates and runs a model, and lets algorithms and callbacks change how.

    Args:
        model: The model.
        train_dataloader: Batches to train on: an iterable, a ``DataSpec``, or a dictionary of its
            arguments. May be given to :meth:`fit` instead.
        train_dataloader_label: Its label; training metrics are logged under it.
        train_subset_num_batches: Batches per epoch; -1 for all.
        spin_dataloaders: Whether a resumed epoch goes on where it was; else it starts over.
        max_duration: How long to train: an int (epochs), a time string such as ``"10ep"``,
            ``"500ba"`` or ``"1h30m"``, or a ``Time``.
        algorithms: Methods that change training, or names of plugins.
        algorithm_passes: Further passes that order algorithms: ``(algorithms, event) ->
            algorithms``, each alone or with an index.
        optimizers: The optimizer; ``DecoupledSGDW`` with a learning rate of 0.1 by default.
            Several optimizers, over parameters of their own, step together at every batch;
            several :class:`~composer.trainer.alternating.OptimizerStep` take turns, each with a
            loss of its own.
        schedulers: Learning rate schedules of ``composer.optim``, functions of the state, or
            torch's.
        scale_schedule_ratio: Stretches or shrinks schedule and duration together.
        step_schedulers_every_batch: Whether schedulers step at every batch rather than every
            epoch; by default at every epoch if any is torch's, else at every batch.
        eval_dataloader: What to evaluate on: an iterable, a ``DataSpec``, an ``Evaluator``, or a
            sequence of them.
        eval_interval: When to evaluate; 0 for never.
        eval_subset_num_batches: At most this many batches per evaluation; -1 for all.
        callbacks: Observers, or names of plugins.
        loggers: Destinations of metrics, or names of plugins.
        run_name: Name of the run; made up if neither given nor in the environment.
        progress_bar: Whether to show a progress bar.
        log_to_console: Whether to print metrics.
        console_stream: Where to: ``"stdout"``, ``"stderr"`` or a text stream.
        console_log_interval: How often the console prints.
        log_traces: Whether bar and console print which algorithms ran.
        auto_log_hparams: Whether to log the arguments of this constructor.
        load_path: Checkpoint to start from.
        load_object_store: Where to find it, if ``load_path`` is not a path or URI of its own.
        load_weights_only: Whether to restore the model only.
        load_strict_model_weights: Whether the model's keys must match exactly.
        load_progress_bar: Whether to show the progress of a download.
        load_ignore_keys: Parts of the checkpoint to leave out: patterns such as
            ``"state/optimizers"``, or a function that edits it.
        load_exclude_algorithms: Algorithms of the checkpoint that must not be applied again.
        save_folder: Where to save checkpoints; ``None`` for nowhere.
        save_filename: Name template of a checkpoint.
        save_latest_filename: Name template of the link to the newest; ``None`` for none.
        save_overwrite: Whether files of another run may be in the way.
        save_interval: When to save.
        save_weights_only: Whether to save the model only.
        save_ignore_keys: Parts to leave out, as for ``load_ignore_keys``.
        save_num_checkpoints_to_keep: How many checkpoints to keep; -1 for all.
        save_metrics: Whether checkpoints hold the state of metrics.
        autoresume: Whether to continue this run's newest checkpoint if there is one; needs
            ``save_folder``, ``save_latest_filename`` and ``run_name``.
        parallelism_config: Sharding settings.
        device: ``"cpu"``, ``"gpu"``, ``"mps"`` or a ``Device``; the GPU if there is one.
        precision: ``"fp32"``, ``"amp_fp16"`` or ``"amp_bf16"``, or short ``"amp"`` and
            ``"bf16"``; ``"amp_fp16"`` on a GPU by default, else ``"fp32"``.
        precision_config: Settings of the FP8 recipe.
        device_train_microbatch_size: Samples per forward and backward pass; the loader's batch
            size by default; ``"auto"`` finds the largest that fits into memory. The update does
            not depend on it.
        accumulate_train_batch_on_tokens: Whether microbatches are weighted by their
            loss-generating tokens instead of their samples.
        seed: Seed of rank zero; made up if not given.
        deterministic_mode: Whether torch may use deterministic algorithms only.
        dist_timeout: Timeout of the process group in seconds.
        ddp_sync_strategy: When gradients are synchronised over ranks.
        profiler: A profiler.
        python_log_level: Level of the library's log messages, such as ``"INFO"``.
        compile_config: Arguments for ``torch.compile``; ``{}`` for its defaults, ``None`` for no
            compilation.
        load_overrides: Optimizer and scheduler settings, such as ``"lr"``, that this script decides
            when a checkpoint stores others; by default those that were changed in the script since
            the checkpoint was made. An empty list lets the checkpoint decide all of them.
        save_async: Whether training goes on while a checkpoint is written: it waits for a copy in
            the host's memory only.
        save_keep_every: Every how many saved checkpoints one is kept for good; ``None`` for none.
        save_best_metric: Name of a metric, as it is logged, by which the best checkpoints are
            chosen and kept, such as ``"metrics/eval/MulticlassAccuracy"``.
        save_best_mode: Whether more (``"max"``) or less (``"min"``) of it is better.
        save_num_best_to_keep: How many of the best to keep.
        max_wall_clock: How long this process may run, such as ``"3h50m"``, counted from here; then
            it saves once and ends with exit code 75.
        on_nonfinite_loss: What to do when a loss is infinite or not a number: ``"stop"``;
            ``"skip"`` the batch; or ``"rewind"``: put the newest checkpoint's weights back and go
            on behind the batch. ``None`` does not look, which costs nothing.
        strict_mode: Whether what is otherwise said in a warning stops the run: a loss that is not
            finite, settings that differ from a checkpoint's, and a resumption that is not exact.

    Raises:
        TypeError: If the model, an optimizer, an algorithm, a callback or a logger is of the wrong
            kind.
        ValueError: If arguments contradict each other or cannot be understood.
        NotImplementedError: If an argument asks for something that a later release brings.

    Example:
        >>> from composer.models import ComposerClassifier
        >>> model = ComposerClassifier(torch.nn.Linear(4, 2), num_classes=2)
        >>> data = [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(3)]
        >>> trainer = Trainer(
        ...     model=model,
        ...     train_dataloader=data,
        ...     max_duration="2ep",
        ...     optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        ...     progress_bar=False,
        ... )
        >>> trainer.fit()
        >>> int(trainer.state.timestamp.batch)
        6
        >>> trainer.close()
    """

    # What a user reads
    state: State
    logger: Logger
    engine: Engine
    auto_log_hparams: bool
    local_hparams: dict[str, Any]
    # What does the work, from construction to the end
    _data: TrainData | None
    _plan: SchedulePlan
    _evaluation: EvalLoop
    _saver: CheckpointSaver | None
    _interruption: Interruption
    _shared: SharedModel
    # What was asked for, where a call of `fit` or `eval` goes by it
    _device: Device
    _loading: LoadOptions
    _strict: bool
    _nonfinite_policy: NonFiniteAction | None
    _turns: list[OptimizerStep]
    _default_optimizer: bool
    _eval_settings: tuple[Interval, int]
    _spin_dataloaders: bool
    _on_tokens: bool
    _microbatch_size: int | float | str | None
    # How it went so far: what was loaded, and whether the last call of `fit` met an error
    _resumption: Resumption | None
    _rewinding: Rewinding | None
    _failed: bool

    def __init__(
        self,
        *,
        model: ComposerModel,
        train_dataloader: Loader | None = None,
        train_dataloader_label: str = "train",
        train_subset_num_batches: int = -1,
        spin_dataloaders: bool = True,
        max_duration: int | str | Time[int] | None = None,
        algorithms: Algorithm | str | Sequence[Algorithm | str] | None = None,
        algorithm_passes: AlgorithmPass
        | tuple[AlgorithmPass, int]
        | Sequence[AlgorithmPass | tuple[AlgorithmPass, int]]
        | None = None,
        optimizers: torch.optim.Optimizer
        | OptimizerStep
        | Sequence[torch.optim.Optimizer | OptimizerStep]
        | None = None,
        schedulers: ComposerScheduler
        | LRScheduler
        | Callable[[State], float]
        | Sequence[ComposerScheduler | LRScheduler | Callable[[State], float]]
        | None = None,
        scale_schedule_ratio: float = 1.0,
        step_schedulers_every_batch: bool | None = None,
        eval_dataloader: Loader | Evaluator | Sequence[Any] | None = None,
        eval_interval: Interval = 1,
        eval_subset_num_batches: int = -1,
        callbacks: Callback | str | Sequence[Callback | str] | None = None,
        loggers: LoggerDestination | str | Sequence[LoggerDestination | str] | None = None,
        run_name: str | None = None,
        progress_bar: bool = True,
        log_to_console: bool = False,
        console_stream: str | TextIO = "stderr",
        console_log_interval: int | str | Time[int] = "1ba",
        log_traces: bool = False,
        auto_log_hparams: bool = False,
        load_path: str | None = None,
        load_object_store: Any = None,
        load_weights_only: bool = False,
        load_strict_model_weights: bool = True,
        load_progress_bar: bool = True,
        load_ignore_keys: IgnoreKeys = None,
        load_exclude_algorithms: list[str] | None = None,
        save_folder: str | None = None,
        save_filename: str = "ep{epoch}-ba{batch}-rank{rank}.pt",
        save_latest_filename: str | None = "latest-rank{rank}.pt",
        save_overwrite: bool = False,
        save_interval: Interval = "1ep",
        save_weights_only: bool = False,
        save_ignore_keys: IgnoreKeys = None,
        save_num_checkpoints_to_keep: int = -1,
        save_metrics: bool = False,
        autoresume: bool = False,
        parallelism_config: Any = None,
        device: str | Device | None = None,
        precision: str | Precision | None = None,
        precision_config: dict[str, Any] | None = None,
        device_train_microbatch_size: int | float | str | None = None,
        accumulate_train_batch_on_tokens: bool = False,
        seed: int | None = None,
        deterministic_mode: bool = False,
        dist_timeout: float = 300.0,
        ddp_sync_strategy: str | None = None,
        profiler: Any = None,
        python_log_level: str | None = None,
        compile_config: dict[str, Any] | None = None,
        load_overrides: Sequence[str] | None = None,
        save_async: bool = False,
        save_keep_every: int | None = None,
        save_best_metric: str | None = None,
        save_best_mode: str | None = None,
        save_num_best_to_keep: int = 1,
        max_wall_clock: str | Time[int] | None = None,
        on_nonfinite_loss: str | None = None,
        strict_mode: bool = False,
    ) -> None:
        self.auto_log_hparams = auto_log_hparams
        self.local_hparams = extract_hparams(locals()) if auto_log_hparams else {}

        # 1. Everything that can be refused is refused before anything is built.
        assemble.configure_python_logging(python_log_level)
        model, forward = unwrap_compiled(model)
        check_model(model)
        check_later_features(
            parallelism_config=parallelism_config,
            profiler=profiler,
            precision_config=precision_config,
        )
        self._interruption = Interruption(parse_wall_clock(max_wall_clock))
        self._strict = strict_mode
        self._nonfinite_policy = check_policy(on_nonfinite_loss, strict=strict_mode)
        ensure_sync_strategy(ddp_sync_strategy, find_unused_parameters=False)
        duration = parse_duration(max_duration, "max_duration")
        check_scaling(schedulers, scale_schedule_ratio)
        methods = assemble.algorithms(algorithms)
        scale_schedule_ratio = schedule_ratio(scale_schedule_ratio, methods)
        self._device = get_device(device)
        if dist.get_world_size() > 1:
            dist.initialize_dist(self._device, dist_timeout)
        name, name_given = name_run(run_name)
        saving = SaveOptions(
            folder=save_folder,
            filename=save_filename,
            latest_filename=save_latest_filename,
            overwrite=save_overwrite,
            interval=save_interval,
            weights_only=save_weights_only,
            ignore_keys=save_ignore_keys,
            num_checkpoints_to_keep=save_num_checkpoints_to_keep,
            async_save=save_async,
            keep_every=save_keep_every,
            best_metric=save_best_metric,
            best_mode=save_best_mode,
            num_best_to_keep=save_num_best_to_keep,
        )
        loading = LoadOptions(
            path=load_path,
            object_store=load_object_store,
            weights_only=load_weights_only,
            strict_model_weights=load_strict_model_weights,
            progress_bar=load_progress_bar,
            ignore_keys=load_ignore_keys,
            exclude_algorithms=load_exclude_algorithms,
            overrides=load_overrides,
            autoresume=autoresume,
        )
        loading.check(saving, run_name_given=name_given)
        if self._nonfinite_policy is NonFiniteAction.REWIND:
            loading.check_rewind(saving)
        self._loading = loading

        # 2. Precision, seed.
        if precision is None:
            precision = self._device.default_precision
        precision = ensure_precision(precision)
        validate_precision(precision, self._device)
        assemble.say_slow_precision(precision, self._device)
        seed = check_seed(seed)
        seed_given = seed is not None
        seeds = [get_random_seed() if seed is None else seed]
        dist.broadcast_object_list(seeds)
        seed_all((seeds[0] + dist.get_global_rank()) % 2**32)
        if deterministic_mode:
            configure_deterministic_mode()

        # 3. Model and optimizer.
        given, self._turns = split_optimizers(ensure_tuple(optimizers))
        found_optimizers = check_optimizers(given, model, jointly=not self._turns)
        for turn in self._turns:
            turn.check(model)
        check_turns(self._turns, self._nonfinite_policy)
        self._default_optimizer = optimizers is None
        if optimizers is None:
            found_optimizers = assemble.default_optimizer(model)
        model = self._device.module_to_device(model)
        found_optimizers = [self._device.optimizer_to_device(o) for o in found_optimizers]

        # 4. State, loggers, callbacks, engine.
        destinations = assemble.destinations(
            loggers,
            progress_bar=progress_bar,
            log_to_console=log_to_console,
            console_stream=console_stream,
            console_log_interval=console_log_interval,
            log_traces=log_traces,
        )
        observers = assemble.callbacks(callbacks)
        self._saver = assemble.saver(saving)
        if self._saver is not None:
            observers.append(self._saver)
        self.state = State(
            model=model,
            rank_zero_seed=seeds[0],
            run_name=name,
            device=self._device,
            precision=precision,
            optimizers=found_optimizers,
            save_metrics=save_metrics,
            algorithms=methods,
            callbacks=[*destinations, *observers],
        )
        self.state.is_continuation = autoresume
        self.state.scaler = assemble.make_scaler(precision, self._device)
        self.logger = Logger(self.state, destinations)
        self.engine = Engine(self.state, self.logger, algorithm_passes)
        model.logger = self.logger
        with assemble.without_empty_folder(saving.folder, name):
            self.engine.run_event(Event.INIT)
            self._turns = follow_optimizers(self._turns, self.state.optimizers)

            # 5. Metrics, evaluation, training data.
            self.state.train_metrics = fresh_metrics(self.state, is_train=True)
            self._evaluation = EvalLoop(self.state, self.engine, self.logger)
            self._eval_settings = (eval_interval, eval_subset_num_batches)
            self.state.evaluators = assemble.evaluators(
                self.state,
                eval_dataloader,
                interval=eval_interval,
                subset_num_batches=eval_subset_num_batches,
            )
            self._spin_dataloaders = spin_dataloaders
            self._data = None
            self._on_tokens = accumulate_train_batch_on_tokens
            self._microbatch_size = device_train_microbatch_size
            check_microbatch_size(
                device_train_microbatch_size, None, "device_train_microbatch_size"
            )
            self.state.max_duration = duration
            if duration is not None:
                self.state.max_duration = scale_duration(duration, scale_schedule_ratio)
            if train_dataloader is not None:
                self._set_train_data(
                    train_dataloader, train_dataloader_label, train_subset_num_batches
                )
                check_epoch_length(self.state, self.state.max_duration)

            # 6. Schedulers, once duration and data are there; else they wait for `fit`.
            self._plan = SchedulePlan(
                self.state,
                schedulers,
                ratio=scale_schedule_ratio,
                every_batch=step_schedulers_every_batch,
                turns=self._turns,
            )
            settled = train_dataloader is not None and duration is not None
            if settled:
                self._plan.make()

            # 7. Resumption, then random streams as if the run had just begun.
            self.engine.run_event(Event.BEFORE_LOAD)
            self.state.settings = {
                "optimizers": optimizer_settings(found_optimizers),
                "schedulers": [description for description, _ in self._plan.current.described],
                "max_duration": None if duration is None else str(self.state.max_duration),
            }
            self._resumption = resume(
                self.state,
                self.logger,
                loading,
                saving,
                schedules=self._plan.current if settled else None,
                seed_given=seed_given,
                strict=strict_mode,
                spin=spin_dataloaders,
            )
            if self._resumption is not None:
                self._plan.current.refresh()
                self._give_position_to_data()
            self.engine.run_event(Event.AFTER_LOAD)
            # Only now: a checkpoint brings its own seed and may bring algorithms.
            self.logger.log_hyperparameters(assemble.run_facts(self.state))
            if self.local_hparams:
                self.logger.log_hyperparameters(self.local_hparams)
            seed_all(self.state.seed % 2**32)
            if compile_config is not None and forward is None:
                self.state.model.compile(**compile_config)
            self._shared = share_model(
                self.state,
                forward,
                strategy=ddp_sync_strategy,
                turns=bool(self._turns),
                auto=device_train_microbatch_size == "auto",
            )
            self._rewinding = None
            if self._nonfinite_policy is NonFiniteAction.REWIND:
                self._rewinding = Rewinding(self.state, self.engine, self._saver, self._resumption)
            self._failed = False

    # ---- set-up that `fit` repeats ------------------------------------------------------------

    def _set_train_data(self, given: Loader, label: str, subset_num_batches: int | None) -> None:
        spec = assemble.set_train_data(
            self.state, given, label=label, subset_num_batches=subset_num_batches
        )
        assemble.agree_on_length(self.state)
        assemble.set_microbatch_size(self.state, self._microbatch_size, spec.dataloader)
        self._data = TrainData(spec, self.state, strict=self._strict)
        self.state.dataset_state = self._data
        self._give_position_to_data()

    def _give_position_to_data(self) -> None:
        """A position that was loaded before the data was there waits for it."""
        position = self.state.dataset_resumption
        if position and self._data is not None:
            self._data.load_state_dict(position)
            self.state.dataset_resumption = {}

    # ---- training -----------------------------------------------------------------------------

    def fit(
        self,
        *,
        train_dataloader: Loader | None = None,
        train_dataloader_label: str = "train",
        train_subset_num_batches: int | None = None,
        spin_dataloaders: bool | None = None,
        duration: int | str | Time[int] | None = None,
        reset_time: bool = False,
        schedulers: ComposerScheduler
        | LRScheduler
        | Callable[[State], float]
        | Sequence[ComposerScheduler | LRScheduler | Callable[[State], float]]
        | None = None,
        scale_schedule_ratio: float = 1.0,
        step_schedulers_every_batch: bool | None = None,
        eval_dataloader: Loader | Evaluator | Sequence[Any] | None = None,
        eval_subset_num_batches: int = -1,
        eval_interval: Interval = 1,
        device_train_microbatch_size: int | float | str | None = None,
        precision: str | Precision | None = None,
    ) -> None:
        """Train until the maximum duration is reached.

        Args:
            train_dataloader: Replaces the training data.
            train_dataloader_label: Its label.
            train_subset_num_batches: Batches per epoch; -1 for all.
            spin_dataloaders: Whether a started epoch goes on where it was.
            duration: How much more to train than now.
            reset_time: Whether to set the clock to zero first; weights, optimizer state and torch
                schedulers stay.
            schedulers: Replace the schedulers.
            scale_schedule_ratio: Stretches or shrinks schedule and duration together.
            step_schedulers_every_batch: Whether schedulers step at every batch.
            eval_dataloader: Replaces the evaluation data.
            eval_subset_num_batches: At most this many batches per evaluation; -1 for all.
            eval_interval: When to evaluate.
            device_train_microbatch_size: Samples per forward and backward pass.
            precision: Replaces the precision.

        Raises:
            ValueError: If there is nothing to train on or no training left to do, or arguments
                contradict each other.
        """
        state = self.state
        check_scaling(schedulers, scale_schedule_ratio, step_schedulers_every_batch)
        ratio = schedule_ratio(scale_schedule_ratio, state.algorithms)
        check_fit_arguments(
            state,
            train_dataloader=train_dataloader,
            train_dataloader_label=train_dataloader_label,
            eval_dataloader=eval_dataloader,
            eval_interval=eval_interval,
            eval_subset_num_batches=eval_subset_num_batches,
        )
        if self._default_optimizer:
            warn_default_optimizer()
            self._default_optimizer = False
        if device_train_microbatch_size is not None:
            self._microbatch_size = device_train_microbatch_size
        if train_dataloader is not None:
            self._set_train_data(train_dataloader, train_dataloader_label, train_subset_num_batches)
        elif self._data is None:
            raise ValueError(
                "there is no training data; pass train_dataloader to the trainer or to fit"
            )
        else:
            self._restate_data(train_subset_num_batches)
        data = self._data
        assert data is not None
        if reset_time:
            state.restart_clock()
        # What the trainer was told is scaled already, but for a ratio of this call.
        stretch = scale_schedule_ratio if duration is None else ratio
        set_duration(state, duration, stretch, autoresume=self._loading.autoresume)
        if training_is_over(state, self._resumption):
            return
        if schedulers is not None:
            self._plan.replace(schedulers, ratio=ratio, every_batch=step_schedulers_every_batch)
        state.settings["max_duration"] = str(state.max_duration)
        loaded = None if self._resumption is None else self._resumption.options
        self._plan.settle(loaded, strict=self._strict)
        # A clock that was set to zero, or a longer run, takes effect at the first batch; a schedule
        # that does not fit the new duration is refused here.
        self._plan.current.refresh()
        if eval_dataloader is not None:
            state.evaluators = assemble.evaluators(
                state,
                eval_dataloader,
                # What this call does not say is as the trainer was told.
                interval=self._eval_settings[0] if eval_interval == 1 else eval_interval,
                subset_num_batches=self._eval_settings[1]
                if eval_subset_num_batches == -1
                else eval_subset_num_batches,
            )
        check_labels(state, data.spec)
        if precision is not None:
            assemble.set_precision(state, precision)
        policy = self._nonfinite_policy
        nonfinite = None if policy is None else NonFinitePolicy(policy, state, self._rewind)
        loop = TrainLoop(
            state,
            self.engine,
            self.logger,
            data=data,
            step=make_step(
                state,
                self.engine,
                data.spec,
                model=self._shared,
                turns=self._turns,
                on_tokens=self._on_tokens,
                nonfinite=nonfinite,
            ),
            schedules=self._plan.current,
            evaluation=self._evaluation,
            spin=self._spin_dataloaders if spin_dataloaders is None else spin_dataloaders,
            restore_random_state=self._take_random_state(),
            interruption=self._interruption,
            save=None
            if self._saver is None
            else partial(self._saver.save_unless_saved, state, self.logger),
            nonfinite=nonfinite,
            ranks=self._shared.ranks,
        )
        try:
            with self._interruption.installed():
                loop.run()
        except BaseException as error:
            self._failed = not isinstance(error, TrainingInterrupted)
            self._finish_writing()
            raise
        self._failed = False
        for optimizer in state.optimizers:
            optimizer.zero_grad()

    def _finish_writing(self) -> None:
        """After an error: what led to it is worth having, and so is a checkpoint on its way."""
        for finish in (self.logger.flush, None if self._saver is None else self._saver.wait):
            try:
                if finish is not None:
                    finish()
            except Exception:
                log.exception("what was still to be written could not be")

    def _rewind(self) -> str | None:
        """Put weights and optimizers of the newest checkpoint back; returns its name."""
        assert self._rewinding is not None
        path = self._rewinding()
        if path is not None:
            self._plan.current.refresh()
        return path

    def _restate_data(self, subset_num_batches: int | None) -> None:
        """Apply what a call of ``fit`` says about data that is there already."""
        state, data = self.state, self._data
        assert data is not None
        if subset_num_batches is not None:
            check_subset(subset_num_batches, "train_subset_num_batches")
            state.dataloader_len = subset_num_batches
        assemble.set_microbatch_size(state, self._microbatch_size, data.loader)

    def _take_random_state(self) -> Callable[[], None] | None:
        """The random streams of the checkpoint, to be restored once, as the last thing."""
        state = self.state
        if state.random_resumption is None:
            return None

        def restore() -> None:
            saved, state.random_resumption = state.random_resumption, None
            if saved is not None:
                load_rng_state(saved)

        return restore

    # ---- evaluation and prediction ------------------------------------------------------------

    def eval(
        self,
        eval_dataloader: Loader | Evaluator | Sequence[Any] | None = None,
        subset_num_batches: int = -1,
    ) -> None:
        """Evaluate now; results are in ``state.eval_metrics`` and in the logs.

        Args:
            eval_dataloader: What to evaluate on; the trainer's evaluation data by default.
            subset_num_batches: At most this many batches; -1 for each set's own number.

        Raises:
            ValueError: If there is nothing to evaluate on.
        """
        check_subset(subset_num_batches, "subset_num_batches")
        state = self.state
        known = list(state.evaluators)
        if eval_dataloader is None:
            chosen = known
        else:
            chosen = assemble.evaluators(
                state,
                eval_dataloader,
                interval=self._eval_settings[0],
                subset_num_batches=self._eval_settings[1],
            )
            warn_replaced_labels(chosen, known)
        if not chosen:
            raise ValueError(
                "there is nothing to evaluate on; pass eval_dataloader to the trainer or to eval"
            )
        labels = {evaluator.label for evaluator in chosen}
        state.evaluators = [*(e for e in known if e.label not in labels), *chosen]
        try:
            self._evaluation.run_standalone(
                chosen, None if subset_num_batches == -1 else subset_num_batches
            )
        finally:
            state.evaluators = known

    def predict(
        self,
        dataloader: Loader,
        subset_num_batches: int = -1,
        *,
        return_outputs: bool = True,
    ) -> list[Any]:
        """Run the model's ``forward`` over data, without gradients.

        Args:
            dataloader: The data.
            subset_num_batches: At most this many batches; -1 for all.
            return_outputs: Whether to keep the outputs.

        Returns:
            One output per batch, on the host; empty if they are not kept.
        """
        check_subset(subset_num_batches, "subset_num_batches")
        return predict(
            self.state,
            self.engine,
            ensure_data_spec(dataloader),
            subset_num_batches=subset_num_batches,
            return_outputs=return_outputs,
        )

    # ---- saving and the end -------------------------------------------------------------------

    @property
    def saved_checkpoints(self) -> list[str]:
        """Paths of the checkpoints that this run keeps, oldest first."""
        return [] if self._saver is None else self._saver.saved_checkpoints

    def save_checkpoint(
        self, name: str = "ep{epoch}-ba{batch}-rank{rank}", *, weights_only: bool = False
    ) -> str | None:
        """Write a checkpoint of this moment.

        Args:
            name: Path template.
            weights_only: Whether to save the model only.

        Returns:
            The path, or ``None`` on ranks that do not write.
        """
        return save_checkpoint(self.state, name, weights_only=weights_only)

    def save_checkpoint_to_save_folder(self) -> None:
        """Write a checkpoint of this moment through the configured saver.

        Raises:
            ValueError: If the trainer has no ``save_folder``.
        """
        if self._saver is None:
            raise ValueError("the trainer has no save_folder, so there is none to save to")
        self._saver.save(self.state, self.logger)

    def export_for_inference(
        self,
        save_format: str | ExportFormat,
        save_path: str,
        save_object_store: ObjectStore | None = None,
        sample_input: Any | None = None,
        transforms: Sequence[Transform] | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> ExportReport | None:
        """Export the model as evaluation sees it, run the export, and compare.

        The weights are those that a checkpoint would hold: where an algorithm keeps an average, the
        average. The file goes to the loggers if one of them can upload.

        Args:
            save_format: ``"torchscript"``, ``"onnx"``, ``"torch_export"`` or ``"safetensors"``.
            save_path: The file, or the URI of one.
            save_object_store: Store to upload to.
            sample_input: A batch; by default the last one of training, else an example for a
                registered model.
            transforms: Functions that change a copy of the model and return it.
            input_names: Names of the inputs, for ONNX.
            output_names: Names of the outputs, for ONNX.

        Returns:
            How the export compares with the live model; ``None`` on other ranks than zero.

        Raises:
            ValueError: If the model cannot be exported in this format, or the export computes
                something else.
        """
        from composer.checkpoint.inference import export_with_logger

        with ExitStack() as stack:
            for algorithm in self.state.algorithms:
                stack.enter_context(algorithm.saving(self.state))
            return export_with_logger(
                self.state.model,
                save_format,
                save_path,
                self.logger,
                save_object_store=save_object_store,
                sample_input=self._sample_input() if sample_input is None else sample_input,
                transforms=transforms,
                input_names=input_names,
                output_names=output_names,
            )

    def _sample_input(self) -> Any:
        batch = self.state.batch
        return None if batch is None else (batch, {})

    def close(self) -> None:
        """Close loggers and callbacks; called at the end of the process if it was not before.

        Ranks wait for each other, unless an error ended ``fit`` or is on its way.
        """
        self.engine.close()
        if self._data is not None:
            self._data.close()
        # After an error nobody waits: a rank that failed elsewhere would never come.
        if not self._failed and not isinstance(sys.exception(), Exception):
            dist.barrier()
