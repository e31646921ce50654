"""Add a transform to a torchvision dataset."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from composer.utils.imports import MissingConditionalImportError

__all__ = ["add_vision_dataset_transform"]

_CONVERTERS = ("ToTensor", "ToImage", "PILToTensor")
# After these an image has not the values of its file any more.
_RESCALERS = ("ToDtype", "ConvertImageDtype", "Normalize")


def add_vision_dataset_transform(
    dataset: Any, transform: Callable[[Any], Any], is_tensor_transform: bool = False
) -> None:
    """Add a transform to those of a torchvision dataset, in place.

    The list of transforms that the dataset has is left as it was, since another dataset may hold
    it too; a new one takes its place.

    Args:
        dataset: The dataset, with a ``transform`` attribute.
        transform: The transform.
        is_tensor_transform: Whether it takes tensors: then it goes right after the first transform
            of the dataset that makes tensors (``ToTensor``, ``ToImage``, ``PILToTensor``), or to
            the end if there is none. Else it goes right before the first that makes tensors or
            changes their type or range (also ``ToDtype``, ``Normalize``, and the ready-made
            transforms of pretrained weights).

    Raises:
        MissingConditionalImportError: If torchvision is not installed.
        ValueError: If the dataset transforms image and target together, by its ``transforms``.

    Example:
        >>> from types import SimpleNamespace
        >>> dataset = SimpleNamespace(transform=None)
        >>> add_vision_dataset_transform(dataset, abs)
        >>> dataset.transform
        <built-in function abs>
    """
    joint = getattr(dataset, "transforms", None)
    is_standard = type(joint).__name__ == "StandardTransform"
    reads_joint = is_standard or any(c.__name__ == "VisionDataset" for c in type(dataset).__mro__)
    if reads_joint and joint is not None and not is_standard:
        raise ValueError(
            f"the dataset {type(dataset).__name__} has transforms={type(joint).__name__}, which "
            f"takes image and target together, so that a transform of the image alone has no place "
            f"before or behind it; put {transform!r} inside it yourself, or give the dataset "
            f"`transform` and `target_transform` instead"
        )
    dataset.transform = _with_step(dataset.transform, transform, is_tensor_transform)
    if reads_joint:
        # Some datasets of torchvision read `transform`, others this pair, which holds it again.
        from torchvision.datasets.vision import StandardTransform

        target_transform = getattr(dataset, "target_transform", None)
        dataset.transforms = StandardTransform(dataset.transform, target_transform)


def _with_step(current: Any, transform: Callable[[Any], Any], is_tensor_transform: bool) -> Any:
    if current is None:
        return transform
    try:
        from torchvision import transforms
        from torchvision.transforms import v2
    except ImportError as error:
        raise MissingConditionalImportError(
            "vision", "torchvision", distribution="composer-core"
        ) from error
    lists = (transforms.Compose, v2.Compose)
    outer = current if isinstance(current, lists) else transforms.Compose([current])
    found = _inserted(outer, transform, is_tensor_transform, lists)
    return found or _like(outer, [*outer.transforms, transform])


def _inserted(
    steps: Any, transform: Callable[[Any], Any], is_tensor_transform: bool, lists: tuple[type, ...]
) -> Any:
    """Return the list of transforms with one more; ``None`` if none of them makes tensors."""
    for i, step in enumerate(steps.transforms):
        if isinstance(step, lists):
            inner = _inserted(step, transform, is_tensor_transform, lists)
            if inner is not None:
                return _like(steps, [*steps.transforms[:i], inner, *steps.transforms[i + 1 :]])
        elif _is_turning_point(step, is_tensor_transform):
            at = i + int(is_tensor_transform)
            return _like(steps, [*steps.transforms[:at], transform, *steps.transforms[at:]])
    return None


def _is_turning_point(step: Any, is_tensor_transform: bool) -> bool:
    cls = type(step)
    if cls.__name__ in _CONVERTERS:
        return True
    ready_made = cls.__module__ == "torchvision.transforms._presets"
    return not is_tensor_transform and (cls.__name__ in _RESCALERS or ready_made)


def _like(steps: Any, transforms: list[Any]) -> Any:
    made = copy.copy(steps)
    made.transforms = transforms
    return made
