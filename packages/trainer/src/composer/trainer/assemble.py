"""Builds the parts of a trainer, one function per part."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import torch
from torch.utils.data import DataLoader

from composer.callbacks.checkpoint_saver import CheckpointSaver
from composer.core import plugins
from composer.core.algorithm import Algorithm
from composer.core.callback import Callback
from composer.core.data_spec import DataSpec, ensure_data_spec
from composer.core.evaluator import Evaluator, ensure_evaluator, evaluation_interval
from composer.core.logger import LoggerDestination
from composer.core.precision import Precision, ensure_precision, validate_precision
from composer.core.scaler import ClosureGradScaler
from composer.core.time import Time
from composer.trainer.metrics import fresh_metrics
from composer.trainer.options import (
    Interval,
    SaveOptions,
    check_auto_microbatching,
    check_microbatch_size,
    check_subset,
    warn_large_microbatch,
)
from composer.utils import dist
from composer.utils.curriculum import release_loader
from composer.utils.iteration import ensure_tuple
from composer.utils.modules import unwrapped_model
from composer.utils.paths import format_name_with_dist, parse_uri

if TYPE_CHECKING:
    from composer.core.state import State
    from composer.devices.base import Device

__all__ = [
    "agree_on_length",
    "algorithms",
    "callbacks",
    "configure_python_logging",
    "default_optimizer",
    "destinations",
    "evaluators",
    "make_scaler",
    "run_facts",
    "saver",
    "say_slow_precision",
    "set_microbatch_size",
    "set_precision",
    "set_train_data",
    "without_empty_folder",
]

log = logging.getLogger(__name__)


def configure_python_logging(level: str | None) -> None:
    """Let the library's log messages through from a level on, each with its rank.

    Args:
        level: Name of a level such as ``"INFO"``, or ``None`` to leave logging alone.

    Raises:
        ValueError: If there is no such level.

    Example:
        >>> configure_python_logging(None)
    """
    if level is None:
        return
    names = logging.getLevelNamesMapping()
    if level.upper() not in names:
        raise ValueError(f"python_log_level={level!r} is unknown; known: {sorted(names)}")
    logger = logging.getLogger("composer")
    logger.setLevel(names[level.upper()])
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(
            logging.Formatter(
                f"%(asctime)s rank{dist.get_global_rank()} %(levelname)s %(name)s: %(message)s"
            )
        )
        logger.addHandler(handler)


def say_slow_precision(precision: Precision, device: Device) -> None:
    """Say once that a low precision is slower where the processor has no instructions for it.

    Args:
        precision: The precision.
        device: The device.

    Example:
        >>> from composer.devices import DeviceCPU
        >>> say_slow_precision(Precision.FP32, DeviceCPU())
    """
    if device.torch_type != "cpu" or precision is Precision.FP32:
        return
    if precision is Precision.AMP_BF16 and {"amx_bf16", "avx512_bf16"} & _cpu_flags():
        return
    log.warning(
        "precision=%r works on this CPU, but it has no instructions for it, so steps are slower "
        "than with 'fp32'; use it here to check correctness",
        precision.value,
    )


def _cpu_flags() -> set[str]:
    try:
        with Path("/proc/cpuinfo").open(encoding="ascii", errors="ignore") as file:
            return set(next((line for line in file if line.startswith("flags")), "").split())
    except OSError:
        return set()


def default_optimizer(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Make the optimizer of a user who gave none.

    Args:
        model: The model.

    Returns:
        A list of one, or an empty list for a model without parameters.

    Example:
        >>> default_optimizer(torch.nn.Identity())
        []
    """
    parameters = list(model.parameters())
    if not parameters:
        return []
    from composer.optim.decoupled_weight_decay import DecoupledSGDW

    return [DecoupledSGDW(parameters, lr=0.1)]


