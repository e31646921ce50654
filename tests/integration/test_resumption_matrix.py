"""An interrupted run continues as if nothing had happened: the whole matrix, bit for bit.

Each pair of a loader and an algorithm is trained straight once, with one of the two schedulers, and
resumed from every kind of point. What is written down at every event is compared exactly from the
point on: samples, losses, learning rates, random numbers, counters, logged values, and at the end
the parameters, the optimizer, the algorithms and the random streams.
"""

from __future__ import annotations

import copy
import functools
import gc
import random
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from composer.algorithms import EMA, CutMix, MixUp, ProgressiveResizing, SelectiveBackprop
from composer.checkpoint import save_checkpoint
from composer.core import persistence
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.core.logger import Logger, LoggerDestination
from composer.core.model import ComposerModel
from composer.core.state import State
from composer.metrics import MulticlassAccuracy
from composer.optim import CosineAnnealingWithWarmupScheduler
from composer.trainer import Trainer
from composer.trainer import data as trainer_data
from composer.trainer import trainer as trainer_face
from composer.utils import dist, reproducibility
from composer_testing.tiny import IdDataset

SIZE, BATCH, EPOCHS = 23, 4, 2
PER_EPOCH = 6  # the last batch is smaller
WHOLE = EPOCHS * PER_EPOCH


class Images(IdDataset):
    """Pictures of 8 by 8, each with noise from the streams of whoever reads it."""

    def __init__(self, size: int = SIZE, *, noisy: bool = True) -> None:
        super().__init__(size)
        self.pictures = torch.randn(size, 1, 8, 8, generator=torch.Generator().manual_seed(1))
        self.noisy = noisy

    def __getitem__(self, index: int) -> Any:
        _, y, number = super().__getitem__(index)
        picture = self.pictures[index]
        if self.noisy:
            picture = picture + torch.randn(()) + random.random() + float(np.random.rand())
        return picture, y, number


class Model(ComposerModel):
    """A convolution that takes any size, with dropout, a running average and a metric."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 2, 3, padding=1),
            torch.nn.BatchNorm2d(2),
            torch.nn.Dropout(0.3),
            torch.nn.AdaptiveAvgPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(8, 3),
        )

    def forward(self, batch: Any) -> torch.Tensor:
        return self.net(batch[0])

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, batch[1], *args, **kwargs)

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        return {} if is_train else {"MulticlassAccuracy": MulticlassAccuracy(num_classes=3)}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        metric.update(outputs, batch[1])


# ---- kinds of loader ----------------------------------------------------------------------------


class Lines(IterableDataset[Any]):
    """Iterable data that starts over."""

    def __iter__(self) -> Iterator[Any]:
        data = Images()
        yield from (data[i] for i in range(SIZE))


class Place(IterableDataset[Any]):
    """Iterable data that says where it is."""

    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Iterator[Any]:
        data = Images()
        while self.position < SIZE:
            self.position += 1
            yield data[self.position - 1]
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class OwnLoader:
    """A loader of nobody's kind, with a state."""

    def __init__(self) -> None:
        self.passes, self.place = 0, 0

    def __len__(self) -> int:
        return PER_EPOCH

    def __iter__(self) -> Iterator[Any]:
        data = Images()
        order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(self.passes))
        chunks = order.split(BATCH)
        while self.place < PER_EPOCH:
            self.place += 1
            ids = chunks[self.place - 1].tolist()
            yield torch.utils.data.default_collate([data[i] for i in ids])
        self.passes, self.place = self.passes + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"passes": self.passes, "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.passes, self.place = state["passes"], state["place"]


def plain(**settings: Any) -> DataLoader[Any]:
    settings.setdefault("shuffle", True)
    return DataLoader(Images(), batch_size=BATCH, **settings)


def distributed() -> DataLoader[Any]:
    data = Images()
    return DataLoader(data, batch_size=BATCH, sampler=dist.get_sampler(data, shuffle=True))


