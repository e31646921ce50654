"""A run that is asked to end saves once, says how to go on, and goes on as if nothing had been."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from composer.core.callback import Callback
from composer.core.logger import Logger
from composer.core.state import State
from composer.loggers import InMemoryLogger
from composer.trainer import Trainer, TrainingInterrupted
from composer.trainer.interruption import EXIT_CODES, Interruption
from composer.utils import dist
from composer_testing.tiny import IdDataset, IdRecorder, TinyModel, loader


@pytest.fixture(autouse=True)
def _signals_as_in_a_terminal() -> Iterator[None]:
    """What runs in the background of a shell ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Ask(Callback):
    """Sends this process a signal at one event of one batch."""

    def __init__(self, event: str, batch: int, number: int = signal.SIGTERM, times: int = 1):
        self.event, self.batch, self.number, self.times = event, batch, number, times

    def run_event(self, event: Any, state: State, logger: Logger) -> None:
        if event.value == self.event and int(state.timestamp.batch) == self.batch and self.times:
            self.times -= 1
            os.kill(os.getpid(), self.number)


class Events(Callback):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def run_event(self, event: Any, state: State, logger: Logger) -> None:
        if event.value in ("eval_end", "batch_checkpoint", "epoch_checkpoint"):
            self.seen.append(f"{event.value} {int(state.timestamp.batch)}")


def metric() -> Any:
    from composer.metrics import MulticlassAccuracy

    return MulticlassAccuracy(3)


def run(folder: Path, *callbacks: Callback, **settings: Any) -> tuple[Trainer, InMemoryLogger]:
    torch.manual_seed(5)
    model = TinyModel(dropout=0.4, metric=metric)
    memory = InMemoryLogger()
    trainer = Trainer(
        model=model,
        train_dataloader=loader(24, 4),
        eval_dataloader=loader(12, 4, shuffle=False),
        max_duration=settings.pop("max_duration", "3ep"),
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.05),
        callbacks=list(callbacks),
        loggers=memory,
        run_name="run",
        save_folder=str(folder),
        save_interval="100ba",
        autoresume=True,
        progress_bar=False,
        seed=3,
        **settings,
    )
    return trainer, memory


def series(memory: InMemoryLogger) -> dict[str, list[Any]]:
    """What was logged, by name: pairs of batch and value."""
    return {
        name: [(int(timestamp.batch), float(value)) for timestamp, value in values]
        for name, values in memory.data.items()
    }


