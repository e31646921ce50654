"""What stopping on a metric needs, whichever rule decides: reading it and knowing which way is up.

Early stopping and stopping at a threshold differ in one line. Where the metric is found, when it is
new, and whether larger or smaller is better are the same questions, answered here once.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from composer.core.callback import Callback
from composer.utils.iteration import flatten_values
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["MetricStopper", "named_direction", "parse_comparison"]

log = logging.getLogger(__name__)

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "greater": operator.gt,
    "gt": operator.gt,
    "less": operator.lt,
    "lt": operator.lt,
}
_LESS_IS_BETTER = ("loss", "error", "perplexity", "entropy")
_GREATER_IS_BETTER = (
    "accuracy",
    "f1",
    "auroc",
    "auc",
    "iou",
    "jaccard",
    "dice",
    "precision",
    "recall",
    "score",
)


def parse_comparison(comp: str | Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Turn a comparison's name into a function.

    Args:
        comp: ``"greater"`` or ``"gt"``, ``"less"`` or ``"lt"``, or a function of the new and the
            old value, which gets tensors of no dimensions.

    Returns:
        The function.

    Raises:
        ValueError: If the name is unknown.
        TypeError: If it is neither a name nor a function.

    Example:
        >>> parse_comparison("greater")(0.9, 0.8)
        True
    """
    if isinstance(comp, str):
        if comp.lower() not in _COMPARISONS:
            raise ValueError(
                f"comp must be one of {', '.join(_COMPARISONS)} or a function, got {comp!r}."
                f"{did_you_mean(comp, _COMPARISONS)}"
            )
        return _COMPARISONS[comp.lower()]
    if not callable(comp):
        raise TypeError(f"comp must be a name or a function of two values, got {comp!r}")
    return comp


def named_direction(monitor: str) -> str | None:
    """Tell from a metric's name which way is better.

    Args:
        monitor: The name.

    Returns:
        ``"less"``, ``"greater"``, or ``None`` if the name does not tell.

    Example:
        >>> named_direction("Perplexity"), named_direction("MulticlassAccuracy")
        ('less', 'greater')
    """
    name = monitor.lower()
    if any(word in name for word in _LESS_IS_BETTER):
        return "less"
    if any(word in name for word in _GREATER_IS_BETTER):
        return "greater"
    return None


