"""The trainer's arguments, parsed at the door.

Keyword arguments are grouped into frozen dataclasses, and every rule that involves two of them is
here, so that the rest of the trainer meets exact types and no contradictions.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from composer.checkpoint.layout import IgnoreKeys, names_of, parse_ignored
from composer.checkpoint.names import Names, check_apart, check_folder
from composer.checkpoint.retention import Retention
from composer.core.data_spec import DataSpec
from composer.core.evaluator import Evaluator
from composer.core.event import Event
from composer.core.model import ComposerModel
from composer.core.scaler import needs_closure
from composer.core.state import State
from composer.core.time import Time, TimeUnit
from composer.utils.counts import is_count
from composer.utils.iteration import ensure_tuple
from composer.utils.reproducibility import MAX_SEED

__all__ = [
    "LoadOptions",
    "SaveOptions",
    "check_auto_microbatching",
    "check_epoch_length",
    "check_labels",
    "check_later_features",
    "check_microbatch_size",
    "check_model",
    "check_optimizers",
    "check_ratio",
    "check_seed",
    "check_subset",
    "parse_duration",
    "unwrap_compiled",
    "warn_large_microbatch",
    "warn_replaced_labels",
]

Interval = str | int | Time[int] | Callable[[State, Event], bool]


def parse_duration(duration: str | int | Time[int] | None, argument: str) -> Time[int] | None:
    """Turn a duration into a time.

    Args:
        duration: An int (epochs), a time string or a time.
        argument: Name of the argument, for the message.

    Returns:
        The time, or ``None``.

    Raises:
        ValueError: If it is not a time, is a share of the run, or is not positive.

    Example:
        >>> parse_duration("1h30m", "max_duration")
        Time(5400, TimeUnit.SECOND)
    """
    if duration is None:
        return None
    try:
        time = Time.from_input(duration, TimeUnit.EPOCH)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}={duration!r}: {error}") from None
    if time.unit is TimeUnit.ITERATION:
        raise ValueError(
            f"{argument}={duration!r} counts iterations, which no run advances; give epochs "
            f"('10ep'), batches ('500ba') or another unit"
        )
    if time.unit is TimeUnit.DURATION:
        raise ValueError(
            f"{argument}={duration!r} is a share of itself; give epochs ('10ep'), batches "
            f"('500ba'), samples ('5000sp'), tokens ('1e6tok') or wall clock ('1h30m')"
        )
    if time.value <= 0:
        raise ValueError(f"{argument}={duration!r} must be positive")
    return time


def check_model(model: Any) -> None:
    """Refuse what is not a model of the trainer's kind.

    Args:
        model: What the user gave.

    Raises:
        TypeError: If it is not a ``ComposerModel``; the error names the wrappers.

    Example:
        >>> try:
        ...     check_model(torch.nn.Linear(1, 1))
        ... except TypeError as error:
        ...     print("ComposerClassifier" in str(error))
        True
    """
    if isinstance(model, ComposerModel):
        return
    if isinstance(model, torch.nn.Module):
        raise TypeError(
            f"model must be a ComposerModel, and {type(model).__name__} is a plain "
            f"torch.nn.Module. Wrap it: `ComposerClassifier(model, num_classes=...)` from "
            f"composer.models for classification, or subclass ComposerModel and define "
            f"`forward(batch)` and `loss(outputs, batch)`"
        )
    raise TypeError(f"model must be a ComposerModel, not {model!r} of type {type(model).__name__}")


def check_optimizers(
    optimizers: Any, model: torch.nn.Module, *, jointly: bool = True
) -> list[torch.optim.Optimizer]:
    """Refuse optimizers that cannot train the model.

    Args:
        optimizers: What the user gave.
        model: The model.
        jointly: Whether several step together, at every batch, by one loss.

    Returns:
        The optimizers as a list; an empty one for ``None``.

    Raises:
        TypeError: If one is not a torch optimizer.
        ValueError: If one updates parameters that are not the model's, or that another one updates
            too, or cannot step together with others.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> len(check_optimizers(torch.optim.SGD(model.parameters(), lr=0.1), model))
        1
    """
    found = list(ensure_tuple(optimizers))
    for optimizer in found:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"optimizers must be a torch.optim.Optimizer, or several, or OptimizerSteps, not "
                f"{optimizer!r} of type {type(optimizer).__name__}"
            )
    own = {id(p) for p in model.parameters()}
    owner: dict[int, str] = {}
    for optimizer in found:
        name = type(optimizer).__name__
        given = [p for group in optimizer.param_groups for p in group["params"]]
        foreign = [p for p in given if id(p) not in own]
        if foreign:
            raise ValueError(
                f"the {name} updates {len(foreign)} of {len(given)} parameters "
                f"that are not the model's (shapes {[tuple(p.shape) for p in foreign[:4]]}); make "
                f"it with `model.parameters()` of the model that the trainer gets, after any "
                f"change to that model"
            )
        for parameter in given if jointly else ():
            if id(parameter) in owner:
                raise ValueError(
                    f"the {owner[id(parameter)]} and the {name} both update a parameter of shape "
                    f"{tuple(parameter.shape)}; optimizers that step together need parameters of "
                    f"their own"
                )
            owner[id(parameter)] = name
    if jointly and len(found) > 1:
        for optimizer in found:
            if needs_closure(optimizer):
                raise ValueError(
                    f"the {type(optimizer).__name__} evaluates the loss itself, so it cannot step "
                    f"together with other optimizers; give it a turn of its own with OptimizerStep"
                )
    return found


def check_microbatch_size(
    size: int | float | str | None, loader_batch_size: Any, argument: str
) -> int | None:
    """Turn a microbatch size into a number of samples.

    Args:
        size: What the user gave; ``None`` takes the loader's batch size.
        loader_batch_size: The loader's, if it says one.
        argument: Name of the argument, for the message.

    Returns:
        Samples per microbatch, or ``None`` for whole batches; the search of ``"auto"`` begins
        there.

    Raises:
        ValueError: If it is not a positive whole number.

    Example:
        >>> check_microbatch_size(None, 32, "device_train_microbatch_size")
        32
    """
    if size is None or size == "auto":
        return loader_batch_size if isinstance(loader_batch_size, int) else None
    if not is_count(size):
        raise ValueError(
            f"{argument} must be a positive whole number of samples, or 'auto', not {size!r}"
        )
    return size


def check_auto_microbatching(state: State) -> None:
    """Refuse automatic microbatching where a batch cannot be begun again.

    Args:
        state: The state of the run.

    Raises:
        ValueError: If an optimizer evaluates the loss itself.
    """
    if not state.auto_microbatching:
        return
    for optimizer in state.optimizers:
        if needs_closure(optimizer):
            raise ValueError(
                f"device_train_microbatch_size='auto' begins a batch again when memory runs out, "
                f"which the {type(optimizer).__name__} does not allow, as it evaluates the loss "
                f"itself in the middle of a step; give a number of samples"
            )


def check_ratio(ratio: float) -> None:
    """Refuse a scale schedule ratio that is not a positive number.

    Args:
        ratio: The ratio.

    Raises:
        ValueError: If it is something else.
    """
    known = isinstance(ratio, (int, float)) and not isinstance(ratio, bool)
    if not known or not math.isfinite(ratio) or ratio <= 0:
        raise ValueError(f"scale_schedule_ratio must be a positive number, not {ratio!r}")


def check_seed(seed: Any) -> int | None:
    """Turn what a user gave as a seed into an int.

    Args:
        seed: A whole number of any kind, or ``None``.

    Returns:
        The seed, or ``None``.

    Raises:
        TypeError: If it is not a whole number.
        ValueError: If it is out of range.
    """
    if seed is None:
        return None
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed must be a whole number, not {seed!r}") from None
    if not 0 <= number <= MAX_SEED:
        raise ValueError(f"seed={number} must lie between 0 and {MAX_SEED}")
    return number


def check_labels(state: State, spec: DataSpec) -> None:
    """Refuse evaluation sets that would meet the training data.

    Args:
        state: The state of the run.
        spec: The training data.

    Raises:
        ValueError: If a label is that of the training data, whose metrics it would overwrite, or a
            set shares a loader with persistent workers, whose one iterator serves both.
    """
    for evaluator in state.evaluators:
        if state.train_metrics and evaluator.label == state.dataloader_label:
            raise ValueError(
                f"an evaluation set and the training data are both labelled {evaluator.label!r}, "
                f"so their metrics would meet; give the set another label"
            )
        shared = evaluator.dataloader.dataloader is spec.dataloader
        if shared and getattr(spec.dataloader, "persistent_workers", False):
            raise ValueError(
                f"the evaluation set {evaluator.label!r} and the training data are one DataLoader "
                f"with persistent_workers=True, which has a single iterator, so that evaluating "
                f"would lose training data; make two loaders"
            )


def warn_large_microbatch(size: Any, batch_size: Any) -> None:
    """Warn about a microbatch that no batch can fill.

    Args:
        size: Samples per microbatch.
        batch_size: The loader's batch size, if it says one.

    Example:
        >>> warn_large_microbatch(None, 8)
    """
    if isinstance(size, int) and isinstance(batch_size, int) and size > batch_size:
        warnings.warn(
            f"device_train_microbatch_size={size} is larger than the loader's batch_size="
            f"{batch_size}; each batch is one microbatch, and there are {batch_size} samples per "
            f"update. Raise the loader's batch size for larger updates",
            stacklevel=3,
        )


def warn_replaced_labels(chosen: Sequence[Evaluator], known: Sequence[Evaluator]) -> None:
    """Warn about evaluation sets that overwrite the metrics of others.

    Args:
        chosen: What is to be evaluated on now.
        known: The trainer's own sets.

    Example:
        >>> warn_replaced_labels([], [])
    """
    replaced = {e.label for e in chosen} & {e.label for e in known}
    if replaced:
        warnings.warn(
            f"the evaluation sets {sorted(replaced)} have labels that the trainer's own sets have "
            f"too, whose metrics are overwritten; give them other labels",
            stacklevel=3,
        )


def check_subset(num_batches: int | None, argument: str) -> None:
    """Refuse a number of batches that is neither positive nor -1.

    Args:
        num_batches: The number; ``None`` and -1 mean all.
        argument: Name of the argument, for the message.

    Raises:
        ValueError: If it is something else.

    Example:
        >>> check_subset(-1, "train_subset_num_batches")
    """
    if num_batches is None or num_batches == -1:
        return
    if not is_count(num_batches):
        raise ValueError(f"{argument} must be a positive int, or -1 for all, not {num_batches!r}")


def check_epoch_length(state: State, duration: Time[int] | None) -> None:
    """Refuse a duration in epochs when nobody knows how long an epoch is.

    Args:
        state: The state of the run; its loader must be set.
        duration: How long to train.

    Raises:
        ValueError: If the loader is unsized; the error names the ways out.
    """
    if duration is None or state.dataloader is None or state.dataloader_len is not None:
        return
    if duration.unit is TimeUnit.EPOCH:
        raise ValueError(
            f"max_duration={duration!s} counts epochs, but the train dataloader "
            f"({type(state.dataloader).__name__}) does not say how long one is. Give the loader a "
            f"`__len__`, give the duration in another unit such as '1000ba', or set "
            f"`train_subset_num_batches`"
        )


def check_later_features(*, parallelism_config: Any, profiler: Any, precision_config: Any) -> None:
    """Refuse arguments whose features are not there yet, by name.

    Args:
        parallelism_config: Sharding settings.
        profiler: A profiler.
        precision_config: Settings of the FP8 recipe.

    Raises:
        NotImplementedError: If one is given.

    Example:
        >>> check_later_features(parallelism_config=None, profiler=None, precision_config=None)
    """
    if parallelism_config is not None:
        raise NotImplementedError(
            "parallelism_config (FSDP, tensor parallelism) comes with sharded training; without "
            "it every rank holds the whole model"
        )
    if profiler is not None:
        raise NotImplementedError("profiler comes with the profiler")
    if precision_config is not None:
        raise NotImplementedError("precision_config comes with precision='amp_fp8'")


def unwrap_compiled(model: Any) -> tuple[Any, Any]:
    """Take a model out of ``torch.compile``'s wrapper, keeping what computes its outputs.

    Args:
        model: What the user gave.

    Returns:
        The model, and the wrapper; ``None`` for a model without one.

    Example:
        >>> unwrap_compiled("model")
        ('model', None)
    """
    original = getattr(model, "_orig_mod", None)
    return (original, model) if isinstance(original, ComposerModel) else (model, None)


@dataclass(frozen=True)
class SaveOptions:
    """Where, when and what to save.

    Attributes:
        folder: Where; ``None`` for not at all.
        filename: Name template of a checkpoint.
        latest_filename: Name template of the link to the newest.
        overwrite: Whether files of another run may be in the way; a run that continues itself
            replaces its own in any case.
        interval: When.
        weights_only: Whether to save the model only.
        ignore_keys: What to leave out.
        num_checkpoints_to_keep: How many to keep; -1 for all.
        async_save: Whether to write while training goes on.
        keep_every: Every how many saved checkpoints one is kept for good.
        best_metric: Name of the metric by which the best are kept.
        best_mode: ``"max"`` or ``"min"``.
        num_best_to_keep: How many of the best to keep.

    Raises:
        TypeError: If a place, a name or a pattern is no text.
        ValueError: If the options contradict each other, or a name is no template, leads out of the
            folder, or is shared by checkpoints of which one is kept.
        CompressorNotFound: If files of this name need a command that is not installed.

    Example:
        >>> SaveOptions(folder="runs").filename
        'ep{epoch}-ba{batch}-rank{rank}.pt'
    """

    folder: str | None = None
    filename: str = "ep{epoch}-ba{batch}-rank{rank}.pt"
    latest_filename: str | None = "latest-rank{rank}.pt"
    overwrite: bool = False
    interval: Interval = "1ep"
    weights_only: bool = False
    ignore_keys: IgnoreKeys = None
    num_checkpoints_to_keep: int = -1
    async_save: bool = False
    keep_every: int | None = None
    best_metric: str | None = None
    best_mode: str | None = None
    num_best_to_keep: int = 1

    def __post_init__(self) -> None:
        names = Names.parse(self.folder, self.filename, self.latest_filename, prefix="save_")
        object.__setattr__(self, "folder", names.folder)
        object.__setattr__(self, "filename", names.filename)
        object.__setattr__(self, "latest_filename", names.latest)
        ignored = parse_ignored(self.ignore_keys, "save_ignore_keys")
        object.__setattr__(self, "ignore_keys", ignored)
        retention = Retention(
            self.num_checkpoints_to_keep,
            self.keep_every,
            self.best_metric,
            self.best_mode,
            self.num_best_to_keep,
            prefix="save_",
        )
        if self.folder is not None:
            check_apart(self.filename, self.interval, retention, prefix="save_")
            return
        for argument, value in (
            ("save_keep_every", self.keep_every),
            ("save_best_metric", self.best_metric),
        ):
            if value is not None:
                raise ValueError(
                    f"{argument}={value!r} says which checkpoints are kept, but none are saved "
                    f"without save_folder; pass save_folder too, or leave {argument} out"
                )


@dataclass(frozen=True)
class LoadOptions:
    """What to load and how.

    Attributes:
        path: Path or URI; ``None`` for nothing.
        object_store: Where to look, if ``path`` is not a path or URI of its own.
        weights_only: Whether to restore the model only.
        strict_model_weights: Whether the model's keys must match exactly.
        progress_bar: Whether to show the progress of a download.
        ignore_keys: What to leave out.
        exclude_algorithms: Algorithms that must not be applied again.
        overrides: Settings that the script decides; ``None`` for those that it changed.
        autoresume: Whether to continue this run's newest checkpoint if there is one.

    Raises:
        TypeError: If a place, a pattern or a name is no text.
        ValueError: If the path is empty, looks like a slip, or has a field that is not filled in.

    Example:
        >>> LoadOptions(path="a.pt").strict_model_weights
        True
    """

    path: str | None = None
    object_store: Any = None
    weights_only: bool = False
    strict_model_weights: bool = True
    progress_bar: bool = True
    ignore_keys: IgnoreKeys = None
    exclude_algorithms: Sequence[str] | None = ()
    overrides: Sequence[str] | None = None
    autoresume: bool = False

    def __post_init__(self) -> None:
        if self.path is not None:
            object.__setattr__(self, "path", check_folder(self.path, "load_path"))
        ignored = parse_ignored(self.ignore_keys, "load_ignore_keys")
        object.__setattr__(self, "ignore_keys", ignored)
        excluded = names_of(self.exclude_algorithms, "load_exclude_algorithms")
        object.__setattr__(self, "exclude_algorithms", excluded)
        if self.overrides is not None:
            object.__setattr__(self, "overrides", names_of(self.overrides, "load_overrides"))

    def check(self, save: SaveOptions, *, run_name_given: bool) -> None:
        """Refuse autoresume without what it needs.

        Args:
            save: Where this run saves.
            run_name_given: Whether the user named the run.

        Raises:
            ValueError: If something is missing; all of it is named.

        Example:
            >>> LoadOptions().check(SaveOptions(), run_name_given=False)
        """
        if not self.autoresume:
            return
        missing = []
        if save.folder is None:
            missing.append("save_folder")
        if save.latest_filename is None:
            missing.append("save_latest_filename")
        if not run_name_given:
            missing.append("run_name (or the environment variable COMPOSER_RUN_NAME)")
        if save.weights_only:
            missing.append("save_weights_only=False")
        if missing:
            raise ValueError(
                f"autoresume=True continues this run's own checkpoints, which needs "
                f"{', '.join(missing)}"
            )

    def check_rewind(self, save: SaveOptions) -> None:
        """Refuse to go back to checkpoints where there will be none.

        Args:
            save: Where this run saves.

        Raises:
            ValueError: If the run neither saves nor loads any.

        Example:
            >>> LoadOptions(path="a.pt").check_rewind(SaveOptions())
        """
        if save.folder is None and self.path is None:
            raise ValueError(
                "on_nonfinite_loss='rewind' goes back to the newest checkpoint, and there is none "
                "without save_folder or load_path; pass one of them, or take "
                "on_nonfinite_loss='skip' or 'stop'"
            )

    @property
    def leaves_out(self) -> bool:
        """Whether parts of a checkpoint may stay as the script has them."""
        return bool(
            self.weights_only
            or self.ignore_keys
            or self.exclude_algorithms
            or not self.strict_model_weights
        )

    def for_autoresume(self) -> LoadOptions:
        """Return the options for a checkpoint of this very run, which is restored whole.

        Returns:
            The options without weights-only, ignored keys and excluded algorithms.

        Example:
            >>> LoadOptions(weights_only=True).for_autoresume().weights_only
            False
        """
        return dataclasses.replace(
            self, weights_only=False, ignore_keys=None, exclude_algorithms=(), object_store=None
        )
