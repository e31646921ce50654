"""Activations computed again: the same numbers, fewer tensors kept."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import composer.functional as cf
from composer.algorithms import ActivationCheckpointing
from composer.algorithms.activation_checkpointing.functional import blocks_of
from composer.algorithms.activation_checkpointing.layers import Recomputed
from composer.core.event import Event
from composer.functional import apply_activation_checkpointing


def block(normalisation: type[nn.Module] = nn.LayerNorm) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 6), normalisation(6), nn.Dropout(0.5), nn.Tanh())


def stack(normalisation: type[nn.Module] = nn.LayerNorm, blocks: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(block(normalisation) for _ in range(blocks)))


def backward(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(1)
    loss: torch.Tensor = model(inputs).square().sum()
    loss.backward()
    return loss.detach()


def kept_for_backward(model: nn.Module, inputs: torch.Tensor) -> int:
    """The bytes of what a forward pass saves, beside parameters."""
    own = {p.data_ptr() for p in model.parameters()}
    seen: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in own:
            seen[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(inputs).sum()
    return sum(seen.values())


@pytest.mark.parametrize("normalisation", [nn.LayerNorm, nn.BatchNorm1d])
@pytest.mark.parametrize("every", [1, 2])
def test_numbers_are_those_of_the_plain_model(normalisation: Any, every: int) -> None:
    plain = stack(normalisation)
    model = copy.deepcopy(plain)
    assert apply_activation_checkpointing(model, every=every) == (3 if every == 1 else 2)
    inputs = torch.randn(8, 6)
    for _ in range(2):
        assert torch.equal(backward(model, inputs), backward(plain, inputs))
    # Gradients, and statistics that moved once per batch.
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]
    assert list(model.state_dict()) == list(plain.state_dict())
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=0, atol=0)
    assert torch.equal(model.eval()(inputs), plain.eval()(inputs))


def test_fewer_activations_are_kept() -> None:
    inputs = torch.randn(64, 6)
    plain, model = stack(), stack()
    apply_activation_checkpointing(model)
    # Of three blocks each keeps its input, or nothing yet where the hooks see tensors of torch's.
    assert kept_for_backward(model, inputs) <= 3 * inputs.nbytes
    assert kept_for_backward(plain, inputs) > 6 * inputs.nbytes


def test_a_changed_module_is_still_of_its_class_and_can_be_copied() -> None:
    model = stack(nn.BatchNorm1d)
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = [id(p) for p in model.parameters()]
    apply_activation_checkpointing(model)
    apply_activation_checkpointing(model)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == weights
    assert isinstance(model[0], nn.Sequential)
    assert len(model[0]) == 4
    backward(model, torch.randn(4, 6))
    assert calls == [1]
    clone = copy.deepcopy(model)
    assert isinstance(clone[0], Recomputed)
    assert clone[0][0].weight is not model[0][0].weight
    file = io.BytesIO()
    torch.save(clone[1], file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert type(again) is type(model[1])


def test_stacks_are_found_at_the_outermost_row_of_blocks() -> None:
    def stage() -> nn.Sequential:
        return nn.Sequential(block(), block())

    network = nn.Sequential(nn.Linear(6, 6), nn.Sequential(stage(), stage()), nn.Linear(6, 2))
    assert blocks_of(network) == [part for s in network[1] for part in s]  # type: ignore[union-attr]
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    transformer = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    assert blocks_of(transformer) == list(transformer.layers)
    assert blocks_of(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))) == []


def test_classes_choose_by_name_and_by_class() -> None:
    for classes in (nn.TransformerEncoderLayer, "TransformerEncoderLayer", ["Linear", "Tanh"]):
        model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16), nn.Tanh())
        count = apply_activation_checkpointing(model, classes)
        assert count == sum(isinstance(m, Recomputed) for m in model.modules()) > 0


def test_a_cache_of_a_decoder_is_not_filled_twice() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=11, n_positions=8, n_embd=8, n_layer=2, n_head=2, use_cache=True
    )
    torch.manual_seed(0)
    plain = transformers.GPT2LMHeadModel(config).train()
    model = copy.deepcopy(plain)
    assert apply_activation_checkpointing(model) == 2
    ids = torch.randint(0, 11, (2, 6))
    for one in (plain, model):
        torch.manual_seed(1)
        one(input_ids=ids, labels=ids).loss.backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    model.eval()
    generated = model.generate(ids[:, :3], max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert torch.equal(
        generated,
        plain.eval().generate(ids[:, :3], max_new_tokens=3, do_sample=False, pad_token_id=0),
    )


class _Remembering(nn.Module):
    """A layer that gathers what it is given in a list, and reads from there."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.seen: list[Any] = []

    def forward(
        self,
        x: torch.Tensor,
        layer_past: Any = None,
        use_cache: bool | None = None,
        *,
        scale: float = 1,
    ) -> torch.Tensor:
        self.seen.append((layer_past, use_cache))
        x = self.linear(x) * scale
        if layer_past is not None:
            layer_past.append(x)
            x = torch.cat(layer_past)
        return x.tanh()


