"""Training metrics: reset, update, compute. Nothing runs for a model that has none."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from composer.core.model import ComposerModel
from composer.core.precision import autocast_factory
from composer.utils.iteration import flatten_values, map_collection
from composer.utils.modules import model_eval_mode, unwrapped_model

if TYPE_CHECKING:
    from composer.core.state import State
    from composer.core.types import Batch

__all__ = ["TrainMetrics", "computed", "fresh_metrics", "to_host"]


def fresh_metrics(
    state: State, *, is_train: bool, patterns: Sequence[str] | None = None, owner: str = ""
) -> dict[str, Any]:
    """Copy the model's metrics and move them to where they are kept.

    Args:
        state: The state of the run.
        is_train: Whether they are for training or for evaluation.
        patterns: Searched without regard to case in the metrics' names; ``None`` keeps all.
        owner: Label of the evaluation set, for the message.

    Returns:
        Name to metric, on the device, or on the host where the device lacks operations they use.

    Raises:
        ValueError: If a pattern is none, or matches no metric.
    """
    model: Any = unwrapped_model(state.model)
    metrics = model.get_metrics(is_train=is_train)
    if patterns is not None:
        matching = {pattern: _matching(pattern, metrics, owner) for pattern in patterns}
        unused = [pattern for pattern, names in matching.items() if not names]
        if unused:
            raise ValueError(
                f"metric_names of evaluator {owner!r} holds {unused}, which match none of the "
                f"model's metrics {sorted(metrics)}"
            )
        kept = set().union(*matching.values())
        metrics = {name: metric for name, metric in metrics.items() if name in kept}
    for name, metric in metrics.items():
        if state.save_metrics and not callable(getattr(metric, "state_dict", None)):
            raise ValueError(
                f"save_metrics=True saves the state of metrics, and {name!r} "
                f"({type(metric).__name__}) has no `state_dict`; give it one, or leave "
                f"save_metrics out"
            )
    host = torch.device("cpu")
    where = host if state.device.metrics_on_host else state.device.torch_device
    return {name: copy.deepcopy(metric).to(where) for name, metric in metrics.items()}


def _matching(pattern: str, names: Iterable[str], owner: str) -> set[str]:
    """The names that a pattern is found in; a name in full always stands for itself too."""
    exact = {name for name in names if name == pattern}
    try:
        return exact | {name for name in names if re.search(pattern, name, re.IGNORECASE)}
    except re.error as error:
        if exact:
            return exact
        raise ValueError(
            f"metric_names of evaluator {owner!r} holds {pattern!r}, which is no regular "
            f"expression: {error}"
        ) from None


def computed(label: str | None, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Compute metrics under the names by which they are reported.

    Args:
        label: Label of the data.
        metrics: Name to metric.

    Returns:
        ``metrics/<label>/<name>`` to value; each number of a metric that gives several, in mappings
        and sequences, has its key or place added to the name.
    """
    values = {f"metrics/{label}/{name}": metric.compute() for name, metric in metrics.items()}
    return flatten_values(values)


def to_host(data: Any) -> Any:
    """Bring the tensors of a batch or of outputs to the host, without their gradients.

    Args:
        data: Tensors in containers of any kind.

    Returns:
        The same with tensors on the CPU.

    Example:
        >>> to_host({"x": torch.ones(1, requires_grad=True)})["x"].requires_grad
        False
    """
    return map_collection(data, lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x)


class TrainMetrics:
    """Updates a run's training metrics with the outputs that training computed anyway.

    Args:
        state: The state of the run.
    """

    active: bool

    def __init__(self, state: State) -> None:
        self._state = state
        self.active = bool(state.train_metrics)
        self._model: Any = unwrapped_model(state.model)
        # A model with an `eval_forward` of its own may run its layers again, which must not touch
        # the statistics of batch norm; for the others the outputs are used as they are.
        cls: Any = type(self._model)
        self._reruns = cls.eval_forward is not ComposerModel.eval_forward
        self._context = autocast_factory(state.precision, state.device.torch_type)

    def reset(self) -> None:
        """Start a batch."""
        for metric in self._state.train_metrics.values():
            metric.reset()

    def idle(self) -> TrainMetrics:
        """Return a twin that nothing is to be added to."""
        twin = copy.copy(self)
        twin.active = False
        return twin

    def keep(self, piece: Batch) -> Batch:
        """Return a microbatch as it is now, whatever algorithms put into it later.

        Args:
            piece: The microbatch.

        Returns:
            The same tensors in containers of their own.
        """
        return map_collection(piece, _same) if self._state.algorithms else piece

    def update(self, piece: Batch) -> None:
        """Add a microbatch, with the outputs of its training step.

        Args:
            piece: What :meth:`keep` returned.
        """
        state, model = self._state, self._model
        mode = model_eval_mode(model) if self._reruns else nullcontext()
        with torch.no_grad(), mode, self._context():
            outputs = model.eval_forward(piece, state.outputs)
            if state.device.metrics_on_host:
                outputs, piece = to_host(outputs), to_host(piece)
            for metric in state.train_metrics.values():
                model.update_metric(piece, outputs, metric)


def _same(leaf: Any) -> Any:
    return leaf
