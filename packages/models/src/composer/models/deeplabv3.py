"""DeepLabv3 and DeepLabv3+, on the residual networks of torchvision.

Chen et al., Rethinking Atrous Convolution for Semantic Image Segmentation (2017), and
Encoder-Decoder with Atrous Separable Convolution (2018), which adds a decoder: the features of the
first stage, at a quarter of the image, sharpen the borders of the coarse ones. The pyramid is
torchvision's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from composer.loss.dice import DiceLoss
from composer.loss.losses import soft_cross_entropy
from composer.loss.targets import check_for_index_targets
from composer.models._torchvision import check_weights, import_torchvision
from composer.models.initializers import Initializer, initialize
from composer.models.origin import remembers_origin
from composer.models.segmentation import ComposerSegmenter
from composer.utils.checks import check_bool, check_choice, check_integer, check_number

__all__ = ["DeepLabv3", "composer_deeplabv3"]

_BACKBONES = ("resnet50", "resnet101")
# Channels of the first and the last stage of a bottleneck network, and of the heads, as published.
_LOW, _HIGH, _HEAD, _SIDE = 256, 2048, 256, 48


def _convolution(in_channels: int, out_channels: int, kernel_size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )


class DeepLabv3(nn.Module):
    """A residual network with dilated last stages, a pyramid, and perhaps a decoder.

    Needs the extra ``vision``.

    Args:
        num_classes: Number of classes.
        backbone: ``"resnet50"`` or ``"resnet101"``.
        backbone_weights: Pretrained weights as torchvision names them, for instance ``"DEFAULT"``.
        plus: Whether there is a decoder (DeepLabv3+).

    Raises:
        ValueError: If a name or a number is not accepted.
        MissingConditionalImportError: If torchvision is not installed.

    Example:
        >>> model = DeepLabv3(3, backbone="resnet50").eval()
        >>> model(torch.zeros(1, 3, 40, 33)).shape
        torch.Size([1, 3, 10, 9])
    """

    def __init__(
        self,
        num_classes: int,
        *,
        backbone: str = "resnet101",
        backbone_weights: Any | None = None,
        plus: bool = True,
    ) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, low=1)
        check_choice("backbone", backbone, _BACKBONES)
        check_bool("plus", plus)
        models = import_torchvision()
        check_weights("backbone_weights", backbone_weights, backbone)
        from torchvision.models._utils import IntermediateLayerGetter
        from torchvision.models.segmentation.deeplabv3 import ASPP

        self.num_classes = num_classes
        network = models.get_model(
            backbone,
            weights=backbone_weights,
            replace_stride_with_dilation=[False, True, True],
        )
        self.backbone = IntermediateLayerGetter(network, {"layer1": "low", "layer4": "high"})
        self.pyramid = ASPP(_HIGH, [6, 12, 18] if plus else [12, 24, 36], _HEAD)
        self.side = _convolution(_LOW, _SIDE, 1) if plus else None
        self.head = nn.Sequential(
            *(
                (_convolution(_HEAD + _SIDE, _HEAD, 3), _convolution(_HEAD, _HEAD, 3))
                if plus
                else (_convolution(_HEAD, _HEAD, 3),)
            ),
            nn.Conv2d(_HEAD, num_classes, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the logits.

        Args:
            x: Images of shape (N, 3, H, W).

        Returns:
            Logits at a quarter of the height and width, or an eighth without the decoder.

        Example:
            >>> model = DeepLabv3(2, backbone="resnet50", plus=False).eval()
            >>> model(torch.zeros(1, 3, 32, 32)).shape
            torch.Size([1, 2, 4, 4])
        """
        features = self.backbone(x)
        coarse = self.pyramid(features["high"])
        if self.side is None:
            return self.head(coarse)
        fine = self.side(features["low"])
        coarse = F.interpolate(coarse, size=fine.shape[-2:], mode="bilinear", align_corners=False)
        return self.head(torch.cat([coarse, fine], dim=1))


@remembers_origin("composer_deeplabv3", forget=["backbone_weights"])
def composer_deeplabv3(
    num_classes: int,
    backbone_arch: str = "resnet101",
    backbone_weights: Any | None = None,
    sync_bn: bool = True,
    use_plus: bool = True,
    ignore_index: int = -1,
    cross_entropy_weight: float = 1.0,
    dice_weight: float = 0.0,
    initializers: Sequence[str | Initializer] | None = None,
) -> ComposerSegmenter:
    """Build a segmenter around DeepLabv3+ or DeepLabv3.

    Needs the extra ``vision``.

    Args:
        num_classes: Number of classes.
        backbone_arch: ``"resnet50"`` or ``"resnet101"``.
        backbone_weights: Pretrained weights as torchvision names them, for instance ``"DEFAULT"``.
        sync_bn: Whether batch normalisation looks at the batches of all ranks; of no effect in one
            process.
        use_plus: Whether there is a decoder (DeepLabv3+).
        ignore_index: Label of pixels that do not count.
        cross_entropy_weight: Weight of the cross entropy in the loss.
        dice_weight: Weight of the Dice loss, over classes that are there.
        initializers: Ways to set the first weights, applied in order; torchvision's by default.

    Returns:
        The segmenter, with mean intersection over union and cross entropy as metrics.

    Raises:
        ValueError: If a name or a number is not accepted.
        MissingConditionalImportError: If torchvision is not installed.

    Example:
        >>> model = composer_deeplabv3(4, backbone_arch="resnet50")
        >>> model.num_classes
        4
    """
    for name, weight in (
        ("cross_entropy_weight", cross_entropy_weight),
        ("dice_weight", dice_weight),
    ):
        check_number(name, weight, low=0)
    if not cross_entropy_weight and not dice_weight:
        raise ValueError("cross_entropy_weight=0 and dice_weight=0 leave no loss; give one of them")
    check_bool("sync_bn", sync_bn)
    check_bool("use_plus", use_plus)
    check_choice("backbone_arch", backbone_arch, _BACKBONES)
    module: nn.Module = DeepLabv3(
        num_classes, backbone=backbone_arch, backbone_weights=backbone_weights, plus=use_plus
    )
    if sync_bn:
        from composer.utils import dist

        if dist.get_world_size() > 1:
            module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
    initialize(module, initializers)
    loss_fn = None
    if cross_entropy_weight != 1 or dice_weight:
        loss_fn = _Mixture(cross_entropy_weight, dice_weight, ignore_index)
    return ComposerSegmenter(module, loss_fn=loss_fn, ignore_index=ignore_index)


class _Mixture:
    """Cross entropy and Dice loss, each by its weight, without the pixels that do not count."""

    def __init__(self, cross_entropy: float, dice: float, ignore_index: int) -> None:
        self.weights = cross_entropy, dice
        self.ignore_index = ignore_index
        self.dice = DiceLoss(softmax=True, batch=True, ignore_absent_classes=True)

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        cross_entropy, dice = self.weights
        loss = logits.new_zeros(())
        if cross_entropy:
            loss = loss + cross_entropy * soft_cross_entropy(
                logits, targets, ignore_index=self.ignore_index
            )
        if dice:
            if check_for_index_targets(targets):
                targets = targets.to(torch.int64)
                targets = targets.masked_fill(targets == self.ignore_index, -1)
            loss = loss + dice * self.dice(logits, targets)
        return loss