def run_facts(state: State) -> dict[str, Any]:
    """Return what a run is about, for the loggers.

    Args:
        state: The state of the run.

    Returns:
        Name to version, number or truth.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> run_facts(State(torch.nn.Linear(1, 1), 7, "r", DeviceCPU()))["rank_zero_seed"]
        7
    """
    facts: dict[str, Any] = {
        "composer_version": metadata.version("composer-core"),
        "num_nodes": dist.get_world_size() // dist.get_local_world_size(),
        f"num_{state.device.name}s_per_node": dist.get_local_world_size(),
        "rank_zero_seed": state.rank_zero_seed,
    }
    for algorithm in state.algorithms:
        facts[f"enabled_algorithms/{type(algorithm).__name__}"] = True
    return facts


def set_precision(state: State, precision: str | Precision) -> None:
    """Let a run compute in a precision, with the scaler that it needs.

    Args:
        state: The state of the run.
        precision: The precision. The one that the run has already changes nothing, so that the
            loss scale found so far is kept.

    Raises:
        ValueError: If it is unknown, or the device does not have it.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> set_precision(State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU()), "fp32")
    """
    precision = ensure_precision(precision)
    if precision is state.precision:
        return
    validate_precision(precision, state.device)
    say_slow_precision(precision, state.device)
    state.precision = precision
    state.scaler = make_scaler(precision, state.device)


@contextmanager
def without_empty_folder(folder: str | None, run_name: str) -> Iterator[None]:
    """If a block fails, take away the folder of the run that it made and put nothing into.

    Args:
        folder: Where checkpoints are saved, as a template; ``None`` for nowhere.
        run_name: The name of the run.

    Yields:
        Nothing.

    Example:
        >>> with without_empty_folder(None, "r"):
        ...     pass
    """
    made: list[Path] = []
    if folder is not None and parse_uri(folder)[0] in ("", "file"):
        path = Path(parse_uri(format_name_with_dist(folder, run_name))[2]).absolute()
        made = [p for p in (path, *path.parents) if not p.exists()]
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # one that is not there, or that holds something
            for path in made:
                path.rmdir()
        raise


def make_scaler(precision: Precision, device: Device) -> ClosureGradScaler | None:
    """Make the gradient scaler that a precision needs.

    Args:
        precision: The precision.
        device: The device.

    Returns:
        A scaler for ``amp_fp16``, else ``None``.

    Example:
        >>> from composer.devices import DeviceCPU
        >>> make_scaler(Precision.FP32, DeviceCPU()) is None
        True
    """
    return ClosureGradScaler(device.torch_type) if precision is Precision.AMP_FP16 else None


def algorithms(given: Any) -> list[Algorithm]:
    """Turn what a user gave as algorithms into algorithms.

    Args:
        given: One or several: algorithms, or names of plugins.

    Returns:
        The algorithms.

    Raises:
        TypeError: If something is neither.

    Example:
        >>> algorithms(None)
        []
    """
    return _resolve("composer.algorithms", given, Algorithm, "algorithms")


def callbacks(given: Any) -> list[Callback]:
    """Turn what a user gave as callbacks into callbacks.

    Args:
        given: One or several: callbacks, or names of plugins.

    Returns:
        The callbacks.

    Raises:
        TypeError: If something is neither.

    Example:
        >>> callbacks(None)
        []
    """
    return _resolve("composer.callbacks", given, Callback, "callbacks")


def _resolve(group: str, given: Any, contract: type, argument: str) -> list[Any]:
    found = []
    for thing in ensure_tuple(given):
        resolved = plugins.resolve(group, thing) if isinstance(thing, str) else thing
        if not isinstance(resolved, contract):
            hint = " (pass an instance, not the class)" if isinstance(resolved, type) else ""
            raise TypeError(
                f"{argument} takes {contract.__name__} objects or names of installed plugins, "
                f"not {resolved!r}{hint}"
            )
        found.append(resolved)
    return found


