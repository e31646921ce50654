"""Hold an interrupted run of a recipe against a straight one, and name the first difference.

A run can only continue exactly if everything that shapes it is saved and restored: also what a
callback remembers, or a data set of one's own. This trains a recipe straight for a few batches,
trains it again and interrupts it, rebuilds everything from the recipe, loads, trains on, and
compares what happened in the order in which it happened.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from composer.core.event import Event
from composer.core.logger import LoggerDestination
from composer.core.time import Time, TimeUnit
from composer.recipes.config import Recipe, RecipeError
from composer.recipes.resolve import RecipeParts, resolve_recipe
from composer.recipes.run import (
    Progress,
    build_trainer,
    fit_recipe,
    in_folder,
    require_duration,
    without_outputs,
)

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["Verdict", "parse_points", "verify_resume"]

#: Logged values that a clock or the machine decides on.
_OF_THE_MACHINE = ("wct", "wall_clock", "throughput", "per_sec", "memory", "time/remaining")
_EDGES = frozenset({Event.INIT, Event.BEFORE_LOAD, Event.AFTER_LOAD, Event.FIT_START})
_UNITS = (TimeUnit.BATCH, TimeUnit.EPOCH)


@dataclass(frozen=True)
class Verdict:
    """What came of one point of interruption.

    Args:
        point: When the run was interrupted, such as ``"3ba"``.
        difference: The first thing that differs from the straight run; empty if nothing does.
        compared: How many things were compared.

    Example:
        >>> str(Verdict("3ba", "", 120))
        '3ba: equal (120 things compared)'
        >>> str(Verdict("3ba", "batch 4: learning rate of SGD group 0", 7))
        '3ba: DIFFERS, first in batch 4: learning rate of SGD group 0'
    """

    point: str
    difference: str
    compared: int

    def __str__(self) -> str:
        if self.difference:
            return f"{self.point}: DIFFERS, first in {self.difference}"
        return f"{self.point}: equal ({self.compared} things compared)"


def parse_points(text: str) -> list[Time[int]]:
    """Read points of interruption.

    Args:
        text: Times in batches or epochs, separated by commas.

    Returns:
        The times.

    Raises:
        ValueError: If one cannot be read, has another unit or is not positive.

    Example:
        >>> [str(point) for point in parse_points("3ba, 1ep")]
        ['3ba', '1ep']
    """
    points = []
    for word in text.split(","):
        try:
            point: Any = Time.from_timestring(word.strip())
        except ValueError as error:
            raise ValueError(
                f"{word.strip()!r} is not a point such as 3ba or 1ep: {error}"
            ) from None
        if point.unit not in _UNITS or point.value < 1:
            raise ValueError(f"{word.strip()!r} is not a point: give batches or epochs from 1 on")
        points.append(point)
    return points


# ---- what happened ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fact:
    """Something that happened: what it is called, and what it was."""

    name: str
    value: Any
    rows: tuple[Any, ...] = ()

    def difference(self, other: _Fact) -> str:
        if self.name != other.name:
            return f"{self.name}: in the resumed run there was {other.name} instead"
        rows = [i for i, (a, b) in enumerate(zip(self.rows, other.rows, strict=False)) if a != b]
        if rows and len(self.rows) == len(other.rows):
            which = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
            return f"{self.name}, samples {which}"
        return f"{self.name}: straight {_short(self.value)}, resumed {_short(other.value)}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _digest(value: Any) -> Any:
    """A short stand-in for a tensor; anything else as it is written."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    array = value.detach().cpu().contiguous()
    data = array.reshape(-1).view(torch.uint8).numpy().tobytes() if array.numel() else b""
    digest = hashlib.blake2b(data, digest_size=6).hexdigest()
    return f"{digest} {tuple(value.shape)} {value.dtype}"


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}/{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and len(value) <= 1000:
        for i, item in enumerate(value):
            yield from _leaves(item, f"{path}/{i}" if path else str(i))
    else:
        yield path, value


def _fingerprint(state: State) -> dict[str, Any]:
    from composer.core.persistence import collect

    found = {
        path: _digest(value)
        for path, value in _leaves(collect(state), "state")
        if not path.endswith("wct") and path != "state/run_name"
    }
    for name, digest in _streams():
        found[f"random stream {name}"] = digest
    return found


def _streams() -> list[tuple[str, Any]]:
    name, keys, *rest = np.random.get_state(legacy=True)
    found: list[tuple[str, Any]] = [
        ("python", hash(random.getstate())),
        ("numpy", (str(name), hash(np.asarray(keys).tobytes()), *map(float, rest))),
        ("torch", _digest(torch.get_rng_state())),
    ]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found.append(("cuda", _digest(torch.cuda.get_rng_state())))
    return found


class _Stopped(Exception):
    """The run came to where it is to end."""


@dataclass
class _Plan:
    """Where a run is to save or stop."""

    points: Sequence[Time[int]] = ()
    more: int = 0
    end: Time[int] | None = None
    interrupt: Time[int] | None = None
    duration: Time[int] | None = None


@dataclass
class _Recorder(LoggerDestination):
    """Writes down what happens, and ends the run where the plan says."""

    plan: _Plan
    save: Callable[[State], None] | None = None
    facts: list[_Fact] = field(default_factory=list)
    #: Point to the number of facts before it, and what the state was there.
    passed: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    at_start: dict[str, Any] = field(default_factory=dict)
    at_end: dict[str, Any] = field(default_factory=dict)
    batches: int = 0
    #: Where the plan ended the run; ``None`` if it came to its own end.
    ended: Time[int] | None = None
    _began: bool = False
    _all_passed_at: int | None = None

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        for name, value in metrics.items():
            if not any(word in name for word in _OF_THE_MACHINE):
                number = value.item() if isinstance(value, torch.Tensor) else value
                self.facts.append(_Fact(f"batch {step}: logged {name}", repr(number)))

    def run_event(self, event: Event, state: State, logger: Logger) -> None:
        if event in _EDGES:
            if event is Event.FIT_START:
                self.at_start = _fingerprint(state)
            return
        if not self._began:
            self.facts.clear()  # what was said before the first batch, such as settings
            self._began = True
        now = state.timestamp
        self.facts.append(_Fact(f"batch {now.batch.value}: event {event.value}", _counters(state)))
        if event is Event.BATCH_START:
            self._look_at_batch(state)
        elif event is Event.BATCH_CHECKPOINT:
            self.batches = now.batch.value
            self._arrive(TimeUnit.BATCH, state)
        elif event is Event.EPOCH_CHECKPOINT:
            self._arrive(TimeUnit.EPOCH, state)
        elif event is Event.FIT_END:
            self.at_end = _fingerprint(state)

    def _look_at_batch(self, state: State) -> None:
        batch = state.timestamp.batch.value
        for path, value in _leaves(state.batch, ""):
            rows: tuple[Any, ...] = ()
            if isinstance(value, torch.Tensor) and value.dim() and len(value) <= 4096:
                rows = tuple(_digest(row) for row in value)
            where = f" at {path}" if path else ""
            self.facts.append(_Fact(f"batch {batch}: data{where}", _digest(value), rows))
        for name, digest in _streams():
            self.facts.append(_Fact(f"batch {batch}: random stream {name}", digest))
        for optimizer in state.optimizers:
            for i, group in enumerate(optimizer.param_groups):
                name = f"learning rate of {type(optimizer).__name__} group {i}"
                self.facts.append(_Fact(f"batch {batch}: {name}", repr(float(group["lr"]))))

    def _arrive(self, unit: TimeUnit, state: State) -> None:
        now, plan = state.timestamp.get(unit), self.plan
        for point in plan.points:
            if _same(point, now):
                self.passed[str(point)] = (len(self.facts), _fingerprint(state))
        if _same(plan.interrupt, now):
            assert self.save is not None
            self.save(state)
            raise _Stopped
        if self._is_over(now):
            self.at_end, self.ended = _fingerprint(state), now
            raise _Stopped

    def _is_over(self, now: Time[int]) -> bool:
        plan = self.plan
        if plan.end is not None or plan.duration is not None:
            return _same(plan.end or plan.duration, now)
        if not plan.points or len(self.passed) < len({str(p) for p in plan.points}):
            return False
        if self._all_passed_at is None:
            self._all_passed_at = self.batches
        return now.unit is TimeUnit.BATCH and self.batches - self._all_passed_at >= plan.more


def _same(point: Time[int] | None, now: Time[int]) -> bool:
    # Times of different units cannot be compared.
    return point is not None and point.unit is now.unit and point.value == now.value


def _counters(state: State) -> str:
    now = state.timestamp
    return (
        f"epoch {now.epoch.value} batch {now.batch.value} sample {now.sample.value} "
        f"batch_in_epoch {now.batch_in_epoch.value} token {now.token.value}"
    )


# ---- runs -------------------------------------------------------------------------------------


@dataclass
class _Runs:
    """Makes runs of a recipe, each from nothing."""

    recipe: Recipe
    parts: RecipeParts
    folder: Path
    seed: int

    def run(self, plan: _Plan, *, load: Path | None = None, save: Path | None = None) -> _Recorder:
        from composer.checkpoint import save_checkpoint

        recorder = _Recorder(plan)
        if save is not None:
            recorder.save = lambda state: _ignore(save_checkpoint(state, str(save)))
        arguments = {**self.recipe.trainer, "load_path": None if load is None else str(load)}
        recipe = replace(self.recipe, trainer=arguments)
        parts = replace(self.parts, loggers=(lambda: recorder,))
        progress = Progress()
        trainer = build_trainer(recipe, parts, self.folder, self.seed, progress)
        try:
            fit_recipe(trainer, recipe, progress)
        except _Stopped:
            pass
        finally:
            trainer.close()
        return recorder


def _ignore(value: Any) -> None:
    """Drop a value."""


def verify_resume(
    recipe: Recipe,
    points: Sequence[Time[int]],
    *,
    duration: Time[int] | None = None,
    more: int = 5,
    seed: int | None = None,
    say: Callable[[str], None] = _ignore,
) -> list[Verdict]:
    """Compare interrupted runs of a recipe with a straight one.

    Loggers of the recipe are left out, and nothing is saved but in a temporary folder.

    Args:
        recipe: The recipe.
        points: When to interrupt, each in a run of its own.
        duration: How far to train, in batches or epochs; by default some batches beyond the points.
        more: How many batches beyond the last point.
        seed: The seed, instead of the recipe's.
        say: Receives a line for each step.

    Returns:
        A verdict for each point.

    Raises:
        RecipeError: If the recipe cannot be used, or ends before a point.

    Example:
        >>> from composer.recipes.config import parse_recipe
        >>> recipe = parse_recipe(
        ...     "{model: no_such_model, train_data: {dataset: x}, trainer: {}}", name="r"
        ... )
        >>> verify_resume(recipe, parse_points("3ba"))
        Traceback (most recent call last):
        composer.recipes.config.RecipeError: r, line 1: no model named 'no_such_model'...
    """
    from composer.utils.reproducibility import get_random_seed

    if seed is None:
        seed = recipe.seed if recipe.seed is not None else get_random_seed()
    with tempfile.TemporaryDirectory(prefix="composer-verify-") as name:
        folder = Path(name)
        recipe = without_outputs(in_folder(recipe, folder))
        require_duration(recipe)
        runs = _Runs(recipe, replace(resolve_recipe(recipe), loggers=()), folder, seed)
        say(f"{recipe.name} (seed {seed}): training straight")
        straight = runs.run(_Plan(points, more=more, duration=duration))
        say(f"{recipe.name}: {straight.batches} batches, {len(straight.facts)} things noted")
        for point in points:
            if str(point) not in straight.passed:
                raise RecipeError(
                    f"{recipe.where}: the straight run ended after {straight.batches} batches, "
                    f"before the point {point}; choose an earlier one or train longer"
                )
        return [_verify(runs, straight, point, say) for point in points]


def _verify(
    runs: _Runs, straight: _Recorder, point: Time[int], say: Callable[[str], None]
) -> Verdict:
    file = runs.folder / f"{point}.pt"
    end = straight.ended
    say(f"{point}: training up to the interruption")
    first = runs.run(_Plan(interrupt=point, end=end), save=file)
    place, there = straight.passed[str(point)]
    difference = _compare(straight.facts[:place], first.facts)
    if difference:
        reason = "two runs with the same seed are not equal even without an interruption"
        return Verdict(str(point), f"{difference} ({reason})", place)
    say(f"{point}: resuming")
    resumed = runs.run(_Plan(end=end), load=file)
    rest = straight.facts[place:]
    compared = len(rest) + len(straight.at_end) + len(there)
    difference = (
        _compare_states(there, resumed.at_start, loaded=True)
        or _compare(rest, resumed.facts)
        or _compare_states(straight.at_end, resumed.at_end, loaded=False)
    )
    return Verdict(str(point), difference, compared)


def _compare(straight: Sequence[_Fact], other: Sequence[_Fact]) -> str:
    for one, two in zip(straight, other, strict=False):
        if one != two:
            return one.difference(two)
    if len(straight) > len(other):
        return f"{straight[len(other)].name}: the resumed run ended before it"
    if len(straight) < len(other):
        return f"{other[len(straight)].name}: only the resumed run has it"
    return ""


def _compare_states(straight: Mapping[str, Any], other: Mapping[str, Any], *, loaded: bool) -> str:
    when = "right after loading" if loaded else "at the end"
    for path, value in straight.items():
        # Streams are restored, and the data entered, only when the first batch is asked for.
        if loaded and path.startswith(("random stream", "state/dataset_state")):
            continue
        if path not in other:
            return f"{path} {when}: missing in the resumed run"
        if other[path] != value:
            return f"{path} {when}: straight {_short(value)}, resumed {_short(other[path])}"
    return ""
