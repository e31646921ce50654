"""How long ``fit`` trains, what repeated calls do, and how learning rates follow."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from composer.core.callback import Callback
from composer.core.logger import Logger
from composer.core.state import State
from composer.core.time import Time
from composer.optim import ConstantScheduler, LinearScheduler
from composer.trainer import Trainer
from composer_testing.tiny import EventRecorder, IdRecorder, TinyModel, loader


class Lr(Callback):
    """The learning rate that each batch trains at."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def batch_start(self, state: State, logger: Logger) -> None:
        self.seen.append(round(state.optimizers[0].param_groups[0]["lr"], 10))


class Draws:
    """An unsized loader that counts how many batches were drawn."""

    def __init__(self, batches: int) -> None:
        self.batches, self.drawn = batches, 0

    def __iter__(self) -> Iterator[Any]:
        for batch in loader(self.batches * 4) if self.batches else ():
            self.drawn += 1
            yield batch


def trainer(data: Any = None, duration: Any = "1ep", **settings: Any) -> Trainer:
    model = settings.pop("model", None) or TinyModel()
    settings.setdefault("optimizers", torch.optim.SGD(model.parameters(), lr=1.0))
    return Trainer(
        model=model,
        train_dataloader=loader(16, 4) if data is None else data,
        max_duration=duration,
        progress_bar=False,
        seed=1,
        **settings,
    )


def counters(t: Trainer) -> tuple[int, int, int]:
    stamp = t.state.timestamp
    return int(stamp.epoch), int(stamp.batch), int(stamp.batch_in_epoch)


def test_repeated_fits_as_documented() -> None:
    recorder = EventRecorder()
    t = trainer(callbacks=recorder)
    t.fit()
    assert counters(t) == (1, 4, 0)
    with pytest.raises(ValueError, match="no training would happen"):
        t.fit()
    recorder.seen.clear()
    t.fit(duration="2ba")
    assert t.state.max_duration == Time(6, "ba")
    assert counters(t) == (1, 6, 2)
    assert "epoch_end" not in recorder.names
    recorder.seen.clear()
    t.fit(duration="1ep")
    assert t.state.max_duration == Time(2, "ep")
    assert counters(t) == (2, 8, 0)
    assert "epoch_start" not in recorder.names
    assert recorder.names.count("epoch_end") == 1
    t.fit(reset_time=True)
    assert counters(t) == (2, 8, 0)
    t.close()


def test_a_started_epoch_goes_on_in_the_next_fit() -> None:
    ids = IdRecorder()
    t = trainer(callbacks=ids, duration="2ba")
    t.fit()
    t.fit(duration="2ba")
    t.close()
    assert sorted(i for batch in ids.ids for i in batch) == list(range(16))


@pytest.mark.parametrize(
    ("duration", "batches"),
    [(2, 8), ("2ep", 8), ("3ba", 3), ("10sp", 3), ("7ba", 7), (Time(5, "ba"), 5)],
)
def test_durations(duration: Any, batches: int) -> None:
    t = trainer(duration=duration)
    t.fit()
    t.close()
    assert int(t.state.timestamp.batch) == batches


def test_duration_in_tokens() -> None:
    from composer.core.data_spec import DataSpec

    spec = DataSpec(list(loader(16, 4)), get_num_tokens_in_batch=lambda batch: 10)
    t = trainer(spec, "25tok")
    t.fit()
    t.close()
    assert (int(t.state.timestamp.batch), int(t.state.timestamp.token)) == (3, 30)


def test_duration_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    from composer.trainer import clock

    monkeypatch.setattr(clock.BatchClock, "lap", lambda self: 0.5)
    t = trainer(duration="2sec")
    t.fit()
    t.close()
    assert int(t.state.timestamp.batch) == 4


def test_epochs_with_an_unsized_loader_are_refused_before_a_batch_is_drawn() -> None:
    data = Draws(5)
    with pytest.raises(ValueError, match=r"__len__.*another unit.*train_subset_num_batches"):
        trainer(data, "2ep")
    t = trainer(data, "7ba")
    with pytest.raises(ValueError, match="train_subset_num_batches"):
        t.fit(duration="1ep")
    t.close()
    assert data.drawn == 0


def test_batches_re_iterate_the_data() -> None:
    data = Draws(5)
    t = trainer(data, "17ba")
    t.fit()
    t.close()
    assert counters(t) == (3, 17, 2)
    assert data.drawn == 17


def test_seven_batches_are_seven_draws() -> None:
    data = Draws(100)
    t = trainer(data, "7ba")
    t.fit()
    t.close()
    assert data.drawn == 7


def test_a_subset_cuts_the_epoch() -> None:
    data = Draws(5)
    t = trainer(data, "2ep", train_subset_num_batches=3)
    t.fit()
    t.close()
    assert counters(t) == (2, 6, 0)
    assert data.drawn == 6


