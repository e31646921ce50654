"""Layers that blur before they drop pixels."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from composer.algorithms.blurpool.functional import (
    Size2d,
    binomial_filter,
    blur_2d,
    blurmax_pool2d,
)

__all__ = ["BlurConv2d", "BlurMaxPool2d", "BlurPool2d"]


class _Blurring(nn.Module):
    """Holds the kernel, which moves with the model and is not one of its weights."""

    blur_filter: torch.Tensor

    def _hold_kernel(self, like: torch.Tensor | None = None) -> None:
        kernel = binomial_filter() if like is None else binomial_filter(like.dtype, like.device)
        self.register_buffer("blur_filter", kernel, persistent=False)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # Composer 0.32 stored the constant in every such layer.
        state_dict.pop(f"{prefix}blur_filter", None)
        super()._load_from_state_dict(state_dict, prefix, *args)


class BlurPool2d(_Blurring):
    """Blur every channel and keep every so many pixels.

    Args:
        channels: Number of channels, or 0 to read it from the input.
        stride: Step of the output.
        padding: Padding of the image with zeros; 1 keeps the size at stride 1.

    Example:
        >>> BlurPool2d()(torch.ones(1, 2, 8, 8)).shape
        torch.Size([1, 2, 4, 4])
    """

    def __init__(self, channels: int = 0, stride: Size2d = 2, padding: Size2d = 1) -> None:
        super().__init__()
        self._hold_kernel()
        self.channels = channels
        self.stride = stride
        self.padding = padding

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Blur.

        Args:
            input: Images, of shape (N, C, H, W).

        Returns:
            The blurred, smaller images.

        Example:
            >>> BlurPool2d(stride=1)(torch.zeros(1, 2, 8, 8)).shape
            torch.Size([1, 2, 8, 8])
        """
        channels = self.channels if self.channels > 0 else input.shape[1]
        kernel = self.blur_filter.to(input.dtype).expand(channels, 1, -1, -1)
        return nn.functional.conv2d(
            input, kernel, stride=self.stride, padding=self.padding, groups=channels
        )

    def extra_repr(self) -> str:
        """Describe the layer.

        Returns:
            Its settings.

        Example:
            >>> BlurPool2d().extra_repr()
            'stride=2, padding=1'
        """
        return f"stride={self.stride}, padding={self.padding}"


class BlurMaxPool2d(_Blurring):
    """Max pooling that takes maxima densely, blurs them, and then keeps every so many pixels.

    Args:
        kernel_size: Size of the neighbourhood.
        stride: Step of the output; by default ``kernel_size``.
        padding: Padding of the maximum.
        dilation: Spacing inside the neighbourhood.
        ceil_mode: Whether the size of the output is rounded up.

    Example:
        >>> BlurMaxPool2d(3, stride=2, padding=1)(torch.ones(1, 2, 8, 8)).shape
        torch.Size([1, 2, 4, 4])
    """

    def __init__(
        self,
        kernel_size: Size2d,
        stride: Size2d | None = None,
        padding: Size2d = 0,
        dilation: Size2d = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self._hold_kernel()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Pool.

        Args:
            input: Images, of shape (N, C, H, W).

        Returns:
            Images of the size that max pooling gives.

        Example:
            >>> BlurMaxPool2d(2)(torch.ones(1, 2, 8, 8)).shape
            torch.Size([1, 2, 4, 4])
        """
        return blurmax_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.blur_filter,
        )

    def extra_repr(self) -> str:
        """Describe the layer.

        Returns:
            Its settings.

        Example:
            >>> BlurMaxPool2d(2).extra_repr()
            'kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False'
        """
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )

    @staticmethod
    def from_maxpool2d(module: nn.MaxPool2d, module_index: int = -1) -> BlurMaxPool2d:
        """Make the layer that takes the place of a max pool.

        Args:
            module: The max pool.
            module_index: Unused; surgery passes it.

        Returns:
            The layer.

        Example:
            >>> BlurMaxPool2d.from_maxpool2d(nn.MaxPool2d(3, 2, 1)).stride
            2
        """
        del module_index
        return BlurMaxPool2d(
            module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode
        )

    @staticmethod
    def maybe_from_maxpool2d(module: nn.Module, module_index: int = -1) -> BlurMaxPool2d | None:
        """Make the layer unless the pool also returns where its maxima were.

        Args:
            module: The max pool.
            module_index: Unused; surgery passes it.

        Returns:
            The layer, or ``None`` to leave the pool alone.

        Example:
            >>> BlurMaxPool2d.maybe_from_maxpool2d(nn.MaxPool2d(2, return_indices=True)) is None
            True
        """
        assert isinstance(module, nn.MaxPool2d)
        if module.return_indices:
            return None
        return BlurMaxPool2d.from_maxpool2d(module, module_index)


class BlurConv2d(_Blurring):
    """A strided convolution with a blur before it, or, at stride 1, with a strided blur after it.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step of the output; by default ``kernel_size``.
        padding: Padding of the convolution.
        dilation: Spacing inside the kernel.
        groups: Number of groups of channels.
        bias: Whether the convolution has a bias.
        blur_first: Whether to blur before the convolution.

    Example:
        >>> BlurConv2d(4, 8, 3, stride=2, padding=1)(torch.ones(1, 4, 8, 8)).shape
        torch.Size([1, 8, 4, 4])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size2d,
        stride: Size2d | None = None,
        padding: Size2d = 0,
        dilation: Size2d = 1,
        groups: int = 1,
        bias: bool = True,
        blur_first: bool = True,
    ) -> None:
        super().__init__()
        stride = kernel_size if stride is None else stride
        conv = nn.Conv2d(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias
        )
        self._adopt(conv, blur_first)

    def _adopt(self, conv: nn.Conv2d, blur_first: bool) -> None:
        self.blur_first = blur_first
        self.blur_nchannels = conv.in_channels if blur_first else conv.out_channels
        self.blur_stride: tuple[int, int] = (1, 1)
        if not blur_first:
            self.blur_stride = _as_pair(conv.stride)
            conv.stride = (1, 1)
        self.conv = conv
        self._hold_kernel(conv.weight)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Blur and convolve.

        Args:
            input: Images, of shape (N, in_channels, H, W).

        Returns:
            Images of the size that the strided convolution gives.

        Example:
            >>> BlurConv2d(4, 8, 3, 2, blur_first=False)(torch.ones(1, 4, 9, 9)).shape
            torch.Size([1, 8, 4, 4])
        """
        channels, kernel = self.blur_nchannels, self.blur_filter
        if self.blur_first:
            return self.conv(blur_2d(input, channels, filter=kernel))
        return blur_2d(self.conv(input), channels, self.blur_stride, kernel)

    @staticmethod
    def from_conv2d(
        module: nn.Conv2d, module_index: int = -1, blur_first: bool = True
    ) -> BlurConv2d:
        """Put a blur around a convolution, which becomes part of the new layer.

        Args:
            module: The convolution. With ``blur_first=False`` its stride is moved to the blur.
            module_index: Unused; surgery passes it.
            blur_first: Whether to blur before the convolution.

        Returns:
            The layer, with the same parameter objects.

        Example:
            >>> conv = nn.Conv2d(4, 8, 3, stride=2)
            >>> BlurConv2d.from_conv2d(conv).conv.weight is conv.weight
            True
        """
        del module_index
        layer = BlurConv2d.__new__(BlurConv2d)
        nn.Module.__init__(layer)
        layer._adopt(module, blur_first)
        layer.training = module.training
        return layer


def _as_pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)
