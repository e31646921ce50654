"""Come to a place in a torch loader's epoch without reading what lies before it.

A map-style loader asks its sampler for indices and the data set for items. What lies before a place
is passed over among the indices alone, at the speed of a list where the sampler has one. The loader
of the user is not touched: a twin of it, which shares everything but the source of its indices, is
iterated instead.

Worker processes read ahead, so their random streams stand somewhere else than those of the run, and
nobody can say where. Therefore the indices of each batch bring a seed along, which depends on the
epoch's seed and the batch's number: whichever worker receives them, in a straight run or a resumed
one, draws the same numbers for it.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler
from torch.utils.data import get_worker_info as worker_info

__all__ = ["SeekableLoader", "pass_over", "takes_indices"]

_LIST_ITERATORS: tuple[type, ...] = (type(iter([])), type(iter(())))
_WORTH_A_JUMP = 256


def takes_indices(loader: Any) -> bool:
    """Say whether a loader is torch's own for map-style data, which draws indices first.

    Args:
        loader: Any loader.

    Returns:
        False for iterable data and for subclasses that iterate in a way of their own.

    Example:
        >>> takes_indices(DataLoader([1, 2])), takes_indices([1, 2])
        (True, False)
    """
    return (
        isinstance(loader, DataLoader)
        and type(loader).__iter__ is DataLoader.__iter__
        and type(loader)._get_iterator is DataLoader._get_iterator
        and not isinstance(loader.dataset, IterableDataset)
    )


def pass_over(items: Iterator[Any], count: int) -> int:
    """Draw items that nobody wants, without drawing them one by one where that can be.

    The iterator of a list, alone or inside a generator that yields from it (as that of torch's
    ``RandomSampler``), is set to its new place at once.

    Args:
        items: The iterator.
        count: How many to pass over.

    Returns:
        How many there were; fewer than ``count`` if the iterator ended.

    Example:
        >>> items = iter([10, 11, 12])
        >>> pass_over(items, 2), next(items), pass_over(items, 2)
        (2, 12, 0)
    """
    passed, draw = 0, 1
    while passed < count:
        inner: Any = getattr(items, "gi_yieldfrom", None) or items
        jumped = _jump(inner, count - passed) if type(inner) in _LIST_ITERATORS else 0
        if jumped:
            passed, draw = passed + jumped, 1
            continue
        wanted = min(draw, count - passed)
        drawn = _draw(items, wanted)
        passed, draw = passed + drawn, draw * 2
        if drawn < wanted:
            break
    return passed


def _jump(items: Any, count: int) -> int:
    left = items.__length_hint__()
    if not left or left < min(_WORTH_A_JUMP, count):
        return 0
    step = min(left, count)
    place = items.__reduce__()[2]
    items.__setstate__(place + step)
    return step


def _draw(items: Iterator[Any], count: int) -> int:
    counter = itertools.count()
    deque(zip(itertools.islice(items, count), counter, strict=False), maxlen=0)
    return next(counter)


# ---- seeds that travel with indices -----------------------------------------------------------


class _SeededIndices:
    """Indices of a batch on their way to a worker process, which unpacks them as they were."""

    def __init__(self, seed: int, batch: int, indices: Any) -> None:
        self._parts = (seed, batch, indices)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _receive, self._parts


def _receive(seed: int, batch: int, indices: Any) -> Any:
    """Seed the streams of the worker process that receives a batch's indices."""
    if worker_info() is not None:
        digest = hashlib.blake2b(f"batch {batch} {seed}".encode(), digest_size=32).digest()
        random.seed(digest[:8])
        np.random.seed(np.frombuffer(digest[8:24], dtype=np.uint32))
        torch.random.default_generator.manual_seed(int.from_bytes(digest[24:31], "big"))
    return indices


# ---- the twin ---------------------------------------------------------------------------------


