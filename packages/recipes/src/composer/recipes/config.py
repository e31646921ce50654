"""What a recipe says, read from YAML and checked for form.

A recipe is data: names and plain values, never code. This module turns text into a ``Recipe`` and
refuses what it does not know, with the file, the line and the nearest known key, so that a slip of
the pen is found before anything is imported or built. What the names stand for is the business of
``composer.recipes.resolve``.

::

    description: what this trains
    seed: 1
    target: {metric: MulticlassAccuracy, value: 0.9, stop: true}
    model: {plugin_name: {argument: value}}
    train_data: {dataset: {plugin_name: {split: train}}, batch_size: 128}
    eval_data: {dataset: {plugin_name: {split: test}}, batch_size: 500}
    optimizer: {plugin_name: {lr: 0.1}}
    scheduler: {plugin_name: {t_warmup: 0.1dur}}
    algorithms: [plugin_name, {plugin_name: {argument: value}}]
    callbacks: []
    loggers: []
    trainer: {max_duration: 10ep}

The word ``{folder}`` in a string stands for the folder of the run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from composer.utils.suggestions import did_you_mean

__all__ = [
    "Component",
    "Data",
    "Recipe",
    "RecipeError",
    "Target",
    "load_recipe",
    "parse_recipe",
    "plain_dumper",
]


class RecipeError(ValueError):
    """A recipe that cannot be used, with the place in it.

    Example:
        >>> issubclass(RecipeError, ValueError)
        True
    """


@dataclass(frozen=True)
class Component:
    """A plugin by name, with its arguments.

    Args:
        name: The plugin's name.
        arguments: Its arguments.
        where: The file and line, for errors.

    Example:
        >>> str(Component("label_smoothing", {"smoothing": 0.1}))
        'label_smoothing(smoothing=0.1)'
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    where: str = field(default="recipe", compare=False)

    def __str__(self) -> str:
        if not self.arguments:
            return self.name
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())})"


@dataclass(frozen=True)
class Data:
    """A data set and how it is dealt out in batches.

    Args:
        dataset: The data set.
        batch_size: Samples of a batch on one rank.
        shuffle: Whether to shuffle; unset, training data is shuffled.
        drop_last: Whether to leave out a last, smaller batch; unset, for training data.
        num_workers: Worker processes.
        where: The file and line, for errors.

    Example:
        >>> Data(Component("fashion_mnist"), batch_size=128).num_workers
        0
    """

    dataset: Component
    batch_size: int | None = None
    shuffle: bool | None = None
    drop_last: bool | None = None
    num_workers: int = 0
    where: str = field(default="recipe", compare=False)


@dataclass(frozen=True)
class Target:
    """What a run is to reach.

    Args:
        metric: The name of an evaluation metric.
        value: What it is to reach.
        better: ``"greater"`` or ``"less"``; unset, the metric's name tells.
        stop: Whether training stops once it is reached.

    Example:
        >>> Target("MulticlassAccuracy", 0.9).stop
        False
    """

    metric: str
    value: float
    better: str | None = None
    stop: bool = False


@dataclass(frozen=True)
class Recipe:
    """Everything that a run needs to know.

    Args:
        name: The recipe's name; the folder of the run is called after it.
        model: The model.
        train_data: The training data.
        trainer: Further arguments of the trainer, such as ``max_duration``.
        description: What it trains, in a sentence.
        eval_data: The evaluation data.
        optimizer: The optimizer; unset, the trainer's default.
        scheduler: The schedules of the learning rate.
        algorithms: The methods, in order.
        callbacks: The callbacks.
        loggers: The logger destinations.
        seed: The seed of everything random.
        target: What the run is to reach.
        where: The file, for errors.

    Example:
        >>> recipe = parse_recipe('''
        ... model: {composer_resnet_cifar: {model_name: resnet_8}}
        ... train_data: {dataset: fashion_mnist, batch_size: 64}
        ... trainer: {max_duration: 2ep}
        ... ''', name="small")
        >>> recipe.model.name, recipe.train_data.batch_size, recipe.trainer
        ('composer_resnet_cifar', 64, {'max_duration': '2ep'})
    """

    name: str
    model: Component
    train_data: Data
    trainer: Mapping[str, Any]
    description: str = ""
    eval_data: Data | None = None
    optimizer: Component | None = None
    scheduler: tuple[Component, ...] = ()
    algorithms: tuple[Component, ...] = ()
    callbacks: tuple[Component, ...] = ()
    loggers: tuple[Component, ...] = ()
    seed: int | None = None
    target: Target | None = None
    where: str = field(default="recipe", compare=False)


