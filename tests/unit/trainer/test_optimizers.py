"""More than one optimizer: together by one loss, or in turns, each with a loss of its own."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from composer.core.callback import Callback
from composer.core.logger import Logger
from composer.core.model import ComposerModel
from composer.core.state import State
from composer.trainer import OptimizerStep, Trainer


class Pair(ComposerModel):
    """A generator of one number and a critic of it, small enough to train by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Linear(2, 2)
        self.critic = nn.Linear(2, 1)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.critic(self.generator(batch))

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return (outputs**2).mean()

    def judge(self, batch: Any) -> Any:
        return self.critic(batch), self.critic(self.generator(batch))

    def critic_loss(self, outputs: Any, batch: Any) -> torch.Tensor:
        real, made = outputs
        return made.mean() - real.mean() + (real**2).mean()

    def generator_loss(self, outputs: Any, batch: Any) -> dict[str, torch.Tensor]:
        return {"fool": -outputs.mean(), "size": (outputs**2).mean()}


def data(count: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(5, 2, generator=generator) for _ in range(count)]


def fit(model: ComposerModel, optimizers: Any, **settings: Any) -> Trainer:
    settings.setdefault("train_dataloader", data())
    settings.setdefault("max_duration", "1ep")
    trainer = Trainer(model=model, optimizers=optimizers, progress_bar=False, seed=1, **settings)
    trainer.fit()
    trainer.close()
    return trainer


def test_together_equals_the_plain_loop() -> None:
    model = Pair()
    twin = copy.deepcopy(model)
    one = torch.optim.SGD(model.generator.parameters(), lr=0.1)
    two = torch.optim.AdamW(model.critic.parameters(), lr=0.05)
    by_hand = [
        torch.optim.SGD(twin.generator.parameters(), lr=0.1),
        torch.optim.AdamW(twin.critic.parameters(), lr=0.05),
    ]
    for batch in data():
        for optimizer in by_hand:
            optimizer.zero_grad()
        twin.loss(twin(batch), batch).backward()
        for optimizer in by_hand:
            optimizer.step()
    fit(model, [one, two])
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def turns(model: Pair, **critic: Any) -> list[OptimizerStep]:
    return [
        OptimizerStep(
            torch.optim.SGD(model.critic.parameters(), lr=0.1),
            name="critic",
            forward="judge",
            loss="critic_loss",
            **critic,
        ),
        OptimizerStep(
            torch.optim.Adam(model.generator.parameters(), lr=0.05),
            name="generator",
            loss="generator_loss",
            every=2,
        ),
    ]


