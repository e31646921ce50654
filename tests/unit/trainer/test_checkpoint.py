"""Checkpoint files: plain, whole or not there, refused with a reason."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.callbacks import CheckpointSaver
from composer.checkpoint import load_checkpoint, read_checkpoint, verify
from composer.checkpoint.retention import Record, Retention
from composer.checkpoint.save import save_checkpoint
from composer.core.algorithm import Algorithm
from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.logger import Logger
from composer.core.state import State
from composer.trainer import Trainer
from composer_testing.tiny import TinyModel, loader, state_of


def trainer(model: TinyModel | None = None, **settings: Any) -> Trainer:
    model = model or TinyModel()
    settings.setdefault("max_duration", "2ep")
    return Trainer(
        model=model,
        train_dataloader=loader(16, 4),
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        progress_bar=False,
        seed=1,
        **settings,
    )


def fitted(**settings: Any) -> Trainer:
    t = trainer(**settings)
    t.fit()
    t.close()
    return t


def test_a_checkpoint_is_one_plain_file(tmp_path: Path) -> None:
    from composer.optim import LinearScheduler

    t = fitted(save_folder=str(tmp_path), schedulers=LinearScheduler(), precision="amp_fp16")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "ep1-ba4-rank0.pt",
        "ep1-ba4-rank0.pt.manifest.json",
        "ep2-ba8-rank0.pt",
        "ep2-ba8-rank0.pt.manifest.json",
        "latest-rank0.pt",
    ]
    assert str((tmp_path / "latest-rank0.pt").readlink()) == "ep2-ba8-rank0.pt"
    assert t.saved_checkpoints == [str(tmp_path / f"ep{i}-ba{4 * i}-rank0.pt") for i in (1, 2)]
    contents = torch.load(tmp_path / "latest-rank0.pt", weights_only=True)
    state = contents["state"]
    assert state["timestamp"]["batch"] == 8
    assert state["run_name"] == t.state.run_name
    assert set(state["model"]) == {"linear.weight", "linear.bias"}
    assert state["optimizers"][0]["type"] == "SGD"
    assert contents["metadata"]["dataloader_batch_size"] == 4
    assert len(contents["rng"]) == 1


def test_weights_only(tmp_path: Path) -> None:
    t = trainer()
    path = t.save_checkpoint(str(tmp_path / "w.pt"), weights_only=True)
    assert path is not None
    contents = torch.load(path, weights_only=True)
    assert sorted(contents) == ["format", "metadata", "state"]
    assert list(contents["state"]) == ["model", "integrations"]
    other = trainer(load_path=path, load_weights_only=True)
    for a, b in zip(t.state.model.parameters(), other.state.model.parameters(), strict=True):
        assert torch.equal(a, b)
    t.close()
    other.close()


def test_saving_to_the_folder_by_hand(tmp_path: Path) -> None:
    t = trainer(save_folder=str(tmp_path))
    t.save_checkpoint_to_save_folder()
    assert (tmp_path / "ep0-ba0-rank0.pt").exists()
    t.close()
    with pytest.raises(ValueError, match="save_folder"):
        trainer().save_checkpoint_to_save_folder()


@pytest.mark.parametrize(("keep", "left"), [(-1, [2, 4, 6, 8]), (2, [6, 8]), (1, [8]), (0, [8])])
def test_retention(keep: int, left: list[int], tmp_path: Path) -> None:
    t = fitted(save_folder=str(tmp_path), save_interval="2ba", save_num_checkpoints_to_keep=keep)
    on_disk = sorted(int(p.name.split("-ba")[1].split("-")[0]) for p in tmp_path.glob("ep*.pt"))
    assert on_disk == left
    assert len(t.saved_checkpoints) == len(left)
    assert (tmp_path / "latest-rank0.pt").exists() == bool(left)


def test_retention_counts_earlier_sessions(tmp_path: Path) -> None:
    fitted(save_folder=str(tmp_path), save_interval="2ba", max_duration="4ba",
           save_num_checkpoints_to_keep=2)  # fmt: skip
    fitted(
        save_folder=str(tmp_path),
        save_interval="2ba",
        max_duration="8ba",
        save_num_checkpoints_to_keep=2,
        load_path=str(tmp_path / "latest-rank0.pt"),
        save_overwrite=True,
    )
    on_disk = sorted(int(p.name.split("-ba")[1].split("-")[0]) for p in tmp_path.glob("ep*.pt"))
    assert on_disk == [6, 8]


def test_files_of_other_runs_are_never_deleted(tmp_path: Path) -> None:
    """A run that starts from another's checkpoint keeps its own count and its hands off."""
    a, b = tmp_path / "a", tmp_path / "b"
    fitted(save_folder=str(a), save_interval="2ba", max_duration="4ba")
    fitted(
        save_folder=str(b),
        save_interval="2ba",
        max_duration="8ba",
        save_num_checkpoints_to_keep=1,
        load_path=str(a / "latest-rank0.pt"),
    )
    assert sorted(p.name for p in a.glob("ep*.pt")) == ["ep0-ba2-rank0.pt", "ep0-ba4-rank0.pt"]
    assert [p.name for p in b.glob("ep*.pt")] == ["ep1-ba8-rank0.pt"]


