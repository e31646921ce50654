"""What of an older checkpoint came over, and what of it a run takes: said once, in one report."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from composer.checkpoint.layout import RNG, STATE

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["REPORT", "LoadReport", "counted", "fit_to_run"]

log = logging.getLogger(__name__)

#: Key of the report in a converted checkpoint.
REPORT = "report"


@dataclass
class LoadReport:
    """What came over from a checkpoint of another release, and what did not.

    Attributes:
        source: What wrote the file.
        restored: Field of the state to what of it came over.
        not_restored: What was left out, each with the reason.
        notes: What else its user has to know.

    Example:
        >>> report = LoadReport("Composer 0.32.1", {"model": "weights (2 tensors)"})
        >>> print(report)
        written by Composer 0.32.1
        restored:
          weights (2 tensors)
    """

    source: str
    restored: dict[str, str] = field(default_factory=dict)
    not_restored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"written by {self.source}"]
        for title, items in (
            ("restored", list(self.restored.values())),
            ("not restored", self.not_restored),
            ("note", self.notes),
        ):
            if items:
                lines += [f"{title}:", *(f"  {item}" for item in items)]
        return "\n".join(lines)

    def announce(self) -> None:
        """Log what came over, and warn once about what did not.

        Example:
            >>> LoadReport("Composer 0.32.1").announce()
        """
        log.info("the checkpoint was %s", self)
        if self.not_restored:
            warnings.warn(
                f"the checkpoint was written by {self.source}; not restored: "
                + "; ".join(self.not_restored),
                stacklevel=2,
            )


def counted(things: Collection[Any], word: str) -> str:
    """Write how many there are.

    Args:
        things: What is counted.
        word: What one is called.

    Returns:
        Number and word.

    Example:
        >>> counted([1, 2], "tensor")
        '2 tensors'
    """
    return f"{len(things)} {word}{'s' if len(things) != 1 else ''}"


def fit_to_run(
    contents: dict[str, Any], state: State, *, weights_only: bool = False
) -> LoadReport | None:
    """Finish a conversion with what only the run knows, and make its report true for that run.

    Args:
        contents: What a file held, converted or not; a converted one is changed in place.
        state: The state of the run that it will be put into.
        weights_only: Whether only the weights will be.

    Returns:
        The report, to be announced once all is restored; ``None`` for a file of this library.

    Example:
        >>> fit_to_run({"format": 1, "state": {}}, None) is None
        True
    """
    report = contents.get(REPORT)
    if not isinstance(report, LoadReport):
        return None
    _drop_wrapper_prefix(contents, state.get_model_state_dict(), report)
    if weights_only:
        report.restored = {k: v for k, v in report.restored.items() if k == "model"}
        report.not_restored, report.notes = [], []
        return report
    kept = contents[STATE]
    for name in [n for n in report.restored if n != RNG and n not in kept]:
        del report.restored[name]
    if RNG not in contents:
        report.restored.pop(RNG, None)
    _fit_algorithms(kept, state, report)
    _fit_callbacks(kept, state, report)
    inside = kept.get("timestamp", {}).get("batch_in_epoch", 0)
    if inside and _is_shuffled(state.train_dataloader):
        report.not_restored.append(
            f"order of the data in this epoch: it was drawn by {report.source} from random streams "
            f"that cannot be drawn from again, so after {counted(range(inside), 'batch')} passed "
            f"over, some samples come twice in this epoch and others not at all"
        )
    return report


def _fit_algorithms(kept: Mapping[str, Any], state: State, report: LoadReport) -> None:
    entries = kept.get("algorithms") or []
    here = [type(a).__qualname__ for a in state.algorithms]
    restored = []
    for entry in entries:
        name = entry["type"]
        if name in here:
            here.remove(name)
            restored.append(name)
        elif entry["required"]:
            restored.append(f"{name} (applied again)")
        elif entry["plugin"] is None:
            report.not_restored.append(f"{name}: no plugin of that name is installed")
        else:
            report.not_restored.append(
                f"{name}: it is not among this run's algorithms, and the file does not hold its "
                f"arguments; pass it to go on with it"
            )
    report.restored.pop("algorithms", None)
    if restored:
        report.restored["algorithms"] = f"algorithms: {', '.join(restored)}"


def _fit_callbacks(kept: Mapping[str, Any], state: State, report: LoadReport) -> None:
    here = {type(c).__qualname__ for c in state.callbacks}
    stored = [entry["type"] for entry in kept.get("callbacks") or []]
    restored = [name for name in stored if name in here]
    report.restored.pop("callbacks", None)
    if restored:
        report.restored["callbacks"] = f"callbacks: {', '.join(restored)}"
    report.not_restored += [
        f"{name}: this run has no such callback" for name in stored if name not in here
    ]


def _is_shuffled(loader: Any) -> bool:
    sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    sampler = sampler or getattr(loader, "sampler", None)
    return isinstance(sampler, torch.utils.data.RandomSampler)


def _drop_wrapper_prefix(
    contents: dict[str, Any], own: Collection[str], report: LoadReport
) -> None:
    """Serves releases before 0.11 (2022), which kept the ``module.`` of a data-parallel wrapper.

    A model may have a child of that name itself, so the names of the run's model decide.
    Added 2026-11.
    """
    state = contents[STATE]
    model = state.get("model")
    prefix = "module."
    if not model or not all(name.startswith(prefix) for name in model):
        return
    bare = {name.removeprefix(prefix) for name in model}
    if len(bare & set(own)) <= len(set(model) & set(own)):
        return
    state["model"] = _renamed(model, prefix)
    for optimizer in state.get("optimizers") or []:
        saved = optimizer["state"]
        saved["state"] = _renamed(saved["state"], prefix)
        for group in saved["param_groups"]:
            group["params"] = [name.removeprefix(prefix) for name in group["params"]]
    report.notes.append("names: the `module.` of a data-parallel wrapper was taken off")


def _renamed(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in tree.items()}
