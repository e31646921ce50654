"""Factorisation of wide layers into two narrow ones, starting from the weights that are there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import nn

from composer.algorithms.warnings import NoEffectWarning
from composer.utils.checks import check_bool, check_integer, check_number
from composer.utils.module_surgery import (
    check_surgery,
    count_module_instances,
    replace_module_classes,
)

__all__ = ["apply_factorization", "best_factors", "check_settings", "latent_size"]


def best_factors(weight: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Write a matrix as a product of two thin ones, as well as it can be done.

    The singular value decomposition gives the product of this rank that is nearest (Eckart and
    Young, 1936); both factors get the square roots of the singular values, so that neither is
    much larger than the other.

    Args:
        weight: Of shape (out, in), in any floating dtype.
        rank: Width of the factors.

    Returns:
        Factors of shapes (out, rank) and (rank, in), in the dtype of ``weight``, and the error: the
        norm of what is missing over the norm of the matrix.

    Example:
        >>> left, right, error = best_factors(torch.diag(torch.tensor([3.0, 4.0])), rank=1)
        >>> (left @ right).round().abs()
        tensor([[0., 0.],
                [0., 4.]])
        >>> round(error, 4)  # 3 / 5
        0.6
    """
    u, s, vh = torch.linalg.svd(weight.detach().to(torch.float64), full_matrices=False)
    root = s[:rank].sqrt()
    total = float(s.square().sum())
    missing = float(s[rank:].square().sum())
    error = (missing / total) ** 0.5 if total else 0.0
    left, right = u[:, :rank] * root, root[:, None] * vh[:rank]
    return left.to(weight.dtype), right.to(weight.dtype), error


def latent_size(latent: float, in_size: int, out_size: int) -> int:
    """Read a width that is given as a number or as a share.

    Args:
        latent: At least 1, a width; below, a share of the smaller of the two sizes.
        in_size: Inputs of the layer.
        out_size: Outputs of the layer.

    Returns:
        The width, at least 1.

    Example:
        >>> latent_size(0.25, 64, 32), latent_size(12, 64, 32)
        (8, 12)
    """
    return max(1, int(latent if latent >= 1 else latent * min(in_size, out_size)))


def check_settings(
    factorize_convs: bool,
    factorize_linears: bool,
    min_channels: int,
    latent_channels: float,
    min_features: int,
    latent_features: float,
) -> None:
    """Refuse settings that the surgery cannot follow.

    Args:
        factorize_convs: Whether to replace convolutions.
        factorize_linears: Whether to replace linear layers.
        min_channels: Least number of channels.
        latent_channels: Channels between the two, or their share.
        min_features: Least number of features.
        latent_features: Features between the two, or their share.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If nothing is to be replaced at all, or a number is out of range.

    Example:
        >>> check_settings(True, True, 256, 0.25, 256, 128)
    """
    check_bool("factorize_convs", factorize_convs)
    check_bool("factorize_linears", factorize_linears)
    check_integer("min_channels", min_channels, low=1)
    check_number("latent_channels", latent_channels, low=0.0, open_low=True)
    check_integer("min_features", min_features, low=1)
    check_number("latent_features", latent_features, low=0.0, open_low=True)
    if not (factorize_convs or factorize_linears):
        raise ValueError("factorize_convs and factorize_linears are both False; set at least one")


def apply_factorization(
    model: nn.Module,
    factorize_convs: bool = True,
    factorize_linears: bool = True,
    min_channels: int = 256,
    latent_channels: float = 0.25,
    min_features: int = 256,
    latent_features: float = 128,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
) -> None:
    """Replace wide layers by two narrow ones where that is less to compute, in place.

    The factors are those nearest to the weights of the layer, whose bias is kept. Layers that do
    not get cheaper, and convolutions in groups, are left alone.

    Args:
        model: The model.
        factorize_convs: Whether to replace two-dimensional convolutions: one of the same kernel to
            few channels, and one of a pixel to the others.
        factorize_linears: Whether to replace linear layers.
        min_channels: Convolutions with fewer input or output channels are left alone.
        latent_channels: Channels between the two; below 1, a share of the smaller side.
        min_features: Linear layers with fewer inputs or outputs are left alone.
        latent_features: Features between the two; below 1, a share of the smaller side.
        optimizers: Optimizers that receive the new parameters.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If nothing is to be replaced at all, or a number is out of range.

    Example:
        >>> model = nn.Sequential(nn.Linear(512, 512))
        >>> apply_factorization(model)
        >>> sum(p.numel() for p in model.parameters())
        131584
    """
    from composer.algorithms.factorize.layers import FactorizedConv2d, FactorizedLinear

    check_surgery(model, optimizers)
    check_settings(
        factorize_convs,
        factorize_linears,
        min_channels,
        latent_channels,
        min_features,
        latent_features,
    )
    done = {
        id(part)
        for m in model.modules()
        if isinstance(m, (FactorizedConv2d, FactorizedLinear))
        for part in m.children()
    }

    def conv(module: nn.Module, index: int) -> nn.Module | None:
        del index
        assert isinstance(module, nn.Conv2d)
        if id(module) in done or min(module.in_channels, module.out_channels) < min_channels:
            return None
        return FactorizedConv2d.maybe_from(module, latent_channels)

    def linear(module: nn.Module, index: int) -> nn.Module | None:
        del index
        assert isinstance(module, nn.Linear)
        if id(module) in done or min(module.in_features, module.out_features) < min_features:
            return None
        return FactorizedLinear.maybe_from(module, latent_features)

    policies: dict[type[nn.Module], Callable[..., nn.Module | None]] = {}
    if factorize_convs:
        policies[nn.Conv2d] = conv
    if factorize_linears:
        policies[nn.Linear] = linear
    replace_module_classes(model, policies, optimizers=optimizers)
    if not count_module_instances(model, (FactorizedConv2d, FactorizedLinear)):
        warnings.warn(
            f"Factorize found no convolution with at least {min_channels} channels and no linear "
            f"layer with at least {min_features} features that would get cheaper",
            NoEffectWarning,
            stacklevel=2,
        )
