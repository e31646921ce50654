"""The decoder and the language model around it, next to slow formulas and to another library."""

from __future__ import annotations

import cmath
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from composer.models import (
    Decoder,
    DecoderConfig,
    LanguageModel,
    build_from_origin,
    composer_decoder,
    num_parameters,
)
from composer.models.decoder.rotary import rotate, rotation

VOCAB = 31


def small(**changes: Any) -> Decoder:
    options: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        # Wide enough that a wrong mask or a wrong turn shows.
        "initializer_std": 0.3,
    }
    return Decoder(DecoderConfig(**options | changes)).eval()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(VOCAB, shape)


# ---- rotary positions --------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 5])
def test_rotation_is_a_product_of_complex_numbers(first: int) -> None:
    size, count, base = 6, 4, 100.0
    x = torch.randn(2, count, size)
    turned = rotate(x, rotation(first, count, size, base=base))
    half = size // 2
    for sample in range(2):
        for index in range(count):
            for pair in range(half):
                # Su et al., equation 15: the angle of pair i is base to the power of -2 i / size.
                angle = (first + index) * base ** (-2 * pair / size)
                before = complex(x[sample, index, pair], x[sample, index, pair + half])
                after = before * cmath.exp(1j * angle)
                found = turned[sample, index, [pair, pair + half]].tolist()
                assert found == pytest.approx([after.real, after.imag], abs=1e-5)


def test_products_of_turned_vectors_depend_on_the_distance_only() -> None:
    query, key = torch.randn(8), torch.randn(8)

    def product(at: int, other: int) -> torch.Tensor:
        turned = [
            rotate(vector[None], rotation(position, 1, 8, base=10000.0))
            for vector, position in ((query, at), (key, other))
        ]
        return (turned[0] * turned[1]).sum()

    torch.testing.assert_close(product(7, 3), product(104, 100), atol=1e-4, rtol=1e-4)
    assert abs(float(product(7, 3) - product(7, 4))) > 1e-3


# ---- attention ---------------------------------------------------------------------------------


def test_grouped_queries_are_full_attention_with_repeated_heads() -> None:
    grouped = small(num_kv_heads=2)
    full = small()
    state = grouped.state_dict()
    for name, weight in state.items():
        if name.endswith(("attention.key.weight", "attention.value.weight")):
            heads = weight.view(2, 8, 32)
            # Queries 0 and 1 share the first key, 2 and 3 the second.
            state[name] = torch.stack([heads[0], heads[0], heads[1], heads[1]]).reshape(32, 32)
    full.load_state_dict(state)
    batch = tokens(2, 9)
    torch.testing.assert_close(grouped(batch), full(batch))
    mask = torch.ones(2, 9).long()
    torch.testing.assert_close(grouped(batch, mask), full(batch, mask))
    torch.testing.assert_close(grouped(batch, mask), grouped(batch))


@pytest.mark.parametrize("at", [1, 4, 8])
def test_no_token_looks_ahead(at: int) -> None:
    decoder, batch = small(num_kv_heads=2), tokens(2, 9)
    other = batch.clone()
    other[:, at] = (other[:, at] + 1) % VOCAB
    with torch.no_grad():
        before, after = decoder(batch), decoder(other)
    torch.testing.assert_close(before[:, :at], after[:, :at], rtol=0, atol=1e-6)
    assert float((before[:, at:] - after[:, at:]).abs().amax(dim=(0, 2)).min()) > 1e-3


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_not_looked_at(side: str) -> None:
    decoder, batch = small(num_kv_heads=2), tokens(3, 6)
    alone = decoder(batch)
    padding = tokens(3, 4)
    parts = [padding, batch] if side == "left" else [batch, padding]
    masks = [torch.zeros(3, 4), torch.ones(3, 6)][:: 1 if side == "left" else -1]
    logits = decoder(torch.cat(parts, dim=1), torch.cat(masks, dim=1))
    real = logits[:, 4:] if side == "left" else logits[:, :6]
    torch.testing.assert_close(real, alone, rtol=1e-4, atol=1e-4)
    assert bool(logits.isfinite().all())


