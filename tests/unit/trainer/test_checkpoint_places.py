"""Where checkpoints lie: clashes and leftovers in sub-folders, links, what must not be left out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.callbacks import CheckpointSaver
from composer.checkpoint import read_checkpoint
from composer.checkpoint.places import LocalFolder, RemoteFolder
from composer.core.logger import Logger
from composer.core.timestamp import Timestamp
from composer.trainer import Trainer
from composer_testing.tiny import TinyModel, loader, state_of


def trainer(folder: Path | str, **settings: Any) -> Trainer:
    model = TinyModel()
    return Trainer(
        model=model,
        train_dataloader=loader(8, 4),
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        save_folder=str(folder),
        progress_bar=False,
        **{"max_duration": "1ep", "run_name": "r", "seed": 1, **settings},
    )


def fitted(folder: Path | str, **settings: Any) -> None:
    t = trainer(folder, **settings)
    try:
        t.fit()
    finally:
        t.close()


# ---- what must not be left out ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "key"),
    [("format", "format"), ("form*", "format"), ("*", "format"), ("state", "state")],
)
def test_what_makes_a_file_a_checkpoint_cannot_be_left_out(
    pattern: str, key: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"save_ignore_keys.*{key!r}"):
        trainer(tmp_path, save_ignore_keys=pattern)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("rng", "rng"),
        ("r*", "rng"),
        ("rng/0/torch", "rng"),
        ("state/timestamp", "state/timestamp"),
        ("state/timestamp/batch", "state/timestamp"),
        ("state/model", "state/model"),
    ],
)
def test_what_autoresume_needs_cannot_be_left_out_with_it(
    pattern: str, key: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"save_ignore_keys.*{key!r}.*autoresume"):
        trainer(tmp_path, save_ignore_keys=["state/callbacks", pattern], autoresume=True)
    fitted(tmp_path, save_ignore_keys=["state/callbacks", pattern])  # files to load weights from


def test_parts_of_a_model_can_be_left_out_with_autoresume(tmp_path: Path) -> None:
    fitted(tmp_path, save_ignore_keys="state/model/*bias", autoresume=True)
    stored = read_checkpoint(tmp_path / "latest-rank0.pt")["state"]["model"]
    assert list(stored) == ["linear.weight"]


@pytest.mark.parametrize("key", ["format", "rng"])
def test_a_function_cannot_leave_them_out_either(key: str, tmp_path: Path) -> None:
    def drop(checkpoint: dict[str, Any]) -> None:
        del checkpoint[key]

    with pytest.raises(ValueError, match=rf"save_ignore_keys.*{key!r}"):
        fitted(tmp_path, save_ignore_keys=drop, autoresume=True)
    assert not list(tmp_path.glob("*.pt"))


def test_a_saver_beside_that_of_autoresume_may_leave_them_out(tmp_path: Path) -> None:
    beside = CheckpointSaver(tmp_path / "b", ignore_keys=["rng"], latest_filename=None)
    fitted(tmp_path / "a", callbacks=beside, autoresume=True)
    assert "rng" not in read_checkpoint(next((tmp_path / "b").glob("*.pt")))


# ---- clashes ------------------------------------------------------------------------------------

TEMPLATES = ["sub/ep{epoch}.pt", "ep{epoch}/x.pt", "a/b/{rank}/{epoch}/x.pt", "{run_name}/{epoch}"]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("remote", [False, True])
def test_a_clash_is_seen_in_folders_of_the_template(
    template: str, remote: bool, tmp_path: Path
) -> None:
    folder = f"memory://{tmp_path.parent.name}-{tmp_path.name}/x" if remote else str(tmp_path)
    fitted(folder, save_filename=template)
    with pytest.raises(FileExistsError, match=template.format(run_name="r", rank=0, epoch=1)):
        fitted(folder, save_filename=template)
    fitted(folder, save_filename=template, save_overwrite=True)


@pytest.mark.parametrize("template", ["{run_name}-ep{epoch}.pt", "x/{run_name}/ep{epoch}.pt"])
@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("names", ["ab", ["a", "deeper/a"], ["a", "a.b"]])
def test_runs_whose_names_keep_them_apart_do_not_clash(
    template: str, remote: bool, names: list[str], tmp_path: Path
) -> None:
    folder = f"memory://{tmp_path.parent.name}-{tmp_path.name}/x" if remote else str(tmp_path)
    for name in names:
        fitted(folder, save_filename=template, run_name=name, save_latest_filename=f"{name[-1]}.l")
    for name in names:
        with pytest.raises(FileExistsError, match=r"ep1\.pt"):
            fitted(folder, save_filename=template, run_name=name)


def test_a_run_whose_name_is_a_path_finds_its_own(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"save_filename": "{run_name}/ep{epoch}.pt", "autoresume": True}
    for name in ("a", "deeper/a"):
        fitted(tmp_path, run_name=name, save_latest_filename="l", **settings)
        (tmp_path / "l").unlink()  # so that only the names tell
    t = trainer(tmp_path, run_name="deeper/a", max_duration="2ep", **settings)
    assert t.state.load_path == str(tmp_path / "deeper/a/ep1.pt")
    t.close()


def test_only_folders_that_the_template_can_give_are_looked_into(tmp_path: Path) -> None:
    for name in ("sub/ep1.pt", "sub/ep2.pt.manifest.json", "other/ep3.pt", "sub/deep/ep4.pt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    place = LocalFolder(tmp_path)
    assert place.names("sub/ep{epoch}.pt", "r") == ["sub/ep1.pt"]
    assert place.names("{rank}/ep{epoch}.pt", "r") == ["other/ep3.pt", "sub/ep1.pt"]
    assert place.names("ep{epoch}.pt", "r") == []


# ---- what killed saves left ---------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from pathlib import Path
from composer.checkpoint.save import link_latest
from composer.utils.paths import complete_or_absent
path = Path(sys.argv[1])
path.parent.mkdir(parents=True, exist_ok=True)
real = Path.replace
def die(self, target):
    os.kill(os.getpid(), signal.SIGKILL)
Path.replace = die
if sys.argv[2] == "link":
    link_latest(path, path)
with complete_or_absent(path) as temporary:
    temporary.write_bytes(b"half")
"""


