"""The operations on images from which AugMix and RandAugment choose.

Each is a function of an image and a level, from 0 to 10, that draws how strongly it works: up to
that level, and in which direction. Pillow images and tensors go the same way, through torchvision's
functions. Where a paper's own code is the measure (Hendrycks et al., 2020, after Cubuk et al.,
2019), amounts are those of that code.

Numbers come from torch's global generator: a checkpoint keeps it, and each worker process of a
loader has its own.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from composer.algorithms._augment.images import image_functions

__all__ = [
    "MAX_LEVEL",
    "autocontrast",
    "brightness",
    "brightness_original",
    "color",
    "color_original",
    "contrast",
    "contrast_original",
    "equalize",
    "posterize",
    "rotate",
    "sharpness",
    "sharpness_original",
    "shear_x",
    "shear_y",
    "solarize",
    "translate_x",
    "translate_y",
]

MAX_LEVEL = 10.0
_MAX_DEGREES = 30.0
_MAX_SHEAR = 0.3
_MAX_SHIFT = 1 / 3
_MAX_BITS_LOST = 4


# ---- drawing ----------------------------------------------------------------------------------


def _draw_share(level: float) -> float:
    """How strong, as a share of the strongest that there is."""
    low = min(0.1, level)
    return (low + (level - low) * float(torch.rand(()))) / MAX_LEVEL


def _draw_sign() -> int:
    return 1 if float(torch.rand(())) < 0.5 else -1


def _draw_factor(level: float) -> float:
    """How many times as intense: as often less as more, and once if the level is 0."""
    share = level / MAX_LEVEL * float(torch.rand(()))
    return 1.0 + 9.0 * share if _draw_sign() > 0 else 1.0 - 0.9 * share


def _draw_published_factor(level: float) -> float:
    """How many times as intense in the code of AugMix, which at low levels is always less."""
    return 0.1 + 1.8 * _draw_share(level)


# ---- tones ------------------------------------------------------------------------------------


def autocontrast(img: Any, level: float) -> Any:
    """Stretch each channel to the full range.

    Args:
        img: The image.
        level: Not used: there is no less and no more.

    Returns:
        A new image.

    Example:
        >>> autocontrast(torch.tensor([[[0.2, 0.6]]]), 3)
        tensor([[[0., 1.]]])
    """
    del level
    return image_functions().autocontrast(img)


def equalize(img: Any, level: float) -> Any:
    """Make all tones of a channel equally frequent.

    Args:
        img: The image.
        level: Not used.

    Returns:
        A new image.

    Example:
        >>> dark = (torch.arange(512).view(1, 16, 32) // 4).byte()
        >>> int(dark.max()), int(equalize(dark, 3).max())
        (127, 255)
    """
    del level
    return image_functions().equalize(img)


def posterize(img: Any, level: float) -> Any:
    """Keep the 4 most significant bits of each value, or fewer.

    Args:
        img: The image.
        level: At level 10 down to 1 bit is kept.

    Returns:
        A new image.

    Example:
        >>> posterize(torch.tensor([[[255]]], dtype=torch.uint8), 0).tolist()
        [[[240]]]
    """
    bits = _MAX_BITS_LOST - int(_draw_share(level) * _MAX_BITS_LOST)
    return image_functions().posterize(img, max(1, bits))


def solarize(img: Any, level: float) -> Any:
    """Invert the brightest values.

    Args:
        img: The image.
        level: At level 10 up to all of them.

    Returns:
        A new image.

    Example:
        >>> solarize(torch.tensor([[[7, 255]]], dtype=torch.uint8), 0).tolist()
        [[[7, 255]]]
    """
    threshold = 256 - int(_draw_share(level) * 256)
    if threshold > 255:
        return img
    is_float = isinstance(img, torch.Tensor) and img.is_floating_point()
    return image_functions().solarize(img, threshold / 255 if is_float else threshold)


# ---- shapes -----------------------------------------------------------------------------------


def rotate(img: Any, level: float) -> Any:
    """Rotate about the middle.

    Args:
        img: The image.
        level: At level 10 up to 30 degrees, either way.

    Returns:
        A new image, black where nothing came to lie.

    Example:
        >>> rotate(torch.ones(1, 8, 8), 3).shape
        torch.Size([1, 8, 8])
    """
    degrees = _draw_sign() * _draw_share(level) * _MAX_DEGREES
    return image_functions().rotate(img, degrees, interpolation=_bilinear())


def shear_x(img: Any, level: float) -> Any:
    """Move each row sideways by a multiple of its number.

    Args:
        img: The image.
        level: At level 10 up to 0.3 pixels a row, either way.

    Returns:
        A new image, black where nothing came to lie.

    Example:
        >>> shear_x(torch.ones(1, 8, 8), 3).shape
        torch.Size([1, 8, 8])
    """
    return _affine(img, shear=(_draw_shear(level), 0.0))


def shear_y(img: Any, level: float) -> Any:
    """Move each column up or down by a multiple of its number.

    Args:
        img: The image.
        level: At level 10 up to 0.3 pixels a column, either way.

    Returns:
        A new image, black where nothing came to lie.

    Example:
        >>> shear_y(torch.ones(1, 8, 8), 3).shape
        torch.Size([1, 8, 8])
    """
    return _affine(img, shear=(0.0, _draw_shear(level)))


def translate_x(img: Any, level: float) -> Any:
    """Move an image sideways by whole pixels.

    Args:
        img: The image.
        level: At level 10 up to a third of the width, either way.

    Returns:
        A new image, black where nothing came to lie.

    Example:
        >>> translate_x(torch.ones(1, 8, 8), 3).shape
        torch.Size([1, 8, 8])
    """
    _, width = image_functions().get_size(img)
    return _affine(img, translate=(_draw_shift(level, width), 0))


def translate_y(img: Any, level: float) -> Any:
    """Move an image up or down by whole pixels.

    Args:
        img: The image.
        level: At level 10 up to a third of the height, either way.

    Returns:
        A new image, black where nothing came to lie.

    Example:
        >>> translate_y(torch.ones(1, 8, 8), 3).shape
        torch.Size([1, 8, 8])
    """
    height, _ = image_functions().get_size(img)
    return _affine(img, translate=(0, _draw_shift(level, height)))


def _draw_shear(level: float) -> float:
    return math.degrees(math.atan(_draw_sign() * _draw_share(level) * _MAX_SHEAR))


def _draw_shift(level: float, size: int) -> int:
    return _draw_sign() * int(_draw_share(level) * _MAX_SHIFT * size)


def _affine(
    img: Any, *, translate: tuple[int, int] = (0, 0), shear: tuple[float, float] = (0.0, 0.0)
) -> Any:
    return image_functions().affine(
        img,
        angle=0.0,
        translate=list(translate),
        scale=1.0,
        shear=list(shear),
        interpolation=_bilinear(),
        # A shear leaves the first row, or column, where it is, as in the papers' code.
        center=[0.0, 0.0],
    )


def _bilinear() -> Any:
    return image_functions().InterpolationMode.BILINEAR


# ---- intensities ------------------------------------------------------------------------------


def color(img: Any, level: float) -> Any:
    """Make colours stronger or weaker.

    Args:
        img: The image.
        level: At level 10 from a tenth to ten times as strong.

    Returns:
        A new image.

    Example:
        >>> color(torch.ones(3, 2, 2), 0).sum()
        tensor(12.)
    """
    return image_functions().adjust_saturation(img, _draw_factor(level))


def contrast(img: Any, level: float) -> Any:
    """Make the contrast stronger or weaker.

    Args:
        img: The image.
        level: At level 10 from a tenth to ten times as strong.

    Returns:
        A new image.

    Example:
        >>> contrast(torch.ones(3, 2, 2), 0).sum()
        tensor(12.)
    """
    return image_functions().adjust_contrast(img, _draw_factor(level))


def brightness(img: Any, level: float) -> Any:
    """Make an image brighter or darker.

    Args:
        img: The image.
        level: At level 10 from a tenth to ten times as bright.

    Returns:
        A new image.

    Example:
        >>> brightness(torch.ones(3, 2, 2), 0).sum()
        tensor(12.)
    """
    return image_functions().adjust_brightness(img, _draw_factor(level))


def sharpness(img: Any, level: float) -> Any:
    """Make an image sharper or smoother.

    Args:
        img: The image.
        level: At level 10 from a tenth to ten times as sharp.

    Returns:
        A new image.

    Example:
        >>> sharpness(torch.ones(3, 2, 2), 0).sum()
        tensor(12.)
    """
    return image_functions().adjust_sharpness(img, _draw_factor(level))


def color_original(img: Any, level: float) -> Any:
    """Make colours weaker, or at high levels also stronger, as the code of AugMix does.

    Args:
        img: The image.
        level: At level 10 from a tenth to 1.9 times as strong.

    Returns:
        A new image.

    Example:
        >>> color_original(torch.ones(3, 2, 2), 3).shape
        torch.Size([3, 2, 2])
    """
    return image_functions().adjust_saturation(img, _draw_published_factor(level))


def contrast_original(img: Any, level: float) -> Any:
    """Make the contrast weaker, or at high levels also stronger, as the code of AugMix does.

    Args:
        img: The image.
        level: At level 10 from a tenth to 1.9 times as strong.

    Returns:
        A new image.

    Example:
        >>> contrast_original(torch.ones(3, 2, 2), 3).shape
        torch.Size([3, 2, 2])
    """
    return image_functions().adjust_contrast(img, _draw_published_factor(level))


def brightness_original(img: Any, level: float) -> Any:
    """Make an image darker, or at high levels also brighter, as the code of AugMix does.

    Args:
        img: The image.
        level: At level 10 from a tenth to 1.9 times as bright.

    Returns:
        A new image.

    Example:
        >>> bool(brightness_original(torch.ones(3, 2, 2), 3).max() < 1)
        True
    """
    return image_functions().adjust_brightness(img, _draw_published_factor(level))


def sharpness_original(img: Any, level: float) -> Any:
    """Make an image smoother, or at high levels also sharper, as the code of AugMix does.

    Args:
        img: The image.
        level: At level 10 from a tenth to 1.9 times as sharp.

    Returns:
        A new image.

    Example:
        >>> sharpness_original(torch.ones(3, 2, 2), 3).shape
        torch.Size([3, 2, 2])
    """
    return image_functions().adjust_sharpness(img, _draw_published_factor(level))
