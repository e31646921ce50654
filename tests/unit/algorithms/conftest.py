"""A run that algorithms can act on: a real state and logger, without a trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from composer.core.algorithm import Algorithm
from composer.core.engine import Engine
from composer.core.event import Event
from composer.core.logger import Logger, LoggerDestination
from composer.core.state import State
from composer.core.timestamp import Timestamp
from composer.devices import DeviceCPU


class Recorder(LoggerDestination):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.hyperparameters: dict[str, Any] = {}

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self.metrics.append(dict(metrics))

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        self.hyperparameters.update(hyperparameters)


class Run:
    """A state, a logger and the engine that runs events."""

    def __init__(self, model: torch.nn.Module, algorithms: Sequence[Algorithm], **fields: Any):
        fields.setdefault("max_duration", "10ba")
        self.recorder = Recorder()
        self.state = State(model, 0, "run", DeviceCPU(), algorithms=algorithms, **fields)
        self.logger = Logger(self.state, destinations=[self.recorder])
        self.engine = Engine(self.state, self.logger)
        if self.state.dataloader is None:
            self.state.set_dataloader([None], "train")

    def at(self, batch: int, **counters: Any) -> None:
        """Set the clock."""
        self.state.timestamp = Timestamp(batch=batch, batch_in_epoch=batch, **counters)

    def fire(self, *events: Event) -> None:
        """Run events."""
        for event in events:
            self.engine.run_event(event)

    def train_step(self, batch: Any) -> torch.Tensor:
        """Run the events of one microbatch, and the passes; returns the loss that was optimised."""
        state = self.state
        state.batch = batch
        self.fire(Event.BEFORE_FORWARD)
        state.outputs = state.model(state.batch)
        self.fire(Event.AFTER_FORWARD, Event.BEFORE_LOSS)
        state.loss = state.model.loss(state.outputs, state.batch)  # type: ignore[operator]
        self.fire(Event.AFTER_LOSS, Event.BEFORE_BACKWARD)
        assert isinstance(state.loss, torch.Tensor)
        state.loss.backward()
        self.fire(Event.AFTER_BACKWARD)
        return state.loss.detach()


@pytest.fixture
def make_run() -> Iterator[Callable[..., Run]]:
    """Make runs, and close their engines after the test."""
    made: list[Run] = []

    def make(*arguments: Any, **fields: Any) -> Run:
        made.append(Run(*arguments, **fields))
        return made[-1]

    yield make
    for run in made:
        run.engine.close()