MOMENTS = {
    "in a batch": ("after_forward", 4),
    "at an epoch's last batch": ("before_backward", 5),
    "in an evaluation": ("eval_batch_start", 6),
    "in the last evaluation": ("eval_batch_end", 18),
    "at a checkpoint": ("batch_checkpoint", 7),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_interrupted_run_continues_exactly(
    tmp_path: Path, moment: str, asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    straight_ids, straight_events = IdRecorder(), Events()
    straight, straight_log = run(tmp_path / "straight", straight_ids, straight_events)
    straight.fit()
    straight.close()

    ids, events = IdRecorder(), Events()
    first, first_log = run(
        tmp_path / "cut", ids, events, Ask(*MOMENTS[moment]), save_async=asynchronous
    )
    with pytest.raises(TrainingInterrupted) as caught, caplog.at_level("WARNING", "composer"):
        first.fit()
    first.close()
    assert caught.value.code == 143
    assert caught.value.reason == "SIGTERM"
    saved = caught.value.checkpoint
    assert saved is not None
    assert f"it can be continued from {saved}" in caplog.text
    assert first.saved_checkpoints == [saved]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    second, second_log = run(tmp_path / "cut", ids, events)
    second.fit()
    second.close()
    assert ids.ids == straight_ids.ids
    assert ids.losses == straight_ids.losses
    for name, value in straight.state.model.state_dict().items():
        assert torch.equal(value, second.state.model.state_dict()[name]), name
    # Evaluations that were begun are done again, each batch's checkpoint event fires once more at
    # most, and what was logged is what the straight run logged.
    assert [e for e in dict.fromkeys(events.seen) if e.startswith("eval")] == [
        e for e in straight_events.seen if e.startswith("eval")
    ]
    logged, parts = series(straight_log), (series(first_log), series(second_log))
    for name in ("loss/train/total", "metrics/eval/Metric"):
        assert parts[0].get(name, []) + parts[1].get(name, []) == logged[name], name


@pytest.mark.parametrize("name", ["SIGINT", "SIGUSR1"])
def test_other_signals_have_codes_of_their_own(tmp_path: Path, name: str) -> None:
    trainer, _ = run(tmp_path, Ask("batch_start", 2, getattr(signal, name)))
    with pytest.raises(TrainingInterrupted) as caught:
        trainer.fit()
    trainer.close()
    assert (caught.value.code, caught.value.reason) == (EXIT_CODES[name], name)
    assert int(trainer.state.timestamp.batch) == 3


def test_a_signal_before_the_first_batch_saves_nothing(tmp_path: Path) -> None:
    trainer, _ = run(tmp_path, Ask("fit_start", 0))
    with pytest.raises(TrainingInterrupted) as caught:
        trainer.fit()
    trainer.close()
    assert caught.value.checkpoint is None
    assert trainer.saved_checkpoints == []
    assert int(trainer.state.timestamp.batch) == 0


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    class Twice(Callback):
        def after_forward(self, state: State, logger: Logger) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    trainer, _ = run(tmp_path, Twice())
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    trainer.close()
    assert int(trainer.state.timestamp.batch) == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_of_others_are_called_and_put_back(tmp_path: Path) -> None:
    heard: list[int] = []

    def mine(number: int, frame: Any) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGUSR1, mine)
    try:
        trainer, _ = run(tmp_path, Ask("batch_start", 2, signal.SIGUSR1))
        with pytest.raises(TrainingInterrupted):
            trainer.fit()
        trainer.close()
        assert heard == [signal.SIGUSR1]
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_run_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    trainer, _ = run(tmp_path)
    thread = threading.Thread(target=trainer.fit)
    thread.start()
    thread.join(60)
    trainer.close()
    assert int(trainer.state.timestamp.batch) == 18
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_time_limit_counts_from_the_start() -> None:
    now = [100.0]
    interruption = Interruption(5.0, clock=lambda: now[0])
    assert not interruption.asked
    now[0] = 104.9
    assert not interruption.asked
    now[0] = 105.0
    assert interruption.asked
    assert interruption.reason == "max_wall_clock"
    assert EXIT_CODES[interruption.reason] == 75


def test_a_time_limit_ends_the_run(tmp_path: Path) -> None:
    trainer, _ = run(tmp_path, max_wall_clock="1h")

    class Clock(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 3:
                trainer._interruption._deadline = 0.0

    trainer.state.callbacks.append(Clock())
    with pytest.raises(TrainingInterrupted) as caught:
        trainer.fit()
    trainer.close()
    assert (caught.value.code, int(trainer.state.timestamp.batch)) == (75, 4)
    assert caught.value.checkpoint is not None


def test_without_a_folder_the_run_ends_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model = TinyModel()
    trainer = Trainer(
        model=model,
        train_dataloader=loader(),
        max_duration="1ep",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=Ask("batch_start", 1),
        progress_bar=False,
    )
    with pytest.raises(TrainingInterrupted), caplog.at_level("WARNING", "composer"):
        trainer.fit()
    trainer.close()
    assert "nothing is saved, since there is no save_folder" in caplog.text


SCRIPT = """
import sys, time, torch
from composer import Trainer
from composer_testing.tiny import TinyModel, loader
model = TinyModel()
trainer = Trainer(model=model, train_dataloader=loader(24, 4), max_duration="100000ba",
    optimizers=torch.optim.SGD(model.parameters(), lr=0.1), save_folder=sys.argv[1],
    save_interval="10000000ba", progress_bar=False, seed=1)
from composer.core.callback import Callback
class Said(Callback):
    def batch_end(self, state, logger):
        if int(state.timestamp.batch) == 5:
            print("training", flush=True)
trainer.state.callbacks.append(Said())
trainer.fit()
"""


@pytest.mark.slow
def test_the_process_ends_with_the_code(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in told
    saved = list(tmp_path.glob("ep*.pt"))
    assert len(saved) == 1
    assert torch.load(saved[0], weights_only=True)["state"]["timestamp"]["batch"] >= 5


def test_the_checkpoint_of_the_end_is_kept_whatever_retention_says(tmp_path: Path) -> None:
    """With nothing but every tenth checkpoint kept, the newest still is what one continues from."""
    trainer, _ = run(
        tmp_path, Ask("batch_checkpoint", 12), save_keep_every=10, save_num_checkpoints_to_keep=0,
        save_filename="ba{batch}.pt",
    )  # fmt: skip
    assert trainer._saver is not None
    from composer.core.intervals import create_interval_scheduler

    trainer._saver.save_interval = create_interval_scheduler("1ba")
    with pytest.raises(TrainingInterrupted) as caught:
        trainer.fit()
    trainer.close()
    assert caught.value.checkpoint == str(tmp_path / "ba12.pt")
    assert sorted(p.name for p in tmp_path.glob("ba*.pt")) == ["ba10.pt", "ba12.pt"]


@pytest.mark.parametrize("event", ["after_forward", "epoch_end", "fit_end"])
def test_a_signal_at_the_very_end_loses_nothing(tmp_path: Path, event: str) -> None:
    """The epoch is finished; what is left of its evaluation is done by the run that continues."""
    batch = 11 if event == "after_forward" else 12
    trainer, memory = run(tmp_path, Ask(event, batch), max_duration="12ba")
    with pytest.raises(TrainingInterrupted) as caught:
        trainer.fit()
    assert caught.value.checkpoint is not None
    assert int(trainer.state.timestamp.epoch) == 2
    again, more = run(tmp_path, max_duration="12ba")
    again.fit()
    again.close()
    metric = "metrics/eval/Metric"
    evaluated = [*series(memory).get(metric, []), *series(more).get(metric, [])]
    assert [at for at, _ in evaluated] == [6, 12]
    # The request is answered: a further call trains on.
    trainer.state.max_duration = "13ba"
    trainer.fit()
    trainer.close()
    assert int(trainer.state.timestamp.batch) == 13


def test_a_run_that_was_killed_after_its_last_batch_finishes_its_epoch(tmp_path: Path) -> None:
    class Die(Callback):
        def batch_checkpoint(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 12:
                raise KeyboardInterrupt

    first, _ = run(tmp_path, max_duration="12ba")
    first.state.callbacks.append(Die())  # behind the saver, which has saved by then
    with pytest.raises(KeyboardInterrupt):
        first.fit()
    first.close()
    events = Events()
    second, memory = run(tmp_path, events, max_duration="12ba")
    second.fit()
    second.close()
    assert int(second.state.timestamp.epoch) == 2
    assert [pair[0] for pair in series(memory)["metrics/eval/Metric"]] == [12]


def test_the_same_request_told_again_ends_nothing(tmp_path: Path) -> None:
    trainer, _ = run(tmp_path, Ask("batch_start", 2, times=2), Ask("after_forward", 2))
    with pytest.raises(TrainingInterrupted) as caught:
        trainer.fit()
    trainer.close()
    assert caught.value.checkpoint is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_worker_processes_may_get_the_signal_too(tmp_path: Path, name: str) -> None:
    script = SCRIPT.replace("loader(24, 4)", "loader(24, 4, num_workers=2)")
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        os.killpg(process.pid, getattr(signal, name))
        _, told = process.communicate(timeout=60)
    assert process.returncode == EXIT_CODES[name], told
    assert len(list(tmp_path.glob("ep*.pt"))) == 1


class Killing(IdDataset):
    """Tells the process and its worker to end while the process waits for an item."""

    def __init__(self, size: int, at: int | None, mark: Path | None) -> None:
        super().__init__(size)
        self.at, self.mark = at, mark

    def __getitem__(self, index: int) -> Any:
        if index == self.at and self.mark is not None and not self.mark.exists():
            self.mark.touch()
            while not self.mark.with_name("waiting").exists():
                time.sleep(0.01)
            os.kill(os.getppid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Waiting(Callback):
    """Says when the batch is about to be drawn that an item ends."""

    def __init__(self, folder: str) -> None:
        self.mark = Path(folder, "waiting")

    def before_dataloader(self, state: State, logger: Logger) -> None:
        if int(state.timestamp.batch) == 2:
            self.mark.touch()


def cut_by_workers(folder: str, told: tuple[int, ...], where: str) -> Any:
    """How a run on this rank ends, whose workers end with the signal on some of the ranks."""
    rank = dist.get_global_rank()
    mark = Path(folder, f"told-{rank}") if rank in told else None
    data = Killing(24, 8 + rank if where == "training" else None, mark)
    held_out = Killing(12, rank if where == "evaluation" else None, mark)
    sampler = dist.get_sampler(data, shuffle=False)
    torch.manual_seed(5)
    model, ids = TinyModel(metric=metric), IdRecorder()
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(data, 2, sampler=sampler, num_workers=1, prefetch_factor=1),
        eval_dataloader=DataLoader(
            held_out, 2, sampler=dist.get_sampler(held_out, shuffle=False), num_workers=1
        ),
        eval_interval="3ba",
        max_duration="6ba",
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.05),
        callbacks=[ids, Waiting(folder)],
        run_name="run",
        save_folder=folder,
        save_interval="100ba",
        autoresume=True,
        progress_bar=False,
        seed=3,
    )
    ended: Any = None
    try:
        trainer.fit()
    except TrainingInterrupted as error:
        ended = error.code
    finally:
        trainer.close()
    weights = [value.tolist() for value in model.parameters()]
    return ended, int(trainer.state.timestamp.batch), ids.ids, weights


@pytest.mark.slow
@pytest.mark.parametrize("where", ["training", "evaluation"])
@pytest.mark.parametrize("told", [(0,), (1,), (0, 1)])
def test_workers_that_end_with_the_signal_on_some_ranks(
    ranks: Any, tmp_path: Path, told: tuple[int, ...], where: str
) -> None:
    straight = ranks.run(cut_by_workers, str(tmp_path / "straight"), (), where)
    folder = tmp_path / "cut"
    folder.mkdir()
    first = ranks.run(cut_by_workers, str(folder), told, where)
    assert [ended for ended, *_ in first] == [143, 143]
    assert first[0][1] == first[1][1] == (2 if where == "training" else 3)
    assert len(list(folder.glob("ep*.pt"))) == 1
    second = ranks.run(cut_by_workers, str(folder), (), where)
    for one, other, whole in zip(first, second, straight, strict=True):
        assert whole[0] is None
        assert one[2] + other[2] == whole[2]
        assert other[3] == whole[3]


def test_an_evaluation_that_was_made_up_for_is_not_done_again(tmp_path: Path) -> None:
    """Cut, done by the next process, which is ended before it trains: the third goes on behind."""
    first, one = run(tmp_path, Ask("eval_batch_start", 6))
    with pytest.raises(TrainingInterrupted):
        first.fit()
    first.close()
    second, two = run(tmp_path, Ask("eval_after_all", 6))
    with pytest.raises(TrainingInterrupted) as caught:
        second.fit()
    second.close()
    assert caught.value.checkpoint is not None
    third, three = run(tmp_path)
    third.fit()
    third.close()
    metric = "metrics/eval/Metric"
    evaluated = [pair for log in (one, two, three) for pair in series(log).get(metric, [])]
    assert [at for at, _ in evaluated] == [6, 12, 18]


def streams() -> list[Any]:
    return [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]


class Streams(Callback):
    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}

    def batch_start(self, state: State, logger: Logger) -> None:
        self.seen[int(state.timestamp.batch)] = streams()


@pytest.mark.parametrize("batch", [4, 6])
def test_cut_again_and_again_in_one_evaluation_it_continues_exactly(
    tmp_path: Path, batch: int
) -> None:
    whole = Streams()
    trainer, _ = run(tmp_path / "a", whole, eval_interval="2ba")
    trainer.fit()
    trainer.close()
    seen: dict[int, Any] = {}
    for asked in (Ask("eval_batch_end", batch), Ask("eval_batch_start", batch),
                  Ask("eval_after_all", batch), None):  # fmt: skip
        part = Streams()
        random.random()  # as of a process of its own
        again, _ = run(tmp_path / "b", part, *([asked] if asked else []), eval_interval="2ba")
        with contextlib.suppress(TrainingInterrupted):
            again.fit()
        again.close()
        seen.update(part.seen)
    assert seen == whole.seen
    for name, value in trainer.state.model.state_dict().items():
        assert torch.equal(value, again.state.model.state_dict()[name]), name


@pytest.mark.parametrize("late", [False, True], ids=["data at once", "data with fit"])
def test_a_save_before_the_first_batch_carries_what_is_still_to_be_restored(
    tmp_path: Path, late: bool
) -> None:
    def make(**settings: Any) -> Trainer:
        torch.manual_seed(5)
        model = TinyModel(dropout=0.4)
        return Trainer(
            model=model, max_duration="2ep", progress_bar=False, seed=3,
            optimizers=torch.optim.SGD(model.parameters(), lr=0.05), **settings,
        )  # fmt: skip

    def data() -> Any:
        return loader(24, 4, generator=torch.Generator().manual_seed(8))

    straight = make(train_dataloader=data())
    straight.fit(duration="3ba")
    path = straight.save_checkpoint(str(tmp_path / "3.pt"))
    straight.fit(duration="6ba")
    straight.close()
    between = make(load_path=path, **({} if late else {"train_dataloader": data()}))
    path = between.save_checkpoint(str(tmp_path / "again.pt"))
    between.close()
    last = make(load_path=path, train_dataloader=data())
    last.fit(duration="6ba")
    last.close()
    for name, value in straight.state.model.state_dict().items():
        assert torch.equal(value, last.state.model.state_dict()[name]), name


def test_the_last_evaluation_is_made_up_for_once(tmp_path: Path) -> None:
    """Cut behind the end of the training; later starts of the finished run find it done."""
    settings: dict[str, Any] = {"eval_interval": "100ba"}  # at the end of `fit`, that is
    first, one = run(tmp_path, Ask("eval_batch_end", 18), **settings)
    with pytest.raises(TrainingInterrupted):
        first.fit()
    first.close()
    logs = [one]
    for _ in range(2):
        again, log = run(tmp_path, **settings)
        again.fit()
        again.close()
        logs.append(log)
        saved = torch.load(tmp_path / "ep3-ba18-rank0.pt", weights_only=True)
        assert saved["state"]["pending_evaluations"] == {}
    metric = "metrics/eval/Metric"
    assert [[at for at, _ in series(log).get(metric, [])] for log in logs] == [[], [18], []]


def test_the_last_evaluation_is_not_lost_where_nothing_is_saved(tmp_path: Path) -> None:
    first, _ = run(tmp_path, Ask("eval_batch_end", 18), eval_interval="100ba")
    with pytest.raises(TrainingInterrupted):
        first.fit()
    first.close()
    for _ in range(2):
        memory = InMemoryLogger()
        model = TinyModel(dropout=0.4, metric=metric)
        trainer = Trainer(
            model=model, train_dataloader=loader(24, 4), max_duration="3ep", progress_bar=False,
            eval_dataloader=loader(12, 4, shuffle=False), eval_interval="100ba", loggers=memory,
            optimizers=torch.optim.AdamW(model.parameters(), lr=0.05),
            load_path=str(tmp_path / "ep3-ba18-rank0.pt"),
        )  # fmt: skip
        trainer.fit()
        trainer.close()
        assert [at for at, _ in series(memory)["metrics/eval/Metric"]] == [18]


INSIDE = ["batch_start", "after_forward", "batch_end", "eval_start", "epoch_end", "fit_start"]


@pytest.mark.parametrize("event", INSIDE)
def test_a_run_inside_a_run_ends_both_in_good_order(tmp_path: Path, event: str) -> None:
    at = {"epoch_end": 6, "eval_start": 6, "fit_start": 0}.get(event, 4)

    class Probe(Callback):
        """Trains another model on the side, during which the signal comes."""

        def run_event(self, now: Any, state: State, logger: Logger) -> None:
            if now.value != event or int(state.timestamp.batch) != at:
                return
            model = TinyModel()
            inner = Trainer(
                model=model, train_dataloader=loader(), max_duration="1ep", progress_bar=False,
                optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
                callbacks=Ask("batch_start", 1), save_folder=str(tmp_path / "inner"),
            )  # fmt: skip
            try:
                inner.fit()
            finally:
                inner.close()

    outer, _ = run(tmp_path / "outer", Probe())
    with pytest.raises(TrainingInterrupted) as caught:
        outer.fit()
    outer.close()
    assert (caught.value.code, caught.value.reason) == (143, "SIGTERM")
    assert len(list((tmp_path / "inner").glob("ep*.pt"))) == 1
    if event == "fit_start":
        assert caught.value.checkpoint is None  # nothing was trained
        return
    assert caught.value.checkpoint is not None
    saved = torch.load(caught.value.checkpoint, weights_only=True)["state"]["timestamp"]["batch"]
    assert saved == at + (event in ("batch_start", "after_forward"))
