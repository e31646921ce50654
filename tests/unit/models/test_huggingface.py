"""HuggingFaceModel over every kind of head: loss, counts, metrics, batches, text, vocabulary."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import BatchEncoding, PreTrainedTokenizerFast

from composer import Trainer
from composer.core.data_spec import default_split_batch
from composer.metrics import LanguageCrossEntropy, LanguagePerplexity, MaskedAccuracy
from composer.models import HuggingFaceModel
from composer.models.huggingface import maybe_get_underlying_model
from composer.models.huggingface.heads import logits_in, loss_in, shifts_labels

VOCABULARY = 40
BERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def gpt2(**changes: Any) -> Any:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=2,
        eos_token_id=2, pad_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **changes,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32, pad_token_id=1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def bart_decoder() -> Any:
    config = transformers.BartConfig(
        vocab_size=VOCABULARY, d_model=16, decoder_layers=1, decoder_attention_heads=2,
        decoder_ffn_dim=24, max_position_embeddings=32, dropout=0.0, is_decoder=True,
        is_encoder_decoder=False,
    )  # fmt: skip
    return transformers.BartForCausalLM(config)


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
        dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def bert(head: str, **changes: Any) -> Callable[[], Any]:
    return lambda: getattr(transformers, f"BertFor{head}")(
        transformers.BertConfig(**BERT, **changes)
    )


def tokens(rows: int = 5, length: int = 7) -> torch.Tensor:
    return torch.randint(4, VOCABULARY, (rows, length))


def ragged(shape: tuple[int, int] = (5, 7)) -> torch.Tensor:
    """Labels of which each row carries another number."""
    labels = torch.randint(4, VOCABULARY, shape)
    for row in range(shape[0]):
        labels[row, : row % 4] = -100
    labels[0, -1] = -100
    return labels


def mean_of(losses: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over the labels that count, one at a time."""
    kept = [losses[i] for i in range(len(labels)) if labels[i] != -100]
    return torch.stack(kept).mean()


def by_token(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    each = -logits.log_softmax(-1)[torch.arange(len(labels)), labels.clamp(min=0)]
    return mean_of(each, labels)


@dataclass
class Kind:
    """A head, a batch for it, its loss by another way and what that is a mean over."""

    build: Callable[[], Any]
    batch: Callable[[], dict[str, torch.Tensor]]
    loss: Callable[[Any, dict[str, torch.Tensor]], torch.Tensor]
    count: Callable[[dict[str, torch.Tensor]], int | None]


def _with_labels(labels: Callable[[], torch.Tensor]) -> Callable[[], dict[str, torch.Tensor]]:
    def batch() -> dict[str, torch.Tensor]:
        ids = tokens()
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels()}

    return batch


def _next(o: Any, b: dict[str, torch.Tensor]) -> torch.Tensor:
    return by_token(o.logits[:, :-1], b["labels"][:, 1:])


def _same(o: Any, b: dict[str, torch.Tensor]) -> torch.Tensor:
    return by_token(o.logits, b["labels"])


def _all(b: dict[str, torch.Tensor]) -> int:
    return sum(label != -100 for row in b["labels"].tolist() for label in row)


def _but_first(b: dict[str, torch.Tensor]) -> int:
    return sum(label != -100 for row in b["labels"].tolist() for label in row[1:])


def _one_each(b: dict[str, torch.Tensor]) -> int:
    return sum(label != -100 for label in b["labels"].tolist())


def _none(b: dict[str, torch.Tensor]) -> None:
    return None


def _spans() -> dict[str, torch.Tensor]:
    places = torch.arange(5)
    return {"input_ids": tokens(), "start_positions": places, "end_positions": places + 2}


def _span_loss(o: Any, b: dict[str, torch.Tensor]) -> torch.Tensor:
    rows = torch.arange(5)
    start = -o.start_logits.log_softmax(-1)[rows, b["start_positions"]].mean()
    return (start - o.end_logits.log_softmax(-1)[rows, b["end_positions"]].mean()) / 2


def _many(o: Any, b: dict[str, torch.Tensor]) -> torch.Tensor:
    p, y = torch.sigmoid(o.logits), b["labels"]
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def _choices() -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(15).view(5, 3, 7), "labels": torch.randint(0, 3, (5,))}


