"""How methods touch the state of a run: put a value into the batch, ask for the loss."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from composer.core.precision import get_precision_context
from composer.utils.batches import batch_set
from composer.utils.modules import unwrapped_model

if TYPE_CHECKING:
    from composer.core.algorithm import Algorithm
    from composer.core.state import State

__all__ = [
    "loss_function",
    "precision_context",
    "refuse_second",
    "replace_in_batch",
    "with_replaced",
]


def with_replaced(batch: Any, key: Any, value: Any) -> Any:
    """Return a batch with another member, and leave the given one as it was.

    A dataset may hand out the same list, dictionary or object every epoch, so what a method puts in
    must go into a copy of the container.

    Args:
        batch: The batch.
        key: Where the member is.
        value: The new member.

    Returns:
        The new batch.

    Example:
        >>> original = [1, 2]
        >>> with_replaced(original, 0, 5), original
        ([5, 2], [1, 2])
    """
    if isinstance(batch, torch.Tensor):
        batch = batch.clone()
    elif not isinstance(batch, tuple):
        batch = copy.copy(batch)
    return batch_set(batch, key, value)


def replace_in_batch(state: State, key: Any, value: Any) -> None:
    """Replace a member of the current batch, in a copy of its container.

    Args:
        state: The state of the run.
        key: Where the member is.
        value: The new member.

    Example:
        >>> from types import SimpleNamespace
        >>> state = SimpleNamespace(batch={"x": 1})
        >>> replace_in_batch(state, "x", 2)
        >>> state.batch
        {'x': 2}
    """
    state.batch = with_replaced(state.batch, key, value)


def refuse_second(method: Algorithm, state: State) -> None:
    """Refuse a run that has a method twice.

    Args:
        method: The method.
        state: The state of the run.

    Raises:
        ValueError: If there is another one of its kind.

    Example:
        >>> from composer.algorithms import EMA
        >>> from types import SimpleNamespace
        >>> method = EMA()
        >>> refuse_second(method, SimpleNamespace(algorithms=[method]))
    """
    twins = [other for other in state.algorithms if isinstance(other, type(method))]
    if len(twins) > 1:
        raise ValueError(
            f"one run has room for one {type(method).__name__}, but algorithms holds "
            f"{len(twins)}: {twins}; keep one of them"
        )


def loss_function(state: State) -> Callable[..., Any]:
    """Return the model's loss.

    Args:
        state: The state of the run.

    Returns:
        A function of outputs and batch.

    Raises:
        TypeError: If the model has none.

    Example:
        >>> from types import SimpleNamespace
        >>> class Model(torch.nn.Module):
        ...     def loss(self, outputs, batch):
        ...         return 1.0
        >>> loss_function(SimpleNamespace(model=Model()))(None, None)
        1.0
    """
    loss = getattr(unwrapped_model(state.model), "loss", None)
    if not callable(loss):
        raise TypeError(
            f"the model is a {type(state.model).__name__} and has no `loss(outputs, batch)`; "
            f"make it a ComposerModel"
        )
    return loss


def precision_context(state: State, device: torch.device) -> AbstractContextManager[Any]:
    """Return the context that training uses for forward pass and loss.

    Args:
        state: The state of the run.
        device: Where the tensors are.

    Returns:
        The context manager.

    Example:
        >>> from types import SimpleNamespace
        >>> with precision_context(SimpleNamespace(precision="amp_bf16"), torch.device("cpu")):
        ...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
        torch.bfloat16
    """
    return get_precision_context(state.precision, device_type=device.type)
