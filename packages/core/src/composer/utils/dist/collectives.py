"""Collectives that are no-ops in a single process and size their buffers by the group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as torch_dist

from composer.utils.dist.world import get_global_rank, get_world_size, is_initialized
from composer.utils.suggestions import did_you_mean

__all__ = [
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "any_rank",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "lost_peer",
    "max_over_ranks",
    "sum_over_ranks",
]

TObj = TypeVar("TObj")


def _has_peers() -> bool:
    """Tell whether a collective must run; refuse to skip one that several ranks need."""
    if is_initialized():
        return True
    world_size = get_world_size()
    if world_size == 1:
        return False
    raise RuntimeError(
        f"The world has {world_size} ranks and there is no process group. "
        "Call composer.utils.dist.initialize_dist(device) before the first collective."
    )


def _group_size(group: torch_dist.ProcessGroup | None) -> int:
    size = torch_dist.get_world_size(group)
    if size < 1:
        raise ValueError(
            f"Rank {torch_dist.get_rank()} is not a member of group={group!r}; only members may call."
        )
    return size


def _device_for(group: torch_dist.ProcessGroup | None) -> torch.device:
    """Return the device on which this group exchanges small tensors."""
    backend = torch_dist.get_backend(group)
    if "nccl" in backend and "gloo" not in backend:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


# What gloo writes into the errors of its connections, which have no type of their own.
_TRANSPORT = ("gloo/transport", "Connection closed by peer", "Connection reset by peer")


def lost_peer(error: BaseException) -> str | None:
    """Say in words that an error is about another rank, if it is.

    Args:
        error: What an exchange between ranks met.

    Returns:
        A sentence; ``None`` for an error of this rank's own.

    Example:
        >>> lost_peer(RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed by peer"))[:45]
        'rank 0 does not hear from another rank, which'
        >>> lost_peer(RuntimeError("a shape does not fit")) is None
        True
    """
    told = str(error)
    kinds = (torch_dist.DistBackendError, torch_dist.DistNetworkError)
    if not isinstance(error, kinds) and not any(part in told for part in _TRANSPORT):
        return None
    return (
        f"rank {get_global_rank()} does not hear from another rank, which ended or is too late: "
        f"look at that rank's own error or log, this one only follows from it. If none of them "
        f"failed, one is slower than dist_timeout allows"
    )


def _exchange(collective: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    try:
        collective(*args, **kwargs)
    except RuntimeError as error:
        said = lost_peer(error)
        if said is None:
            raise
        raise RuntimeError(said) from error


def barrier(group: torch_dist.ProcessGroup | None = None) -> None:
    """Wait until all ranks are here.

    Args:
        group: Wait for the members of this group only.

    Raises:
        RuntimeError: If there are several ranks and no process group.

    Example:
        >>> barrier()
    """
    if _has_peers():
        _exchange(torch_dist.barrier, group=group)


def all_reduce(
    tensor: torch.Tensor,
    reduce_operation: str = "SUM",
    group: torch_dist.ProcessGroup | None = None,
) -> None:
    """Reduce a tensor over all ranks, in place.

    Args:
        tensor: Of the same shape and type on every rank.
        reduce_operation: ``SUM``, ``PRODUCT``, ``MIN``, ``MAX``, ``BAND``, ``BOR``, ``BXOR`` or
            ``AVG``.
        group: Reduce over the members of this group only.

    Raises:
        RuntimeError: If there are several ranks and no process group.
        ValueError: If the operation is unknown.

    Example:
        >>> x = torch.ones(2)
        >>> all_reduce(x)
        >>> x.tolist()
        [1.0, 1.0]
    """
    names = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")
    name = reduce_operation.upper()
    if name not in names:
        raise ValueError(
            f"reduce_operation={reduce_operation!r} is unknown; accepted are {', '.join(names)}."
            f"{did_you_mean(name, names)}"
        )
    if _has_peers():
        _exchange(torch_dist.all_reduce, tensor, op=getattr(torch_dist.ReduceOp, name), group=group)


def broadcast(tensor: torch.Tensor, src: int, group: torch_dist.ProcessGroup | None = None) -> None:
    """Copy a tensor from one rank to all, in place.

    Args:
        tensor: Of the same shape and type on every rank.
        src: The global rank to copy from.
        group: Copy to the members of this group only.

    Raises:
        RuntimeError: If there are several ranks and no process group.

    Example:
        >>> broadcast(torch.ones(2), src=0)
    """
    if _has_peers():
        _exchange(torch_dist.broadcast, tensor, src, group=group)


def broadcast_object_list(
    object_list: list[Any], src: int = 0, group: torch_dist.ProcessGroup | None = None
) -> None:
    """Copy a list of picklable objects from one rank to all, in place.

    Args:
        object_list: Of the same length on every rank.
        src: The global rank to copy from.
        group: Copy to the members of this group only.

    Raises:
        RuntimeError: If there are several ranks and no process group.

    Example:
        >>> broadcast_object_list(["run name"])
    """
    if _has_peers():
        _exchange(torch_dist.broadcast_object_list, object_list, src=src, group=group)


def all_gather(
    tensor: torch.Tensor, group: torch_dist.ProcessGroup | None = None
) -> list[torch.Tensor]:
    """Collect a tensor from every rank.

    Args:
        tensor: Of the same shape and type on every rank.
        group: Collect from the members of this group only.

    Returns:
        One tensor for each member, in the order of ranks.

    Raises:
        RuntimeError: If there are several ranks and no process group.
        ValueError: If this rank is not a member of the group.

    Example:
        >>> all_gather(torch.ones(1))
        [tensor([1.])]
    """
    if not _has_peers():
        return [tensor]
    gathered = [torch.empty_like(tensor) for _ in range(_group_size(group))]
    _exchange(torch_dist.all_gather, gathered, tensor.contiguous(), group=group)
    return gathered


def all_gather_object(obj: TObj, group: torch_dist.ProcessGroup | None = None) -> list[TObj]:
    """Collect a picklable object from every rank.

    Args:
        obj: The object of this rank.
        group: Collect from the members of this group only.

    Returns:
        One object for each member, in the order of ranks.

    Raises:
        RuntimeError: If there are several ranks and no process group.
        ValueError: If this rank is not a member of the group.

    Example:
        >>> all_gather_object("a")
        ['a']
    """
    if not _has_peers():
        return [obj]
    gathered: list[Any] = [None] * _group_size(group)
    _exchange(torch_dist.all_gather_object, gathered, obj, group=group)
    return gathered


def any_rank(flag: bool, group: torch_dist.ProcessGroup | None = None) -> bool:
    """Agree on whether anything happened on any rank, before acting on it.

    Args:
        flag: Whether it happened on this rank.
        group: Ask the members of this group only.

    Returns:
        The same answer on every rank.

    Raises:
        RuntimeError: If there are several ranks and no process group.

    Example:
        >>> any_rank(True), any_rank(False)
        (True, False)
    """
    if not _has_peers() or _group_size(group) == 1:
        return bool(flag)
    answer = torch.tensor([int(bool(flag))], dtype=torch.int32, device=_device_for(group))
    _exchange(torch_dist.all_reduce, answer, op=torch_dist.ReduceOp.MAX, group=group)
    return bool(answer.item())


def sum_over_ranks(values: Sequence[float]) -> list[float]:
    """Add numbers over all ranks, in one exchange.

    Args:
        values: As many on every rank.

    Returns:
        The sums, exact for whole numbers below 2**53.

    Raises:
        RuntimeError: If there are several ranks and no process group.

    Example:
        >>> sum_over_ranks([1, 2.5])
        [1.0, 2.5]
    """
    return _reduced(values, torch_dist.ReduceOp.SUM)


def max_over_ranks(values: Sequence[float]) -> list[float]:
    """Find the largest numbers over all ranks, in one exchange.

    Args:
        values: As many on every rank.

    Returns:
        The largest of each.

    Raises:
        RuntimeError: If there are several ranks and no process group.

    Example:
        >>> max_over_ranks([1, 2.5])
        [1.0, 2.5]
    """
    return _reduced(values, torch_dist.ReduceOp.MAX)


def _reduced(values: Sequence[float], operation: Any) -> list[float]:
    if not _has_peers():
        return [float(value) for value in values]
    exchanged = torch.tensor(values, dtype=torch.float64, device=_device_for(None))
    _exchange(torch_dist.all_reduce, exchanged, op=operation)
    reduced: list[float] = exchanged.tolist()
    return reduced
