"""A language model around any network that gives every token a logit per word of a vocabulary.

Each token predicts the one behind it. What counts is a token with a label, and the loss is the mean
over those of the whole batch, so that short and long samples, microbatches and ranks weigh by what
is in them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from composer.loss.language import chunked_cross_entropy, language_cross_entropy
from composer.loss.targets import counted
from composer.metrics.language import LanguageCrossEntropy, LanguagePerplexity, logits_of
from composer.models._tasks import TaskModel, check_metrics, check_module
from composer.utils.checks import check_integer

__all__ = ["LanguageModel"]

_IGNORED = -100
_CONTEXT = ("attention_mask", "document_ids")


class LanguageModel(TaskModel):
    """Make a network trainable on batches of tokens.

    A batch is a mapping with ``input_ids`` of shape (N, T), and perhaps ``labels`` of that shape
    (tokens labelled -100 do not count), ``attention_mask`` (zero where there is padding) and
    ``document_ids`` (tokens of one number are one document). Without labels the tokens are
    predicted themselves, but for padding, and for what stands first in a document or right behind
    padding, of which nothing is known.

    Args:
        module: Called with ``input_ids``, and with ``attention_mask`` and ``document_ids`` if the
            batch holds them and its ``forward`` takes them; returns logits of shape (N, T, V), or
            what holds them as ``logits``.
        chunk_size: Number of tokens whose logits are held at a time in training, in place of all.
            The module's ``forward`` then takes ``return_hidden_states=True``, and the weight of its
            output layer, of shape (V, D), is its attribute ``output_weight``. An evaluation holds
            all logits of a batch, since metrics are given them.
        train_metrics: A metric or a mapping of names to metrics; by default cross entropy and
            perplexity.
        val_metrics: The same for evaluation.

    Raises:
        TypeError: If ``module`` is no ``torch.nn.Module``, does not offer what ``chunk_size``
            needs, or a metric lacks a method.
        ValueError: If ``chunk_size`` is not accepted.

    Example:
        >>> from torch import nn
        >>> model = LanguageModel(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)))
        >>> batch = {"input_ids": torch.tensor([[1, 2, 3], [4, 5, 6]])}
        >>> model(batch).shape, model.num_loss_tokens(batch)
        (torch.Size([2, 3, 7]), 4)
    """

    module: torch.nn.Module
    chunk_size: int | None

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        chunk_size: int | None = None,
        train_metrics: Any | None = None,
        val_metrics: Any | None = None,
    ) -> None:
        super().__init__()
        check_module(module)
        self.module = module
        self.chunk_size = chunk_size
        parameters = inspect.signature(module.forward).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._context = tuple(name for name in _CONTEXT if takes_any or name in parameters)
        if chunk_size is not None:
            check_integer("chunk_size", chunk_size, low=1)
            if not (takes_any or "return_hidden_states" in parameters) or not isinstance(
                getattr(module, "output_weight", None), torch.Tensor
            ):
                raise TypeError(
                    f"chunk_size={chunk_size} needs a module whose forward takes "
                    f"`return_hidden_states` and that has the attribute `output_weight`; "
                    f"{type(module).__name__} has not both"
                )
        self.train_metrics = _default_metrics() if train_metrics is None else train_metrics
        self.val_metrics = _default_metrics() if val_metrics is None else val_metrics
        check_metrics(train_metrics=self.train_metrics, val_metrics=self.val_metrics)

    def forward(self, batch: Mapping[str, Any]) -> Any:
        """Compute the logits, or what they are computed from.

        Args:
            batch: A mapping with ``input_ids``.

        Returns:
            What the module returns; with ``chunk_size`` a mapping with ``hidden_states``.

        Example:
            >>> from composer.models import composer_decoder
            >>> model = composer_decoder("tiny", vocab_size=9, chunk_size=4)
            >>> list(model({"input_ids": torch.zeros(1, 3, dtype=torch.long)}))
            ['hidden_states']
        """
        module, args, kwargs = self.for_inference(batch)
        if self.chunk_size is None:
            return module(*args, **kwargs)
        return {"hidden_states": module(*args, **kwargs, return_hidden_states=True)}

    def for_inference(
        self, batch: Mapping[str, Any]
    ) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Say what is exported: the module, called with tokens.

        Args:
            batch: A mapping with ``input_ids``.

        Returns:
            The module, and its positional and named arguments.

        Raises:
            TypeError: If the batch is no mapping, or has no ``input_ids``.

        Example:
            >>> model = LanguageModel(torch.nn.Embedding(7, 7))
            >>> module, args, kwargs = model.for_inference({"input_ids": torch.tensor([[1]])})
            >>> module is model.module, args, kwargs
            (True, (tensor([[1]]),), {})
        """
        context = {name: batch[name] for name in self._context if name in _mapping(batch)}
        return self.module, (_mapping(batch)["input_ids"],), context

    def eval_forward(self, batch: Mapping[str, Any], outputs: Any | None = None) -> Any:
        """Compute the logits.

        Args:
            batch: A mapping with ``input_ids``.
            outputs: What :meth:`forward` returned, if it was called.

        Returns:
            What the module returns, or logits computed from its hidden states.

        Example:
            >>> from composer.models import composer_decoder
            >>> model = composer_decoder("tiny", vocab_size=9, chunk_size=4)
            >>> model.eval_forward({"input_ids": torch.zeros(1, 3, dtype=torch.long)}).shape
            torch.Size([1, 3, 9])
        """
        outputs = self(batch) if outputs is None else outputs
        if self.chunk_size is None:
            return outputs
        return F.linear(outputs["hidden_states"], self._output_weight())

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Compute the cross entropy of the next tokens.

        Args:
            outputs: What :meth:`forward` returned.
            batch: The batch.
            *args: Handed on to the loss function.
            **kwargs: Handed on to the loss function, for instance ``reduction="sum"``.

        Returns:
            The mean over the tokens that count.

        Example:
            >>> model = LanguageModel(torch.nn.Embedding(8, 8))
            >>> batch = {"input_ids": torch.tensor([[1, 2, 3]])}
            >>> round(float(model.loss(torch.zeros(1, 3, 8), batch)), 4)  # log(8)
            2.0794
        """
        labels = self.labels(batch)
        kwargs.setdefault("shift", True)
        if self.chunk_size is not None and isinstance(outputs, Mapping):
            return chunked_cross_entropy(
                outputs["hidden_states"],
                self._output_weight(),
                labels,
                *args,
                chunk_size=self.chunk_size,
                **kwargs,
            )
        return language_cross_entropy(logits_of(outputs), labels, *args, **kwargs)

    def labels(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """Return the labels of a batch, not yet shifted: each is predicted by the token before it.

        Args:
            batch: A mapping with ``input_ids``.

        Returns:
            The batch's own, or else those described above; of shape (N, T), -100 where a token does
            not count.

        Raises:
            ValueError: If they are made from a mask or documents of another shape.

        Example:
            >>> model = LanguageModel(torch.nn.Embedding(8, 8))
            >>> model.labels({
            ...     "input_ids": torch.tensor([[0, 5, 6, 7]]),
            ...     "attention_mask": torch.tensor([[0, 1, 1, 1]]),
            ... })
            tensor([[-100, -100,    6,    7]])
        """
        batch = _mapping(batch)
        if (given := batch.get("labels")) is not None:
            return given
        tokens: torch.Tensor = batch["input_ids"]
        for name in _CONTEXT:
            if (context := batch.get(name)) is not None and context.shape != tokens.shape:
                raise ValueError(
                    f"{name} of shape {tuple(context.shape)} must have the shape of input_ids, "
                    f"{tuple(tokens.shape)}; other shapes go with labels of their own"
                )
        counts: torch.Tensor | None = None
        if (mask := batch.get("attention_mask")) is not None:
            real = mask.bool()
            # The first real token has padding before it, from which nothing can be told.
            counts = real & torch.cat([real[:, :1], real[:, :-1]], dim=1)
        if (documents := batch.get("document_ids")) is not None:
            same = documents == torch.cat([documents[:, :1], documents[:, :-1]], dim=1)
            counts = same if counts is None else counts & same
        return tokens if counts is None else torch.where(counts, tokens.to(torch.int64), _IGNORED)

    def num_loss_tokens(self, batch: Mapping[str, Any]) -> int:
        """Count the tokens that the loss is a mean over.

        Args:
            batch: A batch or a part of one.

        Returns:
            The number of labels that count, without the first of each sample, which nothing
            predicts.

        Example:
            >>> model = LanguageModel(torch.nn.Embedding(8, 8))
            >>> model.num_loss_tokens({
            ...     "input_ids": torch.zeros(2, 3, dtype=torch.long),
            ...     "labels": torch.tensor([[5, 6, -100], [5, 6, 7]]),
            ... })
            3
        """
        return int(counted(self.labels(batch)[..., 1:], _IGNORED).sum())

    def flops_per_batch(self, batch: Mapping[str, Any]) -> int:
        """Say what training on a batch costs: three times the forward pass.

        Every matrix product of the forward pass has two in the backward pass, one for each of its
        factors. What a kernel computes twice to save memory is not counted.

        Args:
            batch: A mapping with ``input_ids``, of which padding counts like the rest.

        Returns:
            Floating-point operations: by the module's ``flops_per_token(length)``, the forward pass
            of one token of a sequence, or else two for every parameter.

        Example:
            >>> model = LanguageModel(torch.nn.Embedding(8, 8))
            >>> model.flops_per_batch({"input_ids": torch.zeros(2, 3, dtype=torch.long)})
            2304
        """
        samples, length = _mapping(batch)["input_ids"].shape
        per_token = getattr(self.module, "flops_per_token", None)
        if per_token is not None:
            return 3 * samples * length * int(per_token(length))
        return 6 * samples * length * sum(p.numel() for p in self.module.parameters())

    def generate(self, input_ids: torch.Tensor, max_new_tokens: int, **options: Any) -> Any:
        """Go on from a beginning, as the module's own ``generate`` does.

        Args:
            input_ids: Tokens of shape (N, T).
            max_new_tokens: Number of tokens to add.
            **options: Handed on, for instance ``temperature`` and ``generator``.

        Returns:
            Tokens of shape (N, T + new).

        Raises:
            TypeError: If the module cannot generate.

        Example:
            >>> from composer.models import composer_decoder
            >>> model = composer_decoder("tiny", vocab_size=9)
            >>> model.generate(torch.tensor([[1, 2]]), 3).shape
            torch.Size([1, 5])
        """
        call = getattr(self.module, "generate", None)
        if call is None:
            raise TypeError(f"{type(self.module).__name__} has no method `generate`")
        return call(input_ids, max_new_tokens, **options)

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        """Add a batch to a metric.

        Args:
            batch: The batch.
            outputs: What :meth:`eval_forward` returned.
            metric: The metric, called with logits and the labels that they predict.

        Example:
            >>> model = LanguageModel(torch.nn.Embedding(8, 8))
            >>> metric = model.get_metrics()["LanguagePerplexity"]
            >>> model.update_metric({"input_ids": torch.ones(1, 3).long()}, torch.zeros(1, 3, 8),
            ...                     metric)
            >>> metric.compute()
            tensor(8.)
        """
        metric.update(logits_of(outputs)[..., :-1, :], self.labels(batch)[..., 1:])

    def _output_weight(self) -> torch.Tensor:
        weight: torch.Tensor = self.module.output_weight  # type: ignore[assignment]
        return weight


def _default_metrics() -> torch.nn.ModuleDict:
    metrics = (LanguageCrossEntropy(), LanguagePerplexity())
    return torch.nn.ModuleDict({type(metric).__name__: metric for metric in metrics})


def _mapping(batch: Any) -> Mapping[str, Any]:
    if not isinstance(batch, Mapping) or "input_ids" not in batch:
        kind = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
        raise TypeError(f"a batch must be a mapping with `input_ids`; got {kind}")
    return batch
