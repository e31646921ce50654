"""Recipes that run: the outcome, the folder, and what `composer train` answers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from composer.core import plugins
from composer.models import ComposerClassifier
from composer.optim import DecoupledSGDW
from composer.recipes import Outcome, RecipeError, Target, parse_recipe, run_recipe
from composer.recipes.command import TrainCommand

RECIPE = """\
seed: 5
description: a line
target: {metric: MulticlassAccuracy, value: 0.95, stop: true}
model: line
train_data: {dataset: signs, batch_size: 8}
eval_data: {dataset: signs, batch_size: 16}
optimizer: {sgd: {lr: 0.5}}
loggers: [{note: {filename: "{folder}/note.txt"}}]
trainer: {max_duration: 20ep, progress_bar: false, save_interval: 100ep}
"""


def signs(flip: bool = False) -> TensorDataset:
    """Two classes that a line separates, or (flipped) labels that nothing can learn."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 4, generator=generator)
    y = (x[:, 0] > 0).long()
    return TensorDataset(x, torch.randint(2, (64,), generator=generator) if flip else y)


def line() -> ComposerClassifier:
    return ComposerClassifier(torch.nn.Linear(4, 2), num_classes=2)


def loader() -> Any:
    return DataLoader(signs(), batch_size=8)


def note(filename: str) -> Any:
    from composer.core.callback import Callback

    Path(filename).parent.mkdir(parents=True, exist_ok=True)
    Path(filename).write_text("note", encoding="utf-8")
    return Callback()


def gone() -> Any:
    raise FileNotFoundError(2, "No such file or directory", "/nowhere")


def broken(at: int = 0) -> Any:
    from composer.core.callback import Callback

    class Broken(Callback):
        def batch_start(self, state: Any, logger: Any) -> None:
            if int(state.timestamp.batch) == at:
                raise ValueError(f"at batch {at}")

    return Broken()


def stopper() -> Any:
    from composer.callbacks.early_stopper import EarlyStopper

    return EarlyStopper("MulticlassAccuracy", "evl")


THINGS: dict[str, Any] = {
    "signs": signs,
    "line": line,
    "loader": loader,
    "sgd": DecoupledSGDW,
    "note": note,
    "gone": gone,
    "broken": broken,
    "broken_later": lambda: broken(1),
    "stopper": stopper,
}


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(group: str, name: str) -> Any:
        if name not in THINGS:
            raise plugins.PluginNotFoundError(f"no {plugins.GROUPS[group].noun} named {name!r}")
        return THINGS[name]

    import composer.recipes.resolve as resolve

    monkeypatch.setattr(plugins, "load", load)
    monkeypatch.setitem(resolve.resolve_recipe.__kwdefaults__, "load", load)


def run(tmp_path: Path, *overrides: str, **kwargs: Any) -> Outcome:
    recipe = parse_recipe(RECIPE, name="signs", overrides=["loggers=[]", *overrides])
    return run_recipe(recipe, folder=tmp_path, **kwargs)


def test_a_run_stops_at_its_target(tmp_path: Path) -> None:
    outcome = run(tmp_path)
    assert outcome.reached
    assert outcome.metrics["MulticlassAccuracy"] >= 0.95
    assert 0 < outcome.epochs < 20
    assert outcome.batches == 8 * outcome.epochs
    assert outcome.samples == 64 * outcome.epochs
    assert outcome.folder == tmp_path / "signs"
    assert outcome.seed == 5
    assert "reached" in outcome.table()


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    first, second, third = (
        run(tmp_path, "trainer.max_duration=3ba", "target.stop=false", seed=seed)
        for seed in (1, 1, 2)
    )
    assert dict(first.metrics) == dict(second.metrics)
    assert dict(first.metrics) != dict(third.metrics)


def test_a_missed_target(tmp_path: Path) -> None:
    outcome = run(tmp_path, "trainer.max_duration=1ba", "target.value=1.01")
    assert not outcome.reached
    assert "MISSED" in outcome.table()


def test_exactly_the_target_is_reached(tmp_path: Path) -> None:
    outcome = run(tmp_path, "trainer.max_duration=50ep", "target.value=1.0", "optimizer.sgd.lr=5.0")
    assert outcome.metrics["MulticlassAccuracy"] == 1.0
    assert outcome.epochs < 50


def test_each_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    names = [run(tmp_path, "trainer.max_duration=1ba").folder.name for _ in range(3)]
    assert names == ["signs", "signs-2", "signs-3"]
    for name in names:
        assert list((tmp_path / name / "checkpoints").iterdir())


