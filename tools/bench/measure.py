"""Counting and pairing: what the benchmarks of this folder share.

Shared machines are noisy, so two figures are reported: the bytecodes per step, which repeat
exactly, and the CPU time as a ratio to a raw torch loop that runs in turns with what is measured,
in the same process, a block of steps each.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

STEPS_PER_BLOCK = 100


class Batches(Dataset[Any]):
    """Ready-made batches, served whole, that call back every so many fetches.

    The work of a loader is the same for everyone and small.
    """

    def __init__(self, size: int = 8, on_fetch: Callable[[int], None] | None = None) -> None:
        generator = torch.Generator().manual_seed(0)
        self.pool = [
            (
                torch.randn(size, 8, generator=generator),
                torch.randint(0, 8, (size,), generator=generator),
            )
            for _ in range(16)
        ]
        self.size = size
        self.fetched = 0
        self.on_fetch = on_fetch

    def __len__(self) -> int:
        return self.size * 10**6

    def __getitems__(self, indices: list[int]) -> Any:
        if self.on_fetch is not None:
            self.on_fetch(self.fetched)
        self.fetched += 1
        return self.pool[self.fetched % len(self.pool)]

    def loader(self) -> DataLoader[Any]:
        """A standard loader over the batches."""
        return DataLoader(self, batch_size=self.size, shuffle=False, collate_fn=lambda x: x)


def tiny() -> torch.nn.Module:
    """A linear layer of eight by eight: a step that is all overhead."""
    torch.manual_seed(0)
    return torch.nn.Linear(8, 8)


class RawLoop:
    """The bare torch loop over the same data, advanced a block at a time."""

    def __init__(self, microbatches: int = 1) -> None:
        self.model = tiny()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.batches: Iterator[Any] = iter(Batches().loader())
        self.microbatches = microbatches

    def steps(self, count: int) -> None:
        """Train on some batches."""
        model, optimizer, batches = self.model, self.optimizer, self.batches
        loss_of = torch.nn.functional.cross_entropy
        for _ in range(count):
            x, y = next(batches)
            optimizer.zero_grad()
            if self.microbatches == 1:
                loss_of(model(x), y).backward()
            else:
                pieces = self.microbatches
                for a, b in zip(x.chunk(pieces), y.chunk(pieces), strict=True):
                    (loss_of(model(a), b) / pieces).backward()
            optimizer.step()


class Paired:
    """Times blocks of somebody's loop in turns with blocks of the raw one.

    Give :meth:`on_fetch` to the data that the measured loop draws from.
    """

    def __init__(self, raw: RawLoop) -> None:
        self.raw = raw
        self.ratios: list[float] = []
        self.raw_us: list[float] = []
        self._started: float | None = None

    def on_fetch(self, fetched: int) -> None:
        """Close a block, run a raw one outside its time, and open the next."""
        if fetched % STEPS_PER_BLOCK:
            return
        now = time.process_time()
        if self._started is not None:
            mine = (now - self._started) / STEPS_PER_BLOCK
            before = time.process_time()
            with torch.enable_grad():
                self.raw.steps(STEPS_PER_BLOCK)
            raw = (time.process_time() - before) / STEPS_PER_BLOCK
            self.ratios.append(mine / raw)
            self.raw_us.append(raw * 1e6)
        self._started = time.process_time()

    def summary(self, skip: int = 3) -> dict[str, float]:
        """Median and quartiles of the ratios, without the first blocks."""
        low, middle, high = statistics.quantiles(self.ratios[skip:], n=4)
        return {"ratio": middle, "low": low, "high": high, "raw_us": min(self.raw_us)}


class OpcodeCounter:
    """Counts Python bytecodes between two fetches, by file."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.by_file: Counter[str] = Counter()

    def on_fetch(self, fetched: int) -> None:
        """Switch counting on at the first fetch and off at the last."""
        if fetched == self.first:
            frame: Any = sys._getframe()
            while frame is not None:
                frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self._trace, True, False
                frame = frame.f_back
            sys.settrace(self._trace)
        elif fetched == self.last:
            sys.settrace(None)

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.by_file[frame.f_code.co_filename] += 1
        else:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._trace

    @property
    def per_step(self) -> float:
        """Bytecodes per step."""
        return sum(self.by_file.values()) / (self.last - self.first)

    def own_per_step(self, marker: str = "/composer/") -> float:
        """Bytecodes per step in files whose path holds a marker."""
        own = sum(n for name, n in self.by_file.items() if marker in name)
        return own / (self.last - self.first)
