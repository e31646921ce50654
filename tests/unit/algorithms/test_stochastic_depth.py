"""Stochastic depth: expectations, draws, skipped blocks, warm-up, and exact resumption."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.algorithms import StochasticDepth
from composer.algorithms.stochastic_depth import (
    ResidualBlock,
    StochasticBlock,
    apply_stochastic_depth,
    register_residual_block,
)
from composer.algorithms.warnings import NoEffectWarning
from composer.core import Callback, Event, Logger, State, Time
from composer.core.timestamp import Timestamp
from composer.models import ComposerClassifier, composer_resnet_cifar
from composer.utils import dist

METHODS = ("block", "sample")


class Doubling(nn.Module):
    """A block whose branch is the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


class Normed(nn.Module):
    """A block with weights, statistics and an activation that works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.norm(self.linear(x)) + x)


register_residual_block("Doubling", Doubling, ResidualBlock(lambda block, x: x))
register_residual_block(
    "Normed",
    [Normed],
    ResidualBlock(
        lambda block, x: block.norm(block.linear(x)), finish=lambda block, x: block.relu(x)
    ),
)


def resnet() -> nn.Module:
    torch.manual_seed(0)
    return composer_resnet_cifar("resnet_8", num_classes=3, width=4).module


def images(size: int = 4) -> torch.Tensor:
    return torch.randn(size, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("method", METHODS)
def test_training_is_on_average_what_evaluation_is(method: str) -> None:
    model = nn.Sequential(Doubling())
    apply_stochastic_depth(model, "Doubling", method, 0.25, "uniform")
    torch.manual_seed(0)
    x = torch.ones(2, 3)
    draws = torch.stack([model(x) for _ in range(4000)])
    assert set(draws.unique().tolist()) == {1.0, 2.0}
    expected = model.eval()(x)
    torch.testing.assert_close(expected, torch.full((2, 3), 1.75))
    torch.testing.assert_close(draws.mean(0), expected, rtol=0.03, atol=0)
    # All elements of a sample share a draw, and all samples share one where the batch draws.
    assert (draws == draws[..., :1]).all()
    same = (draws[:, 0] == draws[:, 1]).all()
    assert bool(same) == (method == "block")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("training", [True, False])
def test_without_drops_a_block_is_the_plain_one(method: str, training: bool) -> None:
    plain = resnet().train(training)
    model = copy.deepcopy(plain)
    apply_stochastic_depth(model, "ResNetBasicBlock", method, drop_rate=0.0)
    torch.testing.assert_close(model(images()), plain(images()), rtol=0, atol=0)
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "factory"), [("ResNetBottleneck", "resnet50"), ("ResNetBasicBlock", "resnet18")]
)
def test_blocks_of_torchvision_are_taken_apart_rightly(name: str, factory: str) -> None:
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    plain = getattr(models, factory)(num_classes=4, width_per_group=64)
    model = copy.deepcopy(plain)
    keys, parameters = list(model.state_dict()), list(model.parameters())
    apply_stochastic_depth(model, name, "sample", drop_rate=0.0)
    blocks = [m for m in model.modules() if isinstance(m, StochasticBlock)]
    assert len(blocks) == (16 if factory == "resnet50" else 8)
    assert list(model.state_dict()) == keys
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(model(x), plain(x), rtol=0, atol=0)


def test_rates_are_spread_as_in_the_paper() -> None:
    """Survival of block l of L is 1 - l / L * (1 - p_L)."""
    linear = nn.Sequential(*[Normed() for _ in range(5)])
    uniform = copy.deepcopy(linear)
    apply_stochastic_depth(linear, "Normed", drop_rate=0.5)
    assert [1 - block.drop_rate for block in linear] == pytest.approx(
        [1 - place / 5 * (1 - 0.5) for place in range(1, 6)]
    )
    apply_stochastic_depth(uniform, "Normed", drop_rate=0.5, drop_distribution="uniform")
    assert [block.drop_rate for block in uniform] == [0.5] * 5


@pytest.mark.parametrize("repeat", [1, 2])
def test_a_skipped_block_is_not_touched(repeat: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), *[Normed() for _ in range(repeat)])
    apply_stochastic_depth(model, "Normed", "block", 0.999999, "uniform")
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(8, 4)
    out = model(x)
    # The activation of the block works in place on what the ReLU before it keeps for its gradient.
    torch.testing.assert_close(out, model[1](model[0](x)))
    out.sum().backward()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert all(p.grad is None for block in model[2:] for p in block.parameters())
    assert model[0].weight.grad is not None


def test_twice_is_once_and_shared_blocks_stay_shared() -> None:
    shared = Normed().double()
    model = nn.Sequential(shared, Normed(), shared).eval()
    handle: list[int] = []
    shared.register_forward_hook(lambda *_: handle.append(1))
    apply_stochastic_depth(model, "Normed", drop_rate=0.4)
    first = [model[0], model[1]]
    assert model[2] is model[0]
    assert [block.drop_rate for block in first] == [0.2, 0.4]
    assert not model[0].training
    assert model[0].linear.weight.dtype == torch.float64
    model[0](torch.zeros(1, 4, dtype=torch.float64))
    assert handle == [1]
    apply_stochastic_depth(model, "Normed", drop_rate=0.9)
    assert [model[0], model[1]] == first
    assert [block.drop_rate for block in first] == [0.2, 0.4]


def test_subclasses_and_other_networks_are_left_alone() -> None:
    class Other(Normed):
        pass

    model = nn.Sequential(Other())
    with pytest.warns(NoEffectWarning, match="target_layer_name='Normed'"):
        apply_stochastic_depth(model, "Normed")
    assert type(model[0]) is Other


@pytest.mark.parametrize("method", METHODS)
def test_compiled_and_channels_last(method: str) -> None:
    model = resnet()
    apply_stochastic_depth(model, "ResNetBasicBlock", method, drop_rate=0.5)
    expected = model.eval()(images())
    torch.testing.assert_close(
        model.to(memory_format=torch.channels_last)(images().to(memory_format=torch.channels_last)),
        expected,
        rtol=1e-4,
        atol=1e-5,
    )
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images()), expected, rtol=1e-4, atol=1e-5)
    model.train()
    torch.compiler.reset()
    # Samples draw without leaving the graph; a batch that draws leaves it in every block.
    compiled = torch.compile(model, backend="eager", fullgraph=method == "sample")
    plain = copy.deepcopy(model)
    for seed in range(4):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            # Torch looks at `.grad` of what it goes on with, and means to hide its own warning.
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor")
            found = compiled(images())
        torch.manual_seed(seed)
        torch.testing.assert_close(found, plain(images()), rtol=1e-4, atol=1e-5)
        found.sum().backward()


class _Rates(Callback):
    """What the rate of the last block was in each batch."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}

    def before_forward(self, state: State, logger: Logger) -> None:
        blocks = [m for m in state.model.modules() if isinstance(m, StochasticBlock)]
        self.seen[int(state.timestamp.batch)] = blocks[-1].drop_rate


