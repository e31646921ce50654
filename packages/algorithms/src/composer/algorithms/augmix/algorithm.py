"""AugMix as a method of training."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from composer.algorithms._augment.datasets import insert_image_transform
from composer.algorithms.augmix.functional import AugmentAndMixTransform
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.checks import check_choice

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["AugMix"]


class AugMix(Algorithm):
    """Train on images that are mixed with chains of random operations on themselves.

    When training starts, the training loader is given a copy of its data set that augments each
    image before it becomes a tensor. The data set itself is left as it is.

    Args:
        severity: Up to how strong the operations are, from 0 to 10; 0 is off.
        depth: Operations in a chain; -1 draws 1 to 3, anew for each chain.
        width: Number of chains.
        alpha: Parameter of the distributions of the shares.
        augmentation_set: ``"all"``, ``"safe"`` or ``"original"``.

    Raises:
        MissingConditionalImportError: If torchvision is not installed.
        TypeError: If an argument has the wrong type.
        ValueError: If a value is out of range.

    Example:
        >>> AugMix(severity=5)
        AugMix(severity=5, depth=-1, width=3, alpha=1.0, augmentation_set='all')
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.FIT_START})
    cautions: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"randaugment": "both distort each image, and the second distorts what the first made"}
    )
    kind: ClassVar[str] = "data"
    cost: ClassVar[str] = "image operations in the loader, several chains per image"
    source: ClassVar[str] = "Hendrycks et al., AugMix (2020), arXiv 1912.02781"

    def __init__(
        self,
        severity: int = 3,
        depth: int = -1,
        width: int = 3,
        alpha: float = 1.0,
        augmentation_set: str = "all",
    ) -> None:
        check_choice("augmentation_set", augmentation_set, ("all", "safe", "original"))
        self._transform = AugmentAndMixTransform(severity, depth, width, alpha, augmentation_set)
        self.severity = severity
        self.depth = depth
        self.width = width
        self.alpha = alpha
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
            >>> AugMix().apply(Event.FIT_START, state, None)
            >>> type(state.train_dataloader.dataset.transform).__name__
            'AugmentAndMixTransform'
        """
        del event, logger
        insert_image_transform(state, "AugMix", self._transform)
