"""Writes the files of a plain model, with its adapter worked into its weights if it has one."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from composer.models.huggingface.adapters import quiet_peft
from composer.models.huggingface.checkpoint_weights import fill
from composer.models.huggingface.folder_files import (
    Exported,
    stored_shape,
    told_config,
    write_json,
    write_shards,
)
from composer.models.huggingface.metadata import ModelFacts
from composer.models.huggingface.rebuild import load_trained, skeleton
from composer.models.huggingface.ties import part_shared, tied_weights

__all__ = ["write_model"]


def write_model(
    folder: Path, contents: Mapping[str, Any], facts: ModelFacts, weights: dict[str, Any],
    dtype: torch.dtype | None, largest: int, *, shown: str, base_model: Any,
    trust_remote_code: bool,
) -> Exported:  # fmt: skip
    """Write weights and configurations.

    Args:
        folder: The folder, which is there.
        contents: What the checkpoint's file holds.
        facts: What it says of its model.
        weights: Its weights, by the names of the model.
        dtype: Type that floating point weights are turned into; unchanged by default.
        largest: Bytes that a file of weights may have.
        shown: The checkpoint, for errors.
        base_model: The model beneath adapters that were saved alone.
        trust_remote_code: Whether code that the checkpoint names may be run.

    Returns:
        What was written.

    Raises:
        ValueError: If the weights do not fit the model, or its adapter cannot be worked in.

    Example:
        >>> import tempfile
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from composer.models.huggingface.metadata import describe_model
        >>> tiny = GPT2Config(n_embd=4, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
        >>> model = GPT2LMHeadModel(tiny)
        >>> done = write_model(
        ...     Path(tempfile.mkdtemp()), {}, ModelFacts({"model": describe_model(model)}),
        ...     dict(model.state_dict()), None, 10**9, shown="a.pt", base_model=None,
        ...     trust_remote_code=False,
        ... )
        >>> done.tied
        {'lm_head.weight': 'transformer.wte.weight'}
    """
    config = facts.config
    if facts.adapters:
        merged = _merged(
            contents, facts, shown=shown, base_model=base_model, trust_remote_code=trust_remote_code
        )
        name, weights = type(merged).__name__, dict(merged.state_dict())
        config = {**config, **json.loads(merged.config.to_json_string())}
        tied, untied = _ties(weights, lambda tied: _twin(merged, tied), shown)
    else:
        name = facts.class_name

        def build(tied: bool) -> Any | None:
            return skeleton(facts, trust_remote_code, tied=tied)

        tied, untied = _ties(weights, build, shown)
    if untied:
        config["tie_word_embeddings"] = False
    kept = {name: tensor for name, tensor in weights.items() if name not in tied}
    shapes = {name: stored_shape(tensor, dtype) for name, tensor in kept.items()}
    files = write_shards(folder, "model", shapes, kept, largest)
    write_json(folder / "config.json", told_config(config, name, shapes.values()))
    files.append("config.json")
    if facts.generation is not None:
        write_json(folder / "generation_config.json", facts.generation)
        files.append("generation_config.json")
    return Exported(files, len(kept), tied)


def _merged(
    contents: Mapping[str, Any], facts: ModelFacts, *, shown: str, base_model: Any,
    trust_remote_code: bool,
) -> Any:  # fmt: skip
    """The plain model with its adapter in its weights."""
    with warnings.catch_warnings():
        # Said of adapters on tied weights, which are taken apart before they are merged.
        warnings.filterwarnings("ignore", ".*`?tie_word_embeddings=True`?", UserWarning)
        model = load_trained(
            contents, shown=shown, base_model=base_model, trust_remote_code=trust_remote_code
        )
        if model.active_peft_config.is_prompt_learning or not hasattr(model, "merge_and_unload"):
            raise ValueError(
                f"an adapter of the kind {model.active_peft_config.peft_type.value} cannot be "
                f"worked into the weights of its model; export it alone"
            )
        # An adapter on one of two tied weights changes that one alone.
        part_shared(model)
        config = model.get_base_model().config
        says_tied = getattr(config, "tie_word_embeddings", False)
        if says_tied:  # else peft warns that they are not, though they may be equal afterwards
            config.tie_word_embeddings = False
        with quiet_peft():
            merged = model.merge_and_unload(safe_merge=True, adapter_names=[facts.adapter_name])
    if says_tied:
        merged.config.tie_word_embeddings = True
    return merged


def _twin(model: Any, tied: bool) -> Any:
    """A new model like one, without numbers."""
    config = copy.deepcopy(model.config)
    if not tied:
        config.tie_word_embeddings = False
    with torch.device("meta"):
        return type(model)(config)


def _ties(
    weights: Mapping[str, Any], build: Callable[[bool], Any | None], shown: str
) -> tuple[dict[str, str], bool]:
    """What is tied, and whether the configuration has to say that nothing is.

    The model without numbers takes the weights too, so that a missing or misshapen one is noticed.
    """
    model = build(True)
    tied = tied_weights(model, weights)
    untied = tied is None
    if tied is None:
        model = build(False)
        tied = tied_weights(model, weights)
        if tied is None:
            raise ValueError(
                f"weights of {shown} that its model ties differ, and its configuration has no "
                f"`tie_word_embeddings` that would untie them, so no folder can hold them; take "
                f"the model with HuggingFaceModel.hf_from_composer_checkpoint"
            )
    if model is not None:
        fill(model, weights, shown, assign=True)
    return tied, untied
