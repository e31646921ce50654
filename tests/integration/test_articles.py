"""The scripts that articles about the library show run as they are written there, on small data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


@pytest.mark.slow
def test_functional_blurpool_on_resnet50() -> None:
    from torchvision import models

    import composer.functional as cf

    torch.manual_seed(0)
    model = models.resnet50(num_classes=10)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    cf.apply_blurpool(model, optimizers=optimizer)

    names = [type(m).__name__ for m in model.modules()]
    # Four strided 3x3 convolutions and downsampling ones, the stem, and one pool.
    assert names.count("BlurConv2d") == 6
    assert names.count("BlurMaxPool2d") == 1
    for key, value in before.items():
        kept = [v for k, v in model.state_dict().items() if k.replace(".conv.", ".") == key]
        assert len(kept) == 1, key
        assert torch.equal(kept[0], value)
    inputs, targets = torch.randn(2, 3, 64, 64), torch.tensor([0, 1])
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    updated = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert updated == {id(p) for p in model.parameters()}


def mnist_like(size: int = 64) -> Dataset[Any]:
    """Images with a bright square whose place is the class, so that there is something to learn."""
    generator = torch.Generator().manual_seed(0)
    images = 0.1 * torch.rand(size, 1, 28, 28, generator=generator)
    labels = torch.randint(0, 10, (size,), generator=generator)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 4)
        image[0, row * 9 : row * 9 + 7, column * 7 : column * 7 + 7] += 1.0
    return TensorDataset(images, labels)


class SmallNet(nn.Module):
    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Linear(channels * 49, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.interpolate(self.features(x), size=7)
        return self.head(x.flatten(1))


def test_a_trainer_with_three_methods(capsys: pytest.CaptureFixture[str]) -> None:
    from composer import Trainer
    from composer.algorithms import ChannelsLast, CutMix, LabelSmoothing
    from composer.loggers import ConsoleLogger
    from composer.models import ComposerClassifier

    torch.manual_seed(0)
    model = ComposerClassifier(module=SmallNet(), num_classes=10)
    train_dataloader = DataLoader(mnist_like(), batch_size=16, shuffle=True)
    eval_dataloader = DataLoader(mnist_like(), batch_size=16)
    trainer = Trainer(
        model=model,
        train_dataloader=train_dataloader,
        eval_dataloader=eval_dataloader,
        max_duration="3ep",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.05),
        algorithms=[LabelSmoothing(smoothing=0.1), CutMix(alpha=1.0), ChannelsLast()],
        loggers=[ConsoleLogger()],
        progress_bar=False,
        seed=0,
    )
    first = trainer.state.model.module.features[0].weight  # type: ignore[union-attr,index]
    assert first.is_contiguous(memory_format=torch.channels_last)
    trainer.fit()
    assert 0.0 <= float(trainer.state.eval_metrics["eval"]["MulticlassAccuracy"].compute()) <= 1.0
    trainer.close()
    assert "loss/train/total" in capsys.readouterr().err


def test_mixed_precision_with_selective_backprop_and_restarts(tmp_path: Path) -> None:
    from torch.optim import AdamW
    from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

    from composer import Trainer
    from composer.algorithms import BlurPool, ProgressiveResizing, SelectiveBackprop
    from composer.models import ComposerClassifier

    torch.manual_seed(0)
    model = ComposerClassifier(module=SmallNet(), num_classes=10)
    optimizer = AdamW(model.parameters(), lr=1e-2)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=10)
    sizes: list[tuple[int, int]] = []
    selective = SelectiveBackprop(start=0.25, end=0.9, keep=0.5, interrupt=0)

    from composer.core import Callback

    class Watch(Callback):
        def before_forward(self, state: Any, logger: Any) -> None:
            sizes.append((len(state.batch[0]), state.batch[0].shape[-1]))

    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(mnist_like(), batch_size=16, shuffle=True),
        eval_dataloader=DataLoader(mnist_like(), batch_size=16),
        max_duration="5ep",
        device="cpu",
        precision="amp",
        optimizers=optimizer,
        schedulers=scheduler,
        algorithms=[BlurPool(min_channels=1), selective, ProgressiveResizing()],
        callbacks=[Watch()],
        save_folder=str(tmp_path),
        progress_bar=False,
        seed=0,
    )
    trainer.fit()
    names = [type(m).__name__ for m in trainer.state.model.modules()]
    assert "BlurConv2d" in names
    assert "BlurMaxPool2d" in names
    # The scheduler was accepted as it is and stepped once an epoch.
    assert scheduler.last_epoch == 5
    # Early: all samples, at half of 28 pixels pinned to a multiple of four.
    assert sizes[:4] == [(16, 16)] * 4
    assert any(n < 16 for n, _ in sizes[4:])  # later: samples were left out
    assert sizes[-1][1] == 28  # at the end: full size
    metrics = trainer.state.eval_metrics["eval"]
    assert float(metrics["MulticlassAccuracy"].compute()) > 0.5
    trainer.close()
