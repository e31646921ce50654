"""The Dice loss and the losses over tokens, against slow loops and closed forms."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from composer.loss import DiceLoss, chunked_cross_entropy, language_cross_entropy

SWITCHES = list(itertools.product([False, True], repeat=4))


def slow_dice(
    probabilities: torch.Tensor, target: torch.Tensor, *, squared: bool, jaccard: bool, batch: bool
) -> list[float]:
    """Scores of regions by loops over samples, classes and pixels; -1 in the target is skipped."""
    samples, classes = probabilities.shape[:2]
    groups = [range(samples)] if batch else [[n] for n in range(samples)]
    scores = []
    for group, c in itertools.product(groups, range(classes)):
        overlap = predicted = true = 0.0
        for n in group:
            pairs = zip(probabilities[n, c].reshape(-1), target[n].reshape(-1), strict=True)
            for p, label in pairs:
                if label < 0:
                    continue
                t = float(label == c)
                overlap += float(p) * t
                predicted += float(p) ** (2 if squared else 1)
                true += t
        union = predicted + true
        scores.append(overlap / (union - overlap) if jaccard else 2 * overlap / union)
    return scores


@pytest.mark.parametrize(("squared", "jaccard", "batch", "ignored"), SWITCHES)
def test_dice_is_that_of_loops_over_pixels(
    squared: bool, jaccard: bool, batch: bool, ignored: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 5, 2, generator=generator)
    target = torch.randint(4, (3, 5, 2), generator=generator)
    if ignored:
        target[0, :3] = -1
    loss = DiceLoss(
        softmax=True, squared_pred=squared, jaccard=jaccard, batch=batch, reduction="none"
    )(logits, target)
    expected = slow_dice(
        logits.softmax(dim=1), target, squared=squared, jaccard=jaccard, batch=batch
    )
    torch.testing.assert_close(loss.reshape(-1), 1 - torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_dice_reduces_over_the_classes_that_are_there() -> None:
    target = torch.tensor([[0, 0, 1, 1]])
    scores = F.one_hot(torch.tensor([[0, 1, 1, 2]]), 3).permute(0, 2, 1).float()
    # Overlaps: class 0 is 2*1/(1+2), class 1 is 2*1/(2+2), class 2 is not there.
    present = [1 - 2 / 3, 1 - 1 / 2]
    of_all = DiceLoss()(scores, target)
    assert float(of_all) == pytest.approx((sum(present) + 1) / 3, abs=1e-4)
    of_present = DiceLoss(ignore_absent_classes=True)
    assert float(of_present(scores, target)) == pytest.approx(sum(present) / 2, abs=1e-4)
    summed = DiceLoss(ignore_absent_classes=True, reduction="sum")
    assert float(summed(scores, target)) == pytest.approx(sum(present), abs=1e-4)


def test_dice_takes_soft_targets_sigmoids_and_half_precision() -> None:
    logits = torch.tensor([[[4.0, -4.0], [-4.0, 4.0]]])
    soft = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    p, q = torch.sigmoid(torch.tensor([4.0, -4.0])).tolist()
    expected = 1 - 2 * p / (p + q + 1)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        loss = DiceLoss(sigmoid=True)(logits.to(dtype), soft.to(dtype))
        assert loss.dtype == torch.float32
        assert float(loss) == pytest.approx(expected, abs=1e-4)


def test_dice_of_an_empty_region_predicted_empty_is_zero_and_has_a_gradient() -> None:
    logits = torch.full((1, 2, 3), -30.0).index_fill(1, torch.tensor(0), 30.0).requires_grad_()
    loss = DiceLoss(softmax=True)(logits, torch.zeros(1, 3, dtype=torch.long))
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)
    loss.backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sigmoid": True, "softmax": True}, "sigmoid=True and softmax=True"),
        ({"reduction": "max"}, "reduction='max'"),
    ],
)
def test_dice_refuses(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DiceLoss(**settings)  # type: ignore[arg-type]


# ---- tokens -----------------------------------------------------------------------------------


def slow_token_loss(logits: torch.Tensor, labels: torch.Tensor) -> list[list[float]]:
    """Per token minus the log of its label's probability, zero where the label is -100."""
    rows = []
    for sample, targets in zip(logits.double(), labels, strict=True):
        row = []
        for scores, label in zip(sample.tolist(), targets.tolist(), strict=True):
            largest = max(scores)
            total = sum(math.exp(x - largest) for x in scores)
            row.append(0.0 if label == -100 else math.log(total) + largest - scores[label])
        rows.append(row)
    return rows