def test_the_last_evaluation_is_that_of_the_last_weights(tmp_path: Path) -> None:
    never = run(tmp_path, "trainer.max_duration=3ba", "trainer.eval_interval=0")
    often = run(tmp_path, "trainer.max_duration=3ba", "trainer.eval_interval=1ba", "target.stop=no")
    assert dict(never.metrics) == dict(often.metrics)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["trainer.max_duration=ten epochs"], "ten epochs"),
        (["target.metric=MulticlasAccuracy"], 'Did you mean "MulticlassAccuracy"'),
        (["train_data={dataset: signs}"], "'signs' needs batch_size"),
        (["train_data.batch_size=65"], "more than the 64 samples"),
        (["train_data.dataset=loader"], "makes its own batches"),
        (["optimizer.sgd.momentum=-1"], "momentum"),
        (["model=lines"], "no model named 'lines'"),
        (["trainer={progress_bar: false}"], "max_duration"),
        (["trainer.save_folder=/proc/x"], "/proc/x"),
        (["train_data.dataset=gone"], "No such file or directory: '/nowhere'"),
        (["callbacks=[stopper]"], 'Did you mean "eval"'),
    ],
)
def test_recipes_that_cannot_run(tmp_path: Path, overrides: list[str], text: str) -> None:
    with pytest.raises(RecipeError) as caught:
        run(tmp_path, *overrides)
    assert text in str(caught.value)


def test_errors_amid_training_stay_what_they_are(tmp_path: Path) -> None:
    for name, batch in (("broken", 0), ("broken_later", 1)):
        with pytest.raises(ValueError, match=f"at batch {batch}") as caught:
            run(tmp_path, f"callbacks=[{name}]")
        assert not isinstance(caught.value, RecipeError)


def test_workers_do_not_stay_over_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def watch(self: Any, dataset: Any, **settings: Any) -> None:
        seen.append(settings.pop("persistent_workers", False))
        settings["num_workers"] = 0
        init(self, dataset, **settings)

    init = DataLoader.__init__
    monkeypatch.setattr(DataLoader, "__init__", watch)
    run(tmp_path, "train_data.num_workers=2", "trainer.max_duration=1ba")
    assert seen == [False, False]


def test_a_plugin_may_give_a_loader(tmp_path: Path) -> None:
    outcome = run(tmp_path, "train_data={dataset: loader}", "trainer.max_duration=2ba")
    assert outcome.samples == 16


# ---- the command -----------------------------------------------------------------------------


def train(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command = TrainCommand()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


@pytest.fixture
def recipe_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    text = RECIPE.replace('loggers: [{note: {filename: "{folder}/note.txt"}}]\n', "")
    (tmp_path / "signs.yaml").write_text(text, encoding="utf-8")
    return "signs.yaml"


def test_exit_status(recipe_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(recipe_file) == 0
    out = capsys.readouterr().out
    assert "signs: a line" in out
    assert "runs/signs/checkpoints" in out
    assert train(recipe_file, "target.value=1.01", "--seed", "7", "trainer.max_duration=1ba") == 1
    captured = capsys.readouterr()
    assert "seed 7" in captured.out
    assert "missed" in captured.err
    assert train(recipe_file, "modl=line") == 2
    assert 'Did you mean "model"' in capsys.readouterr().err
    assert train("nothing.yaml") == 2
    assert train(recipe_file, "trainer={progress_bar: false}") == 2
    assert "signs.yaml: the section trainer needs max_duration" in capsys.readouterr().err
    Path("bomb.yaml").write_text(
        "a0: &a0 x\n"
        + "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(7))
    )
    assert train("bomb.yaml") == 2
    assert "more than 10,000 values" in capsys.readouterr().err
    assert Path("runs/signs-2").is_dir()
    assert not Path("runs/signs-3").exists()


def test_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(plugins, "names", lambda group: ["bad", "good"])
    good = {"description": "a good one", "model": "m", "train_data": {"dataset": "d"}}
    monkeypatch.setitem(THINGS, "good", {**good, "trainer": {}})
    monkeypatch.setitem(THINGS, "bad", lambda: 3)
    assert train("--list") == 2
    out = capsys.readouterr().out
    assert "good  a good one" in out
    assert "bad   cannot be used" in out


def test_the_folder_stands_where_the_recipe_says(tmp_path: Path) -> None:
    recipe = parse_recipe(
        RECIPE.replace("loggers:", "callbacks:"),
        name="signs",
        overrides=["trainer.max_duration=1ba"],
    )
    outcome = run_recipe(recipe, folder=tmp_path)
    assert (tmp_path / "signs" / "note.txt").read_text() == "note"
    assert str(tmp_path / "signs" / "note.txt") in outcome.table()


def test_less_can_be_better() -> None:
    def outcome(value: float, **target: Any) -> Outcome:
        return Outcome(
            "r", 1, {"m": value}, Target("m", 0.5, **target), 1, 1, 1, 1.0, 1.0, Path("x"), ()
        )

    assert outcome(0.6).reached
    assert outcome(torch.tensor(0.49999998).item()).reached
    assert not outcome(0.4999).reached
    assert not outcome(0.6, better="less").reached
    assert outcome(0.5, better="less").reached