@pytest.mark.parametrize("how", ["absolute", "upwards", "inside", "through"])
def test_a_checkpoint_cannot_have_files_deleted(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fitted(save_folder=str(folder), max_duration="4ba", save_interval="2ba")
    victim = (folder if how == "inside" else tmp_path) / "notes.pt"
    victim.write_text("mine")
    (folder / "ep0-ba1-rank").mkdir()
    name = {
        "absolute": str(victim),
        "upwards": "../notes.pt",
        "inside": "notes.pt",
        "through": "ep0-ba1-rank/../../notes.pt",  # fits the template, whose rank may be anything
    }[how]
    file = folder / "ep0-ba2-rank0.pt"
    contents = torch.load(file, weights_only=True)
    contents["state"]["callbacks"][0]["state"]["saved_checkpoints"] = [name]
    rewrite(contents, file)
    fitted(
        save_folder=str(folder),
        max_duration="8ba",
        save_interval="1ba",
        save_num_checkpoints_to_keep=1,
        save_overwrite=True,
        load_path=str(file),
    )
    assert victim.read_text() == "mine"


def test_files_that_lay_in_the_folder_before_are_not_counted(tmp_path: Path) -> None:
    """Names in a checkpoint from elsewhere do not make this folder's files this run's."""
    a, c = tmp_path / "a", tmp_path / "c"
    fitted(save_folder=str(a), save_interval="1ba", max_duration="4ba")
    c.mkdir()
    other = c / "ep0-ba2-rank0.pt"
    other.write_bytes((a / other.name).read_bytes())
    fitted(
        save_folder=str(c),
        save_interval="1ba",
        max_duration="6ba",
        save_num_checkpoints_to_keep=1,
        load_path=str(a / "ep0-ba4-rank0.pt"),
    )
    assert other.exists()


def test_the_folder_stays_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    (there / "ck").mkdir(parents=True)
    other = there / "ck" / "ep0-ba2-rank0.pt"
    other.write_bytes(b"another run's")

    class Move(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 2:
                monkeypatch.chdir(there)

    monkeypatch.chdir(tmp_path)
    fitted(
        save_folder="ck",
        save_interval="1ba",
        max_duration="4ba",
        save_num_checkpoints_to_keep=1,
        callbacks=Move(),
    )
    assert other.read_bytes() == b"another run's"
    assert [p.name for p in (tmp_path / "ck").glob("ep*.pt")] == ["ep0-ba4-rank0.pt"]


def test_a_moved_folder_keeps_its_count(tmp_path: Path) -> None:
    fitted(save_folder=str(tmp_path / "old"), save_interval="2ba", max_duration="4ba")
    (tmp_path / "old").rename(tmp_path / "new")
    t = fitted(
        save_folder=str(tmp_path / "new"),
        save_interval="2ba",
        max_duration="8ba",
        save_num_checkpoints_to_keep=2,
        load_path=str(tmp_path / "new" / "latest-rank0.pt"),
        save_overwrite=True,
    )
    left = sorted(p.name for p in (tmp_path / "new").glob("ep*.pt"))
    assert left == ["ep1-ba6-rank0.pt", "ep1-ba8-rank0.pt"]
    assert [Path(p).parent.name for p in t.saved_checkpoints] == ["new", "new"]


def test_the_end_of_a_run_that_started_over_is_saved(tmp_path: Path) -> None:
    t = trainer(
        save_folder=str(tmp_path), save_interval="100ba", max_duration="4ba", save_overwrite=True
    )
    t.fit()
    t.fit(reset_time=True)
    stored = torch.load(tmp_path / "latest-rank0.pt", weights_only=True)["state"]["model"]
    for name, value in t.state.model.state_dict().items():
        assert torch.equal(stored[name], value)
    t.close()


def test_an_epochs_end_that_is_the_runs_end_is_saved_once(tmp_path: Path) -> None:
    fitted(save_folder=str(tmp_path), save_interval="1ep", max_duration="8ba")
    assert len(list(tmp_path.glob("ep*-ba8-*.pt"))) == 1


def test_leftovers_of_a_killed_save_are_removed_in_time(tmp_path: Path) -> None:
    old, new, other = (
        tmp_path / name
        for name in (
            ".ep1-ba4-rank0.pt.0123456789ab.tmp",
            ".ep2-ba8-rank0.pt.0123456789ab.tmp",
            ".notes.0123456789ab.tmp",
        )
    )
    for path in (old, new, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (0, 0))
    (tmp_path / ".x.0123456789ab.tmp").symlink_to("/nowhere")
    trainer(save_folder=str(tmp_path)).close()
    assert [p.exists() for p in (old, new, other)] == [False, True, True]


def test_the_same_moment_is_saved_once(tmp_path: Path) -> None:
    written: list[str] = []

    class Count(CheckpointSaver):
        def save(self, state: State, logger: Logger) -> str | None:
            path = super().save(state, logger)
            written.append(Path(str(path)).name)
            return path

    saver = Count(str(tmp_path), save_interval="3ba")
    fitted(max_duration="8ba", callbacks=saver)
    assert written == ["ep0-ba3-rank0.pt", "ep1-ba6-rank0.pt", "ep1-ba8-rank0.pt"]


def test_files_of_another_run_are_not_overwritten(tmp_path: Path) -> None:
    fitted(save_folder=str(tmp_path))
    before = (tmp_path / "ep2-ba8-rank0.pt").read_bytes()
    t = trainer(save_folder=str(tmp_path))
    with pytest.raises(FileExistsError, match=r"ep1-ba4-rank0.pt"):
        t.fit()
    t.close()
    assert (tmp_path / "ep2-ba8-rank0.pt").read_bytes() == before
    fitted(save_folder=str(tmp_path), save_overwrite=True)


def test_a_file_named_like_the_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "latest-rank0.pt").write_text("mine")
    with pytest.raises(FileExistsError, match="save_latest_filename"):
        trainer(save_folder=str(tmp_path))
    assert (tmp_path / "latest-rank0.pt").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="save_folder"):
        trainer(save_folder=str(tmp_path / "file" / "folder"))


