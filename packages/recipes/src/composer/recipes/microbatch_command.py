"""``composer find-microbatch``: the largest microbatch of a recipe that fits into memory."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from composer.core.callback import Callback
from composer.recipes.arguments import add_recipe_arguments, chosen_recipe

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State
    from composer.recipes.config import Recipe

__all__ = ["FindMicrobatchCommand", "find_microbatch"]

_MOST_BATCHES = 50


class _Watch(Callback):
    """Notes the size of each batch, and ends the run when the search is at its end."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.settled = False

    def batch_end(self, state: State, logger: Logger) -> None:
        from composer.trainer.auto_microbatch import MicrobatchSearch

        del logger
        self.sizes.append(int(state.device_train_microbatch_size or 0))
        search = MicrobatchSearch(1)
        search.load_state_dict(state.microbatch_search)
        self.settled = search.settled
        if self.settled:
            self.sizes.append(search.size)
            state.stop_training()


def find_microbatch(recipe: Recipe) -> tuple[list[int], bool]:
    """Train by a recipe for a few batches, and find the largest microbatch that fits.

    Nothing is kept of the run: no checkpoints, no logs.

    Args:
        recipe: The recipe.

    Returns:
        The sizes that were used, the last of which is the answer, and whether it is known to within
        a tenth of the largest that fits.

    Raises:
        RecipeError: If the recipe cannot be used.
        RuntimeError: If not even one sample at a time fits.

    Example:
        >>> from composer.recipes.config import parse_recipe
        >>> text = "{model: no_such, train_data: {dataset: x}, trainer: {}}"
        >>> recipe = parse_recipe(text, name="r")
        >>> find_microbatch(recipe)
        Traceback (most recent call last):
        composer.recipes.config.RecipeError: r, line 1: no model named 'no_such'...
    """
    from composer.recipes.resolve import resolve_recipe
    from composer.recipes.run import build_trainer, in_folder

    watch = _Watch()
    settings: dict[str, Any] = {
        **recipe.trainer,
        "device_train_microbatch_size": "auto",
        "max_duration": f"{_MOST_BATCHES}ba",
        "eval_interval": 0,
        "save_folder": None,
        "autoresume": False,
        "load_path": None,
        "progress_bar": False,
    }
    bare = replace(recipe, trainer=settings, loggers=(), callbacks=(), eval_data=None, target=None)
    with tempfile.TemporaryDirectory() as folder:
        bare = in_folder(bare, Path(folder))
        seed = 0 if recipe.seed is None else recipe.seed
        trainer = build_trainer(bare, resolve_recipe(bare), Path(folder), seed, watch)
        try:
            trainer.fit()
        finally:
            trainer.close()
    return watch.sizes, watch.settled


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
            print(f"still narrowing down after {_MOST_BATCHES} batches")
        print(f"in the recipe      trainer: {{device_train_microbatch_size: {sizes[-1]}}}")
        return 0
