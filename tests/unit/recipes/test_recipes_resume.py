"""Runs that were cut go on in their folder, by `--resume` and without settings."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from composer.cli.main import main
from composer.core import plugins
from composer.core.callback import Callback
from composer.models import ComposerClassifier
from composer.optim import DecoupledSGDW
from composer.recipes import Outcome, RecipeError, Target, parse_recipe, run_recipe
from composer.recipes.folders import find_run_folder, new_run_folder
from composer.trainer import TrainingInterrupted

RECIPE = """\
model: line
train_data: {dataset: signs, batch_size: 8}
eval_data: {dataset: signs, batch_size: 16}
optimizer: {sgd: {lr: 0.5}}
callbacks: [watch]
trainer: {max_duration: 3ep, progress_bar: false, save_interval: 1ep}
"""


class Watch(Callback):
    """Notes the batches, and asks the process to end after one of them."""

    seen: list[torch.Tensor] = []
    evaluations = 0
    cut_at: int | None = None
    number = signal.SIGTERM

    def batch_start(self, state: Any, logger: Any) -> None:
        Watch.seen.append(state.batch[0].clone())

    def batch_end(self, state: Any, logger: Any) -> None:
        if int(state.timestamp.batch) == Watch.cut_at:
            Watch.cut_at = None
            os.kill(os.getpid(), Watch.number)

    def eval_end(self, state: Any, logger: Any) -> None:
        Watch.evaluations += 1


def signs() -> TensorDataset:
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, 0] > 0).long())


def line() -> ComposerClassifier:
    return ComposerClassifier(torch.nn.Linear(4, 2), num_classes=2)


@pytest.fixture(autouse=True)
def _signals_as_in_a_terminal() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _things(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from composer.recipes import resolve

    real = plugins.load
    things = {"signs": signs, "line": line, "sgd": DecoupledSGDW, "watch": Watch}

    def load(group: str, name: str) -> Any:
        return things[name] if name in things else real(group, name)

    monkeypatch.setattr(plugins, "load", load)
    monkeypatch.setitem(resolve.resolve_recipe.__kwdefaults__, "load", load)
    monkeypatch.setattr(Watch, "seen", [])
    monkeypatch.setattr(Watch, "evaluations", 0)
    monkeypatch.setattr(Watch, "cut_at", None)
    monkeypatch.chdir(tmp_path)
    Path("signs.yaml").write_text(RECIPE, encoding="utf-8")


def weights(folder: Path | str) -> dict[str, torch.Tensor]:
    file = Path(folder, "checkpoints", "latest-rank0.pt")
    return torch.load(file, weights_only=True)["state"]["model"]  # type: ignore[no-any-return]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", [[], ["--seed", "4", "optimizer.sgd.lr=0.25"]])
def test_the_last_line_of_an_interrupted_run_is_the_command_that_continues_it(
    number: int, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    # Without a seed the straight run draws one too, which the resumed run is to find out.
    straight_words = words or ["--seed", "11"]
    assert main(["train", "signs.yaml", "--folder", "straight", *straight_words]) == 0
    straight, Watch.seen = Watch.seen, []
    monkeypatch.setattr("composer.utils.reproducibility.get_random_seed", lambda: 11)
    Watch.cut_at, Watch.number = 11, signal.Signals(number)
    with pytest.raises(TrainingInterrupted) as caught:
        main(["train", "signs.yaml", *words])
    assert caught.value.code == 128 + number
    text = last_line(capsys)
    assert text.startswith("composer train: the run was ended by SIG")
    command = shlex.split(text.partition("to continue: composer ")[2])
    assert command == ["train", "signs.yaml", *reversed_seed(words), "--resume", "runs/signs"]
    assert len(Watch.seen) == 11
    monkeypatch.setattr("composer.utils.reproducibility.get_random_seed", lambda: 99)
    assert main(command) == 0
    out = capsys.readouterr().out
    assert f"result of signs (seed {4 if words else 11})" in out
    assert "in this process" in out
    assert len(Watch.seen) == len(straight) == 24
    assert all(torch.equal(a, b) for a, b in zip(straight, Watch.seen, strict=True))
    assert same(weights("runs/signs"), weights("straight/signs"))


def test_a_drawn_seed_is_that_of_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the settings ask for it: the order of the data is that of the first process."""
    draw = "composer.utils.reproducibility.get_random_seed"
    recipe = parse_recipe(RECIPE, name="signs", overrides=["trainer.autoresume=true"])
    monkeypatch.setattr(draw, lambda: 11)
    run_recipe(recipe, folder="straight")
    straight, Watch.seen = Watch.seen, []
    Watch.cut_at = 11
    with pytest.raises(TrainingInterrupted):
        run_recipe(recipe)
    monkeypatch.setattr(draw, lambda: 99)
    with pytest.warns(UserWarning, match="made with seed 11, which is used instead of seed=99"):
        outcome = run_recipe(recipe)
    assert outcome.seed == 11
    assert all(torch.equal(a, b) for a, b in zip(straight, Watch.seen, strict=True))
    assert same(weights("runs/signs"), weights("straight/signs"))


