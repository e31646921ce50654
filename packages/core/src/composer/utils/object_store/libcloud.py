"""The class through which other services used to be reached, over the stores that are here."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Self

from composer.utils.object_store.azure import AzureObjectStore
from composer.utils.object_store.base import ObjectStore
from composer.utils.object_store.forwarding import ForwardingObjectStore
from composer.utils.object_store.local import LocalObjectStore
from composer.utils.object_store.s3 import S3ObjectStore

__all__ = ["LibcloudObjectStore"]

_KNOWN = "S3, MINIO, GOOGLE_STORAGE, AZURE_BLOBS, LOCAL"


class LibcloudObjectStore(ForwardingObjectStore):
    """Maps providers of libcloud to the stores of this library, so that old recipes keep working.

    Libcloud itself is not used. Of ``provider_kwargs`` these count: ``key``, ``secret``, ``host``,
    ``port``, ``secure``, ``region`` and ``token``.

    Args:
        provider: The provider: ``S3`` (or ``S3_`` and a region), ``MINIO``, ``GOOGLE_STORAGE``,
            ``AZURE_BLOBS`` or ``LOCAL``.
        container: The container or bucket.
        chunk_size: Unused; the stores choose their own.
        key_environ: The environment variable that holds the key.
        secret_environ: The environment variable that holds the secret.
        provider_kwargs: What libcloud's driver would take.

    Raises:
        ValueError: If no store here serves the provider.

    Example:
        >>> LibcloudObjectStore("LOCAL", "runs", provider_kwargs={"key": "/data"}).get_uri("a")
        'file:///data/runs/a'
    """

    def __init__(
        self,
        provider: str,
        container: str,
        chunk_size: int = 1024 * 1024,
        key_environ: str | None = None,
        secret_environ: str | None = None,
        provider_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.chunk_size = chunk_size
        options = dict(provider_kwargs or {})
        for name, variable in (("key", key_environ), ("secret", secret_environ)):
            if variable is not None and variable in os.environ:
                options.setdefault(name, os.environ[variable])
        super().__init__(_store_for(provider, container, options))

    @classmethod
    def from_bucket(cls, bucket: str) -> Self:
        raise ValueError(
            "The scheme libcloud names no provider; write the scheme of the service, such as s3, "
            "gs or az."
        )


def _store_for(provider: str, container: str, options: dict[str, Any]) -> ObjectStore:
    known = {"key", "secret", "host", "port", "secure", "region", "token"}
    if unknown := sorted(set(options) - known):
        raise ValueError(
            f"provider_kwargs has {', '.join(unknown)}, which have no effect here; "
            f"known are: {', '.join(sorted(known))}."
        )
    name = provider.upper()
    key, secret = options.get("key"), options.get("secret")
    if name == "LOCAL":
        return LocalObjectStore(pathlib.Path(key or ".", container))
    if name == "AZURE_BLOBS":
        return AzureObjectStore(container, account_name=key, account_key=secret)
    if name in ("S3", "MINIO", "GOOGLE_STORAGE") or name.startswith("S3_"):
        endpoint = "https://storage.googleapis.com" if name == "GOOGLE_STORAGE" else None
        if host := options.get("host"):
            port = f":{options['port']}" if options.get("port") else ""
            endpoint = f"{'https' if options.get('secure', True) else 'http'}://{host}{port}"
        region = name.removeprefix("S3_").lower().replace("_", "-") if "_" in name else None
        if name == "GOOGLE_STORAGE":
            region = "auto"
        return S3ObjectStore(
            container,
            region_name=options.get("region") or region,
            endpoint_url=endpoint,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            aws_session_token=options.get("token"),
        )
    raise ValueError(
        f"provider={provider!r}: no store here serves it; served are: {_KNOWN}. A service that "
        "speaks S3's protocol is reached with S3ObjectStore(bucket, endpoint_url=...), one that "
        "fsspec knows with FsspecObjectStore(url)."
    )
