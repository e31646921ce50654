"""What the trainer costs per step over the bare torch loop.

Prints, for several settings, the Python bytecodes per step (which repeat exactly) and the ratio of
CPU times, measured in turns with the raw loop in one process.

    python tools/bench/step.py [--blocks N] [--only lean,default]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from measure import STEPS_PER_BLOCK, Batches, OpcodeCounter, Paired, RawLoop, tiny


def model_of() -> Any:
    from composer.core.model import ComposerModel

    class Tiny(ComposerModel):
        def __init__(self) -> None:
            super().__init__()
            self.net = tiny()

        def forward(self, batch: Any) -> torch.Tensor:
            return self.net(batch[0])

        def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(outputs, batch[1])

    return Tiny()


def ten_callbacks() -> list[Any]:
    from composer.core.callback import Callback

    class Listens(Callback):
        def batch_start(self, state: Any, logger: Any) -> None: ...
        def batch_end(self, state: Any, logger: Any) -> None: ...

    return [Listens() for _ in range(10)]


def five_algorithms() -> list[Any]:
    from composer.core.algorithm import Algorithm

    class Never(Algorithm):
        def match(self, event: Any, state: Any) -> bool:
            return False

        def apply(self, event: Any, state: Any, logger: Any) -> None: ...

    return [Never() for _ in range(5)]


def loggers(kind: str, folder: str) -> Any:
    if kind == "file":
        from composer.loggers import FileLogger

        return FileLogger(filename=str(Path(folder) / "log.txt"), capture_stdout=False,
                          capture_stderr=False, overwrite=True)  # fmt: skip
    from composer.loggers import InMemoryLogger

    return InMemoryLogger()


# Name to (trainer settings, microbatches of the raw loop it is compared with, target ratio).
CASES: dict[str, tuple[dict[str, Any], int, float]] = {
    "lean": ({"progress_bar": False}, 1, 1.3),
    "default": ({}, 1, 1.6),
    "10 callbacks": ({"progress_bar": False, "callbacks": ten_callbacks}, 1, 1.5),
    "5 algorithms": ({"progress_bar": False, "algorithms": five_algorithms}, 1, 1.35),
    "4 microbatches": ({"progress_bar": False, "device_train_microbatch_size": 2}, 4, 1.3),
    "file": ({"progress_bar": False, "loggers": "file"}, 1, 1.45),
    "in memory": ({"progress_bar": False, "loggers": "memory"}, 1, 1.45),
}


def run(settings: dict[str, Any], steps: int, on_fetch: Any) -> None:
    from composer.trainer import Trainer

    model = model_of()
    with tempfile.TemporaryDirectory() as folder:
        made = {k: v() if callable(v) else v for k, v in settings.items()}
        if isinstance(made.get("loggers"), str):
            made["loggers"] = loggers(made["loggers"], folder)
        trainer = Trainer(
            model=model,
            train_dataloader=Batches(on_fetch=on_fetch).loader(),
            max_duration=f"{steps}ba",
            optimizers=torch.optim.SGD(model.parameters(), lr=0.01),
            seed=0,
            **made,
        )
        trainer.fit()
        trainer.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=40, help="blocks of steps a case, 6 or more")
    parser.add_argument("--only", default="", help="comma-separated cases")
    arguments = parser.parse_args()
    if arguments.blocks < 6:
        parser.error(f"--blocks {arguments.blocks} is too few for quartiles; give 6 or more")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    raw_counter = OpcodeCounter(20, 30)
    data = Batches(on_fetch=raw_counter.on_fetch)
    raw = RawLoop()
    raw.batches = iter(data.loader())
    raw.steps(40)
    print(f"raw loop: {raw_counter.per_step:.0f} bytecodes per step")
    print(f"{'case':<16}{'bytecodes':>10}{'ours':>7}{'ratio':>8}{'quartiles':>16}{'target':>8}")
    chosen = [c for c in arguments.only.split(",") if c] or list(CASES)
    for name in chosen:
        settings, microbatches, target = CASES[name]
        counter = OpcodeCounter(40, 50)
        run(settings, 60, counter.on_fetch)
        paired = Paired(RawLoop(microbatches))
        run(settings, STEPS_PER_BLOCK * arguments.blocks + 1, paired.on_fetch)
        s = paired.summary()
        quartiles = f"{s['low']:.2f} to {s['high']:.2f}"
        print(
            f"{name:<16}{counter.per_step:>10.0f}{counter.own_per_step():>7.0f}"
            f"{s['ratio']:>8.2f}{quartiles:>16}{target:>8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
