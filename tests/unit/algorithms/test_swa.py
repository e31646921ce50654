"""SWA: the mean by hand, statistics that follow, the learning rate, and exact resumption."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.algorithms import EMA, SWA
from composer.algorithms.swa.functional import Settling, annealed
from composer.algorithms.warnings import NoEffectWarning, NotIntendedUseWarning
from composer.core import Algorithm, Callback, Event, Logger, State, Time
from composer.functional import apply_ghost_batchnorm
from composer.models import ComposerClassifier
from composer.optim import LinearScheduler

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(X, (X.sum(1) > 0).long())


def network(norm: bool = True) -> ComposerClassifier:
    torch.manual_seed(0)
    parts = [nn.Linear(4, 6), nn.BatchNorm1d(6) if norm else nn.Identity(), nn.Tanh()]
    return ComposerClassifier(nn.Sequential(*parts, nn.Dropout(0.1), nn.Linear(6, 2)), 2)


class Live(Algorithm):
    """The model after each batch, before a method that comes later in the list acts."""

    events = frozenset({Event.BATCH_END})

    def __init__(self) -> None:
        self.seen: dict[int, nn.Module] = {}

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        self.seen[int(state.timestamp.batch)] = copy.deepcopy(state.model.module)


class Watch(Callback):
    """What comes after each batch, at evaluations, and what was trained on."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.models: dict[int, nn.Module] = {}
        self.rates: dict[int, float] = {}
        self.batches: dict[int, Any] = {}
        self.evaluated: dict[int, nn.Module] = {}
        self.outputs: list[torch.Tensor] = []

    def after_dataloader(self, state: State, logger: Logger) -> None:
        self.batches[int(state.timestamp.batch) + 1] = state.batch

    def batch_end(self, state: State, logger: Logger) -> None:
        if int(state.timestamp.batch) == self.stop_at:
            state.stop_training()

    def before_forward(self, state: State, logger: Logger) -> None:
        self.rates[int(state.timestamp.batch) + 1] = state.optimizers[0].param_groups[0]["lr"]

    def batch_checkpoint(self, state: State, logger: Logger) -> None:
        self.models[int(state.timestamp.batch)] = copy.deepcopy(state.model.module)

    def epoch_end(self, state: State, logger: Logger) -> None:
        self.models[int(state.timestamp.batch)] = copy.deepcopy(state.model.module)

    def eval_start(self, state: State, logger: Logger) -> None:
        self.evaluated[int(state.timestamp.batch)] = copy.deepcopy(state.model.module)
        self.outputs.clear()

    def eval_after_forward(self, state: State, logger: Logger) -> None:
        self.outputs.append(state.outputs)  # type: ignore[arg-type]


def train(
    method: SWA | None, norm: bool = True, stop_at: int | None = None, **settings: Any
) -> tuple[Trainer, Live, Watch]:
    """Ten epochs of four batches, unless told otherwise."""
    model, live, watch = network(norm), Live(), Watch(stop_at)
    settings = {"schedulers": LinearScheduler(1.0, 0.2), "max_duration": "10ep", **settings}
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(DATA, 6, shuffle=True),
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        algorithms=[live] if method is None else [live, method],
        callbacks=[watch],
        seed=3,
        progress_bar=False,
        **settings,
    )
    trainer.fit()
    trainer.close()
    return trainer, live, watch


def mean_of(models: list[nn.Module]) -> dict[str, torch.Tensor]:
    """Of parameters, summed in double precision."""
    named = [dict(model.named_parameters()) for model in models]
    return {
        name: (sum(one[name].detach().double() for one in named) / len(named)).float()
        for name in named[0]
    }


def parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("start", "end", "interval", "moments", "completed"),
    [
        ("0.5dur", "0.85dur", "1ep", [20, 24, 28, 32], 35),
        ("0.5dur", "0.8dur", "1ep", [20, 24, 28, 32], 32),
        ("5ep", "8ep", "1ep", [20, 24, 28, 32], 32),
        ("5ep", "8ep", "2ep", [20, 28], 32),
        ("20ba", "33ba", "3ba", [20, 23, 26, 29, 32], 33),
        ("20ba", "32ba", "3ba", [20, 23, 26, 29, 32], 32),
        ("0.5dur", "0.8dur", "5ba", [20, 25, 30], 32),
        ("0dur", "0.1dur", "1ba", [1, 2, 3, 4], 4),
    ],
)
def test_the_model_goes_on_from_the_mean_of_the_weights_at_the_moments(
    start: str, end: str, interval: str, moments: list[int], completed: int
) -> None:
    method = SWA(start, end, interval)
    _, live, watch = train(method)
    expected = mean_of([live.seen[batch] for batch in moments])
    torch.testing.assert_close(parameters(watch.models[completed]), expected)
    by_torch = AveragedModel(live.seen[moments[0]])
    for batch in moments:
        by_torch.update_parameters(live.seen[batch])
    torch.testing.assert_close(parameters(by_torch.module), expected)
    assert method.num_averaged == len(moments)
    # Before it, training is as without the method, statistics included; after it, it goes on.
    _, plain, _ = train(None)
    torch.testing.assert_close(
        live.seen[completed].state_dict(), plain.seen[completed].state_dict(), rtol=0, atol=0
    )
    after = parameters(watch.models[completed + 1])
    assert not all(torch.equal(after[name], value) for name, value in expected.items())


def test_statistics_become_those_of_the_average() -> None:
    """With a learning rate of zero behind the end, they are those of torch's ``update_bn``."""
    method = SWA("0.5dur", "0.8dur", "1ep")
    trainer, live, watch = train(method, schedulers=lambda state: float(state.timestamp.batch < 32))
    expected = copy.deepcopy(live.seen[32])
    expected.load_state_dict({**expected.state_dict(), **parameters(watch.models[32])})
    update_bn([watch.batches[batch] for batch in range(33, 41)], expected)
    found = trainer.state.model.module
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=1e-5, atol=1e-6)
    assert found[1].momentum == 0.1
    # An evaluation that comes before the first batch finds the statistics that there were.
    torch.testing.assert_close(watch.models[32][1].running_mean, live.seen[32][1].running_mean)


def test_settled_layers_get_their_momentum_back() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2, momentum=0.5), nn.BatchNorm1d(2, momentum=None))
    frozen = nn.Sequential(nn.BatchNorm1d(2)).eval()
    apply_ghost_batchnorm(ghosts := nn.Sequential(nn.BatchNorm1d(2, momentum=0.25)), 4)
    for one in (model, frozen, ghosts):
        one(torch.randn(8, 2) + 5)
    before = copy.deepcopy(frozen.state_dict())
    settling = Settling()
    whole = nn.ModuleList([model, frozen, ghosts])
    settling.begin(whole)
    batches = [torch.randn(8, 2) for _ in range(5)]
    means = []
    for batch in batches:
        model[0](batch)
        model[1](batch)
        frozen(batch)
        ghosts(batch)
        means.append(batch.mean(0))
        settling.step()
    assert [model[0].momentum, model[1].momentum, ghosts[0].momentum] == [0.5, None, 0.25]
    assert not settling.momenta
    torch.testing.assert_close(model[1].running_mean, torch.stack(means).mean(0))
    expected = (means[0] + means[1]) / 2
    for mean in means[2:]:
        expected = 0.5 * expected + 0.5 * mean
    torch.testing.assert_close(model[0].running_mean, expected)
    expected = torch.stack(means[:4]).mean(0)
    torch.testing.assert_close(ghosts[0].running_mean, 0.75 * expected + 0.25 * means[4])
    torch.testing.assert_close(frozen.state_dict(), before, rtol=0, atol=0)


class _Waits(TorchDispatchMode):
    """Counts how often a number is fetched from the device, and what is gathered for it."""

    fetched = gathered = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.fetched += func is torch.ops.aten._local_scalar_dense.default
        self.gathered += func is torch.ops.aten.stack.default
        return func(*args, **(kwargs or {}))


def test_counters_of_all_layers_are_read_at_once_and_only_while_statistics_settle() -> None:
    model = nn.Sequential(*[nn.BatchNorm1d(2, momentum=0.5) for _ in range(4)])
    settling = Settling()
    settling.begin(model)
    counts = []
    for _ in range(4):
        model(torch.randn(8, 2))
        with _Waits() as waits:
            settling.step()
        counts.append((waits.gathered, waits.fetched))
    assert counts == [(1, 0), (1, 0), (0, 0), (0, 0)]