@pytest.mark.parametrize("by_name", [False, True])
def test_a_memory_is_forgotten_by_its_name_and_by_its_place(by_name: bool) -> None:
    layer = _Remembering()
    apply_activation_checkpointing(layer, "_Remembering")
    x = torch.rand(2, 3)
    memory: list[torch.Tensor] = []  # empty, and so false, as a new cache of transformers is
    given: dict[str, Any] = {"layer_past": memory, "use_cache": True}
    out = layer(x, **given) if by_name else layer(x, *given.values(), scale=1)
    out.sum().backward()
    assert memory == []
    assert layer.seen == [(None, False)] * 2  # forward, and again for the gradients
    torch.testing.assert_close(out, layer.linear(x).tanh())
    # In evaluation nothing runs twice, so it is kept.
    assert len(layer.eval()(x, memory, True)) == 2
    assert len(memory) == 1
    assert layer(x, memory, True).shape == (4, 3)


@pytest.mark.filterwarnings(
    "ignore:`torch.jit:FutureWarning", "ignore:`torch.jit:DeprecationWarning"
)
def test_a_script_among_the_blocks_trains_as_before() -> None:
    plain = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    model = nn.Sequential(torch.jit.script(copy.deepcopy(plain)), nn.Tanh())
    # The script of a module holds scripts of its parts.
    assert apply_activation_checkpointing(model, type(model[0])) == 3
    x = torch.rand(2, 3)
    assert torch.equal(backward(model, x), backward(nn.Sequential(plain, nn.Tanh()), x))
    torch.testing.assert_close(
        [p.grad for p in model.parameters()], [p.grad for p in plain.parameters()]
    )


def _depth(method: str) -> Callable[[nn.Module], None]:
    return lambda model: cf.apply_stochastic_depth(
        model, "ResNetBottleneck", method, drop_rate=0.5, drop_distribution="uniform"
    )


@pytest.mark.parametrize(
    "surgery",
    [
        _depth("block"),
        _depth("sample"),
        lambda model: cf.apply_gyro_dropout(model, 2, 2, p=0.5, sigma=4, tau=2),
        lambda model: cf.apply_ghost_batchnorm(model, ghost_batch_size=2),
        lambda model: cf.apply_weight_standardization(model),
        lambda model: cf.apply_squeeze_excite(model, min_channels=1, latent_channels=2),
    ],
    ids=["depth by block", "depth by sample", "gyro", "ghosts", "standardised", "excited"],
)
def test_layers_of_other_methods_are_computed_again_as_they_were(surgery: Any) -> None:
    from torchvision.models.resnet import Bottleneck

    def network() -> nn.Module:
        torch.manual_seed(0)
        stages = [nn.Sequential(Bottleneck(8, 2), nn.Dropout(0.3)) for _ in range(3)]
        model = nn.Sequential(*stages)
        surgery(model)
        return model

    plain, model = network(), network()
    assert apply_activation_checkpointing(model) == 3
    inputs = torch.randn(4, 8, 4, 4)
    for _ in range(3):
        for one in (plain, model):
            torch.manual_seed(5)
            one(inputs).square().sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0)
    torch.testing.assert_close(dict(model.named_buffers()), dict(plain.named_buffers()))


@pytest.mark.slow
@pytest.mark.parametrize("normalisation", [nn.LayerNorm, nn.BatchNorm1d])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_it_can_be_compiled(normalisation: Any, backend: str) -> None:
    plain, model = stack(normalisation), stack(normalisation)
    apply_activation_checkpointing(model)
    model.compile(backend=backend)
    inputs = torch.randn(8, 6)
    with warnings.catch_warnings():
        # Torch hides a warning of its own while it traces, which "error" makes one of ours.
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor")
        torch.testing.assert_close(backward(model, inputs), backward(plain, inputs))
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(dict(model.named_buffers()), dict(plain.named_buffers()))


def test_the_method_changes_the_model_of_a_run(make_run: Callable[..., Any]) -> None:
    run = make_run(stack(), [ActivationCheckpointing(every=2)])
    run.fire(Event.INIT)
    assert [isinstance(m, Recomputed) for m in run.state.model] == [True, False, True]
    assert run.recorder.hyperparameters["activation_checkpointing/num_modules"] == 2


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ActivationCheckpointing(every=0), ValueError, "every=0"),
        (lambda: ActivationCheckpointing(classes=[3]), TypeError, "classes"),
        (lambda: ActivationCheckpointing(classes=[]), ValueError, "classes is empty"),
        (lambda: apply_activation_checkpointing(nn.ReLU()), ValueError, "classes=\\[...\\]"),
        (
            lambda: apply_activation_checkpointing(stack(), "Block"),
            ValueError,
            r"Block.*Sequential",
        ),
    ],
)
def test_bad_arguments_are_named(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
