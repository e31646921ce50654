"""An interrupted run continues bit for bit: data, random streams, weights, counters, logs."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler

from composer.core.algorithm import Algorithm
from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.logger import Logger
from composer.core.state import State
from composer.optim import CosineAnnealingWithWarmupScheduler
from composer.trainer import Trainer
from composer.utils import dist
from composer_testing.tiny import EventRecorder, IdDataset, IdRecorder, TinyModel, loader

EPOCHS, BATCHES = 3, 6


class Draws(Callback):
    """Draws a number from each stream at each batch."""

    def __init__(self) -> None:
        self.drawn: list[tuple[float, float, float]] = []

    def batch_start(self, state: State, logger: Logger) -> None:
        self.drawn.append((random.random(), float(np.random.rand()), torch.rand(()).item()))


class Momentum(Algorithm):
    """A method with a state of its own, that changes gradients."""

    events = frozenset({Event.AFTER_TRAIN_BATCH})

    def __init__(self, decay: float = 0.5) -> None:
        self.decay = decay
        self.trace: torch.Tensor | None = None

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        grad = state.model.linear.weight.grad  # type: ignore[union-attr]
        assert isinstance(grad, torch.Tensor)
        old = torch.zeros_like(grad) if self.trace is None else self.trace
        self.trace = old * self.decay + grad
        grad.copy_(self.trace)

    def state_dict(self) -> dict[str, Any]:
        return {"trace": self.trace}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.trace = state["trace"]


# ---- kinds of loader ----------------------------------------------------------------------------


class Counting(IterableDataset[Any]):
    """Iterable data without a state."""

    def __iter__(self) -> Iterator[Any]:
        yield from (IdDataset(24)[i] for i in range(24))


class Place(Counting):
    """Iterable data that says where it is, and goes on from there."""

    def __init__(self) -> None:
        self.position = 0
        self.reads = 0

    def __iter__(self) -> Iterator[Any]:
        data = IdDataset(24)
        while self.position < 24:
            self.position += 1
            self.reads += 1
            yield data[self.position - 1]
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class Resumable(Sampler[int]):
    """A sampler whose order depends on a state of its own, that changes with each epoch."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(24, generator=torch.Generator().manual_seed(self.passes))
        self.passes += 1
        yield from order.tolist()

    def __len__(self) -> int:
        return 24

    def state_dict(self) -> dict[str, Any]:
        return {"passes": self.passes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.passes = state["passes"]


class StatefulLoader:
    """A loader with a position, as torchdata's."""

    batch_size = 4

    def __init__(self) -> None:
        self.epoch, self.position = 0, 0
        self.data = IdDataset(24)

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(24, generator=torch.Generator().manual_seed(self.epoch))
        while self.position < 6:
            ids = order[self.position * 4 : self.position * 4 + 4].tolist()
            self.position += 1
            yield torch.utils.data.default_collate([self.data[i] for i in ids])
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]


class Augmented(IdDataset):
    """Items with random noise from the streams of the process that reads them."""

    def __getitem__(self, index: int) -> Any:
        x, y, i = super().__getitem__(index)
        return x + torch.randn(4) + random.random() + float(np.random.rand()), y, i


def distributed_sampler() -> DataLoader[Any]:
    data = IdDataset(24)
    return DataLoader(data, batch_size=4, sampler=dist.get_sampler(data, shuffle=True))


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": loader,
    "in order": lambda: loader(shuffle=False),
    "own generator": lambda: loader(generator=torch.Generator().manual_seed(5)),
    "with replacement": lambda: loader(sampler=RandomSampler(range(24), replacement=True)),
    "get_sampler": distributed_sampler,
    "random items": lambda: DataLoader(Augmented(24), batch_size=4, shuffle=True),
    "stateful sampler": lambda: loader(sampler=Resumable()),
    "stateful loader": StatefulLoader,
    "iterable dataset": lambda: DataLoader(Counting(), batch_size=4),
    "stateful iterable dataset": lambda: DataLoader(Place(), batch_size=4),
    "plain list": lambda: list(loader(shuffle=False)),
}


