"""CutOut on tensors and Pillow images."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import torch

from composer.algorithms._augment.boxes import draw_box
from composer.utils.checks import check_integer, check_number

__all__ = ["cutout_batch"]

TImage = TypeVar("TImage")


def cutout_batch(
    input: TImage,
    num_holes: int = 1,
    length: float = 0.5,
    uniform_sampling: bool = False,
    *,
    generator: torch.Generator | None = None,
) -> TImage:
    """Set square holes of an image, or the same holes of every image of a batch, to zero.

    Args:
        input: Images of shape (N, C, H, W), one image of shape (C, H, W), or a Pillow image.
        num_holes: Number of holes.
        length: Side of a hole relative to the shorter side of the image.
        uniform_sampling: Cover every pixel with the same probability, instead of drawing the centre
            among the pixels, which covers the middle more often. Either way a hole may hang over
            the edge.
        generator: Source of random numbers; by default torch's global one.

    Returns:
        New images of the same type.

    Raises:
        TypeError: If ``input`` is no image.
        ValueError: If a number is out of range.

    Example:
        >>> cutout_batch(torch.ones(1, 1, 2, 2), length=1.0, num_holes=9).shape
        torch.Size([1, 1, 2, 2])
    """
    check_integer("num_holes", num_holes, low=1)
    check_number("length", length, low=0.0, high=1.0)
    if isinstance(input, torch.Tensor):
        if input.ndim < 2:
            raise ValueError(f"input of shape {tuple(input.shape)} is no image")
        cut = _with_holes(input, num_holes, length, uniform_sampling, generator)
        return cast(TImage, cut)
    return _cutout_pillow(input, num_holes, length, uniform_sampling, generator)


def _with_holes(
    images: torch.Tensor,
    num_holes: int,
    length: float,
    uniform_sampling: bool,
    generator: torch.Generator | None,
) -> torch.Tensor:
    height, width = images.shape[-2:]
    side = int(min(height, width) * length)
    cut = images.clone()
    for _ in range(num_holes):
        top, left, bottom, right = draw_box(
            (height, width),
            (side, side),
            place="uniform" if uniform_sampling else "centre",
            generator=generator,
        )
        cut[..., top:bottom, left:right] = 0
    return cut


def _cutout_pillow(
    image: Any,
    num_holes: int,
    length: float,
    uniform_sampling: bool,
    generator: torch.Generator | None,
) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise TypeError(
            f"input must be a tensor, not {type(image).__name__}; for Pillow images install "
            f"composer-algorithms[vision]"
        ) from error
    import numpy as np

    if not isinstance(image, Image.Image):
        raise TypeError(f"input must be a tensor or a Pillow image, not {type(image).__name__}")
    pixels = np.array(image)
    # The holes are drawn for rows and columns, which come first here and last in a tensor.
    keep = _with_holes(
        torch.ones(pixels.shape[:2], dtype=torch.bool),
        num_holes,
        length,
        uniform_sampling,
        generator,
    ).numpy()
    pixels[~keep] = 0
    return Image.fromarray(pixels)
