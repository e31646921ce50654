"""Low-precision group normalisation as a method of training."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from composer.algorithms._checks import check_choice
from composer.algorithms.low_precision_groupnorm.functional import apply_low_precision_groupnorm
from composer.algorithms.low_precision_groupnorm.layers import LPGroupNorm
from composer.core.algorithm import Algorithm, Phase
from composer.core.event import Event
from composer.utils.module_surgery import count_module_instances

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["LowPrecisionGroupNorm"]

log = logging.getLogger(__name__)


class LowPrecisionGroupNorm(Algorithm):
    """Let every group normalisation compute in the type of mixed precision.

    Args:
        apply_at: When the layers are replaced: ``Event.INIT``, ``Event.BEFORE_LOAD`` or
            ``Event.AFTER_LOAD``.

    Raises:
        ValueError: If it is another event.

    Example:
        >>> LowPrecisionGroupNorm()
        LowPrecisionGroupNorm(apply_at='init')
    """

    events: ClassVar[frozenset[Event]] = frozenset(
        {Event.INIT, Event.BEFORE_LOAD, Event.AFTER_LOAD}
    )
    phase: ClassVar[Phase] = Phase.LAST
    kind: ClassVar[str] = "surgery"
    source: ClassVar[str] = "Composer"

    def __init__(self, apply_at: Event | str = Event.INIT) -> None:
        value = getattr(apply_at, "value", apply_at)
        check_choice("apply_at", value, sorted(event.value for event in self.events))
        self.apply_at = value

    def match(self, event: Event, state: State) -> bool:
        """Say whether the layers are replaced now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether it is the event chosen.

        Example:
            >>> LowPrecisionGroupNorm().match(Event.INIT, None)
            True
        """
        del state
        return event.value == self.apply_at

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Replace the layers.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the number of layers.

        Example:
            >>> LowPrecisionGroupNorm("after_load").match(Event.INIT, None)
            False
        """
        del event
        apply_low_precision_groupnorm(state.model, state.precision, state.optimizers)
        count = count_module_instances(state.model, LPGroupNorm)
        log.info("LowPrecisionGroupNorm: %d layers", count)
        logger.log_hyperparameters({"low_precision_groupnorm/num_layers": count})
