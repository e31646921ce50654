"""Schedules against closed forms, recorded sample points and torch's own schedulers."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch.optim import lr_scheduler

from composer.core.time import Time, TimeUnit
from composer.core.timestamp import Timestamp
from composer.optim import (
    ComposerScheduler,
    ConstantScheduler,
    ConstantWithWarmupScheduler,
    CosineAnnealingScheduler,
    CosineAnnealingWarmRestartsScheduler,
    CosineAnnealingWithWarmupScheduler,
    ExponentialScheduler,
    LinearScheduler,
    LinearWithWarmupScheduler,
    MultiStepScheduler,
    MultiStepWithWarmupScheduler,
    PolynomialScheduler,
    PolynomialWithWarmupScheduler,
    StepScheduler,
    compile_composer_scheduler,
    preview_schedule,
    scale_pytorch_scheduler,
)


def make_state(
    batch: int = 0, *, max_duration: str | None = "2ep", length: int | None = 10, **times: int
) -> Any:
    epoch = batch // length if length else 0
    parameter = torch.nn.Parameter(torch.ones(1))
    return SimpleNamespace(
        timestamp=Timestamp(batch=batch, epoch=epoch, **times),
        max_duration=None if max_duration is None else Time.from_timestring(max_duration),
        dataloader_len=None if length is None else Time(length, TimeUnit.BATCH),
        optimizers=[torch.optim.SGD([parameter], lr=0.5)],
    )


POINTS = [0, 1, 4, 5, 10, 15, 20]


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        (LinearScheduler(), [1, 0.95, 0.8, 0.75, 0.5, 0.25, 0]),
        (CosineAnnealingWithWarmupScheduler("4ba"), [0, 0.25, 1, 0.9904, 0.6913, 0.2222, 0]),
        (ExponentialScheduler(0.9), [1, 0.9895, 0.9587, 0.9487, 0.9, 0.8538, 0.81]),
        (StepScheduler("4ba", 0.5), [1, 1, 0.5, 0.5, 0.25, 0.125, 0.03125]),
        (MultiStepScheduler(["4ba", "1ep"], 0.5), [1, 1, 0.5, 0.5, 0.25, 0.25, 0.25]),
        (ConstantScheduler(0.5, "10ba"), [0.5, 0.5, 0.5, 0.5, 1, 1, 1]),
        (CosineAnnealingScheduler(), [(1 + math.cos(math.pi * t / 20)) / 2 for t in POINTS]),
        (
            CosineAnnealingScheduler("10ba", 0.1),
            [0.1 + 0.9 * (1 + math.cos(math.pi * min(t, 10) / 10)) / 2 for t in POINTS],
        ),
        (PolynomialScheduler(3.0), [(1 - t / 20) ** 3 for t in POINTS]),
        (
            PolynomialScheduler(2.0, "1ep", 0.2),
            [0.2 + 0.8 * (1 - min(t, 10) / 10) ** 2 for t in POINTS],
        ),
        (
            MultiStepWithWarmupScheduler("4ba", ["5ba", "15ba"], 0.1),
            [0, 0.25, 1, 0.1, 0.1, 0.01, 0.01],
        ),
        (ConstantWithWarmupScheduler("0.2dur", 0.8), [0, 0.2, 0.8, 0.8, 0.8, 0.8, 0.8]),
        (
            LinearWithWarmupScheduler("4ba", 2.0, 0.4),
            [0, 0.5, 2, 1.9, 1.4, 0.9, 0.4],
        ),
        (
            PolynomialWithWarmupScheduler("4ba"),
            [0, 0.25, 1] + [(1 - (t - 4) / 16) ** 2 for t in POINTS[3:]],
        ),
        (
            CosineAnnealingWarmRestartsScheduler("5ba", 2.0),
            # cycles 0-5, 5-15, 15-35
            [(1 + math.cos(math.pi * x)) / 2 for x in (0, 0.2, 0.8, 0, 0.5, 0, 0.25)],
        ),
        (
            CosineAnnealingWarmRestartsScheduler("5ba"),
            [(1 + math.cos(math.pi * x)) / 2 for x in (0, 0.2, 0.8, 0, 0, 0, 0)],
        ),
    ],
)
def test_multiplier_at_sample_points(scheduler: ComposerScheduler, expected: list[float]) -> None:
    found = [scheduler(make_state(batch)) for batch in POINTS]
    assert found == pytest.approx(expected, abs=5e-5)


def test_units_are_read_from_their_own_counters() -> None:
    state = make_state(3, max_duration="1000sp", length=None, sample=250, token=40)
    assert LinearScheduler()(state) == pytest.approx(0.75)
    assert LinearScheduler(t_max="500sp")(state) == pytest.approx(0.5)
    assert LinearScheduler(t_max="80tok")(state) == pytest.approx(0.5)
    assert LinearScheduler(t_max="6ba")(state) == pytest.approx(0.5)


def test_a_share_of_the_run_is_not_rounded_down_by_floating_point() -> None:
    # 0.29 * 100 is 28.999999999999996
    schedule = MultiStepScheduler(["0.29dur"], 0.5)
    assert schedule(make_state(28, max_duration="100ba")) == 1.0
    assert schedule(make_state(29, max_duration="100ba")) == 0.5


ENDING_AT_TEN = [
    ConstantScheduler(0.5, "10ba"),
    LinearScheduler(t_max="10ba", alpha_f=0.1),
    CosineAnnealingScheduler("10ba", 0.1),
    PolynomialScheduler(2.0, "10ba", 0.1),
    MultiStepScheduler(["10ba"]),
    ConstantWithWarmupScheduler("2ba", 0.5, "10ba"),
    LinearWithWarmupScheduler("2ba", 1.0, 0.1, "10ba"),
    CosineAnnealingWithWarmupScheduler("2ba", "10ba", 0.1),
    PolynomialWithWarmupScheduler("2ba", 2.0, "10ba", 0.1),
    MultiStepWithWarmupScheduler("2ba", ["10ba"]),
]


@pytest.mark.parametrize("scheduler", ENDING_AT_TEN, ids=lambda s: type(s).__name__)
def test_past_its_end_a_schedule_stays_at_its_last_value(scheduler: ComposerScheduler) -> None:
    values = {scheduler(make_state(batch, max_duration="10ba")) for batch in (10, 11, 15, 20)}
    assert len(values) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda t: StepScheduler(t),
        lambda t: MultiStepScheduler(["1ba", t]),
        lambda t: ConstantScheduler(t_max=t),
        lambda t: LinearScheduler(t_max=t),
        lambda t: ExponentialScheduler(0.5, t),
        lambda t: CosineAnnealingScheduler(t),
        lambda t: CosineAnnealingWarmRestartsScheduler(t),
        lambda t: PolynomialScheduler(1.0, t),
        lambda t: MultiStepWithWarmupScheduler(t, ["1ba"]),
        lambda t: ConstantWithWarmupScheduler("1ba", t_max=t),
        lambda t: LinearWithWarmupScheduler("1ba", t_max=t),
        lambda t: CosineAnnealingWithWarmupScheduler(t),
        lambda t: PolynomialWithWarmupScheduler("1ba", t_max=t),
    ],
)
@pytest.mark.parametrize(
    ("time", "error", "text"),
    [
        ("100sec", ValueError, "wall-clock"),
        (Time(5, "sec"), ValueError, "wall-clock"),
        ("-1ba", ValueError, "got '-1ba'"),
        ("ten epochs", ValueError, "'ten epochs'"),
        (10, TypeError, "no unit"),
    ],
)
def test_times_that_no_schedule_can_use(
    make: Any, time: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        make(time)


def test_epochs_without_a_length_name_the_ways_out() -> None:
    for scheduler, duration in ((LinearScheduler(t_max="2ep"), "20ba"), (LinearScheduler(), "2ep")):
        with pytest.raises(ValueError, match=r"a length, give another unit.*train_subset_num"):
            scheduler(make_state(max_duration=duration, length=None))
    assert LinearScheduler()(make_state(5, max_duration="20ba", length=None)) == 0.75


def test_a_run_of_unknown_length() -> None:
    with pytest.raises(ValueError, match="set max_duration"):
        LinearScheduler()(make_state(max_duration=None))


@pytest.mark.parametrize(
    "scheduler",
    [
        LinearWithWarmupScheduler("2ba", t_max="15ba"),
        ConstantWithWarmupScheduler("2ba", t_max="15ba"),
        CosineAnnealingWithWarmupScheduler("2ba", "15ba"),
        PolynomialWithWarmupScheduler("2ba", t_max="15ba"),
    ],
    ids=lambda s: type(s).__name__,
)
def test_warmup_schedules_must_cover_the_run(scheduler: ComposerScheduler) -> None:
    with pytest.raises(ValueError, match=r"t_max='15ba' ends the schedule at 15ba.*at 20ba"):
        scheduler(make_state())
    scheduler(make_state(max_duration="15ba"))


def test_a_run_that_ends_by_the_clock() -> None:
    state = make_state(5, max_duration="90m")
    # what is counted works, a share of the run cannot be known
    assert LinearWithWarmupScheduler("2ba", t_max="2ep")(state) == pytest.approx(1 - 3 / 18)
    with pytest.raises(ValueError, match="max_duration='5400sec' is wall-clock"):
        LinearScheduler()(state)


def test_warmup_and_end_in_one_unit() -> None:
    scheduler = LinearWithWarmupScheduler("100sp", t_max="2ep")
    with pytest.raises(ValueError, match="t_warmup='100sp' comes out in 'sp' and t_max='2ep' in"):
        scheduler(make_state())
    # converted to one unit they are fine
    LinearWithWarmupScheduler("1ep", t_max="20ba")(make_state())


def test_warmup_that_rounds_to_nothing_is_said_once() -> None:
    scheduler = CosineAnnealingWithWarmupScheduler("0.01dur")
    with pytest.warns(UserWarning, match="t_warmup='0.01dur' comes out as 0ba"):
        assert scheduler(make_state()) == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler(make_state(1))
        assert CosineAnnealingWithWarmupScheduler("0ba")(make_state()) == 1.0


def test_zero_lengths() -> None:
    with pytest.raises(ValueError, match="step_size must be more than zero"):
        StepScheduler("0ba")
    with pytest.raises(ValueError, match="step_size='1ba' comes out as 0ba"):
        StepScheduler("1ba")(make_state(), 0.5)
    with pytest.raises(ValueError, match="decay_period='1ba' comes out as 0ba"):
        ExponentialScheduler(0.5, "1ba")(make_state(), 0.5)
    with pytest.raises(ValueError, match="cycle of the restarts has length 0"):
        CosineAnnealingWarmRestartsScheduler("2ba", 0.5)(make_state(5))
    with pytest.raises(ValueError, match="cycle of the restarts has length 0"):
        CosineAnnealingWarmRestartsScheduler("1ba")(make_state(), 0.5)
    with pytest.raises(ValueError, match="t_mult"):
        CosineAnnealingWarmRestartsScheduler("2ba", 0)
    with pytest.raises(TypeError, match="list of times"):
        MultiStepScheduler("2ba")


# ---- scaling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ssr", [0.5, 2.0])
@pytest.mark.parametrize(
    ("scheduler", "scaled"),
    [
        (StepScheduler("4ba", 0.5), lambda s: StepScheduler(f"{int(4 * s)}ba", 0.5)),
        (StepScheduler("1ep", 0.5), lambda s: StepScheduler(f"{int(10 * s)}ba", 0.5)),
        (MultiStepScheduler(["4ba"]), lambda s: MultiStepScheduler([f"{int(4 * s)}ba"])),
        (MultiStepScheduler(["0.25dur"]), lambda s: MultiStepScheduler([f"{int(10 * s)}ba"])),
        (LinearScheduler(t_max="20ba"), lambda s: LinearScheduler(t_max=f"{int(20 * s)}ba")),
        (LinearScheduler(), lambda s: LinearScheduler(t_max=f"{int(40 * s)}ba")),
        (
            ExponentialScheduler(0.5, "4ba"),
            lambda s: ExponentialScheduler(0.5, f"{int(4 * s)}ba"),
        ),
        (
            CosineAnnealingWarmRestartsScheduler("4ba", 2.0),
            lambda s: CosineAnnealingWarmRestartsScheduler(f"{int(4 * s)}ba", 2.0),
        ),
        (
            CosineAnnealingWithWarmupScheduler("4ba", "4ep"),
            lambda s: CosineAnnealingWithWarmupScheduler("4ba", f"{int(40 * s)}ba"),
        ),
        (
            CosineAnnealingWithWarmupScheduler("4ba", "4ep", scale_warmup=True),
            lambda s: CosineAnnealingWithWarmupScheduler(f"{int(4 * s)}ba", f"{int(40 * s)}ba"),
        ),
        (
            LinearWithWarmupScheduler("0.1dur"),
            lambda s: LinearWithWarmupScheduler(f"{int(4 * s)}ba"),
        ),
    ],
)
def test_scale_ratio_equals_scaled_arguments(
    scheduler: ComposerScheduler, scaled: Any, ssr: float
) -> None:
    found = preview_schedule(scheduler, "4ep", batches_per_epoch=10, ssr=ssr)
    assert len(found) == int(40 * ssr)
    assert found == pytest.approx(preview_schedule(scaled(ssr), f"{int(40 * ssr)}ba"))


def test_ratio_below_one_with_warmup_and_explicit_end() -> None:
    # max_duration on the state is scaled already, so the end of the schedule still covers the run
    state = make_state(max_duration="2ep")
    scheduler = CosineAnnealingWithWarmupScheduler("4ba", t_max="4ep")
    compiled = compile_composer_scheduler(scheduler, state, ssr=0.5)
    assert compiled.get_last_lr() == [0.0]


# ---- compiling -------------------------------------------------------------------------------


def test_compiled_schedule_trains_batch_k_at_f_of_k() -> None:
    state = make_state(max_duration="4ba", length=None)
    compiled = compile_composer_scheduler(LinearScheduler(), state)
    rates = []
    for batch in range(4):
        rates.append(state.optimizers[0].param_groups[0]["lr"])
        state.optimizers[0].step()
        state.timestamp = state.timestamp.to_next_batch()
        compiled.step()
        assert state.timestamp.batch == batch + 1
    assert rates == pytest.approx([0.5, 0.375, 0.25, 0.125])
    assert state.optimizers[0].param_groups[0]["lr"] == 0.0


def test_compiled_schedule_survives_saving() -> None:
    state = make_state(max_duration="4ba", length=None)
    saved = compile_composer_scheduler(LinearScheduler(), state).state_dict()
    other = make_state(max_duration="4ba", length=None)
    compiled = compile_composer_scheduler(LinearScheduler(), other)
    compiled.load_state_dict(saved)
    assert compiled.get_last_lr() == [0.5]


def test_a_function_is_a_schedule_unless_scaled() -> None:
    state = make_state(3)

    def thirds(state: Any) -> float:
        return 1 / state.timestamp.batch.value

    assert compile_composer_scheduler(thirds, state).get_last_lr() == pytest.approx([0.5 / 3])
    with pytest.raises(TypeError, match="takes the state alone"):
        compile_composer_scheduler(thirds, make_state(3), ssr=0.5)

    def scaled(state: Any, ssr: float) -> float:
        return ssr

    assert compile_composer_scheduler(scaled, make_state(3), ssr=0.5).get_last_lr() == [0.25]


def test_compile_refuses() -> None:
    state = make_state()
    state.optimizers = []
    with pytest.raises(ValueError, match="exactly one optimizer, but the state has 0"):
        compile_composer_scheduler(LinearScheduler(), state)
    with pytest.raises(TypeError, match="callable"):
        compile_composer_scheduler("linear", make_state())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="before the run ends"):
        compile_composer_scheduler(LinearWithWarmupScheduler("1ba", t_max="5ba"), make_state())


NUMBERS: list[tuple[str, Any]] = [
    ("alpha", lambda v: ConstantScheduler(v)),
    ("alpha", lambda v: ConstantWithWarmupScheduler("1ba", v)),
    ("alpha_i", lambda v: LinearScheduler(alpha_i=v)),
    ("alpha_f", lambda v: LinearScheduler(alpha_f=v)),
    ("alpha_i", lambda v: LinearWithWarmupScheduler("1ba", alpha_i=v)),
    ("alpha_f", lambda v: LinearWithWarmupScheduler("1ba", alpha_f=v)),
    ("alpha_f", lambda v: CosineAnnealingScheduler(alpha_f=v)),
    ("alpha_f", lambda v: CosineAnnealingWithWarmupScheduler("1ba", alpha_f=v)),
    ("alpha_f", lambda v: CosineAnnealingWarmRestartsScheduler("1ba", alpha_f=v)),
    ("t_mult", lambda v: CosineAnnealingWarmRestartsScheduler("1ba", t_mult=v)),
    ("alpha_f", lambda v: PolynomialScheduler(1.0, alpha_f=v)),
    ("power", lambda v: PolynomialScheduler(v)),
    ("alpha_f", lambda v: PolynomialWithWarmupScheduler("1ba", alpha_f=v)),
    ("power", lambda v: PolynomialWithWarmupScheduler("1ba", power=v)),
    ("gamma", lambda v: StepScheduler("1ba", v)),
    ("gamma", lambda v: MultiStepScheduler(["1ba"], v)),
    ("gamma", lambda v: MultiStepWithWarmupScheduler("1ba", ["2ba"], v)),
    ("gamma", lambda v: ExponentialScheduler(v)),
]


@pytest.mark.parametrize(("name", "make"), NUMBERS)
def test_numbers_that_are_no_factors(name: str, make: Any) -> None:
    for value in (math.nan, math.inf, -math.inf, -1, -0.001):
        with pytest.raises(ValueError, match=f"{name} must be a finite number, .*, got {value}"):
            make(value)
    for wrong in ("0.5", None, True, [0.1]):
        with pytest.raises(TypeError, match=f"{name} must be a number, .* got"):
            make(wrong)
    for value in (1, 2.5, numpy.float32(1.5), *([] if name == "t_mult" else [0, 0.5])):
        assert math.isfinite(make(value)(make_state(3)))


def test_other_arguments_of_the_wrong_kind() -> None:
    with pytest.raises(TypeError, match="scale_warmup must be True or False, got 'false'"):
        LinearWithWarmupScheduler("1ba", scale_warmup="false")  # type: ignore[arg-type]
    for milestones in (3, None):
        with pytest.raises(TypeError, match="milestones must be a list of times"):
            MultiStepScheduler(milestones)  # type: ignore[arg-type]


def test_a_factor_that_is_no_finite_number_names_schedule_and_batch() -> None:
    state = make_state(0, max_duration="400ba")

    def broken(state: Any) -> Any:
        return [1.0, math.nan, math.inf, None, "a"][state.timestamp.batch.value]

    compiled = compile_composer_scheduler(broken, state)
    state.optimizers[0].step()
    for batch, value in enumerate(["nan", "inf", "None", "'a'"], start=1):
        state.timestamp = Timestamp(batch=batch)
        with pytest.raises(ValueError, match=f"broken gives the factor {value} at batch {batch};"):
            compiled.step()
    growing = compile_composer_scheduler(StepScheduler("1ba", 10.0), make_state(0))
    assert growing.get_last_lr() == [0.5]
    with pytest.raises(ValueError, match="StepScheduler gives the factor inf at batch 399"):
        compile_composer_scheduler(
            StepScheduler("1ba", 10.0), make_state(399, max_duration="400ba")
        )
    for ssr in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="scale_schedule_ratio must be finite"):
            compile_composer_scheduler(LinearScheduler(), make_state(), ssr)


def test_scheduler_is_abstract() -> None:
    with pytest.raises(TypeError):
        ComposerScheduler()  # type: ignore[abstract]


# ---- torch's own -----------------------------------------------------------------------------

TORCH = [
    (lambda o, s: lr_scheduler.StepLR(o, int(4 * s), 0.5)),
    (lambda o, s: lr_scheduler.MultiStepLR(o, [int(4 * s), int(8 * s)], 0.5)),
    (lambda o, s: lr_scheduler.CosineAnnealingLR(o, int(12 * s))),
    (lambda o, s: lr_scheduler.CosineAnnealingWarmRestarts(o, int(4 * s), 2)),
    (lambda o, s: lr_scheduler.ExponentialLR(o, 0.5 ** (1 / s))),
]


@pytest.mark.parametrize("ssr", [0.5, 1.5, 2.0])
@pytest.mark.parametrize("make", TORCH)
def test_scaled_torch_scheduler_equals_one_made_longer(make: Any, ssr: float) -> None:
    def rates(build_ratio: float, scale: float) -> list[float]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        scheduler = make(optimizer, build_ratio)
        if scale != 1:
            scale_pytorch_scheduler(scheduler, scale)
        out = []
        for _ in range(int(12 * ssr)):
            out.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return out

    assert rates(1.0, ssr) == pytest.approx(rates(ssr, 1.0))


def test_torch_schedulers_that_cannot_be_scaled() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    with pytest.raises(ValueError, match="cannot scale a PolynomialLR"):
        scale_pytorch_scheduler(lr_scheduler.PolynomialLR(optimizer), 0.5)
    with pytest.raises(ValueError, match="turns step_size=1 of StepLR into 0"):
        scale_pytorch_scheduler(lr_scheduler.StepLR(optimizer, 1), 0.5)
    with pytest.raises(ValueError, match="more than zero"):
        scale_pytorch_scheduler(lr_scheduler.StepLR(optimizer, 1), 0)


def test_preview_refuses() -> None:
    with pytest.raises(ValueError, match="batches_per_epoch"):
        preview_schedule(LinearScheduler(), "2ep")
    with pytest.raises(ValueError, match="epochs or batches"):
        preview_schedule(LinearScheduler(), "200sp")
