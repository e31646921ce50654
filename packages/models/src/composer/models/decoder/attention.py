"""Causal attention in which several queries share a key: who may look at whom, and the layer.

Ainslie et al., GQA: Training Generalized Multi-Query Transformer Models (2023).
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from composer.models.decoder.projection import Projection
from composer.models.decoder.rotary import Rotation, rotate

__all__ = ["Attention", "KeyValueCache", "block_mask", "check_tokens", "dense_mask"]


def check_tokens(input_ids: torch.Tensor, **context: torch.Tensor | None) -> None:
    """Refuse what is no table of tokens, and what does not say something of each of them.

    Args:
        input_ids: The tokens.
        **context: Name to mask or numbers of documents, or ``None``.

    Raises:
        TypeError: If the tokens are no integers.
        ValueError: If a shape does not fit.

    Example:
        >>> check_tokens(torch.tensor([[1, 2]]), attention_mask=torch.tensor([[1, 1]]))
    """
    if input_ids.ndim != 2:
        raise ValueError(f"input_ids of shape {tuple(input_ids.shape)} must have the shape (N, T)")
    if input_ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"input_ids must be tokens of the type int64 or int32 and not {input_ids.dtype}"
        )
    if torch.jit.is_tracing():
        return  # where sizes are tensors, and a comparison would be taken for a part of the model
    for name, given in context.items():
        if given is not None and given.shape != input_ids.shape:
            raise ValueError(
                f"{name} of shape {tuple(given.shape)} must have the shape of input_ids, "
                f"{tuple(input_ids.shape)}"
            )


def dense_mask(
    attention_mask: torch.Tensor | None, document_ids: torch.Tensor | None
) -> torch.Tensor | None:
    """Say who may look at whom.

    A token sees itself and what stands before it, but neither padding nor other documents. Padding
    sees itself: a softmax over nothing would be NaN, and NaN times zero is NaN in the backward
    pass.

    Args:
        attention_mask: Of shape (N, T), zero where there is padding.
        document_ids: Integers of shape (N, T); tokens of one number are one document.

    Returns:
        Booleans of shape (N, 1, T, T), queries by keys, or ``None`` if there is nothing but order
        to heed.

    Example:
        >>> dense_mask(torch.tensor([[0, 1, 1]]), None).int()
        tensor([[[[1, 0, 0],
                  [0, 1, 0],
                  [0, 1, 1]]]], dtype=torch.int32)
    """
    given = attention_mask if attention_mask is not None else document_ids
    if given is None:
        return None
    length = given.shape[1]
    allowed = torch.ones(length, length, dtype=torch.bool, device=given.device).tril()
    allowed = allowed.expand(given.shape[0], length, length)
    if attention_mask is not None:
        allowed = allowed & attention_mask.bool()[:, None, :]
    if document_ids is not None:
        allowed = allowed & (document_ids[:, :, None] == document_ids[:, None, :])
    itself = torch.eye(length, dtype=torch.bool, device=given.device)
    return (allowed | itself).unsqueeze(1)


def block_mask(
    attention_mask: torch.Tensor | None,
    document_ids: torch.Tensor | None,
    shape: tuple[int, int],
    device: torch.device,
) -> Any:
    """Say the same to flex attention, which then skips the blocks in which nobody sees anybody.

    Args:
        attention_mask: As for :func:`dense_mask`.
        document_ids: As for :func:`dense_mask`.
        shape: Samples and tokens, (N, T).
        device: Where the tokens are.

    Returns:
        A ``BlockMask`` of torch.

    Example:
        >>> mask = block_mask(None, None, (1, 4), torch.device("cpu"))
        >>> mask.to_dense().shape  # blocks of queries by blocks of keys
        torch.Size([1, 1, 1, 1])
    """
    from torch.nn.attention.flex_attention import create_block_mask

    real = None if attention_mask is None else attention_mask.bool()

    def allowed(sample: Any, head: Any, query: Any, key: Any) -> Any:
        del head
        seen = query >= key
        if real is not None:
            seen = seen & real[sample, key]
        if document_ids is not None:
            seen = seen & (document_ids[sample, query] == document_ids[sample, key])
        return seen | (query == key)

    samples, length = shape
    one_for_all = real is None and document_ids is None
    return create_block_mask(
        allowed, None if one_for_all else samples, None, length, length, device=str(device)
    )


class KeyValueCache:
    """Keys and values of the tokens that a layer has seen, with room for those to come.

    Args:
        room: Number of tokens that will be seen altogether.

    Example:
        >>> cache = KeyValueCache(4)
        >>> keys, _ = cache.add(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 8))
        >>> keys.shape, cache.length
        (torch.Size([1, 2, 3, 8]), 3)
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.length = 0
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None

    def add(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the next tokens.

        Args:
            keys: Of shape (N, heads, T, D).
            values: Of the same shape.

        Returns:
            Keys and values of all tokens up to now.

        Example:
            >>> cache = KeyValueCache(2)
            >>> _ = cache.add(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
            >>> cache.add(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2))[0].flatten()
            tensor([0., 0., 1., 1.])
        """
        if self._keys is None or self._values is None:
            shape = (*keys.shape[:2], self.room, keys.shape[3])
            self._keys, self._values = keys.new_empty(shape), values.new_empty(shape)
        end = self.length + keys.shape[2]
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]


class Attention(nn.Module):
    """Self-attention with rotary positions.

    Args:
        hidden_size: Size of the token vectors.
        num_heads: Number of heads of queries.
        num_kv_heads: Number of heads of keys and values; each serves as many neighbouring heads of
            queries as there are for it.
        std: Spread of the first weights.
        output_std: That of the output projection.

    Example:
        >>> from composer.models.decoder.rotary import rotation
        >>> layer = Attention(8, 2, 1, std=0.02, output_std=0.02)
        >>> layer(torch.zeros(1, 3, 8), rotation(0, 3, 4, base=10000.0)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self, hidden_size: int, num_heads: int, num_kv_heads: int, *, std: float, output_std: float
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_size = hidden_size // num_heads
        narrow = num_kv_heads * self.head_size
        self.query = Projection(hidden_size, hidden_size, std=std)
        self.key = Projection(hidden_size, narrow, std=std)
        self.value = Projection(hidden_size, narrow, std=std)
        self.output = Projection(hidden_size, hidden_size, std=output_std)

    def forward(
        self,
        x: torch.Tensor,
        turns: Rotation,
        mask: Any | None = None,
        cache: KeyValueCache | None = None,
    ) -> torch.Tensor:
        """Let tokens look at tokens.

        Args:
            x: Of shape (N, T, hidden_size).
            turns: The turns of their positions.
            mask: ``None`` if a token sees all that stand before it, booleans of shape
                (N, 1, T, seen), or the ``BlockMask`` of flex attention.
            cache: Where keys and values are kept between calls.

        Returns:
            Of the shape of ``x``.

        Example:
            >>> from composer.models.decoder.rotary import rotation
            >>> layer = Attention(8, 2, 2, std=0.02, output_std=0.02)
            >>> cache = KeyValueCache(3)
            >>> _ = layer(torch.ones(1, 2, 8), rotation(0, 2, 4, base=1e4), cache=cache)
            >>> layer(torch.ones(1, 1, 8), rotation(2, 1, 4, base=1e4), cache=cache).shape
            torch.Size([1, 1, 8])
        """
        length = x.shape[1]
        query, key, value = (
            # Heads by their number: of a batch of nothing torch cannot infer it.
            part(x)
            .unflatten(-1, (part.out_features // self.head_size, self.head_size))
            .transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        query, key = rotate(query, turns), rotate(key, turns)
        if cache is not None:
            key, value = cache.add(key, value)
        if mask is None or isinstance(mask, torch.Tensor):
            # A single token after cached ones sees all of them.
            causal = mask is None and (cache is None or length > 1)
            seen = self._scaled_dot_product(query, key, value, mask, causal=causal)
        else:
            seen = _flex(query, key, value, mask)
        return self.output(seen.transpose(1, 2).flatten(2))

    def _scaled_dot_product(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: Any | None,
        *,
        causal: bool,
    ) -> torch.Tensor:
        shared = self.num_kv_heads != self.num_heads
        if shared and mask is not None:
            # The fused kernel that takes masks knows nothing of shared keys; without this, torch
            # falls back to one that holds all scores at once.
            times = self.num_heads // self.num_kv_heads
            key, value = (part.repeat_interleave(times, dim=1) for part in (key, value))
            shared = False
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            mask,
            is_causal=causal,
            enable_gqa=shared,
        )


def _flex(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if query.device.type == "cpu" and needs_grad:
        raise NotImplementedError(
            "attention='flex' has no backward pass on the CPU in torch; train with "
            "attention='sdpa' there, or on a GPU"
        )
    shared = query.shape[1] != key.shape[1]
    result: torch.Tensor
    if query.device.type != "cpu":
        result = _compiled_flex()(query, key, value, block_mask=mask, enable_gqa=shared)
        return result
    with warnings.catch_warnings():
        # Compiling for the CPU takes a compiler of C++ and much time, for text that is looked at
        # only; torch warns that without it all scores are held at once.
        warnings.filterwarnings("ignore", "flex_attention called without", UserWarning)
        result = flex_attention(query, key, value, block_mask=mask, enable_gqa=shared)
        return result


def _compiled_flex() -> Any:
    # Uncompiled it holds all scores at once, which is what it is there to avoid.
    global _flex_kernel
    if _flex_kernel is None:
        from torch.nn.attention.flex_attention import flex_attention

        _flex_kernel = torch.compile(flex_attention)
    return _flex_kernel


_flex_kernel: Any = None
