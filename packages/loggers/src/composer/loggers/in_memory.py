"""Keep everything that was logged, for tests, notebooks and small studies."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from composer.core.logger import Logger, LoggerDestination
from composer.core.timestamp import Timestamp
from composer.loggers._json import to_json_deep
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["InMemoryLogger"]


class InMemoryLogger(LoggerDestination):
    """Keeps metrics with the moments at which they were logged, hyperparameters and tables.

    Metrics on an accelerator are fetched when they are first looked at, so that logging does not
    make a run wait for its device.

    Example:
        >>> logger = InMemoryLogger()
        >>> logger.log_metrics({"loss": 2.5}, step=1)
        >>> logger.most_recent_values["loss"]
        2.5
    """

    #: Hyperparameter to value.
    hyperparameters: dict[str, Any]
    #: Table to its JSON text, with the keys ``columns`` and ``data``.
    tables: dict[str, str]
    #: The state of the run, from ``init`` on.
    state: State | None

    def __init__(self) -> None:
        self.hyperparameters = {}
        self.tables = {}
        self.state = None
        self._data: dict[str, list[tuple[Timestamp, Any]]] = {}
        # Metric -> positions of values that are still on a device.
        self._unfetched: list[tuple[str, int]] = []

    @property
    def data(self) -> dict[str, list[tuple[Timestamp, Any]]]:
        """Metric to the list of its moments and values."""
        for name, position in self._unfetched:
            timestamp, value = self._data[name][position]
            # A tensor whose number cannot be had stays what it is.
            with contextlib.suppress(Exception):
                self._data[name][position] = (timestamp, value.item())
        self._unfetched.clear()
        return self._data

    @property
    def most_recent_values(self) -> dict[str, Any]:
        """Metric to its last value."""
        return {name: series[-1][1] for name, series in self.data.items()}

    @property
    def most_recent_timestamps(self) -> dict[str, Timestamp]:
        """Metric to the moment of its last value."""
        return {name: series[-1][0] for name, series in self._data.items()}

    def init(self, state: State, logger: Logger) -> None:
        self.state = state

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Keep hyperparameters.

        Args:
            hyperparameters: Name to value.

        Example:
            >>> logger = InMemoryLogger()
            >>> logger.log_hyperparameters({"lr": 0.1})
            >>> logger.hyperparameters
            {'lr': 0.1}
        """
        self.hyperparameters.update(hyperparameters)

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Keep a table as JSON text.

        Args:
            columns: Column names.
            rows: One list per row.
            name: Name of the table.
            step: Not used.

        Raises:
            ValueError: If a row has another length than the columns.

        Example:
            >>> logger = InMemoryLogger()
            >>> logger.log_table(["a", "b"], [[1, "x"]])
            >>> logger.tables["Table"]
            '{"columns": ["a", "b"], "data": [[1, "x"]]}'
        """
        for number, row in enumerate(rows):
            if len(row) != len(columns):
                raise ValueError(
                    f"rows[{number}] has {len(row)} cells and there are {len(columns)} columns."
                )
        table = {"columns": list(columns), "data": rows}
        self.tables[name] = json.dumps(to_json_deep(table, non_finite=lambda number: None))

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Keep numbers.

        Args:
            metrics: Name to value.
            step: The batch, used where there is no state to tell the moment.

        Example:
            >>> logger = InMemoryLogger()
            >>> logger.log_metrics({"loss": 2.5}, step=1)
            >>> logger.data["loss"]
            [(Timestamp(batch=1), 2.5)]
        """
        state = self.state
        timestamp = Timestamp(batch=step or 0) if state is None else state.timestamp
        for name, value in metrics.items():
            series = self._data.get(name)
            if series is None:
                series = self._data[name] = []
            kind = type(value)
            if kind is not float and kind is not int and kind is not str:
                if not isinstance(value, torch.Tensor):
                    # What cannot be copied is kept as it is.
                    with contextlib.suppress(Exception):
                        value = copy.deepcopy(value)
                elif value.numel() != 1:
                    value = value.detach().clone()
                elif value.is_cpu and value.layout is torch.strided:
                    value = value.item()
                else:
                    self._unfetched.append((name, len(series)))
            series.append((timestamp, value))

    def get_timeseries(self, metric: str) -> dict[str, Any]:
        """Return a metric over the run, as arrays of equal length.

        Args:
            metric: The metric.

        Returns:
            The values under the metric's name, and each counter of the clock (wall clock in
            seconds) under its own.

        Raises:
            ValueError: If the metric was never logged.

        Example:
            >>> logger = InMemoryLogger()
            >>> logger.log_metrics({"loss": 2.5}, step=1)
            >>> logger.log_metrics({"loss": 1.5}, step=2)
            >>> series = logger.get_timeseries("loss")
            >>> series["batch"].tolist(), series["loss"].tolist()
            ([1, 2], [2.5, 1.5])
        """
        series = self.data.get(metric)
        if series is None:
            raise ValueError(
                f"metric={metric!r} was never logged; logged are: "
                f"{', '.join(self._data) or 'none'}.{did_you_mean(metric, self._data)}"
            )
        moments = [timestamp.state_dict() for timestamp, _ in series]
        result = {field: np.array([moment[field] for moment in moments]) for field in moments[0]}
        result[metric] = _as_array([value for _, value in series])
        return result


def _as_array(values: list[Any]) -> np.ndarray:
    """One entry for each value, also where they do not fit together."""
    try:
        return np.array(values)
    except Exception:
        array = np.empty(len(values), dtype=object)
        for index, value in enumerate(values):
            array[index] = value
        return array
