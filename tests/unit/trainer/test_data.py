"""Every place of an epoch is found again: samples, random items, and no needless reads."""

from __future__ import annotations

import logging
import random
import re
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from composer.core.data_spec import DataSpec
from composer.core.persistence import to_plain
from composer.core.state import State
from composer.core.timestamp import Timestamp
from composer.trainer.data import TrainData, host_streams
from composer.trainer.seeking import SeekableLoader, pass_over, takes_indices
from composer.trainer.streams import own_streams
from composer.utils import dist
from composer.utils.reproducibility import get_rng_state, load_rng_state, seed_all
from composer_testing.tiny import state_of

SIZE = 22


class Noisy(Dataset[Any]):
    """Items of their number and one number of each global random stream; counts its reads."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self.reads = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        noise = (random.random(), float(np.random.rand()), torch.rand(()).item())
        return index, torch.tensor(noise)


class Still(Noisy):
    """Items of their number alone."""

    def __getitem__(self, index: int) -> Any:
        return index, torch.zeros(1)


class OwnGenerator(Noisy):
    """Items that draw from a generator which no global seed reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = [{"rng": np.random.default_rng(0)}, np.random.RandomState(1)]
        self.python, self.torch = random.Random(2), torch.Generator().manual_seed(3)

    def __getitem__(self, index: int) -> Any:
        a, b = self.transform[0]["rng"].random(), self.transform[1].rand()  # type: ignore[index]
        c, d = self.python.gauss(0, 1), torch.rand((), generator=self.torch).item()
        return super().__getitem__(index)[0], torch.tensor([a, b, c, d])


class Counting(Noisy):
    """Map-style data with a state: items depend on how many were read before."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __getitem__(self, index: int) -> Any:
        self.count += 1
        self.reads += 1
        return index, torch.tensor([float(self.count)])

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Stream(IterableDataset[Any]):
    """Iterable data, dealt out to workers, with random items."""

    def __init__(self) -> None:
        self.items = Noisy()

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        yield from (self.items[i] for i in range(first, SIZE, step))


class Place(Stream):
    """Iterable data that says where it is."""

    def __init__(self) -> None:
        super().__init__()
        self.position = 0

    def __iter__(self) -> Iterator[Any]:
        while self.position < SIZE:
            self.position += 1
            yield self.items[self.position - 1]
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class Eager(Sampler[list[int]]):
    """A batch sampler that is no subclass of torch's and draws when an iterator is made."""

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[list[int]]:
        return iter([chunk.tolist() for chunk in torch.randperm(SIZE).split(4)])


def _seed_worker(number: int) -> None:
    np.random.seed(1000 + number)