# ---- kills --------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_of()
    path = save_checkpoint(state, str(tmp_path / "a.pt"))
    assert path is not None
    before = Path(path).read_bytes()

    def half(contents: Any, file: Any) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(state, str(tmp_path / "a.pt"))
    assert Path(path).read_bytes() == before
    assert verify(path) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pt", "a.pt.manifest.json"]


def test_a_failed_save_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    t = trainer(save_folder=str(tmp_path))
    t.save_checkpoint_to_save_folder()

    def fails(contents: Any, file: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fails)
    t.state.timestamp = t.state.timestamp.to_next_batch(4)
    with pytest.raises(OSError, match="No space"):
        t.save_checkpoint_to_save_folder()
    assert [Path(p).name for p in t.saved_checkpoints] == ["ep0-ba0-rank0.pt"]
    assert str((tmp_path / "latest-rank0.pt").readlink()) == "ep0-ba0-rank0.pt"
    t.close()


_KILLED = """
import sys, torch
from composer.checkpoint.save import save_checkpoint
from composer_testing.tiny import state_of
state = state_of(torch.nn.Linear(700, 700))
n = 0
while True:
    n += 1
    state.num_skipped_steps = n
    with torch.no_grad():
        state.model.weight.fill_(n)
    save_checkpoint(state, sys.argv[1])
    print(n, flush=True)
"""


