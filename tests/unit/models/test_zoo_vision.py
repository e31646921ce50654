"""The vision models: shapes at odd sizes, first weights as their papers say, small real tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.core import Callback, Logger, State
from composer.models import (
    ComposerModel,
    collate_detection,
    composer_deeplabv3,
    composer_efficientnet,
    composer_efficientnetb0,
    composer_resnet,
    composer_resnet_cifar,
    composer_retinanet,
    composer_timm,
    composer_unet,
    composer_vit,
    mnist_model,
    resnet9,
    vit_small_patch16,
)

Build = Callable[[], ComposerModel]

# Small members of every family, for images of one or three channels.
CLASSIFIERS: dict[str, tuple[Build, int, tuple[int, int]]] = {
    "mnist_model": (mnist_model, 1, (9, 7)),
    "resnet9": (lambda: resnet9(width=8, in_channels=1), 1, (13, 10)),
    "resnet_cifar": (lambda: composer_resnet_cifar("resnet_8", width=4, in_channels=1), 1, (11, 9)),
    "resnet": (lambda: composer_resnet("resnet18", num_classes=10), 3, (37, 33)),
    "efficientnet": (lambda: composer_efficientnet(num_classes=10), 3, (41, 33)),
    "vit": (
        lambda: composer_vit("tiny", 10, 12, 4, 1, hidden_size=16, num_layers=2, num_heads=2),
        1,
        (12, 12),
    ),
    "timm": (lambda: composer_timm("resnet10t", num_classes=10), 3, (35, 33)),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_give_one_logit_per_class_at_odd_sizes(name: str) -> None:
    build, channels, size = CLASSIFIERS[name]
    model = build().eval()
    logits = model((torch.zeros(3, channels, *size), None))
    assert logits.shape == (3, 10)
    assert bool(logits.isfinite().all())


@pytest.mark.parametrize("size", [(16, 16), (13, 22)])
@pytest.mark.parametrize(
    "build",
    [
        lambda: composer_unet(3, width=4, depth=2),
        lambda: composer_deeplabv3(3, "resnet50"),
        lambda: composer_deeplabv3(3, "resnet50", use_plus=False),
    ],
    ids=["unet", "deeplabv3+", "deeplabv3"],
)
def test_segmenters_give_every_pixel_logits(build: Build, size: tuple[int, int]) -> None:
    model = build()
    batch = (torch.rand(2, 3, *size), torch.randint(3, (2, *size)))
    outputs = model(batch)
    assert outputs["out"].shape == (2, 3, *size)
    loss = model.loss(outputs, batch)
    assert isinstance(loss, torch.Tensor)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize(
    ("build", "millions"),
    [
        # He et al., table 1 and section 4.2; Tan and Le, table 2; Dosovitskiy et al., table 1.
        (lambda: composer_resnet("resnet50"), 25.6),
        (lambda: composer_resnet_cifar("resnet_20"), 0.27),
        (lambda: composer_resnet_cifar("resnet_56"), 0.85),
        (lambda: composer_efficientnetb0(), 5.3),
        (lambda: composer_vit("base"), 86),
        (vit_small_patch16, 22),
    ],
    ids=["resnet50", "resnet_20", "resnet_56", "efficientnet_b0", "vit_base", "vit_small"],
)
def test_sizes_are_those_of_the_papers(build: Build, millions: float) -> None:
    count = sum(p.numel() for p in build().parameters()) / 1e6
    assert count == pytest.approx(millions, rel=0.02)


def _spread(weights: torch.Tensor) -> float:
    return float(weights.detach().std())


def test_first_weights_are_those_of_the_papers() -> None:
    torch.manual_seed(0)
    # He et al., Delving Deep into Rectifiers: sqrt(2 / fan), the fan-out for torchvision's.
    conv = composer_resnet("resnet18").get_submodule("module.layer2.0.conv2")
    assert _spread(conv.weight) == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.01)
    small = composer_resnet_cifar("resnet_20").get_submodule("module.blocks.8.conv2")
    assert _spread(small.weight) == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.02)
    unet = composer_unet(2, width=32, depth=2).get_submodule("module.down.2.3")
    assert _spread(unet.weight) == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.01)
    # Dosovitskiy et al.: the last layer starts at zero, so every class is equally likely.
    for channels in (1, 3):
        vit = composer_vit("tiny", 10, 32, 8, channels)
        head = vit.get_submodule("module.heads.head")
        assert not head.weight.any()
        patches = vit.get_submodule("module.conv_proj")
        # A normal distribution cut at two units, of any width, has a spread below that width.
        wide = math.sqrt(1 / (channels * 64))
        assert 0.8 * wide < _spread(patches.weight) <= 1.02 * wide
    # Lin et al., Focal Loss: an object is believed in with a probability of 0.01.
    detector = composer_retinanet(3, "resnet18", min_size=32, max_size=32)
    bias = detector.get_submodule("module.head.classification_head.cls_logits").bias
    torch.testing.assert_close(torch.sigmoid(bias), torch.full_like(bias, 0.01))


# ---- small real tasks -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Handwritten digits of 8 by 8 pixels, those of the UCI repository."""
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)


