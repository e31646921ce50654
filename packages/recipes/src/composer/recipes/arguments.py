"""What every command that takes a recipe asks for on the command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from composer.recipes.config import Recipe

__all__ = ["DEFAULT_RECIPE", "add_recipe_arguments", "chosen_recipe"]

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


def chosen_recipe(args: argparse.Namespace) -> Recipe:
    """Return the recipe that was asked for.

    Args:
        args: What a parser with :func:`add_recipe_arguments` parsed.

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

    name, overrides = args.recipe, list(args.overrides)
    if "=" in name:
        # Only KEY=VALUE was given: the default recipe with a change.
        name, overrides = DEFAULT_RECIPE, [name, *overrides]
    if args.seed is not None:
        overrides.append(f"seed={args.seed}")
    return find_recipe(name, overrides=overrides)
