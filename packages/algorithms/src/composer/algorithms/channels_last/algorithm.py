"""The channels-last memory format as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from composer.algorithms.channels_last.functional import apply_channels_last
from composer.core.algorithm import Algorithm, Phase
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["ChannelsLast"]


class ChannelsLast(Algorithm):
    """Store the weights of convolutions with the channels last.

    It comes last at the start of a run, so that it also covers the layers that other methods put
    in. Inputs are left alone: convolutions pass the format of their weights on.

    Example:
        >>> ChannelsLast()
        ChannelsLast()
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    kind: ClassVar[str] = "layout"
    cost: ClassVar[str] = "none; convolutions are faster where the hardware likes it"
    source: ClassVar[str] = "PyTorch, channels-last memory format"
    phase: ClassVar[Phase] = Phase.LAST

    def __init__(self) -> None:
        pass

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Change the memory format.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Example:
            >>> import torch
            >>> from types import SimpleNamespace
            >>> model = torch.nn.Conv2d(3, 4, 3)
            >>> ChannelsLast().apply(Event.INIT, SimpleNamespace(model=model), None)
            >>> model.weight.is_contiguous(memory_format=torch.channels_last)
            True
        """
        del event, logger
        apply_channels_last(state.model)
