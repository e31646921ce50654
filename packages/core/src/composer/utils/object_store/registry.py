"""From a URI scheme to an object store, through the plugin door.

Stores are found under the entry point group ``composer.object_stores``; the name is the scheme.
Nothing is imported before a scheme is asked for.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from composer.utils.imports import import_object
from composer.utils.object_store.base import ObjectStore
from composer.utils.paths import parse_uri
from composer.utils.suggestions import did_you_mean

__all__ = ["build_remote_backend", "maybe_create_object_store_from_uri"]

_GROUP = "composer.object_stores"
# So that the own store is found in a source tree that was never installed, too.
_BUILT_IN = {"file": "composer.utils.object_store.local:LocalObjectStore"}


def _load(scheme: str) -> type[ObjectStore]:
    targets: dict[str, str] = dict(_BUILT_IN)
    for entry in entry_points(group=_GROUP):
        earlier = targets.setdefault(entry.name, entry.value)
        if earlier != entry.value:
            raise ValueError(
                f"Two plugins claim the object store {entry.name!r}: {earlier} and {entry.value}. "
                "Uninstall one of them."
            )
    if scheme not in targets:
        raise ValueError(
            f"There is no object store for {scheme!r}; installed are: {', '.join(sorted(targets))}."
            f"{did_you_mean(scheme, targets)} A package can add one under the entry point group "
            f"{_GROUP!r}."
        )
    loaded = import_object(targets[scheme])
    if not (isinstance(loaded, type) and issubclass(loaded, ObjectStore)):
        raise TypeError(f"The plugin for the object store {scheme!r}, {loaded!r}, is none.")
    return loaded


def build_remote_backend(remote_backend_name: str, backend_kwargs: dict[str, Any]) -> ObjectStore:
    """Build an object store by name.

    Args:
        remote_backend_name: The scheme, such as ``file``.
        backend_kwargs: The arguments of the store's constructor.

    Returns:
        The store.

    Raises:
        ValueError: If no such store is installed.

    Example:
        >>> build_remote_backend("file", {"root": "/data"}).get_uri("a")
        'file:///data/a'
    """
    return _load(remote_backend_name)(**backend_kwargs)


def maybe_create_object_store_from_uri(uri: str) -> ObjectStore | None:
    """Open the store that a URI names.

    Args:
        uri: A URI or a local path.

    Returns:
        The store, or ``None`` for a local path.

    Raises:
        ValueError: If no store for its scheme is installed.

    Example:
        >>> maybe_create_object_store_from_uri("folder/a.pt") is None
        True
        >>> maybe_create_object_store_from_uri("file:///folder/a.pt").get_uri("b")
        'file:///b'
    """
    scheme, bucket, _ = parse_uri(uri)
    return _load(scheme).from_bucket(bucket) if scheme else None
