"""Azure Blob Storage."""

from __future__ import annotations

import os
from typing import Any, final

from composer.utils.object_store.fsspec_store import FsspecFileStore

__all__ = ["AzureObjectStore"]


@final
class AzureObjectStore(FsspecFileStore):
    """Keeps objects in a container of Azure Blob Storage.

    What is not given is looked for in the environment: ``AZURE_STORAGE_CONNECTION_STRING``,
    ``AZURE_STORAGE_ACCOUNT_NAME`` and ``AZURE_STORAGE_ACCOUNT_KEY``, or the older
    ``AZURE_ACCOUNT_NAME`` and ``AZURE_ACCOUNT_ACCESS_KEY``.

    Args:
        bucket: The container, or ``container@account.dfs.core.windows.net`` as in long URIs.
        prefix: A folder in it.
        account_name: The account.
        account_key: Its key. Without one the default credentials of the machine are used.
        timeout: Seconds to wait for an answer that does not go on.
        num_attempts: How often a request is made at most.

    Raises:
        MissingConditionalImportError: If adlfs is not installed.

    Example:
        >>> AzureObjectStore("container").get_uri("ep1.pt")  # doctest: +SKIP
        'az://container/ep1.pt'
        >>> AzureObjectStore.kit
        'adlfs'
    """

    extra = "azure"
    kit = "adlfs"
    _put_options = {"overwrite": True}

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        account_name: str | None = None,
        account_key: str | None = None,
        *,
        timeout: float = 60.0,
        num_attempts: int = 5,
    ) -> None:
        container, _, host = bucket.partition("@")
        super().__init__(f"az://{container}/{prefix.strip('/')}", num_attempts=num_attempts)
        self.bucket = container
        self.prefix = prefix
        self.timeout = timeout
        self.account_name = account_name or host.partition(".")[0] or _from_environment("NAME")
        self.account_key = account_key or _from_environment("KEY")

    def _open(self) -> Any:
        from adlfs import AzureBlobFileSystem

        return AzureBlobFileSystem(
            account_name=self.account_name,
            account_key=self.account_key,
            connection_string=os.environ.get("AZURE_STORAGE_CONNECTION_STRING"),
            # Without a key or a string: the credentials of the machine, and not no credentials.
            anon=False,
            timeout=self.timeout,
            connection_timeout=min(self.timeout, 20.0),
            read_timeout=self.timeout,
            use_listings_cache=False,
            skip_instance_cache=True,
        )


def _from_environment(what: str) -> str | None:
    older = {"NAME": "AZURE_ACCOUNT_NAME", "KEY": "AZURE_ACCOUNT_ACCESS_KEY"}[what]
    return os.environ.get(f"AZURE_STORAGE_ACCOUNT_{what}") or os.environ.get(older)
