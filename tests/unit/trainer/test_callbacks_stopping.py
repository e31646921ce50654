"""Early stopping, stopping at a threshold, and the learning rate monitor, against a fake run."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from composer.callbacks.early_stopper import EarlyStopper
from composer.callbacks.lr_monitor import LRMonitor
from composer.callbacks.threshold_stopper import ThresholdStopper
from composer.core.timestamp import Timestamp
from composer.trainer import Trainer
from composer_testing.tiny import TinyModel, loader


class FakeMetric:
    def __init__(self, higher_is_better: bool | None = None) -> None:
        self.value: Any = 0.0
        self.higher_is_better = higher_is_better

    def compute(self) -> Any:
        return self.value


class FakeRun:
    """Fires the events that stoppers listen to, until one stops it."""

    def __init__(
        self, name: str, *, label: str = "eval", higher_is_better: bool | None = None
    ) -> None:
        self.metric = FakeMetric(higher_is_better)
        self.label = label
        self.evaluators = [] if label == "train" else [SimpleNamespace(label=label)]
        self.eval_metrics = {} if label == "train" else {label: {name: self.metric}}
        self.train_metrics = {name: self.metric} if label == "train" else {}
        self.dataloader_label: str | None = "train"
        self.timestamp = Timestamp()
        self.stopped = False

    def stop_training(self) -> None:
        self.stopped = True

    def epoch(self, stopper: Any, value: Any) -> None:
        self.timestamp = self.timestamp.to_next_batch()
        self.metric.value = value
        stopper.batch_end(self, None)
        self.timestamp = self.timestamp.to_next_epoch()
        stopper.epoch_end(self, None)
        if self.label != "train":
            self.dataloader_label = "other"
            stopper.eval_end(self, None)
            self.dataloader_label = self.label
            stopper.eval_end(self, None)
            self.dataloader_label = "train"

    def run(self, stopper: Any, values: Sequence[Any]) -> int | None:
        """Return the epoch (from 1) that stopped the run, if one did."""
        stopper.fit_start(self, None)
        for value in values:
            self.epoch(stopper, value)
            if self.stopped:
                return int(self.timestamp.epoch.value)
        return None


@pytest.mark.parametrize(
    ("name", "values", "kwargs", "stop"),
    [
        ("MulticlassAccuracy", [0.5, 0.5, 0.5, 0.5], {}, 3),
        ("MulticlassAccuracy", [0.5, 0.5, 0.5, 0.5], {"patience": 2}, 4),
        ("MulticlassAccuracy", [0.5, 0.5, 0.5], {"patience": 0}, 2),
        ("MulticlassAccuracy", [0.1, 0.2, 0.3, 0.4, 0.5], {}, None),
        ("MulticlassAccuracy", [0.5, 0.4, 0.6, 0.6, 0.6], {}, 5),
        ("MulticlassAccuracy", [0.50, 0.51, 0.52, 0.9], {"min_delta": 0.1}, 3),
        ("Perplexity", [5.0, 4.0, 3.0, 2.0], {"patience": 2}, None),
        ("Perplexity", [5.0, 5.0, 6.0], {}, 3),
        ("LanguageCrossEntropy", [5.0, 4.0, 3.0, 2.0], {}, None),
        ("my_loss", [3.0, 2.0, 1.0, 0.5], {}, None),
        ("MeanSquaredError", [3.0, 2.0, 1.0, 0.5], {}, None),
        ("anything", [3.0, 2.0, 1.0, 0.5], {"comp": "less"}, None),
        ("anything", [3.0, 2.0, 1.0], {"comp": "GT"}, 3),
        ("anything", [3.0, 2.0, 1.0, 0.5], {"comp": torch.less}, None),
        ("anything", [3.0, 2.0, 1.0, 0.5], {"comp": operator.lt}, None),
        ("MulticlassAccuracy", [float("nan"), 0.1, 0.2, 0.3], {}, None),
        ("MulticlassAccuracy", [0.1, float("nan"), float("nan")], {}, 3),
        ("MulticlassAccuracy", [0.5, 0.5, 0.5, 0.5], {"patience": "1ba"}, 3),
    ],
)
@pytest.mark.parametrize("label", ["eval", "train"])
def test_early_stopping(
    name: str, values: list[float], kwargs: dict[str, Any], stop: int | None, label: str
) -> None:
    run = FakeRun(name, label=label)
    assert run.run(EarlyStopper(name, label, **kwargs), [torch.tensor(v) for v in values]) == stop


def test_batch_patience_looks_at_train_metrics_after_batches() -> None:
    run = FakeRun("MulticlassAccuracy", label="train")
    stopper = EarlyStopper("MulticlassAccuracy", "train", patience="2ba")
    for batch in range(1, 5):
        run.timestamp = run.timestamp.to_next_batch()
        stopper.batch_end(run, None)  # type: ignore[arg-type]
        assert run.stopped == (batch == 4)


def test_what_the_metric_declares_counts_more_than_its_name() -> None:
    run = FakeRun("ErrorCorrectionRate", higher_is_better=True)
    assert run.run(EarlyStopper("ErrorCorrectionRate", "eval"), [0.1, 0.2, 0.3, 0.4]) is None
    run = FakeRun("Bits", higher_is_better=False)
    assert run.run(EarlyStopper("Bits", "eval"), [4, 3, 2, 1]) is None


@pytest.mark.parametrize(
    "make",
    [lambda name: EarlyStopper(name, "eval"), lambda name: ThresholdStopper(name, "eval", 9.0)],
)
def test_a_guessed_direction_is_said_once(make: Any) -> None:
    run = FakeRun("Bits")
    with pytest.warns(UserWarning, match="'Bits' is better.*comp='greater' or comp='less'"):
        run.run(make("Bits"), [0.1])
    stopper = make("Bits")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FakeRun("Bits").run(stopper, [0.1, 0.2, 0.3])
    assert len(caught) == 1


def test_patience_survives_a_resume() -> None:
    values = [0.5, 0.4, 0.4, 0.4]
    for interrupted_after in range(1, 4):
        run = FakeRun("MulticlassAccuracy")
        first, second = (EarlyStopper("MulticlassAccuracy", "eval", patience=2) for _ in range(2))
        assert run.run(first, values[:interrupted_after]) is None
        saved = first.state_dict()
        assert all(
            isinstance(v, (int, float, str))
            for v in (saved["best"], *saved["best_occurred"].values())
        )
        second.load_state_dict(saved)
        assert run.run(second, values[interrupted_after:]) == 4


def test_unknown_metric_is_refused_before_training() -> None:
    run = FakeRun("MulticlassAccuracy")
    for stopper in (
        EarlyStopper("MulticlasAccuracy", "eval"),
        ThresholdStopper("MulticlasAccuracy", "eval", 0.5),
    ):
        with pytest.raises(ValueError, match='Did you mean "MulticlassAccuracy"'):
            stopper.fit_start(run, None)  # type: ignore[arg-type]
    train = FakeRun("MulticlassAccuracy", label="train")
    with pytest.raises(ValueError, match="of 'train', whose metrics are: MulticlassAccuracy"):
        EarlyStopper("loss", "train").fit_start(train, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "stopper",
    [EarlyStopper("MulticlassAccuracy", "evl"), ThresholdStopper("MulticlassAccuracy", "evl", 0.5)],
    ids=lambda stopper: type(stopper).__name__,
)
def test_unknown_label_is_refused_before_training(stopper: Any) -> None:
    run = FakeRun("MulticlassAccuracy")
    with pytest.raises(ValueError, match=r"'evl'.* under: eval, train\. Did you mean \"eval\"\?"):
        stopper.fit_start(run, None)


class Hits:
    """A metric that returns the very tensor that it adds to."""

    higher_is_better = True

    def __init__(self) -> None:
        self.total = torch.tensor(0.5)

    def compute(self) -> torch.Tensor:
        return self.total


def test_the_best_value_is_a_copy() -> None:
    run = FakeRun("Hits")
    hits = Hits()
    run.eval_metrics = {"eval": {"Hits": hits}}  # type: ignore[dict-item]
    stopper = EarlyStopper("Hits", "eval", patience=3)
    run.run(stopper, [None])
    hits.total += 1.0
    assert stopper.best == 0.5


# ---- continuing a run that was stopped ----


STOPPERS = {
    "early": lambda **changed: EarlyStopper(
        "MulticlassAccuracy", "eval", **{"patience": 1, **changed}
    ),
    "threshold": lambda **changed: ThresholdStopper(
        "MulticlassAccuracy", "eval", **{"threshold": 0.45, **changed}
    ),
}


def stopped_run(kind: str) -> dict[str, Any]:
    """The state of a stopper that ended a run at its third epoch."""
    stopper = STOPPERS[kind]()
    values = [0.5, 0.5, 0.5] if kind == "early" else [0.1, 0.2, 0.5]
    assert FakeRun("MulticlassAccuracy").run(stopper, [torch.tensor(v) for v in values]) == 3
    return stopper.state_dict()


@pytest.mark.parametrize(
    ("kind", "changed", "again"),
    [
        ("early", {}, True),
        ("early", {"patience": 0}, True),
        ("early", {"patience": 2}, False),
        ("early", {"comp": "less"}, True),
        ("threshold", {}, True),
        ("threshold", {"threshold": 0.3}, True),
        ("threshold", {"threshold": 0.6}, False),
        ("threshold", {"comp": "less"}, False),
    ],
)
def test_a_stopped_run_stays_stopped(
    kind: str, changed: dict[str, Any], again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stopper = STOPPERS[kind](**changed)
    stopper.load_state_dict(stopped_run(kind))
    saved = stopper.state_dict()
    run = FakeRun("MulticlassAccuracy")
    run.timestamp = Timestamp(epoch=3, batch=3)
    assert run.run(stopper, []) is None
    assert run.stopped is again
    said = [r.getMessage() for r in caplog.records if "nothing is trained" in r.getMessage()]
    assert bool(said) is again
    if again:
        assert "'MulticlassAccuracy' of 'eval'" in said[0]
        rule = "threshold=" if kind == "threshold" else "patience="
        assert f"{rule}{getattr(stopper, rule[:-1])!s}" in said[0]
        assert "change its settings or leave it out" in said[0]
    assert ("stopped" in stopper.state_dict()) is again
    # The user who calls `fit` once more in this process wants to go on.
    run.stopped = False
    stopper.fit_start(run, None)
    assert not run.stopped
    assert "stopped" in saved


def test_another_metric_starts_fresh() -> None:
    stopper = ThresholdStopper("Other", "eval", 0.3)
    stopper.load_state_dict(stopped_run("threshold"))
    assert stopper.state_dict() == {}


def test_exactly_the_threshold_is_judged_alike_after_loading() -> None:
    # 0.9 in single precision lies below 0.9 in double.
    first, second = (
        ThresholdStopper("MulticlassAccuracy", "eval", 0.9, comp=operator.ge) for _ in range(2)
    )
    run = FakeRun("MulticlassAccuracy")
    assert run.run(first, [torch.tensor(0.9)]) == 1
    second.load_state_dict(first.state_dict())
    run.stopped = False
    second.fit_start(run, None)  # type: ignore[arg-type]
    assert run.stopped


def test_a_stopper_of_an_earlier_run_starts_fresh() -> None:
    for make in STOPPERS.values():
        stopper, fresh = make(), make()
        FakeRun("MulticlassAccuracy").run(stopper, [torch.tensor(0.5)] * 3)
        stopper.init(None, None)  # type: ignore[arg-type]
        assert stopper.state_dict() == fresh.state_dict()


class Scripted(TinyModel):
    """A model whose metric takes given values."""

    def __init__(self, values: Sequence[float]) -> None:
        super().__init__()
        self.values = values

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        return {} if is_train else {"Score": ScriptedScore(self.values)}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        pass


class ScriptedScore:
    """Gives the next value whenever it is asked; counts on from where the checkpoint stood."""

    higher_is_better = True

    def __init__(self, values: Sequence[float]) -> None:
        self.values = values
        self.asked_at = -1

    def to(self, device: Any) -> ScriptedScore:
        return self

    def reset(self) -> None:
        self.asked_at += 1

    def compute(self) -> torch.Tensor:
        return torch.tensor(self.values[min(self.asked_at, len(self.values) - 1)])


def autoresumed(folder: Path, stopper: Any, values: Sequence[float], interval: str) -> int:
    """Start a run, or continue it; the number of batches it ended at."""
    torch.manual_seed(0)
    model = Scripted(values)
    trainer = Trainer(
        model=model,
        train_dataloader=loader(),
        eval_dataloader=loader(8, shuffle=False),
        eval_interval=interval,
        max_duration="6ep",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=stopper,
        run_name="stopped",
        save_folder=str(folder),
        autoresume=True,
        progress_bar=False,
        seed=1,
    )
    trainer.fit()
    trainer.close()
    return int(trainer.state.timestamp.batch)


@pytest.mark.parametrize("interval", ["1ep", "4ba"])
@pytest.mark.parametrize(
    ("make", "changed", "values"),
    [
        (
            lambda: ThresholdStopper("Score", "eval", 0.5),
            ThresholdStopper("Score", "eval", 0.9),
            [0.1, 0.6],
        ),
        (
            lambda: EarlyStopper("Score", "eval", patience=0),
            EarlyStopper("Score", "eval", patience=9),
            [0.6, 0.6],
        ),
    ],
    ids=["threshold", "early"],
)
def test_a_stopped_run_trains_nothing_more_when_it_is_resumed(
    tmp_path: Path, make: Any, changed: Any, values: list[float], interval: str
) -> None:
    # An epoch has six batches; the second evaluation stops the run, be it amid an epoch.
    end = {"1ep": 12, "4ba": 8}[interval]
    ends = [autoresumed(tmp_path, make(), values, interval) for _ in range(3)]
    assert ends == [end] * 3
    assert autoresumed(tmp_path, changed, [0.6], interval) == 36


@pytest.mark.parametrize(
    ("comp", "values", "stop"),
    [
        (None, [0.5, 0.9, 0.91], 3),
        ("greater", [0.5, 0.9, 0.91], 3),
        ("less", [0.95, 0.9, 0.89], 3),
        (operator.ge, [0.5, 0.9], 2),
        (torch.greater, [0.5, 0.9], None),
    ],
)
@pytest.mark.parametrize("label", ["eval", "train"])
def test_threshold(comp: Any, values: list[float], stop: int | None, label: str) -> None:
    run = FakeRun("MulticlassAccuracy", label=label)
    stopper = ThresholdStopper("MulticlassAccuracy", label, 0.9, comp=comp)
    assert run.run(stopper, [torch.tensor(v) for v in values]) == stop
    plain = FakeRun("MulticlassAccuracy", label=label)
    assert plain.run(stopper, values) == stop


def test_threshold_on_batch() -> None:
    for stop_on_batch in (False, True):
        run = FakeRun("MulticlassAccuracy", label="train")
        run.metric.value = 0.95
        stopper = ThresholdStopper("MulticlassAccuracy", "train", 0.9, stop_on_batch=stop_on_batch)
        stopper.batch_end(run, None)  # type: ignore[arg-type]
        assert run.stopped is stop_on_batch


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: EarlyStopper("a", "eval", comp="lesss"), ValueError, 'Did you mean "less"'),
        (lambda: EarlyStopper("a", "eval", comp=3), TypeError, "function"),  # type: ignore[arg-type]
        (lambda: EarlyStopper("a", "eval", patience="3sp"), ValueError, "got '3sp'"),
        (lambda: EarlyStopper("a", "eval", patience=-1), ValueError, "got '-1ep'"),
        (lambda: EarlyStopper("a", "eval", min_delta=-0.1), ValueError, "min_delta"),
        (lambda: ThresholdStopper("a", "eval", 1.0, comp="up"), ValueError, "comp must be one of"),
    ],
)
def test_bad_arguments(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_metric_of_several_numbers_is_refused() -> None:
    run = FakeRun("MulticlassAccuracy")
    with pytest.raises(ValueError, match="needs one number, but 'MulticlassAccuracy' gives 2"):
        run.run(EarlyStopper("MulticlassAccuracy", "eval"), [torch.ones(2)])


def test_lr_monitor() -> None:
    groups = [
        {"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.1},
        {"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.2},
    ]
    logged: list[dict[str, Any]] = []
    state: Any = SimpleNamespace(optimizers=[torch.optim.AdamW(groups)])
    logger: Any = SimpleNamespace(log_metrics=logged.append)
    LRMonitor().batch_end(state, logger)
    assert logged == [{"lr-AdamW/group0": 0.1, "lr-AdamW/group1": 0.2}]
