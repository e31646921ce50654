"""Gated feed-forward layers against their formula, with optimizers, and over checkpoints."""

from __future__ import annotations

import copy
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from composer import Trainer
from composer.algorithms import GatedLinearUnits
from composer.algorithms._nlp import registry
from composer.algorithms.gated_linear_units import (
    GatedProjection,
    SurgeryPolicy,
    gate_projection,
    register_policy,
)
from composer.algorithms.gated_linear_units.activations import (
    _OF_TORCH,
    activation_called,
    name_of_activation,
)
from composer.core import Callback, Logger, State
from composer.core.event import Event
from composer.core.persistence import to_plain
from composer.functional import apply_gated_linear_units
from composer.models import HuggingFaceModel

transformers = pytest.importorskip("transformers")

VOCABULARY = 19
MODELS = [
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "RobertaForMaskedLM",
    "GPT2LMHeadModel",
    "XLMRobertaModel",
    "CamembertModel",
    "ElectraForMaskedLM",
]


def build(name: str, act: str = "gelu") -> Any:
    torch.manual_seed(0)
    family = next(
        f for f in ("XLMRoberta", "Roberta", "Camembert", "Electra", "Bert", "GPT2") if f in name
    )
    if family == "GPT2":
        sizes = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 20, "n_inner": 12}
        ends = {"bos_token_id": 0, "eos_token_id": 0}
        config = transformers.GPT2Config(
            **sizes, **ends, vocab_size=VOCABULARY, activation_function=act
        )
    else:
        sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = getattr(transformers, f"{family}Config")(
            **sizes, intermediate_size=12, vocab_size=VOCABULARY, hidden_act=act
        )
    return getattr(transformers, name)(config).eval()


def gates(model: nn.Module) -> list[Any]:
    return [m for m in model.modules() if isinstance(m, GatedProjection)]


def tokens(samples: int = 2, length: int = 9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, VOCABULARY, (samples, length), generator=generator)


