"""Linear biases against their formula, and in models against an attention by hand."""

from __future__ import annotations

import copy
import importlib
import math
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from composer import Trainer
from composer.algorithms import Alibi
from composer.algorithms._nlp import registry
from composer.algorithms.alibi import (
    AttentionBias,
    SilentPositions,
    SurgeryPolicy,
    alibi_bias,
    alibi_slopes,
    bias_attention,
    register_policy,
    silence_positions,
)
from composer.core import Callback, Logger, State, plugins
from composer.core.event import Event
from composer.functional import apply_alibi
from composer.models import HuggingFaceModel, composer_decoder
from composer_testing import write_distribution

transformers = pytest.importorskip("transformers")

VOCABULARY = 23
SHORT, LONG = 16, 40


def bert(heads: int = 2, layers: int = 2, **settings: Any) -> dict[str, Any]:
    return {
        "hidden_size": 8 * heads,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 24,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": SHORT,
        **settings,
    }


def gpt2(heads: int = 2, layers: int = 2, **settings: Any) -> dict[str, Any]:
    return {
        "n_embd": 8 * heads,
        "n_layer": layers,
        "n_head": heads,
        "vocab_size": VOCABULARY,
        "n_positions": SHORT,
        "bos_token_id": 0,
        "eos_token_id": 0,
        **settings,
    }


def build(name: str, kernel: str = "sdpa", **settings: Any) -> Any:
    """A small model of transformers, of fixed weights."""
    torch.manual_seed(0)
    family = next(
        f for f in ("XLMRoberta", "Roberta", "Camembert", "Electra", "Bert", "GPT2") if f in name
    )
    sizes = gpt2(**settings) if family == "GPT2" else bert(**settings)
    if family in ("XLMRoberta", "Roberta", "Camembert"):
        sizes["max_position_embeddings"] += 2  # theirs begin at two
    config = getattr(transformers, f"{family}Config")(**sizes)
    config._attn_implementation = kernel
    cls = getattr(transformers, name)
    if kernel == "sdpa" and not cls._supports_sdpa:
        pytest.skip(f"transformers {transformers.__version__} has no such kernel for {family}")
    return cls(config).eval()


def tokens(samples: int = 2, length: int = LONG) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, VOCABULARY, (samples, length), generator=generator)


HEADS = [
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForPreTraining",
    "RobertaForMaskedLM",
    "RobertaForSequenceClassification",
    "RobertaForCausalLM",
    "GPT2LMHeadModel",
    "GPT2Model",
    "GPT2ForTokenClassification",
    "XLMRobertaModel",
    "CamembertModel",
    "ElectraForMaskedLM",
]


# ---- the formula ------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16, 32])
def test_slopes_are_a_geometric_series_from_its_ratio_to_1_256(heads: int) -> None:
    slopes = alibi_slopes(heads)
    ratio = 2.0 ** (-8 / heads)
    assert slopes == pytest.approx([ratio**k for k in range(1, heads + 1)])
    assert slopes[-1] == 1 / 256


@pytest.mark.parametrize("heads", [3, 5, 6, 7, 12, 20, 25])
def test_slopes_of_other_numbers_are_filled_up_from_the_next_power(heads: int) -> None:
    lower = 2 ** int(math.log2(heads))
    slopes = alibi_slopes(heads)
    assert slopes[:lower] == alibi_slopes(lower)
    assert slopes[lower:] == alibi_slopes(2 * lower)[0 : 2 * (heads - lower) : 2]
    assert len(set(slopes)) == heads


@pytest.mark.parametrize("heads", [1, 3, 8, 12])
def test_biases_are_minus_slope_times_distance(heads: int) -> None:
    bias = alibi_bias(heads, 4, 7, past=2)
    expected = [
        [[-slope * abs(query + 2 - key) for key in range(7)] for query in range(4)]
        for slope in alibi_slopes(heads)
    ]
    torch.testing.assert_close(bias, torch.tensor(expected))


