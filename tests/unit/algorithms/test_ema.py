"""EMA: the recursion, which weights are where, and exact resumption."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from composer.algorithms import EMA
from composer.algorithms.ema import EMAParameters, compute_ema
from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.timestamp import Timestamp


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def snapshot(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


class Trained:
    """A run whose optimizer steps are real and whose events are fired by hand."""

    def __init__(self, make_run: Callable[..., Any], method: EMA, seed: int = 0, **fields: Any):
        torch.manual_seed(seed)
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.method = method
        self.run = make_run(self.model, [method], optimizers=self.optimizer, **fields)
        self.batch = 0
        self.seen: list[dict[str, torch.Tensor]] = []

    def step(self) -> None:
        """One batch, up to and including BATCH_END."""
        self.run.fire(Event.BEFORE_DATALOADER, Event.AFTER_DATALOADER, Event.BATCH_START)
        generator = torch.Generator().manual_seed(self.batch)
        loss = self.model(torch.randn(6, 3, generator=generator)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.batch += 1
        self.run.at(self.batch)
        self.seen.append(snapshot(self.model))
        self.run.fire(Event.BATCH_END)


def averages(
    seen: list[dict[str, torch.Tensor]], decay: float, first: int, interval: int = 1
) -> dict[str, torch.Tensor]:
    """The recursion by hand: copied at batch ``first``, then blended every ``interval`` batches."""
    average = {name: value.clone() for name, value in seen[first - 1].items()}
    for batch in range(first + 1, len(seen) + 1):
        if batch % interval:
            continue
        for name, value in seen[batch - 1].items():
            if value.is_floating_point():
                average[name] = decay * average[name] + (1 - decay) * value
            else:
                average[name] = value.clone()
    return average


def average_of(method: EMA, model: nn.Module) -> dict[str, torch.Tensor]:
    return snapshot(method.get_ema_model(copy.deepcopy(model)))


@pytest.mark.parametrize(
    ("arguments", "decay", "first", "interval"),
    [
        ({"half_life": "2ba"}, 0.5**0.5, 1, 1),
        ({"half_life": "4ba", "update_interval": "2ba"}, 0.5**0.5, 1, 2),
        ({"smoothing": 0.9}, 0.9, 1, 1),
        ({"half_life": None, "smoothing": 0.8, "update_interval": "3ba"}, 0.8, 1, 3),
        ({"smoothing": 0.9, "ema_start": "0.4dur"}, 0.9, 4, 1),
        ({"smoothing": 0.9, "ema_start": "6ba"}, 0.9, 6, 1),
    ],
)
def test_recursion_by_hand(
    make_run: Callable[..., Any],
    arguments: dict[str, Any],
    decay: float,
    first: int,
    interval: int,
) -> None:
    trained = Trained(make_run, EMA(**arguments))
    assert trained.method.decay == pytest.approx(decay)
    for _ in range(9):
        trained.step()
    found = average_of(trained.method, trained.model)
    expected = averages(trained.seen, decay, first, interval)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    assert_same(snapshot(trained.model), trained.seen[-1])


def test_epochs(make_run: Callable[..., Any]) -> None:
    run = make_run(nn.Linear(1, 1, bias=False), [EMA(half_life="1ep")], max_duration="4ep")
    weight = run.state.model.weight
    for epoch, value in enumerate([8.0, 4.0, 2.0], start=1):
        weight.data.fill_(value)
        run.state.timestamp = Timestamp(epoch=epoch, batch=epoch * 3)
        run.fire(Event.BATCH_END, Event.EPOCH_END)
    found = run.state.algorithms[0].get_ema_model(nn.Linear(1, 1, bias=False)).weight
    assert float(found.detach()) == 4.0  # 8, then 6, then 4


def test_compute_ema_on_modules() -> None:
    model, average = network(), network()
    model[0].weight.requires_grad_(False)
    average[0].weight.requires_grad_(False)
    model(torch.randn(5, 3))
    expected = {}
    for name, value in average.state_dict().items():
        live = model.state_dict()[name]
        blended = 0.75 * value + 0.25 * live
        expected[name] = blended if value.is_floating_point() else live.clone()
    expected["0.weight"] = average[0].weight.clone()  # frozen
    before = snapshot(model)
    compute_ema(model, average, smoothing=0.75)
    for name, value in expected.items():
        torch.testing.assert_close(average.state_dict()[name], value)
    assert_same(snapshot(model), before)
    with pytest.raises(ValueError, match="smoothing"):
        compute_ema(model, average, smoothing=1.5)


def test_swap_keeps_parameter_objects_and_values() -> None:
    model = network().to(memory_format=torch.channels_last)
    stored = EMAParameters(model)
    for value in stored.named_parameters_dict.values():
        value.add_(1.0)
    parameters = list(model.parameters())
    before = snapshot(model)
    stored.swap_params(model)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert not torch.equal(model[0].weight, before["0.weight"])
    stored.swap_params(model)
    assert_same(snapshot(model), before)


def test_other_models_are_named() -> None:
    with pytest.raises(ValueError, match="weight"):
        EMAParameters(nn.Linear(1, 1)).swap_params(nn.ReLU())


def test_names_do_not_depend_on_wrappers() -> None:
    class Compiled(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self._orig_mod = inner

    model = network()
    stored = EMAParameters(model)
    stored.swap_params(Compiled(model))
    assert list(stored.named_parameters_dict) == [n for n, _ in model.named_parameters()]


def test_evaluation_sees_the_average_and_training_goes_on(make_run: Callable[..., Any]) -> None:
    trained, plain = Trained(make_run, EMA(smoothing=0.5)), Trained(make_run, EMA(smoothing=0.5))
    for index in range(6):
        trained.step()
        plain.step()
        expected = average_of(trained.method, trained.model)
        if index % 2:
            for start, end in (
                (Event.EVAL_START, Event.EVAL_END),
                (Event.PREDICT_START, Event.PREDICT_END),
            ):
                trained.run.fire(start)
                assert_same(snapshot(trained.model), expected)
                trained.run.fire(end)
                assert_same(snapshot(trained.model), trained.seen[-1])
    assert_same(snapshot(trained.model), snapshot(plain.model))
    assert_same(average_of(trained.method, trained.model), average_of(plain.method, plain.model))


def test_evaluation_before_the_first_average_uses_live_weights(
    make_run: Callable[..., Any],
) -> None:
    trained = Trained(make_run, EMA(smoothing=0.5, ema_start="6ba"))
    for index in range(9):
        trained.step()
        trained.run.fire(Event.EVAL_START)
        is_live = all(
            torch.equal(value, trained.seen[-1][name])
            for name, value in snapshot(trained.model).items()
        )
        assert is_live == (index + 1 <= 6)  # at 6 the average is a copy of the live weights
        trained.run.fire(Event.EVAL_END)


def test_interrupted_evaluation(make_run: Callable[..., Any]) -> None:
    trained = Trained(make_run, EMA(smoothing=0.5))
    for _ in range(3):
        trained.step()
    trained.run.fire(Event.EVAL_START)  # the evaluation raises, and the user calls fit again
    trained.run.fire(Event.FIT_START)
    assert_same(snapshot(trained.model), trained.seen[-1])
    trained.run.fire(Event.EVAL_START, Event.EVAL_START, Event.EVAL_END)
    assert_same(snapshot(trained.model), trained.seen[-1])


class Saver(Callback):
    """Writes model and method at some batches, as a checkpoint callback does."""

    def __init__(self, batches: set[int]) -> None:
        self.asked: list[int] = []
        self.saved: list[bytes] = []
        self.save_interval = _Due(batches)

    def batch_checkpoint(self, state: Any, logger: Any) -> None:
        if self.save_interval(state, Event.BATCH_CHECKPOINT):
            buffer = io.BytesIO()
            parts = {
                "model": state.model.state_dict(),
                "optimizer": state.optimizers[0].state_dict(),
                "ema": state.algorithms[0].state_dict(),
                "batch": int(state.timestamp.batch),
            }
            torch.save(parts, buffer)
            self.saved.append(buffer.getvalue())


class _Due:
    """An interval that answers yes only once per batch, as a stateful one may."""

    def __init__(self, batches: set[int]) -> None:
        self.batches = batches
        self.last = -1

    def __call__(self, state: Any, event: Event) -> bool:
        batch = int(state.timestamp.batch)
        if event is not Event.BATCH_CHECKPOINT or batch not in self.batches or batch == self.last:
            return False
        self.last = batch
        return True


def checkpoint(trained: Trained, saver: Saver) -> None:
    trained.run.fire(Event.BATCH_CHECKPOINT)
    saver.batch_checkpoint(trained.run.state, trained.run.logger)


def test_checkpoints_hold_both_sets_and_resume_exactly(make_run: Callable[..., Any]) -> None:
    saver = Saver({4})
    straight = Trained(make_run, EMA(smoothing=0.7), callbacks=[saver])
    for _ in range(8):
        straight.step()
        at_save = average_of(straight.method, straight.model)
        checkpoint(straight, saver)
        is_average = straight.method.ema_weights_active
        assert is_average == (straight.batch == 4)
        if is_average:
            assert_same(snapshot(straight.model), at_save)
    straight.run.fire(Event.EPOCH_END, Event.FIT_END)

    assert len(saver.saved) == 1  # asking did not use the interval up
    saved = torch.load(io.BytesIO(saver.saved[0]), weights_only=True)
    assert set(saved["ema"]) == {"ema_started", "ema_weights_active", "training_weights"}
    training = saved["ema"]["training_weights"]["named_parameters_dict"]
    for name, value in training.items():
        assert torch.equal(value, straight.seen[3][name])

    resumed = Trained(make_run, EMA(smoothing=0.7), seed=99)
    resumed.model.load_state_dict(saved["model"])
    resumed.optimizer.load_state_dict(saved["optimizer"])
    resumed.method.load_state_dict(saved["ema"])
    resumed.batch = saved["batch"]
    resumed.run.at(resumed.batch)
    resumed.run.fire(Event.FIT_START)
    assert_same(snapshot(resumed.model), straight.seen[3])
    for _ in range(4):
        resumed.step()
    resumed.run.fire(Event.FIT_END)
    assert_same(snapshot(resumed.model), snapshot(straight.model))
    assert_same(
        average_of(resumed.method, resumed.model), average_of(straight.method, straight.model)
    )


@pytest.mark.parametrize(
    "following",
    [
        Event.BEFORE_DATALOADER,
        Event.BATCH_START,
        Event.EPOCH_START,
        Event.EPOCH_END,
        Event.ITERATION_START,
        Event.ITERATION_END,
        Event.FIT_END,
        Event.FIT_START,
        Event.EVAL_END,
    ],
)
def test_whatever_follows_a_checkpoint_sees_the_trained_weights(
    make_run: Callable[..., Any], following: Event
) -> None:
    saver = Saver({2})
    trained = Trained(make_run, EMA(smoothing=0.7), callbacks=[saver])
    trained.step()
    trained.step()
    checkpoint(trained, saver)
    assert trained.method.ema_weights_active
    trained.run.fire(following)
    assert not trained.method.ema_weights_active
    assert_same(snapshot(trained.model), trained.seen[-1])


def test_saving_at_other_times_keeps_both_sets_too(make_run: Callable[..., Any]) -> None:
    trained = Trained(make_run, EMA(smoothing=0.7))
    for _ in range(3):
        trained.step()
    state = trained.method.state_dict()
    assert set(state) == {"ema_started", "ema_weights_active", "averaged_weights"}
    other = EMA(smoothing=0.7)
    other.load_state_dict(copy.deepcopy(state))
    assert_same(average_of(other, trained.model), average_of(trained.method, trained.model))


def test_state_of_0_32_can_be_read(make_run: Callable[..., Any]) -> None:
    trained = Trained(make_run, EMA(smoothing=0.7))
    for _ in range(3):
        trained.step()
    old = {
        "ema_model": trained.method.state_dict()["averaged_weights"],
        "ema_weights_active": False,
        "ema_started": True,
        "repr": "EMA()",
    }
    other = EMA(smoothing=0.7)
    other.load_state_dict(old)
    assert_same(average_of(other, trained.model), average_of(trained.method, trained.model))


def test_models_by_name(make_run: Callable[..., Any]) -> None:
    trained = Trained(make_run, EMA(smoothing=0.7))
    for _ in range(3):
        trained.step()
    average = average_of(trained.method, trained.model)
    trained.run.fire(Event.EVAL_START)
    assert trained.method.get_ema_model(trained.model) is trained.model
    assert_same(snapshot(trained.model), average)
    twin = trained.method.get_training_model(copy.deepcopy(trained.model))
    assert_same(snapshot(twin), trained.seen[-1])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"half_life": None}, ValueError, "both None"),
        ({"half_life": "10ba", "smoothing": 0.9}, ValueError, "exclude each other"),
        ({"smoothing": 1.0}, ValueError, "smoothing"),
        ({"smoothing": "0.9"}, TypeError, "smoothing"),
        ({"half_life": "0ba"}, ValueError, "half_life"),
        ({"half_life": "10tok"}, ValueError, "half_life"),
        ({"half_life": "10ba", "update_interval": "1ep"}, ValueError, "same unit"),
        ({"update_interval": "0ba"}, ValueError, "update_interval"),
        ({"ema_start": "1.5dur"}, ValueError, "ema_start"),
        ({"ema_start": "10sp"}, ValueError, "ema_start"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        EMA(**arguments)


def test_tensors_that_modules_exchange_are_found() -> None:
    model = network()
    average = EMAParameters(model)
    average.update(model, 0.5)
    model.double()
    average.move_params_to_device(model)
    for stored in (average.named_parameters_dict, average.named_buffers_dict):
        for name, value in stored.items():
            stored[name] = value.double() if value.is_floating_point() else value
    # A buffer that is bound anew, as some modules do in every forward pass.
    model[1].running_mean = torch.ones(4, dtype=torch.float64)
    average.update(model, 0.5)
    assert average.named_buffers_dict["1.running_mean"].tolist() == [0.5] * 4
    twin = copy.deepcopy(average)
    twin.update(network().double(), 0.0)
    assert average.named_buffers_dict["1.running_mean"].tolist() == [0.5] * 4


def test_weights_that_are_used_twice_are_averaged_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    average = EMAParameters(model)
    assert list(average.named_parameters_dict) == [name for name, _ in model.named_parameters()]
    model[0].weight.data.add_(1.0)
    before = model[0].weight.detach().clone()
    average.swap_params(model)
    assert model[1].weight is model[0].weight
    torch.testing.assert_close(model[0].weight.detach(), before - 1.0)
