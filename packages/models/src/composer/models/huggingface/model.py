"""Makes a model of transformers trainable: batches in, loss out, metrics, text, adapters."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from composer.models._tasks import TaskModel
from composer.models.huggingface._arguments import check_tokenizer, metrics_by_name
from composer.models.huggingface._doors import import_transformers
from composer.models.huggingface.adapter_weights import base_weights, forgive_base_weights
from composer.models.huggingface.adapters import add_adapter, check_restorable, is_peft_model
from composer.models.huggingface.batches import (
    check_not_empty,
    inputs_of,
    targets_of,
    without_labels,
)
from composer.models.huggingface.counts import count_loss_tokens
from composer.models.huggingface.embeddings import fit_embeddings
from composer.models.huggingface.from_checkpoint import (
    hf_from_composer_checkpoint,
    load_huggingface_model_from_saved_state,
    load_huggingface_tokenizer_from_saved_state,
)
from composer.models.huggingface.heads import (
    forward_arguments,
    logits_in,
    loss_in,
    maybe_get_underlying_model,
    shifts_labels,
    without_cache,
)
from composer.models.huggingface.materialise import (
    give_first_values,
    shared_parameters,
    tie_again,
)
from composer.models.huggingface.metadata import describe_model
from composer.models.huggingface.text import continue_text, pad_token_of
from composer.models.huggingface.tokenizer import tokenizer_files
from composer.utils.checks import check_bool

__all__ = ["HuggingFaceModel"]

_PREFIX = "model."


class HuggingFaceModel(TaskModel):
    """A model of transformers, with or without adapters of peft, for the trainer.

    Batches are mappings, such as a tokenizer or a collator of transformers returns; members that
    the model's ``forward`` does not take are left out. The loss is the model's own.

    Needs the extra ``huggingface``.

    Args:
        model: The model, of any task, from ``from_pretrained`` or from a configuration; or a model
            of peft.
        tokenizer: Its tokenizer or processor, which is kept in checkpoints and decodes what is
            generated.
        use_logits: Whether metrics are given the logits and not the model's whole outputs. Their
            labels are then kept from the model, so an evaluation computes no loss.
        metrics: Metrics of training: a sequence, each kept under its class name, or a mapping of
            names to metrics.
        eval_metrics: Metrics of evaluation; by default copies of ``metrics``.
        shift_labels: Whether the loss compares each position with the label after it. By default
            it is read off the model's class: causal language models do.
        allow_embedding_resizing: Whether the embedding gets the rows that the tokenizer needs;
            else a tokenizer with more tokens is an error.
        peft_config: Puts a new adapter on the model: a configuration of peft, of any kind.
        should_save_peft_only: Whether checkpoints of a model with adapters hold only what is
            trained: adapters and the weights that are trained beside them.

    Attributes:
        model: The model.
        config: Its configuration.
        tokenizer: The tokenizer.
        model_forward_args: Members of a batch that the model takes.
        shift_labels: Whether labels are moved for metrics.
        using_peft: Whether the model has adapters.
        should_save_peft_only: May be changed between saves.
        use_logits: See above.
        labels: The labels of the last evaluated batch, where metrics find them.
        train_metrics: Name to metric.
        val_metrics: Name to metric.

    Raises:
        MissingConditionalImportError: If transformers, or for adapters peft, is not installed.
        TypeError: If ``model`` is no module, a metric lacks a method or ``peft_config`` is none, or
            another argument is of the wrong kind.
        ValueError: If tokenizer and embedding do not fit, two metrics have one name, or checkpoints
            would not hold what the adapters are.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 8, "n_embd": 4, "n_layer": 1, "n_head": 1}
        >>> tokens = {"bos_token_id": 0, "eos_token_id": 0}
        >>> model = HuggingFaceModel(GPT2LMHeadModel(GPT2Config(**sizes, **tokens)))
        >>> batch = {"input_ids": torch.tensor([[1, 2, 3]]), "labels": torch.tensor([[1, 2, 3]])}
        >>> model.loss(model(batch), batch).ndim, model.num_loss_tokens(batch)
        (0, 2)
    """

    model: Any
    config: Any
    tokenizer: Any
    model_forward_args: frozenset[str]
    shift_labels: bool
    using_peft: bool
    should_save_peft_only: bool
    use_logits: bool
    labels: Any
    train_metrics: dict[str, Any]
    val_metrics: dict[str, Any]

    def __init__(
        self,
        model: Any,
        tokenizer: Any | None = None,
        use_logits: bool | None = False,
        metrics: Sequence[Any] | Mapping[str, Any] | None = None,
        eval_metrics: Sequence[Any] | Mapping[str, Any] | None = None,
        shift_labels: bool | None = None,
        allow_embedding_resizing: bool = False,
        peft_config: Any | None = None,
        should_save_peft_only: bool = True,
    ) -> None:
        import_transformers()
        super().__init__()
        if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
            raise TypeError(
                f"model must be a model of transformers or of peft, with a `config`, not "
                f"{type(model).__name__}; for other modules there is ComposerClassifier"
            )
        check_bool("allow_embedding_resizing", allow_embedding_resizing)
        check_bool("should_save_peft_only", should_save_peft_only)
        if use_logits is not None:
            check_bool("use_logits", use_logits)
        if shift_labels is not None:
            check_bool("shift_labels", shift_labels)
        check_tokenizer(tokenizer)
        if peft_config is not None and hasattr(peft_config, "peft_type"):
            check_restorable({"default": peft_config}, alone=should_save_peft_only)
        self._resized = fit_embeddings(model, tokenizer, allow_resizing=allow_embedding_resizing)
        self.model = model if peft_config is None else add_adapter(model, peft_config)
        self.config = maybe_get_underlying_model(self.model).config
        self.tokenizer = tokenizer
        self.model_forward_args = forward_arguments(self.model)
        self.shift_labels = shifts_labels(model) if shift_labels is None else shift_labels
        self.using_peft = is_peft_model(self.model)
        if self.using_peft:
            check_restorable(self.model.peft_config, alone=should_save_peft_only)
        self.should_save_peft_only = should_save_peft_only
        self.use_logits = bool(use_logits)
        self.labels = None
        self.train_metrics = metrics_by_name("metrics", metrics)
        self.val_metrics = (
            copy.deepcopy(self.train_metrics)
            if eval_metrics is None
            else metrics_by_name("eval_metrics", eval_metrics)
        )
        self._tokenizer_files: tuple[Any, dict[str, Any]] | None = None
        if self.using_peft:
            self.register_load_state_dict_post_hook(_forgive_base_weights)

    def forward(self, batch: Any) -> Any:
        """Compute the model's outputs.

        Args:
            batch: A mapping, on the model's device; with ``labels`` the outputs hold the loss.

        Returns:
            What the model returns.

        Raises:
            TypeError: If the batch is no mapping.
            ValueError: If the model takes none of its members, or it holds no sample.

        Example:
            >>> model = HuggingFaceModel(_tiny())
            >>> model({"input_ids": torch.tensor([[1, 2]]), "id": 7}).logits.shape
            torch.Size([1, 2, 8])
        """
        inputs = inputs_of(batch, self.model_forward_args)
        check_not_empty(inputs)
        return self.model(**inputs)

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the loss that the model computed.

        Args:
            outputs: What :meth:`forward` returned for a batch with labels.
            batch: The batch.
            *args: Not used.
            **kwargs: Not used.

        Returns:
            The loss.

        Raises:
            ValueError: If the outputs hold none.

        Example:
            >>> HuggingFaceModel(_tiny()).loss({"loss": torch.tensor(1.5)}, {})
            tensor(1.5000)
        """
        del batch, args, kwargs
        return loss_in(outputs)

    def for_inference(self, batch: Any) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Say what is exported for use elsewhere: the model, and what it is called with.

        Args:
            batch: An example.

        Returns:
            The model of transformers or peft, and what it takes of the batch but the labels. The
            past of a text is no tensor, so of a model that could keep it a copy is returned, whose
            configuration says not to; its weights are the model's own.

        Example:
            >>> model = HuggingFaceModel(_tiny())
            >>> tokens = torch.tensor([[1, 2]])
            >>> module, _, inputs = model.for_inference({"input_ids": tokens, "labels": tokens})
            >>> type(module).__name__, list(inputs)
            ('GPT2LMHeadModel', ['input_ids'])
            >>> module.config.use_cache, module.lm_head.weight is model.model.lm_head.weight
            (False, True)
        """
        inputs = inputs_of(without_labels(self.model, batch), self.model_forward_args)
        return without_cache(self.model), (), inputs

    def num_loss_tokens(self, batch: Any) -> int | None:
        """Count what the loss is a mean over.

        Args:
            batch: A batch or a part of one.

        Returns:
            Labels that are not ignored: of tokens, without those that a causal model has nothing to
            predict from, the first of each row; of samples with one class each; of pixels; of
            spans, those that start in the text. ``None`` if the loss is a mean over samples.

        Example:
            >>> labels = torch.tensor([[4, 5, -100], [4, 5, 6]])
            >>> HuggingFaceModel(_tiny()).num_loss_tokens({"input_ids": labels, "labels": labels})
            3
        """
        return count_loss_tokens(self.model, batch, shift=self.shift_labels)

    def eval_forward(self, batch: Any, outputs: Any | None = None) -> Any:
        """Compute what metrics are updated with.

        Args:
            batch: The batch; it is not changed. With ``mode`` of ``"generate"`` the prompts in
                ``input_ids`` are continued, with the options in ``generation_kwargs``.
            outputs: Outputs that a training step already computed, if there are any.

        Returns:
            The outputs; with ``use_logits``, or a ``mode`` of ``"icl_task"``, the logits, those of
            a single column without it; the texts that were generated.

        Raises:
            ValueError: If text is to be generated without a tokenizer.

        Example:
            >>> model = HuggingFaceModel(_tiny(), use_logits=True)
            >>> tokens = torch.tensor([[1, 2]])
            >>> model.eval_forward({"input_ids": tokens, "labels": tokens}).shape
            torch.Size([1, 2, 8])
            >>> model.labels
            tensor([[   2, -100]])
        """
        mode = batch.get("mode") if isinstance(batch, Mapping) else None
        if mode == "generate":
            self.labels = batch.get("labels")
            return continue_text(self, batch)
        if not self.use_logits and mode != "icl_task":
            outputs = self.forward(batch) if outputs is None else outputs
            self.labels = self._targets(batch, outputs)
            return outputs
        if outputs is None:
            outputs = self.forward(without_labels(self.model, batch))
        self.labels = self._targets(batch, outputs)
        logits = logits_in(outputs)
        if isinstance(logits, torch.Tensor) and logits.dim() == 2 and logits.shape[1] == 1:
            return logits.squeeze(1)
        return logits

    def _targets(self, batch: Any, outputs: Any) -> Any:
        """Labels as metrics take them; a batch without any leaves those of the evaluation."""
        if not isinstance(batch, Mapping) or "labels" not in batch:
            return self.labels
        return targets_of(self.model, batch, outputs, shift=self.shift_labels)

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> dict[str, Any] | None:
        """Add a batch to a metric.

        Args:
            batch: The batch, or its samples that count; without labels those of the last
                :meth:`eval_forward` are used.
            outputs: What it returned.
            metric: Called with outputs and labels; one whose ``needs_batch`` is true with
                ``batch``, ``outputs`` and ``labels`` by name.

        Returns:
            What the metric returned, if that is a mapping.

        Example:
            >>> from composer.metrics import LanguagePerplexity
            >>> model, metric = HuggingFaceModel(_tiny()), LanguagePerplexity()
            >>> batch = {"input_ids": torch.tensor([[1, 2]]), "labels": torch.tensor([[1, 2]])}
            >>> model.update_metric(batch, model.eval_forward(batch), metric)
            >>> int(metric.total_items)
            1
        """
        labels = self._targets(batch, outputs)
        if getattr(metric, "needs_batch", False):
            told = metric.update(batch=batch, outputs=outputs, labels=labels)
        else:
            told = metric.update(outputs, labels)
        return dict(told) if isinstance(told, Mapping) else None

    def generate(self, input_ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Continue sequences of tokens.

        Args:
            input_ids: Tokens of shape (N, T). Prompts of unequal lengths are padded on the left,
                with an ``attention_mask`` that says where.
            **kwargs: Handed on to the model's ``generate``.

        Returns:
            Tokens of shape (N, at least T), which begin with the given ones unless the model has an
            encoder.

        Raises:
            ValueError: If no token to pad with is known.

        Example:
            >>> model = HuggingFaceModel(_tiny()).eval()
            >>> tokens = torch.tensor([[1, 2]])
            >>> options = {"attention_mask": torch.ones_like(tokens), "min_new_tokens": 3}
            >>> model.generate(tokens, max_new_tokens=3, **options).shape
            torch.Size([1, 5])
        """
        if kwargs.get("pad_token_id") is None:
            kwargs["pad_token_id"] = pad_token_of(self.model, self.tokenizer)
        return self.model.generate(input_ids=input_ids, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the weights.

        Args:
            *args: As for ``torch.nn.Module``.
            **kwargs: As for ``torch.nn.Module``.

        Returns:
            Name to weight; of a model with adapters only what is trained, unless
            ``should_save_peft_only`` is false.

        Example:
            >>> from peft import LoraConfig
            >>> lora = LoraConfig(r=1, target_modules=["c_attn"], fan_in_fan_out=True)
            >>> weights = HuggingFaceModel(_tiny(), peft_config=lora).state_dict()
            >>> [name.rpartition("c_attn.")[2] for name in weights]
            ['lora_A.default.weight', 'lora_B.default.weight']
        """
        state = super().state_dict(*args, **kwargs)
        if self.using_peft and self.should_save_peft_only:
            prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
            for name in self._base_weights():
                state.pop(prefix + name, None)
        return state

    def param_init_fn(self, module: torch.nn.Module) -> None:
        """Give one module its first values, after a model of the meta device got memory.

        Args:
            module: One of this model's modules.

        Example:
            >>> with torch.device("meta"):
            ...     model = HuggingFaceModel(_tiny())
            >>> for module in model.to_empty(device="cpu").modules():
            ...     model.param_init_fn(module)
            >>> model.model.transformer.ln_f.bias.tolist()
            [0.0, 0.0, 0.0, 0.0]
        """
        if module is not self:
            give_first_values(self.model, module)

    def _apply(self, fn: Any, recurse: bool = True) -> HuggingFaceModel:
        """Move, and keep tied weights one also where that takes new parameters."""
        shared = shared_parameters(self)
        super()._apply(fn, recurse)
        tie_again(shared)
        return self

    def _base_weights(self) -> set[str]:
        """Names of weights that are those of the model that the adapters were put on."""
        names = base_weights(self.model, with_embeddings=not self._resized)
        return {_PREFIX + name for name in names}

    def get_metadata(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside the weights.

        Returns:
            ``model``: configuration, generation configuration, adapters; ``tokenizer``: its files,
            which are gathered once.

        Example:
            >>> sorted(HuggingFaceModel(_tiny()).get_metadata()["model"])
            ['config', 'generation_config']
        """
        return {"model": describe_model(self.model), "tokenizer": self._files_of_tokenizer()}

    def _files_of_tokenizer(self) -> dict[str, Any]:
        if self.tokenizer is None:
            return {}
        size = len(self.tokenizer) if hasattr(self.tokenizer, "__len__") else None
        # Writing a large vocabulary takes seconds, and a training does not change it.
        seen = (id(self.tokenizer), size, getattr(self.tokenizer, "chat_template", None))
        if self._tokenizer_files is None or self._tokenizer_files[0] != seen:
            self._tokenizer_files = (seen, tokenizer_files(self.tokenizer))
        return self._tokenizer_files[1]

    def integrations(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside the weights, by framework.

        Returns:
            :meth:`get_metadata` as ``huggingface``.

        Example:
            >>> list(HuggingFaceModel(_tiny()).integrations())
            ['huggingface']
        """
        return {**super().integrations(), "huggingface": self.get_metadata()}

    # Reading checkpoints takes no model, so these are functions that stand here by name too.
    load_huggingface_tokenizer_from_saved_state = staticmethod(
        load_huggingface_tokenizer_from_saved_state
    )
    load_huggingface_model_from_saved_state = staticmethod(load_huggingface_model_from_saved_state)
    hf_from_composer_checkpoint = staticmethod(hf_from_composer_checkpoint)


def _forgive_base_weights(module: torch.nn.Module, found: Any) -> None:
    """Weights of a frozen base are not missing in a file that holds adapters alone."""
    assert isinstance(module, HuggingFaceModel)
    if module.should_save_peft_only and found.missing_keys:
        found.missing_keys[:] = forgive_base_weights(found.missing_keys, module._base_weights())


def _tiny() -> Any:
    """The smallest GPT-2, for the examples above."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 8, "n_positions": 16, "n_embd": 4, "n_layer": 1, "n_head": 1}
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config.from_dict({**sizes, **tokens}))
