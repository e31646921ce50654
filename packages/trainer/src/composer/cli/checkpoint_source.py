"""Where `composer checkpoint` finds checkpoints: a file, a folder, or a place in an object store.

Tensors are not read here, so that listing a folder of large files is quick.
"""

from __future__ import annotations

import datetime
import fnmatch
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from composer.callbacks.checkpoint_saver import BEST_FILENAME
from composer.checkpoint.manifest import (
    MANIFEST_ENDING,
    Manifest,
    manifest_name,
    read_manifest,
    wrong_size,
)
from composer.checkpoint.search import (
    POINTER_ENDING,
    Candidate,
    newest_first,
    pointed_at,
    stored_manifest,
)
from composer.utils.object_store import maybe_create_object_store_from_uri
from composer.utils.paths import is_uri, parse_uri
from composer.utils.transfer import follow_links

if TYPE_CHECKING:
    from composer.utils.object_store import ObjectStore

__all__ = ["Item", "LocalSource", "RemoteSource", "Source", "open_source"]

_KINDS = re.compile(r"\.(pt|pth|ckpt|tar|tgz)(\.[a-z0-9]+)?$")


@dataclass(frozen=True)
class Item:
    """A checkpoint, as far as is known without opening it.

    Attributes:
        name: Its path in the folder.
        size: Its bytes; ``None`` if there is a manifest but no file.
        manifest: Its manifest, or ``None``.
        problem: What is wrong, or nothing.
        modified: When the file changed last, in seconds since 1970, if that is known.
        counters: Fields of the run's timestamp that were read from a file without a manifest.

    Example:
        >>> Item("ep1.pt", 10).state
        'unverified'
    """

    name: str
    size: int | None
    manifest: Manifest | None = None
    problem: str = ""
    modified: float | None = None
    counters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """One of complete, damaged and unverified (no manifest).

        Complete means of the right size; `verify` compares the content.
        """
        if self.problem:
            return "damaged"
        return "unverified" if self.manifest is None else "complete"

    @property
    def timestamp(self) -> Mapping[str, Any]:
        """Fields of the run's timestamp, as far as they are known."""
        return self.counters if self.manifest is None else self.manifest.timestamp

    @property
    def written(self) -> datetime.datetime | None:
        """When it was written."""
        if self.manifest is not None:
            return datetime.datetime.fromisoformat(self.manifest.written)
        if self.modified is None:
            return None
        return datetime.datetime.fromtimestamp(self.modified, datetime.UTC)

    @property
    def candidate(self) -> Candidate:
        """The same as the search for the newest takes it."""
        return Candidate(self.name, self.manifest, self.modified or 0.0)

    @property
    def order(self) -> tuple[int, float, list[tuple[int, str]]]:
        """Sorts by the run's clock; those that do not say it by time and name, first."""
        written = self.written
        return (
            int(self.timestamp.get("batch", -1)),
            written.timestamp() if written else 0.0,
            [(int(digits or 0), rest) for digits, rest in re.findall(r"(\d+)|(\D+)", self.name)],
        )


