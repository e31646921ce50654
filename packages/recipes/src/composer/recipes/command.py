"""``composer train``: run a recipe from the command line."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from composer.recipes.arguments import add_recipe_arguments, chosen_recipe, recipe_changes

if TYPE_CHECKING:
    from composer.recipes.config import Recipe
    from composer.trainer.interruption import TrainingInterrupted

__all__ = ["TrainCommand"]


class TrainCommand:
    """Train by a recipe.

    The exit status is 0 if the run ended and reached its target, 1 if it missed the target, and 2
    if the recipe cannot be used; a run that was asked to end has the status of what asked (see
    ``composer.trainer.interruption``), and its last line is the command that continues it.

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
  composer train my_recipe.yaml --resume                    continue its newest run
  composer train my_recipe.yaml --resume runs/my_recipe-2   continue that one
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
        parser.add_argument(
            "--resume",
            nargs="?",
            const=True,
            default=False,
            metavar="RUN",
            help="continue the newest run of the recipe, or the one in the folder RUN, with the "
            "changes it was started with",
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
        begun: list[Path] = []
        try:
            _check_resume(args)
            from composer.recipes.run import run_recipe
            from composer.trainer.interruption import TrainingInterrupted
            from composer.utils import dist

            first = dist.get_global_rank() == 0
            recipe, resume = chosen_recipe(args), args.resume
            if resume is not False:
                recipe, resume = _to_continue(args, speak=first)
            if recipe.description and first:
                print(f"{recipe.name}: {recipe.description}", flush=True)
            try:
                outcome = run_recipe(recipe, folder=args.folder, resume=resume, begun=begun.append)
            except TrainingInterrupted as interrupted:
                if first:
                    _explain_interruption(args, begun[0], interrupted, dist.get_world_size())
                raise
        except RecipeError as error:
            print(f"composer train: {error}", file=sys.stderr)
            return 2
        if outcome.was_finished:
            if first:
                print(
                    f"the run in {outcome.folder} was finished before, after {outcome.epochs} "
                    f"epochs and {outcome.batches:,} batches; nothing is left to train",
                    flush=True,
                )
        elif first:
            print(outcome.table(), flush=True)
        if first and not outcome.reached:
            print("composer train: the target was missed", file=sys.stderr)
        return 0 if outcome.reached else 1


def _check_resume(args: argparse.Namespace) -> None:
    from composer.recipes.config import RecipeError

    # The word after --resume is its folder, so a recipe or a change there is a slip.
    word = args.resume
    if isinstance(word, str) and (word.endswith((".yaml", ".yml")) or "=" in word):
        raise RecipeError(
            f"--resume {word!r}: after --resume stands the folder of a run or nothing; write the "
            "recipe and its changes before it, as in composer train my_recipe.yaml --resume"
        )


def _to_continue(args: argparse.Namespace, *, speak: bool) -> tuple[Recipe, Path]:
    """The run's own recipe with the changes of this command line, and the folder of the run."""
    from composer.recipes.config import RecipeError
    from composer.recipes.kept import KEPT_NAME, differing_sections, kept_recipe
    from composer.recipes.run import recipe_to_continue

    changes = recipe_changes(args)
    # The changes are those of the run's own recipe; to find the run, only the name matters.
    named = chosen_recipe(args, changes=[word for word in changes if word.startswith("name=")])
    folder, own = recipe_to_continue(named, folder=args.folder, resume=args.resume)
    changed = kept_recipe(folder, name=named.name, changes=changes)
    if own is None or changed is None:
        return chosen_recipe(args), folder
    try:
        asked = chosen_recipe(args)
    except RecipeError:  # what the run's own recipe has to change, this one need not have
        asked = named
    said = []
    if differing_sections(own, changed):
        said.append(f"changed by {shlex.join(changes)}")
    differing = differing_sections(asked, changed)
    if differing:
        said.append(f"not like {args.recipe} in {', '.join(differing)}")
    if said and speak:
        print(
            f"the run in {folder} goes on by its own recipe, {folder / KEPT_NAME}: "
            f"{'; '.join(said)}",
            flush=True,
        )
    return changed, folder


def _explain_interruption(
    args: argparse.Namespace, folder: Path, interrupted: TrainingInterrupted, num_ranks: int
) -> None:
    if interrupted.checkpoint is None and args.resume is False:
        words = "nothing was saved, so there is nothing to continue"
    elif num_ranks > 1:
        words = f"to continue, start its {num_ranks} ranks with: train {_continuing(args, folder)}"
    else:
        words = f"to continue: composer train {_continuing(args, folder)}"
    print(
        f"composer train: the run was ended by {interrupted.reason}; {words}",
        file=sys.stderr,
        flush=True,
    )


def _continuing(args: argparse.Namespace, folder: Path) -> str:
    seed = [] if args.seed is None else ["--seed", str(args.seed)]
    return shlex.join([args.recipe, *args.overrides, *seed, "--resume", str(folder)])


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
