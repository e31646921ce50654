"""Builds configurations of transformers and peft from what a checkpoint keeps of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from composer.models.huggingface._doors import import_peft, import_transformers
from composer.models.huggingface.metadata import ModelFacts, huggingface_part
from composer.utils.suggestions import did_you_mean

__all__ = [
    "changed_config",
    "get_hf_config_from_composer_state_dict",
    "get_peft_config_from_composer_state_dict",
    "load_adapter_config",
    "load_config",
]


def load_config(content: Mapping[str, Any], *, trust_remote_code: bool = False) -> Any:
    """Build a configuration of transformers.

    Args:
        content: As in ``config.json``.
        trust_remote_code: Whether code that the configuration names on the Hub may be run.

    Returns:
        The configuration.

    Raises:
        ValueError: If its ``model_type`` is not known to the transformers that is installed, or
            transformers refuses an entry.

    Example:
        >>> load_config({"model_type": "gpt2", "n_embd": 12}).n_embd
        12
    """
    transformers = import_transformers()
    kept = dict(content)
    # In a file, transformers before 5 overlooks it; given by name, all of them see it.
    attention = kept.pop("attn_implementation", None)
    options = {} if attention is None else {"attn_implementation": attention}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(kept))
        try:
            config = transformers.AutoConfig.from_pretrained(
                folder, trust_remote_code=trust_remote_code, **options
            )
        except (ImportError, OSError, ValueError):
            raise
        except Exception as error:  # of transformers' own checks, whose classes differ by release
            raise ValueError(f"transformers refuses the stored configuration: {error}") from error
    config._name_or_path = content.get("_name_or_path", "")
    return config


def changed_config(
    content: Mapping[str, Any],
    changes: Any,
    argument: str,
    *,
    trust_remote_code: bool = False,
) -> Any:
    """Build a configuration of transformers with entries that its user set.

    Args:
        content: As in ``config.json``.
        changes: Name of an entry to its value, or ``None``.
        argument: What the changes were given as, for errors.
        trust_remote_code: Whether code that the configuration names on the Hub may be run.

    Returns:
        The configuration.

    Raises:
        TypeError: If the changes are no mapping.
        ValueError: If the configuration has no such entry, or transformers refuses a value.

    Example:
        >>> changed_config({"model_type": "gpt2"}, {"n_embed": 12}, "model_config_kwargs")
        Traceback (most recent call last):
        ValueError: model_config_kwargs names 'n_embed', ... Did you mean "n_embd"?
    """
    if not changes:
        changes = {} if changes is None else changes
    if not isinstance(changes, Mapping):
        raise TypeError(
            f"{argument}={changes!r} must be a mapping of entries of the configuration to values"
        )
    config = load_config(content, trust_remote_code=trust_remote_code)
    if not changes:
        return config
    known = sorted({*content, *config.to_dict(), *config.attribute_map, "attn_implementation"})
    for name in changes:
        if name not in known and not hasattr(config, str(name)):
            raise ValueError(
                f"{argument} names {name!r}, which a {type(config).__name__} does not have."
                f"{did_you_mean(str(name), known)}"
            )
    return load_config({**content, **changes}, trust_remote_code=trust_remote_code)


def get_hf_config_from_composer_state_dict(
    state_dict: dict[str, Any], config_overrides: dict[str, Any] | None = None
) -> Any:
    """Build the configuration that a checkpoint keeps.

    Args:
        state_dict: What the checkpoint's file holds.
        config_overrides: Entries to set.

    Returns:
        The configuration of transformers.

    Raises:
        TypeError: If ``config_overrides`` is no mapping.
        ValueError: If the checkpoint keeps none, or it has no entry of such a name.

    Example:
        >>> kept = {"model": {"config": {"content": {"model_type": "gpt2", "n_embd": 12}}}}
        >>> file = {"state": {"integrations": {"huggingface": kept}}}
        >>> get_hf_config_from_composer_state_dict(file, {"n_layer": 3}).n_layer
        3
    """
    facts = ModelFacts(huggingface_part(state_dict))
    return changed_config(facts.config, config_overrides, "config_overrides")


def get_peft_config_from_composer_state_dict(state_dict: dict[str, Any]) -> Any:
    """Build the configuration of the adapter that a checkpoint keeps.

    Args:
        state_dict: What the checkpoint's file holds.

    Returns:
        The configuration of peft; ``None`` for a model without adapters.

    Raises:
        ValueError: If the checkpoint keeps no model of Hugging Face.

    Example:
        >>> kept = {"model": {"config": {"content": {"model_type": "gpt2"}}}}
        >>> file = {"state": {"integrations": {"huggingface": kept}}}
        >>> get_peft_config_from_composer_state_dict(file) is None
        True
    """
    adapter = ModelFacts(huggingface_part(state_dict)).adapter
    return None if adapter is None else load_adapter_config(adapter)


def load_adapter_config(content: Mapping[str, Any]) -> Any:
    """Build the configuration of an adapter.

    Args:
        content: As in ``adapter_config.json``.

    Returns:
        The configuration of peft.

    Example:
        >>> load_adapter_config({"peft_type": "LORA", "r": 2}).r
        2
    """
    peft = import_peft()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "adapter_config.json").write_text(json.dumps(content))
        return peft.PeftConfig.from_pretrained(folder)
