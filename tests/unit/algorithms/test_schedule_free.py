"""Steps without a schedule: the averages of the paper, and both sets of weights in their places."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.algorithms import EMA, SAM, SWA, ScheduleFree
from composer.core import Callback, Event, Logger, State
from composer.functional import averaged_weights, make_schedule_free
from composer.models import ComposerClassifier


def test_steps_are_those_of_the_paper() -> None:
    """The three sequences of the paper, written out: z steps, x averages, y lies between."""
    torch.manual_seed(0)
    target = torch.randn(4, dtype=torch.float64)
    start = torch.randn(4, dtype=torch.float64)
    weights = torch.nn.Parameter(start.clone())
    optimizer = make_schedule_free(torch.optim.SGD([weights], lr=0.3, momentum=0.8))
    x, z = start.clone(), start.clone()
    for t in range(1, 7):
        y = 0.2 * z + 0.8 * x
        torch.testing.assert_close(weights.detach(), y)
        optimizer.zero_grad()
        (0.5 * (weights - target).square().sum()).backward()
        optimizer.step()
        z = z - 0.3 * (y - target)
        x = x * (1 - 1 / t) + z / t
        with averaged_weights([optimizer]):
            torch.testing.assert_close(weights.detach(), x)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), "SGDScheduleFree"),
        (lambda p: torch.optim.AdamW(p, lr=0.1), "AdamWScheduleFree"),
        (lambda p: torch.optim.Adam(p, lr=0.1), "AdamWScheduleFree"),
    ],
)
def test_groups_keep_their_options(made: Any, kind: str) -> None:
    one, two = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = made([{"params": [one], "lr": 0.5}, {"params": [two]}])
    free = make_schedule_free(optimizer, warmup_steps=3)
    assert type(free).__name__ == kind
    assert [g["lr"] for g in free.param_groups] == [0.5, 0.1]
    assert [g["params"][0] is p for g, p in zip(free.param_groups, (one, two), strict=True)]
    assert free.param_groups[0]["warmup_steps"] == 3
    assert make_schedule_free(free) is free


def test_both_sets_of_weights_are_exact_and_survive_an_error() -> None:
    weights = torch.nn.Parameter(torch.randn(5))
    optimizer = make_schedule_free(torch.optim.AdamW([weights], lr=0.1))
    for _ in range(3):
        weights.grad = torch.randn(5)
        optimizer.step()
    trained = weights.detach().clone()

    def fail() -> None:
        with averaged_weights([optimizer]):
            assert not torch.equal(weights, trained)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert torch.equal(weights, trained)
    weights.grad = torch.randn(5)
    optimizer.step()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda p: torch.optim.Adagrad(p), TypeError, "Adagrad.*AdamW"),
        (lambda p: torch.optim.AdamW(p, amsgrad=True), ValueError, "amsgrad"),
        (lambda p: torch.optim.SGD(p, lr=0.1, maximize=True), ValueError, "maximize"),
        (lambda p: torch.optim.Adam(p, weight_decay=0.1), ValueError, "weight_decay"),
    ],
)
def test_what_has_no_counterpart_is_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make_schedule_free(call([torch.nn.Parameter(torch.ones(1))]))


def test_bad_arguments_are_named() -> None:
    for name, value in (("warmup_steps", -1), ("r", -0.5), ("weight_lr_power", "2")):
        with pytest.raises((TypeError, ValueError), match=name):
            ScheduleFree(**{name: value})  # type: ignore[arg-type]
    weights = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weights], lr=0.1, momentum=0.9)
    weights.grad = torch.ones(1)
    optimizer.step()
    with pytest.raises(ValueError, match="made steps"):
        make_schedule_free(optimizer)


class _Watch(Callback):
    """Keeps what the model holds in an evaluation and around it; stops the run."""

    def __init__(self, stop_at: int | None) -> None:
        self.stop_at = stop_at
        self.seen: dict[str, Any] = {}

    def _keep(self, name: str, state: State) -> None:
        self.seen[name] = {k: v.clone() for k, v in state.model.state_dict().items()}

    def eval_start(self, state: State, logger: Logger) -> None:
        self._keep("in evaluation", state)

    def batch_end(self, state: State, logger: Logger) -> None:
        self._keep("in training", state)
        if state.timestamp.batch == self.stop_at:
            state.stop_training()


def data() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(24, 5, generator=generator)
    return DataLoader(TensorDataset(inputs, (inputs.sum(1) > 0).long()), 6, shuffle=True)


def trainer_for(folder: Path, stop_at: int | None = None, **settings: Any) -> Trainer:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))
    model = ComposerClassifier(layers, num_classes=2)
    return Trainer(
        model=model,
        train_dataloader=data(),
        eval_dataloader=data(),
        eval_interval="2ba",
        max_duration="5ep",
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.05),
        **{"algorithms": [ScheduleFree(warmup_steps=3)], **settings},
        save_folder=str(folder),
        save_interval="1ba",
        autoresume=True,
        run_name="run",
        callbacks=[_Watch(stop_at)],
        seed=3,
        progress_bar=False,
    )


@pytest.mark.parametrize("stop_at", [1, 6])
def test_it_resumes_exactly(tmp_path: Path, stop_at: int) -> None:
    ends = []
    for name, stops in (("straight", [None]), ("cut", [stop_at, None])):
        for stop in stops:
            trainer = trainer_for(tmp_path / name, stop)
            trainer.fit()
            trainer.close()
        ends.append(trainer.state)
    straight, resumed = ends
    torch.testing.assert_close(
        resumed.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0
    )
    loss = straight.model.loss(straight.model(batch := next(iter(data()))), batch)  # type: ignore[operator]
    assert float(loss.detach()) < 0.4 < 0.69


def test_evaluation_and_checkpoints_have_the_average(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path)
    trainer.fit()
    trainer.close()
    watch = next(c for c in trainer.state.callbacks if isinstance(c, _Watch))
    training = trainer.state.model.state_dict()
    torch.testing.assert_close(training, watch.seen["in training"], rtol=0, atol=0)
    optimizer = trainer.state.optimizers[0]
    x = {}
    for name, parameter in trainer.state.model.named_parameters():
        # y = x + (1 - beta) (z - x), so x = (y - (1 - beta) z) / beta
        z = optimizer.state[parameter]["z"]
        x[name] = (parameter.detach() - 0.1 * z) / 0.9
    evaluated = watch.seen["in evaluation"]
    torch.testing.assert_close({k: evaluated[k] for k in x}, x, rtol=1e-4, atol=1e-6)
    loaded = Trainer(
        model=copy.deepcopy(trainer.state.model),
        load_path=str(tmp_path / "latest-rank0.pt"),
        load_weights_only=True,
    ).state.model.state_dict()
    torch.testing.assert_close({k: loaded[k] for k in x}, {k: evaluated[k] for k in x})


def test_conflicts_are_refused(make_run: Any) -> None:
    model = torch.nn.Linear(1, 1)
    fields: dict[str, Any] = {"optimizers": torch.optim.SGD(model.parameters(), lr=0.1)}
    for other in (SAM(), EMA(), SWA()):
        words = f"ScheduleFree and {type(other).__name__} cannot be used together"
        with pytest.raises(ValueError, match=words):
            make_run(model, [ScheduleFree(), other], **fields).fire(Event.INIT)