def network() -> ComposerClassifier:
    torch.manual_seed(0)
    blocks = [Normed() for _ in range(4)]
    layers = nn.Sequential(nn.Linear(4, 4), *blocks, nn.Dropout(0.1), nn.Linear(4, 2))
    return ComposerClassifier(layers, num_classes=2)


def train(folder: Path, method: StochasticDepth, load_path: Path | None = None) -> Any:
    model = network()
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
    rates = _Rates()
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), 6, shuffle=True),
        max_duration="4ep",
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.02),
        algorithms=[method],
        save_folder=str(folder),
        save_interval="1ba",
        save_filename="{batch}.pt",
        load_path=None if load_path is None else str(load_path),
        callbacks=[rates],
        seed=3,
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    return trainer.state, rates.seen


@pytest.mark.parametrize("stochastic_method", METHODS)
def test_it_resumes_exactly_inside_the_warm_up_and_after(
    tmp_path: Path, stochastic_method: str
) -> None:
    def method() -> StochasticDepth:
        return StochasticDepth("Normed", stochastic_method, 0.6, "uniform", drop_warmup="0.5dur")

    straight, rates = train(tmp_path / "straight", method())
    # 16 batches, of which 8 are the warm-up, inside epochs too.
    assert [rates[b] for b in range(16)] == pytest.approx([0.6 * min(b / 8, 1) for b in range(16)])
    for batch in (3, 6, 12):
        state, seen = train(tmp_path / f"{batch}", method(), tmp_path / "straight" / f"{batch}.pt")
        torch.testing.assert_close(
            state.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0
        )
        assert seen == {b: r for b, r in rates.items() if b >= batch}


def test_it_learns(tmp_path: Path) -> None:
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
    batch = (x, (x.sum(1) > 0).long())
    before, (state, _) = network().eval(), train(tmp_path, StochasticDepth("Normed"))
    after = state.model.eval()
    with torch.no_grad():
        assert after.loss(after(batch), batch) < 0.9 * before.loss(before(batch), batch)


