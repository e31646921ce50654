"""Squeeze-and-excitation, ghost batch norm, weight standardisation and factorisation."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from composer.algorithms import (
    Factorize,
    GhostBatchNorm,
    LowPrecisionGroupNorm,
    LowPrecisionLayerNorm,
    NoOpModel,
    SqueezeExcite,
    SqueezeExcite2d,
    WeightStandardization,
)
from composer.algorithms.factorize import FactorizedConv2d, FactorizedLinear
from composer.algorithms.ghost_batchnorm import GhostBatchNorm1d, GhostBatchNorm2d
from composer.algorithms.squeeze_excite import SqueezeExciteConv2d
from composer.algorithms.warnings import NoEffectWarning
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.functional import (
    apply_factorization,
    apply_ghost_batchnorm,
    apply_low_precision_groupnorm,
    apply_low_precision_layernorm,
    apply_squeeze_excite,
    apply_weight_standardization,
)

Surgery = Callable[..., Any]


def standardize(model: nn.Module, optimizers: Any = None) -> None:
    apply_weight_standardization(model)


SURGERIES: dict[str, Surgery] = {
    "factorize": lambda m, optimizers=None: apply_factorization(
        m,
        min_channels=8,
        min_features=8,
        latent_channels=0.25,
        latent_features=0.25,
        optimizers=optimizers,
    ),
    "ghost_batchnorm": lambda m, optimizers=None: apply_ghost_batchnorm(
        m, ghost_batch_size=2, optimizers=optimizers
    ),
    "squeeze_excite": lambda m, optimizers=None: apply_squeeze_excite(
        m, latent_channels=4, min_channels=8, optimizers=optimizers
    ),
    "weight_standardization": standardize,
}


LOW: dict[str, tuple[Surgery, nn.Module, torch.Tensor]] = {
    "low_precision_layernorm": (
        apply_low_precision_layernorm,
        nn.LayerNorm([4, 6]),
        torch.randn(5, 4, 6, generator=torch.Generator().manual_seed(3)),
    ),
    "low_precision_groupnorm": (
        apply_low_precision_groupnorm,
        nn.GroupNorm(2, 4),
        torch.randn(5, 4, 6, generator=torch.Generator().manual_seed(3)),
    ),
}


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 8, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 16),
        nn.Linear(16, 4),
    )


IMAGES = torch.rand(4, 8, 6, 6, generator=torch.Generator().manual_seed(1))


# ---- what each promises -----------------------------------------------------------------------


def test_squeeze_excite_is_its_formula() -> None:
    layer = SqueezeExcite2d(6, 0.5)
    _, _, first, _, second, _ = layer.pool_and_mlp
    x = torch.randn(3, 6, 4, 5)
    for n in range(3):
        squeezed = torch.stack([x[n, c].sum() / 20 for c in range(6)])
        hidden = torch.clamp(first.weight @ squeezed, min=0)
        weights = 1 / (1 + torch.exp(-(second.weight @ hidden)))
        for c in range(6):
            torch.testing.assert_close(layer(x)[n, c], x[n, c] * weights[c])


@pytest.mark.parametrize(("latent", "size"), [(0.5, 4), (3, 3), (0.01, 1), (2.9, 2)])
def test_the_bottleneck_is_a_number_or_a_share(latent: float, size: int) -> None:
    assert SqueezeExcite2d(8, latent).latent_channels == size


@pytest.mark.parametrize("samples", [4, 8, 9, 7, 11])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("affine", [False, True])
def test_ghost_batch_norm_is_a_loop_over_parts(
    samples: int, momentum: float | None, affine: bool
) -> None:
    """Every part by torch's own; the running averages take the mean over the parts."""
    torch.manual_seed(samples)
    size = 4
    plain = nn.BatchNorm2d(3, momentum=momentum, affine=affine)
    if affine:
        nn.init.normal_(plain.weight)
        nn.init.normal_(plain.bias)
    model = nn.Sequential(plain)
    start = {name: value.clone() for name, value in plain.state_dict().items()}
    apply_ghost_batchnorm(model, size)
    x = torch.randn(samples, 3, 5, 2, requires_grad=True)
    found = model(x)
    # Whole parts, and what is left over joins the last of them.
    count = samples // size
    bounds = [i * size for i in range(count)] + [samples]
    outputs, means, variances = [], [], []
    for low, high in itertools.pairwise(bounds):
        one = nn.BatchNorm2d(3, momentum=1.0, affine=affine)
        if affine:
            one.load_state_dict({**one.state_dict(), **{k: start[k] for k in ("weight", "bias")}})
        outputs.append(one(x[low:high]))
        means.append(one.running_mean)
        variances.append(one.running_var)
    torch.testing.assert_close(found, torch.cat(outputs))
    m = 1.0 if momentum is None else momentum
    ghost = model[0]
    torch.testing.assert_close(ghost.running_mean, m * torch.stack(means).mean(0))
    torch.testing.assert_close(
        ghost.running_var, (1 - m) * torch.ones(3) + m * torch.stack(variances).mean(0)
    )
    assert int(ghost.num_batches_tracked) == 1
    weights = torch.randn_like(found)
    (mine,) = torch.autograd.grad((found * weights).sum(), x)
    (theirs,) = torch.autograd.grad((torch.cat(outputs) * weights).sum(), x)
    torch.testing.assert_close(mine, theirs)


