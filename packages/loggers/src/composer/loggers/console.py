"""Print metrics as lines, at an interval that the user chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from composer.core.logger import Logger, LoggerDestination
from composer.core.time import Time, TimeUnit
from composer.loggers._text import (
    SafeStream,
    check_stream,
    format_hyperparameters,
    format_value,
    is_writer,
    resolve_stream,
    to_text,
)

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["ConsoleLogger"]

_NUM_EVAL_PARTS = 10


class ConsoleLogger(LoggerDestination):
    """Prints the latest value of each metric, on one rank of all.

    Lines come after the first batch, at the interval, and at the end; during an evaluation its
    progress comes at each tenth, and its metrics at its end. A stream that fails does not end the
    run: nothing more is printed to it.

    Args:
        log_interval: How often to print: a time string, a time, or a number of epochs. Any unit
            will do.
        stream: ``stdout``, ``stderr`` or a stream. A name means the stream that the program has at
            the moment of printing.
        log_traces: Print which algorithms ran.

    Raises:
        ValueError: If the interval is not positive, or the stream unknown.

    Example:
        >>> ConsoleLogger(log_interval="10ba").log_interval
        Time(10, TimeUnit.BATCH)
    """

    log_interval: Time[Any]
    should_log_traces: bool

    def __init__(
        self,
        log_interval: int | str | Time[Any] = "1ba",
        stream: str | TextIO = "stderr",
        log_traces: bool = False,
    ) -> None:
        self.log_interval = Time.from_input(log_interval, TimeUnit.EPOCH)
        if self.log_interval.value <= 0:
            raise ValueError(f"log_interval={log_interval!r} must be more than zero.")
        self.should_log_traces = log_traces
        self._stream = check_stream(stream)
        self._output = SafeStream(type(self).__name__)
        self._unit = self.log_interval.unit
        self._hyperparameters: dict[str, Any] = {}
        # What was logged and not printed yet, by name.
        self._metrics: dict[str, Any] = {}
        self._put_aside: dict[str, Any] = {}
        self._first_batch_due = False
        self._num_intervals = 0
        self._eval_batch = 0
        self._eval_marks: frozenset[int] = frozenset()
        self._eval_length: int | None = None

    @property
    def stream(self) -> TextIO | None:
        """The stream that lines go to now; ``None`` if the program has none of that name."""
        return resolve_stream(self._stream)

    # ---- what is logged -----------------------------------------------------------------------

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self._metrics.update(metrics)

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        self._hyperparameters.update(hyperparameters)

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Print a table.

        Args:
            columns: Column names.
            rows: One list per row.
            name: Name of the table.
            step: Not used.

        Example:
            >>> ConsoleLogger(stream="stdout").log_table(["a", "b"], [[1, 2]])
            Table: a | b
                1 | 2
        """
        if self._is_heard():
            lines = [f"{name}: " + " | ".join(map(to_text, columns))]
            lines += ["    " + " | ".join(format_value(cell) for cell in row) for row in rows]
            self._print(*lines)

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Print which algorithms ran, if that was asked for.

        Args:
            traces: Trace to value.

        Example:
            >>> ConsoleLogger(stream="stdout", log_traces=True).log_traces({"MixUp/init": 1})
            [trace] MixUp/init: 1
        """
        if self.should_log_traces and self._is_heard():
            self._print(*(f"[trace] {k}: {format_value(v)}" for k, v in traces.items()))

    # ---- when it is printed -------------------------------------------------------------------

    def fit_start(self, state: State, logger: Logger) -> None:
        self._print_hyperparameters()
        self._first_batch_due = True
        self._num_intervals = self._count_intervals(state)

    def predict_start(self, state: State, logger: Logger) -> None:
        self._print_hyperparameters()

    def batch_end(self, state: State, logger: Logger) -> None:
        if self._unit is TimeUnit.BATCH:
            count: int | float = state.timestamp.count(TimeUnit.BATCH) // self.log_interval.value
        elif self._unit is TimeUnit.EPOCH or self._unit is TimeUnit.ITERATION:
            count = self._num_intervals
        else:
            count = self._count_intervals(state)
        if count != self._num_intervals or self._first_batch_due:
            self._first_batch_due = False
            self._num_intervals = int(count)
            self._print_train(state)

    def epoch_end(self, state: State, logger: Logger) -> None:
        self._print_if_due(state, TimeUnit.EPOCH)

    def iteration_end(self, state: State, logger: Logger) -> None:
        self._print_if_due(state, TimeUnit.ITERATION)

    def fit_end(self, state: State, logger: Logger) -> None:
        if self._metrics:
            self._print_train(state)

    def eval_start(self, state: State, logger: Logger) -> None:
        self._print_hyperparameters()
        self._put_aside, self._metrics = self._metrics, {}
        self._eval_batch = 0
        length = state.dataloader_len
        self._eval_length = None if length is None else int(length)
        marks = range(1, _NUM_EVAL_PARTS + 1)
        # Rounded up, so that a tenth is announced when it is really done.
        self._eval_marks = frozenset(
            -(-self._eval_length * mark // _NUM_EVAL_PARTS) if self._eval_length else mark
            for mark in marks
        )

    def eval_batch_end(self, state: State, logger: Logger) -> None:
        self._eval_batch += 1
        batch = self._eval_batch
        # Without a length: at 1, 10, 100 and so on.
        if batch in self._eval_marks if self._eval_length else batch == 10 ** (len(str(batch)) - 1):
            self._print(self._eval_header(state))

    def eval_end(self, state: State, logger: Logger) -> None:
        # Asked first, since values may have to be fetched from a device.
        if self._is_heard():
            self._print(self._eval_header(state) + ":", *self._lines("Eval"))
        self._metrics, self._put_aside = self._put_aside, {}

    # ---- how it is printed --------------------------------------------------------------------

    def _count_intervals(self, state: State) -> int:
        if self._unit is TimeUnit.DURATION:
            elapsed = state.get_elapsed_duration()
            # A share such as a tenth is not exact in binary, so that a hair must not hide the last.
            return 0 if elapsed is None else int(elapsed.value / self.log_interval.value + 1e-9)
        return int(state.timestamp.count(self._unit) // self.log_interval.value)

    def _print_if_due(self, state: State, unit: TimeUnit) -> None:
        if self._unit is unit:
            count = self._count_intervals(state)
            if count != self._num_intervals:
                self._num_intervals = count
                self._print_train(state)

    def _print_hyperparameters(self) -> None:
        if self._hyperparameters:
            text = format_hyperparameters(self._hyperparameters)
            self._hyperparameters = {}
            self._print("Config:", text.rstrip("\n"), "-" * 40)

    def _print_train(self, state: State) -> None:
        if self._is_heard():
            timestamp = state.timestamp
            epoch, batch = int(timestamp.epoch), int(timestamp.batch_in_epoch)
            header = f"[epoch={epoch}][batch={batch}{_of(state.dataloader_len)}]"
            if state.max_duration is not None and state.max_duration.unit is not TimeUnit.EPOCH:
                header += f"[total batch={int(timestamp.batch)}]"
            self._print(header + ":", *self._lines("Train"))
        self._metrics.clear()

    def _eval_header(self, state: State) -> str:
        length = "" if self._eval_length is None else f"/{self._eval_length}"
        timestamp = state.timestamp
        # Counts of what is done, as in the lines of training.
        trained = f"[epoch={int(timestamp.epoch)}][total batch={int(timestamp.batch)}]"
        label = state.dataloader_label or "data"
        return f"{trained}[Eval {label}][batch={self._eval_batch}{length}]"

    def _lines(self, prefix: str) -> list[str]:
        return [
            f"\t {prefix} {name}: {format_value(value)}" for name, value in self._metrics.items()
        ]

    def _is_heard(self) -> bool:
        """Look for the stream; whether this rank writes and the stream works."""
        if not is_writer():
            return False
        self._output.stream = self.stream
        return not self._output.is_silent

    def _print(self, *lines: str) -> None:
        if lines and self._is_heard():
            self._output.write_lines("\n".join(lines))


def _of(length: Time[int] | None) -> str:
    return "" if length is None else f"/{int(length)}"
