"""Metrics of tokens, regions and boxes, against slow loops, torchmetrics and closed forms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from composer.metrics import (
    MAP,
    BinaryF1Score,
    Dice,
    LanguageCrossEntropy,
    LanguagePerplexity,
    MaskedAccuracy,
    MIoU,
)


class _Output:
    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


FORMS: list[Any] = [lambda t: t, lambda t: {"logits": t}, _Output]


def ragged_batches(dtype: torch.dtype = torch.float32) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Three batches of unequal size, with unequal numbers of labels that are ignored."""
    generator = torch.Generator().manual_seed(3)
    batches = []
    for samples, length in ((4, 6), (1, 2), (3, 9)):
        logits = torch.randn(samples, length, 5, generator=generator).to(dtype)
        labels = torch.randint(5, (samples, length), generator=generator)
        labels[torch.rand(samples, length, generator=generator) < 0.4] = -100
        batches.append((logits, labels))
    return batches


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_token_metrics_count_tokens_and_not_batches(form: Any, dtype: torch.dtype) -> None:
    loss, perplexity, accuracy = LanguageCrossEntropy(), LanguagePerplexity(), MaskedAccuracy()
    total, hits, count = 0.0, 0, 0
    for logits, labels in ragged_batches(dtype):
        for metric in (loss, perplexity, accuracy):
            metric.update(form(logits), labels)
        for row, label in zip(logits.reshape(-1, 5).tolist(), labels.reshape(-1), strict=True):
            if label == -100:
                continue
            total += math.log(sum(math.exp(x) for x in row)) - row[label]
            hits += int(row.index(max(row)) == label)
            count += 1
    assert float(loss.compute()) == pytest.approx(total / count, rel=1e-5)
    assert float(perplexity.compute()) == pytest.approx(math.exp(total / count), rel=1e-5)
    assert float(accuracy.compute()) == pytest.approx(hits / count)


def test_binary_f1_is_that_of_counts() -> None:
    metric = BinaryF1Score()
    generator = torch.Generator().manual_seed(4)
    tp = fp = fn = 0
    for size in (7, 1, 12):
        logits, target = torch.randn(size, 2, generator=generator), torch.arange(size) % 2
        metric.update({"logits": logits}, target)
        for (no, yes), true in zip(logits.tolist(), target.tolist(), strict=True):
            tp += int(yes > no and true == 1)
            fp += int(yes > no and true == 0)
            fn += int(yes <= no and true == 1)
    assert float(metric.compute()) == pytest.approx(2 * tp / (2 * tp + fp + fn))


def region_batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    batches = []
    for samples in (3, 1, 2):
        logits = torch.randn(samples, 4, 5, 3, generator=generator)
        logits[:, 3] = -9.0  # the last class is never predicted, and never true
        target = torch.randint(3, (samples, 5, 3), generator=generator)
        target[:, 0] = -1
        batches.append((logits, target))
    return batches


@pytest.mark.parametrize("cut", [1, 2, 6])
def test_regions_do_not_depend_on_batches(cut: int) -> None:
    logits = torch.cat([batch[0] for batch in region_batches()])
    target = torch.cat([batch[1] for batch in region_batches()])
    iou, dice = MIoU(num_classes=4), Dice(num_classes=4)
    for part, truth in zip(logits.split(cut), target.split(cut), strict=True):
        iou.update(part, truth)
        dice.update(part, truth)
    predicted = logits.argmax(dim=1)
    ious, scores = [], []
    for c in range(3):  # the fourth does not occur
        pairs = [
            (int(p == c), int(t == c))
            for p, t in zip(predicted.reshape(-1), target.reshape(-1), strict=True)
            if t != -1
        ]
        both = sum(p * t for p, t in pairs)
        size = sum(p + t for p, t in pairs)
        ious.append(both / (size - both))
        scores.append(2 * both / size)
    assert float(iou.compute()) == pytest.approx(100 * sum(ious) / 3, rel=1e-5)
    assert float(dice.compute()) == pytest.approx(100 * sum(scores[1:]) / 2, rel=1e-5)


