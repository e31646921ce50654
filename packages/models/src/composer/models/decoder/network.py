"""The network: token vectors through blocks, and back to one logit per token of the vocabulary.

First weights are normal with a spread of 0.02; the two projections that end the branches of a block
have it divided by the square root of the number of branches, so that the sum of all branches is as
wide in a deep network as in a flat one (Radford et al., Language Models are Unsupervised Multitask
Learners, 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from composer.models.decoder.attention import (
    Attention,
    KeyValueCache,
    block_mask,
    check_tokens,
    dense_mask,
)
from composer.models.decoder.projection import Projection, TokenEmbedding
from composer.models.decoder.rotary import Rotation, rotation
from composer.utils.checks import check_bool, check_choice, check_integer, check_number

__all__ = ["Decoder", "DecoderConfig"]

_ATTENTIONS = ("sdpa", "flex")


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """The numbers of a decoder.

    Args:
        vocab_size: Number of tokens.
        hidden_size: Size of the token vectors.
        num_layers: Number of blocks.
        num_heads: Number of heads of queries; divides ``hidden_size`` into even parts.
        num_kv_heads: Number of heads of keys and values; divides ``num_heads``. As many as those of
            queries by default.
        intermediate_size: Size between the two feed-forward layers; by default two thirds of four
            times ``hidden_size``, rounded up to a multiple of 64, so that three matrices weigh as
            much as two of four times the size.
        rope_base: Base of the angles of the rotary positions.
        norm_eps: What is added to mean squares before their root is taken.
        tie_embeddings: Whether the output layer is the table of token vectors.
        initializer_std: Spread of the first weights.
        attention: ``"sdpa"``, or ``"flex"``, which skips blocks of documents and padding on a GPU
            and has no backward pass on the CPU.

    Raises:
        TypeError: If a value is of the wrong kind.
        ValueError: If a value is not accepted.

    Example:
        >>> DecoderConfig(vocab_size=100, hidden_size=96, num_layers=2, num_heads=4).kv_heads
        4
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int | None = None
    intermediate_size: int | None = None
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = True
    initializer_std: float = 0.02
    attention: str = "sdpa"

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        for name in ("vocab_size", "hidden_size", "num_layers", "num_heads"):
            check_integer(name, getattr(self, name), low=1)
        check_integer("num_kv_heads", self.kv_heads, low=1)
        check_integer("intermediate_size", self.feed_forward_size, low=1)
        for name in ("rope_base", "norm_eps"):
            check_number(name, getattr(self, name), low=0, open_low=True)
        check_number("initializer_std", self.initializer_std, low=0)
        check_bool("tie_embeddings", self.tie_embeddings)
        check_choice("attention", self.attention, _ATTENTIONS)
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"num_heads={self.num_heads} must divide hidden_size={self.hidden_size} into even "
                f"parts, since rotary positions turn pairs"
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"num_kv_heads={self.num_kv_heads} must divide num_heads={self.num_heads}"
            )

    @property
    def kv_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def feed_forward_size(self) -> int:
        """Size between the feed-forward layers."""
        if self.intermediate_size is not None:
            return self.intermediate_size
        return 64 * math.ceil(8 * self.hidden_size / 3 / 64)


