"""Exponential moving average of weights as a method of training."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from composer.algorithms.ema.functional import EMAParameters, pack, unpack
from composer.algorithms.ema.schedule import DEFAULT_HALF_LIFE, EMASchedule
from composer.core.algorithm import Algorithm
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["EMA"]

_INFERENCE = frozenset({Event.EVAL_START, Event.PREDICT_START})
_CHECKPOINT = frozenset(
    {Event.BATCH_CHECKPOINT, Event.EPOCH_CHECKPOINT, Event.ITERATION_CHECKPOINT}
)
# Whatever can come next after evaluation, prediction or a checkpoint, and the end.
_TRAINING = frozenset(
    {
        Event.FIT_START,
        Event.ITERATION_START,
        Event.EPOCH_START,
        Event.BEFORE_DATALOADER,
        Event.BATCH_START,
        Event.BATCH_END,
        Event.EPOCH_END,
        Event.ITERATION_END,
        Event.FIT_END,
        Event.EVAL_END,
        Event.PREDICT_END,
    }
)


class EMA(Algorithm):
    """Keep an exponential moving average of the weights and evaluate with it.

    The average covers trainable parameters and all buffers. Which weights the model holds:

    * during evaluation and prediction, and while a callback writes a checkpoint: the average, as
      soon as there is one;
    * at all other times, after ``fit`` too: the weights being trained.

    A checkpoint has one set under ``model`` and the other one here, and says which is which, so
    that a resumed run goes on exactly. A callback that writes checkpoints is known by its
    ``save_interval(state, event)``, as ``CheckpointSaver`` has it.

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

    events: ClassVar[frozenset[Event]] = _INFERENCE | _CHECKPOINT | _TRAINING

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

        #: The weights that are not in the model: the average, or the trained ones while
        #: ``ema_weights_active``.
        self.ema_model = EMAParameters(None)
        self.ema_started = False
        self.ema_weights_active = False

    def match(self, event: Event, state: State) -> bool:
        """Say whether the method acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether the average is to be updated, or weights are to change places.

        Example:
            >>> EMA().match(Event.EVAL_START, None)  # there is no average yet
            False
        """
        if event is self._schedule.update_event:
            return self.ema_weights_active or self._schedule.is_due(state, self.ema_started)
        if not self.ema_started:
            return False
        if event in _INFERENCE or event is Event.FIT_START:
            return True
        if event in _CHECKPOINT:
            return not self.ema_weights_active and _checkpoint_is_due(event, state)
        return self.ema_weights_active and event in _TRAINING

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Update the average, or exchange it with the model's weights.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Example:
            >>> EMA().ema_weights_active
            False
        """
        del logger
        if self.ema_started and (event in _INFERENCE or event is Event.FIT_START):
            # After a checkpoint was read the stored weights may be elsewhere.
            self.ema_model.move_params_to_device(state.model)
        self._show(state.model, average=event in _INFERENCE or event in _CHECKPOINT)
        if event is not self._schedule.update_event or not self._schedule.is_due(
            state, self.ema_started
        ):
            return
        if self.ema_started:
            self.ema_model.update(state.model, self.decay)
        else:
            self.ema_model = EMAParameters(state.model)
            self.ema_started = True

    def state_dict(self) -> dict[str, Any]:
        """Return both flags and the weights that are not in the model.

        Returns:
            ``ema_started``; ``ema_weights_active``, whether the model holds the average; and either
            ``averaged_weights`` or, if it does, ``training_weights``.

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
        del strict
        self.ema_model, self.ema_started, self.ema_weights_active = unpack(state)

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

    def _show(self, model: torch.nn.Module, *, average: bool) -> None:
        if self.ema_started and average is not self.ema_weights_active:
            self.ema_model.swap_params(model)
            self.ema_weights_active = average


def _checkpoint_is_due(event: Event, state: State) -> bool:
    for callback in state.callbacks:
        interval = getattr(callback, "save_interval", None)
        # A copy is asked, because an interval may note that it was due, and its owner asks later.
        if callable(interval) and copy.copy(interval)(state, event):
            return True
    return False
