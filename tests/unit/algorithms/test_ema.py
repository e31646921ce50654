"""EMA: the recursion, which weights are where, and exact resumption."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from composer.algorithms import EMA
from composer.algorithms.ema import EMAParameters, compute_ema
from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.timestamp import Timestamp
from composer.trainer import Trainer
from composer_testing.tiny import TinyModel, loader


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
            with trained.method.evaluating(trained.run.state):
                assert_same(snapshot(trained.model), expected)
                with trained.method.saving(trained.run.state):
                    assert_same(snapshot(trained.model), expected)
                assert_same(snapshot(trained.model), expected)
            assert_same(snapshot(trained.model), trained.seen[-1])
    assert_same(snapshot(trained.model), snapshot(plain.model))
    assert_same(average_of(trained.method, trained.model), average_of(plain.method, plain.model))


def test_evaluation_before_the_first_average_uses_live_weights(
    make_run: Callable[..., Any],
) -> None:
    trained = Trained(make_run, EMA(smoothing=0.5, ema_start="6ba"))
    for index in range(9):
        trained.step()
        with trained.method.evaluating(trained.run.state):
            is_live = all(
                torch.equal(value, trained.seen[-1][name])
                for name, value in snapshot(trained.model).items()
            )
        assert is_live == (index + 1 <= 6)  # at 6 the average is a copy of the live weights


def test_a_model_that_does_not_fit_is_left_as_it_was() -> None:
    stored = EMAParameters(network())
    model = nn.Sequential(nn.Linear(3, 4), nn.Identity(), nn.Linear(4, 2))
    stored.named_parameters_dict = {
        name: value for name, value in stored.named_parameters_dict.items() if name[0] != "1"
    }
    before = snapshot(model)
    with pytest.raises(ValueError, match="running_mean"):
        stored.swap_params(model)
    assert_same(snapshot(model), before)


# ---- in the trainer ----


class Normed(TinyModel):
    """With statistics, which are averaged, and a counter, which is copied."""

    def __init__(self) -> None:
        super().__init__(dropout=0.3)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.linear(self.dropout(self.norm(batch[0])))


class Watch(Callback):
    """Notes the weights after each batch and inside each evaluation, and may stop the latter."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.trained: list[dict[str, torch.Tensor]] = []
        self.evaluated: dict[int, list[dict[str, torch.Tensor]]] = {}
        self.fail_at = fail_at

    def batch_end(self, state: Any, logger: Any) -> None:
        self.trained.append(snapshot(state.model))

    def _note(self, state: Any) -> None:
        self.evaluated.setdefault(int(state.timestamp.batch), []).append(snapshot(state.model))

    def eval_start(self, state: Any, logger: Any) -> None:
        self._note(state)

    def eval_batch_end(self, state: Any, logger: Any) -> None:
        if int(state.timestamp.batch) == self.fail_at:
            raise RuntimeError("the evaluation broke")

    def eval_end(self, state: Any, logger: Any) -> None:
        self._note(state)

    def predict_end(self, state: Any, logger: Any) -> None:
        self._note(state)


class Training:
    """A whole training, made anew as after a restart."""

    def __init__(self, method: EMA | None, folder: Path | None = None, **settings: Any) -> None:
        torch.manual_seed(99 if "load_path" in settings else 7)
        self.method, self.model = method, Normed()
        self.watch = settings.pop("watch", None) or Watch()
        if folder is not None:
            settings.update(save_folder=str(folder), save_interval="1ba")
        self.trainer = Trainer(
            **{
                "model": self.model,
                "algorithms": method,
                "callbacks": self.watch,
                "optimizers": torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9),
                "train_dataloader": loader(),
                "eval_dataloader": loader(8, shuffle=False),
                "eval_interval": "2ba",
                "max_duration": "9ba",
                "progress_bar": False,
                "seed": 3,
                **settings,
            }
        )

    def fit(self) -> Training:
        self.trainer.fit()
        return self

    @property
    def average(self) -> dict[str, torch.Tensor]:
        assert self.method is not None
        return average_of(self.method, self.model)


