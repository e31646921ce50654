"""BlurPool: the arithmetic, the layers, and the surgery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from composer.algorithms import BlurPool
from composer.algorithms.blurpool import (
    BlurConv2d,
    BlurMaxPool2d,
    BlurPool2d,
    apply_blurpool,
    blur_2d,
    blurmax_pool2d,
)
from composer.algorithms.warnings import NoEffectWarning
from composer.core.event import Event

BINOMIAL = torch.outer(torch.tensor([1.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 1.0])) / 16


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 1, 5, 7), (2, 4, 1, 1)])
@pytest.mark.parametrize("stride", [1, 2, (2, 1)])
@pytest.mark.parametrize("channels", [-1, 0, None])
def test_blur_against_single_channel_convolutions(
    shape: tuple[int, ...], stride: Any, channels: int | None
) -> None:
    x = torch.randn(shape)
    found = blur_2d(x, shape[1] if channels is None else channels, stride)
    for c in range(shape[1]):
        one = F.conv2d(x[:, c : c + 1], BINOMIAL[None, None], stride=stride, padding=1)
        torch.testing.assert_close(found[:, c : c + 1], one)


def test_blur_keeps_constants_inside_and_memory_format() -> None:
    x = torch.ones(1, 2, 6, 6).to(memory_format=torch.channels_last)
    found = blur_2d(x)
    assert (found[..., 1:-1, 1:-1] == 1).all()
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_other_filters() -> None:
    x, box = torch.randn(2, 3, 8, 8), torch.full((5, 1), 0.2)
    expected = F.conv2d(x, box.expand(3, 1, 5, 1), padding=(2, 0), groups=3)
    for given in (box, box[None, None], box.expand(3, 1, 5, 1)):
        torch.testing.assert_close(blur_2d(x, filter=given), expected)
    for bad in (torch.ones(2, 2), torch.ones(2, 1, 3, 3), torch.ones(3)):
        with pytest.raises(ValueError, match="filter"):
            blur_2d(x, filter=bad)


@pytest.mark.parametrize("size", [(8, 8), (7, 9), (5, 6)])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(
    ("kernel_size", "stride", "padding", "dilation"),
    [
        (2, 2, 0, 1),
        (3, 2, 1, 1),
        (3, 3, 0, 1),
        (2, 2, 1, 2),
        ((3, 2), (2, 1), (1, 0), 1),
        (3, 1, 1, 1),
    ],
)
def test_blurmax_has_the_size_of_max_pooling(
    size: tuple[int, int],
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> None:
    x = torch.randn(2, 3, *size)
    plain = nn.MaxPool2d(kernel_size, stride, padding, dilation, ceil_mode=ceil_mode)
    layer = BlurMaxPool2d.from_maxpool2d(plain)
    found = layer(x)
    assert found.shape == plain(x).shape
    dense = F.max_pool2d(x, kernel_size, 1, padding, dilation)
    if not ceil_mode:
        torch.testing.assert_close(found, blur_2d(dense, stride=stride))
    direct = blurmax_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode)
    torch.testing.assert_close(found, direct)


@pytest.mark.parametrize("padding", [0, 1, (2, 1)])
def test_blurpool_layer(padding: Any) -> None:
    x = torch.randn(2, 3, 8, 8)
    expected = F.conv2d(x, BINOMIAL.expand(3, 1, 3, 3), stride=2, padding=padding, groups=3)
    torch.testing.assert_close(BlurPool2d(stride=2, padding=padding)(x), expected)


@pytest.mark.parametrize("blur_first", [True, False])
def test_blurconv(blur_first: bool) -> None:
    x, conv = torch.randn(2, 4, 9, 9), nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=True)
    plain_shape = conv(x).shape
    weight, bias = conv.weight.detach().clone(), conv.bias.detach().clone()
    layer = BlurConv2d.from_conv2d(conv, blur_first=blur_first)
    if blur_first:
        expected = F.conv2d(blur_2d(x), weight, bias, stride=2, padding=1)
    else:
        expected = blur_2d(F.conv2d(x, weight, bias, padding=1), stride=2)
    torch.testing.assert_close(layer(x), expected)
    assert layer(x).shape == plain_shape


@pytest.mark.parametrize("blur_first", [True, False])
def test_blurconv_from_scratch(blur_first: bool) -> None:
    layer = BlurConv2d(4, 8, 3, stride=2, padding=1, groups=2, bias=False, blur_first=blur_first)
    assert layer(torch.zeros(1, 4, 8, 8)).shape == (1, 8, 4, 4)
    assert list(layer.state_dict()) == ["conv.weight"]
    assert BlurConv2d(4, 8, 2)(torch.zeros(1, 4, 8, 8)).shape == (1, 8, 4, 4)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),  # too few channels
        nn.Conv2d(16, 16, 3, padding=1),  # drops nothing
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, padding_mode="circular"),
        nn.Conv2d(32, 32, 1, stride=(2, 1), bias=False),
    )


def kinds(model: nn.Module) -> list[str]:
    return [type(child).__name__ for child in model.children()]


def test_surgery_chooses() -> None:
    model = network()
    apply_blurpool(model)
    assert kinds(model) == ["Conv2d", "Conv2d", "BlurMaxPool2d", "BlurConv2d", "BlurConv2d"]
    assert model[3].conv.padding_mode == "circular"
    model = network()
    apply_blurpool(model, replace_convs=False)
    assert kinds(model) == ["Conv2d", "Conv2d", "BlurMaxPool2d", "Conv2d", "Conv2d"]
    model = network()
    apply_blurpool(model, replace_maxpools=False, min_channels=1)
    assert kinds(model) == ["BlurConv2d", "Conv2d", "MaxPool2d", "BlurConv2d", "BlurConv2d"]


@pytest.mark.parametrize("blur_first", [True, False])
def test_surgery_keeps_shapes_weights_and_optimizer(blur_first: bool) -> None:
    model = network()
    x = torch.randn(2, 3, 33, 33)
    shape = model(x).shape
    groups = [
        {"params": list(model[:3].parameters()), "lr": 0.1},
        {"params": list(model[3:].parameters()), "lr": 0.2, "weight_decay": 0.1},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.3, momentum=0.9)
    model(x).square().mean().backward()
    optimizer.step()
    parameters = list(model.parameters())
    before = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
    apply_blurpool(model, blur_first=blur_first, optimizers=optimizer)
    assert model(x).shape == shape
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert [[id(p) for p in group["params"]] for group in optimizer.param_groups] == before
    assert {id(p) for p in optimizer.state} == {id(p) for p in parameters}
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())


def test_surgery_happens_once() -> None:
    model = network()
    apply_blurpool(model)
    first = kinds(model)
    apply_blurpool(model)
    assert kinds(model) == first
    assert isinstance(model[3].conv, nn.Conv2d)


def test_shared_modules_stay_shared() -> None:
    conv = nn.Conv2d(16, 16, 3, stride=2, padding=1)
    model = nn.Sequential(conv, conv)
    apply_blurpool(model)
    assert model[0] is model[1]
    assert isinstance(model[0], BlurConv2d)


def test_pools_that_return_indices_are_left_alone() -> None:
    model = nn.Sequential(nn.MaxPool2d(2, return_indices=True), nn.MaxPool2d(2))
    apply_blurpool(model)
    assert kinds(model) == ["MaxPool2d", "BlurMaxPool2d"]


def test_mode_type_and_device_are_kept() -> None:
    model = network().double().eval()
    apply_blurpool(model)
    assert not any(module.training for module in model.modules())
    assert model(torch.randn(1, 3, 33, 33, dtype=torch.float64)).dtype == torch.float64
    with torch.device("meta"):
        other = network()
    apply_blurpool(other)
    assert {t.device.type for t in (*other.parameters(), *other.buffers())} == {"meta"}


def test_half_precision_and_autocast() -> None:
    model = network()
    apply_blurpool(model)
    x = torch.randn(1, 3, 33, 33)
    expected = model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(x).dtype == torch.bfloat16
    torch.testing.assert_close(
        model.bfloat16()(x.bfloat16()).float(), expected, rtol=0.1, atol=0.05
    )


def test_works_in_training_after_inference_mode() -> None:
    model = network()
    apply_blurpool(model)
    x = torch.randn(1, 3, 33, 33)
    with torch.inference_mode():
        model(x)
        blur_2d(x)
    blur_2d(x.requires_grad_()).sum().backward()
    model(x).sum().backward()


def test_weights_of_0_32_can_be_read() -> None:
    model = network()
    apply_blurpool(model)
    weights = dict(model.state_dict())
    assert not any("blur_filter" in key for key in weights)
    weights["2.blur_filter"] = weights["3.blur_filter"] = weights["4.blur_filter"] = BINOMIAL
    model.load_state_dict(weights, strict=True)


def test_nothing_to_replace_warns_and_nothing_asked_raises() -> None:
    with pytest.warns(NoEffectWarning, match="16 input channels"):
        apply_blurpool(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="both False"):
        apply_blurpool(network(), replace_convs=False, replace_maxpools=False)
    with pytest.raises(ValueError, match="both False"):
        BlurPool(replace_convs=False, replace_maxpools=False)
    with pytest.raises(TypeError, match="min_channels"):
        BlurPool(min_channels=1.5)  # type: ignore[arg-type]


def test_in_a_run(make_run: Callable[..., Any]) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = BlurPool()
    run = make_run(model, [method], optimizers=optimizer)
    run.fire(Event.INIT)
    assert run.recorder.hyperparameters == {
        "blurpool/num_blurpool_layers": 1,
        "blurpool/num_blurconv_layers": 2,
    }
    assert BlurPool.required_on_load()
    assert BlurPool(**method.arguments()).arguments() == method.arguments()


def test_on_a_torchvision_resnet() -> None:
    models = pytest.importorskip("torchvision.models")
    model = models.resnet18()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    apply_blurpool(model)
    assert isinstance(model.maxpool, BlurMaxPool2d)
    assert isinstance(model.layer2[0].conv1, BlurConv2d)
    assert isinstance(model.layer2[0].downsample[0], BlurConv2d)
    assert type(model.conv1) is nn.Conv2d  # three channels
    renamed = {name.replace(".conv.weight", ".weight"): v for name, v in model.state_dict().items()}
    assert renamed.keys() == weights.keys()
    assert all(torch.equal(renamed[name], weights[name]) for name in weights)
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)
