"""Names and arguments of a recipe are checked before anything is built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer.core import plugins
from composer.recipes import RecipeError, find_recipe, parse_recipe, resolve_recipe

RECIPE = """\
model:
  net: {width: 8}
train_data:
  dataset: {rows: {split: train}}
  batch_size: 64
optimizer:
  sgd: {lr: 0.1}
algorithms:
  - smooth
  - resize: {initial_scale: 0.5}
trainer:
  max_duration: 2ep
"""
BUILT: list[str] = []


def net(width: int, depth: int = 1) -> str:
    BUILT.append("net")
    return f"net {width}"


def rows(split: str = "train") -> str:
    return split


class Sgd:
    def __init__(self, params: Any, lr: float) -> None:
        if lr <= 0:
            raise ValueError(f"lr must be positive, got {lr}")
        self.args = (params, lr)


class Smooth:
    def __init__(self, smoothing: float = 0.1) -> None:
        self.smoothing = smoothing


class Resize:
    def __init__(self, initial_scale: float = 0.5, **more: Any) -> None:
        self.initial_scale = initial_scale
        self.more = more


THINGS: dict[str, Any] = {
    "net": net,
    "rows": rows,
    "sgd": Sgd,
    "smooth": Smooth,
    "resize": Resize,
    "constant": 3,
}


def load(group: str, name: str) -> Any:
    if name == "broken":
        raise plugins.PluginLoadError("cannot be loaded: ImportError: no module named nothing")
    if name not in THINGS:
        raise plugins.PluginNotFoundError(f"no {plugins.GROUPS[group].noun} named {name!r}")
    return THINGS[name]


def fake_trainer(
    *, model: Any, train_dataloader: Any = None, max_duration: str = "1ep", eval_interval: Any = 1
) -> None: ...


def resolve(text: str) -> Any:
    recipe = parse_recipe(text, name="r", source="r.yaml")
    return resolve_recipe(recipe, load=load, trainer=fake_trainer)


def test_parts_are_made_on_request() -> None:
    BUILT.clear()
    parts = resolve(RECIPE)
    assert not BUILT
    assert parts.model() == "net 8"
    assert parts.train_dataset() == "train"
    assert parts.eval_dataset is None
    assert parts.optimizer([1]).args == ([1], 0.1)
    assert [type(make()) for make in parts.algorithms] == [Smooth, Resize]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("net:", "nett:", "r.yaml, line 2: no model named 'nett'"),
        ("width: 8", "widht: 8", "line 2: model 'net' has no argument 'widht'. Did you mean \"wi"),
        (
            "width: 8",
            "depth: 8",
            "line 2: model 'net' needs the arguments ['width']; got ['depth']",
        ),
        ("split: train", "splt: train", "line 4: data set 'rows' has no argument 'splt'. Did you"),
        ("lr: 0.1", "rl: 0.1", "line 7: optimizer 'sgd' has no argument 'rl'"),
        ("lr: 0.1", "params: 0.1", "optimizer 'sgd' has no argument 'params'"),
        ("- smooth", "- broken", "line 9: cannot be loaded"),
        ("- smooth", "- constant", "line 9: algorithm 'constant' is not a class or function"),
        ("- smooth", "- smooth: {smothing: 1}", "has no argument 'smothing'. Did you mean \"smoo"),
        ("max_duration", "max_durration", "trainer has no argument 'max_durration'. Did you mean"),
        ("max_duration", "model", "trainer.model is given by the section 'model'"),
    ],
)
def test_slips_are_found_before_anything_is_built(old: str, new: str, expected: str) -> None:
    BUILT.clear()
    with pytest.raises(RecipeError) as caught:
        resolve(RECIPE.replace(old, new, 1))
    assert expected in str(caught.value)
    assert not BUILT


def test_a_refused_value_names_its_line() -> None:
    parts = resolve(RECIPE.replace("lr: 0.1", "lr: 0"))
    with pytest.raises(RecipeError, match=r"line 7: optimizer 'sgd': lr must be positive, got 0"):
        parts.optimizer([])


# ---- finding ---------------------------------------------------------------------------------


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    known: dict[str, Any] = {}

    def load_one(group: str, name: str) -> Any:
        assert group == "composer.recipes"
        if name not in known:
            raise plugins.PluginNotFoundError(f"no recipe named {name!r} is installed.")
        return known[name]

    monkeypatch.setattr(plugins, "load", load_one)
    return known


def test_recipes_of_other_distributions(recipes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "theirs.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    mapping = {"model": "net", "train_data": {"dataset": "rows"}, "trainer": {}}
    makers: dict[str, Callable[[], Any]] = {
        "by_path": lambda: path,
        "by_text": lambda: str(path),
        "by_mapping": lambda: mapping,
    }
    recipes.update(makers, plain=mapping, wrong=lambda: 3)
    assert find_recipe("by_path").name == "theirs"
    assert find_recipe("by_text").name == "theirs"
    assert find_recipe("by_mapping").name == "by_mapping"
    assert find_recipe("plain", overrides=["seed=4"]).seed == 4
    with pytest.raises(RecipeError, match="gave 3; expected a path or a mapping"):
        find_recipe("wrong")


def test_a_path_is_a_path(recipes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    assert find_recipe(path).name == find_recipe(str(path)).name == "mine"
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        find_recipe("nowhere.yml")


def test_an_unknown_name(
    recipes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=r"no recipe named 'mine' is installed\.$"):
        find_recipe("mine")
    (tmp_path / "mine.yaml").write_text(RECIPE, encoding="utf-8")
    with pytest.raises(RecipeError, match=r"There is a file mine\.yaml here"):
        find_recipe("mine")
