"""Squeeze-and-excitation as surgery on models."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from composer.algorithms.warnings import NoEffectWarning
from composer.utils.checks import check_integer, check_number
from composer.utils.module_surgery import (
    check_surgery,
    count_module_instances,
    replace_module_classes,
)

__all__ = ["apply_squeeze_excite", "check_settings"]


def check_settings(latent_channels: float, min_channels: int) -> None:
    """Refuse settings that the surgery cannot follow.

    Args:
        latent_channels: Size of the bottleneck, or its share.
        min_channels: Least number of channels.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range.

    Example:
        >>> check_settings(64, 128)
    """
    check_number("latent_channels", latent_channels, low=0.0, open_low=True)
    check_integer("min_channels", min_channels, low=0)


def apply_squeeze_excite(
    model: torch.nn.Module,
    latent_channels: float = 64,
    min_channels: int = 128,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
) -> None:
    """Put channel attention behind every wide convolution, in place.

    The convolutions are kept as they are, with the same parameters.

    Args:
        model: The model.
        latent_channels: Size of the bottleneck; below 1, a share of the convolution's output
            channels.
        min_channels: Convolutions with fewer input or output channels are left alone.
        optimizers: Optimizers that receive the new parameters.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3))
        >>> apply_squeeze_excite(model, latent_channels=0.5, min_channels=8)
        >>> type(model[0]).__name__
        'SqueezeExciteConv2d'
    """
    from composer.algorithms.squeeze_excite.layers import SqueezeExciteConv2d

    check_surgery(model, optimizers)
    check_settings(latent_channels, min_channels)
    # A second call must not add attention once more to the convolutions inside the new layers.
    done = {id(m.conv) for m in model.modules() if isinstance(m, SqueezeExciteConv2d)}

    def excite(module: torch.nn.Module, index: int) -> torch.nn.Module | None:
        del index
        assert isinstance(module, torch.nn.Conv2d)
        if min(module.in_channels, module.out_channels) < min_channels or id(module) in done:
            return None
        return SqueezeExciteConv2d.from_conv2d(module, latent_channels=latent_channels)

    replace_module_classes(model, {torch.nn.Conv2d: excite}, optimizers=optimizers)
    if not count_module_instances(model, SqueezeExciteConv2d):
        warnings.warn(
            f"SqueezeExcite found no convolution with at least {min_channels} input and output "
            f"channels",
            NoEffectWarning,
            stacklevel=2,
        )