@pytest.mark.slow
def test_kill_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    for attempt in range(3):
        command = [sys.executable, "-c", _KILLED, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.03 + 0.041 * attempt)
            process.kill()
            said = [int(line) for line in process.stdout.read().split()]
        state = read_checkpoint(path)["state"]
        n = state["num_skipped_steps"]
        assert n >= max(said, default=1)
        assert torch.equal(state["model"]["weight"], torch.full((700, 700), float(n)))


# ---- bad files ----------------------------------------------------------------------------------


def rewrite(contents: Any, path: Path) -> None:
    """Change a checkpoint by hand; without its manifest, which would tell."""
    torch.save(contents, path)
    path.with_name(path.name + ".manifest.json").unlink()


class _Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.marker, "executed"))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    t = fitted(save_folder=str(tmp_path / "good"))
    return Path(t.saved_checkpoints[-1])


@pytest.mark.parametrize("cut", [0, 1, 100, 0.5, -1, -100])
def test_a_file_cut_short_is_told(cut: float, good: Path) -> None:
    data = good.read_bytes()
    good.write_bytes(data[: int(cut * len(data)) if isinstance(cut, float) else cut])
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        trainer(load_path=str(good))


def test_a_flipped_bit_is_noticed(good: Path) -> None:
    data = bytearray(good.read_bytes())
    weights = torch.load(good, weights_only=True)["state"]["model"]["linear.weight"]
    place = bytes(data).find(weights.numpy().tobytes())
    assert place > 0
    data[place + 3] ^= 0x40
    good.write_bytes(data)
    with pytest.raises(ValueError, match=r"not a complete checkpoint: the checksum"):
        trainer(load_path=str(good))


@pytest.mark.parametrize(
    ("part", "value"),
    [("optimizers", [{"type": "SGD", "state": {}}]), ("timestamp", 3), ("callbacks", 7)],
)
def test_a_part_that_makes_no_sense_is_named(part: str, value: Any, good: Path) -> None:
    contents = torch.load(good, weights_only=True)
    contents["state"][part] = value
    rewrite(contents, good)
    with pytest.raises(ValueError, match=f"'state/{part}.*load_ignore_keys"):
        trainer(load_path=str(good))


def test_a_malicious_file_does_not_run(good: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    rewrite({"format": 1, "state": {"model": _Evil(marker)}}, good)
    with pytest.raises(ValueError, match="refused and nothing ran"):
        trainer(load_path=str(good))
    assert not marker.exists()
    good.write_bytes(pickle.dumps(_Evil(marker)))
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        trainer(load_path=str(good))
    assert not marker.exists()


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"weights": torch.ones(1)}, "bare weights"),
        ([1, 2], "not a checkpoint"),
        ({"state": {"model": {}}}, "another library"),
        ({"state": {}, "format": 99}, "Upgrade"),
        ({"state": {}, "format": True}, "Upgrade"),
        ({"state": {}, "format": -1}, "Upgrade"),
    ],
)
def test_foreign_files_are_told(contents: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save(contents, path)
    with pytest.raises(ValueError, match=message):
        trainer(load_path=str(path))


def test_missing_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        trainer(load_path=str(tmp_path / "a.pt"))
    (tmp_path / "link.pt").symlink_to("gone.pt")
    with pytest.raises(FileNotFoundError, match=r"gone.pt"):
        trainer(load_path=str(tmp_path / "link.pt"))
    with pytest.raises(ValueError, match="folder"):
        trainer(load_path=str(tmp_path))


def test_another_model_is_told_with_both_shapes(good: Path) -> None:
    class Wider(TinyModel):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 5)

    with pytest.raises(ValueError, match=r"stored \(3, 4\), model \(5, 4\)"):
        trainer(Wider(), load_path=str(good))


def test_strictness_is_honoured_for_full_checkpoints(good: Path) -> None:
    class More(TinyModel):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("extra", torch.zeros(1))

    with pytest.raises(ValueError, match="extra"):
        trainer(More(), load_path=str(good))
    with pytest.warns(UserWarning, match="extra"):
        trainer(More(), load_path=str(good), load_strict_model_weights=False).close()