def test_regions_take_one_value_per_class() -> None:
    logits, target = region_batches()[0]
    target = target.clamp(min=0)
    one_hot = torch.nn.functional.one_hot(target, 4).movedim(-1, 1)
    by_index, by_value = MIoU(4), MIoU(4)
    by_index.update(logits, target)
    by_value.update(logits, one_hot)
    assert float(by_index.compute()) == float(by_value.compute())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MIoU(0), "num_classes=0"),
        (lambda: Dice(1), "num_classes=1"),
        (lambda: MIoU(2).update(torch.zeros(1, 3, 2), torch.zeros(1, 2).long()), r"\(N, 2, \.\.\."),
        (lambda: MIoU(2).update(torch.zeros(1, 2, 2), torch.zeros(1, 3).long()), r"accepted is"),
        (lambda: MIoU(2).update(torch.zeros(1, 2, 2), torch.tensor([[0, 2]])), "class 2"),
        (lambda: MaskedAccuracy().update(torch.zeros(2, 3), torch.zeros(3).long()), "accepted is"),
        (lambda: BinaryF1Score().update(torch.zeros(2, 3), torch.zeros(2).long()), r"\(N, 2\)"),
    ],
)
def test_metrics_refuse_values(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: MaskedAccuracy().update({"scores": torch.zeros(1, 2)}, torch.zeros(1).long()),
        lambda: MaskedAccuracy().update(torch.zeros(1, 2), torch.zeros(1)),
        lambda: MIoU(2).update(torch.zeros(1, 2, 2), torch.zeros(1, 2)),
    ],
)
def test_metrics_refuse_types(call: Any) -> None:
    with pytest.raises(TypeError, match=r"holds no logits|integers"):
        call()


# ---- boxes ------------------------------------------------------------------------------------


def boxes(*found: tuple[float, float, float, float, int, float]) -> dict[str, torch.Tensor]:
    """Boxes by their corners, label and score."""
    return {
        "boxes": torch.tensor([box[:4] for box in found]).view(-1, 4),
        "labels": torch.tensor([box[4] for box in found], dtype=torch.long),
        "scores": torch.tensor([box[5] for box in found]),
    }


def test_average_precision_of_a_case_worked_out_by_hand() -> None:
    """Two objects of one class. Ranked by score: a hit, a miss, a hit.

    Precision at recall 1/2 is 1, at recall 1 it is 2/3. The benchmark reads the curve at 101
    recalls from 0 to 1: 51 of them (0 to 0.5) at 1, the other 50 at 2/3.
    """
    metric = MAP(class_metrics=True)
    truth = boxes((0, 0, 50, 50, 7, 1.0), (100, 100, 150, 150, 7, 1.0))
    found = boxes(
        (0, 0, 50, 50, 7, 0.9), (200, 200, 250, 250, 7, 0.8), (100, 100, 150, 150, 7, 0.7)
    )
    metric.update([found], [truth])
    values = metric.compute()
    expected = (51 * 1 + 50 * 2 / 3) / 101
    assert float(values["map"]) == pytest.approx(expected, abs=1e-6)
    assert float(values["map_per_class/7"]) == pytest.approx(expected, abs=1e-6)
    assert float(values["mar_100"]) == pytest.approx(1)


def test_average_precision_over_batches_is_that_of_all_images_and_survives_a_checkpoint() -> None:
    truth = [boxes((0, 0, 40, 40, 1, 1.0)), boxes((0, 0, 40, 40, 1, 1.0)), boxes()]
    found = [boxes((0, 0, 40, 40, 1, 0.6)), boxes((60, 0, 90, 40, 1, 0.9)), boxes()]
    whole, parts = MAP(), MAP()
    whole.update(found, truth)
    parts.update(found[:1], truth[:1])
    parts.persistent(True)
    restored = MAP()
    restored.persistent(True)
    restored.load_state_dict(parts.state_dict())
    restored.update(found[1:], truth[1:])
    assert "classes" not in restored.compute()
    assert {k: float(v) for k, v in restored.compute().items()} == {
        k: float(v) for k, v in whole.compute().items()
    }
