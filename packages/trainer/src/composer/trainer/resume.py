"""Continuing a run: find the checkpoint, put it in place, say what differs from the script."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from composer.checkpoint.load import (
    apply_checkpoint,
    fetch_checkpoint,
    read_newest,
    stored_metadata,
)
from composer.checkpoint.save import batch_size_of
from composer.checkpoint.search import OwnFiles
from composer.core.persistence import restore
from composer.trainer.options import LoadOptions, SaveOptions
from composer.trainer.settings import (
    Report,
    reconcile_optimizers,
    reconcile_schedules,
    report_run,
)
from composer.utils import dist
from composer.utils.iteration import map_collection
from composer.utils.paths import format_name_with_dist

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State
    from composer.trainer.schedules import Schedules

__all__ = ["Resumption", "reconcile_late", "restore_training", "resume"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resumption:
    """What a checkpoint left to be done before the next batch.

    Attributes:
        path: Where it was read from.
        random_states: To be restored right before the first new batch.

    Example:
        >>> Resumption("a.pt", None).path
        'a.pt'
    """

    path: str
    random_states: list[dict[str, Any]] | None


def resume(
    state: State,
    logger: Logger,
    load: LoadOptions,
    save: SaveOptions,
    *,
    schedules: Schedules | None,
    seed_given: bool,
    strict: bool,
    spin: bool,
) -> Resumption | None:
    """Load the checkpoint that the options ask for, if any.

    Args:
        state: The state of the run.
        logger: Passed to algorithms that have to be applied again.
        load: What to load and how.
        save: Where this run saves; autoresume looks there.
        schedules: The run's schedules, or ``None`` if they are made later.
        seed_given: Whether the user chose a seed.
        strict: Whether settings that differ are an error.
        spin: Whether a started epoch goes on where it was.

    Returns:
        What is left to be done, or ``None`` if nothing was loaded.

    Raises:
        FileNotFoundError: If the checkpoint asked for is not there.
        ValueError: If it is bad or does not fit.
    """
    found = _read_automatically(state, load, save) if load.autoresume else None
    if found is not None:
        path, contents = found
        log.info("resuming automatically from %s", path)
        load = load.for_autoresume()
    elif load.path is None:
        return None
    else:
        path = format_name_with_dist(load.path, state.run_name)
        contents = fetch_checkpoint(path, load.object_store, progress_bar=load.progress_bar)
    state.load_path = path
    metadata = stored_metadata(contents)
    seed = state.rank_zero_seed
    random_states = apply_checkpoint(
        contents,
        state,
        logger,
        weights_only=load.weights_only,
        strict_model_weights=load.strict_model_weights,
        ignore_keys=load.ignore_keys,
        exclude_algorithms=load.exclude_algorithms,
    )
    if not load.weights_only:
        _reconcile(state, load, schedules, metadata, strict=strict)
        _check_batches(state, metadata, spin=spin)
        if seed_given and seed != state.rank_zero_seed:
            warnings.warn(
                f"the checkpoint was made with seed {state.rank_zero_seed}, which is used instead "
                f"of seed={seed}, so that the run continues exactly",
                stacklevel=2,
            )
    return Resumption(path, random_states)


def restore_training(state: State, path: str, logger: Logger) -> None:
    """Put a checkpoint's weights and what trains them back; clock, data and observers go on.

    Args:
        state: The state of the run.
        path: Local path or URI of the checkpoint.
        logger: Passed to algorithms that have to be applied again.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If it is bad or does not fit.
    """
    saved = fetch_checkpoint(path, progress_bar=False)["state"]
    fields = ["model", "optimizers", "algorithms", "scaler"]
    own = {name: map_collection(saved[name], _own) for name in fields if name in saved}
    # Learning rates are the schedules', and these follow the clock, which goes on.
    options = [
        [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        for optimizer in state.optimizers
    ]
    restore(state, own, logger=logger, fields=fields)
    for optimizer, groups in zip(state.optimizers, options, strict=True):
        for group, kept in zip(optimizer.param_groups, groups, strict=True):
            group.update(kept)


def _own(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _read_automatically(
    state: State, load: LoadOptions, save: SaveOptions
) -> tuple[str, dict[str, Any]] | None:
    assert save.folder is not None
    assert save.latest_filename is not None
    folder = format_name_with_dist(save.folder, state.run_name)
    latest = format_name_with_dist(save.latest_filename, state.run_name)
    own = OwnFiles(save.filename, state.run_name)
    return read_newest(folder, latest, own=own, progress_bar=load.progress_bar)


def _reconcile(
    state: State,
    load: LoadOptions,
    schedules: Schedules | None,
    metadata: Mapping[str, Any],
    *,
    strict: bool,
) -> None:
    """Say where the script's settings differ from the stored ones; see ``settings``."""
    stored = state.stored_settings or {}
    report = Report(load.overrides, strict)
    reconcile_optimizers(state, state.settings["optimizers"], stored.get("optimizers"), report)
    then = {"precision": metadata.get("precision"), "max_duration": stored.get("max_duration")}
    now = {"precision": state.precision.value, "max_duration": state.settings["max_duration"]}
    report_run(now, then)
    if schedules is not None and schedules.described:  # else `fit` may still bring them
        reconcile_schedules(schedules.described, stored.get("schedulers"), report)
    report.say(complete=schedules is not None)


def reconcile_late(state: State, load: LoadOptions, schedules: Schedules, *, strict: bool) -> None:
    """Compare the settings of schedules that were made after the checkpoint was loaded.

    Args:
        state: The state of the run, restored from the checkpoint.
        load: What was loaded and how.
        schedules: The schedules.
        strict: Whether settings that differ are an error.
    """
    report = Report(load.overrides, strict)
    for groups in state.settings["optimizers"]:
        report.known.update(key for options in groups for key in options)
    stored = state.stored_settings or {}
    reconcile_schedules(schedules.described, stored.get("schedulers"), report)
    report.say()


def _check_batches(state: State, metadata: Mapping[str, Any], *, spin: bool) -> None:
    """A place inside an epoch is counted in batches, so they must be of the stored size."""
    stored = metadata.get("dataloader_batch_size")
    here = batch_size_of(state.train_dataloader)
    inside = int(state.timestamp.batch_in_epoch)
    length = state.dataloader_len
    if not spin or (length is not None and inside >= length.value and stored == here):
        return  # the epoch starts over, or is at its end
    ranks, here_ranks = metadata.get("world_size"), dist.get_world_size()
    if inside and ranks is not None and ranks != here_ranks:
        raise ValueError(
            f"the checkpoint was made after {inside} batches of an epoch on {ranks} rank(s), and "
            f"this run has {here_ranks}, so the data that is left cannot be told. Start {ranks} "
            f"rank(s), or resume from a checkpoint at an epoch's end"
        )
    if inside and stored is not None and here is not None and stored != here:
        raise ValueError(
            f"the checkpoint was made after {inside} batches of an epoch with batch_size={stored}, "
            f"but the train dataloader has batch_size={here}, so its place cannot be found. Use "
            f"batch_size={stored}, or resume from a checkpoint at an epoch's end"
        )