@pytest.mark.parametrize("microbatch", [None, 2])
def test_turns_equal_the_plain_loop(microbatch: int | None) -> None:
    model = Pair().double()
    twin = copy.deepcopy(model)
    batches = [b.double() for b in data()]
    critic = torch.optim.SGD(twin.critic.parameters(), lr=0.1)
    generator = torch.optim.Adam(twin.generator.parameters(), lr=0.05)
    for i, batch in enumerate(batches):
        critic.zero_grad()
        first = twin.critic_loss(twin.judge(batch), batch)
        first.backward()
        critic.step()
        if i % 2 == 0:
            generator.zero_grad()
            parts = twin.generator_loss(twin(batch), batch)
            (parts["fool"] + parts["size"]).backward()
            generator.step()

    seen: list[dict[str, float]] = []

    class Losses(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            seen.append(dict(state.total_loss_dict))

    fit(
        model,
        turns(model),
        train_dataloader=batches,
        callbacks=Losses(),
        device_train_microbatch_size=microbatch,
    )
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert all(p.requires_grad for p in model.parameters())
    assert set(seen[4]) == {
        f"loss/train/{name}"
        for name in ("critic/total", "generator/fool", "generator/size", "generator/total", "total")
    }
    assert set(seen[5]) == {"loss/train/critic/total", "loss/train/total"}
    last = seen[5]
    assert last["loss/train/critic/total"] == pytest.approx(first.item(), abs=1e-12)
    assert last["loss/train/total"] == last["loss/train/critic/total"]


def test_each_turn_has_schedules_of_its_own() -> None:
    from composer.optim import LinearScheduler

    model = Pair()
    steps = turns(model, schedulers=LinearScheduler())
    torchs = torch.optim.lr_scheduler.StepLR(steps[1].optimizer, 2, gamma=0.5)
    seen: list[tuple[float, float]] = []

    class Rates(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            rates = [o.param_groups[0]["lr"] for o in state.optimizers]
            seen.append((rates[0], rates[1]))

    fit(model, [steps[0], OptimizerStep(**{**vars(steps[1]), "schedulers": torchs})],
        callbacks=Rates(), step_schedulers_every_batch=True)  # fmt: skip
    assert [a for a, _ in seen] == pytest.approx([0.1 * (1 - k / 6) for k in range(6)])
    # The generator steps at batches 0, 2 and 4, so its rate halves after its second step.
    assert [b for _, b in seen] == pytest.approx([0.05, 0.05, 0.05, 0.025, 0.025, 0.025])


def test_turns_continue_exactly(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Pair()
    again = copy.deepcopy(model)
    straight = fit(model, turns(model), save_folder=str(tmp_path), save_interval="3ba")
    resumed = fit(again, turns(again), load_path=str(tmp_path / "ep0-ba3-rank0.pt"))
    for name, value in straight.state.model.state_dict().items():
        assert torch.equal(value, resumed.state.model.state_dict()[name])
    a, b = (t.state.optimizers[1].state_dict()["state"] for t in (straight, resumed))
    assert all(torch.equal(a[k]["exp_avg"], b[k]["exp_avg"]) for k in a)


def test_one_overflow_holds_all_optimizers_back() -> None:
    from composer.core.algorithm import Algorithm
    from composer.core.event import Event

    class Overflow(Algorithm):
        events = frozenset({Event.AFTER_BACKWARD})

        def apply(self, event: Event, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 1:
                state.model.critic.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]

    model = Pair()
    kept: list[list[torch.Tensor]] = []

    class Watch(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            kept.append([p.detach().clone() for p in state.model.parameters()])

    optimizers = [
        torch.optim.SGD(model.generator.parameters(), lr=0.1),
        torch.optim.SGD(model.critic.parameters(), lr=0.1),
    ]
    trainer = Trainer(
        model=model, optimizers=optimizers, precision="amp_fp16", algorithms=Overflow(),
        callbacks=Watch(), train_dataloader=data(), max_duration="1ep", progress_bar=False,
    )  # fmt: skip
    assert trainer.state.scaler is not None
    scale = {**trainer.state.scaler.state_dict(), "scale": 8.0}  # so that nothing else overflows
    trainer.state.scaler.load_state_dict(scale)
    trainer.fit()
    trainer.close()
    assert all(torch.equal(a, b) for a, b in zip(kept[0], kept[1], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(kept[1], kept[2], strict=True))
    assert trainer.state.num_skipped_steps == 1


def test_bad_sets_of_optimizers_are_refused() -> None:
    model = Pair()
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    two = torch.optim.AdamW(model.critic.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="the SGD and the AdamW both update"):
        fit(model, [one, two])
    with pytest.raises(TypeError, match="mixes OptimizerStep"):
        fit(model, [OptimizerStep(one, name="a"), two])
    with pytest.raises(ValueError, match="names of the optimizer steps must differ"):
        fit(model, [OptimizerStep(one, name="a"), OptimizerStep(two, name="a")])
    with pytest.raises(ValueError, match=r"loss='los'.*no method"):
        fit(model, [OptimizerStep(one, name="a", loss="los")])
    with pytest.raises(ValueError, match="every must be a positive whole number"):
        OptimizerStep(one, name="a", every=0)
    lbfgs = torch.optim.LBFGS(model.generator.parameters())
    with pytest.raises(ValueError, match="LBFGS evaluates the loss itself"):
        fit(model, [lbfgs, two])


def test_gradients_of_another_turn_are_not_clipped_along() -> None:
    """A norm over all gradients sees this turn's only."""
    from composer.algorithms import GradientClipping

    seen: list[set[str]] = []

    class Watch(Callback):
        def after_train_batch(self, state: State, logger: Logger) -> None:
            named = state.model.named_parameters()
            seen.append({name.split(".")[0] for name, p in named if p.grad is not None})

    model = Pair()
    fit(
        model, turns(model), callbacks=Watch(), max_duration="3ba",
        algorithms=GradientClipping(clipping_type="norm", clipping_threshold=1.0),
    )  # fmt: skip
    assert seen == [{"critic"}, {"generator"}, {"critic"}, {"critic"}, {"generator"}]


def test_what_a_batch_of_several_updates_cannot_undo_is_refused() -> None:
    model = Pair()
    with pytest.raises(ValueError, match="where optimizers take turns"):
        fit(model, turns(model), on_nonfinite_loss="skip")


def test_an_optimizer_without_gradients_does_not_hinder_loss_scaling() -> None:
    model = Pair()
    for parameter in model.critic.parameters():
        parameter.requires_grad_(False)
    optimizers = [
        torch.optim.SGD(model.generator.parameters(), lr=0.1),
        torch.optim.SGD(model.critic.parameters(), lr=0.1),
    ]
    before = model.generator.weight.detach().clone()
    fit(model, optimizers, precision="amp_fp16", max_duration="3ba")
    assert not torch.equal(model.generator.weight, before)


def test_a_turn_that_overflowed_does_not_move_its_schedules(tmp_path: Path) -> None:
    """By the clock of its own updates, also in a run that continues; the others go on."""
    from composer.core.algorithm import Algorithm
    from composer.core.event import Event
    from composer.optim import LinearScheduler

    class Overflow(Algorithm):
        """The critic's second and fourth turn."""

        events = frozenset({Event.AFTER_BACKWARD})

        def apply(self, event: Event, state: State, logger: Logger) -> None:
            gradient = state.model.critic.weight.grad  # type: ignore[union-attr]
            if gradient is not None and int(state.timestamp.batch) in (1, 3):
                gradient.fill_(float("inf"))  # type: ignore[operator]

    seen: list[tuple[float, float]] = []

    class Rates(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            seen.append(tuple(o.param_groups[0]["lr"] for o in state.optimizers))  # type: ignore[arg-type]

    def run(**settings: Any) -> Trainer:
        torch.manual_seed(0)
        model = Pair()
        both = [
            OptimizerStep(
                torch.optim.SGD(parameters, lr=0.1), name=name, forward=forward, loss=loss,
                schedulers=LinearScheduler(t_max="10ba"),
            )
            for parameters, name, forward, loss in (
                (model.critic.parameters(), "critic", "judge", "critic_loss"),
                (model.generator.parameters(), "generator", "forward", "generator_loss"),
            )
        ]  # fmt: skip
        trainer = Trainer(
            model=model, optimizers=both, precision="amp_fp16", algorithms=Overflow(),
            callbacks=Rates(), train_dataloader=data(), max_duration="1ep", progress_bar=False,
            seed=1, **settings,
        )  # fmt: skip
        assert trainer.state.scaler is not None
        if not settings.get("load_path"):
            scale = {**trainer.state.scaler.state_dict(), "scale": 8.0}  # nothing else overflows
            trainer.state.scaler.load_state_dict(scale)
        trainer.fit()
        trainer.close()
        return trainer

    straight = run(save_folder=str(tmp_path), save_interval="4ba", save_filename="ba{batch}.pt")
    # Batches 1 and 3 did not update the critic, so its clock stands still behind them.
    assert [critic for critic, _ in seen] == pytest.approx(
        [0.1 * (1 - k / 10) for k in (0, 1, 1, 2, 2, 3)]
    )
    assert [generator for _, generator in seen] == pytest.approx(
        [0.1 * (1 - k / 10) for k in range(6)]
    )
    assert straight.state.num_skipped_steps == 0
    rates = seen[4:]
    seen.clear()
    resumed = run(load_path=str(tmp_path / "ba4.pt"))
    assert seen == rates
    for name, value in straight.state.model.state_dict().items():
        assert torch.equal(value, resumed.state.model.state_dict()[name]), name
