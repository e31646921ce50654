"""From a URI scheme to an object store, through the plugin door.

Stores are found under the entry point group ``composer.object_stores``; the name is the scheme.
Nothing is imported before a scheme is asked for.
"""

from __future__ import annotations

from typing import Any

from composer.utils import plugins
from composer.utils.object_store.base import ObjectStore
from composer.utils.paths import parse_uri

__all__ = ["build_remote_backend", "maybe_create_object_store_from_uri"]

_GROUP = "composer.object_stores"
# Other spellings of schemes.
_ALIASES = {
    "abfs": "az",
    "abfss": "az",
    "azure": "az",
    "gcs": "gs",
    "s3a": "s3",
    "s3n": "s3",
}


def build_remote_backend(remote_backend_name: str, backend_kwargs: dict[str, Any]) -> ObjectStore:
    """Build an object store by name.

    Args:
        remote_backend_name: The scheme, such as ``s3`` or ``file``.
        backend_kwargs: The arguments of the store's constructor.

    Returns:
        The store.

    Raises:
        ValueError: If no such store is installed.
        TypeError: If an argument is unknown or missing.

    Example:
        >>> build_remote_backend("file", {"root": "/data"}).get_uri("a")
        'file:///data/a'
    """
    name = _ALIASES.get(remote_backend_name, remote_backend_name)
    store: ObjectStore = plugins.resolve(_GROUP, name, **backend_kwargs)
    return store


def maybe_create_object_store_from_uri(uri: str) -> ObjectStore | None:
    """Open the store that a URI names.

    Args:
        uri: A URI or a local path.

    Returns:
        The store, or ``None`` for a local path.

    Raises:
        ValueError: If no store for its scheme is installed.
        TypeError: If the plugin of that name is no store.

    Example:
        >>> maybe_create_object_store_from_uri("folder/a.pt") is None
        True
        >>> maybe_create_object_store_from_uri("file:///folder/a.pt").get_uri("b")
        'file:///b'
    """
    scheme, bucket, _ = parse_uri(uri)
    if not scheme:
        return None
    found = plugins.load(_GROUP, _ALIASES.get(scheme, scheme))
    if not (isinstance(found, type) and issubclass(found, ObjectStore)):
        raise TypeError(f"The plugin for the object store {scheme!r}, {found!r}, is none.")
    return found.from_bucket(bucket)
