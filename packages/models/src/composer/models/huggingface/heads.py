"""What a model of transformers takes and computes, read off the model and not told by the user.

Its class says whether its loss shifts the labels, its ``forward`` says which members of a batch it
takes, and its outputs come as a mapping, an object or a tuple.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

__all__ = [
    "IGNORED",
    "forward_arguments",
    "is_encoder_decoder",
    "logits_in",
    "loss_in",
    "maybe_get_underlying_model",
    "next_token_labels",
    "shifts_labels",
    "without_cache",
]

#: The label of a position that carries no loss.
IGNORED = -100

# Causal by their mapping in transformers, but their loss compares position by position.
_WITHOUT_SHIFT = frozenset(
    {
        "BartForCausalLM",
        "BigBirdPegasusForCausalLM",
        "BlenderbotForCausalLM",
        "BlenderbotSmallForCausalLM",
        "CpmAntForCausalLM",
        "FlaubertWithLMHeadModel",
        "MBartForCausalLM",
        "MarianForCausalLM",
        "MusicgenForCausalLM",
        "MusicgenMelodyForCausalLM",
        "MvpForCausalLM",
        "PLBartForCausalLM",
        "PegasusForCausalLM",
        "ProphetNetForCausalLM",
        "TrOCRForCausalLM",
        "WhisperForCausalLM",
        "XLMProphetNetForCausalLM",
        "XLMWithLMHeadModel",
        "XLNetLMHeadModel",
    }
)


def maybe_get_underlying_model(model: Any) -> Any:
    """Return the model of transformers inside a model with adapters.

    Args:
        model: A model of transformers or of peft.

    Returns:
        The model of transformers; the model itself if there are no adapters.

    Example:
        >>> module = torch.nn.Linear(1, 1)
        >>> maybe_get_underlying_model(module) is module
        True
    """
    unwrap = getattr(model, "get_base_model", None)
    return unwrap() if callable(unwrap) else model


def forward_arguments(model: Any) -> frozenset[str]:
    """List the members of a batch that a model takes.

    Args:
        model: A model of transformers or of peft.

    Returns:
        The names; none for a model that takes whatever it is given.

    Example:
        >>> sorted(forward_arguments(torch.nn.Linear(1, 1)))
        ['input']
    """
    parameters = inspect.signature(maybe_get_underlying_model(model).forward).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(p.name for p in parameters if p.kind in named)


def is_encoder_decoder(model: Any) -> bool:
    """Say whether a model has an encoder and a decoder.

    Args:
        model: A model of transformers or of peft.

    Returns:
        What its configuration says.

    Example:
        >>> is_encoder_decoder(torch.nn.Linear(1, 1))
        False
    """
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def shifts_labels(model: Any) -> bool:
    """Say whether a model's loss compares each position with the label after it.

    Args:
        model: A model of transformers or of peft.

    Returns:
        Whether it does, by its class or the class that it derives from.

    Example:
        >>> shifts_labels(torch.nn.Linear(1, 1))
        False
    """
    from transformers.models.auto import modeling_auto

    if is_encoder_decoder(model):
        return False
    # What takes images and text is named otherwise in each generation of transformers.
    tables = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")
    causal: set[str] = set()
    for table in tables:
        for names in getattr(modeling_auto, table, {}).values():
            causal.update([names] if isinstance(names, str) else names)
    for cls in type(maybe_get_underlying_model(model)).__mro__:
        if cls.__name__ in _WITHOUT_SHIFT:
            return False
        if cls.__name__ in causal or cls.__name__.endswith("ForCausalLM"):
            return True
    return False


def loss_in(outputs: Any) -> torch.Tensor:
    """Find the loss in what a model returned.

    Args:
        outputs: A mapping with ``loss``, an object that has it as an attribute, or a tuple that
            starts with it.

    Returns:
        The loss.

    Raises:
        ValueError: If there is none.

    Example:
        >>> loss_in({"loss": torch.tensor(2.0)})
        tensor(2.)
    """
    if isinstance(outputs, Mapping):
        found = outputs.get("loss")
    elif isinstance(outputs, tuple) and not hasattr(outputs, "_fields"):
        found = outputs[0] if outputs and _is_scalar(outputs[0]) else None
    else:
        found = getattr(outputs, "loss", None)
    if not isinstance(found, torch.Tensor):
        raise ValueError(
            f"the model's outputs ({type(outputs).__name__}) hold no loss: the batch needs the "
            f"labels that the model's forward takes, and the model a head that computes a loss "
            f"from them (AutoModelFor...)"
        )
    return found


def logits_in(outputs: Any) -> Any:
    """Find the logits in what a model returned.

    Args:
        outputs: A mapping with ``logits``, an object that has them as an attribute, a tuple in
            which they follow the loss, or the logits.

    Returns:
        The logits; a tuple of them where a head predicts several things and returns a tuple.

    Raises:
        ValueError: If there are none.

    Example:
        >>> logits_in((torch.tensor(2.0), torch.ones(1, 1), "cache"))
        tensor([[1.]])
    """
    if isinstance(outputs, torch.Tensor):
        return outputs
    if isinstance(outputs, Mapping):
        found = outputs.get("logits")
    elif isinstance(outputs, tuple) and not hasattr(outputs, "_fields"):
        found = outputs[1 if len(outputs) > 1 and _is_scalar(outputs[0]) else 0]
    else:
        found = getattr(outputs, "logits", None)
    if found is None:
        raise ValueError(
            f"the model's outputs ({type(outputs).__name__}) hold no logits, which use_logits=True "
            f"hands to the metrics; use metrics that take the whole outputs, and use_logits=False"
        )
    return found


def _is_scalar(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


def without_cache(model: Any) -> Any:
    """Return a model that does not keep the past of a text.

    Args:
        model: A model of transformers or of peft, which is left as it is.

    Returns:
        A copy that shares the weights; the model itself if no part of it keeps a past.

    Example:
        >>> module = torch.nn.Linear(1, 1)
        >>> without_cache(module) is module
        True
    """
    if not any(_keeps_past(part) for part in model.modules()):
        return model
    tensors = [*model.parameters(), *model.buffers()]
    twin = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    for part in filter(_keeps_past, twin.modules()):
        part.config.use_cache = False
    return twin


def _keeps_past(module: Any) -> bool:
    return bool(getattr(getattr(module, "config", None), "use_cache", False))


def next_token_labels(labels: torch.Tensor, *, length: int | None = None) -> torch.Tensor:
    """Move labels so that each stands where it is predicted.

    Args:
        labels: Labels of shape (N, T) as the batch holds them.
        length: How many positions the model predicts, if that is more than T: a learned prompt
            stands in front of the tokens.

    Returns:
        Labels of shape (N, ``length``), the last ones ignored; the given ones are not changed.

    Example:
        >>> next_token_labels(torch.tensor([[5, 6, 7]]))
        tensor([[   6,    7, -100]])
        >>> next_token_labels(torch.tensor([[5, 6]]), length=4)
        tensor([[-100,    5,    6, -100]])
    """
    in_front = 0 if length is None else length - labels.shape[-1]
    return F.pad(labels, (max(in_front, 0), 1), value=IGNORED)[..., 1:]
