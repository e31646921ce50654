"""Kinds of the values in a checkpoint: damage that still is a file of torch is told by its key.

A manifest tells a file that was changed. Of one without it nothing is known, so what every reader
goes by is looked at here, once, and the readers need not expect anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from composer.checkpoint.layout import METADATA, RNG, STATE, CheckpointError

__all__ = ["check_structure", "wrong"]

# A check takes a value and the key at which it stands, and raises `_WrongKind`.
_Check = Callable[[Any, str], None]


class _WrongKind(Exception):
    def __init__(self, key: str, found: Any, wanted: str) -> None:
        super().__init__(f"{key!r} is {_shown(found)}, where {wanted} is expected")


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) < 40 else text[:40] + '...'} ({type(value).__name__})"


def _mapping(value: Any, key: str) -> None:
    if not isinstance(value, Mapping):
        raise _WrongKind(key, value, "a dictionary")


def _items(value: Any, key: str) -> None:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _WrongKind(key, value, "a list")


def _text(value: Any, key: str) -> None:
    if not isinstance(value, str):
        raise _WrongKind(key, value, "a string")


def _whole(value: Any, key: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _WrongKind(key, value, "a whole number")


def _count(value: Any, key: str) -> None:
    _whole(value, key)
    if value < 0:
        raise _WrongKind(key, value, "a number that is not negative")


def _number(value: Any, key: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _WrongKind(key, value, "a number")


def _maybe(check: _Check) -> _Check:
    def maybe(value: Any, key: str) -> None:
        if value is not None:
            check(value, key)

    return maybe


def _anything(value: Any, key: str) -> None:
    del value, key


def _list_of(check: _Check) -> _Check:
    def items(value: Any, key: str) -> None:
        _items(value, key)
        for i, item in enumerate(value):
            check(item, f"{key}/{i}")

    return items


def _record(needed: Mapping[str, _Check], also: Mapping[str, _Check] | None = None) -> _Check:
    def record(value: Any, key: str) -> None:
        _mapping(value, key)
        for name, check in needed.items():
            if name not in value:
                raise _WrongKind(key, value, f"a dictionary with the key {name!r}")
            check(value[name], f"{key}/{name}")
        for name, check in (also or {}).items():
            if name in value:
                check(value[name], f"{key}/{name}")

    return record


def _timestamp(value: Any, key: str) -> None:
    _mapping(value, key)
    for name, item in value.items():
        check = _number if str(name).endswith("_wct") else _count
        check(item, f"{key}/{name}")


_GROUP = _record({"params": _list_of(_text)})
_OPTIMIZER = _record(
    {"type": _text, "state": _record({"state": _mapping, "param_groups": _list_of(_GROUP)})}
)
_STATEFUL = _record({"type": _text, "state": _mapping})
_ALGORITHM = _record(
    {
        "type": _text,
        "plugin": _maybe(_text),
        "arguments": _maybe(_mapping),
        "required": _anything,
        "state": _anything,
    }
)


def _described_schedule(value: Any, key: str) -> None:
    _record({"type": _text}, {"schedulers": _list_of(_described_schedule)})(value, key)


# What the script asked for; a part that is not known is missing or None.
_SETTINGS = _record(
    {},
    {
        "optimizers": _maybe(_list_of(_list_of(_mapping))),
        "schedulers": _maybe(_list_of(_described_schedule)),
        "max_duration": _maybe(_text),
    },
)
#: Fields of the state; those of later releases, which are not known here, may be anything.
_FIELDS: dict[str, _Check] = {
    "model": _mapping,
    "integrations": _maybe(_mapping),
    "optimizers": _list_of(_OPTIMIZER),
    "schedulers": _list_of(_STATEFUL),
    "algorithms": _list_of(_ALGORITHM),
    "callbacks": _list_of(_STATEFUL),
    "scaler": _maybe(_mapping),
    "timestamp": _timestamp,
    "rank_zero_seed": _whole,
    "run_name": _text,
    "num_skipped_steps": _count,
    "num_skipped_samples": _count,
    "num_skipped_tokens": _count,
    "missed_turns": _list_of(_list_of(_count)),
    "microbatch_search": _maybe(_mapping),
    "settings": _maybe(_SETTINGS),
    "pending_evaluations": _maybe(_mapping),
    "dataset_state": _maybe(_mapping),
    "train_metrics": _maybe(_mapping),
    "eval_metrics": _maybe(_mapping),
}
_OUTLINE: dict[str, _Check] = {
    STATE: _mapping,
    METADATA: _maybe(_mapping),
    RNG: _list_of(_mapping),
}


def check_structure(
    contents: Mapping[str, Any], path: str | Path, *, fields: Collection[str] | None = None
) -> None:
    """Make sure that a checkpoint holds values of the kinds that it must.

    Args:
        contents: What the file holds.
        path: The file, for the message.
        fields: Which fields of the state to look at; all by default.

    Raises:
        CheckpointError: If a value is of another kind; file and key are named.

    Example:
        >>> check_structure({"state": {"timestamp": {"batch": 3}}}, "a.pt")
        >>> check_structure({"state": {"timestamp": "noon"}}, "a.pt")
        Traceback (most recent call last):
        composer.checkpoint.layout.CheckpointError: a.pt ...: 'state/timestamp' is 'noon' (str)...
    """
    try:
        for key, check in _OUTLINE.items():
            if key in contents:
                check(contents[key], key)
    except _WrongKind as error:
        raise wrong(path, str(error)) from None
    state = contents.get(STATE, {})
    for name in _FIELDS if fields is None else fields:
        try:
            if name in state:
                _FIELDS[name](state[name], f"{STATE}/{name}")
        except _WrongKind as error:
            raise wrong(
                path,
                f"{error}. Load another one, or leave the part out with "
                f"load_ignore_keys=['{STATE}/{name}']",
            ) from None


def wrong(path: str | Path, what: str) -> CheckpointError:
    """Return the error for a value of a wrong kind.

    Args:
        path: The file.
        what: Which value it is.

    Returns:
        The error.

    Example:
        >>> wrong("a.pt", "'rng' is 3")
        CheckpointError("a.pt is damaged, or no checkpoint of a trainer: 'rng' is 3")
    """
    return CheckpointError(f"{path} is damaged, or no checkpoint of a trainer: {what}")
