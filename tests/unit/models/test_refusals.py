"""What models, losses, metrics and counts refuse, one table per kind of mistake.

Each is found when the argument is given, or on the first batch, and named with what is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from composer.loss import (
    DiceLoss,
    binary_cross_entropy_with_logits,
    chunked_cross_entropy,
    language_cross_entropy,
    soft_cross_entropy,
)
from composer.loss.targets import loss_weight
from composer.metrics import (
    MAP,
    BinaryF1Score,
    CrossEntropy,
    Dice,
    LanguageCrossEntropy,
    LossMetric,
    MaskedAccuracy,
    MIoU,
    MulticlassAccuracy,
)
from composer.models import (
    ComposerClassifier,
    ComposerDetector,
    ComposerSegmenter,
    LanguageModel,
    composer_decoder,
    composer_diffusion,
    composer_resnet_cifar,
    composer_unet,
    mnist_model,
    resnet9,
)
from composer.models.diffusion import DiffusionModel
from composer.models.flops import count_flops, num_parameters

Call = Callable[[], Any]
Table = dict[str, tuple[Call, type[Exception], str]]


def parametrize(table: Table) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("call", "kind", "words"), table.values(), ids=table.keys())


def refuses(call: Call, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as info:
        call()
    assert type(info.value) is kind  # and no subclass, such as that of a bare KeyError


def ids(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.int64)


def conv() -> nn.Module:
    return nn.Conv2d(1, 2, 1)


# ---- arguments of another type, or out of range ---------------------------------------------

ARGUMENTS: Table = {
    "classifier loss": (
        lambda: ComposerClassifier(nn.Identity(), 2, loss_fn="ce"),  # type: ignore[arg-type]
        TypeError,
        "loss_fn='ce' must be a function.*loss_registry",
    ),
    "classifier classes": (
        lambda: ComposerClassifier(nn.Identity(), num_classes="3"),  # type: ignore[arg-type]
        TypeError,
        "num_classes='3' must be an integer",
    ),
    "classifier no class": (
        lambda: ComposerClassifier(nn.Identity(), num_classes=0),
        ValueError,
        "num_classes=0 must be at least 1",
    ),
    "segmenter loss": (
        lambda: ComposerSegmenter(conv(), 2, loss_fn=5),  # type: ignore[arg-type]
        TypeError,
        "loss_fn=5 must be a function",
    ),
    "segmenter weight": (
        lambda: ComposerSegmenter(conv(), 2, aux_weight=-1),
        ValueError,
        "aux_weight=-1 must be at least 0",
    ),
    "segmenter weight as text": (
        lambda: ComposerSegmenter(conv(), 2, aux_weight="x"),  # type: ignore[arg-type]
        TypeError,
        "aux_weight='x' must be a number",
    ),
    "segmenter label": (
        lambda: ComposerSegmenter(conv(), 2, ignore_index="x"),  # type: ignore[arg-type]
        TypeError,
        "ignore_index='x' must be an integer",
    ),
    "dice switch": (
        lambda: DiceLoss(sigmoid="no"),  # type: ignore[arg-type]
        TypeError,
        "sigmoid='no' must be True or False",
    ),
    "miou text": (lambda: MIoU("3"), TypeError, "num_classes='3' must be an integer"),  # type: ignore[arg-type]
    "miou half": (lambda: MIoU(2.5), TypeError, "num_classes=2.5 must be an integer"),  # type: ignore[arg-type]
    "dice none": (lambda: Dice(None), TypeError, "num_classes=None must be an integer"),  # type: ignore[arg-type]
    "miou label": (lambda: MIoU(2, None), TypeError, "ignore_index=None"),  # type: ignore[arg-type]
    "accuracy label": (
        lambda: MulticlassAccuracy(2, ignore_index="x"),  # type: ignore[arg-type]
        TypeError,
        "ignore_index='x'",
    ),
    "cross entropy label": (lambda: CrossEntropy("x"), TypeError, "ignore_index='x'"),  # type: ignore[arg-type]
    "token label": (
        lambda: LanguageCrossEntropy(ignore_index=1.5),  # type: ignore[arg-type]
        TypeError,
        "ignore_index=1.5",
    ),
    "masked label": (lambda: MaskedAccuracy("x"), TypeError, "ignore_index='x'"),  # type: ignore[arg-type]
    "metric switch": (
        lambda: BinaryF1Score("yes"),  # type: ignore[arg-type]
        TypeError,
        "dist_sync_on_step='yes'",
    ),
    "boxes switch": (lambda: MAP("yes"), TypeError, "class_metrics='yes'"),  # type: ignore[arg-type]
    "chunk as text": (
        lambda: chunked_cross_entropy(
            torch.zeros(1, 2, 4),
            torch.zeros(9, 4),
            ids(1, 2),
            chunk_size="3",  # type: ignore[arg-type]
        ),
        TypeError,
        "chunk_size='3' must be an integer",
    ),
    "chunk and a half": (
        lambda: chunked_cross_entropy(
            torch.zeros(1, 2, 4),
            torch.zeros(9, 4),
            ids(1, 2),
            chunk_size=2.5,  # type: ignore[arg-type]
        ),
        TypeError,
        "chunk_size=2.5 must be an integer",
    ),
    "temperature as text": (
        lambda: composer_decoder("tiny", 9).generate(ids(1, 2), 1, temperature="x"),
        TypeError,
        "temperature='x' must be a number",
    ),
    "temperature of none": (
        lambda: composer_decoder("tiny", 9).generate(ids(1, 2), 1, temperature=None),
        TypeError,
        "temperature=None must be a number",
    ),
    "temperature that is none": (
        lambda: composer_decoder("tiny", 9).generate(ids(1, 2), 1, temperature=float("nan")),
        ValueError,
        "temperature=nan must be at least 0",
    ),
    "stop as text": (
        lambda: composer_decoder("tiny", 9).generate(ids(1, 2), 1, stop_token="x"),
        TypeError,
        "stop_token='x' must be an integer",
    ),
    "decoder switch": (
        lambda: composer_decoder("tiny", 9, tie_embeddings="no"),  # type: ignore[arg-type]
        TypeError,
        "tie_embeddings='no' must be True or False",
    ),
    "decoder base": (
        lambda: composer_decoder("tiny", 9, rope_base="x"),  # type: ignore[arg-type]
        TypeError,
        "rope_base='x' must be a number",
    ),
    "initializers of a number": (
        lambda: mnist_model(initializers=5),  # type: ignore[arg-type]
        TypeError,
        "initializers=5 must be a list of names.*kaiming_normal",
    ),
    "initializers of a text": (
        lambda: resnet9(initializers="bn_ones", width=4),
        TypeError,
        "initializers='bn_ones' must be a list",
    ),
    "initializer unknown": (
        lambda: mnist_model(initializers=["bn_one"]),
        ValueError,
        'Did you mean "bn_ones"',
    ),
    "scale": (
        lambda: resnet9(logit_scale="x", width=4),  # type: ignore[arg-type]
        TypeError,
        "logit_scale='x' must be a number",
    ),
    "resnet of a number": (
        lambda: composer_resnet_cifar(5),  # type: ignore[arg-type]
        ValueError,
        "model_name=5 is unknown.*resnet_20",
    ),
    "resnet of half a width": (
        lambda: composer_resnet_cifar(width=2.5),  # type: ignore[arg-type]
        TypeError,
        "width=2.5 must be an integer",
    ),
    "unet of a text": (
        lambda: composer_unet("3"),  # type: ignore[arg-type]
        TypeError,
        "num_classes='3' must be an integer",
    ),
    "count of a number": (lambda: count_flops(5, None), TypeError, "model=5 must be a torch"),  # type: ignore[arg-type]
    "size of a number": (lambda: num_parameters(5), TypeError, "model=5 must be a torch"),  # type: ignore[arg-type]
    "count with a text": (
        lambda: count_flops(nn.Linear(1, 1), torch.zeros(1, 1), backward="no"),  # type: ignore[arg-type]
        TypeError,
        "backward='no' must be True or False",
    ),
    "count with a number": (
        lambda: count_flops(nn.Linear(1, 1), torch.zeros(1, 1), forward=5),  # type: ignore[arg-type]
        TypeError,
        "forward=5 must be a function",
    ),
}


@parametrize(ARGUMENTS)
def test_arguments(call: Call, kind: type[Exception], words: str) -> None:
    refuses(call, kind, words)


# ---- names of pretrained weights and of models, where a library has them --------------------


@pytest.mark.parametrize("weights", ["x", "IMAGENET1K_V9", 5, True])
def test_weights_that_torchvision_does_not_have(weights: Any) -> None:
    pytest.importorskip("torchvision")
    from composer.models import (
        composer_deeplabv3,
        composer_efficientnet,
        composer_resnet,
        composer_retinanet,
    )

    calls: dict[str, Call] = {
        "weights": lambda: composer_resnet("resnet18", weights=weights),
        "weights=": lambda: composer_efficientnet(weights=weights),
        "backbone_weights": lambda: composer_deeplabv3(2, "resnet50", backbone_weights=weights),
        "backbone_weights=": lambda: composer_retinanet(2, "resnet18", weights),
    }
    for argument, call in calls.items():
        words = (
            f"^{argument.strip('=')}={weights!r} is none of the weights of .*IMAGENET1K_V1.*None"
        )
        refuses(call, ValueError, words)


def test_the_words_that_torchvision_knows_are_accepted() -> None:
    models = pytest.importorskip("torchvision.models")
    from composer.models._torchvision import check_weights

    for word in (
        None,
        "DEFAULT",
        "IMAGENET1K_V2",
        "ResNet50_Weights.IMAGENET1K_V1",
        models.ResNet50_Weights.DEFAULT,
    ):
        check_weights("weights", word, "resnet50")
    refuses(
        lambda: check_weights("weights", models.ResNet18_Weights.DEFAULT, "resnet50"),
        ValueError,
        "is none of the weights of resnet50",
    )


def test_a_model_of_timm_is_a_name() -> None:
    pytest.importorskip("timm")
    from composer.models import composer_timm

    refuses(lambda: composer_timm(5), TypeError, "model_name=5 must be a name")  # type: ignore[arg-type]
    refuses(
        lambda: composer_timm("resnet10t", pretrained="no"),  # type: ignore[arg-type]
        TypeError,
        "pretrained='no' must be True or False",
    )


# ---- tensors of another shape, type or range -------------------------------------------------

LOGITS = torch.zeros(2, 3, 4)
TENSORS: Table = {
    "weights of classes": (
        lambda: soft_cross_entropy(torch.zeros(2, 3), ids(2), torch.ones(2)),
        ValueError,
        r"weight of shape \(2,\) must have the shape \(3,\)",
    ),
    "weights of classes and probabilities": (
        lambda: soft_cross_entropy(torch.zeros(2, 3), torch.full((2, 3), 1 / 3), torch.ones(1)),
        ValueError,
        r"weight of shape \(1,\) must have the shape \(3,\)",
    ),
    "weights as a list": (
        lambda: soft_cross_entropy(torch.zeros(2, 3), ids(2), [1.0, 1.0, 1.0]),  # type: ignore[arg-type]
        TypeError,
        "must be a tensor of one weight per class",
    ),
    "weights of questions": (
        lambda: binary_cross_entropy_with_logits(torch.zeros(2, 3), ids(2), torch.ones(2)),
        ValueError,
        r"weight of shape \(2,\) does not broadcast.*\(2, 3\)",
    ),
    "weights of answers": (
        lambda: binary_cross_entropy_with_logits(
            torch.zeros(2, 3), ids(2), pos_weight=torch.ones(1, 1, 3)
        ),
        ValueError,
        "pos_weight of shape",
    ),
    "labels as floats": (
        lambda: language_cross_entropy(LOGITS, torch.zeros(2, 3)),
        TypeError,
        "labels must be tokens, which are integers and not torch.float32",
    ),
    "labels as booleans": (
        lambda: chunked_cross_entropy(
            torch.zeros(1, 2, 4), torch.zeros(9, 4), torch.zeros(1, 2, dtype=torch.bool)
        ),
        TypeError,
        "integers and not torch.bool",
    ),
    "bias": (
        lambda: chunked_cross_entropy(
            torch.zeros(1, 2, 4), torch.zeros(9, 4), ids(1, 2), bias=torch.zeros(8)
        ),
        ValueError,
        r"bias of shape \(8,\) does not fit.*\(9,\)",
    ),
    "F1 of an ignored class": (
        lambda: BinaryF1Score().update(torch.zeros(2, 2), torch.tensor([0, -100])),
        ValueError,
        "target holds the class -100; accepted are 0 to 1",
    ),
    "F1 of a third class": (
        lambda: BinaryF1Score().update(torch.zeros(2, 2), torch.tensor([2, 0])),
        ValueError,
        "target holds the class 2; accepted are 0 to 1",
    ),
    "micro accuracy, too large": (
        lambda: MulticlassAccuracy(3).update(torch.zeros(2, 3), torch.tensor([7, 0])),
        ValueError,
        "target holds the class 7; accepted are 0 to 2",
    ),
    "micro accuracy, negative": (
        lambda: MulticlassAccuracy(3, ignore_index=-100).update(ids(2), torch.tensor([-1, -100])),
        ValueError,
        "target holds the class -1; accepted are 0 to 2 and ignore_index=-100",
    ),
    "macro accuracy, predictions": (
        lambda: MulticlassAccuracy(3, "macro").update(torch.tensor([5, 0]), torch.tensor([1, 0])),
        ValueError,
        "preds holds the class 5",
    ),
    "an unsigned byte is no -1": (
        lambda: MIoU(2).update(torch.zeros(1, 2, 2), torch.tensor([[0, 255]], dtype=torch.uint8)),
        ValueError,
        "targets holds the class 255",
    ),
    "a loss that is no tensor": (
        lambda: LossMetric(lambda preds, targets: 1.5).update(ids(2), ids(2)),  # type: ignore[arg-type,return-value]
        TypeError,
        "loss_function must return a tensor.*returned 1.5",
    ),
    "samples that nobody tells": (
        lambda: LossMetric(nn.functional.mse_loss).update(torch.tensor(1.0), torch.tensor(1.0)),
        TypeError,
        "cannot tell the number of samples",
    ),
    "mask": (
        lambda: composer_decoder("tiny", 9)({"input_ids": ids(2, 3), "attention_mask": ids(2, 4)}),
        ValueError,
        r"attention_mask of shape \(2, 4\) must have the shape of input_ids, \(2, 3\)",
    ),
    "documents": (
        lambda: composer_decoder("tiny", 9)({"input_ids": ids(2, 3), "document_ids": ids(1, 3)}),
        ValueError,
        r"document_ids of shape \(1, 3\)",
    ),
    "mask of labels that are made": (
        lambda: LanguageModel(nn.Embedding(3, 3)).num_loss_tokens(
            {"input_ids": ids(2, 3), "attention_mask": ids(1, 3)}
        ),
        ValueError,
        r"attention_mask of shape \(1, 3\)",
    ),
    "tokens in one row": (
        lambda: composer_decoder("tiny", 9)({"input_ids": ids(3)}),
        ValueError,
        r"input_ids of shape \(3,\) must have the shape \(N, T\)",
    ),
    "tokens as floats": (
        lambda: composer_decoder("tiny", 9)({"input_ids": torch.zeros(1, 3)}),
        TypeError,
        "input_ids must be tokens of the type int64 or int32 and not torch.float32",
    ),
    "count of frozen weights": (
        lambda: count_flops(
            nn.Linear(2, 2).requires_grad_(False), torch.zeros(1, 2), backward=True
        ),
        ValueError,
        "backward=True, but nothing .* requires a gradient",
    ),
    "one tensor for a pair": (
        lambda: ComposerClassifier(nn.Identity(), 2).for_inference(torch.zeros(2, 2)),
        TypeError,
        "pair of inputs and targets; got Tensor",
    ),
    "one tensor for images and maps": (
        lambda: ComposerSegmenter(conv(), 2).for_inference(torch.zeros(2, 1, 2, 2)),
        TypeError,
        "pair of inputs and targets; got Tensor",
    ),
    "one tensor for boxes": (
        lambda: ComposerDetector(nn.Identity(), CrossEntropy()).for_inference(torch.zeros(2)),
        TypeError,
        "pair of inputs and targets; got Tensor",
    ),
}


@parametrize(TENSORS)
def test_tensors(call: Call, kind: type[Exception], words: str) -> None:
    refuses(call, kind, words)


def test_frozen_weights_before_what_is_trained_are_counted() -> None:
    frozen = nn.Linear(2, 2).requires_grad_(False)
    inputs = torch.zeros(1, 2, requires_grad=True)
    # Forward, and the gradient of the inputs; none of the weights.
    assert count_flops(frozen, inputs, backward=True) == 2 * (2 * 2 * 2)


# ---- what a diffusion model is told ----------------------------------------------------------


@pytest.fixture(scope="module")
def pictures() -> Any:
    pytest.importorskip("diffusers")
    return composer_diffusion(8, 1, 10, width=8, multipliers=(1, 2), attention_levels=())


@pytest.mark.parametrize(
    ("labels", "kind", "words"),
    [
        (torch.tensor([3]), ValueError, r"labels of shape \(1,\) .* num_samples=2"),
        (torch.tensor(3), ValueError, r"labels of shape \(\) .* num_samples=2"),
        ([3, 4], TypeError, r"labels=\[3, 4\] must be a tensor"),
        (torch.tensor([3, 10]), ValueError, "labels hold the class 10; accepted are 0 to 9"),
        (torch.tensor([-1, 3]), ValueError, "labels hold the class -1; accepted are 0 to 9"),
        (torch.tensor([0.5, 3]), ValueError, "torch.float32 must be classes"),
    ],
)
def test_classes_of_pictures(pictures: Any, labels: Any, kind: Any, words: str) -> None:
    refuses(lambda: pictures.generate(2, num_steps=1, labels=labels), kind, words)


def test_a_scheduler_is_one_of_diffusers(pictures: Any) -> None:
    refuses(lambda: DiffusionModel(pictures.unet, "ddpm"), TypeError, "scheduler='ddpm' must be a")
    refuses(
        lambda: composer_diffusion(8, 1, multipliers=2),  # type: ignore[arg-type]
        TypeError,
        "multipliers=2 must be a sequence of integers",
    )


# ---- batches of nothing ----------------------------------------------------------------------


def test_pictures_of_nothing_are_refused(pictures: Any) -> None:
    batch = {"images": torch.zeros(0, 1, 8, 8), "labels": ids(0)}
    refuses(lambda: pictures(batch), ValueError, r"images of shape \(0, 1, 8, 8\) make an empty")


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
@pytest.mark.parametrize("chunk_size", [None, 4])
def test_tokens_of_nothing_give_what_torch_gives(
    shape: tuple[int, int], chunk_size: int | None
) -> None:
    """As of torch's own losses: no logits, a sum of zero, and a mean that is no number."""
    model = composer_decoder("tiny", 9, num_kv_heads=2, chunk_size=chunk_size)
    batch = {"input_ids": ids(*shape)}
    assert model.eval_forward(batch).shape == (*shape, 9)
    assert model.num_loss_tokens(batch) == 0
    assert model.loss(model(batch), batch, reduction="sum") == 0
    expected = nn.functional.cross_entropy(torch.zeros(0, 9), ids(0))
    torch.testing.assert_close(model.loss(model(batch), batch), expected, equal_nan=True)
    batch["attention_mask"] = ids(*shape)
    assert model.eval_forward(batch).shape == (*shape, 9)


