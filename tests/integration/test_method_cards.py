"""Every example of a method's card runs, with a small network and a little data in the gaps."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from composer import Trainer
from composer.core.warnings import NoEffectWarning
from composer.models import ComposerClassifier

CARDS = sorted((Path(__file__).resolve().parents[2] / "docs" / "methods").glob("*.md"))
ON_TEXT = {"alibi", "gated_linear_units", "seq_length_warmup"}


class Pictures(Dataset[Any]):
    transform: Any = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        picture = torch.full((3, 16, 16), index / 8)
        return (picture if self.transform is None else self.transform(picture)), index % 2


def pictures() -> tuple[ComposerClassifier, DataLoader[Any]]:
    from torchvision.models.resnet import Bottleneck

    layers = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.Sequential(Bottleneck(16, 4), Bottleneck(16, 4)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(16, 2),
    )
    return ComposerClassifier(layers, num_classes=2), DataLoader(Pictures(), 4)


def text() -> tuple[Any, DataLoader[Any]]:
    from transformers import BertConfig, BertForMaskedLM

    from composer.models import HuggingFaceModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=9, intermediate_size=8, **sizes)
    ids = torch.arange(8) % 9
    row = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    return HuggingFaceModel(BertForMaskedLM(config)), DataLoader([row] * 4, 2)


def namespace(card: str) -> dict[str, Any]:
    """What a reader has when the example begins."""
    model, loader = text() if card in ON_TEXT else pictures()

    def trainer_with(**settings: Any) -> Trainer:
        settings.pop("optimizers", None)
        optimizers = torch.optim.AdamW(model.parameters(), lr=1e-3)
        given: dict[str, Any] = {"train_dataloader": loader, "max_duration": "2ep"}
        return Trainer(
            model=model, optimizers=optimizers, progress_bar=False, **{**given, **settings}
        )

    class MyBlock(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    from PIL import Image

    x, y = torch.rand(4, 3, 16, 16), torch.tensor([0, 1, 0, 1])
    return {
        "__name__": "__main__",
        "trainer_with": trainer_with,
        "model": model if card in ON_TEXT else model.module,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loss_fn": nn.functional.cross_entropy,
        "loader": [(x, y)],
        "x": x,
        "y": y,
        "batch": next(iter(loader)),
        "image": Image.new("RGB", (16, 16)),
        "MyBlock": MyBlock,
        "torch": torch,
    }


def examples(card: Path) -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```", card.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [re.sub(r"\bTrainer\(\.\.\.,?\s*", "trainer_with(", block) for block in found]


@pytest.mark.parametrize("card", CARDS, ids=lambda path: path.stem)
def test_examples_run(card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = examples(card)
    assert blocks
    for block in blocks:
        with warnings.catch_warnings():
            # Layers of the sizes that real networks have are not here.
            warnings.simplefilter("ignore", NoEffectWarning)
            exec(compile(block, card.name, "exec"), namespace(card.stem))
