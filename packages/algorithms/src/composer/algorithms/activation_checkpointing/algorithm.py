"""Activation checkpointing as a method of training."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from composer.algorithms.activation_checkpointing.functional import (
    apply_activation_checkpointing,
    class_names,
)
from composer.core.algorithm import Algorithm, Phase
from composer.core.event import Event
from composer.utils.checks import check_integer

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["ActivationCheckpointing"]

log = logging.getLogger(__name__)


class ActivationCheckpointing(Algorithm):
    """Compute activations again in the backward pass instead of keeping them.

    It acts behind all surgeries. What it does to a model is not in its weights, so a checkpoint can
    be loaded with or without it.

    Args:
        classes: Which modules: classes, or names of classes. By default the blocks that the model
            stacks.
        every: Every how many of them.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If ``every`` is less than one, or no class is named.

    Example:
        >>> ActivationCheckpointing(nn.TransformerEncoderLayer)
        ActivationCheckpointing(classes=('TransformerEncoderLayer',), every=1)
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    phase: ClassVar[Phase] = Phase.LAST
    after: ClassVar[tuple[str, ...]] = ("low_precision_groupnorm", "low_precision_layernorm")
    remarks: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"stochastic_depth": "its blocks are of the class `StochasticBlock` by then"}
    )
    kind: ClassVar[str] = "memory"
    cost: ClassVar[str] = "one more forward pass of the blocks; saves their activations"
    source: ClassVar[str] = "Chen et al., Sublinear Memory Cost (2016), arXiv 1604.06174"

    def __init__(
        self,
        classes: type[nn.Module] | str | Sequence[type[nn.Module] | str] | None = None,
        every: int = 1,
    ) -> None:
        check_integer("every", every, low=1)
        self.classes = class_names(classes)
        self.every = every

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Change the modules.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the number of modules.

        Raises:
            ValueError: If no module of the model is of the classes, or it has no blocks.

        Example:
            >>> ActivationCheckpointing().match(Event.INIT, None)
            True
        """
        del event
        count = apply_activation_checkpointing(state.model, self.classes, self.every)
        log.info("ActivationCheckpointing: %d modules", count)
        logger.log_hyperparameters({"activation_checkpointing/num_modules": count})