def test_a_checkpoint_brings_it_along(tmp_path: Path) -> None:
    train(tmp_path, StochasticDepth("Normed", drop_rate=0.3, drop_warmup=0.25))
    model = network()
    with pytest.warns(UserWarning, match="StochasticDepth"):
        trainer = Trainer(
            model=model,
            load_path=str(tmp_path / "16.pt"),
            load_weights_only=True,
            progress_bar=False,
        )
    trainer.close()
    blocks = [m for m in model.modules() if isinstance(m, StochasticBlock)]
    assert [b.final_drop_rate for b in blocks] == pytest.approx([0.075, 0.15, 0.225, 0.3])


@pytest.mark.parametrize(
    ("warmup", "clock", "share"),
    [
        (0.5, {"batch": 2}, 0.4),
        ("0.5dur", {"batch": 4}, 0.8),
        ("4ba", {"batch": 3}, 0.75),
        ("2ep", {"batch": 3, "epoch": 1}, 0.5),
        ("100sp", {"batch": 3, "sample": 30}, 0.3),
        (Time(10, "tok"), {"batch": 3, "token": 30}, 1.0),
    ],
)
def test_the_warm_up_follows_the_clock(
    make_run: Callable[..., Any], warmup: Any, clock: dict[str, int], share: float
) -> None:
    method = StochasticDepth("Normed", "sample", 0.8, drop_warmup=warmup)
    again = StochasticDepth(**method.arguments())
    assert again.arguments() == method.arguments()
    run = make_run(nn.Sequential(Normed()), [method])
    run.fire(Event.INIT)
    assert run.state.model[0].drop_rate == 0
    assert run.recorder.hyperparameters == {"stochastic_depth/num_stochastic_layers": 1}
    run.state.timestamp = Timestamp(**clock)
    for event in (Event.AFTER_LOAD, Event.BATCH_START):
        run.fire(event)
        assert run.state.model[0].drop_rate == pytest.approx(0.8 * share)
    assert run.recorder.metrics[-1] == {"stochastic_depth/drop_rate": pytest.approx(0.8 * share)}


def test_only_batches_of_the_warm_up_are_acted_on(make_run: Callable[..., Any]) -> None:
    plain = StochasticDepth("Normed")
    warm = StochasticDepth("Normed", drop_warmup="2ba")
    run = make_run(nn.Sequential(Normed()), [plain])
    acted = []
    for method in (plain, warm):
        run.at(0)
        method.apply(Event.INIT, run.state, run.logger)
        for batch in range(5):
            run.at(batch)
            if method.match(Event.BATCH_START, run.state):
                method.apply(Event.BATCH_START, run.state, run.logger)
                acted.append((method is warm, batch))
    assert acted == [(True, 1), (True, 2)]


def test_parameters_may_be_unused_where_blocks_are_skipped() -> None:
    assert StochasticDepth("Normed", "block").find_unused_parameters
    assert not StochasticDepth("Normed", "sample").find_unused_parameters


def _on_two_ranks() -> list[torch.Tensor]:
    model = network()
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(x, (x.sum(1) > 0).long())
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(data, 4, sampler=dist.get_sampler(data, shuffle=True)),
        max_duration="2ep",
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.02),
        algorithms=[StochasticDepth("Normed", "block", 0.5, "uniform")],
        seed=3,
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    return [p.detach().clone() for p in model.parameters()]


def test_ranks_may_skip_different_blocks(ranks: Any) -> None:
    first, second = ranks.run(_on_two_ranks)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"target_layer_name": "ResNetBottelneck"}, ValueError),
        ({"stochastic_method": "batch"}, ValueError),
        ({"drop_rate": 1.0}, ValueError),
        ({"drop_rate": -0.1}, ValueError),
        ({"drop_rate": "0.1"}, TypeError),
        ({"drop_distribution": "log"}, ValueError),
        ({"drop_warmup": 1.5}, ValueError),
        ({"drop_warmup": "-1ba"}, ValueError),
        ({"drop_warmup": "10sec"}, ValueError),
        ({"drop_warmup": "long"}, ValueError),
        ({"drop_warmup": None}, TypeError),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        StochasticDepth(**{"target_layer_name": "Normed", **arguments})
    if "drop_warmup" not in arguments:
        with pytest.raises(error, match=next(iter(arguments))):
            apply_stochastic_depth(
                nn.Sequential(Normed()), **{"target_layer_name": "Normed", **arguments}
            )


def test_bad_blocks_are_refused() -> None:
    with pytest.raises(TypeError, match="block_class="):
        register_residual_block("x", [int], ResidualBlock(lambda b, x: x))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="form="):
        register_residual_block("x", Normed, None)  # type: ignore[arg-type]
