"""The order of the training data, and how to come back to a place in it.

The order of an epoch depends on the run's seed and the epoch alone: its iterator is made, and its
first batch drawn, under random streams seeded from those two, which are put back afterwards. So
nothing else that draws random numbers (dropout, an evaluation, another callback) moves the data,
and a resumed epoch has the order of the interrupted one.

Coming back to a place costs as little as the loader allows: a loader or dataset that keeps its own
state continues where it was; a plain map-style loader without workers draws indices without
reading the items; anything else is replayed, which is said.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from composer.core.data_spec import DataSpec
from composer.core.serializable import Serializable

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["EpochIterator", "TrainData", "derived_seed", "host_streams", "is_reiterable"]

log = logging.getLogger(__name__)


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


@contextmanager
def host_streams(seed: int) -> Iterator[None]:
    """Seed the host's random streams for a block and put them back; devices are left alone.

    Args:
        seed: The seed.

    Yields:
        Nothing.

    Example:
        >>> before = torch.get_rng_state()
        >>> with host_streams(3):
        ...     _ = torch.rand(1)
        >>> torch.equal(before, torch.get_rng_state())
        True
    """
    python, numpy_, torch_ = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)
    torch.random.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_)
        torch.set_rng_state(torch_)


def _is_stateful(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(
        getattr(thing, "load_state_dict", None)
    )


def _takes_position(dataset: Any) -> bool:
    """Whether a dataset's ``state_dict`` asks for the number of samples, as streaming ones do."""
    try:
        parameters = inspect.signature(dataset.state_dict).parameters
    except (TypeError, ValueError):
        return False
    return {"num_samples", "from_beginning"} <= set(parameters)


