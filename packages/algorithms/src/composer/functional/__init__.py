"""The methods as plain functions on tensors and models, for any training loop."""

from __future__ import annotations

from composer.algorithms.activation_checkpointing.functional import apply_activation_checkpointing
from composer.algorithms.alibi.functional import apply_alibi
from composer.algorithms.augmix.functional import augmix_image
from composer.algorithms.blurpool.functional import apply_blurpool
from composer.algorithms.channels_last.functional import apply_channels_last
from composer.algorithms.colout.functional import colout_batch
from composer.algorithms.compile.functional import apply_compile
from composer.algorithms.cutmix.functional import cutmix_batch
from composer.algorithms.cutout.functional import cutout_batch
from composer.algorithms.ema.functional import compute_ema
from composer.algorithms.factorize.functional import apply_factorization
from composer.algorithms.gated_linear_units.functional import apply_gated_linear_units
from composer.algorithms.ghost_batchnorm.functional import apply_ghost_batchnorm
from composer.algorithms.gradient_clipping.functional import apply_gradient_clipping
from composer.algorithms.gyro_dropout.functional import apply_gyro_dropout
from composer.algorithms.label_smoothing.functional import smooth_labels
from composer.algorithms.layer_freezing.functional import freeze_layers
from composer.algorithms.low_precision_groupnorm.functional import apply_low_precision_groupnorm
from composer.algorithms.low_precision_layernorm.functional import apply_low_precision_layernorm
from composer.algorithms.mixup.functional import mixup_batch
from composer.algorithms.progressive_resizing.functional import resize_batch
from composer.algorithms.randaugment.functional import randaugment_image
from composer.algorithms.scale_schedule.functional import scale_schedule
from composer.algorithms.schedule_free.functional import averaged_weights, make_schedule_free
from composer.algorithms.selective_backprop.functional import (
    select_using_loss,
    should_selective_backprop,
)
from composer.algorithms.seq_length_warmup.functional import set_batch_sequence_length
from composer.algorithms.squeeze_excite.functional import apply_squeeze_excite
from composer.algorithms.stochastic_depth.functional import apply_stochastic_depth
from composer.algorithms.weight_standardization.functional import apply_weight_standardization

__all__ = [
    "apply_activation_checkpointing",
    "apply_alibi",
    "apply_blurpool",
    "apply_channels_last",
    "apply_compile",
    "apply_factorization",
    "apply_gated_linear_units",
    "apply_ghost_batchnorm",
    "apply_gradient_clipping",
    "apply_gyro_dropout",
    "apply_low_precision_groupnorm",
    "apply_low_precision_layernorm",
    "apply_squeeze_excite",
    "apply_stochastic_depth",
    "apply_weight_standardization",
    "augmix_image",
    "averaged_weights",
    "colout_batch",
    "compute_ema",
    "cutmix_batch",
    "cutout_batch",
    "freeze_layers",
    "make_schedule_free",
    "mixup_batch",
    "randaugment_image",
    "resize_batch",
    "scale_schedule",
    "select_using_loss",
    "set_batch_sequence_length",
    "should_selective_backprop",
    "smooth_labels",
]
