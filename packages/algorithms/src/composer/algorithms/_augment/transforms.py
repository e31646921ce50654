"""What the transforms share that draw operations from a set and apply them to single images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from composer.algorithms._augment.images import image_functions, map_images
from composer.algorithms._augment.operation_sets import (
    Operation,
    check_severity,
    choose,
    operations_of,
)

__all__ = ["ImageTransform"]

TImage = TypeVar("TImage")


class ImageTransform(torch.nn.Module, ABC):
    """A transform of images by operations that are drawn from a set.

    A subclass says in ``_augmented`` what becomes of one image.

    Args:
        severity: Up to how strong the operations are, from 0 to 10.
        augmentation_set: ``"all"``, ``"safe"``, ``"original"``, or functions of image and level.

    Raises:
        MissingConditionalImportError: If torchvision is not installed.
        TypeError: If an argument has the wrong type.
        ValueError: If a value is out of range.

    Example:
        >>> class Once(ImageTransform):
        ...     def _augmented(self, image):
        ...         return self._operated(image, 1)
        >>> Once(4, [lambda image, level: image / level])(torch.ones(1, 1, 1)).item()
        0.25
    """

    def __init__(self, severity: int, augmentation_set: str | Sequence[Operation]) -> None:
        super().__init__()
        check_severity(severity)
        image_functions()
        self.severity = severity
        self.augmentation_set = augmentation_set
        self._operations = operations_of(augmentation_set)

    def forward(self, img: TImage) -> TImage:
        """Augment an image, or each of a batch.

        Args:
            img: A Pillow image of mode L or RGB, or a tensor of shape (C, H, W) or (N, C, H, W),
                in ``uint8`` or a floating type with values from 0 to 1.

        Returns:
            New images of the same type and size.

        Raises:
            TypeError: If it is no image.
            ValueError: If its shape or values do not fit.

        Example:
            >>> from composer.algorithms import RandAugmentTransform
            >>> RandAugmentTransform().forward(torch.zeros(3, 8, 8)).shape
            torch.Size([3, 8, 8])
        """
        return map_images(self._augmented if self.severity else _as_it_is, img)

    @abstractmethod
    def _augmented(self, image: Any) -> Any:
        """Return what becomes of one image."""

    def _operated(self, image: Any, depth: int) -> Any:
        for _ in range(depth):
            image = choose(self._operations)(image, self.severity)
        return image


def _as_it_is(image: Any) -> Any:
    return image
