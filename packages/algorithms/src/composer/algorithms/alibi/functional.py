"""Linear biases: their slopes, the biases, and the surgery that puts them into a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from composer.algorithms._nlp.registry import apply_policies, explain_unsupported, find_policies
from composer.utils.checks import check_integer

__all__ = ["alibi_bias", "alibi_slopes", "apply_alibi"]


def alibi_slopes(num_heads: int) -> list[float]:
    """Return how much each head minds distance.

    The slopes of a power of two form a geometric series that begins with its own ratio and ends at
    1/256. For another number of heads come, after the slopes of the next smaller power, every other
    one of the next greater.

    Args:
        num_heads: Number of heads.

    Returns:
        The slopes.

    Raises:
        ValueError: If there are no heads.

    Example:
        >>> alibi_slopes(8)
        [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
        >>> alibi_slopes(3)
        [0.0625, 0.00390625, 0.25]
    """
    check_integer("num_heads", num_heads, low=1)
    return [2.0**exponent for exponent in _exponents(num_heads, dtype=torch.float64).tolist()]


def _exponents(num_heads: int, *, dtype: torch.dtype, device: Any = None) -> torch.Tensor:
    """Two to the power of these are the slopes.

    Computed where they are needed: a copy from the host would be waited for in every pass.
    """
    power = 1 << (num_heads.bit_length() - 1)
    exponents = torch.arange(1, power + 1, dtype=dtype, device=device) * (-8 / power)
    if num_heads == power:
        return exponents
    places = torch.arange(1, 2 * (num_heads - power), 2, dtype=dtype, device=device)
    return torch.cat([exponents, places * (-4 / power)])


def alibi_bias(
    num_heads: int,
    num_queries: int,
    num_keys: int,
    *,
    past: int | torch.Tensor = 0,
    device: torch.device | None = None,
) -> torch.Tensor:
    """Return what is added to the scores: minus the slope times the distance, in both directions.

    Args:
        num_heads: Number of heads.
        num_queries: Number of queries, T.
        num_keys: Number of keys, S.
        past: Position of the first query, where earlier keys are cached.
        device: Where the result lives.

    Returns:
        Biases of shape (num_heads, T, S), in single precision.

    Example:
        >>> alibi_bias(1, 2, 3, past=1) * 256
        tensor([[[-1., -0., -1.],
                 [-2., -1., -0.]]])
    """
    queries = torch.arange(num_queries, device=device) + past
    keys = torch.arange(num_keys, device=device)
    distances = (queries[:, None] - keys).abs()
    slopes = torch.exp2(_exponents(num_heads, dtype=torch.float32, device=device))
    return -slopes[:, None, None] * distances


def apply_alibi(
    model: torch.nn.Module,
    max_sequence_length: int,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
) -> None:
    """Put linear biases into a model's attention, in place of its positions.

    Knows BERT, CamemBERT, ELECTRA, RoBERTa, XLM-RoBERTa and GPT-2 of transformers with any head,
    the decoder of ``composer.models``, and what policies make known. Tables of positions become
    zero and frozen, with room for the longest sequence. A second application changes nothing.

    Args:
        model: The model, changed in place; also inside a wrapper, or with adapters.
        max_sequence_length: The longest sequence that it will see.
        optimizers: Optimizers to bring up to date: the tables are no longer trained.

    Raises:
        ValueError: If nothing in the model is known, it has relative positions, or its attention
            takes no biases.

    Example:
        >>> from composer.models import composer_decoder
        >>> model = composer_decoder("tiny", vocab_size=10)
        >>> apply_alibi(model, max_sequence_length=64)
    """
    from composer.algorithms.alibi.layers import BiasMemo, SilentPositions
    from composer.algorithms.alibi.policies import is_biased

    check_integer("max_sequence_length", max_sequence_length, low=1)
    found = find_policies(model, "alibi")
    apply_policies(
        model, found, optimizers, max_sequence_length=max_sequence_length, memo=BiasMemo()
    )
    if not any(is_biased(module) for module in model.modules()):
        raise ValueError(explain_unsupported(model, "Alibi", "alibi"))
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        if isinstance(getattr(config, "max_position_embeddings", None), int):
            tables = [m for m in module.modules() if isinstance(m, SilentPositions)]
            rows = [table.num_embeddings for table in tables]
            config.max_position_embeddings = max([config.max_position_embeddings, *rows])
