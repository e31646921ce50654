"""A schedule that the script changed has, in a run that continues, the rates it asks for."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.core.callback import Callback
from composer.core.logger import Logger
from composer.core.state import State
from composer.optim import LinearScheduler
from composer.trainer import Trainer
from composer.trainer.rescheduling import let_go
from composer.trainer.settings import SettingsReport
from composer_testing.tiny import TinyModel, loader


def checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("ep*.pt"))


SCHEDULES = torch.optim.lr_scheduler


def sequential(optimizer: Any, milestone: int = 4, gamma: float = 0.5) -> Any:
    warmup = SCHEDULES.LinearLR(optimizer, start_factor=0.25, total_iters=4)
    return SCHEDULES.SequentialLR(
        optimizer, [warmup, SCHEDULES.ExponentialLR(optimizer, gamma)], [milestone]
    )


def one_cycle(optimizer: Any, total_steps: int = 9) -> Any:
    return SCHEDULES.OneCycleLR(optimizer, max_lr=0.5, total_steps=total_steps)


def chained(optimizer: Any, gamma: float = 0.5) -> Any:
    warmup = SCHEDULES.ConstantLR(optimizer, factor=0.1, total_iters=3)
    return SCHEDULES.ChainedScheduler([warmup, SCHEDULES.ExponentialLR(optimizer, gamma)])


def cyclic(optimizer: Any, up: int = 3) -> Any:
    return SCHEDULES.CyclicLR(optimizer, base_lr=0.1, max_lr=0.4, step_size_up=up)


def step(optimizer: Any, step_size: int = 2) -> Any:
    return SCHEDULES.StepLR(optimizer, step_size, gamma=0.5)


def restarts(optimizer: Any, first: int = 2) -> Any:
    return SCHEDULES.CosineAnnealingWarmRestarts(optimizer, first)


class Rates(Callback):
    """Rate and momentum of each batch."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def batch_start(self, state: State, logger: Logger) -> None:
        group = state.optimizers[0].param_groups[0]
        self.seen.append((float(group["lr"]), float(group["momentum"])))


