"""Models and tokenizers of transformers out of checkpoints, without the script that trained them.

A file of Composer 0.32 is read like one of this library.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from composer.models.huggingface.configurations import changed_config
from composer.models.huggingface.metadata import ModelFacts, huggingface_part
from composer.models.huggingface.rebuild import (
    build_model,
    find_class,
    load_trained,
    set_generation,
)
from composer.models.huggingface.tokenizer import load_tokenizer
from composer.utils.checks import check_bool
from composer.utils.paths import is_uri
from composer.utils.transfer import get_file

__all__ = [
    "hf_from_composer_checkpoint",
    "load_huggingface_model_from_saved_state",
    "load_huggingface_tokenizer_from_saved_state",
    "read_contents",
]


def read_contents(path: str | Path, keep_download_at: str | Path | None = None) -> dict[str, Any]:
    """Read a checkpoint; its tensors are mapped from the file and not read yet.

    Args:
        path: Path or URI.
        keep_download_at: Where a download is left.

    Returns:
        What the file holds.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If it is damaged or would run code.

    Example:
        >>> import tempfile, torch
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save({"format": 1, "state": {}}, path)
        >>> read_contents(path)["state"]
        {}
    """
    import composer.utils as utils

    # The distribution that holds the trainer brings the reader, for files of every kind.
    if keep_download_at is None or not is_uri(str(path)):
        return utils.read_checkpoint(path)
    get_file(str(path), str(keep_download_at), overwrite=True)
    return utils.read_checkpoint(keep_download_at)


def load_huggingface_tokenizer_from_saved_state(
    hf_state: dict[str, Any],
    trust_remote_code: bool = False,
    tokenizer_save_dir: str | None = None,
) -> Any:
    """Build the tokenizer that a checkpoint keeps.

    Args:
        hf_state: ``state/integrations/huggingface`` of the checkpoint.
        trust_remote_code: Whether code of the tokenizer's is run.
        tokenizer_save_dir: Where its files are left; by default nowhere.

    Returns:
        The tokenizer; ``None`` if the checkpoint keeps none.

    Example:
        >>> load_huggingface_tokenizer_from_saved_state({}) is None
        True
    """
    check_bool("trust_remote_code", trust_remote_code)
    name = ModelFacts(hf_state).config.get("_name_or_path", "") if "model" in hf_state else ""
    return load_tokenizer(
        hf_state.get("tokenizer") or {},
        name_or_path=name,
        trust_remote_code=trust_remote_code,
        folder=tokenizer_save_dir,
    )


def load_huggingface_model_from_saved_state(
    hf_state: dict[str, Any],
    loaded_state_dict: dict[str, Any],
    model_instantiation_class: Any | None = None,
    model_config_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Build the model that a checkpoint keeps, without its weights.

    Args:
        hf_state: ``state/integrations/huggingface`` of the checkpoint.
        loaded_state_dict: What the checkpoint's file holds.
        model_instantiation_class: The class, or its import path; by default the stored one.
        model_config_kwargs: Entries of the configuration to set.

    Returns:
        The model of transformers with new weights.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If the checkpoint keeps no model, or one of a class that is not
            transformers' own and was not given, or there is no such entry of the configuration.

    Example:
        >>> small = {"model_type": "gpt2", "n_embd": 4, "n_layer": 1, "n_head": 1}
        >>> kept = {"model": {"config": {"content": small, "class": "transformers.GPT2Model"}}}
        >>> file = {"state": {"integrations": {"huggingface": kept}}}
        >>> type(load_huggingface_model_from_saved_state(kept, file)).__name__
        'GPT2Model'
    """
    del hf_state  # it is a part of the file
    facts = ModelFacts(huggingface_part(loaded_state_dict))
    config = changed_config(facts.config, model_config_kwargs, "model_config_kwargs")
    model = build_model(find_class(facts, model_instantiation_class), config)
    set_generation(model, facts)
    return model


def hf_from_composer_checkpoint(
    checkpoint_path: str | Path,
    model_instantiation_class: Any | None = None,
    model_config_kwargs: dict[str, Any] | None = None,
    local_checkpoint_save_location: str | Path | None = None,
    trust_remote_code: bool = False,
    *,
    base_model: Any | None = None,
) -> tuple[Any, Any]:
    """Read a model of transformers and its tokenizer from a checkpoint, weights included.

    Args:
        checkpoint_path: A checkpoint of this library or of Composer 0.32: path or URI.
        model_instantiation_class: The class, or its import path; by default the stored one.
        model_config_kwargs: Entries of the configuration to set.
        local_checkpoint_save_location: Where a download is left; by default nowhere.
        trust_remote_code: Whether code that the checkpoint names, or holds for its tokenizer,
            may be run.
        base_model: For a checkpoint of adapters alone the model beneath: a model of
            transformers, a folder, or a name on the Hub; by default what the adapter names.

    Returns:
        The model, of peft if it has adapters, in evaluation mode and in the types that it was
        trained in, and the tokenizer or ``None``.

    Raises:
        TypeError: If an argument is of another kind.
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If it holds no model of Hugging Face, or weights that do not fit it, or if
            its base or class is not found, or there is no such entry of the configuration.

    Example:
        >>> import tempfile, torch
        >>> from composer.models import HuggingFaceModel
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> tiny = GPT2Config(n_embd=4, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
        >>> model = HuggingFaceModel(GPT2LMHeadModel(tiny))
        >>> state = {"model": model.state_dict(), "integrations": model.integrations()}
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save({"format": 1, "state": state}, path)
        >>> again, _ = HuggingFaceModel.hf_from_composer_checkpoint(path)
        >>> torch.equal(again.lm_head.weight, model.model.lm_head.weight)
        True
    """
    check_bool("trust_remote_code", trust_remote_code)
    contents = read_contents(checkpoint_path, local_checkpoint_save_location)
    model = load_trained(
        contents,
        shown=str(checkpoint_path),
        given_class=model_instantiation_class,
        overrides=model_config_kwargs,
        trust_remote_code=trust_remote_code,
        base_model=base_model,
    )
    tokenizer = load_huggingface_tokenizer_from_saved_state(
        huggingface_part(contents), trust_remote_code
    )
    return model, tokenizer
