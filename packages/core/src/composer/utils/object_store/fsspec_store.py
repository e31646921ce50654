"""Any file system that fsspec knows, as an object store."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self

from composer.utils.imports import MissingConditionalImportError
from composer.utils.object_store.template import ObjectStat, TemplateObjectStore
from composer.utils.paths import parse_uri

__all__ = ["FsspecObjectStore"]

# Facts about an object that change with its content, as the file systems spell them.
_VERSIONS = (
    *("ETag", "etag", "generation", "md5Hash", "crc32c", "blob_id", "VersionId"),
    *("mtime", "LastModified", "last_modified", "updated", "created"),
)


class FsspecObjectStore(TemplateObjectStore):
    """Keeps objects in a file system of fsspec.

    The stores for the common services derive from it; for another service give its URL and what
    its file system takes. Nothing is opened before the first request.

    Args:
        url: Where the objects are, such as ``ftp://host/folder``.
        storage_options: Arguments of the file system of that scheme.
        num_attempts: How often a request is made at most.

    Raises:
        ValueError: If ``url`` has no scheme.

    Example:
        >>> FsspecObjectStore("memory://shelf/run1").get_uri("ep1.pt")
        'memory://shelf/run1/ep1.pt'
    """

    #: The extra that brings the client kit, and the package that it must bring.
    extra: ClassVar[str | None] = None
    kit: ClassVar[str | None] = None
    # Whether `find` has the service narrow a listing to names that begin alike.
    _narrows: ClassVar[bool] = False

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        num_attempts: int = 5,
    ) -> None:
        scheme, bucket, path = parse_uri(url)
        if not scheme:
            raise ValueError(f"url={url!r} must start with a scheme, as in ftp://host/folder.")
        if self.kit is not None and importlib.util.find_spec(self.kit) is None:
            # Now, and not when the first checkpoint is to be stored.
            raise MissingConditionalImportError(
                self.extra or self.kit, self.kit, distribution="composer-core"
            )
        self.scheme = scheme
        self.root = "/".join(filter(None, (bucket, path.rstrip("/"))))
        if scheme == "file":
            self.root = path.rstrip("/")
        self.storage_options = dict(storage_options or {})
        self.num_attempts = num_attempts
        self._opened: tuple[int, Any] | None = None

    @classmethod
    def from_bucket(cls, bucket: str) -> Self:
        if cls is FsspecObjectStore:
            raise ValueError(
                "The scheme fsspec names no service; write the service's own scheme, or construct "
                'FsspecObjectStore("ftp://host/folder").'
            )
        return cls(bucket=bucket)  # type: ignore[call-arg]

    def _open(self) -> Any:
        """Make the file system."""
        import fsspec

        options = {"use_listings_cache": False, **self.storage_options}
        return fsspec.filesystem(self.scheme, skip_instance_cache=True, **options)

    @property
    def fs(self) -> Any:
        """The file system, opened on first use and anew in a process that was forked."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), self._open())
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if self.root else name

    def get_uri(self, object_name: str) -> str:
        return f"{self.scheme}://{self._path(object_name.lstrip('/'))}"

    def _stat(self, name: str) -> ObjectStat:
        info = self.fs.info(self._path(name))
        if info.get("type") == "directory":
            raise FileNotFoundError("there is no such object; it is a folder")
        return ObjectStat(int(info["size"]), tuple(str(info.get(key)) for key in _VERSIONS))

    def _read(self, name: str, start: int, stop: int) -> bytes:
        piece: bytes = self.fs.cat_file(self._path(name), start=start, end=stop)
        return piece

    def _write(
        self, name: str, path: pathlib.Path, report: Callable[[int], None], **kwargs: Any
    ) -> None:
        if kwargs:
            raise TypeError(f"{type(self).__name__}.upload_object takes no {', '.join(kwargs)}.")
        self._put(name, path, report)

    def _put(
        self, name: str, path: pathlib.Path, report: Callable[[int], None], **options: Any
    ) -> None:
        self.fs.put_file(str(path), self._path(name), callback=_told_to(report), **options)

    def _delete(self, name: str) -> None:
        self.fs.rm_file(self._path(name))

    def _names(self, prefix: str) -> Iterable[str]:
        folder, _, start = prefix.rpartition("/")
        narrow = {"prefix": start} if self._narrows and start else {}
        try:
            found = self.fs.find(self._path(folder).rstrip("/"), **narrow)
        except FileNotFoundError:
            return []
        # File systems of one machine put a slash in front.
        root = self.root.strip("/")
        names = (path.lstrip("/").removeprefix(root).lstrip("/") for path in found)
        return [name for name in names if name and not name.endswith("/")]

    def close(self) -> None:
        self._opened = None


def _told_to(report: Callable[[int], None]) -> Any:
    from fsspec.callbacks import Callback

    class Told(Callback):  # type: ignore[misc, unused-ignore]
        def call(self, hook_name: Any = None, **kwargs: Any) -> None:
            report(self.value)

    return Told()