def test_ghost_batch_norm_evaluates_as_the_plain_layer_and_keeps_its_parameters() -> None:
    plain = nn.BatchNorm1d(4)
    plain.running_mean.normal_()
    model = nn.Sequential(plain)
    apply_ghost_batchnorm(model, 8)
    x = torch.randn(2, 4)
    torch.testing.assert_close(model.eval()(x), plain.eval()(x), rtol=0, atol=0)
    assert model[0].weight is plain.weight
    assert list(model.state_dict()) == [f"0.{name}" for name in plain.state_dict()]
    with pytest.raises(ValueError, match=r"2 samples and ghost_batch_size is 8"):
        model.train()(x)


def test_standardised_weights_have_mean_zero_and_variance_one() -> None:
    model = small()
    assert apply_weight_standardization(model, n_last_layers_ignore=1) == 1
    weight = model[0].weight.flatten(1)
    torch.testing.assert_close(weight.mean(1), torch.zeros(16), atol=1e-6, rtol=0)
    torch.testing.assert_close(weight.var(1, correction=0), torch.ones(16), atol=1e-2, rtol=0)
    original = model[0].parametrizations.weight.original
    by_hand = torch.stack(
        [
            (row - row.mean()) / torch.sqrt(((row - row.mean()) ** 2).mean() + 1e-5)
            for row in original
        ]
    )
    torch.testing.assert_close(model[0].weight, by_hand)
    assert not hasattr(model[3], "parametrizations")


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_factors_are_the_nearest_of_their_rank(rank: int) -> None:
    torch.manual_seed(rank)
    linear = nn.Linear(8, 12)
    factorized = FactorizedLinear(linear, rank)
    product = (factorized.second.weight @ factorized.first.weight).detach()
    singular = torch.linalg.svdvals(linear.weight.detach().double())
    missing = float(singular[rank:].square().sum().sqrt() / singular.square().sum().sqrt())
    assert factorized.error == pytest.approx(missing, abs=1e-6)
    weight = linear.weight.detach()
    apart = torch.linalg.matrix_norm(product - weight) / torch.linalg.matrix_norm(weight)
    assert float(apart) == pytest.approx(missing, abs=1e-5)
    if rank == 8:
        x = torch.randn(5, 8)
        torch.testing.assert_close(factorized(x), linear(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"padding": 1, "stride": 2},
        {"padding": 2, "dilation": 2, "bias": False},
        {"padding": "same", "padding_mode": "reflect"},
    ],
)
def test_a_convolution_of_low_rank_is_factorised_without_error(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(6, 10, 3, **settings)
    with torch.no_grad():
        low = torch.randn(10, 2) @ torch.randn(2, 54)
        conv.weight.copy_(low.view_as(conv.weight))
    layer = FactorizedConv2d.maybe_from(conv, 2)
    assert layer is not None
    assert layer.error < 1e-6
    x = torch.randn(2, 6, 9, 8)
    torch.testing.assert_close(layer(x), conv(x), rtol=1e-4, atol=1e-4)
    layer.set_rank(1)
    assert layer(x).shape == conv(x).shape
    assert layer.error > 0.1


def test_only_what_gets_cheaper_is_factorised() -> None:
    model = nn.Sequential(
        nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, groups=2), nn.Linear(8, 8), nn.Linear(4, 64)
    )
    with pytest.warns(NoEffectWarning, match="Factorize found no"):
        apply_factorization(
            model, min_channels=8, min_features=8, latent_channels=4, latent_features=4
        )
    assert [type(part) for part in model] == [nn.Conv2d, nn.Conv2d, nn.Linear, nn.Linear]


