"""Loss scaling with closures: the unscaled gradients, and a step that overflowed did not happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from composer.core.scaler import ClosureGradScaler, needs_closure


class Twice(torch.optim.SGD):
    """Evaluates the loss at the parameters and beside them, as sharpness-aware methods do."""

    _step_supports_amp_closure = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        assert closure is not None
        (parameter,) = self.param_groups[0]["params"]
        before = parameter.detach().clone()
        for _ in range(2):
            with torch.enable_grad():
                loss = closure()
            if loss is None:
                break
            with torch.no_grad():
                parameter.add_(0.5 * parameter.grad.sign())
        with torch.no_grad():
            parameter.copy_(before)
        return None if loss is None else super().step()


def evaluate(
    scaler: ClosureGradScaler,
    optimizer: torch.optim.Optimizer,
    weight: torch.Tensor,
    overflow_at: int | None = None,
) -> Callable[[], torch.Tensor]:
    count = 0

    def closure() -> torch.Tensor:
        nonlocal count
        optimizer.zero_grad()
        loss = ((weight - 3.0) ** 2).sum()
        scaler.scale(loss).backward()
        if count == overflow_at:
            assert weight.grad is not None
            weight.grad.fill_(float("inf"))
        count += 1
        scaler.unscale_(optimizer)
        return loss

    return closure


def test_a_step_with_several_evaluations_sees_unscaled_gradients() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer, scaler = Twice([weight], lr=0.1), ClosureGradScaler("cpu")
    assert scaler.step_with_closure(optimizer, evaluate(scaler, optimizer, weight))
    scaler.update()
    # Beside 1.0 in the direction of the gradient lies 0.5, where the slope is -5.
    assert weight.item() == pytest.approx(1.0 + 0.1 * 5.0)
    assert scaler.get_scale() == 65536.0


@pytest.mark.parametrize("at", [0, 1])
def test_an_overflow_abandons_the_step(at: int) -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer, scaler = Twice([weight], lr=0.1), ClosureGradScaler("cpu")
    assert not scaler.step_with_closure(optimizer, evaluate(scaler, optimizer, weight, at))
    scaler.update()
    assert weight.item() == 1.0
    assert scaler.get_scale() == 32768.0


@pytest.mark.parametrize("at", [0, 2])
def test_an_optimizer_that_knows_nothing_of_scaling_is_taken_out_of_its_step(at: int) -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.LBFGS([weight], lr=0.3, max_iter=5)
    scaler = ClosureGradScaler("cpu")
    assert needs_closure(optimizer)
    assert not scaler.step_with_closure(optimizer, evaluate(scaler, optimizer, weight, at))
    scaler.update()
    assert weight.item() == 1.0
    assert scaler.get_scale() == 32768.0
    assert scaler.step_with_closure(optimizer, evaluate(scaler, optimizer, weight))
    scaler.update()
    assert abs(weight.item() - 3.0) < abs(1.0 - 3.0)


def test_lbfgs_with_scaling_takes_the_steps_of_lbfgs() -> None:
    plain = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    scaled = torch.nn.Parameter(plain.detach().clone())
    one = torch.optim.LBFGS([plain], lr=0.1, max_iter=4)
    other = torch.optim.LBFGS([scaled], lr=0.1, max_iter=4)
    scaler = ClosureGradScaler("cpu")

    def closure() -> torch.Tensor:
        one.zero_grad()
        loss = ((plain - 3.0) ** 2).sum()
        loss.backward()
        return loss

    for _ in range(3):
        one.step(closure)
        assert scaler.step_with_closure(other, evaluate(scaler, other, scaled))
        scaler.update()
    torch.testing.assert_close(scaled, plain)


def test_the_scale_survives() -> None:
    one, other = ClosureGradScaler("cpu", init_scale=8.0), ClosureGradScaler("cpu")
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.LBFGS([weight])
    one.step_with_closure(optimizer, evaluate(one, optimizer, weight, 0))
    one.update()
    other.load_state_dict(one.state_dict())
    assert other.get_scale() == 4.0
