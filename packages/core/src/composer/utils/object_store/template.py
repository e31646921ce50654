"""What every careful store does around its requests: retries, checks, complete or absent.

A store for another service writes four primitives (look at one object, read a piece, write a file,
list names), and a fifth if objects can be deleted, each as one plain request that may fail.
Everything else is here.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import pathlib
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple, TypeVar

from composer.utils.object_store.base import (
    ObjectStore,
    ObjectStoreTransientError,
    ProgressCallback,
)
from composer.utils.object_store.errors import explain
from composer.utils.paths import complete_or_absent
from composer.utils.retrying import retry

__all__ = ["ObjectStat", "TemplateObjectStore"]

T = TypeVar("T")

# How often an object that changes under our hands is begun again.
_ROUNDS = 3


class ObjectStat(NamedTuple):
    """What one look at an object tells.

    Args:
        size: Its number of bytes.
        version: Anything that changes with the content, such as an entity tag; ``None`` where the
            service has nothing of the kind.

    Example:
        >>> ObjectStat(5).version is None
        True
    """

    size: int
    version: object = None


class TemplateObjectStore(ObjectStore):
    """An object store made of four primitives: ``_stat``, ``_read``, ``_write``, ``_names``.

    A primitive makes one request and lets errors out; ``FileNotFoundError``, ``PermissionError``
    and ``ObjectStoreTransientError`` mean what they say, and those of the known client kits are
    translated. Transient ones are tried again. Downloads are read in pieces, several at a time,
    into a file with a temporary name; their size and version are compared before it gets its
    own. Uploads are verified by size.

    Example:
        >>> class Shelf(TemplateObjectStore):
        ...     def __init__(self):
        ...         self.data = {}
        ...     def get_uri(self, object_name):
        ...         return f"shelf://{object_name}"
        ...     def _stat(self, name):
        ...         if name not in self.data:
        ...             raise FileNotFoundError(name)
        ...         return ObjectStat(len(self.data[name]))
        ...     def _read(self, name, start, stop):
        ...         return self.data[name][start:stop]
        ...     def _write(self, name, path, report, **kwargs):
        ...         self.data[name] = path.read_bytes()
        ...     def _names(self, prefix):
        ...         return [name for name in self.data if name.startswith(prefix)]
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "a")
        ...     _ = path.write_text("hello")
        ...     store = Shelf()
        ...     store.upload_object("run/a", path)
        ...     store.download_object("run/a", path, overwrite=True)
        ...     store.list_objects("run/"), store.get_object_size("run/a"), path.read_text()
        (['run/a'], 5, 'hello')
    """

    #: How often a request is made at most.
    num_attempts: int = 5
    #: Seconds to wait after the first failure; the waits double.
    initial_backoff: float = 0.5
    #: Up to this many random seconds are added to each wait.
    max_jitter: float = 0.5
    #: Bytes of one request.
    chunk_size: int = 16 << 20
    #: Requests at one time. The memory that a transfer takes is this many chunks.
    max_concurrency: int = 4

    # Replaced by tests.
    _sleep: Callable[[float], object] = staticmethod(time.sleep)

    @abstractmethod
    def _stat(self, name: str) -> ObjectStat:
        """Look at an object, or raise ``FileNotFoundError``."""

    @abstractmethod
    def _read(self, name: str, start: int, stop: int) -> bytes:
        """Read the bytes from ``start`` up to, not including, ``stop``."""

    @abstractmethod
    def _write(
        self, name: str, path: pathlib.Path, report: Callable[[int], None], **kwargs: Any
    ) -> None:
        """Store a file, such that the object appears complete or not at all.

        ``report`` is told the bytes moved so far.
        """

    @abstractmethod
    def _names(self, prefix: str) -> Iterable[str]:
        """List names, at least all that start with ``prefix``."""

    def _store(
        self, name: str, path: pathlib.Path, report: Callable[[int], None], **kwargs: Any
    ) -> None:
        """Store a file and try again; for services where that takes several requests."""
        self._try("storing", name, lambda: self._write(name, path, report, **kwargs))

    def _delete(self, name: str) -> None:
        """Remove an object, or raise ``FileNotFoundError``; for services where that is possible."""
        raise NotImplementedError(f"{type(self).__name__} cannot delete {name!r}.")

    def delete_object(self, object_name: str) -> None:
        name = _checked(object_name)
        with contextlib.suppress(FileNotFoundError):
            self._try("deleting", name, lambda: self._delete(name))

    def get_object_size(self, object_name: str) -> int:
        name = _checked(object_name)
        return self._try("asking for its size", name, lambda: self._stat(name)).size

    def list_objects(self, prefix: str | None = None) -> list[str]:
        wanted = (prefix or "").lstrip("/")
        # A listing that was cut off is begun again, hence the list inside.
        names = self._try("listing", wanted, lambda: list(self._names(wanted)))
        return sorted(name for name in names if name.startswith(wanted))

    def upload_object(
        self,
        object_name: str,
        filename: str | pathlib.Path,
        callback: ProgressCallback | None = None,
        **kwargs: Any,
    ) -> None:
        name, path = _checked(object_name), pathlib.Path(filename)
        if not path.is_file():
            raise FileNotFoundError(f"filename={str(filename)!r} is no file.")
        size = arrived = 0

        def report(done: int) -> None:
            if callback is not None:
                callback(min(done, size), size)

        for _ in range(_ROUNDS):
            size = path.stat().st_size
            report(0)
            self._store(name, path, report, **kwargs)
            try:
                arrived = self._try("verifying", name, lambda: self._stat(name)).size
            except PermissionError:
                # Credentials that may only write. The service took the whole request.
                arrived = size
            if arrived == size:
                report(size)
                return
            with contextlib.suppress(NotImplementedError, PermissionError):
                self.delete_object(name)
        raise ObjectStoreTransientError(
            f"{self.get_uri(name)}: {arrived} of the {size} bytes of {str(path)!r} arrived, "
            f"{_ROUNDS} times; the object was removed where the store lets us."
        )

    def download_object(
        self,
        object_name: str,
        filename: str | pathlib.Path,
        overwrite: bool = False,
        callback: ProgressCallback | None = None,
    ) -> None:
        name, target = _checked(object_name), pathlib.Path(filename)
        if target.exists() and not overwrite:
            raise FileExistsError(
                f"The file {str(target)!r} exists; allow overwriting to replace it."
            )

        def look() -> ObjectStat:
            return self._try("looking at it", name, lambda: self._stat(name))

        before = look()
        target.parent.mkdir(parents=True, exist_ok=True)
        with complete_or_absent(target) as temporary:
            for _ in range(_ROUNDS):
                with temporary.open("wb") as out:
                    self._fetch(name, before.size, out, callback)
                after = look()
                if after == before and temporary.stat().st_size == before.size:
                    return
                before = after
            raise ObjectStoreTransientError(
                f"{self.get_uri(name)}: it changed while it was read, {_ROUNDS} times."
            )

    def _fetch(
        self, name: str, size: int, out: IO[bytes], callback: ProgressCallback | None
    ) -> None:
        if callback is not None:
            callback(0, size)
        lock = threading.Lock()

        def fetch(start: int) -> int:
            stop = min(start + self.chunk_size, size)

            def read() -> bytes:
                piece = self._read(name, start, stop)
                if len(piece) != stop - start:
                    raise ObjectStoreTransientError(
                        f"{self.get_uri(name)}: {len(piece)} of {stop - start} bytes arrived"
                    )
                return piece

            piece = self._try(f"reading bytes {start} to {stop}", name, read)
            with lock:
                out.seek(start)
                out.write(piece)
            return len(piece)

        done = 0
        for moved in self._in_parallel(fetch, range(0, size, self.chunk_size)):
            done += moved
            if callback is not None:
                callback(done, size)

    def _in_parallel(self, function: Callable[[int], T], starts: Sequence[int]) -> Iterator[T]:
        """Call a function for each start, several at one time; results come in any order."""
        if len(starts) < 2 or self.max_concurrency < 2:
            yield from map(function, starts)
            return
        workers = min(self.max_concurrency, len(starts))
        with concurrent.futures.ThreadPoolExecutor(workers, "transfer") as pool:
            futures = [pool.submit(function, start) for start in starts]
            try:
                for future in concurrent.futures.as_completed(futures):
                    yield future.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _try(self, doing: str, name: str, function: Callable[[], T]) -> T:
        """Call a function again while its errors are transient, and name the object in errors."""
        started, uri = time.monotonic(), self.get_uri(name)

        @retry(
            ObjectStoreTransientError,
            self.num_attempts,
            self.initial_backoff,
            self.max_jitter,
            sleep=self._sleep,
        )
        def attempt() -> T:
            try:
                return function()
            except Exception as error:
                explained = explain(error, uri)
                if explained is error:
                    raise
                raise explained from error

        try:
            return attempt()
        except ObjectStoreTransientError as error:
            raise ObjectStoreTransientError(
                f"{uri}: {doing} failed {self.num_attempts} times within "
                f"{time.monotonic() - started:.1f} s and was given up; the last time: {error}"
            ) from error


def _checked(object_name: str) -> str:
    name = object_name.lstrip("/")
    if not name or name.endswith("/"):
        raise ValueError(f"object_name={object_name!r} is the name of no object.")
    if ".." in name.split("/"):
        raise ValueError(f"object_name={object_name!r} leads out of the folder.")
    return name
