"""What every command that takes a recipe asks for on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from composer.recipes.config import Recipe

__all__ = ["DEFAULT_RECIPE", "add_recipe_arguments", "chosen_recipe", "recipe_changes"]

DEFAULT_RECIPE = "fashion_mnist_resnet8"


def add_recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare RECIPE, KEY=VALUE and the seed.

    Args:
        parser: The parser of a sub-command.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_recipe_arguments(parser)
        >>> args = parser.parse_args(["r.yaml", "--seed", "2", "target=null"])
        >>> args.recipe, args.overrides, args.seed
        ('r.yaml', ['target=null'], 2)
    """
    # Otherwise options between RECIPE and KEY=VALUE end the list of words.
    parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]
    parser.add_argument(
        "recipe",
        nargs="?",
        default=DEFAULT_RECIPE,
        metavar="RECIPE",
        help=f"name of an installed recipe or path of a YAML file (default: {DEFAULT_RECIPE})",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="change a value of the recipe, such as trainer.max_duration=2ep",
    )
    parser.add_argument("--seed", type=int, help="seed, instead of the recipe's")


def _only_changes(args: argparse.Namespace) -> bool:
    # Only KEY=VALUE was given: the default recipe with a change.
    return "=" in args.recipe


def recipe_changes(args: argparse.Namespace) -> list[str]:
    """Return the changes that were asked for, the seed among them.

    Args:
        args: What a parser with :func:`add_recipe_arguments` parsed.

    Returns:
        Words such as ``trainer.max_duration=2ep``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_recipe_arguments(parser)
        >>> recipe_changes(parser.parse_args(["target=null", "--seed", "3"]))
        ['target=null', 'seed=3']
    """
    first = [args.recipe] if _only_changes(args) else []
    seed = [] if args.seed is None else [f"seed={args.seed}"]
    return [*first, *args.overrides, *seed]


def chosen_recipe(args: argparse.Namespace, *, changes: Sequence[str] | None = None) -> Recipe:
    """Return the recipe that was asked for.

    Args:
        args: What a parser with :func:`add_recipe_arguments` parsed.
        changes: Its changes; by default those that were asked for.

    Returns:
        The recipe with its changes.

    Raises:
        RecipeError: If there is no such recipe, or it is malformed.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_recipe_arguments(parser)
        >>> chosen_recipe(parser.parse_args(["--seed", "3"])).seed
        3
    """
    from composer.recipes.resolve import find_recipe

    name = DEFAULT_RECIPE if _only_changes(args) else args.recipe
    return find_recipe(name, overrides=recipe_changes(args) if changes is None else changes)
