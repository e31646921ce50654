"""Two ranks train as one process does on the same global batches, and agree on all they do."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from composer.core.callback import Callback
from composer.core.logger import Logger
from composer.core.model import ComposerModel
from composer.core.state import State
from composer.loggers import InMemoryLogger
from composer.trainer import NonFiniteLossError, OptimizerStep, Trainer, TrainingInterrupted
from composer.utils import dist
from composer_testing.tiny import IdDataset, TinyModel, TokenModel


class Batches:
    """Batches of one size per rank, cut from global ones: rank r gets its share in order."""

    def __init__(self, batches: list[Any], rank: int, size: int, shares: list[int]) -> None:
        start, stop = sum(shares[:rank]), sum(shares[: rank + 1])
        self.batches = [
            {k: v[start:stop] for k, v in b.items()}
            if isinstance(b, dict)
            else tuple(t[start:stop] for t in b)
            for b in batches
        ]

    def __iter__(self) -> Any:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def global_batches(count: int = 6, size: int = 8) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(size, 4, generator=generator, dtype=torch.float64),
            torch.randint(0, 3, (size,), generator=generator),
        )
        for _ in range(count)
    ]


class Watch(Callback):
    def __init__(self) -> None:
        self.rates: list[float] = []
        self.losses: list[dict[str, float]] = []
        self.clock: list[tuple[int, ...]] = []

    def batch_start(self, state: State, logger: Logger) -> None:
        self.rates.append(state.optimizers[0].param_groups[0]["lr"])

    def batch_end(self, state: State, logger: Logger) -> None:
        self.losses.append(dict(state.total_loss_dict))
        t = state.timestamp
        self.clock.append((int(t.epoch), int(t.batch), int(t.sample), int(t.token)))


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def train(shares: list[int] | None, settings: dict[str, Any]) -> dict[str, Any]:
    """One run; ``shares`` are the samples of each rank, ``None`` for a single process."""
    from composer.optim import LinearScheduler

    torch.manual_seed(dist.get_global_rank())  # ranks start from different weights, rank 0's count
    model = TinyModel().double()
    batches: Any = global_batches()
    if shares is not None:
        batches = Batches(batches, dist.get_global_rank(), dist.get_world_size(), shares)
    watch = Watch()
    trainer = Trainer(
        model=model,
        train_dataloader=batches,
        max_duration="2ep",
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.05),
        schedulers=LinearScheduler(),
        callbacks=watch,
        progress_bar=False,
        seed=7,
        **settings,
    )
    trainer.fit()
    trainer.close()
    return {
        "weights": weights(trainer.state.model),
        "rates": watch.rates,
        "losses": watch.losses,
        "clock": watch.clock,
    }


def alone(settings: dict[str, Any]) -> dict[str, Any]:
    return train(None, settings)


def same_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], atol: float) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=atol)


def train_all(cases: list[tuple[list[int], dict[str, Any]]]) -> list[dict[str, Any]]:
    return [train(shares, settings) for shares, settings in cases]


def test_the_update_is_that_of_the_global_batch(ranks: Any) -> None:
    cases: list[tuple[list[int], dict[str, Any]]] = [
        (
            shares,
            {"device_train_microbatch_size": microbatch, "ddp_sync_strategy": strategy},
        )
        for shares, microbatch in (([4, 4], None), ([5, 3], 2), ([7, 1], 3))
        for strategy in (None, "multi_auto_sync", "forced_sync")
    ]
    straight = alone({})
    for one, other in zip(*ranks.run(train_all, cases, timeout=120), strict=True):
        same_weights(one["weights"], other["weights"], 0.0)
        same_weights(one["weights"], straight["weights"], 1e-12)
        for found in (one, other):
            assert found["rates"] == straight["rates"]
            assert found["clock"] == straight["clock"]
            for mine, his in zip(found["losses"], straight["losses"], strict=True):
                assert mine == pytest.approx(his, abs=1e-12)


# ---- tokens -----------------------------------------------------------------------------------


def token_batch(empty: bool) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 5, (4, 6), generator=generator)
    labels = ids.clone()
    labels[:2] = -100  # what rank 0 gets carries little loss, or none
    if not empty:
        labels[0, :2] = ids[0, :2]
    return {"input_ids": ids, "labels": labels}


def train_tokens(empty: bool, microbatch: int | None, many: bool) -> Any:
    torch.manual_seed(0)
    model = TokenModel().double()
    batches: Any = [token_batch(empty)]
    if many:
        batches = Batches(batches, dist.get_global_rank(), 2, [2, 2])
    trainer = Trainer(
        model=model, train_dataloader=batches, max_duration="1ep", progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=1.0),
        device_train_microbatch_size=microbatch,
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    return weights(model), trainer.state.total_loss_dict


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("microbatch", [None, 1])
def test_tokens_are_counted_over_all_ranks(ranks: Any, empty: bool, microbatch: int | None) -> None:
    expected, loss = train_tokens(empty, None, False)
    for found, logged in ranks.run(train_tokens, empty, microbatch, True):
        same_weights(found, expected, 1e-12)
        assert logged == pytest.approx(loss, abs=1e-12)


# ---- parameters that are not always used ------------------------------------------------------


class Branches(ComposerModel):
    """Weight A for inputs of one kind and B for the other."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(()))
        self.b = nn.Parameter(torch.zeros(()))

    def forward(self, batch: Any) -> torch.Tensor:
        kind, x = batch
        return (self.a if int(kind[0]) == 0 else self.b) * x

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return outputs.mean()


