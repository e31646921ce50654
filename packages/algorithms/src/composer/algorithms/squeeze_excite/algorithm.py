"""Squeeze-and-excitation as a method of training."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from composer.algorithms.squeeze_excite.functional import apply_squeeze_excite, check_settings
from composer.algorithms.squeeze_excite.layers import SqueezeExciteConv2d
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.module_surgery import count_module_instances

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["SqueezeExcite"]

log = logging.getLogger(__name__)


class SqueezeExcite(Algorithm):
    """Put channel attention behind every wide convolution.

    Args:
        latent_channels: Size of the bottleneck; below 1, a share of the convolution's output
            channels.
        min_channels: Convolutions with fewer input or output channels are left alone.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range.

    Example:
        >>> SqueezeExcite(latent_channels=0.25).required_on_load()
        True
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    kind: ClassVar[str] = "surgery"
    cost: ClassVar[str] = "a pooling and two small matrices per wide convolution"
    source: ClassVar[str] = "Hu et al., Squeeze-and-Excitation Networks (2017), arXiv 1709.01507"

    def __init__(self, latent_channels: float = 64, min_channels: int = 128) -> None:
        check_settings(latent_channels, min_channels)
        self.latent_channels = latent_channels
        self.min_channels = min_channels

    @staticmethod
    def required_on_load() -> bool:
        """Whether a checkpoint trained with the method can only be loaded with it.

        Returns:
            True: there are new weights, and old ones get other names.

        Example:
            >>> SqueezeExcite.required_on_load()
            True
        """
        return True

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Add the layers.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the number of layers.

        Example:
            >>> SqueezeExcite().match(Event.INIT, None)
            True
        """
        del event
        apply_squeeze_excite(
            state.model,
            latent_channels=self.latent_channels,
            min_channels=self.min_channels,
            optimizers=state.optimizers,
        )
        count = count_module_instances(state.model, SqueezeExciteConv2d)
        log.info("SqueezeExcite: %d layers", count)
        logger.log_hyperparameters({"squeeze_excite/num_squeeze_excite_layers": count})
