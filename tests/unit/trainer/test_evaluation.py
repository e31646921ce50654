"""Evaluation and prediction: every sample once, each set under its own label."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from composer.core.callback import Callback
from composer.core.evaluator import Evaluator
from composer.core.logger import Logger
from composer.core.state import State
from composer.loggers import InMemoryLogger
from composer.metrics import CrossEntropy, MulticlassAccuracy
from composer.trainer import Trainer
from composer_testing.tiny import IdDataset, TinyModel, loader


class TwoMetrics(TinyModel):
    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        if is_train:
            return {}
        return {"Accuracy": MulticlassAccuracy(num_classes=3), "CrossEntropy": CrossEntropy()}


def trainer(model: TinyModel | None = None, **settings: Any) -> Trainer:
    model = model or TwoMetrics()
    return Trainer(
        model=model,
        train_dataloader=loader(16, 4),
        max_duration="1ep",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.5),
        progress_bar=False,
        seed=1,
        **settings,
    )


def whole(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    data = IdDataset(size)
    return data.x, data.y


@pytest.mark.parametrize("microbatch", [None, 1, 3])
def test_metrics_are_those_of_all_samples_at_once(microbatch: int | None) -> None:
    """Thirteen samples in batches of four: the last batch weighs what it holds."""
    evaluator = Evaluator(
        label="val",
        dataloader=DataLoader(IdDataset(13), batch_size=4),
        device_eval_microbatch_size=microbatch,
    )
    t = trainer(eval_dataloader=evaluator)
    t.eval()
    x, y = whole(13)
    with torch.no_grad():
        logits = t.state.model.linear(x)  # type: ignore[operator,union-attr]
    values = {n: m.compute().item() for n, m in t.state.eval_metrics["val"].items()}
    assert values["Accuracy"] == pytest.approx((logits.argmax(1) == y).float().mean().item())
    expected = torch.nn.functional.cross_entropy(logits, y).item()
    assert values["CrossEntropy"] == pytest.approx(expected, abs=1e-6)
    t.close()


def test_sets_keep_to_themselves() -> None:
    memory = InMemoryLogger()
    sets = [
        Evaluator(label="a", dataloader=loader(4, 4), metric_names=["acc"]),
        Evaluator(label="b", dataloader=loader(8, 4)),
    ]
    t = trainer(eval_dataloader=sets, loggers=memory)
    t.fit()
    t.close()
    assert set(t.state.eval_metrics["a"]) == {"Accuracy"}
    assert set(t.state.eval_metrics["b"]) == {"Accuracy", "CrossEntropy"}
    keys = {key for key in memory.data if key.startswith("metrics/")}
    assert keys == {"metrics/a/Accuracy", "metrics/b/Accuracy", "metrics/b/CrossEntropy"}


def test_plain_loaders_get_labels_of_their_own() -> None:
    t = trainer(eval_dataloader=[loader(4, 4), loader(8, 4)])
    assert [e.label for e in t.state.evaluators] == ["eval0", "eval1"]
    t.close()
    t = trainer(eval_dataloader=loader(4, 4))
    assert [e.label for e in t.state.evaluators] == ["eval"]
    t.close()


class Sizes(Callback):
    def __init__(self) -> None:
        self.batches: list[tuple[str, int]] = []

    def eval_end(self, state: State, logger: Logger) -> None:
        assert state.dataloader_label is not None
        self.batches.append((state.dataloader_label, int(state.eval_timestamp.batch)))


def test_subsets() -> None:
    sizes = Sizes()
    sets = [
        Evaluator(label="own", dataloader=loader(20, 4), subset_num_batches=2),
        Evaluator(label="trainer's", dataloader=loader(20, 4)),
    ]
    t = trainer(eval_dataloader=sets, eval_subset_num_batches=3, callbacks=sizes)
    t.eval()
    t.eval(subset_num_batches=1)
    t.close()
    assert sizes.batches == [("own", 2), ("trainer's", 3), ("own", 1), ("trainer's", 1)]


@pytest.mark.parametrize(
    ("interval", "at"),
    [("2ba", [2, 4]), ("3ba", [3, 4]), (1, [4]), (0, []), ("1000ba", [4])],
)
def test_when_sets_run(interval: Any, at: list[int]) -> None:
    seen: list[int] = []

    class When(Callback):
        def eval_end(self, state: State, logger: Logger) -> None:
            seen.append(int(state.timestamp.batch))

    t = trainer(eval_dataloader=loader(4), eval_interval=interval, callbacks=When())
    t.fit()
    t.close()
    assert seen == at


def test_training_goes_on_as_if_nothing_had_been_evaluated() -> None:
    def weights(**settings: Any) -> torch.Tensor:
        torch.manual_seed(3)
        t = trainer(TinyModel(dropout=0.5), **settings)
        t.fit()
        t.close()
        assert t.state.model.training
        return t.state.model.linear.weight  # type: ignore[return-value,union-attr]

    plain = weights()
    evaluated = weights(eval_dataloader=loader(8, 4, shuffle=False), eval_interval="1ba")
    assert torch.equal(plain, evaluated)


def test_a_standalone_evaluation_leaves_no_set_behind() -> None:
    t = trainer(eval_dataloader=Evaluator(label="a", dataloader=loader(4)))
    t.eval(Evaluator(label="b", dataloader=loader(4)))
    assert [e.label for e in t.state.evaluators] == ["a"]
    assert "b" in t.state.eval_metrics
    with pytest.warns(UserWarning, match="overwritten"):
        t.eval(Evaluator(label="a", dataloader=loader(4)))
    t.close()


@pytest.mark.parametrize("data", [[], iter(())])
def test_a_set_without_batches_is_an_error(data: Any) -> None:
    t = trainer(eval_dataloader=Evaluator(label="void", dataloader=data))
    with pytest.raises(ValueError, match="'void' yielded no batches"):
        t.eval()
    t.close()


def test_a_set_labelled_like_the_training_data_is_refused() -> None:
    class Both(TwoMetrics):
        def get_metrics(self, is_train: bool) -> dict[str, Any]:
            return {"Accuracy": MulticlassAccuracy(num_classes=3)}

    t = trainer(Both(), eval_dataloader=Evaluator(label="train", dataloader=loader(4)))
    with pytest.raises(ValueError, match="both labelled 'train'"):
        t.fit()
    t.close()


def test_one_loader_with_persistent_workers_for_both_is_refused() -> None:
    shared = loader(8, 4, num_workers=1, persistent_workers=True)
    model = TinyModel()
    t = Trainer(
        model=model,
        train_dataloader=shared,
        eval_dataloader=shared,
        max_duration=1,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        progress_bar=False,
    )
    with pytest.raises(ValueError, match="make two loaders"):
        t.fit()
    t.close()


def test_what_a_call_does_not_say_is_as_the_trainer_was_told() -> None:
    sizes = Sizes()
    t = trainer(eval_subset_num_batches=2, eval_interval=0, callbacks=sizes)
    t.eval(loader(20, 4))
    t.fit(eval_dataloader=loader(20, 4))
    t.close()
    assert sizes.batches == [("eval", 2)]


def test_a_set_shared_by_two_trainers_is_evaluated_in_both() -> None:
    shared = Evaluator(label="val", dataloader=loader(4), eval_interval="100ba")
    for _ in range(2):
        sizes = Sizes()
        t = trainer(eval_dataloader=shared, callbacks=sizes)
        t.fit()
        t.close()
        assert sizes.batches == [("val", 1)]


@pytest.mark.parametrize("keep", [True, False])
def test_predictions_are_the_models_outputs(keep: bool) -> None:
    t = trainer()
    outputs = t.predict(loader(10, 4, shuffle=False), return_outputs=keep)
    t.close()
    if not keep:
        assert outputs == []
        return
    assert [len(o) for o in outputs] == [4, 4, 2]
    x, _ = whole(10)
    expected = t.state.model.linear(x)  # type: ignore[operator,union-attr]
    torch.testing.assert_close(torch.cat(outputs), expected.detach())
    assert not torch.cat(outputs).requires_grad


def test_prediction_of_a_part() -> None:
    t = trainer()
    assert len(t.predict(loader(20, 4), subset_num_batches=2)) == 2
    t.close()


def test_low_precision_is_used_in_evaluation_too() -> None:
    seen: list[torch.dtype] = []

    class Dtype(Callback):
        def eval_after_forward(self, state: State, logger: Logger) -> None:
            seen.append(state.outputs.dtype)

    t = trainer(precision="amp_bf16", eval_dataloader=loader(4), callbacks=Dtype())
    t.eval()
    t.close()
    assert seen == [torch.bfloat16]


def test_modes_of_parts_are_put_back_also_after_an_error() -> None:
    """A part that the user keeps in evaluation mode stays in it, and the rest trains on."""

    class Breaks(Callback):
        def eval_batch_start(self, state: State, logger: Logger) -> None:
            raise RuntimeError("broken")

    breaks = Breaks()
    t = trainer(eval_dataloader=loader(4), callbacks=breaks)
    model = t.state.model
    model.dropout.eval()  # type: ignore[operator,union-attr]
    with pytest.raises(RuntimeError, match="broken"):
        t.eval()
    t.state.callbacks.remove(breaks)
    t.eval()
    assert model.training
    assert not model.dropout.training  # type: ignore[union-attr]
    assert t.state.dataloader_label == "train"
    t.close()
