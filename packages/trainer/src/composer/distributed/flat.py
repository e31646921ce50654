"""Exchanges of many small tensors as few large ones, and what goes that way: a model's buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from composer.utils import dist
from composer.utils.modules import KeptBuffers

__all__ = ["buffers_shared", "exchange_flat", "share_buffers"]

_BUCKET_SIZE = 1 << 23


def exchange_flat(
    tensors: Sequence[torch.Tensor], exchange: Callable[[torch.Tensor], None]
) -> None:
    """Exchange tensors in place, those of one type and place together.

    Args:
        tensors: In the same order, and of the same shapes and types, on every rank.
        exchange: Changes a flat tensor in place, on every rank alike.

    Example:
        >>> parts = [torch.ones(2), torch.ones(2, 2)]
        >>> exchange_flat(parts, lambda flat: print(tuple(flat.shape)))
        (6,)
    """
    for bucket in _buckets(tensors):
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        exchange(flat)
        pieces = flat.split([tensor.numel() for tensor in bucket])
        for tensor, piece in zip(bucket, pieces, strict=True):
            tensor.copy_(piece.view_as(tensor))


def share_buffers(module: torch.nn.Module) -> None:
    """Give every rank the buffers of rank zero, such as the statistics of batch norm.

    Each rank's forward passes move its own, and a data-parallel wrapper evens that out at the next
    forward pass only, or never where gradients are averaged by hand. Every rank makes this call.

    Args:
        module: The model, equally built on every rank.

    Example:
        >>> share_buffers(torch.nn.BatchNorm1d(2))
    """
    if dist.get_world_size() == 1:
        return
    # Torch's own mark of what a user wants to keep apart on each rank.
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    named = module.named_buffers()
    buffers = [buffer for name, buffer in named if name not in ignored and buffer.numel()]
    with torch.no_grad():
        # As bytes, which every backend carries, whatever the type.
        exchange_flat(buffers, lambda flat: dist.broadcast(flat.view(torch.uint8), src=0))


@contextmanager
def buffers_shared(module: torch.nn.Module) -> Iterator[None]:
    """Let every rank have the buffers of rank zero for a while, and its own again afterwards.

    What is read while training, such as a running mean without a data-parallel wrapper that evens
    it out, so is the same whether a run was evaluated in between or not. Rank zero's, and those of
    a process on its own, are not touched. Every rank makes this call.

    Args:
        module: The model, equally built on every rank.

    Yields:
        Nothing.

    Example:
        >>> with buffers_shared(torch.nn.BatchNorm1d(2)):
        ...     pass
    """
    kept = KeptBuffers(module) if dist.get_global_rank() else None
    share_buffers(module)
    try:
        yield
    finally:
        if kept is not None:
            kept.put_back()


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Group tensors of one type and place, so that few exchanges do and little is copied."""
    bucket: list[torch.Tensor] = []
    room = 0
    for tensor in tensors:
        alike = bucket and (bucket[0].dtype, bucket[0].device) == (tensor.dtype, tensor.device)
        if not alike or tensor.numel() > room:
            if bucket:
                yield bucket
            bucket, room = [], _BUCKET_SIZE
        bucket.append(tensor)
        room -= tensor.numel()
    if bucket:
        yield bucket