def rates(make: Any, lr: float = 0.1, duration: str = "8ba", late: bool = False, **how: Any) -> Any:
    """Train, and return the rates and momenta of all batches."""
    model, seen = TinyModel(), Rates()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    trainer = Trainer(
        model=model, optimizers=optimizer, schedulers=None if make is None else make(optimizer),
        train_dataloader=None if late else loader(size=40), max_duration=duration, seed=3,
        step_schedulers_every_batch=True, progress_bar=False, callbacks=seen, **how,
    )  # fmt: skip
    trainer.fit(train_dataloader=loader(size=40) if late else None)
    trainer.close()
    return seen.seen


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (sequential, lambda o: sequential(o, 6), r"milestones of SequentialLR: stored \[4\]"),
        (sequential, lambda o: sequential(o, 2), r"milestones of SequentialLR: stored \[4\]"),
        (sequential, lambda o: sequential(o, 2, 0.9), r"gamma of SequentialLR's ExponentialLR: "),
        (one_cycle, lambda o: one_cycle(o, 14), r"total_steps of OneCycleLR: stored 9, script 14"),
        (chained, lambda o: chained(o, 0.9), r"gamma of ChainedScheduler's ExponentialLR: "),
        (cyclic, lambda o: cyclic(o, 5), r"total_size of CyclicLR"),
        (step, lambda o: step(o, 3), r"step_size of StepLR: stored 2, script 3"),
        (restarts, lambda o: restarts(o, 5), r"T_0 of CosineAnnealingWarmRestarts: stored 2"),
        (step, sequential, r"schedulers: stored \['StepLR'\], script \['SequentialLR\(LinearLR"),
        (step, one_cycle, r"schedulers: stored \['StepLR'\], script \['OneCycleLR'\]"),
        (one_cycle, step, r"schedulers: stored \['OneCycleLR'\], script \['StepLR'\]"),
        (step, None, r"schedulers: stored \['StepLR'\], script \[\]"),
        (one_cycle, None, r"schedulers: stored \['OneCycleLR'\], script \[\]"),
        (None, step, r"schedulers: stored \[\], script \['StepLR'\]"),
    ],
)  # fmt: skip
def test_a_schedule_that_the_script_changed_is_at_its_place(
    tmp_path: Path, old: Any, new: Any, said: str, late: bool
) -> None:
    """The rates of the rest are those of a run that had the new schedule from the start."""
    rates(old, duration="5ba", save_folder=str(tmp_path))
    file = str(checkpoints(tmp_path)[-1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = rates(new, load_path=file, late=late)
    texts = [str(w.message) for w in caught]
    # A cyclic schedule brings a rate of its own, which is a difference too.
    about = [text for text in texts if "lr of SGD group 0" not in text or "schedulers" in text]
    assert len(about) == 1, texts
    assert re.search(said, about[0])
    assert found == [pytest.approx(pair) for pair in rates(new)[5:]]


@pytest.mark.parametrize("make", [sequential, chained, step, cyclic, one_cycle, restarts])
def test_a_schedule_that_did_not_change_continues_bit_for_bit(tmp_path: Path, make: Any) -> None:
    straight = rates(make, save_folder=str(tmp_path), save_interval="5ba")
    # A warning would be an error here.
    assert rates(make, load_path=str(checkpoints(tmp_path)[0])) == straight[5:]


@pytest.mark.parametrize("make", [sequential, chained, step])
def test_a_changed_rate_reaches_the_parts_of_a_schedule(tmp_path: Path, make: Any) -> None:
    rates(make, duration="3ba", save_folder=str(tmp_path))
    with pytest.warns(UserWarning, match=r"lr of SGD group 0: stored 0\.1, script 0\.02"):
        found = rates(make, lr=0.02, load_path=str(checkpoints(tmp_path)[0]))
    assert found == [pytest.approx(pair) for pair in rates(make, lr=0.02)[3:]]


def test_only_the_named_settings_of_a_schedule_are_the_scripts(tmp_path: Path) -> None:
    rates(sequential, duration="5ba", save_folder=str(tmp_path))
    with pytest.warns(UserWarning, match=r"gamma .*script 0\.9 \(the checkpoint is used\)"):
        found = rates(
            lambda o: sequential(o, 2, 0.9),
            load_path=str(checkpoints(tmp_path)[0]),
            load_overrides=["milestones"],
        )
    assert found == [pytest.approx(pair) for pair in rates(lambda o: sequential(o, 2))[5:]]


def test_what_follows_from_a_named_setting_is_the_scripts_too(tmp_path: Path) -> None:
    rates(one_cycle, duration="5ba", save_folder=str(tmp_path))
    with pytest.warns(UserWarning, match="total_steps of OneCycleLR"):
        found = rates(
            lambda o: one_cycle(o, 14),
            load_path=str(checkpoints(tmp_path)[0]),
            load_overrides=["total_steps"],
        )
    assert found == [pytest.approx(pair) for pair in rates(lambda o: one_cycle(o, 14))[5:]]


def test_a_schedule_that_is_over_before_the_run_is_refused(tmp_path: Path) -> None:
    rates(one_cycle, duration="5ba", save_folder=str(tmp_path))
    with (
        pytest.warns(UserWarning, match="total_steps"),
        pytest.raises(ValueError, match=r"OneCycleLR of this script cannot take the 5 steps"),
    ):
        rates(lambda o: one_cycle(o, 3), load_path=str(checkpoints(tmp_path)[0]))


def test_a_schedule_of_this_library_that_is_left_out_leaves_the_scripts_rate(
    tmp_path: Path,
) -> None:
    ours = lambda optimizer: LinearScheduler(t_max="8ba")  # noqa: E731 - one line of a table
    rates(ours, duration="5ba", save_folder=str(tmp_path))
    file = str(checkpoints(tmp_path)[0])
    with pytest.warns(UserWarning, match=r"stored \['LinearScheduler'\], script \[\]"):
        assert rates(None, load_path=file) == [(0.1, 0.9)] * 3
    with pytest.warns(UserWarning, match=r"stored \['LinearScheduler'\], script \['StepLR'\]"):
        found = rates(step, load_path=file)
    assert found == [pytest.approx(pair) for pair in rates(step)[5:]]


def test_what_a_checkpoint_decided_once_is_no_request_of_the_script(tmp_path: Path) -> None:
    """load_overrides=[] kept the old rate; left out later, the script decides, which is said."""
    rates(None, lr=0.1, duration="2ba", save_folder=str(tmp_path / "a"))
    with pytest.warns(UserWarning, match=r"script 0\.02 \(the checkpoint is used\)"):
        kept = rates(
            None, lr=0.02, duration="4ba", load_overrides=[], save_folder=str(tmp_path / "b"),
            load_path=str(checkpoints(tmp_path / "a")[0]),
        )  # fmt: skip
    assert kept == [(0.1, 0.9)] * 2
    file = str(checkpoints(tmp_path / "b")[0])
    with pytest.warns(UserWarning, match=r"stored 0\.1, script 0\.02 \(the checkpoint is used\)"):
        assert rates(None, lr=0.02, load_path=file, load_overrides=[]) == [(0.1, 0.9)] * 4
    with pytest.warns(UserWarning, match=r"stored 0\.1, script 0\.02 \(the script is used\)"):
        assert rates(None, lr=0.02, load_path=file) == [(0.02, 0.9)] * 4


def test_a_strict_refusal_says_nothing_of_what_is_used(tmp_path: Path) -> None:
    rates(step, duration="2ba", save_folder=str(tmp_path))
    with pytest.raises(
        ValueError, match=r"lr of SGD group 0: stored 0\.1, script 0\.02"
    ) as refusal:
        rates(step, lr=0.02, load_path=str(checkpoints(tmp_path)[0]), strict_mode=True)
    assert "is used" not in str(refusal.value)


def test_rank_zero_speaks_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    # A warning would be an error here.
    monkeypatch.setattr("composer.trainer.settings.dist.get_global_rank", lambda: 1)
    report = SettingsReport(overrides=None, strict=False)
    report.note("lr", "lr", 0.1, 0.2)
    report.say()
    assert not report.lines


def test_a_new_schedule_starts_from_the_rate_that_the_checkpoint_decided(tmp_path: Path) -> None:
    rates(None, duration="5ba", save_folder=str(tmp_path))
    file = str(checkpoints(tmp_path)[0])
    with pytest.warns(UserWarning, match=r"lr of .* \(the checkpoint is used\).*'StepLR'"):
        found = rates(step, lr=0.02, load_path=file, load_overrides=[])
    assert found == [pytest.approx(pair) for pair in rates(step)[5:]]


def test_a_run_that_continues_itself_compares_schedules_that_come_late(tmp_path: Path) -> None:
    """Weights to begin with are one thing, and the run's own checkpoint another."""
    weights = tmp_path / "weights"
    rates(step, duration="1ba", save_folder=str(weights))
    how: dict[str, Any] = {
        "load_path": str(checkpoints(weights)[0]), "load_weights_only": True, "late": True,
        "autoresume": True, "run_name": "a", "save_folder": str(tmp_path / "run"),
    }  # fmt: skip
    rates(step, duration="5ba", **how)
    with pytest.warns(UserWarning, match="step_size of StepLR: stored 2, script 3"):
        found = rates(lambda o: step(o, 3), **how)
    assert found == [pytest.approx(pair) for pair in rates(lambda o: step(o, 3))[5:]]


def test_a_second_fit_does_not_say_it_again(tmp_path: Path) -> None:
    rates(step, duration="2ba", save_folder=str(tmp_path))
    model = TinyModel()
    trainer = Trainer(
        model=model, optimizers=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        train_dataloader=loader(size=40), max_duration="3ba", seed=3, progress_bar=False,
        load_path=str(checkpoints(tmp_path)[0]),
    )  # fmt: skip
    with pytest.warns(UserWarning, match=r"stored \['StepLR'\], script \[\]"):
        trainer.fit()
    trainer.fit(duration="1ba")  # a warning would be an error here
    trainer.close()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_an_optimizer_that_is_let_go_has_the_options_it_was_made_with(
    kind: type[torch.optim.Optimizer],
) -> None:
    own = {"momentum": 0.9} if kind is torch.optim.SGD else {"betas": (0.9, 0.99)}
    optimizer = kind([torch.nn.Parameter(torch.ones(1))], lr=0.1, **own)  # type: ignore[call-arg]
    made = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    schedule = one_cycle(optimizer, 9)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    # Where the cycle began is not what the script asks for; `reconcile_optimizers` puts that here.
    optimizer.param_groups[0]["initial_lr"] = 0.1
    let_go(optimizer, made, scheduled=False)
    left = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    assert left == made
