"""From the names in a recipe to the things they stand for.

Every name goes through the plugin registry, and every argument is held against the signature of
what it is for, before anything is built: a misspelt argument of the last callback must not surface
after the data was read and the model made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer.core import plugins
from composer.recipes.config import (
    MANAGED,
    Component,
    Data,
    Recipe,
    RecipeError,
    load_recipe,
    parse_recipe,
)
from composer.utils.signatures import check_arguments

__all__ = ["RecipeParts", "find_recipe", "recipe_names", "resolve_recipe"]

GROUP = "composer.recipes"

#: What says that a recipe cannot be used; anything else that is raised is a slip in code.
REFUSALS = (TypeError, ValueError, OSError, ImportError, RuntimeError)


def recipe_names() -> list[str]:
    """List the recipes that installed distributions bring.

    Returns:
        Their names, sorted.

    Example:
        >>> isinstance(recipe_names(), list)
        True
    """
    return plugins.names(GROUP)


def find_recipe(recipe: str | Path, *, overrides: Iterable[str] = ()) -> Recipe:
    """Find a recipe by name or path.

    Args:
        recipe: The name of a recipe that a distribution brings, or the path of a YAML file.
        overrides: Changes such as ``trainer.max_duration=2ep``.

    Returns:
        The recipe.

    Raises:
        RecipeError: If there is no such recipe, or it is malformed.

    Example:
        >>> from composer.recipes.presets import fashion_mnist_resnet8
        >>> find_recipe(fashion_mnist_resnet8()).name
        'fashion_mnist_resnet8'
    """
    text, changes = str(recipe), tuple(overrides)
    if isinstance(recipe, Path) or "/" in text or Path(text).suffix in (".yaml", ".yml"):
        return load_recipe(text, overrides=changes)
    try:
        found = plugins.load(GROUP, text)
        found = found() if callable(found) else found
    except plugins.PluginNotFoundError as error:
        hint = f" There is a file {text}.yaml here." if Path(f"{text}.yaml").is_file() else ""
        raise RecipeError(f"{error}{hint}") from error
    except plugins.PluginError as error:
        raise RecipeError(str(error)) from error
    if isinstance(found, Mapping):
        return parse_recipe(found, name=text.rpartition(":")[2], overrides=changes)
    if isinstance(found, (str, Path)):
        return load_recipe(found, overrides=changes)
    raise RecipeError(f"recipe {text!r} gave {found!r}; expected a path or a mapping")


@dataclass(frozen=True)
class RecipeParts:
    """The callables behind a recipe, all checked and none called.

    Args:
        model: Makes the model.
        train_dataset: Makes the training data.
        eval_dataset: Makes the evaluation data.
        optimizer: Makes the optimizer from the model's parameters.
        schedulers: Make the schedules.
        algorithms: Make the methods.
        callbacks: Make the callbacks.
        loggers: Make the logger destinations.

    Example:
        >>> parts = RecipeParts(model=dict, train_dataset=list)
        >>> parts.model()
        {}
    """

    model: Callable[[], Any]
    train_dataset: Callable[[], Any]
    eval_dataset: Callable[[], Any] | None = None
    optimizer: Callable[[Any], Any] | None = None
    schedulers: tuple[Callable[[], Any], ...] = ()
    algorithms: tuple[Callable[[], Any], ...] = ()
    callbacks: tuple[Callable[[], Any], ...] = ()
    loggers: tuple[Callable[[], Any], ...] = ()


def _maker(
    group: str,
    component: Component,
    load: Callable[[str, str], Any],
    supplied: tuple[str, ...] = (),
) -> Callable[..., Any]:
    try:
        thing = load(group, component.name)
    except plugins.PluginError as error:
        raise RecipeError(f"{component.where}: {error}") from error
    noun = plugins.GROUPS[group].noun
    label = f"{noun} {component.name!r}"
    if not callable(thing):
        raise RecipeError(f"{component.where}: {label} is not a class or function: {thing!r}")
    try:
        check_arguments(thing, component.arguments, label=label, supplied=supplied)
    except TypeError as error:
        raise RecipeError(f"{component.where}: {error}") from error

    def make(**extra: Any) -> Any:
        try:
            return thing(**extra, **component.arguments)
        except REFUSALS as error:
            raise RecipeError(f"{component.where}: {label}: {error}") from error

    return make


def _check_trainer(recipe: Recipe, signature_of: Callable[..., Any]) -> None:
    for argument, section in MANAGED.items():
        if argument in recipe.trainer:
            raise RecipeError(
                f"{recipe.where}: trainer.{argument} is given by the section {section!r} of the "
                "recipe"
            )
    try:
        check_arguments(signature_of, recipe.trainer, label="trainer", supplied=MANAGED)
    except TypeError as error:
        raise RecipeError(f"{recipe.where}: {error}") from error


def resolve_recipe(
    recipe: Recipe,
    *,
    load: Callable[[str, str], Any] = plugins.load,
    trainer: Callable[..., Any] | None = None,
) -> RecipeParts:
    """Look up every name of a recipe and check every argument, building nothing.

    Args:
        recipe: The recipe.
        load: Finds a plugin by group and name.
        trainer: Whose arguments the section ``trainer`` gives; by default the trainer's.

    Returns:
        What to call.

    Raises:
        RecipeError: If a name is unknown, a plugin is broken, or an argument is unknown or missing.

    Example:
        >>> from composer.recipes.config import parse_recipe
        >>> recipe = parse_recipe(
        ...     "{model: net, train_data: {dataset: rows}, trainer: {}}", name="r"
        ... )
        >>> makers = {"net": lambda: "a network", "rows": lambda: "some rows"}
        >>> parts = resolve_recipe(
        ...     recipe, load=lambda group, name: makers[name], trainer=lambda **_: None
        ... )
        >>> parts.model()
        'a network'
    """
    if trainer is None:
        from composer.trainer.trainer import Trainer

        trainer = Trainer
    _check_trainer(recipe, trainer)

    def makers(group: str, components: tuple[Component, ...]) -> tuple[Callable[[], Any], ...]:
        return tuple(_maker(group, component, load) for component in components)

    def dataset(data: Data) -> Callable[[], Any]:
        return _maker("composer.datasets", data.dataset, load)

    optimizer = None
    if recipe.optimizer is not None:
        with_params = _maker("composer.optimizers", recipe.optimizer, load, ("params",))

        def optimizer(params: Any) -> Any:
            return with_params(params=params)

    return RecipeParts(
        model=_maker("composer.models", recipe.model, load),
        train_dataset=dataset(recipe.train_data),
        eval_dataset=None if recipe.eval_data is None else dataset(recipe.eval_data),
        optimizer=optimizer,
        schedulers=makers("composer.schedulers", recipe.scheduler),
        algorithms=makers("composer.algorithms", recipe.algorithms),
        callbacks=makers("composer.callbacks", recipe.callbacks),
        loggers=makers("composer.loggers", recipe.loggers),
    )
