"""Reads checkpoints, runs nothing that is in them, and says what is wrong with one that is bad."""

from __future__ import annotations

import contextlib
import logging
import pickle
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from composer.checkpoint.compat import (
    fit_to_run,
    from_reference,
    is_from_reference,
    load_harmless,
)
from composer.checkpoint.formats import bare_file
from composer.checkpoint.layout import (
    FORMAT,
    FORMAT_VERSION,
    METADATA,
    RNG,
    STATE,
    IgnoreKeys,
    NewerFormatError,
    remove_keys,
)
from composer.checkpoint.manifest import check, manifest_name, read_manifest
from composer.checkpoint.search import (
    POINTER_ENDING,
    OwnFiles,
    local_candidates,
    remote_candidates,
)
from composer.core.persistence import restore
from composer.utils.compression import CompressorNotFound
from composer.utils.iteration import map_collection
from composer.utils.object_store.registry import maybe_create_object_store_from_uri
from composer.utils.paths import is_uri, parse_uri
from composer.utils.transfer import follow_links, get_file

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State
    from composer.utils.object_store.base import ObjectStore

__all__ = [
    "apply_checkpoint",
    "fetch_checkpoint",
    "find_newest",
    "find_newest_remote",
    "load_checkpoint",
    "read_checkpoint",
    "read_newest",
    "safe_torch_load",
    "stored_metadata",
]

log = logging.getLogger(__name__)


def safe_torch_load(path: str | Path, map_location: str = "cpu") -> Any:
    """Read a file of torch without running any code in it.

    Args:
        path: The file.
        map_location: Where tensors go.

    Returns:
        What the file holds.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is cut short, is not torch's, or holds more than plain types.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save({"x": 1}, path)
        >>> safe_torch_load(path)
        {'x': 1}
    """
    return _torch_load(Path(path), Path(path), map_location, checked=False)


def _torch_load(path: Path, shown: Path, map_location: str, *, checked: bool) -> Any:
    """Read a bare file; ``checked`` says that its content was compared with a hash before."""
    if not path.exists():
        target = f" (a link to {path.readlink()}, which is gone)" if path.is_symlink() else ""
        raise FileNotFoundError(f"there is no checkpoint at {path}{target}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a full checkpoint is one file")
    size = path.stat().st_size
    try:
        if not zipfile.is_zipfile(path):
            raise EOFError("it was cut short, or another program wrote it")
        if not checked:
            with zipfile.ZipFile(path) as archive:
                broken = archive.testzip()  # torch maps the file and compares no checksums
            if broken is not None:
                raise zipfile.BadZipFile(f"the checksum of {broken} does not match")
        try:
            return torch.load(path, map_location=map_location, weights_only=True, mmap=True)
        except pickle.UnpicklingError:
            return load_harmless(path, map_location)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{shown} holds more than numbers, strings and tensors, so reading it would run code "
            f"from the file; it was refused and nothing ran. {_first_line(error)}"
        ) from error
    except Exception as error:  # a damaged file can fail anywhere in zipfile, pickle or torch
        raise ValueError(
            f"{shown} ({size:,} bytes) is not a complete checkpoint: {_first_line(error)}. Load "
            f"another one"
        ) from error


def _load_file(path: Path, *, use_manifest: bool = True) -> Any:
    """Read a file of any kind; its manifest, where there is one, is compared first."""
    checked = False
    if use_manifest and path.is_file():
        manifest = read_manifest(path)
        if manifest is not None:
            check(path.resolve(), manifest)
            checked = True
    if not path.is_file():
        return _torch_load(path, path, "cpu", checked=checked)
    try:
        with bare_file(path.resolve()) as bare:
            return _torch_load(bare, path, "cpu", checked=checked)
    except CompressorNotFound as error:
        raise CompressorNotFound(f"{path} cannot be read: {error}") from error
    except (OSError, EOFError) as error:
        raise ValueError(
            f"{path} is not a complete checkpoint: {_first_line(error)}. Load another one"
        ) from error


