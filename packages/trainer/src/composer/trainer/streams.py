"""Random streams: seeds of their own for what must not move, and generators that data sets hold.

The order of the data, evaluations and predictions draw from streams that are seeded for them alone
and put back afterwards. A data set may hold generators of its own, which no global seed reaches:
they are found here, so that a position in the data can hold their states.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import random
import types
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from composer.utils.reproducibility import host_streams

__all__ = ["OwnStreams", "derived_seed", "host_streams", "own_streams"]

Generator = random.Random | np.random.Generator | np.random.RandomState | torch.Generator

_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_OPAQUE = (
    *(str, bytes, bytearray, int, float, complex, bool, type(None), type, torch.Tensor),
    *(np.ndarray, np.generic, types.ModuleType),
)
_DEPTH, _WIDTH, _THINGS = 5, 64, 2000


def derived_seed(seed: int, purpose: str, counter: int) -> int:
    """Derive the seed of random streams that nothing else may move.

    Args:
        seed: The rank's seed.
        purpose: What the streams are for.
        counter: Which of them.

    Returns:
        A number below 2**32 that differs with each argument.

    Example:
        >>> one, other = derived_seed(1, "order", 0), derived_seed(1, "order", 1)
        >>> one == derived_seed(1, "order", 0), one == other
        (True, False)
    """
    digest = hashlib.blake2b(f"{purpose} {seed} {counter}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


def own_streams(*things: Any) -> dict[str, Generator]:
    """Find the random generators that things hold in attributes, containers and closures.

    The search is bounded: a few levels deep, the first elements of a container; no code of the
    things is run. Not found are a generator that is made while an item is read, since it is not
    there yet, and a global variable that a function names.

    Args:
        things: Where to look, such as a data set and a collate function.

    Returns:
        Where each stands to the generator, in the order found.

    Example:
        >>> from types import SimpleNamespace
        >>> data = SimpleNamespace(transforms=[SimpleNamespace(rng=np.random.default_rng(0))])
        >>> list(own_streams(data))
        ['0.transforms.0.rng']
    """
    found: dict[str, Generator] = {}
    seen: set[int] = set()
    waiting = deque((str(i), thing, 0) for i, thing in enumerate(things))
    while waiting and len(seen) < _THINGS:
        path, thing, depth = waiting.popleft()
        if id(thing) in seen or isinstance(thing, _OPAQUE):
            continue
        seen.add(id(thing))
        if isinstance(thing, _GENERATORS):
            found[path] = thing
        elif depth < _DEPTH:
            waiting.extend((f"{path}.{name}", part, depth + 1) for name, part in _parts(thing))
    return found


def _parts(thing: Any) -> list[tuple[Any, Any]]:
    if isinstance(thing, Mapping):
        if type(thing) is not dict:
            return []
        return list(thing.items())[:_WIDTH] if len(thing) <= _WIDTH else []
    if isinstance(thing, (list, tuple)):
        return list(enumerate(thing[:_WIDTH]))
    if isinstance(thing, types.FunctionType):
        return _held_by(thing)
    if isinstance(thing, types.MethodType):
        return [("__self__", thing.__self__), ("__func__", thing.__func__)]
    if isinstance(thing, functools.partial):
        return [("func", thing.func), ("args", thing.args), ("keywords", thing.keywords)]
    # The dictionary itself, so that no property is run.
    attributes = getattr(thing, "__dict__", None)
    return list(attributes.items()) if isinstance(attributes, dict) else []


def _held_by(function: types.FunctionType) -> list[tuple[str, Any]]:
    """What a function encloses, and its defaults."""
    found: list[tuple[str, Any]] = [("defaults", function.__defaults__)]
    found.append(("keyword defaults", function.__kwdefaults__))
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        with contextlib.suppress(ValueError):  # nothing is in it yet
            found.append((name, cell.cell_contents))
    return found


class OwnStreams:
    """The states of generators that a data set holds, as one thing with a state.

    Args:
        streams: What :func:`own_streams` found.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> streams = OwnStreams({"rng": rng})
        >>> saved = streams.state_dict()
        >>> a = rng.random()
        >>> streams.load_state_dict(saved)
        >>> bool(a == rng.random())
        True
    """

    def __init__(self, streams: Mapping[str, Generator]) -> None:
        self._streams = dict(streams)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each generator.

        Returns:
            Plain types and tensors, by place.
        """
        return {path: _get(stream) for path, stream in self._streams.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put the generators back; those that the state does not hold are left alone.

        Args:
            state: What :meth:`state_dict` returned.
        """
        for path, stream in self._streams.items():
            if path in state:
                _put(stream, state[path])


def _get(stream: Generator) -> Any:
    if isinstance(stream, torch.Generator):
        return stream.get_state()
    if isinstance(stream, random.Random):
        version, internal, gauss = stream.getstate()
        return [version, list(internal), gauss]
    if isinstance(stream, np.random.Generator):
        return _plain(stream.bit_generator.state)
    return _plain(stream.get_state(legacy=False))


def _put(stream: Generator, saved: Any) -> None:
    if isinstance(stream, torch.Generator):
        stream.set_state(saved)
    elif isinstance(stream, random.Random):
        version, internal, gauss = saved
        stream.setstate((version, tuple(internal), gauss))
    elif isinstance(stream, np.random.Generator):
        stream.bit_generator.state = _arrays(saved)
    else:
        stream.set_state(_arrays(saved))


def _plain(value: Any) -> Any:
    """Arrays of NumPy's states as lists of numbers, whose unsigned types torch lacks."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [value.dtype.str, value.tolist()] if isinstance(value, np.ndarray) else value


def _arrays(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _arrays(item) for key, item in value.items()}
    if isinstance(value, list):
        return np.asarray(value[1], dtype=value[0])
    return value
