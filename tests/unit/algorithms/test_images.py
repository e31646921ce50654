"""CutOut, ProgressiveResizing and ChannelsLast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from composer.algorithms import ChannelsLast, CutOut, ProgressiveResizing
from composer.algorithms.channels_last import apply_channels_last
from composer.algorithms.cutout import cutout_batch
from composer.algorithms.progressive_resizing import resize_batch
from composer.algorithms.progressive_resizing.functional import pinned_scale, scale_at
from composer.core.algorithm import Phase
from composer.core.event import Event

# ---- CutOut ----


@pytest.mark.parametrize("shape", [(4, 3, 8, 12), (3, 9, 7), (1, 1, 1, 1)])
@pytest.mark.parametrize("uniform_sampling", [False, True])
@pytest.mark.parametrize("num_holes", [1, 3])
def test_holes(shape: tuple[int, ...], uniform_sampling: bool, num_holes: int) -> None:
    x = torch.ones(shape)
    side = int(min(shape[-2:]) * 0.5)
    for _ in range(10):
        cut = cutout_batch(x, num_holes, 0.5, uniform_sampling)
        holes = cut == 0
        assert holes.flatten(-2).sum(-1).max() <= num_holes * side * side
        assert (holes == holes.flatten(0, -3)[0]).all()  # the same for all images and channels
        assert ((cut == 0) | (cut == 1)).all()
    assert (x == 1).all()


def test_one_hole_is_a_square_unless_it_hangs_over() -> None:
    areas = set()
    for _ in range(200):
        hole = cutout_batch(torch.ones(1, 1, 10, 10), length=0.4)[0, 0] == 0
        rows, columns = hole.any(1), hole.any(0)
        assert int(hole.sum()) == int(rows.sum()) * int(columns.sum())
        areas.add(int(hole.sum()))
    assert max(areas) == 16
    assert min(areas) < 16


def test_cutout_keeps_pillow_images() -> None:
    image_module = pytest.importorskip("PIL.Image")
    for mode in ("RGB", "L"):
        image = image_module.new(mode, (9, 6), color="white")
        cut = cutout_batch(image, length=0.5, generator=torch.Generator().manual_seed(1))
        assert isinstance(cut, image_module.Image)
        assert (cut.size, cut.mode) == ((9, 6), mode)
        assert cut.tobytes() != image.tobytes()
    with pytest.raises(TypeError, match="Pillow"):
        cutout_batch([1, 2])


def test_cutout_in_a_run(make_run: Callable[..., Any]) -> None:
    run = make_run(nn.Identity(), [CutOut(num_holes=2, length=0.5, input_key="x")])
    x = torch.ones(2, 3, 8, 8)
    batch = {"x": x, "y": torch.zeros(2)}
    run.state.batch = batch
    run.fire(Event.AFTER_DATALOADER)
    assert (run.state.batch["x"] == 0).any()
    assert batch["x"] is x
    assert (x == 1).all()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"num_holes": 0}, ValueError),
        ({"num_holes": 1.5}, TypeError),
        ({"length": 1.2}, ValueError),
        ({"uniform_sampling": 1}, TypeError),
    ],
)
def test_cutout_bad_arguments(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        CutOut(**arguments)


# ---- ProgressiveResizing ----


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize(
    ("size", "scale", "expected"), [(32, 0.5, 16), (28, 4 / 7, 16), (29, 0.5, 14)]
)
def test_resize_is_bilinear(size: int, scale: float, expected: int, antialias: bool) -> None:
    x, y = torch.randn(2, 3, size, size), torch.tensor([0, 1])
    smaller, target = resize_batch(x, y, scale, antialias=antialias)
    torch.testing.assert_close(
        smaller,
        F.interpolate(x, size=(expected, expected), mode="bilinear", antialias=antialias),
    )
    assert target is y


def test_resize_to_a_half_averages_four_pixels() -> None:
    x = torch.arange(16.0).view(1, 1, 4, 4)
    smaller, _ = resize_batch(x, torch.zeros(1), 0.5)
    assert smaller[0, 0].tolist() == [[2.5, 4.5], [10.5, 12.5]]


def test_full_size_changes_nothing() -> None:
    x, y = torch.randn(2, 3, 9, 9), torch.tensor([0, 1])
    for mode in ("resize", "crop"):
        smaller, _ = resize_batch(x, y, 1.0, mode)
        assert smaller is x


def test_crop_is_a_random_part_and_the_same_for_masks() -> None:
    x = torch.arange(2 * 10 * 6.0).view(2, 1, 10, 6)
    places = set()
    for _ in range(30):
        part, mask = resize_batch(x, x[:, 0].long(), 0.5, "crop", resize_targets=True)
        assert part.shape == (2, 1, 5, 3)
        assert torch.equal(part[:, 0].long(), mask)
        top, left = divmod(int(part[0, 0, 0, 0]), 6)
        assert torch.equal(part, x[..., top : top + 5, left : left + 3])
        places.add((top, left))
    assert len(places) > 5


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_masks_of_classes_keep_their_classes(dtype: torch.dtype) -> None:
    x, mask = torch.randn(2, 3, 8, 8), (torch.rand(2, 8, 8) > 0.5).to(dtype) * 7
    _, smaller = resize_batch(x, mask, 0.5, resize_targets=True)
    assert smaller.shape == (2, 4, 4)
    assert smaller.dtype == dtype
    assert set(smaller.unique().tolist()) <= {0, 7}
    with pytest.raises(ValueError, match="resize_targets=True"):
        resize_batch(x, torch.tensor([0, 1]), 0.5, resize_targets=True)


def test_integer_images_stay_integers() -> None:
    x = torch.full((1, 3, 8, 8), 200, dtype=torch.uint8)
    smaller, _ = resize_batch(x, torch.tensor([0]), 0.5)
    assert smaller.dtype == torch.uint8
    assert (smaller == 200).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale_factor": 0.0}, "scale_factor"),
        ({"scale_factor": 1.5}, "scale_factor"),
        ({"scale_factor": 0.5, "mode": "resise"}, 'Did you mean "resize"'),
    ],
)
def test_resize_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resize_batch(torch.zeros(1, 3, 8, 8), torch.zeros(1), **arguments)
    with pytest.raises(ValueError, match="N, C, H, W"):
        resize_batch(torch.zeros(3, 8, 8), torch.zeros(1), 0.5)


def test_scale_is_a_line_between_two_plateaus() -> None:
    assert [scale_at(t / 10, 0.5, 0.2, 0.3) for t in range(11)] == pytest.approx(
        [0.5] * 4 + [0.6, 0.7, 0.8, 0.9] + [1.0] * 3
    )
    assert scale_at(0.8, 0.5, 0.2, 0.5) == 1.0  # exactly, in spite of rounding


@pytest.mark.parametrize("width", [1, 3, 28, 29, 30, 32, 224])
@pytest.mark.parametrize("increment", [1, 4, 32])
def test_pinned_widths(width: int, increment: int) -> None:
    for scale in (0.1, 0.5, 0.77, 0.99):
        pinned = pinned_scale(width, scale, increment) * width
        assert pinned == pytest.approx(round(pinned))
        assert 0 < pinned <= width
        assert round(pinned) % increment == 0 or round(pinned) == width
    assert pinned_scale(width, 1.0, increment) == 1.0


@pytest.mark.parametrize("mode", ["resize", "crop"])
def test_progressive_resizing_in_a_run(make_run: Callable[..., Any], mode: str) -> None:
    method = ProgressiveResizing(mode, delay_fraction=0.2, finetune_fraction=0.3)
    run = make_run(nn.Identity(), [method])
    widths = []
    for index in range(10):
        run.at(index)
        x, y = torch.randn(2, 3, 30, 32), torch.tensor([0, 1])
        run.state.batch = [x, y]
        run.fire(Event.AFTER_DATALOADER)
        widths.append(run.state.batch[0].shape[-1])
        logged = run.recorder.metrics[-1]
        assert logged["progressive_resizing/width"] == widths[-1]
        assert logged["progressive_resizing/height"] == run.state.batch[0].shape[-2]
        assert logged["progressive_resizing/scale_factor"] == widths[-1] / 32
    assert widths == [16, 16, 16, 20, 24, 24, 28, 32, 32, 32]
    assert run.state.batch[0].shape[-2] == 30  # odd sizes come back to what they were


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delay_fraction": 0.5, "finetune_fraction": 0.5}, "less than 1"),
        ({"delay_fraction": 0.7, "finetune_fraction": 0.4}, "less than 1"),
        ({"initial_scale": 0.0}, "initial_scale"),
        ({"size_increment": 0}, "size_increment"),
        ({"mode": "zoom"}, "mode"),
    ],
)
def test_progressive_resizing_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProgressiveResizing(**arguments)


def test_progressive_resizing_needs_a_length(make_run: Callable[..., Any]) -> None:
    run = make_run(nn.Identity(), [ProgressiveResizing()], max_duration=None)
    run.state.batch = (torch.zeros(1, 3, 8, 8), torch.zeros(1))
    with pytest.raises(ValueError, match="max_duration"):
        run.fire(Event.AFTER_DATALOADER)


# ---- ChannelsLast ----


def test_channels_last(make_run: Callable[..., Any]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 3, 9, 9)
    expected = model(x)
    parameters = list(model.parameters())
    make_run(model, [ChannelsLast()]).fire(Event.INIT)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    for module in (model[0], model[2]):
        assert module.weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x), expected)
    assert model(x).is_contiguous(memory_format=torch.channels_last)
    model(x).sum().backward()
    optimizer.step()
    assert ChannelsLast.phase is Phase.LAST


def test_apply_channels_last_leaves_values_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(2, 2))
    before = [p.detach().clone() for p in model.parameters()]
    apply_channels_last(model)
    for a, b in zip(before, model.parameters(), strict=True):
        assert torch.equal(a, b)
