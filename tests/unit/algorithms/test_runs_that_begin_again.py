"""Methods in a run whose clock is set to zero, in runs that follow each other, and resumed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.algorithms import (
    EMA,
    SAM,
    SWA,
    GyroDropout,
    LayerFreezing,
    MixUp,
    ProgressiveResizing,
    ScheduleFree,
)
from composer.core import Callback, Logger, State
from composer.models import ComposerClassifier
from composer.utils.curriculum import curriculum_loader, curriculum_value


def data(shuffle: bool = False) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(8, 6, generator=generator)
    return DataLoader(TensorDataset(inputs, torch.arange(8) % 2), 4, shuffle=shuffle)


def network() -> ComposerClassifier:
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Dropout(), nn.Linear(6, 2)
    )
    return ComposerClassifier(layers, num_classes=2)


def trainer_of(algorithms: list[Any], **settings: Any) -> Trainer:
    model = network()
    return Trainer(
        model=model,
        train_dataloader=data(),
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.01),
        **{"max_duration": "4ep", "seed": 1, **settings},
        algorithms=algorithms,
        progress_bar=False,
    )


def test_frozen_layers_are_trained_again_when_the_clock_is_set_to_zero() -> None:
    trainer = trainer_of([LayerFreezing(freeze_start=0.25)])
    trainer.fit()
    first = next(trainer.state.model.parameters())
    assert not first.requires_grad
    before = first.detach().clone()
    trainer.fit(duration="4ep", reset_time=True)
    assert not torch.equal(first, before)
    trainer.close()


@pytest.mark.parametrize(
    ("method", "count"),
    [
        (lambda: SWA("1ep", "3ep", "1ep"), lambda m: m.num_averaged),
        (lambda: EMA(half_life="1ba", ema_start="0.5dur"), lambda m: int(m.ema_started)),
    ],
    ids=["swa", "ema"],
)
def test_averages_begin_anew_when_the_clock_is_set_to_zero(method: Any, count: Any) -> None:
    seen: list[int] = []
    made = method()

    class Watch(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            seen.append(count(made))

    trainer = trainer_of([made], callbacks=[Watch()])
    trainer.fit()
    first, seen[:] = list(seen), []
    trainer.fit(duration="4ep", reset_time=True)
    trainer.close()
    assert first[0] == 0 < first[-1]
    assert seen == first


def test_an_object_that_two_live_trainers_have_trains_each_rightly() -> None:
    alone = trainer_of([GyroDropout(sigma=8, tau=1)])
    alone.fit()
    shared = GyroDropout(sigma=8, tau=1)
    first, second = trainer_of([shared]), trainer_of([shared])
    first.fit()
    second.fit()
    for trainer in (first, second):
        torch.testing.assert_close(
            trainer.state.model.state_dict(), alone.state.model.state_dict(), rtol=0, atol=0
        )
    for trainer in (alone, first, second):
        trainer.close()


class Pictures(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        side = round(8 * curriculum_value("image_scale", 1.0))
        return torch.ones(1, side, side), index % 2


@pytest.mark.parametrize("breaks_off", [False, True])
def test_a_loader_is_released_after_a_run_and_at_the_next(breaks_off: bool) -> None:
    sizes: list[int] = []
    breaks = breaks_off

    class Watch(Callback):
        def before_train_batch(self, state: State, logger: Logger) -> None:
            sizes.append(state.batch[0].shape[-1])
            if breaks and len(sizes) == 2:
                raise RuntimeError("broken off")

    class Model(ComposerClassifier):
        def forward(self, batch: Any) -> torch.Tensor:
            return self.module(batch[0].mean((2, 3)))

    loader = curriculum_loader(Pictures(), 4)

    def run(algorithms: list[Any]) -> Trainer:
        model = Model(nn.Linear(1, 2), num_classes=2)
        return Trainer(
            model=model,
            train_dataloader=loader,
            max_duration="4ba",
            optimizers=torch.optim.SGD(model.parameters(), lr=0.01),
            algorithms=algorithms,
            callbacks=[Watch()],
            progress_bar=False,
        )

    first = run([ProgressiveResizing(initial_scale=0.5, delay_fraction=0.4)])
    if breaks_off:
        with pytest.raises(RuntimeError, match="broken off"):
            first.fit()
    else:
        first.fit()
        assert next(iter(loader))[0].shape[-1] == 8
    first.close()
    assert sizes[0] == 4
    sizes.clear()
    breaks = False
    second = run([])
    second.fit()
    second.close()
    assert sizes == [8] * 4


def test_a_loader_that_is_evaluated_on_too_is_refused() -> None:
    loader = curriculum_loader(Pictures(), 4)
    model = ComposerClassifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), num_classes=2)
    trainer = Trainer(
        model=model,
        train_dataloader=loader,
        eval_dataloader=loader,
        max_duration="4ba",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.01),
        algorithms=[ProgressiveResizing()],
        progress_bar=False,
    )
    with pytest.raises(ValueError, match="eval_dataloader is the same loader"):
        trainer.fit()
    trainer.close()


def test_other_arguments_than_those_of_the_checkpoint_are_said(tmp_path: Path) -> None:
    first = trainer_of([MixUp(alpha=0.2)], save_folder=str(tmp_path), max_duration="1ep")
    first.fit()
    first.close()
    path = str(tmp_path / "latest-rank0.pt")
    with pytest.warns(UserWarning, match=r"MixUp .*alpha: stored 0.2, script 0.4"):
        trainer_of([MixUp(alpha=0.4)], load_path=path).close()
    trainer_of([MixUp(alpha=0.2)], load_path=path).close()


def test_settings_of_a_schedule_free_optimizer_are_those_of_the_script(tmp_path: Path) -> None:
    first = trainer_of([ScheduleFree(warmup_steps=9)], save_folder=str(tmp_path))
    first.fit()
    first.close()
    with pytest.warns(UserWarning, match="warmup_steps: stored 9, script 2"):
        second = trainer_of(
            [ScheduleFree(warmup_steps=2, r=0.5)], load_path=str(tmp_path / "latest-rank0.pt")
        )
    group = second.state.optimizers[0].param_groups[0]
    assert (group["warmup_steps"], group["r"], group["k"]) == (2, 0.5, 8)
    second.close()


def test_a_torch_schedule_of_a_wrapped_optimizer_is_taken() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Trainer(
        model=model,
        train_dataloader=data(),
        max_duration="2ep",
        optimizers=optimizer,
        schedulers=torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
        algorithms=[SAM()],
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.025)


@pytest.mark.parametrize("event", ["eval_start", "eval_batch_end", "eval_end"])
def test_a_checkpoint_in_an_evaluation_resumes_exactly(tmp_path: Path, event: str) -> None:
    made: list[Trainer] = []

    class Save(Callback):
        def run_event(self, fired: Any, state: State, logger: Logger) -> None:
            if fired.value == event and state.timestamp.batch == 3:
                made[0].save_checkpoint(str(tmp_path / "inside.pt"))

    settings: dict[str, Any] = {"eval_dataloader": data(), "eval_interval": "3ba"}
    straight = trainer_of([], callbacks=[Save()], **settings)
    made.append(straight)
    straight.fit()
    resumed = trainer_of([], load_path=str(tmp_path / "inside.pt"), **settings)
    assert resumed.state.timestamp.batch == 3
    resumed.fit()
    torch.testing.assert_close(
        resumed.state.model.state_dict(), straight.state.model.state_dict(), rtol=0, atol=0
    )
    for trainer in (straight, resumed):
        trainer.close()
