"""The classifier, the residual networks and the initialisers."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from composer.metrics import CrossEntropy, MulticlassAccuracy
from composer.models import (
    ComposerClassifier,
    ComposerModel,
    Initializer,
    ResNetCIFAR,
    composer_resnet_cifar,
)


class _Net(nn.Module):
    num_classes = 3

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(6, 4), torch.randint(0, 3, (6,))


@pytest.mark.parametrize("kind", [tuple, list])
def test_forward_loss_and_metrics(kind: type) -> None:
    model = ComposerClassifier(_Net())
    x, y = batch()
    outputs = model(kind((x, y)))
    assert torch.equal(outputs, model.module(x))
    torch.testing.assert_close(model.loss(outputs, kind((x, y))), F.cross_entropy(outputs, y))
    assert model.eval_forward((x, y), outputs) is outputs
    assert torch.equal(model.eval_forward((x, y)), outputs)
    metrics = model.get_metrics(is_train=False)
    assert list(metrics) == ["MulticlassAccuracy", "CrossEntropy"]
    for metric in metrics.values():
        assert model.update_metric(kind((x, y)), outputs, metric) is None
    torch.testing.assert_close(metrics["CrossEntropy"].compute(), F.cross_entropy(outputs, y))
    expected = (outputs.argmax(1) == y).float().mean()
    torch.testing.assert_close(metrics["MulticlassAccuracy"].compute(), expected)
    assert list(model.get_metrics(is_train=True)) == ["MulticlassAccuracy"]


def test_loss_arguments_go_to_the_loss_function() -> None:
    model = ComposerClassifier(nn.Identity(), num_classes=3)
    x, y = torch.randn(6, 3), torch.randint(0, 3, (6,))
    expected = F.cross_entropy(x, y, reduction="none")
    torch.testing.assert_close(model.loss(x, (x, y), reduction="none"), expected)
    own = ComposerClassifier(nn.Identity(), num_classes=3, loss_fn=lambda out, y: out.sum())
    assert own.loss(x, (x, y)) == x.sum()


def test_number_of_classes() -> None:
    assert ComposerClassifier(_Net()).num_classes == 3
    assert ComposerClassifier(_Net(), num_classes=3).num_classes == 3
    with pytest.warns(UserWarning, match="num_classes=5 differs"):
        assert ComposerClassifier(_Net(), num_classes=5).num_classes == 3
    with pytest.raises(ValueError, match="num_classes is needed"):
        ComposerClassifier(nn.Linear(4, 3))
    with pytest.raises(ValueError, match="num_classes is needed"):
        ComposerClassifier(nn.Linear(4, 3), train_metrics=CrossEntropy())
    model = ComposerClassifier(
        nn.Linear(4, 3), train_metrics=CrossEntropy(), val_metrics={"loss": CrossEntropy()}
    )
    assert list(model.get_metrics(is_train=True)) == ["CrossEntropy"]
    assert list(model.get_metrics(is_train=False)) == ["loss"]


def test_metrics_of_torchmetrics_work() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torchmetrics

        collection = torchmetrics.MetricCollection(
            [torchmetrics.classification.MulticlassAccuracy(3, average="micro")]
        )
        single = torchmetrics.classification.MulticlassF1Score(3)
        model = ComposerClassifier(_Net(), train_metrics=single, val_metrics=collection)
        x, y = batch()
        assert list(model.get_metrics(is_train=True)) == ["MulticlassF1Score"]
        metric = model.get_metrics(is_train=False)["MulticlassAccuracy"]
        model.update_metric((x, y), model((x, y)), metric)
        ours = MulticlassAccuracy(3)
        ours.update(model((x, y)), y)
        torch.testing.assert_close(metric.compute(), ours.compute())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"module": lambda x: x}, "torch.nn.Module"),
        ({"module": _Net(), "train_metrics": 3}, "no `update`"),
        ({"module": _Net(), "val_metrics": {"a": nn.Identity()}}, r"val_metrics\['a'\]"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ComposerClassifier(**arguments)


def test_metrics_are_not_among_the_weights_and_copies_are_independent() -> None:
    model = ComposerClassifier(_Net())
    assert list(model.state_dict()) == ["module.linear.weight", "module.linear.bias"]
    model.logger = object()  # type: ignore[assignment]
    twin = copy.deepcopy(model)
    assert twin.logger is None
    x, y = batch()
    model.update_metric((x, y), model((x, y)), model.get_metrics(True)["MulticlassAccuracy"])
    assert int(twin.get_metrics(True)["MulticlassAccuracy"].total) == 0
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again((x, y)), model((x, y)))
    assert int(again.get_metrics(True)["MulticlassAccuracy"].total) == 6


@pytest.mark.parametrize(
    ("name", "num_layers"), [("resnet_8", 8), ("resnet_20", 20), ("resnet56", 56)]
)
def test_resnet_depth(name: str, num_layers: int) -> None:
    model = composer_resnet_cifar(name, width=4)
    weights = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    # The two projections on short cuts are not counted as layers.
    assert len(weights) - 2 == num_layers
    assert isinstance(model, ComposerModel)


def test_resnet_20_has_the_size_of_the_paper() -> None:
    model = composer_resnet_cifar("resnet_20")
    projections = sum(p.numel() for b in model.module.blocks for p in b.shortcut.parameters())
    num_parameters = sum(p.numel() for p in model.parameters()) - projections
    assert 0.265e6 < num_parameters < 0.275e6  # 0.27 M, table 6 of the paper


@pytest.mark.parametrize("size", [28, 32, 33])
@pytest.mark.parametrize("in_channels", [1, 3])
def test_resnet_shapes_and_training_step(size: int, in_channels: int) -> None:
    model = composer_resnet_cifar("resnet_8", num_classes=7, width=8, in_channels=in_channels)
    batch = (torch.randn(2, in_channels, size, size), torch.tensor([0, 6]))
    outputs = model(batch)
    assert outputs.shape == (2, 7)
    model.loss(outputs, batch).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.num_classes == 7


def test_resnet_halves_twice() -> None:
    model = ResNetCIFAR(8, width=4)
    sizes: list[tuple[int, ...]] = []
    for block in model.blocks:
        block.register_forward_hook(lambda m, i, out: sizes.append(tuple(out.shape[1:])))
    model(torch.zeros(1, 3, 32, 32))
    assert sizes == [(4, 32, 32), (8, 16, 16), (16, 8, 8)]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("resnet_18", {}, "6n"),
        ("vgg_16", {}, "vgg_16"),
        ("resnet_8", {"width": 0}, "width=0"),
        ("resnet_8", {"initializers": ["kaiming"]}, "kaiming"),
    ],
)
def test_bad_resnets(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        composer_resnet_cifar(name, **arguments)


@pytest.mark.parametrize("name", [i.value for i in Initializer])
def test_initializers_touch_only_their_kind(name: str) -> None:
    modules = nn.ModuleList(
        [nn.Linear(64, 32), nn.Conv2d(16, 8, 3), nn.BatchNorm2d(8), nn.LayerNorm(3)]
    )
    nn.init.constant_(modules[2].weight, 7.0)
    nn.init.constant_(modules[2].bias, 7.0)
    before = {key: value.clone() for key, value in modules.state_dict().items()}
    modules.apply(Initializer(name).get_initializer())
    changed = {
        key for key, value in modules.state_dict().items() if not torch.equal(value, before[key])
    }
    if name.startswith("bn"):
        assert changed == {"2.weight", "2.bias"}
        assert not modules[2].bias.any()
    elif name == "linear_log_constant_bias":
        assert changed == {"0.bias"}
        torch.testing.assert_close(modules[0].bias.exp().sum(), torch.tensor(1.0))
    else:
        assert changed == {"0.weight", "1.weight"}


def test_kaiming_scale() -> None:
    conv = nn.Conv2d(64, 256, 3)
    Initializer.KAIMING_NORMAL.get_initializer()(conv)
    assert float(conv.weight.detach().std()) == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


@pytest.mark.slow
def test_first_use_imports_nothing_slow() -> None:
    code = (
        "import sys, torch\n"
        "from composer.models import composer_resnet_cifar\n"
        "model = composer_resnet_cifar('resnet_8', width=4)\n"
        "batch = (torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]))\n"
        "for metric in model.get_metrics(False).values():\n"
        "    model.update_metric(batch, model(batch), metric); metric.compute()\n"
        "slow = {'torchmetrics', 'torchvision', 'transformers', 'PIL', 'pandas'}\n"
        "print(sorted(slow & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]", result.stderr
