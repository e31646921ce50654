"""What the two low-precision normalisations share as methods: when the layers are replaced."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from composer.core.algorithm import Algorithm, Phase
from composer.core.event import Event
from composer.utils.checks import check_choice
from composer.utils.module_surgery import count_module_instances

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["LowPrecisionNorm"]

log = logging.getLogger(__name__)


class LowPrecisionNorm(Algorithm):
    """Replaces normalisations at one of three events.

    Args:
        apply_at: When the layers are replaced: ``Event.INIT``, ``Event.BEFORE_LOAD`` or
            ``Event.AFTER_LOAD``.

    Raises:
        ValueError: If it is another event.

    Example:
        >>> from composer.algorithms import LowPrecisionLayerNorm
        >>> isinstance(LowPrecisionLayerNorm(), LowPrecisionNorm)
        True
    """

    events: ClassVar[frozenset[Event]] = frozenset(
        {Event.INIT, Event.BEFORE_LOAD, Event.AFTER_LOAD}
    )
    phase: ClassVar[Phase] = Phase.LAST
    kind: ClassVar[str] = "surgery"
    cost: ClassVar[str] = "saves casts and memory under mixed precision"
    source: ClassVar[str] = "Composer"

    #: What the layers become, and the name under which their number is reported.
    narrow: ClassVar[type[nn.Module]]
    title: ClassVar[str]

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
            >>> from composer.algorithms import LowPrecisionLayerNorm
            >>> LowPrecisionLayerNorm("after_load").match(Event.INIT, None)
            False
        """
        del state
        return event.value == self.apply_at

    @abstractmethod
    def replace(self, state: State) -> None:
        """Replace the layers of the run's model.

        Args:
            state: The state of the run.
        """

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Replace the layers.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the number of layers.

        Example:
            >>> from composer.algorithms import LowPrecisionLayerNorm
            >>> LowPrecisionLayerNorm().match(Event.INIT, None)
            True
        """
        del event
        self.replace(state)
        count = count_module_instances(state.model, self.narrow)
        log.info("%s: %d layers", type(self).__name__, count)
        logger.log_hyperparameters({f"{self.title}/num_layers": count})
