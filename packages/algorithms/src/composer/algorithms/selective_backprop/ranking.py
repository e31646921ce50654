"""How selective backprop ranks whole batches of a run."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import torch

from composer.algorithms._state import loss_function, precision_context, with_replaced
from composer.algorithms.selective_backprop.functional import (
    frozen_statistics,
    per_sample,
    scaled,
)
from composer.algorithms.selective_backprop.thinning import LEAST, Thinning
from composer.utils.batches import batch_get
from composer.utils.iteration import map_collection
from composer.utils.oom import is_out_of_memory

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["Ranking", "first_tensor", "losses_of"]


class Ranking:
    """Computes the losses of batches in parts no larger than those that train.

    So it needs no more memory than training does. While the size of a microbatch is looked for, a
    ranking that runs out of memory is done again in smaller parts; nothing that it did remains.

    Args:
        input_key: Where the samples are.
        target_key: Where the labels are.
        scale_factor: Scale at which images are ranked.

    Example:
        >>> from types import SimpleNamespace
        >>> from composer.devices import DeviceCPU
        >>> class Model(torch.nn.Module):
        ...     def forward(self, batch):
        ...         return batch[0]
        ...     def loss(self, outputs, batch, reduction):
        ...         return torch.nn.functional.l1_loss(outputs, batch[1], reduction=reduction)
        >>> state = SimpleNamespace(model=Model(), device=DeviceCPU(), precision="fp32",
        ...                         train_microbatch_transforms=None,
        ...                         device_train_microbatch_size=2)
        >>> batch = (torch.zeros(4), torch.arange(4.0))
        >>> Ranking(0, 1, 1.0).losses(state, batch, 4, Thinning([0, 1]))
        tensor([0., 1., 2., 3.])
    """

    def __init__(self, input_key: Any, target_key: Any, scale_factor: float) -> None:
        self._settings = (input_key, target_key, scale_factor)
        # The most samples at a time, once there was no memory for more.
        self._most: int | None = None

    def losses(
        self, state: State, batch: Any, num_samples: int, thinning: Thinning
    ) -> torch.Tensor:
        """Compute one loss per sample; see :func:`losses_of`.

        Args:
            state: The state of the run.
            batch: The batch.
            num_samples: Number of samples in the batch.
            thinning: Takes parts out of the batch.

        Returns:
            The losses, of shape (N,).

        Raises:
            TypeError: If the model's loss does not give one value per sample.
        """
        while True:
            size = state.device_train_microbatch_size or num_samples
            size = max(LEAST, int(min(size, num_samples, self._most or num_samples)))
            try:
                return self._in_parts(state, batch, num_samples, size, thinning)
            except Exception as error:
                if size <= LEAST or not state.auto_microbatching or not is_out_of_memory(error):
                    raise
            # Outside, where the error's frames hold nothing back any more.
            self._most = size // 2
            state.device.release_memory()

    def _in_parts(
        self, state: State, batch: Any, num_samples: int, size: int, thinning: Thinning
    ) -> torch.Tensor:
        num_parts = max(1, min(math.ceil(num_samples / size), num_samples // LEAST))
        if num_parts == 1:
            return per_sample(losses_of(state, batch, *self._settings), num_samples)
        found = []
        for part in torch.arange(num_samples).tensor_split(num_parts):
            few = thinning.select(batch, part, num_samples)
            found.append(per_sample(losses_of(state, few, *self._settings), len(part)))
        return torch.cat(found)


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