KINDS = {
    "causal, GPT-2": Kind(gpt2, _with_labels(ragged), _next, _but_first),
    "causal, Llama": Kind(llama, _with_labels(ragged), _next, _but_first),
    "causal without shift": Kind(bart_decoder, _with_labels(ragged), _same, _all),
    "masked": Kind(bert("MaskedLM"), _with_labels(ragged), _same, _all),
    "encoder and decoder": Kind(t5, _with_labels(lambda: ragged((5, 4))), _same, _all),
    "classes": Kind(
        bert("SequenceClassification", num_labels=3),
        _with_labels(lambda: torch.randint(0, 3, (5,))),
        lambda o, b: by_token(o.logits, b["labels"]),
        _one_each,
    ),
    "several classes at once": Kind(
        bert("SequenceClassification", num_labels=7, problem_type="multi_label_classification"),
        _with_labels(lambda: torch.randint(0, 2, (5, 7)).float()),
        _many,
        _none,
    ),
    "a number": Kind(
        bert("SequenceClassification", num_labels=1),
        _with_labels(lambda: torch.randn(5)),
        lambda o, b: ((o.logits[:, 0] - b["labels"]) ** 2).mean(),
        _none,
    ),
    "classes of tokens": Kind(
        bert("TokenClassification", num_labels=VOCABULARY), _with_labels(ragged), _same, _all
    ),
    "spans": Kind(bert("QuestionAnswering"), _spans, _span_loss, lambda b: 5),
    "choices": Kind(
        bert("MultipleChoice"), _choices, lambda o, b: by_token(o.logits, b["labels"]), _one_each
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def test_loss_and_count_are_those_of_a_plain_mean(kind: Kind) -> None:
    model, batch = HuggingFaceModel(kind.build()), kind.batch()
    outputs = model(batch)
    torch.testing.assert_close(model.loss(outputs, batch), kind.loss(outputs, batch))
    assert model.num_loss_tokens(batch) == kind.count(batch)


def test_parts_of_a_batch_weigh_by_what_they_count(kind: Kind) -> None:
    """The weighted mean over microbatches is the mean over the batch, gradients included."""
    model, batch = HuggingFaceModel(kind.build()), kind.batch()
    model.loss(model(batch), batch).backward()
    whole = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    parts = default_split_batch(batch, 2)
    assert len(parts) == 3
    total = model.num_loss_tokens(batch) or 5
    for part in parts:
        share = model.num_loss_tokens(part) or len(part["input_ids"])
        (model.loss(model(part), part) * share / total).backward()
    split = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(whole) == len(split) > 0
    for one, other in zip(whole, split, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_trainer_updates_are_the_same_however_a_batch_is_split(size: int) -> None:
    """What the trainer does with microbatches of unequal counts is plain SGD on the batch."""
    torch.manual_seed(3)
    model = HuggingFaceModel(gpt2(), metrics=[LanguageCrossEntropy()])
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    rows = [{"input_ids": row, "labels": labels} for row, labels in
            zip(tokens(4), ragged((4, 7)), strict=True)]  # fmt: skip
    batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    logits = model.model(input_ids=batch["input_ids"]).logits
    loss = by_token(logits[:, :-1], batch["labels"][:, 1:])
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(rows, batch_size=4),
        optimizers=torch.optim.SGD(model.parameters(), lr=0.5),
        device_train_microbatch_size=size,
        max_duration="1ba",
        device="cpu",
    )
    trainer.fit()
    for (name, p), gradient in zip(model.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(p.detach(), start[name] - 0.5 * gradient, rtol=1e-4, atol=1e-6)
    told = trainer.state.train_metrics["LanguageCrossEntropy"].compute()
    torch.testing.assert_close(told.double(), loss.detach().double())


# ---- metrics ----------------------------------------------------------------------------------


class Keeper:
    """Keeps what it is given."""

    needs_batch = False

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def update(self, outputs: Any, labels: Any) -> None:
        self.calls.append((outputs, labels))

    def compute(self) -> int:
        return len(self.calls)

    def reset(self) -> None:
        self.calls.clear()


class BatchKeeper(Keeper):
    needs_batch = True

    def update(self, *, batch: Any, outputs: Any, labels: Any) -> dict[str, int]:  # type: ignore[override]
        self.calls.append((batch, outputs, labels))
        return {"rows": len(batch["input_ids"])}


@pytest.mark.parametrize("use_logits", [False, True])
@pytest.mark.parametrize("name", ["causal, GPT-2", "masked", "encoder and decoder"])
def test_cross_entropy_of_an_evaluation_is_the_loss(name: str, use_logits: bool) -> None:
    kind = KINDS[name]
    torch.manual_seed(1)
    rows = 5
    batch = kind.batch()
    data = [{key: value[i] for key, value in batch.items()} for i in range(rows)]
    network = kind.build().eval()
    want = kind.loss(network(**batch), batch).detach()
    model = HuggingFaceModel(
        network,
        use_logits=use_logits,
        metrics=[LanguageCrossEntropy(), LanguagePerplexity(), MaskedAccuracy()],
    )
    trainer = Trainer(model=model, eval_dataloader=DataLoader(data, batch_size=2), device="cpu")
    trainer.eval()
    values = trainer.state.eval_metric_values
    assert float(values["LanguageCrossEntropy"]) == pytest.approx(float(want), rel=1e-5)
    assert float(values["LanguagePerplexity"]) == pytest.approx(float(want.exp()), rel=1e-5)


def test_an_evaluation_leaves_the_batch_as_it_was_and_computes_no_loss() -> None:
    model = HuggingFaceModel(gpt2(), use_logits=True)
    batch = {"input_ids": tokens(), "labels": ragged()}
    before = {key: value.clone() for key, value in batch.items()}
    seen: list[dict[str, Any]] = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True
    )
    logits = model.eval_forward(batch)
    assert list(batch) == list(before)
    assert all(torch.equal(batch[key], before[key]) for key in before)
    assert "labels" not in seen[0]
    assert logits.shape == (5, 7, VOCABULARY)
    assert torch.equal(model.labels[:, :-1], batch["labels"][:, 1:])
    assert bool((model.labels[:, -1] == -100).all())


def test_outputs_of_a_training_step_are_not_computed_again() -> None:
    model = HuggingFaceModel(gpt2(), use_logits=True)
    batch = {"input_ids": tokens(), "labels": ragged()}
    outputs = model(batch)
    assert model.eval_forward(batch, outputs) is outputs.logits
    assert HuggingFaceModel(gpt2()).eval_forward(batch, outputs) is outputs


def test_metrics_get_the_batch_if_they_ask_for_it() -> None:
    model = HuggingFaceModel(gpt2(), metrics=[Keeper(), BatchKeeper()], use_logits=True)
    batch = {"input_ids": tokens(), "labels": ragged()}
    outputs = model.eval_forward(batch)
    metrics = model.get_metrics(is_train=True)
    assert model.update_metric(batch, outputs, metrics["Keeper"]) is None
    assert model.update_metric(batch, outputs, metrics["BatchKeeper"]) == {"rows": 5}
    assert torch.equal(metrics["Keeper"].calls[0][1][:, :-1], batch["labels"][:, 1:])
    assert metrics["BatchKeeper"].calls[0][0] is batch
    # Samples that do not count are taken out of batch and outputs before a metric is updated.
    part = {key: value[:2] for key, value in batch.items()}
    model.update_metric(part, outputs[:2], metrics["Keeper"])
    assert metrics["Keeper"].calls[1][1].shape == (2, 7)


def test_metrics_of_evaluation_are_copies_unless_given() -> None:
    model = HuggingFaceModel(gpt2(), metrics=[Keeper()])
    assert model.val_metrics["Keeper"] is not model.train_metrics["Keeper"]
    given = HuggingFaceModel(gpt2(), metrics=[Keeper()], eval_metrics={"mine": Keeper()})
    assert list(given.get_metrics(is_train=False)) == ["mine"]
    assert HuggingFaceModel(gpt2()).get_metrics(is_train=True) == {}
    with pytest.raises(ValueError, match="metrics holds two metrics of the class Keeper"):
        HuggingFaceModel(gpt2(), metrics=[Keeper(), Keeper()])
    with pytest.raises(TypeError, match="eval_metrics"):
        HuggingFaceModel(gpt2(), eval_metrics=[object()])


def test_a_single_column_of_logits_is_squeezed() -> None:
    kind = KINDS["a number"]
    model, batch = HuggingFaceModel(kind.build(), use_logits=True), kind.batch()
    assert model.eval_forward(batch).shape == (5,)
    assert model.labels is batch["labels"]


def test_shift_can_be_said_and_icl_tasks_are_shifted() -> None:
    batch = {"input_ids": tokens(), "labels": ragged()}
    kept = HuggingFaceModel(gpt2(), shift_labels=False)
    kept.eval_forward(batch)
    assert kept.labels is batch["labels"]
    assert kept.num_loss_tokens(batch) == _all(batch)
    masked = HuggingFaceModel(bert("MaskedLM")())
    logits = masked.eval_forward({**batch, "mode": "icl_task"})
    assert logits.shape == (5, 7, VOCABULARY)
    assert torch.equal(masked.labels[:, :-1], batch["labels"][:, 1:])


# ---- batches and outputs ----------------------------------------------------------------------


def test_batches_of_tokenizers_and_members_that_are_not_taken() -> None:
    model = HuggingFaceModel(gpt2())
    batch = {"input_ids": tokens(), "labels": ragged(), "id": [1, 2, 3, 4, 5]}
    want = model.loss(model(batch), batch)
    for other in (BatchEncoding(dict(batch)), UserDict(batch)):
        assert torch.equal(model.loss(model(other), other), want)
        assert model.num_loss_tokens(other) == _but_first(batch)
    parts = default_split_batch(BatchEncoding({k: batch[k] for k in ("input_ids", "labels")}), 2)
    assert [type(part) for part in parts] == [BatchEncoding] * 3
    with pytest.raises(TypeError, match="mapping"):
        model((tokens(), ragged()))
    with pytest.raises(ValueError, match=r"takes none.*input_ids"):
        model({"pixels": torch.ones(1)})


def test_a_training_on_batches_of_a_tokenizer() -> None:
    data = [{"input_ids": row, "labels": row} for row in tokens(6)]

    def collate(rows: list[dict[str, torch.Tensor]]) -> BatchEncoding:
        return BatchEncoding({key: torch.stack([row[key] for row in rows]) for key in rows[0]})

    model = HuggingFaceModel(gpt2(), metrics=[LanguagePerplexity()])
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(data, batch_size=4, collate_fn=collate),
        eval_dataloader=DataLoader(data, batch_size=4, collate_fn=collate),
        optimizers=torch.optim.AdamW(model.parameters(), lr=1e-2),
        device_train_microbatch_size=3,
        max_duration="8ep",
        device="cpu",
    )
    trainer.eval()
    before = float(trainer.state.eval_metric_values["LanguagePerplexity"])
    trainer.fit()
    # As many equally likely words as there are, at first; fewer once rows are known.
    assert before == pytest.approx(VOCABULARY, rel=0.2)
    assert float(trainer.state.eval_metric_values["LanguagePerplexity"]) < before / 2


@dataclass
class Plain:
    loss: torch.Tensor
    logits: torch.Tensor


Named = namedtuple("Named", ["loss", "logits"])


@pytest.mark.parametrize(
    "outputs",
    [
        Plain(torch.tensor(2.0), torch.ones(1, 3)),
        Named(torch.tensor(2.0), torch.ones(1, 3)),
        {"loss": torch.tensor(2.0), "logits": torch.ones(1, 3)},
        (torch.tensor(2.0), torch.ones(1, 3), None),
        transformers.modeling_outputs.CausalLMOutput(
            loss=torch.tensor(2.0), logits=torch.ones(1, 3)
        ),
    ],
    ids=["dataclass", "named tuple", "mapping", "tuple", "ModelOutput"],
)
def test_loss_and_logits_are_found_in_outputs_of_every_form(outputs: Any) -> None:
    assert loss_in(outputs) == 2.0
    assert logits_in(outputs).shape == (1, 3)


@pytest.mark.parametrize("name", ["masked", "encoder and decoder"])
def test_a_model_that_returns_tuples(name: str) -> None:
    kind = KINDS[name]
    torch.manual_seed(0)
    network, batch = kind.build().eval(), kind.batch()
    want = network(**batch)
    network.config.return_dict = False
    model = HuggingFaceModel(network, use_logits=True)
    outputs = model(batch)
    assert isinstance(outputs, tuple)
    assert torch.equal(model.loss(outputs, batch), want.loss)
    torch.testing.assert_close(model.eval_forward(batch), want.logits)
    torch.testing.assert_close(model.eval_forward(batch, outputs), want.logits)


def test_outputs_without_a_loss_say_what_is_missing() -> None:
    model = HuggingFaceModel(gpt2())
    batch = {"input_ids": tokens()}
    with pytest.raises(ValueError, match="labels"):
        model.loss(model(batch), batch)
    with pytest.raises(ValueError, match="labels"):
        model.loss((torch.ones(2, 3),), batch)
    with pytest.raises(ValueError, match="use_logits"):
        logits_in({"last_hidden_state": torch.ones(1)})


def test_subclasses_shift_as_what_they_derive_from() -> None:
    class Mine(transformers.GPT2LMHeadModel):
        pass

    class Own(transformers.BertForMaskedLM):
        pass

    assert shifts_labels(Mine(gpt2().config))
    assert not shifts_labels(Own(transformers.BertConfig(**BERT)))
    assert not shifts_labels(t5())


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(TypeError, match="ComposerClassifier"):
        HuggingFaceModel(torch.nn.Linear(1, 1))
    network = gpt2()
    assert maybe_get_underlying_model(network) is network


# ---- the meta device --------------------------------------------------------------------------


def test_a_model_first_built_without_numbers() -> None:
    """Built on the meta device, given memory, filled from another model's weights."""
    source = HuggingFaceModel(llama())
    with torch.device("meta"):
        network = llama()
    model = HuggingFaceModel(network)
    assert all(p.is_meta for p in model.parameters())
    assert model.shift_labels
    config = model.get_metadata()["model"]["config"]["content"]
    assert config == source.get_metadata()["model"]["config"]["content"]
    for module in model.to_empty(device="cpu").modules():
        model.param_init_fn(module)  # which computes again what checkpoints do not hold
    model.load_state_dict(source.state_dict(), strict=True)
    batch = {"input_ids": tokens()}
    assert torch.equal(model.eval()(batch).logits, source.eval()(batch).logits)


@pytest.mark.parametrize("build", [gpt2, bert("MaskedLM"), t5], ids=["GPT-2", "BERT", "T5"])
def test_tied_weights_stay_tied_in_a_model_built_without_numbers(build: Callable[[], Any]) -> None:
    source = HuggingFaceModel(build())
    with torch.device("meta"):
        network = build()
    model = HuggingFaceModel(network)
    for module in model.to_empty(device="cpu").modules():
        model.param_init_fn(module)
    model.load_state_dict(source.state_dict())
    embedding = model.model.get_input_embeddings().weight
    assert model.model.get_output_embeddings().weight is embedding
    assert len(list(model.parameters())) == len(list(source.parameters()))
    batch = {"input_ids": tokens(), "labels": ragged()}
    assert torch.equal(model.eval()(batch).logits, source.eval()(batch).logits)


# ---- text and vocabulary ----------------------------------------------------------------------

WORDS = [f"w{i}" for i in range(VOCABULARY - 4)]


def words(extra: int = 0, **specials: str) -> Any:
    names = ["<unk>", "<pad>", "<end>", "<mask>", *WORDS, *(f"x{i}" for i in range(extra))]
    plain = Tokenizer(
        models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>")
    )
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        **{"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "<end>", **specials},
    )


def test_prompts_padded_on_the_left_are_continued_as_if_alone() -> None:
    torch.manual_seed(11)
    model = HuggingFaceModel(llama(), tokenizer=words()).eval()
    short, long = torch.tensor([[9, 5]]), torch.tensor([[7, 8, 9, 5, 6]])
    alone = model.generate(
        short, attention_mask=torch.ones_like(short), max_new_tokens=6, do_sample=False
    )
    padded = F.pad(short, (3, 0), value=1)
    both = model.generate(
        torch.cat([padded, long]),
        attention_mask=torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]]),
        max_new_tokens=6,
        do_sample=False,
    )
    ends = alone.shape[1] - 2
    assert torch.equal(both[0, 5 : 5 + ends], alone[0, 2:])
    # Greedy: each token is the likeliest after those before it.
    sequence = short
    for _ in range(ends):
        best = model({"input_ids": sequence}).logits[:, -1].argmax(-1, keepdim=True)
        sequence = torch.cat([sequence, best], dim=1)
    assert torch.equal(alone, sequence)