class Run:
    """A training of its own: everything is made anew, as after a restart."""

    def __init__(
        self,
        data: Callable[[], Any] = loader,
        *,
        load: str | None = None,
        duration: str = f"{EPOCHS * BATCHES}ba",
        save: Path | None = None,
        every: str = "1ba",
        **settings: Any,
    ) -> None:
        torch.manual_seed(99)  # the model's start, which a checkpoint replaces
        self.ids, self.draws, self.events = IdRecorder(), Draws(), EventRecorder()
        self.model = TinyModel(dropout=0.3)
        self.loader = data()
        settings.setdefault("optimizers", torch.optim.AdamW(self.model.parameters(), lr=0.05))
        settings.setdefault("callbacks", [self.ids, self.draws, self.events])
        if save is not None:
            settings.update(save_folder=str(save), save_interval=every)
        self.trainer = Trainer(
            model=self.model,
            train_dataloader=self.loader,
            max_duration=duration,
            algorithms=Momentum(),
            schedulers=CosineAnnealingWithWarmupScheduler(t_warmup="3ba"),
            progress_bar=False,
            load_path=load,
            **{"seed": 3, **settings},
        )
        self.trainer.fit()
        self.optimizer = self.trainer.state.optimizers[0]
        self.lr = self.optimizer.param_groups[0]["lr"]
        self.trainer.close()

    def final(self) -> dict[str, Any]:
        tensors = dict(self.model.state_dict())
        for i, state in enumerate(self.optimizer.state.values()):
            tensors |= {f"{i}/{key}": value for key, value in state.items()}
        return tensors


def assert_same(a: Run, b: Run) -> None:
    one, other = a.final(), b.final()
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert torch.equal(value, other[key]), key
    assert a.lr == b.lr
    clocks = ("total_wct", "iteration_wct", "epoch_wct", "batch_wct")
    counters = [run.trainer.state.timestamp.state_dict() for run in (a, b)]
    for clock in clocks:
        for counter in counters:
            counter.pop(clock)
    assert counters[0] == counters[1]


def checkpoints(folder: Path) -> list[Path]:
    found = [p for p in folder.glob("*.pt") if not p.is_symlink()]
    return sorted(found, key=lambda p: int(p.name.split("-ba")[1].split("-")[0]))


@pytest.mark.parametrize("kind", LOADERS)
def test_every_interruption_point(kind: str, tmp_path: Path) -> None:
    straight = Run(LOADERS[kind], save=tmp_path)
    files = checkpoints(tmp_path)
    assert len(files) == EPOCHS * BATCHES
    for done, file in enumerate(files, start=1):
        if done == EPOCHS * BATCHES:
            break
        resumed = Run(LOADERS[kind], load=str(file))
        assert straight.ids.ids[done:] == resumed.ids.ids
        assert straight.ids.losses[done:] == resumed.ids.losses
        assert straight.draws.drawn[done:] == resumed.draws.drawn
        assert_same(straight, resumed)


def test_random_items_in_worker_processes(tmp_path: Path) -> None:
    def data() -> DataLoader[Any]:
        return DataLoader(Augmented(24), batch_size=4, shuffle=True, num_workers=2)

    straight = Run(data, save=tmp_path, every="4ba", duration="12ba")
    resumed = Run(data, load=str(checkpoints(tmp_path)[1]), duration="12ba")
    assert straight.ids.ids[8:] == resumed.ids.ids
    assert_same(straight, resumed)


@pytest.mark.parametrize("stops", [(3, 6, 9), (1, 2, 3, 4), (6, 12), (7, 13, 14)])
def test_interrupted_again_and_again(stops: tuple[int, ...], tmp_path: Path) -> None:
    straight = Run()
    ids: list[Any] = []
    losses: list[float] = []
    load = None
    for i, stop in enumerate((*stops, EPOCHS * BATCHES)):
        part = _part(stop, load, tmp_path / str(i))
        ids += part.ids.ids
        losses += part.ids.losses
        load = str(checkpoints(tmp_path / str(i))[-1])
    assert ids == straight.ids.ids
    assert losses == straight.ids.losses
    assert_same(straight, part)


