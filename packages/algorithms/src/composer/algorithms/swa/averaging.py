"""How far averaging is in a run: all that a checkpoint has to keep of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from composer.algorithms.swa.functional import Settling, WeightMean

__all__ = ["Averaging"]


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
