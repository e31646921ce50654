"""Closing what talks through fsspec, from whatever thread that happens in.

Garbage is collected in any thread, also in the one in which fsspec runs its requests. An engine
that is collected there closes its callbacks there; whoever then waits for a request waits for a
thread that waits for itself.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable

__all__ = ["off_request_thread", "on_request_thread"]

log = logging.getLogger(__name__)


def on_request_thread() -> bool:
    """Say whether this is the thread in which fsspec runs its requests.

    Returns:
        Whether it is; fsspec is not imported for that.

    Example:
        >>> on_request_thread()
        False
    """
    asyn = sys.modules.get("fsspec.asyn")
    if asyn is None:
        return False
    try:
        return asyncio.get_running_loop() is asyn.loop[0]
    except RuntimeError:  # no loop runs here
        return False


def off_request_thread(close: Callable[[], None]) -> None:
    """Close something here, or in a thread of its own where waiting for a request would never end.

    Args:
        close: What closes it. In a thread of its own nobody waits for it, and its errors are
            logged.

    Raises:
        BaseException: What ``close`` raises here.

    Example:
        >>> off_request_thread(lambda: print("closed"))
        closed
    """
    if not on_request_thread():
        close()
        return

    def elsewhere() -> None:
        try:
            close()
        except Exception as error:
            log.warning("closing failed: %s: %s", type(error).__name__, error)

    threading.Thread(target=elsewhere, name="composer-closing", daemon=True).start()
