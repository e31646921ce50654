"""Names that resolve on first use, and what to install when the home of one is missing.

The front door, ``composer.core`` and ``composer.utils`` are tables from public name to home module;
what they do with the table is here. It stands beside the front door and imports the standard
library only, because it has to work, and explain, where everything else is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["PORTIONS", "import_home", "lazy_names"]

# Portion -> distribution that ships it.
PORTIONS = {
    "algorithms": "composer-algorithms",
    "callbacks": "composer-trainer",
    "checkpoint": "composer-trainer",
    "cli": "composer-trainer",
    "core": "composer-core",
    "datasets": "composer-recipes",
    "devices": "composer-core",
    "distributed": "composer-trainer",
    "explorer": "composer-explorer",
    "functional": "composer-algorithms",
    "loggers": "composer-loggers",
    "loss": "composer-models",
    "metrics": "composer-models",
    "models": "composer-models",
    "optim": "composer-trainer",
    "profiler": "composer-trainer",
    "recipes": "composer-recipes",
    "streaming": "composer-streaming-data",
    "trainer": "composer-trainer",
    "utils": "composer-core",
}

# Distributions of the original project, which ship an import package of the same name.
_RIVALS = ("mosaicml", "composer")
_rival_checked = False


def lazy_names(
    package: str, homes: Mapping[str, str], *, modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and the ``__dir__`` of a package.

    Args:
        package: The package.
        homes: Public name to the module that defines it: a module of the package, or with dots an
            absolute name.
        modules: Modules of the package that are attributes without being imported first. The
            homes inside the package always are.

    Returns:
        The two functions.

    Example:
        >>> find, _ = lazy_names("composer.utils", {"StringEnum": "string_enum"})
        >>> find("StringEnum").__module__
        'composer.utils.string_enum'
    """
    submodules = {*modules, *(home for home in homes.values() if "." not in home)}

    def find(name: str) -> Any:
        wanted = f"{package}.{name}"
        if name in homes:
            home = homes[name]
            module = import_home(home if "." in home else f"{package}.{home}", wanted=wanted)
            value = getattr(module, name)
            setattr(sys.modules[package], name, value)
            return value
        if name in submodules:
            return import_home(wanted, wanted=wanted)
        from difflib import get_close_matches

        close = get_close_matches(name, [*homes, *submodules], n=1)
        hint = f' Did you mean "{close[0]}"?' if close else ""
        raise AttributeError(f"module {package!r} has no attribute {name!r}.{hint}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *modules})

    return find, names


def import_home(home: str, *, wanted: str) -> Any:
    """Import a home module; say what to install when the portion itself is not there.

    Args:
        home: The module.
        wanted: What was asked for, for the message.

    Returns:
        The module.

    Raises:
        ModuleNotFoundError: If the distribution of the portion is not installed.

    Example:
        >>> import_home("composer.devices.select", wanted="composer.utils.get_device").__name__
        'composer.devices.select'
    """
    portion = home.split(".")[1]
    try:
        module = import_module(home)
        # A folder that an uninstall left behind imports as an empty namespace.
        missing = module.__spec__ is not None and module.__spec__.origin is None
        cause = None
    except ModuleNotFoundError as error:
        if error.name != f"composer.{portion}":
            _add_rival_note(error)
            raise
        missing, cause = True, error
    except ImportError as error:
        _add_rival_note(error)
        raise
    if missing:
        distribution = PORTIONS.get(portion, "composer-core")
        message = (
            f"{wanted!r} comes with the distribution {distribution}, which is not installed. "
            f"Install it with: pip install {distribution}"
        )
        raise ModuleNotFoundError(
            "\n".join(filter(None, (message, _rival()))), name=f"composer.{portion}"
        ) from cause
    if home != "composer._version":
        _warn_of_rival()
    return module


def _add_rival_note(error: ImportError) -> None:
    """Let the first suspect, files of two projects in one folder, travel with the error."""
    if rival := _rival():
        error.add_note(rival)


def _warn_of_rival() -> None:
    """Warn once when another distribution writes into this import package."""
    global _rival_checked
    if not _rival_checked:
        _rival_checked = True
        if rival := _rival():
            import warnings

            warnings.warn(rival, RuntimeWarning, stacklevel=4)


def _rival() -> str:
    """Describe an installed distribution that overwrites this import package, or return ''."""
    from importlib import metadata

    for name in _RIVALS:
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if any(file.parts[:1] == ("composer",) for file in found.files or ()):
            return (
                f"The distribution {name} {found.version} is installed in this environment and "
                f"ships the import package 'composer' as well; the two overwrite each other's "
                f"files. Remove it (pip uninstall {name}), then install the composer-* "
                f"distributions again with --force-reinstall."
            )
    return ""
