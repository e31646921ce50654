"""Recipes: complete trainings as data, run by ``composer train`` or from Python."""

from __future__ import annotations

from composer.recipes.config import (
    Component,
    Data,
    Recipe,
    RecipeError,
    Target,
    load_recipe,
    parse_recipe,
)
from composer.recipes.resolve import find_recipe, recipe_names, resolve_recipe
from composer.recipes.run import Outcome, run_recipe

__all__ = [
    "Component",
    "Data",
    "Outcome",
    "Recipe",
    "RecipeError",
    "Target",
    "find_recipe",
    "load_recipe",
    "parse_recipe",
    "recipe_names",
    "resolve_recipe",
    "run_recipe",
]
