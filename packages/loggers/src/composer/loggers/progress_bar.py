"""Show how far a run is: a live bar on a terminal, plain lines where there is none.

A step pays for a look at the clock. Values are fetched and drawn at most ten times a second.
"""

from __future__ import annotations

import functools
import importlib
import time
from typing import TYPE_CHECKING, Any, TextIO

from composer.core.logger import Logger, LoggerDestination
from composer.core.time import TimeUnit
from composer.loggers._text import (
    SafeStream,
    check_stream,
    format_duration,
    format_hyperparameters,
    format_number,
    format_value,
    is_writer,
    resolve_stream,
    shorten_metric_name,
)
from composer.utils.notebook import is_notebook

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["ProgressBarLogger"]

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_BETWEEN_LINES = 10.0
# A line also comes after this long, if a tenth of the run takes longer, or if its length is
# unknown.
_SECONDS_WITHOUT_LINE = 600.0
_SECONDS_WITHOUT_LINE_UNSIZED = 60.0
_NUM_LINES = 10
_SMOOTHING = 0.3


class ProgressBarLogger(LoggerDestination):
    """Shows progress, loss, metrics, throughput, and the elapsed and remaining time of the run.

    On a terminal or in a notebook there is a bar for each epoch, or one for the run if its length
    is not in epochs, and one for each evaluation. Elsewhere a line comes after the first batch,
    about every tenth of the run (not more often than every ten seconds), after epochs and
    evaluations, and at the end. Only one rank of all shows anything. A stream that fails does not
    end the run: nothing more is shown on it.

    Args:
        stream: ``stdout``, ``stderr`` or a stream. A name means the stream that the program has
            when a run starts.
        log_traces: Print which algorithms ran.

    Raises:
        ValueError: If the name of the stream is unknown.

    Example:
        >>> import io
        >>> ProgressBarLogger(stream=io.StringIO()).show_pbar
        True
    """

    should_log_traces: bool

    def __init__(self, stream: str | TextIO = "stderr", log_traces: bool = False) -> None:
        self.should_log_traces = log_traces
        self._stream_argument = check_stream(stream)
        self._output = SafeStream(type(self).__name__)
        self._started = False
        self._live = False
        self._hyperparameters: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}
        self._run: _Run | None = None
        self._train_bar: Any = None
        self._eval_bar: Any = None
        self._eval: _Evaluation | None = None
        # The moment of the next look at the state; until a run starts there is nothing to see.
        self._next_look = float("inf")

    @property
    def show_pbar(self) -> bool:
        """Whether this rank shows anything."""
        return is_writer()

    @property
    def stream(self) -> TextIO | None:
        """The stream in use now; ``None`` if the program has none of that name."""
        return self._output.stream if self._started else resolve_stream(self._stream_argument)

    # ---- what is logged -----------------------------------------------------------------------

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self._metrics.update(metrics)

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        self._hyperparameters.update(hyperparameters)

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Print which algorithms ran, if that was asked for.

        Args:
            traces: Trace to value.

        Example:
            >>> ProgressBarLogger("stdout", log_traces=True).log_traces({"MixUp/init": 1})
            [trace] MixUp/init: 1
        """
        if self.should_log_traces and is_writer():
            for name, value in traces.items():
                self._print(f"[trace] {name}: {format_value(value)}")

    # ---- training -----------------------------------------------------------------------------

    def fit_start(self, state: State, logger: Logger) -> None:
        if not self._start():
            return
        self._run = _Run(state)
        self._next_look = 0.0
        if self._live and not self._run.by_epoch:
            self._close_bar("_train_bar")
            unit = self._run.unit
            total = None if state.max_duration is None else state.max_duration.value
            self._train_bar = self._make_bar(
                "train", total, unit.value, state.timestamp.count(unit)
            )

    def epoch_start(self, state: State, logger: Logger) -> None:
        run = self._run
        if run is None:
            return
        run.start_epoch(state)
        if self._live and run.by_epoch:
            self._close_bar("_train_bar")
            length = state.dataloader_len
            label = f"epoch {run.epoch + 1}{run.of_epochs}"
            done = int(state.timestamp.batch_in_epoch)
            total = None if length is None else int(length)
            self._train_bar = self._make_bar(label, total, "ba", done)

    def batch_end(self, state: State, logger: Logger) -> None:
        now = time.perf_counter()
        if now < self._next_look:
            return
        self._next_look = now + _SECONDS_BETWEEN_LOOKS
        run = self._run
        if run is None:
            return
        run.look(state, now)
        if self._live:
            self._draw_train(run, state)
        elif run.line_is_due(now):
            self._print_train(run, state, now)

    def epoch_end(self, state: State, logger: Logger) -> None:
        run = self._run
        if run is None:
            return
        now = time.perf_counter()
        run.look(state, now)
        if self._live:
            self._draw_train(run, state)
            if run.by_epoch:
                self._close_bar("_train_bar")
        elif run.epoch_line_is_due(now):
            self._print_train(run, state, now)

    def fit_end(self, state: State, logger: Logger) -> None:
        run, self._run = self._run, None
        self._next_look = float("inf")
        if run is None:
            return
        now = time.perf_counter()
        run.look(state, now)
        if self._live:
            if self._train_bar is not None:
                self._draw_train(run, state)
                self._close_bar("_train_bar")
        else:
            self._print_train(run, state, now, over=True)
        self._metrics = {}

    # ---- evaluation ---------------------------------------------------------------------------

    def eval_start(self, state: State, logger: Logger) -> None:
        if not self._started and not self._start():
            return
        length = state.dataloader_len
        self._eval = _Evaluation(
            label=state.dataloader_label or "eval",
            length=None if length is None else int(length),
            train_metrics=self._metrics,
        )
        self._metrics = {}
        if self._live:
            self._close_bar("_eval_bar")
            self._eval_bar = self._make_bar(self._eval.label, self._eval.length, "ba", 0)

    def eval_batch_end(self, state: State, logger: Logger) -> None:
        evaluation = self._eval
        if evaluation is None:
            return
        evaluation.num_batches += 1
        if self._eval_bar is not None:
            now = time.perf_counter()
            if now >= evaluation.next_look:
                evaluation.next_look = now + _SECONDS_BETWEEN_LOOKS
                self._eval_bar.n = evaluation.num_batches
                self._eval_bar.refresh()

    def eval_end(self, state: State, logger: Logger) -> None:
        evaluation, self._eval = self._eval, None
        if evaluation is None:
            return
        metrics, self._metrics = self._metrics, evaluation.train_metrics
        now = time.perf_counter()
        took = now - evaluation.started
        if self._eval_bar is not None:
            self._eval_bar.n = evaluation.num_batches
            postfix = [format_duration(took), _format_metrics(metrics)]
            self._eval_bar.set_postfix_str(", ".join(filter(None, postfix)), refresh=False)
            self._eval_bar.refresh()
            self._close_bar("_eval_bar")
        else:
            shown = _format_metrics(metrics) or "no metrics"
            self._print(
                f"[{evaluation.label}] {self._place(state)}{shown} | "
                f"{evaluation.num_batches} batches took {format_duration(took)}"
            )
        if self._run is not None:
            # Evaluation is no training: throughput goes on from here.
            self._run.skip(state, now)

    def _place(self, state: State) -> str:
        """Say after how much training an evaluation comes; nothing if there was none."""
        if self._run is not None:
            self._run.count_batches(state)
            return f"{self._run.place}: "
        batches = int(state.timestamp.batch)
        return f"after {batches} batches of training: " if batches else ""

    def close(self, state: State, logger: Logger) -> None:
        self._close_bar("_eval_bar")
        self._close_bar("_train_bar")
        self._run = None
        self._eval = None
        self._output.stream = None
        self._started = False
        self._next_look = float("inf")

    # ---- drawing ------------------------------------------------------------------------------

    def _start(self) -> bool:
        """Find out where and how to draw; false on ranks that show nothing."""
        if not is_writer():
            return False
        self._output.stream = resolve_stream(self._stream_argument)
        self._started = True
        by_name = isinstance(self._stream_argument, str)
        self._live = self._output.isatty() or (by_name and is_notebook())
        if self._hyperparameters:
            text = format_hyperparameters(self._hyperparameters).rstrip("\n")
            self._hyperparameters = {}
            self._print(f"{'*' * 30}\nConfig:\n{text}\n{'*' * 30}")
        return True

    def _make_bar(self, label: str, total: float | None, unit: str, done: float) -> Any:
        counts = f"{{n:.0f}}/{{total:.0f}}{unit}" if total is not None else f"{{n:.0f}}{unit}"
        picture = "{percentage:3.0f}%|{bar:8}| " if total is not None else ""
        return _bar_class()(
            desc=label,
            total=total,
            initial=done,
            file=self._output,
            dynamic_ncols=True,
            leave=True,
            bar_format=f"{{desc}}: {picture}{counts}{{postfix}}",
        )

    def _draw_train(self, run: _Run, state: State) -> None:
        bar = self._train_bar
        # Asked first, since values may have to be fetched from a device.
        if bar is None or self._output.is_silent:
            return
        bar.n = run.batch_in_epoch if run.by_epoch else state.timestamp.count(run.unit)
        if bar.total is not None:
            bar.n = min(bar.n, bar.total)
        times = f"{format_duration(run.elapsed)}<{format_duration(run.remaining)}"
        speed = ", ".join(filter(None, [times, run.throughput]))
        # What is most looked at comes first: a narrow terminal cuts the end.
        parts = [_format_metrics(self._metrics), f"[{speed}]"]
        bar.set_postfix_str(" ".join(filter(None, parts)), refresh=False)
        bar.refresh()

    def _print_train(self, run: _Run, state: State, now: float, *, over: bool = False) -> None:
        run.note_line(now)
        if self._output.is_silent:
            return
        place = run.place
        if not run.by_epoch and state.max_duration is not None:
            place = f"{state.timestamp.count(run.unit):.0f}/{state.max_duration}, {place}"
        if run.fraction is not None:
            place += f" ({100 * run.fraction:.0f} %)"
        times = f"elapsed {format_duration(run.elapsed)}"
        if not over:
            times += f", left {format_duration(run.remaining)}"
        parts = [_format_metrics(self._metrics), run.throughput, times]
        head = "[train] end, " if over else "[train] "
        self._print(f"{head}{place}: " + " | ".join(filter(None, parts)))

    def _print(self, text: str) -> None:
        self._output.stream = self.stream
        bar = self._train_bar if self._eval_bar is None else self._eval_bar
        if bar is not None:
            bar.write(text, file=self._output)
        else:
            self._output.write_lines(text)

    def _close_bar(self, name: str) -> None:
        bar = getattr(self, name)
        if bar is not None:
            setattr(self, name, None)
            bar.close()


class _Evaluation:
    """What is known about the evaluation that runs."""

    __slots__ = ("label", "length", "next_look", "num_batches", "started", "train_metrics")

    def __init__(self, label: str, length: int | None, train_metrics: dict[str, Any]) -> None:
        self.label = label
        self.length = length
        self.train_metrics = train_metrics
        self.num_batches = 0
        self.started = time.perf_counter()
        self.next_look = 0.0


class _Run:
    """The progress of one call of ``fit``, as far as it was looked at."""

    def __init__(self, state: State) -> None:
        now = time.perf_counter()
        total = state.max_duration
        self.unit = TimeUnit.BATCH if total is None else total.unit
        self.by_epoch = self.unit is TimeUnit.EPOCH
        self.num_epochs = int(total) if total is not None and self.by_epoch else None
        self.of_epochs = "" if self.num_epochs is None else f"/{self.num_epochs}"
        self.fraction: float | None = None
        self.elapsed = 0.0
        self.epoch_length: int | None = None
        self.start_epoch(state)
        self._started = now
        self._first_fraction = self._measure(state)
        self._window = now
        self._batches, self._samples = self._counts(state)
        self._batch_rate = 0.0
        self._sample_rate = 0.0
        self._last_line = float("-inf")
        self._next_fraction = 0.0

    @staticmethod
    def _counts(state: State) -> tuple[int | float, int | float]:
        timestamp = state.timestamp
        return timestamp.count(TimeUnit.BATCH), timestamp.count(TimeUnit.SAMPLE)

    def start_epoch(self, state: State) -> None:
        """Remember where the epoch began: at its end its own counters start anew."""
        timestamp = state.timestamp
        self.epoch = int(timestamp.epoch)
        self.shown_epoch = self.epoch + 1
        self.batch_in_epoch = int(timestamp.batch_in_epoch)
        self._epoch_base = timestamp.count(TimeUnit.BATCH) - self.batch_in_epoch
        length = state.dataloader_len
        self.epoch_length = None if length is None else int(length)

    @property
    def place(self) -> str:
        """Epoch and batch, as people count them."""
        length = "" if self.epoch_length is None else f"/{self.epoch_length}"
        return f"epoch {self.shown_epoch}{self.of_epochs}, batch {self.batch_in_epoch}{length}"

    def count_batches(self, state: State) -> None:
        """Read how many batches of the epoch are done."""
        self.batch_in_epoch = int(state.timestamp.count(TimeUnit.BATCH) - self._epoch_base)

    def look(self, state: State, now: float) -> None:
        """Read the clock of the run."""
        batches, samples = self._counts(state)
        self.count_batches(state)
        self.elapsed = now - self._started
        self.fraction = self._measure(state)
        seconds = now - self._window
        if batches > self._batches and seconds > 0:
            self._batch_rate = self._smooth(self._batch_rate, (batches - self._batches) / seconds)
            self._sample_rate = self._smooth(self._sample_rate, (samples - self._samples) / seconds)
            self._window, self._batches, self._samples = now, batches, samples

    @staticmethod
    def _smooth(before: float, value: float) -> float:
        return before + _SMOOTHING * (value - before) if before else value

    def skip(self, state: State, now: float) -> None:
        """Leave the time until now out of the throughput."""
        self._window = now
        self._batches, self._samples = self._counts(state)

    def _measure(self, state: State) -> float | None:
        elapsed = state.get_elapsed_duration()
        if elapsed is None:
            return None
        if self.by_epoch and self.num_epochs:
            if self.epoch_length is None:
                return None if self.num_epochs == 1 else float(elapsed.value)
            done = state.timestamp.count(TimeUnit.EPOCH)
            part = min(int(state.timestamp.batch_in_epoch) / max(self.epoch_length, 1), 1.0)
            return min((done + part) / self.num_epochs, 1.0)
        return min(float(elapsed.value), 1.0)

    @property
    def remaining(self) -> float:
        """Seconds until the end at the present speed; infinite if that is not known."""
        if self.fraction is None or self._first_fraction is None:
            return float("inf")
        done = self.fraction - self._first_fraction
        return self.elapsed * (1.0 - self.fraction) / done if done > 0 else float("inf")

    @property
    def throughput(self) -> str:
        """Batches and samples per second; empty until it is known, as right after resuming."""
        if not self._batch_rate:
            return ""
        samples = f", {self._sample_rate:.4g} samples/s" if self._sample_rate else ""
        return f"{self._batch_rate:.4g} ba/s{samples}"

    def line_is_due(self, now: float) -> bool:
        """Tell whether the first line or the next tenth has come."""
        if self._last_line == float("-inf"):
            return True
        since = now - self._last_line
        if since < _SECONDS_BETWEEN_LINES:
            return False
        if self.fraction is None:
            return since >= _SECONDS_WITHOUT_LINE_UNSIZED
        return self.fraction >= self._next_fraction or since >= _SECONDS_WITHOUT_LINE

    def epoch_line_is_due(self, now: float) -> bool:
        """Tell whether to print a line at the end of an epoch: always, unless there are many."""
        few = self.num_epochs is not None and self.num_epochs <= 2 * _NUM_LINES
        return few or now - self._last_line >= _SECONDS_BETWEEN_LINES

    def note_line(self, now: float) -> None:
        """Remember that a line was printed."""
        self._last_line = now
        if self.fraction is not None:
            self._next_fraction = (int(self.fraction * _NUM_LINES + 1e-9) + 1) / _NUM_LINES


@functools.cache
def _bar_class() -> Any:
    """Import tqdm when the first bar is drawn, and not before."""
    module = importlib.import_module("tqdm.auto" if is_notebook() else "tqdm.std")
    # The bars are redrawn from here; no thread is needed that watches over them.
    return type("Bar", (module.tqdm,), {"monitor_interval": 0})


def _format_metrics(metrics: dict[str, Any]) -> str:
    return ", ".join(
        f"{shorten_metric_name(name)}={format_number(value)}"
        for name, value in metrics.items()
        if isinstance(name, str) and name.startswith(("loss", "metrics/"))
    )
