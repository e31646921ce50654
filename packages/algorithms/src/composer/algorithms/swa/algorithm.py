"""Stochastic weight averaging as a method of training."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._progress import begins_anew
from composer.algorithms._state import refuse_second
from composer.algorithms.swa.averaging import Averaging
from composer.algorithms.swa.functional import check_rate_settings, has_batch_statistics
from composer.algorithms.swa.schedule import SWASchedule
from composer.core.algorithm import Algorithm
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["SWA"]

_ENDS = frozenset({Event.BATCH_END, Event.EPOCH_END})
_SET_UP = frozenset({Event.AFTER_LOAD, Event.FIT_START})


class SWA(Algorithm):
    """Average the weights of the late part of a run, and go on from the average.

    Up to ``swa_end`` the model holds the weights being trained, also in evaluations and
    checkpoints. Then it gets the average and trains on from there, while the statistics of batch
    norm become those of its new weights.

    Args:
        swa_start: From when on weights are averaged: a share of the run (``"0.7dur"``), or a number
            of epochs or batches.
        swa_end: Until when, in the same unit; at the end of the run statistics have no time to
            settle.
        update_interval: How often, in epochs or batches from the start on.
        schedule_swa_lr: Whether the learning rate is led to ``swa_lr`` and kept there, whatever the
            run's schedule says.
        anneal_strategy: How: ``"linear"`` or ``"cos"``.
        anneal_steps: In how many updates of the average.
        swa_lr: The learning rate; by default the one at the start of averaging.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or units do not fit.

    Example:
        >>> SWA(swa_start="6ep", swa_end="9ep").num_averaged
        0
    """

    events: ClassVar[frozenset[Event]] = _ENDS | _SET_UP | {Event.INIT, Event.FIT_END}
    excludes: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"ema": "each keeps an average and puts it into the model at moments of its own"}
    )
    kind: ClassVar[str] = "weights"
    source: ClassVar[str] = "Izmailov et al., Averaging Weights (2018), arXiv 1803.05407"
    cost: ClassVar[str] = "one more copy of the weights for a while"

    def __init__(
        self,
        swa_start: str = "0.7dur",
        swa_end: str = "0.97dur",
        update_interval: str = "1ep",
        schedule_swa_lr: bool = False,
        anneal_strategy: str = "linear",
        anneal_steps: int = 10,
        swa_lr: float | None = None,
    ) -> None:
        self._schedule = SWASchedule.parse(swa_start, swa_end, update_interval)
        check_rate_settings(schedule_swa_lr, anneal_strategy, anneal_steps, swa_lr)
        # As strings, which a checkpoint can keep.
        self.swa_start, self.swa_end = str(swa_start), str(swa_end)
        self.update_interval = str(update_interval)
        self.schedule_swa_lr = schedule_swa_lr
        self.anneal_strategy = anneal_strategy
        self.anneal_steps = anneal_steps
        self.swa_lr = swa_lr
        self._averaging = Averaging()

    @property
    def num_averaged(self) -> int:
        """Of how many sets of weights the average is."""
        return self._averaging.mean.num_averaged

    def match(self, event: Event, state: State) -> bool:
        """Say whether the method acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether a run begins or ends, or there is something to do to weights, statistics or
            learning rate.

        Example:
            >>> SWA().match(Event.BATCH_END, None)  # updates are at the ends of epochs
            False
        """
        so_far = self._averaging
        if event not in _ENDS or so_far.rates or so_far.settling.momenta:
            return event in self.events
        if so_far.completed:
            return False
        if event is self._schedule.update_event:
            return self._schedule.has_started(state)
        return self.num_averaged > 0 and self._schedule.is_over(event, state)

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Average, end averaging, let statistics settle, or set the learning rate.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives of how many sets of weights the average is.

        Raises:
            ValueError: If the run has another ``SWA``, or the learning rate cannot be scheduled.

        Example:
            >>> SWA().match(Event.INIT, None)
            True
        """
        if event is Event.INIT or begins_anew(event, state):
            refuse_second(self, state)
            self._averaging = Averaging()
        if event in _ENDS:
            led = state.optimizers[0] if self.schedule_swa_lr else None
            if self._averaging.advance(event, state, self._schedule, led):
                logger.log_metrics({"swa/num_averaged": self.num_averaged})
        elif event is Event.FIT_END:
            self._averaging.settling.end()
        elif event is not Event.INIT:
            if event is Event.FIT_START and self.schedule_swa_lr:
                _refuse_rates(state)
            if event is Event.FIT_START and not self._averaging.completed:
                statistics = has_batch_statistics(state.model)
                self._schedule.warn_of_times(state.max_duration, has_statistics=statistics)
            self._averaging.move_to(state.model)
        if self._averaging.rates:
            self._averaging.set_rates(
                state.optimizers[0], self.swa_lr, self.anneal_steps, self.anneal_strategy
            )

    def state_dict(self) -> dict[str, Any]:
        """Return how far averaging is.

        Returns:
            ``swa_completed``; ``num_events``, by which the interval counts; ``num_averaged`` and,
            up to the end of averaging, ``averaged_weights``; ``initial_rates`` of the optimizer's
            groups; ``momenta`` of the layers whose statistics settle.

        Example:
            >>> SWA().state_dict()["swa_completed"]
            False
        """
        return self._averaging.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned.

        Args:
            state: The state; one of Composer 0.32 only tells whether averaging was completed, and
                a run that was in the midst of it starts a new average.

        Example:
            >>> SWA().load_state_dict(SWA().state_dict())
        """
        self._averaging = Averaging.from_state_dict(state)


def _refuse_rates(state: State) -> None:
    """Refuse learning rates that cannot be led to one; known once all of the run is."""
    optimizers, schedulers = len(state.optimizers), len(state.schedulers)
    if optimizers != 1 or schedulers > 1:
        raise ValueError(
            f"schedule_swa_lr=True is for one optimizer and one scheduler, and this run has "
            f"{optimizers} and {schedulers}; leave the learning rate to them with "
            f"schedule_swa_lr=False"
        )
    rates = {g.get("initial_lr", g["lr"]) for g in state.optimizers[0].param_groups}
    if len(rates) > 1:
        raise ValueError(
            f"schedule_swa_lr=True leads to one learning rate, and the optimizer's groups have "
            f"{sorted(rates)}; leave it to the schedule with schedule_swa_lr=False"
        )
