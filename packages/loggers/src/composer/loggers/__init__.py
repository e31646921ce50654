"""Logger destinations: where metrics, hyperparameters, tables and files of a run go."""

from __future__ import annotations

from composer.core.logger import Logger, LoggerDestination
from composer.loggers.console import ConsoleLogger
from composer.loggers.file import FileLogger
from composer.loggers.in_memory import InMemoryLogger
from composer.loggers.progress_bar import ProgressBarLogger
from composer.utils.suggestions import names_that_come_later

__all__ = [
    "ConsoleLogger",
    "FileLogger",
    "InMemoryLogger",
    "Logger",
    "LoggerDestination",
    "ProgressBarLogger",
]

__getattr__ = names_that_come_later(
    __name__,
    (
        "CometMLLogger",
        "MLFlowLogger",
        "RemoteUploaderDownloader",
        "SlackLogger",
        "TensorboardLogger",
        "WandBLogger",
    ),
)
