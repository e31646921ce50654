"""Residual networks for large images, those of torchvision.

He et al., Deep Residual Learning for Image Recognition (2015), and the wider and grouped kin. The
convolutions start with Kaiming normal weights over the fan-out, as torchvision does by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from composer.loss.registry import loss_registry
from composer.models._torchvision import build_network
from composer.models.classifier import ComposerClassifier
from composer.models.initializers import Initializer, initialize
from composer.models.origin import remembers_origin
from composer.utils.checks import check_choice, check_integer

__all__ = ["composer_resnet"]


@remembers_origin("composer_resnet", forget=["weights"])
def composer_resnet(
    model_name: str = "resnet50",
    num_classes: int = 1000,
    weights: Any | None = None,
    groups: int = 1,
    width_per_group: int = 64,
    initializers: Sequence[str | Initializer] | None = None,
    loss_name: str = "soft_cross_entropy",
) -> ComposerClassifier:
    """Build a classifier around a residual network of torchvision.

    Needs the extra ``vision``.

    Args:
        model_name: ``resnet18``, ``resnet34``, ``resnet50``, ``resnet101`` or ``resnet152``.
        num_classes: Number of classes.
        weights: Pretrained weights as torchvision names them, for instance ``"DEFAULT"``; with
            another number of classes than theirs the last layer starts fresh.
        groups: Groups of the convolutions of the bottlenecks.
        width_per_group: Channels per group of the first stage.
        initializers: Ways to set the first weights, applied in order; torchvision's by default.
        loss_name: A name in ``composer.loss.loss_registry``.

    Returns:
        The classifier, with accuracy and cross entropy as metrics.

    Raises:
        ValueError: If a name or a number is not accepted.
        MissingConditionalImportError: If torchvision is not installed.

    Example:
        >>> model = composer_resnet("resnet50")
        >>> sum(p.numel() for p in model.parameters())
        25557032
    """
    check_integer("num_classes", num_classes, low=1)
    check_integer("groups", groups, low=1)
    check_integer("width_per_group", width_per_group, low=1)
    check_choice("loss_name", loss_name, loss_registry)
    if model_name in ("resnet18", "resnet34") and (groups, width_per_group) != (1, 64):
        raise ValueError(
            f"groups={groups} and width_per_group={width_per_group} are for networks with "
            f"bottlenecks, from resnet50 on; {model_name} takes groups=1 and width_per_group=64"
        )
    module = build_network(
        model_name,
        "resnet",
        num_classes=num_classes,
        weights=weights,
        groups=groups,
        width_per_group=width_per_group,
    )
    return ComposerClassifier(initialize(module, initializers), loss_fn=loss_registry[loss_name])
