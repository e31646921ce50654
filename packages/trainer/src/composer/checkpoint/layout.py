"""What a checkpoint file looks like inside, in one place.

A full checkpoint is one file that ``torch.load(weights_only=True)`` reads: a dictionary with the
keys below, holding plain types and tensors only. A weights-only checkpoint has the same keys with
fewer fields under ``state`` and no random states.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "METADATA",
    "RNG",
    "STATE",
    "NewerFormatError",
    "remove_keys",
]

#: Key of the format's version.
FORMAT = "format"
#: The version that this release writes, and the newest that it reads.
FORMAT_VERSION = 1
STATE = "state"
RNG = "rng"
METADATA = "metadata"


class NewerFormatError(ValueError):
    """A checkpoint is whole, but of a format that only a newer release reads.

    It is never passed over for an older one: that would write over the newer run.

    Example:
        >>> issubclass(NewerFormatError, ValueError)
        True
    """


IgnoreKeys = Sequence[str] | Callable[[dict[str, Any]], None] | None


def _remove(tree: dict[str, Any], prefix: str, pattern: str) -> int:
    removed = 0
    for key in list(tree):
        path = f"{prefix}/{key}" if prefix else str(key)
        if fnmatch.fnmatchcase(path, pattern):
            del tree[key]
            removed += 1
        elif isinstance(tree[key], dict):
            removed += _remove(tree[key], path, pattern)
        elif isinstance(tree[key], (list, tuple)):
            for i, item in enumerate(tree[key]):
                if isinstance(item, dict):
                    removed += _remove(item, f"{path}/{i}", pattern)
    return removed


def remove_keys(checkpoint: dict[str, Any], ignore_keys: IgnoreKeys, argument: str) -> None:
    """Drop parts of a checkpoint, in place.

    Args:
        checkpoint: The checkpoint's dictionary; its dictionaries are changed, not its tensors.
        ignore_keys: Patterns over ``/``-joined paths such as ``state/optimizers`` or
            ``state/model/head.*``, or a function that edits the dictionary itself.
        argument: Name of the setting, for the message.

    Raises:
        ValueError: If a pattern matches nothing.

    Example:
        >>> checkpoint = {"state": {"model": {"head.weight": 1, "body.weight": 2}}}
        >>> remove_keys(checkpoint, ["state/model/head.*"], "load_ignore_keys")
        >>> checkpoint
        {'state': {'model': {'body.weight': 2}}}
    """
    if ignore_keys is None:
        return
    if callable(ignore_keys):
        ignore_keys(checkpoint)
        return
    for pattern in ignore_keys:
        if not _remove(checkpoint, "", pattern):
            raise ValueError(
                f"{argument} holds {pattern!r}, which matches nothing in the checkpoint; its "
                f"first levels are {_first_levels(checkpoint)}"
            )


def _first_levels(checkpoint: dict[str, Any]) -> list[str]:
    found = []
    for key, value in checkpoint.items():
        found.append(str(key))
        if isinstance(value, dict):
            found += [f"{key}/{inner}" for inner in value]
    return found
