"""Weight standardisation as a method of training."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, ClassVar

from composer.algorithms.warnings import NoEffectWarning
from composer.algorithms.weight_standardization.functional import (
    apply_weight_standardization,
    check_settings,
)
from composer.core.algorithm import Algorithm
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["WeightStandardization"]

log = logging.getLogger(__name__)


class WeightStandardization(Algorithm):
    """Use convolution weights of mean zero and variance one per output channel.

    Args:
        n_last_layers_ignore: How many of the last convolutions are left alone.

    Raises:
        TypeError: If it is no integer.
        ValueError: If it is negative.

    Example:
        >>> WeightStandardization().required_on_load()
        True
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    kind: ClassVar[str] = "surgery"
    cost: ClassVar[str] = "a normalisation of the weights per step"
    source: ClassVar[str] = "Qiao et al., Micro-Batch Training (2019), arXiv 1903.10520"

    def __init__(self, n_last_layers_ignore: int = 0) -> None:
        check_settings(n_last_layers_ignore)
        self.n_last_layers_ignore = n_last_layers_ignore

    @staticmethod
    def required_on_load() -> bool:
        """Whether a checkpoint trained with the method can only be loaded with it.

        Returns:
            True: weights get other names.

        Example:
            >>> WeightStandardization.required_on_load()
            True
        """
        return True

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Parametrise the convolutions.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the number of layers.

        Example:
            >>> WeightStandardization().match(Event.INIT, None)
            True
        """
        del event
        count = apply_weight_standardization(state.model, self.n_last_layers_ignore)
        if not count:
            warnings.warn(
                "WeightStandardization found no convolution to change",
                NoEffectWarning,
                stacklevel=2,
            )
        log.info("WeightStandardization: %d layers", count)
        logger.log_hyperparameters({"weight_standardization/num_layers": count})
