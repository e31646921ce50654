"""Ghost batch normalisation as a method of training."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from composer.algorithms.ghost_batchnorm.functional import apply_ghost_batchnorm, check_settings
from composer.algorithms.ghost_batchnorm.layers import GHOSTS
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.module_surgery import count_module_instances

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["GhostBatchNorm"]

log = logging.getLogger(__name__)


class GhostBatchNorm(Algorithm):
    """Let every batch normalisation look at small parts of the batch.

    Args:
        ghost_batch_size: Samples of one part. What does not fill a part joins the last one.

    Raises:
        TypeError: If it is no integer.
        ValueError: If it is less than 1.

    Example:
        >>> GhostBatchNorm(16).required_on_load()
        False
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    kind: ClassVar[str] = "surgery"
    cost: ClassVar[str] = "about that of batch norm"
    source: ClassVar[str] = (
        "Hoffer et al., Train longer, generalize better (2017), arXiv 1705.08741; "
        "Dimitriou and Arandjelovic (2020), arXiv 2007.08554"
    )

    def __init__(self, ghost_batch_size: int = 32) -> None:
        check_settings(ghost_batch_size)
        self.ghost_batch_size = ghost_batch_size

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Replace the layers.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the number of layers.

        Example:
            >>> GhostBatchNorm().match(Event.INIT, None)
            True
        """
        del event
        apply_ghost_batchnorm(
            state.model, ghost_batch_size=self.ghost_batch_size, optimizers=state.optimizers
        )
        count = count_module_instances(state.model, tuple(GHOSTS.values()))
        log.info("GhostBatchNorm: %d layers", count)
        logger.log_hyperparameters({"ghost_batchnorm/num_ghost_batchnorm_layers": count})
