"""Operations on images against Pillow and by hand; AugMix, RandAugment and ColOut on images."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from composer.algorithms import (
    AugmentAndMixTransform,
    AugMix,
    ColOut,
    ColOutTransform,
    RandAugment,
    RandAugmentTransform,
)
from composer.algorithms._augment import operations
from composer.algorithms._augment.mixing import draw_beta, draw_dirichlet
from composer.algorithms._augment.operation_sets import AUGMENTATION_SETS
from composer.core.event import Event
from composer.functional import augmix_image, colout_batch, randaugment_image

pytest.importorskip("torchvision")
from PIL import Image, ImageEnhance, ImageOps
from torchvision import tv_tensors

ALL = sorted({op for group in AUGMENTATION_SETS.values() for op in group}, key=lambda o: o.__name__)
STRENGTH = 0.7
LEVEL = 10.0


def picture(height: int = 24, width: int = 31, channels: int = 3) -> np.ndarray:
    """Waves of unlike range in each channel, with a brighter box, in whole numbers."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (3 + c)) * np.cos(y / (4 + c)) for c in range(channels)]
    scaled = [110 + 20 * c + (80 - 15 * c) * wave for c, wave in enumerate(waves)]
    pixels = np.stack(scaled, -1)
    pixels[height // 4 : height // 2, width // 4 : width // 2] += 45
    return pixels.round().astype(np.uint8)


def as_pillow(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def as_tensor(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1).contiguous()


def values(image: Any) -> np.ndarray:
    """Any image as whole numbers, channels last."""
    if isinstance(image, torch.Tensor):
        if image.is_floating_point():
            image = (image * 255).round()
        return image.permute(1, 2, 0).numpy().astype(np.int64)
    pixels = np.asarray(image).astype(np.int64)
    return pixels[..., None] if pixels.ndim == 2 else pixels


KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "pillow": as_pillow,
    "uint8": as_tensor,
    "float32": lambda pixels: as_tensor(pixels).float() / 255,
    "float64": lambda pixels: as_tensor(pixels).double() / 255,
}


@pytest.fixture
def fixed_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation works with one strength, to the positive side."""
    monkeypatch.setattr(operations, "_draw_share", lambda level: STRENGTH * level / 10)
    monkeypatch.setattr(operations, "_draw_sign", lambda: 1)
    monkeypatch.setattr(operations, "_draw_factor", lambda level: 1.0 + 0.9 * STRENGTH)


# ---- operations -------------------------------------------------------------------------------


def by_pillow(name: str, image: Image.Image) -> Image.Image:
    """The operation in calls of Pillow's own."""
    width, height = image.size
    bilinear = Image.Resampling.BILINEAR
    enhancers = {
        "color": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "brightness": ImageEnhance.Brightness,
        "sharpness": ImageEnhance.Sharpness,
    }
    shear, x, y = 0.3 * STRENGTH, int(STRENGTH * width / 3), int(STRENGTH * height / 3)
    matrices = {
        "shear_x": (1, shear, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, shear, 1, 0),
        "translate_x": (1, 0, -x, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, -y),
    }
    base = name.removesuffix("_original")
    if base in enhancers:
        factor = 0.1 + 1.8 * STRENGTH if name != base else 1.0 + 0.9 * STRENGTH
        return enhancers[base](image).enhance(factor)
    if name in matrices:
        return image.transform(image.size, Image.Transform.AFFINE, matrices[name], bilinear)
    if name == "posterize":
        return ImageOps.posterize(image, 4 - int(4 * STRENGTH))
    if name == "solarize":
        return ImageOps.solarize(image, 256 - int(256 * STRENGTH))
    if name == "rotate":
        return image.rotate(30 * STRENGTH, bilinear)
    return getattr(ImageOps, name)(image)


@pytest.mark.usefixtures("fixed_draws")
@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_operations_are_those_of_pillow(operation: Any, kind: str, channels: int) -> None:
    pixels = picture(channels=channels)
    name = operation.__name__
    expected = values(by_pillow(name, as_pillow(pixels)))
    image = KINDS[kind](pixels)
    made = operation(image, LEVEL)
    assert type(made) is type(image)
    assert getattr(made, "dtype", None) == getattr(image, "dtype", None)
    found = values(made)
    assert found.shape == expected.shape
    difference = np.abs(found - expected)
    if name in ("rotate", "shear_x", "shear_y") and kind != "pillow":
        # Where the edge of the image lies between pixels, the two blend with black differently.
        assert np.mean(difference > 2) < 0.1
        difference = difference[6:-6, 10:-10]
    assert difference.max() <= 2
    moved = np.abs(expected - pixels.astype(np.int64)).max()
    assert moved > 4 or (channels == 1 and name.startswith("color"))


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (1, 5)])
@pytest.mark.parametrize("channels", [1, 3])
def test_operations_keep_the_smallest_sizes(
    operation: Any, size: tuple[int, int], channels: int
) -> None:
    pixels = picture(*size, channels)
    for make in KINDS.values():
        found = values(operation(make(pixels), 9))
        assert found.shape == pixels.shape
        assert found.min() >= 0
        assert found.max() <= 255


