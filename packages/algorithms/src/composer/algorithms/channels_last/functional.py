"""The channels-last memory format for models."""

from __future__ import annotations

import torch

from composer.utils.module_surgery import check_surgery

__all__ = ["apply_channels_last"]


def apply_channels_last(model: torch.nn.Module) -> None:
    """Store the four-dimensional weights of a model with the channels last, in place.

    Args:
        model: The model. Parameters stay the same objects.

    Raises:
        TypeError: If the model is no module.

    Example:
        >>> conv = torch.nn.Conv2d(3, 4, 3)
        >>> apply_channels_last(conv)
        >>> conv.weight.is_contiguous(memory_format=torch.channels_last)
        True
    """
    check_surgery(model)
    model.to(memory_format=torch.channels_last)
