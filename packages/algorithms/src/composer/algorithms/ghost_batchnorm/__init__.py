"""Ghost batch normalisation (Hoffer et al., 2017)."""

from __future__ import annotations

from composer.algorithms.ghost_batchnorm.algorithm import GhostBatchNorm
from composer.algorithms.ghost_batchnorm.functional import apply_ghost_batchnorm
from composer.algorithms.ghost_batchnorm.layers import (
    GhostBatchNorm1d,
    GhostBatchNorm2d,
    GhostBatchNorm3d,
)

__all__ = [
    "GhostBatchNorm",
    "GhostBatchNorm1d",
    "GhostBatchNorm2d",
    "GhostBatchNorm3d",
    "apply_ghost_batchnorm",
]
