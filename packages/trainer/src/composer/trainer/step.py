"""One optimizer step: microbatches, forward, loss, backward, update.

The update does not depend on how a batch is split, over microbatches or over ranks: each
microbatch's mean loss is weighted by its share of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from composer.core.event import Event
from composer.core.model import ComposerModel
from composer.core.precision import Precision, autocast_factory
from composer.core.scaler import needs_closure
from composer.core.types import Batch
from composer.trainer.metrics import TrainMetrics
from composer.trainer.nonfinite import NoLossTokensError
from composer.trainer.ranks import LossMean
from composer.trainer.reevaluation import Reevaluations
from composer.utils.iteration import map_collection
from composer.utils.modules import unwrapped_model

if TYPE_CHECKING:
    from composer.core.data_spec import DataSpec
    from composer.core.engine import Engine
    from composer.core.state import State
    from composer.distributed.sync import GradientSync
    from composer.trainer.nonfinite import LossGuard
    from composer.trainer.ranks import Ranks

__all__ = ["BatchStep", "TrainStep", "num_loss_tokens", "reduce_loss"]

_BEFORE_TRAIN_BATCH = Event.BEFORE_TRAIN_BATCH
_BEFORE_FORWARD = Event.BEFORE_FORWARD
_AFTER_FORWARD = Event.AFTER_FORWARD
_BEFORE_LOSS = Event.BEFORE_LOSS
_AFTER_LOSS = Event.AFTER_LOSS
_BEFORE_BACKWARD = Event.BEFORE_BACKWARD
_AFTER_BACKWARD = Event.AFTER_BACKWARD
_AFTER_TRAIN_BATCH = Event.AFTER_TRAIN_BATCH

# Kinds of batches that name no tokens, asked at every batch.
_WITHOUT_TOKENS = frozenset({tuple, list, torch.Tensor})

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
        total = _mean(loss)
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


def _counts_tokens(model: Any) -> bool:
    """Whether a model says itself how many tokens of a batch carry loss."""
    return isinstance(model, ComposerModel) and (
        type(model).num_loss_tokens is not ComposerModel.num_loss_tokens
    )


def num_loss_tokens(
    model: Any, spec: DataSpec, batch: Batch, *, on_tokens: bool
) -> int | float | None:
    """Count what a model's mean loss over a batch is a mean of, if that is tokens.

    Args:
        model: The model; its word counts if it defines ``num_loss_tokens``.
        spec: How to read the batches.
        batch: The batch.
        on_tokens: Whether the user asked for tokens.

    Returns:
        The tokens that carry loss, or ``None`` if the loss is a mean over samples. A batch whose
        ``labels`` have the shape of its ``input_ids`` holds a label per token, and those of -100
        carry no loss.

    Example:
        >>> from composer.core.data_spec import DataSpec
        >>> labels = torch.tensor([[5, -100, -100]])
        >>> batch = {"input_ids": torch.tensor([[5, 6, 7]]), "labels": labels}
        >>> num_loss_tokens(None, DataSpec([]), batch, on_tokens=False)
        1
    """
    if _counts_tokens(model):
        tokens: int | float | None = model.num_loss_tokens(batch)
        if tokens is not None or not on_tokens:
            return tokens
    if on_tokens:
        return spec.get_num_tokens_in_batch(batch, "loss_generating")
    if isinstance(batch, Mapping):
        ids, labels = batch.get("input_ids"), batch.get("labels")
        if (
            isinstance(ids, torch.Tensor)
            and isinstance(labels, torch.Tensor)
            and labels.dim() > 1
            and labels.shape == ids.shape
            and not labels.is_floating_point()
        ):
            return spec.get_num_tokens_in_batch(batch, "loss_generating")
    return None


def _nothing_of(outputs: Any) -> torch.Tensor:
    """A loss of zero that hangs on the outputs, so that every rank runs its backward pass."""
    parts: list[torch.Tensor] = []

    def collect(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            parts.append(torch.nan_to_num(value).sum() * 0.0)
        return value

    map_collection(outputs, collect)
    total = sum(parts[1:], parts[0]) if parts else torch.zeros((), requires_grad=True)
    assert isinstance(total, torch.Tensor)
    return total


class BatchStep(Protocol):
    """What trains on the state's batch: one step, several in turn, or one that tries again."""

    def run(self, num_samples: int | float) -> dict[str, torch.Tensor]:
        """Train on the state's batch.

        Args:
            num_samples: Its number of samples on this rank.

        Returns:
            The losses by name.
        """
        ...


