"""Objects in the memory of this process, for trying things out and for tests."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, final

from composer.utils.object_store.fsspec_store import FsspecTemplate

__all__ = ["MemoryObjectStore"]


@final
class MemoryObjectStore(FsspecTemplate):
    """Keeps objects in memory; all stores of one process see the same ones.

    Args:
        bucket: The first part of all names.
        prefix: A folder in it.

    Example:
        >>> MemoryObjectStore("shelf").get_uri("ep1.pt")
        'memory://shelf/ep1.pt'
    """

    max_concurrency = 1

    def __init__(self, bucket: str = "", prefix: str = "") -> None:
        super().__init__(f"memory://{bucket}/{prefix}")
        self.bucket = bucket
        self.prefix = prefix

    def _open(self) -> Any:
        import fsspec

        return fsspec.filesystem("memory", skip_instance_cache=True, use_listings_cache=False)

    def _write(
        self, name: str, path: pathlib.Path, report: Callable[[int], None], **kwargs: Any
    ) -> None:
        if kwargs:
            raise TypeError(f"MemoryObjectStore.upload_object takes no {', '.join(kwargs)}.")
        # In one step: the file system shows what is written bit by bit before it is whole.
        self.fs.pipe_file(self._path(name), path.read_bytes())