@pytest.fixture
def train() -> Iterator[Callable[..., Training]]:
    made: list[Training] = []

    def make(*arguments: Any, **settings: Any) -> Training:
        made.append(Training(*arguments, **settings))
        return made[-1]

    yield make
    for one in made:
        one.trainer.close()


def read(path: str | Path) -> dict[str, Any]:
    return torch.load(path, weights_only=True)


def assert_equal(a: Any, b: Any) -> None:
    """Compare what checkpoints hold, tensors to the bit."""
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        for one, other in zip(a, b, strict=True):
            assert_equal(one, other)
    else:
        assert a == b


def test_averages_in_the_trainer(train: Callable[..., Training], tmp_path: Path) -> None:
    run = train(EMA(smoothing=0.7, ema_start="3ba"), tmp_path).fit()
    plain = train(None).fit()
    for seen, expected in zip(run.watch.trained, plain.watch.trained, strict=True):
        assert_same(seen, expected)  # neither averaging nor evaluating changes the training
    assert_same(snapshot(run.model), run.watch.trained[-1])
    for name, value in averages(run.watch.trained, 0.7, 3).items():
        torch.testing.assert_close(run.average[name], value)
    for batch, noted in run.watch.evaluated.items():
        seen = run.watch.trained[:batch]
        expected = averages(seen, 0.7, 3) if batch >= 3 else seen[-1]
        for during in noted:
            for name, value in expected.items():
                torch.testing.assert_close(during[name], value)
    run.trainer.predict(loader(8, shuffle=False))
    assert_same(run.watch.evaluated[9][-1], run.average)
    assert_same(snapshot(run.model), run.watch.trained[-1])


def test_interrupted_runs_continue_exactly(train: Callable[..., Training], tmp_path: Path) -> None:
    straight = train(EMA(smoothing=0.7, ema_start="3ba"), tmp_path).fit()
    for done in range(1, 9):
        (path,) = tmp_path.glob(f"ep*-ba{done}-rank0.pt")
        resumed = train(EMA(smoothing=0.7, ema_start="3ba"), load_path=str(path))
        assert_same(snapshot(resumed.model), straight.watch.trained[done - 1])
        resumed.fit()
        for seen, expected in zip(
            resumed.watch.trained, straight.watch.trained[done:], strict=True
        ):
            assert_same(seen, expected)
        for batch, noted in resumed.watch.evaluated.items():
            for seen, expected in zip(noted, straight.watch.evaluated[batch], strict=True):
                assert_same(seen, expected)
        assert_same(resumed.average, straight.average)


def test_checkpoints_hold_both_sets_however_they_are_written(
    train: Callable[..., Training], tmp_path: Path
) -> None:
    run = train(EMA(smoothing=0.7), tmp_path / "saver").fit()
    by_hand = run.trainer.save_checkpoint(str(tmp_path / "by-hand.pt"))
    assert by_hand is not None
    files = [read(tmp_path / "saver" / "ep1-ba9-rank0.pt"), read(by_hand)]
    for file in files:
        assert_same(file["state"]["model"], run.average)
        (method,) = file["state"]["algorithms"]
        assert set(method["state"]) == {"ema_started", "ema_weights_active", "training_weights"}
        stored = method["state"]["training_weights"]
        weights = {**stored["named_parameters_dict"], **stored["named_buffers_dict"]}
        assert_same({name: weights[name] for name in run.model.state_dict()}, snapshot(run.model))
    for file in files:  # which the saver lists in itself
        file["state"].pop("callbacks")
    assert_equal(files[0], files[1])
    weights_only = run.trainer.save_checkpoint(str(tmp_path / "w.pt"), weights_only=True)
    assert weights_only is not None
    assert_same(read(weights_only)["state"]["model"], run.average)
    assert_same(snapshot(run.model), run.watch.trained[-1])
    loaded = train(None, load_path=by_hand, load_weights_only=True)
    assert_same(snapshot(loaded.model), run.average)


