"""A folder of this machine behind a real SSH server on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["SftpServer", "serve_sftp"]


@dataclass
class SftpServer:
    """Where a server is, and what it accepts.

    Args:
        port: Its port on 127.0.0.1.
        known_hosts: The file with its host key.
        username: The user that may log in.
        password: The user's password.
        connections: The connections made so far.

    Example:
        >>> SftpServer(22, Path("known_hosts")).username
        'me'
    """

    port: int
    known_hosts: Path
    username: str = "me"
    password: str = "secret"
    connections: list[socket.socket] = field(default_factory=list)

    def cut_connections(self) -> None:
        """Break all connections that there are.

        Example:
            >>> SftpServer(22, Path("known_hosts")).cut_connections()
        """
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serve_sftp(root: Path, papers: Path) -> Iterator[SftpServer]:
    """Serve a folder while the block runs.

    Args:
        root: The folder, which clients see as ``/``.
        papers: Another folder, where the file of host keys is written.

    Yields:
        Where the server is.

    Example:
        >>> serve_sftp(Path("a"), Path("b")).__class__.__name__
        '_GeneratorContextManager'
    """
    import paramiko

    key = paramiko.ECDSAKey.generate()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    known_hosts = papers / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
    server = SftpServer(port, known_hosts)
    transports: list[Any] = []

    class Door(paramiko.ServerInterface):
        def check_auth_password(self, username: str, password: str) -> int:
            fits = (username, password) == (server.username, server.password)
            return paramiko.AUTH_SUCCESSFUL if fits else paramiko.AUTH_FAILED

        def check_channel_request(self, kind: str, chanid: int) -> int:
            return paramiko.OPEN_SUCCEEDED

        def get_allowed_auths(self, username: str) -> str:
            return "password"

    class Handle(paramiko.SFTPHandle):
        def stat(self) -> Any:
            return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))

    class Files(paramiko.SFTPServerInterface):
        def place(self, path: str) -> Path:
            return root / self.canonicalize(path).lstrip("/")

        def answer(self, function: Any, *args: Any) -> Any:
            try:
                return function(*args)
            except OSError as error:
                return paramiko.SFTPServer.convert_errno(error.errno or 0)

        def list_folder(self, path: str) -> Any:
            def look() -> Any:
                found = []
                for each in self.place(path).iterdir():
                    attributes = paramiko.SFTPAttributes.from_stat(each.stat())
                    attributes.filename = each.name
                    found.append(attributes)
                return found

            return self.answer(look)

        def stat(self, path: str) -> Any:
            return self.answer(lambda: paramiko.SFTPAttributes.from_stat(self.place(path).stat()))

        lstat = stat

        def open(self, path: str, flags: int, attr: Any) -> Any:
            def begin() -> Any:
                number = os.open(self.place(path), flags, 0o666)
                mode = "rb" if flags & (os.O_WRONLY | os.O_RDWR) == 0 else "wb"
                file = os.fdopen(number, mode)
                handle = Handle(flags)
                handle.readfile = handle.writefile = file
                return handle

            return self.answer(begin)

        def done(self, function: Any, *args: Any) -> int:
            found = self.answer(function, *args)
            return found if isinstance(found, int) else paramiko.SFTP_OK

        def remove(self, path: str) -> int:
            return self.done(self.place(path).unlink)

        def rename(self, oldpath: str, newpath: str) -> int:
            return self.done(os.link, self.place(oldpath), self.place(newpath))

        def posix_rename(self, oldpath: str, newpath: str) -> int:
            return self.done(self.place(oldpath).replace, self.place(newpath))

        def mkdir(self, path: str, attr: Any) -> int:
            return self.done(self.place(path).mkdir)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            server.connections.append(connection)
            transport = paramiko.Transport(connection)
            transports.append(transport)
            transport.add_server_key(key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, Files)
            # A client that breaks off in the greeting is no matter of ours.
            with contextlib.suppress(Exception):
                transport.start_server(server=Door())

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for transport in transports:
            transport.close()
        thread.join(10)
