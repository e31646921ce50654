"""What trains on one batch, put together: the model that ranks share, steps, turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from composer.distributed.ddp import prepare_ddp_module
from composer.distributed.sync import DDPSyncStrategy, GradientSync, ensure_sync_strategy
from composer.trainer.alternating import AlternatingStep, OptimizerStep
from composer.trainer.auto_microbatch import AutoMicrobatchStep, run_or_agree
from composer.trainer.ranks import Ranks, ranks_of_this_run
from composer.trainer.step import BatchStep, TrainStep

if TYPE_CHECKING:
    from composer.core.data_spec import DataSpec
    from composer.core.engine import Engine
    from composer.core.state import State
    from composer.trainer.nonfinite import NonFinitePolicy

__all__ = ["SharedModel", "make_step", "share_model"]


@dataclass(frozen=True)
class SharedModel:
    """How the ranks of a run compute with one model.

    Attributes:
        forward: What computes the outputs; ``None`` for the model itself.
        ranks: The ranks; ``None`` for a process on its own.
        sync: How gradients are averaged.

    Example:
        >>> SharedModel(None).ranks is None
        True
    """

    forward: Any
    ranks: Ranks | None = None
    sync: GradientSync | None = None


def share_model(
    state: State, forward: Any, *, strategy: str | None, turns: bool, auto: bool
) -> SharedModel:
    """On several ranks, let them start from one model and average its gradients.

    Args:
        state: The state of the run.
        forward: What computes the outputs; ``None`` for the model itself.
        strategy: When gradients are averaged.
        turns: Whether optimizers take turns.
        auto: Whether the microbatch size is searched for.

    Returns:
        The model as the ranks share it.

    Raises:
        ValueError: If the strategy is unknown.
    """
    ranks = ranks_of_this_run()
    if ranks is None:
        return SharedModel(forward)
    unused = any(a.find_unused_parameters for a in state.algorithms)
    # The wrapper only computes: `state.model` stays the user's own, whose names it has.
    wrapped = prepare_ddp_module(forward or state.model, unused)
    chosen = ensure_sync_strategy(strategy, unused)
    # The wrapper knows one forward pass and one loss only, and it exchanges gradients in the
    # middle of what may run out of memory on one rank.
    if turns or auto:
        chosen = DDPSyncStrategy.FORCED_SYNC
    else:
        forward = wrapped
    return SharedModel(forward, ranks, GradientSync(wrapped, chosen))


def make_step(
    state: State,
    engine: Engine,
    spec: DataSpec,
    *,
    model: SharedModel,
    turns: Sequence[OptimizerStep],
    on_tokens: bool,
    nonfinite: NonFinitePolicy | None,
) -> BatchStep:
    """Make one step, or one for each optimizer that takes its turn.

    Args:
        state: The state of the run.
        engine: Runs the events of a batch.
        spec: How to read batches.
        model: The model as the ranks share it.
        turns: Optimizers that take turns; empty if they step together.
        on_tokens: Whether microbatches are weighted by their tokens.
        nonfinite: What to do about a loss that is not finite.

    Returns:
        What trains on one batch.
    """
    settings: dict[str, Any] = {
        "memory": run_or_agree if state.auto_microbatching else None,
        "on_tokens": on_tokens,
        "ranks": model.ranks,
        "sync": model.sync,
        "guard": None if nonfinite is None else nonfinite.guard,
    }

    def make(**more: Any) -> BatchStep:
        step = TrainStep(state, engine, spec, **settings, **more)
        return AutoMicrobatchStep(state, step) if state.auto_microbatching else step

    if not turns:
        return make(forward=model.forward)
    return AlternatingStep(
        state,
        turns,
        lambda turn: make(
            forward=getattr(state.model, turn.forward),
            loss=getattr(state.model, turn.loss),
            optimizers=[turn.optimizer],
        ),
    )
