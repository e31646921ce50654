"""How far averaging is in a run: all that a checkpoint has to keep of it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from composer.algorithms.swa.functional import Settling, WeightMean, annealed
from composer.algorithms.warnings import NoEffectWarning
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.algorithms.swa.schedule import SWASchedule
    from composer.core.state import State

__all__ = ["Averaging"]

log = logging.getLogger(__name__)


class Averaging:
    """The state of stochastic weight averaging.

    Attributes:
        mean: The mean of the weights up to now.
        settling: Layers whose statistics become those of the mean.
        completed: Whether averaging has ended.
        num_events: How many events at which an update could be due there were, by which the
            interval counts.
        rates: The learning rates of the optimizer's groups at the start of averaging, if they are
            scheduled.

    Example:
        >>> Averaging().completed
        False
    """

    mean: WeightMean
    settling: Settling
    completed: bool
    num_events: int
    rates: list[float]

    def __init__(self) -> None:
        self.mean, self.settling = WeightMean(), Settling()
        self.completed = False
        self.num_events = 0
        self.rates = []

    def advance(
        self,
        event: Event,
        state: State,
        schedule: SWASchedule,
        led: torch.optim.Optimizer | None = None,
    ) -> bool:
        """Average, end averaging, or let statistics settle, at the end of a batch or an epoch.

        Args:
            event: ``BATCH_END`` or ``EPOCH_END``.
            state: The state of the run.
            schedule: The times of the average.
            led: The optimizer whose learning rates will be set, from those of the first update on.

        Returns:
            Whether the weights of this moment were added to the mean.

        Example:
            >>> from types import SimpleNamespace
            >>> from composer.algorithms.swa.schedule import SWASchedule
            >>> from composer.core.timestamp import Timestamp
            >>> model, now = torch.nn.Linear(1, 1), Timestamp(batch=3)
            >>> state = SimpleNamespace(model=model, timestamp=now, step_applied=True)
            >>> schedule = SWASchedule.parse("3ba", "5ba", "1ba")
            >>> Averaging().advance(Event.BATCH_END, state, schedule)
            True
        """
        if self.completed:
            if event is Event.BATCH_END:
                self.settling.step()
            return False
        added = False
        if event is schedule.update_event and schedule.is_in_window(state):
            due = self.num_events % schedule.interval.value == 0
            self.num_events += 1
            # A batch that gave no update is none to average.
            added = due and (state.step_applied or event is Event.EPOCH_END)
        if added:
            if led is not None and not self.mean.num_averaged:
                self.rates = [group["lr"] for group in led.param_groups]
            self.mean.add(state.model)
        if schedule.is_over(event, state):
            self.complete(state.model)
            log.info("SWA: averaging ends with %d sets of weights", self.mean.num_averaged)
            if not self.mean.num_averaged:
                _, end, interval = schedule.written
                warnings.warn(
                    f"SWA found no weights to average before swa_end={end!r}, so it had no effect; "
                    f"update more often than update_interval={interval!r}",
                    NoEffectWarning,
                    stacklevel=2,
                )
        return added

    def set_rates(
        self, optimizer: torch.optim.Optimizer, final: float | None, steps: int, strategy: str
    ) -> None:
        """Set the learning rates, once more at every batch, since the run's schedule sets its own.

        Args:
            optimizer: The optimizer.
            final: Where the way ends; by default where it began.
            steps: In how many updates of the mean.
            strategy: ``"linear"`` or ``"cos"``.

        Example:
            >>> averaging, optimizer = Averaging(), torch.optim.SGD([torch.ones(1)], lr=0.5)
            >>> averaging.rates = [0.5]
            >>> averaging.mean.num_averaged = 1
            >>> averaging.set_rates(optimizer, 0.1, 4, "linear")
            >>> optimizer.param_groups[0]["lr"]
            0.4
        """
        share = self.mean.num_averaged / steps
        for group, initial in zip(optimizer.param_groups, self.rates, strict=True):
            group["lr"] = annealed(initial, initial if final is None else final, share, strategy)

    def complete(self, model: torch.nn.Module) -> None:
        """End averaging; the model gets the mean, if there is one.

        Args:
            model: The model.

        Example:
            >>> averaging = Averaging()
            >>> averaging.complete(torch.nn.Linear(1, 1))
            >>> averaging.completed
            True
        """
        self.completed = True
        if self.mean.num_averaged:
            self.mean.put_into(model)
            self.mean.forget()
            self.settling.begin(model)

    def move_to(self, model: torch.nn.Module) -> None:
        """Fit what was loaded to a model.

        Args:
            model: The model.

        Example:
            >>> Averaging().move_to(torch.nn.Linear(1, 1))
        """
        self.mean.move_to(model)
        self.settling.resume(model)

    def state_dict(self) -> dict[str, Any]:
        """Return all of it as plain types and tensors.

        Returns:
            The parts by name.

        Example:
            >>> sorted(Averaging().state_dict())[:3]
            ['averaged_weights', 'initial_rates', 'momenta']
        """
        return {
            **self.mean.state_dict(),
            "swa_completed": self.completed,
            "num_events": self.num_events,
            "initial_rates": list(self.rates),
            "momenta": dict(self.settling.momenta),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Averaging:
        """Make one of what :meth:`state_dict` returned.

        Args:
            state: The parts; of what Composer 0.32 wrote, only whether averaging has ended counts.

        Returns:
            The state.

        Example:
            >>> Averaging.from_state_dict({"swa_completed": True}).completed
            True
        """
        made = cls()
        if "averaged_weights" in state:
            made.mean.load_state_dict(state)
        made.settling = Settling(state.get("momenta"))
        made.completed = bool(state.get("swa_completed", False))
        made.num_events = int(state.get("num_events", 0))
        made.rates = list(state.get("initial_rates", ()))
        return made