def torchdata(**settings: Any) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    with warnings.catch_warnings():
        # It calls something of torch that newer torch no longer wants called.
        warnings.filterwarnings("ignore", message="'set_vital' is deprecated")
        # Its own workers draw from streams that nobody restores.
        data = Images(noisy=not settings)
        return StatefulDataLoader(data, batch_size=BATCH, shuffle=True, **settings)


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": plain,
    "get_sampler": distributed,
    "in order": lambda: plain(shuffle=False),
    "iterable": lambda: DataLoader(Lines(), batch_size=BATCH),
    "iterable with a state": lambda: DataLoader(Place(), batch_size=BATCH),
    "torchdata": torchdata,
    "loader with a state": OwnLoader,
}
WORKERS: dict[str, Callable[[], Any]] = {
    "workers": lambda: plain(num_workers=2),
    "workers that stay": lambda: plain(num_workers=2, persistent_workers=True),
    "workers of torchdata": lambda: torchdata(num_workers=2),
}

# ---- algorithms and schedules -------------------------------------------------------------------

ALGORITHMS: dict[str, Callable[[], list[Algorithm]]] = {
    "none": list,
    "ema": lambda: [EMA(half_life="3ba", update_interval="1ba")],
    "selective backprop": lambda: [SelectiveBackprop(0.1, 0.9, keep=0.5, interrupt=3)],
    "mixup": lambda: [MixUp(alpha=0.4)],
    "cutmix": lambda: [CutMix(alpha=1.0)],
    "progressive resizing": lambda: [
        ProgressiveResizing(initial_scale=0.5, delay_fraction=0.1, size_increment=2)
    ],
}


def torchs(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=WHOLE + 1)
    return {"schedulers": schedule, "step_schedulers_every_batch": True}


def composers(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"schedulers": CosineAnnealingWithWarmupScheduler(t_warmup="4ba")}


SCHEDULES: list[Callable[[torch.optim.Optimizer], dict[str, Any]]] = [torchs, composers]


# ---- a run and its journal ----------------------------------------------------------------------

Point = tuple[Event, int]
EDGES = frozenset({"init", "before_load", "after_load", "fit_start"})


class Killed(Exception):
    """Stands for the end of a process."""


class Journal(LoggerDestination):
    """Writes down all that happens; at a point it saves, or the run ends."""

    def __init__(self, folder: Path, kill: Point | None, save: Collection[Point]) -> None:
        self.lines: list[Any] = []
        self.folder, self.kill, self.save = folder, kill, save
        self.saved: dict[Point, str | None] = {}

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        values = {k: v if v is None else float(v) for k, v in metrics.items()}
        self.lines.append(("logged", step, values))

    def run_event(self, event: Event, state: State, logger: Logger) -> None:
        now = state.timestamp
        counts = (int(now.epoch), int(now.batch), int(now.batch_in_epoch), int(now.sample))
        line: list[Any] = [event.value, *counts]
        if event is Event.BATCH_START:
            line += [state.batch[2].tolist(), state.batch[0].tolist()]
            line += [random.random(), float(np.random.rand()), torch.rand(()).item()]
            line += [group["lr"] for group in state.optimizers[0].param_groups]
        self.lines.append(tuple(line))
        point = (event, int(now.batch))
        if event is Event.EVAL_BATCH_START and point == self.kill:
            if int(state.eval_timestamp.batch) == 1:
                raise Killed
            return
        if point in self.save or point == self.kill:
            name = f"{event.value}-{{batch}}.pt"
            self.saved[point] = save_checkpoint(state, str(self.folder / name))
        if point == self.kill:
            raise Killed