def test_strengths_reach_from_nothing_to_the_most_that_a_level_allows() -> None:
    torch.manual_seed(0)
    for level in (0.0, 3.0, 10.0):
        shares = [operations._draw_share(level) for _ in range(500)]
        assert max(shares) <= level / 10
        assert max(shares) >= 0.97 * level / 10
        factors = [operations._draw_factor(level) for _ in range(500)]
        assert min(factors) >= 1 - 0.09 * level - 1e-9
        assert max(factors) <= 1 + 0.9 * level + 1e-9
        if level:
            stronger = sum(factor > 1 for factor in factors) / 500
            assert 0.4 < stronger < 0.6
            assert min(factors) < 1 - 0.085 * level
            assert max(factors) > 1 + 0.85 * level
    signs = [operations._draw_sign() for _ in range(400)]
    assert set(signs) == {-1, 1}
    assert abs(sum(signs)) < 80
    published = [operations._draw_published_factor(10) for _ in range(400)]
    assert 0.1 < min(published) < 0.2
    assert 1.8 < max(published) < 1.9


def test_sets_hold_the_published_operations() -> None:
    names = {name: [op.__name__ for op in group] for name, group in AUGMENTATION_SETS.items()}
    extra = ["color", "contrast", "brightness", "sharpness"]
    assert len(names["all"]) == len(set(names["all"])) == 13
    assert names["all"] == names["safe"] + extra
    assert names["original"] == names["safe"] + [f"{name}_original" for name in extra]


# ---- AugMix and RandAugment on images ---------------------------------------------------------

IMAGE_FUNCTIONS = {"augmix": augmix_image, "randaugment": randaugment_image}
FUNCTIONS = pytest.mark.parametrize("function", IMAGE_FUNCTIONS.values(), ids=IMAGE_FUNCTIONS)


@FUNCTIONS
@pytest.mark.parametrize("augmentation_set", list(AUGMENTATION_SETS))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(24, 31), (1, 1), (2, 3)])
def test_images_keep_type_size_and_range(
    function: Any, augmentation_set: str, kind: str, channels: int, size: tuple[int, int]
) -> None:
    pixels = picture(*size, channels)
    image = KINDS[kind](pixels)
    before = values(image).copy()
    made = function(image, severity=10, augmentation_set=augmentation_set)
    assert type(made) is type(image)
    assert made is not image
    if isinstance(image, torch.Tensor):
        assert (made.dtype, made.shape, made.device) == (image.dtype, image.shape, image.device)
        assert made.min() >= 0
        assert image.dtype == torch.uint8 or made.max() <= 1
    else:
        assert (made.mode, made.size) == (image.mode, image.size)
    assert np.array_equal(values(image), before)


@FUNCTIONS
def test_images_do_change_and_follow_the_seed_alone(function: Any) -> None:
    image = as_pillow(picture())
    torch.manual_seed(5)
    first, second = function(image), function(image)
    torch.manual_seed(5)
    np.random.seed(1)
    assert function(image).tobytes() == first.tobytes()
    assert function(image).tobytes() == second.tobytes()
    assert len({first.tobytes(), second.tobytes(), image.tobytes()}) == 3


