"""The engine, the state, time, and the contracts that everything else implements."""

from composer.core.algorithm import Algorithm, Phase
from composer.core.callback import Callback
from composer.core.data_spec import DataSpec, default_split_batch, ensure_data_spec
from composer.core.engine import Engine, Trace, Traces
from composer.core.evaluator import Evaluator, ensure_evaluator
from composer.core.event import Event
from composer.core.intervals import create_interval_scheduler
from composer.core.logger import Logger, LoggerDestination, format_log_data_value
from composer.core.model import ComposerModel
from composer.core.ordering import AlgorithmPass
from composer.core.precision import Precision, get_precision_context
from composer.core.serializable import Serializable
from composer.core.state import State
from composer.core.time import Time, TimeUnit, ensure_time
from composer.core.timestamp import Timestamp
from composer.core.types import JSON, Batch, Dataset, MemoryFormat, TrainerMode
from composer.core.warnings import NoEffectWarning, NotIntendedUseWarning

__all__ = [
    "JSON",
    "Algorithm",
    "AlgorithmPass",
    "Batch",
    "Callback",
    "ComposerModel",
    "DataSpec",
    "Dataset",
    "Engine",
    "Evaluator",
    "Event",
    "Logger",
    "LoggerDestination",
    "MemoryFormat",
    "NoEffectWarning",
    "NotIntendedUseWarning",
    "Phase",
    "Precision",
    "Serializable",
    "State",
    "Time",
    "TimeUnit",
    "Timestamp",
    "Trace",
    "Traces",
    "TrainerMode",
    "create_interval_scheduler",
    "default_split_batch",
    "ensure_data_spec",
    "ensure_evaluator",
    "ensure_time",
    "format_log_data_value",
    "get_precision_context",
]
