"""MixUp, CutMix and LabelSmoothing: on tensors, alone in a run, and together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from composer.algorithms import CutMix, LabelSmoothing, MixUp
from composer.algorithms._augment import draw_beta, draw_box
from composer.algorithms.cutmix import cutmix_batch
from composer.algorithms.label_smoothing import smooth_labels
from composer.algorithms.mixup import mixup_batch
from composer.algorithms.warnings import NotIntendedUseWarning
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.core.passes import warn_if_exclusive
from composer.models import ComposerClassifier

NUM_CLASSES = 4


def images(n: int = 6, height: int = 8, width: int = 8) -> torch.Tensor:
    return torch.randn(n, 3, height, width)


def labels(n: int = 6) -> torch.Tensor:
    return torch.randint(0, NUM_CLASSES, (n,))


def classifier() -> ComposerClassifier:
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.append(nn.Linear(5, NUM_CLASSES))
    return ComposerClassifier(net, num_classes=NUM_CLASSES)


# ---- drawing ----


@pytest.mark.parametrize("alpha", [0.01, 0.2, 1.0, 5.0])
def test_beta_moments(alpha: float) -> None:
    draws = torch.tensor([draw_beta(alpha) for _ in range(4000)], dtype=torch.float64)
    assert ((draws >= 0) & (draws <= 1)).all()
    assert float(draws.mean()) == pytest.approx(0.5, abs=0.03)
    assert float(draws.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


def test_beta_uses_the_global_generator_or_the_given_one() -> None:
    torch.manual_seed(5)
    first = draw_beta(0.2)
    torch.manual_seed(5)
    assert draw_beta(0.2) == first
    generator = torch.Generator().manual_seed(5)
    before = torch.get_rng_state()
    assert draw_beta(0.2, generator) == first
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("place", ["centre", "uniform", "inside"])
@pytest.mark.parametrize("box", [(0, 0), (1, 1), (3, 2), (5, 7)])
def test_boxes_lie_in_the_image(place: Any, box: tuple[int, int]) -> None:
    for _ in range(50):
        top, left, bottom, right = draw_box((5, 7), box, place=place)
        assert 0 <= top <= bottom <= 5
        assert 0 <= left <= right <= 7
        if place == "inside":
            assert (bottom - top, right - left) == box


def test_uniform_boxes_cover_every_pixel_alike() -> None:
    counts = torch.zeros(6, 6)
    for _ in range(6000):
        top, left, bottom, right = draw_box((6, 6), (3, 3), place="uniform")
        counts[top:bottom, left:right] += 1
    expected = 6000 * (3 / 8) ** 2  # 3 of the 8 starts cover a given row, and column
    assert float((counts / expected - 1).abs().max()) < 0.15


# ---- MixUp on tensors ----


@pytest.mark.parametrize("mixing", [0.0, 0.3, 0.5, 1.0])
def test_mixup_against_a_slow_loop(mixing: float) -> None:
    x, y = images(), labels()
    indices = torch.tensor([3, 0, 5, 1, 2, 4])
    before = x.clone()
    mixed, partner, share = mixup_batch(x, y, mixing=mixing, indices=indices)
    for i in range(6):
        expected = (1 - mixing) * x[i] + mixing * x[int(indices[i])]
        torch.testing.assert_close(mixed[i], expected)
        assert partner[i] == y[indices[i]]
    assert share == mixing
    assert torch.equal(x, before)


def test_mixup_share_is_at_most_a_half_and_reproducible() -> None:
    x, y = images(), labels()
    torch.manual_seed(1)
    results = [mixup_batch(x, y, alpha=1.0) for _ in range(50)]
    assert all(0 <= share <= 0.5 for _, _, share in results)
    torch.manual_seed(1)
    again = mixup_batch(x, y, alpha=1.0)
    assert torch.equal(again[0], results[0][0])
    generator = torch.Generator().manual_seed(1)
    assert torch.equal(mixup_batch(x, y, alpha=1.0, generator=generator)[0], results[0][0])


def test_mixup_of_odd_inputs() -> None:
    x, y = images(1), labels(1)
    assert torch.equal(mixup_batch(x, y)[0], x)  # a sample alone mixes with itself
    assert mixup_batch(x, y, alpha=0)[2] == 0
    pixels = torch.randint(0, 255, (4, 3, 5, 5), dtype=torch.uint8)
    mixed, _, _ = mixup_batch(pixels, labels(4), mixing=0.5, indices=torch.tensor([1, 0, 3, 2]))
    torch.testing.assert_close(mixed[0], (pixels[0].float() + pixels[1].float()) / 2)
    channels_last = images().to(memory_format=torch.channels_last)
    mixed, _, _ = mixup_batch(channels_last, labels())
    assert mixed.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "arguments", [{"mixing": 1.5}, {"alpha": -1.0}, {"indices": torch.tensor([0])}]
)
def test_mixup_refuses(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        mixup_batch(images(), labels(), **arguments)


# ---- CutMix on tensors ----


@pytest.mark.parametrize("size", [(8, 8), (7, 11), (1, 5)])
@pytest.mark.parametrize("uniform_sampling", [False, True])
def test_cutmix_area_is_exact(size: tuple[int, int], uniform_sampling: bool) -> None:
    x = torch.zeros(2, 3, *size)
    x[1] = 1.0
    for _ in range(30):
        cut, partner, kept, (top, left, bottom, right) = cutmix_batch(
            x,
            torch.tensor([0, 1]),
            indices=torch.tensor([1, 0]),
            uniform_sampling=uniform_sampling,
        )
        assert partner.tolist() == [1, 0]
        assert kept == pytest.approx(1 - float(cut[0].mean()))
        assert kept == pytest.approx(float(cut[1].mean()))
        assert (cut[0, :, top:bottom, left:right] == 1).all()


@pytest.mark.parametrize(
    ("length", "rows", "columns"), [(0.0, 0, 0), (0.1, 1, 2), (0.5, 5, 10), (1.0, 10, 20)]
)
def test_cutmix_length_is_the_side_of_the_box(length: float, rows: int, columns: int) -> None:
    x = images(4, 10, 20)
    for _ in range(20):
        _, _, kept, (top, left, bottom, right) = cutmix_batch(x, labels(4), length=length)
        assert (bottom - top, right - left) == (rows, columns)
        assert kept == pytest.approx(1 - length**2)


def test_cutmix_given_box() -> None:
    x = images()
    before = x.clone()
    indices = torch.tensor([1, 2, 3, 4, 5, 0])
    cut, _, kept, box = cutmix_batch(x, labels(), bbox=(1, 2, 4, 8), indices=indices)
    expected = x.clone()
    for i, j in enumerate(indices.tolist()):
        expected[i, :, 1:4, 2:8] = x[j, :, 1:4, 2:8]
    assert torch.equal(cut, expected)
    assert torch.equal(x, before)
    assert box == (1, 2, 4, 8)
    assert kept == pytest.approx(1 - 18 / 64)


def test_cutmix_drawn_area_follows_beta() -> None:
    # With boxes that hang over nowhere the cut area would be uniform for alpha 1.
    x, y = torch.zeros(1, 1, 64, 64), torch.tensor([0])
    cut = [1 - cutmix_batch(x, y, alpha=1.0)[2] for _ in range(1500)]
    # Mean over the side r of a box with uniform r**2, cut at the edges: E[(r - r*r/4)**2].
    expected = 1 / 2 - 1 / 5 * 2 / 2 + 1 / 48
    assert sum(cut) / len(cut) == pytest.approx(expected, abs=0.02)
    assert cutmix_batch(x, y, alpha=0)[2] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0.5, "bbox": (0, 0, 1, 1)}, "exclude each other"),
        ({"length": 1.5}, "length=1.5"),
        ({"alpha": -0.1}, "alpha=-0.1"),
        ({"bbox": (0, 0, 9, 1)}, "8 rows"),
        ({"bbox": (0, 0, 1)}, "first row"),
        ({"indices": torch.arange(3)}, "indices"),
    ],
)
def test_cutmix_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cutmix_batch(images(), labels(), **arguments)


# ---- label smoothing on tensors ----


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_smooth_labels_closed_form(dtype: torch.dtype) -> None:
    smooth = smooth_labels(torch.zeros(2, 4), torch.tensor([0, 3], dtype=dtype), smoothing=0.2)
    torch.testing.assert_close(
        smooth, torch.tensor([[0.85, 0.05, 0.05, 0.05], [0.05, 0.05, 0.05, 0.85]])
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_smoothed_loss_is_that_of_torch(smoothing: float) -> None:
    logits, target = torch.randn(6, NUM_CLASSES), labels()
    found = F.cross_entropy(logits, smooth_labels(logits, target, smoothing))
    torch.testing.assert_close(found, F.cross_entropy(logits, target, label_smoothing=smoothing))


def test_smooth_labels_of_dense_and_ignored_targets() -> None:
    logits, target = torch.randn(3, NUM_CLASSES), torch.tensor([1, -100, 2])
    dense = torch.softmax(torch.randn(3, NUM_CLASSES), 1)
    before = dense.clone()
    torch.testing.assert_close(smooth_labels(logits, dense, 0.3), 0.7 * dense + 0.3 / NUM_CLASSES)
    assert torch.equal(dense, before)
    with pytest.warns(UserWarning, match="negative"):
        smooth = smooth_labels(logits, target, 0.3)
    assert not smooth[1].any()
    torch.testing.assert_close(smooth.sum(1), torch.tensor([1.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match="smoothing"):
        smooth_labels(logits, target, 1.1)


# ---- in a run ----


def dense_of(method: Any, y: torch.Tensor) -> torch.Tensor:
    """The labels that a mixing method should make of one-hot ones."""
    own = F.one_hot(y, NUM_CLASSES).float() if y.ndim == 1 else y
    share = 1 - method.mixing if isinstance(method, MixUp) else method.kept
    return share * own + (1 - share) * own[method._indices]


@pytest.mark.parametrize("make", [MixUp, CutMix])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float32])
def test_labels_are_mixed(make_run: Callable[..., Any], make: Any, dtype: torch.dtype) -> None:
    method = make(alpha=1.0)
    run = make_run(classifier(), [method])
    x, y = images(), labels()
    target = F.one_hot(y, NUM_CLASSES).float() if dtype == torch.float32 else y.to(dtype)
    original = (x.clone(), target.clone())
    batch = (x, target)
    loss = run.train_step(batch)
    logits = run.state.outputs.detach()
    torch.testing.assert_close(run.state.batch[1], dense_of(method, y))
    torch.testing.assert_close(loss, F.cross_entropy(logits, dense_of(method, y)))
    assert torch.equal(batch[0], original[0])
    assert torch.equal(batch[1], original[1])


@pytest.mark.parametrize("make", [MixUp, CutMix])
def test_losses_are_interpolated(make_run: Callable[..., Any], make: Any) -> None:
    method = make(alpha=1.0, interpolate_loss=True)
    run = make_run(classifier(), [method])
    x, y = images(), labels()
    loss = run.train_step((x, y))
    logits = run.state.outputs.detach()
    share = 1 - method.mixing if make is MixUp else method.kept
    expected = share * F.cross_entropy(logits, y) + (1 - share) * F.cross_entropy(
        logits, y[method._indices]
    )
    torch.testing.assert_close(loss, expected)
    assert torch.equal(run.state.batch[1], y)  # labels are left as they are


@pytest.mark.parametrize("make", [MixUp, CutMix])
def test_gradient_of_both_modes_agrees(make_run: Callable[..., Any], make: Any) -> None:
    # Cross entropy is linear in its target, so mixing labels or losses must be the same.
    model, x, y = classifier(), images(), labels()
    gradients = []
    for interpolate_loss in (False, True):
        torch.manual_seed(3)
        model.zero_grad()
        make_run(model, [make(alpha=1.0, interpolate_loss=interpolate_loss)]).train_step((x, y))
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("container", [dict, list, tuple])
@pytest.mark.parametrize("make", [MixUp, CutMix])
def test_containers_of_the_loader_stay(
    make_run: Callable[..., Any], make: Any, container: type
) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = classifier().module

        def forward(self, batch: Any) -> torch.Tensor:
            return self.net(batch["x"] if isinstance(batch, dict) else batch[0])

        def loss(self, outputs: torch.Tensor, batch: Any) -> torch.Tensor:
            return F.cross_entropy(outputs, batch["y"] if isinstance(batch, dict) else batch[1])

    x, y = images(), labels()
    batch: Any = {"x": x, "y": y} if container is dict else container((x, y))
    keys = {"input_key": "x", "target_key": "y"} if container is dict else {}
    run = make_run(Model(), [make(**keys), LabelSmoothing(0.1, keys.get("target_key", 1))])
    run.train_step(batch)
    parts = list(batch.values()) if container is dict else list(batch)
    assert parts[0] is x
    assert parts[1] is y


def test_masks_get_the_box_pasted(make_run: Callable[..., Any]) -> None:
    method = CutMix(alpha=1.0)
    model = ComposerClassifier(nn.Conv2d(3, NUM_CLASSES, 1), num_classes=NUM_CLASSES)
    run = make_run(model, [method])
    masks = torch.arange(2).view(2, 1, 1).expand(2, 8, 8).contiguous()
    x = masks.unsqueeze(1).expand(2, 3, 8, 8).float()
    torch.manual_seed(4)
    for _ in range(5):
        run.train_step((x, masks))
        # Every pixel still carries the label of the image it comes from.
        assert torch.equal(run.state.batch[0][:, 0].long(), run.state.batch[1])
    with pytest.raises(ValueError, match="interpolate_loss=False"):
        make_run(model, [CutMix(interpolate_loss=True)]).train_step((x, masks))


def test_smoothed_labels_are_put_back(make_run: Callable[..., Any]) -> None:
    run = make_run(classifier(), [LabelSmoothing(0.3)])
    x, y = images(), labels()
    loss = run.train_step((x, y))
    assert run.state.batch[1] is y
    expected = F.cross_entropy(run.state.outputs.detach(), y, label_smoothing=0.3)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("method", [MixUp(), CutMix(), LabelSmoothing()])
def test_several_tensors_are_refused(make_run: Callable[..., Any], method: Algorithm) -> None:
    run = make_run(classifier(), [method])
    with pytest.raises(TypeError, match="single target tensor"):
        run.train_step((images(), {"a": labels()}))


@pytest.mark.parametrize("method", [MixUp(interpolate_loss=True), CutMix(interpolate_loss=True)])
def test_several_losses_are_refused(make_run: Callable[..., Any], method: Algorithm) -> None:
    model = classifier()
    model.loss = lambda outputs, batch: {"a": outputs.sum()}  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError, match="single loss tensor"):
        make_run(model, [method]).train_step((images(), labels()))


def smoothed(y: torch.Tensor, smoothing: float) -> torch.Tensor:
    own = F.one_hot(y, NUM_CLASSES).float()
    return (1 - smoothing) * own + smoothing / NUM_CLASSES


@pytest.mark.parametrize("interpolate_loss", [False, True])
@pytest.mark.parametrize("make", [MixUp, CutMix])
@pytest.mark.parametrize("smoothing_first", [True, False])
def test_smoothing_counts_for_both_partners(
    make_run: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    make: Any,
    interpolate_loss: bool,
    smoothing_first: bool,
) -> None:
    names = {MixUp: "mixup", CutMix: "cutmix", LabelSmoothing: "label_smoothing"}
    monkeypatch.setattr("composer.core.plugins.name_of", lambda group, cls: names[cls])
    method = make(alpha=1.0, interpolate_loss=interpolate_loss)
    algorithms = [LabelSmoothing(0.2), method]
    run = make_run(classifier(), algorithms if smoothing_first else algorithms[::-1])
    x, y = images(), labels()
    loss = run.train_step((x, y))
    expected = F.cross_entropy(run.state.outputs.detach(), dense_of(method, smoothed(y, 0.2)))
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("makes", list(itertools.permutations([MixUp, CutMix])))
def test_two_mixing_methods_compose(make_run: Callable[..., Any], makes: Any) -> None:
    first, second = (make(alpha=1.0) for make in makes)
    run = make_run(classifier(), [first, second])
    x, y = images(), labels()
    loss = run.train_step((x, y))
    expected = dense_of(second, dense_of(first, F.one_hot(y, NUM_CLASSES).float()))
    torch.testing.assert_close(
        loss, F.cross_entropy(run.state.outputs.detach(), expected), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("makes", list(itertools.permutations([MixUp, CutMix])))
def test_labels_then_losses_compose(make_run: Callable[..., Any], makes: Any) -> None:
    first, second = makes[0](alpha=1.0), makes[1](alpha=1.0, interpolate_loss=True)
    run = make_run(classifier(), [first, second])
    x, y = images(), labels()
    loss = run.train_step((x, y))
    expected = dense_of(second, dense_of(first, F.one_hot(y, NUM_CLASSES).float()))
    torch.testing.assert_close(
        loss, F.cross_entropy(run.state.outputs.detach(), expected), rtol=1e-4, atol=1e-5
    )


def test_two_that_mix_losses_warn() -> None:
    pair = [MixUp(interpolate_loss=True), CutMix(interpolate_loss=True)]
    with pytest.warns(NotIntendedUseWarning, match="MixUp and CutMix"):
        warn_if_exclusive(pair, Event.BEFORE_BACKWARD)
    assert MixUp().exclusive_group is None
    assert CutMix().exclusive_group is None


def test_second_loss_runs_in_the_precision_of_training(make_run: Callable[..., Any]) -> None:
    model = classifier()
    own_loss = model.loss
    seen: list[bool] = []

    def loss(outputs: Any, batch: Any) -> torch.Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return own_loss(outputs, batch)

    model.loss = loss  # type: ignore[assignment, method-assign]
    run = make_run(model, [MixUp(interpolate_loss=True)], precision="amp_bf16")
    run.train_step((images(), labels()))
    assert seen == [False, True]  # the first call is the test's own, outside


@pytest.mark.parametrize("method", [MixUp, CutMix])
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"alpha": -0.1}, ValueError),
        ({"alpha": "0.2"}, TypeError),
        ({"alpha": math.nan}, ValueError),
        ({"interpolate_loss": "yes"}, TypeError),
    ],
)
def test_bad_arguments(method: Any, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        method(**arguments)


@pytest.mark.parametrize("smoothing", [-0.1, 1.5, math.inf])
def test_bad_smoothing(smoothing: float) -> None:
    with pytest.raises(ValueError, match="smoothing"):
        LabelSmoothing(smoothing)
