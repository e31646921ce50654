"""What only one of two ranks does: all follow, or all are told; nobody waits for ever."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from composer.callbacks import CheckpointSaver
from composer.core.callback import Callback
from composer.core.evaluator import Evaluator
from composer.core.logger import Logger
from composer.core.model import ComposerModel
from composer.core.state import State
from composer.trainer import OptimizerStep, Trainer
from composer.utils import dist
from composer_testing.tiny import IdDataset, TinyModel


def batches(count: int, size: int = 4) -> list[Any]:
    """Different on each rank."""
    generator = torch.Generator().manual_seed(10 + dist.get_global_rank())
    return [
        (
            torch.randn(size, 4, generator=generator),
            torch.randint(0, 3, (size,), generator=generator),
        )
        for _ in range(count)
    ]


def fit(model: ComposerModel, **settings: Any) -> Trainer:
    settings.setdefault("optimizers", torch.optim.SGD(model.parameters(), lr=0.1))
    settings.setdefault("max_duration", "3ba")
    settings.setdefault("train_dataloader", batches(3))
    trainer = Trainer(model=model, progress_bar=False, seed=1, **settings)
    try:
        trainer.fit()
    finally:
        trainer.close()
    return trainer


def message(run: Any) -> str:
    """What was raised, with what was added to it."""
    try:
        run()
    except Exception as error:
        return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    return "nothing"


# ---- buffers ----------------------------------------------------------------------------------


class Normed(TinyModel):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, momentum=0.5)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.linear(self.norm(batch[0]))


def statistics_seen(settings: dict[str, Any], folder: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    class Watch(Callback):
        def note(self, name: str, state: State) -> None:
            norm = state.model.norm
            seen[name] = (norm.running_mean.tolist(), int(norm.num_batches_tracked))  # type: ignore[union-attr, operator, arg-type]

        def batch_end(self, state: State, logger: Logger) -> None:
            self.note(f"batch {int(state.timestamp.batch)}", state)

        def eval_start(self, state: State, logger: Logger) -> None:
            self.note(f"evaluation {int(state.timestamp.batch)}", state)

        def fit_end(self, state: State, logger: Logger) -> None:
            self.note("end", state)

    data = IdDataset(4)
    fit(
        Normed(),
        callbacks=Watch(),
        eval_dataloader=DataLoader(data, batch_size=2, sampler=dist.get_sampler(data)),
        eval_interval="2ba",
        save_folder=folder,
        save_interval="3ba",
        save_filename="ba{batch}.pt",
        **settings,
    )
    return seen


@pytest.mark.parametrize(
    "settings",
    [{}, {"ddp_sync_strategy": "forced_sync"}, {"device_train_microbatch_size": "auto"}],
    ids=["wrapper", "by hand", "auto"],
)
def test_statistics_are_rank_zeros_where_they_count(
    ranks: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    one, other = ranks.run(statistics_seen, settings, str(tmp_path))
    # By the definition of batch norm, over rank zero's batches.
    mean = torch.zeros(4)
    generator = torch.Generator().manual_seed(10)
    for _ in range(2):
        mean = 0.5 * mean + 0.5 * torch.randn(4, 4, generator=generator).mean(0)
        torch.randint(0, 3, (4,), generator=generator)
    assert one["batch 2"] != other["batch 2"]  # each rank's own batches moved its own
    assert one["evaluation 2"] == other["evaluation 2"]
    torch.testing.assert_close(torch.tensor(one["evaluation 2"][0]), mean)
    assert one["batch 3"] != other["batch 3"]
    assert one["end"] == other["end"]  # by the save
    saved = torch.load(tmp_path / "ba3.pt", weights_only=True)["state"]["model"]
    assert saved["norm.running_mean"].tolist() == one["batch 3"][0]


def averages_seen(folder: str) -> dict[str, Any]:
    from composer.algorithms import EMA

    seen: dict[str, Any] = {}

    class Watch(Callback):
        def eval_start(self, state: State, logger: Logger) -> None:
            seen["evaluated"] = flat(state.model.state_dict())

        def eval_after_all(self, state: State, logger: Logger) -> None:
            seen["after"] = state.model.norm.running_mean.tolist()  # type: ignore[union-attr, operator]

        def batch_checkpoint(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 3:
                average = state.algorithms[0].state_dict()["averaged_weights"]
                seen["saved"] = flat(average["named_buffers_dict"])

        def batch_end(self, state: State, logger: Logger) -> None:
            seen.setdefault("before", []).append(state.model.norm.running_mean.tolist())  # type: ignore[union-attr, operator]

    data = IdDataset(4)
    fit(
        Normed(),
        algorithms=EMA(smoothing=0.5),
        callbacks=[CheckpointSaver(folder, save_interval="3ba"), Watch()],
        eval_dataloader=DataLoader(data, batch_size=2, sampler=dist.get_sampler(data)),
        eval_interval="2ba",
        max_duration="3ba",
        ddp_sync_strategy="forced_sync",
    )
    return seen


def flat(tensors: Any) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in tensors.items()}


def test_averaged_statistics_are_rank_zeros_too(ranks: Any, tmp_path: Path) -> None:
    one, other = ranks.run(averages_seen, str(tmp_path))
    assert one["before"][1] != other["before"][1]  # each rank's own batches moved its own
    assert one["evaluated"] == other["evaluated"]
    assert one["saved"] == other["saved"]
    # By the definitions of batch norm and of the average, over rank zero's batches.
    generator = torch.Generator().manual_seed(10)
    mean, averages = torch.zeros(4), []
    for _ in range(3):
        mean = 0.5 * mean + 0.5 * torch.randn(4, 4, generator=generator).mean(0)
        torch.randint(0, 3, (4,), generator=generator)
        averages.append(0.5 * averages[-1] + 0.5 * mean if averages else mean)
    # The last evaluation is that of the end of the training.
    evaluated = torch.tensor(one["evaluated"]["norm.running_mean"])
    torch.testing.assert_close(evaluated, averages[2])
    torch.testing.assert_close(torch.tensor(one["saved"]["norm.running_mean"]), averages[2])


class Centred(TinyModel):
    """A training pass that reads a running mean, and moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, batch: Any) -> torch.Tensor:
        centred = batch[0] - self.mean
        if self.training:
            self.mean = 0.5 * self.mean + 0.5 * batch[0].mean(0)
        return self.linear(centred)


