"""Gyro dropout: how many masks there are, when they have their turn, and exact resumption."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from composer import Trainer
from composer.algorithms import GyroDropout
from composer.algorithms.gyro_dropout import GyroDropoutLayer, apply_gyro_dropout
from composer.algorithms.warnings import NoEffectWarning
from composer.core import Callback, Event, Logger, State
from composer.models import ComposerClassifier


def masks_in(out: torch.Tensor) -> set[tuple[bool, ...]]:
    """The different masks of a batch of ones, one per sample."""
    return {tuple(row) for row in (out != 0).flatten(1).tolist()}


@pytest.mark.parametrize("shape", [(24,), (3, 4, 2)])
def test_there_are_sigma_masks_and_each_has_its_share_of_the_run(shape: tuple[int, ...]) -> None:
    sigma, tau, iterations = 12, 3, 40
    layer = GyroDropoutLayer(10, 4, p=0.5, sigma=sigma, tau=tau, seed=5)
    steps: Counter[tuple[bool, ...]] = Counter()
    windows = []
    for _ in range(iterations):
        out = layer(torch.ones(6, *shape))
        used = masks_in(out)
        windows.append(frozenset(used))
        assert len(used) == tau
        # Every mask has an equal part of the batch.
        rows = Counter(map(tuple, (out != 0).flatten(1).tolist()))
        assert set(rows.values()) == {6 // tau}
        steps.update(used)
    assert len(steps) == sigma
    # Each of the four windows lasts iterations * tau / sigma, without an interruption.
    assert set(steps.values()) == {iterations * tau // sigma}
    assert [len(list(group)) for _, group in itertools.groupby(windows)] == [10] * 4


@pytest.mark.parametrize(("sigma", "tau"), [(12, 3), (10, 4), (5, 5), (7, 1)])
def test_a_round_of_windows_is_even(sigma: int, tau: int) -> None:
    layer = GyroDropoutLayer(None, None, sigma=sigma, tau=tau, seed=1)
    count = -(-sigma // tau)
    first = [layer.mask_numbers(window) for window in range(count)]
    uses = Counter(number for numbers in first for number in numbers)
    assert all(len(set(numbers)) == tau for numbers in first)
    assert set(uses) == set(range(sigma))
    assert max(uses.values()) - min(uses.values()) <= 1
    if sigma > tau:
        assert first != [layer.mask_numbers(window + count) for window in range(count)]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_neurons_are_dropped_and_scaled_as_by_dropout(p: float) -> None:
    """Over all masks the mean of the output is the input, and a share of p is zero."""
    layer = GyroDropoutLayer(None, None, p=p, sigma=400, tau=400, seed=2)
    x = torch.rand(1, 50).expand(400, 50)
    out = layer(x)
    assert float((out == 0).float().mean()) == pytest.approx(p, abs=0.01)
    torch.testing.assert_close(out[out != 0], (x / (1 - p))[out != 0])
    assert float((out / x).mean()) == pytest.approx(1.0, abs=0.03)
    x = torch.randn(3, 50)
    assert layer.eval()(x) is x


def test_sequences_share_a_mask_over_features_whatever_their_length() -> None:
    layer = GyroDropoutLayer(None, None, p=0.5, sigma=2, tau=1, seed=3)
    long, short = layer(torch.ones(2, 7, 16)), layer(torch.ones(3, 2, 16))
    assert (
        len({tuple(row) for out in (long, short) for row in (out != 0).flatten(0, 1).tolist()}) == 1
    )


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_small_batches_leave_no_mask_out(samples: int) -> None:
    layer = GyroDropoutLayer(None, None, p=0.5, sigma=8, tau=8, seed=4)
    torch.manual_seed(0)
    seen: set[tuple[bool, ...]] = set()
    for _ in range(100):
        seen |= masks_in(layer(torch.ones(samples, 32)))
    assert len(seen) == 8


def test_masks_do_not_depend_on_type_or_layer_but_on_the_seed() -> None:
    def mask(seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        layer = GyroDropoutLayer(None, None, p=0.5, sigma=4, tau=1, seed=seed)
        return layer(torch.ones(1, 64, dtype=dtype)) != 0

    for dtype in (torch.float64, torch.bfloat16):
        assert torch.equal(mask(7), mask(7, dtype))
    assert not torch.equal(mask(7), mask(8))
    torch.manual_seed(0)
    first, second = GyroDropoutLayer(2, 2), GyroDropoutLayer(2, 2)
    assert first.seed != second.seed


def test_only_dropout_is_replaced() -> None:
    class Other(nn.Dropout):
        pass

    shared = nn.Dropout(0.2)
    model = nn.Sequential(shared, nn.Linear(2, 2), Other(), nn.Dropout2d(), shared, nn.Dropout(0.0))
    by_own = copy.deepcopy(model).eval()
    apply_gyro_dropout(model, 3, 4)
    assert [type(m).__name__ for m in model] == [
        "GyroDropoutLayer", "Linear", "Other", "Dropout2d", "GyroDropoutLayer", "GyroDropoutLayer"
    ]  # fmt: skip
    assert model[0] is model[4]
    assert [model[0].p, model[5].p] == [0.5, 0.5]
    kept = model[0]
    apply_gyro_dropout(model, 3, 4)
    assert model[0] is kept
    apply_gyro_dropout(by_own, 3, 4, p=None)
    assert by_own[0].p == 0.2
    assert not by_own[0].training
    assert type(by_own[5]) is nn.Dropout
    with pytest.warns(NoEffectWarning, match="GyroDropout"):
        apply_gyro_dropout(nn.Sequential(nn.ReLU()), 3, 4)


def test_compiled_and_channels_last() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.3), nn.Flatten(), nn.Dropout(0.5))
    apply_gyro_dropout(model, 2, 4, sigma=4, tau=2)
    x = torch.randn(4, 3, 6, 6).to(memory_format=torch.channels_last)
    plain = copy.deepcopy(model)
    torch.compiler.reset()
    compiled = torch.compile(model.eval(), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), plain.eval()(x))
    model.train()
    plain.train()
    compiled = torch.compile(model, backend="eager")
    for seed in range(8):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            # Torch looks at `.grad` of what it goes on with, and means to hide its own warning.
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor")
            found = compiled(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(found, plain(x))
    assert [model[1].step, model[1].window] == [8, 1]


def test_a_compiled_model_goes_on_in_the_next_window() -> None:
    from torch._dynamo.utils import counters

    model = nn.Sequential(nn.Linear(4, 4), layer := GyroDropoutLayer(None, None, sigma=8, tau=2))
    plain = copy.deepcopy(model)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager")
    graphs = []
    with torch.no_grad():
        for step in range(6):
            for one in (layer, plain[1]):
                one.enter_window(step // 2)
            torch.manual_seed(step)
            found = compiled(torch.ones(4, 4))
            torch.manual_seed(step)
            torch.testing.assert_close(found, plain(torch.ones(4, 4)))
            graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[1:] == [graphs[1]] * 5


class _Masks(Callback):
    """Which masks are in use in each batch."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, list[int]]] = {}

    def before_forward(self, state: State, logger: Logger) -> None:
        layer = next(m for m in state.model.modules() if isinstance(m, GyroDropoutLayer))
        numbers = layer.mask_numbers(layer.window)
        self.seen.setdefault(int(state.timestamp.batch), (layer.seed, sorted(numbers)))


