"""Writes the files of an adapter alone, as peft does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from composer.models.huggingface._doors import import_peft
from composer.models.huggingface.adapter_weights import (
    adapter_keys,
    embedding_keys,
    filter_state_dict_peft,
)
from composer.models.huggingface.adapters import check_restorable, quiet_peft
from composer.models.huggingface.checkpoint_weights import fill, holds_base
from composer.models.huggingface.configurations import load_adapter_config
from composer.models.huggingface.folder_files import (
    Exported,
    stored_shape,
    told_config,
    write_json,
)
from composer.models.huggingface.metadata import ModelFacts
from composer.models.huggingface.rebuild import skeleton, with_adapters
from composer.models.huggingface.safetensors_file import write_safetensors

__all__ = ["write_adapter"]


def write_adapter(
    folder: Path, facts: ModelFacts, weights: Mapping[str, Any], dtype: torch.dtype | None,
    *, shown: str, trust_remote_code: bool,
) -> Exported:  # fmt: skip
    """Write weights and configuration of the adapter, and the configuration of its model.

    Args:
        folder: The folder, which is there.
        facts: What the checkpoint says of its model, which has an adapter.
        weights: Its weights, by the names of the model.
        dtype: Type that floating point weights are turned into; unchanged by default.
        shown: The checkpoint, for errors.
        trust_remote_code: Whether code that the checkpoint names may be run.

    Returns:
        What was written.

    Raises:
        ValueError: If the weights do not fit the model, or are not all of the adapter.

    Example:
        >>> import tempfile
        >>> from peft import LoraConfig
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from composer.models import HuggingFaceModel
        >>> from composer.models.huggingface.checkpoint_weights import stored_weights
        >>> tiny = GPT2Config(n_embd=4, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
        >>> lora = LoraConfig(r=1, target_modules=["c_attn"], fan_in_fan_out=True)
        >>> model = HuggingFaceModel(GPT2LMHeadModel(tiny), peft_config=lora)
        >>> weights = stored_weights({"state": {"model": model.state_dict()}})
        >>> facts = ModelFacts(model.get_metadata())
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_adapter(folder, facts, weights, None, shown="a", trust_remote_code=False).files
        ['adapter_model.safetensors', 'adapter_config.json', 'config.json']
    """
    assert facts.adapter is not None
    saved = _as_peft_saves(facts, weights, shown, trust_remote_code)
    shapes = {name: stored_shape(tensor, dtype) for name, tensor in saved.items()}
    write_safetensors(
        folder / "adapter_model.safetensors",
        shapes,
        lambda name: saved[name].to(shapes[name][0]),
    )
    write_json(folder / "adapter_config.json", {**facts.adapter, "inference_mode": True})
    write_json(folder / "config.json", told_config(facts.config, facts.class_name, ()))
    return Exported(["adapter_model.safetensors", "adapter_config.json", "config.json"], len(saved))


def _as_peft_saves(
    facts: ModelFacts, weights: Mapping[str, Any], shown: str, trust_remote_code: bool
) -> dict[str, torch.Tensor]:
    """The adapter's weights under the names of peft's files; embeddings if they were kept too."""
    config = load_adapter_config(facts.adapter or {})
    check_restorable({facts.adapter_name: config}, alone=True)
    # What peft saves of a prompt it computes from the prompt's weights, and the mask of a sparse
    # adapter from the sizes; both take numbers.
    counted = config.is_prompt_learning or config.peft_type == "SHIRA"
    device = "cpu" if counted else "meta"
    base = skeleton(facts, trust_remote_code, device=device)
    if base is None:
        return filter_state_dict_peft(dict(weights), config, facts.adapter_name)
    with torch.device(device):
        model = with_adapters(base, facts)
    alone = not holds_base(weights)
    # Beside adapters alone, embeddings are kept only if they have rows that the base lacks.
    rows = set(embedding_keys(model)) - set(adapter_keys(model))
    with_rows = alone and not rows.isdisjoint(weights)
    fill(model, weights, shown, alone=alone, assign=True)
    own = dict(model.state_dict())
    peft = import_peft()
    with quiet_peft():
        saved = peft.get_peft_model_state_dict(
            model, state_dict=dict(own), adapter_name=facts.adapter_name,
            save_embedding_layers=with_rows,
        )  # fmt: skip
    return {name: tensor for name, tensor in saved.items() if not tensor.is_meta}
