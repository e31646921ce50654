"""Writes checkpoints so that a kill at any moment leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from composer.checkpoint.formats import write_file
from composer.checkpoint.layout import (
    FORMAT,
    FORMAT_VERSION,
    METADATA,
    RNG,
    STATE,
    IgnoreKeys,
    check_whole,
    remove_keys,
)
from composer.checkpoint.manifest import Manifest, manifest_name, write_manifest
from composer.core.persistence import SAVED_FIELDS, collect
from composer.distributed.flat import share_buffers
from composer.utils import dist
from composer.utils.paths import (
    format_name_with_dist_and_time,
    local_path,
    location,
    parse_uri,
    sync_folder,
)
from composer.utils.reproducibility import get_rng_state, outermost_streams
from composer.utils.templates import check_template
from composer.utils.temporaries import temporary_beside

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = [
    "checkpoint_contents",
    "collected",
    "describe",
    "get_save_filename",
    "link_latest",
    "save_checkpoint",
    "write_checkpoint",
]

log = logging.getLogger(__name__)


def _metadata(state: State) -> dict[str, Any]:
    return {
        "composer_version": metadata.version("composer-core"),
        "torch_version": str(torch.__version__),
        "device": state.device.name,
        "precision": state.precision.value,
        "world_size": dist.get_world_size(),
        "device_train_microbatch_size": state.device_train_microbatch_size,
        "dataloader_batch_size": batch_size_of(state.train_dataloader),
    }


def batch_size_of(dataloader: Any) -> int | None:
    """Return how many samples a loader puts into a batch, if it says so.

    Args:
        dataloader: The loader.

    Returns:
        The number, of the loader or of its batch sampler.

    Example:
        >>> batch_size_of(torch.utils.data.DataLoader([1, 2], batch_size=2))
        2
    """
    size = getattr(dataloader, "batch_size", None)
    if size is None:
        size = getattr(getattr(dataloader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None


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
        ValueError: If what is left out is what makes a file a checkpoint.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> sorted(checkpoint_contents(state, weights_only=True))
        ['format', 'metadata', 'state']
    """
    fields = ["model", "integrations"] if weights_only else list(SAVED_FIELDS)
    contents: dict[str, Any] = {
        FORMAT: FORMAT_VERSION,
        STATE: _top_level_copy(collect(state, fields)),
        METADATA: _metadata(state),
    }
    if not weights_only:
        pending = state.random_resumption
        if pending is None:
            # During an evaluation, which has streams of its own, those of the run.
            with outermost_streams():
                pending = get_rng_state()
        contents[RNG] = pending
    remove_keys(contents, ignore_keys, "save_ignore_keys")
    check_whole(contents, "save_ignore_keys")
    return contents


@contextmanager
def collected(
    state: State, *, weights_only: bool = False, ignore_keys: IgnoreKeys = None
) -> Iterator[dict[str, Any]]:
    """Yield what a checkpoint holds, inside the algorithms' ``saving`` contexts.

    Args:
        state: The state of the run.
        weights_only: Whether to keep the model only.
        ignore_keys: What to leave out.

    Yields:
        The checkpoint's dictionary, whose tensors are the live ones: to be written, or copied,
        before the context ends.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> with collected(State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())) as contents:
        ...     sorted(contents)
        ['format', 'metadata', 'rng', 'state']
    """
    if not weights_only:
        # What is saved are rank zero's, and a run that continues starts from them on every rank.
        share_buffers(state.model)
    with ExitStack() as stack:
        for algorithm in state.algorithms:
            stack.enter_context(algorithm.saving(state))
        if state.algorithms and not weights_only:
            share_buffers(state.model)  # which may be others in here, such as averaged ones
        yield checkpoint_contents(state, weights_only=weights_only, ignore_keys=ignore_keys)


def get_save_filename(state: State, filename: str | Path = "ep{epoch}-ba{batch}-rank{rank}") -> str:
    """Fill in a checkpoint's name.

    Args:
        state: The state of the run.
        filename: The template; ``{rank}`` is the writing rank's, zero.

    Returns:
        The name.

    Raises:
        TypeError: If it is no text.
        ValueError: If it is no template, or has a field that nothing fills in.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> get_save_filename(State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU()))
        'ep0-ba0-rank0'
    """
    template = check_template(location(filename, "filename"), "filename")
    return format_name_with_dist_and_time(template, state.run_name, state.timestamp)


