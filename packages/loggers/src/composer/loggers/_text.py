"""What the destinations that write text share: streams, names, numbers and durations."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from composer.core.logger import format_log_data_value
from composer.utils import dist
from composer.utils.suggestions import did_you_mean

__all__ = [
    "SafeStream",
    "check_stream",
    "format_duration",
    "format_hyperparameters",
    "format_number",
    "format_value",
    "is_writer",
    "resolve_stream",
    "shorten_metric_name",
    "to_text",
]

log = logging.getLogger(__name__)

# Deeper mappings, such as one that holds itself, are told on one line.
_MAX_INDENT = 16


def check_stream(stream: str | TextIO) -> str | TextIO:
    """Check what a user gave as a stream.

    Args:
        stream: ``stdout``, ``stderr`` or an object with a ``write`` method.

    Returns:
        The same, names in lower case.

    Raises:
        ValueError: If it is another string.
        TypeError: If it cannot be written to.

    Example:
        >>> check_stream("STDERR")
        'stderr'
    """
    if isinstance(stream, str):
        name = stream.lower()
        if name not in ("stdout", "stderr"):
            raise ValueError(
                f"stream={stream!r} is unknown; accepted are 'stdout', 'stderr' and stream objects."
                f"{did_you_mean(name, ('stdout', 'stderr'))}"
            )
        return name
    if not callable(getattr(stream, "write", None)):
        raise TypeError(
            f"stream={stream!r} has no write method; accepted are 'stdout', 'stderr' and stream "
            "objects."
        )
    return stream


def resolve_stream(stream: str | TextIO) -> TextIO | None:
    """Return the stream that a name means now, since programs exchange their standard streams.

    Args:
        stream: A name or a stream.

    Returns:
        The stream; ``None`` for a standard stream that the program does not have.

    Example:
        >>> resolve_stream("stdout") is sys.stdout
        True
    """
    if isinstance(stream, str):
        found: TextIO | None = getattr(sys, stream)
        return found
    return stream


class SafeStream:
    """A stream whose failures do not reach the run.

    Characters that the stream cannot encode become question marks. A stream that fails (it was
    closed, its reader is gone, its disk is full) is not written to again; a warning says so, once.

    Args:
        owner: Who writes, for the warning.

    Example:
        >>> safe = SafeStream("ConsoleLogger")
        >>> safe.stream = sys.stdout
        >>> safe.write_lines("hello")
        hello
    """

    #: Where it goes; ``None`` swallows everything.
    stream: TextIO | None

    def __init__(self, owner: str) -> None:
        self.stream = None
        self._owner = owner
        self._failed: TextIO | None = None
        self._warned = False

    @property
    def is_silent(self) -> bool:
        """Whether nothing that is written would be seen."""
        return self.stream is self._failed or self.stream is None

    @property
    def encoding(self) -> str | None:
        """The stream's encoding."""
        return getattr(self.stream, "encoding", None)

    def fileno(self) -> int:
        """Return the stream's file number.

        Returns:
            The number.

        Raises:
            OSError: If it has none.

        Example:
            >>> SafeStream("ConsoleLogger").fileno()
            Traceback (most recent call last):
            ...
            OSError: the stream has no file number
        """
        try:
            number: int = self.stream.fileno()  # type: ignore[union-attr]
        except Exception:
            raise OSError("the stream has no file number") from None
        return number

    def isatty(self) -> bool:
        """Tell whether the stream is a terminal.

        Returns:
            False also if it cannot tell.

        Example:
            >>> SafeStream("ConsoleLogger").isatty()
            False
        """
        try:
            return bool(self.stream.isatty())  # type: ignore[union-attr]
        except Exception:
            return False

    def write(self, text: str) -> int:
        """Write text.

        Args:
            text: The text.

        Returns:
            Its length.

        Example:
            >>> SafeStream("ConsoleLogger").write("nobody hears this")
            17
        """
        stream = self.stream
        if stream is not None and stream is not self._failed:
            try:
                try:
                    stream.write(text)
                except UnicodeEncodeError:
                    encoding = getattr(stream, "encoding", None) or "ascii"
                    stream.write(text.encode(encoding, "replace").decode(encoding))
            except Exception as error:
                self._give_up(stream, error)
        return len(text)

    def flush(self) -> None:
        """Have the stream pass on what it holds, if it knows how to.

        Example:
            >>> SafeStream("ConsoleLogger").flush()
        """
        stream = self.stream
        if stream is None or stream is self._failed:
            return
        try:
            flush = getattr(stream, "flush", None)
            if flush is not None:
                flush()
        except Exception as error:
            self._give_up(stream, error)

    def write_lines(self, text: str) -> None:
        """Write whole lines, so that they are seen at once.

        Args:
            text: The lines, without the end of the last one.

        Example:
            >>> SafeStream("ConsoleLogger").write_lines("nobody hears this")
        """
        self.write(text + "\n")
        self.flush()

    def _give_up(self, stream: TextIO, error: Exception) -> None:
        self._failed = stream
        if not self._warned:
            self._warned = True
            log.warning(
                "%s shows nothing more, since its stream failed: %s: %s",
                self._owner,
                type(error).__name__,
                error,
            )

    # A bar has to find out whether it shares its stream with text that is written above it.
    def __eq__(self, other: object) -> bool:
        return self.stream is (other.stream if isinstance(other, SafeStream) else other)

    __hash__ = object.__hash__


