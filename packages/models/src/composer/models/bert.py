"""BERT for words that are masked and for texts that are classed, over transformers.

Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding
(2018). Fresh weights are those of transformers: normal with a spread of 0.02, as in the authors'
code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from composer.metrics.base import Metric
from composer.metrics.classification import MulticlassAccuracy
from composer.metrics.language import BinaryF1Score, LanguageCrossEntropy, MaskedAccuracy
from composer.metrics.regression import MeanSquaredError
from composer.models.origin import remembers_origin
from composer.utils.checks import check_integer

if TYPE_CHECKING:
    from composer.models.huggingface import HuggingFaceModel

__all__ = ["create_bert_classification", "create_bert_mlm"]


@remembers_origin("bert_mlm", forget=["use_pretrained"])
def create_bert_mlm(
    use_pretrained: bool | None = False,
    pretrained_model_name: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    tokenizer_name: str | None = None,
    gradient_checkpointing: bool | None = False,
) -> HuggingFaceModel:
    """Build BERT for guessing masked words.

    Needs the extra ``huggingface``. Batches hold ``input_ids`` in which words are masked, and
    ``labels`` that are -100 but for those words.

    Args:
        use_pretrained: Whether to load weights, those of ``pretrained_model_name`` or else of
            ``"bert-base-uncased"`` on the Hugging Face hub.
        pretrained_model_name: A folder, or a name on the hub; without ``use_pretrained`` only its
            configuration is read. Without a name a fresh model has the configuration of BERT-base,
            and nothing is downloaded.
        model_config: Changes of the configuration, for instance ``{"num_hidden_layers": 6}``.
        tokenizer_name: A folder, or a name on the hub, of the tokenizer to keep with the model.
        gradient_checkpointing: Whether activations are computed again in the backward pass.

    Returns:
        The model, with cross entropy and accuracy over masked words as metrics.

    Raises:
        ValueError: If the configuration knows no such name.
        MissingConditionalImportError: If transformers is not installed.

    Example:
        >>> sizes = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2}
        >>> model = create_bert_mlm(model_config=sizes | {"vocab_size": 50})
        >>> list(model.get_metrics(is_train=False))
        ['LanguageCrossEntropy', 'MaskedAccuracy']
    """
    from composer.models._transformers import build_network, tokenizer_of
    from composer.models.huggingface import HuggingFaceModel

    model = build_network(
        "AutoModelForMaskedLM",
        "BertConfig",
        "bert-base-uncased",
        use_pretrained=use_pretrained,
        pretrained_model_name=pretrained_model_name,
        model_config=model_config,
        gradient_checkpointing=gradient_checkpointing,
    )
    return HuggingFaceModel(
        model,
        tokenizer=tokenizer_of(tokenizer_name),
        use_logits=True,
        metrics=[LanguageCrossEntropy(), MaskedAccuracy()],
    )


@remembers_origin("bert_classification", forget=["use_pretrained"])
def create_bert_classification(
    num_labels: int = 2,
    use_pretrained: bool | None = False,
    pretrained_model_name: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    tokenizer_name: str | None = None,
    gradient_checkpointing: bool | None = False,
) -> HuggingFaceModel:
    """Build BERT for classing texts, or for giving each a number.

    Needs the extra ``huggingface``.

    Args:
        num_labels: Number of classes; with 1 the labels are numbers, and the loss is the squared
            error.
        use_pretrained: Whether to load weights, those of ``pretrained_model_name`` or else of
            ``"bert-base-uncased"`` on the Hugging Face hub; the last layer starts fresh.
        pretrained_model_name: A folder, or a name on the hub; without ``use_pretrained`` only its
            configuration is read. Without a name a fresh model has the configuration of BERT-base,
            and nothing is downloaded.
        model_config: Changes of the configuration, for instance ``{"num_hidden_layers": 6}``.
        tokenizer_name: A folder, or a name on the hub, of the tokenizer to keep with the model.
        gradient_checkpointing: Whether activations are computed again in the backward pass.

    Returns:
        The model: with accuracy as its metric, of two classes also the F1 score, and of numbers the
        mean squared error.

    Raises:
        ValueError: If a number is not accepted, ``num_labels`` stands in ``model_config`` as
            another number, or the configuration knows no such name.
        MissingConditionalImportError: If transformers is not installed.

    Example:
        >>> sizes = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2}
        >>> model = create_bert_classification(3, model_config=sizes | {"vocab_size": 50})
        >>> list(model.get_metrics(is_train=False))
        ['MulticlassAccuracy']
    """
    from composer.models._transformers import build_network, check_model_config, tokenizer_of
    from composer.models.huggingface import HuggingFaceModel

    check_integer("num_labels", num_labels, low=1)
    check_model_config(model_config)
    if (model_config or {}).get("num_labels", num_labels) != num_labels:
        raise ValueError(
            f"num_labels={num_labels} differs from the {model_config['num_labels']!r} in "  # type: ignore[index]
            f"model_config; give the one argument"
        )
    model = build_network(
        "AutoModelForSequenceClassification",
        "BertConfig",
        "bert-base-uncased",
        use_pretrained=use_pretrained,
        pretrained_model_name=pretrained_model_name,
        model_config=model_config,
        gradient_checkpointing=gradient_checkpointing,
        num_labels=num_labels,
    )
    metrics: list[Metric]
    if num_labels == 1:
        metrics = [MeanSquaredError()]
    else:
        metrics = [MulticlassAccuracy(num_labels)]
        if num_labels == 2:
            metrics.append(BinaryF1Score())
    return HuggingFaceModel(
        model, tokenizer=tokenizer_of(tokenizer_name), use_logits=True, metrics=metrics
    )
