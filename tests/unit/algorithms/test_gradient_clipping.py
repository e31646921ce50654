"""Gradient clipping against torch's own functions and against a slow loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from composer.algorithms import GradientClipping
from composer.algorithms.gradient_clipping import apply_gradient_clipping
from composer.core.event import Event


def model_with_gradients(scale: float = 3.0) -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(20, 4))
    model.append(nn.Linear(4, 2, bias=False))
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * scale
    model[1].bias.grad = None  # not every parameter has a gradient
    model[3].weight.grad[0] = 0  # a unit without a gradient
    with torch.no_grad():
        model[3].weight[1] = 0  # a unit without weights
    return model


def gradients(model: nn.Module) -> list[torch.Tensor | None]:
    return [p.grad for p in model.parameters()]


@pytest.mark.parametrize("threshold", [0.01, 1.0, 1e6])
def test_norm_and_value_are_those_of_torch(threshold: float) -> None:
    for kind, reference in (
        ("norm", nn.utils.clip_grad_norm_),
        ("value", nn.utils.clip_grad_value_),
    ):
        ours = model_with_gradients()
        theirs = copy.deepcopy(ours)
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            b.grad = None if a.grad is None else a.grad.clone()
        reference(theirs.parameters(), threshold)
        apply_gradient_clipping(ours, kind, threshold, fsdp_enabled=False)
        for a, b in zip(gradients(ours), gradients(theirs), strict=True):
            if a is not None and b is not None:
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("threshold", [0.01, 0.5, 1e6])
def test_adaptive_against_a_slow_loop(threshold: float) -> None:
    model = model_with_gradients()
    expected: list[torch.Tensor | None] = []
    for parameter in model.parameters():
        if parameter.grad is None:
            expected.append(None)
            continue
        clipped = parameter.grad.clone()
        rows = range(parameter.shape[0]) if parameter.ndim > 1 else [slice(None)]
        for row in rows:
            weight_norm = max(float(parameter[row].detach().double().norm()), 1e-3)
            gradient_norm = float(clipped[row].double().norm())
            if gradient_norm / weight_norm > threshold:
                clipped[row] *= threshold * weight_norm / gradient_norm
        expected.append(clipped)
    apply_gradient_clipping(model, "adaptive", threshold)
    for a, b in zip(gradients(model), expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(a, b)


def test_in_a_run(make_run: Callable[..., Any]) -> None:
    model = model_with_gradients()
    run = make_run(model, [GradientClipping("norm", 0.1)])
    run.fire(Event.INIT, Event.AFTER_BACKWARD, Event.BATCH_END)
    assert nn.utils.get_total_norm([g for g in gradients(model) if g is not None]) > 1
    run.fire(Event.AFTER_TRAIN_BATCH)
    total = nn.utils.get_total_norm([g for g in gradients(model) if g is not None])
    torch.testing.assert_close(total, torch.tensor(0.1))


@pytest.mark.parametrize(
    ("kind", "threshold", "error", "message"),
    [
        ("nrom", 1.0, ValueError, 'Did you mean "norm"'),
        ("norm", 0.0, ValueError, "greater than 0"),
        ("value", -1.0, ValueError, "greater than 0"),
        ("norm", float("nan"), ValueError, "greater than 0"),
        ("adaptive", "0.1", TypeError, "must be a number"),
        ("norm", True, TypeError, "must be a number"),
    ],
)
def test_bad_arguments_are_refused_at_once(
    kind: str, threshold: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        GradientClipping(kind, threshold)
    with pytest.raises(error, match=message):
        apply_gradient_clipping(nn.Linear(1, 1), kind, threshold)
