"""Progressive resizing on tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from composer.utils.checks import check_choice, check_number

__all__ = ["MODES", "check_curriculum", "pinned_scale", "resize_batch", "scale_at"]

MODES = ("resize", "crop")


def resize_batch(
    input: torch.Tensor,
    target: torch.Tensor,
    scale_factor: float,
    mode: str = "resize",
    resize_targets: bool = False,
    antialias: bool = False,
    *,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the images of a batch smaller.

    Args:
        input: Images, of shape (N, C, H, W).
        target: Labels, or masks of shape (N, H, W) or (N, C, H, W).
        scale_factor: The new size over the old one, greater than 0 and at most 1.
        mode: ``"resize"`` interpolates (bilinear; the nearest pixel for masks of integers);
            ``"crop"`` keeps a random part, the same for all images and masks.
        resize_targets: Whether targets change with the images.
        antialias: Whether to smooth before interpolating.
        generator: Source of random numbers; by default torch's global one.

    Returns:
        Images and targets; the same objects where nothing changes.

    Raises:
        ValueError: If an argument is out of range or the tensors are no images.

    Example:
        >>> x, y = resize_batch(torch.zeros(1, 3, 28, 28), torch.tensor([0]), 0.5)
        >>> x.shape
        torch.Size([1, 3, 14, 14])
    """
    check_choice("mode", mode, MODES)
    check_number("scale_factor", scale_factor, low=0.0, open_low=True, high=1.0)
    if input.ndim != 4:
        raise ValueError(f"input must be images of shape (N, C, H, W), not {tuple(input.shape)}")
    if resize_targets and (target.ndim < 3 or target.shape[-2:] != input.shape[-2:]):
        raise ValueError(
            f"resize_targets=True needs targets of the images' size {tuple(input.shape[-2:])}, "
            f"and they have the shape {tuple(target.shape)}"
        )
    height, width = input.shape[-2:]
    size = (max(1, round(height * scale_factor)), max(1, round(width * scale_factor)))
    if size == (height, width):
        return input, target
    if mode == "resize":
        smaller = _interpolate(input, size, antialias)
        return smaller, (_resize_target(target, size, antialias) if resize_targets else target)
    top = int(torch.randint(0, height - size[0] + 1, (), generator=generator))
    left = int(torch.randint(0, width - size[1] + 1, (), generator=generator))
    part = (..., slice(top, top + size[0]), slice(left, left + size[1]))
    return input[part], (target[part] if resize_targets else target)


def scale_at(
    elapsed: float, initial_scale: float, finetune_fraction: float, delay_fraction: float
) -> float:
    """Return the scale at a moment of the run.

    Args:
        elapsed: The share of the run that is over.
        initial_scale: The scale at the start.
        finetune_fraction: The last share of the run, at full size.
        delay_fraction: The first share of the run, at the initial scale.

    Returns:
        The scale: constant, then growing along a straight line, then 1.

    Example:
        >>> [scale_at(t, 0.5, 0.2, 0.4) for t in (0.0, 0.4, 0.6, 0.8, 1.0)]
        [0.5, 0.5, 0.75, 1.0, 1.0]
    """
    growth = (elapsed - delay_fraction) / (1.0 - finetune_fraction - delay_fraction)
    # Sums of decimal fractions miss by a rounding error; full size must be exact.
    growth = min(max(round(growth, 9), 0.0), 1.0)
    return initial_scale + (1.0 - initial_scale) * growth


def check_curriculum(initial_scale: float, finetune_fraction: float, delay_fraction: float) -> None:
    """Refuse a growth that cannot happen.

    Args:
        initial_scale: The scale at the start.
        finetune_fraction: The last share of the run, at full size.
        delay_fraction: The first share of the run, at the initial scale.

    Raises:
        TypeError: If one is not a number.
        ValueError: If one is out of range, or the two shares leave no time to grow.

    Example:
        >>> check_curriculum(0.5, 0.2, 0.5)
    """
    check_number("initial_scale", initial_scale, low=0.0, open_low=True, high=1.0)
    check_number("finetune_fraction", finetune_fraction, low=0.0, high=1.0)
    check_number("delay_fraction", delay_fraction, low=0.0, high=1.0)
    if delay_fraction + finetune_fraction >= 1.0 - 1e-9:
        raise ValueError(
            f"delay_fraction={delay_fraction} and finetune_fraction={finetune_fraction} fill the "
            f"run and leave no time to grow; their sum must be less than 1"
        )


def pinned_scale(width: int, scale: float, size_increment: int) -> float:
    """Move a scale to the nearest one at which the width is a multiple of an increment.

    Args:
        width: Width of the images.
        scale: The scale.
        size_increment: The increment.

    Returns:
        The scale; 1 where the multiple would be wider than the image.

    Example:
        >>> pinned_scale(32, 0.55, 4) * 32
        16.0
        >>> pinned_scale(29, 1.0, 4)
        1.0
    """
    if scale >= 1.0:
        return 1.0
    multiple = max(1, round(width * scale / size_increment)) * size_increment
    return min(multiple / width, 1.0)


def _interpolate(images: torch.Tensor, size: tuple[int, int], antialias: bool) -> torch.Tensor:
    if images.is_floating_point():
        return F.interpolate(images, size=size, mode="bilinear", antialias=antialias)
    smaller = F.interpolate(images.float(), size=size, mode="bilinear", antialias=antialias)
    return smaller.round_().to(images.dtype)


def _resize_target(target: torch.Tensor, size: tuple[int, int], antialias: bool) -> torch.Tensor:
    masks = target.unsqueeze(1) if target.ndim == 3 else target
    if masks.is_floating_point():
        masks = _interpolate(masks, size, antialias)
    else:
        # Between two classes there is no third one. Double precision holds every class index.
        masks = F.interpolate(masks.double(), size=size, mode="nearest-exact").to(target.dtype)
    return masks.squeeze(1) if target.ndim == 3 else masks
