"""Every kind of set, batch, metric and precision: the same numbers as over all samples at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from composer.core.callback import Callback
from composer.core.data_spec import DataSpec
from composer.core.evaluator import Evaluator
from composer.core.event import Event
from composer.core.logger import Logger
from composer.core.state import State
from composer.core.time import TimeUnit
from composer.loggers import InMemoryLogger
from composer.metrics import CrossEntropy, LossMetric, MulticlassAccuracy
from composer.trainer import Trainer
from composer.utils import dist
from composer_testing.tiny import IdDataset, IdRecorder, TinyModel, loader


def micro() -> MulticlassAccuracy:
    return MulticlassAccuracy(3, average="micro")


class Counts:
    """Counts the samples it was told of, and how often it was started over."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def to(self, device: Any) -> Counts:
        return self

    def reset(self) -> None:
        self.ids = []

    def update(self, outputs: torch.Tensor, target: torch.Tensor) -> None:
        assert len(outputs) == len(target) > 0
        self.ids += target.tolist()

    def compute(self) -> float:
        return float(len(self.ids))


class Model(TinyModel):
    """Metrics for evaluation alone; targets are the classes."""

    def __init__(self, **metrics: Callable[[], Any]) -> None:
        super().__init__()
        self.makers = metrics or {"Accuracy": micro}

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        return {} if is_train else {name: make() for name, make in self.makers.items()}


class Seen(Callback):
    """Label, batch of the run, batches and samples of each evaluation; sizes of forward passes."""

    def __init__(self) -> None:
        self.sets: list[tuple[str, int, int, int]] = []
        self.forwards: list[int] = []

    def eval_after_forward(self, state: State, logger: Logger) -> None:
        self.forwards.append(len(state.outputs))

    def eval_end(self, state: State, logger: Logger) -> None:
        now = state.eval_timestamp
        label = str(state.dataloader_label)
        self.sets.append((label, int(state.timestamp.batch), int(now.batch), int(now.sample)))

    def at(self, label: str) -> list[int]:
        return [batch for name, batch, *_ in self.sets if name == label]


def trainer(model: TinyModel | None = None, **settings: Any) -> Trainer:
    model = model or Model()
    settings.setdefault("train_dataloader", loader(24, 4))
    settings.setdefault("max_duration", "6ba")
    settings.setdefault("optimizers", torch.optim.SGD(model.parameters(), lr=0.1))
    return Trainer(model=model, progress_bar=False, seed=1, **settings)


# ---- exact counts --------------------------------------------------------------------------------


