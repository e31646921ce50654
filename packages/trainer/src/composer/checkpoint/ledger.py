"""What a run has saved, in its own checkpoints, so that retention holds over resumption.

Names are relative to the folder, which may be moved. A list that was loaded is checked against what
is there: a checkpoint is data from elsewhere, and a name in it is deleted only if this run could
have written it.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from composer.checkpoint.retention import Record, Retention
from composer.utils.templates import matches_template

__all__ = ["Ledger"]

log = logging.getLogger(__name__)


class Ledger:
    """Lists checkpoints with their numbers, moments and scores.

    Args:
        retention: The rules by which they are kept.

    Example:
        >>> ledger = Ledger(Retention(keep_last=1))
        >>> for name in ("a.pt", "b.pt"):
        ...     _ = ledger.add(name, {"batch": 1}, None)
        >>> ledger.drop_surplus(), [record.name for record in ledger.records]
        (['a.pt'], ['b.pt'])
    """

    def __init__(self, retention: Retention) -> None:
        self.retention = retention
        self.records: list[Record] = []
        self.timestamps: dict[str, dict[str, Any]] = {}
        self._count = 0
        # Scores by other metrics: a later process may choose by one of them again.
        self._other_scores: dict[str, dict[str, float]] = {}

    @property
    def best(self) -> list[Record]:
        """The best checkpoints, the best first."""
        return [] if self.retention.best_metric is None else self.retention.best(self.records)

    @property
    def _rule(self) -> str:
        """By what the best are chosen now, in words; empty if they are not."""
        rules = self.retention
        return f"{rules.best_mode} of {rules.best_metric}" if rules.best_metric else ""

    def add(self, name: str, timestamp: Mapping[str, Any], score: float | None) -> Any:
        """Note that a checkpoint is being saved.

        Args:
            name: Its name.
            timestamp: The counters of the run.
            score: The metric of this moment, or ``None``.

        Returns:
            What :meth:`take_back` needs should the save fail.
        """
        before = self.records, self.timestamps, self._count
        same = next((r for r in self.records if r.name == name), None)
        index = self._count + 1 if same is None else same.index
        if score is None and same and same.timestamp.get("batch") == timestamp.get("batch"):
            score = same.score  # the same moment, saved again after a resumption
        record = Record(name, index, timestamp, score)
        self.records = [*(r for r in self.records if r.name != name), record]
        self.timestamps = {**self.timestamps, name: dict(timestamp)}
        self._count = max(self._count, index)
        return before

    def would_lose(self, name: str, timestamp: Mapping[str, Any], score: float | None) -> str:
        """Say which rule keeps a checkpoint of an earlier moment that has this very name.

        Args:
            name: The name of the one to come.
            timestamp: The counters of the run.
            score: The metric of this moment, or ``None``.

        Returns:
            The rule in words; empty if nothing is lost, or if the clock was set back, so that the
            run writes its checkpoints again.
        """
        same = next((r for r in self.records if r.name == name), None)
        if same is None or same.timestamp.get("batch", 0) >= timestamp.get("batch", 0):
            return ""
        rules = self.retention
        if rules.keep_every and same.index % rules.keep_every == 0:
            return f"keep_every={rules.keep_every}"
        if rules.best_metric is None:
            return ""
        # As if the one to come had a name of its own: it may well be the better one.
        coming = Record("", self._count + 1, timestamp, score)
        return f"best_metric={rules.best_metric!r}" * (same in rules.best([*self.records, coming]))

    def take_back(self, before: Any) -> None:
        """Forget a checkpoint that could not be saved.

        Args:
            before: What :meth:`add` returned.
        """
        self.records, self.timestamps, self._count = before

    def drop_surplus(self, *, elsewhere: bool = False) -> list[str]:
        """Take off the list what no rule keeps.

        Args:
            elsewhere: Whether somebody else keeps the newest.

        Returns:
            The names, oldest first.
        """
        surplus = [r.name for r in self.retention.surplus(self.records, elsewhere=elsewhere)]
        self.records = [r for r in self.records if r.name not in surplus]
        return surplus

    def state_dict(self) -> dict[str, Any]:
        """Return the list as plain types.

        Returns:
            Names, numbers, scores and timestamps.
        """
        scores = {r.name: r.score for r in self.records if r.score is not None}
        left = {r.name for r in self.records}
        others = {
            rule: {name: score for name, score in found.items() if name in left}
            for rule, found in self._other_scores.items()
        }
        return {
            "saved_checkpoints": [r.name for r in self.records],
            "timestamps": dict(self.timestamps),
            "count": self._count,
            "indices": {r.name: r.index for r in self.records},
            "scores": {**others, **({self._rule: scores} if self._rule else {})},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a list; see :meth:`keep_what_is_there`.

        Args:
            state: What :meth:`state_dict` returned.
        """
        names = list(state["saved_checkpoints"])
        indices = state.get("indices") or {name: i + 1 for i, name in enumerate(names)}
        by_rule = {rule: dict(found) for rule, found in (state.get("scores") or {}).items()}
        scores = by_rule.pop(self._rule, {}) if self._rule else {}
        self._other_scores = by_rule
        if self._rule and by_rule and names and not scores:
            log.warning(
                "the checkpoints that are there were scored by %s, so they do not compete by %s",
                ", ".join(by_rule),
                self._rule,
            )
        self.timestamps = dict(state["timestamps"])
        self._count = int(state.get("count", len(names)))
        self.records = [
            Record(name, int(indices.get(name, 0)), self.timestamps.get(name, {}), scores.get(name))
            for name in names
        ]

    def forget(self) -> None:
        """Empty a list that is another run's; the moments of what was ever saved stay known."""
        self.records, self._count = [], 0

    def keep_what_is_there(
        self, has: Callable[[str], bool], filename: str, *, run_name: str | None = None
    ) -> bool:
        """Drop what is gone, and names that this run could not have written.

        The best stay on the list under any name in the folder: another template does not make the
        model worse. Such a one is never deleted.

        Args:
            has: Says of a name whether there is such a file.
            filename: The template of this run's names.
            run_name: The name of the run; by default any could be.

        Returns:
            Whether one of the best was dropped; a warning says so.
        """
        best = self.best
        chosen = {r.name for r in best}
        self.records = [
            dataclasses.replace(r, own=own)
            for r in self.records
            if not _leaves(r.name)
            and ((own := matches_template(r.name, filename, run_name=run_name)) or r.name in chosen)
            and has(r.name)
        ]
        left = {r.name for r in self.records}
        gone = [r.name for r in best if r.name not in left]
        if gone:
            now = self.best
            warnings.warn(
                f"the best checkpoints by {self.retention.best_metric} were {gone}, which are no "
                f"longer there; the best is now {now[0].name if now else 'yet to come'}",
                stacklevel=3,
            )
        return bool(gone)


def _leaves(name: str) -> bool:
    """Whether a stored name is a path to somewhere else."""
    return Path(name).is_absolute() or ".." in Path(name).parts
