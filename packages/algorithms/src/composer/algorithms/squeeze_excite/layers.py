"""Channel attention, by itself and behind a convolution."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from composer.utils.checks import check_integer, check_number

__all__ = ["SqueezeExcite2d", "SqueezeExciteConv2d"]


class SqueezeExcite2d(nn.Module):
    """Weigh every channel by what all channels hold on average.

    The average over the image goes through a bottleneck of two linear layers and a sigmoid; each
    channel is multiplied by what comes out for it.

    Args:
        num_features: Number of channels.
        latent_channels: Size of the bottleneck; below 1, a share of the channels. At least 1.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is not positive and finite.

    Example:
        >>> SqueezeExcite2d(8, 0.5)(torch.ones(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    def __init__(self, num_features: int, latent_channels: float = 0.125) -> None:
        super().__init__()
        check_integer("num_features", num_features, low=1)
        check_number("latent_channels", latent_channels, low=0.0, open_low=True)
        size = latent_channels if latent_channels >= 1 else latent_channels * num_features
        self.latent_channels = max(1, int(size))
        self.pool_and_mlp = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(num_features, self.latent_channels, bias=False),
            nn.ReLU(),
            nn.Linear(self.latent_channels, num_features, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Weigh the channels.

        Args:
            input: Images of shape (N, C, H, W).

        Returns:
            Images of the same shape.

        Example:
            >>> SqueezeExcite2d(4, 2)(torch.zeros(1, 4, 3, 3)).sum()
            tensor(0., grad_fn=<SumBackward0>)
        """
        weights: torch.Tensor = self.pool_and_mlp(input)
        return input * weights[:, :, None, None]


class SqueezeExciteConv2d(nn.Module):
    """A convolution with channel attention behind it.

    Args:
        *args: Arguments of ``torch.nn.Conv2d``.
        latent_channels: Size of the bottleneck; below 1, a share of the output channels.
        conv: A convolution to use instead of making one.
        **kwargs: Arguments of ``torch.nn.Conv2d``.

    Raises:
        TypeError: If ``conv`` is no convolution, or an argument has the wrong type.
        ValueError: If ``latent_channels`` is not positive and finite.

    Example:
        >>> SqueezeExciteConv2d(3, 8, 3, latent_channels=2)(torch.ones(1, 3, 5, 5)).shape
        torch.Size([1, 8, 3, 3])
    """

    def __init__(
        self,
        *args: Any,
        latent_channels: float = 0.125,
        conv: nn.Conv2d | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        check_number("latent_channels", latent_channels, low=0.0, open_low=True)
        if conv is not None and not isinstance(conv, nn.Conv2d):
            raise TypeError(f"conv={conv!r} must be a torch.nn.Conv2d or None")
        self.conv = nn.Conv2d(*args, **kwargs) if conv is None else conv
        self.se = SqueezeExcite2d(int(self.conv.out_channels), latent_channels)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Convolve, then weigh the channels.

        Args:
            input: Images of shape (N, C, H, W).

        Returns:
            What the convolution gives, weighed.

        Example:
            >>> SqueezeExciteConv2d(1, 4, 1, latent_channels=1)(torch.ones(2, 1, 2, 2)).shape
            torch.Size([2, 4, 2, 2])
        """
        outputs: torch.Tensor = self.se(self.conv(input))
        return outputs

    @classmethod
    def from_conv2d(
        cls, module: nn.Conv2d, module_index: int = -1, latent_channels: float = 0.125
    ) -> SqueezeExciteConv2d:
        """Wrap a convolution, which keeps its parameters.

        Args:
            module: The convolution.
            module_index: Not used.
            latent_channels: Size of the bottleneck; below 1, a share of the output channels.

        Returns:
            The layer.

        Example:
            >>> conv = nn.Conv2d(2, 4, 3)
            >>> SqueezeExciteConv2d.from_conv2d(conv, latent_channels=2).conv is conv
            True
        """
        del module_index
        return cls(conv=module, latent_channels=latent_channels)
