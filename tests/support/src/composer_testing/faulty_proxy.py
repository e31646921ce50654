"""A proxy on loopback that breaks chosen requests on their way to a real server."""

from __future__ import annotations

import http.client
import http.server
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

__all__ = ["Fault", "FaultyProxy"]

KINDS = ("status", "reset", "lost", "cut", "slow", "silent")


@dataclass
class Fault:
    """What happens to requests that match.

    Args:
        kind: ``status`` answers with ``status``; ``reset`` drops the connection before the request
            is passed on, ``lost`` after it was carried out; ``cut`` sends half of the answer;
            ``slow`` answers after ``seconds``; ``silent`` never answers.
        method: Only requests with this method.
        contains: Only requests whose path and query contain this.
        times: How many requests to break; None for all.
        after: How many matching requests to let through first.
        status: The status that is answered.
        seconds: How long an answer takes.

    Example:
        >>> Fault("status", method="GET", times=2).status
        500
    """

    kind: str
    method: str | None = None
    contains: str = ""
    times: int | None = 1
    after: int = 0
    status: int = 500
    seconds: float = 0.0

    def takes(self, method: str, path: str) -> bool:
        """Say whether this fault befalls a request, and count it.

        Args:
            method: The method.
            path: The path and query.

        Returns:
            True if it does.

        Example:
            >>> fault = Fault("reset", contains="a", after=1)
            >>> [fault.takes("GET", path) for path in ("/b", "/a", "/a", "/a")]
            [False, False, True, False]
        """
        if self.method not in (None, method) or self.contains not in path or self.times == 0:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class FaultyProxy:
    """Stands before an HTTP server.

    Args:
        target: The address of the server.

    Example:
        >>> with FaultyProxy("http://127.0.0.1:1") as proxy:
        ...     proxy.break_requests("status", status=503)
        ...     connection = http.client.HTTPConnection(*proxy.address)
        ...     connection.request("GET", "/a")
        ...     answer = connection.getresponse()
        ...     connection.close()
        >>> answer.status, proxy.requests
        (503, [('GET', '/a')])
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return "127.0.0.1", self._server.server_port

    @property
    def url(self) -> str:
        """The address to connect to."""
        return "http://{}:{}".format(*self.address)

    def break_requests(self, kind: str, **options: Any) -> None:
        """Break requests from now on.

        Args:
            kind: What happens to them; see ``Fault``.
            **options: Which ones, and how often; see ``Fault``.

        Raises:
            ValueError: If there is no such kind.

        Example:
            >>> proxy = FaultyProxy("http://127.0.0.1:1")
            >>> proxy.break_requests("cut", method="GET")
            >>> len(proxy.faults)
            1
        """
        if kind not in KINDS:
            raise ValueError(f"kind={kind!r} must be one of {', '.join(KINDS)}")
        self.faults.append(Fault(kind, **options))

    def heal(self) -> None:
        """Break nothing more and forget what was asked.

        Example:
            >>> FaultyProxy("http://127.0.0.1:1").heal()
        """
        with self._lock:
            self.faults.clear()
            self.requests.clear()

    def __enter__(self) -> Self:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _note(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.requests.append((method, path))
            return next((each for each in self.faults if each.takes(method, path)), None)

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fault = proxy._note(self.command, self.path)
                kind = None if fault is None else fault.kind
                if fault is not None and kind == "status":
                    self.reply(fault.status, {}, b"")
                elif fault is not None and kind == "silent":
                    proxy._closing.wait(600)
                    self.close_connection = True
                elif kind == "reset":
                    self.reset()
                else:
                    if fault is not None and kind == "slow":
                        proxy._closing.wait(fault.seconds)
                    status, headers, content = self.forward(body)
                    if kind == "lost":
                        self.reset()
                    else:
                        self.reply(status, headers, content, cut=kind == "cut")

            def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
                connection = http.client.HTTPConnection(*proxy._target, timeout=60)
                try:
                    headers = {
                        name: value
                        for name, value in self.headers.items()
                        if name.lower() not in ("connection", "expect")
                    }
                    connection.request(self.command, self.path, body, headers)
                    answer = connection.getresponse()
                    content = answer.read()
                    return answer.status, dict(answer.getheaders()), content
                finally:
                    connection.close()

            def reply(
                self, status: int, headers: dict[str, str], content: bytes, cut: bool = False
            ) -> None:
                self.send_response_only(status)
                length = str(len(content))
                for name, value in headers.items():
                    if name.lower() == "content-length" and self.command == "HEAD":
                        length = value
                    elif name.lower() not in ("content-length", "connection", "transfer-encoding"):
                        self.send_header(name, value)
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content[: len(content) // 2] if cut else content)
                if cut:
                    self.wfile.flush()
                    self.close_connection = True

            def reset(self) -> None:
                # A close that lingers for no time is a reset and no orderly end.
                self.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                self.connection.close()
                self.close_connection = True

            def finish(self) -> None:
                try:
                    super().finish()
                except (OSError, ValueError):
                    # The connection was reset above, or by the client.
                    return

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    return

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        return Handler
