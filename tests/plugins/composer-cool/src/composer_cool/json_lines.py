"""Metrics as one JSON object a line, which every tool can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from composer.core import LoggerDestination

__all__ = ["JSONLinesLogger"]


class JSONLinesLogger(LoggerDestination):
    """Append what is logged to a file, one JSON object a line.

    Args:
        path: The file.

    Example:
        >>> JSONLinesLogger("metrics.jsonl").path
        'metrics.jsonl'
    """

    def __init__(self, path: str | Path = "metrics.jsonl") -> None:
        self.path = str(path)

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Append one line.

        Args:
            metrics: Name to number or zero-dimensional tensor.
            step: Batch counter.
        """
        values = {name: float(value) for name, value in metrics.items()}
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