class Source(ABC):
    """Finds checkpoints and opens them.

    Attributes:
        shown: What it is called in messages.

    Example:
        >>> issubclass(LocalSource, Source)
        True
    """

    shown: str

    @abstractmethod
    def items(self) -> list[Item]:
        """List the checkpoints, oldest first.

        Returns:
            One item for each file, and for each manifest whose file is gone.
        """

    @abstractmethod
    def links(self) -> dict[str, str]:
        """List the links to checkpoints.

        Returns:
            Name of the link to name of the checkpoint.
        """

    @abstractmethod
    def open(self, name: str) -> AbstractContextManager[Path]:
        """Make a checkpoint available as a local file, with its manifest beside it.

        Args:
            name: Its name, as :meth:`items` gives it.

        Returns:
            A context in which the file is there.
        """

    def close(self) -> None:  # noqa: B027 - a folder has nothing to give back
        """Give back what is held.

        Example:
            >>> LocalSource(Path("."), None).close()
        """

    def newest(self) -> Item | None:
        """Choose the checkpoint that a run which saves there would be resumed from.

        The rules are those of :func:`composer.checkpoint.search.newest_first`. Checkpoints in
        folders of the folder, and those that no run can be resumed from, count where there are no
        others.

        Returns:
            The checkpoint, or ``None`` if there is none that is not damaged.

        Example:
            >>> LocalSource(Path("/nowhere"), None).newest() is None
            True
        """
        found = {item.name: item for item in self.items() if item.state != "damaged"}
        best = fnmatch.translate(BEST_FILENAME.format(rank="*"))
        latest = {
            name
            for link, name in self.links().items()
            if "/" not in link and name in found and not re.match(best, link)
        }
        pointed = max(latest, key=lambda name: found[name].order, default=None)
        own = [name for name in found if "/" not in name or name == pointed] or list(found)
        ordered = newest_first((found[name].candidate for name in own), pointed)
        chosen = next((c for c in ordered if c.resumable), ordered[0] if ordered else None)
        return None if chosen is None else found[chosen.name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalSource(Source):
    """A folder, or one file in it.

    Args:
        folder: The folder.
        only: Name of the file; all of the folder's without it.

    Example:
        >>> LocalSource(Path("/nowhere"), None).items()
        []
    """

    def __init__(self, folder: Path, only: str | None) -> None:
        self.folder = folder
        self.only = only
        self.shown = str(folder / only) if only else str(folder)

    def items(self) -> list[Item]:
        """List the checkpoints, oldest first.

        Returns:
            One item for each file, and for each manifest whose file is gone.

        Example:
            >>> folder = Path(tempfile.mkdtemp())
            >>> _ = (folder / "ep1.pt").write_bytes(b"abc")
            >>> [(item.name, item.size, item.state) for item in LocalSource(folder, None).items()]
            [('ep1.pt', 3, 'damaged')]
        """
        from composer.cli import checkpoint_facts

        if self.only is not None:
            names = {self.only}
        else:
            paths = [p for p in self.folder.rglob("*") if not p.is_symlink() and p.is_file()]
            names = _checkpoints(p.relative_to(self.folder).as_posix() for p in paths)
        found = []
        for name in names:
            path = self.folder / name
            manifest, problem = None, ""
            try:
                manifest = read_manifest(path)
            except ValueError as error:
                problem = str(error)
            stat = path.stat() if path.is_file() else None
            if stat is None and _of_something_else(name, manifest):
                continue
            counters: Mapping[str, Any] = {}
            if stat is not None and manifest is None and not problem:
                try:
                    counters = checkpoint_facts.counters(path)
                except ValueError as error:
                    problem = str(error)
            size = None if stat is None else stat.st_size
            modified = None if stat is None else stat.st_mtime
            problem = problem or _incomplete(size, manifest)
            found.append(Item(name, size, manifest, problem, modified, counters))
        return sorted(found, key=lambda item: item.order)

    def links(self) -> dict[str, str]:
        """List the links to checkpoints.

        Returns:
            Name of the link to name of the checkpoint.

        Example:
            >>> folder = Path(tempfile.mkdtemp())
            >>> _ = (folder / "ep1.pt").write_bytes(b"abc")
            >>> (folder / "latest.pt").symlink_to("ep1.pt")
            >>> LocalSource(folder, None).links()
            {'latest.pt': 'ep1.pt'}
        """
        found = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_symlink() and path.is_file():
                target = path.resolve()
                if target.is_relative_to(self.folder.resolve()):
                    name = target.relative_to(self.folder.resolve()).as_posix()
                    found[path.relative_to(self.folder).as_posix()] = name
        return found

    @contextmanager
    def open(self, name: str) -> Iterator[Path]:
        """Give the file.

        Args:
            name: Its name.

        Yields:
            The file.
        """
        yield self.folder / name


class RemoteSource(Source):
    """A place in an object store, or one object.

    Args:
        uri: Its URI.
        store: The store.

    Example:
        >>> from composer.utils.object_store import LocalObjectStore
        >>> folder = tempfile.mkdtemp()
        >>> RemoteSource(f"file://{folder}", LocalObjectStore()).items()
        []
    """

    def __init__(self, uri: str, store: ObjectStore) -> None:
        self.shown = uri
        self.store = store
        prefix, names = _follow(store, parse_uri(uri)[2].strip("/"))
        self.only: str | None = None
        beside = manifest_name(prefix)
        if not uri.endswith("/") and (prefix in names or beside in names):
            self.prefix, _, self.only = prefix.rpartition("/")
            self.prefix += "/" if self.prefix else ""
            names = [n for n in (prefix, beside) if n in names]
        else:
            self.prefix = f"{prefix}/" if prefix else ""
        size = len(self.prefix)
        self._names = {name[size:] for name in names if name.startswith(self.prefix)}

    def items(self) -> list[Item]:
        """List the checkpoints, oldest first.

        Returns:
            One item for each object, and for each manifest whose object is gone.

        Example:
            >>> from composer.utils.object_store import LocalObjectStore
            >>> folder = Path(tempfile.mkdtemp())
            >>> _ = (folder / "ep1.pt").write_bytes(b"abc")
            >>> source = RemoteSource(f"file://{folder}/ep1.pt", LocalObjectStore())
            >>> [(item.name, item.size) for item in source.items()]
            [('ep1.pt', 3)]
        """
        found = []
        for name in {self.only} if self.only else _checkpoints(self._names):
            manifest, problem = None, ""
            if manifest_name(name) in self._names:
                try:
                    manifest = stored_manifest(self.store, self.prefix + name)
                except ValueError as error:
                    problem = str(error)
            size = self.store.get_object_size(self.prefix + name) if name in self._names else None
            if size is None and _of_something_else(name, manifest):
                continue
            found.append(Item(name, size, manifest, problem or _incomplete(size, manifest)))
        return sorted(found, key=lambda item: item.order)

    def links(self) -> dict[str, str]:
        """List the text files that stand for links.

        Returns:
            Name of the link to name of the checkpoint.

        Example:
            >>> from composer.utils.object_store import LocalObjectStore
            >>> folder = Path(tempfile.mkdtemp())
            >>> _ = (folder / "ep1.pt").write_bytes(b"abc")
            >>> _ = (folder / "latest.symlink").write_text(f"{folder}/ep1.pt".lstrip("/"))
            >>> RemoteSource(f"file://{folder}", LocalObjectStore()).links()
            {'latest': 'ep1.pt'}
        """
        found = {}
        for name in sorted(self._names):
            if name.endswith(POINTER_ENDING):
                target = pointed_at(self.store, self.prefix + name)
                if target is not None and target.startswith(self.prefix):
                    found[name.removesuffix(POINTER_ENDING)] = target.removeprefix(self.prefix)
        return found

    @contextmanager
    def open(self, name: str) -> Iterator[Path]:
        """Fetch an object and its manifest.

        Args:
            name: Its name.

        Yields:
            The file, which is deleted afterwards.
        """
        with tempfile.TemporaryDirectory(prefix="composer-checkpoint-") as folder:
            local = Path(folder, Path(name).name)
            self.store.download_object(self.prefix + name, local)
            if manifest_name(name) in self._names:
                beside = Path(manifest_name(str(local)))
                self.store.download_object(self.prefix + manifest_name(name), beside)
            yield local

    def close(self) -> None:
        """Close the store.

        Example:
            >>> from composer.utils.object_store import LocalObjectStore
            >>> RemoteSource(f"file://{tempfile.mkdtemp()}", LocalObjectStore()).close()
        """
        self.store.close()


def _checkpoints(names: Iterable[str]) -> set[str]:
    """Names that are checkpoints: by their kind, or because there is a manifest."""
    found = set()
    for name in names:
        hidden = any(part.startswith(".") for part in name.split("/"))
        if hidden or name.endswith(POINTER_ENDING):
            continue
        if name.endswith(MANIFEST_ENDING):
            found.add(name.removesuffix(MANIFEST_ENDING))
        elif _KINDS.search(name):
            found.add(name)
    return found


def _of_something_else(name: str, manifest: Manifest | None) -> bool:
    """Whether a manifest without a file is none of ours: others call their files so too."""
    return manifest is None and not _KINDS.search(name)


def _follow(store: ObjectStore, prefix: str) -> tuple[str, list[str]]:
    """Go where a link leads: a text file, which may be named without its ending.

    Returns:
        The name of a folder or object, and the names that begin with it.
    """
    names = store.list_objects(prefix)
    pointer = prefix.removesuffix(POINTER_ENDING) + POINTER_ENDING
    if pointer not in names or prefix.removesuffix(POINTER_ENDING) in names:
        return prefix, names
    target = pointed_at(store, pointer)
    if target is None:
        raise FileNotFoundError(f"{store.get_uri(pointer)} is a link that leads to no checkpoint")
    found = store.list_objects(target)
    if target not in found:
        raise FileNotFoundError(
            f"there is no checkpoint at {store.get_uri(pointer)} (a link to {target}, which is "
            f"gone)"
        )
    return target, found


def _incomplete(size: int | None, manifest: Manifest | None) -> str:
    if size is None:
        return "there is a manifest, but the file is gone"
    return "" if manifest is None else wrong_size(size, manifest)


def open_source(where: str) -> Source:
    """Find out what a path or URI is.

    Args:
        where: A file, a folder, or a URI of either. A manifest stands for its checkpoint, and a
            link for where it leads.

    Returns:
        The source.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If no store for the URI's scheme is installed.

    Example:
        >>> open_source(tempfile.mkdtemp()).items()
        []
    """
    scheme, _, inner = parse_uri(where)
    if scheme == "file":  # this machine, where links are links
        where = inner
    # What belongs to a checkpoint stands for it.
    where = where.removesuffix(MANIFEST_ENDING)
    if is_uri(where):
        store = maybe_create_object_store_from_uri(where)
        assert store is not None
        source = RemoteSource(where, store)
        if source.only is None and not source.items():
            source.close()
            raise FileNotFoundError(f"there is no checkpoint at {where}")
        return source
    path = Path(follow_links(where))
    if path.is_dir():
        return LocalSource(path, None)
    if not path.exists() and not Path(manifest_name(str(path))).is_file():
        target = f" (a link to {path.readlink()}, which is gone)" if path.is_symlink() else ""
        raise FileNotFoundError(f"there is no file or folder {where}{target}")
    real = path.resolve() if path.is_symlink() else path
    return LocalSource(real.parent, real.name)
