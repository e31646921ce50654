"""The dry run that finds the largest microbatch of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from composer.cli.main import main
from composer.devices import DeviceCPU
from composer.recipes.microbatch import find_microbatch
from composer.recipes.resolve import find_recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(
        """
model: {composer_resnet_cifar: {model_name: resnet_8, width: 8, in_channels: 1, num_classes: 10}}
train_data: {dataset: {fashion_mnist: {split: test}}, batch_size: 24}
eval_data: {dataset: {fashion_mnist: {split: test}}, batch_size: 500}
optimizer: {decoupled_sgdw: {lr: 0.1}}
target: {metric: MulticlassAccuracy, value: 0.5, stop: true}
loggers: [file: {filename: "{folder}/log.txt"}]
trainer: {max_duration: 3ep, save_interval: 1ba, save_folder: "{folder}/kept"}
"""
    )
    return path


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A CPU with room for some samples at a time."""

    def limit(samples: int) -> None:
        def move(self: DeviceCPU, batch: Any) -> Any:
            if len(batch[0]) > samples:
                raise torch.OutOfMemoryError(f"room for {samples} samples")
            return batch

        monkeypatch.setattr(DeviceCPU, "is_host", False)
        monkeypatch.setattr(DeviceCPU, "batch_to_device", move)

    return limit


def test_it_prints_the_size_and_keeps_nothing(
    recipe: Path, room: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recipe.parent)
    room(10)
    assert main(["find-microbatch", str(recipe)]) == 0
    told = capsys.readouterr().out
    assert "device_train_microbatch_size: 9" in told or "device_train_microbatch_size: 10" in told
    assert [p.name for p in recipe.parent.iterdir()] == ["small.yaml"]


def test_the_whole_batch_fits(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_microbatch(find_recipe(recipe)) == ([24, 24], True)
    assert main(["find-microbatch", str(recipe), "train_data.batch_size=8"]) == 0
    assert "8 (the whole batch)" in capsys.readouterr().out


def test_nothing_fits(recipe: Path, room: Any, capsys: pytest.CaptureFixture[str]) -> None:
    room(0)
    assert main(["find-microbatch", str(recipe)]) == 1
    assert "one sample at a time is already too much" in capsys.readouterr().err


def test_other_errors_are_not_taken_for_memory(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move(self: DeviceCPU, batch: Any) -> Any:
        raise RuntimeError("the cable is loose")

    monkeypatch.setattr(DeviceCPU, "is_host", False)
    monkeypatch.setattr(DeviceCPU, "batch_to_device", move)
    with pytest.raises(RuntimeError, match="the cable is loose"):
        main(["find-microbatch", str(recipe)])


def test_a_recipe_that_cannot_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find-microbatch", "no_such.yaml"]) == 2
    assert "no_such.yaml" in capsys.readouterr().err