def by_hand(
    layer: Any, x: torch.Tensor, real: torch.Tensor | None, *, causal: bool
) -> torch.Tensor:
    """Attention of one layer, position by position, with biases."""
    samples, length, width = x.shape
    if hasattr(layer, "c_attn"):
        query, key, value = (x @ layer.c_attn.weight + layer.c_attn.bias).split(width, dim=2)
        heads = layer.num_heads
    else:
        query, key, value = layer.query(x), layer.key(x), layer.value(x)
        heads = layer.num_attention_heads
    size = width // heads
    slopes = alibi_slopes(heads)
    out = torch.zeros_like(x)
    for n in range(samples):
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            for q in range(length):
                seen = [
                    k
                    for k in range(length)
                    if (not causal or k <= q) and (real is None or bool(real[n, k]))
                ]
                scores = torch.stack(
                    [
                        query[n, q, part] @ key[n, k, part] / math.sqrt(size)
                        - slopes[h] * abs(q - k)
                        for k in seen
                    ]
                )
                out[n, q, part] = torch.softmax(scores, 0) @ value[n, seen, part]
    return out @ layer.c_proj.weight + layer.c_proj.bias if hasattr(layer, "c_attn") else out


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["BertModel", "RobertaModel", "GPT2Model"])
@pytest.mark.parametrize("heads", [2, 3])
def test_a_layer_is_an_attention_by_hand(name: str, kernel: str, padded: bool, heads: int) -> None:
    model = build(name, kernel, heads=heads, layers=1)
    apply_alibi(model, LONG)
    layer = model.h[0].attn if "GPT2" in name else model.encoder.layer[0].attention.self
    seen: list[Any] = []
    layer.register_forward_hook(lambda module, args, out: seen.append((args[0], out[0])))
    ids = tokens(2, 9)
    real = torch.ones(2, 9, dtype=torch.long)
    real[1, 6:] = 0
    with torch.no_grad():
        model(input_ids=ids, attention_mask=real if padded else None)
        ((x, found),) = seen
        expected = by_hand(layer, x, real if padded else None, causal="GPT2" in name)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reorder", [False, True])
def test_kernels_agree(reorder: bool) -> None:
    ids = tokens()
    found = []
    for kernel in ("sdpa", "eager"):
        model = build("GPT2LMHeadModel", kernel, reorder_and_upcast_attn=reorder)
        apply_alibi(model, LONG)
        found.append(model(input_ids=ids).logits)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


# ---- models of transformers -------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("name", HEADS)
def test_padding_is_not_seen_and_longer_sequences_fit(name: str, kernel: str) -> None:
    model = build(name, kernel)
    apply_alibi(model, LONG)
    assert model.config.max_position_embeddings == LONG + (
        2 if name.startswith(("Roberta", "XLMRoberta", "Camembert")) else 0
    )
    ids = tokens()
    real = torch.ones_like(ids)
    real[:, 30:] = 0
    other = ids.clone()
    other[:, 30:] = 4
    model.config.pad_token_id = 1
    with torch.no_grad():
        first = model(input_ids=ids, attention_mask=real)[0]
        second = model(input_ids=other, attention_mask=real)[0]
    if "SequenceClassification" not in name:
        first, second = first[:, :30], second[:, :30]
    assert bool(first.isfinite().all())
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "RobertaForMaskedLM", "GPT2LMHeadModel"])
def test_only_distances_matter(name: str) -> None:
    """Tokens behind padding are what they are without it: nothing tells absolute places."""
    model = build(name)
    apply_alibi(model, LONG)
    ids = tokens(1, 12)
    moved = torch.cat([torch.full((1, 7), 1), ids], dim=1)
    real = torch.cat([torch.zeros(1, 7), torch.ones(1, 12)], dim=1).long()
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        found = model(input_ids=moved, attention_mask=real).logits[:, 7:]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_cached_keys_are_as_far_as_they_are() -> None:
    for kernel in ("sdpa", "eager"):
        model = build("GPT2LMHeadModel", kernel)
        apply_alibi(model, LONG)
        ids = tokens(2, 12)
        with torch.no_grad():
            whole = model(input_ids=ids).logits
            begun = model(input_ids=ids[:, :7], use_cache=True)
            more = model(input_ids=ids[:, 7:10], past_key_values=begun.past_key_values)
            last = model(input_ids=ids[:, 10:], past_key_values=more.past_key_values)
        parts = torch.cat([begun.logits, more.logits, last.logits], dim=1)
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("cache", [None, "static"])
def test_generation_with_a_cache_gives_what_it_gives_without(
    cache: str | None, padded: bool, kernel: str
) -> None:
    model = build("GPT2LMHeadModel", kernel)
    apply_alibi(model, LONG)
    ids = tokens(2, 5)
    real = torch.ones_like(ids)
    if padded:  # without padding the first pass gets no mask at all
        real[0, :2] = 0
    settings = {"attention_mask": real, "max_new_tokens": 20, "do_sample": False}
    settings |= {"pad_token_id": 1, "eos_token_id": None}
    without = model.generate(ids, use_cache=False, **settings)
    kind = {} if cache is None else {"cache_implementation": cache, "disable_compile": True}
    found = model.generate(ids, use_cache=True, **settings, **kind)
    assert found.tolist() == without.tolist()