def destinations(
    given: Any,
    *,
    progress_bar: bool,
    log_to_console: bool,
    console_stream: str | TextIO,
    console_log_interval: str | int | Time[int],
    log_traces: bool,
) -> list[LoggerDestination]:
    """Turn what a user gave as loggers into destinations, with bar and console as asked.

    Args:
        given: One or several: destinations, or names of plugins.
        progress_bar: Whether to add a bar, unless one was given.
        log_to_console: Whether to add console output, unless one was given.
        console_stream: ``"stdout"``, ``"stderr"`` or a stream.
        console_log_interval: How often the console prints.
        log_traces: Whether bar and console print traces of algorithms.

    Returns:
        The destinations.

    Raises:
        ValueError: If the stream is unknown.

    Example:
        >>> destinations(
        ...     None, progress_bar=False, log_to_console=False, console_stream="stderr",
        ...     console_log_interval="1ba", log_traces=False,
        ... )
        []
    """
    found: list[LoggerDestination] = _resolve(
        "composer.loggers", given, LoggerDestination, "loggers"
    )
    if isinstance(console_stream, str) and console_stream not in ("stdout", "stderr"):
        raise ValueError(
            f"console_stream must be 'stdout', 'stderr' or a text stream, not {console_stream!r}"
        )
    if progress_bar:
        from composer.loggers.progress_bar import ProgressBarLogger

        if not any(isinstance(d, ProgressBarLogger) for d in found):
            found.append(ProgressBarLogger(stream=console_stream, log_traces=log_traces))
    if log_to_console:
        from composer.loggers.console import ConsoleLogger

        if not any(isinstance(d, ConsoleLogger) for d in found):
            found.append(
                ConsoleLogger(
                    log_interval=console_log_interval, stream=console_stream, log_traces=log_traces
                )
            )
    return found


def saver(options: SaveOptions) -> CheckpointSaver | None:
    """Make the checkpoint saver that the options ask for.

    Args:
        options: The options.

    Returns:
        The saver, or ``None``.

    Example:
        >>> saver(SaveOptions()) is None
        True
    """
    if options.folder is None:
        return None
    return CheckpointSaver(
        folder=options.folder,
        filename=options.filename,
        latest_filename=options.latest_filename,
        save_interval=options.interval,
        overwrite=options.overwrite,
        num_checkpoints_to_keep=options.num_checkpoints_to_keep,
        weights_only=options.weights_only,
        ignore_keys=options.ignore_keys,
        async_save=options.async_save,
        keep_every=options.keep_every,
        best_metric=options.best_metric,
        best_mode=options.best_mode,
        num_best_to_keep=options.num_best_to_keep,
    )


# ---- evaluation -------------------------------------------------------------------------------


def evaluators(
    state: State,
    given: Any,
    *,
    interval: Interval,
    subset_num_batches: int,
) -> list[Evaluator]:
    """Turn what a user gave as evaluation data into evaluators, with metrics of their own.

    Args:
        state: The state of the run; its model says which metrics there are.
        given: An iterable, a ``DataSpec``, an ``Evaluator``, or a sequence of them.
        interval: When to run those that do not say.
        subset_num_batches: At most this many batches for those that do not say; -1 for all.

    Returns:
        The evaluators.

    Raises:
        ValueError: If evaluators are mixed with other kinds, or two share a label.
    """
    check_subset(subset_num_batches, "eval_subset_num_batches")
    evaluation_interval(interval)  # a wrong interval is told even where no evaluator takes it
    items = _evaluation_items(given)
    kinds = {isinstance(item, Evaluator) for item in items}
    if len(kinds) > 1:
        raise ValueError(
            "eval_dataloader mixes Evaluators with plain loaders; wrap each loader as "
            "`Evaluator(label=..., dataloader=...)`"
        )
    model: Any = unwrapped_model(state.model)
    names = list(model.get_metrics(is_train=False))
    # What this trainer says of sets that say nothing is not to stick to the user's objects.
    found = [copy.copy(ensure_evaluator(item, default_metric_names=names)) for item in items]
    if len(found) > 1 and kinds == {False}:
        # Several plain loaders would share one label, and so each other's metrics.
        for i, evaluator in enumerate(found):
            evaluator.label = f"eval{i}"
    labels = [evaluator.label for evaluator in found]
    if len(set(labels)) < len(labels):
        raise ValueError(
            f"the labels of evaluators must differ, so that their metrics do: {labels}"
        )
    for evaluator in found:
        if evaluator.eval_interval is None:
            evaluator.eval_interval = interval
        if evaluator.subset_num_batches is None and subset_num_batches != -1:
            evaluator.subset_num_batches = subset_num_batches
        state.eval_metrics[evaluator.label] = fresh_metrics(
            state, is_train=False, patterns=evaluator.metric_names, owner=evaluator.label
        )
    return found