def reversed_seed(words: list[str]) -> list[str]:
    return [*words[2:], *words[:2]]


def test_a_finished_run_is_not_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "signs.yaml", "seed=3"]) == 0
    before = weights("runs/signs")
    capsys.readouterr()
    Watch.seen, Watch.evaluations = [], 0
    assert main(["train", "signs.yaml", "seed=3", "--resume"]) == 0
    assert capsys.readouterr().out == (
        "the run in runs/signs was finished before, after 3 epochs and 24 batches; nothing is left "
        "to train\n"
    )
    assert (Watch.seen, Watch.evaluations) == ([], 0)
    assert same(weights("runs/signs"), before)
    assert not Path("runs/signs-2").exists()
    # A longer duration is something to do again.
    assert main(["train", "signs.yaml", "seed=3", "trainer.max_duration=4ep", "--resume"]) == 0
    assert len(Watch.seen) == 8


def test_a_run_that_reached_its_target_is_finished_and_names_the_keys(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "signs.yaml", "seed=3", "trainer.max_duration=9ep"]
    target = "target={metric: MulticlassAccuracy, value: 0.5, stop: true}"
    assert main([*words, target]) == 0
    trained = len(Watch.seen)
    assert trained < 72
    Watch.evaluations = 0
    caplog.clear()
    capsys.readouterr()
    assert main([*words, target, "--resume"]) == 0
    assert "was finished before" in capsys.readouterr().out
    assert "change target.value in the recipe, or set target.stop=false" in caplog.text
    assert (len(Watch.seen), Watch.evaluations) == (trained, 0)
    assert main([*words, target, "target.stop=false", "--resume"]) == 0
    assert len(Watch.seen) == 72


def test_the_newest_run_is_continued() -> None:
    for _ in range(2):
        assert main(["train", "signs.yaml", "seed=3", "trainer.max_duration=1ep"]) == 0
    recipe = parse_recipe(RECIPE, name="signs", overrides=["seed=3"])
    folders: list[Path] = []
    outcome = run_recipe(recipe, resume=True, begun=folders.append)
    assert folders == [Path("runs/signs-2")]
    assert (outcome.folder, outcome.batches, outcome.was_finished) == (folders[0], 24, False)
    older = run_recipe(recipe, resume="runs/signs")
    assert (older.folder, older.batches) == (Path("runs/signs"), 24)
    # From inside, and whatever else the recipe would start from.
    os.chdir("runs/signs-2")
    other = parse_recipe(
        RECIPE, name="signs", overrides=["seed=3", "trainer.load_path=/nowhere.pt"]
    )
    assert run_recipe(other, resume=".").was_finished