def train_branches(strategy: str | None) -> tuple[float, float]:
    """A microbatch of A and one of B on each rank, with the inputs 1 on rank 0 and 2 on rank 1."""
    from composer.core.algorithm import Algorithm
    from composer.core.event import Event

    class MayBeUnused(Algorithm):
        events: Any = frozenset()
        find_unused_parameters = True

        def apply(self, event: Event, state: State, logger: Logger) -> None:
            raise AssertionError

    model = Branches()
    x = torch.full((2,), 1.0 + dist.get_global_rank())
    trainer = Trainer(
        model=model, train_dataloader=[(torch.tensor([0, 1]), x)], max_duration="1ba",
        optimizers=torch.optim.SGD(model.parameters(), lr=1.0), progress_bar=False,
        device_train_microbatch_size=1, algorithms=MayBeUnused(), ddp_sync_strategy=strategy,
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    return model.a.item(), model.b.item()


@pytest.mark.parametrize("strategy", [None, "single_auto_sync", "forced_sync"])
def test_parameters_of_an_earlier_microbatch_are_averaged(ranks: Any, strategy: str | None) -> None:
    # Each branch sees half of the batch, and 1.5 is the mean of its inputs.
    assert ranks.run(train_branches, strategy) == [(-0.75, -0.75)] * 2


# ---- agreement --------------------------------------------------------------------------------


class Uneven(IterableDataset[Any]):
    def __iter__(self) -> Any:
        data = IdDataset(8)
        return iter([data[i] for i in range(8 if dist.get_global_rank() == 0 else 5)])


def train_uneven() -> list[int]:
    model = TinyModel()
    trainer = Trainer(
        model=model, train_dataloader=DataLoader(Uneven(), batch_size=2), max_duration="5ba",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1), progress_bar=False,
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    t = trainer.state.timestamp
    return [int(t.epoch), int(t.batch), int(t.sample)]


def test_all_ranks_stop_with_the_shortest(ranks: Any) -> None:
    # Three batches an epoch: 2+2, 2+2, 2+1 samples; then two batches of the next epoch.
    assert ranks.run(train_uneven) == [[1, 5, 4 + 4 + 3 + 4 + 4]] * 2


class Metric(TinyModel):
    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        from composer.metrics import MulticlassAccuracy

        return {"Accuracy": MulticlassAccuracy(3, average="micro")}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        metric.update(outputs, batch[1])


def evaluate(size: int, batch_size: int) -> Any:
    torch.manual_seed(0)
    data = IdDataset(size)
    sampler = dist.get_sampler(data) if dist.get_world_size() > 1 else None
    trainer = Trainer(
        model=Metric(),
        eval_dataloader=DataLoader(data, batch_size=batch_size, sampler=sampler),
        progress_bar=False,
    )
    trainer.eval()
    trainer.close()
    metric = trainer.state.eval_metrics["eval"]["Accuracy"]
    return float(metric.compute()), int(trainer.state.eval_timestamp.sample)


def evaluate_all(sizes: list[int]) -> list[Any]:
    return [evaluate(size, 2) for size in sizes]


def test_evaluation_counts_every_sample_once(ranks: Any) -> None:
    sizes = list(range(1, 13))
    expected = [(pytest.approx(evaluate(size, 2)[0], abs=1e-6), size) for size in sizes]
    for found in ranks.run(evaluate_all, sizes):
        assert found == expected


def save_and_resume(folder: str) -> Any:
    """A plain run next to one that is cut in the middle of its second epoch."""

    class Draws(Callback):
        def __init__(self) -> None:
            self.drawn: list[float] = []

        def batch_end(self, state: State, logger: Logger) -> None:
            self.drawn.append(torch.rand(1).item())

    def run(**settings: Any) -> tuple[Any, list[float]]:
        torch.manual_seed(dist.get_global_rank())
        model = TinyModel(dropout=0.3)
        data = IdDataset(24)
        draws = Draws()
        trainer = Trainer(
            model=model,
            train_dataloader=DataLoader(
                data, batch_size=4, sampler=dist.get_sampler(data, shuffle=True)
            ),
            max_duration="3ep",
            optimizers=torch.optim.AdamW(model.parameters(), lr=0.05),
            callbacks=draws,
            progress_bar=False,
            seed=5,
            **settings,
        )
        trainer.fit()
        trainer.close()
        return weights(model), draws.drawn

    straight, drawn = run(save_folder=folder, save_interval="5ba")
    dist.barrier()
    resumed, rest = run(load_path=f"{folder}/ep1-ba5-rank0.pt")
    return straight, drawn, resumed, rest


def test_two_ranks_continue_exactly(ranks: Any, tmp_path: Path) -> None:
    found = ranks.run(save_and_resume, str(tmp_path))
    for straight, drawn, resumed, rest in found:
        same_weights(straight, resumed, 0.0)
        assert drawn[5:] == rest
    assert found[0][1] != found[1][1]  # the ranks' random streams differ
    files = sorted(p.name for p in tmp_path.glob("ep*.pt"))
    assert files == ["ep1-ba5-rank0.pt", "ep3-ba9-rank0.pt"]


def interrupted(folder: str, where: str) -> Any:
    """Rank 0 alone gets the signal."""

    class Ask(Callback):
        def run_event(self, event: Any, state: State, logger: Logger) -> None:
            here = event.value == where and int(state.timestamp.batch) == 3
            if here and dist.get_global_rank() == 0:
                os.kill(os.getpid(), signal.SIGTERM)

    model = Metric()
    data = IdDataset(24)

    def split() -> DataLoader[Any]:
        return DataLoader(data, batch_size=4, sampler=dist.get_sampler(data))

    trainer = Trainer(
        model=model, train_dataloader=split(), eval_dataloader=split(), eval_interval="3ba",
        max_duration="20ba", optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=Ask(), progress_bar=False, save_folder=folder, save_interval="100ba",
    )  # fmt: skip
    try:
        trainer.fit()
    except TrainingInterrupted as caught:
        trainer.close()
        return caught.code, int(trainer.state.timestamp.batch)
    return None


@pytest.mark.parametrize(("where", "batch"), [("after_forward", 4), ("eval_after_forward", 3)])
def test_a_signal_to_one_rank_ends_all(ranks: Any, tmp_path: Path, where: str, batch: int) -> None:
    assert ranks.run(interrupted, str(tmp_path), where) == [(143, batch)] * 2
    saved = torch.load(next(tmp_path.glob("ep*.pt")), weights_only=True)
    assert saved["state"]["timestamp"]["batch"] == batch


def clocks_apart(folder: str) -> list[int]:
    """Saves every second by clocks that disagree by half of one."""
    from composer.trainer import loop

    class Fast:
        def __init__(self) -> None:
            self.now = 0.5 * dist.get_global_rank()

        def restart(self) -> None:
            pass

        def lap(self) -> float:
            return 0.25 if dist.get_global_rank() == 0 else 0.375

    loop.BatchClock = Fast  # type: ignore[assignment,misc]
    model = TinyModel()
    data = IdDataset(24)
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(data, batch_size=4, sampler=dist.get_sampler(data)),
        max_duration="20ba", optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        progress_bar=False, save_folder=folder, save_interval="1sec", save_filename="ba{batch}.pt",
    )  # fmt: skip
    saved: list[int] = []

    class Note(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            saved.append(int(state.timestamp.total_wct.total_seconds() // 1))

    trainer.state.callbacks.append(Note())
    trainer.fit()
    trainer.close()
    return saved


def test_wall_clock_intervals_are_rank_zeros(ranks: Any, tmp_path: Path) -> None:
    one, other = ranks.run(clocks_apart, str(tmp_path))
    assert one == other == [k // 4 for k in range(1, 21)]
    saved = sorted(int(p.stem[2:]) for p in tmp_path.glob("ba*.pt"))
    assert saved == [4, 8, 12, 16, 20]


def not_finite_on_one(policy: str) -> Any:
    batches = global_batches(4)
    if dist.get_global_rank() == 1:
        batches[2][0][0, 0] = float("nan")
    torch.manual_seed(0)
    model = TinyModel().double()
    trainer = Trainer(
        model=model, train_dataloader=batches, max_duration="1ep", progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1), on_nonfinite_loss=policy,
    )  # fmt: skip
    try:
        trainer.fit()
    except NonFiniteLossError as error:
        return str(error)
    finally:
        trainer.close()
    return trainer.state.num_skipped_steps, bool(torch.isfinite(model.linear.weight).all())


def test_ranks_agree_about_a_loss_that_is_not_finite(ranks: Any) -> None:
    assert ranks.run(not_finite_on_one, "skip") == [(1, True)] * 2
    here, there = ranks.run(not_finite_on_one, "stop")
    assert "not finite on another rank" in here
    assert "is nan" in there


class Pair(ComposerModel):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 3)
        self.two = nn.Linear(4, 3)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.one(batch[0])

    def other(self, batch: Any) -> torch.Tensor:
        return self.two(batch[0]) + self.one(batch[0])

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, batch[1])


def take_turns(many: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(dist.get_global_rank())
    model = Pair().double()
    batches: Any = global_batches()
    if many:
        batches = Batches(batches, dist.get_global_rank(), 2, [5, 3])
    turns = [
        OptimizerStep(torch.optim.SGD(model.one.parameters(), lr=0.1), name="one"),
        OptimizerStep(torch.optim.Adam(model.two.parameters(), lr=0.1), name="two",
                      forward="other", every=2),
    ]  # fmt: skip
    trainer = Trainer(
        model=model, train_dataloader=batches, max_duration="1ep", progress_bar=False,
        optimizers=turns,
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    return weights(model)


def test_optimizers_take_turns_on_two_ranks(ranks: Any) -> None:
    expected = take_turns(False)
    for found in ranks.run(take_turns, True):
        same_weights(found, expected, 1e-12)


def logged_names() -> list[str]:
    memory = InMemoryLogger()
    model = Metric()
    data = IdDataset(8)
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(data, batch_size=2, sampler=dist.get_sampler(data)),
        max_duration="1ep", optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        loggers=memory, progress_bar=True,
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    return [f"{int(t.batch)} {float(v):.6f}" for t, v in memory.data["loss/train/total"]]


def test_ranks_log_the_same_numbers_and_only_the_first_draws(ranks: Any) -> None:
    one, other = ranks.run(logged_names)
    assert one == other


# ---- memory that runs out on one rank ---------------------------------------------------------


def train_with_little_room(where: str, first: int) -> Any:
    """Rank 1 has room for two samples, from a batch on; rank 0 for all."""
    from composer.devices import DeviceCPU

    class Budget(DeviceCPU):
        name = "budget"
        is_host = False

        def batch_to_device(self, batch: Any) -> Any:
            state.seen = len(batch[0])
            if where == "forward":
                state.maybe_fail()
            return super().batch_to_device(batch)

    class Room:
        seen = 0
        batch = 0

        def maybe_fail(self) -> None:
            if dist.get_global_rank() == 1 and self.batch >= first and self.seen > 2:
                raise torch.OutOfMemoryError("room for 2 samples")

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            if where == "backward":
                state.maybe_fail()
            return gradients[0]

    class Model(TinyModel):
        def forward(self, batch: Any) -> torch.Tensor:
            return Fails.apply(super().forward(batch))

    class Count(Callback):
        def batch_start(self, run: State, logger: Logger) -> None:
            state.batch = int(run.timestamp.batch)

        def batch_end(self, run: State, logger: Logger) -> None:
            sizes.append(int(run.device_train_microbatch_size or 0))

    state, sizes = Room(), []  # type: ignore[var-annotated]
    torch.manual_seed(0)
    model = Model().double()
    batches = Batches(global_batches(5, 16), dist.get_global_rank(), 2, [8, 8])
    trainer = Trainer(
        model=model, train_dataloader=batches, max_duration="1ep", progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1), device=Budget(), callbacks=Count(),
        device_train_microbatch_size="auto",
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    return weights(model), sizes


def plain_weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = TinyModel().double()
    trainer = Trainer(
        model=model, train_dataloader=global_batches(5, 16), max_duration="1ep",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1), progress_bar=False,
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    return weights(model)


@pytest.mark.parametrize(("where", "first"), [("forward", 0), ("backward", 0), ("backward", 3)])
def test_ranks_agree_on_the_microbatch_size(ranks: Any, where: str, first: int) -> None:
    one, other = ranks.run(train_with_little_room, where, first)
    assert one[1] == other[1]
    assert set(one[1][first:]) == {2}
    assert set(one[1][:first]) <= {8}
    same_weights(one[0], other[0], 0.0)
    same_weights(one[0], plain_weights(), 1e-12)
