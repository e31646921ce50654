"""Resumption by kind: optimizers, precisions, durations, metrics, plain state, several ranks."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from composer.checkpoint import save_checkpoint
from composer.core.algorithm import Algorithm
from composer.core.callback import Callback
from composer.core.data_spec import DataSpec
from composer.core.event import Event
from composer.core.logger import Logger
from composer.core.state import State
from composer.loggers import InMemoryLogger
from composer.metrics import MulticlassAccuracy
from composer.optim import LinearScheduler
from composer.trainer import Trainer, TrainingInterrupted
from composer.utils import dist
from composer_testing.tiny import EventRecorder, IdDataset, IdRecorder, TinyModel, loader


class Classifier(TinyModel):
    """With dropout, and an accuracy for training and for evaluation."""

    def __init__(self) -> None:
        super().__init__(dropout=0.3)

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        return {"Accuracy": MulticlassAccuracy(3, average="micro")}


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def start(
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd, **settings: Any
) -> Trainer:
    """A trainer with everything new, as in a process of its own."""
    torch.manual_seed(99)
    model = settings.pop("model", Classifier)()
    settings.setdefault("train_dataloader", loader())
    settings.setdefault("max_duration", "2ep")
    return Trainer(model=model, optimizers=optimizer(model), progress_bar=False, seed=3, **settings)


def go(*arguments: Any, **settings: Any) -> Trainer:
    trainer = start(*arguments, **settings)
    trainer.fit()
    trainer.close()
    return trainer


def saved(folder: Path) -> dict[int, str]:
    """Batch counter to path."""
    found = [p for p in folder.glob("ep*.pt") if not p.is_symlink()]
    return {int(p.name.split("-ba")[1].split("-")[0].split(".")[0]): str(p) for p in found}


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key in value for k, v in flat(value[key], f"{path}/{key}").items()}
    if isinstance(value, (list, tuple)):
        return {k: v for i, x in enumerate(value) for k, v in flat(x, f"{path}/{i}").items()}
    return {path: value}


def assert_same(one: Any, other: Any) -> None:
    """Exactly the same values, tensors and types in the same places."""
    a, b = flat(one), flat(other)
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert type(value) is type(b[key]), key
        if isinstance(value, torch.Tensor):
            assert value.dtype == b[key].dtype, key
            assert torch.equal(value, b[key]), key
        else:
            assert value == b[key], key


def everything(trainer: Trainer) -> dict[str, Any]:
    """Weights, optimizer with its settings, loss scale, skipped steps."""
    state = trainer.state
    return {
        "model": state.model.state_dict(),
        "optimizer": state.optimizers[0].state_dict(),
        "scaler": None if state.scaler is None else state.scaler.state_dict(),
        "skipped": state.num_skipped_steps,
    }


# ---- optimizers ----------------------------------------------------------------------------------


def frozen(model: nn.Module) -> list[nn.Parameter]:
    """All parameters, of which the bias takes no part in training."""
    model.linear.bias.requires_grad_(False)  # type: ignore[union-attr]
    return list(model.parameters())


OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda m: torch.optim.SGD(frozen(m), lr=0.1),
    "momentum": lambda m: torch.optim.SGD(frozen(m), lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda m: torch.optim.Adam(frozen(m), lr=0.05),
    "adamw": lambda m: torch.optim.AdamW(frozen(m), lr=0.05, amsgrad=True),
    "adamax": lambda m: torch.optim.Adamax(frozen(m), lr=0.05),
    "nadam": lambda m: torch.optim.NAdam(frozen(m), lr=0.05),
    "radam": lambda m: torch.optim.RAdam(frozen(m), lr=0.05),
    "adagrad": lambda m: torch.optim.Adagrad(frozen(m), lr=0.05),
    "adadelta": lambda m: torch.optim.Adadelta(frozen(m), lr=0.5),
    "adafactor": lambda m: torch.optim.Adafactor(frozen(m), lr=0.05),
    "rmsprop": lambda m: torch.optim.RMSprop(frozen(m), lr=0.05, momentum=0.5, centered=True),
    "rprop": lambda m: torch.optim.Rprop(frozen(m), lr=0.05),
    "asgd": lambda m: torch.optim.ASGD(frozen(m), lr=0.05, t0=2),
    "lbfgs": lambda m: torch.optim.LBFGS([m.linear.weight], lr=0.1, max_iter=3),  # type: ignore[list-item,union-attr]
    "groups": lambda m: torch.optim.AdamW(
        [
            {"params": [m.linear.bias], "lr": 0.5, "weight_decay": 0.0},  # type: ignore[union-attr]
            {"params": [m.linear.weight], "betas": (0.5, 0.6)},  # type: ignore[union-attr]
        ],
        lr=0.05,
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_of_torch_comes_back_whole(name: str, tmp_path: Path) -> None:
    make = OPTIMIZERS[name]
    straight = go(make, save_folder=str(tmp_path), save_interval="1ba", max_duration="8ba")
    paths = saved(tmp_path)
    # What was read is what was in memory, before anything is trained.
    loaded = start(make, load_path=paths[8], max_duration="8ba")
    assert_same(everything(loaded), everything(straight))
    loaded.close()
    for batch in (1, 6):
        assert_same(
            everything(go(make, load_path=paths[batch], max_duration="8ba")), everything(straight)
        )


# ---- loss scaling --------------------------------------------------------------------------------


class Overflow(Algorithm):
    """Gradients that are not finite, in some batches."""

    events = frozenset({Event.AFTER_BACKWARD})

    def __init__(self, *batches: int) -> None:
        self.batches = batches

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        if int(state.timestamp.batch) in self.batches:
            state.model.linear.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]

    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("microbatch", [None, 3])
def test_scale_skipped_steps_and_schedule_continue(microbatch: int | None, tmp_path: Path) -> None:
    """From before, between and after batches whose updates were skipped."""

    class Rates(Callback):
        def __init__(self) -> None:
            self.seen: list[float] = []

        def batch_start(self, state: State, logger: Logger) -> None:
            self.seen.append(state.optimizers[0].param_groups[0]["lr"])

    def run(**settings: Any) -> tuple[Trainer, list[float]]:
        rates = Rates()
        trainer = go(
            precision="amp_fp16",
            algorithms=Overflow(1, 4),
            callbacks=rates,
            schedulers=LinearScheduler(),
            device_train_microbatch_size=microbatch,
            **settings,
        )
        return trainer, rates.seen

    straight, rates = run(save_folder=str(tmp_path), save_interval="1ba")
    assert straight.state.scaler is not None
    skipped = straight.state.num_skipped_steps
    assert skipped >= 2  # the first scale may be too large for gradients of this format by itself
    assert straight.state.scaler.get_scale() == 65536.0 / 2**skipped
    assert rates[1] == rates[2]  # the schedule stood still
    assert rates[4] == rates[5] < rates[3]
    for batch, path in saved(tmp_path).items():
        if batch < 12:
            resumed, rest = run(load_path=path)
            assert rest == rates[batch:]
            assert_same(everything(resumed), everything(straight))


# ---- durations, subsets, evaluation --------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"max_duration": "46sp"},
        {"max_duration": "115tok"},
        {"max_duration": "6sec"},
        {"max_duration": "3ep", "train_subset_num_batches": 4},
        {"max_duration": "11ba", "train_subset_num_batches": 4},
    ],
    ids=str,
)
def test_every_unit_and_epochs_of_a_part(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four samples, ten tokens and half a second a batch; every point of the run."""
    from composer.trainer import clock

    monkeypatch.setattr(clock.BatchClock, "lap", lambda self: 0.5)

    def run(**more: Any) -> tuple[Trainer, IdRecorder, EventRecorder]:
        ids, events = IdRecorder(), EventRecorder()
        data = DataSpec(loader(), get_num_tokens_in_batch=lambda batch: 10)
        trainer = go(train_dataloader=data, callbacks=[ids, events], **settings, **more)
        return trainer, ids, events

    straight, ids, events = run(save_folder=str(tmp_path), save_interval="1ba")
    paths = saved(tmp_path)
    assert len(paths) in (11, 12)
    for batch, path in paths.items():
        if batch == max(paths):
            continue
        resumed, rest, later = run(load_path=path)
        assert rest.ids == ids.ids[batch:]
        assert rest.losses == ids.losses[batch:]
        assert resumed.state.timestamp == straight.state.timestamp
        assert resumed.state.timestamp.total_wct == straight.state.timestamp.total_wct
        assert_same(everything(resumed), everything(straight))
        ends = [e for e in events.seen if e[0] == "epoch_end" and e[2] > batch]
        assert [e for e in later.seen if e[0] == "epoch_end" and e[2] > batch] == ends


