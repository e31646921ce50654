"""Start the process group."""

from __future__ import annotations

import atexit
import datetime
import os
import time
from typing import Any, Protocol

import torch.distributed as torch_dist

from composer._lazy import import_home
from composer.utils.dist.world import get_world_size, is_available, is_initialized

__all__ = ["initialize_dist"]

_SINGLE_PROCESS = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "NODE_RANK": "0",
}

# In seconds; what waits for it needs microseconds, and on a busy machine its turn.
_MOMENT = 0.2


class _HasBackend(Protocol):
    name: str
    dist_backend: str


def initialize_dist(device: str | Any | None = None, timeout: float = 300.0) -> None:
    """Start the process group with the backend of a device. Does nothing if it runs already.

    In a single process, with nothing set by a launcher, the group needs no network.

    Args:
        device: A device, its name, or ``None`` for the best one of this machine.
        timeout: Seconds that a collective may take.

    Raises:
        RuntimeError: If a process group with another backend runs, or the device has no backend and
            there are several ranks.

    Example:
        >>> import torch.distributed
        >>> initialize_dist("cpu")
        >>> torch.distributed.get_backend()
        'gloo'
        >>> torch.distributed.destroy_process_group()
    """
    # Devices are above this floor, so they are reached by name.
    devices = import_home("composer.devices.select", wanted="composer.devices")
    resolved: _HasBackend = devices.get_device(device)
    wanted = resolved.dist_backend
    if is_initialized():
        running = torch_dist.get_backend()
        if wanted and running not in (wanted, "undefined"):
            raise RuntimeError(
                f"The process group runs with the backend {running!r}; device "
                f"{resolved.name!r} needs {wanted!r}."
            )
        return
    world_size = get_world_size()
    if not wanted or not is_available():
        if world_size > 1:
            raise RuntimeError(
                f"Device {resolved.name!r} has no distributed backend, and there are {world_size} "
                "ranks."
            )
        return
    delta = datetime.timedelta(seconds=timeout)
    if all(os.environ.get(name, value) == value for name, value in _SINGLE_PROCESS.items()):
        store = torch_dist.HashStore()
        torch_dist.init_process_group(wanted, store=store, world_size=1, rank=0, timeout=delta)
        return
    missing = [
        name
        for name in (*_SINGLE_PROCESS, "MASTER_ADDR", "MASTER_PORT")
        if name not in os.environ and not (name == "NODE_RANK" and "GROUP_RANK" in os.environ)
    ]
    if missing:
        raise RuntimeError(
            f"There are {world_size} ranks and these environment variables are not set: "
            f"{', '.join(missing)}. Start the script with the launcher, or set them on every rank."
        )
    torch_dist.init_process_group(wanted, timeout=delta)
    atexit.register(_let_threads_finish)


def _let_threads_finish() -> None:
    """Wait a moment before the interpreter goes, where other threads may still need it.

    A thread of gloo's lets go of the tensors of the last exchange only after that has returned
    here. It needs the interpreter for this, and one that is gone by then aborts the process, after
    all is done: the launcher would count a run that succeeded as failed. Sleeping lets it through;
    ending the process group would not, since a data-parallel wrapper keeps its threads.
    """
    if is_initialized():
        time.sleep(_MOMENT)