@pytest.mark.parametrize("name", ["BertForMaskedLM", "RobertaForMaskedLM", "GPT2LMHeadModel"])
def test_a_second_application_changes_nothing_and_a_longer_one_makes_room(name: str) -> None:
    model = build(name)
    optimizer = torch.optim.AdamW(model.parameters())
    apply_alibi(model, LONG, optimizer)
    before = {n: id(p) for n, p in model.named_parameters()}
    expected = model(input_ids=tokens())[0]
    apply_alibi(model, SHORT, optimizer)
    assert {n: id(p) for n, p in model.named_parameters()} == before
    torch.testing.assert_close(model(input_ids=tokens())[0], expected)
    apply_alibi(model, 3 * LONG, optimizer)
    assert model(input_ids=tokens(1, 3 * LONG))[0].shape[1] == 3 * LONG
    torch.testing.assert_close(model(input_ids=tokens())[0], expected)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "GPT2LMHeadModel"])
def test_copies_pickles_and_compiled_models_give_the_same(name: str) -> None:
    model = build(name)
    apply_alibi(model, LONG)
    ids, real = tokens(), torch.ones(2, LONG, dtype=torch.long)
    real[1, 20:] = 0
    expected = model(input_ids=ids, attention_mask=real)[0]
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    torch.compiler.reset()
    twins.append(torch.compile(model, backend="eager", fullgraph=True))
    for twin in twins:
        found = twin(input_ids=ids, attention_mask=real)[0]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_one_mask_with_biases_serves_all_layers_and_no_other_pass() -> None:
    model = build("BertModel", layers=3)
    apply_alibi(model, LONG)
    made: list[torch.Tensor] = []
    for layer in model.encoder.layer:
        layer.attention.self.register_forward_pre_hook(
            lambda module, args, kwargs: made.append(kwargs["attention_mask"]), with_kwargs=True
        )
    real = torch.ones(2, LONG, dtype=torch.long)
    real[1, 9:] = 0
    padded = model(input_ids=tokens(), attention_mask=real)[0]
    assert len({id(mask) for mask in made}) == 1
    # What the first pass keeps for its gradients is still there, and of no use to the second.
    whole = model(input_ids=tokens())[0]
    assert len({id(mask) for mask in made}) == 2
    fresh = copy.deepcopy(model)
    torch.testing.assert_close(fresh(input_ids=tokens())[0], whole, rtol=0, atol=0)
    assert not torch.equal(whole, padded)
    other = real.roll(1, dims=0)
    torch.testing.assert_close(
        model(input_ids=tokens(), attention_mask=other)[0],
        fresh(input_ids=tokens(), attention_mask=other)[0],
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_finite_over_long_distances(dtype: torch.dtype) -> None:
    for kernel in ("sdpa", "eager"):
        model = build("BertModel", kernel).to(dtype)
        apply_alibi(model, 512)
        real = torch.ones(2, 512, dtype=torch.long)
        real[1] = 0  # nothing but padding
        out = model(input_ids=tokens(2, 512), attention_mask=real)[0]
        assert out.dtype == dtype
        assert bool(out.isfinite().all())


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_recomputed_layers_have_the_same_gradients(kernel: str) -> None:
    found = []
    for recompute in (False, True):
        model = build("BertForMaskedLM", kernel)
        apply_alibi(model, LONG)
        model.train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        if recompute:
            old = getattr(model, "gradient_checkpointing_enable", None)  # until transformers 6
            getattr(model, "activation_checkpointing_enable", old)()
        real = torch.ones(2, LONG, dtype=torch.long)
        real[1, 9:] = 0
        model(input_ids=tokens(), attention_mask=real, labels=tokens()).loss.backward()
        found.append([p.grad for p in model.parameters() if p.requires_grad])
    torch.testing.assert_close(*found)


def test_autocast_trains() -> None:
    model = build("GPT2LMHeadModel").train()
    apply_alibi(model, LONG)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(input_ids=tokens(), labels=tokens()).loss
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


# ---- positions and optimizers -----------------------------------------------------------------


def table_of(model: nn.Module) -> SilentPositions:
    (table,) = (m for m in model.modules() if isinstance(m, SilentPositions))
    return table


@pytest.mark.parametrize("longest", [SHORT // 2, SHORT, LONG])
@pytest.mark.parametrize("groups", ["one", "each", "two"])
@pytest.mark.parametrize("name", ["BertForMaskedLM", "RobertaForMaskedLM", "GPT2LMHeadModel"])
def test_the_optimizer_holds_exactly_what_is_trained(name: str, groups: str, longest: int) -> None:
    model = build(name).train()
    parameters = list(model.parameters())
    parts: Any = parameters
    if groups == "each":
        parts = [{"params": [p]} for p in parameters]
    elif groups == "two":
        matrices = [p for p in parameters if p.ndim > 1]
        vectors = [p for p in parameters if p.ndim < 2]
        parts = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(parts, lr=0.01)
    model(input_ids=tokens(2, 8), labels=tokens(2, 8)).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    old = {id(p): p for p in parameters}
    apply_alibi(model, longest, optimizer)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    assert {id(p) for p in held} == trained
    assert len(held) == len(trained) == len(old) - 1
    assert {id(p) for p in optimizer.state} == trained
    table = table_of(model)
    assert not table.weight.any()
    assert not table.weight.requires_grad
    model(input_ids=tokens(2, 8), labels=tokens(2, 8)).loss.backward()
    optimizer.step()
    assert not table.weight.any()
    twin = torch.optim.AdamW([{"params": g["params"]} for g in optimizer.param_groups])
    twin.load_state_dict(optimizer.state_dict())


def test_weights_that_are_loaded_bring_no_positions_back() -> None:
    plain = build("BertModel")
    model = build("BertModel")
    apply_alibi(model, SHORT)
    for assign in (False, True):
        weights = plain.state_dict()
        model.load_state_dict(weights, assign=assign)
        assert not table_of(model).weight.any()
        assert not table_of(model).weight.requires_grad
        assert plain.embeddings.position_embeddings.weight.any()


def test_relative_positions_are_refused_and_leave_the_model_as_it_was() -> None:
    model = build("BertModel", position_embedding_type="relative_key")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = model(input_ids=tokens(2, 8))[0]
    with pytest.raises(ValueError, match="position_embedding_type='relative_key'"):
        apply_alibi(model, LONG, optimizer)
    torch.testing.assert_close(model(input_ids=tokens(2, 8))[0], expected, rtol=0, atol=0)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters() if p.requires_grad}
    assert model.config.max_position_embeddings == SHORT
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_kernels_without_room_for_biases_are_refused() -> None:
    model = build("GPT2Model")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="attn_implementation='flash_attention_2'"):
        apply_alibi(model, LONG)
    model.config._attn_implementation = "sdpa"
    apply_alibi(model, LONG)
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(ValueError, match="attn_implementation='flex_attention'"):
        model.h[0].attn(torch.randn(1, 3, 16))
    flex = composer_decoder("tiny", vocab_size=VOCABULARY, attention="flex")
    with pytest.raises(ValueError, match="attention='flex'"):
        apply_alibi(flex, LONG)


def test_unknown_models_are_told_what_is_known() -> None:
    with pytest.raises(ValueError, match=r"Linear.*BertSelfAttention.*GPT2Attention") as error:
        apply_alibi(nn.Linear(2, 2), LONG)
    assert registry.GROUP in str(error.value)


# ---- other models -----------------------------------------------------------------------------


class OwnAttention(nn.Module):
    """An attention of somebody's own, which adds its mask to the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 4
        self.project = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = (t.unflatten(2, (4, 4)).transpose(1, 2) for t in self.project(x).chunk(3, 2))
        scores = q @ k.transpose(2, 3) / 2
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)


class OwnModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(SHORT, 16)
        self.attention = OwnAttention()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x + self.places(torch.arange(x.shape[1])))


@pytest.fixture
def own_policies() -> Any:
    before = dict(registry._registered)
    for cls, apply, parts in (
        (OwnAttention, bias_attention, ("heads", "bias")),
        (OwnModel, silence_positions, ("places",)),
    ):
        path = f"{cls.__module__}:{cls.__qualname__}"
        register_policy(SurgeryPolicy("alibi", path, apply, parts))
    yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.mark.usefixtures("own_policies")
def test_any_model_can_be_made_known() -> None:
    model = OwnModel()
    x = torch.randn(2, LONG, 16)
    apply_alibi(model, LONG)
    expected = model.attention.__class__.forward(model.attention, x, alibi_bias(4, LONG, LONG))
    torch.testing.assert_close(model(x), expected)


NETWORK = """
    import torch
    from torch import nn


    class Attention(nn.Module):
        heads = 2

        def forward(self, x, attention_mask=None):
            weights = 0 if attention_mask is None else attention_mask
            return (torch.zeros(x.shape[1], x.shape[1]) + weights).softmax(-1).mean(1) @ x


    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions = nn.Embedding(4, 6)
            self.attention = Attention()

        def forward(self, x):
            return self.attention(x + self.positions(torch.arange(x.shape[1])))
"""

POLICIES = """
    from composer.algorithms.alibi import SurgeryPolicy, bias_attention, silence_positions

    ATTENTION = SurgeryPolicy(
        "alibi", "far_network.layers:Attention", bias_attention, ("heads", "attention_mask")
    )
    SEVERAL = [
        SurgeryPolicy("alibi", "far_network.layers:Network", silence_positions, ("positions",))
    ]
    def refuse(module, **options):
        raise NotImplementedError(f"{type(module).__name__} of a plugin, {sorted(options)}")


    INSTEAD = SurgeryPolicy(
        "alibi", "transformers.models.bert.modeling_bert:BertSelfAttention", refuse
    )
    WRONG = "no policy"
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **entries: str) -> None:
    write_distribution(
        folder,
        "far-network",
        entry_points={registry.GROUP: entries},
        modules={
            "far_network/__init__.py": "",
            "far_network/layers.py": NETWORK,
            "far_network/policies.py": POLICIES,
        },
    )
    monkeypatch.syspath_prepend(str(folder))
    plugins.refresh()


