"""The folders of runs: a new one for each, and the one of a run that is to be continued.

The first run of a recipe lies in ``<folder>/<recipe>``, later ones in ``<recipe>-2`` and so on. A
new number is larger than all that are there, so the largest is the newest whatever was deleted.
"""

from __future__ import annotations

import re
from pathlib import Path

from composer.recipes.config import RecipeError
from composer.utils.suggestions import did_you_mean

__all__ = ["find_run_folder", "new_run_folder", "run_folders"]


def _number(folder: Path, name: str) -> int | None:
    found = re.fullmatch(rf"{re.escape(name)}(?:-([1-9]\d*))?", folder.name)
    return None if found is None else int(found[1] or 1)


def run_folders(base: Path, name: str) -> list[Path]:
    """List the folders of a recipe's runs.

    Args:
        base: Where they lie.
        name: The recipe's name.

    Returns:
        What is there and not empty, oldest first.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as base:
        ...     for run in ("r", "r-10", "r-2", "other"):
        ...         Path(base, run, "checkpoints").mkdir(parents=True)
        ...     [folder.name for folder in run_folders(Path(base), "r")]
        ['r', 'r-2', 'r-10']
    """
    if not base.is_dir():
        return []
    numbered = [(_number(path, name), path) for path in base.iterdir()]
    taken = [
        (number, path)
        for number, path in numbered
        if number is not None and not (path.is_dir() and not any(path.iterdir()))
    ]
    return [path for _, path in sorted(taken)]


def new_run_folder(base: Path, name: str) -> Path:
    """Name the folder of a run that begins.

    Args:
        base: Where the folders of runs lie.
        name: The recipe's name.

    Returns:
        The folder, which is not made.

    Example:
        >>> new_run_folder(Path("/nowhere"), "r").name
        'r'
    """
    taken = run_folders(base, name)
    last = (_number(taken[-1], name) or 0) if taken else 0
    return base / (f"{name}-{last + 1}" if last else name)


def find_run_folder(base: Path, name: str, *, folder: str | Path | None = None) -> Path:
    """Find the folder of a run that is to be continued.

    Args:
        base: Where the folders of runs lie.
        name: The recipe's name.
        folder: The folder of the run; by default the newest of the recipe.

    Returns:
        The folder.

    Raises:
        RecipeError: If there is none, or it is not one of the recipe's.

    Example:
        >>> find_run_folder(Path("runs"), "r", folder="runs/q")
        Traceback (most recent call last):
        composer.recipes.config.RecipeError: there is no folder runs/q to continue a run of 'r'...
    """
    known = [path for path in run_folders(base, name) if path.is_dir()]
    if folder is None:
        if not known:
            raise RecipeError(f"the folder {base} holds no run of {name!r} that could be continued")
        return known[-1]
    given = Path(folder)
    here = ", ".join(map(str, known)) or f"none in {base}"
    if not given.is_dir():
        raise RecipeError(
            f"there is no folder {given} to continue a run of {name!r} from."
            f"{did_you_mean(str(given), map(str, known))} Its runs: {here}."
        )
    # The run is called after its folder, which may be given as `.` from inside.
    whole = given if given.name.strip(".") else given.resolve()
    if _number(whole, name) is None:
        raise RecipeError(
            f"the folder {given} is not that of a run of {name!r}, which is called {name} or "
            f"{name}-2 and so on. Its runs: {here}."
        )
    return whole
