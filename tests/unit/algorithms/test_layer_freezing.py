"""Layer freezing: which layers, that nothing moves them, and exact resumption at any time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.algorithms import EMA, GradientClipping, LayerFreezing
from composer.algorithms.warnings import NoEffectWarning
from composer.core import Callback, Event, Logger, State
from composer.core.timestamp import Timestamp
from composer.functional import freeze_layers
from composer.models import ComposerClassifier
from composer.optim import DecoupledAdamW, DecoupledSGDW
from composer.utils import dist

Optimizers = Callable[[Any], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimizers] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "decoupled sgd": lambda p: DecoupledSGDW(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "decoupled adamw": lambda p: DecoupledAdamW(p, lr=0.01, weight_decay=1e-4),
}


def layers(count: int = 5) -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(2, 2) for _ in range(count)])


def frozen(model: nn.Module) -> list[bool]:
    return [not p.requires_grad for p in model.parameters()]


@pytest.mark.parametrize(
    ("now", "start", "level", "depth", "share"),
    [
        (0.0, 0.0, 1.0, 0, 0.0),
        (0.5, 0.5, 1.0, 0, 0.0),
        (0.75, 0.5, 1.0, 2, 0.5),
        (0.75, 0.5, 0.5, 1, 0.25),
        (0.7, 0.5, 1.0, 1, 0.4),
        (1.0, 0.5, 1.0, 4, 1.0),
        (3.0, 0.5, 1.0, 4, 1.0),
        (0.3, 0.0, 1.0, 1, 0.3),
        (1.0, 0.9, 0.0, 0, 0.0),
    ],
)
def test_depth_grows_linearly_with_time(
    now: float, start: float, level: float, depth: int, share: float
) -> None:
    model = layers()
    found = freeze_layers(model, None, now, freeze_start=start, freeze_level=level)
    assert found == (depth, pytest.approx(share))
    assert frozen(model) == [True] * 2 * depth + [False] * 2 * (5 - depth)


def test_whole_depths_are_not_lost_to_rounding() -> None:
    depths = [freeze_layers(layers(11), None, n / 10, 0.0, 1.0)[0] for n in range(11)]
    assert depths == list(range(11))


def test_layers_without_parameters_do_not_count() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Dropout(), nn.Linear(2, 2), nn.ReLU())
    assert freeze_layers(model, None, 1.0) == (1, 1.0)
    assert frozen(model) == [True, True, False, False]


def test_what_the_last_layer_uses_stays_trainable() -> None:
    """Tied weights: the first layer's matrix is the last one's."""
    model = nn.Sequential(nn.Embedding(3, 3), nn.Linear(3, 3), nn.Linear(3, 3, bias=False))
    model[2].weight = model[0].weight
    assert freeze_layers(model, None, 1.0) == (2, 1.0)
    assert model[0].weight.requires_grad
    assert not model[1].weight.requires_grad


def test_layers_that_the_user_froze_leave_the_last_trainable_one() -> None:
    model = layers()
    for parameter in model[3:].parameters():
        parameter.requires_grad_(False)
    for now in (0.75, 1.0, 1.0):
        freeze_layers(model, None, now)
    assert [layer.weight.requires_grad for layer in model] == [False, False, True, False, False]


def test_old_gradients_are_gone_and_groups_stay() -> None:
    model = layers(3)
    optimizer = OPTIMIZERS["sgd"]([{"params": [p]} for p in model.parameters()])
    model(torch.ones(1, 2)).sum().backward()
    before = [group["params"][0] for group in optimizer.param_groups]
    freeze_layers(model, [optimizer], 1.0)
    assert all(p.grad is None for p in model[:2].parameters())
    assert all(p.grad is not None for p in model[2].parameters())
    assert all(a is g["params"][0] for a, g in zip(before, optimizer.param_groups, strict=True))


X = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(X, (X.sum(1) > 0).long())


def network() -> ComposerClassifier:
    torch.manual_seed(0)
    parts = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh()) for _ in range(2)]
    return ComposerClassifier(nn.Sequential(*parts, nn.Dropout(0.1), nn.Linear(4, 2)), 2)


class _Weights(Callback):
    """The weights and what is frozen after each batch."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.seen: dict[int, list[torch.Tensor]] = {}
        self.frozen: dict[int, int] = {}

    def before_forward(self, state: State, logger: Logger) -> None:
        self.frozen[int(state.timestamp.batch)] = sum(frozen(state.model))

    def batch_end(self, state: State, logger: Logger) -> None:
        copies = [p.detach().clone() for p in state.model.parameters()]
        self.seen[int(state.timestamp.batch)] = copies
        if int(state.timestamp.batch) == self.stop_at:
            state.stop_training()