class Run:
    """A training in which everything is made anew, as in a process of its own."""

    def __init__(
        self,
        kind: tuple[str, str, int],
        folder: Path,
        *,
        load: str | None = None,
        kill: Point | None = None,
        save: Collection[Point] = (),
    ) -> None:
        loader, algorithms, schedule = kind
        torch.manual_seed(99)  # what the model starts from, which a checkpoint replaces
        self.model = Model()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02)
        make = LOADERS.get(loader) or WORKERS[loader]
        self.journal = Journal(folder, kill, save)
        self.algorithms = ALGORITHMS[algorithms]()
        trainer = Trainer(
            model=self.model,
            train_dataloader=make(),
            eval_dataloader=DataLoader(Images(9), batch_size=3),
            eval_interval="2ba",
            max_duration=f"{EPOCHS}ep" if make in _SIZED else f"{WHOLE}ba",
            optimizers=optimizer,
            algorithms=self.algorithms,
            loggers=[self.journal],
            progress_bar=False,
            load_path=load,
            seed=3,
            **SCHEDULES[schedule](optimizer),
        )
        self.killed = False
        try:
            trainer.fit()
        except Killed:
            self.killed = True
        self.final = _final(trainer.state)
        trainer.close()
        if loader in WORKERS:  # a process that ends takes its workers along
            end_workers()

    def from_point(self, event: str, batch: int) -> list[Any]:
        """The journal after the point."""
        lines = self.journal.lines
        place = next(
            i for i, line in enumerate(lines) if line[0] == event and line[2:3] == (batch,)
        )
        return lines[place + 1 :]

    def from_resumption(self) -> list[Any]:
        lines = self.journal.lines
        return lines[1 + max(i for i, line in enumerate(lines) if line[0] in EDGES) :]


def end_workers() -> None:
    """Left to the garbage collection, each would be waited for in vain."""
    for thing in gc.get_objects():
        if type(thing).__name__.endswith("MultiProcessingDataLoaderIter"):
            thing._shutdown_workers()


def _final(state: State) -> dict[str, Any]:
    """All that a checkpoint would hold now, and the random streams."""
    saved = copy.deepcopy(persistence.collect(state))
    clock = saved["timestamp"]
    for name in [key for key in clock if key.endswith("wct")]:
        del clock[name]
    del saved["run_name"]
    found = {**flat(saved, "state"), **flat(reproducibility.get_rng_state(), "streams")}
    # Torchdata's loader draws this number for the workers of an epoch each time it is asked.
    return {key: value for key, value in found.items() if not key.endswith("_base_seed")}


_SIZED = {plain, distributed, OwnLoader, torchdata}


def flat(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key in value for k, v in flat(value[key], f"{path}/{key}").items()}
    if isinstance(value, (list, tuple)) and len(value) < 100:
        return {k: v for i, x in enumerate(value) for k, v in flat(x, f"{path}/{i}").items()}
    return {path: value}


def assert_same(straight: Run, resumed: Run, event: str, batch: int) -> None:
    rest, ours = straight.from_point(event, batch), resumed.from_resumption()
    for expected, found in zip(rest, ours, strict=False):
        assert found == expected
    assert len(ours) == len(rest)
    assert len(rest) > 10
    one, other = straight.final, resumed.final
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, other[key]), key
        else:
            assert value == other[key], key


@functools.cache
def straight(kind: tuple[str, str, int]) -> Run:
    return Run(kind, Path())


def check_points(kind: tuple[str, str, int], folder: Path, points: list[Point]) -> None:
    whole = Run(kind, folder, save=points)
    assert not whole.killed
    for point in points:
        event, batch = point
        saved = whole.journal.saved.get(point)
        if event is Event.EVAL_BATCH_START:
            # A real end, and the newest checkpoint is from the batch before.
            event, batch = before = (Event.BATCH_CHECKPOINT, batch - 1)
            broken = Run(kind, folder, kill=point, save=[before])
            assert broken.killed
            saved = broken.journal.saved[before]
        assert saved is not None
        assert_same(whole, Run(kind, folder, load=saved), event.value, batch)


