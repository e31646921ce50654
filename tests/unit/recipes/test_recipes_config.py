"""Recipes as text: what is read, and how a slip is answered."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from composer.recipes import Component, RecipeError, Target, load_recipe, parse_recipe
from composer.recipes.kept import recipe_text
from composer.recipes.presets import fashion_mnist_resnet8
from composer_testing import run_python

GOOD = """\
description: a test
seed: 3
target: {metric: MulticlassAccuracy, value: 0.9, stop: true}
model:
  net: {width: 8}
train_data:
  dataset: {rows: {split: train}}
  batch_size: 64
  drop_last: false
eval_data:
  dataset: rows
  batch_size: 100
optimizer:
  sgd: {lr: 0.1, weight_decay: 5e-4}
scheduler:
  linear:
algorithms:
  - channels_last
  - label_smoothing: {smoothing: 0.1}
callbacks: lr_monitor
trainer:
  max_duration: 2ep
"""


def parse(text: str, *overrides: str) -> Any:
    return parse_recipe(text, name="good", source="good.yaml", overrides=overrides)


def test_everything_is_read() -> None:
    recipe = parse(GOOD)
    assert recipe.name == "good"
    assert recipe.description == "a test"
    assert recipe.seed == 3
    assert recipe.target == Target("MulticlassAccuracy", 0.9, None, True)
    assert recipe.model == Component("net", {"width": 8})
    assert recipe.model.where == "good.yaml, line 5"
    assert recipe.train_data.dataset == Component("rows", {"split": "train"})
    assert (recipe.train_data.batch_size, recipe.train_data.drop_last) == (64, False)
    assert recipe.train_data.shuffle is None
    assert recipe.eval_data.dataset == Component("rows")
    assert recipe.scheduler == (Component("linear"),)
    assert recipe.algorithms == (
        Component("channels_last"),
        Component("label_smoothing", {"smoothing": 0.1}),
    )
    assert recipe.algorithms[1].where == "good.yaml, line 19"
    assert recipe.callbacks == (Component("lr_monitor"),)
    assert recipe.loggers == ()
    assert recipe.trainer == {"max_duration": "2ep"}


def test_public_names_resolve_and_reading_a_recipe_needs_no_torch() -> None:
    run_python("""
import sys
import composer.recipes
text = "{model: m, train_data: {dataset: d}, trainer: {}}"
recipe = composer.recipes.parse_recipe(text, name="r")
assert recipe.name == "r"
assert "torch" not in sys.modules
for name in composer.recipes.__all__:
    assert getattr(composer.recipes, name).__module__.startswith("composer.recipes."), name
