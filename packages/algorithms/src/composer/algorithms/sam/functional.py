"""Sharpness-aware steps: the climb to the worst neighbour, and the optimizer that makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

__all__ = ["SAMOptimizer", "climb"]


def climb(
    parameters: Iterable[torch.Tensor], rho: float = 0.05, epsilon: float = 1e-12
) -> list[torch.Tensor]:
    """Move parameters to where the loss is largest nearby, to first order, in place.

    The neighbourhood is a ball: every parameter moves along its gradient, all together by ``rho``.

    Args:
        parameters: Tensors with gradients; those without are left out.
        rho: Radius of the ball.
        epsilon: Added to the norm of the gradients, which may be zero.

    Returns:
        The moves, in the order of the parameters that have gradients; subtract them to go back.

    Example:
        >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> (x.square().sum() / 2).backward()  # the gradient is x, of norm 5
        >>> climb([x], rho=1.0)
        [tensor([0.6000, 0.8000])]
    """
    moved = [p for p in parameters if p.grad is not None]
    if not moved:
        return []
    gradients = [p.grad for p in moved if p.grad is not None]
    norm = torch.linalg.vector_norm(
        torch.stack(
            [torch.linalg.vector_norm(g.float()).to(gradients[0].device) for g in gradients]
        )
    )
    scale = rho / (norm + epsilon)
    moves = [(g * scale.to(g.device)).to(p.dtype) for p, g in zip(moved, gradients, strict=True)]
    with torch.no_grad():
        torch._foreach_add_(moved, moves)
    return moves


class SAMOptimizer(torch.optim.Optimizer):
    """An optimizer whose gradients come from the worst neighbour of where the parameters are.

    Every ``interval`` steps it evaluates the loss, climbs, evaluates again, goes back exactly and
    lets the wrapped optimizer step by the second gradients; the other steps are plain ones. State
    and parameter groups are those of the wrapped optimizer. An evaluation that returns ``None``
    (loss scaling that overflowed) makes no step and leaves the parameters as they were.

    Args:
        base_optimizer: The optimizer to wrap.
        rho: Radius of the neighbourhood.
        epsilon: Added to the norm of the gradients.
        interval: Every how many steps.

    Example:
        >>> x = torch.nn.Parameter(torch.tensor([2.0]))
        >>> optimizer = SAMOptimizer(torch.optim.SGD([x], lr=0.1), rho=1.0)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = (x**2).sum()
        ...     loss.backward()
        ...     return loss
        >>> loss = optimizer.step(closure)
        >>> x.data  # 2 - 0.1 * the gradient at 3
        tensor([1.4000])
    """

    #: Loss scaling may hand this a closure that returns None; see ``composer.core.scaler``.
    _step_supports_amp_closure = True

    base_optimizer: torch.optim.Optimizer
    num_steps: int

    def __init__(
        self,
        base_optimizer: torch.optim.Optimizer,
        rho: float = 0.05,
        epsilon: float = 1e-12,
        interval: int = 1,
    ) -> None:
        super().__init__(base_optimizer.param_groups, base_optimizer.defaults)
        self.base_optimizer = base_optimizer
        self.rho = rho
        self.epsilon = epsilon
        self.interval = interval
        self.num_steps = 0
        self._share()

    def _share(self) -> None:
        self.param_groups = self.base_optimizer.param_groups
        self.state = self.base_optimizer.state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step.

        Args:
            closure: Clears the gradients, computes the loss, runs the backward pass and returns
                the loss.

        Returns:
            The loss where the parameters were, or ``None`` if an evaluation gave none.

        Raises:
            TypeError: If there is no closure.

        Example:
            >>> x = torch.nn.Parameter(torch.ones(1))
            >>> try:
            ...     SAMOptimizer(torch.optim.SGD([x], lr=0.1)).step()
            ... except TypeError as error:
            ...     print("closure" in str(error))
            True
        """
        if closure is None:
            raise TypeError("a sharpness-aware step evaluates the loss twice: give step a closure")
        evaluate = torch.enable_grad()(closure)
        loss = evaluate()
        if loss is None:
            return None
        if self.num_steps % self.interval == 0:
            moved = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
            kept = [p.detach().clone() for p in moved]
            climb(moved, self.rho, self.epsilon)
            try:
                second = evaluate()
            finally:
                with torch.no_grad():
                    # Not by subtraction, which would leave the rounding of the way there and back.
                    torch._foreach_copy_(moved, kept)
            if second is None:
                return None
        self.base_optimizer.step()
        self.num_steps += 1
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state.

        Returns:
            The state.

        Example:
            >>> x = torch.nn.Parameter(torch.ones(1))
            >>> sorted(SAMOptimizer(torch.optim.SGD([x], lr=0.1)).state_dict())
            ['param_groups', 'state']
        """
        return self.base_optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put a state into the wrapped optimizer.

        Args:
            state_dict: What its ``state_dict`` returned.

        Example:
            >>> x = torch.nn.Parameter(torch.ones(1))
            >>> optimizer = SAMOptimizer(torch.optim.SGD([x], lr=0.1))
            >>> optimizer.load_state_dict(optimizer.state_dict())
        """
        self.base_optimizer.load_state_dict(state_dict)
        self._share()
