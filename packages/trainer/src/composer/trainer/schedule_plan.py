"""The schedulers of a run from what the script gave to what steps: made once all is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from composer.core.persistence import restore_pending_schedulers
from composer.trainer.options import LoadOptions
from composer.trainer.resume import of_other_kinds, reconcile_late
from composer.trainer.schedules import Schedules

if TYPE_CHECKING:
    from composer.core.state import State
    from composer.trainer.alternating import OptimizerStep

__all__ = ["SchedulePlan"]


class SchedulePlan:
    """What the script gave as schedulers, and the schedulers once duration and data are there.

    Args:
        state: The state of the run.
        given: What the script gave.
        ratio: The scale schedule ratio.
        every_batch: Whether schedulers step at every batch; ``None`` to go by their kind.
        turns: Optimizers that take turns, each with schedulers of its own.

    Attributes:
        current: The schedules; none before :meth:`make`.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU(), max_duration="2ba")
        >>> plan = SchedulePlan(state, None)
        >>> plan.make()
        >>> plan.current.described
        []
    """

    current: Schedules

    def __init__(
        self,
        state: State,
        given: Any,
        *,
        ratio: float = 1.0,
        every_batch: bool | None = None,
        turns: Sequence[OptimizerStep] = (),
    ) -> None:
        self._state = state
        self._given = given
        self._ratio, self._every_batch = ratio, every_batch
        self._turns = turns
        self._settled = False
        self.current = Schedules(state, None)

    def replace(self, given: Any, *, ratio: float, every_batch: bool | None) -> None:
        """Take other schedulers, to be made by :meth:`settle`.

        Args:
            given: What the script gave.
            ratio: The scale schedule ratio.
            every_batch: Whether they step at every batch.
        """
        self._given, self._ratio, self._every_batch = given, ratio, every_batch

    def make(self) -> None:
        """Make the schedulers, with the state that a checkpoint has for them.

        Raises:
            ValueError: If one does not fit the run.
        """
        state = self._state
        self.current = Schedules(
            state,
            self._given,
            ratio=self._ratio,
            every_batch=self._every_batch,
            own=[(turn.optimizer, turn.schedulers) for turn in self._turns],
        )
        self._given = None
        if of_other_kinds(state, state.scheduler_resumption, state.stored_settings):
            state.scheduler_resumption = []
        restore_pending_schedulers(state)
        self.current.take_base_rates()
        state.settings["schedulers"] = [described for described, _ in self.current.described]
        self.current.refresh()

    def settle(self, loaded: LoadOptions | None, *, strict: bool) -> None:
        """Make the schedulers that waited for data or duration, or that are new.

        Args:
            loaded: What was loaded and how, if the run continues one.
            strict: Whether settings that differ from the stored ones are an error.

        Raises:
            ValueError: If one does not fit the run.
        """
        state = self._state
        first = not self.current.described and not self._settled
        self._settled = True
        waiting = first and (
            any(turn.schedulers is not None for turn in self._turns)
            or bool((state.stored_settings or {}).get("schedulers"))
        )
        if self._given is None and not state.scheduler_resumption and not waiting:
            return
        self.make()
        if first and loaded is not None and not loaded.weights_only:
            reconcile_late(state, loaded, self.current, strict=strict)
