"""A layer normalisation in the type that autocast computes in."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from composer.algorithms._surgery import to_autocast

__all__ = ["LPLayerNorm"]


class LPLayerNorm(nn.LayerNorm):
    """A layer normalisation that autocast does not widen.

    Autocast runs normalisations in single precision and hands wide activations on. Under it this
    one casts its input and its parameters to the narrow type instead; without it, it is the plain
    layer.

    Example:
        >>> from composer.algorithms._surgery import recast
        >>> layer = recast(nn.LayerNorm(4), LPLayerNorm)
        >>> with torch.autocast("cpu", torch.bfloat16):
        ...     layer(torch.ones(2, 4)).dtype
        torch.bfloat16
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise.

        Args:
            x: What the plain layer takes.

        Returns:
            What the plain layer gives, in autocast's type where it is on.

        Example:
            >>> from composer.algorithms._surgery import recast
            >>> recast(nn.LayerNorm(4), LPLayerNorm)(torch.ones(2, 4)).dtype
            torch.float32
        """
        x, weight, bias = to_autocast(x, self.weight, self.bias)  # type: ignore[assignment]
        with torch.autocast(x.device.type, enabled=False):
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)
