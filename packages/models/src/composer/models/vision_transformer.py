"""Vision transformers, over torchvision's implementation.

Dosovitskiy et al., An Image is Worth 16x16 Words (2020); the small and tiny sizes are those of
Touvron et al., Training data-efficient image transformers (2020). The first weights are those of
torchvision: the patches' like a linear layer's, the last layer's zero.
"""

from __future__ import annotations

import math

from torch import nn

from composer.models._torchvision import import_torchvision
from composer.models.classifier import ComposerClassifier
from composer.models.origin import remembers_origin
from composer.utils.checks import check_choice, check_integer, check_number

__all__ = ["composer_vit", "vit_small_patch16"]

#: Size to hidden size, layers and heads.
_SIZES = {
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
}


@remembers_origin("composer_vit")
def composer_vit(
    size: str = "small",
    num_classes: int = 1000,
    image_size: int = 224,
    patch_size: int = 16,
    in_channels: int = 3,
    dropout: float = 0.0,
    *,
    hidden_size: int | None = None,
    num_layers: int | None = None,
    num_heads: int | None = None,
) -> ComposerClassifier:
    """Build a classifier around a vision transformer.

    Needs the extra ``vision``.

    Args:
        size: ``"tiny"``, ``"small"``, ``"base"`` or ``"large"``.
        num_classes: Number of classes.
        image_size: Height and width of the images, in pixels.
        patch_size: Height and width of a patch, in pixels; divides ``image_size``.
        in_channels: Channels of the images.
        dropout: Share of activations set to zero in training.
        hidden_size: Size of the token vectors, in place of the size's; the feed-forward layers have
            four times as many.
        num_layers: Number of blocks, in place of the size's.
        num_heads: Number of attention heads, in place of the size's; divides ``hidden_size``.

    Returns:
        The classifier, with accuracy and cross entropy as metrics.

    Raises:
        ValueError: If a name or a number is not accepted.
        MissingConditionalImportError: If torchvision is not installed.

    Example:
        >>> model = composer_vit("small")
        >>> sum(p.numel() for p in model.parameters())
        22050664
    """
    check_choice("size", size, _SIZES)
    hidden, layers, heads = _SIZES[size]
    hidden = hidden if hidden_size is None else hidden_size
    layers = layers if num_layers is None else num_layers
    heads = heads if num_heads is None else num_heads
    for name, value in (
        ("num_classes", num_classes),
        ("image_size", image_size),
        ("patch_size", patch_size),
        ("in_channels", in_channels),
        ("hidden_size", hidden),
        ("num_layers", layers),
        ("num_heads", heads),
    ):
        check_integer(name, value, low=1)
    check_number("dropout", dropout, low=0, high=1, open_high=True)
    if image_size % patch_size:
        raise ValueError(f"patch_size={patch_size} must divide image_size={image_size}")
    if hidden % heads:
        raise ValueError(f"num_heads={heads} must divide hidden_size={hidden}")
    module = import_torchvision().VisionTransformer(
        image_size=image_size,
        patch_size=patch_size,
        num_layers=layers,
        num_heads=heads,
        hidden_dim=hidden,
        mlp_dim=4 * hidden,
        dropout=dropout,
        num_classes=num_classes,
    )
    if in_channels != 3:
        module.conv_proj = nn.Conv2d(in_channels, hidden, patch_size, stride=patch_size)
        fan_in = in_channels * patch_size**2
        nn.init.trunc_normal_(module.conv_proj.weight, std=math.sqrt(1 / fan_in))
        nn.init.zeros_(module.conv_proj.bias)
    return ComposerClassifier(module)


def vit_small_patch16(
    num_classes: int = 1000, image_size: int = 224, channels: int = 3, dropout: float = 0.0
) -> ComposerClassifier:
    """Build a classifier around the small vision transformer with patches of 16 pixels.

    Args:
        num_classes: Number of classes.
        image_size: Height and width of the images, in pixels.
        channels: Channels of the images.
        dropout: Share of activations set to zero in training.

    Returns:
        The classifier.

    Raises:
        ValueError: If a number is not accepted.
        MissingConditionalImportError: If torchvision is not installed.

    Example:
        >>> vit_small_patch16(num_classes=4, image_size=32).num_classes
        4
    """
    return composer_vit("small", num_classes, image_size, 16, channels, dropout)
