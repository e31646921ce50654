"""Writes checkpoints so that a kill at any moment leaves the old file or the new one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from composer.checkpoint.layout import (
    FORMAT,
    FORMAT_VERSION,
    METADATA,
    RNG,
    STATE,
    IgnoreKeys,
    remove_keys,
)
from composer.core.persistence import SAVED_FIELDS, collect
from composer.utils import dist
from composer.utils.paths import atomic_write, format_name_with_dist_and_time
from composer.utils.reproducibility import get_rng_state

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["checkpoint_contents", "get_save_filename", "link_latest", "retained", "save_checkpoint"]


def _metadata(state: State) -> dict[str, Any]:
    return {
        "composer_version": metadata.version("composer-core"),
        "torch_version": str(torch.__version__),
        "device": state.device.name,
        "precision": state.precision.value,
        "world_size": dist.get_world_size(),
        "device_train_microbatch_size": state.device_train_microbatch_size,
        "dataloader_batch_size": getattr(state.train_dataloader, "batch_size", None),
    }


def _top_level_copy(value: Any) -> Any:
    """Copy the containers, so that editing what is saved does not edit the run."""
    if isinstance(value, dict):
        return {key: _top_level_copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_top_level_copy(item) for item in value]
    return value


def checkpoint_contents(
    state: State, *, weights_only: bool = False, ignore_keys: IgnoreKeys = None
) -> dict[str, Any]:
    """Return what a checkpoint of this moment holds.

    Args:
        state: The state of the run.
        weights_only: Whether to keep the model only.
        ignore_keys: What to leave out; see :func:`composer.checkpoint.layout.remove_keys`.

    Returns:
        The checkpoint's dictionary. Its tensors are the live ones.

    Raises:
        TypeError: If a part of the state is not plain.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> sorted(checkpoint_contents(state, weights_only=True))
        ['format', 'metadata', 'state']
    """
    fields = ["model"] if weights_only else list(SAVED_FIELDS)
    contents: dict[str, Any] = {
        FORMAT: FORMAT_VERSION,
        STATE: _top_level_copy(collect(state, fields)),
        METADATA: _metadata(state),
    }
    if not weights_only:
        contents[RNG] = get_rng_state()
    remove_keys(contents, ignore_keys, "save_ignore_keys")
    return contents


def get_save_filename(state: State, filename: str = "ep{epoch}-ba{batch}-rank{rank}") -> str:
    """Fill in a checkpoint's name.

    Args:
        state: The state of the run.
        filename: The template; ``{rank}`` is the writing rank's, zero.

    Returns:
        The name.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> get_save_filename(State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU()))
        'ep0-ba0-rank0'
    """
    return format_name_with_dist_and_time(filename, state.run_name, state.timestamp)


def save_checkpoint(
    state: State,
    filename: str = "ep{epoch}-ba{batch}-rank{rank}",
    *,
    weights_only: bool = False,
    ignore_keys: IgnoreKeys = None,
) -> str | None:
    """Write a full checkpoint.

    The bytes go to a temporary file beside the target, are flushed to the disk and renamed. All of
    it happens inside the algorithms' :meth:`~composer.core.algorithm.Algorithm.saving`.

    Args:
        state: The state of the run.
        filename: Path template; its folder is made if it is not there.
        weights_only: Whether to keep the model only.
        ignore_keys: What to leave out.

    Returns:
        The path, or ``None`` on ranks that do not write.

    Raises:
        OSError: If the file cannot be written; what was there before is untouched.

    Example:
        >>> import tempfile, torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> folder = tempfile.mkdtemp()
        >>> path = save_checkpoint(state, folder + "/ep{epoch}.pt")
        >>> torch.load(path, weights_only=True)["format"]
        1
    """
    with ExitStack() as stack:
        # Around the writing too, since what is collected are the live tensors.
        for algorithm in state.algorithms:
            stack.enter_context(algorithm.saving(state))
        contents = checkpoint_contents(state, weights_only=weights_only, ignore_keys=ignore_keys)
        if dist.get_global_rank() != 0:
            return None
        path = Path(get_save_filename(state, filename))
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with atomic_write(path) as file:
                torch.save(contents, file)
        except OSError as error:
            raise type(error)(
                error.errno,
                f"the checkpoint {path} could not be written ({error.strerror or error}); nothing "
                f"that was there before is changed. Make room, or choose another save_folder",
            ) from error
        return str(path)


def link_latest(path: str | Path, link: str | Path) -> None:
    """Point a name at the newest checkpoint, in one step.

    Args:
        path: The checkpoint, which must be on disk.
        link: The name; an earlier link of that name is replaced, a file that is no link is not.

    Raises:
        FileExistsError: If ``link`` is a file of its own.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "ep1.pt").write_bytes(b"")
        >>> link_latest(folder / "ep1.pt", folder / "latest.pt")
        >>> os.readlink(folder / "latest.pt")
        'ep1.pt'
    """
    path, link = Path(path), Path(link)
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.exists() and not link.is_symlink():
        raise FileExistsError(
            f"{link} is a file and not a link to a checkpoint; move it away, or set "
            f"`save_latest_filename` to another name"
        )
    temporary = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(path, link.parent))
    temporary.replace(link)


def retained(paths: Sequence[str], num_to_keep: int) -> tuple[list[str], list[str]]:
    """Split checkpoint paths into those to keep and those to delete.

    Args:
        paths: All paths, oldest first.
        num_to_keep: How many to keep; negative for all.

    Returns:
        The kept and the deleted ones, each oldest first.

    Example:
        >>> retained(["a", "b", "c"], 2)
        (['b', 'c'], ['a'])
    """
    if num_to_keep < 0 or len(paths) <= num_to_keep:
        return list(paths), []
    cut = len(paths) - num_to_keep
    return list(paths[cut:]), list(paths[:cut])