def killed(path: Path, kind: str = "file") -> Path:
    """What a process leaves that is killed right before a file or link gets its name."""
    before = set(path.parent.glob(".*")) if path.parent.exists() else set()
    done = subprocess.run([sys.executable, "-c", _KILLED, str(path), kind], timeout=120)
    assert done.returncode == -signal.SIGKILL
    (left,) = set(path.parent.glob(".*.tmp")) - before
    return left


def test_leftovers_of_a_process_that_is_gone_are_removed_at_once(tmp_path: Path) -> None:
    names = ["s/ep1/x.pt", "s/ep1/x.pt.manifest.json", "s/ep1/notes.pt", "ep1/x.pt"]
    files = [killed(tmp_path / name) for name in names]
    links = [
        killed(tmp_path / name, "link") for name in ("l/latest.pt", "best-rank0.pt", "other.pt")
    ]
    t = trainer(tmp_path, save_filename="s/ep{epoch}/x.pt", save_latest_filename="l/latest.pt")
    t.close()
    assert [p.exists() for p in files] == [False, False, True, True]
    assert [p.is_symlink() for p in links] == [False, False, True]


def test_leftovers_of_a_process_that_lives_stay(tmp_path: Path) -> None:
    from composer.utils.paths import complete_or_absent

    with complete_or_absent(tmp_path / "ep1.pt") as temporary:
        temporary.write_bytes(b"half")
        trainer(tmp_path, save_filename="ep{epoch}.pt").close()
        assert temporary.exists()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks Linux")
def test_who_wrote_a_temporary_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from composer.utils import temporaries

    mine = temporaries.temporary_beside(tmp_path / "a.b.pt")
    assert temporaries.name_of(mine.name) == "a.b.pt"
    assert not temporaries.writer_is_gone(mine.name)
    # A process of the same number that began at another time is another one.
    left = killed(tmp_path / "a.pt")
    host, number, begun, rest = left.name.rsplit(".", 2)[1].split("-")
    assert temporaries.writer_is_gone(left.name)
    own = f".a.pt.{host}-{os.getpid():x}-{begun}-{rest}.tmp"
    assert temporaries.writer_is_gone(own)
    # Of another machine, of another container and of older releases nothing is known.
    assert not temporaries.writer_is_gone(f".a.pt.{'0' * 8}-{number}-{begun}-{rest}.tmp")
    for name in (".a.pt.0123456789ab.tmp", ".a.tmp", ".a.pt.x-y-z-w.tmp"):
        assert not temporaries.writer_is_gone(name)


