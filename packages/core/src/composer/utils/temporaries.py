"""Names of temporary files that say which process writes them, so that what a kill left is told.

A name holds the machine with its boot and its space of process numbers, the process, and the tick
at which that began. Only where all of it is known and that process is gone, the file is surely
left over; of processes of other machines or containers nothing can be told.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import platform
import uuid

__all__ = ["name_of", "temporary_beside", "writer_is_gone"]

_ENDING = ".tmp"
_PROC = pathlib.Path("/proc")


def temporary_beside(path: pathlib.Path) -> pathlib.Path:
    """Return a new temporary name in the folder of a file.

    Args:
        path: The file.

    Returns:
        The path, whose name begins with a dot and ends in ``.tmp``.

    Example:
        >>> temporary_beside(pathlib.Path("runs/ep1.pt")).name.startswith(".ep1.pt.")
        True
    """
    writer = f"{_host()}-{os.getpid():x}-{_begun(os.getpid()):x}"
    return path.with_name(f".{path.name[:200]}.{writer}-{uuid.uuid4().hex[:8]}{_ENDING}")


def name_of(temporary: str) -> str:
    """Return the name of the file that a temporary one was to become.

    Args:
        temporary: Name of the temporary file.

    Returns:
        The name; of a long one the first 200 letters.

    Example:
        >>> name_of(temporary_beside(pathlib.Path("ep1.pt")).name)
        'ep1.pt'
    """
    return temporary.removeprefix(".").removesuffix(_ENDING).rpartition(".")[0]


def writer_is_gone(temporary: str) -> bool:
    """Say whether the process that was writing a temporary file has surely ended.

    Args:
        temporary: Name of the temporary file.

    Returns:
        True only for a process of this machine, boot and container.

    Example:
        >>> writer_is_gone(temporary_beside(pathlib.Path("ep1.pt")).name)
        False
    """
    words = temporary.removesuffix(_ENDING).rpartition(".")[2].split("-")
    if len(words) != 4 or not _host() or words[0] != _host():
        return False
    try:
        process, begun = int(words[1], 16), int(words[2], 16)
    except ValueError:
        return False
    # Numbers of processes are used again; with the tick of its beginning one is told from another.
    return begun > 0 and _begun(process) != begun


@functools.cache
def _host() -> str:
    """What stands for this machine, its boot and its space of process numbers; or nothing."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        space = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{platform.node()} {boot} {space}".encode()).hexdigest()[:8]


def _begun(process: int) -> int:
    """The clock tick at which a process began; 0 if there is none, or if nobody says."""
    try:
        text = (_PROC / str(process) / "stat").read_text(errors="replace")
        # The name of the program may hold anything, also spaces and brackets.
        fields = text.rpartition(")")[2].split()
        # A process that has ended and that its parent has not asked about writes no more.
        return 0 if fields[0] in ("Z", "X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0