def fit(
    model: ComposerModel,
    train: Any,
    evaluation: Any,
    *,
    epochs: int,
    lr: float,
    callbacks: list[Callback] | None = None,
) -> dict[str, Any]:
    trainer = Trainer(
        model=model,
        train_dataloader=train,
        eval_dataloader=evaluation,
        callbacks=callbacks,
        eval_interval=0,
        max_duration=f"{epochs}ep",
        optimizers=torch.optim.AdamW(model.parameters(), lr=lr),
        progress_bar=False,
        seed=0,
    )
    trainer.fit()
    if evaluation is not None:
        trainer.eval()
    metrics = trainer.state.eval_metric_values
    trainer.close()
    return metrics


LEARNING: dict[str, tuple[Build, int, int]] = {
    # How to build it, the length of an enlarged digit, and how often the data are seen.
    "mnist_model": (mnist_model, 8, 6),
    "resnet9": (lambda: resnet9(width=8, in_channels=1), 8, 3),
    "resnet_cifar": (lambda: composer_resnet_cifar("resnet_8", width=8, in_channels=1), 8, 4),
    "vit": (
        lambda: composer_vit("tiny", 10, 8, 2, 1, hidden_size=32, num_layers=2, num_heads=2),
        8,
        8,
    ),
}


class _Losses(Callback):
    def __init__(self) -> None:
        self.values: list[float] = []

    def batch_end(self, state: State, logger: Logger) -> None:
        self.values.append(float(torch.as_tensor(state.loss).detach()))


