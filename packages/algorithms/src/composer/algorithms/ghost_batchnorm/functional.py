"""Ghost batch normalisation as surgery on models."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import nn

from composer.algorithms.warnings import NoEffectWarning
from composer.utils.checks import check_integer
from composer.utils.module_surgery import (
    check_surgery,
    count_module_instances,
    replace_module_classes,
)

__all__ = ["apply_ghost_batchnorm", "check_settings"]


def check_settings(ghost_batch_size: int) -> None:
    """Refuse settings that the surgery cannot follow.

    Args:
        ghost_batch_size: Samples of one part.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If it is less than 1.

    Example:
        >>> check_settings(32)
    """
    check_integer("ghost_batch_size", ghost_batch_size, low=1)


def apply_ghost_batchnorm(
    model: nn.Module,
    ghost_batch_size: int = 32,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
) -> None:
    """Make every batch normalisation look at small parts of the batch, in place.

    Weights and running averages are kept, as the same objects and under the same names.

    Args:
        model: The model.
        ghost_batch_size: Samples of one part.
        optimizers: Optimizers to bring up to date.

    Raises:
        ValueError: If ``ghost_batch_size`` is less than 1.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(4))
        >>> apply_ghost_batchnorm(model, ghost_batch_size=2)
        >>> type(model[0]).__name__
        'GhostBatchNorm1d'
    """
    from composer.algorithms.ghost_batchnorm.layers import GHOSTS, make_ghost

    check_surgery(model, optimizers)
    check_settings(ghost_batch_size)

    def replace(module: nn.Module, index: int) -> nn.Module | None:
        del index
        return make_ghost(module, ghost_batch_size)

    replace_module_classes(model, dict.fromkeys(GHOSTS, replace), optimizers=optimizers)
    if not count_module_instances(model, tuple(GHOSTS.values())):
        warnings.warn(
            "GhostBatchNorm found no batch normalisation to replace", NoEffectWarning, stacklevel=2
        )