def trained_with(settings: dict[str, Any], interval: str | int) -> list[Any]:
    model, data = Centred(), IdDataset(4)
    fit(
        model,
        eval_dataloader=DataLoader(data, batch_size=2, sampler=dist.get_sampler(data)),
        eval_interval=interval,
        **settings,
    )
    return [value.tolist() for value in (*model.linear.parameters(), model.mean)]


@pytest.mark.parametrize(
    "settings",
    [{}, {"ddp_sync_strategy": "forced_sync"}, {"device_train_microbatch_size": "auto"}],
    ids=["wrapper", "by hand", "auto"],
)
def test_an_evaluation_leaves_what_training_reads(ranks: Any, settings: dict[str, Any]) -> None:
    without = ranks.run(trained_with, settings, 0)
    assert ranks.run(trained_with, settings, "1ba") == without
    assert without[0][:-1] == without[1][:-1]
    assert without[0][-1] != without[1][-1]  # each rank's own batches moved its own


# ---- losses of several parts ------------------------------------------------------------------


class Parts(TinyModel):
    """A loss whose parts a function of rank and batch names."""

    def __init__(self, names: Any) -> None:
        super().__init__()
        self.names = names
        self.batch = -1

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        self.batch += 1
        loss = nn.functional.cross_entropy(outputs, batch[1])
        return dict.fromkeys(self.names(dist.get_global_rank(), self.batch), loss)


def parts_on_one(late: bool) -> str:
    def names(rank: int, batch: int) -> list[str]:
        return ["a", "b"] if rank == 0 or (late and batch < 2) else ["a", "c"]

    return message(lambda: fit(Parts(names)))


