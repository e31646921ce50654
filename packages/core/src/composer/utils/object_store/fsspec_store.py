"""Any file system that fsspec knows, as an object store."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self, final

from composer.utils.imports import MissingConditionalImportError
from composer.utils.object_store.closing import off_request_thread
from composer.utils.object_store.template import ObjectStat, TemplateObjectStore
from composer.utils.paths import parse_uri

__all__ = ["FsspecFileStore", "FsspecObjectStore", "FsspecTemplate"]

# Facts about an object that change with its content, as the file systems spell them.
_VERSIONS = (
    *("ETag", "etag", "generation", "md5Hash", "crc32c", "blob_id", "VersionId"),
    *("mtime", "LastModified", "last_modified", "updated", "created"),
)


class FsspecTemplate(TemplateObjectStore):
    """What all stores over fsspec share; each adds ``_open`` and ``_write``.

    Nothing is opened before the first request.

    Args:
        url: Where the objects are, such as ``ftp://host/folder``.
        num_attempts: How often a request is made at most.

    Raises:
        MissingConditionalImportError: If the client kit is not installed.
        ValueError: If ``url`` has no scheme.

    Example:
        >>> issubclass(FsspecObjectStore, FsspecTemplate)
        True
    """

    #: The extra that brings the client kit, and the package that it must bring.
    extra: ClassVar[str | None] = None
    kit: ClassVar[str | None] = None
    # Whether `find` has the service narrow a listing to names that begin alike.
    _narrows: ClassVar[bool] = False

    def __init__(self, url: str, *, num_attempts: int = 5) -> None:
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
        self.num_attempts = num_attempts
        self._opened: tuple[int, Any] | None = None

    @abstractmethod
    def _open(self) -> Any:
        """Make the file system."""

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
        try:
            info = self.fs.info(self._path(name))
        except PermissionError as error:
            self._explain_refusal(name, error)
            raise
        if info.get("type") == "directory":
            raise FileNotFoundError("there is no such object; it is a folder")
        return ObjectStat(int(info["size"]), tuple(str(info.get(key)) for key in _VERSIONS))

    def _explain_refusal(self, name: str, error: PermissionError) -> None:
        """Raise a better error, for services that have one."""

    def _read(self, name: str, start: int, stop: int) -> bytes:
        piece: bytes = self.fs.cat_file(self._path(name), start=start, end=stop)
        return piece

    def _delete(self, name: str) -> None:
        self.fs.rm_file(self._path(name))

    def _names(self, prefix: str) -> Iterable[str]:
        folder, _, start = prefix.rpartition("/")
        narrow = {"prefix": start} if self._narrows and start else {}
        try:
            found = self.fs.find(self._path(folder).rstrip("/"), **narrow)
        except FileNotFoundError:
            found = []
        # File systems of one machine put a slash in front.
        root = self.root.strip("/")
        names = (path.lstrip("/").removeprefix(root).lstrip("/") for path in found)
        listed = [name for name in names if name and not name.endswith("/")]
        if not listed:
            self._check_bucket()
        return listed

    def _check_bucket(self) -> None:
        """Raise if the bucket is missing, where its listing looks like that of an empty one."""

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            off_request_thread(lambda: self._close_client(opened[1]))

    def _close_client(self, fs: Any) -> None:
        """Give back what a file system holds that does not give it back by itself."""


class FsspecFileStore(FsspecTemplate):
    """A store over fsspec that hands whole files to its file system.

    Example:
        >>> issubclass(FsspecObjectStore, FsspecFileStore)
        True
    """

    # What the file system's `put_file` takes besides.
    _put_options: ClassVar[Mapping[str, Any]] = {}

    def _write(
        self, name: str, path: pathlib.Path, report: Callable[[int], None], **kwargs: Any
    ) -> None:
        if kwargs:
            raise TypeError(f"{type(self).__name__}.upload_object takes no {', '.join(kwargs)}.")
        self.fs.put_file(
            str(path), self._path(name), callback=_told_to(report), **self._put_options
        )


@final
class FsspecObjectStore(FsspecFileStore):
    """Keeps objects in a file system of fsspec, for services that have no store of their own.

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

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        num_attempts: int = 5,
    ) -> None:
        super().__init__(url, num_attempts=num_attempts)
        self.storage_options = dict(storage_options or {})

    @classmethod
    def from_bucket(cls, bucket: str) -> Self:
        raise ValueError(
            "The scheme fsspec names no service; write the service's own scheme, or construct "
            'FsspecObjectStore("ftp://host/folder").'
        )

    def _open(self) -> Any:
        import fsspec

        options = {"use_listings_cache": False, **self.storage_options}
        return fsspec.filesystem(self.scheme, skip_instance_cache=True, **options)


def _told_to(report: Callable[[int], None]) -> Any:
    from fsspec.callbacks import Callback

    class Told(Callback):  # type: ignore[misc, unused-ignore]
        def call(self, hook_name: Any = None, **kwargs: Any) -> None:
            report(self.value)

    return Told()
