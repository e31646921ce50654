"""Opening and closing of callbacks, and what happens at the end of the process.

Nothing here happens at import: exit hooks exist only while an engine is open.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from composer.core.callback import Callback
    from composer.core.engine import Engine
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["claim", "close_at_exit", "close_callbacks", "release"]

log = logging.getLogger(__name__)

_OWNER = "_composer_owner"


class _Owner:
    """A weak reference that is forgotten when its callback is copied or pickled."""

    def __init__(self, engine: Engine | None = None) -> None:
        self._reference = None if engine is None else weakref.ref(engine)

    def __call__(self) -> Engine | None:
        return None if self._reference is None else self._reference()

    def __reduce__(self) -> Any:
        return _Owner, ()


def claim(callbacks: Iterable[Callback], owner: Engine) -> None:
    """Bind callbacks to an engine until it is closed.

    Args:
        callbacks: The callbacks.
        owner: The engine.

    Raises:
        RuntimeError: If a callback belongs to another engine that is still open.

    Example:
        >>> claim([], None)
    """
    for callback in callbacks:
        current = callback.__dict__.get(_OWNER, _Owner())()
        if current is not None and current is not owner:
            raise RuntimeError(
                f"the {type(callback).__name__} {callback!r} is in use by another trainer; close "
                f"that one first with `trainer.close()`, or make a new callback"
            )
    for callback in callbacks:
        callback.__dict__[_OWNER] = _Owner(owner)


def release(callbacks: Iterable[Callback]) -> None:
    """Set callbacks free for another engine.

    Args:
        callbacks: The callbacks.

    Example:
        >>> release([])
    """
    for callback in callbacks:
        callback.__dict__.pop(_OWNER, None)


def close_callbacks(callbacks: Iterable[Callback], state: State, logger: Logger) -> None:
    """Close every callback, then let those that closed well finish; errors are logged, not raised.

    Args:
        callbacks: The callbacks.
        state: The state of the run.
        logger: The logger.

    Example:
        >>> close_callbacks([], None, None)
    """
    closed = []
    for callback in callbacks:
        try:
            callback.close(state, logger)
        except Exception:
            log.exception("closing %s failed", type(callback).__name__)
        else:
            closed.append(callback)
    for callback in closed:
        try:
            callback.post_close()
        except Exception:
            log.exception("finishing %s after closing failed", type(callback).__name__)


def close_at_exit(engine: Engine) -> Any:
    """Close an engine when the process ends, unless it was closed or collected before.

    Args:
        engine: The engine; only a weak reference is kept.

    Returns:
        A function that takes the promise back.

    Example:
        >>> class Closable:
        ...     def close(self): pass
        >>> cancel = close_at_exit(Closable())
        >>> cancel()
    """
    reference = weakref.ref(engine)

    def hook() -> None:
        alive = reference()
        if alive is not None:
            alive.close()

    atexit.register(hook)
    return lambda: atexit.unregister(hook)
