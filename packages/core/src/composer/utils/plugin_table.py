"""What can be asked for by name, and which of our distributions brings which name.

Data only, so that reading it costs nothing and a change of it is one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["FIRST_PARTY", "GROUPS", "Group"]


@dataclass(frozen=True)
class Group:
    """What one entry-point group holds.

    Args:
        noun: What one of its members is called in messages.
        contract: ``module:Class`` that instances belong to, or None where any object will do.

    Example:
        >>> GROUPS["composer.callbacks"].noun
        'callback'
    """

    noun: str
    contract: str | None = None


GROUPS: Mapping[str, Group] = MappingProxyType(
    {
        "composer.algorithms": Group("algorithm", "composer.core.algorithm:Algorithm"),
        "composer.callbacks": Group("callback", "composer.core.callback:Callback"),
        "composer.commands": Group("command"),
        "composer.datasets": Group("data set"),
        "composer.devices": Group("device", "composer.devices.base:Device"),
        "composer.loggers": Group("logger", "composer.core.logger:LoggerDestination"),
        "composer.models": Group("model"),
        "composer.object_stores": Group(
            "object store", "composer.utils.object_store.base:ObjectStore"
        ),
        "composer.optimizers": Group("optimizer"),
        "composer.recipes": Group("recipe"),
        "composer.schedulers": Group("scheduler"),
        "composer.surgery_policies": Group("surgery policy"),
    }
)

# What our own distributions bring, as data, so that a name whose distribution is not installed
# leads to the command that installs it. A repository test compares it with their metadata.
FIRST_PARTY: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "composer.algorithms": {
            "composer-algorithms": (
                "activation_checkpointing",
                "alibi",
                "augmix",
                "blurpool",
                "channels_last",
                "colout",
                "compile",
                "cutmix",
                "cutout",
                "ema",
                "factorize",
                "gated_linear_units",
                "ghost_batchnorm",
                "gradient_clipping",
                "gyro_dropout",
                "label_smoothing",
                "layer_freezing",
                "low_precision_groupnorm",
                "low_precision_layernorm",
                "mixup",
                "no_op_model",
                "progressive_resizing",
                "randaugment",
                "sam",
                "scale_schedule",
                "schedule_free",
                "selective_backprop",
                "seq_length_warmup",
                "squeeze_excite",
                "stochastic_depth",
                "swa",
                "weight_standardization",
            ),
        },
        "composer.callbacks": {
            "composer-trainer": (
                "checkpoint_saver",
                "early_stopper",
                "lr_monitor",
                "threshold_stopper",
            ),
        },
        "composer.commands": {
            "composer-models": ("models",),
            "composer-recipes": ("find-microbatch", "train", "verify-resume"),
            "composer-trainer": ("checkpoint", "export", "methods", "plugins"),
        },
        "composer.datasets": {
            "composer-recipes": ("fashion_mnist",),
        },
        "composer.devices": {
            "composer-core": ("cpu", "gpu", "mps"),
        },
        "composer.loggers": {
            "composer-loggers": ("console", "file", "in_memory", "progress_bar"),
        },
        "composer.models": {
            "composer-models": (
                "bert_classification",
                "bert_mlm",
                "composer_classifier",
                "composer_decoder",
                "composer_deeplabv3",
                "composer_detector",
                "composer_diffusion",
                "composer_efficientnet",
                "composer_resnet",
                "composer_resnet_cifar",
                "composer_retinanet",
                "composer_segmenter",
                "composer_timm",
                "composer_unet",
                "composer_vit",
                "gpt2",
                "language_model",
                "mnist_model",
                "resnet9",
            ),
        },
        "composer.object_stores": {
            "composer-core": (
                "az",
                "file",
                "fsspec",
                "gs",
                "hf",
                "libcloud",
                "memory",
                "oci",
                "s3",
                "sftp",
            ),
        },
        "composer.optimizers": {
            "composer-trainer": ("decoupled_adamw", "decoupled_sgdw"),
        },
        "composer.recipes": {
            "composer-recipes": ("fashion_mnist_resnet8",),
        },
        "composer.schedulers": {
            "composer-trainer": (
                "constant",
                "constant_with_warmup",
                "cosine_annealing",
                "cosine_annealing_warm_restarts",
                "cosine_annealing_with_warmup",
                "exponential",
                "linear",
                "linear_with_warmup",
                "multi_step",
                "multi_step_with_warmup",
                "polynomial",
                "polynomial_with_warmup",
                "step",
            ),
        },
        "composer.surgery_policies": {
            "composer-algorithms": ("alibi", "gated_linear_units"),
        },
    }
)