@pytest.mark.parametrize("times", [("1ba", "3ba", "1ba"), ("0.5dur", "0.97dur", "1ep")])
def test_a_plain_model_with_its_weights_evaluates_the_same(times: tuple[str, str, str]) -> None:
    duration = "5ba" if times[0] == "1ba" else "10ep"
    trainer, _, watch = train(
        SWA(*times), max_duration=duration, eval_dataloader=DataLoader(DATA, 8), eval_interval="1ba"
    )
    plain = network().module
    stored = trainer.state.model.state_dict()
    plain.load_state_dict(
        {name.removeprefix("module."): stored[name] for name in stored if "metric" not in name}
    )
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(X), torch.cat(watch.outputs), rtol=0, atol=1e-6)


def test_evaluations_use_the_weights_being_trained_up_to_the_end() -> None:
    _, live, watch = train(SWA("0.5dur", "0.85dur"), eval_dataloader=DataLoader(DATA, 8))
    assert list(watch.evaluated) == list(range(4, 41, 4))
    for batch, model in watch.evaluated.items():
        torch.testing.assert_close(parameters(model), parameters(live.seen[batch]), rtol=0, atol=0)
    _, _, watch = train(SWA("0.5dur", "0.8dur"), eval_dataloader=DataLoader(DATA, 8))
    torch.testing.assert_close(
        parameters(watch.evaluated[32]), parameters(watch.models[32]), rtol=0, atol=0
    )


@pytest.mark.parametrize("strategy", ["linear", "cos"])
@pytest.mark.parametrize("swa_lr", [0.5, None])
@pytest.mark.parametrize("torchs", [False, True])
def test_the_learning_rate_is_that_of_torchs_schedule(
    strategy: str, swa_lr: float | None, torchs: bool
) -> None:
    settings: dict[str, Any] = {}
    if torchs:
        settings["step_schedulers_every_batch"] = False
    method = SWA("20ba", "36ba", "2ba", True, strategy, 4, swa_lr)
    _, _, watch = train(method, **settings)
    _, _, plain = train(None, **settings)
    moments = range(20, 37, 2)
    # A schedule that steps at epochs has not done so when the batch ends.
    initial = plain.rates[20 if torchs else 21]
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=initial)
    oracle = SWALR(optimizer, initial if swa_lr is None else swa_lr, 4, strategy)  # type: ignore[arg-type]
    for batch in range(1, 21):
        assert watch.rates[batch] == plain.rates[batch]
    for batch in range(20, 40):
        if batch in moments:
            optimizer.step()
            oracle.step()
        assert watch.rates[batch + 1] == pytest.approx(optimizer.param_groups[0]["lr"])
    assert watch.rates[40] == pytest.approx(initial if swa_lr is None else swa_lr)


def test_annealing_by_its_formula() -> None:
    assert [annealed(4.0, 2.0, share, "linear") for share in (0, 0.5, 1, 9)] == [4, 3, 2, 2]
    found = [annealed(4.0, 2.0, share, "cos") for share in (0, 0.25, 1, 9)]
    assert found == pytest.approx([4, 4 - (1 - math.cos(math.pi / 4)), 2, 2])


@pytest.mark.parametrize("interval", ["1ep", "3ba"])
def test_it_resumes_exactly_before_inside_and_after(tmp_path: Path, interval: str) -> None:
    def method() -> SWA:
        return SWA("0.5dur", "0.8dur", interval, True, "cos", 3, 0.07)

    saving: dict[str, Any] = {"save_interval": "1ba", "save_filename": "{batch}.pt"}
    straight, _, watch = train(method(), save_folder=str(tmp_path / "straight"), **saving)
    for batch in (10, 22, 24, 31, 32, 33, 38):
        resumed, _, theirs = train(method(), load_path=str(tmp_path / "straight" / f"{batch}.pt"))
        assert theirs.rates == {b: r for b, r in watch.rates.items() if b > batch}
        torch.testing.assert_close(
            resumed.state.model.state_dict(),
            straight.state.model.state_dict(),
            rtol=0,
            atol=0,
        )
        assert resumed.state.model.module[1].momentum == 0.1