def train(
    folder: Path | None,
    optimizer: str = "sgd",
    load_path: Path | None = None,
    stop_at: int | None = None,
    **settings: Any,
) -> tuple[State, _Weights]:
    model, watch = network(), _Weights(stop_at)
    settings = {"algorithms": [LayerFreezing(0.5, 1.0)], "save_interval": "1ba", **settings}
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(DATA, 6, shuffle=True),
        max_duration="6ep",
        optimizers=OPTIMIZERS[optimizer](model.parameters()),
        save_folder=None if folder is None else str(folder),
        save_filename="{batch}.pt",
        autoresume=stop_at is not None,
        run_name="run",
        load_path=None if load_path is None else str(load_path),
        callbacks=[watch],
        seed=3,
        progress_bar=False,
        **settings,
    )
    trainer.fit()
    trainer.close()
    return trainer.state, watch


def check_that_nothing_moves_frozen_weights(watch: _Weights) -> None:
    """Of four layers before the last one: epochs 4 and 5 of 6 freeze a third and two thirds."""
    assert [watch.frozen[batch] for batch in range(24)] == [0] * 16 + [2] * 4 + [4] * 4
    for batch in range(17, 25):
        moved = [
            not torch.equal(a, b)
            for a, b in zip(watch.seen[batch - 1], watch.seen[batch], strict=True)
        ]
        count = 2 if batch <= 20 else 4
        assert not any(moved[:count])
        assert all(moved[count:])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_frozen_weights_do_not_move_and_runs_resume_at_any_time(
    tmp_path: Path, optimizer: str
) -> None:
    straight, watch = train(tmp_path / "straight", optimizer)
    check_that_nothing_moves_frozen_weights(watch)
    # Before, at both edges of, inside and after freezing; 16 was saved before its epoch ended.
    for batch in (5, 15, 16, 18, 20, 22):
        resumed, theirs = train(
            tmp_path / f"{batch}", optimizer, tmp_path / "straight" / f"{batch}.pt"
        )
        torch.testing.assert_close(
            resumed.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0
        )
        assert theirs.frozen == {b: n for b, n in watch.frozen.items() if b >= batch}


@pytest.mark.parametrize(("stop_at", "interval"), [(16, "1ep"), (16, "1ba"), (18, "1ba")])
def test_a_run_that_is_stopped_goes_on_exactly(tmp_path: Path, stop_at: int, interval: str) -> None:
    """Also where the end of an epoch that freezes comes after the stop."""
    straight, _ = train(None)
    cut, _ = train(tmp_path, stop_at=stop_at, save_interval=interval)
    assert sum(frozen(cut.model)) == 2
    resumed, _ = train(tmp_path, stop_at=100, save_interval=interval)
    torch.testing.assert_close(
        resumed.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0
    )


@pytest.mark.parametrize("other", ["norm", "value", "adaptive", "ema", "fp16"])
def test_it_goes_with_what_touches_gradients_and_weights(other: str) -> None:
    methods: list[Any] = [LayerFreezing(0.5, 1.0)]
    if other == "ema":
        methods.append(EMA(half_life="2ba"))
    elif other != "fp16":
        methods.append(GradientClipping(other, 0.1))
    _, watch = train(
        None, "adamw", algorithms=methods, precision="amp_fp16" if other == "fp16" else "fp32"
    )
    check_that_nothing_moves_frozen_weights(watch)


