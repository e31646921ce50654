"""Loss scaling for optimizers of every kind, those that evaluate the loss themselves included.

Torch's scaler refuses closures. Here an optimizer that takes one gets a closure which unscales the
gradients of each evaluation; an evaluation that overflowed abandons the step as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.amp.grad_scaler import OptState, _refresh_per_optimizer_state

from composer.utils import dist

__all__ = ["ClosureGradScaler", "needs_closure"]


def needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether an optimizer evaluates the loss itself, several times in a step.

    Args:
        optimizer: The optimizer.

    Returns:
        True for L-BFGS, and for optimizers that say so by an attribute
        ``_step_supports_amp_closure``.

    Example:
        >>> needs_closure(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))
        False
    """
    return isinstance(optimizer, torch.optim.LBFGS) or bool(
        getattr(optimizer, "_step_supports_amp_closure", False)
    )


class _Overflowed(Exception):
    """An evaluation gave infinite gradients, so the step that asked for it is given up."""


class ClosureGradScaler(torch.amp.GradScaler):
    """A gradient scaler whose :meth:`step_with_closure` serves optimizers that take closures.

    Args:
        device: Type of torch device.
        **settings: As for ``torch.amp.GradScaler``.

    Example:
        >>> scaler = ClosureGradScaler("cpu")
        >>> scaler.get_scale()
        65536.0
    """

    def overflowed(self, optimizers: Sequence[torch.optim.Optimizer]) -> bool:
        """Tell whether the gradients of any of these were found infinite when they were unscaled.

        Args:
            optimizers: Optimizers whose gradients were unscaled since the last update.

        Returns:
            The same answer on every rank.
        """
        found = any(
            value.item()
            for optimizer in optimizers
            for value in self._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
        )
        return dist.any_rank(found)

    def step_all(self, optimizers: Sequence[torch.optim.Optimizer]) -> bool:
        """Let optimizers step whose gradients were unscaled, or, if any overflowed, none of them.

        Args:
            optimizers: The optimizers; one without gradients is left out.

        Returns:
            Whether they stepped.
        """
        found = [
            optimizer
            for optimizer in optimizers
            if self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        ]
        applied = not self.overflowed(found)
        if applied:
            for optimizer in found:
                self.step(optimizer)
        if found:
            self.update()
        return applied

    def step_with_closure(
        self, optimizer: torch.optim.Optimizer, closure: Callable[[], torch.Tensor]
    ) -> bool:
        """Let an optimizer make a step in which it evaluates the loss as often as it likes.

        An optimizer with ``_step_supports_amp_closure`` gets ``None`` as the loss of an evaluation
        that overflowed, and has to leave the parameters as they were. Any other one is taken out of
        its step: parameters are put back, and if it had moved already its state starts anew.

        Args:
            optimizer: The optimizer.
            closure: Clears the gradients, computes the loss, scales it, runs the backward pass,
                and calls :meth:`unscale_`.

        Returns:
            Whether the step was made.
        """
        aware = getattr(optimizer, "_step_supports_amp_closure", False)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        kept = [] if aware else [p.detach().clone() for p in parameters]
        num_evaluations = 0
        failed = False

        def evaluate() -> torch.Tensor | None:
            nonlocal num_evaluations, failed
            self._per_optimizer_states[id(optimizer)] = _refresh_per_optimizer_state()
            loss = closure()
            num_evaluations += 1
            if not self.overflowed([optimizer]):
                return loss
            failed = True
            if aware:
                return None
            raise _Overflowed

        try:
            optimizer.step(evaluate)  # type: ignore[arg-type]
        except _Overflowed:
            with torch.no_grad():
                for parameter, value in zip(parameters, kept, strict=True):
                    parameter.copy_(value)
            if num_evaluations > 1:
                optimizer.state.clear()
        self._per_optimizer_states[id(optimizer)]["stage"] = OptState.STEPPED
        return not failed
