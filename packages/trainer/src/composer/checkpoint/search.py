"""Which checkpoint of a folder, here or in a store, is the newest complete one.

Complete is what has a manifest, since that is written last. Newest is what the manifests say about
the run's clock; times of modification change when a folder is copied, and count only for files that
have no manifest.
"""

from __future__ import annotations

import fnmatch
import logging
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from composer.checkpoint.layout import RNG, NewerFormatError
from composer.checkpoint.manifest import (
    MANIFEST_ENDING,
    Manifest,
    manifest_name,
    parse_manifest,
    read_manifest,
    wrong_size,
)
from composer.utils.transfer import follow_links

if TYPE_CHECKING:
    from composer.utils.object_store.base import ObjectStore

__all__ = [
    "POINTER_ENDING",
    "Candidate",
    "local_candidates",
    "newest_first",
    "pointed_at",
    "remote_candidates",
    "stored_manifest",
]

log = logging.getLogger(__name__)

#: What the name of a link ends in where a text file stands for it.
POINTER_ENDING = ".symlink"


@dataclass(frozen=True)
class Candidate:
    """A file that may be the newest checkpoint.

    Attributes:
        name: Its name in the folder or store.
        manifest: Its manifest, or ``None``.
        modified: Time of modification, for those without a manifest.

    Example:
        >>> Candidate("ep1.pt", None, 3.0).name
        'ep1.pt'
    """

    name: str
    manifest: Manifest | None
    modified: float = 0.0

    @property
    def resumable(self) -> bool:
        """Whether a run can be continued from it, as far as is known."""
        known = self.manifest
        return known is None or (not known.weights_only and RNG in known.contents)

    @property
    def age(self) -> tuple[int, int, float]:
        """What larger means newer by."""
        if self.manifest is None:
            return -1, -1, self.modified
        epoch = int(self.manifest.timestamp.get("epoch", -1))
        return self.manifest.batch, epoch, self.manifest.written_at


def newest_first(candidates: Iterable[Candidate], pointed: str | None) -> list[Candidate]:
    """Put candidates into the order in which they are tried.

    The one that the run pointed at goes first, but for complete ones that are later both by the
    run's clock and by the time of writing: those were finished right before a kill. A clock that
    was set back on purpose (``reset_time``) leaves files of higher counters behind; they were
    written earlier, so the pointer decides.

    Args:
        candidates: The candidates.
        pointed: The name that the pointer to the newest holds.

    Returns:
        The candidates, newest first; those without a manifest last.

    Example:
        >>> written = "2026-01-01T00:00:0{}+00:00"
        >>> old, new = (
        ...     Candidate(f"ba{n}", Manifest("", 0, {}, written.format(n), 1, {"batch": n}))
        ...     for n in (1, 2)
        ... )
        >>> [c.name for c in newest_first([old, new], "ba1")]
        ['ba2', 'ba1']
    """
    found = sorted(candidates, key=lambda c: c.age, reverse=True)
    first = next((c for c in found if c.name == pointed), None)
    if first is None:
        return found
    if first.manifest is None:
        later = [c for c in found if c.manifest and c.manifest.written_at > first.modified]
    else:
        own = first.manifest.written_at
        later = [
            c
            for c in found
            if c.manifest and c.age[:2] > first.age[:2] and c.manifest.written_at > own
        ]
    return [*later, first, *(c for c in found if c is not first and c not in later)]


def local_candidates(folder: Path, latest: str | None, pattern: str) -> list[Candidate]:
    """List what may be the newest checkpoint of a folder.

    Args:
        folder: The folder.
        latest: Name of the link to the newest.
        pattern: Which files are checkpoints, with or without a manifest.

    Returns:
        The candidates in the order in which they are to be tried; names are whole paths.

    Example:
        >>> local_candidates(Path("/nowhere"), "latest.pt", "*.pt")
        []
    """
    found: dict[str, Candidate] = {}
    pointed = None
    if latest is not None and (folder / latest).is_symlink():
        target = (folder / latest).resolve()
        if target.is_file():
            pointed = str(target)
            found[pointed] = _local(target)
    if folder.is_dir():
        for path in folder.glob(pattern):
            aside = path.name.startswith(".") or path.name.endswith(MANIFEST_ENDING)
            if aside or path.is_symlink() or not path.is_file():
                continue
            # The same file may be reached by the link through another name of the folder.
            if str(path.resolve()) != pointed:
                found[str(path)] = _local(path)
    return [c for c in newest_first(found.values(), pointed) if c.resumable]