@pytest.mark.parametrize("size", [None, 1, 3])
def test_batch_k_trains_at_f_of_k_whatever_the_microbatch(size: int | None) -> None:
    lr = Lr()
    t = trainer(
        duration="8ba",
        callbacks=lr,
        schedulers=LinearScheduler(),
        device_train_microbatch_size=size,
    )
    t.fit()
    t.close()
    assert lr.seen == [1 - k / 8 for k in range(8)]
    assert t.state.optimizers[0].param_groups[0]["lr"] == 0.0


def test_torch_schedulers_step_per_epoch() -> None:
    model, lr = TinyModel(), Lr()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    twin = torch.optim.SGD(TinyModel().parameters(), lr=1.0)
    make = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts
    reference, expected = make(twin, T_0=2), []
    for _ in range(3):
        expected += [round(twin.param_groups[0]["lr"], 10)] * 4
        twin.step()
        reference.step()
    t = trainer(
        duration="3ep",
        model=model,
        optimizers=optimizer,
        schedulers=make(optimizer, T_0=2),
        callbacks=lr,
    )
    t.fit()
    t.close()
    assert lr.seen == expected


def test_torch_schedulers_may_step_per_batch() -> None:
    model, lr = TinyModel(), Lr()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    t = trainer(
        duration="4ba",
        model=model,
        optimizers=optimizer,
        schedulers=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
        step_schedulers_every_batch=True,
        callbacks=lr,
    )
    t.fit()
    t.close()
    assert lr.seen == [1.0, 0.5, 0.25, 0.125]


def test_a_function_of_the_state_is_a_scheduler() -> None:
    lr = Lr()
    t = trainer(callbacks=lr, schedulers=lambda state: 0.5 ** int(state.timestamp.batch))
    t.fit()
    t.close()
    assert lr.seen == [1.0, 0.5, 0.25, 0.125]


@pytest.mark.parametrize("where", ["constructor", "fit"])
def test_scaling_the_schedule_scales_the_run(where: str) -> None:
    """The same through constructor and fit, also for warm-up with an explicit end."""
    from composer.optim import LinearWithWarmupScheduler

    lr = Lr()
    schedule = {
        "schedulers": LinearWithWarmupScheduler(t_warmup="2ba", t_max="16ba"),
        "scale_schedule_ratio": 0.5,
    }
    t = trainer(duration="16ba", callbacks=lr, **(schedule if where == "constructor" else {}))
    t.fit(**(schedule if where == "fit" else {}))
    t.close()
    expected = [0.0, 0.5] + [1 - (k - 2) / 6 for k in range(2, 8)]
    assert lr.seen == pytest.approx(expected)


def test_a_new_schedule_in_a_second_fit_starts_from_the_base_rate() -> None:
    lr = Lr()
    t = trainer(callbacks=lr, schedulers=LinearScheduler(alpha_f=0.5, t_max="4ba"))
    t.fit()
    t.fit(duration="2ba", schedulers=ConstantScheduler(alpha=0.25))
    t.close()
    assert lr.seen[-2:] == [0.25, 0.25]


def test_a_clock_set_to_zero_starts_the_schedule_over() -> None:
    lr = Lr()
    t = trainer(duration="4ba", callbacks=lr, schedulers=LinearScheduler())
    t.fit()
    t.fit(reset_time=True)
    t.close()
    assert lr.seen == [1.0, 0.75, 0.5, 0.25] * 2


def test_a_longer_run_is_asked_of_the_schedule_before_it_starts() -> None:
    from composer.optim import LinearWithWarmupScheduler

    ids = IdRecorder()
    schedule = LinearWithWarmupScheduler(t_warmup="1ba", t_max="4ba")
    t = trainer(duration="4ba", callbacks=ids, schedulers=schedule)
    t.fit()
    with pytest.raises(ValueError, match="t_max"):
        t.fit(duration="4ba")
    t.close()
    assert len(ids.ids) == 4


