"""Decoupled optimizers against slow hand-written loops and torch's own optimizers."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch

from composer.optim import DecoupledAdamW, DecoupledSGDW

STEPS = 10


def make_params(dtype: torch.dtype = torch.float64) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(4, 3), (3,), (2, 1, 2)]
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in shapes
    ]


def set_grads(params: list[torch.nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)


def learning_rate(step: int) -> float:
    return 0.1 * (1 - step / (2 * STEPS))


def train(optimizer: torch.optim.Optimizer, params: list[torch.nn.Parameter]) -> None:
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        set_grads(params, step)
        optimizer.step()


def slow_sgd(momentum: float, dampening: float, decay: float, nesterov: bool) -> list[list[float]]:
    result = []
    for index, p in enumerate(make_params()):
        numbers = p.detach().flatten().tolist()
        buffers: list[float | None] = [None] * len(numbers)
        for step in range(STEPS):
            params = make_params()
            set_grads(params, step)
            grad = params[index].grad
            assert grad is not None
            lr = learning_rate(step)
            for i, g in enumerate(grad.flatten().tolist()):
                update = g
                if momentum:
                    old = buffers[i]
                    new = g if old is None else momentum * old + (1 - dampening) * g
                    buffers[i] = new
                    update = g + momentum * new if nesterov else new
                numbers[i] = numbers[i] * (1 - decay * lr / 0.1) - lr * update
        result.append(numbers)
    return result


@pytest.mark.parametrize(
    ("momentum", "dampening", "nesterov"),
    [(0.0, 0.0, False), (0.9, 0.0, False), (0.9, 0.3, False), (0.9, 0.0, True)],
)
@pytest.mark.parametrize("decay", [0.0, 5e-4])
def test_sgdw_against_a_slow_loop(
    momentum: float, dampening: float, nesterov: bool, decay: float
) -> None:
    params = make_params()
    optimizer = DecoupledSGDW(
        params, 0.1, momentum, dampening, weight_decay=decay, nesterov=nesterov
    )
    train(optimizer, params)
    for p, expected in zip(params, slow_sgd(momentum, dampening, decay, nesterov), strict=True):
        assert p.detach().flatten().tolist() == pytest.approx(expected, rel=1e-12)


def slow_adam(decay: float, amsgrad: bool) -> list[list[float]]:
    result = []
    for index, p in enumerate(make_params()):
        numbers = p.detach().flatten().tolist()
        m, v, top = [0.0] * len(numbers), [0.0] * len(numbers), [0.0] * len(numbers)
        for step in range(STEPS):
            params = make_params()
            set_grads(params, step)
            grad = params[index].grad
            assert grad is not None
            lr, t = learning_rate(step), step + 1
            for i, g in enumerate(grad.flatten().tolist()):
                m[i] = 0.9 * m[i] + 0.1 * g
                v[i] = 0.95 * v[i] + 0.05 * g * g
                top[i] = max(top[i], v[i])
                second = (top[i] if amsgrad else v[i]) / (1 - 0.95**t)
                numbers[i] *= 1 - decay * lr / 0.1
                numbers[i] -= lr * m[i] / (1 - 0.9**t) / (math.sqrt(second) + 1e-8)
        result.append(numbers)
    return result


@pytest.mark.parametrize("decay", [0.0, 5e-4])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adamw_against_a_slow_loop(decay: float, amsgrad: bool) -> None:
    params = make_params()
    train(DecoupledAdamW(params, 0.1, weight_decay=decay, amsgrad=amsgrad), params)
    for p, expected in zip(params, slow_adam(decay, amsgrad), strict=True):
        assert p.detach().flatten().tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            lambda p: DecoupledSGDW(p, 0.1, momentum=0.9, nesterov=True),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        ),
        (
            lambda p: DecoupledAdamW(p, 0.1, betas=(0.9, 0.999), weight_decay=0.0),
            lambda p: torch.optim.AdamW(p, 0.1, betas=(0.9, 0.999), weight_decay=0.0),
        ),
        (
            lambda p: DecoupledAdamW(p, 0.1, weight_decay=0.0, amsgrad=True),
            lambda p: torch.optim.AdamW(p, 0.1, (0.9, 0.95), weight_decay=0.0, amsgrad=True),
        ),
    ],
)
def test_without_decay_it_is_torchs_optimizer(ours: Any, theirs: Any) -> None:
    mine, other = make_params(torch.float32), make_params(torch.float32)
    train(ours(mine), mine)
    train(theirs(other), other)
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_decay_of_torch_adamw_times_the_learning_rate() -> None:
    lr, decay = 0.01, 0.05
    mine, other = make_params(torch.float32), make_params(torch.float32)
    ours = DecoupledAdamW(mine, lr, (0.9, 0.999), weight_decay=lr * decay)
    theirs = torch.optim.AdamW(other, lr, (0.9, 0.999), weight_decay=decay)
    for step in range(STEPS):
        set_grads(mine, step)
        set_grads(other, step)
        ours.step()
        theirs.step()
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-7)


@pytest.mark.parametrize("make", [DecoupledSGDW, DecoupledAdamW])
def test_decay_follows_the_schedule_and_not_the_learning_rate(make: Any) -> None:
    for lr in (1e-4, 10.0):
        p = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
        optimizer = make([p], lr=lr, weight_decay=5e-4)
        optimizer.param_groups[0]["lr"] = lr / 2
        p.grad = torch.zeros_like(p)
        optimizer.step()
        assert p.tolist() == pytest.approx([1 - 5e-4 / 2] * 3, rel=1e-12)


@pytest.mark.parametrize("make", [DecoupledSGDW, DecoupledAdamW])
def test_large_decay_is_said_once(make: Any) -> None:
    with pytest.warns(UserWarning, match="weight_decay=0.01 is large") as caught:
        make([{"params": [p]} for p in make_params()], lr=0.1, weight_decay=0.01)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(make_params(), lr=0.1, weight_decay=9e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: DecoupledSGDW(p, 0.1, momentum=0.9, weight_decay=1e-4),
        lambda p: DecoupledAdamW(p, 0.1, amsgrad=True),
    ],
)
def test_state_round_trip_continues_bitwise(make: Any, tmp_path: Any) -> None:
    whole = make_params(torch.float32)
    optimizer = make(whole)
    for step in range(6):
        set_grads(whole, step)
        optimizer.step()
        if step == 2:
            torch.save(
                ([p.detach().clone() for p in whole], optimizer.state_dict()), tmp_path / "o.pt"
            )
    half = make_params(torch.float32)
    saved_params, saved_state = torch.load(tmp_path / "o.pt", weights_only=True)
    with torch.no_grad():
        for p, q in zip(half, saved_params, strict=True):
            p.copy_(q)
    resumed = make(half)
    resumed.load_state_dict(saved_state)
    assert resumed.param_groups[0]["initial_lr"] == 0.1
    for step in range(3, 6):
        set_grads(half, step)
        resumed.step()
    for p, q in zip(whole, half, strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("make", [DecoupledSGDW, DecoupledAdamW])
def test_closure_parameters_without_gradient_and_late_groups(make: Any) -> None:
    used, idle, late = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    optimizer = make([used, idle], lr=0.1)
    optimizer.add_param_group({"params": [late], "lr": 0.5})
    assert [g["initial_lr"] for g in optimizer.param_groups] == [0.1, 0.5]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = used.sum() + 2 * late.sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 6.0
    assert torch.equal(idle, torch.ones(2))
    assert not torch.equal(used, torch.ones(2))
    assert not torch.equal(late, torch.ones(2))


def test_parameters_that_join_later_keep_their_own_step_count() -> None:
    # bias correction differs between parameters then
    def run(optimizer_class: Any, **kwargs: Any) -> list[torch.nn.Parameter]:
        params = make_params(torch.float32)
        optimizer = optimizer_class(params, 0.1, (0.9, 0.95), weight_decay=0.0, **kwargs)
        for step in range(4):
            set_grads(params, step)
            if step < 2:
                params[1].grad = None
            optimizer.step()
        return params

    for a, b in zip(run(DecoupledAdamW), run(torch.optim.AdamW, foreach=False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_adamw_refuses_sparse_and_complex() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.sparse_coo_tensor(
        torch.tensor([[0]]), torch.tensor([1.0]), (3,), check_invariants=True
    )
    with pytest.raises(RuntimeError, match="sparse"):
        DecoupledAdamW([p]).step()
    c = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    c.grad = torch.ones_like(c)
    with pytest.raises(RuntimeError, match="complex"):
        DecoupledAdamW([c]).step()


def test_sgdw_takes_sparse_gradients() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.sparse_coo_tensor(
        torch.tensor([[0]]), torch.tensor([1.0]), (3,), check_invariants=True
    )
    DecoupledSGDW([p], lr=0.5).step()
    assert p.tolist() == [0.5, 1.0, 1.0]


def test_arguments_out_of_range() -> None:
    with pytest.raises(ValueError, match="lr must be given"):
        DecoupledSGDW(make_params())
    with pytest.raises(ValueError, match="learning rate"):
        DecoupledSGDW(make_params(), lr=-0.1)
    with pytest.raises(ValueError, match="Nesterov"):
        DecoupledSGDW(make_params(), lr=0.1, nesterov=True)


def test_metrics_describe_the_step() -> None:
    param = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = DecoupledAdamW([param], lr=0.1, weight_decay=0.0, eps=0.0)
    before = param.detach().clone()
    param.grad = torch.tensor([0.6, 0.8])
    optimizer.step()
    metrics = optimizer.report_per_parameter_metrics(param, "w", {"kept": 1})
    assert metrics.pop("kept") == 1
    assert set(metrics) == {f"l2_norm/{k}/w" for k in ("moment", "param", "update", "grad")}
    assert metrics["l2_norm/grad/w"].item() == pytest.approx(1.0)
    assert metrics["l2_norm/moment/w"].item() == pytest.approx(0.1)
    assert metrics["l2_norm/param/w"].item() == pytest.approx(param.norm().item())
    assert metrics["l2_norm/update/w"].item() == pytest.approx((before - param).norm().item())
    assert all(value.device == param.device for value in metrics.values())


def test_metrics_of_parts_combine_to_the_whole() -> None:
    optimizer = DecoupledAdamW(make_params())
    prepared = optimizer.pre_reduce_metrics({"l2_norm/grad/w": torch.tensor(3.0), "b": 2.0})
    assert list(prepared) == ["b", "l2_norm/grad/w"]
    reduced = optimizer.dist_reduce_metrics(prepared)
    assert {k: float(v) for k, v in reduced.items()} == {"b": 2.0, "l2_norm/grad/w": 3.0}
    assert optimizer.dist_reduce_metrics({}) == {}
    untouched = optimizer.report_per_parameter_metrics(
        optimizer.param_groups[0]["params"][0], "w", {}
    )
    assert untouched == {}
