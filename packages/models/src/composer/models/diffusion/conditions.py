"""What a diffusion model is told beside the pictures: read from a batch, or given by a user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from composer.loss.targets import check_for_index_targets

__all__ = ["CONDITIONS", "check_conditions", "read_batch"]

#: What a batch may hold beside the pictures, and what networks of diffusers call it.
CONDITIONS = {"labels": "class_labels", "encoder_hidden_states": "encoder_hidden_states"}


def read_batch(batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Find pictures and conditions, these under the names that networks of diffusers use.

    Args:
        batch: A mapping with ``images``, or images and labels.

    Returns:
        The pictures, and name to condition.

    Raises:
        TypeError: If it is neither.
        ValueError: If it holds no picture.

    Example:
        >>> images, conditions = read_batch((torch.zeros(2, 1, 8, 8), torch.tensor([3, 4])))
        >>> list(conditions)
        ['class_labels']
    """
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        batch = {"images": batch[0], "labels": batch[1]}
    if not isinstance(batch, Mapping) or "images" not in batch:
        kind = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
        raise TypeError(
            f"a batch must be a mapping with `images`, or images and labels; got {kind}"
        )
    images = batch["images"]
    if not len(images):
        raise ValueError(
            f"images of shape {tuple(images.shape)} make an empty batch; give at least one"
        )
    conditions = {
        told: batch[name] for name, told in CONDITIONS.items() if batch.get(name) is not None
    }
    return images, conditions


def check_conditions(
    conditions: Mapping[str, Any], num_samples: int, num_classes: int | None
) -> None:
    """Refuse conditions that do not fit the pictures to be drawn.

    The host waits once for the device of the labels, which is nothing beside the steps to come.

    Args:
        conditions: Name, as in a batch, to condition.
        num_samples: Number of pictures.
        num_classes: Number of classes that the network knows, if it does.

    Raises:
        TypeError: If one is unknown or no tensor.
        ValueError: If one is not for as many pictures, or labels are no classes of the network's.

    Example:
        >>> check_conditions({"labels": torch.tensor([3, 4])}, 2, num_classes=10)
    """
    for name, value in conditions.items():
        if name not in CONDITIONS:
            raise TypeError(f"{name!r} is no condition; accepted are {', '.join(CONDITIONS)}")
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name}={value!r} must be a tensor")
        if value.ndim == 0 or len(value) != num_samples:
            raise ValueError(
                f"{name} of shape {tuple(value.shape)} must have one entry per picture, "
                f"num_samples={num_samples}"
            )
    labels = conditions.get("labels")
    if labels is None or num_classes is None:
        return
    if not check_for_index_targets(labels) or labels.ndim != 1:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} and type {labels.dtype} must be classes: "
            f"integers of shape ({num_samples},)"
        )
    low, high = (int(bound) for bound in torch.aminmax(labels.to(torch.int64)))
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"labels hold the class {low if low < 0 else high}; accepted are 0 to {num_classes - 1}"
        )
