"""``composer train``: run a recipe from the command line."""

from __future__ import annotations

import argparse
import sys
from typing import ClassVar

from composer.recipes.arguments import add_recipe_arguments, chosen_recipe

__all__ = ["TrainCommand"]


class TrainCommand:
    """Train by a recipe.

    The exit status is 0 if the run ended and reached its target, 1 if it missed the target, and 2
    if the recipe cannot be used; a run that was asked to end has the status of what asked (see
    ``composer.trainer.interruption``).

    Example:
        >>> TrainCommand().name
        'train'
    """

    name: ClassVar[str] = "train"
    help: ClassVar[str] = "train by a recipe"
    examples: ClassVar[str] = """\
  composer train                                   train the default recipe
  composer train --list                            list the recipes that are installed
  composer train my_recipe.yaml                    a recipe of your own
  composer train fashion_mnist_resnet8 --seed 3    another seed
  composer train fashion_mnist_resnet8 trainer.max_duration=2ep target.stop=false
  composer train my_recipe.yaml algorithms.label_smoothing.smoothing=0.2
  composer train my_recipe.yaml trainer.autoresume=true     go on with a run that was cut
  torchrun --standalone --nproc-per-node 2 -m composer.cli train my_recipe.yaml
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments.

        Args:
            parser: The parser of this sub-command.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> TrainCommand().add_arguments(parser)
            >>> args = parser.parse_args(["r.yaml", "seed=2", "--folder", "out"])
            >>> args.recipe, args.overrides, args.folder
            ('r.yaml', ['seed=2'], 'out')
        """
        add_recipe_arguments(parser)
        parser.add_argument("--list", action="store_true", help="list the installed recipes")
        parser.add_argument(
            "--folder", default="runs", help="where the folder of the run is made (default: runs)"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Train, or list the recipes.

        Args:
            args: The parsed arguments.

        Returns:
            0, 1 for a missed target, or 2 for a recipe that cannot be used.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> TrainCommand().add_arguments(parser)
            >>> TrainCommand().run(parser.parse_args(["no_such_file.yaml"]))
            2
        """
        from composer.recipes.config import RecipeError

        if args.list:
            return _list_recipes()
        try:
            recipe = chosen_recipe(args)
            from composer.recipes.run import run_recipe
            from composer.utils import dist

            if recipe.description and dist.get_global_rank() == 0:
                print(f"{recipe.name}: {recipe.description}", flush=True)
            outcome = run_recipe(recipe, folder=args.folder)
        except RecipeError as error:
            print(f"composer train: {error}", file=sys.stderr)
            return 2
        first = dist.get_global_rank() == 0
        if first:
            print(outcome.table(), flush=True)
        if first and not outcome.reached:
            print("composer train: the target was missed", file=sys.stderr)
        return 0 if outcome.reached else 1


def _list_recipes() -> int:
    from composer.recipes.config import RecipeError
    from composer.recipes.resolve import find_recipe, recipe_names

    status = 0
    names = recipe_names()
    width = max(map(len, names), default=0)
    for name in names:
        try:
            text = find_recipe(name).description
        except RecipeError as error:
            text, status = f"cannot be used: {str(error).splitlines()[0]}", 2
        print(f"{name:<{width}}  {text}")
    if not names:
        print("no recipe is installed", file=sys.stderr)
    return status
