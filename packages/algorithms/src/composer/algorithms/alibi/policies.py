"""Where biases go in, and positions go out, in the networks that are known from the start."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from composer.algorithms._nlp.registry import ENCODERS, GPT2, SurgeryPolicy
from composer.algorithms.alibi.layers import AttentionBias, BiasMemo, SilentPositions, check_kernel

__all__ = [
    "POLICIES",
    "bias_attention",
    "bias_decoder_attention",
    "check_decoder",
    "is_biased",
    "silence_positions",
]

# Buffers with an entry per position that stand beside a table of positions.
_PER_POSITION = ("position_ids", "token_type_ids")


def bias_attention(
    layer: nn.Module,
    heads: str = "num_heads",
    mask: str = "attention_mask",
    *,
    max_sequence_length: int = 0,
    memo: BiasMemo | None = None,
    **options: Any,
) -> None:
    """Let an attention layer add linear biases to its scores.

    Args:
        layer: The layer, which adds the mask that it is called with, of shape (N, heads, T, S), to
            its scores; if it is called with none, ``is_causal`` says what it looks at.
        heads: Name of its attribute with the number of heads.
        mask: What its ``forward`` calls the mask.
        max_sequence_length: For how many positions there is to be room in a buffer that says who
            sees whom, as GPT-2 of transformers before 5 has it.
        memo: Shared by the layers of a model; by default the layer has its own.
        **options: Not used.

    Raises:
        TypeError: If its ``forward`` takes no such mask.
        ValueError: If it knows positions by another way, or its kernel takes no biases.

    Example:
        >>> class Layer(nn.Module):
        ...     num_heads = 2
        ...     def forward(self, x, attention_mask=None):
        ...         return attention_mask.shape
        >>> layer = Layer()
        >>> bias_attention(layer)
        >>> layer(torch.zeros(1, 3, 8))
        torch.Size([1, 2, 3, 3])
    """
    del options
    if getattr(layer, "is_cross_attention", False):
        return
    _grow_triangle(layer, max_sequence_length)
    if is_biased(layer):
        return
    kind = _relative_positions(layer)
    if kind is not None:
        raise ValueError(
            f"{type(layer).__name__} has position_embedding_type={kind!r}; linear biases stand in "
            f"for absolute positions only, so load the model with 'absolute'"
        )
    check_kernel(layer)
    memo = memo or BiasMemo()
    bias = AttentionBias(layer, getattr(layer, heads), memo=memo, mask_name=mask)
    layer.register_forward_pre_hook(bias, with_kwargs=True)


def _grow_triangle(layer: nn.Module, size: int) -> None:
    """GPT-2 of transformers before 5 keeps in a buffer who sees whom, up to a length."""
    old = layer._buffers.get("bias")
    if old is not None and old.ndim == 4 and old.shape[-1] < size:
        triangle = torch.ones(1, 1, size, size, dtype=old.dtype, device=old.device).tril()
        layer._buffers["bias"] = triangle


def is_biased(layer: nn.Module) -> bool:
    """Tell whether a layer adds biases already.

    Args:
        layer: The layer.

    Returns:
        True if it does.

    Example:
        >>> is_biased(nn.Linear(1, 1))
        False
    """
    return any(isinstance(hook, AttentionBias) for hook in layer._forward_pre_hooks.values())


def silence_positions(
    owner: nn.Module, name: str = "position_embeddings", *, max_sequence_length: int, **options: Any
) -> None:
    """Make a module's table of positions say nothing: zero, frozen, and long enough.

    Args:
        owner: The module.
        name: Its attribute with the table, an ``Embedding``. With a ``padding_idx``, positions are
            counted from the one after it.
        max_sequence_length: For how many positions there is to be room; a longer table stays long.
        **options: Not used.

    Raises:
        TypeError: If it is no plain table, as behind an adapter.

    Example:
        >>> owner = nn.Module()
        >>> owner.table = nn.Embedding(4, 2)
        >>> silence_positions(owner, "table", max_sequence_length=6)
        >>> owner.table.weight.shape, owner.table.weight.requires_grad
        (torch.Size([6, 2]), False)
    """
    del options
    table = getattr(owner, name)
    if type(table) not in (nn.Embedding, SilentPositions):
        raise TypeError(
            f"{name} of {type(owner).__name__} is a {type(table).__name__} and no Embedding; apply "
            f"Alibi to the model before adapters are put on it, and leave its positions out of them"
        )
    first = 0 if table.padding_idx is None else table.padding_idx + 1
    rows = max(table.num_embeddings, max_sequence_length + first)
    if type(table) is SilentPositions and rows == table.num_embeddings:
        return
    silent = SilentPositions(
        rows,
        table.embedding_dim,
        table.padding_idx,
        device=table.weight.device,
        dtype=table.weight.dtype,
    )
    silent.train(table.training)
    setattr(owner, name, silent)
    for buffer in _PER_POSITION:
        old = owner._buffers.get(buffer)
        if old is not None and old.shape[-1] < rows:
            longer = torch.arange(rows, device=old.device, dtype=old.dtype)
            owner._buffers[buffer] = (longer if buffer == "position_ids" else 0 * longer)[None]


def bias_decoder_attention(
    layer: nn.Module, *, memo: BiasMemo | None = None, **options: Any
) -> None:
    """Give a layer of our decoder biases in place of its turns.

    Args:
        layer: The layer.
        memo: Shared by the layers of a model; by default the layer has its own.
        **options: Not used.

    Example:
        >>> from composer.models.decoder.attention import Attention
        >>> layer = Attention(8, 2, 2, std=0.02, output_std=0.02)
        >>> bias_decoder_attention(layer)
        >>> is_biased(layer)
        True
    """
    del options
    if is_biased(layer):
        return
    memo = memo or BiasMemo()
    heads = int(layer.num_heads)  # type: ignore[arg-type]
    bias = AttentionBias(layer, heads, memo=memo, mask_name="mask", cache_name="cache", causal=True)
    layer.register_forward_pre_hook(bias, with_kwargs=True)
    layer.register_forward_pre_hook(_turn_nothing)


def _turn_nothing(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    del layer
    x, (cosines, sines), *rest = args
    return (x, (torch.ones_like(cosines), torch.zeros_like(sines)), *rest)


def check_decoder(decoder: nn.Module, **options: Any) -> None:
    """Refuse a decoder whose attention takes no numbers as a mask.

    Args:
        decoder: The decoder.
        **options: Not used.

    Raises:
        ValueError: If it is one.

    Example:
        >>> from composer.models.decoder import Decoder, DecoderConfig
        >>> config = DecoderConfig(vocab_size=5, hidden_size=8, num_layers=1, num_heads=2)
        >>> check_decoder(Decoder(config))
    """
    del options
    attention = decoder.config.attention  # type: ignore[union-attr]
    if attention != "sdpa":
        raise ValueError(
            f"attention={attention!r} has no room for linear biases; build the decoder with 'sdpa'"
        )


def _relative_positions(layer: nn.Module) -> str | None:
    """The kind of relative positions that a layer has, by itself or by its configuration."""
    for owner in (layer, getattr(layer, "config", None)):
        kind = getattr(owner, "position_embedding_type", None)
        if kind not in (None, "absolute"):
            return str(kind)
    return None


def _of_transformers() -> list[SurgeryPolicy]:
    found = []
    heads, table = ("num_attention_heads",), ("position_embeddings",)
    for path in ENCODERS:
        found.append(SurgeryPolicy("alibi", f"{path}SelfAttention", bias_attention, heads))
        found.append(SurgeryPolicy("alibi", f"{path}Embeddings", silence_positions, table))
    found.append(SurgeryPolicy("alibi", f"{GPT2}Attention", bias_attention, ("num_heads",)))
    found.append(SurgeryPolicy("alibi", f"{GPT2}Model", silence_positions, ("wpe",)))
    return found


_DECODER = "composer.models.decoder"

POLICIES = (
    *_of_transformers(),
    SurgeryPolicy("alibi", f"{_DECODER}.network:Decoder", check_decoder),
    SurgeryPolicy("alibi", f"{_DECODER}.attention:Attention", bias_decoder_attention),
)
