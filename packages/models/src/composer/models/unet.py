"""A U-shaped network for segmentation in two dimensions.

Ronneberger et al., U-Net (2015), with two changes that have become usual: convolutions keep the
size of the image, so that the label map has it too, and are followed by batch normalisation.
Weights start Kaiming normal, the standard deviation of the paper: the square root of 2 over the
fan-in.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from composer.models.origin import remembers_origin
from composer.models.segmentation import ComposerSegmenter
from composer.utils.checks import check_integer

__all__ = ["UNet", "composer_unet"]


def _double(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Down by halves, up again, with what was seen on the way down put beside.

    Args:
        num_classes: Number of classes.
        in_channels: Channels of the images.
        width: Channels at full size; each halving doubles them.
        depth: Number of halvings.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> UNet(2, in_channels=1, width=4, depth=2)(torch.zeros(1, 1, 13, 10)).shape
        torch.Size([1, 2, 13, 10])
    """

    def __init__(
        self, num_classes: int, *, in_channels: int = 3, width: int = 64, depth: int = 4
    ) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, low=1)
        check_integer("in_channels", in_channels, low=1)
        check_integer("width", width, low=1)
        check_integer("depth", depth, low=1)
        self.num_classes = num_classes
        self.depth = depth
        sizes = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            _double(before, after)
            for before, after in zip([in_channels, *sizes[:-1]], sizes, strict=True)
        )
        pairs = list(zip(sizes[1:], sizes[:-1], strict=True))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(below, here, 2, 2) for below, here in pairs)
        self.merge = nn.ModuleList(_double(below, here) for below, here in pairs)
        self.head = nn.Conv2d(width, num_classes, 1)
        for part in self.modules():
            if isinstance(part, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the logits.

        Args:
            x: Images of shape (N, in_channels, H, W). Sizes that ``2 ** depth`` does not divide are
                halved upwards and cut off on the way back.

        Returns:
            Logits of shape (N, num_classes, H, W).

        Example:
            >>> UNet(3, width=2, depth=1)(torch.zeros(2, 3, 5, 4)).shape
            torch.Size([2, 3, 5, 4])
        """
        seen = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else F.max_pool2d(x, 2, ceil_mode=True))
            seen.append(x)
        seen.pop()
        for enlarge, block in zip(self.up, self.merge, strict=True):
            beside = seen.pop()
            x = enlarge(x)[..., : beside.shape[-2], : beside.shape[-1]]
            x = block(torch.cat([beside, x], dim=1))
        return self.head(x)


@remembers_origin("composer_unet")
def composer_unet(
    num_classes: int,
    *,
    in_channels: int = 3,
    width: int = 64,
    depth: int = 4,
    ignore_index: int = -1,
) -> ComposerSegmenter:
    """Build a segmenter around a U-shaped network.

    Args:
        num_classes: Number of classes.
        in_channels: Channels of the images.
        width: Channels at full size.
        depth: Number of halvings.
        ignore_index: Label of pixels that do not count.

    Returns:
        The segmenter, with mean intersection over union and cross entropy as metrics.

    Raises:
        ValueError: If a number is not accepted.

    Example:
        >>> model = composer_unet(2, in_channels=1, width=4, depth=2)
        >>> model((torch.zeros(1, 1, 8, 8), torch.zeros(1, 8, 8)))["out"].shape
        torch.Size([1, 2, 8, 8])
    """
    module = UNet(num_classes, in_channels=in_channels, width=width, depth=depth)
    return ComposerSegmenter(module, ignore_index=ignore_index)
