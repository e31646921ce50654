"""Ending a run in good order when somebody asks from outside: by a signal, or by a time limit.

A request is only noted; the loop asks at its safe points (after a batch and its checkpoint, after
a batch of an evaluation, before the first batch), saves once, and ends the process with a code that
says why. A second signal ends it at once. Handlers are there while ``fit`` runs and no longer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from composer.core.time import Time, TimeUnit

__all__ = [
    "EXIT_CODES",
    "EvaluationInterrupted",
    "Interruption",
    "TrainingInterrupted",
    "parse_wall_clock",
]

log = logging.getLogger(__name__)

#: What asked for the end, to the exit code of the process: 128 and the signal's number, as shells
#: have it, and for the time limit the code that schedulers read as "try again".
EXIT_CODES = {"SIGINT": 130, "SIGUSR1": 138, "SIGTERM": 143, "max_wall_clock": 75}


# Within so many seconds a further signal is the same request once more.
_REPEATS = 5.0


class TrainingInterrupted(SystemExit):
    """Training was asked to end, and did so in good order; uncaught, it ends the process.

    Args:
        reason: A key of ``EXIT_CODES``.
        checkpoint: The checkpoint that was saved, if any.

    Attributes:
        code: The exit code of the process.
        reason: What asked for the end.
        checkpoint: The checkpoint that was saved, if any.

    Example:
        >>> TrainingInterrupted("SIGTERM", None).code
        143
    """

    def __init__(self, reason: str, checkpoint: str | None) -> None:
        super().__init__(EXIT_CODES[reason])
        self.reason = reason
        self.checkpoint = checkpoint


class EvaluationInterrupted(Exception):
    """An evaluation was left because the run is to end."""


def parse_wall_clock(limit: str | Time[Any] | None) -> float | None:
    """Turn a time limit into seconds.

    Args:
        limit: A wall-clock time such as ``"3h50m"``, or ``None``.

    Returns:
        The seconds, or ``None``.

    Raises:
        ValueError: If it is no wall-clock time, or not positive.

    Example:
        >>> parse_wall_clock("1h30m")
        5400.0
    """
    if limit is None:
        return None
    try:
        parsed: Time[Any] = Time.from_input(limit, TimeUnit.SECOND)
    except (TypeError, ValueError) as error:
        raise ValueError(f"max_wall_clock={limit!r}: {error}") from None
    if parsed.unit is not TimeUnit.SECOND or parsed.value <= 0:
        raise ValueError(
            f"max_wall_clock={limit!r} must be a wall-clock time such as '3h50m' or '5400sec'; "
            f"for other units there is max_duration"
        )
    return float(parsed.value)


class Interruption:
    """Notes that the run is to end.

    Args:
        seconds: How long the process may run from now; ``None`` for as long as it likes.
        clock: Gives the time in seconds.

    Attributes:
        pending: Whether ``asked`` may be true; while it is false, nobody has to ask.

    Example:
        >>> interruption = Interruption()
        >>> with interruption.installed():
        ...     interruption.asked
        False
    """

    def __init__(
        self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._deadline = None if seconds is None else clock() + seconds
        self._reason: str | None = None
        self._asked_at = 0.0
        self._process = os.getpid()
        # Asked for at every batch, hence an attribute: a signal sets it.
        self.pending = self._deadline is not None

    @property
    def asked(self) -> bool:
        """Whether this process was asked to end, or its time is up."""
        if self._reason is None and self._deadline is not None and self._clock() >= self._deadline:
            self._reason = "max_wall_clock"
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """What asked; ``None`` on a rank that was not asked itself."""
        return self._reason

    def take_over(self, error: SystemExit) -> bool:
        """Take the end of a run inside this one, in a callback, for a request to this one too.

        Args:
            error: What ended something inside this run.

        Returns:
            Whether it is the end of a run, so that this one may go on to its next safe point.

        Example:
            >>> interruption = Interruption()
            >>> interruption.take_over(TrainingInterrupted("SIGTERM", None)), interruption.reason
            (True, 'SIGTERM')
        """
        if not isinstance(error, TrainingInterrupted):
            return False
        if self._reason is None:
            self._reason, self._asked_at = error.reason, self._clock()
        self.pending = True
        return True

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle signals for a block, and put the former handlers back.

        Only the main thread can handle signals; in another one nothing is changed.

        Yields:
            Nothing.
        """
        before: dict[int, Any] = {}
        self._process = os.getpid()
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
                number = getattr(signal, name, None)  # Windows knows no SIGUSR1
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.getsignal(number)
                    signal.signal(number, self._handler(name, before[number]))
        try:
            yield
        finally:
            # A later call of `fit` is its user's wish to go on; a time limit stays.
            self._reason, self.pending = None, self._deadline is not None
            for number, handler in before.items():
                # A handler that was not installed from Python cannot be put back from here.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handler(self, name: str, before: Any) -> Callable[[int, FrameType | None], None]:
        def note(number: int, frame: FrameType | None) -> None:
            if os.getpid() != self._process:
                # A forked worker: what is sent to all is the main process's to answer, which lets
                # its workers end.
                if number == signal.SIGTERM:
                    self._end_at_once(number)
                return
            if self._reason in EXIT_CODES and self._reason != "max_wall_clock":
                # Schedulers tell the launcher and its ranks, and the launcher tells them again.
                if number == signal.SIGINT or self._clock() - self._asked_at > _REPEATS:
                    self._end_at_once(number)
                return
            self._reason = name
            self._asked_at = self._clock()
            self.pending = True
            # Workers that got the signal too are gone soon, which is no error now: no batch is
            # drawn any more. Without this, their end raises in the middle of whatever runs.
            if callable(signal.getsignal(signal.SIGCHLD)):
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            log.warning(
                "%s: the run ends at the next safe point, after one save; a second signal ends it "
                "at once",
                name,
            )
            # Somebody else may be waiting for the signal too. Python's own handler for SIGINT
            # raises, which would end the run in the middle of something.
            if callable(before) and before is not signal.default_int_handler:
                before(number, frame)

        return note

    @staticmethod
    def _end_at_once(number: int) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
