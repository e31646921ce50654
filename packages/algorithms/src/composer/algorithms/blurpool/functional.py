"""Blur and blurred pooling on tensors, and their surgery on models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from composer.algorithms.warnings import NoEffectWarning
from composer.utils.checks import check_bool, check_integer
from composer.utils.module_surgery import (
    check_surgery,
    count_module_instances,
    replace_module_classes,
)

__all__ = ["apply_blurpool", "binomial_filter", "blur_2d", "blurmax_pool2d", "check_settings"]

Size2d = int | tuple[int, int]


def blur_2d(
    input: torch.Tensor,
    channels: int = -1,
    stride: Size2d = 1,
    filter: torch.Tensor | None = None,
) -> torch.Tensor:
    """Blur every channel of an image by itself.

    Args:
        input: Images, of shape (N, C, H, W).
        channels: C, or anything below 1 to read it from the input.
        stride: Step of the output.
        filter: Kernel of odd height and width, of shape (h, w), (1, 1, h, w) or (C, 1, h, w); by
            default the binomial one, (1, 2, 1) in both directions over 16.

    Returns:
        The blurred images; at stride 1 of the same size.

    Raises:
        ValueError: If ``filter`` has another shape.

    Example:
        >>> point = torch.zeros(1, 1, 3, 3)
        >>> point[..., 1, 1] = 16
        >>> blur_2d(point)[0, 0].tolist()
        [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
    """
    channels = input.shape[1] if channels < 1 else channels
    kernel = binomial_filter(input.dtype, input.device) if filter is None else filter
    if kernel.ndim == 2:
        kernel = kernel[None, None]
    if kernel.ndim != 4 or kernel.shape[0] not in (1, channels) or kernel.shape[1] != 1:
        raise ValueError(
            f"filter of shape {tuple(kernel.shape)} must have the shape (h, w), (1, 1, h, w) or "
            f"({channels}, 1, h, w)"
        )
    height, width = kernel.shape[-2:]
    if height % 2 == 0 or width % 2 == 0:
        raise ValueError(f"filter must have odd height and width, not {height} and {width}")
    kernel = kernel.to(dtype=input.dtype, device=input.device).expand(channels, 1, height, width)
    padding = (height // 2, width // 2)
    return F.conv2d(input, kernel, stride=stride, padding=padding, groups=channels)


def blurmax_pool2d(
    input: torch.Tensor,
    kernel_size: Size2d | None = None,
    stride: Size2d = 2,
    padding: Size2d = 0,
    dilation: Size2d = 1,
    ceil_mode: bool = False,
    filter: torch.Tensor | None = None,
) -> torch.Tensor:
    """Take the maximum around every pixel, blur, and keep every so many pixels.

    Args:
        input: Images, of shape (N, C, H, W).
        kernel_size: Size of the neighbourhood; by default 2.
        stride: Step of the output.
        padding: Padding of the maximum.
        dilation: Spacing inside the neighbourhood.
        ceil_mode: Whether the size of the output is rounded up, as in max pooling.
        filter: Kernel of the blur; see :func:`blur_2d`.

    Returns:
        Images of the size that max pooling with these arguments gives.

    Example:
        >>> blurmax_pool2d(torch.ones(1, 1, 8, 8), 3, stride=2, padding=1).shape
        torch.Size([1, 1, 4, 4])
    """
    kernel_size = 2 if kernel_size is None else kernel_size
    maxima = F.max_pool2d(input, kernel_size, stride=1, padding=padding, dilation=dilation)
    if ceil_mode:
        steps, pads = _pair(stride), _pair(padding)
        extra = [
            _missing_for_ceil(size, maximum, step, pad)
            for size, maximum, step, pad in zip(
                input.shape[-2:], maxima.shape[-2:], steps, pads, strict=True
            )
        ]
        maxima = F.pad(maxima, (0, extra[1], 0, extra[0]))
    return blur_2d(maxima, stride=stride, filter=filter)


def check_settings(
    replace_convs: bool,
    replace_maxpools: bool,
    blur_first: bool,
    min_channels: int,
) -> None:
    """Refuse settings that the surgery cannot follow.

    Args:
        replace_convs: Whether to blur around strided convolutions.
        replace_maxpools: Whether to blur inside max pools.
        blur_first: Whether to blur before the convolution.
        min_channels: Least number of input channels.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If nothing is to be replaced at all, or a number is negative.

    Example:
        >>> check_settings(True, True, True, 16)
    """
    check_bool("replace_convs", replace_convs)
    check_bool("replace_maxpools", replace_maxpools)
    check_bool("blur_first", blur_first)
    check_integer("min_channels", min_channels, low=0)
    if not (replace_convs or replace_maxpools):
        raise ValueError("replace_convs and replace_maxpools are both False; set at least one")


def apply_blurpool(
    model: torch.nn.Module,
    replace_convs: bool = True,
    replace_maxpools: bool = True,
    blur_first: bool = True,
    min_channels: int = 16,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
) -> None:
    """Blur before every step that drops pixels, in place.

    Strided convolutions keep their weights, as the same parameter objects, so that optimizers which
    already exist go on with them.

    Args:
        model: The model.
        replace_convs: Whether to blur around strided convolutions.
        replace_maxpools: Whether to blur inside max pools.
        blur_first: Whether to blur before the convolution; if not, it runs at stride 1 and the blur
            after it drops the pixels, which costs more.
        min_channels: Convolutions with fewer input channels are left alone.
        optimizers: Optimizers to bring up to date.

    Raises:
        ValueError: If nothing is to be replaced at all.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU())
        >>> apply_blurpool(model)
        >>> type(model[0]).__name__
        'BlurConv2d'
    """
    from composer.algorithms.blurpool.layers import BlurConv2d, BlurMaxPool2d

    check_surgery(model, optimizers)
    check_settings(replace_convs, replace_maxpools, blur_first, min_channels)
    policies: dict[type[torch.nn.Module], Callable[..., torch.nn.Module | None]] = {}
    if replace_maxpools:
        policies[torch.nn.MaxPool2d] = BlurMaxPool2d.maybe_from_maxpool2d
    if replace_convs:
        # A second call must not blur once more around the convolutions inside the new layers.
        blurred_convs = {id(m.conv) for m in model.modules() if isinstance(m, BlurConv2d)}

        def blur(conv: torch.nn.Module, index: int) -> torch.nn.Module | None:
            assert isinstance(conv, torch.nn.Conv2d)
            drops_pixels = max(conv.stride) > 1 and conv.in_channels >= min_channels
            if not drops_pixels or id(conv) in blurred_convs:
                return None
            return BlurConv2d.from_conv2d(conv, index, blur_first)

        policies[torch.nn.Conv2d] = blur
    replace_module_classes(model, policies=policies, optimizers=optimizers)
    blurred = count_module_instances(model, (BlurConv2d, BlurMaxPool2d))
    if blurred == 0:
        warnings.warn(
            f"BlurPool found no strided convolution with at least {min_channels} input channels "
            f"and no max pool to replace",
            NoEffectWarning,
            stacklevel=2,
        )


def binomial_filter(
    dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Make the 3 by 3 binomial kernel.

    Args:
        dtype: Its number format.
        device: Where it is needed.

    Returns:
        The kernel.

    Example:
        >>> (binomial_filter() * 16).tolist()
        [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
    """
    row = torch.tensor([1.0, 2.0, 1.0], device=device)
    return (torch.outer(row, row) / 16).to(dtype)


def _pair(value: Size2d) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _missing_for_ceil(size: int, maximum: int, step: int, pad: int) -> int:
    num_outputs = -(-(maximum - 1) // step) + 1
    # Max pooling drops a last window that would start in the padding behind the image.
    if (num_outputs - 1) * step >= size + pad:
        num_outputs -= 1
    return max(0, (num_outputs - 1) * step + 1 - maximum)
