"""The front door: one lazy module that knows where every public name lives.

`from composer import Trainer` works as soon as the distribution that holds the trainer is
installed, and `import composer` costs nothing, because a name is looked up when it is asked for.
The table below holds strings: this lowest floor never imports the floors above it. When the home
of a name is missing, the error says which distribution to install.

The path is extended because each editable distribution keeps its portion in a folder of its own;
with wheels all portions share one folder and the call changes nothing.
"""

from __future__ import annotations

from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from composer._version import __version__ as __version__
    from composer.core.algorithm import Algorithm as Algorithm
    from composer.core.callback import Callback as Callback
    from composer.core.data_spec import DataSpec as DataSpec
    from composer.core.engine import Engine as Engine
    from composer.core.evaluator import Evaluator as Evaluator
    from composer.core.event import Event as Event
    from composer.core.logger import Logger as Logger
    from composer.core.model import ComposerModel as ComposerModel
    from composer.core.state import State as State
    from composer.core.time import Time as Time
    from composer.core.time import TimeUnit as TimeUnit
    from composer.core.timestamp import Timestamp as Timestamp
    from composer.trainer import Trainer as Trainer

__all__ = [
    "Algorithm",
    "Callback",
    "ComposerModel",
    "DataSpec",
    "Engine",
    "Evaluator",
    "Event",
    "Logger",
    "State",
    "Time",
    "TimeUnit",
    "Timestamp",
    "Trainer",
    "__version__",
]

# Public name -> module that defines it.
_HOMES = {
    "Algorithm": "composer.core.algorithm",
    "Callback": "composer.core.callback",
    "ComposerModel": "composer.core.model",
    "DataSpec": "composer.core.data_spec",
    "Engine": "composer.core.engine",
    "Evaluator": "composer.core.evaluator",
    "Event": "composer.core.event",
    "Logger": "composer.core.logger",
    "State": "composer.core.state",
    "Time": "composer.core.time",
    "TimeUnit": "composer.core.time",
    "Timestamp": "composer.core.timestamp",
    "Trainer": "composer.trainer",
    "__version__": "composer._version",
}

# Portion -> distribution that ships it. `composer.optim` after a bare `import composer` is
# what scripts are used to, so a portion resolves like a name.
_PORTIONS = {
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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        module = _import(_HOMES[name], wanted=name)
        value = getattr(module, name)
        globals()[name] = value
        return value
    if name in _PORTIONS:
        return _import(f"composer.{name}", wanted=name)
    from difflib import get_close_matches

    close = get_close_matches(name, [*__all__, *_PORTIONS], n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise AttributeError(f"module 'composer' has no attribute {name!r}.{hint}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PORTIONS})


def _import(home: str, *, wanted: str) -> Any:
    """Import a home module; say what to install when the portion itself is not there."""
    from importlib import import_module

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
        distribution = _PORTIONS.get(portion, "composer-core")
        message = (
            f"'composer.{wanted}' comes with the distribution {distribution}, which is not "
            f"installed. Install it with: pip install {distribution}"
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
