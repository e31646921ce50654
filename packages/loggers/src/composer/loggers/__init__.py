"""Logger destinations: where metrics, hyperparameters, tables and files of a run go."""

from __future__ import annotations

from composer.core.logger import Logger, LoggerDestination
from composer.loggers.console import ConsoleLogger
from composer.loggers.file import FileLogger
from composer.loggers.in_memory import InMemoryLogger
from composer.loggers.progress_bar import ProgressBarLogger

__all__ = [
    "ConsoleLogger",
    "FileLogger",
    "InMemoryLogger",
    "Logger",
    "LoggerDestination",
    "ProgressBarLogger",
]
