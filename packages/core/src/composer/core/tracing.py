"""How a profiler watches the engine without the engine knowing any profiler."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from composer.core.event import Event

__all__ = ["EventTracer"]


class EventTracer(Protocol):
    """What the engine tells while it runs events.

    Example:
        >>> from contextlib import nullcontext
        >>> class Silent:
        ...     def event(self, event): pass
        ...     def span(self, name, event): return nullcontext()
        >>> tracer: EventTracer = Silent()
    """

    def event(self, event: Event) -> None:
        """Note that an event fires.

        Args:
            event: The event.
        """

    def span(self, name: str, event: Event) -> AbstractContextManager[Any]:
        """Return the context in which one algorithm or callback runs.

        Args:
            name: Its class name.
            event: The event.

        Returns:
            A context manager.
        """
