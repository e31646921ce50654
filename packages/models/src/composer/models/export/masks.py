"""Masks of attention that torch's exporters can follow, of transformers before 5.

Those releases compute a mask number by number, by a function that ``torch.vmap`` lays over all
positions. A trace loses its way in there, and a program of ``torch.export`` that holds it cannot be
saved. The same function, given all positions at once, computes the same mask; transformers 5 calls
it so by itself. Only the capture sees this: what an export is compared with computes as ever.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["followable_masks"]


@contextlib.contextmanager
def followable_masks() -> Iterator[None]:
    """Let transformers before 5, if it is in use, compute masks of all positions at once.

    Yields:
        Nothing.

    Example:
        >>> with followable_masks():
        ...     exported = torch.export.export(torch.nn.Linear(2, 1), (torch.zeros(3, 2),))
    """
    module: Any = sys.modules.get("transformers.masking_utils")
    if not hasattr(module, "_vmap_for_bhqkv"):
        yield
        return
    own = module._vmap_for_bhqkv, module.TransformGetItemToIndex
    # Under vmap a tensor cannot be an index, and the second replaces indexing by a function that
    # can be mapped but not exported.
    module._vmap_for_bhqkv, module.TransformGetItemToIndex = _at_once, contextlib.nullcontext
    try:
        yield
    finally:
        module._vmap_for_bhqkv, module.TransformGetItemToIndex = own


def _at_once(
    mask_function: Callable[..., torch.Tensor], bh_indices: bool = True
) -> Callable[..., torch.Tensor]:
    """What ``torch.vmap`` over batch, head, query and key returns, by dimensions of their own."""

    def masked(batch: Any, head: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        sizes = [query.shape[0], key.shape[0]]
        query, key = query[:, None], key[None, :]
        if bh_indices:
            sizes = [batch.shape[0], head.shape[0], *sizes]
            batch, head = batch[:, None, None, None], head[None, :, None, None]
        # A mask that does not look at a dimension is the same along it.
        return mask_function(batch, head, query, key).expand(sizes)

    return masked
