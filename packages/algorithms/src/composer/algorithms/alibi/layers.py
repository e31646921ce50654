"""What is put into a model: biases on the way into attention, and positions that say nothing.

The biases go in through the mask that an attention layer is called with, by a hook before its
forward pass. The layer stays as it is, with its kernels, caches and outputs, so this works with
every layer that adds its mask to the scores.
"""

from __future__ import annotations

import inspect
import weakref
from typing import Any

import torch
from torch import nn

from composer.algorithms.alibi.functional import alibi_bias

__all__ = ["AttentionBias", "BiasMemo", "SilentPositions", "check_kernel"]

# Others take no mask of numbers: what they are called with would be read as something else.
_KERNELS = ("eager", "sdpa")


class SilentPositions(nn.Embedding):
    """A table of positions that is zero and stays it, also when a model's weights are loaded.

    Args:
        num_embeddings: Number of positions.
        embedding_dim: Size of their vectors.
        padding_idx: The position of padding.
        device: Where the table is.
        dtype: Its type.

    Example:
        >>> SilentPositions(4, 2)(torch.tensor([3]))
        tensor([[0., 0.]])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        weight = torch.zeros(num_embeddings, embedding_dim, device=device, dtype=dtype)
        super().__init__(num_embeddings, embedding_dim, padding_idx, _weight=weight, _freeze=True)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        with torch.no_grad():
            # Not in place: a load may have put the very tensor of its source here.
            if self.weight.device.type != "meta" and bool(self.weight.any()):
                self.weight = nn.Parameter(torch.zeros_like(self.weight), requires_grad=False)


class BiasMemo:
    """The last mask with biases, which all layers of one forward pass share.

    A mask of numbers per head is large, and a backward pass keeps it: one of it, and not one a
    layer. Nothing is held here; the mask lives as long as the layers need it.

    Example:
        >>> BiasMemo().recall("key", None) is None
        True
    """

    def __init__(self) -> None:
        # In one field, which is replaced at once: threads may share a model.
        self._last: tuple[Any, Any, Any] = (None, None, None)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._last = (None, None, None)

    def recall(self, key: Any, given: torch.Tensor | None) -> torch.Tensor | None:
        """Return the mask if it was made for the same.

        Args:
            key: Everything that it depends on beside the mask that was given.
            given: That mask.

        Returns:
            The mask, or ``None``.

        Example:
            >>> memo, mask = BiasMemo(), torch.zeros(1)
            >>> memo.keep(1, None, mask)
            >>> memo.recall(1, None) is mask
            True
        """
        last_key, last_given, made = self._last
        # A mask that is gone is none that was not given.
        if last_key != key or (last_given is None) != (given is None):
            return None
        if last_given is not None and last_given() is not given:
            return None
        found: torch.Tensor | None = made()
        return found

    def keep(self, key: Any, given: torch.Tensor | None, made: torch.Tensor) -> None:
        """Remember a mask while it lives.

        Args:
            key: As for :meth:`recall`.
            given: As for :meth:`recall`.
            made: The mask.

        Example:
            >>> BiasMemo().keep(1, None, torch.zeros(1))
        """
        self._last = (key, None if given is None else weakref.ref(given), weakref.ref(made))


class AttentionBias:
    """Adds the biases to the mask of an attention layer, as a hook before its forward pass.

    Args:
        layer: The layer.
        num_heads: Its number of heads.
        mask_name: What its ``forward`` calls the mask.
        cache_name: What its ``forward`` calls the cache of earlier keys, if there is one.
        memo: Shared by the layers of a model.
        causal: Whether a token sees only what stands before it, where there is no mask; by default
            the layer's ``is_causal`` says so.

    Raises:
        TypeError: If its ``forward`` takes no mask.

    Example:
        >>> class Layer(nn.Module):
        ...     def forward(self, x, attention_mask=None):
        ...         return attention_mask
        >>> layer = Layer()
        >>> bias = AttentionBias(layer, 2, memo=BiasMemo())
        >>> _ = layer.register_forward_pre_hook(bias, with_kwargs=True)
        >>> (-256 * layer(torch.zeros(1, 3, 8))[0, 1]).tolist()
        [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """

    def __init__(
        self,
        layer: nn.Module,
        num_heads: int,
        *,
        memo: BiasMemo,
        mask_name: str = "attention_mask",
        cache_name: str = "past_key_values",
        causal: bool | None = None,
    ) -> None:
        names = list(inspect.signature(layer.forward).parameters)
        if mask_name not in names:
            raise TypeError(
                f"the forward of {type(layer).__name__} takes no {mask_name!r}, only {names}, so "
                f"there is no way for biases into it"
            )
        self.num_heads = num_heads
        self.memo = memo
        self.causal = causal
        self._mask = (mask_name, names.index(mask_name))
        place = names.index(cache_name) if cache_name in names else len(names)
        self._cache = (cache_name, place)

    def __call__(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the layer's arguments with another mask."""
        check_kernel(layer)
        inputs = args[0] if args else kwargs["hidden_states"]
        cache = _argument(self._cache, args, kwargs)
        past = 0 if cache is None else _length_of(cache, layer)
        given = _argument(self._mask, args, kwargs)
        causal = getattr(layer, "is_causal", False) if self.causal is None else self.causal
        size = None if given is not None or cache is None else _size_of(cache, layer)
        mask = self._shared(given, inputs, past, size, causal=bool(causal))
        name, place = self._mask
        if place < len(args):
            return (*args[:place], mask, *args[place + 1 :]), kwargs
        return args, {**kwargs, name: mask}

    def _shared(
        self, given: Any, inputs: torch.Tensor, past: Any, size: int | None, *, causal: bool
    ) -> torch.Tensor:
        # The length of a static cache is a tensor that changes; the compiler shares by itself.
        if isinstance(past, torch.Tensor) or torch.compiler.is_compiling():
            return self._biased(given, inputs, past, size, causal=causal)
        version = 0 if given is None or given.is_inference() else given._version
        shape = tuple(inputs.shape[:2])
        key = (self.num_heads, shape, inputs.dtype, inputs.device, past, size, causal, version)
        found = self.memo.recall(key, given)
        if found is None:
            found = self._biased(given, inputs, past, size, causal=causal)
            self.memo.keep(key, given, found)
        return found

    def _biased(
        self, given: Any, inputs: torch.Tensor, past: Any, size: int | None, *, causal: bool
    ) -> torch.Tensor:
        if given is not None and not (isinstance(given, torch.Tensor) and given.ndim == 4):
            kind = tuple(given.shape) if isinstance(given, torch.Tensor) else type(given).__name__
            raise TypeError(
                f"linear biases need a mask of shape (N, heads or 1, T, S), or none, and this one "
                f"is {kind}; use an attention that takes such masks: {' or '.join(_KERNELS)}"
            )
        queries, device = inputs.shape[1], inputs.device
        if given is not None:
            keys = given.shape[-1]
        else:
            keys = int(past) + queries if size is None else size
        bias = alibi_bias(self.num_heads, queries, keys, past=past, device=device)
        if given is not None and given.is_floating_point():
            # The lowest number and a bias may be minus infinity; not all along a row, since the
            # bias of a token for itself is zero.
            return (bias + given).to(given.dtype)
        bias = bias.to(inputs.dtype).unsqueeze(0)
        if given is None and causal:
            places = torch.arange(queries, device=device) + past
            given = places[:, None] >= torch.arange(keys, device=device)
        if given is None:
            return bias
        return torch.where(given.bool(), bias, torch.finfo(bias.dtype).min)


def _argument(place: tuple[str, int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name, position = place
    return args[position] if position < len(args) else kwargs.get(name)


def _length_of(cache: Any, layer: nn.Module) -> Any:
    """How many keys a layer has in a cache, before those of this call."""
    if hasattr(cache, "get_seq_length"):
        return cache.get_seq_length(layer.layer_idx)
    return cache.length


def _size_of(cache: Any, layer: nn.Module) -> int | None:
    """How many keys a layer gets of a cache of fixed size, the free places included."""
    cache = getattr(cache, "self_attention_cache", cache)
    layers: Any = getattr(cache, "layers", None)
    index: Any = getattr(layer, "layer_idx", None)
    if not isinstance(layers, list) or index is None or index >= len(layers):
        return None
    size = getattr(layers[index], "max_cache_len", None)
    return size if isinstance(size, int) else None


def check_kernel(layer: nn.Module) -> None:
    """Refuse an attention layer of transformers whose kernel takes no mask of numbers.

    Args:
        layer: The layer.

    Raises:
        ValueError: If its configuration asks for another kernel than ``"eager"`` or ``"sdpa"``.

    Example:
        >>> check_kernel(nn.Linear(1, 1))  # has no configuration
    """
    kernel = getattr(getattr(layer, "config", None), "_attn_implementation", None)
    if kernel is not None and kernel not in _KERNELS:
        raise ValueError(
            f"attn_implementation={kernel!r} has no room for linear biases; load the model with "
            f"one of {_KERNELS}, or call its set_attn_implementation"
        )