# ---- the link to the best -----------------------------------------------------------------------


def saves(folder: str, template: str, batches: range, **settings: Any) -> CheckpointSaver:
    """Save at some batches of one run, scored by how near they are to the second."""
    state = state_of()
    state.load_path = None
    saver = CheckpointSaver(folder, template, overwrite=True, **settings)
    saver.init(state, Logger(state))
    if batches.start > 1:
        newest = saver._open(state).path("latest-rank0.pt")
        state.load_path = newest
        contents = settings_of(newest)
        saver.load_state_dict(contents)
    state.timestamp = Timestamp(batch=batches.start - 1)
    if saver._watch is not None:
        saver._watch.start = lambda state: None  # type: ignore[method-assign]
        saver._watch.score = lambda state: -abs(int(state.timestamp.batch) - 2.0)  # type: ignore[method-assign]
    saver.fit_start(state, Logger(state))
    for _ in batches:
        state.timestamp = state.timestamp.to_next_batch(1)
        state.callbacks = [saver]
        saver.save(state, Logger(state))
    saver.close(state, Logger(state))
    return saver


def settings_of(newest: str) -> dict[str, Any]:
    from composer.checkpoint.load import fetch_checkpoint

    stored = fetch_checkpoint(newest, progress_bar=False)["state"]["callbacks"]
    return dict(next(c["state"] for c in stored if c["type"] == "CheckpointSaver"))


BEST: dict[str, Any] = {"best_metric": "loss/train/total", "best_mode": "max"}


@pytest.mark.parametrize("remote", [False, True])
def test_a_best_that_is_no_longer_kept_takes_its_link_along(remote: bool, tmp_path: Path) -> None:
    folder = f"memory://{tmp_path.parent.name}-{tmp_path.name}/x" if remote else str(tmp_path)
    place = RemoteFolder(folder) if remote else LocalFolder(tmp_path)
    saves(folder, "ba{batch}.pt", range(1, 5), num_checkpoints_to_keep=1, **BEST)
    assert place.target("best-rank0.pt") == "ba2.pt"
    assert place.has("ba2.pt")
    saves(folder, "ba{batch}.pt", range(5, 7), num_checkpoints_to_keep=1)
    assert not place.has("ba2.pt")
    assert place.target("best-rank0.pt") is None
    assert place.target("latest-rank0.pt") == "ba6.pt"
    if not remote:
        assert not (tmp_path / "best-rank0.pt").is_symlink()


def test_a_best_that_is_kept_keeps_its_link_though_nothing_is_chosen(tmp_path: Path) -> None:
    saves(str(tmp_path), "ba{batch}.pt", range(1, 5), num_checkpoints_to_keep=1, **BEST)
    saves(str(tmp_path), "ba{batch}.pt", range(5, 7), num_checkpoints_to_keep=-1)
    assert LocalFolder(tmp_path).target("best-rank0.pt") == "ba2.pt"


@pytest.mark.parametrize("template", ["step{batch}.pt", "sub/ba{batch}.pt"])
@pytest.mark.filterwarnings("error")
def test_the_best_stays_the_best_under_another_filename(template: str, tmp_path: Path) -> None:
    saves(str(tmp_path), "ba{batch}.pt", range(1, 4), num_checkpoints_to_keep=1, **BEST)
    saver = saves(str(tmp_path), template, range(4, 7), num_checkpoints_to_keep=1, **BEST)
    assert LocalFolder(tmp_path).target("best-rank0.pt") == "ba2.pt"
    assert saver.best_checkpoints == [str(tmp_path / "ba2.pt")]
    # What the run of now could not have written is not deleted by it, and not counted.
    kept = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.pt"))
    assert {"ba2.pt", "ba3.pt", template.format(batch=6)} <= set(kept)
    assert template.format(batch=5) not in kept
