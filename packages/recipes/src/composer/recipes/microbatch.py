"""A dry run that finds the largest microbatch of a recipe."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from composer.recipes.resolve import resolve_recipe
from composer.recipes.run import (
    Progress,
    build_trainer,
    fit_recipe,
    in_folder,
    without_outputs,
)

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State
    from composer.recipes.config import Recipe

__all__ = ["MOST_BATCHES", "find_microbatch"]

#: How many batches the search may take.
MOST_BATCHES = 50


class _Watch(Progress):
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
    watch = _Watch()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare = without_outputs(
            in_folder(recipe, folder),
            device_train_microbatch_size="auto",
            max_duration=f"{MOST_BATCHES}ba",
            eval_interval=0,
        )
        bare = replace(bare, callbacks=(), eval_data=None, target=None)
        trainer = build_trainer(bare, resolve_recipe(bare), folder, recipe.seed or 0, watch)
        try:
            fit_recipe(trainer, bare, watch)
        finally:
            trainer.close()
    return watch.sizes, watch.settled