class TrainStep:
    """Trains on one batch.

    Args:
        state: The state of the run.
        engine: Dispatches the events.
        spec: How to read the batches.
        on_tokens: Whether microbatches are weighted by their loss-generating tokens although
            neither model nor labels say so.
        forward: What computes the outputs, if not the model itself (a compiled or wrapped one).
        loss: What computes the loss, if not the model's ``loss``.
        optimizers: Which optimizers make a step; all of the state's by default.
        ranks: The other ranks, if there are any.
        sync: Averages gradients over them.
        guard: Looks at the loss before it becomes an update.
        memory: Runs what may run out of memory; see ``auto_microbatch.run_or_agree``.

    Example:
        >>> from composer.core.data_spec import DataSpec
        >>> from composer.core.engine import Engine
        >>> from composer.core.logger import Logger
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> from composer.models import ComposerClassifier
        >>> model = ComposerClassifier(torch.nn.Linear(2, 3), num_classes=3)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> state = State(model, 0, "r", DeviceCPU(), optimizers=optimizer)
        >>> step = TrainStep(state, Engine(state, Logger(state)), DataSpec([]))
        >>> state.batch = (torch.ones(4, 2), torch.zeros(4, dtype=torch.long))
        >>> first, second = step.run(4)["total"], step.run(4)["total"]
        >>> bool(second < first)
        True
    """

    def __init__(
        self,
        state: State,
        engine: Engine,
        spec: DataSpec,
        *,
        on_tokens: bool = False,
        forward: Any = None,
        loss: Callable[..., Any] | None = None,
        optimizers: Sequence[torch.optim.Optimizer] | None = None,
        ranks: Ranks | None = None,
        sync: GradientSync | None = None,
        guard: LossGuard | None = None,
        memory: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._state = state
        self._engine = engine
        self._spec = spec
        self._on_tokens = on_tokens
        self._device = None if state.device.is_host else state.device
        self._optimizers = list(state.optimizers if optimizers is None else optimizers)
        self._optimizer = self._optimizers[0]
        self._scaler = state.scaler
        self._outputs_of = _under_autocast(state, state.model if forward is None else forward)
        model: Any = unwrapped_model(state.model)
        self._model = model
        self._loss_of = _under_autocast(state, loss or model.loss)
        self._create_graph = any(a.backwards_create_graph for a in state.algorithms)
        self._metrics = TrainMetrics(state)
        self._asks_tokens = on_tokens or (
            _counts_tokens(model) and model.refuses_batches_without_loss
        )
        self._ranks = ranks
        # Of this step alone: optimizers that take turns have losses of different names.
        self._mean = LossMean()
        self._sync = sync
        self._guard = guard
        self._memory = memory
        self._again = self._reevaluations()
        self._update = self._choose_update()
        self._losses: dict[str, torch.Tensor] = {}

    def _reevaluations(self) -> Reevaluations | None:
        own = [o for o in self._optimizers if needs_closure(o)]
        if own and len(self._optimizers) > 1:
            raise ValueError(
                f"{type(own[0]).__name__} evaluates the loss itself, which it cannot do for the "
                f"{len(self._optimizers) - 1} optimizer(s) beside it; use one optimizer, or give "
                f"each a turn of its own: composer.trainer.OptimizerStep"
            )
        return Reevaluations(self._model) if own else None

    def _choose_update(self) -> Callable[[Callable[[], torch.Tensor]], bool] | None:
        """How gradients become an update; ``None`` for one optimizer without loss scaling."""
        if self._again is not None:
            return self._closure_update
        if self._scaler is None and len(self._optimizers) == 1:
            return None
        return self._update_jointly

    # ---- one batch ----------------------------------------------------------------------------

    def run(self, num_samples: int | float) -> dict[str, torch.Tensor]:
        """Train on the state's batch.

        Args:
            num_samples: Its number of samples on this rank.

        Returns:
            The losses by name, detached, averaged over the batch (of all ranks); on the device.

        Raises:
            NonFiniteLossError: If the loss is not finite and somebody asked to know, or no token
                of the batch carries loss; nothing was updated.
            ValueError: If ranks have losses of different names.
        """
        state = self._state
        batch = state.batch
        size = state.device_train_microbatch_size
        pieces: Sequence[Batch] = (batch,)
        weights: Sequence[float] = (1.0,)
        if size is not None and num_samples > size:
            pieces = self._spec.split_batch(batch, size)
            weights = self._weights(pieces)
        elif self._ranks is not None:
            weights = self._weights(pieces)
        elif self._asks_tokens or type(batch) not in _WITHOUT_TOKENS:
            self._refuse_without_tokens(batch)

        def closure() -> torch.Tensor:
            return self._accumulate(batch, pieces, weights)

        if self._update is None:
            self._optimizer.step(closure)  # type: ignore[arg-type]
            state.step_applied = True
        else:
            state.step_applied = self._update(closure)
        return self._losses if self._ranks is None else self._mean(self._losses)

    def _refuse_without_tokens(self, batch: Batch) -> None:
        if self._tokens(batch) == 0:
            raise NoLossTokensError(self._state)

    def _tokens(self, piece: Batch) -> int | float | None:
        return num_loss_tokens(self._model, self._spec, piece, on_tokens=self._on_tokens)

    def _weights(self, pieces: Sequence[Batch]) -> Sequence[float]:
        """Each piece's share of the whole batch, over all ranks, times their number.

        Gradients are averaged over ranks, which takes the number of ranks out again.
        """
        counts: list[float] = []
        for piece in pieces:
            tokens = self._tokens(piece)
            counts.append(self._spec.get_num_samples_in_batch(piece) if tokens is None else tokens)
        total, size = float(sum(counts)), 1
        if self._ranks is not None:
            total, size = self._ranks.total(total), self._ranks.size
        if total == 0:
            raise NoLossTokensError(self._state)
        return [count * size / total for count in counts]

    # ---- updates ------------------------------------------------------------------------------

    def _update_jointly(self, closure: Callable[[], torch.Tensor]) -> bool:
        """All optimizers of the batch step, or, where a gradient overflowed, none does."""
        closure()
        scaler = self._scaler
        if scaler is None:
            for optimizer in self._optimizers:
                optimizer.step()
            return True
        return scaler.step_all(self._optimizers)

    def _closure_update(self, closure: Callable[[], torch.Tensor]) -> bool:
        """The optimizer evaluates the loss itself, several times if it likes."""
        scaler, evaluate = self._scaler, self._counted_once(closure)
        if scaler is None:
            self._optimizer.step(evaluate)  # type: ignore[arg-type]
            return True
        applied = scaler.step_with_closure(self._optimizer, evaluate)
        scaler.update()
        return applied

    def _counted_once(self, closure: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """The closure, of which the first call reports and counts for all."""
        again, called = self._again, False
        assert again is not None
        again.begin()

        def evaluate() -> torch.Tensor:
            nonlocal called
            if not called:
                called = True
                return closure()
            losses, metrics = self._losses, self._metrics
            self._metrics = metrics.idle()
            try:
                with again.once_more():
                    return closure()
            finally:
                self._losses, self._metrics = losses, metrics

        return evaluate

    # ---- gradients ----------------------------------------------------------------------------

    def _accumulate(
        self, batch: Batch, pieces: Sequence[Batch], weights: Sequence[float]
    ) -> torch.Tensor:
        """Run all microbatches, leaving the gradients of the whole batch; returns its loss."""
        run_event = self._engine.run_event
        run_event(_BEFORE_TRAIN_BATCH)
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        losses: dict[str, torch.Tensor] = {}
        self._losses = losses
        if self._metrics.active:
            self._metrics.reset()
        if self._memory is not None:
            self._memory(lambda: self._run_pieces(pieces, weights, losses))
        else:
            self._run_pieces(pieces, weights, losses)
        if self._sync is not None:
            groups = [group for o in self._optimizers for group in o.param_groups]
            self._sync.finish([p for group in groups for p in group["params"]])
        self._state.batch = batch
        if self._guard is not None:
            self._guard.check(losses)
        if self._scaler is not None:
            for optimizer in self._optimizers:
                self._scaler.unscale_(optimizer)
        run_event(_AFTER_TRAIN_BATCH)
        return losses["total"]

    def _run_pieces(
        self, pieces: Sequence[Batch], weights: Sequence[float], losses: dict[str, torch.Tensor]
    ) -> None:
        sync = self._sync
        if sync is None:
            if len(pieces) == 1:
                self._train_piece(pieces[0], weights[0], losses)
                return
            for piece, weight in zip(pieces, weights, strict=True):
                if weight:
                    self._train_piece(piece, weight, losses)
                elif self._metrics.active:
                    self._run_without_loss(piece, losses)
            return
        # Every rank takes part in an exchange, also without loss of its own.
        own = len(pieces)
        missing = sync.num_microbatches(own) - own
        pieces = [*pieces, *(pieces[0] for _ in range(missing))]
        weights = [*weights, *(0.0 for _ in range(missing))]
        last = len(pieces) - 1
        for i, (piece, weight) in enumerate(zip(pieces, weights, strict=True)):
            with sync.microbatch(last=i == last):
                try:
                    if weight:
                        self._train_piece(piece, weight, losses, counts=i < own)
                    else:
                        self._run_without_loss(piece, losses, counts=i < own)
                except RuntimeError as error:
                    sync.explain(error)
                    raise

    def _run_without_loss(
        self, piece: Batch, losses: dict[str, torch.Tensor], *, counts: bool = True
    ) -> None:
        """Run a microbatch that nothing is learnt from; its mean loss would be that of nothing."""
        loss_of, self._loss_of = self._loss_of, lambda outputs, batch: _nothing_of(outputs)
        try:
            self._train_piece(piece, 0.0, losses, counts=counts)
        finally:
            self._loss_of = loss_of

    def _train_piece(
        self,
        piece: Batch,
        weight: float,
        losses: dict[str, torch.Tensor],
        *,
        counts: bool = True,
    ) -> None:
        state, run_event = self._state, self._engine.run_event
        if self._device is not None:
            piece = self._device.batch_to_device(piece)
        transforms = self._spec.microbatch_transforms
        if transforms is not None:
            piece = transforms(piece)
        kept = self._metrics.keep(piece) if self._metrics.active and counts else None
        state.batch = piece
        run_event(_BEFORE_FORWARD)
        state.outputs = self._outputs_of(state.batch)
        run_event(_AFTER_FORWARD)
        run_event(_BEFORE_LOSS)
        state.loss = self._loss_of(state.outputs, state.batch)
        run_event(_AFTER_LOSS)
        run_event(_BEFORE_BACKWARD)
        loss = state.loss
        if weight == 1.0 and not losses and type(loss) is torch.Tensor and not loss.dim():
            total = loss  # the usual case, in which nothing is to be weighed
            losses["total"] = loss.detach()
        else:
            total = self._weigh(loss, weight, losses)
        if self._scaler is not None:
            total = self._scaler.scale(total)
        if self._create_graph:
            total.backward(create_graph=True)
        else:
            total.backward()
        run_event(_AFTER_BACKWARD)
        if kept is not None:
            self._metrics.update(kept)

    def _weigh(self, loss: Any, weight: float, losses: dict[str, torch.Tensor]) -> torch.Tensor:
        """Add a microbatch's share to the batch's losses; returns what is to be trained on."""
        total, named = reduce_loss(loss)
        for name, value in named.items():
            value = value.detach()
            if weight != 1.0:
                value = value * weight
            losses[name] = losses[name] + value if name in losses else value
        return total if weight == 1.0 else total * weight