class _GatedFeedForward(nn.Module):
    def __init__(self, config: DecoderConfig, output_std: float) -> None:
        super().__init__()
        inner = config.feed_forward_size
        self.gate = Projection(config.hidden_size, inner, std=config.initializer_std)
        self.up = Projection(config.hidden_size, inner, std=config.initializer_std)
        self.down = Projection(inner, config.hidden_size, std=output_std)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class _Block(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        # Two branches per block end in the sum.
        output_std = config.initializer_std / math.sqrt(2 * config.num_layers)
        self.attention_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = Attention(
            config.hidden_size,
            config.num_heads,
            config.kv_heads,
            std=config.initializer_std,
            output_std=output_std,
        )
        self.feed_forward_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.feed_forward = _GatedFeedForward(config, output_std)

    def forward(
        self, x: torch.Tensor, turns: Rotation, mask: Any, cache: KeyValueCache | None
    ) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), turns, mask, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder(nn.Module):
    """A decoder-only transformer.

    Args:
        config: Its numbers.

    Example:
        >>> config = DecoderConfig(vocab_size=50, hidden_size=16, num_layers=2, num_heads=2)
        >>> Decoder(config)(torch.zeros(3, 7, dtype=torch.long)).shape
        torch.Size([3, 7, 50])
    """

    config: DecoderConfig

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        std = config.initializer_std
        self.embedding = TokenEmbedding(config.vocab_size, config.hidden_size, std=std)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.head = Projection(config.hidden_size, config.vocab_size, std=std)
        if config.tie_embeddings:
            self.head.weight = self.embedding.weight

    @property
    def output_weight(self) -> torch.Tensor:
        """Weight of the output layer, of shape (V, hidden_size)."""
        return self.head.weight

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        *,
        return_hidden_states: bool = False,
    ) -> torch.Tensor:
        """Compute the logits.

        Args:
            input_ids: Tokens of shape (N, T).
            attention_mask: Of shape (N, T), zero where there is padding, at which nobody looks.
                Padding only at the end needs no mask: nobody looks ahead.
            document_ids: Integers of shape (N, T): tokens look at their own document only.
            return_hidden_states: Whether to return what goes into the output layer instead.

        Returns:
            Logits of shape (N, T, V), or hidden states of shape (N, T, hidden_size).

        Raises:
            TypeError: If the tokens are no integers.
            ValueError: If a shape does not fit.

        Example:
            >>> config = DecoderConfig(vocab_size=50, hidden_size=16, num_layers=1, num_heads=2)
            >>> hidden = Decoder(config)(torch.tensor([[3, 4]]), return_hidden_states=True)
            >>> hidden.shape
            torch.Size([1, 2, 16])
        """
        check_tokens(input_ids, attention_mask=attention_mask, document_ids=document_ids)
        samples, length = input_ids.shape
        mask: Any
        if self.config.attention == "flex":
            mask = block_mask(attention_mask, document_ids, (samples, length), input_ids.device)
        else:
            mask = dense_mask(attention_mask, document_ids)
        hidden = self.run_blocks(input_ids, mask)
        return hidden if return_hidden_states else self.head(hidden)

    def run_blocks(
        self,
        input_ids: torch.Tensor,
        mask: Any | None = None,
        caches: list[KeyValueCache] | None = None,
    ) -> torch.Tensor:
        """Compute the hidden states, perhaps of tokens that go on after cached ones.

        Args:
            input_ids: Tokens of shape (N, T).
            mask: What :class:`~composer.models.decoder.attention.Attention` takes.
            caches: One per block.

        Returns:
            What goes into the output layer, of shape (N, T, hidden_size).

        Example:
            >>> config = DecoderConfig(vocab_size=50, hidden_size=16, num_layers=1, num_heads=2)
            >>> Decoder(config).run_blocks(torch.tensor([[3, 4, 5]])).shape
            torch.Size([1, 3, 16])
        """
        first = 0 if caches is None else caches[0].length
        turns = rotation(
            first,
            input_ids.shape[1],
            self.config.hidden_size // self.config.num_heads,
            base=self.config.rope_base,
            device=input_ids.device,
        )
        hidden = self.embedding(input_ids)
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, turns, mask, None if caches is None else caches[index])
        return self.norm(hidden)

    def flops_per_token(self, length: int) -> int:
        """Say what the forward pass costs per token.

        Two operations per weight of every matrix, and per layer two products of queries and keys
        and of shares and values with every position of the sequence, as Chowdhery et al., PaLM
        (2022), appendix B count; that half of the positions are not looked at is not deducted.

        Args:
            length: Number of tokens of a sequence.

        Returns:
            The number of floating-point operations.

        Example:
            >>> config = DecoderConfig(
            ...     vocab_size=10, hidden_size=4, num_layers=1, num_heads=1, intermediate_size=8
            ... )
            >>> Decoder(config).flops_per_token(3) == 2 * (4 * 16 + 3 * 32 + 40) + 2 * 2 * 3 * 4
            True
        """
        config = self.config
        matrices = sum(p.weight.numel() for p in self.modules() if isinstance(p, nn.Linear))
        return 2 * matrices + 4 * config.num_layers * length * config.hidden_size

    def generate(
        self,
        input_ids: torch.Tensor,
        max_new_tokens: int,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        *,
        attention_mask: torch.Tensor | None = None,
        stop_token: int | None = None,
    ) -> torch.Tensor:
        """Go on from a beginning.

        Args:
            input_ids: Tokens of shape (N, T), with T of at least 1.
            max_new_tokens: Number of tokens to add.
            temperature: What logits are divided by before a token is drawn; 0 takes the likeliest.
            generator: Source of the draws; torch's global one by default.
            attention_mask: Of shape (N, T), zero where there is padding, which stands in front.
            stop_token: After it a sequence is filled up with it, and generation ends when all
                sequences have it.

        Returns:
            Tokens of shape (N, T + new).

        Raises:
            ValueError: If a value is not accepted.

        Example:
            >>> config = DecoderConfig(vocab_size=50, hidden_size=16, num_layers=1, num_heads=2)
            >>> Decoder(config).generate(torch.tensor([[3, 4]]), 5).shape
            torch.Size([1, 7])
        """
        from composer.models.decoder.generation import generate

        return generate(
            self,
            input_ids,
            max_new_tokens,
            temperature,
            generator,
            attention_mask=attention_mask,
            stop_token=stop_token,
        )