def network() -> ComposerClassifier:
    torch.manual_seed(0)
    layers = (nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 8), nn.Dropout(0.2))
    return ComposerClassifier(nn.Sequential(*layers, nn.Linear(8, 2)), num_classes=2)


X = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(X, (X.sum(1) > 0).long())


def train(folder: Path, algorithms: list[Any], **settings: Any) -> tuple[State, _Masks]:
    model, masks = network(), _Masks()
    settings = {
        "train_dataloader": DataLoader(DATA, 6, shuffle=True),
        "max_duration": "4ep",
        "seed": 3,
        **settings,
    }
    trainer = Trainer(
        model=model,
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.02),
        algorithms=algorithms,
        save_folder=str(folder),
        save_interval="1ba",
        save_filename="{batch}.pt",
        callbacks=[masks],
        progress_bar=False,
        **settings,
    )
    trainer.fit()
    trainer.close()
    return trainer.state, masks


def test_it_resumes_exactly_inside_a_window_also_when_a_checkpoint_brings_it(
    tmp_path: Path,
) -> None:
    def method() -> GyroDropout:
        return GyroDropout(0.3, sigma=16, tau=4)

    straight, masks = train(tmp_path / "straight", [method()], device_train_microbatch_size=3)
    # Four windows of four batches in a run of sixteen, together all masks.
    turns = [masks.seen[batch][1] for batch in range(16)]
    assert [len(list(group)) for _, group in itertools.groupby(turns)] == [4] * 4
    assert sorted(number for turn in turns[::4] for number in turn) == list(range(16))
    for batch in (2, 6, 12):
        settings: dict[str, Any] = {
            "load_path": str(tmp_path / "straight" / f"{batch}.pt"),
            "device_train_microbatch_size": 3,
        }
        resumed, theirs = train(tmp_path / f"{batch}", [method()], **settings)
        assert theirs.seen == {b: m for b, m in masks.seen.items() if b >= batch}
        torch.testing.assert_close(
            resumed.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0
        )
    with pytest.warns(UserWarning, match="GyroDropout"):
        brought, _ = train(tmp_path / "brought", [], **settings)
    torch.testing.assert_close(
        brought.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0
    )
    # Another seed of the script's makes no other masks.
    with pytest.warns(UserWarning, match="seed 3"):
        _, other = train(tmp_path / "other", [method()], **{**settings, "seed": 4})
    assert other.seen == {b: m for b, m in masks.seen.items() if b >= 12}


