"""A store under another name."""

from __future__ import annotations

import pathlib
from typing import Any

from composer.utils.object_store.base import ObjectStore, ProgressCallback

__all__ = ["ForwardingObjectStore"]


class ForwardingObjectStore(ObjectStore):
    """Hands everything on to another store, for classes whose arguments choose among several.

    Args:
        store: The store that does the work.

    Example:
        >>> from composer.utils.object_store.local import LocalObjectStore
        >>> ForwardingObjectStore(LocalObjectStore("/data")).get_uri("a")
        'file:///data/a'
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def get_uri(self, object_name: str) -> str:
        return self.store.get_uri(object_name)

    def upload_object(
        self,
        object_name: str,
        filename: str | pathlib.Path,
        callback: ProgressCallback | None = None,
        **kwargs: Any,
    ) -> None:
        self.store.upload_object(object_name, filename, callback, **kwargs)

    def get_object_size(self, object_name: str) -> int:
        return self.store.get_object_size(object_name)

    def download_object(
        self,
        object_name: str,
        filename: str | pathlib.Path,
        overwrite: bool = False,
        callback: ProgressCallback | None = None,
    ) -> None:
        self.store.download_object(object_name, filename, overwrite, callback)

    def list_objects(self, prefix: str | None = None) -> list[str]:
        return self.store.list_objects(prefix)

    def delete_object(self, object_name: str) -> None:
        self.store.delete_object(object_name)

    def close(self) -> None:
        self.store.close()
