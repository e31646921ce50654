"""Where a transform is put among those of a data set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from composer.utils import add_vision_dataset_transform

transforms = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
vision = pytest.importorskip("torchvision.datasets.vision")

CROP = transforms.CenterCrop(2)


class Folder(vision.VisionDataset):
    """A data set of torchvision."""


def plain(step: Any) -> Any:
    """Lists of transforms as lists, also inside others."""
    return [plain(inner) for inner in step.transforms] if hasattr(step, "transforms") else step


@pytest.mark.parametrize("compose", [transforms.Compose, v2.Compose])
@pytest.mark.parametrize(
    "converter",
    [
        transforms.ToTensor(),
        transforms.PILToTensor(),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        transforms.ConvertImageDtype(torch.float32),
        v2.Normalize([0.5], [0.5]),
    ],
    ids=lambda step: type(step).__name__,
)
def test_before_what_changes_type_or_range(compose: Any, converter: Any) -> None:
    given = compose([CROP, converter, CROP])
    data = SimpleNamespace(transform=given)
    add_vision_dataset_transform(data, max)
    assert plain(data.transform) == [CROP, max, converter, CROP]
    assert type(data.transform) is compose
    assert plain(given) == [CROP, converter, CROP]  # another data set may hold it


def test_inside_a_list_inside_a_list() -> None:
    to_tensor = transforms.ToTensor()
    inner = transforms.Compose([CROP, to_tensor])
    data = SimpleNamespace(transform=v2.Compose([CROP, inner, CROP]))
    add_vision_dataset_transform(data, max)
    assert plain(data.transform) == [CROP, [CROP, max, to_tensor], CROP]
    assert plain(inner) == [CROP, to_tensor]
    add_vision_dataset_transform(data, min, is_tensor_transform=True)
    assert plain(data.transform) == [CROP, [CROP, max, to_tensor, min], CROP]


def test_before_the_transforms_of_pretrained_weights() -> None:
    ready_made = pytest.importorskip("torchvision.models").ResNet18_Weights.DEFAULT.transforms()
    data = SimpleNamespace(transform=ready_made)
    add_vision_dataset_transform(data, max)
    assert data.transform.transforms == [max, ready_made]


@pytest.mark.parametrize("given", [None, CROP])
def test_both_places_of_a_dataset_of_torchvision(given: Any) -> None:
    data = Folder("nowhere", transform=given, target_transform=int)
    add_vision_dataset_transform(data, max)
    expected = max if given is None else [CROP, max]
    assert plain(data.transform) == expected
    assert plain(data.transforms.transform) == expected
    assert data.transforms.target_transform is int
    bare = Folder("nowhere")
    add_vision_dataset_transform(bare, len)
    assert bare.transforms("four", 1) == (4, 1)


def test_a_transform_of_image_and_target_is_refused() -> None:
    data = Folder("nowhere", transforms=v2.Compose([v2.ToImage()]))
    with pytest.raises(ValueError, match="image and target together"):
        add_vision_dataset_transform(data, max)
