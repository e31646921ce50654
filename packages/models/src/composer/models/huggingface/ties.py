"""Weights that are one tensor under several names: found, and parted where their values differ.

A model that ties weights takes the last value that it is given for all of their names, so values
that differ are lost without a word unless the model is untied before it is filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from composer.models.huggingface.heads import maybe_get_underlying_model
from composer.models.huggingface.materialise import shared_parameters

__all__ = ["part_shared", "tied_weights", "untie_differing"]


def tied_weights(model: Any | None, weights: Mapping[str, Any]) -> dict[str, str] | None:
    """Find the names that stand for the same weight as another.

    Args:
        model: The model, which need not have numbers; ``None`` goes by the weights' memory.
        weights: Name to weight.

    Returns:
        Name to the name that it is the same as; ``None`` if weights that the model ties differ, of
        which none may be thrown away.

    Example:
        >>> a, b = torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
        >>> b.weight = a.weight
        >>> both = torch.nn.Sequential(a, b)
        >>> tied_weights(both, both.state_dict())
        {'1.weight': '0.weight'}
        >>> tied_weights(both, {"0.weight": torch.ones(1), "1.weight": torch.zeros(1)}) is None
        True
    """
    named = {} if model is None else model.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    tied = {}
    for name, tensor in weights.items():
        if model is None:  # by memory, for a class that is not at hand
            place = tensor.data_ptr() if tensor.numel() else id(tensor)
        elif name in named:
            place = id(named[name])
        else:
            continue
        other = first.setdefault(place, name)
        if other != name:
            if not _same(weights[other], tensor):
                return {} if model is None else None
            tied[name] = other
    return tied


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if (a.shape, a.dtype, a.stride()) != (b.shape, b.dtype, b.stride()):
        return False
    return a.data_ptr() == b.data_ptr() or torch.equal(a, b)


def untie_differing(model: Any, weights: Mapping[str, Any]) -> bool:
    """Give a model a parameter of its own for each weight that it ties and that differs.

    Its configuration then says that nothing is tied.

    Args:
        model: A model of transformers or of peft.
        weights: Name to weight, as the model shall hold it.

    Returns:
        Whether anything was taken apart.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> tiny = GPT2Config(n_embd=4, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
        >>> model = GPT2LMHeadModel(tiny)
        >>> untie_differing(model, model.state_dict())
        False
        >>> head = {"lm_head.weight": model.lm_head.weight + 1}
        >>> untie_differing(model, {**model.state_dict(), **head})
        True
        >>> model.lm_head.weight is model.transformer.wte.weight, model.config.tie_word_embeddings
        (False, False)
    """
    named = model.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    apart = []
    for name, tensor in weights.items():
        if not isinstance(named.get(name), torch.nn.Parameter):
            continue
        other = first.setdefault(id(named[name]), name)
        if other != name and not _same(weights[other], tensor):
            apart.append(name)
    for name in apart:
        owner, _, leaf = name.rpartition(".")
        _own_parameter(model.get_submodule(owner), leaf)
    if apart:
        _say_untied(maybe_get_underlying_model(model))
    return bool(apart)


def part_shared(model: torch.nn.Module) -> None:
    """Give each place of a model a parameter of its own, with the value that it had.

    Args:
        model: The model.

    Example:
        >>> a, b = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        >>> b.weight = a.weight
        >>> part_shared(torch.nn.Sequential(a, b))
        >>> a.weight is b.weight, torch.equal(a.weight, b.weight)
        (False, True)
    """
    for _, *others in shared_parameters(model):
        for module, name in others:
            _own_parameter(module, name)


def _own_parameter(module: torch.nn.Module, name: str) -> None:
    old = module._parameters[name]
    assert old is not None
    module._parameters[name] = torch.nn.Parameter(
        old.detach().clone(), requires_grad=old.requires_grad
    )


def _say_untied(base: Any) -> None:
    configs: tuple[Any, ...] = (base.config, getattr(base.config, "text_config", None))
    for config in configs:
        if getattr(config, "tie_word_embeddings", False):
            config.tie_word_embeddings = False
    # transformers 5 keeps what it read off the configuration when the model was built.
    if hasattr(base, "all_tied_weights_keys"):
        base.all_tied_weights_keys = base.get_expanded_tied_weights_keys(all_submodels=False)