@pytest.mark.parametrize("late", [False, True])
def test_losses_of_other_names_on_one_rank_are_told_on_all(ranks: Any, late: bool) -> None:
    for told in ranks.run(parts_on_one, late):
        assert told.startswith("ValueError")
        assert "rank 0 has ['a', 'b', 'total'] and rank 1 has ['a', 'c', 'total']" in told


def parts_that_change() -> list[dict[str, float]]:
    seen: list[dict[str, float]] = []

    class Losses(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            seen.append(dict(state.total_loss_dict))

    def names(rank: int, batch: int) -> list[str]:
        return ["a"] if batch != 1 else ["a", "z"]

    model = Parts(names)
    fit(model, callbacks=Losses(), optimizers=torch.optim.SGD(model.parameters(), lr=0.0))
    return seen


def test_losses_may_change_their_names_on_all_ranks_together(ranks: Any) -> None:
    one, other = ranks.run(parts_that_change)
    assert one == other
    assert [sorted(losses) for losses in one] == [
        ["loss/train/a", "loss/train/total"],
        ["loss/train/a", "loss/train/total", "loss/train/z"],
        ["loss/train/a", "loss/train/total"],
    ]
    assert one[1]["loss/train/z"] == one[1]["loss/train/a"] > 0
    assert one[1]["loss/train/total"] == pytest.approx(2 * one[1]["loss/train/a"])


# ---- an end on one rank -----------------------------------------------------------------------


def stopped_on_one(event: str, batch: int, sized: bool, everywhere: bool, folder: str) -> Any:
    seen: list[str] = []

    class Stop(Callback):
        def run_event(self, now: Any, state: State, logger: Logger) -> None:
            here = now.value == event and int(state.timestamp.batch) == batch
            if here and (everywhere or dist.get_global_rank() == 1):
                state.stop_training()

    class Watch(Callback):
        def run_event(self, now: Any, state: State, logger: Logger) -> None:
            if now.value in ("epoch_end", "eval_start", "fit_end"):
                seen.append(f"{now.value} {int(state.timestamp.batch)}")

    class Unsized:
        def __iter__(self) -> Any:
            return iter(batches(4))

    data = IdDataset(4)
    trainer = fit(
        TinyModel(),
        train_dataloader=batches(4) if sized else Unsized(),
        max_duration="9ba",
        callbacks=[Stop(), Watch()],
        eval_dataloader=DataLoader(data, batch_size=2, sampler=dist.get_sampler(data)),
        eval_interval="0.5dur",
        save_folder=folder,
        save_interval="100ba",
        save_filename="ba{batch}.pt",
    )
    t = trainer.state.timestamp
    return [int(t.epoch), int(t.batch), int(t.batch_in_epoch)], seen


ENDS = [
    ("fit_start", 0, 0), ("after_loss", 2, 3), ("batch_end", 3, 3), ("batch_end", 4, 4),
    ("batch_checkpoint", 2, 2), ("eval_end", 5, 5), ("fit_end", 9, 9),
    ("epoch_end", 4, 4), ("epoch_checkpoint", 4, 4), ("batch_end", 9, 9), ("batch_start", 8, 9),
]  # fmt: skip


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize(("event", "batch", "end"), ENDS)
def test_an_end_on_one_rank_is_that_of_all(
    ranks: Any, tmp_path: Path, event: str, batch: int, end: int, sized: bool
) -> None:
    one, other = ranks.run(stopped_on_one, event, batch, sized, False, str(tmp_path / "one"))
    assert one == other
    assert one[0][1] == end
    # As where all ranks end by themselves.
    assert ranks.run(stopped_on_one, event, batch, sized, True, str(tmp_path / "all"))[0] == one
    expected = [] if end == 0 or event == "epoch_checkpoint" else [f"ba{end}.pt"]
    assert [p.name for p in (tmp_path / "one").glob("ba*.pt")] == expected
    assert [p.name for p in (tmp_path / "all").glob("ba*.pt")] == expected


# ---- evaluation -------------------------------------------------------------------------------


def evaluated_on_one(how: str) -> str:
    data = IdDataset(4)
    own = Evaluator(
        label="val" if how != "other label" or dist.get_global_rank() else "test",
        dataloader=DataLoader(data, batch_size=2, sampler=dist.get_sampler(data)),
        eval_interval="1ba" if how != "other interval" or dist.get_global_rank() else "2ba",
    )
    missing = how == "none" and dist.get_global_rank() == 1
    return message(lambda: fit(TinyModel(), eval_dataloader=None if missing else own))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("same", "nothing"),
        ("none", "rank 0 has ['val (every 1ba)'] and rank 1 has []"),
        ("other label", "rank 0 has ['test (every 1ba)'] and rank 1 has ['val (every 1ba)']"),
        ("other interval", "rank 0 has ['val (every 2ba)'] and rank 1 has ['val (every 1ba)']"),
    ],
)
def test_evaluation_sets_of_one_rank_are_told_on_all(ranks: Any, how: str, expected: str) -> None:
    for told in ranks.run(evaluated_on_one, how):
        assert expected in told