# ---- reading ---------------------------------------------------------------------------------

#: So many values are enough for any recipe; references can make billions out of a few lines.
MAX_NODES = 10_000

_Path = tuple[str | int, ...]
_SHORT_FLOAT = (
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)
_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass
class _Document:
    """Plain values, and the line on which each of them stood."""

    source: str
    value: Any
    lines: dict[_Path, int]
    #: Path to the change that set it, which then stands nowhere in the file.
    changes: dict[_Path, str] = field(default_factory=dict)

    def where(self, path: _Path) -> str:
        while path and path not in self.lines and path not in self.changes:
            path = path[:-1]
        if path in self.changes:
            return repr(self.changes[path])
        line = self.lines.get(path)
        return self.source if line is None else f"{self.source}, line {line}"

    def error(self, path: _Path, text: str) -> RecipeError:
        return RecipeError(f"{self.where(path)}: {text}")


def _loader() -> Any:
    """A safe loader that reads 5e-4 as a number; YAML 1.1 wants 5.0e-4 and makes a string of it."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver(*_SHORT_FLOAT)
    return Loader


def plain_dumper() -> Any:
    """Return a dumper of YAML whose text this module reads as the same values.

    Returns:
        A class for ``yaml.dump``.

    Example:
        >>> import yaml
        >>> yaml.dump(["5e-4", 5e-4], Dumper=plain_dumper())
        "- '5e-4'\\n- 0.0005\\n"
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    # Texts that would be read as such numbers are quoted.
    Dumper.add_implicit_resolver(*_SHORT_FLOAT)
    return Dumper


