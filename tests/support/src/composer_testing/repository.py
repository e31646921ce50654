"""The repository as seen by the tests that watch over it."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["ROOT", "build_wheels", "modules_of", "portions", "pyprojects", "tracked_files"]

ROOT = Path(__file__).resolve().parents[4]


def pyprojects() -> dict[str, dict[str, Any]]:
    """Read every package's pyproject.toml.

    Returns:
        Distribution name to parsed content.

    Example:
        >>> pyprojects()["composer-core"]["tool"]["composer"]["order"]
        ['utils', 'devices', 'core']
    """
    read = (
        tomllib.loads(file.read_text(encoding="utf-8"))
        for file in sorted((ROOT / "packages").glob("*/pyproject.toml"))
    )
    return {data["project"]["name"]: data for data in read}


def portions() -> dict[str, str]:
    """List the portions of the namespace.

    Returns:
        Portion to distribution.

    Example:
        >>> portions()["optim"]
        'composer-trainer'
    """
    return {
        portion: name
        for name, data in pyprojects().items()
        for portion in data["tool"]["composer"]["order"]
    }


def modules_of(portion: str) -> Iterator[ModuleType]:
    """Import every module of a portion.

    Args:
        portion: Such as `core`.

    Yields:
        The portion itself, then its modules, by name.

    Example:
        >>> next(modules_of("utils")).__name__
        'composer.utils'
    """
    package = importlib.import_module(f"composer.{portion}")
    yield package
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    for info in sorted(found, key=lambda info: info.name):
        if not info.name.endswith("__main__"):
            yield importlib.import_module(info.name)


def tracked_files() -> list[Path]:
    """List the files that belong to the repository.

    Returns:
        Paths relative to the root, without what .gitignore names.

    Example:
        >>> Path("Makefile") in tracked_files()
        True
    """
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
        return sorted(Path(name) for name in names if (ROOT / name).is_file())
    # A source archive has no git; what the make targets leave behind is skipped by name.
    skipped = {"__pycache__", "runs", "mlruns", "wandb", "dist", "build"}
    return sorted(
        path.relative_to(ROOT)
        for path in ROOT.rglob("*")
        if path.is_file()
        and not skipped & set(path.relative_to(ROOT).parts)
        and not path.relative_to(ROOT).parts[0].startswith((".venv", ".build", ".git/", "."))
    )


def build_wheels(folder: Path) -> dict[str, Path]:
    """Build a wheel of every package.

    Args:
        folder: Where to put them.

    Returns:
        Distribution name to wheel.

    Raises:
        AssertionError: If the build fails; the message holds its output.
    """
    packages = [str(file.parent) for file in sorted((ROOT / "packages").glob("*/pyproject.toml"))]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder)]
    done = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"building the wheels failed\n{done.stdout}\n{done.stderr}")
    return {
        wheel.name.split("-")[0].replace("_", "-"): wheel for wheel in sorted(folder.glob("*.whl"))
    }
