"""Google Cloud Storage."""

from __future__ import annotations

import os
from typing import Any, final

from composer.utils.object_store.forwarding import ForwardingObjectStore
from composer.utils.object_store.fsspec_store import FsspecFileStore, FsspecTemplate
from composer.utils.object_store.s3 import S3ObjectStore

__all__ = ["GCSObjectStore"]


class GCSObjectStore(ForwardingObjectStore):
    """Keeps objects in a bucket of Google Cloud Storage.

    With the HMAC key ``GCS_KEY`` and ``GCS_SECRET`` in the environment it speaks S3's protocol (the
    extra ``s3``); otherwise it finds credentials as Google's tools do (the extra ``gcs``).

    Args:
        bucket: The bucket.
        prefix: A folder in it.
        timeout: Seconds to wait for an answer that does not go on.
        num_attempts: How often a request is made at most.

    Raises:
        MissingConditionalImportError: If the client kit is not installed.

    Example:
        >>> GCSObjectStore("bucket").get_uri("ep1.pt")  # doctest: +SKIP
        'gs://bucket/ep1.pt'
        >>> issubclass(GCSObjectStore, ForwardingObjectStore)
        True
    """

    def __init__(
        self, bucket: str, prefix: str = "", *, timeout: float = 60.0, num_attempts: int = 5
    ) -> None:
        key, secret = os.environ.get("GCS_KEY"), os.environ.get("GCS_SECRET")
        self.bucket_name = bucket
        self.prefix = prefix
        self.use_gcs_sdk = not (key and secret)
        store: FsspecTemplate
        if self.use_gcs_sdk:
            store = _SdkStore(bucket, prefix, timeout=timeout, num_attempts=num_attempts)
        else:
            store = S3ObjectStore(
                bucket,
                prefix,
                region_name="auto",
                endpoint_url=os.environ.get("GCS_S3_ENDPOINT_URL", _ENDPOINT),
                aws_access_key_id=key,
                aws_secret_access_key=secret,
                timeout=timeout,
                num_attempts=num_attempts,
            )
            store.scheme = "gs"
        super().__init__(store)


_ENDPOINT = "https://storage.googleapis.com"


@final
class _SdkStore(FsspecFileStore):
    extra = "gcs"
    kit = "gcsfs"
    _narrows = True

    def __init__(self, bucket: str, prefix: str, *, timeout: float, num_attempts: int) -> None:
        super().__init__(f"gs://{bucket}/{prefix.strip('/')}", num_attempts=num_attempts)
        self.timeout = timeout

    def _open(self) -> Any:
        from gcsfs import GCSFileSystem

        return GCSFileSystem(
            use_listings_cache=False, skip_instance_cache=True, timeout=self.timeout
        )