class _Batches(Iterator[Any]):
    """The indices of one epoch's batches from a place on."""

    def __init__(self, sampler: Any, first: int, seed: int | None) -> None:
        # Some samplers draw random numbers here, others at the first batch: both as ever.
        self._batches = iter(sampler)
        self._sampler = sampler
        self._batch, self._seed = 0, seed
        self._first = first

    def seek(self) -> None:
        """Come to the first batch that is wanted; called again it does nothing."""
        missing = self._first - self._batch
        if missing <= 0:
            return
        self._batch = self._first
        if type(self._sampler) is BatchSampler:
            passed = self._seek_items(self._sampler, missing)
        elif type(self._sampler) is SequentialSampler:
            self._batches, passed = _from_place(self._sampler, missing)
        else:
            passed = pass_over(self._batches, missing)
        if passed < missing:
            self._batch = passed
            raise EndOfLoaderError(passed)

    def _seek_items(self, sampler: BatchSampler, batches: int) -> int:
        size, count = sampler.batch_size, batches * sampler.batch_size
        inner: Any = sampler.sampler
        if type(inner) is SequentialSampler:
            items, passed = _from_place(inner, count)
        else:
            items = iter(inner)
            passed = pass_over(items, count)
        self._batches = iter(BatchSampler(items, size, sampler.drop_last))
        # A last batch may be smaller.
        return passed // size if sampler.drop_last else -(-passed // size)

    def __next__(self) -> Any:
        self.seek()
        indices = next(self._batches)
        if self._seed is None:
            return indices
        seeded = _SeededIndices(self._seed, self._batch, indices)
        self._batch += 1
        return seeded


def _from_place(sampler: Sized, count: int) -> tuple[Iterator[int], int]:
    size = len(sampler)
    return iter(range(min(count, size), size)), min(count, size)


class EndOfLoaderError(Exception):
    """A loader ended before the place that was looked for.

    Args:
        batches: How many batches it has.

    Example:
        >>> EndOfLoaderError(3).batches
        3
    """

    def __init__(self, batches: int) -> None:
        super().__init__(f"the loader ends after {batches} batches")
        self.batches = batches


class _IndexSource:
    """Stands in for a loader's sampler in its twin."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.first, self.seed = 0, 0
        self.seeded = False
        self.newest: _Batches | None = None

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> _Batches:
        self.newest = _Batches(self._sampler, self.first, self.seed if self.seeded else None)
        return self.newest


class SeekableLoader(Iterable[Any]):
    """A torch loader that can be entered at any batch, with the same batches from there on.

    Args:
        loader: A loader for which :func:`takes_indices` holds.
        seeded: Whether the indices carry seeds to the worker processes.

    Example:
        >>> loader = SeekableLoader(DataLoader([1, 2, 3, 4, 5], batch_size=2))
        >>> [batch.tolist() for batch in loader.enter(1)]
        [[3, 4], [5]]
    """

    def __init__(self, loader: DataLoader[Any], *, seeded: bool = False) -> None:
        self._loader = loader
        self._source = _IndexSource(loader._index_sampler)
        self._source.seeded = seeded and loader.num_workers > 0
        # Worker processes that stay belong to the twin, and stay with it.
        self._twin: Any = object.__new__(type(loader))

    def reseed(self, seed: int) -> None:
        """Set the seed of the next epoch.

        Args:
            seed: What the seeds of its batches depend on.
        """
        self._source.seed = seed

    def __iter__(self) -> Iterator[Any]:
        return self.enter(0)

    def close(self) -> None:
        """Let go of worker processes that stay between epochs."""
        vars(self._twin).pop("_iterator", None)

    def enter(self, batch: int) -> Iterator[Any]:
        """Iterate from a batch on.

        In worker processes at most ``num_workers - 1`` batches before it are read as well, so that
        each worker gets the batches that it gets in a straight run.

        Args:
            batch: The number of the first batch that is wanted.

        Returns:
            The iterator; what decides the order was drawn, and no item of another batch is read.

        Raises:
            EndOfLoaderError: If the loader has fewer batches.
        """
        loader, twin, source = self._loader, self._twin, self._source
        extra = batch % loader.num_workers if loader.num_workers else 0
        source.first = batch - extra
        workers = vars(twin).get("_iterator")
        # Setting these attributes of a loader is refused, with reason, so the twin's are placed.
        vars(twin).update(vars(loader))
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        vars(twin).update({name: source, "_iterator": workers})
        if workers is not None:
            # Making an iterator draws in this order; taking the old one with its workers up again
            # does not, and the epoch's order would depend on whether they are new.
            iter(source)
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        iterator = iter(twin)
        if not loader.num_workers and batch:
            assert source.newest is not None
            source.newest.seek()
        for done in range(extra):
            if next(iterator, self) is self:
                raise EndOfLoaderError(source.first + done)
        return iterator