def test_intervals_fire_at_the_same_counters_in_chained_sessions(tmp_path: Path) -> None:
    """Sessions of an epoch of three batches; the evaluation at each end changes nothing."""

    class When(Callback):
        def __init__(self) -> None:
            self.evaluated: list[tuple[int, int, float]] = []

        def eval_end(self, state: State, logger: Logger) -> None:
            value = float(state.eval_metrics["eval"]["Accuracy"].compute())
            batches = int(state.eval_timestamp.batch)
            self.evaluated.append((int(state.timestamp.batch), batches, value))

    def session(duration: str, **settings: Any) -> tuple[Trainer, list[Any], list[list[int]]]:
        when, ids = When(), IdRecorder()
        trainer = go(
            train_dataloader=loader(12, 4), eval_dataloader=loader(17, 4, shuffle=False),
            eval_interval="2ba", callbacks=[when, ids], max_duration=duration, **settings,
        )  # fmt: skip
        return trainer, when.evaluated, ids.ids

    straight, whole, order = session("3ep")
    chained: list[Any] = []
    seen: list[list[int]] = []
    load = None
    for epochs in (1, 2, 3):
        folder = tmp_path / str(epochs)
        last, evaluated, ids = session(f"{epochs}ep", load_path=load, save_folder=str(folder))
        chained += evaluated
        seen += ids
        load = saved(folder)[3 * epochs]
    assert [batch for batch, *_ in whole] == [2, 4, 6, 8, 9]
    assert [e for e in chained if e[0] != 3] == whole
    assert {batches for _, batches, _ in chained} == {5}
    assert seen == order
    assert_same(everything(last), everything(straight))
    end = last.state.timestamp
    assert (int(end.batch), int(end.epoch), int(end.batch_in_epoch)) == (9, 3, 0)


