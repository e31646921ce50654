"""The vocabulary of a tokenizer against the rows of a model's embedding."""

from __future__ import annotations

import logging
from typing import Any

import torch

from composer.models.huggingface.heads import maybe_get_underlying_model

__all__ = ["fit_embeddings", "num_embeddings", "vocabulary_size"]

log = logging.getLogger(__name__)


def vocabulary_size(tokenizer: Any) -> int | None:
    """Return how many rows a tokenizer's tokens need.

    Args:
        tokenizer: A tokenizer; or a processor, which may have none.

    Returns:
        The number of tokens, or the highest index and one, if that is more; ``None`` for what has
        no vocabulary.

    Example:
        >>> vocabulary_size("no tokenizer") is None
        True
    """
    get_vocab = getattr(tokenizer, "get_vocab", None)
    if not callable(get_vocab):
        return None
    indices = get_vocab().values()
    return max(len(tokenizer), max(indices, default=-1) + 1)


def num_embeddings(model: Any) -> int | None:
    """Return how many tokens a model knows.

    Args:
        model: A model of transformers or of peft.

    Returns:
        The rows of its input embedding; ``None`` if it has none.

    Example:
        >>> num_embeddings(torch.nn.Linear(1, 1)) is None
        True
    """
    base = maybe_get_underlying_model(model)
    try:
        embedding = base.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    weight = getattr(embedding, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 2:
        return None
    return int(weight.shape[0])


def fit_embeddings(model: Any, tokenizer: Any, *, allow_resizing: bool) -> bool:
    """Make sure that every token of a tokenizer has a row in the model's embedding.

    A tokenizer with fewer tokens is fine: embeddings are often rounded up to a round number.

    Args:
        model: A model of transformers or of peft.
        tokenizer: The tokenizer, or ``None``.
        allow_resizing: Whether a model may get rows that it lacks; they start as the mean of the
            others, varied as those are.

    Returns:
        Whether rows were added.

    Raises:
        ValueError: If rows are missing and none may be added.

    Example:
        >>> fit_embeddings(torch.nn.Linear(1, 1), None, allow_resizing=False)
        False
    """
    needed, held = vocabulary_size(tokenizer), num_embeddings(model)
    if needed is None or held is None:
        return False
    if needed > held:
        if not allow_resizing:
            raise ValueError(
                f"the tokenizer has {needed} tokens and the model's embedding {held} rows, so "
                f"tokens from {held} on have none; give the model's own tokenizer, or pass "
                f"allow_embedding_resizing=True to add rows"
            )
        base = maybe_get_underlying_model(model)
        # The mean of the rows there are takes numbers, which a model on the meta device lacks.
        has_numbers = not base.get_input_embeddings().weight.is_meta
        base.resize_token_embeddings(needed, mean_resizing=has_numbers)
        return True
    if needed < held:
        log.info(
            "the tokenizer has %d tokens, the model's embedding %d rows; the rest is unused",
            needed,
            held,
        )
    return False
