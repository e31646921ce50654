"""Generated text: what prompts are padded with, and what a model wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from composer.models.huggingface.heads import is_encoder_decoder, maybe_get_underlying_model

__all__ = ["continue_text", "pad_token_of"]


def pad_token_of(model: Any, tokenizer: Any | None) -> int:
    """Find the token that shorter rows are filled with.

    Args:
        model: A model of transformers or of peft.
        tokenizer: Its tokenizer, if there is one.

    Returns:
        The padding token of the tokenizer or the configurations, else the one that ends a text.

    Raises:
        ValueError: If none says one.

    Example:
        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(pad_token_id=None, eos_token_id=[2, 3])
        >>> pad_token_of(SimpleNamespace(config=config), None)
        2
    """
    base = maybe_get_underlying_model(model)
    sources = (
        tokenizer,
        getattr(base, "generation_config", None),
        getattr(base, "config", None),
    )
    for attribute in ("pad_token_id", "eos_token_id"):
        for source in sources:
            found = getattr(source, attribute, None)
            if isinstance(found, (list, tuple)):
                found = found[0] if found else None
            if found is not None and int(found) >= 0:
                return int(found)
    raise ValueError(
        "neither tokenizer nor configuration names a token to pad with; pass a tokenizer to "
        "HuggingFaceModel, or pad_token_id to generate"
    )


def continue_text(model: Any, batch: Mapping[str, Any]) -> list[str]:
    """Generate from the prompts of a batch.

    Args:
        model: A ``HuggingFaceModel`` with a tokenizer.
        batch: ``input_ids``, padded on the left, ``attention_mask`` and ``generation_kwargs``.

    Returns:
        What the model wrote after each prompt, without special tokens.

    Raises:
        ValueError: If the model has no tokenizer.

    Example:
        >>> from types import SimpleNamespace
        >>> try:
        ...     continue_text(SimpleNamespace(tokenizer=None), {})
        ... except ValueError as error:
        ...     print("tokenizer" in str(error))
        True
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ValueError(
            "a batch with mode='generate' asks for text, which takes a tokenizer; pass one to "
            "HuggingFaceModel"
        )
    ids = batch["input_ids"]
    options = dict(batch.get("generation_kwargs") or {})
    if batch.get("attention_mask") is not None:
        options["attention_mask"] = batch["attention_mask"]
    generated = model.generate(ids, **options)
    if not is_encoder_decoder(model.model):
        generated = generated[:, ids.shape[1] :]
    texts = tokenizer.batch_decode(generated, skip_special_tokens=True)
    # Where a space is a token of its own, decoding drops the one between prompt and answer.
    if len(tokenizer(" a", add_special_tokens=False)["input_ids"]) == 1:
        return list(texts)
    return [f" {text}" for text in texts]