@pytest.mark.parametrize("save_metrics", [False, True])
def test_metrics_after_a_resumption_are_those_of_the_straight_run(
    save_metrics: bool, tmp_path: Path
) -> None:
    """Half of an epoch is right and half is wrong: no value of a part under the name of a whole."""

    class Known(TinyModel):
        def forward(self, batch: Any) -> torch.Tensor:
            right = nn.functional.one_hot(batch[1], 3).float()
            hit = (batch[2] < 20).float().unsqueeze(1)
            return right * (2 * hit - 1) + 0.0 * self.linear.weight.sum()

        def get_metrics(self, is_train: bool) -> dict[str, Any]:
            return {"Accuracy": MulticlassAccuracy(3, average="micro")}

    def run(**settings: Any) -> dict[str, list[float]]:
        memory = InMemoryLogger()
        go(
            model=Known,
            train_dataloader=loader(40, 4, shuffle=False),
            eval_dataloader=loader(40, 4, shuffle=False),
            eval_interval="5ba",
            max_duration="1ep",
            loggers=memory,
            **settings,
        )
        names = [name for name in memory.data if name.startswith("metrics/")]
        return {name: [float(v) for _, v in memory.data[name]] for name in names}

    whole = run(save_folder=str(tmp_path), save_interval="5ba", save_metrics=save_metrics)
    assert whole["metrics/train/Accuracy"] == [1.0] * 5 + [0.0] * 5
    assert whole["metrics/eval/Accuracy"] == [0.5, 0.5]
    rest = run(load_path=saved(tmp_path)[5], save_metrics=save_metrics)
    assert rest["metrics/train/Accuracy"] == [0.0] * 5
    assert rest["metrics/eval/Accuracy"] == [0.5]


# ---- plain state ---------------------------------------------------------------------------------

PLAIN = {
    "int": 7,
    "float": 0.1,
    "text": "x/y z",
    "yes": True,
    "no": False,
    "nothing": None,
    "nested": {"k": [1, 2, {"deep": [None, "a", 1.5]}], "empty": {}, "none": []},
    "tensor": torch.arange(3, dtype=torch.int16),
    "flag": torch.tensor(True),
}


