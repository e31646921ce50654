"""Recipes: complete trainings as data, run by ``composer train`` or from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer._lazy import lazy_names
from composer.recipes.config import (
    Component,
    Data,
    Recipe,
    RecipeError,
    Target,
    load_recipe,
    parse_recipe,
)
from composer.recipes.microbatch import find_microbatch
from composer.recipes.resolve import find_recipe, recipe_names, resolve_recipe
from composer.recipes.run import Outcome, run_recipe

if TYPE_CHECKING:
    from composer.recipes.verify import Verdict, verify_resume

__all__ = [
    "Component",
    "Data",
    "Outcome",
    "Recipe",
    "RecipeError",
    "Target",
    "Verdict",
    "find_microbatch",
    "find_recipe",
    "load_recipe",
    "parse_recipe",
    "recipe_names",
    "resolve_recipe",
    "run_recipe",
    "verify_resume",
]

# The comparison needs torch, which reading a recipe does not.
__getattr__, _ = lazy_names(__name__, {"Verdict": "verify", "verify_resume": "verify"})
