"""Models that the trainer can train, and the contract for one's own."""

from __future__ import annotations

from composer.core.model import ComposerModel
from composer.models.classifier import ComposerClassifier
from composer.models.initializers import Initializer
from composer.models.resnet_cifar import ResNetCIFAR, composer_resnet_cifar
from composer.utils.suggestions import names_that_come_later

__all__ = [
    "ComposerClassifier",
    "ComposerModel",
    "Initializer",
    "ResNetCIFAR",
    "composer_resnet_cifar",
]

__getattr__ = names_that_come_later(
    __name__,
    (
        "HuggingFaceModel",
        "write_huggingface_pretrained_from_composer_checkpoint",
    ),
)
