"""GPT-2, over transformers.

Radford et al., Language Models are Unsupervised Multitask Learners (2019). Fresh weights are those
of transformers, which are the paper's: normal with a spread of 0.02, the projections that end the
branches of a block divided by the square root of the number of branches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from composer.metrics.language import LanguageCrossEntropy, LanguagePerplexity
from composer.models.origin import remembers_origin

if TYPE_CHECKING:
    from composer.models.huggingface import HuggingFaceModel

__all__ = ["create_gpt2"]


@remembers_origin("gpt2", forget=["use_pretrained"])
def create_gpt2(
    use_pretrained: bool | None = False,
    pretrained_model_name: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    tokenizer_name: str | None = None,
    gradient_checkpointing: bool | None = False,
) -> HuggingFaceModel:
    """Build GPT-2 for text that goes on.

    Needs the extra ``huggingface``.

    Args:
        use_pretrained: Whether to load weights, those of ``pretrained_model_name`` or else of
            ``"gpt2"`` on the Hugging Face hub.
        pretrained_model_name: A folder, or a name on the hub; without ``use_pretrained`` only its
            configuration is read. Without a name a fresh model has the configuration of the
            smallest GPT-2, and nothing is downloaded.
        model_config: Changes of the configuration, for instance ``{"n_layer": 6}``.
        tokenizer_name: A folder, or a name on the hub, of the tokenizer to keep with the model.
        gradient_checkpointing: Whether activations are computed again in the backward pass.

    Returns:
        The model, with cross entropy and perplexity as metrics.

    Raises:
        ValueError: If the configuration knows no such name.
        MissingConditionalImportError: If transformers is not installed.

    Example:
        >>> sizes = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 50}
        >>> model = create_gpt2(model_config=sizes | {"bos_token_id": 0, "eos_token_id": 0})
        >>> list(model.get_metrics(is_train=False))
        ['LanguageCrossEntropy', 'LanguagePerplexity']
    """
    from composer.models._transformers import build_network, tokenizer_of
    from composer.models.huggingface import HuggingFaceModel

    model = build_network(
        "AutoModelForCausalLM",
        "GPT2Config",
        "gpt2",
        use_pretrained=use_pretrained,
        pretrained_model_name=pretrained_model_name,
        model_config=model_config,
        gradient_checkpointing=gradient_checkpointing,
    )
    return HuggingFaceModel(
        model,
        tokenizer=tokenizer_of(tokenizer_name),
        use_logits=True,
        metrics=[LanguageCrossEntropy(), LanguagePerplexity()],
    )