def describe(state: State, contents: dict[str, Any], *, weights_only: bool = False) -> Manifest:
    """Return the manifest of a checkpoint as far as it is known before the file is written.

    Args:
        state: The state of the run.
        contents: What the checkpoint holds.
        weights_only: Whether it is the model only.

    Returns:
        The manifest, without name, size, hash and time of writing.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> describe(state, {"state": {"model": {}}, "rng": []}).contents
        ['rng', 'state/model']
    """
    found = [key for key in contents if key not in (FORMAT, STATE)]
    found += [f"{STATE}/{key}" for key in contents.get(STATE, {})]
    return Manifest(
        file="",
        size=0,
        hashes={},
        written="",
        checkpoint_format=FORMAT_VERSION,
        timestamp=state.timestamp.state_dict(),
        contents=sorted(found),
        run_name=state.run_name,
        weights_only=weights_only,
        versions={
            "composer": metadata.version("composer-trainer"),
            "torch": str(torch.__version__),
        },
    )


def write_checkpoint(path: str | Path, contents: dict[str, Any], facts: Manifest) -> Manifest:
    """Write a checkpoint file, then its manifest, and look whether it is there.

    Where a file of that name is replaced, its manifest goes first: at no moment does a manifest
    stand beside a file that it does not describe.

    Args:
        path: The file; its ending chooses the kind. Its folder is made if it is not there.
        contents: What to write.
        facts: What :func:`describe` returned.

    Returns:
        The manifest.

    Raises:
        OSError: If it cannot be written; what was there before is untouched, or lacks its manifest.

    Example:
        >>> import tempfile
        >>> facts = Manifest("", 0, {}, "", 1)
        >>> write_checkpoint(tempfile.mkdtemp() + "/a.pt", {"format": 1, "state": {}}, facts).file
        'a.pt'
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A link is followed, so that the file it points to is replaced and not the link.
        target = path.resolve()
        beside = Path(manifest_name(str(target)))

        def forget() -> None:
            if beside.exists():
                beside.unlink()
                sync_folder(beside.parent)

        size, digest = write_file(contents, target, forget)
        manifest = dataclasses.replace(
            facts,
            file=path.name,
            size=size,
            hashes={"sha256": digest},
            written=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        )
        write_manifest(target, manifest)
        there = target.stat().st_size
    except OSError as error:
        advice = "Make room, or choose another save_folder"
        if path.is_dir():
            advice = "A folder has this name: move it away, or choose another save_filename"
        message = (
            f"the checkpoint {path} could not be written ({error.strerror or error}); no earlier "
            f"one is changed. {advice}"
        )
        raise (
            OSError(message) if error.errno is None else type(error)(error.errno, message)
        ) from (error)
    if there != size:
        raise OSError(f"the checkpoint {path} has {there:,} bytes after {size:,} were written")
    return manifest


def save_checkpoint(
    state: State,
    filename: str | Path = "ep{epoch}-ba{batch}-rank{rank}",
    *,
    weights_only: bool = False,
    ignore_keys: IgnoreKeys = None,
) -> str | None:
    """Write a full checkpoint and its manifest.

    The bytes go to a temporary file beside the target, are flushed to the disk and renamed. All of
    it happens inside the algorithms' :meth:`~composer.core.algorithm.Algorithm.saving`.

    Args:
        state: The state of the run.
        filename: Template of a path or URI; the folder is made if it is not there. Its ending
            chooses the kind of file: ``.tar`` and its compressed forms, ``.pt.zst`` and the like,
            else bare.
        weights_only: Whether to keep the model only.
        ignore_keys: What to leave out.

    Returns:
        The path or URI, or ``None`` on ranks that do not write.

    Raises:
        OSError: If the file cannot be written; what was there before is untouched.
        ValueError: If no store for the scheme of a URI is installed, or what is left out is what
            makes a file a checkpoint.

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
    path = get_save_filename(state, filename)
    with collected(state, weights_only=weights_only, ignore_keys=ignore_keys) as contents:
        if dist.get_global_rank() != 0:
            return None
        facts = describe(state, contents, weights_only=weights_only)
        # Inside the contexts, since what was collected are the live tensors.
        if parse_uri(path)[0] in ("", "file"):
            path = parse_uri(path)[2]
            write_checkpoint(path, contents, facts)
        else:
            from composer.checkpoint.places import open_place  # which is built on this module

            folder, _, name = path.rpartition("/")
            with contextlib.closing(open_place(folder)) as place:
                place.put(name, contents, facts, lambda path: None)
        return path


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
    path, link = local_path(path, "path"), local_path(link, "link")
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.exists() and not link.is_symlink():
        raise FileExistsError(
            f"{link} is a file and not a link to a checkpoint; move it away, or give the link "
            f"(`save_latest_filename`) another name"
        )
    temporary = temporary_beside(link)
    temporary.symlink_to(os.path.relpath(path, link.parent))
    temporary.replace(link)
    sync_folder(link.parent)