from composer.recipes.kept import recipe_text
from composer.recipes import Verdict, find_microbatch, verify_resume
""")


@pytest.mark.parametrize(
    ("text", "value"), [("5e-4", 5e-4), ("5.0e-4", 5e-4), ("1E3", 1e3), ("-2e+1", -20.0), ("3", 3)]
)
def test_numbers_are_numbers(text: str, value: float) -> None:
    found = parse(GOOD.replace("width: 8", f"width: {text}")).model.arguments["width"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("optimizer.sgd.lr=.nan", "optimizer.sgd.lr must be a finite number, got nan"),
        ("optimizer.sgd.lr=.inf", "optimizer.sgd.lr must be a finite number, got inf"),
        ("optimizer.sgd.lr=-0.1", "optimizer.sgd.lr must be a number, zero or more, got -0.1"),
        ("optimizer.sgd.lr=0;1", "optimizer.sgd.lr must be a number, zero or more, got '0;1'"),
        ("optimizer.sgd.lr=true", "optimizer.sgd.lr must be a number, zero or more, got True"),
        ("optimizer.sgd.weight_decay=-1", "optimizer.sgd.weight_decay must be a number, zero or"),
        ("optimizer.sgd.betas=[0.9, .nan]", "optimizer.sgd.betas.1 must be a finite number, got"),
        ("target.value=.nan", "target.value must be a finite number, got nan"),
        ("model.net.width=.nan", "model.net.width must be a number, got nan"),
        ("algorithms.label_smoothing.smoothing=.nan", "label_smoothing.smoothing must be a number"),
        ("trainer.max_duration=.inf", "trainer.max_duration must be a finite number, got inf"),
        ("train_data.batch_size=-8", "batch_size must be a whole number of samples, one or more, "),
        ("train_data.batch_size=-8", "got -8"),
        ("eval_data.batch_size=0", "eval_data.batch_size must be a whole number of samples, one"),
        (
            "train_data.num_workers=-1",
            "num_workers must be a whole number, zero or more, got -1",
        ),
        ("train_data.dataset.rows.noise=.nan", "train_data.dataset.rows.noise must be a number"),
    ],
)
def test_values_that_nothing_can_be_done_with(change: str, text: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse(GOOD, change)
    assert text in str(caught.value)


def test_the_line_of_a_number_that_is_none() -> None:
    with pytest.raises(RecipeError, match=r"^good\.yaml, line 14: optimizer\.sgd\.lr must be"):
        parse(GOOD.replace("lr: 0.1", "lr: .nan"))


@pytest.mark.parametrize(
    ("change", "later"),
    [
        ("optimizer.sgd.lr=.nan", "seed=1"),
        ("optimizer={sgd: {lr: .nan}}", "optimizer.sgd.weight_decay=0"),
        ("algorithms.label_smoothing.smoothing=.nan", "seed=1"),
        ("algorithms.channels_last.a=.nan", "seed=1"),
        ("train_data.batch_size=0", "seed=1"),
    ],
)
def test_the_change_that_set_a_wrong_value_is_named(change: str, later: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse(GOOD, change, later)
    assert str(caught.value).startswith(f"{change!r}: ")
    # A change of the change counts.
    key = change.partition("=")[0]
    if key.count(".") > 1:
        assert parse(GOOD, change, f"{key}=0.5").name == "good"


def test_infinity_is_a_number_to_methods() -> None:
    change = "algorithms.label_smoothing.smoothing=.inf"
    assert parse(GOOD, change).algorithms[1].arguments == {"smoothing": float("inf")}
    changed = parse(GOOD, "train_data.dataset.rows.noise=-.inf")
    assert changed.train_data.dataset.arguments["noise"] == float("-inf")
    several = parse(GOOD, "optimizer.sgd.eps=[0, 1e-3]", "optimizer.sgd.lr=null")
    assert several.optimizer.arguments["lr"] is None


@pytest.mark.parametrize("key", ["autoresume", "max_duration", "save_folder"])
def test_arguments_of_the_trainer_are_shown_their_place(key: str) -> None:
    text = rf"unknown key '{key}'\. It is an argument of the trainer: write trainer\.{key}\."
    with pytest.raises(RecipeError, match=rf"good\.yaml, line 23: {text}"):
        parse(GOOD + f"{key}: true\n")
    with pytest.raises(RecipeError, match=f"^'{key}=true': {text}"):
        parse(GOOD, f"{key}=true")


def test_names_that_the_trainer_has_for_sections() -> None:
    with pytest.raises(RecipeError, match="given by the section train_data"):
        parse(GOOD, "train_dataloader=rows")
    with pytest.raises(RecipeError, match='Did you mean "model"'):
        parse(GOOD, "modle=rows")


def test_times_stay_words() -> None:
    recipe = parse(GOOD.replace("linear:", "linear: {t_max: 1e3tok, a: 10ep, b: 0.5dur}"))
    assert recipe.scheduler[0].arguments == {"t_max": "1e3tok", "a": "10ep", "b": "0.5dur"}


def test_anchors_and_merges_work() -> None:
    text = GOOD.replace("rows: {split: train}", "rows: &rows {split: train}").replace(
        "dataset: rows", "dataset: {rows: {<<: *rows, split: test}}"
    )
    with pytest.raises(RecipeError, match="'split' was given before"):
        parse(text)
    text = text.replace("split: test", "limit: 5")
    assert parse(text).eval_data.dataset.arguments == {"split": "train", "limit": 5}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("seed: 3", "sed: 3", ["line 2: unknown key 'sed'. Did you mean \"seed\"?", "Known: name"]),
        ("batch_size: 64", "batchsize: 64", ["line 8", 'Did you mean "batch_size"']),
        ("stop: true", "stops: true", ["line 3", 'Did you mean "stop"']),
        ("seed: 3", "seed: three", ["line 2: seed must be a whole number, got 'three'"]),
        ("seed: 3", "seed: true", ["seed must be a whole number"]),
        ("seed: 3", "seed: -1", ["between 0 and 2**32 - 1"]),
        ("seed: 3", "seed: 3\nseed: 4", ["line 3: key 'seed' was given before, on line 2"]),
        ("seed: 3", "3: seed", ["line 2: key 3 must be a word"]),
        ("seed: 3", "seed: [", ["not YAML"]),
        ("seed: 3", "seed: !!python/object/apply:os.getcwd []", ["line 2", "is refused"]),
        ("seed: 3", "seed: !!python/name:os.getcwd", ["line 2: not YAML: could not determine"]),
        ("value: 0.9", "value: high", ["target.value must be a number, got 'high'"]),
        ("value: 0.9, ", "", ["target needs the key value"]),
        ("stop: true", "better: more", ["greater or less, got 'more'"]),
        ("stop: true", "stop: maybe", ["true or false"]),
        ("{rows: {split: train}}", "{rows: {}, other: {}}", ["line 7", "expected a plugin's name"]),
        ("{rows: {split: train}}", "{rows: train}", ["the arguments of 'rows' must be a mapping"]),
        ("  dataset: rows\n", "", ["line 10", "needs the key dataset"]),
        ("batch_size: 64", "batch_size: 0", ["line 8: train_data.batch_size must be a whole"]),
        ("batch_size: 64", "batch_size: 1.5", ["whole number of samples"]),
        ("drop_last: false", "drop_last: 0", ["drop_last must be true or false"]),
        ("trainer:\n  max_duration: 2ep", "trainer: 2ep", ["trainer must be a mapping"]),
        ("model:\n  net: {width: 8}", "", ["no section model"]),
        ("description: a test", "name: a/b", ["letters, digits"]),
        ("- channels_last", "- [channels_last]", ["line 18", "expected a plugin's name"]),
    ],
)
def test_a_slip_is_answered_with_its_line(old: str, new: str, expected: list[str]) -> None:
    assert old in GOOD
    with pytest.raises(RecipeError) as caught:
        parse(GOOD.replace(old, new, 1))
    assert str(caught.value).startswith("good.yaml")
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n- b\n", "just words"])
def test_no_recipe_at_all(text: str) -> None:
    with pytest.raises(RecipeError, match=r"good\.yaml"):
        parse(text)


def test_a_target_needs_evaluation_data() -> None:
    text = GOOD.replace("eval_data:\n  dataset: rows\n  batch_size: 100\n", "")
    with pytest.raises(RecipeError, match="a target needs the section eval_data"):
        parse(text)


def bomb(levels: int) -> str:
    text = "a0: &a0 x\n"
    for i in range(levels):
        text += f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n"
    return text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (bomb(7), "more than 10,000 values"),
        (bomb(40), "more than 10,000 values"),
        (bomb(40) + "? *a40\n: x\n", "more than 10,000 values"),
        (
            "m0: &m0 {k: v}\n"
            + "".join(
                f"m{i + 1}: &m{i + 1} {{<<: [{', '.join([f'*m{i}'] * 9)}]}}\n" for i in range(20)
            ),
            "more than 10,000 values",
        ),
        ("a: &a [*a]\n", "line 1: this value refers to itself"),
        ("a: &a {b: {c: *a}}\n", "line 1: this value refers to itself"),
        ("a: &a {<<: *a}\n", "line 1: this value refers to itself"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a: " + "{b: " * 5000 + "1" + "}" * 5000, "nested too deeply"),
        ("".join("- " for _ in range(3000)) + "x", "nested too deeply"),
        ("a: 2024-13-45\n", "line 1: '2024-13-45' cannot be read as timestamp"),
        ("a: !!int x\n", "line 1: 'x' cannot be read as int"),
        ("a: !!bool x\n", "line 1: 'x' cannot be read as bool"),
        ("a: " + "9" * 6000 + "\n", "cannot be read as int"),
        ("a: \x01\n", "not YAML"),
        ("? [a, b]\n: 1\n", "line 1: key of kind sequence must be a word"),
    ],
    ids=range(16),
)
def test_documents_that_would_never_be_read_are_refused_at_once(text: str, expected: str) -> None:
    started = time.perf_counter()
    with pytest.raises(RecipeError) as caught:
        parse(text)
    assert str(caught.value).startswith("good.yaml")
    assert expected in str(caught.value)
    assert time.perf_counter() - started < 5


def test_nothing_in_a_recipe_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    evil = f"model: !!python/object/apply:os.system ['touch {marker}']\n"
    with pytest.raises(RecipeError):
        parse(evil)
    with pytest.raises(RecipeError):
        parse(GOOD, f"seed=!!python/object/apply:os.system ['touch {marker}']")
    assert not marker.exists()


# ---- overrides -------------------------------------------------------------------------------


def test_overrides() -> None:
    recipe = parse(
        GOOD,
        "seed=4",
        "trainer.max_duration=7ba",
        "trainer.eval_interval=2ep",
        "optimizer.sgd.lr=2e-1",
        "algorithms.label_smoothing.smoothing=0.2",
        "algorithms.channels_last.strict=true",
        "train_data.dataset.rows.split=test",
        "eval_data.dataset.rows.split=train",
        "scheduler.linear.alpha_f=0.1",
        "target.value=0.5",
        "callbacks=[lr_monitor, {early_stopper: {patience: 2}}]",
    )
    assert recipe.seed == 4
    assert recipe.trainer == {"max_duration": "7ba", "eval_interval": "2ep"}
    assert recipe.optimizer.arguments["lr"] == 0.2
    assert [c.arguments for c in recipe.algorithms] == [{"strict": True}, {"smoothing": 0.2}]
    assert recipe.train_data.dataset.arguments == {"split": "test"}
    assert recipe.eval_data.dataset.arguments == {"split": "train"}
    assert recipe.scheduler[0].arguments == {"alpha_f": 0.1}
    assert recipe.target.value == 0.5
    assert recipe.callbacks[1] == Component("early_stopper", {"patience": 2})


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("seed", "not of the form key=value"),
        ("=3", "not of the form key=value"),
        ("sed=3", 'Did you mean "seed"'),
        ("trainr.max_duration=3ep", 'Did you mean "trainer"'),
        ("algorithms.label_smothing.smoothing=1", 'Did you mean "label_smoothing"'),
        ("optimizer.adam.lr=1", "nothing called 'adam' under optimizer"),
        ("optimizer.sgd.lr.x=1", "nothing called 'lr.x'"),
        ("algorithms.0=ema", "algorithms has no keys to set"),
        ("seed=[", "not YAML"),
    ],
)
def test_overrides_that_fit_nothing(assignment: str, expected: str) -> None:
    if assignment == "optimizer.sgd.lr.x=1":
        expected = "has no keys to set"
    with pytest.raises(RecipeError) as caught:
        parse(GOOD, assignment)
    assert expected in str(caught.value)


# ---- files -----------------------------------------------------------------------------------


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert load_recipe(path).name == "mine"
    assert load_recipe(path, overrides=["name=other"]).name == "other"
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        load_recipe(tmp_path / "none.yaml")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        load_recipe(path)


def test_a_mapping_is_a_recipe_and_stays_as_it_was() -> None:
    mapping: dict[str, Any] = {
        "model": "net",
        "train_data": {"dataset": "rows", "batch_size": 2},
        "trainer": {"max_duration": "1ep"},
    }
    recipe = parse_recipe(mapping, name="m", overrides=["trainer.max_duration=2ep"])
    assert recipe.trainer["max_duration"] == "2ep"
    assert mapping["trainer"]["max_duration"] == "1ep"


def test_the_default_recipe_stacks_at_least_four_methods() -> None:
    recipe = load_recipe(fashion_mnist_resnet8())
    assert len(recipe.algorithms) >= 4
    assert recipe.target is not None
    assert recipe.target.stop
    assert recipe.description


def test_a_recipe_that_is_written_reads_as_the_same() -> None:
    """Texts that look like numbers, dates, words and nothing stay what they were."""
    recipe = parse_recipe(
        """
description: "true"
model: {m: {a: '5e-4', b: 5e-4, c: 1.0e-5, d: null, e: [1, [2.5, 'null']], f: '2026-01-01',
            g: .inf, h: "two\\nlines", i: {}, j: 'Grüße', k: '{folder}', l: &x [1], m: *x}}
train_data: {dataset: {s: {split: train}}, batch_size: 8, shuffle: false}
eval_data: {dataset: s, batch_size: 16, drop_last: false, num_workers: 2}
target: {metric: MulticlassAccuracy, value: 0.9, better: greater, stop: true}
optimizer: {sgd: {lr: 0.1}}
scheduler: [one, {two: {t_max: 1dur}}]
algorithms: [ema]
seed: 0
trainer: {max_duration: 3ba, precision: null}
""",
        name="r",
    )
    assert parse_recipe(recipe_text(recipe), name="other") == recipe


def test_objects_of_python_have_no_text() -> None:
    recipe = parse_recipe(
        {"model": {"m": {"a": object()}}, "train_data": {"dataset": "x"}, "trainer": {}}, name="r"
    )
    with pytest.raises(RecipeError, match=r"r: it cannot be written as YAML: .*object"):
        recipe_text(recipe)