class Keeps(Callback):
    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = state["kept"]


def test_plain_values_of_every_kind_come_back(tmp_path: Path) -> None:
    """Also over what was there before, and over two resumptions."""
    go(callbacks=Keeps(PLAIN), max_duration="1ba", save_folder=str(tmp_path / "a"))
    other = {"int": 8, "text": "other", "nested": {"k": [9]}, "more": 1}
    for source, target in (("a", "b"), ("b", "c")):
        keeps = Keeps(other)
        path = next((tmp_path / source).glob("ep*.pt"))
        go(
            callbacks=keeps, load_path=str(path), save_folder=str(tmp_path / target),
            max_duration="2ba" if source == "a" else "3ba",
        )  # fmt: skip
        assert_same(keeps.kept, PLAIN)


def test_a_file_of_another_device_comes_to_the_host_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors that say they were on an eighth GPU; each way of loading says where to."""
    straight = start(max_duration="1ba")
    straight.fit()
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:7")
        path = save_checkpoint(straight.state, str(tmp_path / "a.pt"))
    straight.close()
    assert path is not None
    with pytest.raises(RuntimeError, match=r"(?i)cuda"):
        torch.load(path, weights_only=True)
    asked: list[Any] = []
    load = torch.load

    def spy(*arguments: Any, **settings: Any) -> Any:
        asked.append(settings.get("map_location"))
        return load(*arguments, **settings)

    monkeypatch.setattr(torch, "load", spy)
    resumed = start(load_path=path, max_duration="1ba")
    resumed.close()
    assert set(asked) == {"cpu"}
    assert_same(everything(resumed), everything(straight))


# ---- the clock set to zero inside an epoch -------------------------------------------------------


class Stateful:
    """A loader that knows its place and its pass."""

    batch_size = 4

    def __init__(self) -> None:
        self.passes, self.place = 0, 0

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[Any]:
        data = IdDataset(24)
        while self.place < 6:
            self.place += 1
            ids = range(self.place * 4 - 4, self.place * 4)
            yield torch.utils.data.default_collate([data[i] for i in ids])
        self.passes, self.place = self.passes + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"passes": self.passes, "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.passes, self.place = state["passes"], state["place"]


@pytest.mark.parametrize("how", ["clock", "no spinning"])
@pytest.mark.parametrize("data", [loader, Stateful, lambda: list(loader(shuffle=False))])
def test_an_epoch_that_starts_over_is_whole(data: Callable[[], Any], how: str) -> None:
    ids, events = IdRecorder(), EventRecorder()
    trainer = start(
        train_dataloader=data(),
        max_duration="8ba",
        callbacks=[ids, events],
        spin_dataloaders=how == "clock",
    )
    trainer.fit()
    ids.ids.clear()
    events.seen.clear()
    if how == "clock":
        trainer.fit(reset_time=True)
    else:
        trainer.fit(duration="8ba")
    trainer.close()
    assert sorted(i for batch in ids.ids[:6] for i in batch) == list(range(24))
    names = [name for name in events.names if name in ("batch_end", "epoch_end")]
    assert names == ["batch_end"] * 6 + ["epoch_end"] + ["batch_end"] * 2


# ---- several ranks -------------------------------------------------------------------------------


class Draws(Callback):
    """A number from each stream at each batch."""

    def __init__(self) -> None:
        self.drawn: list[tuple[float, float, float]] = []

    def batch_start(self, state: State, logger: Logger) -> None:
        self.drawn.append((random.random(), float(np.random.rand()), torch.rand(()).item()))


def split() -> DataLoader[Any]:
    data = IdDataset(24)
    return DataLoader(data, batch_size=4, sampler=dist.get_sampler(data, shuffle=True))


def streams_of_ranks(folder: str, batch: int) -> Any:
    def run(**settings: Any) -> tuple[Any, Any]:
        draws = Draws()
        trainer = go(
            lambda m: torch.optim.AdamW(m.parameters(), lr=0.05), train_dataloader=split(),
            callbacks=draws, **settings,
        )  # fmt: skip
        return everything(trainer), draws.drawn

    straight, drawn = run(save_folder=folder, save_interval=f"{batch}ba")
    dist.barrier()
    path = f"{folder}/ep{batch // 3}-ba{batch}-rank0.pt"
    resumed, rest = run(load_path=path)
    return straight, drawn, resumed, rest


@pytest.mark.parametrize("batch", [2, 4])
def test_every_stream_of_every_rank_continues(ranks: Any, tmp_path: Path, batch: int) -> None:
    found = ranks.run(streams_of_ranks, str(tmp_path), batch)
    for straight, drawn, resumed, rest in found:
        assert len(drawn) == 6
        assert drawn[batch:] == rest
        assert_same(straight, resumed)
    one, other = found[0][1], found[1][1]
    for stream in range(3):
        assert [d[stream] for d in one] != [d[stream] for d in other]
    assert_same(found[0][0]["model"], found[1][0]["model"])


def end_and_continue(folder: str, where: str) -> Any:
    """One rank gets a signal; all save, and a run that continues equals one that was left alone."""

    class Ask(Callback):
        def run_event(self, event: Event, state: State, logger: Logger) -> None:
            here = event.value == where and int(state.timestamp.batch) == 3
            if here and dist.get_global_rank() == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    def settings() -> dict[str, Any]:
        data = IdDataset(10)
        return {
            "train_dataloader": split(),
            "eval_dataloader": DataLoader(data, batch_size=2, sampler=dist.get_sampler(data)),
            "eval_interval": "3ba",
        }

    straight = go(**settings())
    trainer = start(callbacks=Ask(), save_folder=folder, save_interval="100ba", **settings())
    code: Any = None
    try:
        trainer.fit()
    except TrainingInterrupted as interrupted:
        code, path = interrupted.code, f"{folder}/latest-rank0.pt"
    trainer.close()
    dist.barrier()
    stopped = int(trainer.state.timestamp.batch)
    counts = IdRecorder()
    resumed = go(load_path=path, callbacks=counts, **settings())
    metric = straight.state.eval_metrics["eval"]["Accuracy"]
    again = resumed.state.eval_metrics["eval"]["Accuracy"]
    same = float(metric.compute()) == float(again.compute()), int(again.total)
    return code, stopped, len(counts.ids), same, everything(straight), everything(resumed)


@pytest.mark.parametrize(("where", "batch"), [("before_backward", 4), ("eval_before_forward", 3)])
def test_a_run_that_was_ended_on_all_ranks_continues(
    ranks: Any, tmp_path: Path, where: str, batch: int
) -> None:
    found = ranks.run(end_and_continue, str(tmp_path), where)
    for code, stopped, left, (same, _), straight, resumed in found:
        assert (code, stopped, left, same) == (143, batch, 6 - batch, True)
        assert_same(straight, resumed)


def save_on_ranks(folder: str) -> None:
    for duration in ("1ba", "1ep"):
        go(
            train_dataloader=split(), save_folder=f"{folder}/{duration}", max_duration=duration,
            save_interval=duration,
        )  # fmt: skip


def load_on_ranks(inside: str, edge: str) -> Any:
    try:
        start(train_dataloader=split(), load_path=inside).close()
        said = ""
    except ValueError as error:
        said = str(error)
    ids = IdRecorder()
    with pytest.warns(RuntimeWarning, match="random states were saved by"):
        trainer = go(train_dataloader=split(), load_path=edge, callbacks=ids)
    return said, [i for batch in ids.ids for i in batch], int(trainer.state.timestamp.epoch)


@pytest.mark.parametrize(("then", "now"), [(2, 1), (1, 2), (4, 2), (2, 4)])
def test_another_number_of_ranks_is_refused_inside_an_epoch_and_exact_at_its_end(
    ranks: Any, tmp_path: Path, then: int, now: int
) -> None:
    def on(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        return [function(*arguments)] if size == 1 else ranks.run(function, *arguments, size=size)

    on(then, save_on_ranks, str(tmp_path))
    [inside], [edge] = (saved(tmp_path / kind).values() for kind in ("1ba", "1ep"))
    found = on(now, load_on_ranks, inside, edge)
    for said, _, epoch in found:
        assert f"on {then} rank(s), and this run has {now}" in said
        assert epoch == 2
    assert sorted(i for _, ids, _ in found for i in ids) == list(range(24))
