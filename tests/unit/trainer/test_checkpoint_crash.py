"""A process that is killed at any step of a save leaves a complete checkpoint behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from composer.checkpoint import find_newest, read_checkpoint, verify

# One process imports torch and then forks a child per step. The child counts what it does to the
# file system: what the interpreter reports by itself (files opened, renamed, removed and linked),
# every write of torch's writer and every flush; and kills itself at the step that it was given.
_SCRIPT = """
import json, os, shutil, signal, sys, torch
from pathlib import Path
from composer.callbacks import CheckpointSaver
from composer.checkpoint import formats
from composer.core.logger import Logger
from composer.core.timestamp import Timestamp
from composer_testing.tiny import state_of

root, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
template, every = settings.pop("filename"), settings.pop("every")

def session(folder, first, saves):
    state = state_of()
    saver = CheckpointSaver(folder, template, overwrite=True, **settings)
    saver._open(state)
    state.timestamp = Timestamp(batch=first)
    for _ in range(saves):
        state.timestamp = state.timestamp.to_next_batch(4)
        with torch.no_grad():
            state.model.linear.weight.fill_(int(state.timestamp.batch))
        saver.save(state, Logger(state))
        saver.wait()

def arm(limit, folder):
    count = 0
    def step():
        nonlocal count
        count += 1
        if count == limit:
            os.kill(os.getpid(), signal.SIGKILL)
    def audit(event, arguments):
        if event in ("open", "os.rename", "os.remove", "os.symlink"):
            if any(str(folder) in str(a) for a in arguments):
                step()
    sys.addaudithook(audit)
    real_fsync = os.fsync
    def fsync(descriptor):
        step()
        real_fsync(descriptor)
        step()
    os.fsync = fsync
    real_write = formats._Guarded.write
    writes = 0
    def write(self, data):
        nonlocal writes
        writes += 1
        if writes % every:
            return real_write(self, data)
        step()
        half = memoryview(data).cast("B")[: max(1, len(data) // 2)]
        real_write(self, half)
        self._file.flush()
        step()
        real_write(self, memoryview(data).cast("B")[len(half):])
        return len(data)
    formats._Guarded.write = write

origin = root / "origin"
session(origin, 0, 1)
for limit in range(1, 1000):
    folder = root / f"{limit:03}"
    shutil.copytree(origin, folder, symlinks=True)
    child = os.fork()
    if child == 0:
        try:
            arm(limit, folder)
            session(folder, 1, 2)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status == 0:
        break
    assert os.WIFSIGNALED(status), status
print(limit)
"""


def kill_at_every_step(folder: Path, filename: str, *, async_save: bool, every: int) -> None:
    """Save twice over an earlier checkpoint, killed at each step, or at each so-manieth write."""
    settings: dict[str, Any] = {
        "filename": filename,
        "every": every,
        "num_checkpoints_to_keep": 1,
        "async_save": async_save,
    }
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(folder), json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert steps > 30  # about so many for two saves of the plainest kind
    pattern = "*" + Path(filename).suffix
    batches = set()
    for step in range(1, steps + 1):
        there = folder / f"{step:03}"
        link = there / "latest-rank0.pt"
        # The pointer leads to a whole file; its manifest fits, or was away for the moment in which
        # a file of the same name was replaced.
        assert link.exists(), step
        problems = verify(link)
        state = read_checkpoint(link)["state"]
        if filename != "newest.pt":
            assert problems == [], step
        assert not problems or "no manifest" in problems[0], step
        found = find_newest(there, "latest-rank0.pt", pattern)
        assert found is not None, step
        newest = read_checkpoint(found)["state"]
        batch = newest["timestamp"]["batch"]
        assert batch >= state["timestamp"]["batch"] >= 1, step
        assert float(newest["model"]["linear.weight"].mean()) == batch
        batches.add(batch)
    # Some were killed before, some between, some after the saves.
    assert batches == {1, 2, 3}


KINDS = ["ba{batch}.pt", "newest.pt", "ba{batch}.tar.gz"]


@pytest.mark.slow
@pytest.mark.parametrize("async_save", [False, True])
def test_a_kill_leaves_a_complete_checkpoint(async_save: bool, tmp_path: Path) -> None:
    kill_at_every_step(tmp_path, KINDS[0], async_save=async_save, every=25)


@pytest.mark.slow
def test_a_kill_while_a_file_is_replaced_leaves_a_whole_one(tmp_path: Path) -> None:
    kill_at_every_step(tmp_path, KINDS[1], async_save=False, every=25)


@pytest.mark.soak
@pytest.mark.parametrize("async_save", [False, True])
@pytest.mark.parametrize("filename", KINDS)
def test_a_kill_at_every_write_leaves_a_complete_checkpoint(
    filename: str, async_save: bool, tmp_path: Path
) -> None:
    kill_at_every_step(tmp_path, filename, async_save=async_save, every=1)
