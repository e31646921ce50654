"""Adapters of peft: put on a model, and refused where a file would not hold them whole."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from composer.models.huggingface._doors import import_peft
from composer.models.huggingface.heads import is_encoder_decoder

__all__ = [
    "add_adapter",
    "check_restorable",
    "is_peft_model",
    "num_prompt_tokens",
    "peft_installed",
    "quiet_peft",
]

#: Whether peft can be imported.
peft_installed: bool = find_spec("peft") is not None


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Leave out what the libraries beneath peft tell it and its user cannot change.

    Yields:
        Nothing.

    Example:
        >>> with quiet_peft():
        ...     warnings.warn("`is_gradient_checkpointing` is deprecated", FutureWarning)
    """
    with warnings.catch_warnings():
        # peft up to 0.21 reads an attribute that transformers 5.23 renamed.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        # Said of each GPT-2, whose layers are stored transposed; peft sets what it asks for.
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to False", UserWarning)
        yield


def is_peft_model(model: Any) -> bool:
    """Say whether a model has adapters of peft.

    Args:
        model: Any module.

    Returns:
        Whether it is a ``PeftModel``; peft is not imported for others.

    Example:
        >>> import torch
        >>> is_peft_model(torch.nn.Linear(1, 1))
        False
    """
    return any(
        cls.__name__ == "PeftModel" and cls.__module__.startswith("peft.")
        for cls in type(model).__mro__
    )


def add_adapter(model: Any, peft_config: Any) -> Any:
    """Put a new adapter on a model and freeze the model's own weights.

    Args:
        model: A model of transformers.
        peft_config: What adapter; any configuration of peft.

    Returns:
        The model of peft.

    Raises:
        MissingConditionalImportError: If peft is not installed.
        TypeError: If ``peft_config`` is no configuration of peft.
        ValueError: If the model has adapters already.

    Example:
        >>> import torch
        >>> try:
        ...     add_adapter(torch.nn.Linear(1, 1), {"r": 2})
        ... except TypeError as error:
        ...     print("LoraConfig" in str(error))
        True
    """
    peft = import_peft()
    if not isinstance(peft_config, peft.PeftConfig):
        raise TypeError(
            f"peft_config={peft_config!r} must be a configuration of peft, such as "
            f"peft.LoraConfig(r=8, task_type='CAUSAL_LM')"
        )
    if is_peft_model(model):
        raise ValueError(
            f"peft_config was given for a model that has the adapters {list(model.peft_config)} "
            f"already; give one or the other, or add it with model.add_adapter(name, peft_config)"
        )
    with quiet_peft():
        # peft writes into the configuration, which its owner may want to use again.
        return peft.get_peft_model(model, copy.deepcopy(peft_config))


def check_restorable(adapters: Mapping[str, Any], *, alone: bool) -> None:
    """Refuse adapters that a file does not hold whole.

    Args:
        adapters: Name to configuration of peft.
        alone: Whether the weights of the model beneath are left out of the file.

    Raises:
        ValueError: If one changes the weights beneath by draws, or by a function, that nobody can
            repeat.

    Example:
        >>> from peft import LoraConfig
        >>> check_restorable({"default": LoraConfig(init_lora_weights="pissa")}, alone=True)
        >>> drawn = LoraConfig(init_lora_weights="pissa_niter_4")
        >>> check_restorable({"default": drawn}, alone=True)
        Traceback (most recent call last):
        ValueError: init_lora_weights='pissa_niter_4' changes the weights beneath ...
    """
    for name, config in adapters.items():
        init = getattr(config, "init_lora_weights", None)
        if alone and isinstance(init, str) and "_niter_" in init:
            raise ValueError(
                f"init_lora_weights={init!r} changes the weights beneath the adapter {name!r} by a "
                f"decomposition that draws random numbers, so the adapter alone does not say what "
                f"was trained; pass should_save_peft_only=False, and export it merged, or use "
                f"init_lora_weights='pissa', which is exact"
            )
        mask = getattr(config, "mask_type", "random")
        if _name(config.peft_type) == "SHIRA" and mask != "random":
            raise ValueError(
                f"mask_type={mask!r} of the adapter {name!r} names a function of yours, whose mask "
                f"no file keeps; mask_type must be 'random'"
            )


def num_prompt_tokens(model: Any) -> int:
    """Count the learned positions that an adapter puts in front of the tokens.

    Args:
        model: A model of transformers or of peft.

    Returns:
        Their number; 0 for adapters that leave the sequence as it is.

    Example:
        >>> import torch
        >>> num_prompt_tokens(torch.nn.Linear(1, 1))
        0
    """
    if not is_peft_model(model) or is_encoder_decoder(model):
        return 0  # of two stacks, the prompt stands before the encoder, where no label is
    config = model.active_peft_config
    if not config.is_prompt_learning or _name(config.peft_type) == "PREFIX_TUNING":
        return 0  # a prefix is put into the cache and not into the sequence
    return int(config.num_virtual_tokens)


def _name(peft_type: Any) -> str:
    return str(getattr(peft_type, "value", peft_type)).upper()
