"""Weight standardisation as surgery on models."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrize

from composer.utils.checks import check_integer
from composer.utils.module_surgery import check_surgery

__all__ = ["WeightStandardizer", "apply_weight_standardization", "check_settings", "standardize"]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def standardize(weight: torch.Tensor, epsilon: float = 1e-5) -> torch.Tensor:
    """Give the weights of every output channel mean zero and variance one.

    Args:
        weight: Of shape (out_channels, ...).
        epsilon: Added to the variance.

    Returns:
        The standardised weights.

    Example:
        >>> standardize(torch.tensor([[1.0, 3.0], [5.0, 5.0]])).round()
        tensor([[-1.,  1.],
                [ 0.,  0.]])
    """
    dims = list(range(1, weight.ndim))
    var, mean = torch.var_mean(weight, dim=dims, keepdim=True, correction=0)
    return (weight - mean) * torch.rsqrt(var + epsilon)


class WeightStandardizer(nn.Module):
    """The parametrisation that convolutions get.

    Example:
        >>> WeightStandardizer()(torch.tensor([[1.0, 3.0]])).round()
        tensor([[-1.,  1.]])
    """

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Standardise.

        Args:
            weight: The weights that are trained.

        Returns:
            The weights that are used.

        Example:
            >>> WeightStandardizer()(torch.ones(2, 3)).abs().max()
            tensor(0.)
        """
        return standardize(weight)


def check_settings(n_last_layers_ignore: int) -> None:
    """Refuse settings that the surgery cannot follow.

    Args:
        n_last_layers_ignore: How many of the last convolutions are left alone.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If it is negative.

    Example:
        >>> check_settings(0)
    """
    check_integer("n_last_layers_ignore", n_last_layers_ignore, low=0)


def apply_weight_standardization(module: nn.Module, n_last_layers_ignore: int = 0) -> int:
    """Standardise the weights of convolutions whenever they are used, in place.

    What is trained is the weight as it is, under the name
    ``...parametrizations.weight.original``; the parameter object stays the same, so optimizers go
    on with it.

    Args:
        module: The model.
        n_last_layers_ignore: How many of the last convolutions are left alone, in the order in
            which they are defined.

    Returns:
        How many convolutions were changed.

    Raises:
        ValueError: If ``n_last_layers_ignore`` is negative.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 4, 3))
        >>> apply_weight_standardization(model, n_last_layers_ignore=1)
        1
        >>> model[0].weight.mean().abs() < 1e-6
        tensor(True)
    """
    check_surgery(module, name="module")
    check_settings(n_last_layers_ignore)
    found = [one for one in module.modules() if isinstance(one, _CONVOLUTIONS)]
    count = 0
    for convolution in found[: max(0, len(found) - n_last_layers_ignore)]:
        if _is_standardized(convolution):
            continue
        # `unsafe` leaves out a call that would only check what the class above guarantees.
        parametrize.register_parametrization(
            convolution, "weight", WeightStandardizer(), unsafe=True
        )
        count += 1
    return count


def _is_standardized(module: nn.Module) -> bool:
    if not parametrize.is_parametrized(module, "weight"):
        return False
    chain = module.get_submodule("parametrizations.weight")
    return any(isinstance(one, WeightStandardizer) for one in chain.children())
