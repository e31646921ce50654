"""Saving behind the training: a private copy, one at a time, failures that surface."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.callbacks import CheckpointSaver
from composer.checkpoint import places as places_module
from composer.checkpoint import read_checkpoint, verify
from composer.checkpoint.background import Background, HostBuffers
from composer.core.algorithm import Algorithm
from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.logger import Logger
from composer.core.state import State
from composer.trainer import Trainer
from composer_testing.tiny import TinyModel, loader, state_of


def trainer(saver: CheckpointSaver, *others: Callback, **settings: Any) -> Trainer:
    torch.manual_seed(0)
    model = TinyModel()
    settings.setdefault("max_duration", "2ep")
    return Trainer(
        model=model,
        train_dataloader=loader(16, 4),
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.1),
        callbacks=[saver, *others],
        progress_bar=False,
        seed=1,
        **settings,
    )


class Slow:
    """Holds every write back until it is let go, and counts those that are under way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.started = threading.Event()
        self.now = self.most = 0
        self.threads: set[str] = set()
        real = places_module.write_checkpoint

        def write(*arguments: Any) -> Any:
            self.now += 1
            self.most = max(self.most, self.now)
            self.threads.add(threading.current_thread().name)
            self.started.set()
            try:
                assert self.go.wait(20)
                return real(*arguments)
            finally:
                self.now -= 1

        monkeypatch.setattr(places_module, "write_checkpoint", write)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    writer = Slow(monkeypatch)
    yield writer
    writer.go.set()


# ---- the copy -----------------------------------------------------------------------------------


def test_a_copy_is_private_and_its_memory_is_used_again() -> None:
    buffers = HostBuffers()
    source = {
        "a": torch.arange(6.0).reshape(2, 3),
        "t": torch.arange(6.0).reshape(2, 3).t(),
        "image": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "n": [1, {"x": (torch.tensor(2), "s")}],
        "half": torch.ones(3, dtype=torch.bfloat16),
        "complex": torch.tensor([1 + 2j]),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "empty": torch.empty(0, 3),
        "part": torch.arange(10)[::2],
        "sparse": torch.eye(3).to_sparse(),
    }
    source["same"] = source["a"]
    copy = buffers.fill(source)
    for name, value in source.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(copy[name].to_dense(), value.to_dense()), name
            assert copy[name].dtype is value.dtype
    assert copy["image"].is_contiguous(memory_format=torch.channels_last)
    assert copy["same"] is copy["a"]
    before = copy["a"].clone()
    places = {name: copy[name].data_ptr() for name in ("a", "t", "image")}
    source["a"].add_(1)
    source["n"][1]["y"] = 3
    assert torch.equal(copy["a"], before)
    assert copy["n"] == [1, {"x": (torch.tensor(2), "s")}]
    again = buffers.fill(source)
    assert torch.equal(again["a"], source["a"])
    assert {name: again[name].data_ptr() for name in places} == places


def test_memory_that_is_not_needed_any_more_is_given_back() -> None:
    buffers = HostBuffers()
    buffers.fill([torch.zeros(3), torch.zeros(4)])
    buffers.fill([torch.zeros(3)])
    assert [b.shape for found in buffers._free.values() for b in found] == [(3,)]
    buffers.release()
    assert not buffers._free


# ---- in a run -----------------------------------------------------------------------------------


