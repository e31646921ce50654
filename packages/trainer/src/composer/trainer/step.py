"""One optimizer step: microbatches, forward, loss, backward, update.

The update does not depend on how a batch is split: each microbatch's mean loss is weighted by its
share of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from composer.core.event import Event
from composer.core.precision import Precision, autocast_factory
from composer.core.types import Batch
from composer.trainer.metrics import TrainMetrics
from composer.utils.modules import unwrapped_model

if TYPE_CHECKING:
    from composer.core.data_spec import DataSpec
    from composer.core.engine import Engine
    from composer.core.state import State

__all__ = ["TrainStep", "reduce_loss"]

_BEFORE_TRAIN_BATCH = Event.BEFORE_TRAIN_BATCH
_BEFORE_FORWARD = Event.BEFORE_FORWARD
_AFTER_FORWARD = Event.AFTER_FORWARD
_BEFORE_LOSS = Event.BEFORE_LOSS
_AFTER_LOSS = Event.AFTER_LOSS
_BEFORE_BACKWARD = Event.BEFORE_BACKWARD
_AFTER_BACKWARD = Event.AFTER_BACKWARD
_AFTER_TRAIN_BATCH = Event.AFTER_TRAIN_BATCH

Loss = torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor]


def _mean(loss: torch.Tensor) -> torch.Tensor:
    return loss.mean() if loss.dim() else loss


def reduce_loss(loss: Loss) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Turn what a model's ``loss`` returned into one scalar and the values to report.

    Args:
        loss: A tensor, a sequence of tensors, or a mapping of tensors.

    Returns:
        The scalar for the backward pass (the mean of a tensor; the sum of the means of several; the
        member ``total`` as it is, if there is one), and the scalars by name.

    Raises:
        TypeError: If it is none of these.
        ValueError: If there is no loss in it, or ``total`` is not a scalar.

    Example:
        >>> total, named = reduce_loss({"a": torch.tensor([1.0, 3.0]), "b": torch.tensor(1.0)})
        >>> total.item(), sorted(named)
        (3.0, ['a', 'b', 'total'])
    """
    if isinstance(loss, torch.Tensor):
        total = loss.mean() if loss.dim() else loss
        return total, {"total": total}
    if isinstance(loss, Mapping):
        named = {str(name): value for name, value in loss.items()}
        if "total" in named:
            if named["total"].dim():
                raise ValueError(
                    f"the loss's 'total' must be a scalar, not of shape "
                    f"{tuple(named['total'].shape)}"
                )
            return named["total"], {name: _mean(value) for name, value in named.items()}
        named = {name: _mean(value) for name, value in named.items()}
    elif isinstance(loss, Sequence) and not isinstance(loss, str):
        named = {f"loss{i}": _mean(value) for i, value in enumerate(loss)}
    else:
        raise TypeError(
            f"a model's loss must be a tensor, a sequence of tensors or a mapping of tensors, not "
            f"{type(loss).__name__}"
        )
    if not named:
        raise ValueError("the model's loss is empty")
    values = list(named.values())
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total, {**named, "total": total}


