"""Read the idx files in which the MNIST family of data sets is published.

Nothing but gzip and numpy is needed, so torchvision is not imported for it.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
import torch

__all__ = ["read_idx"]


def read_idx(path: Path, *, algorithm: str, expected: str) -> torch.Tensor:
    """Read a gzip-compressed idx file of unsigned bytes, after checking that it is the right one.

    Args:
        path: The file.
        algorithm: The name of the hash, as ``hashlib`` knows it.
        expected: The hash of the compressed file.

    Returns:
        The values, dtype uint8, in the shape that the file gives.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the hash differs, or the content is not an idx file.

    Example:
        >>> read_idx(Path("missing.gz"), algorithm="md5", expected="0")
        Traceback (most recent call last):
        FileNotFoundError: [Errno 2] No such file or directory: 'missing.gz'
    """
    blob = path.read_bytes()
    found = hashlib.new(algorithm, blob, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ValueError(
            f"{path} is not the file it should be: {algorithm} {found}, expected {expected} "
            f"({len(blob):,} bytes; a download that broke off or another version)"
        )
    try:
        raw = gzip.decompress(blob)
        zero, kind, dims = struct.unpack(">HBB", raw[:4])
        shape = struct.unpack(f">{dims}I", raw[4 : 4 + 4 * dims])
        if zero != 0 or kind != 8:
            raise ValueError(f"header {raw[:4]!r}")
        values = np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)
    except (OSError, EOFError, zlib.error, struct.error, ValueError) as error:
        raise ValueError(f"{path} is not a gzip-compressed idx file of bytes: {error}") from error
    # The buffer belongs to a bytes object, which torch must not write to.
    return torch.from_numpy(values.copy())
