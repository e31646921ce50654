"""``composer verify-resume``: does an interrupted run of a recipe continue exactly?"""

from __future__ import annotations

import argparse
import sys
from typing import ClassVar

from composer.recipes.arguments import add_recipe_arguments, chosen_recipe

__all__ = ["VerifyResumeCommand"]


class VerifyResumeCommand:
    """Train a recipe straight and interrupted, and name the first thing that differs.

    The exit status is 0 if nothing differs, 1 if something does, and 2 if the recipe or the points
    cannot be used.

    Example:
        >>> VerifyResumeCommand().name
        'verify-resume'
    """

    name: ClassVar[str] = "verify-resume"
    help: ClassVar[str] = "check that an interrupted run of a recipe continues exactly"
    examples: ClassVar[str] = """\
  composer verify-resume                            the default recipe, interrupted after 3 batches
  composer verify-resume my_recipe.yaml --at 3ba,1ep
  composer verify-resume my_recipe.yaml --at 1ep trainer.train_subset_num_batches=8
  composer verify-resume my_recipe.yaml --at 5ba --duration 20ba train_data.num_workers=2
  composer verify-resume my_recipe.yaml --at 2ba,4ba eval_data=null
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments.

        Args:
            parser: The parser of this sub-command.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> VerifyResumeCommand().add_arguments(parser)
            >>> args = parser.parse_args(["r.yaml", "--at", "2ba", "seed=2"])
            >>> args.recipe, args.at, args.overrides
            ('r.yaml', '2ba', ['seed=2'])
        """
        add_recipe_arguments(parser)
        parser.add_argument(
            "--at",
            default="3ba",
            metavar="POINTS",
            help="when to interrupt, in batches or epochs, separated by commas (default: 3ba)",
        )
        parser.add_argument(
            "--duration",
            metavar="TIME",
            help="how far to train, such as 20ba (default: 5 batches beyond the last point)",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Verify, with a line for each step and each point.

        Args:
            args: The parsed arguments.

        Returns:
            0 if all is equal, 1 if something differs, 2 if the recipe or a point cannot be used.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> VerifyResumeCommand().add_arguments(parser)
            >>> VerifyResumeCommand().run(parser.parse_args(["no_such_file.yaml"]))
            2
        """
        from composer.recipes.config import RecipeError

        try:
            recipe = chosen_recipe(args)
            from composer.recipes.verify import parse_points, verify_resume

            try:
                points = parse_points(args.at)
                duration = parse_points(args.duration)[0] if args.duration else None
            except ValueError as error:
                print(f"composer verify-resume: {error}", file=sys.stderr)
                return 2
            verdicts = verify_resume(
                recipe,
                points,
                duration=duration,
                say=lambda line: print(line, file=sys.stderr, flush=True),
            )
        except RecipeError as error:
            print(f"composer verify-resume: {error}", file=sys.stderr)
            return 2
        for verdict in verdicts:
            print(verdict, flush=True)
        return 1 if any(verdict.difference for verdict in verdicts) else 0
