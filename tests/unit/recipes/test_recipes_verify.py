"""`composer verify-resume`: exact recipes pass; of others the first difference is named."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from composer.core import plugins
from composer.core.algorithm import Algorithm
from composer.core.callback import Callback
from composer.core.event import Event
from composer.models import ComposerClassifier
from composer.optim import CosineAnnealingWithWarmupScheduler, DecoupledSGDW
from composer.recipes import RecipeError, Verdict, parse_recipe, verify_resume
from composer.recipes.verify import parse_points
from composer.recipes.verify_command import VerifyResumeCommand

RECIPE = """\
seed: 5
model: line
train_data: {dataset: signs, batch_size: 8}
eval_data: {dataset: signs, batch_size: 16}
optimizer: {sgd: {lr: 0.5, momentum: 0.9}}
scheduler: {cosine: {t_warmup: 3ba}}
loggers: [nowhere]
trainer: {max_duration: 3ep, progress_bar: false, save_interval: 1ba, autoresume: true}
"""


def signs() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(48, 4, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long())


def line() -> ComposerClassifier:
    net = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(4, 2))
    return ComposerClassifier(net, num_classes=2)


class Forgetful(Algorithm):
    """Counts batches, keeps the count for itself, and lets it change the gradients."""

    events = frozenset({Event.AFTER_TRAIN_BATCH})

    def __init__(self) -> None:
        self.count = 0

    def apply(self, event: Event, state: Any, logger: Any) -> None:
        self.count += 1
        for parameter in state.model.parameters():
            parameter.grad *= self.count


class Clock(Callback):
    """Draws from a stream as often as this process has trained."""

    def __init__(self) -> None:
        self.batches = 0

    def batch_end(self, state: Any, logger: Any) -> None:
        self.batches += 1
        torch.rand(self.batches)


class Warm(Callback):
    """Sets a learning rate by what it remembers of this process."""

    def __init__(self) -> None:
        self.batches = 0

    def before_dataloader(self, state: Any, logger: Any) -> None:
        self.batches += 1
        state.optimizers[0].param_groups[0]["lr"] = 0.1 / self.batches


class Says(Callback):
    """Logs what it remembers of this process."""

    def __init__(self) -> None:
        self.batches = 0

    def batch_end(self, state: Any, logger: Any) -> None:
        self.batches += 1
        logger.log_metrics({"my/count": self.batches})


class Buffer(Callback):
    """Keeps a number in the model that its state dictionary does not hold rightly."""

    def after_load(self, state: Any, logger: Any) -> None:
        with torch.no_grad():
            state.model.module[1].weight.mul_(2)


class Drifting(Dataset[Any]):
    """Items that depend on how many were read before."""

    reads = 0

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return torch.full((4,), float(index if self.reads % 3 else -self.reads)), index % 2


class Noisy(Drifting):
    """Items with noise from the stream of whoever reads them."""

    def __getitem__(self, index: int) -> Any:
        return torch.rand(4) + index, index % 2


def nowhere() -> Any:
    raise AssertionError("loggers are left out")


class Different(Callback):
    """Not the same in any two runs."""

    def batch_start(self, state: Any, logger: Any) -> None:
        torch.manual_seed(next(_COUNTER))


_COUNTER = iter(range(10**6))
THINGS: dict[str, Any] = {
    "signs": signs,
    "line": line,
    "sgd": DecoupledSGDW,
    "cosine": CosineAnnealingWithWarmupScheduler,
    "nowhere": nowhere,
    "drifting": Drifting,
    "noisy": Noisy,
    "forgetful": Forgetful,
    "clock": Clock,
    "warm": Warm,
    "says": Says,
    "buffer": Buffer,
    "different": Different,
}


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    import composer.recipes.resolve as resolve

    monkeypatch.setattr(plugins, "load", lambda group, name: THINGS[name])
    monkeypatch.setitem(
        resolve.resolve_recipe.__kwdefaults__, "load", lambda group, name: THINGS[name]
    )


def verify(*overrides: str, at: str = "2ba", **settings: Any) -> list[Verdict]:
    recipe = parse_recipe(RECIPE, name="signs", overrides=list(overrides))
    return verify_resume(recipe, parse_points(at), **settings)


def test_an_exact_recipe_is_equal_at_every_point() -> None:
    verdicts = verify(at="2ba,6ba,1ep,8ba")
    assert [v.point for v in verdicts] == ["2ba", "6ba", "1ep", "8ba"]
    assert [v.difference for v in verdicts] == [""] * 4
    assert all(v.compared > 100 for v in verdicts)


def test_nothing_is_written_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    verify()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("algorithms=[forgetful]", r"batch 3: logged loss/train/total: straight \d.*resumed \d"),
        ("callbacks=[clock]", r"batch 3: random stream torch: straight"),
        ("callbacks=[warm]", r"batch 2: learning rate of DecoupledSGDW group 0: straight 0\.03"),
        ("callbacks=[says]", r"batch 3: logged my/count: straight 3, resumed 1"),
        ("callbacks=[buffer]", r"state/model/module.1.weight right after loading"),
        ("train_data.dataset=drifting", r"batch 2: data at 0, samples \d, \d"),
    ],
)
def test_the_first_difference_is_named(override: str, named: str) -> None:
    (verdict,) = verify(override)
    assert re.match(named, verdict.difference), verdict.difference
    assert str(verdict).startswith("2ba: DIFFERS, first in ")


def test_a_recipe_that_is_never_the_same_is_told_apart() -> None:
    (verdict,) = verify("callbacks=[different]")
    assert "not equal even without an interruption" in verdict.difference
    assert verdict.difference.startswith("batch 0: random stream torch")


@pytest.mark.slow
@pytest.mark.parametrize("data", ["noisy", "signs"])
def test_worker_processes_are_exact_too(data: str) -> None:
    (verdict,) = verify(f"train_data.dataset={data}", "train_data.num_workers=2")
    assert verdict.difference == ""


@pytest.mark.parametrize("duration", ["4ba", "1ep", "2ep", "3ep"])
def test_how_far_to_train(duration: str) -> None:
    lines: list[str] = []
    (verdict,) = verify(duration=parse_points(duration)[0], say=lines.append)
    assert verdict.difference == ""
    batches = {"4ba": 4, "1ep": 6, "2ep": 12, "3ep": 18}[duration]
    assert f"{batches} batches" in lines[1]


@pytest.mark.parametrize(("at", "batches"), [("2ba", 7), ("1ep", 11), ("1ep,2ba", 11)])
def test_some_batches_beyond_the_points_are_enough(at: str, batches: int) -> None:
    lines: list[str] = []
    verify(at=at, say=lines.append)
    assert f"{batches} batches" in lines[1]


@pytest.mark.parametrize("text", ["3", "3sp", "0ba", "x", "", "1ep,,2ep", "0.5dur"])
def test_what_is_no_point(text: str) -> None:
    with pytest.raises(ValueError, match="is not a point"):
        parse_points(text)


def test_a_point_beyond_the_end_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"ended after 18 batches, before the point 9ep"):
        verify(at="9ep")


def command(tmp_path: Path, *words: str) -> int:
    path = tmp_path / "signs.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    parser = argparse.ArgumentParser()
    VerifyResumeCommand().add_arguments(parser)
    return VerifyResumeCommand().run(parser.parse_args([str(path), *words]))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, "--at", "3ba,1ep") == 0
    printed = capsys.readouterr()
    assert [line.split()[:2] for line in printed.out.splitlines()] == [
        ["3ba:", "equal"],
        ["1ep:", "equal"],
    ]
    assert "training straight" in printed.err
    assert command(tmp_path, "--at", "3ba", "callbacks=[says]") == 1
    assert "3ba: DIFFERS, first in batch 4: logged my/count" in capsys.readouterr().out
    assert command(tmp_path, "--at", "3min") == 2
    assert command(tmp_path, "--duration", "never") == 2
    assert command(tmp_path, "trainer.nothing=1") == 2
