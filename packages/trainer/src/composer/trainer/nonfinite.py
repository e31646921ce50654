"""What to do about a loss that is infinite or not a number: look, agree, and keep the model clean.

Looking costs a synchronisation with the device at every batch, so nobody pays for it unasked.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from composer.core.scaler import needs_closure
from composer.utils import dist
from composer.utils.modules import KeptBuffers
from composer.utils.string_enum import StringEnum
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = [
    "LossGuard",
    "NoLossTokensError",
    "NonFiniteAction",
    "NonFiniteLossError",
    "NonFinitePolicy",
    "check_policy",
]

log = logging.getLogger(__name__)

# When going on does not help: the weights themselves are spoiled, or all the data.
_MOST_REWINDS = 3
_MOST_IN_A_ROW = 20


class NonFiniteAction(StringEnum):
    """What can be done about a loss that is not finite.

    Attributes:
        STOP: End the run with an error.
        SKIP: Pass the batch over.
        REWIND: Pass the batch over, and go back to the weights of the newest checkpoint.

    Example:
        >>> NonFiniteAction("skip") is NonFiniteAction.SKIP
        True
    """

    STOP = "stop"
    SKIP = "skip"
    REWIND = "rewind"


class NonFiniteLossError(ArithmeticError):
    """A batch's loss is infinite or not a number, and nothing was updated with it.

    Args:
        message: What is said.
        losses: The batch's losses by name.

    Attributes:
        losses: The batch's losses by name.

    Example:
        >>> NonFiniteLossError("the loss is nan").losses
        {}
    """

    losses: dict[str, torch.Tensor]

    def __init__(self, message: str, losses: Mapping[str, torch.Tensor] | None = None) -> None:
        super().__init__(message)
        self.losses = dict(losses or {})


class NoLossTokensError(NonFiniteLossError, ValueError):
    """A batch holds no token that carries loss, so its mean loss is that of nothing: not a number.

    Args:
        state: The state of the run, which knows which batch it is.

    Attributes:
        losses: ``total``, which is not a number.

    Example:
        >>> issubclass(NoLossTokensError, NonFiniteLossError)
        True
    """

    def __init__(self, state: State) -> None:
        super().__init__(
            f"{_the_batch(state)} holds no tokens that carry loss (a label of -100 carries none), "
            f"so its mean loss is not a number and there is nothing to learn from it. Leave such "
            f"batches out, or set on_nonfinite_loss='skip' to pass them over; with "
            f"accumulate_train_batch_on_tokens=True it is `get_num_tokens_in_batch` of DataSpec "
            f"that counts",
            {"total": torch.full((), math.nan, device=state.device.torch_device)},
        )


def _the_batch(state: State) -> str:
    timestamp = state.timestamp
    return (
        f"batch {int(timestamp.batch)} (batch {int(timestamp.batch_in_epoch)} of epoch "
        f"{int(timestamp.epoch)})"
    )


def check_policy(policy: str | None, *, strict: bool) -> NonFiniteAction | None:
    """Turn what a user asked for into a policy.

    Args:
        policy: The value of a ``NonFiniteAction``, or ``None``.
        strict: Whether the run is in strict mode, in which ``None`` means ``"stop"``.

    Returns:
        The policy, or ``None`` for not looking.

    Raises:
        ValueError: If there is no such policy.

    Example:
        >>> check_policy(None, strict=True).value
        'stop'
    """
    if policy is None:
        return NonFiniteAction.STOP if strict else None
    try:
        return NonFiniteAction(policy)
    except ValueError:
        known = [action.value for action in NonFiniteAction]
        raise ValueError(
            f"on_nonfinite_loss={policy!r} is unknown; known: {known}, or None for not looking."
            f"{did_you_mean(str(policy), known)}"
        ) from None


class LossGuard:
    """Looks at each batch's loss before it becomes an update.

    Args:
        state: The state of the run.

    Example:
        >>> LossGuard(None).check({"total": torch.tensor(1.0)})
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def check(self, losses: Mapping[str, torch.Tensor]) -> None:
        """Raise if a loss is not finite on any rank.

        Args:
            losses: The batch's losses, 0-d tensors; ``total`` is looked at.

        Raises:
            NonFiniteLossError: If it is not.
        """
        loss = losses["total"]
        finite = bool(torch.isfinite(loss))
        if dist.any_rank(not finite):
            raise NonFiniteLossError(
                f"the loss of {_the_batch(self._state)} is {float(loss)}"
                f"{'' if not finite else ' here and not finite on another rank'}; the model was "
                f"not updated with it. Look at that batch and at the learning rate, or set "
                f"on_nonfinite_loss='skip' or 'rewind' to go on",
                losses,
            )


