"""Residual networks for small images, such as those of CIFAR and Fashion-MNIST.

The family of He et al., Deep Residual Learning for Image Recognition (2015), section 4.2: a 3x3
stem without pooling and three stages of basic blocks, 6n + 2 layers deep. Where a stage halves the
image the short cut is a strided 1x1 convolution.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from composer.models.classifier import ComposerClassifier
from composer.models.initializers import Initializer, initialize
from composer.models.origin import remembers_origin
from composer.utils.checks import check_integer

__all__ = ["ResNetCIFAR", "composer_resnet_cifar"]


class _BasicBlock(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x), inplace=True)


class ResNetCIFAR(nn.Module):
    """A residual network with three stages.

    Args:
        depth: Number of layers with weights: 6n + 2, so 8, 14, 20, 32, 44, 56, 110, ...
        num_classes: Number of classes.
        width: Channels of the first stage; the others have twice and four times as many.
        in_channels: Channels of the images.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> ResNetCIFAR(8, num_classes=10, width=8, in_channels=1)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, depth: int, *, num_classes: int = 10, width: int = 16, in_channels: int = 3
    ) -> None:
        super().__init__()
        check_integer("depth", depth, low=8)
        if (depth - 2) % 6:
            raise ValueError(f"depth={depth} must be 6n + 2 with n of at least 1: 8, 14, 20, ...")
        check_integer("num_classes", num_classes, low=1)
        check_integer("width", width, low=1)
        check_integer("in_channels", in_channels, low=1)
        self.num_classes = num_classes
        self.conv1 = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        channels = width
        for out_channels, stride in ((width, 1), (2 * width, 2), (4 * width, 2)):
            for index in range((depth - 2) // 6):
                blocks.append(_BasicBlock(channels, out_channels, stride if index == 0 else 1))
                channels = out_channels
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the logits.

        Args:
            x: Images of shape (N, in_channels, H, W).

        Returns:
            Logits of shape (N, num_classes).

        Example:
            >>> ResNetCIFAR(8, width=4)(torch.zeros(1, 3, 32, 32)).shape
            torch.Size([1, 10])
        """
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return self.fc(self.blocks(x).mean(dim=(2, 3)))


@remembers_origin("composer_resnet_cifar")
def composer_resnet_cifar(
    model_name: str = "resnet_20",
    num_classes: int = 10,
    initializers: Sequence[str | Initializer] | None = None,
    *,
    width: int = 16,
    in_channels: int = 3,
) -> ComposerClassifier:
    """Build a classifier for small images around a residual network.

    Args:
        model_name: ``resnet_`` and the depth, for instance ``resnet_8``, ``resnet_20`` or
            ``resnet_56``.
        num_classes: Number of classes.
        initializers: Ways to set the first weights, applied in order; by default
            ``kaiming_normal`` and ``bn_ones``.
        width: Channels of the first stage.
        in_channels: Channels of the images.

    Returns:
        The classifier, with accuracy and cross entropy as metrics.

    Raises:
        ValueError: If the name or a number is not accepted.

    Example:
        >>> model = composer_resnet_cifar("resnet_8", width=8, in_channels=1)
        >>> sum(p.numel() for p in model.parameters())
        19810
    """
    match = re.fullmatch(r"resnet_?(\d+)", str(model_name))
    if match is None:
        raise ValueError(
            f"model_name={model_name!r} is unknown; accepted are 'resnet_8', 'resnet_20', "
            f"'resnet_56' and other depths of the form 6n + 2"
        )
    module = ResNetCIFAR(
        int(match[1]), num_classes=num_classes, width=width, in_channels=in_channels
    )
    initialize(module, initializers, default=(Initializer.KAIMING_NORMAL, Initializer.BN_ONES))
    return ComposerClassifier(module)
