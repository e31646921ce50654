"""What a checkpoint file looks like inside, in one place.

A full checkpoint is one file that ``torch.load(weights_only=True)`` reads: a dictionary with the
keys below, holding plain types and tensors only. A weights-only checkpoint has the same keys with
fewer fields under ``state`` and no random states.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "METADATA",
    "RNG",
    "STATE",
    "CheckpointError",
    "IgnoreKeys",
    "NewerFormatError",
    "check_ignored",
    "check_whole",
    "names_of",
    "parse_ignored",
    "remove_keys",
]

#: Key of the format's version.
FORMAT = "format"
#: The version that this release writes, and the newest that it reads.
FORMAT_VERSION = 1
STATE = "state"
RNG = "rng"
METADATA = "metadata"


class CheckpointError(ValueError):
    """A checkpoint does not hold what it must; the message names the file and the key.

    Example:
        >>> issubclass(CheckpointError, ValueError)
        True
    """


class NewerFormatError(CheckpointError):
    """A checkpoint is whole, but of a format that only a newer release reads.

    It is never passed over for an older one: that would write over the newer run.

    Example:
        >>> issubclass(NewerFormatError, ValueError)
        True
    """


IgnoreKeys = Sequence[str] | Callable[[dict[str, Any]], None] | None


def names_of(given: Any, argument: str) -> tuple[str, ...]:
    """Take one string or several, so that a string is not taken for its letters.

    Args:
        given: A string, several, or ``None`` for none.
        argument: Name of the argument, for messages.

    Returns:
        The strings.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> names_of("lr", "load_overrides")
        ('lr',)
    """
    if given is None or isinstance(given, str):
        return () if given is None else (given,)
    found = tuple(given) if isinstance(given, Iterable) else ()
    if not isinstance(given, Iterable) or not all(isinstance(name, str) for name in found):
        raise TypeError(
            f"{argument}={given!r} must be a str or a sequence of them, not {type(given).__name__}"
        )
    return found


def parse_ignored(ignore_keys: Any, argument: str) -> IgnoreKeys:
    """Turn parts of a checkpoint to leave out into a tuple.

    Args:
        ignore_keys: A pattern, several, a function, or ``None``.
        argument: Name of the argument, for messages.

    Returns:
        The patterns; a function or ``None`` as it is.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> parse_ignored("state/optimizers", "load_ignore_keys")
        ('state/optimizers',)
        >>> parse_ignored(5, "load_ignore_keys")
        Traceback (most recent call last):
        TypeError: load_ignore_keys=5 must be patterns such as 'state/optimizers', or a function...
    """
    if ignore_keys is None or callable(ignore_keys):
        return ignore_keys
    try:
        return names_of(ignore_keys, argument)
    except TypeError:
        raise TypeError(
            f"{argument}={ignore_keys!r} must be patterns such as 'state/optimizers', or a "
            f"function that edits the checkpoint, not {type(ignore_keys).__name__}"
        ) from None


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
    ignore_keys = parse_ignored(ignore_keys, argument)
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


#: What makes a file a checkpoint.
_ALWAYS = (FORMAT, STATE)
#: What a run must have to be continued; besides weights, which may be left out in part.
_TO_CONTINUE = (RNG, f"{STATE}/timestamp", f"{STATE}/model")


def check_ignored(ignore_keys: IgnoreKeys, argument: str, *, resumable: bool = False) -> None:
    """Refuse patterns that would make files which nobody can read, or continue from.

    Args:
        ignore_keys: What is to be left out; a function is not called, see :func:`check_whole`.
        argument: Name of the setting, for the message.
        resumable: Whether a run is to be continued from the files.

    Raises:
        ValueError: If a pattern takes away what is needed; the key is named.

    Example:
        >>> check_ignored(["state/optimizers"], "save_ignore_keys", resumable=True)
        >>> check_ignored(["format"], "save_ignore_keys")
        Traceback (most recent call last):
        ValueError: save_ignore_keys holds 'format', which takes away 'format'...
    """
    ignore_keys = parse_ignored(ignore_keys, argument)
    if ignore_keys is None or callable(ignore_keys):
        return
    for pattern in ignore_keys:
        # As a checkpoint has them, as deep as patterns may go.
        streams = dict.fromkeys(("python", "numpy", "torch", "cuda", "mps"))
        clock = dict.fromkeys(("epoch", "batch", "sample", "token", "batch_in_epoch"))
        trial: dict[str, Any] = {
            FORMAT: FORMAT_VERSION,
            STATE: {"model": {}, "timestamp": dict(clock)},
            RNG: [dict(streams)],
        }
        _remove(trial, "", pattern)
        state = trial.get(STATE, {})
        left = {
            FORMAT: FORMAT in trial,
            STATE: STATE in trial,
            RNG: trial.get(RNG) == [streams],
            f"{STATE}/timestamp": state.get("timestamp") == clock,
            f"{STATE}/model": "model" in state,
        }
        for key in (*_ALWAYS, *(_TO_CONTINUE if resumable else ())):
            if not left[key]:
                raise _needed(f"{argument} holds {pattern!r}, which takes away {key!r}", key)


def check_whole(checkpoint: dict[str, Any], argument: str, *, resumable: bool = False) -> None:
    """Make sure that what was left out is nothing that a file must have.

    Args:
        checkpoint: The checkpoint's dictionary, after parts were left out.
        argument: Name of the setting, for the message.
        resumable: Whether a run is to be continued from the file.

    Raises:
        ValueError: If something is missing; the key is named.

    Example:
        >>> check_whole({"format": 1, "state": {}}, "save_ignore_keys")
    """
    for key in (*_ALWAYS, *(_TO_CONTINUE if resumable else ())):
        outer, _, inner = key.partition("/")
        if outer not in checkpoint or (inner and inner not in checkpoint[outer]):
            raise _needed(f"{argument} took away {key!r}", key)


def _needed(what: str, key: str) -> ValueError:
    if key in _ALWAYS:
        return ValueError(f"{what}, without which nothing can read the file as a checkpoint")
    return ValueError(
        f"{what}, without which a run cannot be continued from the file, as autoresume=True asks "
        f"for. Leave other parts out, or save what is for other purposes with a CheckpointSaver "
        f"of its own that has latest_filename=None"
    )


def _first_levels(checkpoint: dict[str, Any]) -> list[str]:
    found = []
    for key, value in checkpoint.items():
        found.append(str(key))
        if isinstance(value, dict):
            found += [f"{key}/{inner}" for inner in value]
    return found
