"""What the mean of a model's loss is taken over, head by head.

Microbatches and ranks are weighted by this number. A head whose loss is a sum of means over
different things has no such number; the page about Hugging Face names those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from composer.models.huggingface.adapters import num_prompt_tokens
from composer.models.huggingface.heads import (
    IGNORED,
    is_encoder_decoder,
    maybe_get_underlying_model,
)

__all__ = ["count_loss_tokens"]


def count_loss_tokens(model: Any, batch: Any, *, shift: bool) -> int | None:
    """Count what a model's loss is a mean over.

    Args:
        model: A model of transformers or of peft.
        batch: A batch or a part of one.
        shift: Whether the loss compares each position with the label after it.

    Returns:
        The number of labels that are not ignored: tokens, classes, pixels, or spans whose start
        lies in the text; ``None`` if the loss is a mean over samples.

    Example:
        >>> labels = torch.tensor([[4, 5, -100]])
        >>> count_loss_tokens(torch.nn.Linear(1, 1), {"labels": labels}, shift=True)
        1
    """
    if not isinstance(batch, Mapping):
        return None
    labels = batch.get("labels")
    if labels is None:
        return _spans(model, batch)
    if not isinstance(labels, torch.Tensor) or labels.is_floating_point():
        return None
    if labels.dim() < 2:
        return int((labels != IGNORED).sum()) if _is_one_of_classes(model) else None
    if _name(model).endswith("ForSemanticSegmentation"):
        return _pixels(model, labels)
    if shift:
        # After a learned prompt the first label is predicted from the prompt.
        first = 0 if num_prompt_tokens(model) else 1
        return int((labels[..., first:] != IGNORED).sum())
    if _is_classes_of_rows(model, labels):
        return int((labels != IGNORED).sum())
    ids = batch.get("input_ids")
    per_token = isinstance(ids, torch.Tensor) and ids.shape == labels.shape
    if not per_token and not is_encoder_decoder(model):
        return None
    return int((labels != IGNORED).sum())


def _name(model: Any) -> str:
    return type(maybe_get_underlying_model(model)).__name__


def _config(model: Any) -> Any:
    return getattr(maybe_get_underlying_model(model), "config", None)


def _is_one_of_classes(model: Any) -> bool:
    """Whether whole numbers, one per sample, are classes and not values of a regression."""
    config = _config(model)
    problem = getattr(config, "problem_type", None)
    if _name(model).endswith(("ForMultipleChoice", "ForNextSentencePrediction")):
        return True
    if problem is not None:
        return bool(problem == "single_label_classification")
    return getattr(config, "num_labels", 0) > 1


def _is_classes_of_rows(model: Any, labels: torch.Tensor) -> bool:
    """Whether labels of shape (N, 1) are one class per sample."""
    return (
        labels.shape[1:] == (1,)
        and _name(model).endswith("Classification")
        and not _name(model).endswith("TokenClassification")
        and _is_one_of_classes(model)
    )


def _pixels(model: Any, labels: torch.Tensor) -> int | None:
    config = _config(model)
    if getattr(config, "num_labels", 0) < 2:
        return None  # a mean over all pixels, in which ignored ones are zero
    ignored: Any = getattr(config, "semantic_loss_ignore_index", None)
    if ignored is None:
        ignored = getattr(config, "loss_ignore_index", IGNORED)
    return int(labels.ne(ignored).sum())


def _spans(model: Any, batch: Mapping[str, Any]) -> int | None:
    """Spans that start in the text: those behind its end carry no loss."""
    starts, ids = batch.get("start_positions"), batch.get("input_ids")
    if ids is None:
        ids = batch.get("inputs_embeds")
    if not isinstance(starts, torch.Tensor) or not isinstance(ids, torch.Tensor) or ids.dim() < 2:
        return None
    return int((starts < ids.shape[1] + num_prompt_tokens(model)).sum())
