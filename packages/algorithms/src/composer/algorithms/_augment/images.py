"""Which images an augmentation takes, and that it gives back the same kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import torch

from composer.utils.imports import MissingConditionalImportError

__all__ = ["image_functions", "map_images"]

TImage = TypeVar("TImage")

_MODES = {"L": 1, "RGB": 3}
# Half a step of a byte: what rounding while an image is resized can come to.
_SLACK = 0.5 / 255


@cache
def image_functions() -> Any:
    """Import torchvision's functions on images, which take Pillow images and tensors alike.

    Returns:
        The module ``torchvision.transforms.v2.functional``.

    Raises:
        MissingConditionalImportError: If torchvision is not installed.

    Example:
        >>> image_functions().vflip(torch.tensor([[[1], [2]]])).tolist()
        [[[2], [1]]]
    """
    try:
        from torchvision.transforms.v2 import functional
    except ImportError as error:
        raise MissingConditionalImportError(
            "vision", "torchvision", distribution="composer-algorithms"
        ) from error
    return functional


def map_images(function: Callable[[Any], Any], images: TImage) -> TImage:
    """Apply a function to an image, or to each of a batch.

    Whether values are from 0 to 1 is looked at on the host, so images of a floating type on another
    device are waited for.

    Args:
        function: From an image to one of the same kind and size. It is given Pillow images as they
            are, and tensors of shape (C, H, W) in ``uint8``, ``float32`` or ``float64``: other
            floating types are computed in ``float32``.
        images: A Pillow image of mode L or RGB, or a tensor of shape (C, H, W) or (N, C, H, W)
            with 1 or 3 channels, in ``uint8`` or a floating type with values from 0 to 1.

    Returns:
        The same type, on the same device, in the same memory format.

    Raises:
        TypeError: If it is no image of these kinds.
        ValueError: If its shape or values do not fit, or the function changed the size.

    Example:
        >>> map_images(lambda image: 255 - image, torch.zeros(2, 1, 1, 1, dtype=torch.uint8)).sum()
        tensor(510)
    """
    if isinstance(images, torch.Tensor):
        return cast(TImage, _map_tensor(function, images))
    if not all(hasattr(images, name) for name in ("mode", "size", "getbands")):
        raise TypeError(
            f"the image is a {type(images).__name__}; accepted are Pillow images and tensors, so "
            f"convert it, for instance with torchvision's ToImage"
        )
    image: Any = images
    if image.mode not in _MODES:
        raise ValueError(
            f"the Pillow image has mode {image.mode!r}; accepted are {sorted(_MODES)}, so convert "
            f"it first: image.convert('RGB')"
        )
    if 0 in image.size:
        raise ValueError(f"the Pillow image of size {image.size} has no pixels")
    made = function(image)
    if (getattr(made, "mode", None), getattr(made, "size", None)) != (image.mode, image.size):
        raise ValueError(
            f"an operation made {made!r} of a Pillow image of mode {image.mode} and size "
            f"{image.size}; operations must keep both"
        )
    return cast(TImage, image.copy() if made is image else made)


def _map_tensor(function: Callable[[Any], Any], images: torch.Tensor) -> torch.Tensor:
    shape = tuple(images.shape)
    if images.ndim not in (3, 4) or images.shape[-3] not in _MODES.values():
        raise ValueError(
            f"the image is a tensor of shape {shape}; accepted are (C, H, W) and (N, C, H, W) with "
            f"1 or 3 channels"
        )
    if 0 in shape[-2:]:
        raise ValueError(f"the image of shape {shape} has no pixels")
    if not (images.dtype == torch.uint8 or images.is_floating_point()):
        raise TypeError(
            f"the image is a tensor of {images.dtype}; accepted are torch.uint8 and floating types "
            f"with values from 0 to 1"
        )
    # A subclass, such as torchvision's Image, is taken off here and put on again at the end.
    plain = images.detach().as_subclass(torch.Tensor)
    if plain.is_floating_point() and plain.numel():
        low, high = torch.stack(plain.aminmax()).tolist()
        if not (low >= -_SLACK and high <= 1.0 + _SLACK):
            raise ValueError(
                f"the image has values from {low:g} to {high:g}; floating types must hold values "
                f"from 0 to 1, so augment images before they are normalised, or clamp them"
            )
        if low < 0.0 or high > 1.0:
            plain = plain.clamp(0.0, 1.0)
    wide = torch.float32 if plain.dtype in (torch.float16, torch.bfloat16) else plain.dtype
    made = torch.empty_like(plain)
    many, new = (plain, made) if plain.ndim == 4 else (plain[None], made[None])
    for i, image in enumerate(many):
        changed = function(image.to(wide))
        if changed.shape != image.shape:
            raise ValueError(
                f"an operation made a tensor of shape {tuple(changed.shape)} of one of shape "
                f"{tuple(image.shape)}; operations must keep the shape"
            )
        new[i] = changed
    return _like(images, made)


def _like(original: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    if type(original) is torch.Tensor:
        return made
    from torchvision import tv_tensors

    if not isinstance(original, tv_tensors.TVTensor):
        return made
    wrapped: torch.Tensor = tv_tensors.wrap(made, like=original)
    return wrapped