@FUNCTIONS
def test_no_severity_is_no_change(function: Any) -> None:
    pixels = picture()
    for make in KINDS.values():
        image = make(pixels)
        made = function(image, severity=0)
        assert made is not image
        assert np.array_equal(values(made), values(image))
    assert np.array_equal(values(randaugment_image(as_pillow(pixels), depth=0)), pixels)


@FUNCTIONS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types_are_computed_wide(function: Any, dtype: torch.dtype) -> None:
    image = (as_tensor(picture()).float() / 255).to(dtype)
    torch.manual_seed(2)
    made = function(image)
    torch.manual_seed(2)
    assert torch.equal(made, function(image.float()).to(dtype))


@FUNCTIONS
def test_the_images_of_a_batch_draw_for_themselves(function: Any) -> None:
    image = as_tensor(picture())
    batch = image.expand(4, -1, -1, -1).contiguous(memory_format=torch.channels_last)
    torch.manual_seed(3)
    made = function(batch)
    torch.manual_seed(3)
    assert torch.equal(made, torch.stack([function(image) for _ in range(4)]))
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert len(made.flatten(1).unique(dim=0)) > 1
    assert function(batch[:0]).shape == batch[:0].shape


@FUNCTIONS
def test_images_of_torchvision_stay_such(function: Any) -> None:
    image = tv_tensors.Image(as_tensor(picture()))
    made = function(image)
    assert type(made) is tv_tensors.Image
    torch.manual_seed(1)
    made = function(image)
    torch.manual_seed(1)
    assert torch.equal(made.as_subclass(torch.Tensor), function(as_tensor(picture())))