def test_an_evaluation_that_raises_gives_the_weights_back(
    train: Callable[..., Training], tmp_path: Path
) -> None:
    straight = train(EMA(smoothing=0.7)).fit()
    run = train(EMA(smoothing=0.7), watch=Watch(fail_at=4))
    with pytest.raises(RuntimeError, match="the evaluation broke"):
        run.fit()
    assert not run.method.ema_weights_active
    assert_same(snapshot(run.model), run.watch.trained[-1])
    assert not any(
        torch.equal(v, run.average[k]) for k, v in snapshot(run.model).items() if v.dim()
    )
    run.fit()
    assert_same(snapshot(run.model), straight.watch.trained[-1])
    assert_same(run.average, straight.average)


def test_a_checkpoint_that_cannot_be_written_gives_the_weights_back(
    train: Callable[..., Training], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(EMA(smoothing=0.7)).fit()

    def full(*unused: Any) -> None:
        assert_same(snapshot(run.model), expected)
        raise OSError("no space")

    expected = run.average
    monkeypatch.setattr("torch.save", full)
    with pytest.raises(OSError, match="no space"):
        run.trainer.save_checkpoint(str(tmp_path / "a.pt"))
    assert_same(snapshot(run.model), run.watch.trained[-1])


# ---- one run, one average ----


def test_a_second_average_is_refused(train: Callable[..., Training]) -> None:
    same = EMA(smoothing=0.5)
    for methods in ([EMA(smoothing=0.7), EMA(smoothing=0.9)], [same, same]):
        with pytest.raises(ValueError, match="room for one EMA, but algorithms holds 2"):
            train(methods)


def test_a_second_trainer_starts_a_new_average(train: Callable[..., Training]) -> None:
    method = EMA(smoothing=0.7)
    first = train(method).fit()
    expected = first.average
    again = train(method)
    assert method.state_dict() == {"ema_started": False, "ema_weights_active": False}
    again.fit()
    assert_same(again.average, expected)


def test_weights_of_a_checkpoint_that_is_resumed_without(train: Callable[..., Training]) -> None:
    run = train(EMA(smoothing=0.7)).fit()
    live = snapshot(run.model)
    state = run.trainer.state
    with run.method.saving(state):
        inside = copy.deepcopy(run.method.state_dict())
        loaded = copy.deepcopy(run.model)
    assert_same(snapshot(loaded), run.average)
    with pytest.warns(UserWarning, match="leaves EMA out and goes on from the weights"):
        EMA.resume_without(inside, SimpleNamespace(model=loaded))  # type: ignore[arg-type]
    assert_same(snapshot(loaded), live)
    # Without an average in the model there is nothing to put back.
    EMA.resume_without(run.method.state_dict(), SimpleNamespace(model=nn.ReLU()))  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:the checkpoint holds state of algorithms")
@pytest.mark.parametrize(
    ("listed", "how"),
    [
        (False, {}),
        (False, {"load_exclude_algorithms": ["EMA"]}),
        (True, {"load_exclude_algorithms": ["EMA"]}),
        (False, {"load_ignore_keys": ["state/algorithms"]}),
    ],
)
def test_resuming_without_goes_on_from_the_trained_weights(
    train: Callable[..., Training], tmp_path: Path, listed: bool, how: dict[str, Any]
) -> None:
    straight = train(None).fit()
    train(EMA(smoothing=0.7), tmp_path, max_duration="4ba").fit()
    (path,) = tmp_path.glob("ep*-ba4-*.pt")
    with pytest.warns(UserWarning, match="leaves EMA out and goes on from the weights"):
        resumed = train(EMA(smoothing=0.7) if listed else None, load_path=str(path), **how)
    resumed.fit()
    assert_same(snapshot(resumed.model), snapshot(straight.model))


# ---- forms of the state ----


def test_state_outside_a_checkpoint_has_the_average(make_run: Callable[..., Any]) -> None:
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
    with trained.method.evaluating(trained.run.state):
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
