"""Let one rank of a node go first.

A barrier times out when the first rank has a big file to fetch; waiting for a file does not. Both
ways are here.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

from composer.utils.dist.collectives import barrier, broadcast_object_list
from composer.utils.dist.world import get_local_rank, get_node_rank

__all__ = [
    "busy_wait_for_local_rank_zero",
    "get_node_signal_file_name",
    "local_rank_zero_download_and_wait",
    "run_local_rank_zero_first",
    "write_signal_file",
]

_POLL_SECONDS = 0.1


def _wait_for_file(path: Path) -> None:
    while not path.exists():
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def run_local_rank_zero_first() -> Iterator[None]:
    """Run a block on local rank 0 of each node, and then on the others.

    The others wait in a barrier, so the block must take less than the time-out of the process
    group.

    Yields:
        Nothing.

    Example:
        >>> with run_local_rank_zero_first():
        ...     print("download")
        download
    """
    first = get_local_rank() == 0
    if not first:
        barrier()
    try:
        yield
    finally:
        # Also after an error, so that the others do not wait for a rank that gave up.
        if first:
            barrier()


@contextlib.contextmanager
def local_rank_zero_download_and_wait(expected_file_path: str) -> Iterator[None]:
    """Run a block that fetches a file, with all ranks but local rank 0 waiting for the file first.

    Args:
        expected_file_path: The file that the block writes on local rank 0. It must appear complete,
            that is by renaming.

    Yields:
        Nothing.

    Example:
        >>> with local_rank_zero_download_and_wait("/nowhere"):
        ...     print("download")
        download
    """
    if get_local_rank() != 0:
        _wait_for_file(Path(expected_file_path))
    yield


def get_node_signal_file_name(rng: random.Random | None = None) -> str:
    """Agree on a file name that no other run on this machine uses.

    Args:
        rng: The generator for the random part; by default the operating system's.

    Returns:
        The name, equal on the ranks of a node and different between nodes.

    Example:
        >>> get_node_signal_file_name(random.Random(0)).startswith(".node_0_")
        True
    """
    source = random.SystemRandom() if rng is None else rng
    parts = ["".join(source.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(12))]
    broadcast_object_list(parts, src=0)
    return f".node_{get_node_rank()}_{parts[0]}_done"


def write_signal_file(signal_file_name: str, dir_path: str | None = None) -> str:
    """Tell the ranks of this node that local rank 0 is done; the others write nothing.

    Args:
        signal_file_name: The name, from ``get_node_signal_file_name``.
        dir_path: A folder that all ranks of the node see; by default the working folder.

    Returns:
        The path of the file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(write_signal_file("done", folder)).exists()
        True
    """
    path = _signal_path(signal_file_name, dir_path)
    if get_local_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("done", encoding="utf-8")
    return str(path)


def _signal_path(name: str, dir_path: str | None) -> Path:
    return Path.cwd() / name if dir_path is None else Path(dir_path) / name


@contextlib.contextmanager
def busy_wait_for_local_rank_zero(dir_path: str | None = None) -> Iterator[None]:
    """Run a block on local rank 0 of each node, and then on the others, however long it takes.

    Args:
        dir_path: A folder that all ranks of the node see; by default the working folder.

    Yields:
        Nothing.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, busy_wait_for_local_rank_zero(folder):
        ...     print("download")
        download
    """
    name = get_node_signal_file_name()
    path = _signal_path(name, dir_path)
    first = get_local_rank() == 0
    if not first:
        _wait_for_file(path)
    try:
        yield
    finally:
        if first:
            write_signal_file(name, dir_path)
        barrier()
        if first:
            path.unlink()