@pytest.fixture
def far_network(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.startswith("far_network")]:
        del sys.modules[name]
    plugins.refresh()


@pytest.mark.usefixtures("far_network")
def test_plugins_make_models_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"one": "far_network.policies:ATTENTION", "more": "far_network.policies:SEVERAL"}
    install(tmp_path, monkeypatch, **places, gone="far_network.missing:POLICIES")
    model = importlib.import_module("far_network.layers").Network()
    x = torch.randn(2, 9, 6)
    with pytest.warns(plugins.PluginWarning, match="far_network.missing"):
        apply_alibi(model, 9)
    expected = alibi_bias(2, 9, 9).softmax(-1).mean(0) @ x
    torch.testing.assert_close(model(x), expected)


@pytest.mark.usefixtures("far_network")
def test_policies_of_plugins_go_before_ours_and_registered_ones_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, instead="far_network.policies:INSTEAD")
    model = build("BertModel")
    with pytest.raises(
        NotImplementedError, match=r"of a plugin, \['max_sequence_length', 'memo'\]"
    ):
        apply_alibi(model, LONG)
    path = "transformers.models.bert.modeling_bert:BertSelfAttention"
    mine = SurgeryPolicy("alibi", path, bias_attention, ("num_attention_heads",))
    monkeypatch.setattr(registry, "_registered", {})
    assert register_policy(mine) is mine
    apply_alibi(model, LONG)
    with pytest.raises(TypeError, match="must be a SurgeryPolicy"):
        register_policy("mine")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"module='BertModel'.*'package\.module:Class'"):
        SurgeryPolicy("alibi", "BertModel", bias_attention)