def test_a_batch_may_ask_for_text() -> None:
    torch.manual_seed(11)
    tokenizer = words()
    model = HuggingFaceModel(llama(), tokenizer=tokenizer, metrics=[BatchKeeper()]).eval()
    ids = torch.tensor([[7, 8, 9]])
    batch = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": [["w1"]],
        "mode": "generate",
        "generation_kwargs": {"max_new_tokens": 4, "do_sample": False},
    }
    texts = model.eval_forward(batch)
    written = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False
    )[:, 3:]
    assert texts == tokenizer.batch_decode(written, skip_special_tokens=True)
    assert model.labels == [["w1"]]
    metric = model.get_metrics()["BatchKeeper"]
    model.update_metric(batch, texts, metric)
    assert metric.calls[0][1:] == (texts, [["w1"]])
    with pytest.raises(ValueError, match="tokenizer"):
        HuggingFaceModel(llama()).eval_forward(batch)


def test_an_encoder_decoder_writes_no_prompt() -> None:
    torch.manual_seed(2)
    model = HuggingFaceModel(t5(), tokenizer=words()).eval()
    ids = tokens(1, 6)
    options = {"min_new_tokens": 3, "max_new_tokens": 3, "do_sample": False}
    texts = model.eval_forward({"input_ids": ids, "mode": "generate", "generation_kwargs": options})
    sequence = model.generate(ids, **options)
    assert sequence.shape[1] == 4  # the start, and what was asked for; no part of the prompt
    assert texts == model.tokenizer.batch_decode(sequence, skip_special_tokens=True)


