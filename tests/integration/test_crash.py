"""Kills at random moments of saves: what is left loads, and the run goes on exactly.

The killed process is forked from one that imported torch long ago, and kills itself by a timer, so
that a hundred kills take minutes and not hours.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.checkpoint import find_newest, read_checkpoint
from composer.core.callback import Callback
from composer.core.logger import Logger
from composer.core.state import State
from composer.trainer import Trainer
from composer_testing.ranks import RankError
from composer_testing.tiny import TinyModel, loader

BATCHES = 60


class Record(Callback):
    """Writes each batch's loss down before its checkpoint is saved."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def batch_end(self, state: State, logger: Logger) -> None:
        entry = [int(state.timestamp.batch), state.total_loss_dict["loss/train/total"]]
        with self.file.open("a") as file:
            file.write(json.dumps(entry) + "\n")


class Ballast(TinyModel):
    """Large enough that most of the time goes into saving it."""

    def __init__(self) -> None:
        super().__init__(dropout=0.3)
        self.register_buffer("ballast", torch.arange(300_000, dtype=torch.float32))


def train(folder: str, asynchronous: bool, seconds: float | None) -> None:
    """Train to the end, or be killed some time after the first save of this process began."""
    torch.manual_seed(1)
    model = Ballast()

    class Fuse(Callback):
        lit = False

        def batch_checkpoint(self, state: State, logger: Logger) -> None:
            if seconds is not None and not self.lit:
                self.lit = True
                threading.Thread(target=self.burn, daemon=True).start()

        def burn(self) -> None:
            assert seconds is not None
            time.sleep(seconds)
            os.kill(os.getpid(), signal.SIGKILL)

    trainer = Trainer(
        model=model,
        train_dataloader=loader(40, 4),
        max_duration=f"{BATCHES}ba",
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.01),
        algorithms=["ema", "label_smoothing"],
        callbacks=[Fuse(), Record(Path(folder, "losses.jsonl"))],
        save_folder=folder,
        save_interval="1ba",
        save_num_checkpoints_to_keep=2,
        save_async=asynchronous,
        run_name="crash",
        autoresume=True,
        progress_bar=False,
        seed=3,
    )
    trainer.fit()
    trainer.close()


def final(folder: Path) -> dict[str, Any]:
    newest = find_newest(folder, "latest-rank0.pt")
    assert newest is not None
    state: dict[str, Any] = read_checkpoint(newest)["state"]
    assert state["timestamp"]["batch"] == BATCHES
    return state


def losses(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]


def was_killed(ranks: Any, folder: Path, asynchronous: bool, seconds: float) -> bool:
    try:
        ranks.run(train, str(folder), asynchronous, seconds, size=1)
    except RankError as error:
        if "rank 0: -9" not in str(error):
            raise
        return True
    return False


def kill_often(ranks: Any, folder: Path, asynchronous: bool, kills: int) -> None:
    straight = folder / "straight"
    straight.mkdir()
    ranks.run(train, str(straight), asynchronous, None, size=1)
    expected, right = final(straight), dict(losses(straight))
    chance = random.Random(5 + asynchronous)
    done, round_number = 0, 0
    while done < kills:
        round_number += 1
        killed = folder / f"killed-{round_number}"
        killed.mkdir()
        newest = None
        while True:
            if not was_killed(ranks, killed, asynchronous, chance.uniform(0.0, 0.25)):
                break
            done += 1
            # At every instant the newest complete checkpoint is at least as new as the one before.
            found = find_newest(killed, "latest-rank0.pt")
            if found is not None:
                batch = read_checkpoint(found)["state"]["timestamp"]["batch"]
                assert newest is None or batch >= newest
                newest = batch
            else:
                assert newest is None
            if done >= kills:
                ranks.run(train, str(killed), asynchronous, None, size=1)
                break
        for batch, loss in losses(killed):
            assert loss == right[batch], (round_number, batch)
        for name, value in expected["model"].items():
            assert torch.equal(value, final(killed)["model"][name]), name
        left = sorted(p.name for p in killed.glob("ep*.pt"))
        assert len(left) == 2, left


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [False, True])
def test_kills_at_random_moments_of_saves(ranks: Any, tmp_path: Path, asynchronous: bool) -> None:
    kill_often(ranks, tmp_path, asynchronous, 8)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_hundred_kills(ranks: Any, tmp_path: Path, asynchronous: bool) -> None:
    kill_often(ranks, tmp_path, asynchronous, 100)