def test_an_empty_batch_adds_nothing_to_a_mean() -> None:
    metric = LossMetric(nn.functional.mse_loss)
    metric.update(torch.zeros(0, 3), {"values": torch.zeros(0, 3)}["values"])
    assert metric.total == 0
    metric.update(torch.full((2,), 3.0), torch.zeros(2))
    assert metric.compute() == 9.0


# ---- unsigned targets ------------------------------------------------------------------------

UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_targets_are_those_numbers(dtype: torch.dtype) -> None:
    """156 is -100 as a byte, and 255 is -1; neither is an ignored target."""
    targets = torch.tensor([[0, 1], [1, 156]])
    logits = torch.randn(2, 160, 2, generator=torch.Generator().manual_seed(0))
    same = targets.to(dtype)
    torch.testing.assert_close(
        DiceLoss(softmax=True)(logits, same), DiceLoss(softmax=True)(logits, targets)
    )
    assert loss_weight(same, -100) == 4
    tokens = logits.transpose(1, 2)
    torch.testing.assert_close(
        language_cross_entropy(tokens, same), language_cross_entropy(tokens, targets)
    )
    for make in (MaskedAccuracy, LanguageCrossEntropy):
        metric, other = make(), make()
        metric.update(tokens, same)
        other.update(tokens, targets)
        assert torch.equal(metric.compute(), other.compute())
    score = BinaryF1Score()
    score.update(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 0]).to(dtype))
    assert score.compute() == pytest.approx(2 / 3)
    regions, wide = MIoU(160), MIoU(160)
    regions.update(logits, same)
    wide.update(logits, targets)
    assert torch.equal(regions.compute(), wide.compute())
