"""Counted operations next to closed forms, and that counting leaves no trace."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from composer.models import (
    LanguageModel,
    composer_decoder,
    composer_resnet,
    composer_resnet_cifar,
    count_flops,
    example_batch,
    num_parameters,
)


def test_a_linear_layer() -> None:
    layer, inputs = nn.Linear(6, 4), torch.randn(5, 3, 6)
    assert count_flops(layer, inputs) == 2 * 15 * 6 * 4
    # The inputs need no gradient: one product more, for the weight.
    assert count_flops(layer, inputs, backward=True) == 2 * (2 * 15 * 6 * 4)
    assert count_flops(layer, inputs.requires_grad_(), backward=True) == 3 * (2 * 15 * 6 * 4)


@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (1, 2)])
def test_a_convolution(stride: int, groups: int) -> None:
    layer = nn.Conv2d(4, 6, 3, stride=stride, padding=1, groups=groups)
    out = layer(torch.zeros(2, 4, 9, 7))
    # For each number of the output, one multiplication and one addition per weight it sees.
    wanted = 2 * out.numel() * (4 // groups) * 9
    assert count_flops(layer, torch.zeros(2, 4, 9, 7)) == wanted


class _Attention(nn.Module):
    def forward(self, batch: Any) -> torch.Tensor:
        return F.scaled_dot_product_attention(*batch)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_attention(device: str) -> None:
    query = torch.zeros(2, 3, 8, 4, device=device, requires_grad=True)
    key = torch.zeros(2, 3, 5, 4, device=device, requires_grad=True)
    value = torch.zeros(2, 3, 5, 4, device=device, requires_grad=True)
    forward = 2 * (2 * 2 * 3 * 8 * 5 * 4)
    assert count_flops(_Attention(), (query, key, value)) == forward
    assert count_flops(_Attention(), (query, key, value), backward=True) == 3 * forward


@pytest.mark.parametrize("num_kv_heads", [4, 2])
@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_the_closed_form_of_a_decoder_is_what_is_counted(
    num_kv_heads: int, tie_embeddings: bool
) -> None:
    model = composer_decoder(
        "tiny", 50, num_kv_heads=num_kv_heads, tie_embeddings=tie_embeddings, num_layers=3
    )
    batch = {"input_ids": torch.zeros(2, 17, dtype=torch.long)}
    assert 3 * count_flops(model, batch) == model.flops_per_batch(batch)
    assert count_flops(model, batch, backward=True) == model.flops_per_batch(batch)


def test_other_modules_are_taken_to_use_every_parameter_once() -> None:
    model = LanguageModel(nn.Sequential(nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)))
    batch = {"input_ids": torch.zeros(2, 5, dtype=torch.long)}
    # The usual estimate, which takes a look-up for a product.
    assert model.flops_per_batch(batch) == 6 * 2 * 5 * (7 * 3 + 3 * 7)


def test_a_residual_network_costs_what_its_paper_says() -> None:
    # He et al., table 1, count a multiplication and an addition as one: 3.8 billion for 50 layers.
    # The stride of 2 stands in the middle convolution here, which adds some.
    pytest.importorskip("torchvision")
    with torch.device("meta"):
        model = composer_resnet("resnet50")
    flops = count_flops(model, (torch.zeros(1, 3, 224, 224, device="meta"), None))
    assert flops / 2 == pytest.approx(4.09e9, rel=0.001)


def test_counting_leaves_no_trace() -> None:
    model = composer_resnet_cifar("resnet_8", width=4, in_channels=1)
    batch = example_batch(model, num_samples=3)
    model.eval()
    model.loss(model(batch), batch).backward()
    modes = [module.training for module in model.modules()]
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    state, generator = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    forward = count_flops(model, batch)
    # The images need no gradient, so the first layer has one product less.
    assert 2 * forward < count_flops(model, batch, backward=True) < 3 * forward
    assert [module.training for module in model.modules()] == modes
    for found, wanted in zip((p.grad for p in model.parameters()), grads, strict=True):
        assert found is not None
        assert torch.equal(found, wanted)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert torch.equal(torch.get_rng_state(), generator)


class _Lazy(nn.Module):
    """Puts another tensor in place of a buffer, draws, and fails."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + torch.rand(2)
        raise RuntimeError("no")


def test_nor_does_a_call_that_fails() -> None:
    model = _Lazy()
    before, generator = model.seen, torch.get_rng_state()
    with pytest.raises(RuntimeError, match="no"):
        count_flops(model, torch.zeros(1))
    assert model.seen is before
    assert not before.any()
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.is_grad_enabled()


def test_parameters_used_twice_count_once() -> None:
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    second.weight = first.weight
    model = nn.Sequential(first, second, nn.BatchNorm1d(2))
    assert num_parameters(model) == 6 + 2 + 2 + 4
    first.bias.requires_grad_(False)
    assert num_parameters(model, trainable_only=True) == 6 + 2 + 4


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("composer_vit", {"size": "tiny", "num_classes": 10, "image_size": 32, "num_layers": 2}),
        ("composer_diffusion", {}),
    ],
)
def test_the_count_is_that_of_the_meta_device(name: str, arguments: dict[str, Any]) -> None:
    """Neither a fused kernel of evaluation nor pictures without pixels change the number."""
    from composer.core import plugins
    from composer.models.cards import CARDS

    given = arguments or {**CARDS[name].arguments, **CARDS[name].tiny}
    model = plugins.resolve("composer.models", name, **given)
    batch = example_batch(model)
    here = count_flops(model, batch)
    with torch.device("meta"):
        elsewhere = plugins.resolve("composer.models", name, **given)
    there = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to("meta"), batch)
    assert here == count_flops(elsewhere, there) > 0
