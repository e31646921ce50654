"""CutMix on tensors."""

from __future__ import annotations

import math
from typing import Literal

import torch

from composer.algorithms._augment.boxes import Box, draw_box
from composer.algorithms._augment.mixing import draw_beta, draw_permutation, permute
from composer.algorithms._checks import check_batch
from composer.utils.checks import check_number

__all__ = ["are_masks", "cutmix_batch", "paste_box"]


def cutmix_batch(
    input: torch.Tensor,
    target: torch.Tensor,
    length: float | None = None,
    alpha: float = 1.0,
    bbox: tuple[int, int, int, int] | None = None,
    indices: torch.Tensor | None = None,
    uniform_sampling: bool = False,
    *,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor, float, tuple[int, int, int, int]]:
    """Paste a box of a random partner of the same batch into every image.

    One box is drawn for the whole batch. Labels are to be mixed by the share of the image that was
    kept, which needs the number of classes and so is left to the caller.

    Args:
        input: Images, of shape (N, C, H, W).
        target: Their labels, of shape (N, ...).
        length: Sides of the box relative to those of the image. The box then lies wholly inside,
            so its area is what was asked for, unless ``uniform_sampling``. By default the area is
            drawn: a share of 1 - Beta(alpha, alpha), less what hangs over the edge.
        alpha: Parameter of that distribution; 0 cuts nothing.
        bbox: The box itself, as first row, first column, end row, end column.
        indices: The partner of each image; by default a random permutation.
        uniform_sampling: Cover every pixel with the same probability, instead of drawing the centre
            among the pixels, which covers the middle more often.
        generator: Source of random numbers; by default torch's global one.

    Returns:
        The new images, the partners' labels, the share of the image that was kept, and the box.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If both ``length`` and ``bbox`` are given, or a value is out of range.

    Example:
        >>> x, y = torch.arange(2.0).view(2, 1, 1, 1).expand(2, 1, 4, 4), torch.tensor([0, 1])
        >>> cut, partner, kept, box = cutmix_batch(x, y, length=0.5, indices=torch.tensor([1, 0]))
        >>> kept, cut[0].sum().item(), cut[1].sum().item()
        (0.75, 4.0, 12.0)
    """
    check_batch(input, target)
    if input.ndim < 3:
        raise ValueError(f"input must be images of shape (N, C, H, W), not {tuple(input.shape)}")
    if indices is None:
        indices = draw_permutation(input.shape[0], input.device, generator)
    height, width = input.shape[-2:]
    if bbox is not None:
        if length is not None:
            raise ValueError(f"length={length} and bbox={bbox} exclude each other; give one")
        bbox = _checked_box(bbox, height, width)
    elif length is not None:
        check_number("length", length, low=0.0, high=1.0)
        sides = (round(height * length), round(width * length))
        bbox = _draw(input, sides, "inside", uniform_sampling, generator)
    else:
        check_number("alpha", alpha, low=0.0)
        side = math.sqrt(1.0 - draw_beta(alpha, generator))
        sides = (int(height * side), int(width * side))
        bbox = _draw(input, sides, "centre", uniform_sampling, generator)
    top, left, bottom, right = bbox
    kept = 1.0 - (bottom - top) * (right - left) / (height * width)
    return paste_box(input, indices, bbox), permute(target, indices), kept, bbox


def are_masks(input: torch.Tensor, target: torch.Tensor) -> bool:
    """Say whether targets have a value for every pixel of the images.

    Args:
        input: Images, of shape (N, C, H, W).
        target: Targets, of shape (N, ...).

    Returns:
        Whether they do.

    Example:
        >>> are_masks(torch.zeros(2, 3, 8, 8), torch.zeros(2, 8, 8))
        True
    """
    return target.ndim >= 3 and target.shape[-2:] == input.shape[-2:]


def paste_box(images: torch.Tensor, indices: torch.Tensor, bbox: Box) -> torch.Tensor:
    """Replace a box of every image, or mask, by that of another one.

    Args:
        images: Of shape (N, ..., H, W).
        indices: Where each image's box comes from.
        bbox: First row, first column, end row, end column.

    Returns:
        New images.

    Example:
        >>> masks = torch.tensor([[[1, 1]], [[2, 2]]])
        >>> paste_box(masks, torch.tensor([1, 0]), (0, 0, 1, 1)).tolist()
        [[[2, 1]], [[1, 2]]]
    """
    top, left, bottom, right = bbox
    pasted = images.clone()
    box = images[..., top:bottom, left:right]
    pasted[..., top:bottom, left:right] = permute(box, indices)
    return pasted


def _draw(
    images: torch.Tensor,
    sides: tuple[int, int],
    place: Literal["centre", "inside"],
    uniform_sampling: bool,
    generator: torch.Generator | None,
) -> Box:
    size = (images.shape[-2], images.shape[-1])
    return draw_box(
        size, sides, place="uniform" if uniform_sampling else place, generator=generator
    )


def _checked_box(bbox: Box, height: int, width: int) -> Box:
    if len(bbox) != 4:
        raise ValueError(f"bbox={bbox!r} must be (first row, first column, end row, end column)")
    top, left, bottom, right = (int(edge) for edge in bbox)
    if not (0 <= top <= bottom <= height and 0 <= left <= right <= width):
        raise ValueError(
            f"bbox={bbox!r} must be (first row, first column, end row, end column) inside an "
            f"image of {height} rows and {width} columns"
        )
    return top, left, bottom, right