def build(data: Callable[[], Any] = Noisy, size: int = 4, **settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        dataset = data()
        made = {k: v(dataset) if k.endswith("sampler") else v for k, v in settings.items()}
        if not isinstance(dataset, IterableDataset):
            made.setdefault("shuffle", not any(k.endswith("sampler") for k in made))
        if "generator" in made:
            made["generator"] = torch.Generator().manual_seed(made["generator"])
        if "batch_sampler" not in made:
            made["batch_size"] = size or None
        return DataLoader(dataset, **made)

    return make


def torchdata(**settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        from torchdata.stateful_dataloader import StatefulDataLoader

        data = settings.get("data", Noisy)()
        arguments = {k: v for k, v in settings.items() if k != "data"}
        with warnings.catch_warnings():
            # It calls something of torch that newer torch no longer wants called.
            warnings.filterwarnings("ignore", message="'set_vital' is deprecated")
            return StatefulDataLoader(data, batch_size=4, **arguments)

    return make


def _weighted(data: Any, **settings: Any) -> Any:
    return WeightedRandomSampler(
        torch.arange(1.0, 1 + len(data)), **{"num_samples": 19, **settings}
    )


def _own_order(data: Any) -> Any:
    return RandomSampler(data, generator=torch.Generator().manual_seed(8))


def _place_keeping(data: Any) -> Any:
    """A distributed sampler with a state, which is a place and not an order."""
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    return StatefulDistributedSampler(data, num_replicas=1, rank=0, shuffle=True)


MAP: dict[str, Callable[[], Any]] = {
    "shuffled": build(),
    "in order": build(shuffle=False),
    "without the rest": build(drop_last=True),
    "one by one": build(size=0),
    "own generator": build(generator=4),
    "own sampler generator": build(sampler=_own_order),
    "with replacement": build(sampler=partial(RandomSampler, replacement=True, num_samples=70)),
    "more than once": build(sampler=partial(RandomSampler, num_samples=50)),
    "subset": build(sampler=lambda data: SubsetRandomSampler(range(3, 20))),
    "weighted": build(sampler=_weighted),
    "weighted, each once": build(sampler=partial(_weighted, replacement=False)),
    "get_sampler": build(sampler=partial(dist.get_sampler, shuffle=True)),
    "a rank's share": build(
        sampler=partial(dist.get_sampler, shuffle=True, num_replicas=2, rank=1, drop_last=True)
    ),
    "torchdata's sampler": build(sampler=_place_keeping),
    "batch sampler": build(batch_sampler=lambda d: BatchSampler(RandomSampler(d), 3, True)),
    "batch sampler in order": build(
        batch_sampler=lambda d: BatchSampler(SequentialSampler(d), 5, False)
    ),
    "eager batch sampler": build(batch_sampler=lambda data: Eager()),
    "order itself as data": build(batch_sampler=lambda data: [[0, 1], [2], [3, 4, 5]]),
    "generators in the data": build(OwnGenerator),
    "data with a state": build(Counting),
}
OTHER: dict[str, Callable[[], Any]] = {
    "iterable": build(Stream),
    "iterable with a state": build(Place),
    "torchdata": torchdata(shuffle=True),
    "torchdata, data with a state": torchdata(data=Counting),
    "torchdata, iterable with a state": torchdata(data=Place),
}
WORKERS: dict[str, Callable[[], Any]] = {
    "shuffled": build(num_workers=2),
    "get_sampler": build(
        sampler=partial(dist.get_sampler, shuffle=True), num_workers=2, prefetch_factor=1
    ),
    "workers that stay": build(num_workers=2, persistent_workers=True),
    "spread over one": build(num_workers=1, drop_last=True),
    "worker_init_fn": build(num_workers=2, worker_init_fn=_seed_worker),
    "worker_init_fn, workers that stay": build(
        num_workers=2, worker_init_fn=_seed_worker, persistent_workers=True
    ),
    "generators in the data": build(OwnGenerator, num_workers=2),
    "iterable": build(Stream, num_workers=2),
    "torchdata": torchdata(data=Still, num_workers=2, shuffle=True),
}


def listed(value: Any) -> Any:
    """Tensors as lists, all through."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: listed(item) for key, item in value.items()}
    return [listed(item) for item in value] if isinstance(value, (list, tuple)) else value


class Training:
    """Goes over data as the loop does, without a model."""

    def __init__(self, make: Callable[[], Any], saved: Any = None) -> None:
        seed_all(1)
        self.loader = make()
        self.state: State = state_of()
        self.state.rank_zero_seed = 17
        self.data = TrainData(DataSpec(self.loader), self.state)
        self.seen: list[Any] = []
        self.places: list[Any] = []
        seed_all(2)
        self.random: Any = None
        if saved is not None:
            timestamp, position, self.random = saved
            self.state.timestamp = Timestamp()
            self.state.timestamp.load_state_dict(timestamp)
            self.data.load_state_dict(position)

    def save(self) -> Any:
        position = to_plain(self.data.state_dict())
        return self.state.timestamp.state_dict(), position, get_rng_state()

    def enter(self) -> Any:
        now = self.state.timestamp
        done, epoch = int(now.batch_in_epoch), int(now.epoch)
        batches = self.data.enter(epoch, done) if done else self.data.epoch(epoch)
        if self.random is not None:
            load_rng_state(self.random)
            self.random = None
        return batches

    def run(
        self, epochs: int = 2, stop: int | None = None, *, ahead: int = 0, saving: bool = True
    ) -> Training:
        while int(self.state.timestamp.epoch) < epochs:
            batches: Any = self.enter()
            source = batches
            while True:
                try:
                    batch = next(source)
                except StopIteration:
                    break
                source = batches.rest
                self.seen.append(listed(list(batch)))
                torch.rand(3)  # as dropout would
                self.state.timestamp = self.state.timestamp.to_next_batch(4, 0, timedelta(0))
                if saving:
                    self.places.append((len(self.seen), self.save()))
                if len(self.seen) == stop:
                    before = get_rng_state()
                    for _ in range(ahead):  # batches in which an error comes
                        next(source, None)
                    load_rng_state(before)
                    return self
            self.data.finish()
            self.state.timestamp = self.state.timestamp.to_next_epoch()
            if saving:
                self.places.append((len(self.seen), self.save()))
        return self


@pytest.mark.parametrize("kind", [*MAP, *(f"other: {kind}" for kind in OTHER)])
def test_every_place_continues_with_the_same_samples_and_numbers(kind: str) -> None:
    make = MAP.get(kind) or OTHER[kind.removeprefix("other: ")]
    straight = Training(make).run()
    assert len(straight.seen) > 4
    for done, place in straight.places:
        resumed = Training(make, place).run()
        assert resumed.seen == straight.seen[done:], done
        if resumed.places:
            assert listed(resumed.places[-1][1]) == listed(straight.places[-1][1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORKERS)
def test_worker_processes_continue_with_the_same_samples_and_numbers(kind: str) -> None:
    straight = Training(WORKERS[kind]).run()
    # The epoch's last batch and its edge are two places.
    for done, place in (straight.places[i] for i in (0, 3, 5, 6, 8)):
        resumed = Training(WORKERS[kind], place).run()
        assert resumed.seen == straight.seen[done:], done
    if kind in ("shuffled", "workers that stay", "get_sampler"):
        noise = [tuple(row) for batch in straight.seen for row in batch[1]]
        assert len(set(noise)) == len(noise)


@pytest.mark.parametrize("kind", MAP)
def test_no_item_before_the_place_is_read(kind: str) -> None:
    straight = Training(MAP[kind]).run(1)
    resumed = Training(MAP[kind], straight.places[2][1]).run(1)
    items = sum(len(b[0]) if isinstance(b[0], list) else 1 for b in resumed.seen)
    assert resumed.loader.dataset.reads == items


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_read_less_than_a_round_before_the_place(workers: int) -> None:
    make = build(partial(Noisy, 400), num_workers=workers)
    place = Training(make).run(1, stop=95).places[-1][1]
    resumed = Training(make, place).run(1)
    assert len(resumed.seen) == 5
    assert resumed.loader.dataset.reads == 20 + 4 * (95 % workers)


class WhichWorker(Noisy):
    """Items that say which worker made them, and that worker's seed."""

    def __getitem__(self, index: int) -> Any:
        info = torch.utils.data.get_worker_info()
        return index, torch.tensor([info.id, info.seed % 1000])


@pytest.mark.slow
def test_the_order_does_not_depend_on_the_number_of_workers() -> None:
    alone = [ids for ids, _ in Training(MAP["shuffled"]).run().seen]
    for kind in ("shuffled", "workers that stay", "worker_init_fn, workers that stay"):
        assert [ids for ids, _ in Training(WORKERS[kind]).run().seen] == alone


@pytest.mark.slow
def test_each_worker_keeps_its_batches_and_seed() -> None:
    make = build(partial(WhichWorker, 60), num_workers=2)
    straight = Training(make).run(1)
    for done in (4, 5, 6):
        assert Training(make, straight.places[done - 1][1]).run(1).seen == straight.seen[done:]


# ---- what is said -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (build(Stream), "replaying 5 batches .* iterable dataset Stream"),
        (build(num_workers=2, worker_init_fn=_seed_worker), "replaying 5 .* worker_init_fn"),
        (build(OwnGenerator, num_workers=2), r"replaying 5 .*\(0\.python\)"),
        (lambda: list(build()()), "replaying 5 batches .* loader list"),
    ],
)
def test_a_replay_is_said_with_its_reason(
    make: Callable[[], Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = Training(make).run(1, stop=5).places[-1][1]
    with caplog.at_level(logging.WARNING):
        Training(make, place).run(1)
    assert len(caplog.records) == 1
    assert re.search(said, caplog.text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (torchdata(num_workers=2, shuffle=True), "StatefulDataLoader continues .* 2 worker"),
        (build(num_workers=2, in_order=False), "in_order=False"),
    ],
)
def test_what_may_differ_is_said(
    make: Callable[[], Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = Training(make).run(1, stop=2).places[-1][1]
    with caplog.at_level(logging.WARNING):
        Training(make, place).run(1, stop=1)
    assert re.search(said, caplog.text)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [2, None], ids=["inside", "between epochs"])
@pytest.mark.parametrize(("then", "here"), [(2, 1), (2, 0), (0, 2)])
def test_a_place_of_other_workers_is_refused_in_words(
    stop: int | None, then: int, here: int
) -> None:
    """torchdata only asserts that its worker processes are as many as they were."""
    make = partial(torchdata, data=Still, shuffle=True)
    place = Training(make(num_workers=then)).run(1, stop=stop).places[-1][1]
    with pytest.raises(ValueError, match=f"num_workers={then}, and .* num_workers={here}. Pass"):
        Training(make(num_workers=here), place).run()


def test_workers_that_stay_over_iterable_data_are_said_to_differ(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def make() -> Any:
        return DataLoader(Stream(), batch_size=4, num_workers=2, persistent_workers=True)

    straight = Training(make).run()
    said = "persistent_workers=True.*went on from epoch to epoch"
    inside_first, edge, inside_second = (straight.places[i] for i in (1, 6, 8))
    with caplog.at_level(logging.WARNING):
        # In the first epoch the workers of both runs are new.
        assert Training(make, inside_first[1]).run(1).seen == straight.seen[2:6]
        assert not re.search(said, caplog.text)
    for done, place in (edge, inside_second):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            resumed = Training(make, place).run()
        assert re.search(said, caplog.text)
        # The order is the same, and what is said is so.
        assert [ids for ids, _ in resumed.seen] == [ids for ids, _ in straight.seen[done:]]
        assert resumed.seen != straight.seen[done:]


def test_a_generator_in_a_closure_continues() -> None:
    def make() -> Any:
        rng = np.random.default_rng(3)

        def collate(items: list[Any]) -> Any:
            return torch.tensor([i for i, _ in items]), torch.tensor(rng.random(len(items)))

        return DataLoader(Still(), batch_size=4, shuffle=True, collate_fn=partial(collate))

    straight = Training(make).run()
    for done, place in straight.places:
        assert Training(make, place).run().seen == straight.seen[done:], done


@pytest.mark.parametrize("kind", ["shuffled", "get_sampler", "eager batch sampler", "in order"])
def test_what_is_passed_over_by_indices_is_not_worth_a_line(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = Training(MAP[kind]).run(1, stop=5).places[-1][1]
    with caplog.at_level(logging.INFO):
        Training(MAP[kind], place).run(1)
    assert caplog.records == []


@pytest.mark.parametrize("settings", [{}, {"shuffle": False}, {"drop_last": True}, {"size": 0}])
def test_a_loader_that_became_too_short(settings: dict[str, Any]) -> None:
    per_batch = 1 if settings.get("size") == 0 else 4
    place = Training(build(partial(Noisy, 20), **settings)).run(1, stop=5).places[-1][1]
    there = {0: 3, 1: 3}.get(settings.get("size", 1), 3)
    shorter = build(partial(Noisy, 3 * per_batch), **settings)
    with pytest.raises(ValueError, match=rf"order is one of 20 items.* now has {3 * per_batch},"):
        Training(shorter, place).run(1)
    del place[1]["num_items"]  # an earlier release did not store it
    with pytest.raises(RuntimeError, match=rf"after 5 batches of epoch 0.*ends after {there}"):
        Training(shorter, place).run(1)


@pytest.mark.parametrize("make", [MAP["shuffled"], MAP["in order"]])
def test_another_length_is_refused_inside_an_epoch_and_fine_at_its_edge(make: Any) -> None:
    straight = Training(make).run(1)

    def longer() -> Any:
        grown = make()
        grown.dataset.size += 2
        return grown

    with pytest.raises(ValueError, match=rf"order is one of {SIZE} items.* now has {SIZE + 2},"):
        Training(longer, straight.places[1][1]).run(2)
    edge = Training(longer, straight.places[-1][1]).run(2)
    assert len(edge.seen) == len(straight.seen)


@pytest.mark.parametrize(
    ("then", "here", "said"),
    [
        (
            build(),
            build(shuffle=False),
            r"came shuffled \(RandomSampler\).*gives them in sequence \(Seq",
        ),
        (build(shuffle=False), build(), r"came in sequence \(Seq.* gives them shuffled \(Random"),
        (
            lambda: dealt(build(), seed=1),
            lambda: dealt(build(), seed=2),
            r"shuffled by seed 1 and dealt to ranks \(DistributedSampler\).* by seed 2 and",
        ),
    ],
)
def test_another_order_is_refused_inside_an_epoch_and_fine_at_its_edge(
    then: Any, here: Any, said: str
) -> None:
    straight = Training(then).run(1)
    with pytest.raises(ValueError, match=said):
        Training(here, straight.places[1][1]).run(2)
    edge = Training(here, straight.places[-1][1]).run(2)
    assert len(edge.seen) == len(straight.seen)
    earlier = straight.places[1][1]
    del earlier[1]["order"]  # an earlier release did not store it
    Training(here, earlier).run(1)


def dealt(make: Any, seed: int) -> Any:
    data = make().dataset
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=seed)
    return DataLoader(data, batch_size=4, sampler=sampler)


@pytest.mark.slow
def test_a_loader_that_refuses_its_own_state_is_told_in_words() -> None:
    """torchdata's comes back once, and not twice, to iterable data without a state in workers."""
    make = torchdata(data=Stream, num_workers=2)
    place = Training(make).run(1, stop=1).places[-1]
    again = Training(make, place[1]).run(1, stop=1)
    with pytest.raises(ValueError, match=r"does not take its place back \(.*resumed before in"):
        Training(make, again.places[-1][1]).run(1, stop=1)


# ---- errors and jumps inside a process ----------------------------------------------------------


@pytest.mark.parametrize("kind", [*MAP, *(f"other: {kind}" for kind in OTHER)])
@pytest.mark.parametrize("saved_before", [True, False])
def test_the_position_is_what_was_trained_on_not_what_was_drawn(
    kind: str, saved_before: bool
) -> None:
    """After an error inside a batch, a checkpoint counts on the clock."""
    make = MAP.get(kind) or OTHER[kind.removeprefix("other: ")]
    straight = Training(make).run()
    for stop, ahead in ((2, 1), (1, 2), (8, 1)):
        broken = Training(make).run(stop=stop, ahead=ahead, saving=saved_before)
        resumed = Training(make, broken.save()).run()
        assert resumed.seen == straight.seen[stop:], (stop, ahead)


@pytest.mark.parametrize("kind", [*MAP, *(f"other: {kind}" for kind in OTHER)])
def test_an_epoch_can_be_entered_again_in_the_same_process(kind: str) -> None:
    """As after weights and clock were taken back to a checkpoint of the same epoch."""
    make = MAP.get(kind) or OTHER[kind.removeprefix("other: ")]
    straight = Training(make).run()
    for back, stop in ((1, 2), (0, 2), (5, 6), (7, 8)):
        if stop > len(straight.seen):
            continue
        run = Training(make).run(stop=stop)
        saved = dict(reversed(straight.places))
        timestamp, position, streams = saved.get(back) or Training(make).save()
        run.state.timestamp = Timestamp()
        run.state.timestamp.load_state_dict(timestamp)
        run.data.load_state_dict(position)
        run.random, run.seen = streams, []
        assert run.run().seen == straight.seen[back:], (back, stop)


def test_the_clock_may_be_set_back_without_a_position() -> None:
    """What belongs to an epoch's number alone is found again."""
    for kind in ("shuffled", "in order", "get_sampler", "subset", "eager batch sampler"):
        straight = Training(MAP[kind]).run()
        first = [ids for ids, _ in straight.seen]
        run = Training(MAP[kind]).run(stop=8)
        run.state.timestamp = Timestamp(batch=3, batch_in_epoch=3)
        run.seen = []
        assert [ids for ids, _ in run.run().seen] == first[3:], kind


def test_the_same_iterator_goes_on_after_a_jump() -> None:
    """A batch that is passed over moves clock and data together, and positions stay true."""
    make = MAP["shuffled"]
    straight = Training(make).run()
    run = Training(make)
    batches = run.enter()
    next(batches)
    run.state.timestamp = run.state.timestamp.to_next_batch(4, 0, timedelta(0))
    weights_went_back = run.save()
    assert next(batches.rest)[0].tolist() == straight.seen[1][0]
    assert [b[0] for b in Training(make, weights_went_back).run(1).seen] == [
        b[0] for b in straight.seen[1:6]
    ]


def test_data_that_is_new_in_an_epoch_starts_at_its_beginning() -> None:
    run = Training(MAP["in order"])
    run.state.timestamp = Timestamp(batch=3, batch_in_epoch=3)
    run.run(1, stop=2)
    assert [ids for ids, _ in run.seen] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [ids for ids, _ in Training(MAP["in order"], run.save()).run(1, stop=1).seen] == [
        [8, 9, 10, 11]
    ]


# ---- the parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter(list(range(700))),
        lambda: iter(tuple(range(700))),
        lambda: iter(range(700)),
        lambda: (x for x in range(700)),
        lambda: iter(RandomSampler(range(300), num_samples=700, generator=_seeded())),
        lambda: iter(RandomSampler(range(9), True, num_samples=700, generator=_seeded())),
        lambda: iter(SubsetRandomSampler(range(700), generator=_seeded())),
    ],
)
@pytest.mark.parametrize("begun", [0, 5])
def test_passing_over_equals_drawing(make: Callable[[], Iterator[int]], begun: int) -> None:
    slow = list(make())
    for count in (0, 1, 2, 31, 255, 256, 299, 300, 301, 600, 695, 700, 701):
        items = make()
        assert pass_over(items, begun) == begun
        assert pass_over(items, count) == min(count, 700 - begun)
        assert list(items) == slow[begun + count :]


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(6)


def test_a_permutation_is_not_walked_through() -> None:
    """The place in a list is set, not counted to: a list that counts is asked once."""
    order = iter(RandomSampler(range(1000)))
    next(order)
    inner: Any = order.gi_yieldfrom  # type: ignore[attr-defined]
    assert pass_over(order, 900) == 900
    assert inner.__length_hint__() == 99


def test_the_users_loader_is_left_as_it_is() -> None:
    loader = MAP["shuffled"]()
    before = dict(vars(loader))
    list(SeekableLoader(loader).enter(2))
    assert vars(loader) == before


def test_which_loaders_are_taken_by_their_indices() -> None:
    class Mine(DataLoader[Any]):
        def __iter__(self) -> Any:
            return super().__iter__()

    assert takes_indices(MAP["shuffled"]())
    assert not takes_indices(Mine([1]))
    assert not takes_indices(OTHER["torchdata"]())
    assert not takes_indices(OTHER["iterable"]())
    assert not takes_indices([1, 2])


def test_generators_are_found_where_data_sets_keep_them() -> None:
    found = own_streams(OwnGenerator(), None)
    assert list(found) == ["0.python", "0.torch", "0.transform.1", "0.transform.0.rng"]
    assert own_streams(Noisy(), torch.utils.data.default_collate) == {}
    loop: list[Any] = [None]
    loop[0] = loop
    assert own_streams(loop) == {}


def test_looking_for_generators_runs_no_code_of_the_data() -> None:
    class Lazy(Noisy):
        @property
        def costly(self) -> Any:
            raise AssertionError("was asked")

    assert own_streams(Lazy()) == {}


def test_global_streams_are_as_before_whatever_the_loader_draws() -> None:
    for kind in ("torchdata", "torchdata, data with a state"):
        run = Training(OTHER[kind])
        before = torch.get_rng_state()
        batches = run.enter()
        run.save()
        assert torch.equal(before, torch.get_rng_state())
        with host_streams(0):
            next(batches)
        assert torch.equal(before, torch.get_rng_state())


def test_in_strict_mode_an_order_that_cannot_be_known_is_an_error() -> None:
    loader = build(num_workers=2, in_order=False)()
    state = state_of()
    state.timestamp = Timestamp(epoch=0, batch=2, batch_in_epoch=2, sample=8, sample_in_epoch=8)
    data = TrainData(DataSpec(loader), state, strict=True)
    data.load_state_dict({"epoch_start": {}, "offset": 0})
    with pytest.raises(RuntimeError, match=r"in_order=False.*strict_mode=True does not go on"):
        data.enter(0, 2)
