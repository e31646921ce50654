"""Write everything that is logged, and what the program prints, to a text file for each rank.

One call of the logger is one line, whose end is a JSON object. Values are turned into text when
lines go to the file, about once a second, and not when they are logged: a step pays for a list
append, and an accelerator is not waited for at every step.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import re
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from composer.core.logger import Logger, LoggerDestination
from composer.core.time import Time, TimeUnit
from composer.loggers._json import to_json, to_json_deep
from composer.loggers._text import format_value, to_text
from composer.utils import dist
from composer.utils.paths import format_name_with_dist

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["FileLogger"]

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_WRITES = 1.0
# Larger tensors are told by their shape.
_MAX_ELEMENTS = 1000
_to_json = functools.partial(to_json, max_elements=_MAX_ELEMENTS)
_BATCH = re.compile(rb"\[[a-z]+\]\[batch=([0-9]+)\]")
# Reported before the clock moves, so that batch 3 is the first of what follows batch 3.
_LOSS = b'"loss/train/'
# How much of a file is compared to tell whether it is the one that a checkpoint speaks of.
_TAIL_BYTES = 4096


class FileLogger(LoggerDestination):
    """Writes a text file for each rank.

    Lines read ``[metric][batch=3]: {"loss/train/total": 0.25}``; the other marks are
    ``[hyperparameter]``, ``[table]``, ``[trace]``, ``[stdout]`` and ``[stderr]``. Numbers have all
    their digits; ``NaN`` and infinities are the strings ``"nan"``, ``"inf"`` and ``"-inf"``.

    A run that goes on from a checkpoint goes on with its file: lines that were written after the
    checkpoint are removed first, so that each batch is there once. Checkpoints hold the length of
    the file for this; where that does not fit (checkpoints hold the length of rank 0's file only)
    the batches of the lines decide.

    A file that cannot be written any longer, for instance since the disk is full, does not end the
    run: a warning tells of it, and no more is written.

    Args:
        filename: The template of the file name, with the fields of
            ``composer.utils.format_name_with_dist``.
        remote_file_name: The template of the name for uploads; by default like ``filename``.
        capture_stdout: Copy what the program prints into the file.
        capture_stderr: The same for its standard error.
        buffer_size: How the file is buffered, as for ``open``: 1 writes whole lines at once, a
            larger number is a size in bytes.
        log_traces: Write which algorithms ran.
        flush_interval: How often the file is brought up to date and offered for upload: a number of
            batches, or a time in batches or epochs.
        overwrite: Replace an existing file. Otherwise a new run refuses one.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> FileLogger(filename="{run_name}/rank{rank}.txt", flush_interval="1ep").flush_interval
        Time(1, TimeUnit.EPOCH)
    """

    filename_format: str
    remote_file_name_format: str
    buffer_size: int
    should_log_traces: bool
    flush_interval: Time[Any]
    overwrite: bool
    file: TextIO | None

    def __init__(
        self,
        filename: str = "{run_name}/logs-rank{rank}.txt",
        remote_file_name: str | None = None,
        *,
        capture_stdout: bool = True,
        capture_stderr: bool = True,
        buffer_size: int = 1,
        log_traces: bool = True,
        flush_interval: int | str | Time[Any] = 100,
        overwrite: bool = False,
    ) -> None:
        if buffer_size < 1:
            raise ValueError(f"buffer_size={buffer_size} must be at least 1.")
        self.flush_interval = Time.from_input(flush_interval, TimeUnit.BATCH)
        if self.flush_interval.value <= 0 or self.flush_interval.unit not in (
            TimeUnit.BATCH,
            TimeUnit.EPOCH,
        ):
            raise ValueError(
                f"flush_interval={flush_interval!r} must be a positive number of batches or "
                "epochs, such as 100, '100ba' or '1ep'."
            )
        self.filename_format = filename
        # Stores take a leading slash for an empty folder.
        default = filename.replace("\\", "/").lstrip("/")
        self.remote_file_name_format = default if remote_file_name is None else remote_file_name
        self.buffer_size = buffer_size
        self.should_log_traces = log_traces
        self.overwrite = overwrite
        self.file = None
        self._capture_names = ["stdout"] * capture_stdout + ["stderr"] * capture_stderr
        self._captures: list[_Capture] = []
        self._run_name: str | None = None
        self._state: State | None = None
        # Reentrant, since a signal handler may print while lines are written.
        self._lock = threading.RLock()
        # Lines as (mark, batch, values), or as text; written by _write_queue.
        self._queue: list[tuple[str, int | None, Any]] = []
        self._next_write = 0.0
        self._is_writing = False
        self._gave_up = False
        self._upload_failed = False
        # Where the file ended at the checkpoint from which the run goes on, and how that looked.
        self._resumed_at: tuple[int, int] | None = None
        self._run_begun = False
        self._batches_to_flush = self._batch_interval()

    def _batch_interval(self) -> int:
        """Batches from flush to flush; a number that is never reached if epochs are counted."""
        interval = self.flush_interval
        return int(interval) if interval.unit is TimeUnit.BATCH else sys.maxsize

    @property
    def filename(self) -> str:
        """The name of this rank's file.

        Raises:
            RuntimeError: If the run has not started.
        """
        return self._fill_in(self.filename_format)

    @property
    def remote_file_name(self) -> str:
        """The name under which the file is uploaded.

        Raises:
            RuntimeError: If the run has not started.
        """
        return self._fill_in(self.remote_file_name_format)

    def _fill_in(self, template: str) -> str:
        if self._run_name is None:
            raise RuntimeError("The name of the file is known once the run has started.")
        return format_name_with_dist(template, self._run_name)

    # ---- what is logged -----------------------------------------------------------------------

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        if self._gave_up:
            return
        self._queue.append(("metric", step, dict(metrics)))
        if time.perf_counter() > self._next_write:
            self._write_queue()

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        if not self._gave_up:
            self._queue.append(("hyperparameter", None, dict(hyperparameters)))
            self._write_queue()

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        if not self._gave_up:
            table = {"name": name, "columns": list(columns), "rows": [list(row) for row in rows]}
            self._queue.append(("table", step, table))
            self._write_queue()

    def log_traces(self, traces: dict[str, Any]) -> None:
        if self.should_log_traces and not self._gave_up:
            state = self._state
            batch = None if state is None else int(state.timestamp.batch)
            self._queue.append(("trace", batch, dict(traces)))
            if time.perf_counter() > self._next_write:
                self._write_queue()

    def write(self, prefix: str, s: str) -> None:
        """Write text, each of its lines after a prefix.

        Args:
            prefix: The prefix.
            s: The text.

        Example:
            >>> FileLogger().write("[note]: ", "hello")
        """
        if self._gave_up:
            return
        for line in s.splitlines():
            self._queue.append(("", None, f"{prefix}{line}\n"))
        self._write_queue()

    # ---- events -------------------------------------------------------------------------------

    def init(self, state: State, logger: Logger) -> None:
        """Learn the run's name and begin to copy the standard streams.

        Args:
            state: The state of the run.
            logger: Not used.

        Raises:
            ValueError: If several ranks would write one file.
        """
        self._state = state
        self._run_name = state.run_name
        if dist.get_world_size() > 1 and "{rank" not in self.filename_format:
            raise ValueError(
                f"filename={self.filename_format!r} gives all {dist.get_world_size()} ranks the "
                "same file; put {rank} into it."
            )
        for name in self._capture_names:
            stream = getattr(sys, name)
            try:
                self._captures.append(_Capture(stream, _LineSink(self.write, f"[{name}]: ")))
            except AttributeError:
                # A program without a terminal may have none, and odd ones cannot be listened to.
                log.warning("what is printed to sys.%s is not captured: it is %r", name, stream)
        self._capture_names = []
        # An existing file is judged after loading, when it is known whether this run goes on.
        if self.overwrite or not Path(self.filename).exists():
            self._open()

    def after_load(self, state: State, logger: Logger) -> None:
        """Open the file, now that it is known whether this run goes on from a checkpoint.

        Args:
            state: The state of the run.
            logger: Not used.

        Raises:
            FileExistsError: If this is a new run and the file exists and may not be replaced.
        """
        self._ensure_open()

    def fit_start(self, state: State, logger: Logger) -> None:
        """Open the file if that was not done yet.

        Args:
            state: The state of the run.
            logger: Not used.

        Raises:
            FileExistsError: If this is a new run and the file exists and may not be replaced.
        """
        self._ensure_open()

    def eval_start(self, state: State, logger: Logger) -> None:
        """Open the file if that was not done yet.

        Args:
            state: The state of the run.
            logger: Not used.

        Raises:
            FileExistsError: If this is a new run and the file exists and may not be replaced.
        """
        self._ensure_open()

    def batch_end(self, state: State, logger: Logger) -> None:
        self._batches_to_flush -= 1
        if self._batches_to_flush <= 0:
            self._batches_to_flush = self._batch_interval()
            self._flush(logger)

    def epoch_end(self, state: State, logger: Logger) -> None:
        interval = self.flush_interval
        if interval.unit is TimeUnit.EPOCH and int(state.timestamp.epoch) % int(interval) == 0:
            self._flush(logger)
        else:
            self._write_queue()

    def eval_end(self, state: State, logger: Logger) -> None:
        self._write_queue()

    def fit_end(self, state: State, logger: Logger) -> None:
        self._flush(logger)

    def close(self, state: State, logger: Logger) -> None:
        for capture in reversed(self._captures):
            capture.release()
        self._captures.clear()
        self._flush(logger)
        file, self.file = self.file, None
        if file is not None:
            with self._surviving():
                file.close()

    # ---- checkpoints --------------------------------------------------------------------------

    def flush(self) -> None:
        """Write every line that was logged, and hand it to the operating system.

        Example:
            >>> FileLogger().flush()
        """
        self._write_queue()
        with self._lock, self._surviving():
            if self.file is not None:
                self.file.flush()

    def state_dict(self) -> dict[str, Any]:
        """Return where the file ends now, after everything that was logged.

        Returns:
            The length of the file in bytes and a checksum of its end; empty while there is no file
            or the run has not begun.

        Example:
            >>> FileLogger().state_dict()
            {}
        """
        if not self._run_begun:
            return {}
        with self._lock:
            self.flush()
            if self.file is None:
                return {}
            try:
                with Path(self.filename).open("rb") as file:
                    offset = file.seek(0, os.SEEK_END)
                    return {"offset": offset, "tail": _checksum(file, offset)}
            except OSError:
                return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remember where the file ended at the checkpoint, for when it is opened.

        Args:
            state: What :meth:`state_dict` returned.

        Example:
            >>> FileLogger().load_state_dict({"offset": 120, "tail": 0})
        """
        if "offset" in state and "tail" in state:
            self._resumed_at = (int(state["offset"]), int(state["tail"]))

    # ---- the file -----------------------------------------------------------------------------

    def _open(self, mode: str = "w") -> None:
        path = Path(self.filename)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open(
            mode, buffering=self.buffer_size, encoding="utf-8", errors="backslashreplace"
        )
        self.file = cast(TextIO, file)
        self._write_queue()

    def _ensure_open(self) -> None:
        self._run_begun = True
        if self.file is not None or self._state is None or self._gave_up:
            return
        path = Path(self.filename)
        batch = int(self._state.timestamp.batch)
        if not path.exists():
            self._open()
        elif batch > 0 or self._resumed_at is not None or self._state.is_continuation:
            with self._surviving():
                # What a finished run wrote at its end, after its last checkpoint, is not redone.
                if not _is_finished(self._state):
                    _cut(path, batch, self._resumed_at)
                self._open("a")
        else:
            raise FileExistsError(
                f"The log file {str(path)!r} exists. Give the run another name, choose another "
                "filename, or set FileLogger(overwrite=True) to replace it."
            )

    def _flush(self, logger: Logger) -> None:
        self.flush()
        if self.file is None or not logger.has_file_upload_destination():
            return
        try:
            logger.upload_file(self.remote_file_name, self.filename, overwrite=True)
        except Exception as error:
            if not self._upload_failed:
                self._upload_failed = True
                log.warning(
                    "the log file %s could not be uploaded (later failures are not told): %s: %s",
                    self.filename,
                    type(error).__name__,
                    error,
                )

    def _write_queue(self) -> None:
        self._next_write = time.perf_counter() + _SECONDS_BETWEEN_WRITES
        with self._lock:
            file = self.file
            # A signal handler, or a value's own method, that prints while lines are written has
            # its lines written by the loop that it interrupts.
            if file is None or self._is_writing:
                return
            self._is_writing = True
            try:
                with self._surviving():
                    while self._queue:
                        # Taken out before it is written, since other threads may go on appending.
                        queue, self._queue = self._queue, []
                        file.write("".join([_format_line(*line) for line in queue]))
            finally:
                self._is_writing = False

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        """Around what touches the file: an error ends the file, and not the run."""
        try:
            yield
        except (OSError, ValueError) as error:
            if self._gave_up:
                return
            # First, since the warning may be captured and come here again.
            self._gave_up = True
            file, self.file = self.file, None
            self._queue.clear()
            log.warning(
                "nothing more is written to the log file %s: %s: %s",
                self.filename,
                type(error).__name__,
                error,
            )
            if file is not None:
                with contextlib.suppress(OSError, ValueError):
                    file.close()


def _format_line(mark: str, batch: int | None, values: Any) -> str:
    if not mark:
        return str(values)
    place = "" if batch is None else f"[batch={batch}]"
    try:
        text = json.dumps(values, allow_nan=False, default=_to_json)
    except Exception:  # Numbers that are not finite, keys of other kinds, circles.
        try:
            text = json.dumps(to_json_deep(values, _MAX_ELEMENTS), allow_nan=False)
        except Exception:
            text = json.dumps({to_text(k): format_value(v) for k, v in values.items()})
    return f"[{mark}]{place}: {text}\n"


def _is_finished(state: State) -> bool:
    total, length = state.max_duration, state.dataloader_len
    inside = int(state.timestamp.batch_in_epoch)
    return (
        total is not None
        and state.timestamp.count(total.unit) >= total.value
        and not state.pending_evaluations
        # The end of an epoch that is still to come is gone through again.
        and not (length is not None and 0 < inside == length.value)
    )


def _checksum(file: BinaryIO, offset: int) -> int:
    """Checksum of what stands right before a place in a file."""
    start = max(offset - _TAIL_BYTES, 0)
    file.seek(start)
    return zlib.crc32(file.read(offset - start))


def _cut(path: Path, batch: int, resumed_at: tuple[int, int] | None) -> None:
    """Remove what an earlier attempt wrote after the checkpoint at which the run goes on."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        if resumed_at is not None:
            offset, tail = resumed_at
            fits = offset <= end and _checksum(file, offset) == tail
        if resumed_at is None or not fits:
            file.seek(0)
            offset = _find_batch(file, batch)
        file.seek(offset)
        surplus = file.read()
        if surplus:
            log.warning(
                "The run goes on at batch %d: %d lines that an earlier attempt wrote after it are "
                "removed from %s.",
                batch,
                surplus.count(b"\n") + (not surplus.endswith(b"\n")),
                path,
            )
        file.truncate(offset)
        # A line that was cut off in the middle gets its end, so that the next one starts afresh.
        file.seek(max(offset - 1, 0))
        if file.read(1) not in (b"", b"\n"):
            file.write(b"\n")


def _find_batch(file: BinaryIO, batch: int) -> int:
    """Where the first line stands that is about the training of a batch or of a later one."""
    offset = 0
    for line in file:
        match = _BATCH.match(line)
        if match is not None:
            found = int(match.group(1))
            if found > batch or (found == batch and _LOSS in line):
                break
        offset += len(line)
    return offset


class _LineSink:
    """Passes on complete lines only: a print comes as several pieces."""

    def __init__(self, write: Callable[[str, str], None], prefix: str) -> None:
        self._write = write
        self._prefix = prefix
        self._begun = ""

    def take(self, text: str) -> None:
        # A redrawn bar starts with a carriage return; its pictures do not belong in a log.
        if text.startswith("\r"):
            return
        *lines, self._begun = (self._begun + text).split("\n")
        if lines:
            self._write(self._prefix, "\n".join(lines))

    def finish(self) -> None:
        if self._begun:
            self._write(self._prefix, self._begun)
            self._begun = ""


class _Capture:
    """Copies what is written to a stream, until released.

    The stream's own ``write`` is replaced, so that those who hold the stream already are heard too.
    Several captures stack; one that is released below another passes text on until the upper one
    is released as well, and then both disappear.
    """

    def __init__(self, stream: TextIO, sink: _LineSink) -> None:
        self._stream = stream
        self._sink = sink
        self._inner = stream.write
        self._active = True
        self._had_own = "write" in getattr(stream, "__dict__", {})
        stream.write = self.write  # type: ignore[method-assign]

    def write(self, text: str) -> int:
        written = self._inner(text)
        if self._active:
            self._sink.take(text)
        return written

    def release(self) -> None:
        if not self._active:
            return
        self._sink.finish()
        self._active = False
        stream = self._stream
        top = getattr(stream.write, "__self__", None)
        while isinstance(top, _Capture) and not top._active:
            if top._had_own:
                stream.write = top._inner  # type: ignore[method-assign]
            else:
                del stream.write
            top = getattr(stream.write, "__self__", None)
