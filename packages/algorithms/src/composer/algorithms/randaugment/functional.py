"""RandAugment on Pillow images and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from composer.algorithms._augment.operation_sets import Operation
from composer.algorithms._augment.transforms import ImageTransform
from composer.utils.checks import check_integer

__all__ = ["RandAugmentTransform", "randaugment_image"]

TImage = TypeVar("TImage")


def randaugment_image(
    img: TImage,
    severity: int = 9,
    depth: int = 2,
    augmentation_set: str | Sequence[Operation] = "all",
) -> TImage:
    """Apply a few random operations to an image, one after another.

    An operation may be drawn again (Cubuk et al., 2020, arXiv 1909.13719). Random numbers come from
    torch's global generator.

    Args:
        img: A Pillow image of mode L or RGB; or a tensor of shape (C, H, W), or of shape
            (N, C, H, W) whose images are treated one by one, in ``uint8`` or a floating type with
            values from 0 to 1.
        severity: Up to how strong the operations are, from 0 to 10; 0 gives the image as it is.
        depth: Number of operations.
        augmentation_set: ``"all"``; ``"safe"``, which leaves out colour, contrast, brightness and
            sharpness; ``"original"``, with those four as in the code of AugMix; or functions of
            image and level.

    Returns:
        A new image of the same type and size.

    Raises:
        MissingConditionalImportError: If torchvision is not installed.
        TypeError: If ``img`` is no image, or an argument has the wrong type.
        ValueError: If a value is out of range.

    Example:
        >>> import torch
        >>> image = torch.full((3, 8, 8), 0.5)
        >>> randaugment_image(image).shape
        torch.Size([3, 8, 8])
        >>> randaugment_image(image, depth=3, augmentation_set=[lambda img, level: img / 2]).max()
        tensor(0.0625)
    """
    return RandAugmentTransform(severity, depth, augmentation_set)(img)


class RandAugmentTransform(ImageTransform):
    """:func:`randaugment_image` as a transform for a data set of one's own.

    Args:
        severity: Up to how strong the operations are, from 0 to 10.
        depth: Number of operations.
        augmentation_set: ``"all"``, ``"safe"``, ``"original"``, or functions of image and level.

    Raises:
        MissingConditionalImportError: If torchvision is not installed.
        TypeError: If an argument has the wrong type.
        ValueError: If a value is out of range.

    Example:
        >>> import torch
        >>> RandAugmentTransform(depth=1)(torch.zeros(3, 8, 8)).shape
        torch.Size([3, 8, 8])
    """

    def __init__(
        self,
        severity: int = 9,
        depth: int = 2,
        augmentation_set: str | Sequence[Operation] = "all",
    ) -> None:
        super().__init__(severity, augmentation_set)
        check_integer("depth", depth, low=0)
        self.depth = depth

    def _augmented(self, image: Any) -> Any:
        return self._operated(image, self.depth)

    def extra_repr(self) -> str:
        """Return the arguments as they are shown.

        Returns:
            Text.

        Example:
            >>> RandAugmentTransform().extra_repr()
            "severity=9, depth=2, augmentation_set='all'"
        """
        return (
            f"severity={self.severity}, depth={self.depth}, "
            f"augmentation_set={self.augmentation_set!r}"
        )