def test_a_token_to_pad_with_is_found_or_asked_for() -> None:
    network = gpt2()
    ids = torch.tensor([[5, 6]])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 2}
    for part in (network.config, network.generation_config):
        part.pad_token_id = part.eos_token_id = None
    with pytest.raises(ValueError, match="pad_token_id"):
        HuggingFaceModel(network).generate(ids, **options)
    assert HuggingFaceModel(network).generate(ids, pad_token_id=1, **options).shape == (1, 4)
    assert HuggingFaceModel(network, tokenizer=words()).generate(ids, **options).shape == (1, 4)


def test_a_larger_vocabulary_is_refused_or_gets_rows() -> None:
    tokenizer = words(extra=3)
    with pytest.raises(ValueError, match=r"43 tokens .* 40 rows.*allow_embedding_resizing"):
        HuggingFaceModel(gpt2(), tokenizer=tokenizer)
    for build in (gpt2, llama, bert("MaskedLM"), t5):
        network = build()
        before = network.get_input_embeddings().weight.detach().clone()
        model = HuggingFaceModel(network, tokenizer=tokenizer, allow_embedding_resizing=True)
        after = model.model.get_input_embeddings().weight
        assert after.shape == (43, 16)
        assert torch.equal(after[:VOCABULARY], before)
        assert model.config.vocab_size == 43
        assert model.model.get_output_embeddings().weight.shape[0] == 43
        batch = {"input_ids": torch.tensor([[42, 5]]), "labels": torch.tensor([[42, 41]])}
        assert model.loss(model(batch), batch).isfinite()
    with torch.device("meta"):
        network = llama()
    model = HuggingFaceModel(network, tokenizer=tokenizer, allow_embedding_resizing=True)
    assert model.model.get_input_embeddings().weight.shape == (43, 16)


def test_a_smaller_vocabulary_is_fine(caplog: pytest.LogCaptureFixture) -> None:
    network = gpt2()
    small = words()
    with caplog.at_level("INFO", "composer"):
        network.resize_token_embeddings(48, mean_resizing=False)
        HuggingFaceModel(network, tokenizer=small, allow_embedding_resizing=True)
    assert network.get_input_embeddings().weight.shape[0] == 48
    assert "40 tokens" in caplog.text


def test_a_model_without_a_vocabulary() -> None:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=8, patch_size=4, num_labels=3,
    )  # fmt: skip
    network = transformers.ViTForImageClassification(config)
    processor = type("Processor", (), {"save_pretrained": lambda self, folder: None})()
    model = HuggingFaceModel(network, tokenizer=processor, use_logits=True)
    batch = {"pixel_values": torch.randn(5, 3, 8, 8), "labels": torch.tensor([0, 1, 2, 1, 0])}
    outputs = model(batch)
    torch.testing.assert_close(
        model.loss(outputs, batch), by_token(outputs.logits, batch["labels"])
    )
    assert model.num_loss_tokens(batch) == 5
