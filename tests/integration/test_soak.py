"""What takes minutes: many kills in a row, and the default recipe on several seeds."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TRAINING = """
import sys
import torch
from composer import Trainer
from composer_testing.tiny import TinyModel, loader

torch.manual_seed(1)
model = TinyModel(dropout=0.3)
trainer = Trainer(
    model=model,
    train_dataloader=loader(400, 4),
    max_duration="8ep",
    optimizers=torch.optim.AdamW(model.parameters(), lr=0.01),
    algorithms=["ema", "label_smoothing"],
    save_folder=sys.argv[1],
    save_interval="7ba",
    save_num_checkpoints_to_keep=3,
    run_name="soak",
    autoresume=True,
    progress_bar=False,
    seed=3,
)
print("built", flush=True)
trainer.fit()
trainer.close()
"""


def final_weights(folder: Path) -> dict[str, torch.Tensor]:
    contents = torch.load(folder / "latest-rank0.pt", weights_only=True)
    assert contents["state"]["timestamp"]["batch"] == 800
    return contents["state"]["model"]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_kills_at_random_moments(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRAINING]
    subprocess.run([*command, str(tmp_path / "straight")], check=True, capture_output=True)
    chance = random.Random(5)
    kills = 0
    for _ in range(60):
        with subprocess.Popen(
            [*command, str(tmp_path / "killed")], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                process.wait(timeout=chance.uniform(0.0, 1.5))
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
                continue
        assert process.returncode == 0
        break
    assert kills >= 3
    straight, killed = final_weights(tmp_path / "straight"), final_weights(tmp_path / "killed")
    for name, value in straight.items():
        assert torch.equal(value, killed[name]), name


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_default_recipe_reaches_its_target(seed: int, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("composer")), "train", "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "reached" in done.stdout