LARGE: dict[str, tuple[Build, int]] = {
    # How to build it, and the length of an enlarged digit.
    "resnet": (lambda: composer_resnet("resnet18", 10), 16),
    "efficientnet": (lambda: composer_efficientnet(num_classes=10, drop_connect_rate=0.0), 32),
    "timm": (lambda: composer_timm("resnet10t", num_classes=10), 16),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_classifiers_learn_digits(
    name: str, digits: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Each image is seen once, so the loss of the last batches is that of new images.

    In so few steps the running averages of batch normalisation have not arrived, so this is not
    judged by an evaluation.
    """
    torch.manual_seed(0)
    build, length = LARGE[name]
    images = nn.functional.interpolate(digits[0], size=(length, length)).expand(-1, 3, -1, -1)
    losses = _Losses()
    data = DataLoader(TensorDataset(images, digits[1]), 50, shuffle=True)
    fit(build(), data, None, epochs=1, lr=3e-3, callbacks=[losses])
    # A guess among ten classes costs log(10), which is 2.3.
    assert sum(losses.values[-4:]) / 4 < 1.4 < 0.65 * math.log(10) < losses.values[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNING)
def test_classifiers_learn_digits(name: str, digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.manual_seed(0)
    build, length, epochs = LEARNING[name]
    model, channels = build(), CLASSIFIERS[name][1]
    images = nn.functional.interpolate(digits[0], size=(length, length)).expand(
        -1, channels, -1, -1
    )
    train = TensorDataset(images[:1400], digits[1][:1400])
    rest = TensorDataset(images[1400:], digits[1][1400:])
    metrics = fit(
        model,
        DataLoader(train, 50, shuffle=True),
        DataLoader(rest, 100),
        epochs=epochs,
        lr=3e-3,
    )
    # One class in ten is right by chance; most linear models reach nine in ten.
    assert metrics["MulticlassAccuracy"] > 0.8, metrics


def _ink(digits: torch.Tensor, channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Digits under noise, and where their ink is."""
    ink = nn.functional.interpolate(digits, scale_factor=4, mode="bilinear")
    noisy = ink + 0.3 * torch.randn_like(ink)
    return noisy.expand(-1, channels, -1, -1), (ink[:, 0] > 0.5).long()


def test_the_unet_learns_where_ink_is(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.manual_seed(0)
    images, maps = _ink(digits[0][:400], 1)
    metrics = fit(
        composer_unet(2, in_channels=1, width=8, depth=2),
        DataLoader(TensorDataset(images[:300], maps[:300]), 20, shuffle=True),
        DataLoader(TensorDataset(images[300:], maps[300:]), 50),
        epochs=2,
        lr=3e-3,
    )
    # Background everywhere would give half of its share of the pixels.
    assert metrics["MIoU"] > 60 > 50 * float((maps == 0).float().mean())


@pytest.mark.slow
def test_deeplabv3_learns_where_ink_is(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Each image is seen once; see the large classifiers for why there is no evaluation."""
    torch.manual_seed(0)
    images, maps = _ink(digits[0][:240], 3)
    losses = _Losses()
    data = DataLoader(TensorDataset(images, maps), 20)
    model = composer_deeplabv3(2, "resnet50")
    fit(model, data, None, epochs=1, lr=1e-3, callbacks=[losses])
    share = float((maps == 1).float().mean())
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    # What knowing the share of ink costs, without knowing where it is.
    assert sum(losses.values[-3:]) / 3 < 0.75 * entropy, (losses.values, entropy)


class _Pasted(torch.utils.data.Dataset[Any]):
    """A digit on an empty canvas, and the box around it."""

    def __init__(self, digits: torch.Tensor, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.items = []
        for index in range(count):
            x, y = torch.randint(0, 33, (2,), generator=generator).tolist()
            canvas = torch.zeros(3, 64, 64)
            canvas[:, y : y + 32, x : x + 32] = nn.functional.interpolate(
                digits[index : index + 1], scale_factor=4
            )[0]
            box = torch.tensor([[x, y, x + 32, y + 32]], dtype=torch.float32)
            self.items.append((canvas, {"boxes": box, "labels": torch.ones(1, dtype=torch.long)}))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


@pytest.mark.slow
def test_the_detector_learns_to_find_digits(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.manual_seed(0)
    model = composer_retinanet(2, "resnet18", min_size=64, max_size=64)
    data = _Pasted(digits[0], 32)
    loader = DataLoader(data, 8, shuffle=True, collate_fn=collate_detection)
    rest = DataLoader(data, 8, collate_fn=collate_detection)
    metrics = fit(model, loader, rest, epochs=6, lr=3e-4)
    assert metrics["MAP"]["map_50"] > 0.5, metrics


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: composer_resnet("resnet51"), "model_name='resnet51'.*resnet50"),
        (lambda: composer_resnet(loss_name="mse"), "loss_name='mse'"),
        (lambda: composer_efficientnet(drop_connect_rate=1.0), r"drop_connect_rate=1\.0"),
        (lambda: composer_vit("smal"), "size='smal'.*Did you mean \"small\""),
        (lambda: composer_vit(image_size=30, patch_size=16), "patch_size=16 must divide"),
        (lambda: composer_vit(num_heads=5), "num_heads=5 must divide hidden_size=384"),
        (lambda: composer_timm("resnet51"), "model_name='resnet51'"),
        (lambda: composer_unet(0), "num_classes=0"),
        (lambda: composer_deeplabv3(2, "vgg"), "backbone_arch='vgg'"),
        (lambda: composer_deeplabv3(2, cross_entropy_weight=0), "leave no loss"),
        (lambda: composer_retinanet(1), "num_classes=1"),
        (lambda: composer_retinanet(2, min_size=9, max_size=8), "max_size=8"),
        (lambda: mnist_model(num_classes=0), "num_classes=0"),
        (lambda: resnet9(width=0), "width=0"),
    ],
)
def test_bad_arguments_are_named(call: Build, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def origins() -> Iterator[tuple[str, Build]]:
    for name, (build, _, _) in CLASSIFIERS.items():
        yield name, build
    yield "unet", lambda: composer_unet(2, width=2, depth=1)
    yield "deeplabv3", lambda: composer_deeplabv3(2, "resnet50")
    yield "retinanet", lambda: composer_retinanet(2, "resnet18", min_size=32, max_size=32)


@pytest.mark.parametrize(("name", "build"), list(origins()))
def test_every_model_can_be_built_again_from_its_origin(name: str, build: Build) -> None:
    from composer.models import build_from_origin

    model = build()
    assert model.origin is not None
    again = build_from_origin(model.origin)
    again.load_state_dict(model.state_dict())
