"""The front door: one lazy module that knows where every public name lives.

``from composer import Trainer`` works as soon as the distribution that holds the trainer is
installed, and ``import composer`` costs nothing, because a name is looked up when it is asked for.
The table below holds strings: this lowest floor never imports the floors above it. When the home
of a name is missing, the error says which distribution to install (``composer._lazy``).

The path is extended because each editable distribution keeps its portion in a folder of its own;
with wheels all portions share one folder and the call changes nothing.
"""

from __future__ import annotations

from pkgutil import extend_path
from typing import TYPE_CHECKING

from composer._lazy import PORTIONS, lazy_names

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

# `composer.optim` after a bare `import composer` is what scripts are used to, so a portion resolves
# like a name.
__getattr__, __dir__ = lazy_names(__name__, _HOMES, modules=PORTIONS)

if not TYPE_CHECKING:
    # A type checker takes the imports above for the exported names.
    __all__ = sorted(_HOMES)