@pytest.mark.usefixtures("far_network")
def test_plugins_that_give_something_else_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, wrong="far_network.policies:WRONG")
    with pytest.raises(TypeError, match=r"far-network:wrong.*'no policy'"):
        apply_alibi(build("BertModel"), LONG)


def test_our_decoder_forgets_its_turns() -> None:
    torch.manual_seed(0)
    model = composer_decoder("tiny", vocab_size=VOCABULARY, num_kv_heads=2, num_layers=1).eval()
    decoder = next(m for m in model.modules() if hasattr(m, "run_blocks"))
    apply_alibi(model, LONG)
    layer = decoder.blocks[0].attention  # type: ignore[union-attr,index]
    ids = tokens(2, 11)
    with torch.no_grad():
        x = decoder.blocks[0].attention_norm(decoder.embedding(ids))  # type: ignore
        q, k, v = (
            part(x).unflatten(2, (-1, layer.head_size)).transpose(1, 2)
            for part in (layer.query, layer.key, layer.value)
        )
        k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
        scores = q @ k.transpose(2, 3) / layer.head_size**0.5 + alibi_bias(4, 11, 11)
        scores = scores.masked_fill(~torch.ones(11, 11, dtype=torch.bool).tril(), -math.inf)
        expected = layer.output((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        seen: list[torch.Tensor] = []
        layer.register_forward_hook(lambda module, args, out: seen.append(out))
        decoder(ids)
        torch.testing.assert_close(seen[0], expected, rtol=1e-4, atol=1e-5)
        # One token at a time with a cache gives what all at once give.
        generated = decoder.generate(ids, 6)  # type: ignore[operator]
        for place in range(11, 17):
            following = decoder(generated[:, :place])[:, -1].argmax(-1)
            assert following.tolist() == generated[:, place].tolist()


def test_adapters_may_be_there_already_but_not_on_the_positions() -> None:
    peft = pytest.importorskip("peft")
    model = build("GPT2LMHeadModel")
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True
    )
    wrapped = HuggingFaceModel(model, peft_config=config)
    optimizer = torch.optim.SGD([p for p in wrapped.parameters() if p.requires_grad], lr=0.1)
    held = [id(p) for p in optimizer.param_groups[0]["params"]]
    apply_alibi(wrapped, LONG, optimizer)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == held
    batch = {"input_ids": tokens(), "labels": tokens()}
    assert bool(wrapped.loss(wrapped(batch), batch).isfinite())
    positions = peft.LoraConfig(
        task_type="CAUSAL_LM",
        target_modules=["c_attn"],
        modules_to_save=["wpe"],
        fan_in_fan_out=True,
    )
    other = HuggingFaceModel(build("GPT2LMHeadModel"), peft_config=positions)
    with pytest.raises(TypeError, match="wpe of GPT2Model is a ModulesToSaveWrapper"):
        apply_alibi(other, LONG)


# ---- batches ----------------------------------------------------------------------------------


class Kept(Mapping):  # type: ignore[type-arg]
    """A mapping that cannot be written to."""

    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members

    def __getitem__(self, key: str) -> Any:
        return self._members[key]

    def __iter__(self) -> Any:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


@pytest.mark.parametrize("kind", [dict, transformers.BatchEncoding, Kept])
def test_training_batches_of_every_mapping_become_rows(
    kind: Callable[..., Any], make_run: Any
) -> None:
    ids = torch.arange(24).reshape(2, 12)
    given = {"input_ids": ids, "labels": ids + 100, "attention_mask": torch.ones(2, 12)}
    batch = kind({**given, "kind": torch.tensor([7, 8]), "name": ["a", "b"], "plain": 3})
    run = make_run(build("BertForMaskedLM"), [Alibi(SHORT)])
    run.state.batch = batch
    run.fire(Event.AFTER_DATALOADER)
    found = run.state.batch
    assert isinstance(found, dict if kind is Kept else kind)
    assert found["input_ids"].tolist() == ids.reshape(8, 3).tolist()
    assert found["labels"].tolist() == (ids + 100).reshape(8, 3).tolist()
    assert found["attention_mask"].shape == (8, 3)
    assert found["kind"].tolist() == [7] * 4 + [8] * 4
    assert found["name"] == ["a"] * 4 + ["b"] * 4
    assert found["plain"] == 3
    assert batch["input_ids"].shape == (2, 12)
    run.state.batch = batch
    run.fire(Event.EVAL_BATCH_START)
    assert run.state.batch is batch


def test_a_factor_of_one_leaves_batches_alone(make_run: Any) -> None:
    run = make_run(build("BertForMaskedLM"), [Alibi(SHORT, 1)])
    run.state.batch = batch = (torch.ones(2, 3), torch.ones(2))
    run.fire(Event.AFTER_DATALOADER)
    assert run.state.batch is batch
    assert not Alibi(SHORT, 1).match(Event.AFTER_DATALOADER, run.state)
    assert Alibi(SHORT, 0.5).match(Event.AFTER_DATALOADER, run.state)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_sequence_length": 0}, ValueError),
        ({"max_sequence_length": 2.0}, TypeError),
        ({"train_sequence_length_scaling": 0}, ValueError),
        ({"train_sequence_length_scaling": 1.5}, ValueError),
        ({"train_sequence_length_scaling": "1"}, TypeError),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        Alibi(**{"max_sequence_length": 8, **arguments})


# ---- whole runs -------------------------------------------------------------------------------


class _StopAt(Callback):
    def __init__(self, batch: int) -> None:
        self.batch = batch

    def batch_end(self, state: State, logger: Logger) -> None:
        if state.timestamp.batch == self.batch:
            state.stop_training()


def data(length: int = 16) -> DataLoader[Any]:
    ids = tokens(12, length) % 5 + 3
    rows = [{"input_ids": row, "labels": row} for row in ids]
    return DataLoader(rows, 4, shuffle=True)  # type: ignore[arg-type]


def train(folder: Path, name: str, stop_at: int | None = None, **settings: Any) -> Trainer:
    model = HuggingFaceModel(build(name), peft_config=settings.pop("peft_config", None))
    settings.setdefault("algorithms", [Alibi(LONG, 0.5)])
    trainer = Trainer(
        model=model,
        train_dataloader=data(),
        eval_dataloader=data(LONG),
        max_duration="3ep",
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.01),
        save_folder=str(folder),
        save_interval="1ba",
        autoresume=True,
        run_name="run",
        callbacks=[] if stop_at is None else [_StopAt(stop_at)],
        seed=3,
        progress_bar=False,
        **settings,
    )
    trainer.fit()
    return trainer