# ---- errors -----------------------------------------------------------------------------------


class Unused(TinyModel):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(4, 3)


def with_unused_parameters(strategy: str | None) -> str:
    return message(lambda: fit(Unused(), ddp_sync_strategy=strategy))


def test_unused_parameters_are_told_with_what_helps_here(ranks: Any) -> None:
    for told in ranks.run(with_unused_parameters, None):
        assert "find_unused_parameters" in told
        assert "ddp_sync_strategy='forced_sync'" in told
    assert ranks.run(with_unused_parameters, "forced_sync") == ["nothing"] * 2


def failed_on_one(where: str) -> str:
    class Fail(Callback):
        def fit_end(self, state: State, logger: Logger) -> None:
            if dist.get_global_rank() == 1:
                raise RuntimeError("disk on fire")

    model = TinyModel()
    trainer = Trainer(
        model=model, train_dataloader=batches(3), max_duration="3ba", progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=Fail() if where == "fit" else None,
    )  # fmt: skip
    if where == "fit":
        with contextlib.suppress(RuntimeError):
            trainer.fit()
        if dist.get_global_rank() == 1:
            trainer.close()
    else:
        trainer.fit()
        with contextlib.suppress(ZeroDivisionError):
            if dist.get_global_rank() == 1:
                try:
                    raise ZeroDivisionError
                finally:
                    trainer.close()
    return "closed"  # rank 0 does not close, so a rank that waited for it would wait for ever


@pytest.mark.parametrize("where", ["fit", "behind"])
def test_a_rank_that_failed_does_not_wait_at_the_end(ranks: Any, where: str) -> None:
    assert ranks.run(failed_on_one, where, timeout=30) == ["closed"] * 2