@pytest.mark.parametrize(("stop_at", "interval"), [(24, "1ep"), (24, "1ba"), (26, "1ba")])
def test_a_run_that_is_stopped_goes_on_exactly(tmp_path: Path, stop_at: int, interval: str) -> None:
    """Also where the end of the epoch comes after the stop, which is no end of averaging."""
    saving: dict[str, Any] = {
        "save_folder": str(tmp_path),
        "save_interval": interval,
        "autoresume": True,
        "run_name": "run",
    }
    straight, live, _ = train(SWA("0.5dur", "0.85dur"))
    cut, _, _ = train(SWA("0.5dur", "0.85dur"), stop_at=stop_at, **saving)
    torch.testing.assert_close(
        cut.state.model.module.state_dict(), live.seen[stop_at].state_dict(), rtol=0, atol=0
    )
    resumed, _, _ = train(SWA("0.5dur", "0.85dur"), **saving)
    torch.testing.assert_close(
        resumed.state.model.state_dict(), straight.state.model.state_dict(), rtol=0, atol=0
    )


def test_checkpoints_say_which_weights_are_where(tmp_path: Path) -> None:
    saving: dict[str, Any] = {"save_interval": "1ba", "save_filename": "{batch}.pt"}
    _, live, watch = train(SWA("5ep", "8ep"), save_folder=str(tmp_path), **saving)
    for batch, models in ((26, [20, 24]), (34, [])):
        stored = torch.load(tmp_path / f"{batch}.pt", weights_only=True)["state"]
        state = next(a["state"] for a in stored["algorithms"] if a["type"] == "SWA")
        model = {name.removeprefix("module."): value for name, value in stored["model"].items()}
        expected = parameters(watch.models[batch])
        torch.testing.assert_close({n: model[n] for n in expected}, expected, rtol=0, atol=0)
        average = state["averaged_weights"]
        expected = mean_of([live.seen[b] for b in models]) if models else {}
        torch.testing.assert_close(
            {name.removeprefix("module."): value for name, value in average.items()}, expected
        )
        assert state["swa_completed"] == (batch == 34)


def test_a_run_without_the_method_goes_on_with_the_same_weights(tmp_path: Path) -> None:
    saving: dict[str, Any] = {"save_interval": "1ba", "save_filename": "{batch}.pt"}
    train(SWA("5ep", "8ep"), save_folder=str(tmp_path), **saving)
    _, plain, _ = train(None)
    with pytest.warns(UserWarning, match="SWA"):
        resumed, _, _ = train(None, load_path=str(tmp_path / "26.pt"))
    torch.testing.assert_close(
        resumed.state.model.module.state_dict(), plain.seen[40].state_dict(), rtol=0, atol=0
    )


def test_it_learns() -> None:
    trainer, _, _ = train(SWA("0.5dur", "0.9dur"))
    model, batch = trainer.state.model.eval(), tuple(DATA.tensors)
    with torch.no_grad():
        assert float(model.loss(model(batch), batch)) < 0.5 < 0.69


def test_batches_without_an_update_do_not_count(make_run: Callable[..., Any]) -> None:
    method = SWA("1ba", "4ba", "1ba")
    run = make_run(nn.Linear(1, 1, bias=False), [method])
    run.fire(Event.INIT, Event.FIT_START)
    for batch, value in enumerate([1.0, 2.0, 2.0, 6.0], start=1):
        run.state.model.weight.data.fill_(value)
        run.state.step_applied = batch != 3
        run.at(batch)
        run.fire(Event.BATCH_END)
    assert float(run.state.model.weight.detach()) == pytest.approx(3.0)
    assert run.recorder.metrics == [{"swa/num_averaged": n} for n in (1, 2, 3)]


