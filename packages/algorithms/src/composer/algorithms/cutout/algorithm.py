"""CutOut as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._checks import require_tensor
from composer.algorithms._state import replace_in_batch
from composer.algorithms.cutout.functional import cutout_batch
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.batches import batch_get
from composer.utils.checks import check_bool, check_integer, check_number

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["CutOut"]


class CutOut(Algorithm):
    """Set square holes of the images to zero, the same holes for the whole batch.

    Args:
        num_holes: Number of holes.
        length: Side of a hole relative to the shorter side of the images.
        uniform_sampling: Cover every pixel with the same probability, instead of the middle more
            often.
        input_key: Where the images are in a batch.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range.

    Example:
        >>> CutOut(num_holes=2, length=0.25)
        CutOut(num_holes=2, length=0.25, uniform_sampling=False, input_key=0)
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.AFTER_DATALOADER})
    kind: ClassVar[str] = "data"
    cost: ClassVar[str] = "a fill per batch"
    source: ClassVar[str] = "DeVries and Taylor, Cutout (2017), arXiv 1708.04552"

    def __init__(
        self,
        num_holes: int = 1,
        length: float = 0.5,
        uniform_sampling: bool = False,
        input_key: Any = 0,
    ) -> None:
        check_integer("num_holes", num_holes, low=1)
        check_number("length", length, low=0.0, high=1.0)
        check_bool("uniform_sampling", uniform_sampling)
        self.num_holes = num_holes
        self.length = length
        self.uniform_sampling = uniform_sampling
        self.input_key = input_key

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Cut the holes.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Example:
            >>> import torch
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(batch=(torch.ones(2, 3, 8, 8), torch.tensor([0, 1])))
            >>> CutOut().apply(Event.AFTER_DATALOADER, state, None)
            >>> bool((state.batch[0] == 0).any())
            True
        """
        del event, logger
        images = require_tensor("CutOut", "input", batch_get(state.batch, self.input_key))
        cut = cutout_batch(images, self.num_holes, self.length, self.uniform_sampling)
        replace_in_batch(state, self.input_key, cut)
