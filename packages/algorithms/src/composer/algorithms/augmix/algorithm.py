"""AugMix as a method of training."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from composer.algorithms._augment.datasets import TransformAlgorithm
from composer.algorithms._augment.operation_sets import AUGMENTATION_SETS
from composer.algorithms.augmix.functional import AugmentAndMixTransform
from composer.utils.checks import check_choice

__all__ = ["AugMix"]


class AugMix(TransformAlgorithm):
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

    cautions: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"randaugment": "both distort each image, and the second distorts what the first made"}
    )
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
        check_choice("augmentation_set", augmentation_set, AUGMENTATION_SETS)
        self._transform = AugmentAndMixTransform(severity, depth, width, alpha, augmentation_set)
        self.severity = severity
        self.depth = depth
        self.width = width
        self.alpha = alpha
        self.augmentation_set = augmentation_set

    def transform(self) -> AugmentAndMixTransform:
        """Return the transform that is put into the training data.

        Returns:
            The transform of one image.

        Example:
            >>> AugMix(depth=1).transform().depth
            1
        """
        return self._transform
