"""Functions refuse what their classes refuse, at their start, and say which argument it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import composer.functional as functional
from composer import algorithms
from composer.algorithms.selective_backprop import select_using_loss, should_selective_backprop
from composer.utils.checks import check_choice, check_number
from composer.utils.curriculum import curriculum_loader
from composer.utils.module_surgery import replace_module_classes, update_params_in_optimizer

NAN, INF = math.nan, math.inf


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(16, 16, 3, stride=2), nn.BatchNorm2d(16), nn.GroupNorm(2, 16))


# What class and function share: function, class, argument, values that both refuse.
SHARED: list[tuple[str, str, str, list[Any]]] = [
    ("apply_blurpool", "BlurPool", "replace_convs", ["no", None, 1]),
    ("apply_blurpool", "BlurPool", "replace_maxpools", ["no", None, 1]),
    ("apply_blurpool", "BlurPool", "blur_first", ["no", None, 1]),
    ("apply_blurpool", "BlurPool", "min_channels", [NAN, -1, "x", 1.5, True]),
    ("apply_factorization", "Factorize", "factorize_convs", ["abc", None, 1]),
    ("apply_factorization", "Factorize", "factorize_linears", ["abc", None, 1]),
    ("apply_factorization", "Factorize", "min_channels", [NAN, -1, 0, "x"]),
    ("apply_factorization", "Factorize", "latent_channels", ["x", NAN, INF, 0, -1, None]),
    ("apply_factorization", "Factorize", "min_features", [NAN, -1, 0, "x"]),
    ("apply_factorization", "Factorize", "latent_features", ["x", NAN, INF, 0, -1, None]),
    ("apply_squeeze_excite", "SqueezeExcite", "latent_channels", ["x", NAN, INF, 0, -1, None]),
    ("apply_squeeze_excite", "SqueezeExcite", "min_channels", [NAN, -1, "x"]),
    ("apply_ghost_batchnorm", "GhostBatchNorm", "ghost_batch_size", [NAN, 1.5, "x", 0, True]),
    (
        "apply_weight_standardization",
        "WeightStandardization",
        "n_last_layers_ignore",
        [NAN, -1, "x", True],
    ),
]


@pytest.mark.parametrize(
    ("function", "cls", "argument", "value"),
    [(f, c, a, value) for f, c, a, values in SHARED for value in values],
)
def test_function_and_class_refuse_the_same_in_the_same_words(
    function: str, cls: str, argument: str, value: Any
) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{argument}=") as of_class:
        getattr(algorithms, cls)(**{argument: value})
    model = network()
    before = [type(one) for one in model.modules()]
    with pytest.raises((TypeError, ValueError), match=rf"^{argument}=") as of_function:
        getattr(functional, function)(model, **{argument: value})
    assert of_function.type is of_class.type
    assert str(of_function.value) == str(of_class.value)
    assert [type(one) for one in model.modules()] == before


SURGERIES: list[tuple[str, dict[str, Any]]] = [
    ("apply_alibi", {"max_sequence_length": 8}),
    ("apply_blurpool", {}),
    ("apply_factorization", {}),
    ("apply_gated_linear_units", {}),
    ("apply_ghost_batchnorm", {}),
    ("apply_low_precision_groupnorm", {}),
    ("apply_low_precision_layernorm", {}),
    ("apply_squeeze_excite", {}),
]
MODELS_ALONE: list[tuple[str, dict[str, Any]]] = [
    ("apply_activation_checkpointing", {}),
    ("apply_channels_last", {}),
    ("apply_compile", {"backend": "eager"}),
    ("apply_gradient_clipping", {"clipping_type": "norm", "clipping_threshold": 1.0}),
    ("apply_weight_standardization", {}),
]


@pytest.mark.parametrize(("function", "arguments"), SURGERIES + MODELS_ALONE)
@pytest.mark.parametrize("model", [None, "abc", 3, torch.ones(2)], ids=["none", "str", "int", "t"])
def test_what_is_no_model_is_named(function: str, arguments: dict[str, Any], model: Any) -> None:
    with pytest.raises(TypeError, match=r"^(model|module) must be a torch\.nn\.Module, not "):
        getattr(functional, function)(model, **arguments)


@pytest.mark.parametrize("optimizers", [5, "abc", [1], [None], object()])
@pytest.mark.parametrize(
    ("function", "arguments"), [s for s in SURGERIES if s[0] not in ("apply_alibi",)][:2]
)
def test_what_is_no_optimizer_is_named(
    function: str, arguments: dict[str, Any], optimizers: Any
) -> None:
    with pytest.raises(TypeError, match=r"^optimizers must be a torch\.optim\.Optimizer"):
        getattr(functional, function)(network(), optimizers=optimizers, **arguments)


def test_the_shared_door_of_surgeries_refuses_by_itself() -> None:
    parameter = nn.Parameter(torch.ones(1))
    with pytest.raises(TypeError, match=r"^module must be"):
        replace_module_classes(None, {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^optimizers must be"):
        replace_module_classes(network(), {}, optimizers=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^optimizers must be"):
        update_params_in_optimizer([parameter], [], [None])  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["groupnorm", "layernorm"])
def test_an_unknown_precision_is_refused(name: str) -> None:
    apply = getattr(functional, f"apply_low_precision_{name}")
    with pytest.raises(ValueError, match=r"^precision='abc' must be one of"):
        apply(network(), precision="abc")
    with pytest.raises(TypeError, match=r"^precision=3 must be one of"):
        apply(network(), precision=3)


X, Y = torch.rand(4, 3, 4, 4), torch.arange(4) % 3
FLAT = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))

# Function, its argument, and a call with a wrong value for it.
CALLS: list[tuple[str, Callable[[], Any]]] = [
    ("current_duration", lambda: should_selective_backprop(NAN, 1)),
    ("current_duration", lambda: should_selective_backprop("a", 1)),  # type: ignore[arg-type]
    ("batch_idx", lambda: should_selective_backprop(0.6, "a")),  # type: ignore[arg-type]
    ("batch_idx", lambda: should_selective_backprop(0.6, -1)),
    ("start", lambda: should_selective_backprop(0.6, 1, start=NAN)),
    ("end", lambda: should_selective_backprop(0.6, 1, end=2.0)),
    ("interrupt", lambda: should_selective_backprop(0.6, 1, interrupt=1)),
    ("input", lambda: select_using_loss(X[:0], Y[:0], FLAT, F.cross_entropy)),
    ("target", lambda: select_using_loss(X, None, FLAT, F.cross_entropy)),  # type: ignore[arg-type]
    ("model", lambda: select_using_loss(X, Y, None, F.cross_entropy)),  # type: ignore[arg-type]
    ("loss_fun", lambda: select_using_loss(X, Y, FLAT, 3)),  # type: ignore[arg-type]
    ("scale_factor", lambda: select_using_loss(X, Y, FLAT, F.cross_entropy, scale_factor=NAN)),
    ("indices", lambda: functional.mixup_batch(X, Y, indices=torch.rand(4))),
    ("indices", lambda: functional.mixup_batch(X, Y, indices=[0, 1, 2, 3])),  # type: ignore[arg-type]
    ("indices", lambda: functional.cutmix_batch(X, Y, indices=torch.rand(4))),
    ("input", lambda: functional.mixup_batch(None, Y)),  # type: ignore[arg-type]
    ("target", lambda: functional.cutmix_batch(X, torch.tensor(1))),
    ("target", lambda: functional.mixup_batch(X, Y[:3])),
    ("alpha", lambda: functional.mixup_batch(X, Y, alpha=INF)),
    ("alpha", lambda: functional.cutmix_batch(X, Y, alpha=INF)),
    ("logits", lambda: functional.smooth_labels(None, Y)),  # type: ignore[arg-type]
    ("target", lambda: functional.smooth_labels(torch.ones(4, 3), 3)),  # type: ignore[arg-type]
    ("fsdp_enabled", lambda: functional.apply_gradient_clipping(FLAT, "norm", 1.0, "x")),  # type: ignore[arg-type]
    ("alpha", lambda: algorithms.MixUp(alpha=INF)),
    ("alpha", lambda: algorithms.CutMix(alpha=INF)),
    ("clipping_threshold", lambda: algorithms.GradientClipping("norm", INF)),
    ("mode", lambda: algorithms.Compile(mode=3)),  # type: ignore[arg-type]
    ("classes", lambda: algorithms.ActivationCheckpointing(classes=torch.tensor(0.5))),  # type: ignore[arg-type]
    ("num_features", lambda: algorithms.SqueezeExcite2d(0)),
    ("num_features", lambda: algorithms.SqueezeExcite2d(8.5)),  # type: ignore[arg-type]
    ("latent_channels", lambda: algorithms.SqueezeExcite2d(8, NAN)),
    ("latent_channels", lambda: algorithms.SqueezeExcite2d(8, INF)),
    ("latent_channels", lambda: algorithms.SqueezeExciteConv2d(1, 2, 3, latent_channels="x")),  # type: ignore[arg-type]
    ("conv", lambda: algorithms.SqueezeExciteConv2d(conv=nn.Linear(1, 1))),  # type: ignore[arg-type]
    ("batch_size", lambda: curriculum_loader([1, 2], batch_size=0)),
    ("batch_size", lambda: curriculum_loader([1, 2], batch_size=None)),  # type: ignore[arg-type]
    ("shuffle", lambda: curriculum_loader([1, 2], shuffle="x")),  # type: ignore[arg-type]
    ("drop_last", lambda: curriculum_loader([1, 2], drop_last="x")),  # type: ignore[arg-type]
    ("sampler", lambda: curriculum_loader([1, 2], sampler=3)),
    ("batch_sampler", lambda: curriculum_loader([1, 2], batch_sampler=3)),
    ("collate_fn", lambda: curriculum_loader([1, 2], collate_fn=5)),  # type: ignore[arg-type]
    ("generator", lambda: curriculum_loader([1, 2], generator=5)),
]


@pytest.mark.parametrize(("argument", "call"), CALLS)
def test_the_argument_is_named_at_once(argument: str, call: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{argument}\b"):
        call()


def test_augmix_refuses_infinity() -> None:
    pytest.importorskip("torchvision")
    with pytest.raises(ValueError, match=r"^alpha=inf must be finite"):
        algorithms.AugMix(alpha=INF)


def test_infinity_is_a_number_only_where_it_is_asked_for() -> None:
    for value in (INF, -INF):
        with pytest.raises(ValueError, match=r"^a=-?inf must be finite"):
            check_number("a", value)
        check_number("a", value, infinite=True)
    check_number("a", 10**400, low=0.0)  # no float holds it
    with pytest.raises(ValueError, match=r"^a=nan must be a number"):
        check_number("a", NAN, infinite=True)


@pytest.mark.parametrize("value", [torch.ones(2), torch.ones(2).numpy(), ["norm"], 3, None])
def test_a_choice_is_a_word(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^kind=.* must be one of \('norm',\)"):
        check_choice("kind", value, ("norm",))


@pytest.mark.parametrize("kind", ["norm", "value", "adaptive"])
def test_clipping_without_gradients_does_nothing(kind: str) -> None:
    model = nn.Linear(2, 2)
    functional.apply_gradient_clipping(model, kind, 1.0)
    assert model.weight.grad is None


@pytest.mark.parametrize("kind", ["value", "adaptive"])
def test_sparse_gradients_that_cannot_be_clipped_are_named(kind: str) -> None:
    model = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Linear(4, 2))
    model(torch.tensor([0, 1])).sum().backward()
    dense = model[1].weight.grad.clone()
    with pytest.raises(TypeError, match=rf"gradient of 0\.weight is sparse.*{kind}.*'norm'"):
        functional.apply_gradient_clipping(model, kind, 1e-3)
    assert torch.equal(model[1].weight.grad, dense)


def test_sparse_gradients_are_clipped_by_their_norm() -> None:
    model = nn.Embedding(5, 4, sparse=True)
    (3 * model(torch.tensor([0, 1]))).sum().backward()
    functional.apply_gradient_clipping(model, "norm", 1.0)
    # Eight elements that are equal, of joint norm 1.
    gradient = model.weight.grad
    assert gradient is not None
    torch.testing.assert_close(gradient.to_dense()[:2], torch.full((2, 4), 1 / math.sqrt(8)))