@FUNCTIONS
@pytest.mark.parametrize(
    ("image", "error", "words"),
    [
        (Image.new("RGBA", (4, 4)), ValueError, r"mode 'RGBA'.*convert\('RGB'\)"),
        (Image.new("P", (4, 4)), ValueError, "mode 'P'"),
        (np.zeros((4, 4, 3), np.uint8), TypeError, "ndarray"),
        (torch.zeros(4, 4), ValueError, r"\(4, 4\)"),
        (torch.zeros(4, 4, 4), ValueError, "1 or 3 channels"),
        (torch.zeros(3, 4, 0), ValueError, "no pixels"),
        (torch.zeros(3, 4, 4, dtype=torch.int64), TypeError, "int64"),
        (torch.full((3, 4, 4), 255.0), ValueError, "255.*before they are normalised"),
        (torch.full((3, 4, 4), -1.0), ValueError, "from -1 to -1"),
        (torch.full((3, 4, 4), math.nan), ValueError, "nan"),
    ],
)
def test_other_images_are_refused(
    function: Any, image: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        function(image)


@FUNCTIONS
def test_rounding_may_leave_the_range_by_a_little(function: Any) -> None:
    image = torch.tensor([-1e-4, 0.5, 1.0, 1.001]).view(1, 2, 2)
    made = function(image, severity=0)
    assert torch.equal(made, image.clamp(0, 1))
    assert float(image.max()) > 1


def test_an_operation_of_the_users_must_keep_the_size() -> None:
    with pytest.raises(ValueError, match="keep the shape"):
        randaugment_image(torch.zeros(3, 4, 4), augmentation_set=[lambda i, level: i[:, :2]])
    with pytest.raises(ValueError, match="keep both"):
        randaugment_image(as_pillow(picture()), augmentation_set=[lambda i, level: i.convert("L")])


def test_operations_of_the_users_get_image_and_level() -> None:
    seen = []

    def darker(image: torch.Tensor, level: float) -> torch.Tensor:
        seen.append(level)
        return image / 2

    made = randaugment_image(torch.ones(1, 2, 2), 7, 3, [darker])
    assert torch.equal(made, torch.full((1, 2, 2), 0.125))
    assert seen == [7, 7, 7]


def test_randaugment_draws_each_operation_as_often() -> None:
    torch.manual_seed(0)
    counts = [0, 0, 0]

    def counting(index: int) -> Any:
        def operation(image: torch.Tensor, level: float) -> torch.Tensor:
            counts[index] += 1
            return image

        return operation

    for _ in range(300):
        randaugment_image(torch.zeros(1, 1, 1), 9, 2, [counting(i) for i in range(3)])
    assert sum(counts) == 600
    assert all(abs(count - 200) < 60 for count in counts)


# ---- the mixture of AugMix --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_augmix_is_the_convex_combination(
    kind: str, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares, part = [0.5, 0.2, 0.3], 0.6
    asked: list[Any] = []

    def answer(given: Any, reply: Any) -> Any:
        asked.append(given)
        return reply

    module = "composer.algorithms.augmix.functional"
    monkeypatch.setattr(f"{module}.draw_dirichlet", lambda a, n: answer((a, n), shares))
    monkeypatch.setattr(f"{module}.draw_beta", lambda a: answer(a, part))
    chains: list[Any] = []

    def note(image: Any, level: float) -> Any:
        if isinstance(image, torch.Tensor):
            top = 255 if image.dtype == torch.uint8 else 1
            image = top - image if len(chains) != 1 else image // 2 if top == 255 else image / 2
        else:
            image = ImageOps.invert(image) if len(chains) != 1 else image.point(lambda v: v // 2)
        chains.append(image)
        return image

    image = KINDS[kind](picture())
    made = augmix_image(image, depth=1, alpha=alpha, augmentation_set=[note])
    assert asked == [(alpha, 3), alpha]
    scale = 255 if isinstance(image, torch.Tensor) and image.is_floating_point() else 1

    def exact(one: Any) -> np.ndarray:
        if isinstance(one, torch.Tensor):
            return one.permute(1, 2, 0).double().numpy() * scale
        return np.asarray(one).astype(np.float64)

    mixture = sum(s * exact(chain) for s, chain in zip(shares, chains, strict=True))
    expected = (1 - part) * exact(image) + part * mixture
    tolerance = 1e-3 if scale == 255 else 0.501
    assert np.abs(exact(made) - expected).max() < tolerance
    assert len({values(chain).tobytes() for chain in chains}) == 2


def test_each_chain_draws_its_own_depth() -> None:
    torch.manual_seed(0)
    triples = []
    for _ in range(300):
        depths: list[int] = []

        def longer(image: torch.Tensor, level: float, depths: list[int] = depths) -> torch.Tensor:
            if not image.any():  # a chain begins with the image itself
                depths.append(0)
            depths[-1] += 1
            return image + 1

        augmix_image(torch.zeros(1, 1, 1, dtype=torch.uint8), augmentation_set=[longer])
        triples.append(tuple(depths))
    assert all(len(triple) == 3 for triple in triples)
    assert {depth for triple in triples for depth in triple} == {1, 2, 3}
    assert len(set(triples)) == 27  # all that there are
    assert any(len(set(triple)) > 1 for triple in triples)


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_given_depth_and_width(depth: int, width: int) -> None:
    calls = []

    def count(image: torch.Tensor, level: float) -> torch.Tensor:
        calls.append(level)
        return image

    augmix_image(torch.zeros(1, 1, 1), 4, depth, width, augmentation_set=[count])
    assert calls == [4] * (depth * width)


@pytest.mark.parametrize("alpha", [1e-4, 0.2, 1.0, 30.0])
def test_shares_have_the_moments_of_the_distribution(alpha: float) -> None:
    torch.manual_seed(0)
    drawn = np.array([draw_dirichlet(alpha, 3) for _ in range(3000)])
    assert np.isfinite(drawn).all()
    assert np.abs(drawn.sum(1) - 1).max() < 1e-9
    # Of the symmetric Dirichlet distribution over 3: mean 1/3, variance (2/9) / (3 alpha + 1).
    assert np.abs(drawn.mean(0) - 1 / 3).max() < 0.04
    assert drawn.var(0) == pytest.approx((2 / 9) / (3 * alpha + 1), rel=0.15)


def test_two_shares_are_distributed_as_beta() -> None:
    torch.manual_seed(4)
    one = [draw_beta(0.3) for _ in range(5)]
    torch.manual_seed(4)
    assert [draw_dirichlet(0.3, 2)[0] for _ in range(5)] == pytest.approx(one)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"severity": 11}, ValueError),
        ({"severity": -1}, ValueError),
        ({"severity": "3"}, TypeError),
        ({"depth": -2}, ValueError),
        ({"depth": 1.5}, TypeError),
        ({"augmentation_set": "safest"}, ValueError),
    ],
)
@pytest.mark.parametrize("method", [AugMix, RandAugment, augmix_image, randaugment_image])
def test_bad_arguments_are_named(
    method: Any, arguments: dict[str, Any], error: type[Exception]
) -> None:
    subject = [torch.zeros(3, 2, 2)] if method in IMAGE_FUNCTIONS.values() else []
    with pytest.raises(error, match=next(iter(arguments))):
        method(*subject, **arguments)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: AugMix(width=0), ValueError, "width=0"),
        (lambda: AugMix(depth=0), ValueError, "depth=0"),
        (lambda: AugMix(alpha=0.0), ValueError, "alpha=0.0"),
        (lambda: RandAugment(depth=-1), ValueError, "depth=-1"),
        (lambda: AugMix(augmentation_set=[max]), ValueError, "augmentation_set"),  # type: ignore[arg-type]
        (lambda: AugmentAndMixTransform(augmentation_set=[]), ValueError, "augmentation_set"),
        (lambda: RandAugmentTransform(augmentation_set=[3]), TypeError, "augmentation_set"),  # type: ignore[list-item]
        (lambda: ColOut(p_row=1.5), ValueError, "p_row=1.5"),
        (lambda: ColOut(p_col="0.1"), TypeError, "p_col"),  # type: ignore[arg-type]
        (lambda: ColOut(batch=1), TypeError, "batch=1"),  # type: ignore[arg-type]
        (lambda: ColOut(resize_target="yes"), ValueError, "resize_target='yes'"),
        (lambda: ColOut(batch=False, resize_target=True), ValueError, "resize_target=True"),
    ],
)
def test_other_bad_arguments_are_named(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


# ---- ColOut -----------------------------------------------------------------------------------


def numbered(*shape: int) -> torch.Tensor:
    """Images whose values tell row and column: 1000 times the one plus the other."""
    height, width = shape[-2:]
    places = 1000 * torch.arange(height)[:, None] + torch.arange(width)
    return places.expand(shape).contiguous()


def lines_of(kept: torch.Tensor) -> tuple[list[int], list[int]]:
    """Which rows and columns are left, and that they are the same everywhere."""
    flat = kept.reshape(-1, *kept.shape[-2:])
    rows, columns = (flat[0, :, 0] // 1000).tolist(), (flat[0, 0] % 1000).tolist()
    expected = 1000 * torch.tensor(rows)[:, None] + torch.tensor(columns)
    assert torch.equal(flat, expected.expand_as(flat).to(flat.dtype))
    return rows, columns


@pytest.mark.parametrize("shape", [(2, 3, 20, 10), (3, 20, 10), (1, 1, 1), (2, 1, 2, 3)])
@pytest.mark.parametrize(("p_row", "p_col"), [(0.15, 0.15), (0.0, 0.5), (0.9, 0.3), (1.0, 1.0)])
def test_kept_lines_are_a_sorted_choice(shape: tuple[int, ...], p_row: float, p_col: float) -> None:
    height, width = shape[-2:]
    seen = set()
    for _ in range(20):
        rows, columns = lines_of(colout_batch(numbered(*shape), p_row, p_col))
        # In hundredths, so that no share is inexact.
        assert len(rows) == max(1, height * round(100 - 100 * p_row) // 100)
        assert len(columns) == max(1, width * round(100 - 100 * p_col) // 100)
        for lines, size in ((rows, height), (columns, width)):
            assert all(a < b for a, b in pairwise(lines))
            assert set(lines) <= set(range(size))
        seen.add((tuple(rows), tuple(columns)))
    if height > 3 and p_col > 0:
        assert len(seen) > 5


@pytest.mark.parametrize(
    ("image", "target"),
    [((4, 3, 20, 10), (4, 20, 10)), ((4, 3, 20, 10), (4, 1, 20, 10)), ((3, 20, 10), (20, 10))],
)
@pytest.mark.parametrize("resize_target", ["auto", True])
def test_targets_lose_the_same_lines(
    image: tuple[int, ...], target: tuple[int, ...], resize_target: bool | str
) -> None:
    sample = (numbered(*image), numbered(*target))
    smaller, mask = colout_batch(sample, 0.4, 0.3, resize_target)
    assert lines_of(smaller) == lines_of(mask)
    assert mask.ndim == len(target)
    assert smaller.shape[-2:] == (12, 7)
    _, left = colout_batch(sample, 0.4, 0.3, resize_target=False)
    assert left is sample[1]


@pytest.mark.parametrize("target", [torch.zeros(20, 10), torch.zeros(4), torch.zeros(4, 20, 9), 5])
def test_other_targets_are_left_alone_or_refused(target: Any) -> None:
    images = numbered(4, 3, 20, 10)
    assert colout_batch((images, target))[1] is target
    with pytest.raises(ValueError, match="resize_target=True"):
        colout_batch((images, target), resize_target=True)


def test_what_colout_cannot_decide_is_refused() -> None:
    image = torch.zeros(3, 4, 4)
    with pytest.raises(ValueError, match=r"3 members.*target_key"):
        colout_batch((image, 1, 2))
    with pytest.raises(TypeError, match="resize_target=False"):
        colout_batch((image, {"masks": image}))
    assert colout_batch((image, {"masks": image}), resize_target=False)[1]["masks"] is image
    with pytest.raises(TypeError, match="str"):
        colout_batch("image")
    with pytest.raises(TypeError, match="Tensor"):
        colout_batch(torch.zeros(4, 4))
    with pytest.raises(ValueError, match="pair"):
        colout_batch(image, resize_target=True)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1"])
def test_colout_keeps_pillow_images(mode: str) -> None:
    image = Image.fromarray(picture(20, 10)).convert(mode)
    torch.manual_seed(1)
    smaller, mask = ColOutTransform(0.5, 0.2)((image, image.convert("L")))
    torch.manual_seed(1)
    rows, columns = lines_of(colout_batch(numbered(1, 20, 10), 0.5, 0.2))
    assert (smaller.mode, smaller.size, mask.mode) == (mode, (8, 10), "L")
    assert smaller.getpalette() == image.getpalette()
    assert np.array_equal(np.asarray(smaller), np.asarray(image)[rows][:, columns])
    assert np.array_equal(np.asarray(mask), np.asarray(image.convert("L"))[rows][:, columns])


def test_colout_keeps_type_and_memory_format() -> None:
    images = torch.rand(4, 3, 8, 8).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    smaller = colout_batch(images)
    assert smaller.dtype == torch.bfloat16
    assert smaller.is_contiguous(memory_format=torch.channels_last)
    assert colout_batch(images.contiguous()).is_contiguous()


def test_colout_in_a_run(make_run: Callable[..., Any]) -> None:
    run = make_run(nn.Identity(), [ColOut(0.5, 0.25, input_key="x", target_key="y")])
    batch = {"x": numbered(2, 3, 8, 8), "y": numbered(2, 8, 8), "z": numbered(2, 8, 8)}
    before = dict(batch)
    run.state.batch = batch
    run.fire(Event.FIT_START, Event.AFTER_DATALOADER)
    assert lines_of(run.state.batch["x"]) == lines_of(run.state.batch["y"])
    assert run.state.batch["x"].shape == (2, 3, 4, 6)
    assert run.state.batch["z"] is before["z"]
    assert all(batch[key] is before[key] for key in before)


def test_colout_of_larger_batches_goes_by_the_keys(make_run: Callable[..., Any]) -> None:
    run = make_run(nn.Identity(), [ColOut(input_key=1, target_key=2)])
    run.state.batch = (torch.tensor([1, 2]), numbered(2, 3, 8, 8), torch.tensor([0, 1]))
    run.fire(Event.AFTER_DATALOADER)
    ids, images, labels = run.state.batch
    assert images.shape == (2, 3, 6, 6)
    assert (ids.tolist(), labels.tolist()) == ([1, 2], [0, 1])
    both = make_run(nn.Identity(), [ColOut(input_key=[0, 1], resize_target=False)])
    both.state.batch = (numbered(2, 3, 8, 8), numbered(2, 3, 8, 8))
    with pytest.raises(TypeError, match="single input tensor"):
        both.fire(Event.AFTER_DATALOADER)
    alone = make_run(nn.Identity(), [ColOut(input_key="x", resize_target=False)])
    alone.state.batch = {"x": numbered(2, 3, 8, 8)}
    alone.fire(Event.AFTER_DATALOADER)
    assert alone.state.batch["x"].shape == (2, 3, 6, 6)
