"""Metrics against torchmetrics, against closed forms, and over unequal batches and ranks."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from composer.metrics import CrossEntropy, LossMetric, Metric, MulticlassAccuracy

METRICS: list[Callable[[], Metric]] = [
    lambda: MulticlassAccuracy(4),
    lambda: MulticlassAccuracy(4, average="macro"),
    CrossEntropy,
    lambda: LossMetric(F.cross_entropy),
]


def batches(sizes: tuple[int, ...] = (5, 3, 1)) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(n, 4, generator=generator),
            torch.randint(0, 4, (n,), generator=generator),
        )
        for n in sizes
    ]


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "none"])
@pytest.mark.parametrize("ignore_index", [None, 2, -1])
def test_accuracy_against_torchmetrics(average: str, ignore_index: int | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchmetrics.classification import MulticlassAccuracy as Reference

    ours = MulticlassAccuracy(4, average=average, ignore_index=ignore_index)
    theirs = Reference(4, average=average, ignore_index=ignore_index)
    for preds, target in batches((7, 4, 9)):
        if ignore_index == -1:
            target[0] = -1
        ours.update(preds, target)
        theirs.update(preds, target)
    torch.testing.assert_close(ours.compute(), theirs.compute())


def test_macro_accuracy_of_an_absent_class_against_torchmetrics() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchmetrics.classification import MulticlassAccuracy as Reference

    preds, target = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 1])
    ours, theirs = MulticlassAccuracy(5, average="macro"), Reference(5, average="macro")
    ours.update(preds, target)
    theirs.update(preds, target)
    torch.testing.assert_close(ours.compute(), theirs.compute())


def test_accuracy_closed_form() -> None:
    metric = MulticlassAccuracy(2)
    metric.update(torch.tensor([[0.0, 1.0]] * 3), torch.tensor([1, 1, 1], dtype=torch.uint8))
    metric.update(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    assert metric.compute() == torch.tensor(0.75)  # the mean of batch means would be 0.5


def test_accuracy_of_pixels_and_of_classes() -> None:
    metric = MulticlassAccuracy(3)
    target = torch.randint(0, 3, (2, 4, 5))
    scores = F.one_hot(target, 3).movedim(-1, 1).float()
    metric.update(scores, target)
    metric.update((target + 1) % 3, target)
    assert metric.compute() == torch.tensor(0.5)


def test_cross_entropy_weighs_samples() -> None:
    metric = CrossEntropy()
    all_batches = batches((8, 2, 1))
    for preds, target in all_batches:
        metric.update(preds, target)
    preds, target = (torch.cat(parts) for parts in zip(*all_batches, strict=True))
    torch.testing.assert_close(metric.compute(), F.cross_entropy(preds, target))


def test_cross_entropy_closed_form_with_ignored_and_dense_targets() -> None:
    metric = CrossEntropy(ignore_index=-1)
    metric.update(torch.zeros(3, 4), torch.tensor([0, -1, 2]))
    metric.update(torch.zeros(1, 2), torch.tensor([[0.5, 0.5]]))
    expected = (2 * torch.tensor(4.0).log() + torch.tensor(2.0).log()) / 3
    torch.testing.assert_close(metric.compute(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cross_entropy_of_half_precision_logits(dtype: torch.dtype) -> None:
    metric = CrossEntropy()
    preds, target = batches((6,))[0]
    metric.update(preds.to(dtype), target)
    expected = F.cross_entropy(preds.to(dtype).float(), target)
    torch.testing.assert_close(metric.compute(), expected)


def test_loss_metric_weighs_samples() -> None:
    metric = LossMetric(F.l1_loss)
    metric.update(torch.full((2,), 3.0), torch.zeros(2))
    metric.update(torch.full((6,), 1.0), torch.zeros(6))
    assert metric.compute() == torch.tensor(1.5)  # the mean of batch means would be 2
    assert metric.compute().dtype == torch.float32


def test_loss_metric_with_values_per_sample_and_nested_targets() -> None:
    metric = LossMetric(lambda preds, targets: (preds - targets["y"][0]).abs())
    metric.update(torch.tensor([1.0, 3.0]), {"y": [torch.zeros(2)]})
    assert metric.compute() == torch.tensor(2.0)
    scalar = LossMetric(lambda preds, targets: torch.tensor(2.0))
    scalar.update(torch.zeros(3), {"y": [torch.zeros(4, 1)]})
    assert int(scalar.total) == 4
    scalar.update(torch.zeros(3), None)
    assert int(scalar.total) == 7
    with pytest.raises(TypeError, match="number of samples"):
        scalar.update("text", None)


@pytest.mark.parametrize("make", METRICS)
def test_any_grouping_of_samples_gives_the_same(make: Callable[[], Metric]) -> None:
    preds, target = batches((12,))[0]
    values = []
    for sizes in ((12,), (5, 5, 2), (7, 5), (1,) * 12):
        metric = make()
        for p, t in zip(preds.split(sizes), target.split(sizes), strict=True):
            metric.update(p, t)
        values.append(metric.compute())
    for value in values[1:]:
        torch.testing.assert_close(value, values[0])


@pytest.mark.parametrize("make", METRICS)
def test_reset_copy_pickle_and_call(make: Callable[[], Metric]) -> None:
    (preds, target), (more_preds, more_target), _ = batches()
    metric = make()
    batch_value = metric(preds, target)
    torch.testing.assert_close(batch_value, metric.compute())
    first = metric.compute()
    twin = copy.deepcopy(metric)
    second_alone = metric(more_preds, more_target)
    fresh = make()
    fresh.update(more_preds, more_target)
    torch.testing.assert_close(second_alone, fresh.compute())
    torch.testing.assert_close(twin.compute(), first)
    twin.update(more_preds, more_target)
    torch.testing.assert_close(twin.compute(), metric.compute())
    metric.reset()
    assert all(float(total.sum()) == 0 for total in metric.totals().values())


@pytest.mark.parametrize("make", METRICS)
def test_state_dict_holds_the_sums_when_asked(make: Callable[[], Metric]) -> None:
    metric = make()
    for preds, target in batches((5, 3)):
        metric.update(preds, target)
    assert metric.state_dict() == {}
    metric.persistent(True)
    buffer = io.BytesIO()
    torch.save(metric.state_dict(), buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=True)
    other = make()
    other.load_state_dict(saved)
    torch.testing.assert_close(other.compute(), metric.compute())
    preds, target = batches((4,))[0]
    metric.update(preds, target)
    other.update(preds, target)
    torch.testing.assert_close(other.compute(), metric.compute())


def test_state_dict_is_a_copy_and_mismatches_are_named() -> None:
    metric = MulticlassAccuracy(2)
    metric.persistent(True)
    saved = metric.state_dict()
    metric.update(torch.tensor([1]), torch.tensor([1]))
    assert int(saved["total"]) == 0
    with pytest.raises(RuntimeError, match="correct"):
        metric.load_state_dict({"total": torch.tensor(1)})
    with pytest.raises(RuntimeError, match="shape"):
        metric.load_state_dict({"correct": torch.zeros(3), "total": torch.tensor(1)})


def test_sums_are_no_part_of_a_model() -> None:
    model = torch.nn.Module()
    model.metric = MulticlassAccuracy(2)
    assert model.state_dict() == {}
    assert list(model.buffers()) == []
    assert list(model.parameters()) == []


def test_sums_follow_moves_and_keep_their_type() -> None:
    model = torch.nn.Module()
    model.metric = CrossEntropy()
    model.half()
    assert model.metric.sum_loss.dtype == torch.float64
    model.to("meta")
    assert model.metric.sum_loss.device.type == "meta"
    assert model.metric.device.type == "meta"


def test_updates_under_inference_mode_and_training_go_together() -> None:
    metric = MulticlassAccuracy(4)
    (preds, target), (more, more_target), _ = batches()
    with torch.inference_mode():
        metric.reset()
        metric.update(preds, target)
    metric.update(more.requires_grad_(), more_target)
    assert not metric.correct.requires_grad
    assert int(metric.total) == 8
    metric.reset()


def test_nothing_seen_is_nan_and_not_zero() -> None:
    for make in METRICS:
        assert make().compute().isnan()


class _TwoRanks:
    """Stands for a second rank: adds its sums to whatever is reduced, in order."""

    def __init__(self, other: list[torch.Tensor]) -> None:
        self.other = list(other)

    def __call__(self, tensor: torch.Tensor, reduce_operation: str = "SUM") -> None:
        assert reduce_operation == "SUM"
        tensor.add_(self.other.pop(0))


@pytest.mark.parametrize("other_has_data", [True, False])
def test_ranks_are_summed_once_and_divided_once(
    monkeypatch: pytest.MonkeyPatch, other_has_data: bool
) -> None:
    ours, theirs = LossMetric(F.l1_loss), LossMetric(F.l1_loss)
    ours.update(torch.full((3,), 1.0), torch.zeros(3))
    if other_has_data:
        theirs.update(torch.full((4,), 2.0), torch.zeros(4))
    monkeypatch.setattr("composer.metrics.base.get_world_size", lambda: 2)
    for _ in range(2):  # computing changes nothing
        reduce = _TwoRanks(list(theirs.totals().values()))
        monkeypatch.setattr("composer.metrics.base.all_reduce", reduce)
        assert float(ours.compute()) == pytest.approx(11 / 7 if other_has_data else 1.0)
    assert int(ours.total) == 3


def test_calling_sums_over_ranks_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("composer.metrics.base.get_world_size", lambda: 2)
    calls: list[Any] = []
    monkeypatch.setattr(
        "composer.metrics.base.all_reduce", lambda tensor, reduce_operation: calls.append(tensor)
    )
    preds, target = batches((4,))[0]
    MulticlassAccuracy(4)(preds, target)
    assert not calls
    MulticlassAccuracy(4, dist_sync_on_step=True)(preds, target)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes=0"),
        ({"num_classes": 2, "average": "mikro"}, 'Did you mean "micro"'),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MulticlassAccuracy(**arguments)


def test_bad_updates() -> None:
    metric = MulticlassAccuracy(3, average="macro")
    with pytest.raises(ValueError, match="num_classes=3"):
        metric.update(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="class 7"):
        metric.update(torch.zeros(2, 3), torch.tensor([7, 0]))
    with pytest.raises(ValueError, match="must agree"):
        metric.update(torch.zeros(2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(TypeError, match="loss_function"):
        LossMetric("l1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mean"):
        metric.add_state("x", torch.tensor(0), dist_reduce_fx="mean")


def test_sums_of_a_model_built_on_the_meta_device_count_from_zero() -> None:
    with torch.device("meta"):
        metric = MulticlassAccuracy(3)
    metric = metric.to_empty(device="cpu") if metric.total.is_meta else metric
    metric.update(torch.tensor([0, 1]), torch.tensor([0, 2]))
    assert float(metric.compute()) == 0.5
