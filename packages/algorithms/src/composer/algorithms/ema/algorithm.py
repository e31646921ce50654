"""Exponential moving average of weights as a method of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from composer.algorithms._progress import begins_anew
from composer.algorithms._state import refuse_second
from composer.algorithms.ema.functional import (
    EMAParameters,
    pack,
    put_training_weights_back,
    unpack,
)
from composer.algorithms.ema.schedule import DEFAULT_HALF_LIFE, EMASchedule
from composer.core.algorithm import Algorithm
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["EMA"]

# The weights that were loaded may lie elsewhere, and the average may be in the model.
_AFTER_LOADING = frozenset({Event.AFTER_LOAD, Event.FIT_START})
_EVENTS = _AFTER_LOADING | {Event.INIT, Event.BATCH_END, Event.EPOCH_END}
_FRESH = {"ema_started": False, "ema_weights_active": False}


class EMA(Algorithm):
    """Keep an exponential moving average of the weights and evaluate with it.

    The average covers trainable parameters and all buffers. Which weights the model holds:

    * during evaluation and prediction, and while a checkpoint is written: the average, as soon as
      there is one;
    * at all other times, after ``fit`` and after an evaluation that raises too: the weights being
      trained.

    So ``model`` in a checkpoint is the average, and the weights being trained are in this method's
    own state as ``training_weights``; a run that resumes has those in its model and goes on
    exactly, also if it leaves this method out. One run has one average, and an object that is given
    to a second trainer starts anew.

    Args:
        half_life: After this time the share of older weights is a half, such as ``"1000ba"`` or
            ``"2ep"``. Ignored at its default if ``smoothing`` is given; else give one of the two.
        smoothing: The share of the old average that stays at an update, between 0 and 1.
        ema_start: When the average starts, as a share of the run (``"0.2dur"``) or in batches or
            epochs.
        update_interval: How often the average is updated; by default every batch, or epoch if the
            half life is in epochs.

    Raises:
        TypeError: If ``smoothing`` is not a number.
        ValueError: If both or neither of half life and smoothing are given, or a time is out of
            range or in another unit.

    Example:
        >>> EMA(half_life="10ba", update_interval="10ba").decay
        0.5
        >>> EMA(smoothing=0.9).decay
        0.9
    """

    events: ClassVar[frozenset[Event]] = _EVENTS
    kind: ClassVar[str] = "weights"
    cost: ClassVar[str] = "one more copy of the weights, a multiply-add at each update"
    source: ClassVar[str] = "Polyak and Juditsky, Acceleration by Averaging (1992)"
    #: The weights that are not in the model: the average, or those being trained while
    #: ``ema_weights_active``.
    ema_model: EMAParameters
    ema_started: bool
    ema_weights_active: bool

    def __init__(
        self,
        half_life: str | None = DEFAULT_HALF_LIFE,
        smoothing: float | None = None,
        ema_start: str = "0.0dur",
        update_interval: str | None = None,
    ) -> None:
        self.half_life = half_life
        self.smoothing = smoothing
        self.ema_start = ema_start
        self.update_interval = update_interval
        self._schedule = EMASchedule.parse(half_life, smoothing, ema_start, update_interval)
        #: The share of the old average that stays at an update.
        self.decay = self._schedule.decay
        self.load_state_dict(_FRESH)

    def match(self, event: Event, state: State) -> bool:
        """Say whether the method acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether a run begins, the average is to be updated, or loaded weights are to be put in
            their places.

        Example:
            >>> EMA().match(Event.FIT_START, None)  # there is no average yet
            False
        """
        if event in _AFTER_LOADING:
            return self.ema_started
        if event is self._schedule.update_event:
            return self._schedule.is_due(state, self.ema_started)
        return event is Event.INIT

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Start or update the average, or put loaded weights in their places.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Raises:
            ValueError: If the run has another ``EMA``.

        Example:
            >>> EMA().ema_weights_active
            False
        """
        del logger
        if event is Event.INIT:
            refuse_second(self, state)
            self.load_state_dict(_FRESH)
        elif begins_anew(event, state):
            self.load_state_dict(_FRESH)
        elif event in _AFTER_LOADING:
            self.ema_model.move_params_to_device(state.model)
            if self.ema_weights_active:
                _swap(self, state.model)
        # A batch that gave no update is none to average.
        elif state.step_applied and self.ema_started:
            self.ema_model.update(state.model, self.decay)
        elif state.step_applied:
            self.ema_model, self.ema_started = EMAParameters(state.model), True

    def evaluating(self, state: State) -> AbstractContextManager[None]:
        """Return a context in which the model holds the average, once there is one.

        Args:
            state: The state of the run.

        Returns:
            The context; it brings the weights being trained back, also after an error.

        Example:
            >>> from types import SimpleNamespace
            >>> with EMA().evaluating(SimpleNamespace(model=torch.nn.Linear(1, 1))):
            ...     pass
        """
        return _average_in(state.model, self)

    def saving(self, state: State) -> AbstractContextManager[None]:
        """Return a context in which the model holds the average, once there is one.

        Args:
            state: The state of the run.

        Returns:
            The context; inside it, :meth:`state_dict` has the weights being trained.

        Example:
            >>> from types import SimpleNamespace
            >>> with EMA().saving(SimpleNamespace(model=torch.nn.Linear(1, 1))):
            ...     pass
        """
        return _average_in(state.model, self)

    def state_dict(self) -> dict[str, Any]:
        """Return both flags and the weights that are not in the model.

        Returns:
            ``ema_started``; ``ema_weights_active``, whether the model holds the average; and once
            there is one, ``training_weights`` if it does, as in every checkpoint, or else
            ``averaged_weights``.

        Example:
            >>> EMA().state_dict()
            {'ema_started': False, 'ema_weights_active': False}
        """
        return pack(self.ema_model, self.ema_started, self.ema_weights_active)

    def load_state_dict(self, state: dict[str, Any], strict: bool = False) -> None:
        """Take over what :meth:`state_dict` returned, also as Composer 0.32 wrote it.

        Args:
            state: The state.
            strict: Accepted for scripts that pass it; a missing part is always an error.

        Raises:
            KeyError: If the weights are missing.

        Example:
            >>> method = EMA()
            >>> method.load_state_dict(EMA().state_dict())
        """
        self.ema_model, self.ema_started, self.ema_weights_active = unpack(state)

    @classmethod
    def resume_without(cls, saved: Mapping[str, Any], state: State) -> None:
        """Put the weights being trained into a model that a checkpoint gave the average.

        Args:
            saved: What :meth:`state_dict` returned inside :meth:`saving`.
            state: The state of a run that goes on with the checkpoint's optimizer but without
                this method; its model holds the checkpoint's weights.

        Raises:
            ValueError: If the model lacks some of the weights.

        Example:
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(model=torch.nn.Linear(1, 1))
            >>> EMA.resume_without(EMA().state_dict(), state)  # there was no average yet
        """
        put_training_weights_back(saved, state.model)

    def get_ema_model(self, model: torch.nn.Module) -> torch.nn.Module:
        """Put the average into a model.

        Args:
            model: The model of the run, or a copy of it. Its weights are overwritten; give a copy
                to keep those being trained.

        Returns:
            The model.

        Example:
            >>> model = torch.nn.Linear(1, 1)
            >>> EMA().get_ema_model(model) is model  # there is no average yet
            True
        """
        if self.ema_started and not self.ema_weights_active:
            self.ema_model.transfer_ema_params(model)
        return model

    def get_training_model(self, model: torch.nn.Module) -> torch.nn.Module:
        """Put the weights being trained into a model.

        Args:
            model: The model of the run, or a copy of it.

        Returns:
            The model.

        Example:
            >>> model = torch.nn.Linear(1, 1)
            >>> EMA().get_training_model(model) is model
            True
        """
        if self.ema_weights_active:
            self.ema_model.transfer_ema_params(model)
        return model


def _swap(method: EMA, model: torch.nn.Module) -> None:
    method.ema_model.swap_params(model)
    method.ema_weights_active = not method.ema_weights_active


@contextmanager
def _average_in(model: torch.nn.Module, method: EMA) -> Iterator[None]:
    # A checkpoint may be written during an evaluation.
    if not method.ema_started or method.ema_weights_active:
        yield
        return
    _swap(method, model)
    try:
        yield
    finally:
        _swap(method, model)
