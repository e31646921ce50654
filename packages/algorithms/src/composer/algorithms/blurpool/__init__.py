"""Blurred pooling (Zhang, 2019)."""

from __future__ import annotations

from composer.algorithms.blurpool.algorithm import BlurPool
from composer.algorithms.blurpool.functional import apply_blurpool, blur_2d, blurmax_pool2d
from composer.algorithms.blurpool.layers import BlurConv2d, BlurMaxPool2d, BlurPool2d

__all__ = [
    "BlurConv2d",
    "BlurMaxPool2d",
    "BlurPool",
    "BlurPool2d",
    "apply_blurpool",
    "blur_2d",
    "blurmax_pool2d",
]
