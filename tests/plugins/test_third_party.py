"""A package of somebody else is used by class, by name, and from a recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from composer import Trainer
from composer.core import plugins
from composer.models import ComposerClassifier
from composer.recipes import parse_recipe, run_recipe
from composer_cool import InputNoise, JSONLinesLogger


def loader() -> torch.utils.data.DataLoader[Any]:
    inputs = torch.arange(32, dtype=torch.float32).reshape(8, 4) / 32
    data = torch.utils.data.TensorDataset(inputs, torch.arange(8) % 2)
    return torch.utils.data.DataLoader(data, batch_size=4)


def train(algorithms: Any, loggers: Any) -> Trainer:
    torch.manual_seed(3)
    model = ComposerClassifier(torch.nn.Linear(4, 2), num_classes=2)
    trainer = Trainer(
        model=model,
        train_dataloader=loader(),
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        max_duration="2ep",
        algorithms=algorithms,
        loggers=loggers,
        progress_bar=False,
        seed=3,
    )
    trainer.fit()
    trainer.close()
    return trainer


def test_by_class(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    trainer = train([InputNoise(std=0.1)], [JSONLinesLogger(path)])
    assert any(isinstance(a, InputNoise) for a in trainer.state.algorithms)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    losses = [row["loss/train/total"] for row in rows if "loss/train/total" in row]
    assert len(losses) == 4
    assert all(loss > 0 for loss in losses)


def test_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = train(["input_noise"], ["json_lines"])
    assert any(isinstance(a, InputNoise) for a in trainer.state.algorithms)
    assert (tmp_path / "metrics.jsonl").read_text().count("loss/train/total") == 4


def test_by_name_from_a_recipe(tmp_path: Path) -> None:
    recipe = parse_recipe(
        """
        seed: 1
        model:
          composer_resnet_cifar: {model_name: resnet_8, width: 4, in_channels: 1, num_classes: 10}
        train_data: {dataset: {fashion_mnist: {split: test}}, batch_size: 16}
        optimizer: {decoupled_sgdw: {lr: 0.1}}
        algorithms: [{input_noise: {std: 0.2}}]
        loggers: [{json_lines: {path: "{folder}/cool.jsonl"}}]
        trainer: {max_duration: 2ba, progress_bar: false}
        """,
        name="cool",
    )
    run_recipe(recipe, folder=tmp_path)
    (found,) = tmp_path.rglob("cool.jsonl")
    assert found.read_text().count("loss/train/total") == 2


def test_noise_reaches_the_training() -> None:
    def weights(algorithms: Any) -> torch.Tensor:
        return next(train(algorithms, []).state.model.parameters()).detach()

    assert not torch.equal(weights([]), weights(["input_noise"]))
    assert torch.equal(weights(["input_noise"]), weights([InputNoise()]))


def test_plugins_of_a_third_party_are_listed_as_ours() -> None:
    entry = next(e for e in plugins.entries("composer.loggers") if e.name == "json_lines")
    assert (entry.distribution, entry.version) == ("composer-cool", "0.3.0")
    assert plugins.check(entry) is None
    assert plugins.state(entry) == "ok"


def test_wrong_argument_gets_the_near_match() -> None:
    with pytest.raises(TypeError, match="no argument 'stdd'"):
        plugins.resolve("composer.algorithms", "input_noise", stdd=0.1)
