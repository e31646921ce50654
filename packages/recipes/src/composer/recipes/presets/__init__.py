"""The recipes that ship with the package; each function gives the path of one.

They are registered as entry points, like the recipes of any other distribution.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["fashion_mnist_resnet8"]


def fashion_mnist_resnet8() -> Path:
    """Return the default recipe: a small residual network on the embedded data.

    Returns:
        The path of the YAML file.

    Example:
        >>> fashion_mnist_resnet8().name
        'fashion_mnist_resnet8.yaml'
    """
    return Path(__file__).parent / "fashion_mnist_resnet8.yaml"