def test_an_average_of_weights_resumes_with_it(tmp_path: Path) -> None:
    def methods() -> list[Any]:
        return [LayerFreezing(0.2, 1.0), EMA(half_life="4ba", ema_start="10ba")]

    straight, _ = train(tmp_path / "straight", algorithms=methods())
    load_path = tmp_path / "straight" / "18.pt"
    resumed, _ = train(tmp_path / "cut", load_path=load_path, algorithms=methods())
    for state in (straight, resumed):
        state.algorithms[1].get_ema_model(state.model)
    torch.testing.assert_close(
        resumed.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0
    )


def test_statistics_of_frozen_layers_go_on_as_torch_has_it(tmp_path: Path) -> None:
    state, _ = train(None)
    assert all(
        int(m.num_batches_tracked) == 24
        for m in state.model.modules()
        if isinstance(m, nn.BatchNorm1d)
    )


def test_it_learns() -> None:
    batch = tuple(DATA.tensors)
    before, (state, _) = network().eval(), train(None)
    after = state.model.eval()
    with torch.no_grad():
        assert after.loss(after(batch), batch) < 0.9 * before.loss(before(batch), batch)


def test_what_it_does_is_reported(make_run: Callable[..., Any]) -> None:
    method = LayerFreezing(0.5)
    run = make_run(layers(), [method], max_duration="8ep")
    run.fire(Event.INIT, Event.FIT_START)
    for epoch in range(1, 9):
        run.state.timestamp = Timestamp(epoch=epoch, batch=epoch)
        run.fire(Event.BATCH_END, Event.EPOCH_END)
    # The end of the run freezes nothing more.
    assert run.recorder.metrics == [
        {"layer_freezing/layers_frozen": n, "layer_freezing/percentage_frozen": n / 4}
        for n in (1, 2, 3)
    ]
    assert sum(frozen(run.state.model)) == 6


def test_a_second_trainer_begins_anew(make_run: Callable[..., Any]) -> None:
    method = LayerFreezing()
    method.load_state_dict({"depth": 2})
    run = make_run(layers(), [method])
    run.fire(Event.INIT, Event.FIT_START)
    assert not any(frozen(run.state.model))


def _on_two_ranks() -> tuple[list[torch.Tensor], list[torch.Tensor], int]:
    model, watch = network(), _Weights()
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(DATA, 6, sampler=dist.get_sampler(DATA, shuffle=True)),
        max_duration="6ep",
        optimizers=OPTIMIZERS["sgd"](model.parameters()),
        algorithms=[LayerFreezing(0.5)],
        callbacks=[watch],
        seed=3,
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    return watch.seen[10], watch.seen[12], watch.frozen[11]


def test_several_ranks_freeze_together(ranks: Any) -> None:
    first, second = ranks.run(_on_two_ranks)
    before, after, count = first
    assert count == 4
    torch.testing.assert_close(before[:4], after[:4], rtol=0, atol=0)
    assert not torch.equal(before[-1], after[-1])
    torch.testing.assert_close(after, second[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"freeze_start": 1.0}, ValueError),
        ({"freeze_start": -0.1}, ValueError),
        ({"freeze_start": "0.5dur"}, TypeError),
        ({"freeze_level": 1.1}, ValueError),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception]) -> None:
    name = next(iter(arguments))
    with pytest.raises(error, match=name):
        LayerFreezing(**arguments)
    with pytest.raises(error, match=name):
        freeze_layers(layers(), None, 0.5, **arguments)


def test_times_before_the_run_are_refused() -> None:
    with pytest.raises(ValueError, match="current_duration"):
        freeze_layers(layers(), None, -1.0)


def test_optimizers_that_move_everything_are_refused_at_once(make_run: Callable[..., Any]) -> None:
    model = layers()
    optimizer = torch.optim.LBFGS(model.parameters())
    run = make_run(model, [LayerFreezing()], optimizers=optimizer)
    with pytest.raises(ValueError, match="LBFGS"):
        run.fire(Event.INIT)
    with pytest.raises(ValueError, match="LBFGS"):
        freeze_layers(model, optimizer, 0.1)


def test_nothing_to_freeze_is_said(make_run: Callable[..., Any]) -> None:
    run = make_run(layers(1), [LayerFreezing()])
    with pytest.warns(NoEffectWarning, match="LayerFreezing"):
        run.fire(Event.INIT)
