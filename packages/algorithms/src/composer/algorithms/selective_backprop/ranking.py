"""How selective backprop ranks whole batches of a run."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from composer.algorithms._state import loss_function, precision_context, with_replaced
from composer.algorithms.selective_backprop.functional import frozen_statistics, scaled
from composer.utils.batches import batch_get
from composer.utils.iteration import map_collection

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["first_tensor", "losses_of"]


def losses_of(
    state: State, batch: Any, input_key: Any, target_key: Any, scale_factor: float
) -> Any:
    """Compute the losses of a batch as training would, and leave no trace.

    No gradients, no change of the batch or of running statistics, and random numbers that are drawn
    on the way (by dropout, or by the transforms of microbatches) are given back.

    Args:
        state: The state of the run.
        batch: A batch that still is where the loader put it.
        input_key: Where the samples are.
        target_key: Where the labels are.
        scale_factor: Scale at which images are ranked.

    Returns:
        What the model's loss returns without reduction.

    Raises:
        TypeError: If the model has no loss, or the targets hold no tensor.

    Example:
        >>> from types import SimpleNamespace
        >>> from composer.devices import DeviceCPU
        >>> class Model(torch.nn.Module):
        ...     def forward(self, batch):
        ...         return batch[0]
        ...     def loss(self, outputs, batch, reduction):
        ...         return torch.nn.functional.l1_loss(outputs, batch[1], reduction=reduction)
        >>> state = SimpleNamespace(model=Model(), device=DeviceCPU(), precision="fp32",
        ...                         train_microbatch_transforms=None)
        >>> losses_of(state, (torch.zeros(2), torch.ones(2)), 0, 1, 1.0)
        tensor([1., 1.])
    """
    batch = state.device.batch_to_device(batch)
    device = first_tensor(batch_get(batch, target_key)).device
    transforms = state.train_microbatch_transforms
    with (
        torch.no_grad(),
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        frozen_statistics(state.model),
    ):
        if transforms is not None:
            # They may write into what they get, and training transforms the same batch again.
            batch = transforms(copy.deepcopy(batch))
        if scale_factor < 1:
            images = scaled(batch_get(batch, input_key), scale_factor)
            batch = with_replaced(batch, input_key, images)
        with precision_context(state, device):
            outputs = state.model(batch)
            return loss_function(state)(outputs, batch, reduction="none")


def first_tensor(value: Any) -> torch.Tensor:
    """Return the first tensor with a batch dimension in the targets.

    Args:
        value: The targets.

    Returns:
        The tensor.

    Raises:
        TypeError: If there is none.

    Example:
        >>> first_tensor({"boxes": [torch.ones(2, 4)]}).shape
        torch.Size([2, 4])
    """
    found: list[torch.Tensor] = []

    def note(item: Any) -> None:
        if isinstance(item, torch.Tensor) and item.ndim > 0:
            found.append(item)

    map_collection(value, note)
    if not found:
        raise TypeError(
            f"SelectiveBackprop needs targets with one entry per sample, and these are a "
            f"{type(value).__name__}; set target_key so that it selects them"
        )
    return found[0]
