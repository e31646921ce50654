"""RandAugment as a method of training."""

from __future__ import annotations

from typing import ClassVar

from composer.algorithms._augment.datasets import TransformAlgorithm
from composer.algorithms._augment.operation_sets import AUGMENTATION_SETS
from composer.algorithms.randaugment.functional import RandAugmentTransform
from composer.utils.checks import check_choice

__all__ = ["RandAugment"]


class RandAugment(TransformAlgorithm):
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

    cost: ClassVar[str] = "a few image operations per image in the loader"
    source: ClassVar[str] = "Cubuk et al., RandAugment (2020), arXiv 1909.13719"

    def __init__(self, severity: int = 9, depth: int = 2, augmentation_set: str = "all") -> None:
        check_choice("augmentation_set", augmentation_set, AUGMENTATION_SETS)
        self._transform = RandAugmentTransform(severity, depth, augmentation_set)
        self.severity = severity
        self.depth = depth
        self.augmentation_set = augmentation_set

    def transform(self) -> RandAugmentTransform:
        """Return the transform that is put into the training data.

        Returns:
            The transform of one image.

        Example:
            >>> RandAugment(depth=1).transform().depth
            1
        """
        return self._transform
