"""The channels-last memory format for models."""

from __future__ import annotations

import torch

__all__ = ["apply_channels_last"]


def apply_channels_last(model: torch.nn.Module) -> None:
    """Store the four-dimensional weights of a model with the channels last, in place.

    Args:
        model: The model. Parameters stay the same objects.

    Example:
        >>> conv = torch.nn.Conv2d(3, 4, 3)
        >>> apply_channels_last(conv)
        >>> conv.weight.is_contiguous(memory_format=torch.channels_last)
        True
    """
    model.to(memory_format=torch.channels_last)
