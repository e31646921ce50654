"""The engine, the state, time, and the contracts that everything else implements.

Names resolve on first use, so that ``composer.core.plugins``, which the command line needs for
every word typed, does not bring torch along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer._lazy import lazy_names

if TYPE_CHECKING:
    from composer.core.algorithm import Algorithm as Algorithm
    from composer.core.algorithm import Phase as Phase
    from composer.core.callback import Callback as Callback
    from composer.core.data_spec import DataSpec as DataSpec
    from composer.core.data_spec import default_split_batch as default_split_batch
    from composer.core.data_spec import ensure_data_spec as ensure_data_spec
    from composer.core.engine import Engine as Engine
    from composer.core.engine import Trace as Trace
    from composer.core.engine import Traces as Traces
    from composer.core.evaluator import Evaluator as Evaluator
    from composer.core.evaluator import ensure_evaluator as ensure_evaluator
    from composer.core.event import Event as Event
    from composer.core.intervals import create_interval_scheduler as create_interval_scheduler
    from composer.core.logger import Logger as Logger
    from composer.core.logger import LoggerDestination as LoggerDestination
    from composer.core.logger import format_log_data_value as format_log_data_value
    from composer.core.model import ComposerModel as ComposerModel
    from composer.core.passes import AlgorithmPass as AlgorithmPass
    from composer.core.precision import Precision as Precision
    from composer.core.precision import get_precision_context as get_precision_context
    from composer.core.serializable import Serializable as Serializable
    from composer.core.state import State as State
    from composer.core.time import Time as Time
    from composer.core.time import TimeUnit as TimeUnit
    from composer.core.time import ensure_time as ensure_time
    from composer.core.timestamp import Timestamp as Timestamp
    from composer.core.types import JSON as JSON
    from composer.core.types import Batch as Batch
    from composer.core.types import Dataset as Dataset
    from composer.core.types import MemoryFormat as MemoryFormat
    from composer.core.types import TrainerMode as TrainerMode
    from composer.core.warnings import NoEffectWarning as NoEffectWarning
    from composer.core.warnings import NotIntendedUseWarning as NotIntendedUseWarning

# Public name -> module of this package that defines it.
_HOMES = {
    "Algorithm": "algorithm",
    "AlgorithmPass": "passes",
    "Batch": "types",
    "Callback": "callback",
    "ComposerModel": "model",
    "DataSpec": "data_spec",
    "Dataset": "types",
    "Engine": "engine",
    "Evaluator": "evaluator",
    "Event": "event",
    "JSON": "types",
    "Logger": "logger",
    "LoggerDestination": "logger",
    "MemoryFormat": "types",
    "NoEffectWarning": "warnings",
    "NotIntendedUseWarning": "warnings",
    "Phase": "algorithm",
    "Precision": "precision",
    "Serializable": "serializable",
    "State": "state",
    "Time": "time",
    "TimeUnit": "time",
    "Timestamp": "timestamp",
    "Trace": "engine",
    "Traces": "engine",
    "TrainerMode": "types",
    "create_interval_scheduler": "intervals",
    "default_split_batch": "data_spec",
    "ensure_data_spec": "data_spec",
    "ensure_evaluator": "evaluator",
    "ensure_time": "time",
    "format_log_data_value": "logger",
    "get_precision_context": "precision",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES, modules=("plugins",))

if not TYPE_CHECKING:
    # A type checker takes the imports above for the exported names.
    __all__ = sorted(_HOMES)