def test_gradients_of_padded_batches_are_those_of_the_real_tokens() -> None:
    decoder, batch = small(), tokens(1, 5)
    model = LanguageModel(decoder)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    padded = {"input_ids": torch.cat([tokens(1, 3), batch], dim=1), "attention_mask": mask}
    grads = []
    for item in (padded, {"input_ids": batch}):
        decoder.zero_grad()
        model.loss(model(item), item).backward()
        grads.append([p.grad.clone() for p in decoder.parameters() if p.grad is not None])
    for found, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_documents_do_not_see_each_other() -> None:
    decoder = small(num_kv_heads=1)
    first, second = tokens(2, 4), tokens(2, 5)
    packed = decoder(
        torch.cat([first, second], dim=1), document_ids=torch.tensor([[0] * 4 + [1] * 5] * 2)
    )
    apart = torch.cat([decoder(first), decoder(second)], dim=1)
    torch.testing.assert_close(packed, apart, rtol=1e-4, atol=1e-4)


def test_flex_attention_says_the_same_and_where_it_cannot_train() -> None:
    plain, flex = small(num_kv_heads=2), small(num_kv_heads=2, attention="flex")
    flex.load_state_dict(plain.state_dict())
    batch = tokens(2, 9)
    contexts: list[dict[str, torch.Tensor]] = [
        {},
        {"attention_mask": torch.tensor([[0] * 3 + [1] * 6, [1] * 9])},
        {"document_ids": torch.tensor([[0] * 5 + [1] * 4] * 2)},
    ]
    with torch.no_grad():
        for context in contexts:
            torch.testing.assert_close(
                flex(batch, **context), plain(batch, **context), rtol=1e-4, atol=1e-4
            )
    with pytest.raises(NotImplementedError, match="attention='flex' has no backward pass"):
        flex(batch)


# ---- the whole ---------------------------------------------------------------------------------


def test_first_weights_are_those_of_the_paper() -> None:
    decoder = Decoder(DecoderConfig(vocab_size=512, hidden_size=256, num_layers=8, num_heads=4))
    ends = ("attention.output.weight", "feed_forward.down.weight")
    for name, weight in decoder.named_parameters():
        if "norm" in name:
            assert bool((weight == 1).all())
            continue
        # Sixteen branches end in the sum.
        wanted = 0.02 / math.sqrt(16) if name.endswith(ends) else 0.02
        assert float(weight.detach().std()) == pytest.approx(wanted, rel=0.02), name
        assert abs(float(weight.detach().mean())) < 4 * wanted / math.sqrt(weight.numel())


def test_weights_can_be_drawn_after_building_without_data() -> None:
    with torch.device("meta"):
        decoder = small(initializer_std=0.02)
    decoder.to_empty(device="cpu")
    for module in decoder.modules():
        if isinstance(module, (nn.Linear, nn.Embedding, nn.RMSNorm)):
            module.reset_parameters()
    assert float(decoder.embedding.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert bool(decoder(tokens(1, 3)).isfinite().all())


def test_tied_embeddings_are_one_tensor() -> None:
    tied, untied = small(), small(tie_embeddings=False)
    assert tied.output_weight is tied.embedding.weight
    assert num_parameters(untied) - num_parameters(tied) == VOCAB * 32


@pytest.mark.parametrize(
    ("size", "millions"),
    # Brown et al., table 2.1.
    [("125m", 125), ("350m", 350), ("760m", 760), ("1.3b", 1300), ("2.7b", 2700), ("6.7b", 6700)],
)
def test_sizes_are_what_their_names_say(size: str, millions: float) -> None:
    with torch.device("meta"):
        model = composer_decoder(size)
    assert num_parameters(model) / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_it_computes_what_llama_of_transformers_computes(num_kv_heads: int) -> None:
    transformers = pytest.importorskip("transformers")
    decoder = small(num_kv_heads=num_kv_heads, intermediate_size=48, tie_embeddings=False)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=num_kv_heads,
        intermediate_size=48,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        pad_token_id=None,
        bos_token_id=0,
        eos_token_id=0,
    )
    llama = transformers.LlamaForCausalLM(config).eval()
    names = {
        "embedding.": "model.embed_tokens.",
        "blocks.": "model.layers.",
        "attention_norm": "input_layernorm",
        "feed_forward_norm": "post_attention_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.output": "self_attn.o_proj",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.up": "mlp.up_proj",
        "feed_forward.down": "mlp.down_proj",
        "head.": "lm_head.",
    }
    state = {}
    for name, weight in decoder.state_dict().items():
        renamed = "model.norm.weight" if name == "norm.weight" else name
        for ours, theirs in names.items():
            renamed = renamed.replace(ours, theirs)
        state[renamed] = weight
    llama.load_state_dict(state)
    batch = tokens(2, 11)
    with torch.no_grad():
        torch.testing.assert_close(decoder(batch), llama(batch).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_heads": 5}, "num_heads=5 must divide hidden_size=32"),
        ({"hidden_size": 12}, "num_heads=4 must divide hidden_size=12 into even parts"),
        ({"num_kv_heads": 3}, "num_kv_heads=3 must divide num_heads=4"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"attention": "flx"}, "attention='flx' must be one of .*flex"),
        ({"rope_base": 0.0}, "rope_base=0.0"),
        ({"initializer_std": -1.0}, "initializer_std=-1.0"),
    ],
)
def test_numbers_that_do_not_fit_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        small(**changes)


