"""A run that is shorter or longer than planned, as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from composer.algorithms.scale_schedule.functional import check_ratio
from composer.core.algorithm import Algorithm
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["ScaleSchedule"]


class ScaleSchedule(Algorithm):
    """Make a run shorter or longer, its learning-rate schedule along with it.

    The trainer multiplies its ``scale_schedule_ratio`` by this method's, for the maximum duration
    and for ``fit(duration=...)`` alike. What is given in shares of the run needs no scaling.

    Args:
        ratio: The factor.

    Raises:
        TypeError: If the ratio is no number.
        ValueError: If it is not positive and finite.

    Example:
        >>> ScaleSchedule(0.5).schedule_ratio
        0.5
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    kind: ClassVar[str] = "schedule"
    cost: ClassVar[str] = "none; the run itself is shorter or longer"
    source: ClassVar[str] = "Budgeted training: Li et al. (2020), arXiv 1905.04753"

    def __init__(self, ratio: float = 0.5) -> None:
        check_ratio(ratio)
        self.ratio = ratio

    @property
    def schedule_ratio(self) -> float:
        """By how much the run is longer than it says."""
        return self.ratio

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Report the ratio; the trainer does the scaling.

        Args:
            event: The event that fires.
            state: Not used.
            logger: Receives the ratio.

        Example:
            >>> ScaleSchedule().match(Event.INIT, None)
            True
        """
        del event, state
        logger.log_hyperparameters({"scale_schedule/ratio": self.ratio})