def test_events_are_ignored_where_there_is_nothing_to_do(make_run: Callable[..., Any]) -> None:
    method = SWA("3ep", "5ep", "1ep")
    run = make_run(nn.Linear(1, 1), [method], max_duration="8ep")
    run.state.set_dataloader([None] * 2, "train")
    run.fire(Event.INIT, Event.FIT_START)
    acted = []
    for batch in range(1, 17):
        run.at(batch, epoch=(batch - 1) // 2)
        acted += [batch] if method.match(Event.BATCH_END, run.state) else []
        run.fire(Event.BATCH_END)
        if batch % 2 == 0:
            run.at(batch, epoch=batch // 2)
            acted += [-batch] if method.match(Event.EPOCH_END, run.state) else []
            run.fire(Event.EPOCH_END)
    assert acted == [-6, -8, -10]


def test_it_excludes_ema_and_another_of_its_kind(make_run: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="SWA and EMA"):
        Trainer(model=network(), algorithms=[EMA(), SWA()], progress_bar=False)
    run = make_run(nn.Linear(1, 1), [SWA(), SWA()])
    with pytest.raises(ValueError, match="one SWA"):
        run.fire(Event.INIT)


@pytest.mark.parametrize(
    ("arguments", "duration", "warning", "words"),
    [
        (("0.5dur", "1dur", "1ep"), "6ep", NotIntendedUseWarning, "swa_end='1dur'"),
        (("2ep", "6ep", "1ep"), "6ep", NotIntendedUseWarning, "swa_end='6ep'"),
        (("0.7dur", "0.97dur", "1ep"), "3ep", NoEffectWarning, "0 sets of weights"),
        (("0.7dur", "0.97dur", "1ep"), "4ep", NoEffectWarning, "1 sets of weights"),
        (("30ba", "40ba", "1ba"), "20ba", NoEffectWarning, "0 sets of weights"),
    ],
)
def test_times_that_do_not_fit_the_run_are_told_at_its_start(
    make_run: Callable[..., Any], arguments: Any, duration: str, warning: Any, words: str
) -> None:
    run = make_run(network(), [SWA(*arguments)], max_duration=duration)
    run.state.set_dataloader([None] * 4, "train")
    run.fire(Event.INIT)
    if warning is NoEffectWarning and arguments[1] == "40ba":
        with (
            pytest.warns(NotIntendedUseWarning, match="swa_end='40ba'"),
            pytest.warns(warning, match=words),
        ):
            run.fire(Event.FIT_START)
        return
    with pytest.warns(warning, match=words):
        run.fire(Event.FIT_START)


def test_no_weights_to_average_are_told_where_it_could_not_be_foreseen() -> None:
    """A run in batches, and no end of an epoch of four between start and end."""
    with pytest.warns(NoEffectWarning, match="found no weights"):
        trainer, _, _ = train(SWA("0.52dur", "0.58dur"), max_duration="40ba")
    _, plain, _ = train(None, max_duration="40ba")
    torch.testing.assert_close(
        trainer.state.model.module.state_dict(), plain.seen[40].state_dict(), rtol=0, atol=0
    )


def test_an_end_at_the_end_needs_no_warning_without_statistics() -> None:
    method = SWA("0.5dur", "1dur")
    trainer, live, _ = train(method, norm=False)
    expected = mean_of([live.seen[batch] for batch in range(20, 41, 4)])
    torch.testing.assert_close(parameters(trainer.state.model.module), expected)


def test_what_cannot_be_scheduled_is_refused_at_the_start(make_run: Callable[..., Any]) -> None:
    model = nn.Linear(1, 1)
    several = torch.optim.SGD(
        [{"params": [p], "lr": 0.1 * i} for i, p in enumerate(model.parameters(), 1)]
    )
    run = make_run(model, [SWA(schedule_swa_lr=True)], optimizers=several, max_duration="30ep")
    run.fire(Event.INIT)
    with pytest.raises(ValueError, match=r"one learning rate.*0\.1, 0\.2"):
        run.fire(Event.FIT_START)
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    run = make_run(model, [SWA(schedule_swa_lr=True)], optimizers=one, max_duration="30ep")
    run.state.schedulers = [
        torch.optim.lr_scheduler.StepLR(one, 1),
        torch.optim.lr_scheduler.StepLR(one, 2),
    ]
    run.fire(Event.INIT)
    with pytest.raises(ValueError, match="one optimizer and one scheduler"):
        run.fire(Event.FIT_START)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"swa_start": "10sp"}, ValueError),
        ({"swa_start": 0.7}, ValueError),
        ({"swa_start": "0.98dur"}, ValueError),
        ({"swa_end": "1.5dur"}, ValueError),
        ({"swa_end": "9ep"}, ValueError),
        ({"update_interval": "0.1dur"}, ValueError),
        ({"update_interval": "0ep"}, ValueError),
        ({"schedule_swa_lr": "yes"}, TypeError),
        ({"anneal_strategy": "cosine"}, ValueError),
        ({"anneal_steps": 0}, ValueError),
        ({"swa_lr": -1.0}, ValueError),
        ({"swa_lr": "0.1"}, TypeError),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        SWA(**arguments)


def test_times_may_be_objects() -> None:
    method = SWA(Time(3, "ep"), Time(5, "ep"), Time(2, "ba"))  # type: ignore[arg-type]
    assert method.arguments()["swa_start"] == "3ep"
    assert SWA(**method.arguments()).arguments() == method.arguments()
