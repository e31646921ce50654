"""What a checkpoint keeps of a model of transformers beside its weights, as plain types.

The layout is the one that files of Composer 0.32 have under ``state/integrations/huggingface``, so
one reader serves both.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from composer.models.huggingface.adapters import is_peft_model
from composer.models.huggingface.heads import maybe_get_underlying_model

__all__ = [
    "ModelFacts",
    "describe_model",
    "huggingface_part",
]

log = logging.getLogger(__name__)

_CONFIG, _ADAPTER, _GENERATION = "config", "peft_config", "generation_config"
_ATTENTION = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
# Any other is, or falls back to, code that transformers fetches from the Hub.
_ATTENTION_BUILT_IN = (None, "eager", "sdpa", "flex_attention")


def describe_model(model: Any) -> dict[str, Any]:
    """Turn the configurations of a model into plain types.

    Args:
        model: A model of transformers or of peft.

    Returns:
        ``config``, and where there are any ``generation_config``, ``peft_config`` and, of several
        adapters, ``peft_configs`` by name.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> tiny = GPT2Config(n_embd=4, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
        >>> describe_model(GPT2LMHeadModel(tiny))["config"]["class"].rpartition(".")[2]
        'GPT2LMHeadModel'
    """
    base = maybe_get_underlying_model(model)
    cls = type(base)
    told: dict[str, Any] = {
        _CONFIG: _as_file(
            json.loads(base.config.to_json_string()), f"{cls.__module__}.{cls.__qualname__}"
        )
    }
    generation = getattr(base, "generation_config", None)
    if generation is not None:
        told[_GENERATION] = _as_file(json.loads(generation.to_json_string()))
    if is_peft_model(model):
        # Of adapters alone, the weights beneath are not in the file to tell their type.
        told[_CONFIG]["content"]["dtype"] = str(base.dtype).removeprefix("torch.")
        adapters = {name: _adapter_content(config) for name, config in model.peft_config.items()}
        for content in adapters.values():  # one that was added later does not name its base
            content["base_model_name_or_path"] = (
                content.get("base_model_name_or_path") or getattr(base, "name_or_path", "") or None
            )
        active = _active_adapter(model)
        told[_ADAPTER] = {**_as_file(adapters[active]), "adapter_name": active}
        if len(adapters) > 1:
            told["peft_configs"] = {name: _as_file(c) for name, c in adapters.items()}
    return told


def _as_file(content: Any, cls: str | None = None) -> dict[str, Any]:
    entry = {"file_extension": ".json", "content": content}
    return entry if cls is None else {**entry, "class": cls}


def _active_adapter(model: Any) -> str:
    active = model.active_adapter
    return active if isinstance(active, str) else next(iter(active))


def _adapter_content(config: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)  # which turns sets and enumerations into plain types
        return json.loads(Path(folder, "adapter_config.json").read_text())


def huggingface_part(contents: Mapping[str, Any], shown: str = "the checkpoint") -> dict[str, Any]:
    """Return what a checkpoint keeps about its model of transformers.

    Args:
        contents: What the file holds.
        shown: The file, for the error.

    Returns:
        ``model`` and ``tokenizer``.

    Raises:
        ValueError: If it keeps nothing of the kind.

    Example:
        >>> kept = {"model": {"config": {"content": {}}}, "tokenizer": {}}
        >>> huggingface_part({"state": {"integrations": {"huggingface": kept}}}) == kept
        True
    """
    part: Any = contents
    for key in ("state", "integrations", "huggingface"):
        part = part.get(key) if isinstance(part, Mapping) else None
    model = part.get("model") if isinstance(part, Mapping) else None
    config = model.get(_CONFIG) if isinstance(model, Mapping) else None
    if (
        not isinstance(model, Mapping)
        or not isinstance(config, Mapping)
        or not isinstance(config.get("content"), Mapping)
    ):
        raise ValueError(
            f"{shown} holds no model of Hugging Face: it keeps no "
            f"'state/integrations/huggingface', which a HuggingFaceModel writes"
        )
    _check_entries(part, model, shown)
    return dict(part)


def _check_entries(part: Mapping[str, Any], model: Mapping[str, Any], shown: str) -> None:
    """Refuse a damaged file here, where it can be named."""
    several = model.get("peft_configs") or {}
    entries = {name: model.get(name) for name in (_CONFIG, _ADAPTER, _GENERATION)}
    if isinstance(several, Mapping):
        entries |= {f"peft_configs/{name}": entry for name, entry in several.items()}
    else:
        entries["peft_configs"] = several
    for name, entry in entries.items():
        content = entry.get("content") if isinstance(entry, Mapping) else None
        if entry is not None and not isinstance(content, Mapping):
            raise ValueError(
                f"the {name} that {shown} keeps of its model of Hugging Face must be a mapping "
                f"with a mapping as 'content', not {type(entry).__name__}; the file is damaged"
            )
        try:
            json.dumps(content)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the {name} that {shown} keeps of its model of Hugging Face is not made of plain "
                f"types ({error}); the file is damaged"
            ) from None
    files = part.get("tokenizer")
    if files is not None and not isinstance(files, Mapping):
        raise ValueError(
            f"the tokenizer that {shown} keeps must be a mapping of names to files, not "
            f"{type(files).__name__}; the file is damaged"
        )


def _without_foreign_attention(content: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration that does not make transformers fetch code for its attention."""
    kept: dict[str, Any] = {}
    for key, value in content.items():
        if key in _ATTENTION and not _is_built_in(value):
            log.warning(
                "%s=%r of the checkpoint's configuration is left out, since it may be code from "
                "the Hub; the model computes its attention with what comes with transformers",
                key,
                value,
            )
        else:
            kept[key] = _without_foreign_attention(value) if isinstance(value, Mapping) else value
    return kept


def _is_built_in(attention: Any) -> bool:
    if isinstance(attention, Mapping):  # one for each part of the model
        return all(map(_is_built_in, attention.values()))
    return isinstance(attention, str | None) and attention in _ATTENTION_BUILT_IN


class ModelFacts:
    """Reads the parts of what :func:`describe_model` returned.

    Args:
        part: ``model`` and ``tokenizer`` of a checkpoint.

    Example:
        >>> facts = ModelFacts({"model": {"config": {"content": {"architectures": ["A"]}}}})
        >>> facts.class_name, facts.adapter, facts.generation
        ('A', None, None)
    """

    def __init__(self, part: Mapping[str, Any]) -> None:
        self._model = part["model"]
        entry = self._model.get(_CONFIG) or {}
        self._config = _without_foreign_attention(entry.get("content") or {})
        self.tokenizer: dict[str, Any] = dict(part.get("tokenizer") or {})

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as in ``config.json``; no attention of it is code from the Hub."""
        return dict(self._config)

    @property
    def class_path(self) -> str:
        """Module and name of the model's class; empty if the file does not say."""
        return str((self._model.get(_CONFIG) or {}).get("class") or "")

    @property
    def class_name(self) -> str:
        """The name of the model's class, without its adapters."""
        path = self.class_path
        if path and not path.startswith("peft."):
            return path.rpartition(".")[2]
        # Composer 0.32 wrote the class of the model around the adapter.
        architectures = self.config.get("architectures") or [""]
        return str(architectures[0])

    @property
    def generation(self) -> dict[str, Any] | None:
        """How it generates, as in ``generation_config.json``."""
        entry = self._model.get(_GENERATION)
        return None if entry is None else dict(entry["content"])

    @property
    def adapter(self) -> dict[str, Any] | None:
        """The adapter, as in ``adapter_config.json``."""
        entry = self._model.get(_ADAPTER)
        return None if entry is None else dict(entry["content"])

    @property
    def adapter_name(self) -> str:
        """The adapter's name in the weights."""
        entry = self._model.get(_ADAPTER) or {}
        return str(entry.get("adapter_name", "default"))

    @property
    def adapters(self) -> dict[str, dict[str, Any]]:
        """All adapters by name."""
        several = self._model.get("peft_configs")
        if several:
            return {name: dict(entry["content"]) for name, entry in several.items()}
        return {} if self.adapter is None else {self.adapter_name: self.adapter}
