"""A folder as an object store, for ``file://`` and for tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, Self

from composer.utils.object_store.base import ObjectStore, ProgressCallback
from composer.utils.paths import atomic_write, complete_or_absent

__all__ = ["LocalObjectStore"]

_CHUNK_SIZE = 4 << 20


class LocalObjectStore(ObjectStore):
    """Keeps objects as files under a folder.

    Args:
        root: The folder. It is created when the first object is stored.

    Example:
        >>> LocalObjectStore("/data").get_uri("run/ep1.pt")
        'file:///data/run/ep1.pt'
    """

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self.root = str(Path(root).absolute())

    @classmethod
    def from_bucket(cls, bucket: str) -> Self:
        """Open the file system of this machine; URIs of files have no bucket.

        Args:
            bucket: Must be empty.

        Returns:
            The store.

        Raises:
            ValueError: If there is a bucket.

        Example:
            >>> LocalObjectStore.from_bucket("").root
            '/'
        """
        if bucket:
            raise ValueError(f"bucket={bucket!r}: a file URI names no bucket; write file:///path.")
        return cls()

    def _path(self, object_name: str) -> Path:
        # Names are taken apart as text: a link inside the folder may lead anywhere.
        path = Path(os.path.normpath(Path(self.root, object_name.lstrip("/"))))
        if not path.is_relative_to(os.path.normpath(self.root)):
            raise ValueError(f"object_name={object_name!r} leads out of the folder {self.root!r}.")
        return path

    def _existing(self, object_name: str) -> Path:
        path = self._path(object_name)
        if not path.is_file():
            raise FileNotFoundError(f"There is no object {object_name!r} in {self.root!r}.")
        return path

    def get_uri(self, object_name: str) -> str:
        """Return the ``file://`` URI of an object.

        Args:
            object_name: Its name.

        Returns:
            The URI.

        Example:
            >>> LocalObjectStore("/data").get_uri("a")
            'file:///data/a'
        """
        return "file://" + self._path(object_name).as_posix()

    def upload_object(
        self,
        object_name: str,
        filename: str | os.PathLike[str],
        callback: ProgressCallback | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise TypeError(f"LocalObjectStore.upload_object takes no {', '.join(sorted(kwargs))}.")
        if not Path(filename).is_file():
            raise FileNotFoundError(f"filename={str(filename)!r} is no file.")
        target = self._path(object_name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as out, Path(filename).open("rb") as source:
            _copy(source, out, callback)

    def get_object_size(self, object_name: str) -> int:
        return self._existing(object_name).stat().st_size

    def download_object(
        self,
        object_name: str,
        filename: str | os.PathLike[str],
        overwrite: bool = False,
        callback: ProgressCallback | None = None,
    ) -> None:
        target = Path(filename)
        if target.exists() and not overwrite:
            raise FileExistsError(
                f"The file {str(target)!r} exists; allow overwriting to replace it."
            )
        path = self._existing(object_name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            path.open("rb") as source,
            complete_or_absent(target) as temporary,
            temporary.open("xb") as out,
        ):
            _copy(source, out, callback)

    def list_objects(self, prefix: str | None = None) -> list[str]:
        prefix = (prefix or "").lstrip("/")
        # Only the folder part of a prefix can narrow the walk.
        start = Path(self.root, prefix.rpartition("/")[0])
        names = (
            Path(folder, file).relative_to(self.root).as_posix()
            for folder, _, files in os.walk(start)
            for file in files
        )
        return sorted(name for name in names if name.startswith(prefix))

    def delete_object(self, object_name: str) -> None:
        path = self._path(object_name)
        if path.is_dir():
            raise IsADirectoryError(f"object_name={object_name!r} is a folder in {self.root!r}.")
        path.unlink(missing_ok=True)


def _copy(source: IO[bytes], out: IO[bytes], callback: ProgressCallback | None) -> None:
    done, total = 0, os.fstat(source.fileno()).st_size
    if callback is not None:
        callback(0, total)
    while chunk := source.read(_CHUNK_SIZE):
        out.write(chunk)
        done += len(chunk)
        if callback is not None:
            callback(done, total)