# ---- the formula ------------------------------------------------------------------------------


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Row by row; GPT-2 keeps its weights transposed."""
    rows = weight if weight.shape[1] == x.shape[-1] else weight.T
    out = torch.stack([x @ row for row in rows], dim=-1)
    return out if bias is None else out + bias


@pytest.mark.parametrize("biases", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", ["BertForMaskedLM", "RobertaForMaskedLM", "GPT2LMHeadModel"])
def test_the_feed_forward_is_its_formula(name: str, biases: tuple[bool, bool]) -> None:
    model = build(name)
    plain = copy.deepcopy(model)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(getattr(module, "bias", None), nn.Parameter):
                module.bias.normal_()
    apply_gated_linear_units(model, None, None, *biases)
    if name == "GPT2LMHeadModel":
        block, old = model.transformer.h[1].mlp, plain.transformer.h[1].mlp
        first, second = block.c_fc, block.c_proj
    else:
        layer = model.base_model.encoder.layer[1]
        block, old = layer.intermediate, plain.base_model.encoder.layer[1].intermediate
        first, second = block.dense, None
    with torch.no_grad():
        for part in (first.gated_layer, first.non_gated_layer):
            if isinstance(part.bias, nn.Parameter):
                part.bias.normal_()
    x = torch.randn(2, 3, 8)
    w, v = first.gated_layer, first.non_gated_layer
    for part, wanted in zip((w, v), biases, strict=True):
        assert isinstance(part.bias, nn.Parameter) == wanted
        assert any("bias" in n for n in part.state_dict()) == wanted
    gelu = 0.5 * product(x, w.weight, w.bias)
    gelu = gelu * (1 + torch.erf(product(x, w.weight, w.bias) / math.sqrt(2)))
    expected = gelu * product(x, v.weight, v.bias)
    if second is not None:
        expected = product(expected, second.weight, second.bias)
    torch.testing.assert_close(block(x), expected, rtol=1e-4, atol=1e-5)
    old_weight = old.c_fc.weight if second is not None else old.dense.weight
    assert torch.equal(w.weight, old_weight)
    assert v.weight.shape == w.weight.shape
    assert not torch.equal(v.weight, w.weight)
    assert float(v.weight.detach().std()) == pytest.approx(float(w.weight.detach().std()), rel=0.4)


@pytest.mark.parametrize("name", MODELS)
def test_every_known_model_is_gated_in_every_layer_and_trains(name: str) -> None:
    model = build(name)
    kept = {id(p) for n, p in model.named_parameters() if "weight" in n}
    apply_gated_linear_units(model)
    assert len(gates(model)) == 2
    assert kept <= {id(p) for p in model.parameters()}
    out = model(input_ids=tokens())[0]
    out.square().sum().backward()
    for gate in gates(model):
        assert bool(gate.non_gated_layer.weight.grad.any())
        assert bool(gate.gated_layer.weight.grad.any())
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(input_ids=tokens())[0], out, rtol=1e-4, atol=1e-5)


def test_the_new_weights_come_from_the_global_generator() -> None:
    found = []
    for seed in (5, 5, 6):
        model = build("BertForMaskedLM")
        torch.manual_seed(seed)
        apply_gated_linear_units(model)
        found.append(gates(model)[0].non_gated_layer.weight)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_type_mode_and_frozenness_are_kept() -> None:
    model = build("GPT2LMHeadModel").to(torch.bfloat16).eval()
    for parameter in model.transformer.h[0].parameters():
        parameter.requires_grad_(False)
    apply_gated_linear_units(model, non_gated_layer_bias=True)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert not any(m.training for m in model.modules())
    frozen, trained = gates(model)
    assert not any(p.requires_grad for p in frozen.parameters())
    assert all(p.requires_grad for p in trained.parameters())


def test_a_second_application_changes_nothing() -> None:
    model = build("BertForMaskedLM")
    apply_gated_linear_units(model)
    names = [n for n, _ in model.named_parameters()]
    expected = model(input_ids=tokens())[0]
    apply_gated_linear_units(model, act_fn="relu")
    assert [n for n, _ in model.named_parameters()] == names
    torch.testing.assert_close(model(input_ids=tokens())[0], expected, rtol=0, atol=0)


# ---- optimizers -------------------------------------------------------------------------------


@pytest.mark.parametrize("biases", [(False, False), (True, True), (False, True)])
@pytest.mark.parametrize("groups", ["one", "each", "two"])
@pytest.mark.parametrize("name", ["BertForMaskedLM", "GPT2LMHeadModel"])
def test_the_optimizer_holds_exactly_what_is_trained(
    name: str, groups: str, biases: tuple[bool, bool]
) -> None:
    model = build(name).train()
    parameters = list(model.parameters())
    parts: Any = parameters
    if groups == "each":
        parts = [{"params": [p]} for p in parameters]
    elif groups == "two":
        matrices = [p for p in parameters if p.ndim > 1]
        vectors = [p for p in parameters if p.ndim < 2]
        parts = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(parts, lr=0.01, weight_decay=0.1)
    model(input_ids=tokens(), labels=tokens()).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    apply_gated_linear_units(model, optimizer, None, *biases)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    assert {id(p) for p in held} == trained
    assert len(held) == len(trained)
    assert {id(p) for p in optimizer.state} <= trained
    if groups == "two":
        first, second = optimizer.param_groups
        assert all(p.ndim > 1 for p in first["params"])
        assert all(p.ndim < 2 for p in second["params"])
    before = [p.detach().clone() for p in model.parameters()]
    model(input_ids=tokens(), labels=tokens()).loss.backward()
    optimizer.step()
    changed = [not torch.equal(b, p) for b, p in zip(before, model.parameters(), strict=True)]
    assert sum(changed) >= len(changed) - 2  # segments and padding are not in every batch
    optimizer.state_dict()


# ---- activations ------------------------------------------------------------------------------


@pytest.mark.parametrize("act_fn", [None, "relu", F.relu, nn.ReLU(), nn.ReLU(inplace=True)])
def test_the_activation_is_that_of_the_model_or_the_given_one(act_fn: Any) -> None:
    model = build("BertForMaskedLM", act="tanh")
    apply_gated_linear_units(model, act_fn=act_fn)
    x = torch.linspace(-2, 2, 7)
    expected = torch.tanh(x) if act_fn is None else torch.clamp(x, min=0)
    torch.testing.assert_close(gates(model)[0].act_fn(x.clone()), expected)


def test_several_activations_need_a_word() -> None:
    model = build("BertForMaskedLM")
    model.bert.encoder.layer[1].intermediate.intermediate_act_fn = nn.ReLU()
    expected = model(input_ids=tokens())[0]
    with pytest.raises(ValueError, match=r"several activations.*ReLU.*act_fn"):
        apply_gated_linear_units(model)
    torch.testing.assert_close(model(input_ids=tokens())[0], expected, rtol=0, atol=0)
    apply_gated_linear_units(model, act_fn="silu")
    assert len(gates(model)) == 2


@pytest.mark.parametrize("name", sorted(_OF_TORCH))
def test_names_functions_and_modules_are_one_activation(name: str) -> None:
    """Every name is the function of torch, and its module has the same name and values."""
    x = torch.linspace(-4, 4, 33)
    modules = [m for m in vars(nn).values() if isinstance(m, type) and issubclass(m, nn.Module)]
    (module,) = (m for m in modules if m.__name__.lower() == name.replace("_", ""))
    torch.testing.assert_close(activation_called(name)(x), module()(x))
    assert name_of_activation(module()) == name
    assert name_of_activation(getattr(F, name)) == name
    assert name_of_activation(activation_called(name)) == name


def test_names_of_transformers_are_known() -> None:
    x = torch.linspace(-3, 3, 13)
    by_hand = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    torch.testing.assert_close(activation_called("gelu_new")(x), by_hand)
    assert GatedLinearUnits("gelu_new").act_fn == "gelu_new"


def test_names_of_transformers_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.activations", None)
    assert activation_called("silu") is F.silu
    with pytest.raises(ImportError, match=r'pip install "composer-algorithms\[nlp\]"'):
        GatedLinearUnits("gelu_new")


@pytest.mark.parametrize(
    ("act_fn", "error", "words"),
    [
        (lambda x: x, TypeError, "nothing that a checkpoint could keep.*apply_gated_linear_units"),
        (nn.GELU(approximate="tanh"), TypeError, "settings of its own"),
        (nn.LeakyReLU(0.3), TypeError, "settings of its own"),
        (nn.PReLU(), TypeError, "nothing that a checkpoint could keep"),
        ("gelo", ValueError, r"act_fn='gelo'.*gelu"),
        (3, TypeError, "act_fn=3"),
    ],
)
def test_what_a_checkpoint_would_lose_is_refused(
    act_fn: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        GatedLinearUnits(act_fn)


@pytest.mark.parametrize("act_fn", [None, "mish", F.gelu, nn.SiLU(), torch.tanh])
def test_arguments_rebuild_the_method(act_fn: Any) -> None:
    method = GatedLinearUnits(act_fn, non_gated_layer_bias=True)
    arguments = to_plain(method.arguments())
    again = GatedLinearUnits(**arguments)
    assert again.arguments() == method.arguments()
    assert eval(repr(method), {"GatedLinearUnits": GatedLinearUnits}).arguments() == arguments


def test_bad_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="gated_layer_bias=1"):
        GatedLinearUnits(gated_layer_bias=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="non_gated_layer_bias='no'"):
        apply_gated_linear_units(build("BertForMaskedLM"), non_gated_layer_bias="no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="act_fn=4"):
        apply_gated_linear_units(build("BertForMaskedLM"), act_fn=4)  # type: ignore[arg-type]


# ---- other models -----------------------------------------------------------------------------


def test_unknown_models_are_told_what_is_known() -> None:
    with pytest.raises(ValueError, match=r"Linear.*BertIntermediate.*GPT2MLP"):
        apply_gated_linear_units(nn.Linear(2, 2))


def test_adapters_come_after_gates() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["c_attn"], fan_in_fan_out=True)
    model = HuggingFaceModel(build("GPT2LMHeadModel"), peft_config=config)
    with pytest.raises(TypeError, match="before adapters"):
        apply_gated_linear_units(model)
    assert not gates(model)


class OwnFeedForward(nn.Module):
    def __init__(self, up: nn.Module) -> None:
        super().__init__()
        self.up, self.down, self.act = up, nn.Linear(6, 4), nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.act(self.up(x)))


@pytest.fixture
def own_policy() -> Any:
    before = dict(registry._registered)
    path = f"{OwnFeedForward.__module__}:{OwnFeedForward.__qualname__}"
    register_policy(SurgeryPolicy("gated_linear_units", path, gate_projection, ("up", "act")))
    yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.mark.usefixtures("own_policy")
def test_any_model_can_be_made_known() -> None:
    layer = OwnFeedForward(nn.Linear(4, 6))
    model = nn.Sequential(layer, layer)
    weight = layer.up.weight
    apply_gated_linear_units(model)
    x = torch.randn(3, 4)
    gate: Any = layer.up
    expected = layer.down(F.silu(x @ weight.T) * (x @ gate.non_gated_layer.weight.T))
    torch.testing.assert_close(layer(x), expected)
    assert model[0] is model[1]


@pytest.mark.usefixtures("own_policy")
def test_a_model_that_cannot_be_gated_stays_as_it_was() -> None:
    model = nn.Sequential(OwnFeedForward(nn.Linear(4, 6)), OwnFeedForward(nn.Bilinear(4, 4, 6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = [n for n, _ in model.named_parameters()]
    expected = model[0](torch.ones(1, 4))
    with pytest.raises(TypeError, match="Bilinear"):
        apply_gated_linear_units(model, optimizer)
    assert [n for n, _ in model.named_parameters()] == names
    torch.testing.assert_close(model[0](torch.ones(1, 4)), expected, rtol=0, atol=0)
    held = {id(p) for p in optimizer.param_groups[0]["params"]}
    assert held == {id(p) for p in model.parameters()}


# ---- whole runs -------------------------------------------------------------------------------


def test_the_method_does_what_the_function_does_and_reports(make_run: Any) -> None:
    by_function, by_method = build("BertForMaskedLM"), build("BertForMaskedLM")
    torch.manual_seed(4)
    apply_gated_linear_units(by_function, act_fn="relu", gated_layer_bias=True)
    run = make_run(by_method, [GatedLinearUnits("relu", True)])
    torch.manual_seed(4)
    run.fire(Event.INIT)
    torch.testing.assert_close(by_method.state_dict(), by_function.state_dict())
    assert run.recorder.hyperparameters == {"gated_linear_units/num_layers": 2}


class _StopAt(Callback):
    def __init__(self, batch: int) -> None:
        self.batch = batch

    def batch_end(self, state: State, logger: Logger) -> None:
        if state.timestamp.batch == self.batch:
            state.stop_training()


def train(folder: Path, stop_at: int | None = None, **settings: Any) -> Trainer:
    rows = [{"input_ids": row, "labels": row} for row in tokens(12) % 5 + 3]
    model = HuggingFaceModel(build("GPT2LMHeadModel"))
    settings.setdefault("algorithms", [GatedLinearUnits("silu", non_gated_layer_bias=True)])
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(rows, 4, shuffle=True),  # type: ignore[arg-type]
        max_duration="4ep",
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


def test_runs_resume_exactly_also_without_naming_the_method(tmp_path: Path) -> None:
    straight = train(tmp_path / "straight")
    straight.close()
    batch = {"input_ids": tokens() % 5 + 3, "labels": tokens() % 5 + 3}
    trained, fresh = straight.state.model.eval(), HuggingFaceModel(build("GPT2LMHeadModel"))
    with torch.no_grad():
        loss = float(trained.loss(trained(batch), batch))
        assert loss < 0.9 * float(fresh.loss(fresh.eval()(batch), batch))
    train(tmp_path / "cut", 5).close()
    with pytest.warns(UserWarning, match=r"trained with GatedLinearUnits\(act_fn='silu'"):
        resumed = train(tmp_path / "cut", algorithms=[])
    resumed.close()
    assert gates(resumed.state.model)[0].act_fn is F.silu
    torch.testing.assert_close(
        resumed.state.model.state_dict(), straight.state.model.state_dict(), rtol=0, atol=0
    )