@pytest.fixture
def ragged() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(11, (3, 7), generator=generator)
    labels[0, 2:] = labels[1, 5:] = -100
    return torch.randn(3, 7, 11, generator=generator), labels


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_token_loss_is_that_of_loops(
    ragged: tuple[torch.Tensor, torch.Tensor], shift: bool, dtype: torch.dtype
) -> None:
    logits, labels = ragged[0].to(dtype), ragged[1]
    used = (logits[:, :-1], labels[:, 1:]) if shift else (logits, labels)
    expected = torch.tensor(slow_token_loss(*used))
    count = int((used[1] != -100).sum())
    each = language_cross_entropy(logits, labels, shift=shift, reduction="none")
    torch.testing.assert_close(each, expected)
    mean = language_cross_entropy(logits, labels, shift=shift)
    assert float(mean) == pytest.approx(float(expected.sum()) / count, rel=1e-5)
    total = language_cross_entropy(logits, labels, shift=shift, reduction="sum")
    assert float(total) == pytest.approx(float(expected.sum()), rel=1e-5)


def test_weights_of_tokens_weigh_and_divide(ragged: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, labels = ragged
    weights = torch.arange(21.0).view(3, 7)
    loss = torch.tensor(slow_token_loss(logits, labels))
    expected = (loss * weights).sum() / weights[labels != -100].sum()
    got = language_cross_entropy(logits, labels, token_weights=weights)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("chunk_size", [1, 4, 100])
@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_chunks_give_the_loss_and_gradients_of_the_whole(
    ragged: tuple[torch.Tensor, torch.Tensor], chunk_size: int, shift: bool, reduction: str
) -> None:
    labels = ragged[1]
    generator = torch.Generator().manual_seed(2)
    parts = [
        torch.randn(shape, generator=generator, dtype=torch.float64).float().requires_grad_()
        for shape in ((3, 7, 5), (11, 5), (11,))
    ]
    twins = [part.detach().clone().requires_grad_() for part in parts]
    hidden, weight, bias = parts
    chunked = chunked_cross_entropy(
        hidden,
        weight,
        labels,
        bias=bias,
        chunk_size=chunk_size,
        shift=shift,
        reduction=reduction,
    )
    chunked.backward()
    whole_logits = twins[0] @ twins[1].T + twins[2]
    if shift:
        whole_logits, labels = whole_logits[:, :-1], labels[:, 1:]
    whole = F.cross_entropy(
        whole_logits.reshape(-1, 11), labels.reshape(-1), ignore_index=-100, reduction=reduction
    )
    whole.backward()
    torch.testing.assert_close(chunked, whole)
    for part, twin in zip(parts, twins, strict=True):
        torch.testing.assert_close(part.grad, twin.grad)


def test_chunks_never_hold_all_logits() -> None:
    """No tensor that lives between forward and backward is of the size of the vocabulary."""
    hidden = torch.randn(64, 4, requires_grad=True)
    weight = torch.randn(1000, 4, requires_grad=True)
    kept: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = chunked_cross_entropy(
            hidden, weight, torch.zeros(64, dtype=torch.long), chunk_size=8
        )
    assert kept == [] or max(kept) <= weight.numel()
    assert not any(size == 8 * 1000 for size in kept)
    loss.backward()
    assert weight.grad is not None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: language_cross_entropy(torch.zeros(2, 3, 4), torch.zeros(2, 4).long()),
            r"labels of shape \(2, 4\).*accepted is \(2, 3\)",
        ),
        (
            lambda: language_cross_entropy(
                torch.zeros(1, 2, 4), torch.zeros(1, 2).long(), token_weights=torch.ones(2)
            ),
            "token_weights",
        ),
        (
            lambda: chunked_cross_entropy(
                torch.zeros(1, 2, 4), torch.zeros(9, 5), torch.zeros(1, 2).long()
            ),
            r"weight of shape \(9, 5\).*\(V, 4\)",
        ),
        (
            lambda: chunked_cross_entropy(
                torch.zeros(1, 2, 4), torch.zeros(9, 4), torch.zeros(1, 2).long(), chunk_size=0
            ),
            "chunk_size=0",
        ),
        (
            lambda: chunked_cross_entropy(
                torch.zeros(1, 2, 4), torch.zeros(9, 4), torch.zeros(1, 2).long(), reduction="none"
            ),
            "reduction='none'",
        ),
    ],
)
def test_token_losses_refuse(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]