# ---- what holds for all -----------------------------------------------------------------------


@pytest.mark.parametrize("name", SURGERIES)
def test_a_second_application_changes_nothing(name: str) -> None:
    model = small()
    SURGERIES[name](model)
    names = [n for n, _ in model.named_parameters()]
    expected = model(IMAGES)
    SURGERIES[name](model)
    assert [n for n, _ in model.named_parameters()] == names
    torch.testing.assert_close(model(IMAGES), expected)


def optimizers_of(model: nn.Module) -> Iterator[torch.optim.Optimizer]:
    yield torch.optim.SGD(model.parameters(), lr=0.1)
    yield torch.optim.SGD([{"params": [p], "lr": 0.1} for p in model.parameters()])
    convolutions = [*model[0].parameters(), *model[3].parameters()]
    rest = [*model[1].parameters(), *model[6].parameters(), *model[7].parameters()]
    yield torch.optim.SGD([{"params": convolutions, "lr": 0.5}, {"params": rest, "lr": 0.1}])


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("name", SURGERIES)
def test_optimizers_hold_what_the_model_holds(name: str, kind: int) -> None:
    model = small()
    optimizer = next(itertools.islice(optimizers_of(model), kind, None))
    rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    SURGERIES[name](model, optimizers=optimizer)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held})
    assert {id(p) for p in held} == {id(p) for p in model.parameters()}
    after = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    for parameter in model.parameters():
        if id(parameter) in rates:
            assert after[id(parameter)] == rates[id(parameter)]
    if kind == 2:
        for part in (model[0], model[3]):
            assert {after[id(p)] for p in part.parameters()} == {0.5}
    F.cross_entropy(model(IMAGES), torch.arange(4)).backward()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step()
    assert all(not torch.equal(b, p) for b, p in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("name", SURGERIES)
def test_shared_and_frozen_layers_stay_shared_and_frozen(name: str) -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(6, 6))
    model.append(model[0])
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    SURGERIES[name](model)
    assert model[0] is model[3]
    old = model[0]
    kept = old.se.parameters() if isinstance(old, SqueezeExciteConv2d) else iter(())
    fresh = {id(p) for p in kept}
    assert all(not p.requires_grad for p in old.parameters() if id(p) not in fresh)


@pytest.mark.parametrize("name", SURGERIES)
def test_compiled_and_channels_last_give_the_same(name: str) -> None:
    model = small()
    SURGERIES[name](model)
    expected = model.eval()(IMAGES)
    torch.testing.assert_close(
        model.to(memory_format=torch.channels_last)(IMAGES.to(memory_format=torch.channels_last)),
        expected,
        rtol=1e-4,
        atol=1e-5,
    )
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(IMAGES), expected, rtol=1e-4, atol=1e-5)
    model.train()
    trained = torch.compile(model, backend="eager")(IMAGES)
    assert trained.shape == expected.shape


METHODS: dict[str, Algorithm] = {
    "factorize": Factorize(min_channels=8, min_features=8, latent_features=0.25),
    "ghost_batchnorm": GhostBatchNorm(2),
    "squeeze_excite": SqueezeExcite(latent_channels=4, min_channels=8),
    "weight_standardization": WeightStandardization(),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_method_does_what_the_function_does_and_reports(name: str, make_run: Any) -> None:
    torch.manual_seed(0)
    by_function = small()
    torch.manual_seed(7)
    SURGERIES[name](by_function)
    by_method = small()
    run = make_run(by_method, [METHODS[name]])
    torch.manual_seed(7)
    run.fire(Event.INIT)
    torch.testing.assert_close(by_method.state_dict(), by_function.state_dict())
    assert any(key.startswith(f"{name}/") for key in run.recorder.hyperparameters)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_to_change_is_said(name: str) -> None:
    words = type(METHODS[name]).__name__
    model = nn.Sequential(nn.ReLU())
    if name == "weight_standardization":
        assert apply_weight_standardization(model) == 0
        return
    with pytest.warns(NoEffectWarning, match=words):
        SURGERIES[name](model)


def test_ghosts_of_every_dimension() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm2d(2), nn.BatchNorm3d(2))
    apply_ghost_batchnorm(model, 2)
    assert isinstance(model[0], GhostBatchNorm1d)
    assert isinstance(model[1], GhostBatchNorm2d)
    assert model[0](torch.randn(5, 2, 3)).shape == (5, 2, 3)
    assert model[2](torch.randn(4, 2, 2, 2, 2)).shape == (4, 2, 2, 2, 2)


