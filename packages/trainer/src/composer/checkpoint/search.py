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
from dataclasses import dataclass, field
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
from composer.utils.templates import matches_template, names_of_template
from composer.utils.transfer import follow_links

if TYPE_CHECKING:
    from composer.utils.object_store.base import ObjectStore

__all__ = [
    "POINTER_ENDING",
    "Candidate",
    "OwnFiles",
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
class OwnFiles:
    """Which files of a folder are a run's own checkpoints.

    Args:
        template: The template of their names, relative to the folder.
        run_name: The run's name.
        refused: Those that were passed over: they are the run's own, and it cannot be continued
            from them.

    Example:
        >>> own = OwnFiles("{run_name}-ep{epoch}.pt", "a")
        >>> own.matches("a-ep1.pt"), own.matches("b-ep1.pt")
        (True, False)
    """

    template: str
    run_name: str
    refused: list[str] = field(default_factory=list, compare=False)

    def matches(self, name: str) -> bool:
        """Say whether a file could be one, by its name.

        Args:
            name: The name, relative to the folder.

        Returns:
            Whether it could.
        """
        return matches_template(name, self.template, run_name=self.run_name)

    def written_by_another(self, candidate: Candidate) -> bool:
        """Say whether another run wrote a file, and log it.

        Args:
            candidate: The file.

        Returns:
            Whether its manifest names another run.
        """
        known = candidate.manifest
        if known is None or known.run_name in ("", self.run_name):
            return False
        log.warning(
            "passing over %s: it was written by the run %r and not by %r",
            candidate.name,
            known.run_name,
            self.run_name,
        )
        return True


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


def local_candidates(
    folder: Path, latest: str | None, pattern: str, own: OwnFiles | None = None
) -> list[Candidate]:
    """List what may be the newest checkpoint of a folder.

    Args:
        folder: The folder.
        latest: Name of the link to the newest.
        pattern: Which files are checkpoints, with or without a manifest.
        own: Whose checkpoints are wanted, instead of a pattern.

    Returns:
        The candidates in the order in which they are to be tried; names are whole paths.

    Example:
        >>> local_candidates(Path("/nowhere"), "latest.pt", "*.pt")
        []
    """
    found: dict[str, Candidate] = {}
    pointed = None
    if latest is not None and (folder / latest).is_symlink():
        try:
            target = (folder / latest).resolve()
        except RuntimeError:  # a loop of links
            target = folder / latest
        if target.is_file():
            pointed = str(target)
            found[pointed] = _local(target)
    if folder.is_dir():
        names = None
        if own is not None:
            names = names_of_template(folder, own.template, run_name=own.run_name)
        for path in folder.glob(pattern) if names is None else map(folder.joinpath, names):
            aside = path.name.startswith(".") or path.name.endswith(MANIFEST_ENDING)
            if aside or path.is_symlink() or not path.is_file():
                continue
            # The same file may be reached by the link through another name of the folder.
            if str(path.resolve()) != pointed:
                found[str(path)] = _local(path)
    kept = [c for c in found.values() if own is None or not own.written_by_another(c)]
    return [c for c in newest_first(kept, pointed) if _resumable(c, own)]


def _resumable(candidate: Candidate, own: OwnFiles | None) -> bool:
    if own is not None and not candidate.resumable:
        own.refused.append(candidate.name)
    if not candidate.resumable:
        log.warning(
            "passing over %s: it holds weights only, or no random states, so a run cannot be "
            "continued from it",
            candidate.name,
        )
    return candidate.resumable


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
    store: ObjectStore,
    prefix: str,
    latest: str | None,
    pattern: str,
    own: OwnFiles | None = None,
) -> Iterator[Candidate]:
    """List the complete checkpoints under a prefix of a store, and say which are not complete.

    Args:
        store: The store.
        prefix: The folder's name in the store.
        latest: Name of the link to the newest, whose text file has ``.symlink`` added.
        pattern: Which objects are checkpoints.
        own: Whose checkpoints are wanted, instead of a pattern.

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
    for name in sorted(_checkpoints(names, folder, pointed, pattern, own)):
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
        candidate = Candidate(name, manifest)
        if own is None or not own.written_by_another(candidate):
            complete.append(candidate)
    for candidate in newest_first(complete, pointed):
        assert candidate.manifest is not None
        if not _resumable(candidate, own):
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
    names: Iterable[str],
    folder: str,
    pointed: str | None,
    pattern: str,
    own: OwnFiles | None,
) -> Iterator[str]:
    for name in names:
        base = name.rpartition("/")[2]
        if base.startswith(".") or base.endswith((MANIFEST_ENDING, POINTER_ENDING)):
            continue
        if own is not None:
            if own.matches(name.removeprefix(folder)):
                yield name
        # As in a folder of this machine: what lies deeper is another run's, unless pointed at.
        elif name in (folder + base, pointed) and fnmatch.fnmatchcase(base, pattern):
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