def test_stop_training_ends_at_the_next_check() -> None:
    class Stop(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 2:
                state.stop_training()

    recorder = EventRecorder()
    t = trainer(callbacks=[Stop(), recorder])
    t.fit()
    t.close()
    assert counters(t) == (0, 2, 2)
    assert "epoch_end" not in recorder.names
    assert recorder.names[-1] == "fit_end"


def test_a_generator_serves_one_epoch() -> None:
    t = trainer((batch for batch in list(loader(8, 4))), "5ba")
    with pytest.raises(ValueError, match="exhausted: it is a generator"):
        t.fit()
    t.close()


@pytest.mark.parametrize("data", [[], Draws(0)])
def test_empty_data_is_an_error(data: Any) -> None:
    with pytest.raises(ValueError, match="no batches"):  # noqa: PT012
        t = trainer(data, "5ba")
        t.fit()


def test_more_microbatch_than_batch_is_said() -> None:
    with pytest.warns(UserWarning, match=r"device_train_microbatch_size=8 .*batch_size=4"):
        trainer(device_train_microbatch_size=8).close()


def test_two_trainers_in_one_process_do_not_meet() -> None:
    def alone(seed_model: int) -> tuple[Trainer, TinyModel]:
        torch.manual_seed(seed_model)
        model = TinyModel()
        return trainer(model=model, duration="4ba"), model

    lone, expected = alone(1)
    lone.fit()
    lone.close()
    (a, model), (b, _) = alone(1), alone(2)
    a.fit()
    b.fit()
    a.close()
    b.close()
    for p, q in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(p, q)


def test_wall_clock_interval_saves_at_crossings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from composer.trainer import clock

    monkeypatch.setattr(clock.BatchClock, "lap", lambda self: 0.4)
    t = trainer(duration="5ba", save_folder=str(tmp_path), save_interval="1sec")
    t.fit()
    t.close()
    saved = sorted(int(p.split("-ba")[1].split("-")[0]) for p in t.saved_checkpoints)
    assert saved == [3, 5]


def test_evaluation_time_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from composer.trainer import clock

    now = [0.0]
    monkeypatch.setattr(clock, "perf_counter", lambda: now[0])

    class Slow(Callback):
        def eval_start(self, state: State, logger: Logger) -> None:
            now[0] += 100.0

        def batch_start(self, state: State, logger: Logger) -> None:
            now[0] += 1.0

    t = trainer(duration="4ba", callbacks=Slow(), eval_dataloader=loader(4), eval_interval="1ba")
    t.fit()
    t.close()
    assert t.state.timestamp.total_wct.total_seconds() == pytest.approx(4.0)


def test_the_loader_in_use_is_restored_after_evaluation() -> None:
    t = trainer(eval_dataloader=loader(4))
    t.eval()
    assert t.state.dataloader_label == "train"
    t.predict(loader(4))
    t.fit()
    t.close()
    assert t.state.dataloader_label == "train"


def test_gradients_are_emptied_at_the_end() -> None:
    t = trainer()
    t.fit()
    t.close()
    assert all(p.grad is None for p in t.state.model.parameters())


def test_the_metric_label_is_honoured() -> None:
    from composer.loggers import InMemoryLogger

    class Sum:
        total = 0.0

        def to(self, device: Any) -> Sum:
            return self

        def reset(self) -> None:
            self.total = 0.0

        def update(self, outputs: torch.Tensor, target: torch.Tensor) -> None:
            self.total += float(target.sum())

        def compute(self) -> float:
            return self.total

    memory = InMemoryLogger()
    t = trainer(model=TinyModel(metric=Sum), train_dataloader_label="mine", loggers=memory)
    t.fit()
    t.close()
    assert "metrics/mine/Metric" in memory.data
    assert "metrics/train/Metric" not in memory.data


def test_a_missing_optimizer_is_made_and_said_when_it_trains() -> None:
    t = Trainer(model=TinyModel(), train_dataloader=loader(), max_duration=1, progress_bar=False)
    t.eval(loader(4))  # a warning here would be an error
    with pytest.warns(UserWarning, match="DecoupledSGDW with"):
        t.fit()
    assert type(t.state.optimizers[0]).__name__ == "DecoupledSGDW"
    t.close()


def test_a_schedule_may_be_named() -> None:
    lr = Lr()
    t = trainer(duration="4ba", callbacks=lr, schedulers="linear")
    t.fit()
    t.close()
    assert lr.seen == [1.0, 0.75, 0.5, 0.25]


def test_a_model_without_parameters_evaluates_only() -> None:
    class Nothing(TinyModel):
        def __init__(self) -> None:
            super().__init__()
            del self.linear

        def forward(self, batch: Any) -> torch.Tensor:
            return batch[0]

    t = Trainer(model=Nothing(), train_dataloader=loader(), max_duration=1, progress_bar=False)
    assert len(t.predict(loader(8, 4))) == 2
    with pytest.raises(ValueError, match="nothing to train"):
        t.fit()
    t.close()


def test_engine_events_fire_for_callbacks_added_later() -> None:
    t = trainer()
    ids = IdRecorder()
    t.state.callbacks.append(ids)
    t.fit()
    t.close()
    assert len(ids.ids) == 4


def test_bf16_on_the_cpu_says_when_it_is_slow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from composer.trainer import assemble

    for flags, slow in ((set(), True), ({"amx_bf16"}, False)):
        caplog.clear()
        monkeypatch.setattr(assemble, "_cpu_flags", lambda f=flags: f)
        with caplog.at_level(logging.WARNING):
            trainer(precision="bf16").close()
        assert ("slower" in caplog.text) is slow
