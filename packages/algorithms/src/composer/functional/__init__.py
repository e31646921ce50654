"""The methods as plain functions on tensors and models, for any training loop."""

from __future__ import annotations

from composer.algorithms.blurpool.functional import apply_blurpool
from composer.algorithms.channels_last.functional import apply_channels_last
from composer.algorithms.cutmix.functional import cutmix_batch
from composer.algorithms.cutout.functional import cutout_batch
from composer.algorithms.ema.functional import compute_ema
from composer.algorithms.factorize.functional import apply_factorization
from composer.algorithms.ghost_batchnorm.functional import apply_ghost_batchnorm
from composer.algorithms.gradient_clipping.functional import apply_gradient_clipping
from composer.algorithms.label_smoothing.functional import smooth_labels
from composer.algorithms.low_precision_groupnorm.functional import apply_low_precision_groupnorm
from composer.algorithms.low_precision_layernorm.functional import apply_low_precision_layernorm
from composer.algorithms.mixup.functional import mixup_batch
from composer.algorithms.progressive_resizing.functional import resize_batch
from composer.algorithms.selective_backprop.functional import (
    select_using_loss,
    should_selective_backprop,
)
from composer.algorithms.squeeze_excite.functional import apply_squeeze_excite
from composer.algorithms.weight_standardization.functional import apply_weight_standardization
from composer.utils.suggestions import names_that_come_later

__all__ = [
    "apply_blurpool",
    "apply_channels_last",
    "apply_factorization",
    "apply_ghost_batchnorm",
    "apply_gradient_clipping",
    "apply_low_precision_groupnorm",
    "apply_low_precision_layernorm",
    "apply_squeeze_excite",
    "apply_weight_standardization",
    "compute_ema",
    "cutmix_batch",
    "cutout_batch",
    "mixup_batch",
    "resize_batch",
    "select_using_loss",
    "should_selective_backprop",
    "smooth_labels",
]

__getattr__ = names_that_come_later(
    __name__,
    (
        "apply_alibi",
        "apply_gated_linear_units",
        "apply_gyro_dropout",
        "apply_stochastic_depth",
        "augmix_image",
        "colout_batch",
        "freeze_layers",
        "randaugment_image",
        "set_batch_sequence_length",
    ),
)
