"""The destinations of this package, driven by events without a trainer."""

from __future__ import annotations

import io
import json
import logging
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import composer.core.logger
import composer.loggers
from composer import Trainer
from composer.core.callback import Callback
from composer.core.state import State
from composer.core.time import Time
from composer.core.timestamp import Timestamp
from composer.devices import DeviceCPU
from composer.loggers import (
    ConsoleLogger,
    FileLogger,
    InMemoryLogger,
    Logger,
    LoggerDestination,
    ProgressBarLogger,
)
from composer.loggers import progress_bar as progress_bar_module
from composer_testing.tiny import TinyModel, loader


class Clock:
    """Time that moves only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    return clock


def make_state(max_duration: str | None = "2ep", length: int | None = 4) -> State:
    state = State(torch.nn.Linear(1, 1), 0, "a-run", DeviceCPU(), max_duration=max_duration)
    loader = iter(()) if length is None else [None] * length
    state.set_dataloader(loader, "train")
    return state


class Run:
    """Fires the events of a training run at one destination, in the trainer's order."""

    def __init__(self, destination: LoggerDestination, state: State | None = None) -> None:
        self.destination = destination
        self.state = make_state() if state is None else state
        self.logger = Logger(self.state, destination)

    def fire(self, event: str) -> None:
        getattr(self.destination, event)(self.state, self.logger)

    def start(self) -> Run:
        self.fire("init")
        self.fire("after_load")
        self.fire("fit_start")
        self.fire("epoch_start")
        return self

    def batch(self, loss: Any = None, samples: int = 8) -> None:
        if loss is None:
            loss = 1.0 / (1 + int(self.state.timestamp.batch))
        self.logger.log_metrics({"loss/train/total": loss, "time/batch": 1})
        self.state.previous_timestamp = self.state.timestamp
        self.state.timestamp = self.state.timestamp.to_next_batch(samples=samples)
        self.fire("batch_end")

    def end_epoch(self) -> None:
        self.state.timestamp = self.state.timestamp.to_next_epoch()
        self.fire("epoch_end")

    def evaluate(self, label: str = "eval", length: int = 3, value: Any = 0.5) -> None:
        outer = (self.state.dataloader, self.state.dataloader_label, self.state.dataloader_len)
        self.state.set_dataloader([None] * length, label)
        self.fire("eval_start")
        for _ in range(length):
            self.fire("eval_batch_end")
        self.logger.log_metrics({f"metrics/{label}/Accuracy": value})
        self.fire("eval_end")
        self.state.set_dataloader(outer[0], outer[1], -1 if outer[2] is None else outer[2])


def test_contracts_are_reexported() -> None:
    assert composer.loggers.Logger is composer.core.logger.Logger
    assert composer.loggers.LoggerDestination is composer.core.logger.LoggerDestination
    for name in composer.loggers.__all__:
        assert getattr(composer.loggers, name) is not None


@pytest.mark.parametrize("kind", [ConsoleLogger, ProgressBarLogger, FileLogger, InMemoryLogger])
def test_no_listener_for_every_step_beyond_need(kind: type[LoggerDestination]) -> None:
    busy = {
        "before_dataloader",
        "after_dataloader",
        "batch_start",
        "before_train_batch",
        "before_forward",
        "after_forward",
        "before_loss",
        "after_loss",
        "before_backward",
        "after_backward",
        "after_train_batch",
        "batch_checkpoint",
        "run_event",
        "eval_batch_start",
        "eval_before_forward",
        "eval_after_forward",
    }
    for name in busy:
        assert getattr(kind, name) is getattr(Callback, name)


# ---- what must not hurt a run -------------------------------------------------------------------


class FullDisk(io.StringIO):
    """Takes nothing."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


class NoReader(io.StringIO):
    """A pipe whose other end is gone, which shows when it is flushed."""

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")


class Closed(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.close()


class Own:
    """A user's own stream with an error of its own."""

    def write(self, text: str) -> int:
        raise RuntimeError("the socket is gone")


def on_terminal(kind: type) -> Any:
    return type("Terminal", (kind,), {"isatty": lambda self: True})()