def _evaluation_items(given: Any) -> list[Any]:
    """A list of loaders is several sets; a list of batches is one loader."""
    if given is None:
        return []
    if isinstance(given, (list, tuple)) and all(
        isinstance(item, (Evaluator, DataSpec, DataLoader))
        or (isinstance(item, dict) and "dataloader" in item)
        for item in given
    ):
        return list(given)
    return [given]


# ---- training data ----------------------------------------------------------------------------


def set_train_data(
    state: State, given: Any, *, label: str, subset_num_batches: int | None
) -> DataSpec:
    """Make a loader the one to train with.

    Args:
        state: The state of the run.
        given: An iterable, a ``DataSpec``, or a dictionary of its arguments.
        label: Its label.
        subset_num_batches: Batches per epoch; ``None`` or -1 for all.

    Returns:
        The spec.
    """
    check_subset(subset_num_batches, "train_subset_num_batches")
    spec = ensure_data_spec(given)
    # Whatever a run before this one told it, if that one broke off.
    release_loader(spec.dataloader)
    state.train_dataloader = spec.dataloader
    state.train_microbatch_transforms = spec.microbatch_transforms
    state.set_dataloader(spec.dataloader, label)
    length = -1 if subset_num_batches is None else subset_num_batches
    if length != -1:
        state.dataloader_len = length
    elif state.dataloader_len is None and spec.num_batches is not None:
        state.dataloader_len = spec.num_batches
    if state.dataloader_len is not None and state.dataloader_len.value == 0:
        raise ValueError(
            "the train dataloader has no batches; check that its dataset is not empty, and that "
            "`drop_last` does not drop all of it"
        )
    return spec


def set_microbatch_size(state: State, size: int | float | str | None, loader: Any) -> None:
    """Let batches be computed in parts of a size.

    Args:
        state: The state of the run.
        size: What the user gave.
        loader: The training data, whose batch size is the default.

    Raises:
        ValueError: If the size is no positive whole number, or a batch cannot be begun again.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> set_microbatch_size(state, None, DataLoader([1, 2, 3, 4], batch_size=2))
        >>> state.device_train_microbatch_size
        2
    """
    batch_size = getattr(loader, "batch_size", None)
    warn_large_microbatch(size, batch_size)
    state.device_train_microbatch_size = check_microbatch_size(
        size, batch_size, "device_train_microbatch_size"
    )
    state.auto_microbatching = size == "auto"
    check_auto_microbatching(state)


def agree_on_length(state: State) -> None:
    """Make an epoch as long on every rank as on the one whose loader is the shortest.

    Args:
        state: The state of the run; its loader must be set.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> agree_on_length(State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU()))
    """
    if dist.get_world_size() == 1:
        return
    own = None if state.dataloader_len is None else int(state.dataloader_len.value)
    lengths = dist.all_gather_object(own)
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths) or len(set(known)) < 2:
        return
    log.warning(
        "the ranks' train dataloaders hold %s batches; each epoch has %d on all of them",
        known,
        min(known),
    )
    state.dataloader_len = min(known)
