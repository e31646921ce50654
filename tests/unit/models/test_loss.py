"""Losses and the reading of targets."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from composer.loss import (
    binary_cross_entropy_with_logits,
    check_for_index_targets,
    ensure_targets_one_hot,
    infer_target_type,
    loss_registry,
    soft_cross_entropy,
)
from composer.metrics import CrossEntropy

INTEGER_DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def slow_cross_entropy(
    logits: torch.Tensor, probabilities: torch.Tensor, weight: torch.Tensor | None = None
) -> float:
    """Sum over samples and classes, divided by the (weighted) total probability."""
    numerator = denominator = 0.0
    for row, probs in zip(logits.tolist(), probabilities.tolist(), strict=True):
        log_total = math.log(sum(math.exp(x) for x in row))
        for c, (x, p) in enumerate(zip(row, probs, strict=True)):
            w = 1.0 if weight is None else float(weight[c])
            numerator += w * p * (log_total - x)
            denominator += w * p
    return numerator / denominator


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
def test_any_integer_type_is_read_as_indices(dtype: torch.dtype) -> None:
    logits, target = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    assert check_for_index_targets(target.to(dtype))
    assert infer_target_type(logits, target.to(dtype)) == "indices"
    expected = F.cross_entropy(logits, target)
    torch.testing.assert_close(soft_cross_entropy(logits, target.to(dtype)), expected)
    assert torch.equal(
        ensure_targets_one_hot(logits, target.to(dtype)), F.one_hot(target, 3).float()
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.bool])
def test_other_types_are_no_indices(dtype: torch.dtype) -> None:
    target = torch.zeros(5).to(dtype)
    assert not check_for_index_targets(target)
    with pytest.raises(TypeError, match="must be integers"):
        infer_target_type(torch.zeros(5, 3), target)


@pytest.mark.parametrize("shape", [(4,), (5, 2), (5, 3, 1), ()])
def test_shapes_that_do_not_fit_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"\(5, 3\)"):
        infer_target_type(torch.zeros(5, 3), torch.zeros(shape, dtype=torch.int64))


@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_as_many_samples_as_classes_is_not_ambiguous(num_classes: int) -> None:
    logits = torch.zeros(num_classes, num_classes)
    assert infer_target_type(logits, torch.arange(num_classes)) == "indices"
    assert infer_target_type(logits, torch.eye(num_classes, dtype=torch.int64)) == "one_hot"


def test_one_hot_puts_classes_second() -> None:
    target = torch.randint(0, 4, (2, 5, 6))
    dense = ensure_targets_one_hot(torch.zeros(2, 4, 5, 6), target)
    assert dense.shape == (2, 4, 5, 6)
    assert torch.equal(dense.argmax(1), target)
    assert torch.equal(dense.sum(1), torch.ones(2, 5, 6))


def test_one_hot_keeps_dense_targets_and_takes_num_classes() -> None:
    dense = torch.rand(3, 4)
    assert ensure_targets_one_hot(torch.zeros(3, 4), dense) is dense
    wide = ensure_targets_one_hot(torch.zeros(3, 4), torch.tensor([0, 1, 5]), num_classes=6)
    assert wide.shape == (3, 6)


def test_negative_indices_become_zeros_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="negative"):
        dense = ensure_targets_one_hot(torch.zeros(2, 3), torch.tensor([-100, 1]))
    assert dense.tolist() == [[0, 0, 0], [0, 1, 0]]


def test_too_large_indices_are_refused() -> None:
    with pytest.raises(ValueError, match="class index 3"):
        ensure_targets_one_hot(torch.zeros(2, 3), torch.tensor([3, 1]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(7, 4), (3, 4, 5), (2, 4, 3, 3)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_one_hot_targets_give_what_their_indices_give(
    shape: tuple[int, ...], weighted: bool, reduction: str
) -> None:
    logits = torch.randn(shape)
    target = torch.randint(0, 4, (shape[0], *shape[2:]))
    weight = torch.rand(4) + 0.1 if weighted else None
    dense = ensure_targets_one_hot(logits, target)
    expected = F.cross_entropy(logits, target, weight, reduction=reduction)
    by_index = soft_cross_entropy(logits, target, weight, reduction=reduction)
    torch.testing.assert_close(by_index, expected)
    torch.testing.assert_close(
        soft_cross_entropy(logits, dense, weight, reduction=reduction), expected
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_soft_targets_against_a_slow_loop(weighted: bool) -> None:
    logits, target = torch.randn(6, 5), torch.softmax(torch.randn(6, 5), 1)
    weight = torch.rand(5) + 0.1 if weighted else None
    expected = slow_cross_entropy(logits, target, weight)
    assert float(soft_cross_entropy(logits, target, weight)) == pytest.approx(expected, rel=1e-5)


def test_ignored_rows_do_not_count() -> None:
    logits, target = torch.randn(4, 3), torch.tensor([0, -100, 2, -100])
    expected = F.cross_entropy(logits, target)
    torch.testing.assert_close(soft_cross_entropy(logits, target), expected)
    with pytest.warns(UserWarning, match="negative"):
        dense = ensure_targets_one_hot(logits, target)
    with pytest.warns(UserWarning, match="add up to 2 only"):
        torch.testing.assert_close(soft_cross_entropy(logits, dense), expected)
    own = torch.tensor([0, 7, 2, 7])
    torch.testing.assert_close(soft_cross_entropy(logits, own, ignore_index=7), expected)


def test_targets_without_probability_are_refused() -> None:
    with pytest.raises(ValueError, match="no positive probability"):
        soft_cross_entropy(torch.randn(4, 3), torch.zeros(4, 3))


def test_rounded_probabilities_do_not_warn() -> None:
    logits = torch.randn(64, 10)
    target = torch.lerp(
        F.one_hot(torch.arange(64) % 10, 10).float(), torch.full((64, 10), 0.1), 0.3
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        soft_cross_entropy(logits, target)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_logits_of_other_types(dtype: torch.dtype) -> None:
    logits = torch.randn(4, 3).to(dtype)
    target = torch.softmax(torch.randn(4, 3), 1)
    expected = slow_cross_entropy(logits.double(), target)
    assert float(soft_cross_entropy(logits, target)) == pytest.approx(expected, rel=2e-3)


def test_gradients_flow_and_targets_stay() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    target = torch.softmax(torch.randn(4, 3), 1)
    before = target.clone()
    soft_cross_entropy(logits, target).backward()
    expected = (torch.softmax(logits.detach(), 1) - target) / 4
    torch.testing.assert_close(logits.grad, expected)
    assert torch.equal(target, before)


@pytest.mark.parametrize("loss", [soft_cross_entropy, binary_cross_entropy_with_logits])
def test_unknown_reduction(loss: object) -> None:
    with pytest.raises(ValueError, match="reduction='average'"):
        loss(torch.zeros(2, 3), torch.tensor([0, 1]), reduction="average")  # type: ignore[operator]


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_binary_cross_entropy(reduction: str, scale: bool) -> None:
    logits, target = torch.randn(6, 4), torch.randint(0, 4, (6,))
    dense = F.one_hot(target, 4).float()
    pos_weight = torch.rand(4) + 0.5
    expected = F.binary_cross_entropy_with_logits(
        logits, dense, reduction=reduction, pos_weight=pos_weight
    ) / (6 if scale else 1)
    for given in (target, target.to(torch.uint8), dense):
        found = binary_cross_entropy_with_logits(
            logits, given, reduction=reduction, pos_weight=pos_weight, scale_by_batch_size=scale
        )
        torch.testing.assert_close(found, expected)


def test_registry() -> None:
    assert loss_registry == {
        "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
        "soft_cross_entropy": soft_cross_entropy,
    }


def test_names_of_0_32() -> None:
    from composer.loss import loss, utils

    assert loss.soft_cross_entropy is soft_cross_entropy
    assert utils.ensure_targets_one_hot is ensure_targets_one_hot


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_targets_in_half_precision_do_not_overflow(dtype: torch.dtype) -> None:
    """More pixels than the largest number of half precision; every class is as likely."""
    logits, targets = torch.zeros(1, 4, 300, 300), torch.full((1, 4, 300, 300), 0.25)
    for given in (logits, logits.to(dtype)):
        loss = soft_cross_entropy(given, targets.to(dtype))
        assert float(loss) == pytest.approx(math.log(4), rel=1e-3)
    metric = CrossEntropy()
    metric.update(logits.to(dtype), targets.to(dtype))
    assert float(metric.compute()) == pytest.approx(math.log(4), rel=1e-3)
