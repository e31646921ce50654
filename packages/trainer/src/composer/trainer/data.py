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

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from composer.core.data_spec import DataSpec
from composer.core.serializable import Serializable
from composer.trainer.epoch_iterator import (
    CountedBatches,
    EpochIterator,
    is_reiterable,
    seed_of_first_batch,
)
from composer.trainer.loader_facts import LoaderFacts
from composer.trainer.seeking import EndOfLoaderError, SeekableLoader
from composer.trainer.streams import derived_seed, host_streams

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["EpochIterator", "TrainData", "derived_seed", "host_streams", "is_reiterable"]

log = logging.getLogger(__name__)


class _PlaceError(RuntimeError):
    """A place cannot be come back to, told in this module's own words."""


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
    loader: Iterable[Any]
    # What the loader can do, and its twin that can be entered anywhere
    _facts: LoaderFacts
    _seekable: SeekableLoader | None
    # The epoch at hand: what made its order, and its batches that were drawn from other data,
    # before this was given to `fit`
    _epoch: int | None
    _epoch_start: dict[str, Any]
    _offset: int
    _finished: bool
    # A place to come back to: from a checkpoint, or where a call of `fit` ended
    _pending: dict[str, Any] | None
    _left: EpochIterator | None
    _left_at: tuple[int, int]
    # The newest state of the loader's own that was taken in this epoch, after how many batches
    _counted: CountedBatches | None
    _known: tuple[int, Any]

    def __init__(self, spec: DataSpec, state: State, *, strict: bool = False) -> None:
        self.spec = spec
        self.loader = spec.dataloader
        self._facts = facts = LoaderFacts(self.loader)
        self._seekable = None
        if facts.has_indices and not facts.hidden:
            self._seekable = SeekableLoader(self.loader, seeded=True)  # type: ignore[arg-type]
        self._state = state
        self._strict = strict
        self._epoch = None
        self._epoch_start = {}
        self._offset = 0
        self._pending = None
        self._left = None
        self._left_at = (0, 0)
        self._finished = True
        self._counted = None
        self._known = (0, None)

    # ---- saving -------------------------------------------------------------------------------

    def _snapshot(self, epoch: int) -> dict[str, Any]:
        sources = self._facts.sources()
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
        sources = self._facts.sources()
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
        if self._pending is not None:
            return dict(self._pending)  # loaded, and still to be come back to
        facts, timestamp = self._facts, self._state.timestamp
        epoch, done = int(timestamp.epoch), int(timestamp.batch_in_epoch)
        if not done:
            if self._broke_off(epoch):
                return {"epoch_start": self._epoch_start, "offset": 0}
            saved: dict[str, Any] = {"epoch_start": self._snapshot(epoch), "offset": 0}
            own = None
            if facts.own is not facts.streams:
                own = saved["epoch_start"].get(facts.own_source)
            at = 0
        else:
            saved = {"epoch_start": self._epoch_start, "offset": self._offset}
            at, own = self._own_state(done - self._offset)
            if facts.num_items is not None:
                saved["num_items"] = facts.num_items
            if facts.order is not None:
                saved["order"] = facts.order
        if facts.streaming:
            own, at = self._streaming_state(), done - self._offset
        if own is not None:
            saved[facts.own_name] = own
            saved["at"] = at
            if facts.own is facts.loader:
                saved["workers"] = facts.workers
            counted = self._counted
            if done and facts.own is facts.dataset and counted is not None and counted.ended:
                saved["ended"] = True
        return saved

    def _own_state(self, done: int) -> tuple[int, Any]:
        if (
            self._facts.own is not None
            and self._counted is not None
            and self._counted.drawn == done
        ):
            with host_streams(self._seed(self._epoch or 0)):
                self._known = (done, self._facts.own.state_dict())
        return self._known

    def _streaming_state(self) -> Any:
        samples = int(self._state.timestamp.sample_in_epoch)
        return self._facts.dataset.state_dict(num_samples=samples, from_beginning=True)

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

        Raises:
            ValueError: If the loader does not take its own state back.
        """
        self._look_again()
        pending, self._pending = self._pending, None
        if pending is not None:
            self._say_what_may_differ(epoch, inside=False)
            with self._told_in_words(pending):
                self._put_back(pending.get("epoch_start", {}))
                self._begin(epoch, offset=0)
                # Inside an epoch that is to start over, the loader's own place is not wanted.
                if int(self._state.timestamp.batch_in_epoch) == 0:
                    self._apply_own_state(pending)
            return self._from_the_start(epoch)
        if self._epoch is not None and not self._finished:
            self._put_back(self._epoch_start)
        self._begin(epoch, offset=0)
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
            ValueError: If the order was of another kind or one of another number of items, or the
                loader does not take its own state back.
        """
        self._look_again()
        pending, self._pending = self._pending, None
        if pending is not None:
            self._check_num_items(epoch, done, pending.get("num_items"))
            self._check_order(epoch, done, pending.get("order"))
            with self._told_in_words(pending):
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

    def _look_again(self) -> None:
        """See to what a method put into the loader at the start of training: other data."""
        if getattr(self.loader, "dataset", None) is not self._facts.dataset:
            self._facts = LoaderFacts(self.loader)

    def _broke_off(self, epoch: int) -> bool:
        """Whether an error ended an earlier try at this very epoch."""
        return self._epoch == epoch and not self._finished and self._left is None

    def _seed(self, epoch: int) -> int:
        return derived_seed(self._state.seed, "order of epoch", epoch)

    def _begin(self, epoch: int, *, offset: int) -> None:
        self._left = None
        self._finished = False
        self._epoch, self._offset = epoch, offset
        self._facts.set_epoch(epoch)
        if self._seekable is not None:
            self._seekable.reseed(self._seed(epoch))
        if self._facts.hidden and getattr(self.loader, "persistent_workers", False):
            self._restart_workers()
        self._epoch_start = self._snapshot(epoch)
        own = None if self._facts.own is None else self._epoch_start.get(self._facts.own_source)
        self._known = (0, own)

    def _restart_workers(self) -> None:
        loader: Any = self.loader
        if loader._iterator is not None:
            loader._iterator = None
            log.info(
                "starting the worker processes anew for this epoch in spite of persistent_workers, "
                "since a resumed run could not continue those of a loader %s",
                self._facts.hidden,
            )

    def _from_the_start(self, epoch: int) -> EpochIterator:
        source: Any = self.loader
        if self._seekable is not None and self._facts.workers:
            source = self._seekable
        if self._facts.own is not None:
            source = self._counted = CountedBatches(source)
        return EpochIterator(source, self._seed(epoch), apart=self._facts.own is self.loader)

    def _come_back(self, epoch: int, done: int, position: dict[str, Any]) -> EpochIterator:
        self._put_back(position.get("epoch_start", {}))
        self._begin(epoch, offset=int(position.get("offset", 0)))
        skip = done - self._offset
        # After how many batches the loader's or dataset's own state stands.
        at = int(position.get("at", skip)) if self._apply_own_state(position) else None
        self._say_what_may_differ(epoch, inside=True)
        seed = self._seed(epoch)
        with host_streams(seed):
            if position.get("ended"):
                iterator, reached = iter(()), skip
            elif at is not None and self._facts.continues:
                iterator, reached = iter(self.loader), at
            elif self._seekable is not None:
                reached = skip if at is None else at
                try:
                    iterator = self._seekable.enter(reached)
                except EndOfLoaderError as end:
                    raise self._too_short(epoch, skip, end.batches) from None
            else:
                iterator, reached = iter(self.loader), 0
            apart = self._facts.own is self.loader
            with host_streams(seed_of_first_batch(seed)) if apart else nullcontext():
                self._replay(iterator, reached, skip, epoch, behind=at is not None)
        if self._facts.own is not None:
            iterator = self._counted = CountedBatches(iterator, drawn=skip)
        return EpochIterator(self.loader, seed, iterator)

    def _apply_own_state(self, pending: dict[str, Any]) -> bool:
        """Let a stateful loader or dataset come back by itself; whether it did."""
        target = self._facts.dataset if self._facts.streaming else self._facts.own
        if target is None or self._facts.own_name not in pending:
            return False
        own = pending[self._facts.own_name]
        target.load_state_dict(own)
        if not self._facts.streaming:
            self._known = (int(pending.get("at", 0)), own)
        return True

    @contextmanager
    def _told_in_words(self, position: dict[str, Any]) -> Iterator[None]:
        """Say in words what a loader's own state means that it refuses in words of its own.

        Some take any state, so that only one that raised is told; torchdata's asserts.
        """
        try:
            yield
        except _PlaceError:
            raise
        except Exception as error:
            loader = type(self.loader).__name__
            then, here = position.get("workers", self._facts.workers), self._facts.workers
            anew = "let the data start anew with load_ignore_keys=['state/dataset_state']"
            if then != here:
                raise ValueError(
                    f"{loader} does not take its place back: the checkpoint was made with "
                    f"num_workers={then}, and the train dataloader has num_workers={here}. Pass "
                    f"num_workers={then}, or {anew}"
                ) from error
            if self._facts.own is not self.loader or self._facts.own_name not in position:
                raise
            data = type(self._facts.dataset).__name__
            raise ValueError(
                f"{loader} does not take its place back ({type(error).__name__}: {error}). "
                f"torchdata's does not where it has worker processes (num_workers={here}), the "
                f"data ({data}) is iterable and has no `state_dict`, and the run was resumed "
                f"before in this epoch. Give the data `state_dict` and `load_state_dict`, use "
                f"num_workers=0 or torch's DataLoader, or {anew}"
            ) from error

    def _replay(
        self, iterator: Iterator[Any], reached: int, wanted: int, epoch: int, *, behind: bool
    ) -> None:
        """Draw the batches from where the loader is to where it is to be."""
        if reached >= wanted:
            return
        why = f"since {self._facts.why_replay()} cannot say where it is"
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

    def _say_what_may_differ(self, epoch: int, *, inside: bool) -> None:
        said = self._facts.what_differs(epoch, inside=inside)
        if said is None:
            return
        if self._strict:
            raise _PlaceError(f"{said}. strict_mode=True does not go on like this")
        log.warning(said)

    def _check_num_items(self, epoch: int, done: int, stored: int | None) -> None:
        here = self._facts.num_items
        if stored is not None and here is not None and stored != here:
            raise ValueError(
                f"the checkpoint was made after {done} batches of epoch {epoch}, whose order is "
                f"one of {stored} items, but the train dataset now has {here}, so what is left of "
                f"it cannot be told. Use the data of the saved run, resume from a checkpoint at an "
                f"epoch's end, or pass spin_dataloaders=False to start the epoch over"
            )

    def _check_order(self, epoch: int, done: int, stored: str | None) -> None:
        here = self._facts.order
        if stored is not None and here is not None and stored != here:
            raise ValueError(
                f"the checkpoint was made after {done} batches of epoch {epoch}, whose items came "
                f"{stored}, but the train dataloader gives them {here}, so some would come twice "
                f"and others not at all. Give it the sampler of the saved run (shuffle=...), "
                f"resume from a checkpoint at an epoch's end, or pass spin_dataloaders=False to "
                f"start the epoch over"
            )

    def _too_short(self, epoch: int, wanted: int, batches: int) -> RuntimeError:
        return _PlaceError(
            f"the checkpoint was made after {wanted} batches of epoch {epoch}, but the "
            f"dataloader now ends after {batches}; use the data and batch size of the saved "
            f"run, or pass spin_dataloaders=False to start the epoch over"
        )