def test_the_model_that_costs_nothing(make_run: Any) -> None:
    model = small()
    optimizer = torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.5)
    run = make_run(model, [NoOpModel()], optimizers=optimizer)
    run.fire(Event.INIT)
    replaced = run.state.model
    batch = (IMAGES, torch.tensor([1, 2, 3, 0]))
    loss = replaced.loss(replaced(batch), batch)
    assert float(loss.detach()) == 0
    # The parameter starts at one, where nothing is wrong; elsewhere a step brings it nearer.
    with torch.no_grad():
        replaced.weights.fill_(2.0)
    replaced.loss(replaced(batch), batch).backward()
    optimizer.step()
    mean_square = (1 + 4 + 9) / 4
    assert float(replaced.weights.detach()) == pytest.approx(2 - 0.5 * 2 * mean_square)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Factorize(factorize_convs=False, factorize_linears=False), ValueError, "at least"),
        (lambda: Factorize(latent_channels=0), ValueError, "latent_channels=0"),
        (lambda: Factorize(min_features=0), ValueError, "min_features=0"),
        (lambda: GhostBatchNorm(0), ValueError, "ghost_batch_size=0"),
        (lambda: GhostBatchNorm(1.5), TypeError, "ghost_batch_size=1.5"),  # type: ignore[arg-type]
        (lambda: SqueezeExcite(latent_channels=-1), ValueError, "latent_channels=-1"),
        (lambda: WeightStandardization(-1), ValueError, "n_last_layers_ignore=-1"),
        (lambda: apply_ghost_batchnorm(small(), 0), ValueError, "ghost_batch_size=0"),
        (lambda: apply_squeeze_excite(small(), 0), ValueError, "latent_channels=0"),
        (lambda: FactorizedLinear(nn.Linear(4, 4), 2).set_rank(3), ValueError, "rank=3"),
    ],
)
def test_bad_arguments_are_named(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


# ---- low precision ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOW)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_stay_narrow_under_autocast_only(name: str, dtype: torch.dtype) -> None:
    surgery, plain, x = LOW[name]
    model = nn.Sequential(copy.deepcopy(plain))
    before = model[0]
    nn.init.normal_(before.weight)
    surgery(model)
    assert model[0] is not before
    assert model[0].weight is before.weight
    torch.testing.assert_close(model(x), before(x), rtol=0, atol=0)
    with torch.autocast("cpu", dtype):
        narrow, wide = model(x), before(x)
    assert narrow.dtype == dtype
    assert wide.dtype == torch.float32
    # Statistics of the rounded input, rounded at the end: a few units of the narrow type.
    exact = before(x.to(dtype).double().float())
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(narrow.float(), exact, rtol=tolerance, atol=tolerance)
    narrow.float().square().sum().backward()
    assert before.weight.grad is not None
    assert before.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("name", LOW)
def test_low_precision_does_nothing_without_it_and_says_so(name: str, make_run: Any) -> None:
    surgery, plain, _ = LOW[name]
    model = nn.Sequential(copy.deepcopy(plain))
    with pytest.warns(NoEffectWarning, match=r"precision='fp32'.*amp_fp16 and amp_bf16"):
        surgery(model, "fp32")
    assert type(model[0]) is type(plain)
    cls = LowPrecisionLayerNorm if "layer" in name else LowPrecisionGroupNorm
    run = make_run(model, [cls(Event.AFTER_LOAD)], precision="amp_bf16")
    run.fire(Event.INIT, Event.BEFORE_LOAD)
    assert type(model[0]) is type(plain)
    run.fire(Event.AFTER_LOAD)
    assert type(model[0]) is not type(plain)
    assert run.recorder.hyperparameters == {f"{name}/num_layers": 1}
    with pytest.raises(ValueError, match="apply_at='fit_end'"):
        cls(Event.FIT_END)