def test_what_is_written_is_the_moment_of_the_save(tmp_path: Path, slow: Slow) -> None:
    """Tensors, an optimizer's state and plain counters, all changed before the write begins."""

    class Counter(Callback):
        n = 0
        inner = [0]

        def batch_end(self, state: State, logger: Logger) -> None:
            self.n += 1
            self.inner[0] += 1

        def state_dict(self) -> dict[str, Any]:
            return {"n": self.n, "inner": self.inner, "place": torch.zeros(1) + self.n}

    class Expected(Callback):
        def batch_checkpoint(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 3:
                self.weights = state.model.linear.weight.detach().clone()
                self.moments = [
                    s["exp_avg"].clone() for s in state.optimizers[0].state_dict()["state"].values()
                ]

        def batch_end(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 5:
                assert slow.started.wait(20)
                slow.go.set()

    saver, expected = (
        CheckpointSaver(tmp_path, "ba{batch}.pt", save_interval="3ba", async_save=True),
        Expected(),
    )
    t = trainer(saver, Counter(), expected, max_duration="5ba")
    t.fit()
    state = read_checkpoint(tmp_path / "ba3.pt")["state"]
    assert torch.equal(state["model"]["linear.weight"], expected.weights)
    stored = [s["exp_avg"] for s in state["optimizers"][0]["state"]["state"].values()]
    for value, wanted in zip(stored, expected.moments, strict=True):
        assert torch.equal(value, wanted)
    counter = next(c["state"] for c in state["callbacks"] if c["type"].endswith("Counter"))
    assert (counter["n"], counter["inner"], float(counter["place"])) == (3, [3], 3.0)
    assert state["timestamp"]["batch"] == 3
    assert slow.threads == {"checkpoint ba3.pt", "checkpoint ba5.pt"}
    t.close()


def test_files_are_those_of_a_save_that_blocks(tmp_path: Path) -> None:
    for name, async_save in (("a", False), ("b", True)):
        saver = CheckpointSaver(
            tmp_path / name,
            "ba{batch}.pt",
            save_interval="1ba",
            async_save=async_save,
            num_checkpoints_to_keep=2,
            keep_every=3,
        )
        t = trainer(saver, run_name="r")
        t.fit()
        t.close()
    names = [sorted(p.name for p in (tmp_path / n).iterdir()) for n in "ab"]
    assert names[0] == names[1]
    assert [n for n in names[0] if n.endswith(".pt")] == [
        *("ba3.pt", "ba6.pt", "ba7.pt", "ba8.pt", "latest-rank0.pt")
    ]
    for name in ("ba6.pt", "ba8.pt"):
        a, b = (read_checkpoint(tmp_path / n / name)["state"] for n in "ab")
        assert a["callbacks"][0]["state"].keys() == b["callbacks"][0]["state"].keys()
        assert a["callbacks"][0]["state"]["indices"] == b["callbacks"][0]["state"]["indices"]
        for key, value in a["model"].items():
            assert torch.equal(value, b["model"][key])
    assert verify(tmp_path / "b" / "latest-rank0.pt") == []


def test_contexts_of_algorithms_end_with_the_copy(tmp_path: Path, slow: Slow) -> None:
    seen: list[str] = []

    class Swap(Algorithm):
        events = frozenset()

        def apply(self, event: Event, state: State, logger: Logger) -> None: ...

        def saving(self, state: State) -> Any:
            from contextlib import contextmanager

            @contextmanager
            def swapped() -> Iterator[None]:
                weight = state.model.linear.weight
                kept = weight.detach().clone()
                with torch.no_grad():
                    weight.fill_(7)
                yield
                with torch.no_grad():
                    weight.copy_(kept)
                seen.append("left" if not slow.go.is_set() else "late")

            return swapped()

    state = state_of(algorithms=[Swap()])
    saver = CheckpointSaver(tmp_path, "a.pt", async_save=True)
    saver.save(state, Logger(state))
    assert seen == ["left"]
    slow.go.set()
    saver.wait()
    stored = read_checkpoint(tmp_path / "a.pt")["state"]["model"]["linear.weight"]
    assert torch.equal(stored, torch.full((3, 4), 7.0))
    assert not torch.equal(state.model.linear.weight, stored)


def test_one_at_a_time_and_the_wait_is_said_once(
    tmp_path: Path, slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    saver = CheckpointSaver(tmp_path, "ba{batch}.pt", save_interval="1ba", async_save=True)

    class Release(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 1:
                threading.Timer(0.2, slow.go.set).start()

    t = trainer(saver, Release(), max_duration="4ba")
    with caplog.at_level(logging.WARNING):
        t.fit()
    assert slow.most == 1
    assert caplog.text.count("training waited") == 1
    assert float(caplog.text.split("waited ")[1].split(" s")[0]) > 0
    assert sorted(p.name for p in tmp_path.glob("ba*.pt")) == [f"ba{i}.pt" for i in (1, 2, 3, 4)]
    t.close()


def test_the_pointer_moves_behind_the_write(tmp_path: Path, slow: Slow) -> None:
    state = state_of()
    saver = CheckpointSaver(tmp_path, "ba{batch}.pt", async_save=True, num_checkpoints_to_keep=1)
    slow.go.set()
    saver.save(state, Logger(state))
    saver.wait()
    slow.go.clear()
    state.timestamp = state.timestamp.to_next_batch(4)
    saver.save(state, Logger(state))
    assert str((tmp_path / "latest-rank0.pt").readlink()) == "ba0.pt"
    assert verify(tmp_path / "ba0.pt") == []
    slow.go.set()
    saver.wait()
    assert str((tmp_path / "latest-rank0.pt").readlink()) == "ba1.pt"
    assert saver.saved_checkpoints == [str(tmp_path / "ba1.pt")]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("ba1.pt", "ba1.pt.manifest.json", "latest-rank0.pt")
    ]


def test_the_end_of_fit_and_closing_wait(tmp_path: Path, slow: Slow) -> None:
    saver = CheckpointSaver(tmp_path, "ba{batch}.pt", save_interval="2ba", async_save=True)
    t = trainer(saver, max_duration="2ba")
    threading.Timer(0.2, slow.go.set).start()
    t.fit()
    assert verify(tmp_path / "latest-rank0.pt") == []
    slow.go.clear()
    t.state.timestamp = t.state.timestamp.to_next_batch(4)
    saver.save(t.state, t.logger)
    threading.Timer(0.2, slow.go.set).start()
    t.close()
    assert verify(tmp_path / "ba3.pt") == []


# ---- failures -----------------------------------------------------------------------------------


def fail_from(monkeypatch: pytest.MonkeyPatch, batch: int, error: Exception) -> None:
    real = places_module.write_checkpoint

    def write(path: Path, *arguments: Any) -> Any:
        if int(Path(path).name.strip("ba.pt")) >= batch:
            raise error
        return real(path, *arguments)

    monkeypatch.setattr(places_module, "write_checkpoint", write)


def test_a_failure_surfaces_at_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []

    class Wait(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            batches.append(int(state.timestamp.batch))
            if saver._background._thread is not None:
                saver._background._thread.join()

    saver = CheckpointSaver(tmp_path, "ba{batch}.pt", save_interval="2ba", async_save=True)
    error = PermissionError(13, "not here")
    fail_from(monkeypatch, 4, error)
    t = trainer(saver, Wait())
    with pytest.raises(PermissionError, match="not here") as caught:
        t.fit()
    assert caught.value is error
    assert "while the checkpoint ba4.pt was written" in caught.value.__notes__[0]
    assert batches == [0, 1, 2, 3, 4]
    assert saver.saved_checkpoints == [str(tmp_path / "ba2.pt")]
    assert str((tmp_path / "latest-rank0.pt").readlink()) == "ba2.pt"
    assert verify(tmp_path / "ba2.pt") == []
    saver.wait()
    t.close()


def test_a_failure_of_the_last_save_surfaces_at_the_end_of_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = CheckpointSaver(tmp_path, "ba{batch}.pt", save_interval="8ba", async_save=True)
    fail_from(monkeypatch, 0, OSError(28, "No space left on device"))
    t = trainer(saver)
    with pytest.raises(OSError, match="No space left"):
        t.fit()
    assert saver.saved_checkpoints == []
    t.close()


def test_a_failure_at_closing_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    saver = CheckpointSaver(tmp_path, "ba{batch}.pt", async_save=True)
    fail_from(monkeypatch, 0, OSError(28, "No space left on device"))
    t = trainer(saver)
    saver.save(t.state, t.logger)
    t.close()
    assert "No space left" in caplog.text


def test_a_store_that_never_answers_does_not_hold_for_ever() -> None:
    release = threading.Event()
    background = Background(timeout=0.1)
    background.start(lambda: release.wait(20), "a.pt")
    with pytest.raises(TimeoutError, match=r"a\.pt takes longer than"):
        background.wait()
    assert background.busy  # it was not waited for to its end
    release.set()
    background.wait()


_EXIT = """
import sys, time, torch
from composer.callbacks import CheckpointSaver
from composer.checkpoint import places
from composer.core.logger import Logger
from composer_testing.tiny import state_of
real = places.write_checkpoint
def slow(*arguments):
    time.sleep({seconds})
    return real(*arguments)
places.write_checkpoint = slow
state = state_of()
saver = CheckpointSaver(sys.argv[1], "a.pt", async_save=True, upload_timeout_in_seconds={timeout})
saver.save(state, Logger(state))
print("saved", flush=True)
raise RuntimeError("training went wrong")
"""


@pytest.mark.slow
def test_the_end_of_the_process_waits_for_the_write_and_not_for_ever(tmp_path: Path) -> None:
    for name, seconds, timeout in (("waits", 0.5, 60), ("hangs", 600, 0.5)):
        folder = tmp_path / name
        code = _EXIT.format(seconds=seconds, timeout=timeout)
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 1
        assert "training went wrong" in done.stderr
        if name == "waits":
            assert verify(folder / "latest-rank0.pt") == []
        else:
            assert "a.pt was not written" in done.stderr
            assert not (folder / "a.pt").exists()
