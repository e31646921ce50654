"""Models that the trainer can train, and the contract for one's own."""

from __future__ import annotations

from composer.core.model import ComposerModel
from composer.models.classifier import ComposerClassifier
from composer.models.initializers import Initializer
from composer.models.resnet_cifar import ResNetCIFAR, composer_resnet_cifar

__all__ = [
    "ComposerClassifier",
    "ComposerModel",
    "Initializer",
    "ResNetCIFAR",
    "composer_resnet_cifar",
]
