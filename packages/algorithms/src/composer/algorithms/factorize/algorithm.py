"""Factorisation as a method of training."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from composer.algorithms.factorize.functional import apply_factorization, check_settings
from composer.algorithms.factorize.layers import FactorizedConv2d, FactorizedLinear
from composer.core.algorithm import Algorithm
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["Factorize"]

log = logging.getLogger(__name__)


class Factorize(Algorithm):
    """Replace wide layers by two narrow ones that start from the weights that are there.

    Args:
        factorize_convs: Whether to replace two-dimensional convolutions.
        factorize_linears: Whether to replace linear layers.
        min_channels: Convolutions with fewer input or output channels are left alone.
        latent_channels: Channels between the two; below 1, a share of the smaller side.
        min_features: Linear layers with fewer inputs or outputs are left alone.
        latent_features: Features between the two; below 1, a share of the smaller side.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If nothing is to be replaced at all, or a number is out of range.

    Example:
        >>> Factorize(latent_features=0.5).required_on_load()
        True
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    kind: ClassVar[str] = "surgery"
    cost: ClassVar[str] = "fewer operations and weights, at the price of an approximation"
    source: ClassVar[str] = "Composer; the nearest factors are those of Eckart and Young (1936)"

    def __init__(
        self,
        factorize_convs: bool = True,
        factorize_linears: bool = True,
        min_channels: int = 256,
        latent_channels: float = 0.25,
        min_features: int = 256,
        latent_features: float = 128,
    ) -> None:
        check_settings(
            factorize_convs,
            factorize_linears,
            min_channels,
            latent_channels,
            min_features,
            latent_features,
        )
        self.factorize_convs = factorize_convs
        self.factorize_linears = factorize_linears
        self.min_channels = min_channels
        self.latent_channels = latent_channels
        self.min_features = min_features
        self.latent_features = latent_features

    @staticmethod
    def required_on_load() -> bool:
        """Whether a checkpoint trained with the method can only be loaded with it.

        Returns:
            True: the weights are others.

        Example:
            >>> Factorize.required_on_load()
            True
        """
        return True

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Replace the layers.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the numbers of layers, and the largest error.

        Example:
            >>> Factorize().match(Event.INIT, None)
            True
        """
        del event
        apply_factorization(state.model, **self.arguments(), optimizers=state.optimizers)
        convs = [m for m in state.model.modules() if isinstance(m, FactorizedConv2d)]
        linears = [m for m in state.model.modules() if isinstance(m, FactorizedLinear)]
        facts = {
            "factorize/num_factorized_conv_layers": len(convs),
            "factorize/num_factorized_linear_layers": len(linears),
            "factorize/largest_error": max(
                [0.0, *(m.error for m in convs), *(m.error for m in linears)]
            ),
        }
        log.info("Factorize: %s", facts)
        logger.log_hyperparameters(facts)
