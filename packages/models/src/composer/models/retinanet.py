"""A detector: RetinaNet on a residual network with a feature pyramid, that of torchvision.

Lin et al., Focal Loss for Dense Object Detection (2017). The bias of the classifier starts so that
an object is believed in with a probability of 0.01, as the paper says.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from composer.models._torchvision import check_weights, import_torchvision
from composer.models.detection import ComposerDetector
from composer.models.origin import remembers_origin
from composer.utils.checks import check_choice, check_integer

__all__ = ["composer_retinanet"]

_BACKBONES = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")


@remembers_origin("composer_retinanet", forget=["backbone_weights"])
def composer_retinanet(
    num_classes: int,
    backbone_arch: str = "resnet50",
    backbone_weights: Any | None = None,
    min_size: int = 800,
    max_size: int = 1333,
    trainable_layers: int | None = None,
) -> ComposerDetector:
    """Build a detector around RetinaNet.

    Needs the extras ``vision`` and ``detection``.

    Args:
        num_classes: Number of classes, with the background, which is class 0.
        backbone_arch: ``"resnet18"``, ``"resnet34"``, ``"resnet50"``, ``"resnet101"`` or
            ``"resnet152"``.
        backbone_weights: Pretrained weights as torchvision names them, for instance ``"DEFAULT"``.
            Their batch normalisation stays as it is; without them it learns.
        min_size: Length to which the shorter side of an image is brought, in pixels.
        max_size: Largest length of the longer side, in pixels.
        trainable_layers: How many of the five stages are trained, from the last one on; three with
            pretrained weights and all without.

    Returns:
        The detector, with mean average precision as its metric.

    Raises:
        ValueError: If a name or a number is not accepted.
        MissingConditionalImportError: If an extra is not installed.

    Example:
        >>> model = composer_retinanet(3, "resnet18", min_size=64, max_size=64)
        >>> import torch
        >>> list(model.eval()(([torch.zeros(3, 64, 64)], None))[0])
        ['boxes', 'scores', 'labels']
    """
    check_integer("num_classes", num_classes, low=2)
    check_integer("min_size", min_size, low=1)
    check_integer("max_size", max_size, low=1)
    if max_size < min_size:
        raise ValueError(f"max_size={max_size} must be at least min_size={min_size}")
    check_choice("backbone_arch", backbone_arch, _BACKBONES)
    if trainable_layers is None:
        trainable_layers = 5 if backbone_weights is None else 3
    check_integer("trainable_layers", trainable_layers, low=0)
    if trainable_layers > 5:
        raise ValueError(f"trainable_layers={trainable_layers} must be at most 5")
    import_torchvision()
    check_weights("backbone_weights", backbone_weights, backbone_arch)
    from torchvision.models.detection import RetinaNet
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7
    from torchvision.ops.misc import FrozenBatchNorm2d

    deepest = 512 if backbone_arch in ("resnet18", "resnet34") else 2048
    backbone = resnet_fpn_backbone(
        backbone_name=backbone_arch,
        weights=backbone_weights,
        # Frozen statistics mean something only with the weights they were gathered for.
        norm_layer=nn.BatchNorm2d if backbone_weights is None else FrozenBatchNorm2d,
        trainable_layers=trainable_layers,
        returned_layers=[2, 3, 4],
        extra_blocks=LastLevelP6P7(deepest, 256),
    )
    module = RetinaNet(backbone, num_classes, min_size=min_size, max_size=max_size)
    return ComposerDetector(module)
