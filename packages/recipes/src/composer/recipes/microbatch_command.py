"""``composer find-microbatch``: the largest microbatch of a recipe that fits into memory."""

from __future__ import annotations

import argparse
import sys
from typing import ClassVar

from composer.recipes.arguments import add_recipe_arguments, chosen_recipe

__all__ = ["FindMicrobatchCommand"]


class FindMicrobatchCommand:
    """Find the largest microbatch that fits into memory, without keeping anything of the run.

    The exit status is 0 if it was found, 1 if not even one sample fits, and 2 if the recipe cannot
    be used.

    Example:
        >>> FindMicrobatchCommand().name
        'find-microbatch'
    """

    name: ClassVar[str] = "find-microbatch"
    help: ClassVar[str] = "find the largest microbatch that fits into memory"
    examples: ClassVar[str] = """\
  composer find-microbatch my_recipe.yaml                       try, and print the size
  composer find-microbatch my_recipe.yaml trainer.device=gpu    on another device
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments.

        Args:
            parser: The parser of this sub-command.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> FindMicrobatchCommand().add_arguments(parser)
            >>> parser.parse_args(["r.yaml"]).recipe
            'r.yaml'
        """
        add_recipe_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Search, and print what was found.

        Args:
            args: The parsed arguments.

        Returns:
            0, 1 if nothing fits, or 2 for a recipe that cannot be used.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> FindMicrobatchCommand().add_arguments(parser)
            >>> FindMicrobatchCommand().run(parser.parse_args(["no_such_file.yaml"]))
            2
        """
        from composer.recipes.config import RecipeError
        from composer.recipes.microbatch import MOST_BATCHES, find_microbatch
        from composer.utils.oom import is_out_of_memory

        try:
            recipe = chosen_recipe(args)
            sizes, settled = find_microbatch(recipe)
        except RecipeError as error:
            print(f"composer find-microbatch: {error}", file=sys.stderr)
            return 2
        except RuntimeError as error:
            if error.__cause__ is None or not is_out_of_memory(error.__cause__):
                raise
            print(f"composer find-microbatch: {error}", file=sys.stderr)
            return 1
        tried = ", ".join(str(size) for size in dict.fromkeys(sizes))
        batch = recipe.train_data.batch_size
        print(f"sizes used       {tried}")
        print(
            f"largest that fits  {sizes[-1]}" + (" (the whole batch)" if sizes[-1] == batch else "")
        )
        if not settled:
            print(f"still narrowing down after {MOST_BATCHES} batches")
        print(f"in the recipe      trainer: {{device_train_microbatch_size: {sizes[-1]}}}")
        return 0
