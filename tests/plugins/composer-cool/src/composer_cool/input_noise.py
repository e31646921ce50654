"""Gaussian noise on the inputs, the simplest augmentation that can be seen in a batch."""

from __future__ import annotations

from typing import ClassVar

import torch

from composer.core import Algorithm, Event, Logger, State

__all__ = ["InputNoise"]


class InputNoise(Algorithm):
    """Add Gaussian noise to the inputs of every training batch.

    Args:
        std: Standard deviation of the noise.

    Example:
        >>> InputNoise(std=0.1).arguments()
        {'std': 0.1}
    """

    events: ClassVar[frozenset[Event] | None] = frozenset({Event.AFTER_DATALOADER})

    def __init__(self, std: float = 0.05) -> None:
        if std < 0:
            raise ValueError(f"std must not be negative; got {std}")
        self.std = std

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Add the noise.

        Args:
            event: Ignored, there is only one.
            state: Holds the batch.
            logger: Ignored.
        """
        inputs = state.batch_get_item(0)
        state.batch_set_item(0, inputs + self.std * torch.randn_like(inputs))
