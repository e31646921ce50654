"""Two small networks for small images: a first one to try things with, and a fast one.

``resnet9`` is the nine-layer network that David Page trained CIFAR-10 with in the shortest time of
the DAWNBench competition (How to train your ResNet, 2018).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from composer.models.classifier import ComposerClassifier
from composer.models.initializers import Initializer, initialize
from composer.models.origin import remembers_origin
from composer.utils.checks import check_integer, check_number

__all__ = ["MNISTNet", "ResNet9", "mnist_model", "resnet9"]


class MNISTNet(nn.Module):
    """Two convolutions, an average over areas, two linear layers.

    Args:
        num_classes: Number of classes.
        in_channels: Channels of the images.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> MNISTNet()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 1) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, low=1)
        check_integer("in_channels", in_channels, low=1)
        self.num_classes = num_classes
        self.conv1 = nn.Conv2d(in_channels, 16, 3)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.bn = nn.BatchNorm2d(32)
        self.fc1 = nn.Linear(32 * 16, 32)
        self.fc2 = nn.Linear(32, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the logits.

        Args:
            x: Images of shape (N, in_channels, H, W), with H and W of at least 5.

        Returns:
            Logits of shape (N, num_classes).

        Example:
            >>> MNISTNet(num_classes=3)(torch.zeros(1, 1, 9, 7)).shape
            torch.Size([1, 3])
        """
        x = F.relu(self.conv1(x), inplace=True)
        x = F.relu(self.bn(self.conv2(x)), inplace=True)
        x = F.adaptive_avg_pool2d(x, (4, 4)).flatten(1)
        return self.fc2(F.relu(self.fc1(x), inplace=True))


@remembers_origin("mnist_model")
def mnist_model(
    num_classes: int = 10,
    initializers: Sequence[str | Initializer] | None = None,
    *,
    in_channels: int = 1,
) -> ComposerClassifier:
    """Build a classifier for digits and the like.

    Args:
        num_classes: Number of classes.
        initializers: Ways to set the first weights, applied in order; torch's own by default.
        in_channels: Channels of the images.

    Returns:
        The classifier, with accuracy and cross entropy as metrics.

    Raises:
        ValueError: If a number or an initializer is not accepted.

    Example:
        >>> mnist_model()((torch.zeros(2, 1, 28, 28), None)).shape
        torch.Size([2, 10])
    """
    return ComposerClassifier(initialize(MNISTNet(num_classes, in_channels), initializers))


def _convolution(in_channels: int, out_channels: int, *, pool: bool = False) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, ceil_mode=True) if pool else nn.Identity(),
    )


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _convolution(channels, channels), _convolution(channels, channels)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class ResNet9(nn.Module):
    """Eight convolutions in four stages, two of them with a short cut, and a linear layer.

    Args:
        num_classes: Number of classes.
        width: Channels of the first stage; the last has eight times as many.
        in_channels: Channels of the images.
        logit_scale: What the logits are multiplied by.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> ResNet9(width=8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        num_classes: int = 10,
        *,
        width: int = 64,
        in_channels: int = 3,
        logit_scale: float = 0.125,
    ) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, low=1)
        check_integer("width", width, low=1)
        check_integer("in_channels", in_channels, low=1)
        check_number("logit_scale", logit_scale)
        self.num_classes = num_classes
        self.logit_scale = logit_scale
        self.stages = nn.Sequential(
            _convolution(in_channels, width),
            _convolution(width, 2 * width, pool=True),
            _Residual(2 * width),
            _convolution(2 * width, 4 * width, pool=True),
            _convolution(4 * width, 8 * width, pool=True),
            _Residual(8 * width),
        )
        self.fc = nn.Linear(8 * width, num_classes, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the logits.

        Args:
            x: Images of shape (N, in_channels, H, W).

        Returns:
            Logits of shape (N, num_classes).

        Example:
            >>> ResNet9(3, width=4, in_channels=1)(torch.zeros(1, 1, 9, 7)).shape
            torch.Size([1, 3])
        """
        return self.fc(self.stages(x).amax(dim=(2, 3))) * self.logit_scale


@remembers_origin("resnet9")
def resnet9(
    num_classes: int = 10,
    initializers: Sequence[str | Initializer] | None = None,
    *,
    width: int = 64,
    in_channels: int = 3,
    logit_scale: float = 0.125,
) -> ComposerClassifier:
    """Build a classifier around the nine-layer residual network.

    Args:
        num_classes: Number of classes.
        initializers: Ways to set the first weights, applied in order; torch's own by default, as
            in the source.
        width: Channels of the first stage.
        in_channels: Channels of the images.
        logit_scale: What the logits are multiplied by.

    Returns:
        The classifier, with accuracy and cross entropy as metrics.

    Raises:
        ValueError: If a number or an initializer is not accepted.

    Example:
        >>> model = resnet9()
        >>> sum(p.numel() for p in model.parameters())
        6573120
    """
    module = ResNet9(num_classes, width=width, in_channels=in_channels, logit_scale=logit_scale)
    return ComposerClassifier(initialize(module, initializers))
