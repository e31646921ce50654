"""Makes the checkpoints of this folder with Composer 0.32; see README.md for how to run it.

It does not use this repository: `composer` is the original library here. Beside each checkpoint
goes what that library itself said about the run, so that the tests have a truth of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

TARGET = Path(__file__).resolve().parent


def data(samples: int = 24, shape: tuple[int, ...] = (4,)) -> TensorDataset:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(samples, *shape, generator=generator)
    return TensorDataset(x, torch.randint(0, 3, (samples,), generator=generator))


def mlp() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 3)
    )


def convolutional() -> torch.nn.Module:
    torch.manual_seed(4)
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 3),
    )


def digest(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    return {
        name: hashlib.sha256(t.detach().contiguous().numpy().tobytes()).hexdigest()
        for name, t in tensors.items()
    }


def main() -> None:
    import composer
    from composer import Callback, Evaluator, Trainer
    from composer.algorithms import (
        EMA,
        BlurPool,
        ColOut,
        GradientClipping,
        LabelSmoothing,
        StochasticDepth,
    )
    from composer.callbacks import EarlyStopper, LRMonitor, SpeedMonitor
    from composer.models import ComposerClassifier
    from composer.optim import CosineAnnealingWithWarmupScheduler, DecoupledAdamW

    def built(settings: dict[str, Any]) -> dict[str, Any]:
        """Algorithms are made anew for each trainer."""
        make = settings.get("algorithms", list)
        return {**settings, "algorithms": make()}

    class Watch(Callback):
        """Notes what each batch did, and the weights that a checkpoint was made of."""

        def __init__(self) -> None:
            self.batches: list[dict[str, Any]] = []

        def batch_end(self, state: Any, logger: Any) -> None:
            del logger
            self.batches.append(
                {
                    "batch": int(state.timestamp.batch),
                    "lr": [g["lr"] for g in state.optimizers[0].param_groups],
                    "loss": float(state.loss),
                }
            )

    def run(
        name: str,
        rebuild: Callable[[], torch.nn.Module],
        make_optimizer: Any,
        *,
        save: str,
        total: str,
        dataset: TensorDataset | None = None,
        shuffle: bool = False,
        filename: str = "{name}.pt",
        **settings: Any,
    ) -> None:
        watch = Watch()
        schedule = settings.pop("torch_schedule", None)
        model = ComposerClassifier(rebuild(), num_classes=3)
        optimizer = make_optimizer(model)
        if schedule is not None:
            settings["schedulers"] = schedule(optimizer)
        loader = DataLoader(dataset or data(), batch_size=4, shuffle=shuffle)
        trainer = Trainer(
            model=model,
            train_dataloader=loader,
            optimizers=optimizer,
            max_duration=total,
            device="cpu",
            seed=11,
            run_name=name,
            progress_bar=False,
            callbacks=[watch, *settings.pop("callbacks", list)()],
            save_folder="saved",
            save_filename=name
            + "-ep{epoch}-ba{batch}"
            + Path(filename).name.removeprefix("{name}"),
            save_latest_filename=None,
            save_interval=save,
            **built(settings),
        )
        trainer.fit()
        state = trainer.state
        found = sorted(Path("saved").glob(f"{name}-*"), key=os.path.getmtime)
        first = found[0]
        target = TARGET / filename.replace("{name}", name)
        target.write_bytes(first.read_bytes())
        batch = int(first.name.split("-ba")[1].split(".")[0])
        truth: dict[str, Any] = {
            "library": composer.__version__,
            "torch": torch.__version__,
            "saved_after_batch": batch,
            "batches": watch.batches,
            "algorithms": [repr(a) for a in state.algorithms],
            "final_model": digest(dict(state.model.state_dict())),
            "final_values": {
                key: value.detach().double().flatten().tolist()
                for key, value in state.model.state_dict().items()
            },
        }
        if target.suffix == ".pt":
            # The original library's own way back: what its trainer holds after loading the file.
            fresh = ComposerClassifier(rebuild(), num_classes=3)
            optimizer = make_optimizer(fresh)
            if schedule is not None:
                settings["schedulers"] = schedule(optimizer)
            settings.pop("save_weights_only", None)
            again = Trainer(
                model=fresh,
                train_dataloader=DataLoader(dataset or data(), batch_size=4, shuffle=shuffle),
                optimizers=optimizer,
                max_duration=total,
                device="cpu",
                progress_bar=False,
                load_path=str(target),
                **built(settings),
            )
            stored = again.state.optimizers[0].state
            truth["loaded"] = {
                "model": digest(dict(again.state.model.state_dict())),
                "timestamp": {
                    key: int(getattr(again.state.timestamp, key))
                    for key in ("epoch", "batch", "sample", "batch_in_epoch", "sample_in_epoch")
                },
                "seed": again.state.rank_zero_seed,
                "lr": [g["lr"] for g in again.state.optimizers[0].param_groups],
                "optimizer": {
                    key: digest({k: v for k, v in stored[p].items() if v is not None})
                    for key, p in again.state.model.named_parameters()
                    if p in stored
                },
            }
            again.close()
        trainer.close()
        (TARGET / f"{name}.json").write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n")
        print(name, target.stat().st_size, first.name)

    def sgd(model: Any) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def adamw(model: Any) -> Any:
        decayed = [p for p in model.parameters() if p.ndim > 1]
        rest = [p for p in model.parameters() if p.ndim <= 1]
        return DecoupledAdamW(
            [{"params": rest, "weight_decay": 0.0}, {"params": decayed}],
            lr=0.01,
            betas=(0.9, 0.98),
            weight_decay=1e-5,
        )

    # The next batches of this one can be compared exactly: a constant rate and data in order.
    run("mid-epoch", mlp, sgd, save="4ba", total="2ep")
    run(
        "epoch-edge",
        mlp,
        adamw,
        save="1ep",
        total="2ep",
        shuffle=True,
        schedulers=CosineAnnealingWithWarmupScheduler(t_warmup="3ba"),
        algorithms=lambda: [
            LabelSmoothing(smoothing=0.1),
            GradientClipping(clipping_type="norm", clipping_threshold=1.0),
            EMA(half_life="2ba", update_interval="1ba"),
        ],
        callbacks=lambda: [
            LRMonitor(),
            SpeedMonitor(window_size=2),
            EarlyStopper("MulticlassAccuracy", "eval", patience="5ep"),
        ],
        eval_dataloader=Evaluator(label="eval", dataloader=DataLoader(data(8), batch_size=4)),
        save_metrics=True,
    )
    images = data(16, (2, 8, 8))
    run(
        "blurpool",
        convolutional,
        sgd,
        dataset=images,
        save="1ep",
        total="2ep",
        torch_schedule=lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=1, gamma=0.5),
        algorithms=lambda: [BlurPool(replace_convs=True, replace_maxpools=True, min_channels=2)],
    )
    run(
        "unknown",
        convolutional,
        sgd,
        dataset=images,
        save="1ep",
        total="1ep",
        algorithms=lambda: [
            StochasticDepth("ResNetBottleneck"),
            ColOut(p_row=0.1, p_col=0.1, batch=True),
        ],
    )
    run("weights-only", mlp, sgd, save="1ep", total="1ep", save_weights_only=True)
    run("compressed", mlp, sgd, save="1ep", total="1ep", filename="{name}.pt.gz")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # so that the files hold relative names only
        sys.exit(main())