class MetricStopper(Callback):
    """Looks at one metric whenever it is new, and lets the subclass decide.

    Subclasses implement :meth:`check`, which calls :meth:`stop`, and set ``every_batch``. The value
    at which a run was stopped is saved in checkpoints. When such a run is continued, that value is
    judged once more before anything is trained: by the same settings the run stays stopped, by
    others it may go on.

    Args:
        monitor: The metric's name; of one that gives several values, with theirs: ``mAP/small``.
        dataloader_label: The label of the evaluator, or of the train dataloader.
        comp: Which way is better. If it is not given, what the metric itself declares
            (``higher_is_better``) counts, then its name; if neither tells, greater is taken to be
            better and a warning says so once.

    Example:
        >>> class Say(MetricStopper):
        ...     def check(self, value, state):
        ...         print(value.item())
        >>> stopper = Say("MulticlassAccuracy", "eval")
        >>> stopper.comp_func(0.9, 0.8)
        True
    """

    #: Whether a train metric is looked at after every batch, and not only after epochs.
    every_batch: bool = False
    #: How to go on with a run that was stopped; who makes one from other settings says which.
    remedy: str = "change its settings or leave it out"

    def __init__(
        self,
        monitor: str,
        dataloader_label: str,
        comp: str | Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self.monitor = monitor
        self.dataloader_label = dataloader_label
        self.comp_func = parse_comparison(comp or named_direction(monitor) or "greater")
        self._direction_known = comp is not None
        # The value that stopped the run, and whether it comes from a checkpoint.
        self._stopped_at: torch.Tensor | None = None
        self._resumed = False

    def check(self, value: torch.Tensor, state: State) -> None:
        """Decide on a new value.

        Args:
            value: The metric, a tensor of no dimensions.
            state: The training state.

        Raises:
            NotImplementedError: Unless a subclass implements it.

        Example:
            >>> MetricStopper("MulticlassAccuracy", "eval").check(torch.tensor(0.5), None)
            Traceback (most recent call last):
            NotImplementedError: MetricStopper does not decide when to stop
        """
        raise NotImplementedError(f"{type(self).__name__} does not decide when to stop")

    def stop(self, value: torch.Tensor, state: State) -> None:
        """End the run, and remember that this metric ended it.

        Args:
            value: The metric.
            state: The training state.

        Example:
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(stop_training=lambda: print("stopped"))
            >>> MetricStopper("MulticlassAccuracy", "eval").stop(torch.tensor(0.5), state)
            stopped
        """
        self._stopped_at = value
        log.info(
            "%s stops the run at %r of %r = %g (%s)",
            type(self).__name__,
            self.monitor,
            self.dataloader_label,
            value.item(),
            self.rule(),
        )
        state.stop_training()

    def rule(self) -> str:
        """Say by which setting the run is stopped, for messages.

        Returns:
            The setting and its value; a subclass that has none may leave it at this.

        Example:
            >>> MetricStopper("MulticlassAccuracy", "eval").rule()
            'by its own rule'
        """
        return "by its own rule"

    def init(self, state: State, logger: Logger) -> None:
        """Forget what another run left behind.

        Args:
            state: The training state.
            logger: Not used.

        Example:
            >>> MetricStopper("MulticlassAccuracy", "eval").init(None, None)
        """
        del state, logger
        self._stopped_at = None
        self._resumed = False

    def fit_start(self, state: State, logger: Logger) -> None:
        """Refuse a label or metric that the run does not have; keep a stopped run stopped.

        Args:
            state: The training state.
            logger: Not used.

        Raises:
            ValueError: If there is no data of this label, or it has no such metric.

        Example:
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(
            ...     evaluators=[SimpleNamespace(label="eval")], dataloader_label="train",
            ...     eval_metrics={"eval": {"MulticlassAccuracy": None}},
            ... )
            >>> MetricStopper("MulticlassAccuracy", "eval").fit_start(state, None)
        """
        del logger
        _, metric = self._find(self._metrics(state))
        value, resumed = self._stopped_at, self._resumed
        # Only a run that was loaded stays stopped: in the process that stopped it, the next call of
        # `fit` is the user's wish to go on.
        self._stopped_at, self._resumed = None, False
        if value is None or not resumed:
            return
        self._learn_direction(metric)
        self.check(value, state)
        if self._stopped_at is not None:
            log.warning(
                "%s had stopped this run at %r of %r = %g (%s) and would do so again, so nothing "
                "is trained; to go on, %s",
                type(self).__name__,
                self.monitor,
                self.dataloader_label,
                value.item(),
                self.rule(),
                self.remedy,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the value that stopped the run.

        Returns:
            ``stopped`` with what was monitored and its value; nothing while the run goes on.

        Example:
            >>> MetricStopper("MulticlassAccuracy", "eval").state_dict()
            {}
        """
        if self._stopped_at is None:
            return {}
        return {
            "stopped": {
                "monitor": self.monitor,
                "dataloader_label": self.dataloader_label,
                "value": self._stopped_at,
            }
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the value that stopped the run, unless another metric did.

        Args:
            state: What :meth:`state_dict` returned.

        Example:
            >>> stopper = MetricStopper("MulticlassAccuracy", "eval")
            >>> stopper.load_state_dict({})
            >>> stopper.state_dict()
            {}
        """
        stopped = state.get("stopped") or {}
        same = (stopped.get("monitor"), stopped.get("dataloader_label")) == (
            self.monitor,
            self.dataloader_label,
        )
        self._stopped_at = stopped["value"] if same else None
        self._resumed = same

    def eval_end(self, state: State, logger: Logger) -> None:
        """Look at an evaluator's metric.

        Args:
            state: The training state.
            logger: Not used.

        Example:
            >>> from types import SimpleNamespace
            >>> stopper = MetricStopper("MulticlassAccuracy", "eval")
            >>> stopper.eval_end(SimpleNamespace(dataloader_label="other"), None)
        """
        del logger
        if state.dataloader_label == self.dataloader_label:
            self._look(state.eval_metrics.get(self.dataloader_label, {}), state)

    def epoch_end(self, state: State, logger: Logger) -> None:
        """Look at a train metric after an epoch.

        Args:
            state: The training state.
            logger: Not used.

        Example:
            >>> from types import SimpleNamespace
            >>> stopper = MetricStopper("MulticlassAccuracy", "eval")
            >>> stopper.epoch_end(SimpleNamespace(dataloader_label="train"), None)
        """
        del logger
        if state.dataloader_label == self.dataloader_label:
            self._look(state.train_metrics, state)

    def batch_end(self, state: State, logger: Logger) -> None:
        """Look at a train metric after a batch, if asked to.

        Args:
            state: The training state.
            logger: Not used.

        Example:
            >>> from types import SimpleNamespace
            >>> stopper = MetricStopper("MulticlassAccuracy", "eval")
            >>> stopper.batch_end(SimpleNamespace(dataloader_label="train"), None)
        """
        del logger
        if self.every_batch and state.dataloader_label == self.dataloader_label:
            self._look(state.train_metrics, state)

    def _metrics(self, state: State) -> Mapping[str, Any]:
        labels = [evaluator.label for evaluator in state.evaluators]
        if self.dataloader_label in labels:
            return state.eval_metrics.get(self.dataloader_label, {})
        if self.dataloader_label == state.dataloader_label:
            return state.train_metrics
        known = [*labels, str(state.dataloader_label)]
        raise ValueError(
            f"{type(self).__name__} monitors {self.monitor!r} of "
            f"dataloader_label={self.dataloader_label!r}, but the run has data only under: "
            f"{', '.join(known)}.{did_you_mean(self.dataloader_label, known)}"
        )

    def _find(self, metrics: Mapping[str, Any] | None) -> tuple[str, Any]:
        metrics = metrics or {}
        # A metric of several values has them under its own name and theirs: `mAP/small`.
        for name, metric in metrics.items():
            if self.monitor == name or self.monitor.startswith(f"{name}/"):
                return name, metric
        known = ", ".join(metrics) or "none"
        raise ValueError(
            f"{type(self).__name__} monitors {self.monitor!r} of {self.dataloader_label!r}, "
            f"whose metrics are: {known}.{did_you_mean(self.monitor, metrics)}"
        )

    def _look(self, metrics: Mapping[str, Any] | None, state: State) -> None:
        name, metric = self._find(metrics)
        self._learn_direction(metric)
        values = flatten_values({name: metric.compute()})
        if self.monitor not in values:
            raise ValueError(
                f"{type(self).__name__} needs one number, but {name!r} gives {len(values)} of "
                f"them: {', '.join(values)}; monitor one of these."
                f"{did_you_mean(self.monitor, values)}"
            )
        # A copy, because a metric may return what it goes on adding to.
        value = torch.as_tensor(values[self.monitor]).detach().cpu().clone()
        self.check(value.reshape(()), state)

    def _learn_direction(self, metric: Any) -> None:
        if self._direction_known:
            return
        self._direction_known = True
        declared = getattr(metric, "higher_is_better", None)
        if declared is not None:
            self.comp_func = parse_comparison("greater" if declared else "less")
        elif named_direction(self.monitor) is None:
            warnings.warn(
                f"{type(self).__name__} cannot tell whether more or less of {self.monitor!r} is "
                "better and takes more to be; say comp='greater' or comp='less'",
                UserWarning,
                stacklevel=2,
            )
