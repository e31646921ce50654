"""Continuing a run: find the checkpoint, put it in place, say what differs from the script."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from composer.checkpoint.layout import STATE
from composer.checkpoint.load import (
    apply_checkpoint,
    fetch_checkpoint,
    read_newest,
    stored_metadata,
)
from composer.checkpoint.save import batch_size_of
from composer.checkpoint.search import OwnFiles
from composer.checkpoint.structure import check_structure
from composer.trainer.options import LoadOptions, SaveOptions
from composer.trainer.settings import (
    SettingsReport,
    reconcile_optimizers,
    reconcile_schedules,
    report_run,
)
from composer.utils import dist
from composer.utils.paths import format_name_with_dist

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State
    from composer.trainer.schedules import Schedules

__all__ = [
    "Resumption",
    "of_other_kinds",
    "reconcile_late",
    "resume",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resumption:
    """What a checkpoint left to be done before the next batch.

    Attributes:
        path: Where it was read from.
        options: What was loaded of it and how, which is all where a run continues itself.

    Example:
        >>> Resumption("a.pt").path
        'a.pt'
    """

    path: str
    options: LoadOptions = field(default_factory=LoadOptions)


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
        with _naming("load_path", path):
            contents = fetch_checkpoint(path, load.object_store, progress_bar=load.progress_bar)
    state.load_path = path
    metadata = stored_metadata(contents)
    if load.ignore_keys is None and state.schedulers and not load.weights_only:
        check_structure(contents, path, fields=["schedulers", "settings"])
        saved = contents.get(STATE, {})
        if of_other_kinds(state, saved.get("schedulers"), saved.get("settings")):
            del saved["schedulers"]
    seed = state.rank_zero_seed
    state.random_resumption = apply_checkpoint(
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
        if seed_given and seed != state.rank_zero_seed and dist.get_global_rank() == 0:
            warnings.warn(
                f"the checkpoint was made with seed {state.rank_zero_seed}, which is used instead "
                f"of seed={seed}, so that the run continues exactly",
                stacklevel=2,
            )
    return Resumption(path, load)


def of_other_kinds(state: State, saved: Any, settings: Any) -> bool:
    """Say whether stored schedulers are none of this run's, which is told with the settings.

    Args:
        state: The state of the run, with its schedulers.
        saved: Per scheduler of the checkpoint its type and state.
        settings: The settings of the checkpoint; without them nothing can be told later.

    Returns:
        Whether there is nothing to restore.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> of_other_kinds(state, [{"type": "StepLR"}], {"schedulers": []})
        True
    """
    if saved is None or (settings or {}).get("schedulers") is None:
        return False
    return [entry.get("type") for entry in saved] != [
        type(scheduler).__qualname__ for scheduler in state.schedulers
    ]


def _read_automatically(
    state: State, load: LoadOptions, save: SaveOptions
) -> tuple[str, dict[str, Any]] | None:
    assert save.folder is not None
    assert save.latest_filename is not None
    folder = format_name_with_dist(save.folder, state.run_name)
    latest = format_name_with_dist(save.latest_filename, state.run_name)
    own = OwnFiles(save.filename, state.run_name)
    with _naming("save_folder", folder):
        return read_newest(folder, latest, own=own, progress_bar=load.progress_bar)


@contextmanager
def _naming(argument: str, path: str) -> Iterator[None]:
    """Say what was being read where a client kit raises an error of its own, which does not."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError):
        raise  # these are told with the path where they are raised
    except Exception as error:
        raise RuntimeError(
            f"{argument}={path!r} cannot be read: {type(error).__name__}: {error}"
        ) from error


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
    report = SettingsReport(load.overrides, strict)
    asked = state.settings["optimizers"]
    reconcile_optimizers(state, asked, stored.get("optimizers"), report)
    precision = metadata.get("precision")
    if strict and precision not in (None, state.precision.value):
        raise ValueError(
            f"the checkpoint was made with precision={precision!r}, and this run has "
            f"precision={state.precision.value!r}, with which it does not continue exactly; "
            f"strict_mode=True does not go on with it. Pass precision={precision!r}, or start from "
            f"the weights with load_weights_only=True"
        )
    then = {"precision": precision, "max_duration": stored.get("max_duration")}
    now = {"precision": state.precision.value, "max_duration": state.settings["max_duration"]}
    report_run(now, then)
    if schedules is None or not schedules.described:  # `fit` may still bring them
        report.say(complete=schedules is not None)
        return
    changed = reconcile_schedules(schedules.described, stored.get("schedulers"), report)
    report.say()
    schedules.begin_again(changed, asked)


def reconcile_late(state: State, load: LoadOptions, schedules: Schedules, *, strict: bool) -> None:
    """Compare the settings of schedules that were made after the checkpoint was loaded.

    Args:
        state: The state of the run, restored from the checkpoint.
        load: What was loaded and how.
        schedules: The schedules.
        strict: Whether settings that differ are an error.
    """
    report = SettingsReport(load.overrides, strict)
    asked = state.settings["optimizers"]
    for groups in asked:
        report.known.update(key for options in groups for key in options)
    stored = state.stored_settings or {}
    changed = reconcile_schedules(schedules.described, stored.get("schedulers"), report)
    report.say()
    schedules.begin_again(changed, asked)


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