@pytest.mark.parametrize("microbatch", [None, 1, 2, 3, 100, "auto"])
def test_every_size_of_set_and_batch_counts_each_sample_once(microbatch: Any) -> None:
    """A batch of one, a last batch of one, a microbatch larger than the batch."""
    for size, batch_size in itertools.product((1, 2, 5, 7, 9), (1, 2, 4, 16)):
        data, seen = IdDataset(size), Seen()
        evaluator = Evaluator(
            label="val",
            dataloader=DataLoader(data, batch_size=batch_size),
            device_eval_microbatch_size=microbatch,
        )
        model = Model(Accuracy=micro, Counts=Counts)
        t = trainer(model, eval_dataloader=evaluator, callbacks=seen)
        t.eval()
        t.close()
        with torch.no_grad():
            right = model.linear(data.x).argmax(1) == data.y
        metrics = t.state.eval_metrics["val"]
        assert metrics["Accuracy"].compute().item() == pytest.approx(right.float().mean().item())
        assert metrics["Counts"].ids == data.y.tolist()
        assert seen.sets == [("val", 0, -(-size // batch_size), size)]
        most = batch_size if not isinstance(microbatch, int) else min(microbatch, batch_size)
        assert max(seen.forwards) == min(most, size)
        assert sum(seen.forwards) == size


def test_batches_without_samples_are_passed_over() -> None:
    """What is left of data that was dealt out may be nothing; no forward pass sees it."""
    data, seen = IdDataset(7), Seen()
    sizes = [0, 4, 0, 3, 0]
    batches = list(zip(data.x.split(sizes), data.y.split(sizes), strict=True))
    t = trainer(Model(Counts=Counts), eval_dataloader=batches, callbacks=seen)
    t.eval()
    t.close()
    assert seen.forwards == [4, 3]
    assert seen.sets == [("eval", 0, 2, 7)]
    t = trainer(eval_dataloader=batches[:1])
    with pytest.raises(ValueError, match="no batches with samples"):
        t.eval()
    t.close()


def test_an_evaluation_that_broke_off_leaves_nothing_in_the_next() -> None:
    class Breaks(Callback):
        broken = False

        def eval_after_forward(self, state: State, logger: Logger) -> None:
            if int(state.eval_timestamp.batch) == 1 and not self.broken:
                self.broken = True
                raise RuntimeError("once")

    t = trainer(Model(Counts=Counts), eval_dataloader=loader(11, 4), callbacks=Breaks())
    with pytest.raises(RuntimeError, match="once"):
        t.eval()
    t.eval()
    t.close()
    assert t.state.eval_metrics["eval"]["Counts"].compute() == 11


def test_a_part_of_a_batch_that_went_through_is_not_counted_when_the_batch_is_begun_again() -> None:
    class LittleRoom(Model):
        left = 2  # forward passes until memory runs out, once

        def forward(self, batch: Any) -> torch.Tensor:
            self.left -= 1
            if self.left == 0:
                raise torch.OutOfMemoryError("no room in the second part")
            return super().forward(batch)

    evaluator = Evaluator(label="val", dataloader=loader(8, 8), device_eval_microbatch_size="auto")
    t = trainer(LittleRoom(Counts=Counts, Accuracy=micro), eval_dataloader=evaluator)
    t.state.model.left = 100  # type: ignore[assignment]
    t._evaluation._searches.clear()
    from composer.trainer.auto_microbatch import MicrobatchSearch

    search = MicrobatchSearch(8)
    search.failed(MemoryError())  # so that the batch begins in two parts
    t._evaluation._searches["val"] = search
    t.state.model.left = 2  # type: ignore[assignment]
    t.eval()
    t.close()
    assert t.state.eval_metrics["val"]["Counts"].compute() == 8
    assert int(t.state.eval_metrics["val"]["Accuracy"].total) == 8


# ---- kinds of batch ------------------------------------------------------------------------------


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@dataclass
class Record:
    x: torch.Tensor
    y: torch.Tensor


def records(batches: list[Any]) -> DataSpec:
    """What the defaults do not know is told to the trainer."""

    def split(batch: Record, size: int | float) -> list[Record]:
        parts = zip(batch.x.split(int(size)), batch.y.split(int(size)), strict=True)
        return [Record(*part) for part in parts]

    return DataSpec(batches, split_batch=split, get_num_samples_in_batch=lambda b: len(b.x))


class AnyBatch(Model):
    """Knows where inputs and classes are in each kind of batch."""

    def __init__(self, get: Callable[[Any], tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__(Counts=Counts, Accuracy=micro)
        self.get = get

    def forward(self, batch: Any) -> torch.Tensor:
        return self.linear(self.get(batch)[0])

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, self.get(batch)[1])

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        return {name: make() for name, make in self.makers.items()}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        metric.update(outputs, self.get(batch)[1])


BATCHES: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], Callable[..., Any]]] = {
    "tuple": (lambda x, y: (x, y), lambda b: b, list),
    "list": (lambda x, y: [x, y], lambda b: b, list),
    "dict": (lambda x, y: {"x": x, "y": y, "task": "t"}, lambda b: (b["x"], b["y"]), list),
    "nested": (lambda x, y: {"in": {"x": x}, "y": y}, lambda b: (b["in"]["x"], b["y"]), list),
    "named tuple": (Pair, lambda b: (b.x, b.y), list),
    "dataclass": (Record, lambda b: (b.x, b.y), records),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_every_kind_of_batch_trains_evaluates_and_predicts_alike(kind: str) -> None:
    make, get, wrap = BATCHES[kind]
    data = IdDataset(13)
    parts = [(data.x[i : i + 6], data.y[i : i + 6]) for i in (0, 6, 12)]
    torch.manual_seed(0)
    model = AnyBatch(get)
    plain = nn.Linear(4, 3)
    plain.load_state_dict(model.linear.state_dict())
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for x, y in parts:
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()
        optimizer.step()
    batches = [make(x, y) for x, y in parts]
    memory = InMemoryLogger()
    t = trainer(
        model,
        train_dataloader=wrap(batches),
        eval_dataloader=Evaluator(
            label="val", dataloader=wrap(batches), device_eval_microbatch_size=4
        ),
        device_train_microbatch_size=4,
        max_duration="1ep",
        loggers=memory,
    )
    t.fit()
    outputs = t.predict(wrap(batches))
    t.close()
    torch.testing.assert_close(model.linear.weight, plain.weight, rtol=0, atol=1e-6)
    assert int(t.state.timestamp.sample) == 13
    assert t.state.eval_metrics["val"]["Counts"].ids == data.y.tolist()
    assert [value for _, value in memory.data["metrics/train/Counts"]] == [6.0, 6.0, 1.0]
    expected = plain(data.x).detach()
    torch.testing.assert_close(torch.cat(outputs), expected, rtol=0, atol=1e-5)
    assert [len(o) for o in outputs] == [6, 6, 1]


def test_what_cannot_be_counted_names_the_way_out() -> None:
    get = BATCHES["dataclass"][1]
    t = trainer(AnyBatch(get), eval_dataloader=[Record(torch.zeros(2, 4), torch.zeros(2).long())])
    with pytest.raises(ValueError, match="get_num_samples_in_batch"):
        t.eval()
    t.close()


# ---- which sets, how much of them, and when ------------------------------------------------------


@pytest.mark.parametrize("call", [None, 1])
@pytest.mark.parametrize("own", [None, 2])
@pytest.mark.parametrize("trainers", [-1, 3])
def test_whoever_is_nearest_says_how_many_batches(
    call: int | None, own: int | None, trainers: int
) -> None:
    """The call before the evaluator before the trainer; the same in ``fit`` and in ``eval``."""

    def evaluator(label: str) -> Evaluator:
        return Evaluator(label=label, dataloader=loader(20, 4), subset_num_batches=own)

    expected = call or own or (trainers if trainers != -1 else 5)
    asked = {} if call is None else {"subset_num_batches": call}
    in_fit = own or (trainers if trainers != -1 else 5)
    seen = Seen()
    t = trainer(eval_dataloader=evaluator("a"), eval_subset_num_batches=trainers, callbacks=seen)
    t.eval(**asked)
    t.eval(evaluator("b"), **asked)
    t.fit(duration="1ba")
    t.close()
    counts = [(label, batches) for label, _, batches, _ in seen.sets]
    assert counts == [("a", expected), ("b", expected), ("a", in_fit)]
    in_call = {} if call is None else {"eval_subset_num_batches": call}
    seen = Seen()
    t = trainer(eval_subset_num_batches=trainers, callbacks=seen)
    t.fit(duration="1ba", eval_dataloader=evaluator("c"), **in_call)
    t.close()
    # Given with the data, the call's word is a default for those that say nothing.
    assert [batches for _, _, batches, _ in seen.sets] == [own or call or in_fit]


def test_each_set_has_an_interval_of_its_own() -> None:
    seen = Seen()
    sets = [
        Evaluator(label="two", dataloader=loader(4), eval_interval="2ba"),
        Evaluator(label="three", dataloader=loader(4), eval_interval="3ba"),
        Evaluator(label="trainers", dataloader=loader(4)),
        Evaluator(label="never", dataloader=loader(4), eval_interval=0),
    ]
    t = trainer(eval_dataloader=sets, eval_interval="5ba", callbacks=seen)
    t.fit()
    t.close()
    assert seen.at("two") == [2, 4, 6]
    assert seen.at("three") == [3, 6]
    assert seen.at("trainers") == [5, 6]
    assert seen.at("never") == []


@pytest.mark.parametrize(
    ("interval", "at"),
    [
        ("1ep", [6, 8]),
        ("9sp", [3, 5, 7, 8]),
        ("25tok", [3, 5, 8]),
        ("1sec", [2, 4, 6, 8]),
        ("0.5dur", [4, 8]),
        (lambda state, event: event == Event.BATCH_END and state.timestamp.batch == 5, [5]),
    ],
)
def test_intervals_of_every_unit(
    interval: Any, at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six batches an epoch, eight in all, of four samples and ten tokens, each half a second."""
    from composer.trainer import clock

    monkeypatch.setattr(clock.BatchClock, "lap", lambda self: 0.5)
    seen = Seen()
    data = DataSpec(loader(24, 4), get_num_tokens_in_batch=lambda batch: 10)
    t = trainer(
        train_dataloader=data,
        max_duration="8ba",
        eval_dataloader=loader(4),
        eval_interval=interval,
        callbacks=seen,
    )
    t.fit()
    t.close()
    assert seen.at("eval") == at


def test_a_set_smaller_than_the_subset_is_evaluated_whole() -> None:
    """The number says at most how many, so there is nothing to warn about."""
    seen = Seen()
    t = trainer(eval_dataloader=loader(7, 4), eval_subset_num_batches=3, callbacks=seen)
    t.eval()
    t.close()
    assert seen.sets == [("eval", 0, 2, 7)]


@pytest.mark.parametrize("data", ["loader", "spec"])
def test_sets_may_share_one_loader(data: str) -> None:
    shared: Any = loader(9, 4)
    given = DataSpec(shared) if data == "spec" else shared
    seen = Seen()
    sets = [
        Evaluator(label="half", dataloader=given, subset_num_batches=1, eval_interval="2ba"),
        Evaluator(label="all", dataloader=given, eval_interval="2ba"),
    ]
    t = trainer(Model(Counts=Counts), eval_dataloader=sets, callbacks=seen)
    t.fit()
    t.close()
    assert [e[2:] for e in seen.sets if e[0] == "half"] == [(1, 4)] * 3
    assert [e[2:] for e in seen.sets if e[0] == "all"] == [(3, 9)] * 3
    assert t.state.eval_metrics["all"]["Counts"].compute() == 9
    assert t.state.eval_metrics["half"]["Counts"].compute() == 4


@pytest.mark.parametrize("sampler", [False, True])
def test_evaluating_on_the_training_loader_takes_nothing_from_training(sampler: bool) -> None:
    def run(**settings: Any) -> tuple[list[list[int]], list[float]]:
        ids = IdRecorder()
        torch.manual_seed(0)
        data = IdDataset(24)
        shared = DataLoader(
            data, batch_size=4, shuffle=not sampler,
            sampler=dist.get_sampler(data, shuffle=True) if sampler else None,
        )  # fmt: skip
        if settings:
            settings["eval_dataloader"] = shared
        model = TinyModel(dropout=0.5)
        t = trainer(model, train_dataloader=shared, max_duration="2ep", callbacks=ids, **settings)
        t.fit()
        t.close()
        return ids.ids, ids.losses

    assert run(eval_interval="1ba") == run()


def test_a_set_keeps_what_it_was_made_with_for_the_next_trainer() -> None:
    """What one trainer says of sets that say nothing does not stick to them."""
    shared = Evaluator(label="val", dataloader=loader(20, 4))
    for subset, interval, at in ((1, "2ba", [2, 4, 6]), (3, "3ba", [3, 6])):
        seen = Seen()
        t = trainer(
            eval_dataloader=shared,
            eval_subset_num_batches=subset,
            eval_interval=interval,
            callbacks=seen,
        )
        t.fit()
        t.close()
        assert seen.at("val") == at
        assert {batches for _, _, batches, _ in seen.sets} == {subset}


def test_two_trainers_in_turns_keep_their_sets_apart() -> None:
    seen = [Seen(), Seen()]
    shared = Evaluator(label="val", dataloader=loader(9, 4), eval_interval="2ba")
    pair = [
        trainer(Model(Counts=Counts), eval_dataloader=shared, callbacks=one, max_duration="100ba")
        for one in seen
    ]
    for _ in range(2):
        for t in pair:
            t.fit(duration="3ba")
    for t in pair:
        t.close()
        assert t.state.eval_metrics["val"]["Counts"].compute() == 9
    assert seen[0].sets == seen[1].sets
    assert seen[0].at("val") == [2, 3, 4, 6]  # the first call of `fit` ends at 3


# ---- labels and names ----------------------------------------------------------------------------


def test_metrics_of_sets_have_a_name_each_everywhere() -> None:
    memory = InMemoryLogger()
    labels = ["a", "b", "c"]
    sets = [Evaluator(label=label, dataloader=loader(4)) for label in labels]
    model = Model(Accuracy=micro, CrossEntropy=CrossEntropy)
    t = trainer(model, eval_dataloader=sets, loggers=memory)
    t.fit()
    t.close()
    names = {f"{label}/{name}" for label in labels for name in ("Accuracy", "CrossEntropy")}
    assert {key for key in memory.data if key.startswith("metrics/")} == {
        f"metrics/{name}" for name in names
    }
    assert set(t.state.eval_metric_values) == names
    assert set(t.state.eval_metrics) == set(labels)


def test_sets_of_one_label_are_refused() -> None:
    twins = [Evaluator(label="val", dataloader=loader(4)) for _ in range(2)]
    with pytest.raises(ValueError, match=r"labels of evaluators must differ.*val"):
        trainer(eval_dataloader=twins)
    t = trainer()
    with pytest.raises(ValueError, match="labels of evaluators must differ"):
        t.eval(twins)
    t.close()


class Broken:
    def __iter__(self) -> Iterator[Any]:
        yield from loader(4)
        raise OSError("the disk is gone")


def test_a_set_that_fails_is_named() -> None:
    sets = [
        Evaluator(label="good", dataloader=loader(4)),
        Evaluator(label="bad", dataloader=Broken()),
    ]
    t = trainer(eval_dataloader=sets, eval_interval="1ba")
    for run in (t.eval, t.fit):
        with pytest.raises(OSError, match="disk is gone") as caught:
            run()
        assert "'bad'" in " ".join(caught.value.__notes__)
    t.close()


def test_names_with_signs_of_patterns_are_names() -> None:
    """A plain loader keeps all metrics; a name in full stands for itself."""
    names = ["Recall (top+5)", "F1[0]", "C++", "Accuracy", "BalancedAccuracy"]
    model = Model(**dict.fromkeys(names, micro))
    t = trainer(model, eval_dataloader=loader(4))
    assert list(t.state.eval_metrics["eval"]) == names
    t.close()

    def kept(*patterns: str) -> list[str]:
        evaluator = Evaluator(label="v", dataloader=loader(4), metric_names=list(patterns))
        t = trainer(Model(**dict.fromkeys(names, micro)), eval_dataloader=evaluator)
        t.close()
        return list(t.state.eval_metrics["v"])

    assert kept("F1[0]") == ["F1[0]"]
    assert kept("Accuracy") == ["Accuracy", "BalancedAccuracy"]
    assert kept("^acc", "f1") == ["F1[0]", "Accuracy"]
    assert kept() == []
    with pytest.raises(ValueError, match=r"evaluator 'v' holds 'top\(', which is no regular"):
        kept("top(")
    with pytest.raises(ValueError, match=r"holds \['Precision'\], which match none"):
        kept("Precision", "F1[0]")


@pytest.mark.parametrize("wrong", [0, -2, 1.5, "2", True])
def test_sizes_that_are_none_are_refused_at_once(wrong: Any) -> None:
    for argument in ("subset_num_batches", "device_eval_microbatch_size"):
        with pytest.raises(ValueError, match=f"{argument} must be a positive whole number"):
            Evaluator(label="a", dataloader=[], **{argument: wrong})


# ---- metrics of several numbers ------------------------------------------------------------------


class Detection:
    """A metric that gives a dictionary, as those of detection do."""

    def __init__(self) -> None:
        self.seen = 0

    def to(self, device: Any) -> Detection:
        return self

    def reset(self) -> None:
        self.seen = 0

    def update(self, outputs: torch.Tensor, target: torch.Tensor) -> None:
        self.seen += len(target)

    def compute(self) -> dict[str, Any]:
        return {"a": float(self.seen), "b": [2.0, torch.tensor(3.0)]}

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def test_metrics_that_give_a_dictionary_are_logged_number_by_number(tmp_path: Path) -> None:
    def run(**settings: Any) -> tuple[dict[str, list[float]], Trainer]:
        memory = InMemoryLogger()
        t = trainer(
            TinyModel(metric=Detection),
            eval_dataloader=loader(7, 4),
            eval_interval="2ba",
            loggers=memory,
            **settings,
        )
        t.fit()
        t.close()
        logged = {k: [v for _, v in values] for k, values in memory.data.items() if "metrics" in k}
        return logged, t

    whole, _ = run(save_folder=str(tmp_path), save_interval="3ba", save_metrics=True)
    for label, count, times in (("train", 4.0, 6), ("eval", 7.0, 3)):
        assert whole[f"metrics/{label}/Metric/a"] == [count] * times
        assert whole[f"metrics/{label}/Metric/b/0"] == [2.0] * times
        assert whole[f"metrics/{label}/Metric/b/1"] == [3.0] * times
        assert f"metrics/{label}/Metric" not in whole
    rest, t = run(load_path=str(tmp_path / "ep0-ba3-rank0.pt"))
    assert rest["metrics/train/Metric/a"] == [4.0] * 3
    assert rest["metrics/eval/Metric/a"] == [7.0] * 2
    assert t.state.eval_metric_values["eval/Metric"]["a"] == 7.0


def test_stoppers_take_one_number_of_a_dictionary_by_its_logged_name() -> None:
    from composer.callbacks import EarlyStopper

    def fit(monitor: str) -> int:
        stopper = EarlyStopper(monitor, "eval", comp="greater", patience=1)
        t = trainer(
            TinyModel(metric=Detection),
            eval_dataloader=loader(7, 4),
            max_duration="5ep",
            callbacks=stopper,
        )
        t.fit()
        t.close()
        return int(t.state.timestamp.epoch)

    assert fit("Metric/a") == fit("Metric/b/1") == 3  # it never gets better
    for bad in ("Metric", "Metric/c"):
        with pytest.raises(ValueError, match=r"Metric/a.*Metric/b/0.*Metric/b/1"):
            fit(bad)


# ---- precision -----------------------------------------------------------------------------------


def test_models_in_double_precision_stay_in_it() -> None:
    data = IdDataset(13)
    batches = [(data.x[i : i + 4].double(), data.y[i : i + 4]) for i in range(0, 13, 4)]
    model = Model(CrossEntropy=CrossEntropy, Accuracy=micro).double()
    t = trainer(model, train_dataloader=batches, eval_dataloader=batches, max_duration="1ep")
    t.fit()
    outputs = torch.cat(t.predict(batches))
    t.close()
    assert outputs.dtype is torch.float64
    # In the same parts: the last bit of a product may depend on how many rows there are.
    weight, bias = model.linear.weight.detach(), model.linear.bias.detach()
    expected = [nn.functional.linear(x, weight, bias) for x, _ in batches]
    assert torch.equal(outputs, torch.cat(expected))
    found = t.state.eval_metrics["eval"]
    loss = nn.functional.cross_entropy(outputs, data.y).item()
    assert found["CrossEntropy"].compute().item() == pytest.approx(loss, abs=1e-6)
    right = (outputs.argmax(1) == data.y).double().mean().item()
    assert found["Accuracy"].compute().item() == pytest.approx(right)


@pytest.mark.parametrize("precision", ["amp_fp16", "amp_bf16"])
def test_evaluation_in_low_precision_computes_as_torch_does(precision: str) -> None:
    """Outputs and metrics are those under autocast; the loss scale is left alone."""
    dtype = torch.float16 if precision == "amp_fp16" else torch.bfloat16
    data = IdDataset(9)
    seen: list[torch.Tensor] = []

    class Outputs(Callback):
        def eval_after_forward(self, state: State, logger: Logger) -> None:
            seen.append(state.outputs)

    def run(**settings: Any) -> Trainer:
        torch.manual_seed(2)
        model = Model(CrossEntropy=CrossEntropy)
        t = trainer(model, precision=precision, callbacks=Outputs(), **settings)
        t.fit()
        t.close()
        return t

    val = DataLoader(data, batch_size=4)
    t, plain = run(eval_dataloader=val, eval_interval="1ba"), run()
    model: Any = t.state.model
    assert len(seen) == 6 * 3
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        expected = [model.linear(x) for x in data.x.split(4)]
    for found, value in zip(seen[-3:], expected, strict=True):
        assert found.dtype is dtype
        assert torch.equal(found, value)
    loss = nn.functional.cross_entropy(torch.cat(expected).float(), data.y).item()
    metric = t.state.eval_metrics["eval"]["CrossEntropy"].compute().item()
    assert metric == pytest.approx(loss, abs=2e-3)
    # Training did not notice.
    for name, value in plain.state.model.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
    if precision == "amp_fp16":
        assert t.state.scaler is not None
        assert plain.state.scaler is not None
        assert t.state.scaler.state_dict() == plain.state.scaler.state_dict()


# ---- several ranks -------------------------------------------------------------------------------


class Share(IterableDataset[Any]):
    """So many samples per rank, each of features, class and number."""

    def __init__(self, sizes: list[int], value: list[float] | None = None) -> None:
        self.sizes = sizes
        self.value = value

    def __iter__(self) -> Iterator[Any]:
        rank = dist.get_global_rank()
        start = sum(self.sizes[:rank])
        data = IdDataset(sum(self.sizes))
        for i in range(start, start + self.sizes[rank]):
            x, y, number = data[i]
            yield (x if self.value is None else torch.full((4,), self.value[rank])), y, number


def evaluate_shares(sizes: list[int], drop_last: bool, automatic: bool) -> Any:
    torch.manual_seed(0)
    seen = Seen()
    t = Trainer(
        model=Model(Accuracy=micro),
        eval_dataloader=Evaluator(
            label="eval",
            dataloader=DataLoader(Share(sizes), batch_size=2, drop_last=drop_last),
            device_eval_microbatch_size="auto" if automatic else None,
        ),
        callbacks=seen,
        progress_bar=False,
    )
    try:
        t.eval()
    except ValueError as error:
        return str(error)
    finally:
        t.close()
    metric = t.state.eval_metrics["eval"]["Accuracy"]
    return int(t.state.eval_timestamp.sample), seen.forwards, float(metric.compute())


def evaluate_all_shares(cases: list[Any]) -> list[Any]:
    return [evaluate_shares(*case) for case in cases]


def test_ranks_with_little_or_nothing_take_part(ranks: Any) -> None:
    """Two samples here and one there; nothing on one rank; nothing on any."""
    cases = [
        ([2, 1], False, False),
        ([2, 1], True, False),
        ([5, 0], False, False),
        ([0, 5], False, True),
        ([0, 0], False, False),
    ]
    one, other = ranks.run(evaluate_all_shares, cases)
    assert one[0][:2] == (3, [2])
    assert other[0][:2] == (3, [1])
    assert one[1][:2] == (2, [2])
    assert other[1][:2] == (2, [])
    assert one[2][:2] == (5, [2, 2, 1])
    assert other[2][:2] == (5, [])
    assert one[3][:2] == (5, [])
    assert other[3][:2] == (5, [2, 2, 1])
    for here, there in zip(one[:4], other[:4], strict=True):
        assert here[2] == there[2]
    assert "no batches" in one[4]
    assert "no batches" in other[4]
    data = IdDataset(5)
    torch.manual_seed(0)
    expected = (Model().linear(data.x).argmax(1) == data.y).float().mean().item()
    assert one[2][2] == one[3][2] == pytest.approx(expected)


class MeanInput(Model):
    """The outputs are the inputs' first feature, and the metric is their mean."""

    def forward(self, batch: Any) -> torch.Tensor:
        return batch[0][:, 0] + 0.0 * self.linear.weight.sum()

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return outputs.mean()

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        metric.update(outputs, torch.zeros_like(outputs))


def mean_over_ranks(sizes: list[int]) -> list[float]:
    metric = lambda: LossMetric(lambda outputs, target: outputs.mean())  # noqa: E731
    t = Trainer(
        model=MeanInput(Loss=metric),
        eval_dataloader=DataLoader(Share(sizes, [1.0, 2.0]), batch_size=2),
        progress_bar=False,
    )
    t.eval()
    t.close()
    return [float(t.state.eval_metrics["eval"]["Loss"].compute())]


def mean_over_ranks_all(cases: list[list[int]]) -> list[float]:
    return [value for sizes in cases for value in mean_over_ranks(sizes)]


def test_a_mean_over_ranks_divides_once(ranks: Any) -> None:
    cases = [[3, 4], [0, 4], [3, 0], [1, 6]]
    expected = [pytest.approx(v, abs=1e-6) for v in (11 / 7, 2.0, 1.0, 13 / 7)]
    for found in ranks.run(mean_over_ranks_all, cases):
        assert found == expected


def batch_samplers(size: int) -> Any:
    """A distributed sampler inside torch's batch sampler, for training and for evaluation."""
    data = IdDataset(size)

    def split() -> DataLoader[Any]:
        sampler = DistributedSampler(data, shuffle=False)
        return DataLoader(data, batch_sampler=BatchSampler(sampler, 2, drop_last=False))

    model, seen = Model(Counts=Counts), Seen()
    t = Trainer(
        model=model,
        train_dataloader=split(),
        eval_dataloader=split(),
        max_duration="1ep",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=seen,
        progress_bar=False,
    )
    t.fit()
    t.close()
    return int(t.state.eval_timestamp.sample), sum(seen.forwards)


def test_a_sampler_inside_a_batch_sampler_splits_the_data_too(ranks: Any) -> None:
    assert ranks.run(batch_samplers, 9) == [(9, 5), (9, 4)]


# ---- durations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "batches", "total"),
    [
        ("2ba", 2, ("8", TimeUnit.BATCH)),
        ("9sp", 3, ("33", TimeUnit.SAMPLE)),
        ("11tok", 2, ("71", TimeUnit.TOKEN)),
        ("1sec", 2, ("4", TimeUnit.SECOND)),
        ("1ep", 6, ("2", TimeUnit.EPOCH)),
        (1, 6, ("2", TimeUnit.EPOCH)),
    ],
)
def test_a_further_fit_in_every_unit(
    more: Any, batches: int, total: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After six batches of four samples, ten tokens and half a second."""
    from composer.trainer import clock

    monkeypatch.setattr(clock.BatchClock, "lap", lambda self: 0.5)
    data = DataSpec(loader(24, 4), get_num_tokens_in_batch=lambda batch: 10)
    t = trainer(train_dataloader=data, max_duration="1ep")
    t.fit()
    t.fit(duration=more)
    t.close()
    assert int(t.state.timestamp.batch) == 6 + batches
    assert t.state.max_duration is not None
    assert (str(t.state.max_duration.value), t.state.max_duration.unit) == total


@pytest.mark.parametrize("duration", ["2ep", "7ba", "30sp", "65tok", "4sec"])
def test_a_clock_set_to_zero_trains_the_whole_again_in_every_unit(
    duration: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from composer.trainer import clock

    monkeypatch.setattr(clock.BatchClock, "lap", lambda self: 0.5)
    ids, seen = IdRecorder(), Seen()
    data = DataSpec(loader(24, 4), get_num_tokens_in_batch=lambda batch: 10)
    t = trainer(
        train_dataloader=data,
        max_duration=duration,
        callbacks=[ids, seen],
        eval_dataloader=loader(4),
        eval_interval="3ba",
    )
    t.fit()
    first, evaluated = list(ids.ids), list(seen.sets)
    t.fit(reset_time=True)
    t.close()
    assert ids.ids == first * 2
    assert seen.sets == evaluated * 2


class Unsized:
    """Says nothing of its length."""

    def __iter__(self) -> Iterator[Any]:
        yield from loader(20, 4)


@pytest.mark.parametrize("subset", [3, 5, 8])
@pytest.mark.parametrize("data", [Unsized, lambda: loader(20, 4)])
def test_epochs_of_a_part_or_of_less_than_was_asked_for(subset: int, data: Any) -> None:
    """Five batches in all: a larger subset is all of them."""
    source = data()
    kwargs = {"train_dataloader": source, "max_duration": "2ep", "train_subset_num_batches": subset}
    if subset > 5 and not isinstance(source, Unsized):
        with pytest.warns(UserWarning, match="'train' holds 5 batches"):
            t = trainer(**kwargs)
    else:
        t = trainer(**kwargs)
    t.fit()
    t.close()
    stamp = t.state.timestamp
    assert (int(stamp.epoch), int(stamp.batch)) == (2, 2 * min(subset, 5))
    assert int(stamp.batch_in_epoch) == 0