def test_unknown_sizes_are_named() -> None:
    with pytest.raises(ValueError, match=r"size='125M' must be one of .*125m"):
        composer_decoder("125M")


# ---- going on from a beginning -----------------------------------------------------------------


def slowly(decoder: Decoder, beginning: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        likeliest = decoder(beginning)[:, -1].argmax(dim=-1, keepdim=True)
        beginning = torch.cat([beginning, likeliest], dim=1)
    return beginning


def test_cached_generation_is_uncached_generation() -> None:
    decoder, beginning = small(num_kv_heads=2), tokens(3, 5)
    assert torch.equal(decoder.generate(beginning, 12), slowly(decoder, beginning, 12))
    assert torch.equal(decoder.generate(beginning, 0), beginning)


def test_padded_beginnings_go_on_as_without_padding() -> None:
    decoder, beginning = small(num_kv_heads=2), tokens(1, 4)
    wanted = slowly(decoder, beginning, 8)
    padded = torch.cat([tokens(1, 3), beginning], dim=1)
    mask = torch.tensor([[0] * 3 + [1] * 4])
    assert torch.equal(decoder.generate(padded, 8, attention_mask=mask)[:, 3:], wanted)


def test_draws_follow_the_generator_and_the_logits() -> None:
    decoder, beginning = small(), tokens(1, 3).expand(4000, 3)
    draws = [
        decoder.generate(beginning, 1, 1.5, torch.Generator().manual_seed(seed))[:, -1]
        for seed in (1, 1, 2)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    shares = torch.bincount(draws[0], minlength=VOCAB) / 4000
    wanted = F.softmax(decoder(beginning[:1])[0, -1] / 1.5, dim=-1)
    # Four standard deviations of a share.
    assert bool(((shares - wanted).abs() <= 4 * (wanted / 4000).sqrt() + 1e-3).all())


def test_a_stop_token_ends_a_sequence() -> None:
    decoder, beginning = small(), tokens(2, 3)
    free = decoder.generate(beginning, 8)
    stop = int(free[0, 4])
    found = decoder.generate(beginning, 8, stop_token=stop)
    for row, plain in zip(found.tolist(), free.tolist(), strict=True):
        at = plain.index(stop, 3) if stop in plain[3:] else len(plain)
        wanted = plain[: at + 1] + [stop] * (len(row) - at - 1)
        assert row == wanted[: len(row)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_new_tokens": -1}, "max_new_tokens=-1"),
        ({"temperature": -0.5}, "temperature=-0.5"),
        ({"input_ids": torch.zeros(1, 0, dtype=torch.long)}, "at least one token"),
        ({"attention_mask": torch.tensor([[1, 1, 0]])}, "padding must stand in front"),
        ({"attention_mask": torch.tensor([[1, 1]])}, "must have the shape of input_ids"),
    ],
)
def test_bad_beginnings_are_named(arguments: dict[str, Any], words: str) -> None:
    options: dict[str, Any] = {"input_ids": tokens(1, 3), "max_new_tokens": 2}
    with pytest.raises(ValueError, match=words):
        small().generate(**options | arguments)


# ---- the language model ------------------------------------------------------------------------


def batch_with_everything() -> dict[str, torch.Tensor]:
    return {
        "input_ids": tokens(3, 8),
        "attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1] * 5 + [0] * 3, [1] * 8]),
        "document_ids": torch.tensor([[0] * 8, [0, 0, 1, 1, 1, 1, 1, 1], [3] * 4 + [4] * 4]),
    }


def slow_losses(model: LanguageModel, batch: dict[str, torch.Tensor]) -> list[float]:
    """What each token that counts costs, one at a time."""
    logits = model.eval_forward(batch).detach()
    mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
    documents = batch.get("document_ids", torch.zeros_like(batch["input_ids"]))
    losses = []
    for row in range(len(logits)):
        for at in range(1, logits.shape[1]):
            if "labels" in batch:
                label = int(batch["labels"][row, at])
                counts = label != -100
            else:
                label = int(batch["input_ids"][row, at])
                counts = bool(mask[row, at] and mask[row, at - 1]) and bool(
                    documents[row, at] == documents[row, at - 1]
                )
            if counts:
                shares = [math.exp(x) for x in logits[row, at - 1].double().tolist()]
                losses.append(-math.log(shares[label] / sum(shares)))
    return losses


@pytest.mark.parametrize("chunk_size", [None, 5])
@pytest.mark.parametrize("with_labels", [False, True])
def test_the_loss_is_the_mean_over_tokens_that_count(
    chunk_size: int | None, with_labels: bool
) -> None:
    model = LanguageModel(small(initializer_std=0.1), chunk_size=chunk_size)
    batch = batch_with_everything()
    if with_labels:
        batch["labels"] = torch.where(tokens(3, 8) < 10, -100, batch["input_ids"])
    losses = slow_losses(model, batch)
    assert model.num_loss_tokens(batch) == len(losses)
    assert float(model.loss(model(batch), batch).detach()) == pytest.approx(
        sum(losses) / len(losses), rel=1e-5
    )
    total = model.loss(model(batch), batch, reduction="sum")
    assert float(total.detach()) == pytest.approx(sum(losses), rel=1e-5)
    for name, value in (("LanguageCrossEntropy", 1.0), ("LanguagePerplexity", math.e)):
        metric = model.get_metrics()[name]
        # In parts of unequal numbers of tokens, with and without outputs of training.
        for part in (slice(0, 1), slice(1, 3)):
            piece = {key: tensor[part] for key, tensor in batch.items()}
            outputs = model(piece) if part.start else None
            model.update_metric(piece, model.eval_forward(piece, outputs), metric)
        mean = sum(losses) / len(losses)
        assert float(metric.compute()) == pytest.approx(
            mean if value == 1.0 else math.exp(mean), rel=1e-5
        )


def test_chunks_give_the_gradients_of_the_whole() -> None:
    decoder, batch = small(initializer_std=0.1), batch_with_everything()
    grads = []
    for chunk_size in (None, 4):
        decoder.zero_grad()
        model = LanguageModel(decoder, chunk_size=chunk_size)
        model.loss(model(batch), batch).backward()
        grads.append([p.grad.clone() for p in decoder.parameters() if p.grad is not None])
    for whole, chunked in zip(*grads, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=1e-4, atol=1e-6)


class _Strict(nn.Module):
    """Logits that take nothing but tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, VOCAB)

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.table(input_ids)}


def test_any_module_is_given_what_it_takes() -> None:
    model, batch = LanguageModel(_Strict()), batch_with_everything()
    loss = model.loss(model(batch), batch)
    labels = model.labels(batch)[:, 1:]
    table = model.module.table(batch["input_ids"])[:, :-1]  # type: ignore[operator]
    wanted = F.cross_entropy(table[labels != -100], labels[labels != -100])
    torch.testing.assert_close(loss, wanted)
    assert model.flops_per_batch(batch) == 6 * VOCAB * VOCAB * 3 * 8


def test_misuse_is_named() -> None:
    with pytest.raises(TypeError, match="chunk_size=4 needs a module whose forward takes"):
        LanguageModel(_Strict(), chunk_size=4)
    with pytest.raises(ValueError, match="chunk_size=0"):
        composer_decoder("tiny", chunk_size=0)
    with pytest.raises(TypeError, match="mapping with `input_ids`; got list"):
        LanguageModel(_Strict())([tokens(1, 2)])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got \['tokens'\]"):
        LanguageModel(_Strict())({"tokens": tokens(1, 2)})
    with pytest.raises(TypeError, match="_Strict has no method `generate`"):
        LanguageModel(_Strict()).generate(tokens(1, 2), 3)


def test_it_can_be_built_again_from_its_origin() -> None:
    model = composer_decoder("tiny", VOCAB, num_kv_heads=1, chunk_size=7)
    assert model.origin is not None
    again = build_from_origin(model.origin)
    again.load_state_dict(model.state_dict())
    assert isinstance(again, LanguageModel)
    assert again.chunk_size == 7
