"""What a training loader can do: how to come back to a place in it, and how exactly.

Nothing here iterates or changes a loader; ``data.py`` acts on what is found.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from composer.trainer.seeking import takes_indices
from composer.trainer.streams import OwnStreams, own_streams

__all__ = ["LoaderFacts", "sampler_in_use", "samplers_of"]


def samplers_of(loader: Any) -> dict[str, Any]:
    """Return what decides the order of a loader's indices.

    Args:
        loader: Any loader.

    Returns:
        ``batch_sampler`` and ``sampler``, each if there is one: a batch sampler's inner sampler
        before the loader's own, which stands idle where a batch sampler was given.

    Example:
        >>> sorted(samplers_of(DataLoader([1, 2])))
        ['batch_sampler', 'sampler']
        >>> samplers_of([1, 2])
        {}
    """
    batch_sampler = getattr(loader, "batch_sampler", None)
    sampler = getattr(batch_sampler, "sampler", None) or getattr(loader, "sampler", None)
    found = {"batch_sampler": batch_sampler, "sampler": sampler}
    return {name: thing for name, thing in found.items() if thing is not None}


def sampler_in_use(loader: Any) -> Any:
    """Return the sampler whose order a loader follows item by item.

    Args:
        loader: Any loader.

    Returns:
        The sampler inside torch's batch sampler; the loader's own where there is none; ``None``
        where a batch sampler of another kind decides.

    Example:
        >>> type(sampler_in_use(DataLoader([1, 2]))).__name__
        'SequentialSampler'
    """
    batch_sampler = getattr(loader, "batch_sampler", None)
    if batch_sampler is None or type(batch_sampler) is BatchSampler:
        return samplers_of(loader).get("sampler")
    return None


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


class LoaderFacts:
    """What a loader can do.

    Args:
        loader: Any iterable of batches.

    Attributes:
        dataset: The loader's data, or ``None``.
        workers: How many worker processes it has.
        has_indices: Whether it is torch's own for map-style data.
        streams: Random generators of the data, where they are drawn from in this process.
        streaming: Whether the data tells its place by a number of samples.
        own: What says its own place: loader, data, or generators of the data.
        own_name: Under which name that is stored.
        continues: Whether iteration goes on from that place by itself.
        hidden: What may decide on the items that workers make, beside global streams.
        workers_stay: Whether workers go on from epoch to epoch with what they drew and counted.

    Example:
        >>> facts = LoaderFacts(DataLoader([1, 2, 3]))
        >>> facts.has_indices, facts.num_items, facts.own
        (True, 3, None)
    """

    loader: Iterable[Any]
    dataset: Any
    workers: int
    has_indices: bool
    streams: OwnStreams | None
    streaming: bool
    own: Any
    own_name: str
    continues: bool
    hidden: str
    workers_stay: bool

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        dataset: Any = getattr(loader, "dataset", None)
        self.dataset = dataset
        self.workers = int(getattr(loader, "num_workers", 0) or 0)
        self.has_indices = takes_indices(loader)
        collate = getattr(loader, "collate_fn", None)
        streams = {} if dataset is None else own_streams(dataset, collate)
        # A dataset inside worker processes moves there, not here: its state here would be stale.
        self.streams = OwnStreams(streams) if streams and not self.workers else None
        self.own, self.own_name = None, "dataset"
        self.streaming = False
        if _is_stateful(loader):
            self.own, self.own_name = loader, "loader"
        elif dataset is not None and _is_stateful(dataset) and _takes_position(dataset):
            self.streaming = True
        elif not self.workers and isinstance(loader, DataLoader):
            generators = self.streams if self.has_indices else None
            self.own = dataset if _is_stateful(dataset) else generators
        self.continues = self.streaming or (self.own is not None and not self.has_indices)
        self.hidden = self._find_hidden(streams)
        stays = bool(self.workers and getattr(loader, "persistent_workers", False))
        self.workers_stay = stays and not self.has_indices

    def _find_hidden(self, streams: dict[str, Any]) -> str:
        if not self.workers or not self.has_indices:
            return ""
        if getattr(self.loader, "worker_init_fn", None) is not None:
            return "whose worker_init_fn may set up random streams of their own"
        if streams:
            return f"with a random generator in the data set ({next(iter(streams))})"
        return ""

    @property
    def num_items(self) -> int | None:
        """How many items the order of an epoch was drawn from, where indices decide it."""
        if not self.has_indices:
            return None
        try:
            return len(self.dataset)
        except (TypeError, NotImplementedError):
            return None

    @property
    def order(self) -> str | None:
        """In what order an epoch gives the items, in words; ``None`` where no sampler decides."""
        if isinstance(self.dataset, IterableDataset) or not samplers_of(self.loader):
            return None
        sampler = sampler_in_use(self.loader)
        if sampler is None:
            return f"in batches of {type(samplers_of(self.loader)['batch_sampler']).__name__}"
        name = type(sampler).__name__
        if type(sampler) is SequentialSampler:
            return f"in sequence ({name})"
        if type(sampler) is RandomSampler:
            return f"{'drawn anew each time' if sampler.replacement else 'shuffled'} ({name})"
        if isinstance(sampler, DistributedSampler):
            how = f"shuffled by seed {sampler.seed}" if sampler.shuffle else "in sequence"
            return f"{how} and dealt to ranks ({name})"
        return f"as {name} gives them"

    @property
    def own_source(self) -> str:
        """Under which name :meth:`sources` has what says its own place."""
        return (
            "generators in the dataset"
            if self.own is self.streams
            else f"the {self.own_name} itself"
        )

    def sources(self) -> dict[str, Any]:
        """Return what decides an epoch's order by its state at the start: generators, samplers.

        Returns:
            Name to generator or to thing with a state.

        Example:
            >>> loader = DataLoader([1, 2], generator=torch.Generator())
            >>> list(LoaderFacts(loader).sources())
            ['loader.generator']
        """
        found: dict[str, Any] = {}
        samplers = samplers_of(self.loader)
        for name, thing in {"loader": self.loader, **samplers}.items():
            generator = getattr(thing, "generator", None)
            if isinstance(generator, torch.Generator):
                found[f"{name}.generator"] = generator
        for name, thing in samplers.items():
            # The order of a distributed sampler is that of its epoch. What state one has is its
            # place, which at an epoch's start is the end of the epoch before.
            if _is_stateful(thing) and not isinstance(thing, DistributedSampler):
                found[name] = thing
        if self.streams is not None:
            found["generators in the dataset"] = self.streams
        if self.own is not None and self.own is not self.streams:
            found[self.own_source] = self.own
        return found

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch to whatever of the loader wants to know.

        Args:
            epoch: The epoch.

        Example:
            >>> LoaderFacts([1, 2]).set_epoch(3)
        """
        idle = getattr(self.loader, "sampler", None)
        things = [*samplers_of(self.loader).values(), idle, self.dataset]
        for thing in {id(t): t for t in things}.values():
            set_epoch = getattr(thing, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)

    def why_replay(self) -> str:
        """Return what cannot say where it is, for a message.

        Returns:
            A noun phrase.

        Example:
            >>> LoaderFacts([1, 2]).why_replay()
            'the loader list'
        """
        loader = self.loader
        if self.hidden:
            return f"a loader with {self.workers} worker processes, {self.hidden},"
        if isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset):
            return f"the iterable dataset {type(loader.dataset).__name__}"
        return f"the loader {type(loader).__name__}"

    def what_differs(self, epoch: int, *, inside: bool) -> str | None:
        """Return why a resumed run may not get the same items, if it may not.

        Args:
            epoch: The epoch at which it goes on.
            inside: Whether it goes on inside that epoch.

        Returns:
            The reason in words.

        Example:
            >>> LoaderFacts(DataLoader([1, 2])).what_differs(1, inside=True) is None
            True
        """
        if not self.workers:
            return None
        name = type(self.loader).__name__
        if inside and (self.streaming or self.own is self.loader):
            return (
                f"{name} continues at its place, but the random streams of its {self.workers} "
                f"worker processes start anew; items that draw random numbers there will differ"
            )
        if inside and not getattr(self.loader, "in_order", True):
            return (
                "the loader has in_order=False, so batches come as worker processes finish; which "
                "of them were trained on cannot be known, and the order will differ"
            )
        if self.workers_stay and epoch:
            # In the first epoch they are as new as those of a straight run.
            return (
                f"{name} has persistent_workers=True and data whose order is made in its "
                f"{self.workers} worker processes: their random streams, and what the data counts "
                f"there, went on from epoch to epoch and start anew; items that draw random "
                f"numbers there will differ. With persistent_workers=False they are the same"
            )
        return None
