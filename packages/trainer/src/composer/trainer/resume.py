"""Continuing a run: find the checkpoint, put it in place, say what differs from the script."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from composer.checkpoint.load import (
    apply_checkpoint,
    fetch_checkpoint,
    find_newest,
    stored_metadata,
)
from composer.trainer.options import LoadOptions, SaveOptions
from composer.utils.paths import format_name_with_dist
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["Resumption", "resume"]

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
    state: State, logger: Logger, load: LoadOptions, save: SaveOptions, *, seed_given: bool
) -> Resumption | None:
    """Load the checkpoint that the options ask for, if any.

    Args:
        state: The state of the run.
        logger: Passed to algorithms that have to be applied again.
        load: What to load and how.
        save: Where this run saves; autoresume looks there.
        seed_given: Whether the user chose a seed.

    Returns:
        What is left to be done, or ``None`` if nothing was loaded.

    Raises:
        FileNotFoundError: If the checkpoint asked for is not there.
        ValueError: If it is bad or does not fit.
    """
    found = _find_automatically(state, save) if load.autoresume else None
    if found is not None:
        log.info("resuming automatically from %s", found)
        load = load.for_autoresume()
        path = str(found)
    elif load.path is None:
        return None
    else:
        path = format_name_with_dist(load.path, state.run_name)
    state.load_path = path
    contents = fetch_checkpoint(path, load.object_store, progress_bar=load.progress_bar)
    metadata = stored_metadata(contents)
    requested, seed = _hyperparameters(state), state.rank_zero_seed
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
        _reconcile(state, requested, load.overrides)
        _check_batches(state, metadata)
        if seed_given and seed != state.rank_zero_seed:
            warnings.warn(
                f"the checkpoint was made with seed {state.rank_zero_seed}, which is used instead "
                f"of seed={seed}, so that the run continues exactly",
                stacklevel=2,
            )
    return Resumption(path, random_states)


def _find_automatically(state: State, save: SaveOptions) -> Path | None:
    assert save.folder is not None
    assert save.latest_filename is not None
    folder = format_name_with_dist(save.folder, state.run_name)
    latest = format_name_with_dist(save.latest_filename, state.run_name)
    suffix = Path(save.filename).suffix
    return find_newest(folder, latest, f"*{suffix}")


# ---- settings of the script against those of the checkpoint -----------------------------------


def _hyperparameters(state: State) -> list[list[dict[str, Any]]]:
    """Options of every parameter group; the learning rate is the one before any schedule."""
    found = []
    for optimizer in state.optimizers:
        groups = []
        for group in optimizer.param_groups:
            hidden = {"params", "param_names", "initial_lr"}
            if "base_momentum" in group:  # a cyclic schedule moves these, nobody set them
                hidden |= {"momentum", "betas"}
            options = {key: value for key, value in group.items() if key not in hidden}
            options["lr"] = group.get("initial_lr", group["lr"])
            groups.append(options)
        found.append(groups)
    return found


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return bool(torch.equal(torch.as_tensor(a), torch.as_tensor(b)))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def _reconcile(
    state: State, requested: Sequence[Sequence[Mapping[str, Any]]], overrides: Sequence[str]
) -> None:
    """Say where the script's settings differ from the stored ones; let overrides win."""
    differences, known = [], set()
    stored = _hyperparameters(state)
    for optimizer, asked_groups, kept_groups in zip(
        state.optimizers, requested, stored, strict=True
    ):
        name = type(optimizer).__name__
        # Algorithms that were applied again may have added groups, about which nobody asked.
        for i, (asked, kept) in enumerate(zip(asked_groups, kept_groups, strict=False)):
            group = optimizer.param_groups[i]
            for key, value in asked.items():
                known.add(key)
                if key not in kept or _same(value, kept[key]):
                    continue
                wins = key in overrides
                differences.append(
                    f"{key} of {name} group {i}: stored {kept[key]}, script {value}"
                    f"{' (script used)' if wins else ''}"
                )
                if wins:
                    _override(state, group, i, key, value)
    for key in overrides:
        if key not in known:
            raise ValueError(
                f"load_overrides names {key!r}, which no optimizer group has; known: "
                f"{sorted(known)}.{did_you_mean(key, sorted(known))}"
            )
    if differences:
        warnings.warn(
            "the checkpoint's settings differ from the script's and are used: "
            + "; ".join(differences)
            + ". Name those that the script shall decide in load_overrides, such as "
            "load_overrides=['lr']",
            stacklevel=2,
        )


def _override(state: State, group: dict[str, Any], index: int, key: str, value: Any) -> None:
    if key != "lr":
        group[key] = value
        return
    before = group.get("initial_lr", group["lr"])
    scheduled = group["lr"] / before if before else 1.0
    group["lr"] = value * scheduled
    if "initial_lr" in group:
        group["initial_lr"] = value
    for scheduler in state.schedulers:
        bases = getattr(scheduler, "base_lrs", None)
        if bases is not None:
            bases[index] = value


def _check_batches(state: State, metadata: Mapping[str, Any]) -> None:
    """A place inside an epoch is counted in batches, so they must be of the stored size."""
    stored = metadata.get("dataloader_batch_size")
    here = getattr(state.train_dataloader, "batch_size", None)
    inside = int(state.timestamp.batch_in_epoch)
    if inside and stored is not None and here is not None and stored != here:
        raise ValueError(
            f"the checkpoint was made after {inside} batches of an epoch with batch_size={stored}, "
            f"but the train dataloader has batch_size={here}, so its place cannot be found. Use "
            f"batch_size={stored}, or resume from a checkpoint at an epoch's end"
        )
