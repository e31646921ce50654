"""Low-precision group normalisation as surgery on models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from composer.algorithms._surgery import narrow_norms

__all__ = ["apply_low_precision_groupnorm"]


def apply_low_precision_groupnorm(
    model: nn.Module,
    precision: Any | None = None,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
) -> None:
    """Let every group normalisation compute in the type of autocast, in place.

    Weights are kept, as the same objects and under the same names.

    Args:
        model: The model.
        precision: The precision that the model is trained in, ``"amp_fp16"`` or ``"amp_bf16"``;
            with another there is nothing to do, and nothing is done. Unknown by default.
        optimizers: Optimizers to bring up to date.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If there is no such precision.

    Example:
        >>> model = nn.Sequential(nn.GroupNorm(2, 4))
        >>> apply_low_precision_groupnorm(model)
        >>> type(model[0]).__name__
        'LPGroupNorm'
    """
    from composer.algorithms.low_precision_groupnorm.layers import LPGroupNorm

    narrow_norms(
        model,
        nn.GroupNorm,
        LPGroupNorm,
        owner="LowPrecisionGroupNorm",
        precision=precision,
        optimizers=optimizers,
    )