def whole_run(logger: LoggerDestination, clock: Clock) -> None:
    run = Run(logger)
    run.logger.log_hyperparameters({"lr": 0.1})
    run.start()
    for _ in range(4):
        clock.now += 60.0
        run.batch()
        run.logger.log_traces({"t": 1})
        run.logger.log_table(["a"], [[1]])
    run.end_epoch()
    run.evaluate()
    run.logger.flush()
    run.fire("fit_end")
    run.fire("fit_start")
    run.batch()
    run.fire("fit_end")
    run.destination.close(run.state, run.logger)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (FullDisk, "OSError: [Errno 28] No space left on device"),
        (NoReader, "BrokenPipeError: [Errno 32] Broken pipe"),
        (Closed, "ValueError: I/O operation on closed file"),
        (Own, "RuntimeError: the socket is gone"),
    ],
)
@pytest.mark.parametrize("kind", [ConsoleLogger, ProgressBarLogger])
def test_a_stream_that_fails_warns_once(
    kind: Any,
    stream: Any,
    error: str,
    terminal: bool,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = on_terminal(stream) if terminal else stream()
    whole_run(kind(stream=broken, log_traces=True), clock)
    warned = [record.getMessage() for record in caplog.records]
    assert warned == [f"{kind.__name__} shows nothing more, since its stream failed: {error}"]


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("kind", [ConsoleLogger, ProgressBarLogger])
def test_a_stream_closed_during_the_run(
    kind: Any, terminal: bool, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    run = Run(kind(stream=stream)).start()
    run.batch()
    stream.close()
    for _ in range(3):
        clock.now += 60.0
        run.batch()
    run.end_epoch()
    run.evaluate()
    run.fire("fit_end")
    run.destination.close(run.state, run.logger)
    assert len(caplog.records) == 1
    assert "closed file" in caplog.text


def test_a_failed_stream_costs_no_fetching(clock: Clock) -> None:
    fetched: list[int] = []

    class OnDevice(torch.Tensor):
        def item(self) -> Any:
            fetched.append(1)
            return super().item()

        def __float__(self) -> float:
            fetched.append(1)
            return super().__float__()

    loggers: list[LoggerDestination] = [
        ConsoleLogger(stream=FullDisk()),
        ProgressBarLogger(stream=FullDisk()),
    ]
    for logger in loggers:
        run = Run(logger).start()
        run.batch()
        for _ in range(3):
            clock.now += 60.0
            run.batch(torch.tensor(1.0).as_subclass(OnDevice))
        run.fire("fit_end")
    assert not fetched


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("kind", [ConsoleLogger, ProgressBarLogger])
def test_a_stream_of_few_characters(
    kind: Any, terminal: bool, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", line_buffering=True)
    if terminal:
        stream.isatty = lambda: True  # type: ignore[method-assign]
    run = Run(kind(stream=stream)).start()
    run.batch()
    run.evaluate("tr\u00e4in")
    run.fire("fit_end")
    run.destination.close(run.state, run.logger)
    stream.flush()
    text = raw.getvalue().decode("ascii")
    assert "tr?in" in text
    assert "loss" in text
    assert not caplog.records


@pytest.mark.parametrize("kind", [ConsoleLogger, ProgressBarLogger])
def test_a_program_without_standard_streams(
    kind: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    logger = kind(log_traces=True)
    whole_run(logger, clock)
    assert logger.stream is None
    assert not caplog.records


def test_console_speaks_again_on_another_stream(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logger = ConsoleLogger()
    run = Run(logger).start()
    monkeypatch.setattr(sys, "stderr", FullDisk())
    run.batch()
    later = io.StringIO()
    monkeypatch.setattr(sys, "stderr", later)
    run.batch()
    assert "loss/train/total" in later.getvalue()
    assert len(caplog.records) == 1


class Unwilling:
    """A value that can be turned into nothing."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __float__ = __deepcopy__ = __str__  # type: ignore[assignment]


def odd_values() -> dict[Any, Any]:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    return {
        "loss/none": None,
        "loss/text": "0.5",
        "loss/dict": {"a": 1, (1, 2): None},
        "loss/list": [1.0, None, float("nan")],
        "loss/array": np.array(0.5),
        "loss/arrays": np.ones((2, 2)),
        "loss/tensor": torch.ones(3),
        "loss/empty": torch.ones(0),
        "loss/meta": torch.ones((), device="meta"),
        "loss/sparse": torch.ones(1).to_sparse(),
        "loss/complex": 1 + 2j,
        "loss/big": 10**400,
        "loss/bigger": 10**5000,
        "loss/bytes": b"a",
        "loss/generator": (n for n in (1, 2)),
        "loss/circle": circle,
        "loss/unwilling": Unwilling(),
        3: 1.0,
        ("a", "b"): 2.0,
        None: 3.0,
    }


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("kind", [ConsoleLogger, ProgressBarLogger])
def test_odd_values_are_shown_somehow(kind: Any, terminal: bool, clock: Clock) -> None:
    stream = Terminal() if terminal else io.StringIO()
    run = Run(kind(stream=stream, log_traces=True))
    run.logger.log_hyperparameters(odd_values())
    run.start()
    run.logger.log_metrics(odd_values())
    run.batch(0.125)
    run.logger.log_traces(odd_values())
    for name, value in odd_values().items():
        run.logger.log_table([name], [[value]])
    run.fire("fit_end")
    run.destination.close(run.state, run.logger)
    text = stream.getvalue()
    for expected in ("none", '"0.5"', '"a": 1', "[1.0000, None, nan]", "<Unwilling>", "0.125"):
        assert expected in text


@pytest.mark.parametrize("name", list(odd_values()), ids=lambda name: str(name).replace("/", "-"))
def test_odd_values_are_written_as_json(name: Any, tmp_path: Path) -> None:
    logger = FileLogger(str(tmp_path / "r{rank}.txt"), capture_stdout=False, capture_stderr=False)
    run = Run(logger).start()
    values = {name: odd_values()[name]}
    run.logger.log_metrics({**values, "good": 0.5})
    run.logger.log_hyperparameters(dict(values))
    run.logger.log_traces(dict(values))
    run.logger.log_table([name], [[values[name]]])
    logger.close(run.state, run.logger)
    lines = read(Path(logger.filename))
    assert len(lines) == 4
    assert len(payload(lines[0])) == 2
    assert payload(lines[0])["good"] in (0.5, "0.5000")


def test_odd_values_are_kept(tmp_path: Path) -> None:
    logger = InMemoryLogger()
    for _ in range(2):
        logger.log_metrics(odd_values(), step=0)
    logger.log_metrics({"loss/tensor": 1.0, "loss/list": {}}, step=0)
    assert logger.most_recent_values["loss/none"] is None
    assert logger.data["loss/dict"][0][1] == {"a": 1, (1, 2): None}
    for name in odd_values():
        series = logger.get_timeseries(name)
        assert len(series["batch"]) == len(series[name]) == len(logger.data[name])
    logger.log_table(["a", ("b", "c")], [[None, Unwilling()]])
    assert json.loads(logger.tables["Table"]) == {
        "columns": ["a", ["b", "c"]],
        "data": [[None, "<Unwilling>"]],
    }


def test_flush_goes_to_all_and_errors_stay(caplog: pytest.LogCaptureFixture) -> None:
    flushed = []

    class Good(LoggerDestination):
        def flush(self) -> None:
            flushed.append(self)

    class Bad(LoggerDestination):
        def flush(self) -> None:
            raise OSError("down")

    good = Good()
    Logger(make_state(), [LoggerDestination(), Bad(), good, InMemoryLogger()]).flush()
    assert flushed == [good]
    assert "flushing Bad failed" in caplog.text


# ---- in memory ----------------------------------------------------------------------------------


def test_in_memory_keeps_values_and_moments() -> None:
    run = Run(InMemoryLogger())
    logger = run.destination
    assert isinstance(logger, InMemoryLogger)
    run.fire("init")
    for loss in (3.0, torch.tensor(2.0), np.float64(1.0)):
        run.logger.log_metrics({"loss": loss})
        run.state.timestamp = run.state.timestamp.to_next_batch(samples=4, duration=0.5)
    assert [value for _, value in logger.data["loss"]] == [3.0, 2.0, 1.0]
    assert type(logger.data["loss"][1][1]) is float
    assert [int(t.batch) for t, _ in logger.data["loss"]] == [0, 1, 2]
    assert logger.most_recent_values == {"loss": 1.0}
    assert logger.most_recent_timestamps["loss"].batch == "2ba"
    series = logger.get_timeseries("loss")
    assert series["loss"].tolist() == [3.0, 2.0, 1.0]
    assert series["sample"].tolist() == [0, 4, 8]
    assert series["total_wct"].tolist() == [0.0, 0.5, 1.0]
    assert series.keys() - {"loss"} == Timestamp().state_dict().keys()
    with pytest.raises(ValueError, match=r"metric='los' was never logged.*\"loss\""):
        logger.get_timeseries("los")


def test_in_memory_does_not_alias_what_changes() -> None:
    logger = InMemoryLogger()
    value = torch.tensor(1.0)
    matrix = torch.zeros(2)
    items = [1]
    metrics: dict[str, Any] = {"a": value, "m": matrix, "l": items}
    logger.log_metrics(metrics, step=0)
    value += 1
    matrix += 1
    items.append(2)
    assert logger.data["a"][0][1] == 1.0
    assert logger.data["m"][0][1].tolist() == [0, 0]
    assert logger.data["l"][0][1] == [1]


def test_in_memory_fetches_from_a_device_when_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []

    class OnDevice(torch.Tensor):
        is_cpu = False  # type: ignore[assignment]

        def item(self) -> Any:
            fetched.append(1)
            return super().item()

    logger = InMemoryLogger()
    logger.log_metrics({"loss": torch.tensor(2.0).as_subclass(OnDevice)}, step=1)
    logger.log_metrics({"loss": 1.0}, step=2)
    assert not fetched
    assert [value for _, value in logger.data["loss"]] == [2.0, 1.0]
    assert logger.most_recent_values["loss"] == 1.0
    assert fetched == [1]


def test_in_memory_tables_and_hyperparameters() -> None:
    logger = InMemoryLogger()
    logger.log_hyperparameters({"lr": 0.1})
    logger.log_hyperparameters({"wd": 0.2})
    assert logger.hyperparameters == {"lr": 0.1, "wd": 0.2}
    logger.log_table(["a", "b"], [[1, "x"], [float("nan"), torch.tensor(2.0)]], name="T")
    assert json.loads(logger.tables["T"]) == {
        "columns": ["a", "b"],
        "data": [[1, "x"], [None, 2.0]],
    }
    with pytest.raises(ValueError, match=r"rows\[1\] has 1 cells and there are 2 columns"):
        logger.log_table(["a", "b"], [[1, 2], [3]])


# ---- console ------------------------------------------------------------------------------------


def train_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("[epoch")]


def run_two_epochs(logger: LoggerDestination) -> None:
    run = Run(logger).start()
    for _ in range(2):
        for _ in range(4):
            run.batch()
        run.end_epoch()
    run.fire("fit_end")


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ("1ba", ["0/1", "0/2", "0/3", "0/4", "1/1", "1/2", "1/3", "1/4"]),
        ("3ba", ["0/1", "0/3", "1/2", "2/0"]),
        ("1ep", ["0/1", "1/0", "2/0"]),
        (2, ["0/1", "2/0"]),
        (Time(4, "ba"), ["0/1", "0/4", "1/4"]),
        ("24sp", ["0/1", "0/3", "1/2", "2/0"]),
        ("0.5dur", ["0/1", "1/1", "2/0"]),
        ("100ba", ["0/1", "2/0"]),
    ],
)
def test_console_prints_at_the_interval(interval: Any, expected: list[str]) -> None:
    stream = io.StringIO()
    run_two_epochs(ConsoleLogger(interval, stream=stream))
    found = [
        line.removeprefix("[epoch=").replace("][batch=", "/").partition("/4]")[0]
        for line in train_lines(stream.getvalue())
    ]
    assert found == expected


def test_console_prints_the_latest_values_plainly() -> None:
    stream = io.StringIO()
    run = Run(ConsoleLogger("2ba", stream=stream)).start()
    run.batch(1.0)
    assert "[epoch=0][batch=1/4]:\n\t Train loss/train/total: 1.0000\n" in stream.getvalue()
    stream.truncate(0)
    run.batch(torch.tensor(0.123456))
    assert "Train loss/train/total: 0.1235\n" in stream.getvalue()
    run.batch(float("nan"))
    run.batch(float("inf"))
    assert "nan" not in stream.getvalue()
    assert "Train loss/train/total: inf\n" in stream.getvalue()
    run.batch(float("nan"))
    run.batch(torch.tensor(float("nan")))
    assert "Train loss/train/total: nan\n" in stream.getvalue()


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (3, [1, 2, 3]),
        (10, list(range(1, 11))),
        (25, [3, 5, 8, 10, 13, 15, 18, 20, 23, 25]),
    ],
)
def test_console_evaluation_at_tenths(length: int, expected: list[int]) -> None:
    stream = io.StringIO()
    run = Run(ConsoleLogger("100ba", stream=stream)).start()
    run.batch()
    run.logger.log_metrics({"lr": 1.0})
    stream.truncate(0)
    stream.seek(0)
    run.evaluate("val", length, 0.75)
    lines = stream.getvalue().splitlines()
    marks = [int(line.partition("][batch=")[2].partition("/")[0]) for line in lines[:-2]]
    assert marks == expected
    assert lines[-2:] == [
        f"[epoch=0][total batch=1][Eval val][batch={length}/{length}]:",
        "\t Eval metrics/val/Accuracy: 0.7500",
    ]
    # What training logged before the evaluation is still to be printed with training.
    run.fire("fit_end")
    assert "Train lr: 1.0000" in stream.getvalue()


def test_console_config_traces_and_tables() -> None:
    stream = io.StringIO()
    logger = ConsoleLogger(stream=stream, log_traces=True)
    logger.log_hyperparameters({"lr": 0.1, "model": {"layers": [1, 2]}})
    assert stream.getvalue() == ""
    Run(logger).start()
    assert stream.getvalue().startswith("Config:\nlr: 0.1\nmodel:\n  layers: [1, 2]\n---")
    logger.fit_start(make_state(), Logger(make_state()))
    assert stream.getvalue().count("Config:") == 1
    logger.log_traces({"a": 1})
    logger.log_table(["x"], [[1.5]], name="T")
    assert stream.getvalue().endswith("[trace] a: 1\nT: x\n    1.5000\n")


def test_console_finds_its_stream_when_it_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = ConsoleLogger(stream="stdout")
    assert ConsoleLogger().stream is sys.stderr
    later = io.StringIO()
    monkeypatch.setattr(sys, "stdout", later)
    Run(logger).start().batch()
    assert "loss/train/total" in later.getvalue()


@pytest.mark.parametrize("kind", [ConsoleLogger, ProgressBarLogger])
def test_screen_destinations_check_their_stream(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"stream='sterr' is unknown.*\"stderr\""):
        kind(stream="sterr")
    with pytest.raises(TypeError, match="no write method"):
        kind(stream=3)


def test_console_checks_its_interval() -> None:
    with pytest.raises(ValueError, match="more than zero"):
        ConsoleLogger("0ba")
    with pytest.raises(ValueError, match="bananas"):
        ConsoleLogger("3bananas")


@pytest.mark.parametrize("kind", [ConsoleLogger, ProgressBarLogger])
def test_other_ranks_say_nothing(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    logger = kind(stream=stream, log_traces=True)
    logger.log_hyperparameters({"lr": 0.1})
    run = Run(logger).start()
    run.batch()
    run.evaluate()
    run.logger.log_traces({"a": 1})
    run.end_epoch()
    run.fire("fit_end")
    logger.close(run.state, run.logger)
    assert stream.getvalue() == ""


# ---- file ---------------------------------------------------------------------------------------


@pytest.fixture
def streams() -> Iterator[tuple[Any, Any]]:
    yield sys.stdout, sys.stderr
    assert "write" not in vars(sys.stdout)
    assert "write" not in vars(sys.stderr)


def read(path: Path) -> list[str]:
    return path.read_text().splitlines()


def payload(line: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(line.partition(": ")[2], parse_constant=refuse)


def test_file_has_one_line_for_each_call(tmp_path: Path, streams: Any) -> None:
    logger = FileLogger(str(tmp_path / "{run_name}" / "r{rank}.txt"))
    with pytest.raises(RuntimeError, match="once the run has started"):
        _ = logger.filename
    run = Run(logger)
    run.logger.log_hyperparameters({"lr": 1e-5, "nested": {"a": (1, None)}})
    run.start()
    assert logger.filename == str(tmp_path / "a-run" / "r0.txt")
    run.batch(torch.tensor(0.25))
    run.batch(float("nan"))
    run.logger.log_metrics(
        {"a": float("-inf"), "b": np.float32(0.5), "c": True, "d": [float("nan")]}
    )
    run.logger.log_table(["x"], [[1], [torch.tensor(2)]], name="T")
    run.logger.log_traces({"t": 1})
    print("hello", 3)
    print("partial", end="", file=sys.stderr)
    print(" line\nnext", file=sys.stderr)
    sys.stdout.write("\r  50%|###")
    sys.stdout.write("no newline")
    logger.close(run.state, run.logger)
    lines = read(Path(logger.filename))
    marks = [line.partition(": ")[0] for line in lines]
    assert marks == [
        "[hyperparameter]",
        "[metric][batch=0]",
        "[metric][batch=1]",
        "[metric][batch=2]",
        "[table][batch=2]",
        "[trace][batch=2]",
        "[stdout]",
        "[stderr]",
        "[stderr]",
        "[stdout]",
    ]
    assert payload(lines[0]) == {"lr": 1e-5, "nested": {"a": [1, None]}}
    assert payload(lines[1]) == {"loss/train/total": 0.25, "time/batch": 1}
    assert payload(lines[2]) == {"loss/train/total": "nan", "time/batch": 1}
    assert payload(lines[3]) == {"a": "-inf", "b": 0.5, "c": True, "d": ["nan"]}
    assert payload(lines[4]) == {"name": "T", "columns": ["x"], "rows": [[1], [2]]}
    assert [line.partition(": ")[2] for line in lines[6:]] == [
        "hello 3",
        "partial line",
        "next",
        "no newline",
    ]


def test_file_honours_overwrite(tmp_path: Path, streams: Any) -> None:
    path = tmp_path / "rank0.txt"
    path.write_text("precious\n")
    logger = FileLogger(str(tmp_path / "rank{rank}.txt"))
    run = Run(logger)
    run.fire("init")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        run.fire("after_load")
    logger.close(run.state, run.logger)
    assert path.read_text() == "precious\n"
    logger = FileLogger(str(tmp_path / "rank{rank}.txt"), overwrite=True)
    run = Run(logger).start()
    run.batch()
    logger.close(run.state, run.logger)
    assert "precious" not in path.read_text()


def test_file_of_a_resumed_run_has_each_batch_once(
    tmp_path: Path, streams: Any, caplog: pytest.LogCaptureFixture
) -> None:
    template = str(tmp_path / "rank{rank}.txt")
    first = Run(FileLogger(template, capture_stderr=False, capture_stdout=False)).start()
    for _ in range(12):
        first.batch(1.0)
    first.destination.close(first.state, first.logger)
    path = tmp_path / "rank0.txt"
    with path.open("a") as file:
        file.write('[metric][batch=12]: {"cut off')
    second = Run(FileLogger(template, capture_stderr=False, capture_stdout=False))
    second.fire("init")
    second.state.timestamp = Timestamp(batch=8, batch_in_epoch=8)
    with caplog.at_level(logging.WARNING, "composer.loggers.file"):
        second.fire("after_load")
    assert "goes on at batch 8: 5 lines" in caplog.text
    second.fire("fit_start")
    for _ in range(8):
        second.batch(2.0)
    second.destination.close(second.state, second.logger)
    lines = read(path)
    batches = [int(line.partition("batch=")[2].partition("]")[0]) for line in lines]
    assert batches == [*range(16)]
    assert [payload(line)["loss/train/total"] for line in lines] == [1.0] * 8 + [2.0] * 8


def after_clock_moved(run: Run) -> None:
    """What callbacks and evaluation report between a batch and its checkpoint."""
    run.logger.log_metrics({"lr-SGD/group0": 0.1})
    run.logger.log_metrics({"metrics/eval/Accuracy": 0.5})


@pytest.mark.parametrize(
    "lost", ["nothing", "state", "bytes", "other content"], ids=lambda lost: f"without {lost}"
)
@pytest.mark.parametrize("at", [1, 3])
def test_file_resumes_right_behind_the_checkpoint(
    tmp_path: Path, streams: Any, lost: str, at: int
) -> None:
    def make() -> FileLogger:
        return FileLogger(
            str(tmp_path / "rank{rank}.txt"), capture_stderr=False, capture_stdout=False
        )

    first = Run(make()).start()
    saved: dict[str, Any] = {}
    path = tmp_path / "rank0.txt"
    for batch in range(1, 6):
        first.batch(float(batch))
        after_clock_moved(first)
        if batch == at:
            saved = first.destination.state_dict()
            # It is on disk when the checkpoint is; a process that is killed now loses nothing.
            before = path.read_bytes()
            assert before.count(b"\n") == 3 * at
            assert saved["offset"] == len(before)
    first.destination.close(first.state, first.logger)
    if lost == "state":
        saved = {}
    elif lost == "bytes":
        saved["offset"] += 100_000
    elif lost == "other content":
        saved["offset"] -= 1
    second = Run(make())
    second.fire("init")
    second.destination.load_state_dict(saved)
    second.state.timestamp = Timestamp(batch=at, batch_in_epoch=at)
    second.fire("after_load")
    assert path.read_bytes() == before
    second.fire("fit_start")
    second.batch(0.0)
    second.destination.close(second.state, second.logger)
    added = path.read_bytes().removeprefix(before).decode()
    assert added.startswith(f"[metric][batch={at}]: ")


def test_file_has_no_state_before_the_run(tmp_path: Path, streams: Any) -> None:
    # Else a run that resumes with a new logger is told that the checkpoint lacks its state.
    run = Run(FileLogger(str(tmp_path / "r{rank}.txt")))
    run.fire("init")
    run.logger.log_hyperparameters({"a": 1})
    assert run.destination.state_dict() == {}
    run.fire("after_load")
    assert run.destination.state_dict().keys() == {"offset", "tail"}
    run.destination.close(run.state, run.logger)
    assert run.destination.state_dict() == {}


def test_file_resumes_at_a_checkpoint_of_batch_zero(tmp_path: Path, streams: Any) -> None:
    template = str(tmp_path / "r{rank}.txt")
    first = Run(FileLogger(template)).start()
    saved = first.destination.state_dict()
    first.batch()
    first.destination.close(first.state, first.logger)
    second = Run(FileLogger(template))
    second.fire("init")
    second.destination.load_state_dict(saved)
    second.fire("after_load")
    second.destination.close(second.state, second.logger)
    assert read(tmp_path / "r0.txt") == []


def test_file_puts_the_streams_back_in_any_order(tmp_path: Path) -> None:
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        before = vars(stream).copy()
        loggers = []
        for name in ("a", "b", "c"):
            logger = FileLogger(str(tmp_path / f"{name}{{rank}}.txt"), capture_stderr=False)
            loggers.append((logger, Run(logger).start()))
        print("all")
        first, run = loggers[0]
        first.close(run.state, run.logger)
        print("two")
        third, run = loggers[2]
        third.close(run.state, run.logger)
        print("one")
        second, run = loggers[1]
        second.close(run.state, run.logger)
        second.close(run.state, run.logger)
        print("none")
        assert vars(stream) == before
    assert stream.getvalue() == "all\ntwo\none\nnone\n"
    assert read(tmp_path / "a0.txt") == ["[stdout]: all"]
    assert read(tmp_path / "b0.txt") == ["[stdout]: all", "[stdout]: two", "[stdout]: one"]
    assert read(tmp_path / "c0.txt") == ["[stdout]: all", "[stdout]: two"]


class Uploads(LoggerDestination):
    def __init__(self) -> None:
        self.files: list[tuple[str, str]] = []

    def can_upload_files(self) -> bool:
        return True

    def upload_file(
        self, state: Any, remote_file_name: str, file_path: Path, *, overwrite: bool = False
    ) -> None:
        self.files.append((remote_file_name, Path(file_path).read_text()))
        assert overwrite


@pytest.mark.parametrize(
    ("interval", "num_uploads"), [(3, 3), ("3ba", 3), ("1ep", 3), ("2ep", 2), (100, 1)]
)
def test_file_is_flushed_and_offered_at_the_interval(
    tmp_path: Path, interval: Any, num_uploads: int, streams: Any
) -> None:
    logger = FileLogger(
        str(tmp_path / "r{rank}.txt"),
        "remote/{run_name}.txt",
        flush_interval=interval,
        buffer_size=9999,
    )
    uploads = Uploads()
    run = Run(logger)
    run.logger = Logger(run.state, [logger, uploads])
    run.start()
    for _ in range(2):
        for _ in range(4):
            run.batch()
        run.end_epoch()
    run.fire("fit_end")
    assert len(uploads.files) == num_uploads
    assert {name for name, _ in uploads.files} == {"remote/a-run.txt"}
    assert len(uploads.files[-1][1].splitlines()) == 8
    logger.close(run.state, run.logger)


def test_file_lines_arrive_within_about_a_second(
    tmp_path: Path, clock: Clock, streams: Any
) -> None:
    logger = FileLogger(str(tmp_path / "r{rank}.txt"))
    run = Run(logger).start()
    path = Path(logger.filename)
    values: list[torch.Tensor] = []

    class Watched(torch.Tensor):
        def tolist(self) -> Any:
            values.append(self)
            return super().tolist()

    for _ in range(50):
        clock.now += 0.01
        run.batch(torch.tensor(1.0).as_subclass(Watched))
    assert path.read_text() == ""
    assert not values
    clock.now += 0.6
    run.batch()
    assert len(read(path)) == 51
    logger.close(run.state, run.logger)


@pytest.mark.parametrize("buffer_size", [1, 100_000])
def test_file_holds_all_lines_after_flush(
    tmp_path: Path, clock: Clock, streams: Any, buffer_size: int
) -> None:
    logger = FileLogger(str(tmp_path / "r{rank}.txt"), buffer_size=buffer_size)
    run = Run(logger).start()
    for _ in range(3):
        run.batch()
    run.logger.log_traces({"t": 1})
    assert read(Path(logger.filename)) == []
    run.logger.flush()
    marks = [line.partition(": ")[0] for line in read(Path(logger.filename))]
    assert marks == [*(f"[metric][batch={n}]" for n in range(3)), "[trace][batch=3]"]
    logger.close(run.state, run.logger)


def test_file_survives_a_full_disk(
    tmp_path: Path, streams: Any, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    logger = FileLogger(str(tmp_path / "r{rank}.txt"), flush_interval=1)
    run = Run(logger).start()
    run.batch()
    assert logger.file is not None
    logger.file.close()
    logger.file = FullDisk()  # type: ignore[assignment]
    for _ in range(4):
        run.batch()
        print("still heard")
        run.logger.log_table(["a"], [[1]])
    run.logger.flush()
    assert logger.state_dict() == {}
    run.end_epoch()
    run.fire("fit_end")
    run.fire("fit_start")
    assert not logger._queue
    logger.close(run.state, run.logger)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text
    assert capsys.readouterr().out.count("still heard") == 4
    assert len(read(Path(logger.filename))) == 1


def test_file_survives_an_upload_that_fails(
    tmp_path: Path, streams: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Down(Uploads):
        def upload_file(self, *args: Any, **kwargs: Any) -> None:
            raise ConnectionError("the store is down")

    logger = FileLogger(str(tmp_path / "r{rank}.txt"), flush_interval=1)
    run = Run(logger)
    run.logger = Logger(run.state, [logger, Down()])
    run.start()
    for _ in range(3):
        run.batch()
    logger.close(run.state, run.logger)
    assert caplog.text.count("the store is down") == 1
    assert len(read(Path(logger.filename))) == 3


def test_file_takes_text_that_is_no_unicode(tmp_path: Path, streams: Any) -> None:
    logger = FileLogger(str(tmp_path / "r{rank}.txt"))
    run = Run(logger).start()
    logger.write("[note]: ", "tr\udce4in")
    logger.close(run.state, run.logger)
    assert read(Path(logger.filename)) == ["[note]: tr\\udce4in"]


def test_file_without_standard_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    logger = FileLogger(str(tmp_path / "r{rank}.txt"), capture_stderr=False)
    run = Run(logger).start()
    run.batch()
    logger.close(run.state, run.logger)
    assert "sys.stdout is not captured" in caplog.text
    assert len(read(Path(logger.filename))) == 1


def test_file_line_printed_by_a_value_that_is_written(tmp_path: Path, capsys: Any) -> None:
    class Loud:
        def __str__(self) -> str:
            print("loud")
            return "value"

    logger = FileLogger(str(tmp_path / "r{rank}.txt"), capture_stderr=False)
    run = Run(logger).start()
    run.logger.log_metrics({"a": Loud()})
    run.logger.flush()
    logger.close(run.state, run.logger)
    assert read(Path(logger.filename)) == ['[metric][batch=0]: {"a": "value"}', "[stdout]: loud"]


@pytest.mark.parametrize("interval", [0, "0ba", "10sp", "0.1dur"])
def test_file_checks_its_interval(interval: Any) -> None:
    with pytest.raises(ValueError, match="flush_interval="):
        FileLogger(flush_interval=interval)
    with pytest.raises(ValueError, match="buffer_size=0"):
        FileLogger(buffer_size=0)


def test_file_needs_the_rank_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"put \{rank\} into it"):
        Run(FileLogger("{run_name}.txt")).fire("init")


def test_file_defaults_of_names() -> None:
    logger = FileLogger("/logs/{run_name}/r{rank}.txt")
    logger._run_name = "a-run"
    assert logger.remote_file_name == "logs/a-run/r0.txt"
    assert logger.filename == "/logs/a-run/r0.txt"


# ---- progress bar: plain lines ------------------------------------------------------------------


def test_lines_of_a_short_run(clock: Clock) -> None:
    stream = io.StringIO()
    run = Run(ProgressBarLogger(stream=stream))
    run.logger.log_hyperparameters({"lr": 0.1})
    run.start()
    for epoch in range(2):
        if epoch:
            run.fire("epoch_start")
        for _ in range(4):
            clock.now += 0.5
            run.batch()
        run.end_epoch()
        clock.now += 1.0
        run.evaluate(value=0.25 + epoch / 2)
    run.fire("fit_end")
    lines = stream.getvalue().splitlines()
    assert lines[:4] == ["*" * 30, "Config:", "lr: 0.1", "*" * 30]
    rate = "2 ba/s, 16 samples/s"
    assert lines[4:] == [
        f"[train] epoch 1/2, batch 1/4 (12 %): loss=1 | {rate} | elapsed 0:00, left 0:04",
        f"[train] epoch 1/2, batch 4/4 (50 %): loss=0.25 | {rate} | elapsed 0:02, left 0:02",
        "[eval] epoch 1/2, batch 4/4: Accuracy=0.25 | 3 batches took 0:00",
        f"[train] epoch 2/2, batch 4/4 (100 %): loss=0.125 | {rate} | elapsed 0:05, left 0:00",
        "[eval] epoch 2/2, batch 4/4: Accuracy=0.75 | 3 batches took 0:00",
        f"[train] end, epoch 2/2, batch 4/4 (100 %): loss=0.125 | {rate} | elapsed 0:06",
    ]


@pytest.mark.parametrize(
    ("max_duration", "seconds", "num_lines"),
    [
        # Each batch takes a second: a tenth is 100 s, so ten of them, the first and the last.
        ("1000ba", 1.0, 12),
        # A tenth is 1 s, and lines keep 10 s apart.
        ("1000ba", 0.01, 2),
        # A tenth is 4,000 s, and a line comes every 600 s at least.
        ("1000ba", 40.0, 72),
        ("8000sp", 1.0, 12),
    ],
)
def test_lines_come_at_a_sensible_rate(
    max_duration: str, seconds: float, num_lines: int, clock: Clock
) -> None:
    stream = io.StringIO()
    run = Run(ProgressBarLogger(stream=stream), make_state(max_duration, length=5000)).start()
    for _ in range(1000):
        clock.now += seconds
        run.batch()
    run.fire("fit_end")
    assert abs(len(stream.getvalue().splitlines()) - num_lines) <= 1


def test_lines_of_many_short_epochs_are_few(clock: Clock) -> None:
    stream = io.StringIO()
    run = Run(ProgressBarLogger(stream=stream), make_state("500ep", length=1)).start()
    for _ in range(500):
        run.fire("epoch_start")
        clock.now += 0.1
        run.batch()
        run.end_epoch()
    run.fire("fit_end")
    assert len(stream.getvalue().splitlines()) <= 8


def test_lines_without_a_known_length(clock: Clock) -> None:
    stream = io.StringIO()
    run = Run(ProgressBarLogger(stream=stream), make_state("1ep", length=None)).start()
    for _ in range(130):
        clock.now += 1.0
        run.batch(torch.tensor(float("nan")))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == (
        "[train] epoch 1/1, batch 1: loss=nan | 1 ba/s, 8 samples/s | elapsed 0:01, left ?"
    )


def test_remaining_time_of_a_resumed_run(clock: Clock) -> None:
    stream = io.StringIO()
    state = make_state("100ba", length=1000)
    state.timestamp = Timestamp(batch=80, batch_in_epoch=80, sample=640)
    run = Run(ProgressBarLogger(stream=stream), state).start()
    clock.now += 2.0
    run.batch()
    assert "left 0:38" in stream.getvalue()
    assert "81/100ba, epoch 1, batch 81/1000 (81 %)" in stream.getvalue()


def test_a_rate_that_is_not_known_is_left_out(clock: Clock) -> None:
    stream = io.StringIO()
    state = make_state("100ba", length=1000)
    state.timestamp = Timestamp(batch=80, batch_in_epoch=80, sample=640)
    run = Run(ProgressBarLogger(stream=stream), state).start()
    # An epoch's end, or an evaluation that was still to be done, comes before any batch.
    clock.now += 1.0
    run.end_epoch()
    assert stream.getvalue() == (
        "[train] 80/100ba, epoch 1, batch 80/1000 (80 %): elapsed 0:01, left ?\n"
    )


def test_evaluations_say_after_how_much_training(clock: Clock) -> None:
    stream = io.StringIO()
    run = Run(ProgressBarLogger(stream=stream)).start()
    run.batch()
    run.batch()
    stream.truncate(0)
    stream.seek(0)
    run.evaluate(value=0.5)
    run.fire("fit_end")
    run.evaluate(value=0.5)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("[eval]")]
    assert lines == [
        "[eval] epoch 1/2, batch 2/4: Accuracy=0.5 | 3 batches took 0:00",
        "[eval] after 2 batches of training: Accuracy=0.5 | 3 batches took 0:00",
    ]


def test_values_are_fetched_only_when_drawn(clock: Clock) -> None:
    fetched: list[int] = []

    class OnDevice(torch.Tensor):
        def __float__(self) -> float:
            fetched.append(1)
            return super().__float__()

    for live in (False, True):
        fetched.clear()
        stream = Terminal() if live else io.StringIO()
        run = Run(ProgressBarLogger(stream=stream), make_state("1000ba", length=1000)).start()
        for _ in range(100):
            clock.now += 0.01
            run.batch(torch.tensor(1.0).as_subclass(OnDevice))
        assert 1 <= len(fetched) <= (11 if live else 1)
        run.destination.close(run.state, run.logger)


def test_evaluation_alone(clock: Clock) -> None:
    stream = io.StringIO()
    run = Run(ProgressBarLogger(stream=stream))
    run.fire("init")
    run.evaluate("val")
    assert stream.getvalue() == "[val] Accuracy=0.5 | 3 batches took 0:00\n"


def test_progress_goes_to_a_pipe_without_file_number() -> None:
    class Odd:
        """As little of a stream as can be."""

        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

    odd = Odd()
    run = Run(ProgressBarLogger(stream=odd)).start()  # type: ignore[arg-type]
    run.batch()
    assert "loss=1" in odd.text


# ---- progress bar: live -------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screens(self) -> list[str]:
        return [
            part.strip() for part in self.getvalue().replace("\n", "\r").split("\r") if part.strip()
        ]


def test_live_bars(clock: Clock) -> None:
    stream = Terminal()
    run = Run(ProgressBarLogger(stream=stream)).start()
    for _ in range(4):
        clock.now += 0.5
        run.batch()
    run.end_epoch()
    run.evaluate(length=2)
    run.fire("epoch_start")
    for _ in range(4):
        clock.now += 0.5
        run.batch()
    run.end_epoch()
    run.fire("fit_end")
    run.destination.close(run.state, run.logger)
    text = stream.getvalue()
    assert "epoch 1/2: 100%|" in text
    assert "4/4ba, loss=0.25 [0:02<0:02, 2 ba/s, 16 samples/s]" in text
    assert "eval: 100%|" in text
    assert "Accuracy=0.5" in text
    assert "epoch 2/2: 100%|" in text
    assert "[0:04<0:00" in text
    assert text.endswith("\n")


def test_live_bar_of_a_run_in_batches(clock: Clock) -> None:
    stream = Terminal()
    run = Run(ProgressBarLogger(stream=stream), make_state("6ba", length=4)).start()
    for _ in range(6):
        clock.now += 1.0
        run.batch()
    run.fire("fit_end")
    text = stream.getvalue()
    assert "train:  50%|" in text
    assert "6/6ba" in text
    assert "epoch" not in text


def test_two_trainers_keep_their_bars_apart(clock: Clock) -> None:
    streams = [Terminal(), Terminal()]
    runs = [Run(ProgressBarLogger(stream=stream)).start() for stream in streams]
    for loss in (1.0, 2.0):
        clock.now += 1.0
        runs[0].batch(loss)
        runs[1].batch(loss * 10)
    for run in runs:
        run.end_epoch()
        run.fire("fit_end")
        run.destination.close(run.state, run.logger)
    assert "loss=2" in streams[0].getvalue()
    assert "loss=20" not in streams[0].getvalue()
    assert "loss=20" in streams[1].getvalue()
    bars = progress_bar_module._bar_class()
    assert not list(bars._instances)


def test_close_after_an_error_leaves_no_bar(clock: Clock) -> None:
    run = Run(ProgressBarLogger(stream=Terminal())).start()
    run.batch()
    run.state.set_dataloader([None], "val")
    run.fire("eval_start")
    run.destination.close(run.state, run.logger)
    assert not list(progress_bar_module._bar_class()._instances)
    # Events after closing draw nothing.
    run.batch()


def test_no_watching_thread_is_left() -> None:
    import threading

    run = Run(ProgressBarLogger(stream=Terminal())).start()
    run.batch()
    assert not [t for t in threading.enumerate() if "TMonitor" in type(t).__name__]
    run.destination.close(run.state, run.logger)


def test_traces_are_printed_on_request() -> None:
    stream = io.StringIO()
    ProgressBarLogger(stream=stream).log_traces({"a": 1})
    assert stream.getvalue() == ""
    ProgressBarLogger(stream=stream, log_traces=True).log_traces({"a": math.inf})
    assert stream.getvalue() == "[trace] a: inf\n"


def test_the_log_of_a_finished_run_is_left_alone(tmp_path: Path) -> None:
    """What it wrote after its last checkpoint is not written again."""

    class Last(Callback):
        def fit_end(self, state: State, logger: Logger) -> None:
            logger.log_metrics({"word": 1})

    def start(duration: str) -> str:
        model = TinyModel()
        trainer = Trainer(
            model=model,
            train_dataloader=loader(),
            callbacks=[Last()],
            max_duration=duration,
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
            loggers=[FileLogger(str(tmp_path / "log.txt"))],
            save_folder=str(tmp_path / "checkpoints"),
            save_interval="2ba",
            autoresume=True,
            run_name="run",
            progress_bar=False,
            seed=0,
        )
        trainer.fit()
        trainer.close()
        return (tmp_path / "log.txt").read_text()

    first = start("3ba")
    assert first.count("word") == 1
    assert start("3ba").startswith(first)


def test_the_log_of_a_run_that_still_has_an_epoch_to_end_is_cut(tmp_path: Path) -> None:
    """All batches were trained and saved, but not the end of the epoch, which is done again."""

    class AtEnd(Callback):
        fails = True

        def epoch_end(self, state: State, logger: Logger) -> None:
            logger.log_metrics({"word": 1})
            if self.fails:
                raise RuntimeError("cut")

    def start(callback: AtEnd) -> None:
        model = TinyModel()
        batches = loader()
        trainer = Trainer(
            model=model,
            train_dataloader=batches,
            callbacks=[callback],
            max_duration=f"{len(batches)}ba",
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
            loggers=[FileLogger(str(tmp_path / "log.txt"))],
            save_folder=str(tmp_path / "checkpoints"),
            save_interval="1ba",
            autoresume=True,
            run_name="run",
            progress_bar=False,
            seed=0,
        )
        try:
            trainer.fit()
        finally:
            trainer.close()

    with pytest.raises(RuntimeError, match="cut"):
        start(AtEnd())
    assert (tmp_path / "log.txt").read_text().count("word") == 1
    whole = AtEnd()
    whole.fails = False
    start(whole)
    assert (tmp_path / "log.txt").read_text().count("word") == 1
