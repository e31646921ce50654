"""What the destinations that write text share: streams, names, numbers and durations."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO

from composer.core.logger import format_log_data_value
from composer.utils import dist
from composer.utils.suggestions import did_you_mean

__all__ = [
    "check_stream",
    "format_duration",
    "format_hyperparameters",
    "format_number",
    "is_writer",
    "resolve_stream",
    "shorten_metric_name",
    "write_lines",
]


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


def resolve_stream(stream: str | TextIO) -> TextIO:
    """Return the stream that a name means now, since programs exchange their standard streams.

    Args:
        stream: A name or a stream.

    Returns:
        The stream.

    Example:
        >>> resolve_stream("stdout") is sys.stdout
        True
    """
    if isinstance(stream, str):
        found: TextIO = getattr(sys, stream)
        return found
    return stream


def write_lines(stream: TextIO, text: str) -> None:
    """Write whole lines, so that they are seen at once.

    Args:
        stream: The stream; it need not know how to flush.
        text: The lines, without the end of the last one.

    Example:
        >>> write_lines(sys.stdout, "hello")
        hello
    """
    stream.write(text + "\n")
    flush = getattr(stream, "flush", None)
    if flush is not None:
        flush()


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


def format_number(value: Any) -> str:
    """Format a metric for a line with little room.

    Args:
        value: A number, or a tensor with one element.

    Returns:
        Four significant digits, or ``nan`` and ``inf`` as they are.

    Example:
        >>> format_number(0.00012345), format_number(12), format_number(float("nan"))
        ('0.0001234', '12', 'nan')
    """
    try:
        number = value if isinstance(value, int) else float(value)
    except (TypeError, ValueError, RuntimeError):
        return format_log_data_value(value)
    return str(number) if isinstance(number, int) else f"{number:.4g}"


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
            if isinstance(value, Mapping) and value:
                lines.append(f"{indent}{key}:\n")
                add(value, indent + "  ")
            else:
                lines.append(f"{indent}{key}: {value}\n")

    add(hyperparameters, "")
    return "".join(lines)