class TrainData(Serializable):
    """The training loader of a run, as a sequence of epochs that can be entered anywhere.

    Args:
        spec: The loader and how to read its batches.
        state: The state of the run.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> data = TrainData(DataSpec([1, 2, 3]), state)
        >>> list(data.epoch(0))
        [1, 2, 3]
    """

    spec: DataSpec

    def __init__(self, spec: DataSpec, state: State) -> None:
        self.spec = spec
        self.loader = spec.dataloader
        self._state = state
        self._epoch: int | None = None
        self._epoch_start: dict[str, Any] = {}
        # Batches of the epoch that were drawn from other data, before this was given to `fit`.
        self._offset = 0
        self._pending: dict[str, Any] | None = None
        self._left: EpochIterator | None = None
        self._left_at = (0, 0)
        self._finished = True
        dataset: Any = getattr(self.loader, "dataset", None)
        workers = getattr(self.loader, "num_workers", 0)
        self._dataset = dataset
        self._stateful_loader = _is_stateful(self.loader)
        self._streaming = not self._stateful_loader and (
            dataset is not None and _is_stateful(dataset) and _takes_position(dataset)
        )
        # A dataset inside worker processes moves there, not here: its own state would be stale.
        self._stateful_dataset = (
            not self._stateful_loader
            and not self._streaming
            and workers == 0
            and isinstance(dataset, IterableDataset)
            and _is_stateful(dataset)
        )

    # ---- saving -------------------------------------------------------------------------------

    def _sources(self) -> dict[str, Any]:
        """Things whose state at an epoch's start decides its order: generators and samplers."""
        found: dict[str, Any] = {}
        loader = self.loader
        batch_sampler = getattr(loader, "batch_sampler", None)
        sampler = getattr(batch_sampler, "sampler", None) or getattr(loader, "sampler", None)
        for name, thing in (
            ("loader", loader),
            ("batch_sampler", batch_sampler),
            ("sampler", sampler),
        ):
            generator = getattr(thing, "generator", None)
            if isinstance(generator, torch.Generator):
                found[f"{name}.generator"] = generator
        for name, thing in (("batch_sampler", batch_sampler), ("sampler", sampler)):
            if thing is not None and _is_stateful(thing):
                found[name] = thing
        if self._stateful_loader:
            found["the loader itself"] = loader
        elif self._stateful_dataset:
            found["the dataset itself"] = self._dataset
        return found

    def _snapshot(self) -> dict[str, Any]:
        return {
            name: source.get_state() if isinstance(source, torch.Generator) else source.state_dict()
            for name, source in self._sources().items()
        }

    def _put_back(self, snapshot: dict[str, Any]) -> None:
        sources = self._sources()
        for name, saved in snapshot.items():
            source = sources.get(name)
            if isinstance(source, torch.Generator):
                source.set_state(saved)
            elif source is not None:
                source.load_state_dict(saved)

    def state_dict(self) -> dict[str, Any]:
        """Return the position: what made this epoch's order, and the loader's own state.

        Returns:
            Plain types, if the loader's are.
        """
        timestamp = self._state.timestamp
        at_edge = int(timestamp.batch_in_epoch) == 0
        if at_edge and self._broke_off(int(timestamp.epoch)):
            return {"epoch_start": self._epoch_start, "offset": 0}
        saved: dict[str, Any] = {
            "epoch_start": self._snapshot() if at_edge else self._epoch_start,
            "offset": 0 if at_edge else self._offset,
        }
        if self._stateful_loader:
            saved["loader"] = self.loader.state_dict()  # type: ignore[attr-defined]
        elif self._streaming:
            saved["dataset"] = self._dataset.state_dict(
                num_samples=int(timestamp.sample_in_epoch), from_beginning=True
            )
        elif self._stateful_dataset:
            saved["dataset"] = self._dataset.state_dict()
        return saved

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a position to come back to at the next epoch that is entered.

        Args:
            state: What :meth:`state_dict` returned.
        """
        self._pending = dict(state)

    # ---- iterating ----------------------------------------------------------------------------

    def epoch(self, epoch: int) -> EpochIterator:
        """Return an iterator over a whole epoch's batches.

        Args:
            epoch: The epoch, which decides the order.

        Returns:
            The iterator.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            self._put_back(pending.get("epoch_start", {}))
        elif self._broke_off(epoch):
            self._put_back(self._epoch_start)
        self._begin(epoch, offset=0)
        # Inside an epoch that is to start over, the loader's own place in it is not wanted.
        if pending is not None and int(self._state.timestamp.batch_in_epoch) == 0:
            self._apply_own_state(pending)
        return EpochIterator(self.loader, self._seed(epoch))

    def enter(self, epoch: int, done: int) -> EpochIterator:
        """Return an iterator over the rest of an epoch that was started.

        Args:
            epoch: The epoch.
            done: Its batches that were trained on already.

        Returns:
            The iterator; random streams are as they were before the call. Only what was drawn from
            this very data is passed over: data that is new starts at its beginning.

        Raises:
            RuntimeError: If the loader has fewer batches than are to be passed over.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            return self._come_back(epoch, done, pending)
        if self._left is not None and self._left_at == (epoch, done):
            return self._left
        if self._epoch != epoch:
            self._begin(epoch, offset=done)
            return EpochIterator(self.loader, self._seed(epoch))
        if not is_reiterable(self.loader):
            return EpochIterator(self.loader, self._seed(epoch))
        # An error ended the last call of `fit`: the epoch is gone over again up to this place.
        return self._come_back(
            epoch, done, {"epoch_start": self._epoch_start, "offset": self._offset}
        )

    def leave(self, batches: EpochIterator, epoch: int, done: int) -> None:
        """Keep the iterator of an epoch that a call of ``fit`` ended in, for the next call.

        Args:
            batches: The iterator.
            epoch: The epoch.
            done: Its batches that were trained on.
        """
        self._left, self._left_at = batches, (epoch, done)

    def finish(self) -> None:
        """Note that the epoch was gone through to its end."""
        self._finished = True

    def _broke_off(self, epoch: int) -> bool:
        """Whether an error ended an earlier try at this very epoch."""
        return self._epoch == epoch and not self._finished and self._left is None

    def _seed(self, epoch: int) -> int:
        return derived_seed(self._state.seed, "order of epoch", epoch)

    def _begin(self, epoch: int, *, offset: int) -> None:
        self._left = None
        self._finished = False
        self._epoch, self._offset = epoch, offset
        self._set_epoch(epoch)
        self._epoch_start = self._snapshot()

    def _come_back(self, epoch: int, done: int, position: dict[str, Any]) -> EpochIterator:
        self._put_back(position.get("epoch_start", {}))
        self._begin(epoch, offset=int(position.get("offset", 0)))
        continues = self._apply_own_state(position)
        if getattr(self.loader, "persistent_workers", False):
            log.warning(
                "the loader has persistent workers, whose random streams go on from epoch to "
                "epoch and cannot be put back; items that draw random numbers will differ"
            )
        seed = self._seed(epoch)
        with host_streams(seed):
            iterator = iter(self.loader)
            if not continues:
                self._advance(iterator, done - self._offset, epoch)
        return EpochIterator(self.loader, seed, iterator)

    def _set_epoch(self, epoch: int) -> None:
        batch_sampler = getattr(self.loader, "batch_sampler", None)
        inner = getattr(batch_sampler, "sampler", None)
        outer = getattr(self.loader, "sampler", None)
        for thing in {id(t): t for t in (batch_sampler, inner, outer, self._dataset)}.values():
            set_epoch = getattr(thing, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)

    def _apply_own_state(self, pending: dict[str, Any] | None) -> bool:
        """Let a stateful loader or dataset come back by itself; whether it did."""
        if pending is None:
            return False
        if self._stateful_loader and "loader" in pending:
            self.loader.load_state_dict(pending["loader"])  # type: ignore[attr-defined]
            return True
        if (self._streaming or self._stateful_dataset) and "dataset" in pending:
            self._dataset.load_state_dict(pending["dataset"])
            return True
        return False

    def _advance(self, iterator: Iterator[Any], skip: int, epoch: int) -> None:
        indices = self._index_iterator(iterator)
        if indices is None:
            log.warning(
                "replaying %d batches to come back to their place in epoch %d, since %s cannot "
                "say where it is; a loader with `state_dict` and `load_state_dict` continues at "
                "once",
                skip,
                epoch,
                self._why_replay(),
            )
        source = iterator if indices is None else indices
        for done in range(skip):
            try:
                next(source)
            except StopIteration:
                raise RuntimeError(
                    f"the checkpoint was made after {skip} batches of epoch {epoch}, but the "
                    f"dataloader now ends after {done}; use the data and batch size of the saved "
                    f"run, or pass spin_dataloaders=False to start the epoch over"
                ) from None

    def _index_iterator(self, iterator: Iterator[Any]) -> Iterator[Any] | None:
        """The iterator over indices of a plain map-style loader without workers, if it is one."""
        loader = self.loader
        if (
            not isinstance(loader, DataLoader)
            or type(loader).__iter__ is not DataLoader.__iter__
            or loader.num_workers != 0
            or isinstance(loader.dataset, IterableDataset)
        ):
            return None
        # Not public in torch; without it the loader is replayed, which gives the same batches.
        return getattr(iterator, "_sampler_iter", None)

    def _why_replay(self) -> str:
        loader = self.loader
        if isinstance(loader, DataLoader) and loader.num_workers:
            return f"a loader with {loader.num_workers} worker processes"
        if isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset):
            return f"the iterable dataset {type(loader.dataset).__name__}"
        return f"the loader {type(loader).__name__}"


class EpochIterator(Iterator[Any]):
    """The batches of one epoch.

    The loader's iterator is made when the first batch is drawn, and both happen under the epoch's
    own random streams: samplers written as generators draw theirs only then. ``rest`` is the
    loader's own iterator once there is one, so that later batches cost nothing here.

    Args:
        loader: The loader.
        seed: Seed of the epoch's random streams.
        rest: An iterator that was advanced already.

    Example:
        >>> epoch = EpochIterator([1, 2], seed=0)
        >>> next(epoch), next(epoch.rest)
        (1, 2)
    """

    rest: Iterator[Any]

    def __init__(self, loader: Iterable[Any], seed: int, rest: Iterator[Any] | None = None) -> None:
        self._loader = loader
        self._seed = seed
        self._started = rest is not None
        self.rest = self if rest is None else rest

    def __next__(self) -> Any:
        if self._started:
            return next(self.rest)
        self._started = True
        with host_streams(self._seed):
            self.rest = iter(self._loader)
            return next(self.rest)


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
