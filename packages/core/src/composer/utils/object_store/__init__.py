"""Object stores: files under names, somewhere else."""

from __future__ import annotations

from composer.utils.object_store.base import ObjectStore, ObjectStoreTransientError
from composer.utils.object_store.local import LocalObjectStore
from composer.utils.object_store.registry import (
    build_remote_backend,
    maybe_create_object_store_from_uri,
)

__all__ = [
    "LocalObjectStore",
    "ObjectStore",
    "ObjectStoreTransientError",
    "build_remote_backend",
    "maybe_create_object_store_from_uri",
]
