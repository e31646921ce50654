"""Methods that make training faster or better, each as a class; the functions are beside them."""

from __future__ import annotations

from composer.algorithms.blurpool import BlurPool
from composer.algorithms.channels_last import ChannelsLast
from composer.algorithms.cutmix import CutMix
from composer.algorithms.cutout import CutOut
from composer.algorithms.ema import EMA
from composer.algorithms.factorize import Factorize
from composer.algorithms.ghost_batchnorm import GhostBatchNorm
from composer.algorithms.gradient_clipping import GradientClipping
from composer.algorithms.label_smoothing import LabelSmoothing
from composer.algorithms.low_precision_groupnorm import LowPrecisionGroupNorm
from composer.algorithms.low_precision_layernorm import LowPrecisionLayerNorm
from composer.algorithms.mixup import MixUp
from composer.algorithms.no_op_model import NoOpModel
from composer.algorithms.progressive_resizing import ProgressiveResizing
from composer.algorithms.sam import SAM
from composer.algorithms.selective_backprop import SelectiveBackprop
from composer.algorithms.squeeze_excite import SqueezeExcite, SqueezeExcite2d, SqueezeExciteConv2d
from composer.algorithms.weight_standardization import WeightStandardization
from composer.utils.suggestions import names_that_come_later

__all__ = [
    "EMA",
    "SAM",
    "BlurPool",
    "ChannelsLast",
    "CutMix",
    "CutOut",
    "Factorize",
    "GhostBatchNorm",
    "GradientClipping",
    "LabelSmoothing",
    "LowPrecisionGroupNorm",
    "LowPrecisionLayerNorm",
    "MixUp",
    "NoOpModel",
    "ProgressiveResizing",
    "SelectiveBackprop",
    "SqueezeExcite",
    "SqueezeExcite2d",
    "SqueezeExciteConv2d",
    "WeightStandardization",
]

__getattr__ = names_that_come_later(
    __name__,
    (
        "Alibi",
        "AugMix",
        "AugmentAndMixTransform",
        "ColOut",
        "ColOutTransform",
        "GatedLinearUnits",
        "GyroDropout",
        "LayerFreezing",
        "RandAugment",
        "RandAugmentTransform",
        "SWA",
        "SeqLengthWarmup",
        "StochasticDepth",
    ),
)