def _under_autocast(state: State, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs in the run's precision; the function itself for ``fp32``."""
    if state.precision is Precision.FP32:
        return function
    context = autocast_factory(state.precision, state.device.torch_type)

    def run(*arguments: Any) -> Any:
        with context():
            return function(*arguments)

    return run


class TrainStep:
    """Trains on one batch.

    Args:
        state: The state of the run.
        engine: Dispatches the events.
        spec: How to read the batches.
        on_tokens: Whether microbatches are weighted by their loss-generating tokens instead of
            their samples.
        forward: What computes the outputs, if not the model itself (a compiled one).
    """

    def __init__(
        self,
        state: State,
        engine: Engine,
        spec: DataSpec,
        *,
        on_tokens: bool = False,
        forward: Any = None,
    ) -> None:
        self._state = state
        self._engine = engine
        self._spec = spec
        self._on_tokens = on_tokens
        self._device = None if state.device.is_host else state.device
        self._optimizer = state.optimizers[0]
        self._scaler = state.scaler
        self._outputs_of = _under_autocast(state, state.model if forward is None else forward)
        model: Any = unwrapped_model(state.model)
        self._loss_of = _under_autocast(state, model.loss)
        self._create_graph = any(a.backwards_create_graph for a in state.algorithms)
        self._metrics = TrainMetrics(state)

    # ---- one batch ----------------------------------------------------------------------------

    def run(self, num_samples: int | float) -> dict[str, torch.Tensor]:
        """Train on the state's batch.

        Args:
            num_samples: Its number of samples.

        Returns:
            The losses by name, detached, averaged over the batch; on the device.
        """
        state = self._state
        batch = state.batch
        size = state.device_train_microbatch_size
        pieces: Sequence[Batch] = (batch,)
        weights: Sequence[float] = (1.0,)
        if size is not None and num_samples > size:
            pieces = self._spec.split_batch(batch, size)
            weights = self._weights(pieces, num_samples)
        self._losses: dict[str, torch.Tensor] = {}
        if self._scaler is None:

            def closure() -> torch.Tensor:
                return self._accumulate(batch, pieces, weights)

            self._optimizer.step(closure)  # type: ignore[arg-type]
            state.step_applied = True
        else:
            self._accumulate(batch, pieces, weights)
            self._scaled_update(self._scaler)
        return self._losses

    def _weights(self, pieces: Sequence[Batch], num_samples: int | float) -> Sequence[float]:
        spec = self._spec
        if self._on_tokens:
            counts: list[float] = [
                spec.get_num_tokens_in_batch(piece, "loss_generating") for piece in pieces
            ]
            total = float(sum(counts))
            if total == 0:
                raise ValueError(
                    "accumulate_train_batch_on_tokens=True, but the batch holds no tokens that "
                    "carry loss; pass `get_num_tokens_in_batch` to DataSpec"
                )
        else:
            counts = [spec.get_num_samples_in_batch(piece) for piece in pieces]
            total = float(num_samples)
        return [count / total for count in counts]

    def _scaled_update(self, scaler: torch.amp.GradScaler) -> None:
        state = self._state
        state.step_applied = False
        handle = self._optimizer.register_step_post_hook(self._note_applied)
        try:
            scaler.step(self._optimizer)
        finally:
            handle.remove()
        scaler.update()
        if not state.step_applied:
            state.num_skipped_steps += 1

    def _note_applied(self, *unused: Any) -> None:
        self._state.step_applied = True

    def _accumulate(
        self, batch: Batch, pieces: Sequence[Batch], weights: Sequence[float]
    ) -> torch.Tensor:
        """Run all microbatches, leaving the gradients of the whole batch; returns its loss."""
        run_event = self._engine.run_event
        run_event(_BEFORE_TRAIN_BATCH)
        self._optimizer.zero_grad()
        losses: dict[str, torch.Tensor] = {}
        self._losses = losses
        if self._metrics.active:
            self._metrics.reset()
        for piece, weight in zip(pieces, weights, strict=True):
            if weight == 0.0:
                continue  # no token of it carries loss: its mean would be that of nothing
            self._train_piece(piece, weight, losses)
        self._state.batch = batch
        if self._scaler is not None:
            self._scaler.unscale_(self._optimizer)
        run_event(_AFTER_TRAIN_BATCH)
        return losses["total"]

    def _train_piece(self, piece: Batch, weight: float, losses: dict[str, torch.Tensor]) -> None:
        state, run_event = self._state, self._engine.run_event
        if self._device is not None:
            piece = self._device.batch_to_device(piece)
        transforms = self._spec.microbatch_transforms
        if transforms is not None:
            piece = transforms(piece)
        kept = self._metrics.keep(piece) if self._metrics.active else None
        state.batch = piece
        run_event(_BEFORE_FORWARD)
        state.outputs = self._outputs_of(state.batch)
        run_event(_AFTER_FORWARD)
        run_event(_BEFORE_LOSS)
        state.loss = self._loss_of(state.outputs, state.batch)
        run_event(_AFTER_LOSS)
        run_event(_BEFORE_BACKWARD)
        loss = state.loss
        if type(loss) is torch.Tensor and not loss.dim():
            total, named = loss, {"total": loss}
        else:
            total, named = reduce_loss(loss)
        for name, value in named.items():
            value = value.detach()
            if weight != 1.0:
                value = value * weight
            losses[name] = losses[name] + value if name in losses else value
        if weight != 1.0:
            total = total * weight
        if self._scaler is not None:
            total = self._scaler.scale(total)
        if self._create_graph:
            total.backward(create_graph=True)
        else:
            total.backward()
        run_event(_AFTER_BACKWARD)
        if kept is not None:
            self._metrics.update(kept)
