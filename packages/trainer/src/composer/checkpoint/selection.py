"""The value of one metric at the moment of a checkpoint, and never at another.

A value is remembered when an evaluation ends, together with the batch counter of that moment. A
checkpoint is scored only by a value of the same counter: neither an older one, nor that of the last
batch of something that goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from composer.utils.iteration import flatten_values
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["MetricWatch"]

_LOSSES = "loss/train/"


class MetricWatch:
    """Remembers the values of one metric.

    Args:
        name: Its name as logged: ``metrics/<label>/<name>``, for a metric that returns several
            numbers with the number's own name added (``metrics/eval/mAP/small``), or
            ``loss/train/total``.

    Example:
        >>> MetricWatch("metrics/eval/MulticlassAccuracy").name
        'metrics/eval/MulticlassAccuracy'
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._batch = -1
        self._value: float | None = None

    def start(self, state: State) -> None:
        """Forget what was seen, and make sure that the run has the metric.

        Args:
            state: The state of the run, with its evaluators.

        Raises:
            ValueError: If it has no such metric; those that it has are listed.
        """
        self._batch, self._value = -1, None
        known = self._known(state)
        if not any(self._belongs_to(name) for name in known) and not self.name.startswith(_LOSSES):
            raise self._unknown(known)

    def evaluated(self, state: State) -> None:
        """Look at the evaluation that just ended.

        Args:
            state: The state of the run, whose loader in use is the evaluated one.

        Raises:
            ValueError: If the metric gives no number of this name.
        """
        label = state.dataloader_label
        metrics = state.eval_metrics.get(str(label), {})
        for name, metric in metrics.items():
            logged = f"metrics/{label}/{name}"
            if self._belongs_to(logged):
                self._value = self._pick(flatten_values({logged: metric.compute()}))
                self._batch = int(state.timestamp.batch)

    def score(self, state: State) -> float | None:
        """Return the value of this moment.

        Args:
            state: The state of the run.

        Returns:
            The value, or ``None`` if there is none of this moment.

        Raises:
            ValueError: If there is no number of this name.
        """
        if self.name.startswith(_LOSSES):
            losses = dict(state.total_loss_dict)
            return self._pick(losses) if losses else None
        if self._batch == int(state.timestamp.batch):
            return self._value
        labels = {evaluator.label for evaluator in state.evaluators}
        label = str(state.dataloader_label)
        if label not in labels:
            for name, metric in state.train_metrics.items():
                logged = f"metrics/{label}/{name}"
                if self._belongs_to(logged) and int(state.timestamp.batch):
                    return self._pick(flatten_values({logged: metric.compute()}))
        return None

    def _belongs_to(self, metric: str) -> bool:
        return self.name == metric or self.name.startswith(metric + "/")

    def _pick(self, values: dict[str, Any]) -> float:
        if self.name not in values:
            raise self._unknown(values)
        try:
            return float(values[self.name])
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"best_metric={self.name!r} gives {values[self.name]!r}, which is not one number"
            ) from error

    def _known(self, state: State) -> list[str]:
        known = [
            f"metrics/{evaluator.label}/{name}"
            for evaluator in state.evaluators
            for name in state.eval_metrics.get(evaluator.label, {})
        ]
        known += [f"metrics/{state.dataloader_label}/{name}" for name in state.train_metrics]
        return [*known, f"{_LOSSES}total"]

    def _unknown(self, known: Iterable[str]) -> ValueError:
        names = list(known)
        return ValueError(
            f"best_metric={self.name!r} is nothing that this run computes; it computes: "
            f"{', '.join(names)}.{did_you_mean(self.name, names)}"
        )
