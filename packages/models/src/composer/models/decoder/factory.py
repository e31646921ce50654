"""Decoders by the name of their size."""

from __future__ import annotations

from composer.models.decoder.network import Decoder, DecoderConfig
from composer.models.language import LanguageModel
from composer.models.origin import remembers_origin
from composer.utils.checks import check_choice

__all__ = ["composer_decoder"]

#: Size to hidden size, layers and heads: Brown et al., Language Models are Few-Shot Learners
#: (2020), table 2.1, with heads of one size where theirs does not divide evenly.
_SIZES = {
    "tiny": (64, 2, 4),
    "125m": (768, 12, 12),
    "350m": (1024, 24, 16),
    "760m": (1536, 24, 16),
    "1.3b": (2048, 24, 16),
    "2.7b": (2560, 32, 20),
    "6.7b": (4096, 32, 32),
}


@remembers_origin("composer_decoder")
def composer_decoder(
    size: str = "125m",
    vocab_size: int = 50257,
    *,
    hidden_size: int | None = None,
    num_layers: int | None = None,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    intermediate_size: int | None = None,
    rope_base: float = 10000.0,
    norm_eps: float = 1e-5,
    tie_embeddings: bool = True,
    attention: str = "sdpa",
    chunk_size: int | None = None,
) -> LanguageModel:
    """Build a language model around a decoder.

    Args:
        size: ``"tiny"``, ``"125m"``, ``"350m"``, ``"760m"``, ``"1.3b"``, ``"2.7b"`` or ``"6.7b"``:
            millions or billions of parameters with tied embeddings and the default vocabulary.
        vocab_size: Number of tokens; that of GPT-2 by default.
        hidden_size: Size of the token vectors, in place of the size's.
        num_layers: Number of blocks, in place of the size's.
        num_heads: Number of heads of queries, in place of the size's.
        num_kv_heads: Number of heads of keys and values; divides ``num_heads``, which it is by
            default.
        intermediate_size: Size between the feed-forward layers; by default two thirds of four
            times ``hidden_size``, rounded up to a multiple of 64.
        rope_base: Base of the angles of the rotary positions.
        norm_eps: What is added to mean squares before their root is taken.
        tie_embeddings: Whether the output layer is the table of token vectors.
        attention: ``"sdpa"``, or ``"flex"``, which skips blocks of documents and padding on a GPU
            and has no backward pass on the CPU.
        chunk_size: Number of tokens whose logits are held at a time; all of them by default.

    Returns:
        The model, with cross entropy and perplexity as metrics.

    Raises:
        ValueError: If a name or a number is not accepted.

    Example:
        >>> model = composer_decoder("tiny", vocab_size=100, num_kv_heads=2)
        >>> sum(p.numel() for p in model.parameters())
        105024
    """
    check_choice("size", size, _SIZES)
    hidden, layers, heads = _SIZES[size]
    config = DecoderConfig(
        vocab_size=vocab_size,
        hidden_size=hidden if hidden_size is None else hidden_size,
        num_layers=layers if num_layers is None else num_layers,
        num_heads=heads if num_heads is None else num_heads,
        num_kv_heads=num_kv_heads,
        intermediate_size=intermediate_size,
        rope_base=rope_base,
        norm_eps=norm_eps,
        tie_embeddings=tie_embeddings,
        attention=attention,
    )
    return LanguageModel(Decoder(config), chunk_size=chunk_size)
