"""The loss of a segmenter, next to torch's own over the same pixels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from composer.loss import DiceLoss
from composer.models import ComposerSegmenter, composer_deeplabv3


class _TwoHeads(torch.nn.Module):
    """Logits at half the size, and further ones at a quarter, as torchvision's models give them."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Conv2d(1, 3, 2, stride=2)
        self.aux = torch.nn.Conv2d(1, 3, 4, stride=4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.out(x), "aux": self.aux(x)}


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(-1, 3, (2, 8, 12), generator=generator)
    return torch.rand(2, 1, 8, 12, generator=generator), labels


@pytest.mark.parametrize("aux_weight", [0.0, 0.3])
def test_the_further_head_counts_by_its_weight(aux_weight: float) -> None:
    module = _TwoHeads()
    model = ComposerSegmenter(module, num_classes=3, aux_weight=aux_weight)
    images, labels = batch = _batch()

    def expected(head: torch.nn.Module) -> torch.Tensor:
        logits = F.interpolate(head(images), size=(8, 12), mode="bilinear")
        return F.cross_entropy(logits, labels, ignore_index=-1)

    torch.testing.assert_close(
        model.loss(model(batch), batch),
        expected(module.out) + aux_weight * expected(module.aux),
    )


def test_the_mixed_loss_of_deeplab_is_the_weighted_sum_of_both() -> None:
    pytest.importorskip("torchvision")
    model = composer_deeplabv3(
        3, backbone_arch="resnet50", cross_entropy_weight=0.5, dice_weight=2.0
    )
    _, labels = batch = _batch()
    logits = torch.randn(2, 3, 8, 12, generator=torch.Generator().manual_seed(1))
    dice = DiceLoss(softmax=True, batch=True, ignore_absent_classes=True)
    torch.testing.assert_close(
        model.loss({"out": logits}, batch),
        0.5 * F.cross_entropy(logits, labels, ignore_index=-1) + 2.0 * dice(logits, labels),
    )
