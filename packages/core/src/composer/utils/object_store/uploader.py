"""Upload files while training goes on, and let no failure go unnoticed."""

from __future__ import annotations

import concurrent.futures
import enum
import os
import pathlib
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from composer.utils.object_store.base import ObjectStore, ObjectStoreTransientError
from composer.utils.object_store.closing import off_request_thread
from composer.utils.object_store.registry import (
    build_remote_backend,
    maybe_create_object_store_from_uri,
)
from composer.utils.paths import is_uri, parse_uri
from composer.utils.retrying import retry

__all__ = ["RemoteFilesExistingCheckStatus", "RemoteUploader"]


class RemoteFilesExistingCheckStatus(enum.Enum):
    """How a wait for remote files ended.

    Example:
        >>> RemoteFilesExistingCheckStatus.EXIST.value
        1
    """

    EXIST = 1
    TIMEOUT = 2
    ERROR = 3


class RemoteUploader:
    """Uploads files in threads of its own.

    A file is staged when it is handed over, as a hard link or a copy in a temporary folder of its
    own, so that it may be deleted or replaced at once, and its folder with it. A failed upload is
    raised by ``check_workers`` and ``wait``, every time they are called from then on.

    Args:
        remote_folder: The URI of a folder; names are relative to it. A name that begins with the
            path of the folder is taken as relative to the bucket.
        backend_kwargs: Arguments of the object store, if the URI does not say all.
        num_concurrent_uploads: How many files to upload at one time.
        num_attempts: How often to try the upload of a file. The store tries each request several
            times by itself.

    Raises:
        ValueError: If ``remote_folder`` is no URI, or a number is out of range.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "a")
        ...     _ = path.write_text("weights")
        ...     uploader = RemoteUploader(f"file://{folder}/remote")
        ...     _ = uploader.upload_file_async("ep1.pt", path, overwrite=False)
        ...     path.unlink()
        ...     uploader.wait_and_close()
        ...     pathlib.Path(folder, "remote/ep1.pt").read_text()
        'weights'
    """

    def __init__(
        self,
        remote_folder: str,
        backend_kwargs: dict[str, Any] | None = None,
        num_concurrent_uploads: int = 2,
        num_attempts: int = 3,
    ) -> None:
        if not is_uri(remote_folder):
            raise ValueError(
                f"remote_folder={remote_folder!r} must be a URI, such as s3://bucket/folder."
            )
        for name, number in (
            ("num_concurrent_uploads", num_concurrent_uploads),
            ("num_attempts", num_attempts),
        ):
            if number < 1:
                raise ValueError(f"{name}={number} must be at least 1.")
        self.remote_folder = remote_folder
        self.remote_backend_name, self.remote_bucket_name, path = parse_uri(remote_folder)
        self.path = path.strip("/")
        self.backend_kwargs = dict(backend_kwargs or {})
        self.num_attempts = num_attempts
        self.pid = os.getpid()
        self.upload_executor = concurrent.futures.ThreadPoolExecutor(
            num_concurrent_uploads, thread_name_prefix="upload"
        )
        self.check_remote_files_exist_executor = concurrent.futures.ThreadPoolExecutor(
            1, thread_name_prefix="check-remote-files"
        )
        self.futures: list[concurrent.futures.Future[Any]] = []
        self._failures: list[BaseException] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._remote_backend: ObjectStore | None = None

    @property
    def remote_backend(self) -> ObjectStore:
        """The store that files go to, opened on first use."""
        with self._lock:
            if self._remote_backend is None:
                self._remote_backend = self._open()
            return self._remote_backend

    @property
    def is_remote_upload_failed(self) -> bool:
        """Whether an upload failed so far."""
        with self._lock:
            return bool(self._failures)

    def _open(self) -> ObjectStore:
        if not self.backend_kwargs:
            store = maybe_create_object_store_from_uri(self.remote_folder)
            assert store is not None
            return store
        arguments = dict(self.backend_kwargs)
        if self.remote_bucket_name and self.remote_backend_name not in ("sftp", "libcloud"):
            arguments.setdefault("bucket", self.remote_bucket_name)
        return build_remote_backend(self.remote_backend_name, arguments)

    def init(self) -> None:
        """Find out now whether files may be stored, and not hours later.

        Raises:
            Exception: Whatever the store raises if they may not.

        Example:
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     RemoteUploader(f"file://{folder}").init()
        """
        from composer.utils.transfer import validate_credentials

        validate_credentials(
            self.remote_backend, self.remote_name(".credentials_validated_successfully")
        )

    def remote_name(self, remote_file_name: str) -> str:
        """Return the name in the bucket under which a file is stored.

        Args:
            remote_file_name: Its name in the remote folder.

        Returns:
            The name with the path of the folder.

        Example:
            >>> uploader = RemoteUploader("file:///data/run1")
            >>> uploader.remote_name("ep1.pt"), uploader.remote_name("data/run1/ep1.pt")
            ('data/run1/ep1.pt', 'data/run1/ep1.pt')
        """
        name = remote_file_name.lstrip("/")
        if not self.path or name.startswith(f"{self.path}/"):
            return name
        return f"{self.path}/{name}"

    def upload_file_async(
        self,
        remote_file_name: str,
        file_path: str | os.PathLike[str],
        overwrite: bool,
        *,
        after: Sequence[concurrent.futures.Future[Any]] = (),
    ) -> concurrent.futures.Future[None]:
        """Stage a file and begin its upload.

        Args:
            remote_file_name: The name to store it under.
            file_path: The file. It may be deleted or replaced, but not changed in place, as soon
                as this returns.
            overwrite: Replace an object of that name.
            after: Uploads, begun before by this uploader, that must have succeeded before this
                one begins: data first, then what points to it.

        Returns:
            The upload. Whether or not anybody asks it, a failure is raised by ``check_workers``.

        Raises:
            FileNotFoundError: If there is no such file.
            RuntimeError: If the uploader is closed.

        Example:
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder, "a")
            ...     _ = path.write_text("weights")
            ...     uploader = RemoteUploader(f"file://{folder}/remote")
            ...     first = uploader.upload_file_async("ep1.pt", path, overwrite=False)
            ...     _ = uploader.upload_file_async("latest", path, overwrite=True, after=[first])
            ...     uploader.wait_and_close()
            ...     sorted(os.listdir(f"{folder}/remote"))
            ['ep1.pt', 'latest']
        """
        if self._closing.is_set():
            raise RuntimeError(f"The uploader to {self.remote_folder!r} is closed.")
        staged = _stage(pathlib.Path(file_path))
        name = self.remote_name(remote_file_name)
        earlier = list(after)
        try:
            future = self.upload_executor.submit(self._upload, name, staged, overwrite, earlier)
        except RuntimeError:  # closed in the meantime
            staged.remove()
            raise
        with self._lock:
            self.futures.append(future)
        return future

    def _upload(
        self,
        name: str,
        staged: _Staged,
        overwrite: bool,
        earlier: list[concurrent.futures.Future[Any]],
    ) -> None:
        try:
            for future in earlier:
                # Begun before this one, so they have a thread or are done: no deadlock.
                if (error := future.exception()) is not None:
                    raise RuntimeError(
                        f"{name!r} was not uploaded, because an upload that it needs failed."
                    ) from error
            store = self.remote_backend

            @retry(ObjectStoreTransientError, self.num_attempts)
            def store_it() -> None:
                if not overwrite and _exists(store, name):
                    raise FileExistsError(
                        f"{store.get_uri(name)} exists; allow overwriting to replace it."
                    )
                store.upload_object(name, staged.path)

            store_it()
        except BaseException as error:
            with self._lock:
                self._failures.append(error)
            raise
        finally:
            staged.remove()

    def check_remote_files_exist_async(
        self,
        remote_checkpoint_file_names: list[str],
        max_wait_time_in_seconds: int = 3600,
        wait_before_next_try_in_seconds: float = 30,
    ) -> concurrent.futures.Future[RemoteFilesExistingCheckStatus]:
        """Begin to wait for files to be there, as those that other ranks upload.

        Args:
            remote_checkpoint_file_names: Their names.
            max_wait_time_in_seconds: How long to wait at most.
            wait_before_next_try_in_seconds: How long to wait between two looks.

        Returns:
            A future with the outcome: ``EXIST``, ``TIMEOUT``, or ``ERROR`` where an upload of this
            rank or the look itself failed, or the uploader was closed.

        Example:
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = pathlib.Path(folder, "a").write_text("")
            ...     uploader = RemoteUploader(f"file://{folder}")
            ...     uploader.check_remote_files_exist_async(["a"]).result()
            <RemoteFilesExistingCheckStatus.EXIST: 1>
        """
        names = [self.remote_name(name) for name in remote_checkpoint_file_names]
        return self.check_remote_files_exist_executor.submit(
            self._wait_for_files, names, max_wait_time_in_seconds, wait_before_next_try_in_seconds
        )

    def _wait_for_files(
        self, names: list[str], longest: float, pause: float
    ) -> RemoteFilesExistingCheckStatus:
        deadline = time.monotonic() + longest
        missing = list(names)
        while True:
            if self.is_remote_upload_failed:
                return RemoteFilesExistingCheckStatus.ERROR
            try:
                missing = [name for name in missing if not _exists(self.remote_backend, name)]
            except ObjectStoreTransientError:
                # The store is away for longer than it tries by itself; the deadline decides.
                pass
            except Exception as error:
                with self._lock:
                    self._failures.append(error)
                return RemoteFilesExistingCheckStatus.ERROR
            if not missing:
                return RemoteFilesExistingCheckStatus.EXIST
            left = deadline - time.monotonic()
            if left <= 0:
                return RemoteFilesExistingCheckStatus.TIMEOUT
            if self._closing.wait(min(pause, left)):
                return RemoteFilesExistingCheckStatus.ERROR

    def check_workers(self) -> None:
        """Raise if an upload failed so far.

        Raises:
            RuntimeError: If one did; the first failure is its cause.

        Example:
            >>> RemoteUploader("file:///data").check_workers()
        """
        with self._lock:
            self.futures = [future for future in self.futures if not future.done()]
            failures = list(self._failures)
        if failures:
            more = f" So did {len(failures) - 1} more." if len(failures) > 1 else ""
            raise RuntimeError(
                f"An upload to {self.remote_folder!r} failed: "
                f"{type(failures[0]).__name__}: {failures[0]}{more}"
            ) from failures[0]

    def wait(self) -> None:
        """Wait for all uploads that were begun.

        Raises:
            RuntimeError: If one failed, now or before.

        Example:
            >>> RemoteUploader("file:///data").wait()
        """
        with self._lock:
            futures = list(self.futures)
        concurrent.futures.wait(futures)
        self.check_workers()

    def wait_and_close(self) -> None:
        """Wait for all uploads and give threads and connections back.

        Where garbage is collected in the thread that the uploads need, nobody waits.

        Raises:
            RuntimeError: If an upload failed, now or before.

        Example:
            >>> RemoteUploader("file:///data").wait_and_close()
        """
        off_request_thread(self._wait_and_close)

    def _wait_and_close(self) -> None:
        try:
            self.wait()
        finally:
            self._closing.set()
            self.upload_executor.shutdown()
            self.check_remote_files_exist_executor.shutdown()
            with self._lock:
                store, self._remote_backend = self._remote_backend, None
            if store is not None:
                store.close()


def _exists(store: ObjectStore, name: str) -> bool:
    try:
        store.get_object_size(name)
    except FileNotFoundError:
        return False
    return True


@dataclass(frozen=True)
class _Staged:
    """A file that is kept for an upload, and the folder that was made for it alone."""

    path: pathlib.Path
    folder: pathlib.Path

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _stage(path: pathlib.Path) -> _Staged:
    """Make a second name of a file, or a copy where a second name cannot be had.

    Never beside the file: its folder may be a temporary one, which ends before the upload does.
    """
    path = path.resolve(strict=True)
    if not path.is_file():
        raise FileNotFoundError(f"file_path={str(path)!r} is no file.")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="composer-upload-"))
    staged = _Staged(folder / path.name, folder)
    try:
        try:
            os.link(path, staged.path)
        except OSError:  # another disk, or one without links
            shutil.copyfile(path, staged.path)
    except BaseException:
        staged.remove()
        raise
    return staged
