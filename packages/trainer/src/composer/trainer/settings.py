"""What the script asks for, next to what it asked for when a checkpoint was made.

A checkpoint keeps the settings of its script: options of the optimizers, of the schedules, and the
duration. A run that continues compares them with its own. What the script changed since then takes
effect, and is said; what training itself changed (a rate that an algorithm lowered, say) is not a
difference and continues as it was.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from composer.core.time import Time
from composer.trainer.rescheduling import TorchSchedule, leaves, parts
from composer.utils import dist
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = [
    "SettingsReport",
    "describe_schedule",
    "optimizer_settings",
    "reconcile_optimizers",
    "reconcile_schedules",
    "report_run",
]

log = logging.getLogger(__name__)

# What a scheduler counts, or has from its optimizer, is not a setting of its own.
_COUNTED = frozenset(
    {"last_epoch", "base_lrs", "T_cur", "T_i", "verbose", "step_count", "last_lr", "schedulers"}
    | {"get_lr_called_within_step", "is_initial"}
)


@dataclass
class SettingsReport:
    """The differences between stored and requested settings.

    Attributes:
        overrides: Settings that the script decides; ``None`` for all that it changed.
        strict: Whether a difference that nobody named is an error.
        lines: One per difference, and which of the two values is used.
        known: Every name that can be overridden.

    Example:
        >>> report = SettingsReport(overrides=None, strict=False)
        >>> report.note("lr", "lr", 0.1, 0.01)
        True
        >>> report.lines
        [('lr: stored 0.1, script 0.01', 'script')]
    """

    overrides: Sequence[str] | None
    strict: bool
    lines: list[tuple[str, str]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)

    def note(
        self,
        key: str,
        name: str,
        stored: Any,
        asked: Any,
        *,
        decided: bool = True,
        along: bool = False,
    ) -> bool:
        """Add a difference.

        Args:
            key: What ``load_overrides`` calls the setting.
            name: What the report calls it.
            stored: The stored value.
            asked: The script's.
            decided: Whether the stored value could be used at all.
            along: Whether the script's value is to be used together with another one, of which it
                is a consequence.

        Returns:
            Whether the script's value is to be used.
        """
        wins = not decided or along or self.overrides is None or key in self.overrides
        self.lines.append(
            (f"{name}: stored {stored}, script {asked}", "script" if wins else "checkpoint")
        )
        return wins

    def say(self, *, complete: bool = True) -> None:
        """Say all differences at once: every rank has the same, so rank zero speaks.

        Args:
            complete: Whether every name that can be overridden is known by now.

        Raises:
            ValueError: If an override names no setting, or in strict mode if there is a difference.
        """
        for key in self.overrides or ():
            if complete and key not in self.known:
                raise ValueError(
                    f"load_overrides names {key!r}, which is no setting of this run's optimizers "
                    f"and schedulers; known: {sorted(self.known)}."
                    f"{did_you_mean(key, sorted(self.known))}"
                )
        lines, self.lines = self.lines, []
        if not lines:
            return
        text = "the checkpoint's settings differ from the script's. "
        advice = (
            "load_overrides=[...] names those that the script decides, and load_overrides=[] lets "
            "the checkpoint decide"
        )
        if self.strict and self.overrides is None:
            text += "; ".join(line for line, _ in lines)
            raise ValueError(f"{text}. strict_mode=True does not go on with them; {advice}")
        text += "; ".join(f"{line} (the {used} is used)" for line, used in lines)
        if dist.get_global_rank() == 0:
            warnings.warn(f"{text}. {advice}", stacklevel=3)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return bool(torch.equal(torch.as_tensor(a), torch.as_tensor(b)))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


# ---- optimizers -------------------------------------------------------------------------------


def optimizer_settings(optimizers: Iterable[torch.optim.Optimizer]) -> list[list[dict[str, Any]]]:
    """Return the options of every parameter group, the learning rate as before any schedule.

    Args:
        optimizers: The optimizers.

    Returns:
        Per optimizer and group, option to value.

    Example:
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        >>> optimizer_settings([optimizer])[0][0]["lr"]
        0.1
    """
    found = []
    for optimizer in optimizers:
        groups = []
        for group in optimizer.param_groups:
            hidden = {"params", "param_names", "initial_lr"}
            if "base_momentum" in group:  # a cyclic schedule moves these, nobody set them
                hidden |= {"momentum", "betas"}
            options = {key: value for key, value in group.items() if key not in hidden}
            lr = group.get("initial_lr", group["lr"])
            options["lr"] = lr.detach().clone() if isinstance(lr, torch.Tensor) else lr
            groups.append(options)
        found.append(groups)
    return found


def reconcile_optimizers(
    state: State, asked: Sequence[Sequence[dict[str, Any]]], stored: Any, report: SettingsReport
) -> None:
    """Let the script's optimizer options win where they are to, and note what differs.

    Args:
        state: The state of the run, restored from the checkpoint.
        asked: What the script asks for; see :func:`optimizer_settings`. Where the checkpoint
            decides, its value is put here, so that a later run knows what this one went by.
        stored: What it asked for when the checkpoint was made; ``None`` if that is not known.
        report: Takes the differences.
    """
    actual = optimizer_settings(state.optimizers)
    if stored is None:
        stored = actual
    for optimizer, own, then, now in zip(state.optimizers, asked, stored, actual, strict=True):
        # Algorithms that were applied again may have added groups, about which nobody asked.
        for i, (mine, theirs, kept) in enumerate(zip(own, then, now, strict=False)):
            for key, value in list(mine.items()):
                report.known.add(key)
                if key not in theirs or key not in kept:
                    continue
                forced = report.overrides is not None and key in report.overrides
                if _same(value, kept[key] if forced else theirs[key]):
                    continue
                name = f"{key} of {type(optimizer).__name__} group {i}"
                if report.note(key, name, kept[key] if forced else theirs[key], value):
                    _override(state, optimizer, i, key, value)
                    continue
                mine[key] = theirs[key]  # a request that was turned down is none later on
                if key == "lr" and _same(kept[key], value):
                    # The stored run had no schedule, so the one that is new began at the script's.
                    _set_base(state, optimizer, i, theirs[key])


def _override(
    state: State, optimizer: torch.optim.Optimizer, index: int, key: str, value: Any
) -> None:
    group = optimizer.param_groups[index]
    if key != "lr":
        group[key] = value
        return
    before = group.get("initial_lr", group["lr"])
    scheduled = group["lr"] / before if before else 1.0
    if isinstance(group["lr"], torch.Tensor):  # a compiled or capturable step holds on to it
        group["lr"].copy_(torch.as_tensor(value) * scheduled)
    else:
        group["lr"] = value * scheduled
    _set_base(state, optimizer, index, value)


def _set_base(state: State, optimizer: torch.optim.Optimizer, index: int, value: Any) -> None:
    """Set the rate that the schedules of a group start from."""
    group = optimizer.param_groups[index]
    if "initial_lr" in group:
        group["initial_lr"] = value
    for scheduler in state.schedulers:
        for leaf in leaves(scheduler):
            bases = getattr(leaf, "base_lrs", None)
            if bases is not None and leaf.optimizer is optimizer:
                bases[index] = value


# ---- schedules --------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """A setting in a form that can be stored and compared, or ``None``."""
    if isinstance(value, Time):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def describe_schedule(schedule: Any) -> dict[str, Any]:
    """Return a schedule's settings by name.

    Args:
        schedule: A schedule of this library, a function of the state, or torch's.

    Returns:
        ``type`` and the settings, in plain types.

    Example:
        >>> from composer.optim import LinearScheduler
        >>> describe_schedule(LinearScheduler())["t_max"]
        '1.0dur'
    """
    name = getattr(schedule, "__qualname__", type(schedule).__qualname__)
    if not isinstance(schedule, LRScheduler):
        held = {k: v for k, v in getattr(schedule, "__dict__", {}).items() if k[0] != "_"}
        return {"type": name, **_plain_items(held)}
    # What a constructor was given may be kept under a private name, as SequentialLR's milestones.
    held = {k.lstrip("_"): v for k, v in schedule.state_dict().items()}
    held = {k: v for k, v in held.items() if k not in _COUNTED}
    described = {"type": name, **_plain_items(held)}
    if inner := parts(schedule):
        described["schedulers"] = [describe_schedule(part) for part in inner]
    return described


def _plain_items(held: Mapping[str, Any]) -> dict[str, Any]:
    return {key: plain for key, value in held.items() if (plain := _plain(value)) is not None}


def _same_kind(own: Mapping[str, Any], then: Mapping[str, Any]) -> bool:
    if own["type"] != then["type"]:
        return False
    if "schedulers" not in then:
        return True  # an earlier release did not store the parts of a schedule
    mine, theirs = own.get("schedulers", ()), then["schedulers"]
    return len(mine) == len(theirs) and all(map(_same_kind, mine, theirs))


def _kind(described: Mapping[str, Any]) -> str:
    """The type of a schedule, and those of its parts."""
    inner = ", ".join(_kind(part) for part in described.get("schedulers", ()))
    return f"{described['type']}({inner})" if inner else str(described["type"])


def _names(described: Mapping[str, Any]) -> set[str]:
    found = {key for key in described if key not in ("type", "schedulers")}
    return found.union(*(_names(part) for part in described.get("schedulers", ())))


def reconcile_schedules(
    schedules: Sequence[tuple[dict[str, Any], TorchSchedule | None]],
    stored: Sequence[Mapping[str, Any]] | None,
    report: SettingsReport,
) -> list[TorchSchedule] | None:
    """Let the script's schedule settings win where they are to, and note what differs.

    Schedules of this library are functions of the clock, so the script's are used in any case.

    Args:
        schedules: Per schedule its description as the script made it, and the scheduler if it is
            torch's, whose state was restored. Where the checkpoint decides, its value is put into
            the description.
        stored: The descriptions when the checkpoint was made; ``None`` if they are not known.
        report: Takes the differences.

    Returns:
        Those of torch's that the script changed, which are to be begun again; ``None`` if the
        schedules are of other kinds than the stored ones, so that all of them are.
    """
    for own, _ in schedules:
        report.known.update(_names(own))
    if stored is None:
        return []
    if len(schedules) != len(stored) or not all(
        _same_kind(own, then) for (own, _), then in zip(schedules, stored, strict=True)
    ):
        mine, theirs = [_kind(own) for own, _ in schedules], [_kind(then) for then in stored]
        report.note("schedulers", "schedulers", theirs, mine, decided=False)
        return None
    changed = []
    for (own, schedule), then in zip(schedules, stored, strict=True):
        if schedule is None:
            _reconcile_own(own, then, report)
        elif _reconcile_torch(own, then, schedule, report):
            changed.append(schedule)
    return changed


def _differing(own: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    return [k for k in own if k != "schedulers" and k in then and then[k] != own[k]]


def _reconcile_own(own: Mapping[str, Any], then: Mapping[str, Any], report: SettingsReport) -> None:
    for key in _differing(own, then):
        report.note(key, f"{key} of {own['type']}", then[key], own[key], decided=False)


def _reconcile_torch(
    own: dict[str, Any],
    then: Mapping[str, Any],
    schedule: TorchSchedule,
    report: SettingsReport,
    name: str = "",
) -> bool:
    """Compare one schedule and its parts; whether it is to be begun again."""
    name += own["type"]
    loaded = schedule.scheduler.state_dict()
    differing = _differing(own, then)
    # What torch keeps under a private name may follow from what it keeps under a public one.
    differing.sort(key=lambda key: key not in loaded)
    wins = False
    for key in differing:
        kept_as = key if key in loaded else f"_{key}"
        along = kept_as != key and wins
        if report.note(key, f"{key} of {name}", then[key], own[key], along=along):
            wins = True
        else:
            own[key] = then[key]
            schedule.fresh[kept_as] = loaded[kept_as]
    inner = zip(own.get("schedulers", ()), then.get("schedulers", ()), strict=False)
    for (mine, theirs), part in zip(inner, schedule.parts(), strict=False):
        wins |= _reconcile_torch(mine, theirs, part, report, f"{name}'s ")
    return wins


# ---- the run ----------------------------------------------------------------------------------


def report_run(asked: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """Say where single settings of the run differ from the stored ones; the script's are used.

    Args:
        asked: Name to value, as the script has it.
        stored: Name to value when the checkpoint was made.

    Returns:
        What was said, a line per setting.

    Example:
        >>> report_run({"max_duration": "2ep"}, {"max_duration": "2ep"})
        []
    """
    lines = [
        f"{name}: stored {stored[name]}, script {value} (the script is used)"
        for name, value in asked.items()
        if value is not None and stored.get(name) not in (None, value)
    ]
    if lines and dist.get_global_rank() == 0:
        # To train for longer is what one continues a run for, so this is no warning.
        log.warning("settings that changed since the checkpoint was made: %s", "; ".join(lines))
    return lines
