"""A folder on a machine that is reached over SSH."""

from __future__ import annotations

import os
import pathlib
import posixpath
import stat
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from composer.utils.object_store.base import ObjectStoreTransientError
from composer.utils.object_store.errors import needs_extra
from composer.utils.object_store.template import ObjectStat, TemplateObjectStore

__all__ = ["SFTPObjectStore"]

_BLOCK = 32768


class SFTPObjectStore(TemplateObjectStore):
    """Keeps objects as files of a folder on another machine.

    Nothing is connected before the first request. A host whose key is not known is refused.

    Args:
        host: The machine, or ``sftp://user@host:port/folder``.
        port: Its port.
        username: The user to log in as.
        password: The password; by default keys and the agent are asked.
        known_hosts_filename: The file of known host keys; by default the user's own.
        known_hosts_filename_environ: The environment variable that names it.
        key_filename: The file of the private key.
        key_filename_environ: The environment variable that names it.
        missing_host_key_policy: What to do with unknown hosts: the name of a policy of paramiko, or
            one.
        cwd: The folder; a relative one starts where the log-in lands.
        connect_kwargs: More arguments of paramiko's ``SSHClient.connect``.
        timeout: Seconds to wait for an answer that does not go on.
        num_attempts: How often a request is made at most.

    Raises:
        MissingConditionalImportError: If paramiko is not installed.
        ValueError: If the policy is unknown.

    Example:
        >>> SFTPObjectStore("host", cwd="/data").get_uri("ep1.pt")  # doctest: +SKIP
        'sftp://host:22/data/ep1.pt'
        >>> SFTPObjectStore.max_concurrency
        1
    """

    max_concurrency = 1

    def __init__(
        self,
        host: str,
        port: int = 22,
        username: str | None = None,
        password: str | None = None,
        known_hosts_filename: pathlib.Path | str | None = None,
        known_hosts_filename_environ: str = "COMPOSER_SFTP_KNOWN_HOSTS_FILE",
        key_filename: pathlib.Path | str | None = None,
        key_filename_environ: str = "COMPOSER_SFTP_KEY_FILE",
        missing_host_key_policy: Any = "RejectPolicy",
        cwd: str = "",
        connect_kwargs: dict[str, Any] | None = None,
        *,
        timeout: float = 60.0,
        num_attempts: int = 5,
    ) -> None:
        with needs_extra("sftp", "paramiko"):
            import paramiko

        if "://" in host:
            from urllib.parse import unquote, urlsplit

            parts = urlsplit(host)
            host, port = parts.hostname or "", parts.port or port
            username = username or (unquote(parts.username) if parts.username else None)
            password = password or (unquote(parts.password) if parts.password else None)
            cwd = cwd or parts.path
        self.host = host
        self.port = port
        self.cwd = cwd.rstrip("/") if cwd != "/" else cwd
        self.num_attempts = num_attempts
        self.timeout = timeout
        known_hosts = known_hosts_filename or os.environ.get(known_hosts_filename_environ)
        key = key_filename or os.environ.get(key_filename_environ)
        self.known_hosts_filename = None if known_hosts is None else str(known_hosts)
        self.key_filename = None if key is None else str(key)
        policy = missing_host_key_policy
        if isinstance(policy, str):
            policies = ("RejectPolicy", "WarningPolicy", "AutoAddPolicy")
            if policy not in policies:
                raise ValueError(
                    f"missing_host_key_policy={policy!r} must be one of {', '.join(policies)}."
                )
            policy = getattr(paramiko, policy)()
        self._policy = policy
        self._connect_kwargs = {
            "port": port,
            "username": username,
            "password": password,
            "key_filename": self.key_filename,
            **dict.fromkeys(("timeout", "banner_timeout", "auth_timeout"), timeout),
            **(connect_kwargs or {}),
        }
        self._ssh: Any = None
        self._sftp: Any = None
        self._pid = 0
        self._lock = threading.RLock()

    @classmethod
    def from_bucket(cls, bucket: str) -> Self:
        """Open the machine that a URI names; the path of the URI is absolute.

        Args:
            bucket: ``host``, ``host:port`` or ``user@host:port``.

        Returns:
            The store.

        Example:
            >>> SFTPObjectStore.from_bucket("me@host:2222").port  # doctest: +SKIP
            2222
        """
        return cls(f"sftp://{bucket}", cwd="/")

    def get_uri(self, object_name: str) -> str:
        path = posixpath.join(self.cwd, object_name.lstrip("/")).lstrip("/")
        return f"sftp://{self.host}:{self.port}/{path}"

    def _path(self, name: str) -> str:
        return posixpath.join(self.cwd, name)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """Yield the connection to the one thread that uses it now."""
        with self._lock:
            if self._sftp is None or self._pid != os.getpid():
                self._connect()
            try:
                yield self._sftp
            except (FileNotFoundError, PermissionError):
                raise
            except (EOFError, OSError) as error:
                # A connection that broke once stays broken.
                self.close()
                if isinstance(error, EOFError) or str(error) == "Socket is closed":
                    raise ObjectStoreTransientError("the connection was closed") from error
                raise
            except BaseException:
                self.close()
                raise

    def _connect(self) -> None:
        import paramiko

        self._pid = os.getpid()
        client = paramiko.SSHClient()
        if self.known_hosts_filename is None:
            client.load_system_host_keys()
        else:
            client.load_host_keys(self.known_hosts_filename)
        client.set_missing_host_key_policy(self._policy)
        try:
            client.connect(self.host, **self._connect_kwargs)
            sftp = client.open_sftp()
            sftp.get_channel().settimeout(self.timeout)
        except BaseException as error:
            client.close()
            if isinstance(error, paramiko.AuthenticationException | paramiko.BadHostKeyException):
                raise PermissionError(f"the log-in failed: {error}") from error
            if isinstance(error, paramiko.SSHException) and "known_hosts" in str(error):
                raise PermissionError(f"the host is not known: {error}") from error
            raise
        self._ssh, self._sftp = client, sftp

    def _stat(self, name: str) -> ObjectStat:
        with self._client() as sftp:
            found = sftp.stat(self._path(name))
        if stat.S_ISDIR(found.st_mode or 0):
            raise FileNotFoundError("there is no such object; it is a folder")
        return ObjectStat(found.st_size, found.st_mtime)

    def _read(self, name: str, start: int, stop: int) -> bytes:
        with self._client() as sftp, sftp.open(self._path(name), "rb") as file:
            blocks = [(at, min(_BLOCK, stop - at)) for at in range(start, stop, _BLOCK)]
            # All blocks are asked for at once, so that the way there and back counts once.
            return b"".join(file.readv(blocks))

    def _write(
        self, name: str, path: pathlib.Path, report: Callable[[int], None], **kwargs: Any
    ) -> None:
        if kwargs:
            raise TypeError(f"SFTPObjectStore.upload_object takes no {', '.join(kwargs)}.")
        target = self._path(name)
        folder, _, last = target.rpartition("/")
        temporary = posixpath.join(folder, f".{last[:200]}.{uuid.uuid4().hex[:12]}.tmp")
        with self._client() as sftp:
            _make_folders(sftp, folder)
            try:
                sftp.put(str(path), temporary, callback=lambda done, _: report(done))
                sftp.posix_rename(temporary, target)
            except BaseException:
                _remove_quietly(sftp, temporary)
                raise

    def _delete(self, name: str) -> None:
        with self._client() as sftp:
            sftp.remove(self._path(name))

    def _names(self, prefix: str) -> Iterable[str]:
        folder = prefix.rpartition("/")[0]
        with self._client() as sftp:
            yield from _walk(sftp, self._path(folder), f"{folder}/" if folder else "")

    def close(self) -> None:
        with self._lock:
            if self._ssh is not None and self._pid == os.getpid():
                self._ssh.close()
            self._ssh = self._sftp = None


def _make_folders(sftp: Any, folder: str) -> None:
    if folder in ("", "/"):
        return
    try:
        sftp.stat(folder)
    except FileNotFoundError:
        _make_folders(sftp, posixpath.dirname(folder))
        try:
            sftp.mkdir(folder)
        except OSError:
            # Another rank was quicker.
            sftp.stat(folder)


def _remove_quietly(sftp: Any, path: str) -> None:
    try:
        sftp.remove(path)
    except Exception:
        # The error that led here is the one to tell.
        return


def _walk(sftp: Any, folder: str, start: str) -> Iterator[str]:
    try:
        entries = sftp.listdir_attr(folder or ".")
    except FileNotFoundError:
        return
    for entry in entries:
        if stat.S_ISDIR(entry.st_mode or 0):
            yield from _walk(
                sftp, posixpath.join(folder, entry.filename), f"{start}{entry.filename}/"
            )
        elif not (entry.filename.startswith(".") and entry.filename.endswith(".tmp")):
            yield start + entry.filename
