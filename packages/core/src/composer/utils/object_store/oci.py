"""Oracle Cloud Infrastructure."""

from __future__ import annotations

from typing import Any, final

from composer.utils.object_store.fsspec_store import FsspecFileStore

__all__ = ["OCIObjectStore"]


@final
class OCIObjectStore(FsspecFileStore):
    """Keeps objects in a bucket of Oracle's object storage.

    Credentials are those of ``~/.oci/config``.

    Args:
        bucket: The bucket, or ``bucket@namespace`` where it is not in the tenant's own.
        prefix: A folder in it.
        num_attempts: How often a request is made at most.

    Raises:
        MissingConditionalImportError: If ocifs is not installed.

    Example:
        >>> OCIObjectStore("bucket").get_uri("ep1.pt")  # doctest: +SKIP
        'oci://bucket/ep1.pt'
        >>> OCIObjectStore.kit
        'ocifs'
    """

    extra = "oci"
    kit = "ocifs"

    def __init__(self, bucket: str, prefix: str = "", *, num_attempts: int = 5) -> None:
        super().__init__(f"oci://{bucket}/{prefix.strip('/')}", num_attempts=num_attempts)
        self.bucket = bucket
        self.prefix = prefix

    def _open(self) -> Any:
        from ocifs import OCIFileSystem

        return OCIFileSystem(use_listings_cache=False, skip_instance_cache=True)
