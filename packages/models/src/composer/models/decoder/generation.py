"""Going on from a beginning, one token at a time, without computing the beginning again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from composer.models.decoder.attention import KeyValueCache, check_tokens, dense_mask
from composer.utils.checks import check_integer, check_number

if TYPE_CHECKING:
    from composer.models.decoder.network import Decoder

__all__ = ["generate"]


@torch.no_grad()
def generate(
    decoder: Decoder,
    input_ids: torch.Tensor,
    max_new_tokens: int,
    temperature: float,
    generator: torch.Generator | None,
    *,
    attention_mask: torch.Tensor | None,
    stop_token: int | None,
) -> torch.Tensor:
    """Do what :meth:`Decoder.generate` says.

    Args:
        decoder: The network.
        input_ids: Tokens of shape (N, T).
        max_new_tokens: Number of tokens to add.
        temperature: What logits are divided by; 0 takes the likeliest token.
        generator: Source of the draws.
        attention_mask: Of shape (N, T), zero where there is padding.
        stop_token: Token that ends a sequence.

    Returns:
        Tokens of shape (N, T + new).

    Raises:
        TypeError: If a value is of the wrong kind.
        ValueError: If a value is not accepted.

    Example:
        >>> from composer.models.decoder import Decoder, DecoderConfig
        >>> config = DecoderConfig(vocab_size=5, hidden_size=8, num_layers=1, num_heads=2)
        >>> options = dict(attention_mask=None, stop_token=None)
        >>> generate(Decoder(config), torch.tensor([[1]]), 3, 0.0, None, **options).shape
        torch.Size([1, 4])
    """
    check_integer("max_new_tokens", max_new_tokens, low=0)
    check_number("temperature", temperature, low=0)
    if stop_token is not None:
        check_integer("stop_token", stop_token, low=0)
    check_tokens(input_ids, attention_mask=attention_mask)
    if input_ids.shape[1] == 0:
        raise ValueError(
            f"input_ids of shape {tuple(input_ids.shape)} must have the shape (N, T), with at "
            f"least one token to go on from"
        )
    samples, length = input_ids.shape
    if attention_mask is not None and not bool(attention_mask[:, -1].all()):
        raise ValueError(
            "attention_mask has padding at the end, where generation goes on; padding must "
            "stand in front"
        )
    caches = [KeyValueCache(length + max_new_tokens) for _ in decoder.blocks]
    tokens, fresh = input_ids, input_ids
    mask = dense_mask(attention_mask, None)
    real = None if attention_mask is None else attention_mask.bool()
    stopped = torch.zeros(samples, dtype=torch.bool, device=input_ids.device)
    for _ in range(max_new_tokens):
        logits = decoder.head(decoder.run_blocks(fresh, mask, caches)[:, -1])
        fresh = _choose(logits, temperature, generator)
        if stop_token is not None:
            fresh = torch.where(stopped[:, None], stop_token, fresh)
            stopped = stopped | (fresh[:, 0] == stop_token)
        tokens = torch.cat([tokens, fresh], dim=1)
        if stop_token is not None and bool(stopped.all()):
            break
        if real is not None:
            real = torch.cat([real, real.new_ones(samples, 1)], dim=1)
            mask = real[:, None, None, :]
    return tokens


def _choose(
    logits: torch.Tensor, temperature: float, generator: torch.Generator | None
) -> torch.Tensor:
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    shares = torch.softmax(logits.float() / temperature, dim=-1)
    return torch.multinomial(shares, 1, generator=generator)
