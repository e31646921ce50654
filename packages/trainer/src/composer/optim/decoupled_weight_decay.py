"""SGD and AdamW whose weight decay does not depend on the size of the learning rate.

In torch's optimizers the decay of a step is ``lr * weight_decay``, so tuning one moves the other.
Here it is ``weight_decay * lr / initial_lr``: it follows the shape of the schedule, and nothing
else (Loshchilov and Hutter, 2017). A decay taken from torch's ``AdamW`` becomes
``weight_decay * initial_lr`` here, hence usually a far smaller number.

The arithmetic is in pure functions over lists of tensors; the classes gather the lists.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import SGD, AdamW

from composer.utils import dist

__all__ = ["DecoupledAdamW", "DecoupledSGDW"]

# From here on a decay looks like one that was tuned for a coupled optimizer.
_SUSPICIOUS_DECAY = 1e-3


def _warn_of_large_decay(name: str, groups: list[dict[str, Any]]) -> None:
    for group in groups:
        decay = group["weight_decay"]
        if decay >= _SUSPICIOUS_DECAY:
            lr = group["initial_lr"]
            warnings.warn(
                f"weight_decay={decay:g} is large for {name}: every step multiplies the weights by "
                f"1 - weight_decay at the initial learning rate. The equivalent of {decay:g} in "
                f"torch's AdamW is weight_decay * lr = {decay * lr:g}",
                UserWarning,
                stacklevel=3,
            )
            return


def _decay_factor(weight_decay: float, lr: float, initial_lr: float) -> float:
    return 1.0 - weight_decay * (lr / initial_lr if initial_lr else 1.0)


def sgdw_update(
    params: list[Tensor],
    grads: list[Tensor],
    momentum_buffers: list[Tensor | None],
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    initial_lr: float,
    dampening: float,
    nesterov: bool,
) -> None:
    """Do one step of SGD with decoupled weight decay, in place.

    Args:
        params: The parameters, any shapes.
        grads: Their gradients, which are left as they are.
        momentum_buffers: Their momenta; ``None`` is replaced by a new buffer.
        weight_decay: The decay of a step at the initial learning rate.
        momentum: The momentum.
        lr: The learning rate.
        initial_lr: The learning rate that the schedule multiplies.
        dampening: How much of a gradient does not enter the momentum.
        nesterov: Whether to look ahead.

    Example:
        >>> p = torch.ones(1)
        >>> sgdw_update([p], [torch.ones(1)], [None], weight_decay=0.5, momentum=0.0, lr=0.1,
        ...             initial_lr=0.2, dampening=0.0, nesterov=False)
        >>> round(p.item(), 6)
        0.65
    """
    updates: Any = grads
    if momentum != 0:
        old = [i for i, buffer in enumerate(momentum_buffers) if buffer is not None]
        if len(old) == len(grads):
            buffers: list[Any] = momentum_buffers
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, grads, alpha=1 - dampening)
        else:
            for i, grad in enumerate(grads):
                buffer = momentum_buffers[i]
                if buffer is None:
                    momentum_buffers[i] = grad.detach().clone()
                else:
                    buffer.mul_(momentum).add_(grad, alpha=1 - dampening)
            buffers = momentum_buffers
        updates = torch._foreach_add(grads, buffers, alpha=momentum) if nesterov else buffers
    if weight_decay != 0:
        torch._foreach_mul_(params, _decay_factor(weight_decay, lr, initial_lr))
    torch._foreach_add_(params, updates, alpha=-lr)


def adamw_update(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    *,
    amsgrad: bool,
    beta1: float,
    beta2: float,
    lr: float,
    initial_lr: float,
    weight_decay: float,
    eps: float,
) -> None:
    """Do one step of Adam with decoupled weight decay, in place.

    Args:
        params: The parameters, any shapes.
        grads: Their gradients, which are left as they are.
        exp_avgs: Their first moments.
        exp_avg_sqs: Their second moments.
        max_exp_avg_sqs: The largest second moments so far; empty without ``amsgrad``.
        state_steps: How many steps each parameter has seen, as tensors of one number on the CPU.
        amsgrad: Whether to divide by the largest second moment.
        beta1: The decay of the first moment.
        beta2: The decay of the second moment.
        lr: The learning rate.
        initial_lr: The learning rate that the schedule multiplies.
        weight_decay: The decay of a step at the initial learning rate.
        eps: What is added to the divisor.

    Example:
        >>> p, m, v = torch.ones(1), torch.zeros(1), torch.zeros(1)
        >>> adamw_update([p], [torch.ones(1)], [m], [v], [], [torch.tensor(0.0)], amsgrad=False,
        ...              beta1=0.9, beta2=0.95, lr=0.1, initial_lr=0.1, weight_decay=0.0, eps=0.0)
        >>> round(p.item(), 6)
        0.9
    """
    torch._foreach_add_(state_steps, 1.0)
    if weight_decay != 0:
        torch._foreach_mul_(params, _decay_factor(weight_decay, lr, initial_lr))
    torch._foreach_lerp_(exp_avgs, grads, 1 - beta1)
    torch._foreach_mul_(exp_avg_sqs, beta2)
    torch._foreach_addcmul_(exp_avg_sqs, grads, grads, 1 - beta2)
    divisor_sqs = exp_avg_sqs
    if amsgrad:
        torch._foreach_maximum_(max_exp_avg_sqs, exp_avg_sqs)
        divisor_sqs = max_exp_avg_sqs
    divisors = torch._foreach_sqrt(divisor_sqs)
    steps = [step.item() for step in state_steps]
    if steps.count(steps[0]) == len(steps):
        torch._foreach_div_(divisors, (1 - beta2 ** steps[0]) ** 0.5)
        torch._foreach_add_(divisors, eps)
        torch._foreach_addcdiv_(params, exp_avgs, divisors, -lr / (1 - beta1 ** steps[0]))
        return
    torch._foreach_div_(divisors, [(1 - beta2**step) ** 0.5 for step in steps])
    torch._foreach_add_(divisors, eps)
    torch._foreach_addcdiv_(params, exp_avgs, divisors, [-lr / (1 - beta1**step) for step in steps])


def _remember_initial_lr(groups: list[dict[str, Any]]) -> None:
    for group in groups:
        group.setdefault("initial_lr", group["lr"])


class DecoupledSGDW(SGD):
    """SGD that multiplies the weights by ``1 - weight_decay * lr / initial_lr`` each step.

    Args:
        params: Parameters, or groups of them.
        lr: The learning rate, which must be given; what it is here (or later in
            ``add_param_group``) counts as the initial one.
        momentum: The momentum.
        dampening: How much of a gradient does not enter the momentum.
        weight_decay: The decay of a step at the initial learning rate. From 1e-3 on a warning says
            that it looks like the decay of another optimizer.
        nesterov: Whether to look ahead; needs momentum and no dampening.

    Raises:
        ValueError: If ``lr`` is missing or a value is out of range.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = DecoupledSGDW([weight], lr=0.1, weight_decay=1e-4)
        >>> weight.grad = torch.ones(1)
        >>> _ = optimizer.step()
        >>> round(weight.item(), 6)
        0.8999
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | None = None,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        if lr is None:
            raise ValueError("lr must be given: DecoupledSGDW(params, lr=0.1)")
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
        )
        _warn_of_large_decay(type(self).__name__, self.param_groups)

    sgdw = staticmethod(sgdw_update)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, whose learning rate counts as its initial one.

        Args:
            param_group: The parameters under ``params``, and settings that differ.

        Example:
            >>> make = lambda: torch.nn.Parameter(torch.ones(1))
            >>> optimizer = DecoupledSGDW([make()], lr=0.1)
            >>> optimizer.add_param_group({"params": [make()], "lr": 0.2})
            >>> optimizer.param_groups[1]["initial_lr"]
            0.2
        """
        super().add_param_group(param_group)
        _remember_initial_lr(self.param_groups)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do one step.

        Args:
            closure: A function that computes the gradients anew and returns the loss.

        Returns:
            What the closure returned, or ``None``.

        Example:
            >>> weight = torch.nn.Parameter(torch.ones(1))
            >>> DecoupledSGDW([weight], lr=0.1).step()
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            states = [self.state[p] for p in params]
            buffers = [state.get("momentum_buffer") for state in states]
            sgdw_update(
                params,
                [p.grad for p in params],
                buffers,
                weight_decay=group["weight_decay"],
                momentum=group["momentum"],
                lr=group["lr"],
                initial_lr=group["initial_lr"],
                dampening=group["dampening"],
                nesterov=group["nesterov"],
            )
            if group["momentum"] != 0:
                for state, buffer in zip(states, buffers, strict=True):
                    state["momentum_buffer"] = buffer
        return loss


def _moment(param: Tensor, state: dict[str, Any], step: Tensor) -> Tensor:
    del param, step
    return torch.linalg.vector_norm(state["exp_avg"])


def _param(param: Tensor, state: dict[str, Any], step: Tensor) -> Tensor:
    del state, step
    return torch.linalg.vector_norm(param.detach())


def _update(param: Tensor, state: dict[str, Any], step: Tensor) -> Tensor:
    del param, state
    return torch.linalg.vector_norm(step)


def _grad(param: Tensor, state: dict[str, Any], step: Tensor) -> Tensor:
    del state, step
    assert param.grad is not None
    return torch.linalg.vector_norm(param.grad)


class DecoupledAdamW(AdamW):
    """Adam that multiplies the weights by ``1 - weight_decay * lr / initial_lr`` each step.

    Note that ``betas`` and ``weight_decay`` default to other values than in torch.

    Args:
        params: Parameters, or groups of them.
        lr: The learning rate; what it is here (or later in ``add_param_group``) counts as the
            initial one.
        betas: The decays of the first and of the second moment.
        eps: What is added to the divisor.
        weight_decay: The decay of a step at the initial learning rate. From 1e-3 on a warning says
            that it looks like the decay of another optimizer.
        amsgrad: Whether to divide by the largest second moment so far.

    Raises:
        ValueError: If a value is out of range.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = DecoupledAdamW([weight], lr=0.1, weight_decay=0.0)
        >>> weight.grad = torch.ones(1)
        >>> _ = optimizer.step()
        >>> round(weight.item(), 6)
        0.9
    """

    #: Metric name to a function of a parameter, its optimizer state and its last step, which gives
    #: the metric as a tensor of no dimensions on the parameter's device.
    metric_functions: ClassVar[dict[str, Callable[[Tensor, dict[str, Any], Tensor], Tensor]]] = {
        "l2_norm/moment": _moment,
        "l2_norm/param": _param,
        "l2_norm/update": _update,
        "l2_norm/grad": _grad,
    }

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 1e-5,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad
        )
        self.amsgrad = amsgrad
        _warn_of_large_decay(type(self).__name__, self.param_groups)

    adamw = staticmethod(adamw_update)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, whose learning rate counts as its initial one.

        Args:
            param_group: The parameters under ``params``, and settings that differ.

        Example:
            >>> make = lambda: torch.nn.Parameter(torch.ones(1))
            >>> optimizer = DecoupledAdamW([make()], lr=0.1)
            >>> optimizer.add_param_group({"params": [make()], "lr": 0.2})
            >>> optimizer.param_groups[1]["initial_lr"]
            0.2
        """
        super().add_param_group(param_group)
        _remember_initial_lr(self.param_groups)

    def _state_of(self, param: Tensor, amsgrad: bool) -> dict[str, Any]:
        state: dict[str, Any] = self.state[param]
        if not state:
            if torch.is_complex(param):
                raise RuntimeError("DecoupledAdamW does not support complex parameters")
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        if amsgrad and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        return state

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do one step.

        Args:
            closure: A function that computes the gradients anew and returns the loss.

        Returns:
            What the closure returned, or ``None``.

        Raises:
            RuntimeError: If a gradient is sparse, or a parameter complex.

        Example:
            >>> weight = torch.nn.Parameter(torch.ones(1))
            >>> DecoupledAdamW([weight]).step()
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads = [p.grad for p in params]
            if any(grad.is_sparse for grad in grads):
                raise RuntimeError("DecoupledAdamW does not support sparse gradients")
            amsgrad = group["amsgrad"]
            states = [self._state_of(p, amsgrad) for p in params]
            beta1, beta2 = group["betas"]
            adamw_update(
                params,
                grads,
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [state["max_exp_avg_sq"] for state in states] if amsgrad else [],
                [state["step"] for state in states],
                amsgrad=amsgrad,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                initial_lr=group["initial_lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
            )
        return loss

    def report_per_parameter_metrics(
        self, param: Tensor, name: str, optimizer_metrics: dict[str, Any]
    ) -> dict[str, Any]:
        """Add one parameter's metrics, as tensors on its device.

        Args:
            param: The parameter.
            name: Its name, which ends the keys.
            optimizer_metrics: The metrics so far; they are added to.

        Returns:
            ``optimizer_metrics``.

        Example:
            >>> weight = torch.nn.Parameter(torch.full((1,), 3.0))
            >>> optimizer = DecoupledAdamW([weight], lr=0.1)
            >>> weight.grad = torch.ones(1)
            >>> _ = optimizer.step()
            >>> metrics = optimizer.report_per_parameter_metrics(weight, "weight", {})
            >>> metrics["l2_norm/grad/weight"].item()
            1.0
        """
        state = self.state.get(param)
        if not state or param.grad is None:
            return optimizer_metrics
        group = next(g for g in self.param_groups if any(p is param for p in g["params"]))
        beta1, beta2 = group["betas"]
        count = state["step"].item()
        second = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
        divisor = (second / (1 - beta2**count)).sqrt_().add_(group["eps"])
        step = state["exp_avg"] / divisor
        step.mul_(group["lr"] / (1 - beta1**count))
        decay = 1.0 - _decay_factor(group["weight_decay"], group["lr"], group["initial_lr"])
        step.add_(param.detach(), alpha=decay)
        for metric, function in self.metric_functions.items():
            optimizer_metrics[f"{metric}/{name}"] = function(param, state, step)
        return optimizer_metrics

    def pre_reduce_metrics(self, optimizer_metrics: dict[str, Any]) -> dict[str, Any]:
        """Prepare the metrics of parts of parameters for a sum over ranks: square the norms.

        Args:
            optimizer_metrics: The metrics of this rank.

        Returns:
            The metrics to hand to :meth:`dist_reduce_metrics`, in the same order on every rank.

        Example:
            >>> optimizer = DecoupledAdamW([torch.nn.Parameter(torch.ones(1))])
            >>> optimizer.pre_reduce_metrics({"l2_norm/grad/w": torch.tensor(3.0)})
            {'l2_norm/grad/w': tensor(9.)}
        """
        return {
            name: optimizer_metrics[name] ** 2
            if name.startswith("l2_norm")
            else optimizer_metrics[name]
            for name in sorted(optimizer_metrics)
        }

    def dist_reduce_metrics(self, optimizer_metrics: dict[str, Any]) -> dict[str, Any]:
        """Combine the prepared metrics of all ranks: norms of the whole, means of the rest.

        The sum runs on the device of the tensors, in one collective.

        Args:
            optimizer_metrics: What :meth:`pre_reduce_metrics` returned; the same names on every
                rank.

        Returns:
            The metrics of the whole parameters.

        Example:
            >>> optimizer = DecoupledAdamW([torch.nn.Parameter(torch.ones(1))])
            >>> optimizer.dist_reduce_metrics({"l2_norm/grad/w": torch.tensor(9.0)})
            {'l2_norm/grad/w': tensor(3.)}
        """
        if not optimizer_metrics:
            return {}
        world = dist.get_world_size()
        values = torch.stack([torch.as_tensor(v).float() for v in optimizer_metrics.values()])
        if world > 1:
            dist.all_reduce(values, reduce_operation="SUM")
        return {
            name: value.sqrt() if name.startswith("l2_norm") else value / world
            for name, value in zip(optimizer_metrics, values.unbind(), strict=True)
        }
