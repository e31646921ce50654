"""Which weights of a model are an adapter's, and which those of the frozen model beneath.

That is peft's to say: it is asked which tensors it would save, and the names that those have in the
model are looked up by the tensors themselves. So this holds for every kind of adapter, and not for
low-rank ones only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch

from composer.models.huggingface._doors import import_peft
from composer.models.huggingface.adapters import quiet_peft
from composer.models.huggingface.heads import maybe_get_underlying_model

__all__ = [
    "adapter_keys",
    "base_weights",
    "embedding_keys",
    "filter_state_dict_peft",
    "forgive_base_weights",
]


def adapter_keys(model: Any, weights: Mapping[str, torch.Tensor] | None = None) -> list[str]:
    """List the weights of a model that its frozen base does not hold.

    Args:
        model: A model of peft.
        weights: Its state; asked for by default.

    Returns:
        Names in the model's state, in its order: those of all adapters, and every weight that is
        trained beside them, such as a new head.

    Example:
        >>> from peft import LoraConfig, get_peft_model
        >>> layers = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False))
        >>> model = get_peft_model(layers, LoraConfig(r=1, target_modules=["0"]))
        >>> [name.rpartition("model.")[2] for name in adapter_keys(model)]
        ['0.lora_A.default.weight', '0.lora_B.default.weight']
    """
    peft = import_peft()
    state = dict(model.state_dict()) if weights is None else dict(weights)
    # Tied weights are one tensor under two names, of which peft may keep one.
    keys = {name for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    name_of: dict[int, list[str]] = {}
    for name, tensor in state.items():
        name_of.setdefault(id(tensor), []).append(name)
    for adapter, config in model.peft_config.items():
        if config.is_prompt_learning:
            keys |= {name for name in state if name.startswith("prompt_encoder.")}
            continue
        with quiet_peft():
            saved = peft.get_peft_model_state_dict(
                model, state_dict=dict(state), adapter_name=adapter, save_embedding_layers=False
            )
        for tensor in saved.values():
            keys.update(name_of.get(id(tensor), ()))
    # What peft computes anew for saving is no tensor of the model's, but its name tells it.
    prefixes = _tuner_prefixes()
    keys |= {
        name
        for name in state
        if any(_is_of_adapter(name, adapter, prefixes) for adapter in model.peft_config)
    }
    return [name for name in state if name in keys]


def _tuner_prefixes() -> tuple[str, ...]:
    """How the names of the parts begin that peft puts into a model."""
    from peft.mapping import PEFT_TYPE_TO_PREFIX_MAPPING

    return tuple(prefix for prefix in PEFT_TYPE_TO_PREFIX_MAPPING.values() if prefix)


def _is_of_adapter(name: str, adapter: str, prefixes: tuple[str, ...]) -> bool:
    parts = name.split(".")
    inside = any(part.startswith(prefixes) for part in parts)
    # Most kinds keep a weight under the name of its adapter; some have no names for adapters.
    return inside and (adapter in parts or parts[-1].startswith(prefixes))


def filter_state_dict_peft(
    state_dict: dict[str, Any],
    peft_config: Any,
    adapter_name: str = "default",
    remove_adapter_names: bool = True,
) -> dict[str, Any]:
    """Keep the weights of one adapter, by their names alone.

    A model need not be at hand for this; where it is, what it trains beside the adapter counts too.

    Args:
        state_dict: Weights of a model of peft.
        peft_config: What adapter it is.
        adapter_name: The name of the adapter.
        remove_adapter_names: Whether names are given as peft writes them to files.

    Returns:
        Name to weight.

    Raises:
        ValueError: If peft does not say how the names of this kind of adapter begin.

    Example:
        >>> from peft import LoraConfig
        >>> weights = {"q.base_layer.weight": 0, "q.lora_A.default.weight": 1}
        >>> filter_state_dict_peft(weights, LoraConfig())
        {'q.lora_A.weight': 1}
    """
    import_peft()
    from peft.mapping import PEFT_TYPE_TO_PREFIX_MAPPING

    if peft_config.is_prompt_learning:
        return {k: v for k, v in state_dict.items() if "prompt_encoder." in k}
    prefix = PEFT_TYPE_TO_PREFIX_MAPPING.get(peft_config.peft_type)
    if prefix is None:
        raise ValueError(
            f"peft_config={type(peft_config).__name__} is of a kind whose weights cannot be told "
            f"by their names"
        )
    bias = getattr(peft_config, "bias", "none")
    kept: dict[str, Any] = {}
    for name, value in state_dict.items():
        parts = name.split(".")
        saved_whole = "modules_to_save" in parts and adapter_name in parts
        is_bias = bias == "all" and parts[-1] == "bias"
        if saved_whole or is_bias or _is_of_adapter(name, adapter_name, (prefix,)):
            if remove_adapter_names:
                dropped = {adapter_name, "modules_to_save"} if saved_whole else {adapter_name}
                name = ".".join(part for part in parts if part not in dropped)
            kept[name] = value
    return kept


def embedding_keys(model: Any) -> list[str]:
    """List the embeddings' weights, which belong to an adapter if the vocabulary was resized.

    Args:
        model: A model of transformers or of peft.

    Returns:
        Names of parameters, tied ones under each of their names.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 8, "n_embd": 4, "n_layer": 1, "n_head": 1}
        >>> tokens = {"bos_token_id": 0, "eos_token_id": 0}
        >>> embedding_keys(GPT2LMHeadModel(GPT2Config(**sizes, **tokens)))
        ['transformer.wte.weight', 'lm_head.weight']
    """
    base = maybe_get_underlying_model(model)
    parts = [base.get_input_embeddings(), base.get_output_embeddings()]
    wanted = {id(p) for part in parts if part is not None for p in part.parameters()}
    named = model.named_parameters(remove_duplicate=False)
    return [name for name, parameter in named if id(parameter) in wanted]


def base_weights(model: Any, *, with_embeddings: bool = True) -> list[str]:
    """List the weights of the frozen model that adapters were put on.

    Args:
        model: A model of peft.
        with_embeddings: Whether its embeddings are as they were in that model.

    Returns:
        Names in the model's state.

    Example:
        >>> from peft import LoraConfig, get_peft_model
        >>> layers = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False))
        >>> model = get_peft_model(layers, LoraConfig(r=1, target_modules=["0"]))
        >>> base_weights(model)
        ['base_model.model.0.base_layer.weight']
    """
    weights = model.state_dict()
    own = set(adapter_keys(model, weights))
    if not with_embeddings:
        own.update(embedding_keys(model))
    return [name for name in weights if name not in own]


def forgive_base_weights(missing: Iterable[str], base: Collection[str]) -> list[str]:
    """Leave out of the names that a file lacks those of the frozen model.

    Args:
        missing: The names.
        base: Names of the frozen model's weights; where the model is a part of another, its names
            have something in front.

    Returns:
        The names that should be there.

    Example:
        >>> forgive_base_weights(["module.a.weight", "module.lora"], {"a.weight"})
        ['module.lora']
    """
    return [
        name
        for name in missing
        if not any(name[start:] in base for start in [0, *_behind_dots(name)])
    ]


def _behind_dots(name: str) -> list[int]:
    return [place + 1 for place, letter in enumerate(name) if letter == "."]