def test_ignoring_parts(good: Path) -> None:
    with pytest.warns(UserWarning, match=r"linear\.bias"):
        t = trainer(
            load_path=str(good),
            load_ignore_keys=["state/model/*.bias", "state/timestamp", "state/dataset_state"],
            load_strict_model_weights=False,
        )
    assert int(t.state.timestamp.batch) == 0
    t.close()
    with pytest.raises(ValueError, match="'state/optimizer', which matches nothing"):
        trainer(load_path=str(good), load_ignore_keys=["state/optimizer"])

    trainer(load_path=str(good), load_ignore_keys="state/dataset_state").close()

    def edit(contents: dict[str, Any]) -> None:
        contents["state"]["rank_zero_seed"] = 1

    trainer(load_path=str(good), load_ignore_keys=edit).close()


def test_a_stateful_part_that_is_not_plain_is_named(tmp_path: Path) -> None:
    class Lock(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"lock": object()}

    with pytest.raises(TypeError, match=r"callback/0/.*Lock/lock is <object"):
        fitted(callbacks=Lock(), save_folder=str(tmp_path))


def test_twins_do_not_collide(tmp_path: Path) -> None:
    class Counter(Callback):
        def __init__(self, n: int = 0) -> None:
            self.n = n

        def state_dict(self) -> dict[str, Any]:
            return {"n": self.n}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.n = state["n"]

    fitted(callbacks=[Counter(1), Counter(2)], save_folder=str(tmp_path))
    twins = [Counter(), Counter()]
    trainer(callbacks=twins, load_path=str(tmp_path / "latest-rank0.pt")).close()
    assert [c.n for c in twins] == [1, 2]


# ---- algorithms that shape the model ------------------------------------------------------------


class Widen(Algorithm):
    """Surgery that a checkpoint cannot be loaded without."""

    events = frozenset({Event.INIT})

    def __init__(self, size: int = 6) -> None:
        self.size = size

    @staticmethod
    def required_on_load() -> bool:
        return True

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        state.model.register_parameter("wide", torch.nn.Parameter(torch.zeros(self.size)))
        state.optimizers[0].add_param_group({"params": [state.model.wide]})


def test_required_algorithms_are_rebuilt_from_plain_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from composer.core import plugins

    monkeypatch.setattr(plugins, "name_of", lambda group, cls: "widen" if cls is Widen else None)
    fitted(algorithms=Widen(7), save_folder=str(tmp_path))
    file = str(tmp_path / "latest-rank0.pt")
    stored = torch.load(file, weights_only=True)["state"]["algorithms"][0]
    assert (stored["plugin"], stored["arguments"], stored["required"]) == (
        "widen",
        {"size": 7},
        True,
    )
    json.dumps(stored["arguments"])

    def resolve(group: str, name: str, **arguments: Any) -> Any:
        assert (group, name) == ("composer.algorithms", "widen")
        return Widen(**arguments)

    monkeypatch.setattr(plugins, "resolve", resolve)
    with pytest.warns(UserWarning, match=r"Widen\(size=7\)"):
        t = trainer(load_path=file)
    assert t.state.model.wide.shape == (7,)
    t.close()
    with pytest.raises(ValueError, match="wide"):
        trainer(load_path=file, load_exclude_algorithms=["Widen"])


def test_a_required_algorithm_that_is_no_plugin_must_be_passed(tmp_path: Path) -> None:
    fitted(algorithms=Widen(), save_folder=str(tmp_path))
    file = str(tmp_path / "latest-rank0.pt")
    with pytest.raises(ValueError, match="load_exclude_algorithms"):
        trainer(load_path=file)
    trainer(load_path=file, algorithms=Widen()).close()


def test_load_checkpoint_restores_a_bare_state(good: Path) -> None:
    model = TinyModel()
    state = state_of(model, optimizers=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    random_states = load_checkpoint(str(good), state)
    assert random_states is not None
    assert int(state.timestamp.batch) == 8
    assert len(state.optimizers[0].state) == 2


def test_the_newest_are_never_surplus() -> None:
    for total in range(5):
        for keep in range(-1, 5):
            records = [Record(str(i), i + 1) for i in range(total)]
            surplus = Retention(keep).surplus(records)
            kept = total if keep < 0 else min(total, max(1, keep))
            assert surplus == records[: total - kept]