class _Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(DATA)


@pytest.mark.parametrize("duration", ["8ba", "48sp"])
def test_loaders_need_no_length(tmp_path: Path, duration: str) -> None:
    _, masks = train(
        tmp_path,
        [GyroDropout(sigma=8, tau=4)],
        train_dataloader=DataLoader(_Endless(), 6),
        max_duration=duration,
    )
    turns = [masks.seen[batch][1] for batch in range(8)]
    assert [len(list(group)) for _, group in itertools.groupby(turns)] == [4, 4]


def test_it_learns_and_its_weights_fit_the_plain_model(tmp_path: Path) -> None:
    state, _ = train(tmp_path, [GyroDropout(0.1, sigma=16, tau=2)], max_duration="8ep")
    batch = tuple(DATA.tensors)
    plain = network()
    plain.load_state_dict(state.model.state_dict())
    with torch.no_grad():
        out = state.model.eval()(batch)
        torch.testing.assert_close(plain.eval()(batch), out, rtol=0, atol=0)
        assert float(plain.loss(out, batch)) < 0.5 < 0.69


def test_what_it_does_is_reported(make_run: Callable[..., Any]) -> None:
    method = GyroDropout(sigma=10, tau=2)
    run = make_run(nn.Sequential(nn.Dropout(), nn.Dropout()), [method], max_duration="10ba")
    run.fire(Event.INIT)
    assert run.recorder.hyperparameters == {"gyro_dropout/num_layers": 2}
    seeds = method.state_dict()["seeds"]
    assert len(set(seeds)) == 2
    acted = []
    for batch in range(10):
        run.at(batch)
        if method.match(Event.BATCH_START, run.state):
            acted.append(batch)
        run.fire(Event.BATCH_START)
    assert acted == [2, 4, 6, 8]
    assert run.recorder.metrics == [{"gyro_dropout/window": n} for n in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"p": 1.0}, ValueError),
        ({"p": -0.1}, ValueError),
        ({"p": "0.5"}, TypeError),
        ({"sigma": 0}, ValueError),
        ({"sigma": 2.5}, TypeError),
        ({"tau": 0}, ValueError),
        ({"tau": 257}, ValueError),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception]) -> None:
    name = next(iter(arguments))
    with pytest.raises(error, match=name):
        GyroDropout(**arguments)
    with pytest.raises(error, match=name):
        apply_gyro_dropout(nn.Sequential(nn.Dropout()), 1, 1, **arguments)


def test_lengths_that_cannot_be_are_named() -> None:
    for lengths in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="iters_per_epoch" if lengths[1] else "max_epoch"):
            apply_gyro_dropout(nn.Sequential(nn.Dropout()), *lengths)
    with pytest.raises(ValueError, match="belong together"):
        GyroDropoutLayer(3, None)
