"""Two narrow layers in the place of a wide one."""

from __future__ import annotations

import torch
from torch import nn

from composer.algorithms.factorize.functional import best_factors, latent_size

__all__ = ["FactorizedConv2d", "FactorizedLinear"]


class FactorizedConv2d(nn.Module):
    """A convolution to few channels, and one of a single pixel to the others.

    Attributes:
        error: The norm of what the factors missed of the original weights, over their norm.

    Args:
        module: The convolution that is replaced.
        rank: Channels between the two.

    Example:
        >>> conv = nn.Conv2d(8, 8, 3, padding=1)
        >>> images = torch.randn(1, 8, 5, 5)
        >>> torch.testing.assert_close(FactorizedConv2d(conv, 8)(images), conv(images))
    """

    error: float

    def __init__(self, module: nn.Conv2d, rank: int) -> None:
        super().__init__()
        options = {"device": module.weight.device, "dtype": module.weight.dtype}
        self.rank = rank
        self.first = nn.Conv2d(
            module.in_channels,
            rank,
            module.kernel_size,  # type: ignore[arg-type]
            module.stride,  # type: ignore[arg-type]
            module.padding,  # type: ignore[arg-type]
            module.dilation,  # type: ignore[arg-type]
            bias=False,
            padding_mode=module.padding_mode,
            **options,  # type: ignore[arg-type]
        )
        self.second = nn.Conv2d(rank, module.out_channels, 1, bias=False, **options)  # type: ignore[arg-type]
        left, right, self.error = best_factors(module.weight.flatten(1), rank)
        _fill(self.first.weight, right, module.weight)
        _fill(self.second.weight, left, module.weight)
        # The same object, so that optimizers go on with it.
        self.second.bias = module.bias

    @classmethod
    def maybe_from(cls, module: nn.Conv2d, latent: float) -> FactorizedConv2d | None:
        """Replace a convolution if that is less to compute.

        Args:
            module: The convolution.
            latent: Channels between the two; below 1, a share of the smaller side.

        Returns:
            The replacement, or ``None``.

        Example:
            >>> FactorizedConv2d.maybe_from(nn.Conv2d(4, 4, 1), 4) is None
            True
        """
        rank = latent_size(latent, module.in_channels, module.out_channels)
        inputs = module.weight[0].numel()
        if module.groups != 1 or rank * (inputs + module.out_channels) >= module.weight.numel():
            return None
        return cls(module, rank)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply both convolutions.

        Args:
            input: Images of shape (N, C, H, W).

        Returns:
            Images of the shape that the original convolution gives.

        Example:
            >>> FactorizedConv2d(nn.Conv2d(2, 4, 3), 1)(torch.ones(1, 2, 5, 5)).shape
            torch.Size([1, 4, 3, 3])
        """
        outputs: torch.Tensor = self.second(self.first(input))
        return outputs

    def set_rank(self, rank: int) -> None:
        """Narrow the layer further, by the nearest factors of what it is now.

        Args:
            rank: Channels between the two, not more than now.

        Raises:
            ValueError: If there would be more, or none.

        Example:
            >>> layer = FactorizedConv2d(nn.Conv2d(4, 4, 3), 3)
            >>> layer.set_rank(2)
            >>> layer.first.weight.shape
            torch.Size([2, 4, 3, 3])
        """
        _check_rank(rank, self.rank)
        product = self.second.weight.flatten(1) @ self.first.weight.flatten(1)
        left, right, self.error = best_factors(product, rank)
        self.rank = self.first.out_channels = self.second.in_channels = rank
        for part, factor in ((self.first, right), (self.second, left)):
            shape = (part.out_channels, part.in_channels, *part.kernel_size)
            part.weight = nn.Parameter(factor.reshape(shape), part.weight.requires_grad)


class FactorizedLinear(nn.Module):
    """A linear layer to few features, and one to the others.

    Attributes:
        error: The norm of what the factors missed of the original weights, over their norm.

    Args:
        module: The layer that is replaced.
        rank: Features between the two.

    Example:
        >>> linear = nn.Linear(6, 4)
        >>> inputs = torch.randn(3, 6)
        >>> torch.testing.assert_close(FactorizedLinear(linear, 4)(inputs), linear(inputs))
    """

    error: float

    def __init__(self, module: nn.Linear, rank: int) -> None:
        super().__init__()
        options = {"device": module.weight.device, "dtype": module.weight.dtype}
        self.rank = rank
        self.first = nn.Linear(module.in_features, rank, bias=False, **options)
        self.second = nn.Linear(rank, module.out_features, bias=False, **options)
        left, right, self.error = best_factors(module.weight, rank)
        _fill(self.first.weight, right, module.weight)
        _fill(self.second.weight, left, module.weight)
        self.second.bias = module.bias

    @classmethod
    def maybe_from(cls, module: nn.Linear, latent: float) -> FactorizedLinear | None:
        """Replace a layer if that is less to compute.

        Args:
            module: The layer.
            latent: Features between the two; below 1, a share of the smaller side.

        Returns:
            The replacement, or ``None``.

        Example:
            >>> FactorizedLinear.maybe_from(nn.Linear(4, 4), 2) is None
            True
        """
        rank = latent_size(latent, module.in_features, module.out_features)
        if rank * (module.in_features + module.out_features) >= module.weight.numel():
            return None
        return cls(module, rank)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply both layers.

        Args:
            input: Of shape (..., in_features).

        Returns:
            Of shape (..., out_features).

        Example:
            >>> FactorizedLinear(nn.Linear(6, 4), 2)(torch.ones(3, 6)).shape
            torch.Size([3, 4])
        """
        outputs: torch.Tensor = self.second(self.first(input))
        return outputs

    def set_rank(self, rank: int) -> None:
        """Narrow the layer further, by the nearest factors of what it is now.

        Args:
            rank: Features between the two, not more than now.

        Raises:
            ValueError: If there would be more, or none.

        Example:
            >>> layer = FactorizedLinear(nn.Linear(6, 4), 3)
            >>> layer.set_rank(1)
            >>> layer.second.weight.shape
            torch.Size([4, 1])
        """
        _check_rank(rank, self.rank)
        left, right, self.error = best_factors(self.second.weight @ self.first.weight, rank)
        self.rank = self.first.out_features = self.second.in_features = rank
        for part, factor in ((self.first, right), (self.second, left)):
            part.weight = nn.Parameter(factor, part.weight.requires_grad)


def _fill(parameter: torch.Tensor, values: torch.Tensor, original: torch.Tensor) -> None:
    with torch.no_grad():
        parameter.copy_(values.reshape(parameter.shape))
    parameter.requires_grad_(original.requires_grad)


def _check_rank(rank: int, present: int) -> None:
    if not 1 <= rank <= present:
        raise ValueError(f"rank={rank} must be 1 to {present}, the present one")
