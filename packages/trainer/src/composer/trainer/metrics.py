"""Training metrics: reset, update, compute. Nothing runs for a model that has none."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from composer.core.model import ComposerModel
from composer.core.precision import get_precision_context
from composer.utils.iteration import map_collection
from composer.utils.modules import model_eval_mode

if TYPE_CHECKING:
    from composer.core.state import State
    from composer.core.types import Batch

__all__ = ["TrainMetrics", "metrics_device", "metrics_to_device", "original_model"]


def original_model(model: torch.nn.Module) -> ComposerModel:
    """Return the user's model from inside a data-parallel wrapper.

    Args:
        model: The model, wrapped or not.

    Returns:
        The user's model.

    Example:
        >>> original_model(torch.nn.Linear(1, 1))
        Linear(in_features=1, out_features=1, bias=True)
    """
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return model.module
    return model  # type: ignore[return-value]


def metrics_device(state: State) -> torch.device:
    """Return where metrics are kept.

    Args:
        state: The state of the run.

    Returns:
        The run's device; the host for MPS, which lacks the operations that metrics use.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> metrics_device(State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU()))
        device(type='cpu')
    """
    if state.device.name == "mps":
        return torch.device("cpu")
    return state.device.torch_device


def metrics_to_device(metrics: Mapping[str, Any], state: State) -> dict[str, Any]:
    """Move metrics to where they are kept.

    Args:
        metrics: Name to metric.
        state: The state of the run.

    Returns:
        Name to moved metric.

    Example:
        >>> metrics_to_device({}, None)
        {}
    """
    return {name: metric.to(metrics_device(state)) for name, metric in metrics.items()}


class TrainMetrics:
    """Updates a run's training metrics with the outputs that training computed anyway.

    Args:
        state: The state of the run.

    Example:
        >>> TrainMetrics.__name__
        'TrainMetrics'
    """

    active: bool

    def __init__(self, state: State) -> None:
        self._state = state
        self.refresh()

    def refresh(self) -> None:
        """Read again which metrics there are."""
        state = self._state
        self.active = bool(state.train_metrics)
        self._model = original_model(state.model)
        # A model with an `eval_forward` of its own may run its layers again, which must not touch
        # the statistics of batch norm; for the others the outputs are used as they are.
        own = type(self._model).eval_forward is not ComposerModel.eval_forward
        self._reruns = own and not getattr(type(self._model), "eval_forward_uses_outputs", False)
        self._to_host = state.device.name == "mps"

    def reset(self) -> None:
        """Start a batch."""
        for metric in self._state.train_metrics.values():
            metric.reset()

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
        precision = get_precision_context(state.precision, device_type=state.device.torch_type)
        with torch.no_grad(), mode, precision:
            outputs = model.eval_forward(piece, state.outputs)
            if self._to_host:
                outputs, piece = (map_collection(x, _to_host) for x in (outputs, piece))
            for metric in state.train_metrics.values():
                model.update_metric(piece, outputs, metric)


def _same(leaf: Any) -> Any:
    return leaf


def _to_host(leaf: Any) -> Any:
    return leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf
