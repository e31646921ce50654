"""AugMix on Pillow images and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from composer.algorithms._augment.images import image_functions
from composer.algorithms._augment.mixing import draw_beta, draw_dirichlet
from composer.algorithms._augment.operation_sets import Operation
from composer.algorithms._augment.transforms import ImageTransform
from composer.utils.checks import check_integer, check_number

__all__ = ["AugmentAndMixTransform", "augmix_image"]

TImage = TypeVar("TImage")

_LONGEST_CHAIN = 3


def augmix_image(
    img: TImage,
    severity: int = 3,
    depth: int = -1,
    width: int = 3,
    alpha: float = 1.0,
    augmentation_set: str | Sequence[Operation] = "all",
) -> TImage:
    """Mix an image with several chains of random operations on it.

    The chains are mixed by shares from a Dirichlet distribution, and the image with that mixture by
    a share from a Beta distribution (Hendrycks et al., 2020, arXiv 1912.02781). Random numbers come
    from torch's global generator.

    Args:
        img: A Pillow image of mode L or RGB; or a tensor of shape (C, H, W), or of shape
            (N, C, H, W) whose images are treated one by one, in ``uint8`` or a floating type with
            values from 0 to 1.
        severity: Up to how strong the operations are, from 0 to 10; 0 gives the image as it is.
        depth: Operations in a chain; -1 draws 1 to 3, anew for each chain.
        width: Number of chains.
        alpha: Parameter of both distributions.
        augmentation_set: ``"all"``; ``"safe"``, which leaves out colour, contrast, brightness and
            sharpness, which tests of robustness change themselves; ``"original"``, with those four
            as in the paper's code; or functions of image and level.

    Returns:
        A new image of the same type and size.

    Raises:
        MissingConditionalImportError: If torchvision is not installed.
        TypeError: If ``img`` is no image, or an argument has the wrong type.
        ValueError: If a value is out of range.

    Example:
        >>> image = torch.full((3, 8, 8), 0.5)
        >>> augmix_image(image).shape, bool((augmix_image(image, severity=0) == image).all())
        (torch.Size([3, 8, 8]), True)
    """
    return AugmentAndMixTransform(severity, depth, width, alpha, augmentation_set)(img)


class AugmentAndMixTransform(ImageTransform):
    """:func:`augmix_image` as a transform for a data set of one's own.

    Args:
        severity: Up to how strong the operations are, from 0 to 10.
        depth: Operations in a chain; -1 draws 1 to 3, anew for each chain.
        width: Number of chains.
        alpha: Parameter of the distributions of the shares.
        augmentation_set: ``"all"``, ``"safe"``, ``"original"``, or functions of image and level.

    Raises:
        MissingConditionalImportError: If torchvision is not installed.
        TypeError: If an argument has the wrong type.
        ValueError: If a value is out of range.

    Example:
        >>> AugmentAndMixTransform(width=2)(torch.zeros(3, 8, 8)).shape
        torch.Size([3, 8, 8])
    """

    def __init__(
        self,
        severity: int = 3,
        depth: int = -1,
        width: int = 3,
        alpha: float = 1.0,
        augmentation_set: str | Sequence[Operation] = "all",
    ) -> None:
        super().__init__(severity, augmentation_set)
        check_integer("depth", depth, low=-1)
        if depth == 0:
            raise ValueError("depth=0 must be -1, which draws 1 to 3 for each chain, or at least 1")
        check_integer("width", width, low=1)
        check_number("alpha", alpha, low=0.0, open_low=True)
        self.depth = depth
        self.width = width
        self.alpha = alpha

    def _augmented(self, image: Any) -> Any:
        mixture = sum(
            share * _values(self._chain(image)) for share in draw_dirichlet(self.alpha, self.width)
        )
        assert isinstance(mixture, torch.Tensor)
        mixed = torch.lerp(_values(image), mixture, draw_beta(self.alpha))
        if isinstance(image, torch.Tensor) and image.is_floating_point():
            return mixed.clamp_(0.0, 1.0)
        mixed = mixed.round_().clamp_(0.0, 255.0).to(torch.uint8)
        if isinstance(image, torch.Tensor):
            return mixed
        return image_functions().to_pil_image(mixed, mode=image.mode)

    def _chain(self, image: Any) -> Any:
        depth = self.depth
        if depth < 0:
            depth = int(torch.randint(1, _LONGEST_CHAIN + 1, ()))
        return self._operated(image, depth)

    def extra_repr(self) -> str:
        """Return the arguments as they are shown.

        Returns:
            Text.

        Example:
            >>> AugmentAndMixTransform().extra_repr()
            "severity=3, depth=-1, width=3, alpha=1.0, augmentation_set='all'"
        """
        return (
            f"severity={self.severity}, depth={self.depth}, width={self.width}, "
            f"alpha={self.alpha}, augmentation_set={self.augmentation_set!r}"
        )


def _values(image: Any) -> torch.Tensor:
    """The values of an image, in numbers that can be mixed."""
    tensor = image if isinstance(image, torch.Tensor) else image_functions().pil_to_tensor(image)
    return tensor if tensor.is_floating_point() else tensor.float()
