"""The recipe that a run keeps in its folder, with the changes it was started with.

A run that is continued goes on with the settings that it was begun with, and not with those of a
file that knows nothing of the changes, or that was edited since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from composer.recipes.config import (
    Component,
    Data,
    Recipe,
    RecipeError,
    Target,
    parse_recipe,
    plain_dumper,
)

__all__ = ["KEPT_NAME", "differing_sections", "keep_recipe", "kept_recipe", "recipe_text"]

#: The name of the file in the folder of a run.
KEPT_NAME = "recipe.yaml"

_HEAD = "# What this run trains by; composer train --resume reads it.\n"
_SECTIONS = [f.name for f in fields(Recipe) if f.name != "where"]


def _plain(value: Any) -> Any:
    """Back to what is written in a recipe; what is unset is left out."""
    if isinstance(value, Component):
        return {value.name: _plain(value.arguments)} if value.arguments else value.name
    if isinstance(value, (Data, Target)):
        named = {f.name: getattr(value, f.name) for f in fields(value) if f.name != "where"}
        return {key: _plain(item) for key, item in named.items() if item is not None}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def recipe_text(recipe: Recipe) -> str:
    """Write a recipe as YAML, so that reading it gives the same recipe.

    Args:
        recipe: The recipe.

    Returns:
        The text.

    Raises:
        RecipeError: If it holds what YAML has no plain form for, as one made in Python may.

    Example:
        >>> text = "{model: m, train_data: {dataset: x}, trainer: {max_duration: 1ep}}"
        >>> recipe = parse_recipe(text, name="r", overrides=["trainer.max_duration=3ba"])
        >>> parse_recipe(recipe_text(recipe), name="r") == recipe
        True
        >>> print(recipe_text(recipe))
        name: r
        model: m
        train_data:
          dataset: x
          num_workers: 0
        trainer:
          max_duration: 3ba
        <BLANKLINE>
    """
    import yaml

    sections = {name: _plain(getattr(recipe, name)) for name in _SECTIONS}
    value = {
        name: item
        for name, item in sections.items()
        if name == "trainer" or item not in (None, "", [])
    }
    try:
        return str(yaml.dump(value, Dumper=plain_dumper(), sort_keys=False, allow_unicode=True))
    except yaml.YAMLError as error:
        raise RecipeError(f"{recipe.where}: it cannot be written as YAML: {error}") from error


def keep_recipe(recipe: Recipe, folder: Path) -> None:
    """Write the recipe of a run into its folder.

    Args:
        recipe: The recipe, with its changes.
        folder: The folder of the run.

    Example:
        >>> import tempfile
        >>> recipe = parse_recipe("{model: m, train_data: {dataset: x}, trainer: {}}", name="r")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     keep_recipe(recipe, Path(folder))
        ...     kept_recipe(Path(folder), name="r") == recipe
        True
    """
    from composer.utils.paths import complete_or_absent

    path = folder / KEPT_NAME
    try:
        text = recipe_text(recipe)
    except RecipeError:
        # The objects of a recipe made in Python are Python's to repeat; one from before is not it.
        path.unlink(missing_ok=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    with complete_or_absent(path) as temporary:
        Path(temporary).write_text(_HEAD + text, encoding="utf-8")


def kept_recipe(folder: Path, *, name: str, changes: Sequence[str] = ()) -> Recipe | None:
    """Read the recipe that a run keeps.

    On several ranks, rank zero reads: others may see another disk.

    Args:
        folder: The folder of the run.
        name: The recipe's name, unless it names itself.
        changes: Changes of it, such as ``trainer.max_duration=2ep``.

    Returns:
        The recipe with its changes; ``None`` if the folder keeps none.

    Raises:
        RecipeError: If it cannot be read, or a change does not fit.

    Example:
        >>> kept_recipe(Path("/nowhere"), name="r") is None
        True
    """
    from composer.utils import dist

    path = folder / KEPT_NAME
    read: list[str | RecipeError | None]
    try:
        read = [path.read_text(encoding="utf-8") if path.exists() else None]
    except (OSError, UnicodeDecodeError) as error:
        read = [RecipeError(f"cannot read the recipe {path}: {error}")]
    dist.broadcast_object_list(read)
    (text,) = read
    if isinstance(text, RecipeError):
        raise text
    if text is None:
        return None
    return parse_recipe(text, name=name, source=str(path), overrides=changes)


def differing_sections(one: Recipe, other: Recipe) -> list[str]:
    """Name the sections in which two recipes differ.

    Args:
        one: A recipe.
        other: Another.

    Returns:
        The names, in the order in which a recipe is described.

    Example:
        >>> text = "{model: m, train_data: {dataset: x}, trainer: {}}"
        >>> one = parse_recipe(text, name="r")
        >>> differing_sections(one, parse_recipe(text, name="r", overrides=["seed=3"]))
        ['seed']
    """
    return [name for name in _SECTIONS if getattr(one, name) != getattr(other, name)]