def check_chain(kind: tuple[str, str, int], folder: Path, stops: tuple[int, ...]) -> None:
    """Ended again and again; the last part must equal that of the straight run."""
    load = None
    for number, stop in enumerate(stops):
        here = folder / f"chain-{stops}-{number}"
        here.mkdir()
        point = (Event.BATCH_CHECKPOINT, stop)
        part = Run(kind, here, load=load, kill=point)
        assert part.killed
        load = part.journal.saved[point]
    last = Run(kind, folder, load=load)
    assert_same(straight(kind), last, "batch_checkpoint", stops[-1])


# In the first epoch, at its last batch, on its edge, in the second epoch, during an evaluation.
POINTS: list[Point] = [
    *((Event.BATCH_CHECKPOINT, batch) for batch in (1, 4, 6, 9)),
    (Event.EPOCH_CHECKPOINT, 6),
    (Event.EVAL_BATCH_START, 8),
]
KINDS = [
    (loader, algorithm, (i + j) % 2)
    for i, loader in enumerate(LOADERS)
    for j, algorithm in enumerate(ALGORITHMS)
]


def _name(kind: tuple[str, str, int]) -> str:
    return f"{kind[0]}, {kind[1]}, {SCHEDULES[kind[2]].__name__} schedule"


@pytest.mark.parametrize("kind", KINDS, ids=_name)
def test_every_interruption_point(kind: tuple[str, str, int], tmp_path: Path) -> None:
    check_points(kind, tmp_path, POINTS)


@pytest.mark.parametrize("kind", [k for i, k in enumerate(KINDS) if i % 5 == 0], ids=_name)
@pytest.mark.parametrize("stops", [(2, 5), (3, 6, 7)], ids=["twice", "three times"])
def test_again_and_again(
    kind: tuple[str, str, int], stops: tuple[int, ...], tmp_path: Path
) -> None:
    check_chain(kind, tmp_path, stops)


@pytest.mark.slow
@pytest.mark.parametrize("loader", WORKERS)
@pytest.mark.parametrize(("algorithm", "schedule"), [("none", 0), ("cutmix", 1)])
def test_worker_processes(loader: str, algorithm: str, schedule: int, tmp_path: Path) -> None:
    kind = (loader, algorithm, schedule)
    check_points(kind, tmp_path, [POINTS[1], POINTS[4], POINTS[5]])
    check_chain(kind, tmp_path, (3, 7))


# ---- the matrix can fail ------------------------------------------------------------------------


_FOURTH = (Event.BATCH_CHECKPOINT, 4)


def _nothing(*args: Any) -> None:
    """Stands in for what is left out."""


SABOTAGE: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "random streams": lambda patch: patch.setattr(trainer_face, "load_rng_state", _nothing),
    "the epoch's seed": lambda patch: patch.setattr(
        trainer_data.TrainData,
        "_seed",
        lambda self, epoch: trainer_data.derived_seed(self._state.seed, "order", epoch + 1),
    ),
    "the place in the epoch": lambda patch: patch.setattr(
        trainer_data.TrainData,
        "_come_back",
        lambda self, epoch, done, position: self.epoch(epoch),
    ),
    **{
        field: functools.partial(
            lambda field, patch: patch.setitem(
                persistence.SAVED_FIELDS, field, (persistence.SAVED_FIELDS[field][0], _nothing)
            ),
            field,
        )
        for field in ("optimizers", "schedulers", "algorithms", "model")
    },
}


@pytest.mark.parametrize("left_out", SABOTAGE)
@pytest.mark.filterwarnings("ignore")
def test_the_matrix_notices_what_is_not_restored(
    left_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = ("shuffled", "ema", 0)
    first = Run(kind, tmp_path, kill=_FOURTH)
    whole = straight(kind)
    SABOTAGE[left_out](monkeypatch)
    # Torch's schedule refuses a step beyond its end.
    with pytest.raises((AssertionError, ValueError)):  # noqa: PT012
        resumed = Run(kind, tmp_path, load=first.journal.saved[_FOURTH])
        assert_same(whole, resumed, "batch_checkpoint", 4)
