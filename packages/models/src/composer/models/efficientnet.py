"""EfficientNets, those of torchvision.

Tan and Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks (2019), and the
second version (2021).
"""

from __future__ import annotations

from typing import Any

from composer.models._torchvision import build_network
from composer.models.classifier import ComposerClassifier
from composer.models.origin import remembers_origin
from composer.utils.checks import check_integer, check_number

__all__ = ["composer_efficientnet", "composer_efficientnetb0"]


@remembers_origin("composer_efficientnet", forget=["weights"])
def composer_efficientnet(
    model_name: str = "efficientnet_b0",
    num_classes: int = 1000,
    weights: Any | None = None,
    drop_connect_rate: float = 0.2,
) -> ComposerClassifier:
    """Build a classifier around an EfficientNet of torchvision.

    Needs the extra ``vision``.

    Args:
        model_name: ``efficientnet_b0`` to ``efficientnet_b7``, or ``efficientnet_v2_s``, ``_m``,
            ``_l``.
        num_classes: Number of classes.
        weights: Pretrained weights as torchvision names them, for instance ``"DEFAULT"``.
        drop_connect_rate: Probability that the last block of a sample is skipped in training; it
            grows linearly from zero over the blocks.

    Returns:
        The classifier, with accuracy and cross entropy as metrics.

    Raises:
        ValueError: If a name or a number is not accepted.
        MissingConditionalImportError: If torchvision is not installed.

    Example:
        >>> model = composer_efficientnet()
        >>> sum(p.numel() for p in model.parameters())
        5288548
    """
    check_integer("num_classes", num_classes, low=1)
    check_number("drop_connect_rate", drop_connect_rate, low=0, high=1, open_high=True)
    module = build_network(
        model_name,
        "efficientnet",
        num_classes=num_classes,
        weights=weights,
        stochastic_depth_prob=drop_connect_rate,
    )
    return ComposerClassifier(module)


def composer_efficientnetb0(
    num_classes: int = 1000, drop_connect_rate: float = 0.2
) -> ComposerClassifier:
    """Build a classifier around the smallest EfficientNet.

    Args:
        num_classes: Number of classes.
        drop_connect_rate: Probability that the last block of a sample is skipped in training.

    Returns:
        The classifier.

    Raises:
        ValueError: If a number is not accepted.
        MissingConditionalImportError: If torchvision is not installed.

    Example:
        >>> composer_efficientnetb0(num_classes=7).num_classes
        7
    """
    return composer_efficientnet(num_classes=num_classes, drop_connect_rate=drop_connect_rate)
