"""Sharpness-aware steps: against two explicit gradients, with loss scaling, and over resumption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.algorithms import SAM
from composer.algorithms.sam import SAMOptimizer, climb
from composer.core import Callback, Event, Logger, State
from composer.loggers import InMemoryLogger
from composer.models import ComposerClassifier
from composer.optim import ConstantWithWarmupScheduler
from composer.trainer import OptimizerStep

RHO = 0.3


def data() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(24, 5, generator=generator)
    return DataLoader(TensorDataset(inputs, (inputs.sum(1) > 0).long()), 6, shuffle=True)


def network() -> ComposerClassifier:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(7, 2)
    )
    return ComposerClassifier(layers, num_classes=2)


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize(
    "base",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=0.01),
        lambda p: torch.optim.SGD([{"params": [one], "lr": 0.1} for one in p]),
    ],
    ids=["momentum", "adamw", "a group per parameter"],
)
def test_steps_are_those_of_two_explicit_gradients(base: Any, interval: int) -> None:
    torch.manual_seed(1)
    start = [torch.randn(3, 2, dtype=torch.float64), torch.randn(3, dtype=torch.float64)]
    x = torch.randn(8, 2, dtype=torch.float64)
    y = torch.randn(8, 3, dtype=torch.float64)
    by_method = [torch.nn.Parameter(p.clone()) for p in start]
    by_hand = [torch.nn.Parameter(p.clone()) for p in start]
    optimizer = SAMOptimizer(base(by_method), rho=RHO, interval=interval)
    plain = base(by_hand)

    def loss_at(weights: list[torch.Tensor]) -> torch.Tensor:
        weight, bias = weights
        return (torch.tanh(x @ weight.T + bias) - y).square().mean()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_at(by_method)  # type: ignore[arg-type]
        loss.backward()
        return loss

    for step in range(7):
        before = loss_at(by_method)  # type: ignore[arg-type]
        returned = optimizer.step(closure)
        torch.testing.assert_close(returned, before)
        gradients = torch.autograd.grad(loss_at(by_hand), by_hand)  # type: ignore[arg-type]
        if step % interval == 0:
            norm = sum(float(g.square().sum()) for g in gradients) ** 0.5
            neighbour = [
                (p + RHO * g / norm).detach().requires_grad_()
                for p, g in zip(by_hand, gradients, strict=True)
            ]
            gradients = torch.autograd.grad(loss_at(neighbour), neighbour)  # type: ignore[arg-type]
        for parameter, gradient in zip(by_hand, gradients, strict=True):
            parameter.grad = gradient
        plain.step()
        torch.testing.assert_close(list(by_method), list(by_hand))


def test_the_climb_is_a_move_of_the_radius_along_the_gradient() -> None:
    parameters = [torch.randn(4, requires_grad=True), torch.randn(2, 2, requires_grad=True)]
    sum((p**3).sum() for p in parameters).backward()  # type: ignore[union-attr]
    before = [p.detach().clone() for p in parameters]
    moves = climb(parameters, rho=RHO)
    length = sum(float(m.square().sum()) for m in moves) ** 0.5
    assert length == pytest.approx(RHO, rel=1e-5)
    for p, b, m in zip(parameters, before, moves, strict=True):
        torch.testing.assert_close(p.detach(), b + m)
    assert climb([torch.ones(1, requires_grad=True)]) == []


@pytest.mark.parametrize("fails_at", [1, 2])
def test_an_evaluation_that_failed_makes_no_step(fails_at: int) -> None:
    x = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = SAMOptimizer(torch.optim.SGD([x], lr=0.1, momentum=0.9))
    calls = []

    def closure() -> torch.Tensor | None:
        calls.append(1)
        optimizer.zero_grad()
        loss = x.square().sum()
        loss.backward()
        return None if len(calls) == fails_at else loss

    assert optimizer.step(closure) is None
    assert x.tolist() == [2.0]
    assert len(calls) == fails_at
    assert optimizer.num_steps == 0
    assert not optimizer.state


def test_a_loss_of_zero_is_no_failure() -> None:
    x = torch.nn.Parameter(torch.tensor([0.0]))
    optimizer = SAMOptimizer(torch.optim.SGD([x], lr=0.1))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (x * 0).sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) == 0.0
    assert optimizer.num_steps == 1


class _StopAt(Callback):
    def __init__(self, batch: int) -> None:
        self.batch = batch

    def batch_end(self, state: State, logger: Logger) -> None:
        if state.timestamp.batch == self.batch:
            state.stop_training()


def train(folder: Path, stop_at: int | None = None, **settings: Any) -> Trainer:
    model = network()
    trainer = Trainer(
        model=model,
        train_dataloader=data(),
        max_duration="4ep",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        algorithms=[SAM(rho=0.1, interval=3)],
        schedulers=ConstantWithWarmupScheduler("4ba"),
        save_folder=str(folder),
        save_interval="1ba",
        autoresume=True,
        run_name="run",
        callbacks=[] if stop_at is None else [_StopAt(stop_at)],
        seed=3,
        progress_bar=False,
        **settings,
    )
    trainer.fit()
    return trainer


@pytest.mark.parametrize("precision", ["fp32", "amp_fp16"])
@pytest.mark.parametrize("stop_at", [1, 5, 9])
def test_it_resumes_in_the_middle_of_an_interval(
    tmp_path: Path, stop_at: int, precision: str
) -> None:
    straight = train(tmp_path / "straight", precision=precision)
    straight.close()
    train(tmp_path / "cut", stop_at, precision=precision).close()
    resumed = train(tmp_path / "cut", precision=precision)
    resumed.close()
    torch.testing.assert_close(
        resumed.state.model.state_dict(), straight.state.model.state_dict(), rtol=0, atol=0
    )


@pytest.mark.parametrize("microbatch", [6, 2])
@pytest.mark.parametrize("precision", ["fp32", "amp_bf16"])
def test_a_batch_is_reported_and_counted_once(microbatch: int, precision: str) -> None:
    """What is logged is the loss where the weights were, and statistics move once a microbatch."""
    seen: dict[str, Any] = {}
    for name, methods in (("plain", []), ("sam", [SAM(rho=0.5)])):
        torch.manual_seed(0)
        layers = torch.nn.Sequential(
            torch.nn.Linear(5, 7),
            torch.nn.BatchNorm1d(7),
            torch.nn.Dropout(),
            torch.nn.Linear(7, 2),
        )
        model = ComposerClassifier(layers, num_classes=2)
        log = InMemoryLogger()
        trainer = Trainer(
            model=model,
            train_dataloader=data(),
            max_duration="3ba",
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
            algorithms=methods,
            loggers=[log],
            device_train_microbatch_size=microbatch,
            precision=precision,
            seed=4,
            progress_bar=False,
        )
        trainer.fit()
        trainer.close()
        seen[name] = {key: float(value[0][1]) for key, value in log.data.items() if "train" in key}
        assert int(layers[1].num_batches_tracked) == 3 * 6 // microbatch
        assert int(trainer.state.timestamp.sample) == 18
    assert seen["sam"]["loss/train/total"] == seen["plain"]["loss/train/total"]
    metric = "metrics/train/MulticlassAccuracy"
    assert seen["sam"][metric] == seen["plain"][metric]


def test_both_gradients_are_those_of_one_function() -> None:
    """With dropout, the neighbour's gradient is taken with the units that were dropped at first."""
    kept = []

    class Watched(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.nn.functional.dropout(x, 0.5)
            kept.append((out != 0).detach())
            return out

    model = ComposerClassifier(
        torch.nn.Sequential(torch.nn.Linear(5, 64), Watched(), torch.nn.Linear(64, 2)),
        num_classes=2,
    )
    trainer = Trainer(
        model=model,
        train_dataloader=data(),
        max_duration="3ba",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        algorithms=[SAM()],
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    assert len(kept) == 6
    for first, second in zip(kept[::2], kept[1::2], strict=True):
        assert torch.equal(first, second)
    assert not torch.equal(kept[0], kept[2])


def test_optimizers_that_take_turns_each_get_it() -> None:
    model = network()
    first, second = model.module[0], model.module[3]
    turns = [
        OptimizerStep(torch.optim.SGD(first.parameters(), lr=0.1), name="body"),
        OptimizerStep(torch.optim.SGD(second.parameters(), lr=0.1), name="head"),
    ]
    trainer = Trainer(
        model=model,
        train_dataloader=data(),
        max_duration="2ba",
        optimizers=turns,
        algorithms=[SAM()],
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    assert [o.num_steps for o in trainer.state.optimizers] == [2, 2]  # type: ignore[attr-defined]


def test_optimizers_that_step_together_are_refused() -> None:
    model = network()
    trainer = Trainer(
        model=model,
        train_dataloader=data(),
        max_duration="2ba",
        optimizers=[torch.optim.SGD(model.module[i].parameters(), lr=0.1) for i in (0, 3)],
        algorithms=[SAM()],
        progress_bar=False,
    )
    with pytest.raises(ValueError, match="OptimizerStep"):
        trainer.fit()
    trainer.close()


def test_it_trains_and_its_checkpoints_load_without_it(tmp_path: Path) -> None:
    trainer = train(tmp_path / "with")
    batch = next(iter(DataLoader(data().dataset, 24)))
    model = trainer.state.model.eval()
    with torch.no_grad():
        assert float(model.loss(model(batch), batch)) < 0.5 < 0.69
    trainer.close()
    plain = network()
    with pytest.warns(UserWarning, match="SAM"):
        without = Trainer(
            model=plain,
            train_dataloader=data(),
            max_duration="5ep",
            optimizers=torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9),
            schedulers=ConstantWithWarmupScheduler("4ba"),
            load_path=str(tmp_path / "with" / "latest-rank0.pt"),
            progress_bar=False,
        )
    assert int(without.state.timestamp.batch) == 16
    assert type(without.state.optimizers[0]) is torch.optim.SGD
    without.fit()
    without.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"rho": -1}, ValueError),
        ({"epsilon": -1e-3}, ValueError),
        ({"interval": 0}, ValueError),
        ({"interval": 1.5}, TypeError),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        SAM(**arguments)


def test_a_second_one_and_an_optimizer_that_evaluates_itself_are_refused(make_run: Any) -> None:
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match="room for one SAM"):
        make_run(
            model, [SAM(), SAM()], optimizers=torch.optim.SGD(model.parameters(), lr=0.1)
        ).fire(Event.INIT)
    with pytest.raises(TypeError, match="LBFGS"):
        make_run(model, [SAM()], optimizers=torch.optim.LBFGS(model.parameters())).fire(Event.INIT)
