"""Gated linear units as a method of training."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms.gated_linear_units.activations import name_of_activation
from composer.algorithms.gated_linear_units.functional import apply_gated_linear_units
from composer.algorithms.gated_linear_units.layers import GatedProjection
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.checks import check_bool
from composer.utils.module_surgery import count_module_instances

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["GatedLinearUnits"]

log = logging.getLogger(__name__)


class GatedLinearUnits(Algorithm):
    """Gate the feed-forward layers of a language model.

    Args:
        act_fn: The activation, which is kept by its name: the name itself, a function of
            ``torch.nn.functional``, or a module of ``torch.nn`` with default arguments. By default
            that of the model.
        gated_layer_bias: Whether the activated projection has a bias.
        non_gated_layer_bias: Whether the other one has.

    Raises:
        TypeError: If an argument has the wrong type, or a checkpoint could not keep ``act_fn``.
        ValueError: If there is no activation of that name.

    Example:
        >>> import torch
        >>> GatedLinearUnits(act_fn=torch.nn.GELU())
        GatedLinearUnits(act_fn='gelu', gated_layer_bias=False, non_gated_layer_bias=False)
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    kind: ClassVar[str] = "surgery"
    cost: ClassVar[str] = "a third matrix in each feed-forward layer"
    source: ClassVar[str] = "Shazeer, GLU Variants Improve Transformer (2020), arXiv 2002.05202"

    def __init__(
        self,
        act_fn: str | Callable[[Any], Any] | None = None,
        gated_layer_bias: bool = False,
        non_gated_layer_bias: bool = False,
    ) -> None:
        check_bool("gated_layer_bias", gated_layer_bias)
        check_bool("non_gated_layer_bias", non_gated_layer_bias)
        self.act_fn = None if act_fn is None else name_of_activation(act_fn)
        self.gated_layer_bias = gated_layer_bias
        self.non_gated_layer_bias = non_gated_layer_bias

    @staticmethod
    def required_on_load() -> bool:
        """Say that checkpoints need the method.

        Returns:
            True.

        Example:
            >>> GatedLinearUnits.required_on_load()
            True
        """
        return True

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Gate the layers.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the number of layers.

        Raises:
            TypeError: If the model has adapters.
            ValueError: If the model is not known.

        Example:
            >>> GatedLinearUnits().match(Event.INIT, None)
            True
        """
        del event
        apply_gated_linear_units(state.model, optimizers=state.optimizers, **self.arguments())
        count = count_module_instances(state.model, GatedProjection)
        log.info("GatedLinearUnits: %d layers", count)
        logger.log_hyperparameters({"gated_linear_units/num_layers": count})
