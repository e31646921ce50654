"""The look at class indices that several metrics take before they count them."""

from __future__ import annotations

import torch

__all__ = ["check_classes"]


def check_classes(
    argument: str, classes: torch.Tensor, num_classes: int, ignore_index: int | None = None
) -> None:
    """Refuse class indices that are out of range, on the CPU.

    Elsewhere nothing is looked at, because every step would wait for the device.

    Args:
        argument: The argument that holds them.
        classes: The indices that count, of any shape.
        num_classes: Number of classes.
        ignore_index: Index that was taken out before, for the error.

    Raises:
        ValueError: If one is negative or too large.

    Example:
        >>> check_classes("target", torch.tensor([0, 2]), 3)
    """
    if classes.device.type != "cpu" or not classes.numel():
        return
    low, high = (int(bound) for bound in torch.aminmax(classes.to(torch.int64)))
    if low < 0 or high >= num_classes:
        ignored = "" if ignore_index is None else f" and ignore_index={ignore_index}"
        raise ValueError(
            f"{argument} holds the class {low if low < 0 else high}; accepted are 0 to "
            f"{num_classes - 1}{ignored}"
        )
