"""Where checkpoints go: a folder, or a prefix of an object store.

Both keep the same order, so that a kill between any two steps loses nothing: data, manifest, a
look whether they are there, then the pointer, and only then deletions. Both are called from one
thread at a time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer.checkpoint.manifest import MANIFEST_ENDING, Manifest, manifest_name, read_manifest
from composer.checkpoint.place import Place
from composer.checkpoint.save import link_latest, write_checkpoint
from composer.checkpoint.search import POINTER_ENDING, pointed_at, stored_manifest
from composer.utils.object_store.registry import maybe_create_object_store_from_uri
from composer.utils.paths import create_symlink_file, is_inside, parse_uri
from composer.utils.templates import (
    fixed_folder,
    folders_of_template,
    matches_template,
    names_of_template,
)
from composer.utils.temporaries import name_of, writer_is_gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from composer.utils.object_store.base import ObjectStore

__all__ = ["LocalFolder", "RemoteFolder", "open_place"]

log = logging.getLogger(__name__)

# After so long even a process of another machine is thought to be gone.
_SECONDS_A_SAVE_MAY_TAKE = 24 * 3600
_SECONDS_A_LINK_MAY_TAKE = 3600


class LocalFolder(Place):
    """A folder of this machine.

    Args:
        folder: The folder; absolute, so that a process which changes its working folder goes on
            saving where it began.

    Example:
        >>> LocalFolder(Path("/data/run")).path("ep1.pt")
        '/data/run/ep1.pt'
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def prepare(self, templates: Iterable[str], run_name: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
            for template in templates:
                self._remove_leftovers(template, run_name)
        except OSError as error:
            raise type(error)(
                error.errno,
                f"checkpoints cannot be saved in save_folder={str(self.folder)!r} "
                f"({error.strerror}); choose a folder that can be written",
            ) from error

    def _remove_leftovers(self, template: str, run_name: str) -> None:
        """Delete what a killed save left, once its process is gone or it is too old to go on."""
        for folder in folders_of_template(self.folder, template, run_name=run_name):
            for path in folder.glob(".*.tmp"):
                name = name_of(path.name).removesuffix(MANIFEST_ENDING)
                name = path.with_name(name).relative_to(self.folder).as_posix()
                # Another process may be at work in the folder; what cannot be deleted stays.
                with contextlib.suppress(OSError):
                    if matches_template(name, template, run_name=run_name) and _is_left(path):
                        path.unlink()

    def names(self, template: str, run_name: str) -> list[str]:
        return names_of_template(self.folder, template, run_name=run_name)

    def folders(self, template: str, run_name: str) -> list[str]:
        return names_of_template(self.folder, template, run_name=run_name, folders=True)

    def written_by(self, name: str) -> str | None:
        try:
            found = read_manifest(self.folder / name)
        except ValueError:
            return None
        return (found.run_name or None) if found else None

    def takes_link(self, link: str) -> bool:
        path = self.folder / link
        return path.is_symlink() or not path.exists()

    def has(self, name: str) -> bool:
        path = self.folder / name
        return path.is_file() and not path.is_symlink()

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def holds(self, path: str) -> bool:
        return is_inside(path.removeprefix("file://"), self.folder)

    def put(
        self, name: str, contents: dict[str, Any], facts: Manifest, then: Callable[[str], None]
    ) -> None:
        if not self.folder.is_dir():
            log.warning(
                "the folder %s was removed while the run goes on, and its checkpoints with it; it "
                "is made again",
                self.folder,
            )
        write_checkpoint(self.folder / name, contents, facts)
        then(self.path(name))

    def point(self, link: str, name: str | None) -> None:
        if name is not None:
            link_latest(self.folder / name, self.folder / link)
        elif (self.folder / link).is_symlink():
            (self.folder / link).unlink(missing_ok=True)

    def target(self, link: str) -> str | None:
        path = self.folder / link
        if not path.is_symlink():
            return None
        # Where it says, and not where that leads in turn.
        whole = os.path.normpath(path.parent / path.readlink())
        if not Path(whole).is_relative_to(self.folder):
            return None
        return Path(whole).relative_to(self.folder).as_posix()

    def remove(self, name: str) -> None:
        (self.folder / manifest_name(name)).unlink(missing_ok=True)
        (self.folder / name).unlink(missing_ok=True)


class RemoteFolder(Place):
    """A prefix of an object store. Files are made in a temporary folder of this machine first.

    Args:
        uri: The URI of the prefix, such as ``s3://bucket/run/checkpoints``.
        store: The store; by default the one that the URI names.

    Example:
        >>> from composer.utils.object_store import LocalObjectStore
        >>> folder = tempfile.mkdtemp()
        >>> place = RemoteFolder(f"file://{folder}", LocalObjectStore())
        >>> place.put("a.pt", {"state": {}}, Manifest("", 0, {}, "", 1), lambda path: None)
        >>> place.names("{run_name}.pt", "a")
        ['a.pt']
        >>> place.close()
    """

    def __init__(self, uri: str, store: ObjectStore | None = None) -> None:
        self.uri = uri.rstrip("/")
        if store is None:
            store = maybe_create_object_store_from_uri(uri)
        assert store is not None
        self.store = store
        prefix = parse_uri(uri)[2].strip("/")
        self._prefix = prefix + "/" if prefix else ""
        self._pointed: dict[str, str | None] = {}
        self._can_delete = True  # until the store says otherwise
        self._said = False

    def _object(self, name: str) -> str:
        return self._prefix + name

    def prepare(self, templates: Iterable[str], run_name: str) -> None:
        # An upload that did not come to its end leaves nothing under its name.
        del templates, run_name
        probe = self._object(".composer-write-test")
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "probe")
                file.write_text("a probe of a training run, which may be deleted", encoding="utf-8")
                self.store.upload_object(probe, file)
            self._delete(probe)
        except Exception as error:
            raise OSError(
                f"checkpoints cannot be saved in save_folder={self.uri!r} ({error}); check the "
                f"address and the credentials"
            ) from error

    def names(self, template: str, run_name: str) -> list[str]:
        fixed = self._object(fixed_folder(template, run_name=run_name))
        found = (name.removeprefix(self._prefix) for name in self.store.list_objects(fixed))
        return sorted(n for n in found if matches_template(n, template, run_name=run_name))

    def folders(self, template: str, run_name: str) -> list[str]:
        del template, run_name
        return []

    def written_by(self, name: str) -> str | None:
        try:
            return stored_manifest(self.store, self._object(name)).run_name or None
        except (ValueError, FileNotFoundError):
            return None

    def takes_link(self, link: str) -> bool:
        del link
        return True

    def path(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def holds(self, path: str) -> bool:
        return path.startswith(self.uri + "/")

    def put(
        self, name: str, contents: dict[str, Any], facts: Manifest, then: Callable[[str], None]
    ) -> None:
        with tempfile.TemporaryDirectory(prefix="composer-upload-") as folder:
            local = Path(folder, name)
            write_checkpoint(local, contents, facts)
            # As for a file: no manifest stands beside an object that it does not describe.
            if self.has(manifest_name(name)):
                self._delete(self._object(manifest_name(name)))
            self._upload(name, local)
            self._upload(manifest_name(name), Path(manifest_name(str(local))))
            then(str(local))

    def has(self, name: str) -> bool:
        try:
            self.store.get_object_size(self._object(name))
        except FileNotFoundError:
            return False
        return True

    def _upload(self, name: str, file: Path) -> None:
        self.store.upload_object(self._object(name), file)
        here, there = file.stat().st_size, self.store.get_object_size(self._object(name))
        if here != there:
            raise OSError(
                f"{self.path(name)} has {there:,} bytes after {here:,} were uploaded; the "
                f"checkpoint does not count as saved"
            )

    def point(self, link: str, name: str | None) -> None:
        if self._pointed.get(link, "") == name:
            return
        pointer = link + POINTER_ENDING
        if name is None:
            self._delete(self._object(pointer))
        else:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "pointer" + POINTER_ENDING)
                create_symlink_file(self._object(name), file)
                self.store.upload_object(self._object(pointer), file)
        self._pointed[link] = name

    def target(self, link: str) -> str | None:
        pointer = self._object(link + POINTER_ENDING)
        # Asked for first, since most places have none, and a warning would be said of it.
        try:
            self.store.get_object_size(pointer)
        except FileNotFoundError:
            return None
        found = pointed_at(self.store, pointer)
        if found is None or not found.startswith(self._prefix):
            return None
        return found.removeprefix(self._prefix)

    def remove(self, name: str) -> None:
        self._delete(self._object(manifest_name(name)))
        self._delete(self._object(name))
        if not self._can_delete and not self._said:
            self._said = True
            log.warning(
                "the store of %s cannot delete: %s and all later checkpoints stay there, whatever "
                "the settings say about how many to keep (said once)",
                self.uri,
                name,
            )

    def _delete(self, name: str) -> None:
        """Delete an object, unless the store cannot, as the contract of stores allows."""
        if self._can_delete:
            try:
                self.store.delete_object(name)
            except NotImplementedError:
                self._can_delete = False

    def close(self) -> None:
        self.store.close()


def _is_left(path: Path) -> bool:
    """Whether a temporary file or link is surely none of a save that goes on."""
    if writer_is_gone(path.name):
        return True
    limit = _SECONDS_A_LINK_MAY_TAKE if path.is_symlink() else _SECONDS_A_SAVE_MAY_TAKE
    return time.time() - path.lstat().st_mtime > limit


def open_place(folder: str) -> Place:
    """Open the place that a save folder names.

    Args:
        folder: A path, or the URI of a folder.

    Returns:
        The place.

    Raises:
        ValueError: If no store for the scheme of a URI is installed.

    Example:
        >>> type(open_place("/data/run")).__name__, type(open_place("file:///data")).__name__
        ('LocalFolder', 'LocalFolder')
    """
    scheme, _, path = parse_uri(folder)
    if scheme in ("", "file"):
        return LocalFolder(Path(path))
    return RemoteFolder(folder)
