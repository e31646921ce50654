"""What methods for images do to quality, time and memory of a small real run.

    python tools/bench/method_quality.py [--only ema,mixup] [--epochs 8] [--seeds 2]

A ResNet-8 is trained on the embedded part of Fashion-MNIST with one method at a time, each run in a
process of its own on one thread. Time is that of the processor, so that what else the machine does
weighs less; memory is the most that the process held. Next to the plain run with the same seeds:
accuracy on the test images with half the distance between the best and the worst seed, and the
ratios of time and memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from typing import Any

#: Name of the row to a plugin and its arguments.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("", {}),
    "activation_checkpointing": ("activation_checkpointing", {"classes": "_BasicBlock"}),
    "augmix": ("augmix", {}),
    "blurpool": ("blurpool", {"min_channels": 8}),
    "channels_last": ("channels_last", {}),
    "colout": ("colout", {}),
    "cutmix": ("cutmix", {}),
    "cutout": ("cutout", {}),
    "ema": ("ema", {"half_life": "50ba", "update_interval": "5ba"}),
    "factorize": ("factorize", {"min_channels": 16, "latent_channels": 0.5}),
    "ghost_batchnorm": ("ghost_batchnorm", {}),
    "gradient_clipping": (
        "gradient_clipping",
        {"clipping_type": "norm", "clipping_threshold": 1.0},
    ),
    "label_smoothing": ("label_smoothing", {}),
    "layer_freezing": ("layer_freezing", {}),
    "mixup": ("mixup", {}),
    "progressive_resizing": ("progressive_resizing", {"initial_scale": 0.7}),
    "randaugment": ("randaugment", {}),
    "sam": ("sam", {}),
    "scale_schedule": ("scale_schedule", {"ratio": 0.5}),
    "selective_backprop": ("selective_backprop", {}),
    "squeeze_excite": ("squeeze_excite", {"min_channels": 8, "latent_channels": 8}),
    "stochastic_depth": (
        "stochastic_depth",
        {"target_layer_name": "ResNetBasicBlock", "drop_rate": 0.1},
    ),
    "swa": ("swa", {}),
    "weight_standardization": ("weight_standardization", {}),
}


def train(name: str, seed: int, epochs: int) -> None:
    """Train once; prints what was found as JSON."""
    import torch
    from torch.utils.data import DataLoader

    from composer import Trainer
    from composer.core import plugins
    from composer.models import composer_resnet_cifar
    from composer.optim import CosineAnnealingWithWarmupScheduler, DecoupledSGDW

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    fashion_mnist = plugins.load("composer.datasets", "fashion_mnist")
    pixels = fashion_mnist(split="train").images / 255.0
    mean, deviation = float(pixels.mean()), float(pixels.std())

    class Pictures(torch.utils.data.Dataset[Any]):
        """The images before they are normalised, where transforms of images have their place."""

        def __init__(self, split: str) -> None:
            self.items = fashion_mnist(split=split, normalize=False)
            self.transform: Any = None

        def __len__(self) -> int:
            return len(self.items)

        def __getitem__(self, index: int) -> Any:
            image, label = self.items[index]
            if self.transform is not None:
                image = self.transform(image)
            return (image - mean) / deviation, label

    model = composer_resnet_cifar("resnet_8", width=8, in_channels=1, num_classes=10)
    plugin, arguments = METHODS[name]
    algorithms = [plugins.load("composer.algorithms", plugin)(**arguments)] if plugin else []
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(Pictures("train"), 128, shuffle=True, drop_last=True),
        eval_dataloader=DataLoader(Pictures("test"), 500),
        max_duration=f"{epochs}ep",
        eval_interval="1dur",
        optimizers=DecoupledSGDW(
            model.parameters(), lr=0.4, momentum=0.9, nesterov=True, weight_decay=9e-4
        ),
        schedulers=CosineAnnealingWithWarmupScheduler(t_warmup="0.2dur"),
        algorithms=algorithms,
        seed=seed,
        progress_bar=False,
    )
    start = time.process_time()
    trainer.fit()
    seconds = time.process_time() - start
    trainer.close()
    metric = trainer.state.eval_metrics["eval"]["MulticlassAccuracy"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"accuracy": float(metric.compute()), "seconds": seconds, "memory": memory}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of methods, separated by commas")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--run", nargs=2, metavar=("METHOD", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        warnings.simplefilter("ignore")
        train(args.run[0], int(args.run[1]), args.epochs)
        return
    wanted = [n for n in METHODS if not args.only or n in args.only.split(",")]
    plain: dict[str, float] = {}
    print(f"{'method':28}{'accuracy':>10}{'half':>8}{'time':>8}{'memory':>8}")
    for name in ["plain", *(n for n in wanted if n != "plain")]:
        runs = []
        for seed in range(args.seeds):
            result = subprocess.run(
                [sys.executable, __file__, "--run", name, str(seed), "--epochs", str(args.epochs)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
            )
            if result.returncode:
                break
            runs.append(json.loads(result.stdout.splitlines()[-1]))
        if len(runs) < args.seeds:
            print(f"{name:28}failed, see above")
            continue
        mean = {key: statistics.fmean(run[key] for run in runs) for key in runs[0]}
        plain = plain or mean
        spread = max(run["accuracy"] for run in runs) - min(run["accuracy"] for run in runs)
        print(
            f"{name:28}{mean['accuracy']:>10.4f}{spread / 2:>8.4f}"
            f"{mean['seconds'] / plain['seconds']:>8.2f}{mean['memory'] / plain['memory']:>8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
