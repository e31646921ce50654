"""What of a batch goes into the model, and what its metrics compare with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from composer.models.huggingface.adapters import num_prompt_tokens
from composer.models.huggingface.heads import (
    forward_arguments,
    is_encoder_decoder,
    logits_in,
    maybe_get_underlying_model,
    next_token_labels,
)

__all__ = ["check_not_empty", "inputs_of", "targets_of", "without_labels"]


def inputs_of(batch: Any, accepted: Collection[str]) -> dict[str, Any]:
    """Choose the members of a batch that a model takes.

    Args:
        batch: A mapping.
        accepted: What the model takes; nothing if it takes all.

    Returns:
        Name to member.

    Raises:
        TypeError: If the batch is no mapping.
        ValueError: If the model takes none of its members.

    Example:
        >>> inputs_of({"input_ids": 1, "id": 7}, {"input_ids", "labels"})
        {'input_ids': 1}
    """
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"batch must be a mapping of what the model's forward takes, such as input_ids, "
            f"attention_mask and labels, not {type(batch).__name__}; a collate_fn makes one"
        )
    if not accepted:
        return dict(batch)
    inputs = {name: batch[name] for name in batch if name in accepted}
    if not inputs:
        raise ValueError(
            f"the batch has {sorted(map(str, batch))}, of which the model takes none; it takes "
            f"{sorted(accepted)}"
        )
    return inputs


def check_not_empty(inputs: Mapping[str, Any]) -> None:
    """Refuse a batch without samples, at which the models of transformers fail in many ways.

    Args:
        inputs: What a model is called with.

    Raises:
        ValueError: If a tensor holds nothing.

    Example:
        >>> check_not_empty({"input_ids": torch.zeros(0, 3)})
        Traceback (most recent call last):
        ValueError: input_ids of shape (0, 3) makes an empty batch; give a sample or more
    """
    for name in ("input_ids", "inputs_embeds", "pixel_values", "input_values", "input_features"):
        given = inputs.get(name)
        if isinstance(given, torch.Tensor) and not given.numel():
            raise ValueError(
                f"{name} of shape {tuple(given.shape)} makes an empty batch; give a sample or more"
            )


def without_labels(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Take the labels out of a batch, so that no loss is computed.

    Args:
        model: A model of transformers or of peft.
        batch: The batch, which is not changed.

    Returns:
        The rest; what a decoder starts from is derived from the labels, as the model itself would.

    Example:
        >>> without_labels(torch.nn.Linear(1, 1), {"input": 1, "labels": 2})
        {'input': 1}
    """
    rest = {name: value for name, value in batch.items() if name != "labels"}
    starts = ("decoder_input_ids", "decoder_inputs_embeds")
    labels = batch.get("labels")
    if (
        not isinstance(labels, torch.Tensor)
        or labels.dim() < 2
        or not is_encoder_decoder(model)
        or any(name in rest for name in starts)
        or starts[0] not in forward_arguments(model)
    ):
        return rest
    prepare = getattr(
        maybe_get_underlying_model(model), "prepare_decoder_input_ids_from_labels", None
    )
    if prepare is None:  # such a model derives them itself, beside the loss
        return dict(batch)
    return {**rest, starts[0]: prepare(labels=labels)}


def targets_of(model: Any, batch: Mapping[str, Any], outputs: Any, *, shift: bool) -> Any:
    """Return the labels as metrics compare them with the logits.

    Args:
        model: A model of transformers or of peft.
        batch: The batch, which is not changed.
        outputs: The model's outputs, or their logits.
        shift: Whether the logits of a position predict the label after it.

    Returns:
        The labels; with a ``mode`` of ``"icl_task"`` they are moved too.

    Example:
        >>> batch = {"labels": torch.tensor([[5, 6]])}
        >>> targets_of(torch.nn.Linear(1, 1), batch, None, shift=True)
        tensor([[   6, -100]])
    """
    labels, mode = batch.get("labels"), batch.get("mode")
    moved = (shift or mode == "icl_task") and mode != "generate"
    if not moved or not isinstance(labels, torch.Tensor) or labels.dim() < 2:
        return labels
    in_front = num_prompt_tokens(model)
    length = logits_in(outputs).shape[1] if in_front else None
    return next_token_labels(labels, length=length)
