"""What holds for every method, whatever it does."""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest

import composer.algorithms
import composer.functional
from composer.core.algorithm import Algorithm, Phase
from composer.core.event import Event
from composer.core.persistence import to_plain

# Beside the methods stand layers and transforms that can be used by themselves.
NAMES = [
    name
    for name in composer.algorithms.__all__
    if issubclass(getattr(composer.algorithms, name), Algorithm)
]
KINDS = {
    *(
        "compile",
        "data",
        "debug",
        "gradients",
        "labels",
        "layout",
        "memory",
        "optimizer",
        "schedule",
        "surgery",
    ),
    "weights",
}
REQUIRED: dict[str, dict[str, Any]] = {
    "Alibi": {"max_sequence_length": 64},
    "GradientClipping": {"clipping_type": "norm", "clipping_threshold": 1.0},
    "StochasticDepth": {"target_layer_name": "ResNetBottleneck"},
}
PACKAGE = Path(composer.algorithms.__file__).parent


def make(name: str) -> Algorithm:
    return getattr(composer.algorithms, name)(**REQUIRED.get(name, {}))


def entry_points() -> dict[str, str]:
    project = PACKAGE.parents[2] / "pyproject.toml"
    if not project.exists():
        pytest.skip("the package's sources are not here")
    with project.open("rb") as file:
        return tomllib.load(file)["project"]["entry-points"]["composer.algorithms"]


@pytest.mark.parametrize("name", NAMES)
def test_arguments_rebuild_the_method(name: str) -> None:
    method = make(name)
    arguments = method.arguments()
    assert set(arguments) == set(inspect.signature(type(method)).parameters)
    plain = to_plain(arguments)
    assert plain == arguments
    again = type(method)(**plain)
    assert again.arguments() == arguments
    assert repr(again) == repr(method)


@pytest.mark.parametrize("name", NAMES)
def test_order_is_declared_as_data(name: str) -> None:
    cls = getattr(composer.algorithms, name)
    assert isinstance(cls.events, frozenset)
    assert cls.events
    assert all(isinstance(event, Event) for event in cls.events)
    assert isinstance(cls.phase, Phase)
    assert all(isinstance(other, str) for other in cls.after)
    assert cls.kind in KINDS
    assert cls.cost
    assert cls.source
    assert "\n" not in cls.source
    method = make(name)
    assert not any(method.match(event, None) for event in Event if event not in cls.events)


@pytest.mark.parametrize("name", NAMES)
def test_state_survives_a_checkpoint(name: str) -> None:
    method, other = make(name), make(name)
    other.load_state_dict(to_plain(method.state_dict()))


def test_every_method_is_a_plugin() -> None:
    table = entry_points()
    found = {}
    for plugin, value in table.items():
        module, _, attribute = value.partition(":")
        assert module == f"composer.algorithms.{plugin}"
        found[attribute] = getattr(importlib.import_module(module), attribute)
    assert found == {name: getattr(composer.algorithms, name) for name in NAMES}


def test_every_method_that_is_declared_is_a_plugin() -> None:
    table = entry_points()
    for name in NAMES:
        cls = getattr(composer.algorithms, name)
        assert {*cls.after, *cls.excludes, *cls.cautions, *cls.remarks} <= set(table)


@pytest.mark.parametrize("folder", sorted(p.parent.name for p in PACKAGE.glob("*/algorithm.py")))
def test_every_method_looks_the_same(folder: str) -> None:
    path = PACKAGE / folder
    for file in ("__init__.py", "functional.py"):
        assert (path / file).exists()
    cards = PACKAGE.parents[4] / "docs" / "methods"
    if not cards.exists():
        pytest.skip("the repository is not here")
    card = (cards / f"{folder}.md").read_text(encoding="utf-8")
    for heading in ("## Use", "## Values", "## Cost", "## With other methods", "## Source"):
        assert heading in card, heading
    module = importlib.import_module(f"composer.algorithms.{folder}")
    public = {n for n in module.__all__ if inspect.isfunction(getattr(module, n))}
    for name in public & set(composer.functional.__all__):
        assert getattr(composer.functional, name) is getattr(module, name)


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.glob("*/functional.py")), ids=lambda p: p.parent.name
)
def test_functions_know_neither_state_nor_events(path: Path) -> None:
    forbidden = ("composer.core.state", "composer.core.event", "composer.core.algorithm")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert not node.module.startswith(forbidden)


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.glob("*/algorithm.py")), ids=lambda p: p.parent.name
)
def test_classes_are_thin(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        # Neither documentation nor declarations, which are data, count.
        documented: set[int] = set()
        for fact in node.body:
            if isinstance(fact, ast.AnnAssign):
                assert fact.end_lineno is not None
                documented.update(range(fact.lineno, fact.end_lineno + 1))
        for inner in ast.walk(node):
            if isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(inner):
                first = inner.body[0]
                assert first.end_lineno is not None
                documented.update(range(first.lineno, first.end_lineno + 1))
        assert node.end_lineno is not None
        code = [
            number
            for number in range(node.lineno, node.end_lineno + 1)
            if number not in documented
            and lines[number - 1].strip()
            and not lines[number - 1].strip().startswith("#")
        ]
        assert len(code) < 60


def test_public_functions_share_the_arguments_of_their_classes() -> None:
    pairs = {
        "Alibi": composer.functional.apply_alibi,
        "BlurPool": composer.functional.apply_blurpool,
        "Factorize": composer.functional.apply_factorization,
        "GyroDropout": composer.functional.apply_gyro_dropout,
        "LayerFreezing": composer.functional.freeze_layers,
        "StochasticDepth": composer.functional.apply_stochastic_depth,
        "GatedLinearUnits": composer.functional.apply_gated_linear_units,
        "SeqLengthWarmup": composer.functional.set_batch_sequence_length,
        "GhostBatchNorm": composer.functional.apply_ghost_batchnorm,
        "SqueezeExcite": composer.functional.apply_squeeze_excite,
        "WeightStandardization": composer.functional.apply_weight_standardization,
        "CutOut": composer.functional.cutout_batch,
        "LabelSmoothing": composer.functional.smooth_labels,
        "MixUp": composer.functional.mixup_batch,
        "CutMix": composer.functional.cutmix_batch,
        "SelectiveBackprop": composer.functional.should_selective_backprop,
        "ProgressiveResizing": composer.functional.resize_batch,
        "AugMix": composer.functional.augmix_image,
        "RandAugment": composer.functional.randaugment_image,
        "ColOut": composer.functional.colout_batch,
    }
    for name, function in pairs.items():
        class_parameters = inspect.signature(getattr(composer.algorithms, name)).parameters
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in class_parameters:
                assert parameter.default == class_parameters[parameter.name].default


def test_cards_tell_what_their_methods_do_not_go_with() -> None:
    cards = PACKAGE.parents[4] / "docs" / "methods"
    if not cards.exists():
        pytest.skip("the repository is not here")
    plugin_of = {value.rpartition(":")[2]: name for name, value in entry_points().items()}
    class_of = {name: cls for cls, name in plugin_of.items()}
    for name in NAMES:
        cls = getattr(composer.algorithms, name)
        for other in {*cls.excludes, *cls.cautions}:
            for card, told in ((plugin_of[name], class_of[other]), (other, name)):
                text = (cards / f"{card}.md").read_text(encoding="utf-8")
                section = text.partition("## With other methods")[2].partition("\n## ")[0]
                assert told in section, f"{card}.md does not tell of {told}"
