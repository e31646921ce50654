"""Builds the model that a checkpoint keeps.

Nothing in a checkpoint is run. The class of a model is looked up among transformers' own; another
has to be given by the caller. Adapters that were saved alone need the model that they are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from composer.models.huggingface._doors import (
    import_peft,
    import_transformers,
    not_found_errors,
)
from composer.models.huggingface.adapters import check_restorable, quiet_peft
from composer.models.huggingface.checkpoint_weights import fill, holds_base, stored_weights
from composer.models.huggingface.configurations import (
    changed_config,
    load_adapter_config,
    load_config,
)
from composer.models.huggingface.embeddings import num_embeddings
from composer.models.huggingface.metadata import ModelFacts, huggingface_part
from composer.utils.imports import import_object

__all__ = [
    "build_model",
    "find_class",
    "load_trained",
    "set_generation",
    "skeleton",
    "with_adapters",
]

# Composer 0.32 did not keep the class beneath an adapter; the adapter says what it is for.
_TASKS = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "FEATURE_EXTRACTION": "AutoModel",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
}


def find_class(facts: ModelFacts, given: Any | None, *, trust_remote_code: bool = False) -> Any:
    """Find the class of a stored model.

    Args:
        facts: What the checkpoint says.
        given: The class, or its import path, or ``None`` for the stored one.
        trust_remote_code: Whether a class that the configuration names on the Hub may be used.

    Returns:
        A class of transformers, or one of its ``AutoModel...``.

    Raises:
        TypeError: If what was given is no class of a model.
        ValueError: If it is not transformers' own and none was given, or there is none of the
            given path.

    Example:
        >>> find_class(ModelFacts({"model": {"config": {"class": "x.GPT2Model"}}}), None).__name__
        'GPT2Model'
    """
    transformers = import_transformers()
    if given is not None:
        return _given_class(given)
    name = facts.class_name
    found = getattr(transformers, name, None) if name.isidentifier() else None
    if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
        return found
    task = (facts.adapter or {}).get("task_type")
    if not name and task in _TASKS:
        return getattr(transformers, _TASKS[task])
    if trust_remote_code:
        for auto, reference in (facts.config.get("auto_map") or {}).items():
            if str(reference).rpartition(".")[2] == name and auto.startswith("AutoModel"):
                return getattr(transformers, auto)
    raise ValueError(
        f"the checkpoint's model is a {facts.class_path or name!r}, which is none of "
        f"transformers {transformers.__version__}; pass its class as model_instantiation_class"
    )


def _given_class(given: Any) -> Any:
    found = given
    if isinstance(given, str):
        try:
            found = import_object(given if ":" in given else ":".join(given.rsplit(".", 1)))
        except (AttributeError, ImportError, ValueError) as error:
            raise ValueError(
                f"model_instantiation_class={given!r} is not found ({error}); it must be a class "
                f"or its import path, such as 'transformers.AutoModelForCausalLM'"
            ) from error
    builds = isinstance(found, type) and callable(getattr(found, "from_config", None))
    if not builds and not (isinstance(found, type) and hasattr(found, "_from_config")):
        raise TypeError(
            f"model_instantiation_class={given!r} must be a class of transformers' models or one "
            f"of its AutoModel..., or the import path of one"
        )
    return found


def build_model(cls: Any, config: Any, *, trust_remote_code: bool = False) -> Any:
    """Build a model with new weights.

    Args:
        cls: A class of transformers, or one of its ``AutoModel...``.
        config: Its configuration.
        trust_remote_code: Whether code that the configuration names on the Hub may be run.

    Returns:
        The model.

    Raises:
        ValueError: If class and configuration do not fit.

    Example:
        >>> from transformers import GPT2Config, GPT2Model
        >>> build_model(GPT2Model, GPT2Config(n_embd=4, n_layer=1, n_head=1)).config.n_embd
        4
    """
    transformers = import_transformers()
    try:
        if isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel):
            return cls(config)
        options = {"trust_remote_code": True} if trust_remote_code else {}
        return cls.from_config(config, **options)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"a {cls.__name__} cannot be built from a {type(config).__name__}: {error}"
        ) from error


def load_trained(
    contents: Mapping[str, Any],
    *,
    shown: str = "the checkpoint",
    given_class: Any | None = None,
    overrides: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
    base_model: Any | None = None,
) -> Any:
    """Build the model of a checkpoint with its weights, on the host.

    Args:
        contents: What the file holds.
        shown: The file, for errors.
        given_class: The class, or its import path; by default the stored one.
        overrides: Entries of the configuration to set.
        trust_remote_code: Whether code that the checkpoint names may be run.
        base_model: The model beneath adapters that were saved alone.

    Returns:
        The model, of peft if it has adapters, in evaluation mode, its weights of the types that
        they were trained in. Weights that its class ties and that differ are untied.

    Raises:
        ValueError: If something does not fit or is not found.

    Example:
        >>> try:
        ...     load_trained({"state": {}})
        ... except ValueError as error:
        ...     print("no model of Hugging Face" in str(error))
        True
    """
    facts = ModelFacts(huggingface_part(contents, shown))
    weights = stored_weights(contents, shown)
    config = changed_config(
        facts.config, overrides, "model_config_kwargs", trust_remote_code=trust_remote_code
    )
    cls = find_class(facts, given_class, trust_remote_code=trust_remote_code)
    if not facts.adapters:
        model = build_model(cls, config, trust_remote_code=trust_remote_code)
        fill(model, weights, shown)
        set_generation(model, facts)
        return model.eval()
    whole = holds_base(weights)
    base = (
        build_model(cls, config, trust_remote_code=trust_remote_code)
        if whole
        else _find_base(base_model, facts, cls, config, trust_remote_code=trust_remote_code)
    )
    model = with_adapters(base, facts)
    check_restorable(model.peft_config, alone=not whole)
    fill(model, weights, shown, alone=not whole)
    set_generation(base, facts)
    return model.eval()


def with_adapters(base: Any, facts: ModelFacts) -> Any:
    """Put the stored adapters on a model, without their weights.

    Args:
        base: The model of transformers.
        facts: What the checkpoint says.

    Returns:
        The model of peft.

    Example:
        >>> facts = ModelFacts({"model": {"peft_config": {"content": {
        ...     "peft_type": "LORA", "r": 1, "target_modules": ["0"]}}}})
        >>> type(with_adapters(torch.nn.Sequential(torch.nn.Linear(1, 1)), facts)).__name__
        'PeftModel'
    """
    peft = import_peft()
    model: Any = None
    with quiet_peft():
        for name, content in facts.adapters.items():
            config = load_adapter_config(content)
            config.inference_mode = False
            named = config.base_model_name_or_path
            config.base_model_name_or_path = None  # peft warns where the base lies elsewhere now
            if model is None:
                model = peft.get_peft_model(base, config, adapter_name=name)
            else:
                model.add_adapter(name, config)
            model.peft_config[name].base_model_name_or_path = named
    model.set_adapter(facts.adapter_name)
    return model


def _find_base(
    given: Any, facts: ModelFacts, cls: Any, config: Any, *, trust_remote_code: bool
) -> Any:
    base: Any = given
    if not isinstance(given, torch.nn.Module):
        names = [adapter.get("base_model_name_or_path") for adapter in facts.adapters.values()]
        name = given or next(filter(None, names), config._name_or_path)
        if not name:
            raise ValueError(
                "the checkpoint holds adapters alone and does not say what model they are for; "
                "pass base_model (a command: --base), a model of transformers or where one lies"
            )
        try:
            base = cls.from_pretrained(
                str(name),
                dtype=getattr(config, "dtype", None) or "auto",
                trust_remote_code=trust_remote_code,
            )
        except not_found_errors() as error:
            raise ValueError(
                f"the checkpoint holds adapters alone, and the model that they are for is not at "
                f"{str(name)!r}; pass base_model (a command: --base), a model of transformers or "
                f"where one lies"
            ) from error
    wanted = getattr(config, "vocab_size", None)
    held = num_embeddings(base)
    if wanted is not None and held is not None and wanted != held:
        base.resize_token_embeddings(wanted, mean_resizing=False)
    return base


def set_generation(model: Any, facts: ModelFacts) -> None:
    """Give a model the stored way to generate.

    Args:
        model: A model of transformers.
        facts: What the checkpoint says.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> facts = {"config": {}, "generation_config": {"content": {"top_k": 3}}}
        >>> set_generation(model, ModelFacts({"model": facts}))
        >>> model.generation_config.top_k
        3
    """
    if facts.generation is not None:
        transformers = import_transformers()
        try:
            model.generation_config = transformers.GenerationConfig.from_dict(facts.generation)
        except (AttributeError, TypeError) as error:
            raise ValueError(f"transformers refuses the stored way to generate: {error}") from error


def skeleton(
    facts: ModelFacts, trust_remote_code: bool, *, device: str = "meta", tied: bool = True
) -> Any | None:
    """Build a model without numbers, which says what is tied and how its weights are called.

    Args:
        facts: What the checkpoint says of it.
        trust_remote_code: Whether code that the checkpoint names may be run.
        device: Where it is; with numbers on any other than ``"meta"``.
        tied: Whether weights are tied as the configuration says, or not at all.

    Returns:
        The model of transformers; ``None`` for a class that is not known.

    Example:
        >>> config = {"content": {"model_type": "gpt2", "n_layer": 1}, "class": "x.GPT2Model"}
        >>> skeleton(ModelFacts({"model": {"config": config}}), False).wte.weight.is_meta
        True
    """
    try:
        cls = find_class(facts, None, trust_remote_code=trust_remote_code)
    except ValueError:
        return None
    content = facts.config if tied else {**facts.config, "tie_word_embeddings": False}
    config = load_config(content, trust_remote_code=trust_remote_code)
    with torch.device(device):
        return build_model(cls, config, trust_remote_code=trust_remote_code)