@pytest.mark.parametrize("name", ["BertForMaskedLM", "GPT2LMHeadModel"])
def test_runs_resume_exactly_also_without_naming_the_method(tmp_path: Path, name: str) -> None:
    straight = train(tmp_path / "straight", name)
    straight.close()
    optimizer = straight.state.optimizers[0]
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in straight.state.model.parameters() if p.requires_grad}
    train(tmp_path / "cut", name, 4).close()
    with pytest.warns(UserWarning, match=r"trained with Alibi\(max_sequence_length=40"):
        resumed = train(tmp_path / "cut", name, algorithms=[])
    resumed.close()
    assert [type(a) for a in resumed.state.algorithms] == [Alibi]
    torch.testing.assert_close(
        resumed.state.model.state_dict(), straight.state.model.state_dict(), rtol=0, atol=0
    )
    batch = {"input_ids": tokens(), "labels": tokens()}
    with torch.no_grad():
        found, expected = (t.state.model.eval()(batch).logits for t in (resumed, straight))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    layers = [m for m in resumed.state.model.modules() if m._forward_pre_hooks]
    assert len(layers) == 2
    assert all(
        isinstance(hook, AttentionBias) for m in layers for hook in m._forward_pre_hooks.values()
    )


def test_runs_with_adapters_resume_exactly(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True
    )
    straight = train(tmp_path / "straight", "GPT2LMHeadModel", peft_config=config)
    straight.close()
    train(tmp_path / "cut", "GPT2LMHeadModel", 4, peft_config=config).close()
    with pytest.warns(UserWarning, match="trained with Alibi"):
        resumed = train(tmp_path / "cut", "GPT2LMHeadModel", algorithms=[], peft_config=config)
    resumed.close()
    batch = {"input_ids": tokens(), "labels": tokens()}
    with torch.no_grad():
        found, expected = (t.state.model.eval()(batch).logits for t in (resumed, straight))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_training_on_short_sequences_lowers_the_loss_on_long_ones(tmp_path: Path) -> None:
    model = HuggingFaceModel(build("GPT2LMHeadModel"))
    batch = {"input_ids": tokens(4) % 5 + 3, "labels": tokens(4) % 5 + 3}
    trainer = train(tmp_path, "GPT2LMHeadModel")
    trained = trainer.state.model.eval()
    apply_alibi(model, LONG)
    with torch.no_grad():
        before = float(model.loss(model.eval()(batch), batch))
        after = float(trained.loss(trained(batch), batch))
    trainer.close()
    assert after < 0.9 * before