class NonFinitePolicy:
    """Decides how a run goes on after a loss that is not finite.

    Args:
        policy: What to do.
        state: The state of the run.
        rewind: Puts the weights and optimizer state of the newest checkpoint back and returns its
            name, or ``None`` if there is none.

    Example:
        >>> policy = NonFinitePolicy(NonFiniteAction.STOP, None, lambda: None)
        >>> policy.handle(NonFiniteLossError("the loss is nan"))
        Traceback (most recent call last):
        composer.trainer.nonfinite.NonFiniteLossError: the loss is nan
    """

    guard: LossGuard

    def __init__(
        self, policy: NonFiniteAction, state: State, rewind: Callable[[], str | None]
    ) -> None:
        self.guard = LossGuard(state)
        self._policy = policy
        self._state = state
        self._rewind = rewind
        self._buffers: KeptBuffers | None = None
        self._parameters: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._rewound: tuple[str, int] | None = None
        self._row = (-1, 0)

    def before_batch(self) -> None:
        """Keep what a batch might spoil."""
        if self._policy is NonFiniteAction.STOP:
            return
        if self._buffers is None:
            self._buffers = KeptBuffers(self._state.model)
        else:
            self._buffers.keep()
        self._parameters = [
            (parameter, parameter.detach().clone())
            for optimizer in self._state.optimizers
            if needs_closure(optimizer)  # these may find the loss in the middle of a step
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]

    def handle(self, error: NonFiniteLossError) -> None:
        """Go on after a batch, or do not; the batch is passed over by clock and data alike.

        Args:
            error: What was found.

        Raises:
            NonFiniteLossError: If the run is to stop, or there is nothing to go back to.
        """
        if self._policy is NonFiniteAction.STOP:
            raise error
        state = self._state
        if self._buffers is not None:
            self._buffers.put_back()
        with torch.no_grad():
            for parameter, kept in self._parameters:
                parameter.copy_(kept)
        for optimizer in state.optimizers:
            optimizer.zero_grad()
            if needs_closure(optimizer):
                optimizer.state.clear()
        state.step_applied = False
        batch = int(state.timestamp.batch)
        in_a_row = self._row[1] + 1 if self._row[0] == batch - 1 else 1
        self._row = (batch, in_a_row)
        # A batch without a token that carries loss says nothing against the weights.
        empty = isinstance(error, NoLossTokensError)
        skips = empty or self._policy is NonFiniteAction.SKIP
        if in_a_row > (_MOST_IN_A_ROW if skips else _MOST_REWINDS):
            raise NonFiniteLossError(
                f"{error}. It is the last of {in_a_row} such batches in a row, so "
                f"on_nonfinite_loss={self._policy.value!r} does not help"
            ) from error
        if skips:
            why = "no token of it carries loss" if empty else "its loss is not finite"
            log.warning("batch %d was skipped: %s", batch, why)
            return
        name = self._rewind()
        if name is None:
            raise NonFiniteLossError(
                f"{error}. on_nonfinite_loss='rewind' found no checkpoint to go back to; save "
                f"earlier (save_interval), or use 'skip'"
            ) from error
        times = self._rewound[1] + 1 if self._rewound and self._rewound[0] == name else 1
        if times > _MOST_REWINDS:
            raise NonFiniteLossError(
                f"{error}. The run went back to {name} {_MOST_REWINDS} times already"
            ) from error
        self._rewound = (name, times)
        log.warning(
            "the loss of batch %d is not finite: weights and optimizer state are those of %s "
            "again, and training goes on behind that batch",
            batch,
            name,
        )
