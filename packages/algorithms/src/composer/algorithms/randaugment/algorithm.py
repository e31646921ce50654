"""RandAugment as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from composer.algorithms._augment.datasets import insert_image_transform
from composer.algorithms.randaugment.functional import RandAugmentTransform
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.checks import check_choice

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["RandAugment"]


class RandAugment(Algorithm):
    """Train on images to which a few random operations were applied.

    When training starts, the training loader is given a copy of its data set that augments each
    image before it becomes a tensor. The data set itself is left as it is.

    Args:
        severity: Up to how strong the operations are, from 0 to 10; 0 is off.
        depth: Number of operations per image; 0 is off.
        augmentation_set: ``"all"``, ``"safe"`` or ``"original"``.

    Raises:
        MissingConditionalImportError: If torchvision is not installed.
        TypeError: If an argument has the wrong type.
        ValueError: If a value is out of range.

    Example:
        >>> RandAugment(depth=1)
        RandAugment(severity=9, depth=1, augmentation_set='all')
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.FIT_START})
    kind: ClassVar[str] = "data"
    cost: ClassVar[str] = "a few image operations per image in the loader"
    source: ClassVar[str] = "Cubuk et al., RandAugment (2020), arXiv 1909.13719"

    def __init__(self, severity: int = 9, depth: int = 2, augmentation_set: str = "all") -> None:
        check_choice("augmentation_set", augmentation_set, ("all", "safe", "original"))
        self._transform = RandAugmentTransform(severity, depth, augmentation_set)
        self.severity = severity
        self.depth = depth
        self.augmentation_set = augmentation_set

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Put the transform into the training data.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Raises:
            TypeError: If nothing in the training loader takes a transform.
            ValueError: If the training loader is evaluated on too, or augments otherwise already.

        Example:
            >>> from types import SimpleNamespace
            >>> from torch.utils.data import DataLoader
            >>> class Images(list):
            ...     transform = None
            >>> state = SimpleNamespace(train_dataloader=DataLoader(Images([1])), evaluators=[])
            >>> RandAugment().apply(Event.FIT_START, state, None)
            >>> type(state.train_dataloader.dataset.transform).__name__
            'RandAugmentTransform'
        """
        del event, logger
        insert_image_transform(state, "RandAugment", self._transform)
