"""The iterators of one epoch: batches drawn under the epoch's own random streams, and counted."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from composer.trainer.streams import derived_seed, host_streams

__all__ = ["CountedBatches", "EpochIterator", "is_reiterable", "seed_of_first_batch"]


class CountedBatches(Iterator[Any]):
    """A loader's iterator, with the number of batches that were drawn from it.

    Args:
        source: The loader, or an iterator of it.
        drawn: How many batches were drawn before.

    Example:
        >>> batches = CountedBatches([1, 2])
        >>> next(batches), batches.drawn
        (1, 1)
    """

    def __init__(self, source: Iterable[Any], *, drawn: int = 0) -> None:
        self._source = source
        self._batches: Iterator[Any] | None = None
        self.drawn = drawn

    @property
    def ended(self) -> bool:
        """Whether the data came to its end in the last batch, as one that is smaller shows.

        The data's own state is that of its next epoch then. Not public in torch; where it is
        missing, data whose state cannot tell its end from its beginning starts over.
        """
        fetcher = getattr(self._batches, "_dataset_fetcher", None)
        return bool(getattr(fetcher, "ended", False))

    def __iter__(self) -> Iterator[Any]:
        self._batches = iter(self._source)
        return self

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = iter(self._source)
        batch = next(self._batches)
        self.drawn += 1
        return batch


class EpochIterator(Iterator[Any]):
    """The batches of one epoch.

    The loader's iterator is made when the first batch is drawn, and both happen under the epoch's
    own random streams: samplers written as generators draw theirs only then. ``rest`` is the
    loader's own iterator once there is one, so that later batches cost nothing here.

    Args:
        loader: The loader.
        seed: Seed of the epoch's random streams.
        rest: An iterator that was advanced already.
        apart: Whether the first batch is drawn under streams apart from those under which the
            iterator is made: how often a loader with a state draws then depends on its state.

    Example:
        >>> epoch = EpochIterator([1, 2], seed=0)
        >>> next(epoch), next(epoch.rest)
        (1, 2)
    """

    rest: Iterator[Any]

    def __init__(
        self,
        loader: Iterable[Any],
        seed: int,
        rest: Iterator[Any] | None = None,
        *,
        apart: bool = False,
    ) -> None:
        self._loader = loader
        self._seed = seed
        self._apart = apart
        self._started = rest is not None
        self.rest = self if rest is None else rest

    def put_back(self, batch: Any) -> None:
        """Let a batch that was drawn be the next one again.

        Args:
            batch: The batch.

        Example:
            >>> epoch = EpochIterator([1, 2], seed=0)
            >>> epoch.put_back(next(epoch))
            >>> list(epoch)
            [1, 2]
        """
        self.rest = itertools.chain([batch], self.rest)

    def __next__(self) -> Any:
        if self._started:
            return next(self.rest)
        self._started = True
        with host_streams(self._seed):
            self.rest = iter(self._loader)
            if not self._apart:
                return next(self.rest)
        with host_streams(seed_of_first_batch(self._seed)):
            return next(self.rest)


def seed_of_first_batch(seed: int) -> int:
    """Derive the seed under which a first batch is drawn apart from the making of its iterator.

    Args:
        seed: Seed of the epoch's random streams.

    Returns:
        Another seed.

    Example:
        >>> seed_of_first_batch(1) == seed_of_first_batch(2)
        False
    """
    return derived_seed(seed, "first batch", 0)


def is_reiterable(loader: Iterable[Any]) -> bool:
    """Say whether a loader can be passed over more than once.

    Args:
        loader: Any iterable.

    Returns:
        False for generators and other iterators, which are their own iterators.

    Example:
        >>> is_reiterable([1]), is_reiterable(iter([1]))
        (True, False)
    """
    return not isinstance(loader, Iterator)
