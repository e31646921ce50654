"""Blurred pooling as a method of training."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from composer.algorithms.blurpool.functional import apply_blurpool, check_settings
from composer.algorithms.blurpool.layers import BlurConv2d, BlurMaxPool2d
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.module_surgery import count_module_instances

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["BlurPool"]

log = logging.getLogger(__name__)


class BlurPool(Algorithm):
    """Blur before every step of the model that drops pixels.

    Args:
        replace_convs: Whether to blur around strided convolutions.
        replace_maxpools: Whether to blur inside max pools.
        blur_first: Whether to blur before the convolution; if not, it runs at stride 1 and the blur
            after it drops the pixels, which costs more.
        min_channels: Convolutions with fewer input channels are left alone.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If nothing is to be replaced at all.

    Example:
        >>> BlurPool(replace_maxpools=False).required_on_load()
        True
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    kind: ClassVar[str] = "surgery"
    cost: ClassVar[str] = "a depthwise convolution per strided layer"
    source: ClassVar[str] = (
        "Zhang, Making Convolutional Networks Shift-Invariant Again (2019), arXiv 1904.11486"
    )

    def __init__(
        self,
        replace_convs: bool = True,
        replace_maxpools: bool = True,
        blur_first: bool = True,
        min_channels: int = 16,
    ) -> None:
        check_settings(replace_convs, replace_maxpools, blur_first, min_channels)
        self.replace_convs = replace_convs
        self.replace_maxpools = replace_maxpools
        self.blur_first = blur_first
        self.min_channels = min_channels

    @staticmethod
    def required_on_load() -> bool:
        """Whether a checkpoint trained with the method can only be loaded with it.

        Returns:
            True: weights get other names.

        Example:
            >>> BlurPool.required_on_load()
            True
        """
        return True

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Replace the layers.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the numbers of layers.

        Example:
            >>> BlurPool().match(Event.INIT, None)
            True
        """
        del event
        apply_blurpool(
            state.model,
            replace_convs=self.replace_convs,
            replace_maxpools=self.replace_maxpools,
            blur_first=self.blur_first,
            min_channels=self.min_channels,
            optimizers=state.optimizers,
        )
        counts = {
            "blurpool/num_blurpool_layers": count_module_instances(state.model, BlurMaxPool2d),
            "blurpool/num_blurconv_layers": count_module_instances(state.model, BlurConv2d),
        }
        log.info("BlurPool: %s", counts)
        logger.log_hyperparameters(counts)
