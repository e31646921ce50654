"""What a checkpoint costs: how long training is blocked, how long writing and reading take.

Everything is measured in turns in one process, on a model with the state of AdamW:

- the time for which an asynchronous save blocks the loop, next to a plain copy of the same tensors
  (`[t.clone() for t in tensors]`) and next to `torch.save` of them to the same disk;
- a save that blocks, with its hash, manifest and flush to the disk, next to `torch.save` and flush;
- reading with the comparison of the hash, next to a memory-mapped read of the same file.

Each figure is the median over the rounds, with the smallest and largest; ratios are those of the
medians. The first asynchronous save is listed by itself, since its memory is fresh from the system.
About 3.5 GB of memory for 100 million parameters.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

EXAMPLES = """examples:
  python tools/bench/checkpoint.py                  100 million parameters, 5 rounds
  python tools/bench/checkpoint.py --millions 10    a tenth of it, for a small machine
  python tools/bench/checkpoint.py --folder /data   on another disk
"""
_SIDE = 2048


def state_of(millions: float) -> Any:
    """A state with a model of about so many parameters, and AdamW after a step."""
    from composer.core.state import State
    from composer.devices import DeviceCPU

    layers = max(1, round(millions * 1e6 / _SIDE**2))
    model = torch.nn.Sequential(*(torch.nn.Linear(_SIDE, _SIDE, bias=False) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        parameter.grad = None
    return State(model, 0, "bench", DeviceCPU(), optimizers=optimizer, max_duration="1ep")


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


class Times:
    """Seconds by name."""

    def __init__(self) -> None:
        self.of: dict[str, list[float]] = {}

    def take(self, name: str, function: Callable[[], Any]) -> None:
        gc.collect()
        begin = time.perf_counter()
        result = function()
        self.of.setdefault(name, []).append(time.perf_counter() - begin)
        del result

    def median(self, name: str) -> float:
        return statistics.median(self.of[name])

    def line(self, name: str, against: dict[str, str]) -> str:
        found = self.of[name]
        text = f"{name:<26}{self.median(name):>8.3f} s{min(found):>9.3f}{max(found):>8.3f}"
        ratios = [f"{self.median(name) / self.median(n):.2f} x {s}" for n, s in against.items()]
        return text + ("   = " + ", ".join(ratios) if ratios else "")


def copy_of(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in tensors]


def torch_save(contents: Any, path: Path) -> None:
    with path.open("wb") as file:
        torch.save(contents, file)
        file.flush()
        os.fsync(file.fileno())


def touch(contents: Any) -> float:
    """Bring every page of the tensors in, as restoring them does."""
    copies = copy_of(tensors_in(contents))
    return float(sum(c.flatten()[0] for c in copies if c.numel()))


def measure(state: Any, folder: Path, rounds: int) -> Times:
    """All measurements, in turns."""
    from composer.callbacks import CheckpointSaver
    from composer.checkpoint import checkpoint_contents, read_checkpoint
    from composer.core.logger import Logger

    times, logger = Times(), Logger(state)
    behind = CheckpointSaver(folder / "async", "ba{batch}.pt", async_save=True)
    blocking = CheckpointSaver(folder / "sync", "ba{batch}.pt")
    for saver in (behind, blocking):
        saver.init(state, logger)
    plain = folder / "plain.pt"
    for number in range(rounds + 1):
        # Files of the round before are removed, and the disk is idle, before the clock starts.
        for old in [plain, *folder.glob("*/ba*.pt")]:
            old.unlink(missing_ok=True)
        os.sync()
        state.timestamp = state.timestamp.to_next_batch(1)
        contents = checkpoint_contents(state)
        times.take("plain copy", partial(copy_of, tensors_in(contents)))
        name = "asynchronous, blocked" if number else "the first, blocked"
        times.take(name, partial(behind.save, state, logger))
        times.take("asynchronous, the rest", partial(behind.wait, keep_memory=True))
        os.sync()
        times.take("torch.save and flush", partial(torch_save, contents, plain))
        os.sync()
        times.take("a save that blocks", partial(blocking.save, state, logger))
    del contents
    path = Path(blocking.saved_checkpoints[-1])
    behind.wait()  # gives its memory back
    for _ in range(rounds):
        times.take("read, hash compared", lambda: touch(read_checkpoint(path)))
        times.take(
            "memory-mapped read",
            lambda: touch(torch.load(path, weights_only=True, mmap=True)),
        )
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--millions", type=float, default=100, help="millions of parameters")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all measurements")
    parser.add_argument("--folder", default=None, help="where to write; a temporary folder")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    state = state_of(arguments.millions)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        times = measure(state, Path(folder), arguments.rounds)
        size = (Path(folder) / "plain.pt").stat().st_size
    count = sum(p.numel() for p in state.model.parameters())
    print(f"{count:,} parameters with AdamW, {size / 1e9:.2f} GB, {arguments.rounds} rounds")
    print(f"{'':<26}{'median':>10}{'least':>9}{'most':>8}")
    copy, save, mapped = "plain copy", "torch.save and flush", "memory-mapped read"
    print(times.line(copy, {}))
    print(times.line("the first, blocked", {copy: "the copy"}))
    print(times.line("asynchronous, blocked", {copy: "the copy", save: "torch.save"}))
    print(times.line("asynchronous, the rest", {}))
    print(times.line(save, {}))
    print(times.line("a save that blocks", {save: "torch.save"}))
    print(times.line(mapped, {}))
    print(times.line("read, hash compared", {mapped: "the mapped read"}))


if __name__ == "__main__":
    main()
