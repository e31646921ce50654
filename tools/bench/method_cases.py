"""What is timed of each method: written against names that this library and Composer 0.32 share.

The file is run by the Python of either: it times every case in turns with what the case is compared
with, a block of calls each, and prints the best times as JSON. ``methods.py`` calls it.
"""

from __future__ import annotations

import copy
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import composer.functional as cf

Call = Callable[[], Any]
F = nn.functional


@dataclass
class Case:
    """What is timed.

    Args:
        with_method: A step with the method, or the method's own arithmetic.
        without: A plain step; ``None`` for arithmetic alone.
    """

    with_method: Call
    without: Call | None = None


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        nn.MaxPool2d(2),
        *(nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.BatchNorm2d(128), nn.ReLU()),
        *(nn.Conv2d(128, 128, 3, padding=1), nn.GroupNorm(8, 128), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(128), nn.Dropout(0.5)),
        nn.Linear(128, 10),
    )


def images(size: int = 32, batch: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.rand(batch, 3, size, size, generator=generator),
        torch.randint(0, 10, (batch,), generator=generator),
    )


def step_of(model: nn.Module, optimizer: Any = None) -> Call:
    """A training step."""
    x, y = images()
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def surgery(name: str, **arguments: Any) -> Callable[[], Case]:
    def make() -> Case:
        model = network()
        getattr(cf, name)(model, **arguments)
        return Case(step_of(model), step_of(network()))

    return make


def clipping(kind: str) -> Callable[[], Case]:
    def make() -> Case:
        model = network()
        step_of(model)()

        def clip() -> None:
            cf.apply_gradient_clipping(model, kind, 0.1, fsdp_enabled=False)

        return Case(clip)

    return make


def average() -> Case:
    model = network()
    kept = copy.deepcopy(model)
    return Case(lambda: cf.compute_ema(model, kept, smoothing=0.99))


def ghosts() -> Case:
    layer = nn.Sequential(nn.BatchNorm2d(64))
    cf.apply_ghost_batchnorm(layer, ghost_batch_size=8)
    x = torch.randn(32, 64, 32, 32, requires_grad=True)
    return Case(lambda: layer(x).sum().backward())


def blurred() -> Case:
    layer = nn.Sequential(nn.Conv2d(64, 64, 3, stride=2, padding=1))
    cf.apply_blurpool(layer)
    x = torch.randn(32, 64, 32, 32, requires_grad=True)
    return Case(lambda: layer(x).sum().backward())


def selection() -> Case:
    model = network()
    x, y = images()

    def loss(outputs: Any, targets: Any, reduction: str = "mean") -> torch.Tensor:
        # 0.32 hands over a pair, as its models take batches.
        targets = targets[1] if isinstance(targets, (tuple, list)) else targets
        return F.cross_entropy(outputs, targets, reduction=reduction)

    def forward(inputs: Any) -> torch.Tensor:
        return model(inputs[0] if isinstance(inputs, (tuple, list)) else inputs)

    return Case(lambda: cf.select_using_loss(x, y, forward, loss, keep=0.5))


def mixed(name: str) -> Callable[[], Case]:
    def make() -> Case:
        x, y = images(size=64)
        return Case(lambda: getattr(cf, name)(x, y))

    return make


def mixed_targets(name: str) -> Callable[[], Case]:
    """A batch with its labels mixed, as the method does it between loader and loss."""

    def make() -> Case:
        from composer.loss.utils import ensure_targets_one_hot

        x, y = images(size=64)
        logits = torch.zeros(len(y), 10)

        def call() -> torch.Tensor:
            _, other, share = getattr(cf, name)(x, y)[:3]
            one, two = ensure_targets_one_hot(logits, y), ensure_targets_one_hot(logits, other)
            return share * two + (1 - share) * one

        return Case(call)

    return make


def on_images(name: str, **arguments: Any) -> Callable[[], Case]:
    def make() -> Case:
        x, _ = images(size=64)
        return Case(lambda: getattr(cf, name)(x, **arguments))

    return make


def resized() -> Case:
    x, y = images(size=64)
    return Case(lambda: cf.resize_batch(x, y, 0.5))


def on_a_picture(name: str) -> Callable[[], Case]:
    def make() -> Case:
        import numpy as np
        from PIL import Image

        pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        picture = Image.fromarray(pixels)
        return Case(lambda: getattr(cf, name)(picture))

    return make


def smoothed() -> Case:
    logits, (_, y) = torch.randn(512, 1000), images(batch=512)
    return Case(lambda: cf.smooth_labels(logits, y, smoothing=0.1))