def test_numbers_of_folders_grow(tmp_path: Path) -> None:
    base = tmp_path / "base"
    assert new_run_folder(base, "r") == base / "r"
    for name in ("r", "r-3", "r-x", "r-2-best", "s-9"):
        (base / name / "checkpoints").mkdir(parents=True)
    (base / "r-7").mkdir()
    # Empty folders are free; a number that was deleted is not used again behind newer ones.
    assert new_run_folder(base, "r") == base / "r-4"
    assert find_run_folder(base, "r") == base / "r-3"
    (base / "r-4").write_text("a file in the way")
    assert new_run_folder(base, "r") == base / "r-5"
    assert find_run_folder(base, "r") == base / "r-3"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--resume"], "the folder runs holds no run of 'signs'"),
        (["--resume", "--folder", "out"], "the folder out holds no run of 'signs'"),
        (["--resume", "runs/signs-4"], "there is no folder runs/signs-4"),
        (["--resume", "other"], "the folder other is not that of a run of 'signs'"),
        (["--resume", "held/signs"], "no checkpoint of it in held/signs/checkpoints"),
        (["--folder", "held", "--resume"], "no checkpoint of it in held/signs/checkpoints"),
    ],
)
def test_what_cannot_be_continued_is_named(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other").mkdir()
    Path("held/signs").mkdir(parents=True)
    Path("held/signs/log.txt").write_text("")
    assert main(["train", "signs.yaml", *words]) == 2
    assert text in capsys.readouterr().err
    assert Watch.seen == []


def test_the_recipe_stands_before_resume(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--resume", "signs.yaml"], ["signs.yaml", "--resume", "seed=3"]):
        assert main(["train", *words]) == 2
        assert "write the recipe and its changes before it" in capsys.readouterr().err


def test_without_a_save_there_is_nothing_to_continue(capsys: pytest.CaptureFixture[str]) -> None:
    Watch.cut_at = 3
    with pytest.raises(TrainingInterrupted):
        main(["train", "signs.yaml", "trainer.save_folder=null"])
    assert "nothing was saved, so there is nothing to continue" in last_line(capsys)


def test_a_run_of_several_processes_says_what_this_one_took() -> None:
    table = Outcome(
        "r", 1, {}, None, 2, 20, 200, 4.0, 1.5, Path("x"), (), earlier_seconds=3.0
    ).table()
    assert "training     4.0 s, 50 samples/s (1.0 s in this process)" in table
    assert "wall time    1.5 s with evaluation and saving, of this process" in table


def test_where_checkpoints_lie_is_told_as_it_was_given(tmp_path: Path) -> None:
    """A URI is no path: as one it would lose a slash, and be looked for on this machine."""
    folder = tmp_path / "run"
    (folder / "saved").mkdir(parents=True)
    names = ["log.txt", "saved/a.pt", "saved/b.pt"]
    for name in names:
        (folder / name).write_text("")

    def rows(*checkpoints: str) -> dict[str, str]:
        outcome = Outcome("r", 1, {}, None, 2, 20, 200, 4.0, 1.5, folder, checkpoints)
        lines = outcome.table().splitlines()[1:]
        return {line[2:].split("  ")[0]: line[2:].split("  ")[-1].strip() for line in lines}

    remote = rows("memory://runs/a.pt", "memory://runs/b.pt")
    assert remote["checkpoints"] == "memory://runs (2, the last is b.pt)"
    assert remote["logs"] == ", ".join(str(folder / name) for name in names)
    local = rows(*(str(folder / name) for name in names[1:]))
    assert local["checkpoints"] == f"{folder / 'saved'} (2, the last is b.pt)"
    assert local["logs"] == str(folder / "log.txt")
    assert rows("b.pt")["checkpoints"] == ". (1, the last is b.pt)"


def test_an_unmeasured_target_is_no_missed_one() -> None:
    target = Target("m", 0.5)
    outcome = Outcome("r", 1, {}, target, 2, 20, 200, 4.0, 1.5, Path("x"), (), was_finished=True)
    assert outcome.reached
    with pytest.raises(RecipeError, match="holds no run"):
        run_recipe(parse_recipe(RECIPE, name="signs"), resume=True)


def test_a_run_goes_on_with_the_changes_it_was_started_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither the file's own duration nor an edit of the file is mixed into the run."""
    changes = ["trainer.max_duration=11ba", "optimizer.sgd.lr=0.25", "trainer.save_interval=5ba"]
    assert main(["train", "signs.yaml", "--seed", "4", *changes]) == 0
    before = weights("runs/signs")
    Path("signs.yaml").write_text(RECIPE.replace("lr: 0.5", "lr: 0.125"), encoding="utf-8")
    capsys.readouterr()
    Watch.seen = []
    assert main(["train", "signs.yaml", "--resume"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "the run in runs/signs goes on by its own recipe, runs/signs/recipe.yaml: not like "
        "signs.yaml in trainer, optimizer, seed"
    )
    assert second == (
        "the run in runs/signs was finished before, after 1 epochs and 11 batches; nothing is "
        "left to train"
    )
    assert Watch.seen == []
    assert same(weights("runs/signs"), before)


def test_changes_of_a_continued_run_are_said_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seed", "4", "optimizer.sgd.lr=0.25"]
    assert main(["train", "signs.yaml", "--folder", "straight", *words]) == 0
    assert main(["train", "signs.yaml", *words, "trainer.max_duration=1ep"]) == 0
    capsys.readouterr()
    Watch.cut_at = 16
    with pytest.raises(TrainingInterrupted):
        main(["train", "signs.yaml", "trainer.max_duration=3ep", "--resume"])
    assert capsys.readouterr().out.splitlines()[0] == (
        "the run in runs/signs goes on by its own recipe, runs/signs/recipe.yaml: changed by "
        "trainer.max_duration=3ep; not like signs.yaml in optimizer, seed"
    )
    assert main(["train", "signs.yaml", "--resume"]) == 0
    assert same(weights("runs/signs"), weights("straight/signs"))


def test_a_change_that_is_refused_leaves_the_kept_recipe_as_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "signs.yaml", "trainer.max_duration=1ep"]) == 0
    kept = Path("runs/signs/recipe.yaml").read_bytes()
    capsys.readouterr()
    assert main(["train", "signs.yaml", "optimizer.sgd.lrr=1.0", "--resume"]) == 2
    assert "lrr" in capsys.readouterr().err
    assert Path("runs/signs/recipe.yaml").read_bytes() == kept


def test_a_run_that_keeps_no_recipe_goes_on_by_the_one_that_is_given() -> None:
    assert main(["train", "signs.yaml", "--seed", "4", "trainer.max_duration=1ep"]) == 0
    Path("runs/signs/recipe.yaml").unlink()
    assert main(["train", "signs.yaml", "trainer.max_duration=2ep", "--resume"]) == 0
    assert len(Watch.seen) == 16
    assert Path("runs/signs/recipe.yaml").is_file()


def test_the_kept_recipe_is_not_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "signs.yaml"]) == 0
    assert "recipe.yaml" not in capsys.readouterr().out
