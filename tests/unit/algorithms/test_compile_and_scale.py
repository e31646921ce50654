"""Compilation at its place among the methods, and runs that are shorter than planned."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.algorithms import ActivationCheckpointing, BlurPool, Compile, ScaleSchedule
from composer.core import Callback, Logger, State, Time
from composer.functional import apply_compile, scale_schedule
from composer.models import ComposerClassifier
from composer.optim import LinearScheduler


def data() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(8, 2, 8, 8, generator=generator)
    return DataLoader(TensorDataset(inputs, torch.arange(8) % 2), 2)


def network() -> ComposerClassifier:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, stride=2, padding=1), torch.nn.Flatten(), torch.nn.Linear(64, 2)
    )
    return ComposerClassifier(layers, num_classes=2)


class _Rates(Callback):
    def __init__(self) -> None:
        self.rates: list[float] = []

    def batch_start(self, state: State, logger: Logger) -> None:
        self.rates.append(state.optimizers[0].param_groups[0]["lr"])


def run(model: Any = None, **settings: Any) -> tuple[Trainer, list[float]]:
    model = network() if model is None else model
    watch = _Rates()
    trainer = Trainer(
        model=model,
        train_dataloader=data(),
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=[watch],
        seed=1,
        progress_bar=False,
        **settings,
    )
    trainer.fit()
    trainer.close()
    return trainer, watch.rates


def test_half_a_schedule_has_half_the_steps_and_the_same_ends() -> None:
    trainer, rates = run(
        max_duration="4ep", schedulers=LinearScheduler(), algorithms=[ScaleSchedule(0.5)]
    )
    assert trainer.state.timestamp.batch == 8
    assert rates == pytest.approx([0.1 * (1 - step / 8) for step in range(8)])


def test_milestones_and_the_trainers_ratio_are_scaled_too() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = _Rates()
    trainer = Trainer(
        model=model,
        train_dataloader=data(),
        max_duration="16ba",
        optimizers=optimizer,
        schedulers=torch.optim.lr_scheduler.MultiStepLR(optimizer, [8, 12]),
        step_schedulers_every_batch=True,
        scale_schedule_ratio=0.5,
        algorithms=[ScaleSchedule(0.5)],
        callbacks=[watch],
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    assert watch.rates == pytest.approx([0.1, 0.1, 0.01, 0.001])


def test_a_duration_that_fit_is_given_is_scaled_as_well() -> None:
    model = network()
    trainer = Trainer(
        model=model,
        train_dataloader=data(),
        algorithms=["scale_schedule"],
        progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
    )
    trainer.fit(duration="8ba")
    assert trainer.state.timestamp.batch == 4
    trainer.fit(duration="8ba")
    assert trainer.state.timestamp.batch == 8
    trainer.close()


@pytest.mark.parametrize(
    ("duration", "ratio", "right"),
    [
        (1000, 0.25, 250),
        ("90ep", 0.7, "63ep"),
        (Time(3, "ep"), 2, Time(6, "ep")),
        ("7ba", 0.5, "3ba"),
    ],
)
def test_lengths_are_scaled_in_their_own_type(duration: Any, ratio: float, right: Any) -> None:
    scaled = scale_schedule(duration, ratio)
    assert scaled == right
    assert type(scaled) is type(right)


def test_a_length_does_not_become_nothing() -> None:
    with pytest.raises(ValueError, match="leaves nothing"):
        scale_schedule(4, 0.1)


@pytest.mark.parametrize("ratio", [0, -1, float("nan"), float("inf"), "1", True])
def test_bad_ratios_are_named(ratio: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="ratio="):
        ScaleSchedule(ratio)
    with pytest.raises((TypeError, ValueError), match="ratio="):
        scale_schedule(4, ratio)


@pytest.mark.slow
def test_compilation_comes_last_and_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[set[str]] = []
    compile_in_place = torch.nn.Module.compile

    def watched(self: torch.nn.Module, **settings: Any) -> None:
        there.append({type(module).__name__ for module in self.modules()})
        compile_in_place(self, **settings)

    monkeypatch.setattr(torch.nn.Module, "compile", watched)
    others = [ActivationCheckpointing("Linear"), BlurPool(min_channels=1)]
    plain, _ = run(max_duration="2ep", algorithms=others)
    with warnings.catch_warnings():
        # Torch hides a warning of its own while it traces, which "error" makes one of ours.
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor")
        compiled, _ = run(max_duration="2ep", algorithms=[Compile("eager"), *others])
    assert len(there) == 1
    assert {"RecomputedLinear", "BlurConv2d"} <= there[0]
    ours, theirs = compiled.state.model.state_dict(), plain.state.model.state_dict()
    torch.testing.assert_close(ours, theirs)
    assert list(ours) == list(theirs)


def test_a_model_is_compiled_once() -> None:
    model = torch.nn.Linear(1, 1)
    apply_compile(model, backend="eager")
    with pytest.raises(RuntimeError, match="compiled already"):
        apply_compile(model, backend="eager")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"backend": "inductr"}, "inductr.*inductor"),
        ({"backend": 3}, "backend=3"),
        ({"mode": "fast"}, "mode='fast'"),
        ({"mode": "default", "options": {"x": 1}}, "one of the two"),
        ({"fullgraph": "yes"}, "fullgraph='yes'"),
        ({"dynamic": "yes"}, "dynamic='yes'"),
        ({"options": 3}, "options=3"),
    ],
)
def test_bad_arguments_of_compile_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        Compile(**arguments)
