"""What it costs to come back to a late place in an epoch, next to an early one.

Trains a tiny model on samples in memory up to a batch, saves, and measures the time from a new
trainer to its first batch, with the items that were read. Target: the same time at both places, and
the items of one batch.

    python tools/bench/resume.py [--samples N] [--batches 10,100000] [--repeat N] [--only shuffled]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

EXAMPLES = """\
examples:
  python tools/bench/resume.py                          one million samples, batches 10 and 100,000
  python tools/bench/resume.py --only get_sampler --repeat 9
  python tools/bench/resume.py --samples 100000 --batches 10,20000
"""


class Samples(Dataset[Any]):
    """Samples that are made when they are asked for; counts how many were."""

    def __init__(self, size: int) -> None:
        self.size = size
        # Worker processes count too.
        self.reads = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.reads += 1
        return torch.full((4,), float(index % 7)), torch.tensor(index % 2)


def shuffled(data: Samples) -> Any:
    return DataLoader(data, batch_size=4, shuffle=True)


def get_sampler(data: Samples) -> Any:
    from composer.utils import dist

    return DataLoader(data, batch_size=4, sampler=dist.get_sampler(data, shuffle=True))


def in_order(data: Samples) -> Any:
    return DataLoader(data, batch_size=4)


def workers(data: Samples) -> Any:
    return DataLoader(data, batch_size=4, shuffle=True, num_workers=2, prefetch_factor=1)


CASES: dict[str, Callable[[Samples], Any]] = {
    "shuffled": shuffled,
    "get_sampler": get_sampler,
    "in order": in_order,
    "2 workers": workers,
}


class _FirstBatchError(Exception):
    """Ends a run at its first batch."""


def trainer_of(data: Samples, case: str, **settings: Any) -> Any:
    from composer.core.model import ComposerModel
    from composer.trainer import Trainer

    class Tiny(ComposerModel):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 2)

        def forward(self, batch: Any) -> torch.Tensor:
            return self.net(batch[0])

        def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(outputs, batch[1])

    model = Tiny()
    return Trainer(
        model=model,
        train_dataloader=CASES[case](data),
        optimizers=torch.optim.SGD(model.parameters(), lr=0.01),
        max_duration="1ep",
        progress_bar=False,
        seed=0,
        **settings,
    )


def checkpoint_at(batch: int, size: int, case: str, folder: Path) -> str:
    """Write the checkpoint of a run that was interrupted there, without training so long."""
    from datetime import timedelta

    from composer.core.callback import Callback
    from composer.core.timestamp import Timestamp

    class Save(Callback):
        def batch_start(self, state: Any, logger: Any) -> None:
            # The position is what the clock says.
            state.timestamp = Timestamp(
                batch=batch,
                batch_in_epoch=batch,
                sample=4 * batch,
                sample_in_epoch=4 * batch,
                total_wct=timedelta(0),
            )
            self.path = trainer.save_checkpoint(str(folder / f"{case}-{batch}.pt"))
            raise _FirstBatchError

    save = Save()
    trainer = trainer_of(Samples(size), case, callbacks=save)
    with contextlib.suppress(_FirstBatchError):
        trainer.fit()
    trainer.close()
    return str(save.path)


def resume(path: str, size: int, case: str) -> tuple[float, int]:
    """Seconds from a new trainer to the first batch, and the items read."""
    from composer.core.callback import Callback

    class End(Callback):
        def batch_start(self, state: Any, logger: Any) -> None:
            self.at = time.perf_counter()
            raise _FirstBatchError

    data, end = Samples(size), End()
    began = time.perf_counter()
    trainer = trainer_of(data, case, callbacks=end, load_path=path)
    with contextlib.suppress(_FirstBatchError):
        trainer.fit()
    reads = int(data.reads)
    trainer.close()
    return end.at - began, reads


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--samples", type=int, default=1_000_000, help="size of the data set")
    parser.add_argument("--batches", default="10,100000", help="an early and a late batch")
    parser.add_argument("--repeat", type=int, default=7, help="how often each is measured")
    parser.add_argument("--only", default="", help=f"comma-separated cases of {', '.join(CASES)}")
    arguments = parser.parse_args()
    early, late = (int(word) for word in arguments.batches.split(","))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{arguments.samples:,} samples, batches of 4; medians of {arguments.repeat}")
    print(f"{'case':<14}{f'at {early:,}':>12}{f'at {late:,}':>14}{'ratio':>8}{'items read':>16}")
    for case in [c for c in arguments.only.split(",") if c] or list(CASES):
        with tempfile.TemporaryDirectory() as name:
            times: dict[int, list[float]] = {early: [], late: []}
            reads: dict[int, int] = {}
            paths = {
                batch: checkpoint_at(batch, arguments.samples, case, Path(name))
                for batch in (early, late)
            }
            for turn in range(arguments.repeat + 1):
                for batch, path in paths.items():
                    seconds, reads[batch] = resume(path, arguments.samples, case)
                    if turn:  # the first is for imports and caches
                        times[batch].append(seconds)
        one, other = (statistics.median(times[batch]) for batch in (early, late))
        print(
            f"{case:<14}{one * 1e3:>9.0f} ms{other * 1e3:>11.0f} ms{other / one:>8.2f}"
            f"{f'{reads[early]} and {reads[late]}':>16}",
            flush=True,
        )


if __name__ == "__main__":
    main()
