"""When the gradients of several ranks become one: at which microbatch, and by whom."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch.nn.parallel import DistributedDataParallel

from composer.distributed.flat import exchange_flat
from composer.utils import dist
from composer.utils.string_enum import StringEnum
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["DDPSyncStrategy", "GradientSync", "ddp_sync_context", "ensure_sync_strategy"]


class DDPSyncStrategy(StringEnum):
    """When data-parallel gradients are averaged over ranks.

    Attributes:
        SINGLE_AUTO_SYNC: By the wrapper, in the last microbatch of a batch.
        MULTI_AUTO_SYNC: By the wrapper, in every microbatch.
        FORCED_SYNC: By hand, once after the last microbatch.

    Example:
        >>> DDPSyncStrategy("forced_sync") is DDPSyncStrategy.FORCED_SYNC
        True
    """

    SINGLE_AUTO_SYNC = "single_auto_sync"
    MULTI_AUTO_SYNC = "multi_auto_sync"
    FORCED_SYNC = "forced_sync"


def ensure_sync_strategy(
    strategy: str | DDPSyncStrategy | None, find_unused_parameters: bool
) -> DDPSyncStrategy:
    """Turn what a user gave into a strategy.

    Args:
        strategy: The strategy, its name, or ``None`` to choose.
        find_unused_parameters: Whether parameters may have no gradient in a microbatch.

    Returns:
        The strategy; ``MULTI_AUTO_SYNC`` by default where parameters may be unused, else
        ``SINGLE_AUTO_SYNC``.

    Raises:
        ValueError: If there is no such strategy.

    Example:
        >>> ensure_sync_strategy(None, find_unused_parameters=False).value
        'single_auto_sync'
    """
    if strategy is None:
        return (
            DDPSyncStrategy.MULTI_AUTO_SYNC
            if find_unused_parameters
            else DDPSyncStrategy.SINGLE_AUTO_SYNC
        )
    try:
        return DDPSyncStrategy(strategy)
    except ValueError:
        known = [s.value for s in DDPSyncStrategy]
        raise ValueError(
            f"ddp_sync_strategy={strategy!r} is unknown; known: {known}."
            f"{did_you_mean(str(strategy), known)}"
        ) from None


class GradientSync:
    """Averages the gradients of a data-parallel model over ranks, in the way that was chosen.

    Args:
        module: The wrapped model.
        strategy: When to average.

    Example:
        >>> sync = GradientSync(torch.nn.Identity(), DDPSyncStrategy.SINGLE_AUTO_SYNC)
        >>> with sync.microbatch(last=True):
        ...     pass
        >>> sync.finish([])
    """

    def __init__(self, module: torch.nn.Module, strategy: DDPSyncStrategy) -> None:
        self._module = module
        self._by_hand = strategy is DDPSyncStrategy.FORCED_SYNC
        self._each = strategy is DDPSyncStrategy.MULTI_AUTO_SYNC

    def num_microbatches(self, own: int) -> int:
        """Return how many microbatches all ranks have to run, where each exchanges gradients.

        Args:
            own: How many this rank has.

        Returns:
            The most that any rank has, or ``own`` if ranks exchange once per batch.

        Example:
            >>> strategy = DDPSyncStrategy.SINGLE_AUTO_SYNC
            >>> GradientSync(torch.nn.Identity(), strategy).num_microbatches(3)
            3
        """
        if not self._each:
            return own
        return int(dist.max_over_ranks([own])[0])

    def microbatch(self, *, last: bool) -> AbstractContextManager[None]:
        """Return the context of a microbatch's forward and backward pass.

        Args:
            last: Whether it is the batch's last.

        Returns:
            A context that lets the wrapper average, or holds it back.
        """
        if not isinstance(self._module, DistributedDataParallel):
            return nullcontext()
        if self._each or (last and not self._by_hand):
            return nullcontext()
        held: AbstractContextManager[None] = self._module.no_sync()
        return held

    @staticmethod
    def explain(error: RuntimeError) -> None:
        """Add what it means here to torch's advice about unused parameters, and to a lost peer.

        Args:
            error: What the forward or backward pass met; another error stays as it is.

        Example:
            >>> error = RuntimeError("Expected to have finished reduction; find_unused_parameters")
            >>> GradientSync.explain(error)
            >>> "ddp_sync_strategy='forced_sync'" in error.__notes__[0]
            True
        """
        if "find_unused_parameters" in str(error):
            error.add_note(
                "with this trainer: some parameters had no part in the loss of a batch on a rank. "
                "Pass ddp_sync_strategy='forced_sync', which averages after each batch what has a "
                "gradient on any rank, or, in an algorithm, set find_unused_parameters = True"
            )
        elif said := dist.lost_peer(error):
            error.add_note(said)  # the wrapper's own exchanges, while it goes backward

    def finish(self, parameters: list[torch.nn.Parameter]) -> None:
        """Average by hand what the wrapper did not.

        A parameter that a rank did not use counts as having a gradient of zero there; one that no
        rank used keeps none.

        Args:
            parameters: The parameters, in the same order on every rank.
        """
        if not self._by_hand:
            return
        trained = [p for p in parameters if p.requires_grad]
        device = trained[0].device if trained else torch.device("cpu")
        used = torch.tensor([float(p.grad is not None) for p in trained], device=device)
        dist.all_reduce(used)
        gradients = []
        for parameter, count in zip(trained, used.tolist(), strict=True):
            if count:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        exchange_flat(gradients, _average)


def _average(flat: torch.Tensor) -> None:
    dist.all_reduce(flat)
    flat /= dist.get_world_size()


def ddp_sync_context(
    state: State, is_final_microbatch: bool, sync_strategy: str | DDPSyncStrategy
) -> AbstractContextManager[None]:
    """Return the context of a microbatch for loops of one's own over a state's model.

    Args:
        state: The state, whose model may be wrapped for data parallelism.
        is_final_microbatch: Whether this is the batch's last microbatch.
        sync_strategy: When to average.

    Returns:
        The context; it does nothing for a model that is not wrapped. With ``forced_sync`` the
        gradients have to be averaged afterwards, by :meth:`GradientSync.finish`.

    Raises:
        ValueError: If there is no such strategy.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> with ddp_sync_context(state, True, "single_auto_sync"):
        ...     pass
    """
    strategy = ensure_sync_strategy(sync_strategy, find_unused_parameters=False)
    return GradientSync(state.model, strategy).microbatch(last=is_final_microbatch)
