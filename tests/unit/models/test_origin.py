"""A model that says how it was built can be built again from a checkpoint alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from composer import Trainer
from composer.models import (
    ComposerClassifier,
    ComposerModel,
    Initializer,
    build_from_origin,
    composer_resnet_cifar,
    remembers_origin,
)


@remembers_origin("twin", forget=["weights"])
def _twin(width: int, *more: Any, weights: str | None = None, **options: Any) -> ComposerModel:
    return ComposerClassifier(torch.nn.Linear(1, width), num_classes=width)


def test_arguments_are_plain_complete_and_by_keyword() -> None:
    model = composer_resnet_cifar("resnet_14", 5, [Initializer.BN_ONES], width=4)
    assert model.origin == {
        "name": "composer_resnet_cifar",
        "arguments": {
            "model_name": "resnet_14",
            "num_classes": 5,
            "initializers": ["bn_ones"],
            "width": 4,
            "in_channels": 3,
        },
    }
    again = build_from_origin(model.origin)
    assert {n: p.shape for n, p in again.named_parameters()} == {
        n: p.shape for n, p in model.named_parameters()
    }


def test_where_weights_came_from_is_forgotten_and_options_are_kept() -> None:
    origin = _twin(2, weights="https://example.org/w.pt", bias=True).origin
    assert origin == {"name": "twin", "arguments": {"width": 2, "weights": None, "bias": True}}


@pytest.mark.parametrize(
    "call", [lambda: _twin(2, "nameless"), lambda: _twin(2, norm=torch.nn.ReLU)]
)
def test_a_call_that_cannot_be_repeated_leaves_no_origin(call: Any) -> None:
    assert call().origin is None


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_checkpoint_is_enough_to_build_the_model(tmp_path: Path, weights_only: bool) -> None:
    model = composer_resnet_cifar("resnet_8", num_classes=3, width=4, in_channels=1)
    trainer = Trainer(model=model, progress_bar=False)
    path = trainer.save_checkpoint(str(tmp_path / "model.pt"), weights_only=weights_only)
    trainer.close()
    assert path is not None
    state = torch.load(path, weights_only=True)["state"]
    again = build_from_origin(state["integrations"]["composer"])
    again.load_state_dict(state["model"])
    images = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(
        again.eval()((images, None)), model.eval()((images, None)), rtol=0, atol=0
    )
