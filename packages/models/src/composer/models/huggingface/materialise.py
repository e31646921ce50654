"""Models that were built on the meta device: memory with its ties kept, and first values.

Moving a module off the meta device makes a new parameter at each place, so weights that were one
become several; and what a model computed when it was built has to be computed again.
"""

from __future__ import annotations

from typing import Any

import torch

from composer.models.huggingface.heads import maybe_get_underlying_model

__all__ = ["give_first_values", "shared_parameters", "tie_again"]

Place = tuple[torch.nn.Module, str]


def shared_parameters(model: torch.nn.Module) -> list[list[Place]]:
    """Find parameters that stand at several places of a model.

    Args:
        model: The model.

    Returns:
        For each such parameter the modules and names that it has.

    Example:
        >>> a, b = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        >>> b.weight = a.weight
        >>> shared = shared_parameters(torch.nn.Sequential(a, b))
        >>> [[name for _, name in places] for places in shared]
        [['weight', 'weight']]
    """
    places: dict[int, list[Place]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((module, name))
    return [found for found in places.values() if len(found) > 1]


def tie_again(shared: list[list[Place]]) -> None:
    """Put one parameter at all places where one was.

    Args:
        shared: What :func:`shared_parameters` returned before.

    Example:
        >>> a, b = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        >>> tie_again([[(a, "weight"), (b, "weight")]])
        >>> a.weight is b.weight
        True
    """
    for (owner, own_name), *others in shared:
        parameter = owner._parameters[own_name]
        for module, name in others:
            if module._parameters[name] is not parameter:
                module._parameters[name] = parameter


def give_first_values(model: Any, module: torch.nn.Module) -> None:
    """Set the parameters and buffers that stand in one module of a model, by the model's rule.

    Args:
        model: A model of transformers or of peft.
        module: One of its modules, whose parameters have memory.

    Example:
        >>> from transformers import GPT2Config, GPT2Model
        >>> model = GPT2Model(GPT2Config(n_embd=4, n_layer=1, n_head=1))
        >>> _ = torch.nn.init.constant_(model.ln_f.weight, 7.0)
        >>> give_first_values(model, model.ln_f)
        >>> model.ln_f.weight.tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    base = maybe_get_underlying_model(model)
    with torch.no_grad():
        base._init_weights(module)
        # transformers before 5 sets parameters only; these are what its models compute themselves.
        buffers = dict(module.named_buffers(recurse=False))
        rule = getattr(module, "rope_init_fn", None)
        if rule is not None and "inv_freq" in buffers:
            frequencies, module.attention_scaling = rule(module.config, buffers["inv_freq"].device)
            buffers["inv_freq"].copy_(frequencies)
            module.original_inv_freq = buffers["inv_freq"]
        if "position_ids" in buffers:
            places = buffers["position_ids"]
            places.copy_(torch.arange(places.shape[-1]).expand_as(places))
        if "token_type_ids" in buffers:
            buffers["token_type_ids"].zero_()
