"""Add a transform to a torchvision dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from composer.utils.imports import MissingConditionalImportError

__all__ = ["add_vision_dataset_transform"]


def add_vision_dataset_transform(
    dataset: Any, transform: Callable[[Any], Any], is_tensor_transform: bool = False
) -> None:
    """Add a transform to those of a torchvision dataset, in place.

    Args:
        dataset: The dataset, with a ``transform`` attribute.
        transform: The transform.
        is_tensor_transform: Whether it takes tensors: then it goes right after the ``ToTensor`` (or
            ``ToImage``) of the dataset, or to the end if there is none; else right before it.

    Raises:
        MissingConditionalImportError: If torchvision is not installed.

    Example:
        >>> from types import SimpleNamespace
        >>> dataset = SimpleNamespace(transform=None)
        >>> add_vision_dataset_transform(dataset, abs)
        >>> dataset.transform
        <built-in function abs>
    """
    if dataset.transform is None:
        dataset.transform = transform
        return
    try:
        from torchvision import transforms
    except ImportError as error:
        raise MissingConditionalImportError(
            "vision", "torchvision", distribution="composer-core"
        ) from error
    steps = dataset.transform
    steps = list(steps.transforms) if isinstance(steps, transforms.Compose) else [steps]
    converters = ("ToTensor", "ToImage", "PILToTensor")
    positions = [i for i, step in enumerate(steps) if type(step).__name__ in converters]
    if positions:
        steps.insert(positions[0] + int(is_tensor_transform), transform)
    else:
        steps.append(transform)
    dataset.transform = transforms.Compose(steps)
