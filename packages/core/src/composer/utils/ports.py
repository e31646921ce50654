"""Find a free network port."""

from __future__ import annotations

import socket

__all__ = ["get_free_tcp_port"]


def get_free_tcp_port() -> int:
    """Ask the system for a TCP port that nobody listens on.

    Returns:
        The port. Another process may take it before the caller does.

    Example:
        >>> 0 < get_free_tcp_port() < 65536
        True
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
