"""Who am I, and how many are we.

The process group answers if there is one, else the environment that a launcher sets, else one
process is assumed. A process group and an environment that contradict each other are an error,
since the two would soon be believed in different places.
"""

from __future__ import annotations

import os

import torch.distributed as torch_dist

__all__ = [
    "MissingEnvironmentError",
    "get_global_rank",
    "get_local_rank",
    "get_local_world_size",
    "get_node_rank",
    "get_world_size",
    "is_available",
    "is_initialized",
]


class MissingEnvironmentError(Exception):
    """Several ranks run, and the environment does not say where this one is.

    Example:
        >>> issubclass(MissingEnvironmentError, Exception)
        True
    """


def is_available() -> bool:
    """Tell whether torch was built with distributed support.

    Returns:
        True if it was.

    Example:
        >>> is_available()
        True
    """
    return torch_dist.is_available()


def is_initialized() -> bool:
    """Tell whether there is a process group.

    Returns:
        True if there is.

    Example:
        >>> is_initialized()
        False
    """
    return torch_dist.is_available() and torch_dist.is_initialized()


def _read_environment(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None or text == "":
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"The environment variable {name}={text!r} is not a whole number."
        ) from None


def _check_agreement(variable: str, environment: int | None, group: int) -> int:
    if environment is not None and environment != group:
        raise RuntimeError(
            f"The process group says {group}, the environment variable {variable}={environment}. "
            f"Unset {variable} or set it to {group}."
        )
    return group


def get_world_size() -> int:
    """Count the ranks of the run.

    Returns:
        The number of ranks; 1 if nothing was set up.

    Raises:
        RuntimeError: If the environment contradicts the process group.

    Example:
        >>> get_world_size()
        1
    """
    environment = _read_environment("WORLD_SIZE")
    if is_initialized():
        return _check_agreement("WORLD_SIZE", environment, torch_dist.get_world_size())
    return 1 if environment is None else environment


def get_global_rank(group: torch_dist.ProcessGroup | None = None) -> int:
    """Number this process among all ranks of the run.

    Args:
        group: Number it among the members of this group instead; -1 if it is not one of them.

    Returns:
        The rank, counted from 0.

    Raises:
        RuntimeError: If the environment contradicts the process group.

    Example:
        >>> get_global_rank()
        0
    """
    if is_initialized():
        if group is not None:
            return torch_dist.get_rank(group)
        return _check_agreement("RANK", _read_environment("RANK"), torch_dist.get_rank())
    return _read_environment("RANK") or 0


def _get_local(variables: tuple[str, ...], single: int) -> int:
    """Read a fact that no process group knows; ``single`` is its value for one process."""
    for variable in variables:
        value = _read_environment(variable)
        if value is not None:
            return value
    if is_initialized() and torch_dist.get_world_size() > 1:
        raise MissingEnvironmentError(
            f"There are {torch_dist.get_world_size()} ranks and the environment variable "
            f"{variables[0]} is not set. Start the script with the launcher, or set it on every rank."
        )
    return single


def get_local_world_size() -> int:
    """Count the ranks on this node.

    Returns:
        The number of ranks; 1 if nothing was set up.

    Raises:
        MissingEnvironmentError: If there are several ranks and ``LOCAL_WORLD_SIZE`` is not set.

    Example:
        >>> get_local_world_size()
        1
    """
    return _get_local(("LOCAL_WORLD_SIZE",), 1)


def get_local_rank() -> int:
    """Number this process among the ranks on its node.

    Returns:
        The local rank, counted from 0.

    Raises:
        MissingEnvironmentError: If there are several ranks and ``LOCAL_RANK`` is not set.

    Example:
        >>> get_local_rank()
        0
    """
    return _get_local(("LOCAL_RANK",), 0)


def get_node_rank() -> int:
    """Number this node among the nodes of the run.

    Returns:
        The node rank, counted from 0. ``NODE_RANK`` decides, or the ``GROUP_RANK`` of other
        launchers.

    Raises:
        MissingEnvironmentError: If there are several ranks and neither variable is set.

    Example:
        >>> get_node_rank()
        0
    """
    return _get_local(("NODE_RANK", "GROUP_RANK"), 0)
