"""What every pass over data without training needs: a loader in use, a model at rest, a limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from composer.utils.modules import model_eval_mode

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["evaluating", "limited", "loader_in_use"]


@contextmanager
def loader_in_use(
    state: State, dataloader: Iterable[Any], label: str, num_batches: int = -1
) -> Iterator[None]:
    """Make a loader the one in use, and put the former back.

    Args:
        state: The state of the run.
        dataloader: The loader.
        label: Its label.
        num_batches: Batches of one pass; -1 for all.

    Yields:
        Nothing.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> with loader_in_use(state, [1, 2], "eval"):
        ...     state.dataloader_label
        'eval'
    """
    before = state.dataloader, state.dataloader_label, state.dataloader_len
    batch, outputs = state.batch, state.outputs
    state.set_dataloader(dataloader, label, num_batches)
    try:
        yield
    finally:
        state.set_dataloader(before[0], before[1], -1 if before[2] is None else before[2])
        state.batch, state.outputs = batch, outputs


@contextmanager
def evaluating(state: State) -> Iterator[None]:
    """Put every algorithm, and the model, into the condition for inference, and back.

    Args:
        state: The state of the run.

    Yields:
        Nothing.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Dropout(), 0, "r", DeviceCPU())
        >>> with evaluating(state):
        ...     state.model.training
        False
    """
    with ExitStack() as stack:
        for algorithm in state.algorithms:
            stack.enter_context(algorithm.evaluating(state))
        stack.enter_context(model_eval_mode(state.model))
        stack.enter_context(torch.no_grad())
        yield


def limited(batches: Iterable[Any], num_batches: int | None) -> Iterator[Any]:
    """Yield at most some batches, without drawing one more.

    Args:
        batches: The batches.
        num_batches: How many; ``None`` for all.

    Yields:
        The batches.

    Example:
        >>> list(limited([1, 2, 3], 2))
        [1, 2]
    """
    if num_batches is None:
        yield from batches
        return
    iterator = iter(batches)
    for _ in range(num_batches):
        try:
            batch = next(iterator)
        except StopIteration:
            return
        yield batch