def _own(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint of this library.

    Where a manifest lies beside the file, size and hash are compared with it; else the checksums
    inside the file are.

    Args:
        path: The file, of any of the kinds that can be written.

    Returns:
        Its dictionary; tensors are mapped from the file and not yet read.

    Raises:
        FileNotFoundError: If there is no such file.
        NewerFormatError: If it can be read only by a newer release.
        ValueError: If it is damaged, foreign, or would run code.
        CompressorNotFound: If reading it takes a command that is not installed.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save({"format": 1, "state": {}}, path)
        >>> read_checkpoint(path)["state"]
        {}
    """
    return _as_checkpoint(path, _load_file(Path(path)))


def _as_checkpoint(path: str | Path, contents: Any) -> dict[str, Any]:
    if not isinstance(contents, dict) or not isinstance(contents.get(STATE), dict):
        what = sorted(map(str, contents))[:8] if isinstance(contents, dict) else type(contents)
        raise ValueError(
            f"{path} is a file of torch but not a checkpoint of a trainer: expected a dictionary "
            f"with the key {STATE!r}, found {what}. To start from bare weights, load them into "
            f"the model with `model.load_state_dict(torch.load(path))` before making the trainer"
        )
    if is_from_reference(contents):
        contents, _ = from_reference(contents)
    found = contents.get(FORMAT)
    if found is None:
        raise ValueError(
            f"{path} has no {FORMAT!r} key: it was written by another library. Load its weights "
            f"into the model before making the trainer"
        )
    if type(found) is not int or not 1 <= found <= FORMAT_VERSION:
        raise NewerFormatError(
            f"{path} has checkpoint format {found!r}; this release reads up to {FORMAT_VERSION}. "
            f"Upgrade composer-trainer"
        )
    return contents


def apply_checkpoint(
    contents: dict[str, Any],
    state: State,
    logger: Logger | None,
    *,
    weights_only: bool = False,
    strict_model_weights: bool = True,
    ignore_keys: IgnoreKeys = None,
    exclude_algorithms: Sequence[str] | None = None,
) -> list[dict[str, Any]] | None:
    """Put a checkpoint's contents into a state.

    Args:
        contents: What :func:`read_checkpoint` returned.
        state: The state of the run.
        logger: Passed to algorithms that have to be applied again.
        weights_only: Whether to restore the model only.
        strict_model_weights: Whether the model's keys must match exactly.
        ignore_keys: What to leave out.
        exclude_algorithms: Names of algorithms that must not be applied again.

    Returns:
        The random states, to be restored right before the next batch; ``None`` if there are none.

    Raises:
        ValueError: If something does not fit.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> saved = {**state.state_dict(), "rank_zero_seed": 3}
        >>> apply_checkpoint({"state": saved}, state, None) is None
        True
        >>> state.rank_zero_seed
        3
    """
    algorithms = [dict(entry) for entry in contents.get(STATE, {}).get("algorithms") or []]
    if "model" not in contents.get(STATE, {}):
        warnings.warn(
            f"the checkpoint holds no {STATE}/model, so this run's weights stay as they are",
            stacklevel=2,
        )
    remove_keys(contents, ignore_keys, "load_ignore_keys")
    report = fit_to_run(contents, state, weights_only=weights_only)
    # The model copies its weights out of the mapped file; everything else is copied here, since
    # its owners may keep the tensors they are given.
    saved = {
        name: value if name == "model" else map_collection(value, _own)
        for name, value in contents.get(STATE, {}).items()
    }
    restore(
        state,
        saved,
        logger=logger,
        strict=strict_model_weights,
        exclude_algorithms=exclude_algorithms,
        fields=["model"] if weights_only else None,
        stored_algorithms=algorithms,
    )
    if report is not None:
        report.announce()
    return None if weights_only else contents.get(RNG)


def load_checkpoint(
    path: str,
    state: State,
    logger: Logger | None = None,
    object_store: Any = None,
    load_weights_only: bool = False,
    strict_model_weights: bool = True,
    progress_bar: bool = True,
    ignore_keys: IgnoreKeys = None,
    exclude_algorithms: Sequence[str] | None = None,
) -> list[dict[str, Any]] | None:
    """Read a checkpoint from a path or URI and put it into a state.

    Args:
        path: Local path, URI, or name in ``object_store``.
        state: The state of the run.
        logger: Passed to algorithms that have to be applied again.
        object_store: Where ``path`` is to be found, if not at a path or URI of its own.
        load_weights_only: Whether to restore the model only.
        strict_model_weights: Whether the model's keys must match exactly.
        progress_bar: Whether to show the progress of a download.
        ignore_keys: What to leave out.
        exclude_algorithms: Names of algorithms that must not be applied again.

    Returns:
        The random states, or ``None``.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If it is bad or does not fit.

    Example:
        >>> import tempfile
        >>> from composer.checkpoint import save_checkpoint
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> path = save_checkpoint(state, tempfile.mkdtemp() + "/a.pt")
        >>> len(load_checkpoint(path, state))
        1
    """
    contents = fetch_checkpoint(path, object_store, progress_bar=progress_bar)
    return apply_checkpoint(
        contents,
        state,
        logger,
        weights_only=load_weights_only,
        strict_model_weights=strict_model_weights,
        ignore_keys=ignore_keys,
        exclude_algorithms=exclude_algorithms,
    )


def fetch_checkpoint(
    path: str, object_store: Any = None, *, progress_bar: bool = True
) -> dict[str, Any]:
    """Read a checkpoint from wherever it is.

    Args:
        path: Local path, URI, or name in ``object_store``.
        object_store: Where to look, if not at a path or URI of its own.
        progress_bar: Whether to show the progress of a download.

    Returns:
        The checkpoint's dictionary.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If it is bad.

    Example:
        >>> try:
        ...     fetch_checkpoint("/nowhere/a.pt")
        ... except FileNotFoundError as error:
        ...     print(error)
        there is no checkpoint at /nowhere/a.pt
    """
    if object_store is None and parse_uri(path)[0] == "file":
        path = parse_uri(path)[2]
    if object_store is None and not is_uri(path):
        return read_checkpoint(path)
    with tempfile.TemporaryDirectory(prefix="composer-checkpoint-") as folder:
        # On POSIX the mapped file stays readable after its name is gone.
        return read_checkpoint(_download(path, Path(folder), object_store, progress_bar))


def _download(path: str, folder: Path, object_store: Any, progress_bar: bool) -> Path:
    """Get a checkpoint and its manifest, if it has one, under its own name."""
    target = follow_links(path, object_store)
    try:
        local = _fetch(target, folder, object_store, progress_bar)
    except FileNotFoundError:
        if _on_the_web(target):
            raise
        # A store has no links: the name of one stands for the text file beside it.
        try:
            target = follow_links(target + POINTER_ENDING, object_store)
            local = _fetch(target, folder, object_store, progress_bar)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"there is no checkpoint at {path}"
                + ("" if target == path else f" (a link to {target}, which is gone)")
            ) from None
    if not _on_the_web(target):
        with contextlib.suppress(FileNotFoundError):
            get_file(
                manifest_name(target),
                manifest_name(str(local)),
                object_store=object_store,
                progress_bar=False,
            )
    return local


def _fetch(target: str, folder: Path, object_store: Any, progress_bar: bool) -> Path:
    name = target.rpartition("/")[2]
    if _on_the_web(target):
        name = name.partition("?")[0]  # what stands behind it belongs to the request
    local = folder / (name or "checkpoint.pt")
    get_file(target, str(local), object_store=object_store, progress_bar=progress_bar)
    return local


def _on_the_web(target: str) -> bool:
    return target.partition("://")[0] in ("http", "https")


def find_newest(folder: str | Path, latest: str | None, pattern: str = "*.pt") -> Path | None:
    """Find the newest complete checkpoint in a folder.

    Args:
        folder: The folder.
        latest: Name of the link to the newest checkpoint.
        pattern: Which files are checkpoints.

    Returns:
        Its path, or ``None`` if there is none. A file that is damaged is passed over, and that is
        said.

    Raises:
        NewerFormatError: If the newest one can be read only by a newer release.

    Example:
        >>> find_newest(tempfile.mkdtemp(), "latest-rank0.pt") is None
        True
    """
    found = _read_newest_local(Path(folder), latest, pattern)
    return None if found is None else Path(found[0])


def find_newest_remote(
    store: ObjectStore, prefix: str, latest: str | None, pattern: str = "*.pt"
) -> str | None:
    """Find the newest complete checkpoint in a store, without fetching it.

    Args:
        store: The store.
        prefix: The folder's name in the store.
        latest: Name of the link to the newest; its text file has ``.symlink`` added.
        pattern: Which objects are checkpoints.

    Returns:
        The name of the newest object that has a manifest and the size that it says, or ``None``.
        Those that are not complete are passed over, and that is said.

    Raises:
        NewerFormatError: If a manifest can be read only by a newer release.

    Example:
        >>> from composer.utils.object_store import LocalObjectStore
        >>> find_newest_remote(LocalObjectStore(tempfile.mkdtemp()), "run", "latest") is None
        True
    """
    found = next(iter(remote_candidates(store, prefix, latest, pattern)), None)
    return None if found is None else found.name


def read_newest(
    folder: str | Path,
    latest: str | None,
    pattern: str = "*.pt",
    *,
    own: OwnFiles | None = None,
    progress_bar: bool = True,
) -> tuple[str, dict[str, Any]] | None:
    """Find and read the newest complete checkpoint of a folder, here or in a store.

    Args:
        folder: A path, or the URI of a folder.
        latest: Name of the link to the newest checkpoint.
        pattern: Which files are checkpoints.
        own: Whose checkpoints are wanted, instead of a pattern.
        progress_bar: Whether to show the progress of a download.

    Returns:
        Its path or URI and its dictionary, or ``None`` if there is none. What is damaged or not
        complete is passed over, and that is said.

    Raises:
        NewerFormatError: If the newest one can be read only by a newer release.
        CompressorNotFound: If reading takes a command that is not installed.
        ValueError: If ``own`` is given, and there are such files but none to continue from.

    Example:
        >>> read_newest(tempfile.mkdtemp(), "latest-rank0.pt") is None
        True
    """
    scheme, _, path = parse_uri(str(folder))
    if scheme in ("", "file"):
        found = _read_newest_local(Path(path), latest, pattern, own)
    else:
        found = _read_newest_remote(str(folder), path, latest, pattern, own, progress_bar)
    if found is None and own is not None and own.refused:
        raise ValueError(
            f"the run {own.run_name!r} has checkpoints in {folder}, and none of them can be "
            f"continued from: {', '.join(own.refused)}. Starting over would write over them; move "
            f"them away, or choose another save_folder or run_name"
        )
    return found


def _read_newest_remote(
    folder: str,
    path: str,
    latest: str | None,
    pattern: str,
    own: OwnFiles | None,
    progress_bar: bool,
) -> tuple[str, dict[str, Any]] | None:
    store = maybe_create_object_store_from_uri(folder)
    assert store is not None
    with store:
        for candidate in remote_candidates(store, path, latest, pattern, own):
            uri = f"{folder.rstrip('/')}/{candidate.name.removeprefix(path.rstrip('/') + '/')}"
            try:
                contents = fetch_checkpoint(candidate.name, store, progress_bar=progress_bar)
            except (NewerFormatError, CompressorNotFound):
                raise
            except (ValueError, FileNotFoundError) as error:
                _refuse(uri, str(error), own)
                continue
            if RNG in contents:
                return uri, contents
            _refuse(uri, "it holds no random states", own)
    return None


def _refuse(name: str, why: str, own: OwnFiles | None) -> None:
    log.warning("passing over %s: %s", name, why)
    if own is not None:
        own.refused.append(name)


def _read_newest_local(
    folder: Path, latest: str | None, pattern: str, own: OwnFiles | None = None
) -> tuple[str, dict[str, Any]] | None:
    if latest is not None and (folder / latest).is_symlink() and not (folder / latest).exists():
        gone = (folder / latest).readlink()
        log.warning("passing over %s: it leads to %s, which is gone", folder / latest, gone)
    for candidate in local_candidates(folder, latest, pattern, own):
        path = Path(candidate.name)
        try:
            contents = _as_checkpoint(
                path, _load_file(path, use_manifest=candidate.manifest is not None)
            )
        except (NewerFormatError, CompressorNotFound):
            raise
        except (ValueError, FileNotFoundError) as error:
            _refuse(str(path), str(error), own)
            continue
        if RNG in contents:
            return str(path), contents
        _refuse(str(path), "it holds no random states", own)
    return None


def stored_metadata(contents: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about the run that wrote a checkpoint.

    Args:
        contents: What :func:`read_checkpoint` returned.

    Returns:
        Versions, device, precision and sizes; empty if there are none.

    Example:
        >>> stored_metadata({"metadata": {"device": "cpu"}})
        {'device': 'cpu'}
    """
    return dict(contents.get(METADATA) or {})
