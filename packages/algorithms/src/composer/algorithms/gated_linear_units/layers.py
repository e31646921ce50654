"""A projection with a gate, which stands where a projection and its activation stood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["GatedProjection", "num_outputs_of"]


class GatedProjection(nn.Module):
    """Computes ``act_fn(gated_layer(x)) * non_gated_layer(x)``.

    Args:
        gated_layer: The projection whose result is activated.
        non_gated_layer: The one whose result it opens or shuts.
        act_fn: The activation.

    Example:
        >>> layer = GatedProjection(nn.Linear(4, 8), nn.Linear(4, 8), nn.GELU())
        >>> layer(torch.ones(2, 4)).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        gated_layer: nn.Module,
        non_gated_layer: nn.Module,
        act_fn: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        super().__init__()
        self.gated_layer = gated_layer
        self.non_gated_layer = non_gated_layer
        self.act_fn = act_fn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Project, and gate.

        Args:
            x: Of shape (..., in features).

        Returns:
            Of shape (..., out features).

        Example:
            >>> GatedProjection(nn.Identity(), nn.Identity(), nn.ReLU())(torch.tensor([-2.0, 3.0]))
            tensor([-0., 9.])
        """
        gated: torch.Tensor = self.act_fn(self.gated_layer(x)) * self.non_gated_layer(x)
        return gated

    @classmethod
    def beside(
        cls,
        projection: nn.Module,
        act_fn: Callable[[torch.Tensor], torch.Tensor],
        *,
        gated_layer_bias: bool = False,
        non_gated_layer_bias: bool = False,
    ) -> GatedProjection:
        """Put a new projection beside one that is there, which keeps its weights.

        The new weights are drawn, normal and spread as those that are there; its bias is zero.

        Args:
            projection: A ``Linear``, or a layer of transposed weights as in GPT-2. It loses its
                bias if the gated layer is to have none.
            act_fn: The activation.
            gated_layer_bias: Whether it keeps its bias, or gets one.
            non_gated_layer_bias: Whether the new one has a bias.

        Returns:
            The layer.

        Raises:
            TypeError: If the projection is something else, as behind an adapter.

        Example:
            >>> linear = nn.Linear(4, 8)
            >>> layer = GatedProjection.beside(linear, nn.ReLU())
            >>> layer.gated_layer.weight is linear.weight, layer.gated_layer.bias is None
            (True, True)
        """
        size = num_outputs_of(projection)
        weight = projection.weight
        assert isinstance(weight, nn.Parameter)
        other = _another(projection)
        _set_bias(projection, size, wanted=gated_layer_bias)
        _set_bias(other, size, wanted=non_gated_layer_bias)
        gated = cls(projection, other, act_fn)
        gated.train(projection.training)
        return gated


def num_outputs_of(projection: nn.Module) -> int:
    """Return how many outputs a projection has, and refuse what is no projection by a matrix.

    Args:
        projection: The layer.

    Returns:
        Its number of outputs.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> num_outputs_of(nn.Linear(4, 8))
        8
    """
    if type(projection) is nn.Linear:
        return projection.out_features
    if type(projection).__name__ == "Conv1D" and hasattr(projection, "nf"):
        return int(projection.nf)  # type: ignore[arg-type]
    raise TypeError(
        f"a gate can be put beside a Linear, or a Conv1D of transformers, and this is a "
        f"{type(projection).__name__}; apply GatedLinearUnits before adapters or other surgeries"
    )


def _another(projection: nn.Module) -> nn.Module:
    """A projection of the same kind with weights of its own."""
    old: Any = projection.weight
    other: Any = type(projection).__new__(type(projection))
    other.__dict__.update(projection.__dict__)
    for name in ("_parameters", "_buffers", "_non_persistent_buffers_set"):
        other.__dict__[name] = type(projection.__dict__[name])(projection.__dict__[name])
    for name in list(other.__dict__):
        if name.endswith("_hooks") or "_hooks_" in name:
            other.__dict__[name] = type(other.__dict__[name])()
    # Drawn on the host, so that a seed gives the same weights everywhere.
    drawn = torch.randn(old.shape) if old.device.type != "meta" else torch.empty_like(old)
    if old.device.type != "meta":
        drawn = (drawn * old.detach().float().std().cpu()).to(old.device, old.dtype)
    other._parameters["weight"] = nn.Parameter(drawn, requires_grad=old.requires_grad)
    other._parameters["bias"] = None
    return other


def _set_bias(projection: Any, size: int, *, wanted: bool) -> None:
    weight = projection.weight
    bias = projection._parameters.get("bias")
    if wanted and bias is None:
        zeros = torch.zeros(size, device=weight.device, dtype=weight.dtype)
        projection._buffers.pop("bias", None)
        projection._parameters["bias"] = nn.Parameter(zeros, requires_grad=weight.requires_grad)
    elif not wanted:
        if type(projection) is nn.Linear:
            projection._parameters["bias"] = None
            return
        # A Conv1D of transformers always adds one; nothing trains or saves this one.
        del projection._parameters["bias"]
        zeros = torch.zeros(size, device=weight.device, dtype=weight.dtype)
        projection.register_buffer("bias", zeros, persistent=False)
