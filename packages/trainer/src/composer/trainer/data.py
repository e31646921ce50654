"""The order of the training data, and how to come back to a place in it.

The order of an epoch depends on the run's seed and the epoch alone: its iterator is made, and its
first batch drawn, under random streams seeded from those two, which are put back afterwards. So
nothing else that draws random numbers (dropout, an evaluation, another callback) moves the data,
and a resumed epoch has the order of the interrupted one.

Coming back to a place costs as little as the loader allows: a loader or dataset that keeps its own
state continues where it was; torch's loader for map-style data passes over indices without reading
the items, in worker processes too; anything else is replayed, which is said.
"""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from composer.core.data_spec import DataSpec
from composer.core.serializable import Serializable
from composer.trainer.seeking import EndOfLoaderError, SeekableLoader, takes_indices
from composer.trainer.streams import OwnStreams, derived_seed, host_streams, own_streams

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["EpochIterator", "TrainData", "derived_seed", "host_streams", "is_reiterable"]

log = logging.getLogger(__name__)


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
        strict: Whether coming back to a place is an error where the items cannot be the same.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> data = TrainData(DataSpec([1, 2, 3]), state)
        >>> list(data.epoch(0))
        [1, 2, 3]
    """

    spec: DataSpec

    def __init__(self, spec: DataSpec, state: State, *, strict: bool = False) -> None:
        self.spec = spec
        self.loader = spec.dataloader
        self._state = state
        self._strict = strict
        self._epoch: int | None = None
        self._epoch_start: dict[str, Any] = {}
        # Batches of the epoch that were drawn from other data, before this was given to `fit`.
        self._offset = 0
        self._pending: dict[str, Any] | None = None
        self._left: EpochIterator | None = None
        self._left_at = (0, 0)
        self._finished = True
        self._find_out_what_the_loader_can()
        self._counted: _Counted | None = None
        # The newest state of `_own` that was taken in this epoch, and after how many batches.
        self._known: tuple[int, Any] = (0, None)

    def _find_out_what_the_loader_can(self) -> None:
        loader = self.loader
        dataset: Any = getattr(loader, "dataset", None)
        self._dataset = dataset
        self._workers = int(getattr(loader, "num_workers", 0) or 0)
        self._has_indices = takes_indices(loader)
        collate = getattr(loader, "collate_fn", None)
        streams = {} if dataset is None else own_streams(dataset, collate)
        # A dataset inside worker processes moves there, not here: its state here would be stale.
        self._streams = OwnStreams(streams) if streams and not self._workers else None
        own: Any = None
        name = "dataset"
        self._streaming = False
        if _is_stateful(loader):
            own, name = loader, "loader"
        elif dataset is not None and _is_stateful(dataset) and _takes_position(dataset):
            self._streaming = True
        elif not self._workers and isinstance(loader, DataLoader):
            own = dataset if _is_stateful(dataset) else self._streams if self._has_indices else None
        # What says its own place, under which name, and whether iteration then goes on from there.
        self._own, self._own_name = own, name
        self._continues = self._streaming or (own is not None and not self._has_indices)
        # What else but global streams could decide on the items that worker processes make.
        self._hidden = ""
        if self._workers and self._has_indices:
            if getattr(loader, "worker_init_fn", None) is not None:
                self._hidden = "whose worker_init_fn may set up random streams of their own"
            elif streams:
                self._hidden = f"with a random generator in the data set ({next(iter(streams))})"
        self._seekable: SeekableLoader | None = None
        if self._has_indices and not self._hidden:
            self._seekable = SeekableLoader(loader, seeded=True)  # type: ignore[arg-type]

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
            # The order of a distributed sampler is that of its epoch. What state one has is its
            # place, which at an epoch's start is the end of the epoch before.
            if _is_stateful(thing) and not isinstance(thing, DistributedSampler):
                found[name] = thing
        if self._streams is not None:
            found["generators in the dataset"] = self._streams
        if self._own is not None and self._own is not self._streams:
            found[f"the {self._own_name} itself"] = self._own
        return found

    def _snapshot(self, epoch: int) -> dict[str, Any]:
        sources = self._sources()
        if not sources:
            return {}
        # Asked for its state, a loader may make its iterator, which draws random numbers.
        with host_streams(self._seed(epoch)):
            return {
                name: source.get_state()
                if isinstance(source, torch.Generator)
                else source.state_dict()
                for name, source in sources.items()
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

        The position is that of the batches that were trained on. A loader that is further, since a
        batch was drawn and then an error came, is asked for nothing: its last known state goes
        along, with the batches that it is behind.

        Returns:
            Plain types, if the loader's are.
        """
        timestamp = self._state.timestamp
        epoch, done = int(timestamp.epoch), int(timestamp.batch_in_epoch)
        if not done:
            if self._broke_off(epoch):
                return {"epoch_start": self._epoch_start, "offset": 0}
            saved: dict[str, Any] = {"epoch_start": self._snapshot(epoch), "offset": 0}
            own = saved["epoch_start"].get(f"the {self._own_name} itself")
            at = 0
        else:
            saved = {"epoch_start": self._epoch_start, "offset": self._offset}
            at, own = self._own_state(done - self._offset)
        if self._streaming:
            own, at = self._streaming_state(), done - self._offset
        if own is not None:
            saved[self._own_name] = own
            saved["at"] = at
            counted = self._counted
            if done and self._own is self._dataset and counted is not None and counted.ended:
                saved["ended"] = True
        return saved

    def _own_state(self, done: int) -> tuple[int, Any]:
        if self._own is not None and self._counted is not None and self._counted.drawn == done:
            with host_streams(self._seed(self._epoch or 0)):
                self._known = (done, self._own.state_dict())
        return self._known

    def _streaming_state(self) -> Any:
        samples = int(self._state.timestamp.sample_in_epoch)
        return self._dataset.state_dict(num_samples=samples, from_beginning=True)

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
        elif self._epoch is not None and not self._finished:
            self._put_back(self._epoch_start)
        self._begin(epoch, offset=0)
        # Inside an epoch that is to start over, the loader's own place in it is not wanted.
        if pending is not None and int(self._state.timestamp.batch_in_epoch) == 0:
            self._apply_own_state(pending)
        return self._from_the_start(epoch)

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
        if self._epoch is None:
            self._begin(epoch, offset=done)
            return self._from_the_start(epoch)
        if not is_reiterable(self.loader):
            return self._from_the_start(epoch)
        if self._epoch != epoch:
            # The clock was set to an epoch that is not the one at hand. What made its order is not
            # known, but for what belongs to the epoch's number.
            return self._come_back(epoch, done, {})
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

    def skip(self) -> None:
        """Forget a position that was to be come back to: its epoch is at its end."""
        self._pending = None

    def close(self) -> None:
        """Let go of the iterator of an epoch that was not finished, and of worker processes."""
        self._left = self._counted = None
        if self._seekable is not None:
            self._seekable.close()

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
        if self._seekable is not None:
            self._seekable.reseed(self._seed(epoch))
        if self._hidden and getattr(self.loader, "persistent_workers", False):
            self._restart_workers()
        self._epoch_start = self._snapshot(epoch)
        self._known = (0, self._epoch_start.get(f"the {self._own_name} itself"))
        if self._own is not None and self._own is self._streams:
            self._known = (0, self._epoch_start["generators in the dataset"])

    def _restart_workers(self) -> None:
        loader: Any = self.loader
        if loader._iterator is not None:
            loader._iterator = None
            log.info(
                "starting the worker processes anew for this epoch in spite of persistent_workers, "
                "since a resumed run could not continue those of a loader %s",
                self._hidden,
            )

    def _from_the_start(self, epoch: int) -> EpochIterator:
        source: Any = self.loader
        if self._seekable is not None and self._workers:
            source = self._seekable
        if self._own is not None:
            source = self._counted = _Counted(source)
        return EpochIterator(source, self._seed(epoch), apart=self._own is self.loader)

    def _come_back(self, epoch: int, done: int, position: dict[str, Any]) -> EpochIterator:
        self._put_back(position.get("epoch_start", {}))
        self._begin(epoch, offset=int(position.get("offset", 0)))
        skip = done - self._offset
        # After how many batches the loader's or dataset's own state stands.
        at = int(position.get("at", skip)) if self._apply_own_state(position) else None
        self._say_what_may_differ()
        seed = self._seed(epoch)
        with host_streams(seed):
            if position.get("ended"):
                iterator, reached = iter(()), skip
            elif at is not None and self._continues:
                iterator, reached = iter(self.loader), at
            elif self._seekable is not None:
                reached = skip if at is None else at
                try:
                    iterator = self._seekable.enter(reached)
                except EndOfLoaderError as end:
                    raise self._too_short(epoch, skip, end.batches) from None
            else:
                iterator, reached = iter(self.loader), 0
            apart = self._own is self.loader
            with host_streams(_first_batch(seed)) if apart else nullcontext():
                self._replay(iterator, reached, skip, epoch, behind=at is not None)
        if self._own is not None:
            iterator = self._counted = _Counted(iterator, drawn=skip)
        return EpochIterator(self.loader, seed, iterator)

    def _set_epoch(self, epoch: int) -> None:
        batch_sampler = getattr(self.loader, "batch_sampler", None)
        inner = getattr(batch_sampler, "sampler", None)
        outer = getattr(self.loader, "sampler", None)
        for thing in {id(t): t for t in (batch_sampler, inner, outer, self._dataset)}.values():
            set_epoch = getattr(thing, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)

    def _apply_own_state(self, pending: dict[str, Any]) -> bool:
        """Let a stateful loader or dataset come back by itself; whether it did."""
        target = self._dataset if self._streaming else self._own
        if target is None or self._own_name not in pending:
            return False
        own = pending[self._own_name]
        target.load_state_dict(own)
        if not self._streaming:
            self._known = (int(pending.get("at", 0)), own)
        return True

    def _replay(
        self, iterator: Iterator[Any], reached: int, wanted: int, epoch: int, *, behind: bool
    ) -> None:
        """Draw the batches from where the loader is to where it is to be."""
        if reached >= wanted:
            return
        why = f"since {self._why_replay()} cannot say where it is"
        if behind:
            why = "since the loader had moved on from there when an error came"
        log.warning(
            "replaying %d batches to come back to their place in epoch %d, %s; a loader with "
            "`state_dict` and `load_state_dict` continues at once",
            wanted - reached,
            epoch,
            why,
        )
        for done in range(reached, wanted):
            if next(iterator, self) is self:
                raise self._too_short(epoch, wanted, done)

    def _say_what_may_differ(self) -> None:
        if not self._workers:
            return
        if self._own is self.loader:
            said = (
                f"{type(self.loader).__name__} continues at its place, but the random streams of "
                f"its {self._workers} worker processes start anew; items that draw random numbers "
                f"there will differ"
            )
        elif not getattr(self.loader, "in_order", True):
            said = (
                "the loader has in_order=False, so batches come as worker processes finish; which "
                "of them were trained on cannot be known, and the order will differ"
            )
        else:
            return
        if self._strict:
            raise RuntimeError(f"{said}. strict_mode=True does not go on like this")
        log.warning(said)

    def _too_short(self, epoch: int, wanted: int, batches: int) -> RuntimeError:
        return RuntimeError(
            f"the checkpoint was made after {wanted} batches of epoch {epoch}, but the "
            f"dataloader now ends after {batches}; use the data and batch size of the saved "
            f"run, or pass spin_dataloaders=False to start the epoch over"
        )

    def _why_replay(self) -> str:
        loader = self.loader
        if self._hidden:
            return f"a loader with {self._workers} worker processes, {self._hidden},"
        if isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset):
            return f"the iterable dataset {type(loader.dataset).__name__}"
        return f"the loader {type(loader).__name__}"


class _Counted(Iterator[Any]):
    """A loader's iterator, with the number of batches that were drawn from it."""

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
        with host_streams(_first_batch(self._seed)):
            return next(self.rest)


def _first_batch(seed: int) -> int:
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
