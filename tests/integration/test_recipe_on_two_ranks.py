"""The default recipe on two ranks: the parameters of one process on the same global batches."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from composer.core.callback import Callback
from composer.core.logger import Logger
from composer.core.state import State
from composer.recipes.resolve import find_recipe, resolve_recipe
from composer.recipes.run import build_trainer, in_folder
from composer.utils import dist
from composer.utils.module_surgery import replace_module_classes

BATCHES = 4


class Weights(Callback):
    def __init__(self) -> None:
        self.seen: list[dict[str, torch.Tensor]] = []

    def batch_end(self, state: State, logger: Logger) -> None:
        self.seen.append({k: v.clone() for k, v in state.model.state_dict().items()})


def _group_norm(module: nn.Module, index: int) -> nn.Module:
    return nn.GroupNorm(2, module.num_features)  # type: ignore[arg-type]


def run(folder: str) -> list[dict[str, torch.Tensor]]:
    """A few batches of the recipe, in double precision, with a norm that looks at single images.

    Batch norm's statistics are those of a rank's own images, so with it the two cannot be equal.
    """
    recipe = find_recipe(
        "fashion_mnist_resnet8",
        overrides=[
            f"trainer.max_duration={BATCHES}ba",
            "trainer.eval_interval=0",
            "target=null",
            "scheduler.cosine_annealing_with_warmup.t_warmup=1ba",
        ],
    )
    recipe = in_folder(replace(recipe, loggers=()), Path(folder))
    given = resolve_recipe(recipe)

    def model() -> Any:
        made = given.model()
        replace_module_classes(made, {nn.BatchNorm2d: _group_norm})
        return made.double()

    def images() -> Any:
        data = given.train_dataset()
        collate = data.collate
        data.collate = lambda items: (lambda x, y: (x.double(), y))(*collate(items))
        return data

    watch = Weights()
    parts = replace(given, model=model, train_dataset=images)
    trainer = build_trainer(recipe, parts, Path(folder), 17, watch)
    trainer.fit()
    trainer.close()
    assert int(trainer.state.timestamp.sample) == BATCHES * 128
    return watch.seen


@pytest.mark.slow
def test_batch_for_batch_to_rounding(ranks: Any, tmp_path: Path) -> None:
    assert dist.get_world_size() == 1
    alone = run(str(tmp_path / "alone"))
    one, other = ranks.run(run, str(tmp_path / "two"), timeout=240)
    assert len(alone) == len(one) == len(other) == BATCHES
    for batch in range(BATCHES):
        for name, value in alone[batch].items():
            assert torch.equal(one[batch][name], other[batch][name]), (batch, name)
            torch.testing.assert_close(one[batch][name], value, rtol=0, atol=1e-9, msg=name)


@pytest.mark.slow
def test_with_torchrun(tmp_path: Path) -> None:
    torchrun = Path(sys.executable).with_name("torchrun")
    command = [
        *(str(torchrun), "--standalone", "--nproc-per-node", "2", "-m", "composer.cli"),
        *("train", "fashion_mnist_resnet8", "trainer.max_duration=3ba", "target=null"),
        *("--folder", str(tmp_path)),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.count("result of fashion_mnist_resnet8") == 1
    assert "3 batches, 384 samples" in done.stdout
    (folder,) = tmp_path.iterdir()
    logs = sorted(path.name for path in folder.glob("log-rank*.txt"))
    assert logs == ["log-rank0.txt", "log-rank1.txt"]
    saved = torch.load(next(folder.glob("checkpoints/ep*.pt")), weights_only=True)
    assert saved["state"]["timestamp"]["sample"] == 384
    assert len(saved["rng"]) == 2
