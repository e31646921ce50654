"""What the factories over transformers share: a network, fresh or with weights from elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from composer.models.huggingface._doors import import_transformers, not_found_errors
from composer.utils.checks import check_bool
from composer.utils.suggestions import did_you_mean

__all__ = ["build_network", "check_model_config", "tokenizer_of"]


def build_network(
    kind: str,
    config_class: str,
    default_name: str,
    *,
    use_pretrained: bool | None,
    pretrained_model_name: str | None,
    model_config: Mapping[str, Any] | None,
    gradient_checkpointing: bool | None,
    **task: Any,
) -> Any:
    """Build a network of transformers.

    Args:
        kind: The class that knows the task, for instance ``"AutoModelForCausalLM"``.
        config_class: The class of the configuration, for instance ``"GPT2Config"``.
        default_name: Where weights come from if no name is given.
        use_pretrained: Whether to load weights.
        pretrained_model_name: A folder, or a name on the Hugging Face hub; without
            ``use_pretrained`` only its configuration is read.
        model_config: Changes of the configuration.
        gradient_checkpointing: Whether activations are computed again in the backward pass.
        **task: Further changes of the configuration, which the user did not write.

    Returns:
        The network.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If the configuration knows no such name.
        MissingConditionalImportError: If transformers is not installed.

    Example:
        >>> fresh = {"use_pretrained": False, "pretrained_model_name": None}
        >>> sizes = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2}
        >>> model = build_network(
        ...     "AutoModelForMaskedLM", "BertConfig", "bert-base-uncased", **fresh,
        ...     model_config=sizes | {"vocab_size": 50}, gradient_checkpointing=False
        ... )
        >>> model.config.hidden_size
        8
    """
    check_model_config(model_config)
    flags = {"use_pretrained": use_pretrained, "gradient_checkpointing": gradient_checkpointing}
    for name, flag in flags.items():
        if flag is not None:
            check_bool(name, flag)
    transformers = import_transformers()
    options = {**(model_config or {}), **task}
    builder = getattr(transformers, kind)
    if use_pretrained:
        with _naming("pretrained_model_name", pretrained_model_name or default_name):
            model = builder.from_pretrained(pretrained_model_name or default_name, **options)
    else:
        if pretrained_model_name is None:
            config: Any = getattr(transformers, config_class)(**options)
        else:
            with _naming("pretrained_model_name", pretrained_model_name):
                config = transformers.AutoConfig.from_pretrained(pretrained_model_name, **options)
        _check_names(model_config or {}, type(config)())
        model = builder.from_config(config)
    if gradient_checkpointing:
        # The second name is that of transformers before 5.
        switch = getattr(model, "activation_checkpointing_enable", None)
        (switch or model.gradient_checkpointing_enable)()
    return model


@contextlib.contextmanager
def _naming(argument: str, name: Any) -> Iterator[None]:
    """What cannot be read is told by the argument that named it."""
    if not isinstance(name, (str, os.PathLike)):
        raise TypeError(f"{argument}={name!r} must be a folder, or a name on the Hugging Face hub")
    try:
        yield
    except not_found_errors() as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OSError(
            f"{argument}={name!r} is neither a folder that transformers reads, nor found on the "
            f"Hugging Face hub or in its cache here: {reason}"
        ) from error


def check_model_config(model_config: Any) -> None:
    """Refuse what cannot be changes of a configuration.

    Args:
        model_config: What the user gave.

    Raises:
        TypeError: If it is neither a mapping nor ``None``.

    Example:
        >>> check_model_config({"num_hidden_layers": 6})
    """
    if model_config is not None and not isinstance(model_config, Mapping):
        raise TypeError(
            f"model_config={model_config!r} must be a mapping of entries of the configuration to "
            f"values, for instance {{'num_hidden_layers': 6}}"
        )


def _check_names(model_config: Mapping[str, Any], plain: Any) -> None:
    # A configuration of transformers keeps whatever it is given, so a slip would go unseen.
    for name in model_config:
        if not hasattr(plain, name) and name != "attn_implementation":
            raise ValueError(
                f"model_config has {name!r}, which {type(plain).__name__} does not know."
                f"{did_you_mean(name, list(plain.to_dict()))}"
            )


def tokenizer_of(tokenizer_name: str | None) -> Any:
    """Load a tokenizer.

    Args:
        tokenizer_name: A folder, or a name on the Hugging Face hub.

    Returns:
        The tokenizer, or ``None`` without a name.

    Raises:
        OSError: If there is none of that name.
        MissingConditionalImportError: If transformers is not installed.

    Example:
        >>> tokenizer_of(None) is None
        True
    """
    if tokenizer_name is None:
        return None
    with _naming("tokenizer_name", tokenizer_name):
        return import_transformers().AutoTokenizer.from_pretrained(tokenizer_name)