def _check_size(root: Any, source: str) -> None:
    """Refuse a document that is too large once its references are followed, without doing so."""
    import yaml

    sizes: dict[int, int] = {}
    unfinished: set[int] = set()

    def size(node: Any) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        where = f"{source}, line {node.start_mark.line + 1}"
        if id(node) in unfinished:
            raise RecipeError(f"{where}: this value refers to itself")
        unfinished.add(id(node))
        total = 1
        if isinstance(node, yaml.MappingNode):
            total += sum(size(key) + size(value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            total += sum(map(size, node.value))
        if total > MAX_NODES:
            raise RecipeError(
                f"{where}: with its references (*) followed this holds more than {MAX_NODES:,} "
                "values, which no recipe needs"
            )
        unfinished.discard(id(node))
        sizes[id(node)] = total
        return total

    size(root)


def _read_yaml(text: str, source: str) -> _Document:
    try:
        return _read(text, source)
    except RecursionError:
        raise RecipeError(f"{source}: values are nested too deeply") from None


def _read(text: str, source: str) -> _Document:
    import yaml

    lines: dict[_Path, int] = {}
    loader: Any = None

    def scalar(node: Any) -> Any:
        try:
            return loader.construct_object(node, deep=True)
        # The constructors of YAML's types let through what Python says about a wrong value.
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RecipeError(
                f"{source}, line {node.start_mark.line + 1}: {node.value[:80]!r} cannot be read as "
                f"{node.tag.rpartition(':')[2]}"
            ) from error

    def plain(node: Any, path: _Path) -> Any:
        lines.setdefault(path, node.start_mark.line + 1)
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN_TAGS:
            raise RecipeError(
                f"{source}, line {node.start_mark.line + 1}: a recipe holds plain values; the tag "
                f"{node.tag!r} is refused"
            )
        if isinstance(node, yaml.MappingNode):
            loader.flatten_mapping(node)
            result: dict[str, Any] = {}
            for key_node, value_node in node.value:
                line = key_node.start_mark.line + 1
                key = scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
                if not isinstance(key, str):
                    raise RecipeError(
                        f"{source}, line {line}: key {_shown(key_node)} must be a word"
                    )
                if key in result:
                    raise RecipeError(
                        f"{source}, line {line}: key {key!r} was given before, on line "
                        f"{lines[(*path, key)]}"
                    )
                lines[(*path, key)] = line
                result[key] = plain(value_node, (*path, key))
            return result
        if isinstance(node, yaml.SequenceNode):
            return [plain(item, (*path, i)) for i, item in enumerate(node.value)]
        return scalar(node)

    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        if node is not None:
            _check_size(node, source)
        value = None if node is None else plain(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = "" if mark is None else f", line {mark.line + 1}"
        raise RecipeError(f"{source}{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise RecipeError(f"{source}: not YAML: {error}") from error
    finally:
        if loader is not None:
            loader.dispose()
    return _Document(source, value, lines)


def _shown(node: Any) -> str:
    if not isinstance(node.value, str):
        return f"of kind {node.id}"
    return repr(node.value) if node.tag == "tag:yaml.org,2002:str" else node.value


# ---- overriding ------------------------------------------------------------------------------


def _override(document: _Document, assignment: str) -> None:
    """Change one value, written ``path.to.key=value``, in place."""
    dotted, equals, text = assignment.partition("=")
    if not equals or not dotted:
        raise RecipeError(
            f"{assignment!r} is not of the form key=value, for instance trainer.max_duration=2ep "
            "or optimizer.decoupled_sgdw.lr=0.1"
        )
    value = _read_yaml(text, repr(assignment)).value
    *parents, last = dotted.split(".")
    at: Any = document.value
    path: _Path = ()
    for depth, part in enumerate(parents):
        at, path = _step(document, at, path, part, assignment, create=depth == 0)
    if not isinstance(at, dict):
        raise RecipeError(f"{assignment!r}: {'.'.join(map(str, path))} has no keys to set")
    at[last] = value
    changed = (*path, last)
    for places in (document.lines, document.changes):
        for below in [place for place in places if place[: len(changed)] == changed]:
            del places[below]
    document.changes[changed] = assignment


def _step(
    document: _Document, at: Any, path: _Path, part: str, assignment: str, *, create: bool
) -> tuple[Any, _Path]:
    if isinstance(at, list):
        for index, item in enumerate(at):
            if item == part:
                at[index] = {part: {}}
            if isinstance(at[index], dict) and part in at[index]:
                if at[index][part] is None:
                    at[index][part] = {}
                return at[index][part], (*path, index, part)
        known = [next(iter(item)) if isinstance(item, dict) and item else str(item) for item in at]
    elif isinstance(at, dict):
        if part not in at and create:
            at[part] = {}
        if part in at:
            if at[part] is None:
                at[part] = {}
            elif isinstance(at[part], str):
                at[part] = {at[part]: {}}
            return at[part], (*path, part)
        known = list(at)
    else:
        known = []
    raise RecipeError(
        f"{assignment!r}: nothing called {part!r} under {'.'.join(map(str, path)) or 'the recipe'}."
        f"{did_you_mean(part, known)} There is: {', '.join(known) or 'nothing'}."
    )


# ---- checking --------------------------------------------------------------------------------

#: Arguments of the trainer that sections of a recipe give.
MANAGED = {
    "model": "model",
    "train_dataloader": "train_data",
    "eval_dataloader": "eval_data",
    "optimizers": "optimizer",
    "schedulers": "scheduler",
    "algorithms": "algorithms",
    "callbacks": "callbacks",
    "loggers": "loggers",
    "seed": "seed",
}
# Infinity is a number to some methods, such as the norm that is the largest value; to no optimizer,
# length or target. What is no number at all helps nobody.
_FINITE_SECTIONS = ("optimizer", "target", "trainer", "train_data", "eval_data", "seed")
# What optimizers want of the arguments by these names, where these are not several or left out.
_NOT_NEGATIVE = ("lr", "weight_decay", "eps")

_SECTIONS = [f.name for f in fields(Recipe) if f.name != "where"]


def _mapping(document: _Document, path: _Path, value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise document.error(path, f"{what} must be a mapping of keys to values, got {value!r}")
    return value


def _only(document: _Document, path: _Path, value: dict[str, Any], known: Sequence[str]) -> None:
    for key in value:
        if key not in known:
            raise document.error(
                (*path, key),
                f"unknown key {key!r} in {_dotted(path)}.{did_you_mean(key, known)} "
                f"Known: {', '.join(known)}.",
            )


def _sections_only(document: _Document, value: dict[str, Any]) -> None:
    """Refuse keys that are no sections, and say where arguments of the trainer are written."""
    for key in value:
        if key in _SECTIONS:
            continue
        if key in MANAGED:
            hint = f" What the trainer calls {key} is given by the section {MANAGED[key]}."
        elif key in _trainer_arguments():
            hint = f" It is an argument of the trainer: write trainer.{key}."
        else:
            hint = did_you_mean(key, _SECTIONS)
        raise document.error((key,), f"unknown key {key!r}.{hint} Known: {', '.join(_SECTIONS)}.")


def _trainer_arguments() -> Sequence[str]:
    # Only once something is wrong: it takes seconds, which reading a recipe does not.
    from inspect import signature

    from composer.trainer.trainer import Trainer

    return list(signature(Trainer).parameters)


def _check_numbers(document: _Document, path: _Path, value: Any) -> None:
    """Refuse numbers that nothing can be done with, wherever they stand."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_numbers(document, (*path, key), item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_numbers(document, (*path, index), item)
    elif isinstance(value, float) and not math.isfinite(value):
        # The data set's own arguments are a method's as far as this goes.
        strict = path[0] in _FINITE_SECTIONS and "dataset" not in path[1:2]
        if strict or math.isnan(value):
            what = "a finite number" if strict else "a number"
            raise document.error(path, f"{_dotted(path)} must be {what}, got {value!r}")


def _check_optimizer(document: _Document, component: Component) -> None:
    for key in _NOT_NEGATIVE:
        value = component.arguments.get(key)
        wrong = isinstance(value, (str, bool)) or (isinstance(value, (int, float)) and value < 0)
        if wrong:
            path = ("optimizer", component.name, key)
            raise document.error(
                path, f"{_dotted(path)} must be a number, zero or more, got {value!r}"
            )


def _dotted(path: _Path) -> str:
    return ".".join(map(str, path))


def _component(document: _Document, path: _Path, value: Any) -> Component:
    where = document.where(path)
    if isinstance(value, str):
        return Component(value, {}, where)
    if isinstance(value, dict) and len(value) == 1:
        (name, arguments), *_ = value.items()
        arguments = {} if arguments is None else arguments
        if not isinstance(arguments, dict):
            raise document.error(
                (*path, name),
                f"the arguments of {name!r} must be a mapping, got {arguments!r}; write "
                f"{name}: {{argument: value}}",
            )
        return Component(name, arguments, document.where((*path, name)))
    raise document.error(
        path,
        f"expected a plugin's name, or one name with its arguments such as "
        f"{{label_smoothing: {{smoothing: 0.1}}}}, got {value!r}",
    )


def _components(document: _Document, path: _Path, value: Any) -> tuple[Component, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        return (_component(document, path, value),)
    return tuple(_component(document, (*path, i), item) for i, item in enumerate(value))


def _typed(
    document: _Document, path: _Path, value: Any, kind: type | tuple[type, ...], what: str
) -> Any:
    if value is not None and (
        not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
    ):
        raise document.error(path, f"{_dotted(path)} must be {what}, got {value!r}")
    return value


def _data(document: _Document, section: str, value: Any) -> Data:
    path: _Path = (section,)
    value = _mapping(document, path, value, section)
    _only(document, path, value, [f.name for f in fields(Data) if f.name != "where"])
    if "dataset" not in value:
        raise document.error(
            path, f"{section} needs the key dataset, such as dataset: fashion_mnist"
        )
    checked: dict[str, Any] = {
        "dataset": _component(document, (*path, "dataset"), value["dataset"]),
        "where": document.where(path),
    }
    for key, kind, what, least in (
        ("batch_size", int, "a whole number of samples, one or more", 1),
        ("num_workers", int, "a whole number, zero or more", 0),
        ("shuffle", bool, "true or false", 0),
        ("drop_last", bool, "true or false", 0),
    ):
        if value.get(key) is not None:
            checked[key] = _typed(document, (*path, key), value[key], kind, what)
            if checked[key] < least:
                raise document.error(
                    (*path, key), f"{section}.{key} must be {what}, got {value[key]!r}"
                )
    return Data(**checked)


def _target(document: _Document, value: Any) -> Target:
    path: _Path = ("target",)
    value = _mapping(document, path, value, "target")
    _only(document, path, value, [f.name for f in fields(Target)])
    for key in ("metric", "value"):
        if key not in value:
            raise document.error(path, f"target needs the key {key}")
    _typed(document, (*path, "metric"), value["metric"], str, "the name of a metric")
    _typed(document, (*path, "value"), value["value"], (int, float), "a number")
    _typed(document, (*path, "stop"), value.get("stop"), bool, "true or false")
    if value.get("better") not in (None, "greater", "less"):
        raise document.error(
            (*path, "better"), f"target.better must be greater or less, got {value['better']!r}"
        )
    return Target(
        value["metric"], float(value["value"]), value.get("better"), bool(value.get("stop", False))
    )


def _recipe(document: _Document, name: str) -> Recipe:
    if document.value is None:
        raise RecipeError(f"{document.source}: the recipe is empty")
    value = _mapping(document, (), document.value, "a recipe")
    _sections_only(document, value)
    _check_numbers(document, (), value)
    for section in ("model", "train_data", "trainer"):
        if value.get(section) is None:
            raise document.error((), f"the recipe has no section {section}")
    name = _typed(document, ("name",), value.get("name"), str, "a word") or name
    if not re.fullmatch(r"[\w.-]+", name):
        raise document.error(
            ("name",), f"name must consist of letters, digits, '-', '_' and '.', got {name!r}"
        )
    optional: dict[str, Any] = {
        section: _components(document, (section,), value.get(section))
        for section in ("scheduler", "algorithms", "callbacks", "loggers")
    }
    if value.get("optimizer") is not None:
        optional["optimizer"] = _component(document, ("optimizer",), value["optimizer"])
        _check_optimizer(document, optional["optimizer"])
    if value.get("eval_data") is not None:
        optional["eval_data"] = _data(document, "eval_data", value["eval_data"])
    if value.get("target") is not None:
        optional["target"] = _target(document, value["target"])
        if "eval_data" not in optional:
            raise document.error(("target",), "a target needs the section eval_data to measure it")
    seed = _typed(document, ("seed",), value.get("seed"), int, "a whole number")
    if seed is not None and not 0 <= seed < 2**32:
        raise document.error(("seed",), f"seed must lie between 0 and 2**32 - 1, got {seed}")
    return Recipe(
        name=name,
        model=_component(document, ("model",), value["model"]),
        train_data=_data(document, "train_data", value["train_data"]),
        trainer=_mapping(document, ("trainer",), value["trainer"], "trainer"),
        description=_typed(document, ("description",), value.get("description"), str, "a text")
        or "",
        seed=seed,
        where=document.source,
        **optional,
    )


def parse_recipe(
    recipe: str | Mapping[str, Any],
    *,
    name: str,
    source: str | None = None,
    overrides: Sequence[str] = (),
) -> Recipe:
    """Read a recipe from YAML text, or from a mapping of the same form.

    Args:
        recipe: The text or mapping.
        name: The recipe's name, unless it names itself.
        source: What to call it in errors; by default its name.
        overrides: Changes such as ``trainer.max_duration=2ep``; an element of a list is addressed
            by its plugin name, as in ``algorithms.label_smoothing.smoothing=0.2``.

    Returns:
        The recipe.

    Raises:
        RecipeError: If it is not YAML, a key is unknown or given twice, or a value has the wrong
            form.

    Example:
        >>> parse_recipe("modle: {}", name="slip")
        Traceback (most recent call last):
        composer.recipes.config.RecipeError: slip, line 1: unknown key 'modle'...
    """
    source = name if source is None else source
    if isinstance(recipe, str):
        document = _read_yaml(recipe, source)
    else:
        document = _Document(source, _copied(recipe), {})
    if overrides and isinstance(document.value, dict):
        for assignment in overrides:
            _override(document, assignment)
    return _recipe(document, name)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    return value


def load_recipe(path: str | Path, *, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe from a YAML file.

    Args:
        path: The file.
        overrides: Changes such as ``trainer.max_duration=2ep``.

    Returns:
        The recipe, named after the file unless it names itself.

    Raises:
        RecipeError: If the file cannot be read, or is not a recipe.

    Example:
        >>> from composer.recipes.presets import fashion_mnist_resnet8
        >>> load_recipe(fashion_mnist_resnet8(), overrides=["seed=3"]).seed
        3
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"cannot read the recipe {path}: {error}") from error
    return parse_recipe(text, name=path.stem, source=str(path), overrides=overrides)
