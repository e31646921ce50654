"""How selective backprop thins out whole batches: all members with one entry per sample, or none.

A batch does not say which of its members belong to samples: a list of strings may hold one name per
sample or the names of the classes, and the shape ``(2,)`` may be two samples or two constants. So
this is decided once, on the first batch that is large enough to tell, and every later batch has to
agree. Members that would get out of step are refused there, and not when the selection starts.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence, Sized
from typing import Any, NoReturn

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from composer.algorithms._state import with_replaced
from composer.core.warnings import NoEffectWarning
from composer.utils.batches import batch_get
from composer.utils.iteration import rebuild_mapping, rebuild_sequence

__all__ = ["LEAST", "Thinning"]

#: Normalisation layers refuse to train on one sample, so this many stay.
LEAST = 2

_Path = tuple[Any, ...]


class Thinning:
    """Keeps some samples of batches that are built alike.

    Tensors, arrays, lists and tuples with one entry per sample are thinned out, wherever they stand
    in nested lists, tuples, mappings and in objects with attributes.

    Args:
        keys: Where samples and labels are; these members must be among those with one entry per
            sample.

    Example:
        >>> batch = {"x": torch.tensor([1, 2, 3]), "name": ["a", "b", "c"], "scale": torch.ones(2)}
        >>> thin = Thinning(["x"]).select(batch, torch.tensor([2, 0]), 3)
        >>> thin["x"], thin["name"], thin["scale"]
        (tensor([3, 1]), ['c', 'a'], tensor([1., 1.]))
    """

    def __init__(self, keys: Sequence[Any]) -> None:
        self._keys = tuple(keys)
        #: Where a member stands -> whether it has one entry per sample.
        self._decided: dict[_Path, bool] = {}

    def trial(self, batch: Any, num_samples: int) -> Any:
        """Keep the fewest samples that can stay of the first batch, or say that it is too small.

        Args:
            batch: The batch; it stays as it is.
            num_samples: Number of samples in the batch.

        Returns:
            A batch of ``LEAST`` samples, or the given one if it has no more.

        Raises:
            TypeError: If a member cannot be thinned out, or it cannot be told whether it must be.
            ValueError: If a member does not have as many entries as there are samples.

        Example:
            >>> Thinning([0, 1]).trial((torch.arange(3), torch.arange(3)), 3)
            (tensor([0, 1]), tensor([0, 1]))
        """
        if num_samples > LEAST:
            return self.select(batch, torch.arange(LEAST), num_samples)
        warnings.warn(
            f"SelectiveBackprop keeps at least {LEAST} samples, so batches of {num_samples} stay "
            f"as they are; use larger batches",
            NoEffectWarning,
            stacklevel=3,
        )
        return batch

    def select(self, batch: Any, chosen: torch.Tensor, num_samples: int) -> Any:
        """Keep some samples of a batch.

        Args:
            batch: The batch; it stays as it is.
            chosen: Indices of the samples.
            num_samples: Number of samples in the batch.

        Returns:
            The smaller batch.

        Raises:
            TypeError: If a member cannot be thinned out, or it cannot be told whether it must be.
            ValueError: If a member does not have as many entries as there are samples.

        Example:
            >>> Thinning([0, 1]).select((torch.arange(3), ["a", "b", "c"]), torch.tensor([1]), 3)
            (tensor([1]), ['b'])
        """
        cut = _Cut(self._decided, chosen, num_samples)
        # With plain keys the batch itself is no list of samples.
        if isinstance(batch, Mapping) or (
            isinstance(batch, (list, tuple)) and not any(map(_is_function, self._keys))
        ):
            thin = cut.inside(batch, ())
        elif isinstance(batch, (torch.Tensor, np.ndarray, list, tuple)):
            thin = cut.member(batch, ())
        else:
            thin = self._object(batch, cut)
        for key in self._keys:
            if thin is batch or batch_get(thin, key) is batch_get(batch, key):
                raise ValueError(
                    f"SelectiveBackprop found nothing with one entry for each of the {num_samples} "
                    f"samples at {key!r} in the batch; samples must come first in its shape"
                )
        return thin

    def _object(self, batch: Any, cut: _Cut) -> Any:
        thin = batch
        for name, value in getattr(batch, "__dict__", {}).items():
            if (new := cut.member(value, (name,))) is not value:
                thin = with_replaced(thin, name, new)
        for key in self._keys:
            value = batch_get(batch, key)
            if batch_get(thin, key) is value:
                thin = with_replaced(thin, key, cut.member(value, (key,)))
        return thin


class _Cut:
    """One selection from one batch."""

    def __init__(self, decided: dict[_Path, bool], chosen: torch.Tensor, num_samples: int) -> None:
        self._decided = decided
        self._chosen = chosen
        self._indices: list[int] = chosen.tolist()
        self._num_samples = num_samples

    def member(self, value: Any, path: _Path) -> Any:
        """The value with only the chosen entries, or as it is if it has none per sample."""
        if isinstance(value, PackedSequence):
            self._refuse(value, path)
        if path not in self._decided:
            self._decided[path] = self._has_samples(value, path)
        if not self._decided[path]:
            if isinstance(value, (list, tuple, Mapping)):
                return self.inside(value, path)
            return value
        if (found := _length(value)) != self._num_samples:
            entries = "no" if found is None else found
            raise ValueError(
                f"SelectiveBackprop thins out {_name(path)} with the samples, but in this batch of "
                f"{self._num_samples} samples it has {entries} entries"
            )
        if isinstance(value, torch.Tensor):
            return value[self._chosen.to(value.device)]
        if isinstance(value, np.ndarray):
            return value[self._indices]
        if not isinstance(value, (list, tuple)):
            self._refuse(value, path)
        return rebuild_sequence(value, [value[i] for i in self._indices])

    def inside(self, value: Any, path: _Path) -> Any:
        """The collection with each of its members thinned out."""
        if isinstance(value, Mapping):
            values = {key: self.member(item, (*path, key)) for key, item in value.items()}
            same = all(values[key] is item for key, item in value.items())
            return value if same else rebuild_mapping(value, values)
        items = [self.member(item, (*path, i)) for i, item in enumerate(value)]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else rebuild_sequence(value, items)

    def _refuse(self, value: Any, path: _Path) -> NoReturn:
        raise TypeError(
            f"SelectiveBackprop cannot take samples out of {_name(path)}, a "
            f"{type(value).__name__} with entries for them; make it a tensor or a list, or leave "
            f"it out of the batch"
        )

    def _has_samples(self, value: Any, path: _Path) -> bool:
        if isinstance(value, Mapping) or _length(value) != self._num_samples:
            return False
        if not isinstance(value, (list, tuple)):
            return True
        if getattr(value, "_fields", None) is not None:
            return False  # a record of members, not a row of samples
        rows = [_length(item) == self._num_samples for item in value]
        # Things of one kind, a few of which have this length, are samples of various lengths.
        if all(rows) or (any(rows) and len({type(item) for item in value}) > 1):
            raise TypeError(
                f"SelectiveBackprop cannot tell what belongs to a sample in {_name(path)}: there "
                f"are {self._num_samples} samples, and both the {type(value).__name__} and members "
                f"of it have that length; use another batch size, or make it a tensor or a mapping"
            )
        return True


def _is_function(key: Any) -> bool:
    return callable(key) or (isinstance(key, (list, tuple)) and any(map(callable, key)))


def _length(value: Any) -> int | None:
    """The number of entries, or ``None`` for what has none."""
    if isinstance(value, torch.Tensor):
        return value.size(0) if value.dim() else None
    if isinstance(value, np.ndarray):
        return len(value) if value.ndim else None
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sized):
        return None
    return len(value)


def _name(path: _Path) -> str:
    return "the batch" + "".join(f"[{step!r}]" for step in path)
