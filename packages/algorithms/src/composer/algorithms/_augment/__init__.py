"""Primitives that several augmentations share."""

from __future__ import annotations

from composer.algorithms._augment.boxes import Box, draw_box
from composer.algorithms._augment.mixing import (
    LabelMixer,
    MixingAlgorithm,
    draw_beta,
    draw_dirichlet,
    draw_permutation,
    mix_targets,
    permute,
)

__all__ = [
    "Box",
    "LabelMixer",
    "MixingAlgorithm",
    "draw_beta",
    "draw_box",
    "draw_dirichlet",
    "draw_permutation",
    "mix_targets",
    "permute",
]
