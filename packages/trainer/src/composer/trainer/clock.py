"""The wall clock of training: runs during batches, stands still during evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

__all__ = ["BatchClock"]


class BatchClock:
    """Measures the time between batches.

    Example:
        >>> clock = BatchClock()
        >>> clock.lap() >= 0.0
        True
    """

    def __init__(self) -> None:
        self._last = perf_counter()

    def restart(self) -> None:
        """Forget the time since the last lap.

        Example:
            >>> BatchClock().restart()
        """
        self._last = perf_counter()

    def lap(self) -> float:
        """Return the seconds since the last lap and start a new one.

        Returns:
            The seconds.

        Example:
            >>> BatchClock().lap() < 60.0
            True
        """
        now = perf_counter()
        seconds = now - self._last
        self._last = now
        return seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context whose time is not counted.

        Yields:
            Nothing.

        Example:
            >>> clock = BatchClock()
            >>> with clock.paused():
            ...     pass
        """
        before = perf_counter()
        try:
            yield
        finally:
            self._last += perf_counter() - before