def _local(path: Path) -> Candidate:
    try:
        manifest = read_manifest(path)
    except NewerFormatError:
        raise
    except ValueError as error:
        log.warning("%s, so %s counts as one without; it is tried last", error, path)
        manifest = None
    return Candidate(str(path), manifest, path.stat().st_mtime)


def remote_candidates(
    store: ObjectStore, prefix: str, latest: str | None, pattern: str
) -> Iterator[Candidate]:
    """List the complete checkpoints under a prefix of a store, and say which are not complete.

    Args:
        store: The store.
        prefix: The folder's name in the store.
        latest: Name of the link to the newest, whose text file has ``.symlink`` added.
        pattern: Which objects are checkpoints.

    Yields:
        The candidates in the order in which they are to be tried: those that have a manifest and
        the size that it says; last the one that the pointer names, should it have no manifest.
        Names are whole names of objects.

    Example:
        >>> from composer.utils.object_store import LocalObjectStore
        >>> list(remote_candidates(LocalObjectStore(tempfile.mkdtemp()), "run", None, "*.pt"))
        []
    """
    folder = prefix.rstrip("/") + "/" if prefix else ""
    names = set(store.list_objects(folder))
    pointed = None
    pointer = f"{folder}{latest}{POINTER_ENDING}"
    if latest is not None and pointer in names:
        pointed = pointed_at(store, pointer)
    complete = []
    for name in sorted(_checkpoints(names, folder, pointed, pattern)):
        if manifest_name(name) not in names:
            _pass_over(store, name, "it has no manifest, so its upload did not come to its end")
            continue
        try:
            manifest = stored_manifest(store, name)
        except FileNotFoundError:
            continue
        except NewerFormatError:
            raise
        except ValueError as error:
            _pass_over(store, name, str(error))
            continue
        complete.append(Candidate(name, manifest))
    for candidate in newest_first(complete, pointed):
        assert candidate.manifest is not None
        if not candidate.resumable:
            continue
        try:
            size = store.get_object_size(candidate.name)
        except FileNotFoundError:
            continue
        if problem := wrong_size(size, candidate.manifest):
            _pass_over(store, candidate.name, problem)
            continue
        yield candidate
    # Its manifest may be away for the moment in which it was being replaced.
    if pointed is not None and pointed in names and manifest_name(pointed) not in names:
        yield Candidate(pointed, None)


def pointed_at(store: ObjectStore, pointer: str) -> str | None:
    """Read which object the text file leads to that stands for a link in a store.

    Args:
        store: The store.
        pointer: Name of the text file.

    Returns:
        The name of the object, which need not exist; ``None`` if it leads nowhere or out of the
        store, and that is said.

    Example:
        >>> from composer.utils.object_store import LocalObjectStore
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "latest.symlink").write_text("run/ep1.pt")
        >>> pointed_at(LocalObjectStore(folder), "latest.symlink")
        'run/ep1.pt'
    """
    try:
        return follow_links(pointer, store).lstrip("/")
    except (ValueError, FileNotFoundError) as error:
        _pass_over(store, pointer, str(error))
        return None


def _checkpoints(
    names: Iterable[str], folder: str, pointed: str | None, pattern: str
) -> Iterator[str]:
    for name in names:
        base = name.rpartition("/")[2]
        # As in a folder of this machine: what lies deeper is another run's, unless pointed at.
        own = name in (folder + base, pointed) and not base.startswith(".")
        other = base.endswith((MANIFEST_ENDING, POINTER_ENDING))
        if own and not other and fnmatch.fnmatchcase(base, pattern):
            yield name


def stored_manifest(store: ObjectStore, name: str) -> Manifest:
    """Read the manifest of a checkpoint in a store.

    Args:
        store: The store.
        name: Name of the checkpoint.

    Returns:
        The manifest.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged or of a newer version.

    Example:
        >>> from composer.utils.object_store import LocalObjectStore
        >>> try:
        ...     stored_manifest(LocalObjectStore(tempfile.mkdtemp()), "ep1.pt")
        ... except FileNotFoundError:
        ...     print("none")
        none
    """
    beside = manifest_name(name)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "manifest")
        store.download_object(beside, copy)
        return parse_manifest(copy.read_bytes(), store.get_uri(beside))


def _pass_over(store: ObjectStore, name: str, problem: str) -> None:
    log.warning("passing over %s: %s", store.get_uri(name), problem)
