"""Turn constructor arguments into hyperparameters that a logger can write."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = [
    "convert_flat_dict_to_nested_dict",
    "convert_nested_dict_to_flat_dict",
    "extract_hparams",
]


def extract_hparams(locals_dict: dict[str, Any]) -> dict[str, Any]:
    """Make hyperparameters from ``locals()`` at the start of a constructor.

    Numbers, strings and ``None`` stay as they are; collections are walked; an object with a
    ``local_hparams`` dictionary becomes its class name and that dictionary; any other object
    becomes its class name.

    Args:
        locals_dict: Argument to value. ``self``, ``__class__`` and names with a leading underscore
            are left out.

    Returns:
        Argument to plain value.

    Example:
        >>> extract_hparams({"self": object(), "lr": 0.1, "names": ["a"], "hook": object()})
        {'lr': 0.1, 'names': ['a'], 'hook': 'object'}
    """
    return {
        name: _to_plain(value)
        for name, value in locals_dict.items()
        if name != "self" and not name.startswith("_")
    }


def _to_plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _to_plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_to_plain(one) for one in value]
    own = getattr(value, "local_hparams", None)
    if isinstance(own, Mapping):
        return {type(value).__name__: {str(key): _to_plain(one) for key, one in own.items()}}
    named = value if isinstance(value, type) or callable(value) else type(value)
    return getattr(named, "__name__", type(value).__name__)


def convert_nested_dict_to_flat_dict(
    nested_dict: dict[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """Join the keys of nested dictionaries with slashes.

    Args:
        nested_dict: The dictionary.
        prefix: Goes before every key.

    Returns:
        A dictionary without dictionaries in it, except for empty ones.

    Example:
        >>> convert_nested_dict_to_flat_dict({"a": {"b": 1}, "c": 2})
        {'a/b': 1, 'c': 2}
    """
    flat: dict[str, Any] = {}
    for key, value in nested_dict.items():
        path = f"{prefix}/{key}" if prefix else str(key)
        if isinstance(value, dict) and value:
            flat.update(convert_nested_dict_to_flat_dict(value, path))
        else:
            flat[path] = value
    return flat


def convert_flat_dict_to_nested_dict(flat_dict: dict[str, Any]) -> dict[str, Any]:
    """Split keys at slashes into nested dictionaries.

    Args:
        flat_dict: The dictionary.

    Returns:
        The nested dictionary.

    Raises:
        ValueError: If one key is both a value and the start of another key.

    Example:
        >>> convert_flat_dict_to_nested_dict({"a/b": 1, "c": 2})
        {'a': {'b': 1}, 'c': 2}
    """
    nested: dict[str, Any] = {}
    made: set[int] = {id(nested)}
    for path, value in flat_dict.items():
        *parents, last = path.split("/")
        level = nested
        for name in parents:
            if name not in level:
                level[name] = {}
                made.add(id(level[name]))
            level = level[name]
            if id(level) not in made:
                raise ValueError(f"flat_dict: the key {path!r} goes through {name!r}, a value.")
        if last in level:
            raise ValueError(f"flat_dict: the key {path!r} is both a value and a start of others.")
        level[last] = value
    return nested