def is_writer() -> bool:
    """Tell whether this rank writes to the screen; one of all does.

    Returns:
        True on global rank 0.

    Example:
        >>> is_writer()
        True
    """
    return dist.get_global_rank() == 0


def format_duration(seconds: float) -> str:
    """Format a duration for people.

    Args:
        seconds: Its length.

    Returns:
        ``m:ss``, ``h:mm:ss``, or ``?`` for a length that is not known.

    Example:
        >>> format_duration(75), format_duration(3 * 3600 + 5), format_duration(float("inf"))
        ('1:15', '3:00:05', '?')
    """
    if not 0 <= seconds < float("inf"):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def to_text(value: Any) -> str:
    """Turn a name or a setting into text, whatever it is.

    Args:
        value: The value.

    Returns:
        Its ``str``, or else its type.

    Example:
        >>> to_text(("a", 1))
        "('a', 1)"
    """
    try:
        return str(value)
    except Exception:  # Whatever the value's own methods raise.
        return f"<{type(value).__name__}>"


def format_value(value: Any) -> str:
    """Render a value for people, whatever it is.

    Args:
        value: The value.

    Returns:
        What :func:`~composer.core.logger.format_log_data_value` makes of it, or else its ``str``,
        or else its type.

    Example:
        >>> import numpy as np
        >>> format_value({"a": None}), format_value(np.array(0.5))
        ('{ "a": None, }', '0.5')
    """
    try:
        return format_log_data_value(value)
    except Exception:  # Whatever the value's own methods raise.
        return to_text(value)


def format_number(value: Any) -> str:
    """Format a metric for a line with little room.

    Args:
        value: A number, a tensor with one element, or anything else.

    Returns:
        Four significant digits, or ``nan`` and ``inf`` as they are; other values as
        :func:`format_value` renders them.

    Example:
        >>> format_number(0.00012345), format_number(12), format_number(float("nan"))
        ('0.0001234', '12', 'nan')
    """
    if isinstance(value, (int, str)):
        return format_value(value)
    try:
        return f"{float(value):.4g}"
    except Exception:  # Whatever the value's own methods raise.
        return format_value(value)


def shorten_metric_name(name: str) -> str:
    """Drop the parts of a metric's name that its place on the screen tells.

    Args:
        name: The name, as logged.

    Returns:
        The short name.

    Example:
        >>> shorten_metric_name("loss/train/total"), shorten_metric_name("metrics/eval/Accuracy")
        ('loss', 'Accuracy')
        >>> shorten_metric_name("loss/train/ce")
        'loss/ce'
    """
    parts = name.split("/")
    if parts[0] == "loss":
        return "loss" if parts[-1] == "total" else f"loss/{parts[-1]}"
    return "/".join(parts[2:]) if parts[0] == "metrics" and len(parts) > 2 else name


def format_hyperparameters(hyperparameters: Mapping[str, Any]) -> str:
    """Format hyperparameters, one a line, nested ones indented.

    Args:
        hyperparameters: Name to value.

    Returns:
        The lines, each with its end.

    Example:
        >>> print(format_hyperparameters({"lr": 0.1, "model": {"layers": 2}}), end="")
        lr: 0.1
        model:
          layers: 2
    """
    lines: list[str] = []

    def add(items: Mapping[str, Any], indent: str) -> None:
        for key, value in items.items():
            if isinstance(value, Mapping) and value and len(indent) < _MAX_INDENT:
                lines.append(f"{indent}{key}:\n")
                add(value, indent + "  ")
            else:
                lines.append(f"{indent}{key}: {to_text(value)}\n")

    add(hyperparameters, "")
    return "".join(lines)