def told_of_a_peer_that_left(where: str) -> str:
    class Leave(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            if dist.get_global_rank() == 1 and where == "an exchange":
                raise ZeroDivisionError

        def before_backward(self, state: State, logger: Logger) -> None:
            if dist.get_global_rank() == 1 and where == "the backward pass":
                raise ZeroDivisionError

    model = TinyModel()
    try:
        fit(model, callbacks=Leave())
    except ZeroDivisionError:
        return "left"  # and ends
    except RuntimeError as error:
        cause = [str(error.__cause__)] if error.__cause__ else []
        return "\n".join([str(error), *getattr(error, "__notes__", []), *cause])
    return "nothing"


@pytest.mark.parametrize("where", ["an exchange", "the backward pass"])
def test_a_rank_is_told_that_another_left(ranks: Any, where: str) -> None:
    one, other = ranks.run(told_of_a_peer_that_left, where, timeout=40)
    assert other == "left"
    assert "rank 0 does not hear from another rank, which ended" in one
    assert "gloo" in one  # the original is kept


# ---- tokens -----------------------------------------------------------------------------------


def without_tokens(policy: str | None, microbatch: int | None) -> Any:
    from composer_testing.tiny import TokenModel

    def batch(empty: bool) -> dict[str, torch.Tensor]:
        ids = torch.arange(8).reshape(2, 4) % 5
        return {"input_ids": ids, "labels": torch.full_like(ids, -100) if empty else ids}

    one_empty = dist.get_global_rank() == 0
    data = [batch(one_empty), batch(True), batch(not one_empty)]
    skipped: list[int] = []

    def run() -> None:
        trainer = fit(
            TokenModel(), train_dataloader=data, on_nonfinite_loss=policy,
            device_train_microbatch_size=microbatch,
        )  # fmt: skip
        skipped.append(trainer.state.num_skipped_steps)

    return message(run), skipped


@pytest.mark.parametrize("microbatch", [None, 1])
def test_a_batch_without_loss_tokens_on_any_rank_is_found_on_all(
    ranks: Any, microbatch: int | None
) -> None:
    assert ranks.run(without_tokens, "skip", microbatch) == [("nothing", [1])] * 2
    for told, _ in ranks.run(without_tokens, None, microbatch):
        assert "batch 1 (batch 1 of epoch 0) holds no tokens that carry loss" in told


class Two(TinyModel):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(4, 3)

    def second(self, batch: Any) -> torch.Tensor:
        return self.other(batch[0])

    def pair(self, outputs: Any, batch: Any) -> dict[str, torch.Tensor]:
        return {"x": outputs.mean(), "y": (outputs**2).mean()}


def gathers_in_turns() -> int:
    """How often names are gathered by ranks whose optimizers take turns."""
    from composer.trainer import ranks as module

    count = 0
    agree = module.LossMean._agree

    def counting(names: list[str]) -> list[str]:
        nonlocal count
        count += 1
        return agree(names)

    module.LossMean._agree = staticmethod(counting)  # type: ignore[method-assign, assignment]
    model = Two()
    steps = [
        OptimizerStep(torch.optim.SGD(model.linear.parameters(), lr=0.1), name="one"),
        OptimizerStep(
            torch.optim.SGD(model.other.parameters(), lr=0.1), name="two", forward="second",
            loss="pair", every=2,
        ),
    ]  # fmt: skip
    fit(model, optimizers=steps, train_dataloader=batches(6), max_duration="6ba")
    return count


def test_names_are_gathered_once_for_each_turn(ranks: Any) -> None:
    assert ranks.run(gathers_in_turns) == [2, 2]


# ---- metrics that keep lists ------------------------------------------------------------------


def detections_of(counts: list[int]) -> dict[str, float]:
    """Average precision over images of which each rank has its own number."""
    from composer.metrics import MAP

    rank = dist.get_global_rank()
    metric = MAP()
    for i in range(sum(counts[:rank]), sum(counts[: rank + 1])):
        found, truth = detection(i)
        metric.update([found], [truth])
    return {name: float(value) for name, value in metric.compute().items()}


def detection(i: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    box, label = torch.tensor([[0.0, 0.0, 20.0, 20.0]]), torch.tensor([i % 3])
    found = {"boxes": box + (i % 4) * 2, "labels": label, "scores": torch.tensor([0.5 + i / 40])}
    return found, {"boxes": box, "labels": label}


@pytest.mark.parametrize("counts", [[5, 7], [4, 0]])
def test_ranks_may_have_seen_different_numbers_of_images(ranks: Any, counts: list[int]) -> None:
    torchmetrics = pytest.importorskip("torchmetrics.detection")
    of_all = torchmetrics.MeanAveragePrecision()
    for i in range(sum(counts)):
        found, truth = detection(i)
        of_all.update([found], [truth])
    expected = of_all.compute()
    for values in ranks.run(detections_of, counts):
        assert values == {name: pytest.approx(float(expected[name])) for name in values}
    assert 0 < float(expected["map"]) < 1