def _part(stop: int, load: str | None, folder: Path) -> Run:
    """A part of the run, killed after a batch: the planned duration stays the whole one."""

    class Killed(Exception):
        pass

    class Kill(Callback):
        def batch_checkpoint(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == stop:
                Path(folder).mkdir(exist_ok=True)
                from composer.checkpoint import save_checkpoint

                save_checkpoint(state, str(folder / "ep{epoch}-ba{batch}-rank0.pt"))
                if stop < EPOCHS * BATCHES:
                    raise Killed

    run = Run.__new__(Run)
    ids, draws, events = IdRecorder(), Draws(), EventRecorder()
    try:
        Run.__init__(run, load=load, callbacks=[ids, draws, events, Kill()])
    except Killed:
        run.trainer.close()
    run.ids, run.draws, run.events = ids, draws, events
    return run


def test_events_and_counters_of_chained_sessions_equal_one_session(tmp_path: Path) -> None:
    """Three sessions of an epoch each: no step too many, intervals at the same counters."""
    straight = Run(duration="3ep")
    chained: list[Any] = []
    load = None
    for epochs in (1, 2, 3):
        folder = tmp_path / str(epochs)
        part = Run(duration=f"{epochs}ep", load=load, save=folder, every="1ep")
        inside = [e for e in part.events.seen if e[0] not in _EDGES]
        chained += inside
        load = str(checkpoints(folder)[-1])
    assert chained == [e for e in straight.events.seen if e[0] not in _EDGES]
    end = part.trainer.state.timestamp
    assert (int(end.batch), int(end.epoch), int(end.batch_in_epoch)) == (18, 3, 0)


_EDGES = ("init", "before_load", "after_load", "fit_start", "fit_end")


def test_the_rest_of_the_epoch_follows(tmp_path: Path) -> None:
    straight = Run(save=tmp_path, duration="2ep")
    resumed = Run(load=str(tmp_path / "ep1-ba8-rank0.pt"), duration="2ep")
    seen = [i for batch in straight.ids.ids[6:8] + resumed.ids.ids for i in batch]
    assert sorted(seen) == list(range(24))
    assert [name for name in resumed.events.names if name == "epoch_end"] == ["epoch_end"]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    """Whatever else draws random numbers, the epochs' permutations stay."""
    plain, noisy = Run(duration="2ep"), Run(duration="2ep", callbacks=None)

    class Noise(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            torch.rand(7)

    ids = IdRecorder()
    Run(duration="2ep", callbacks=[Noise(), ids])
    assert ids.ids == plain.ids.ids
    assert noisy.ids.ids == []
    assert plain.ids.ids[:6] != plain.ids.ids[6:]
    other = Run(duration="2ep", seed=4)
    assert other.ids.ids != plain.ids.ids


@pytest.mark.parametrize("kind", ["shuffled", "stateful sampler"])
def test_resuming_reads_only_what_it_trains_on(kind: str, tmp_path: Path) -> None:
    def data() -> Any:
        sampler = {"sampler": _Long()} if kind == "stateful sampler" else {}
        return loader(size=400, **sampler)

    class _Long(Resumable):
        def __len__(self) -> int:
            return 400

        def __iter__(self) -> Iterator[int]:
            yield from torch.randperm(
                400, generator=torch.Generator().manual_seed(self.passes)
            ).tolist()

    Run(data, duration="90ba", save=tmp_path, every="90ba")
    resumed = Run(data, duration="100ba", load=str(checkpoints(tmp_path)[-1]))
    assert resumed.loader.dataset.reads == 40


def test_stateful_data_continues_without_replay(tmp_path: Path) -> None:
    def data() -> Any:
        return DataLoader(Place(), batch_size=4)

    Run(data, duration="4ba", save=tmp_path, every="4ba")
    resumed = Run(data, duration="6ba", load=str(checkpoints(tmp_path)[-1]))
    assert resumed.loader.dataset.reads == 8


def test_replay_is_said_with_its_length(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def data() -> Any:
        return DataLoader(Counting(), batch_size=4)

    Run(data, duration="5ba", save=tmp_path, every="5ba")
    with caplog.at_level(logging.WARNING):
        Run(data, duration="6ba", load=str(checkpoints(tmp_path)[-1]))
    assert "replaying 5 batches" in caplog.text
    assert "Counting" in caplog.text


@pytest.mark.parametrize("kind", [*LOADERS, "generator"])
def test_a_second_fit_goes_on_where_the_first_ended(kind: str) -> None:
    """In one process nothing is lost, repeated or replayed, whatever the data is."""
    data = LOADERS.get(kind) or (lambda: (batch for batch in list(loader(shuffle=False))))
    straight = Run(data, duration="6ba")
    model, ids = TinyModel(), IdRecorder()
    trainer = Trainer(
        model=model,
        train_dataloader=data(),
        max_duration="2ba",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=ids,
        progress_bar=False,
        seed=3,
    )
    trainer.fit()
    trainer.fit(duration="3ba")
    trainer.fit(duration="1ba")
    trainer.close()
    if kind == "random items":  # their own draws come between
        assert sorted(i for b in ids.ids for i in b) == list(range(24))
    assert ids.ids == straight.ids.ids


class Once(Callback):
    """Raises once, in one batch."""

    failed = False

    def __init__(self, batch: int = 2) -> None:
        self.batch = batch

    def before_forward(self, state: State, logger: Logger) -> None:
        if int(state.timestamp.batch) == self.batch and not self.failed:
            self.failed = True
            raise RuntimeError("once")


@pytest.mark.parametrize("batch", [0, 2, 6, 8])
@pytest.mark.parametrize(
    "kind",
    [
        *("shuffled", "own generator", "stateful sampler", "stateful loader"),
        *("stateful iterable dataset", "plain list"),
    ],
)
def test_after_an_error_the_epoch_goes_on_at_its_place(
    kind: str, batch: int, tmp_path: Path
) -> None:
    """In the first batch of an epoch or inside it, in this process or from a checkpoint."""
    straight = Run(LOADERS[kind], duration="12ba")

    def session(**settings: Any) -> tuple[Trainer, IdRecorder]:
        model, ids = TinyModel(), IdRecorder()
        callbacks = [ids, *settings.pop("callbacks", [])]
        trainer = Trainer(
            model=model,
            train_dataloader=LOADERS[kind](),
            max_duration="12ba",
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
            callbacks=callbacks,
            progress_bar=False,
            seed=3,
            **settings,
        )
        return trainer, ids

    trainer, ids = session(callbacks=[Once(batch)])
    with pytest.raises(RuntimeError, match="once"):
        trainer.fit()
    path = trainer.save_checkpoint(str(tmp_path / "a.pt"))
    trainer.fit()
    trainer.close()
    assert ids.ids[:batch] + ids.ids[batch + 1 :] == straight.ids.ids
    other, more = session(load_path=path)
    other.fit()
    other.close()
    assert more.ids == straight.ids.ids[batch:]


def test_after_an_error_a_generator_gives_what_it_has_left() -> None:
    model, ids = TinyModel(), IdRecorder()
    trainer = Trainer(
        model=model,
        train_dataloader=(batch for batch in list(loader(shuffle=False))),
        max_duration="5ba",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=[ids, Once()],
        progress_bar=False,
    )
    with pytest.raises(RuntimeError, match="once"):
        trainer.fit()
    trainer.fit()
    trainer.close()
    assert [b[0] for b in ids.ids] == [0, 4, 8, 12, 16, 20]


def test_new_data_inside_an_epoch_starts_at_its_beginning(tmp_path: Path) -> None:
    def session(load: str | None, *fits: Any) -> tuple[Trainer, IdRecorder]:
        model, ids = TinyModel(), IdRecorder()
        trainer = Trainer(
            model=model,
            max_duration="100ba",
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
            callbacks=ids,
            load_path=load,
            progress_bar=False,
            seed=3,
        )
        for data, duration in fits:
            trainer.fit(train_dataloader=data, duration=duration)
        return trainer, ids

    first, second = loader(shuffle=False), loader(size=40, shuffle=False)
    trainer, ids = session(None, (first, "2ba"), (second, "3ba"))
    assert [b[0] for b in ids.ids] == [0, 4, 0, 4, 8]
    path = trainer.save_checkpoint(str(tmp_path / "a.pt"))
    trainer.close()
    trainer, ids = session(path, (loader(size=40, shuffle=False), "2ba"))
    assert [b[0] for b in ids.ids] == [12, 16]
    trainer.close()


@pytest.mark.parametrize("kind", ["stateful loader", "stateful iterable dataset", "shuffled"])
def test_a_run_in_batches_that_ends_with_the_epoch_can_go_on(kind: str, tmp_path: Path) -> None:
    straight = Run(LOADERS[kind], duration="9ba")
    Run(LOADERS[kind], duration="6ba", save=tmp_path, every="6ba")
    resumed = Run(LOADERS[kind], duration="9ba", load=str(checkpoints(tmp_path)[-1]))
    assert resumed.ids.ids == straight.ids.ids[6:]


@pytest.mark.parametrize("kind", ["shuffled", "own generator", "stateful loader", "plain list"])
def test_without_spinning_the_epoch_starts_over(kind: str, tmp_path: Path) -> None:
    straight = Run(LOADERS[kind], duration="6ba", save=tmp_path, every="2ba")
    file = str(checkpoints(tmp_path)[0])
    resumed = Run(LOADERS[kind], duration="6ba", load=file, spin_dataloaders=False)
    assert resumed.ids.ids == straight.ids.ids[:4]


def test_the_first_evaluation_after_resuming_is_whole(tmp_path: Path) -> None:
    class Count(Callback):
        def __init__(self) -> None:
            self.batches: list[int] = []

        def eval_end(self, state: State, logger: Logger) -> None:
            self.batches.append(int(state.eval_timestamp.batch))

    settings: dict[str, Any] = {"eval_dataloader": loader(20, 4), "eval_interval": "2ba"}
    Run(duration="6ba", save=tmp_path, every="3ba", **settings)
    count = Count()
    resumed = Run(duration="6ba", load=str(checkpoints(tmp_path)[0]), callbacks=[count], **settings)
    assert count.batches == [5, 5]
    assert resumed.trainer.state.eval_timestamp.batch == "5ba"


def test_a_second_resumption_starts_from_what_was_trained(tmp_path: Path) -> None:
    Run(duration="2ba", save=tmp_path / "a", every="2ba")
    second = Run(
        duration="5ba", load=str(checkpoints(tmp_path / "a")[-1]), save=tmp_path / "b", every="5ba"
    )
    stored = torch.load(checkpoints(tmp_path / "b")[-1], weights_only=True)["state"]
    assert stored["timestamp"]["batch"] == 5
    states = stored["optimizers"][0]["state"]["state"]
    for name, parameter in second.model.named_parameters():
        live = second.optimizer.state[parameter]
        assert torch.equal(states[name]["exp_avg"], live["exp_avg"])


# ---- settings that differ -----------------------------------------------------------------------


def adamw(lr: float) -> dict[str, Any]:
    model = TinyModel()
    return {"model": model, "optimizers": torch.optim.AdamW(model.parameters(), lr=lr)}


def plain(duration: str, **settings: Any) -> Trainer:
    trainer = Trainer(
        train_dataloader=loader(), max_duration=duration, progress_bar=False, seed=3, **settings
    )
    trainer.fit()
    trainer.close()
    return trainer


def test_a_new_learning_rate_is_used_and_said(tmp_path: Path) -> None:
    plain("2ba", **adamw(0.1), save_folder=str(tmp_path), save_interval="2ba")
    file = str(checkpoints(tmp_path)[-1])

    def rate(trainer: Trainer) -> float:
        return trainer.state.optimizers[0].param_groups[0]["lr"]

    both = r"lr of AdamW group 0: stored 0\.1, script 0\.01 \(the script is used\)"
    with pytest.warns(UserWarning, match=both):
        assert rate(plain("3ba", **adamw(0.01), load_path=file)) == 0.01
    with pytest.warns(UserWarning, match="script is used"):
        named = plain("3ba", **adamw(0.01), load_path=file, load_overrides=["lr"])
    assert rate(named) == 0.01
    with pytest.warns(UserWarning, match=r"script 0\.01 \(the checkpoint is used\)"):
        assert rate(plain("3ba", **adamw(0.01), load_path=file, load_overrides=[])) == 0.1
    with pytest.raises(ValueError, match=r"load_overrides names 'lrr'.*\"lr\""):
        plain("3ba", **adamw(0.1), load_path=file, load_overrides=["lrr"])
    with pytest.raises(ValueError, match="strict_mode=True"):
        plain("3ba", **adamw(0.01), load_path=file, strict_mode=True)


def test_what_training_changed_is_no_difference(tmp_path: Path) -> None:
    """A rate that a callback lowered continues lowered, since the script did not change."""

    class Lower(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 1:
                state.optimizers[0].param_groups[0]["lr"] = 0.05

    plain("2ba", **adamw(0.1), callbacks=Lower(), save_folder=str(tmp_path), save_interval="2ba")
    # A warning would be an error here.
    resumed = plain("3ba", **adamw(0.1), load_path=str(checkpoints(tmp_path)[-1]))
    assert resumed.state.optimizers[0].param_groups[0]["lr"] == 0.05
    with pytest.warns(UserWarning, match=r"stored 0\.05, script 0\.1"):
        forced = plain("3ba", **adamw(0.1), load_path=str(checkpoints(tmp_path)[-1]),
                       load_overrides=["lr"])  # fmt: skip
    assert forced.state.optimizers[0].param_groups[0]["lr"] == 0.1


def torch_schedule(step_size: int, milestones: list[int] | None = None) -> dict[str, Any]:
    given = adamw(0.1)
    scheduler = (
        torch.optim.lr_scheduler.StepLR(given["optimizers"], step_size, gamma=0.5)
        if milestones is None
        else torch.optim.lr_scheduler.MultiStepLR(given["optimizers"], milestones, gamma=0.5)
    )
    return {**given, "schedulers": scheduler, "step_schedulers_every_batch": True}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", ["step", "milestones"])
def test_a_changed_torch_schedule_takes_effect(tmp_path: Path, kind: str, late: bool) -> None:
    old, new = ((4, None), (3, None)) if kind == "step" else ((0, [4]), (0, [3]))
    plain("2ba", **torch_schedule(*old), save_folder=str(tmp_path))
    file = str(checkpoints(tmp_path)[-1])

    def rate(overrides: Any) -> float:
        def continued() -> Trainer:
            trainer = Trainer(
                train_dataloader=None if late else loader(), max_duration="3ba", seed=3,
                progress_bar=False, load_path=file, load_overrides=overrides,
                **torch_schedule(*new),
            )  # fmt: skip
            trainer.fit(train_dataloader=loader() if late else None)
            trainer.close()
            return trainer

        with pytest.warns(UserWarning, match=r"step_size of StepLR|milestones of MultiStepLR"):
            trainer = continued()
        return trainer.state.optimizers[0].param_groups[0]["lr"]

    assert rate(None) == pytest.approx(0.05)  # after three batches the new schedule has dropped
    assert rate([]) == pytest.approx(0.1)


def test_another_schedule_is_said(tmp_path: Path) -> None:
    from composer.optim import ConstantScheduler, LinearScheduler

    plain("2ba", **adamw(0.1), schedulers=LinearScheduler(), save_folder=str(tmp_path))
    file = str(checkpoints(tmp_path)[-1])
    with pytest.warns(UserWarning, match=r"stored \['LinearScheduler'\], script \['ConstantSch"):
        plain("3ba", **adamw(0.1), schedulers=ConstantScheduler(), load_path=file)
    with pytest.warns(UserWarning, match=r"alpha_f of LinearScheduler: stored 0\.0, script 0\.5"):
        plain("3ba", **adamw(0.1), schedulers=LinearScheduler(alpha_f=0.5), load_path=file)


def test_a_changed_duration_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain("2ba", **adamw(0.1), save_folder=str(tmp_path))
    with caplog.at_level("WARNING", logger="composer"):
        plain("3ba", **adamw(0.1), load_path=str(checkpoints(tmp_path)[-1]))
    assert "max_duration: stored 2ba, script 3ba" in caplog.text


def test_another_precision_is_said_and_in_strict_mode_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain("2ba", **adamw(0.1), save_folder=str(tmp_path))
    file = str(checkpoints(tmp_path)[-1])
    with pytest.raises(
        ValueError, match=r"precision='fp32', and this run has .*'amp_bf16'.*strict"
    ):
        plain("3ba", **adamw(0.1), load_path=file, precision="amp_bf16", strict_mode=True)
    # The same, and a longer run, are as they should be.
    plain("3ba", **adamw(0.1), load_path=file, precision="fp32", strict_mode=True)
    with caplog.at_level("WARNING", logger="composer"):
        plain("3ba", **adamw(0.1), load_path=file, precision="amp_bf16")
    assert "precision: stored fp32, script amp_bf16" in caplog.text


def test_what_a_cyclic_schedule_moves_is_no_difference(tmp_path: Path) -> None:
    def cyclic() -> dict[str, Any]:
        model = TinyModel()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=9)
        return {
            "model": model,
            "optimizers": optimizer,
            "schedulers": schedule,
            "step_schedulers_every_batch": True,
        }

    straight = plain("6ba", **cyclic(), save_folder=str(tmp_path), save_interval="3ba")
    # A warning would be an error here.
    resumed = plain("6ba", **cyclic(), load_path=str(checkpoints(tmp_path)[0]))
    one, other = straight.state.model.state_dict(), resumed.state.model.state_dict()
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_an_overridden_learning_rate_keeps_its_schedule(tmp_path: Path) -> None:
    from composer.optim import LinearScheduler

    plain("2ba", **adamw(0.1), schedulers=LinearScheduler(t_max="4ba"), save_folder=str(tmp_path))
    with pytest.warns(UserWarning, match="script is used"):
        resumed = plain(
            "3ba",
            **adamw(0.02),
            schedulers=LinearScheduler(t_max="4ba"),
            load_path=str(checkpoints(tmp_path)[-1]),
            load_overrides=["lr"],
        )
    assert resumed.state.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.02 * 0.25)


def test_a_changed_duration_takes_effect_in_the_schedule(tmp_path: Path) -> None:
    from composer.optim import LinearScheduler

    seen: list[float] = []

    class Watch(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            seen.append(state.optimizers[0].param_groups[0]["lr"])

    plain("4ba", **adamw(0.1), schedulers=LinearScheduler(), save_folder=str(tmp_path),
          save_interval="2ba")  # fmt: skip
    plain(
        "8ba",
        **adamw(0.1),
        schedulers=LinearScheduler(),
        callbacks=Watch(),
        load_path=str(checkpoints(tmp_path)[0]),
    )
    assert seen == pytest.approx([0.1 * (1 - k / 8) for k in range(2, 8)])


def test_the_stored_seed_is_used_and_said(tmp_path: Path) -> None:
    plain("2ba", **adamw(0.1), save_folder=str(tmp_path))
    model = TinyModel()
    with pytest.warns(UserWarning, match="seed 3, which is used instead of seed=4"):
        trainer = Trainer(
            model=model,
            optimizers=torch.optim.AdamW(model.parameters(), lr=0.1),
            load_path=str(checkpoints(tmp_path)[-1]),
            seed=4,
            progress_bar=False,
        )
    assert trainer.state.rank_zero_seed == 3
    trainer.close()


def test_another_batch_size_inside_an_epoch_is_refused(tmp_path: Path) -> None:
    plain("2ba", **adamw(0.1), save_folder=str(tmp_path))
    model = TinyModel()
    with pytest.raises(ValueError, match=r"batch_size=4, .* batch_size=8"):
        Trainer(
            model=model,
            train_dataloader=loader(batch_size=8),
            max_duration="1ep",
            optimizers=torch.optim.AdamW(model.parameters(), lr=0.1),
            load_path=str(checkpoints(tmp_path)[-1]),
            progress_bar=False,
        )


def test_less_data_than_before_is_refused(tmp_path: Path) -> None:
    plain("5ba", **adamw(0.1), save_folder=str(tmp_path))
    model = TinyModel()
    trainer = Trainer(
        model=model,
        train_dataloader=loader(size=8),
        max_duration="2ep",
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.1),
        load_path=str(checkpoints(tmp_path)[-1]),
        progress_bar=False,
    )
    with pytest.raises(ValueError, match=r"after 5 batches of epoch 0.*24 items.* now has 8,"):
        trainer.fit()
    trainer.close()


def test_data_given_to_fit_is_resumed_too(tmp_path: Path) -> None:
    straight = Run(duration="6ba", save=tmp_path, every="2ba")
    model, ids = TinyModel(dropout=0.3), IdRecorder()
    trainer = Trainer(
        model=model,
        max_duration="6ba",
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.05),
        algorithms=Momentum(),
        callbacks=ids,
        schedulers=CosineAnnealingWithWarmupScheduler(t_warmup="3ba"),
        load_path=str(checkpoints(tmp_path)[0]),
        progress_bar=False,
    )
    trainer.fit(train_dataloader=loader())
    trainer.close()
    assert ids.ids == straight.ids.ids[2:]


# ---- autoresume ---------------------------------------------------------------------------------


def automatic(folder: Path, duration: str = "2ep", **settings: Any) -> tuple[Trainer, IdRecorder]:
    model, ids = TinyModel(), IdRecorder()
    trainer = Trainer(
        model=model,
        train_dataloader=loader(),
        max_duration=duration,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=ids,
        save_folder=str(folder),
        run_name="a-run",
        autoresume=True,
        progress_bar=False,
        seed=3,
        **settings,
    )
    return trainer, ids


def test_autoresume_continues_and_a_finished_run_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, ids = automatic(tmp_path, "1ep")
    first.fit()
    first.close()
    second, more = automatic(tmp_path)
    second.fit()
    second.close()
    assert len(ids.ids) == len(more.ids) == BATCHES
    third, none = automatic(tmp_path)
    with caplog.at_level(logging.WARNING):
        third.fit()
    third.close()
    assert none.ids == []
    assert "is finished" in caplog.text


def test_autoresume_refuses_relative_durations(tmp_path: Path) -> None:
    trainer, ids = automatic(tmp_path)
    with pytest.raises(ValueError, match="max_duration"):
        trainer.fit(duration="1ep")
    assert ids.ids == []
    trainer.close()


def test_autoresume_falls_back_to_the_newest_complete_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = automatic(tmp_path, "2ep")
    first.fit()
    first.close()
    newest = (tmp_path / "latest-rank0.pt").resolve()
    newest.write_bytes(newest.read_bytes()[:-100])
    with caplog.at_level(logging.WARNING):
        second, _ = automatic(tmp_path)
    assert int(second.state.timestamp.epoch) == 1
    assert f"passing over {newest}" in caplog.text
    second.close()


def test_autoresume_before_the_first_checkpoint_goes_on_with_the_log(tmp_path: Path) -> None:
    from composer.loggers import FileLogger

    log = tmp_path / "log.txt"

    def start(*callbacks: Callback) -> Trainer:
        model = TinyModel()
        return Trainer(
            model=model,
            train_dataloader=loader(),
            max_duration="1ep",
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
            callbacks=callbacks,
            loggers=FileLogger(str(log), capture_stdout=False, capture_stderr=False),
            save_folder=str(tmp_path / "ck"),
            run_name="r",
            autoresume=True,
            progress_bar=False,
            seed=3,
        )

    first = start(Once())
    with pytest.raises(RuntimeError, match="once"):
        first.fit()
    first.close()
    second = start()
    second.fit()
    second.close()
    assert log.read_text().count("loss/train/total") == BATCHES


def test_autoresume_names_all_it_needs() -> None:
    with pytest.raises(ValueError, match=r"save_folder, .*run_name"):
        Trainer(model=TinyModel(), autoresume=True, progress_bar=False)


def test_a_rate_that_the_script_changed_holds_where_schedules_come_with_fit(tmp_path: Path) -> None:
    from composer.optim import LinearScheduler

    plain("2ba", **adamw(1.0), schedulers=LinearScheduler(t_max="4ba"), save_folder=str(tmp_path))
    rates: list[float] = []

    class Watch(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            rates.append(state.optimizers[0].param_groups[0]["lr"])

    with pytest.warns(UserWarning, match=r"stored 1\.0, script 0\.1 \(the script is used\)"):
        trainer = Trainer(
            **adamw(0.1), max_duration="4ba", progress_bar=False, seed=3, callbacks=Watch(),
            load_path=str(checkpoints(tmp_path)[-1]),
        )  # fmt: skip
    trainer.fit(train_dataloader=loader(), schedulers=LinearScheduler(t_max="4ba"))
    trainer.close()
    assert rates == pytest.approx([0.1 * 0.5, 0.1 * 0.25])


# ---- starts that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "value", "more"),
    [
        ("save_keep_every", 3, {}),
        ("save_best_metric", "metrics/eval/M", {"save_best_mode": "max"}),
    ],
)
def test_what_is_to_be_kept_needs_a_folder(argument: str, value: Any, more: Any) -> None:
    with pytest.raises(ValueError, match=rf"{argument}={value!r} .*without save_folder"):
        Trainer(model=TinyModel(), progress_bar=False, **{argument: value}, **more)


def test_a_start_that_fails_leaves_no_empty_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "{run_name}" / "checkpoints"
    how: dict[str, Any] = {"save_folder": str(folder), "run_name": "a", "progress_bar": False}
    with pytest.raises(FileNotFoundError, match=r"gone\.pt"):
        Trainer(**adamw(0.1), **how, load_path=str(tmp_path / "gone.pt"))
    assert list(tmp_path.iterdir()) == []
    # What was there before stays, and what holds something.
    (tmp_path / "runs").mkdir()
    with pytest.raises(FileNotFoundError, match=r"gone\.pt"):
        Trainer(**adamw(0.1), **how, load_path=str(tmp_path / "gone.pt"))
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert list((tmp_path / "runs").iterdir()) == []


class NoCredentialsError(Exception):
    """As of a client kit, which has no common ancestor with others."""


def test_an_error_of_a_client_kit_is_told_with_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NoCredentialsError("Unable to locate credentials")

    monkeypatch.setattr("composer.trainer.resume.fetch_checkpoint", refuse)
    said = r"load_path='s3://bucket/a\.pt' cannot be read: NoCredentialsError: Unable"
    with pytest.raises(RuntimeError, match=said) as told:
        Trainer(model=TinyModel(), progress_bar=False, load_path="s3://bucket/a.pt")
    assert isinstance(told.value.__cause__, NoCredentialsError)
