"""Finds and reads the newest checkpoint that is whole, in a folder or in a store."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from composer.checkpoint.layout import RNG, NewerFormatError
from composer.checkpoint.reading import as_checkpoint, fetch_checkpoint, load_file
from composer.checkpoint.search import OwnFiles, local_candidates, remote_candidates
from composer.checkpoint.structure import check_structure
from composer.utils.compression import CompressorNotFound
from composer.utils.object_store.registry import maybe_create_object_store_from_uri
from composer.utils.paths import location, parse_uri

if TYPE_CHECKING:
    from composer.utils.object_store.base import ObjectStore

__all__ = ["find_newest", "find_newest_remote", "read_newest"]

log = logging.getLogger(__name__)


@overload
def find_newest(folder: Path, latest: str | None, pattern: str = "*.pt") -> Path | None: ...
@overload
def find_newest(folder: str, latest: str | None, pattern: str = "*.pt") -> Path | str | None: ...
def find_newest(folder: str | Path, latest: str | None, pattern: str = "*.pt") -> Path | str | None:
    """Find the newest complete checkpoint in a folder.

    Args:
        folder: The folder: a path, or a URI.
        latest: Name of the link to the newest checkpoint.
        pattern: Which files are checkpoints.

    Returns:
        Its path, or its URI if it is in a store, where it is not fetched; ``None`` if there is
        none. What is damaged is passed over, and that is said.

    Raises:
        NewerFormatError: If the newest one can be read only by a newer release.

    Example:
        >>> import tempfile
        >>> find_newest(tempfile.mkdtemp(), "latest-rank0.pt") is None
        True
    """
    place, latest = location(folder, "folder"), _link(latest, pattern)
    scheme, _, path = parse_uri(place)
    if scheme in ("", "file"):
        found = _read_newest_local(Path(path), latest, pattern)
        return None if found is None else Path(found[0])
    store = maybe_create_object_store_from_uri(place)
    assert store is not None
    with store:
        name = find_newest_remote(store, path, latest, pattern)
    return None if name is None else _uri(place, path, name)


def _link(latest: str | None, pattern: str) -> str | None:
    """Take the name of a link, and refuse what cannot be names."""
    if not isinstance(pattern, str) or not pattern:
        raise TypeError(f"pattern={pattern!r} must be a pattern of names such as '*.pt'")
    return None if latest is None else location(latest, "latest")


def _uri(folder: str, path: str, name: str) -> str:
    """The URI of an object, in the spelling of its folder's."""
    return f"{folder.rstrip('/')}/{name.removeprefix(path.rstrip('/') + '/')}"


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
        >>> import tempfile
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
        >>> import tempfile
        >>> read_newest(tempfile.mkdtemp(), "latest-rank0.pt") is None
        True
    """
    place, latest = location(folder, "folder"), _link(latest, pattern)
    scheme, _, path = parse_uri(place)
    if scheme in ("", "file"):
        found = _read_newest_local(Path(path), latest, pattern, own)
    else:
        found = _read_newest_remote(place, path, latest, pattern, own, progress_bar)
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
            uri = _uri(folder, path, candidate.name)
            try:
                contents = fetch_checkpoint(candidate.name, store, progress_bar=progress_bar)
                check_structure(contents, uri)
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
            contents = as_checkpoint(
                path, load_file(path, use_manifest=candidate.manifest is not None)
            )
            check_structure(contents, path)
        except (NewerFormatError, CompressorNotFound):
            raise
        except (ValueError, FileNotFoundError) as error:
            _refuse(str(path), str(error), own)
            continue
        if RNG in contents:
            return str(path), contents
        _refuse(str(path), "it holds no random states", own)
    return None