def shortened(truncate: bool) -> Callable[[], Case]:
    def make() -> Case:
        ids = torch.randint(0, 100, (32, 512))
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
        return Case(lambda: cf.set_batch_sequence_length(dict(batch), 128, truncate=truncate))

    return make


def sharpness() -> Case:
    try:
        from composer.algorithms.sam import SAMOptimizer
    except ImportError:
        from composer.algorithms.sam.sam import SAMOptimizer
    model = network()
    x, y = images()
    optimizer = SAMOptimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))

    def closure(**_: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return Case(lambda: optimizer.step(closure), step_of(network()))


def depth() -> Case:
    from torchvision.models.resnet import Bottleneck

    def blocks() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1),
            *(Bottleneck(64, 16) for _ in range(4)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, 10),
        )

    model = blocks()
    cf.apply_stochastic_depth(model, "ResNetBottleneck", "block", 0.5, "uniform")
    return Case(step_of(model), step_of(blocks()))


def frozen() -> Case:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    cf.freeze_layers(model, optimizer, 1.0, freeze_start=0.0, freeze_level=0.5)
    return Case(step_of(model, optimizer), step_of(network()))


def schedule_free() -> Case:
    model = network()
    optimizer = cf.make_schedule_free(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    return Case(step_of(model, optimizer), step_of(network()))


CASES: dict[str, Callable[[], Case]] = {
    "activation_checkpointing": surgery("apply_activation_checkpointing", classes=["Conv2d"]),
    "augmix (a picture)": on_a_picture("augmix_image"),
    "blurpool (a convolution)": blurred,
    "blurpool": surgery("apply_blurpool"),
    "channels_last": surgery("apply_channels_last"),
    "colout (a batch)": on_images("colout_batch"),
    "cutmix (a batch)": mixed("cutmix_batch"),
    "cutmix (batch and targets)": mixed_targets("cutmix_batch"),
    "cutout (a batch)": on_images("cutout_batch"),
    "ema (an update)": average,
    "factorize": surgery("apply_factorization", min_channels=64, latent_channels=0.25),
    "ghost_batchnorm (a layer)": ghosts,
    "ghost_batchnorm": surgery("apply_ghost_batchnorm", ghost_batch_size=8),
    "gradient_clipping adaptive": clipping("adaptive"),
    "gradient_clipping norm": clipping("norm"),
    "gradient_clipping value": clipping("value"),
    "gyro_dropout": surgery(
        "apply_gyro_dropout", iters_per_epoch=100, max_epoch=10, p=0.5, sigma=256, tau=16
    ),
    "label_smoothing (512 x 1000)": smoothed,
    "layer_freezing (half)": frozen,
    "low_precision_groupnorm": surgery("apply_low_precision_groupnorm"),
    "low_precision_layernorm": surgery("apply_low_precision_layernorm"),
    "mixup (a batch)": mixed("mixup_batch"),
    "mixup (batch and targets)": mixed_targets("mixup_batch"),
    "progressive_resizing (a batch)": resized,
    "randaugment (a picture)": on_a_picture("randaugment_image"),
    "sam": sharpness,
    "schedule_free": schedule_free,
    "selective_backprop (selection)": selection,
    "seq_length_warmup reshape": shortened(truncate=False),
    "seq_length_warmup truncate": shortened(truncate=True),
    "squeeze_excite": surgery("apply_squeeze_excite", min_channels=64),
    "stochastic_depth": depth,
    "weight_standardization": surgery("apply_weight_standardization"),
}


def block(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def best(case: Case, blocks: int, seconds: float) -> tuple[float, float | None]:
    """The best of several blocks of the method, and of what it is compared with, in turns."""
    pair = [case.with_method] + ([] if case.without is None else [case.without])
    for call in pair:
        block(call, 3)
    calls = max(3, int(seconds / max(block(case.with_method, 3), 1e-6)))
    times: list[list[float]] = [[] for _ in pair]
    for _ in range(blocks):
        for found, call in zip(times, pair, strict=True):
            found.append(block(call, calls))
    least = [min(found) for found in times]
    return least[0], (least[1] if len(least) > 1 else None)


def main() -> None:
    wanted = sys.argv[1].split(",") if len(sys.argv) > 1 and sys.argv[1] else []
    blocks, seconds = int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for name, make in CASES.items():
        if wanted and not any(name.startswith(one) for one in wanted):
            continue
        try:
            found[name] = best(make(), blocks, seconds)
        except Exception as error:
            found[name] = (
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )
        print(".", end="", file=sys.stderr, flush=True)
    print(json.dumps({"torch": torch.__version__, "times": found}))


if __name__ == "__main__":
    main()
