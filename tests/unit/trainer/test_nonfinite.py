"""A loss that is not finite: stop, skip, or go back, and in each case a clean model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from composer.core.algorithm import Algorithm
from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.logger import Logger
from composer.core.persistence import collect
from composer.core.state import State
from composer.trainer import NonFiniteLossError, Trainer
from composer_testing.tiny import TinyModel, TokenModel


class Normed(TinyModel):
    """With statistics that a bad batch would spoil for good."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.linear(self.norm(batch[0]))


def batches(bad: tuple[int, ...], count: int = 8) -> list[Any]:
    generator = torch.Generator().manual_seed(2)
    found = []
    for i in range(count):
        x = torch.randn(6, 4, generator=generator)
        y = torch.randint(0, 3, (6,), generator=generator)
        if i in bad:
            x[3, 1] = float("nan")
        found.append((x, y))
    return found


class Watch(Callback):
    def __init__(self) -> None:
        self.weights: list[torch.Tensor] = []
        self.rates: list[float] = []

    def batch_start(self, state: State, logger: Logger) -> None:
        self.rates.append(state.optimizers[0].param_groups[0]["lr"])

    def batch_end(self, state: State, logger: Logger) -> None:
        self.weights.append(state.model.linear.weight.detach().clone())  # type: ignore[union-attr]


def train(bad: tuple[int, ...], **settings: Any) -> tuple[Trainer, Watch]:
    torch.manual_seed(1)
    model, watch = Normed(), Watch()
    settings.setdefault("train_dataloader", batches(bad))
    trainer = Trainer(
        model=model,
        max_duration="1ep",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        callbacks=watch,
        progress_bar=False,
        seed=1,
        **settings,
    )
    try:
        trainer.fit()
    finally:
        trainer.close()
    return trainer, watch


def test_nobody_looks_unasked() -> None:
    trainer, _ = train((3,))
    assert torch.isnan(trainer.state.model.linear.weight).all()  # type: ignore[union-attr]


@pytest.mark.parametrize("settings", [{"on_nonfinite_loss": "stop"}, {"strict_mode": True}])
def test_stop_names_the_batch_and_updates_nothing(settings: dict[str, Any]) -> None:
    with pytest.raises(NonFiniteLossError, match=r"loss of batch 3 \(batch 3 of epoch 0\) is nan"):
        train((3,), **settings)


def test_skip_equals_a_run_without_the_batch() -> None:
    from composer.optim import LinearScheduler

    kept = [b for i, b in enumerate(batches(())) if i not in (2, 5)]
    schedule = {"schedulers": LinearScheduler(alpha_f=0.5, t_max="6ba")}
    clean, clean_watch = train((), train_dataloader=kept, **schedule)
    skipped, watch = train((2, 5), on_nonfinite_loss="skip", **schedule)
    for name, value in clean.state.model.state_dict().items():
        assert torch.equal(value, skipped.state.model.state_dict()[name]), name
    # The clock counts the data, the schedule the updates.
    assert int(skipped.state.timestamp.batch) == 8
    assert skipped.state.num_skipped_steps == 2
    assert [r for i, r in enumerate(watch.rates) if i not in (2, 5)] == clean_watch.rates


def test_skip_goes_on_with_microbatches_and_metrics() -> None:
    trainer, _ = train((2,), on_nonfinite_loss="skip", device_train_microbatch_size=2)
    for value in trainer.state.model.state_dict().values():
        assert torch.isfinite(value).all()
    assert trainer.state.num_skipped_steps == 1


def test_a_skipped_batch_still_reports_its_loss() -> None:
    seen: list[float] = []

    class Losses(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            seen.append(state.total_loss_dict["loss/train/total"])

    model = Normed()
    trainer = Trainer(
        model=model, train_dataloader=batches((1,)), max_duration="3ba", progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1), callbacks=Losses(),
        on_nonfinite_loss="skip",
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    assert [value == value for value in seen] == [True, False, True]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_rewind_goes_back_to_the_checkpoint_and_jumps_over_the_data(
    tmp_path: Path, asynchronous: bool
) -> None:
    """Saved after 2 batches, bad at index 4: weights of batch 2, then batches 5 to 7."""
    trainer, watch = train(
        (4,),
        on_nonfinite_loss="rewind",
        save_folder=str(tmp_path),
        save_interval="2ba",
        save_filename="ba{batch}.pt",
        save_num_checkpoints_to_keep=-1,
        save_async=asynchronous,
    )
    # The checkpoint of batch 4 holds the weights after four batches, and is the newest.
    assert torch.equal(watch.weights[4], watch.weights[3])
    data = batches(())
    clean, _ = train((), train_dataloader=data[:4] + data[5:])
    for name, value in clean.state.model.state_dict().items():
        assert torch.equal(value, trainer.state.model.state_dict()[name]), name
    assert int(trainer.state.timestamp.batch) == 8


def test_rewind_from_between_checkpoints(tmp_path: Path) -> None:
    trainer, watch = train(
        (3,), on_nonfinite_loss="rewind", save_folder=str(tmp_path), save_interval="2ba"
    )
    assert torch.equal(watch.weights[3], watch.weights[1])
    data = batches(())
    clean, _ = train((), train_dataloader=data[:2] + data[4:])
    for name, value in clean.state.model.state_dict().items():
        assert torch.equal(value, trainer.state.model.state_dict()[name]), name


class Mirrored(Algorithm):
    """Trains on weights of which a checkpoint's model holds the negative."""

    events = frozenset({Event.AFTER_LOAD})

    def __init__(self) -> None:
        self.negative = False

    def _turn(self, state: State) -> None:
        with torch.no_grad():
            for parameter in state.model.parameters():
                parameter.neg_()
        self.negative = not self.negative

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        if self.negative:
            self._turn(state)

    @contextmanager
    def saving(self, state: State) -> Iterator[None]:
        self._turn(state)
        try:
            yield
        finally:
            self._turn(state)

    def state_dict(self) -> dict[str, Any]:
        return {"negative": self.negative}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.negative = state["negative"]


class Trained(Callback):
    """What trains, at one event of one batch."""

    def __init__(self, event: Event, batch: int) -> None:
        self.event, self.batch = event, batch
        self.found: dict[str, Any] = {}

    def run_event(self, event: Event, state: State, logger: Logger) -> None:
        if event is self.event and int(state.timestamp.batch) == self.batch:
            self.found = flat(collect(state, ["model", "optimizers", "algorithms"]))


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for n, x in value.items() for k, v in flat(x, f"{path}/{n}").items()}
    if isinstance(value, list):
        return {k: v for n, x in enumerate(value) for k, v in flat(x, f"{path}/{n}").items()}
    return {path: value.tolist() if isinstance(value, torch.Tensor) else value}


def adam(algorithm: Algorithm | None, *callbacks: Callback, **settings: Any) -> Trainer:
    torch.manual_seed(1)
    model = Normed()
    kind = settings.pop("kind", torch.optim.Adam)
    return Trainer(
        model=model,
        train_dataloader=batches(settings.pop("bad", ())),
        optimizers=kind(model.parameters(), lr=0.1),
        algorithms=algorithm,
        callbacks=list(callbacks),
        progress_bar=False,
        seed=1,
        **{"max_duration": "1ep", **settings},
    )


@pytest.mark.parametrize("method", ["ema", "mirrored", "none"])
def test_a_run_that_went_back_is_one_that_resumed(tmp_path: Path, method: str) -> None:
    from composer.algorithms import EMA

    def make() -> Algorithm | None:
        return {"ema": EMA("3ba"), "mirrored": Mirrored(), "none": None}[method]

    went_back = Trained(Event.BATCH_END, 5)
    saving = {"save_folder": str(tmp_path), "save_interval": "3ba", "save_filename": "ba{batch}.pt"}
    trainer = adam(make(), went_back, bad=(4,), on_nonfinite_loss="rewind", **saving)
    trainer.fit()
    trainer.close()
    resumed = Trained(Event.FIT_START, 3)
    trainer = adam(make(), resumed, load_path=str(tmp_path / "ba3.pt"))
    trainer.fit()
    trainer.close()
    assert len(resumed.found) > 10
    assert went_back.found == resumed.found


@pytest.mark.parametrize(
    "leaving_out",
    [
        {"load_weights_only": True},
        {"load_weights_only": True, "kind": torch.optim.Adagrad},
        {"load_ignore_keys": ["state/optimizers"]},
        {"load_ignore_keys": ["state/optimizers"], "kind": torch.optim.Adagrad},
        {"load_ignore_keys": ["state/model/linear.bias"], "load_strict_model_weights": False},
        {"load_ignore_keys": ["state/algorithms"]},
    ],
)
@pytest.mark.filterwarnings("ignore:the checkpoint", "ignore:loading weights")
def test_what_was_left_out_at_loading_stays_left_out(
    tmp_path: Path, leaving_out: dict[str, Any]
) -> None:
    from composer.algorithms import EMA

    first = adam(EMA("3ba"), max_duration="3ba")
    first.fit()
    path = first.save_checkpoint(str(tmp_path / "first.pt"))
    first.close()
    began = int(not leaving_out.get("load_weights_only")) * 3
    start = Trained(Event.FIT_START, began)
    went_back = Trained(Event.BATCH_END, began + 3)
    trainer = adam(
        EMA("3ba"), start, went_back, load_path=path, bad=(began + 2,),
        on_nonfinite_loss="rewind", **leaving_out,
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    assert len(start.found) > 10
    assert went_back.found == start.found


def test_going_back_finds_the_checkpoint_in_its_object_store(tmp_path: Path) -> None:
    from composer.utils.object_store import LocalObjectStore

    first = adam(None, max_duration="3ba")
    first.fit()
    first.save_checkpoint(str(tmp_path / "first.pt"))
    first.close()
    start, went_back = Trained(Event.FIT_START, 3), Trained(Event.BATCH_END, 6)
    trainer = adam(
        None, start, went_back, load_path="first.pt", bad=(5,), on_nonfinite_loss="rewind",
        load_object_store=LocalObjectStore(str(tmp_path)),
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    assert went_back.found == start.found != {}


def test_rewind_without_a_checkpoint_stops(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteLossError, match="no checkpoint to go back to"):
        train((3,), on_nonfinite_loss="rewind", save_folder=str(tmp_path), save_interval="5ba")
    with pytest.raises(ValueError, match=r"on_nonfinite_loss='rewind' .*without save_folder"):
        train((3,), on_nonfinite_loss="rewind")


def test_rewinding_ends_where_it_does_not_help(tmp_path: Path) -> None:
    folder = {"save_folder": str(tmp_path), "save_overwrite": True}
    with pytest.raises(NonFiniteLossError, match=r"batch 5 .*last of 4 such batches"):
        train((2, 3, 4, 5), on_nonfinite_loss="rewind", save_interval="2ba", **folder)
    odd = batches(tuple(range(3, 20, 2)), 20)
    with pytest.raises(NonFiniteLossError, match=r"batch 9 .*went back to .* 3 times already"):
        train((), train_dataloader=odd, on_nonfinite_loss="rewind", save_interval="2ba",
              save_filename="always-the-same.pt", **folder)  # fmt: skip


def test_skipping_ends_where_it_does_not_help() -> None:
    data = batches(tuple(range(1, 40)), 40)
    with pytest.raises(NonFiniteLossError, match=r"batch 21 .*last of 21 such batches"):
        train((), train_dataloader=data, on_nonfinite_loss="skip")


def test_a_run_that_skipped_continues_exactly(tmp_path: Path) -> None:
    from composer.optim import LinearScheduler

    schedule = {"schedulers": LinearScheduler(alpha_f=0.5, t_max="6ba")}
    settings = {"on_nonfinite_loss": "skip", "save_folder": str(tmp_path), "save_interval": "4ba"}
    straight, _ = train((2, 5), **settings, **schedule)
    resumed, _ = train(
        (2, 5),
        on_nonfinite_loss="skip",
        load_path=str(tmp_path / "ep0-ba4-rank0.pt"),
        **schedule,
    )
    assert resumed.state.num_skipped_steps == 2
    for name, value in straight.state.model.state_dict().items():
        assert torch.equal(value, resumed.state.model.state_dict()[name]), name


def test_skipped_batches_are_logged() -> None:
    from composer.loggers import InMemoryLogger

    memory = InMemoryLogger()
    train((2, 5), on_nonfinite_loss="skip", loggers=memory)
    logged = memory.data["trainer/num_skipped_steps"]
    assert [(int(timestamp.batch), value) for timestamp, value in logged] == [
        (2, 1), (3, 1), (4, 1), (5, 2), (6, 2), (7, 2),
    ]  # fmt: skip


def test_buffers_that_a_forward_pass_replaces_are_put_back() -> None:
    class Running(TinyModel):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, batch: Any) -> torch.Tensor:
            self.mean = 0.9 * self.mean + 0.1 * batch[0].mean(0)
            return self.linear(batch[0] - self.mean)

    def mean(data: list[Any], **settings: Any) -> torch.Tensor:
        torch.manual_seed(1)
        model = Running()
        trainer = Trainer(
            model=model, train_dataloader=data, max_duration="1ep", progress_bar=False,
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1), **settings,
        )  # fmt: skip
        trainer.fit()
        trainer.close()
        return model.mean

    clean = mean([b for i, b in enumerate(batches(())) if i != 2])
    assert torch.equal(mean(batches((2,)), on_nonfinite_loss="skip"), clean)


def test_a_step_that_was_cut_in_its_middle_is_undone() -> None:
    """L-BFGS moves the weights before its second evaluation, which finds the loss not finite."""

    class Cliff(TinyModel):
        evaluations = 0

        def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            self.evaluations += 1
            loss = super().loss(outputs, batch)
            return loss * float("nan") if self.evaluations == 2 else loss

    model = Cliff()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = Trainer(
        model=model, train_dataloader=batches((), 1), max_duration="1ep", progress_bar=False,
        optimizers=torch.optim.LBFGS(model.parameters(), max_iter=3), on_nonfinite_loss="skip",
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    assert model.evaluations == 2
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_rates_follow_the_clock_after_going_back(tmp_path: Path) -> None:
    from composer.optim import LinearScheduler

    schedule = {"schedulers": LinearScheduler()}
    _, watch = train(
        (5,), on_nonfinite_loss="rewind", save_folder=str(tmp_path), save_interval="3ba", **schedule
    )
    # One batch of eight gave no update, so from then on the schedule is one behind the clock.
    assert watch.rates == pytest.approx([0.1 * (1 - k / 8) for k in (0, 1, 2, 3, 4, 5, 5, 6)])


def test_an_average_takes_no_part_in_a_skipped_batch() -> None:
    kept = [b for i, b in enumerate(batches(())) if i not in (2, 5)]

    def average(bad: tuple[int, ...], **settings: Any) -> dict[str, torch.Tensor]:
        from composer.algorithms import EMA

        method = EMA(smoothing=0.5, update_interval="1ba")
        train(bad, algorithms=method, **settings)
        return dict(method.ema_model.named_parameters_dict)

    clean = average((), train_dataloader=kept)
    skipped = average((2, 5), on_nonfinite_loss="skip")
    assert all(torch.equal(clean[name], skipped[name]) for name in clean)


# ---- batches without a token that carries loss ------------------------------------------------


def token_batches(empty: tuple[int, ...], count: int = 5) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(6)
    found = []
    for i in range(count):
        ids = torch.randint(0, 5, (4, 6), generator=generator)
        found.append(
            {"input_ids": ids, "labels": torch.full_like(ids, -100) if i in empty else ids}
        )
    return found


def train_tokens(data: list[Any], **settings: Any) -> Trainer:
    torch.manual_seed(1)
    model = TokenModel()
    trainer = Trainer(
        model=model, train_dataloader=data, max_duration="1ep", progress_bar=False, seed=1,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9), **settings,
    )  # fmt: skip
    try:
        trainer.fit()
    finally:
        trainer.close()
    return trainer


@pytest.mark.parametrize("microbatch", [None, 1, 3, "auto"])
@pytest.mark.parametrize("policy", [None, "stop"])
def test_a_batch_without_loss_tokens_is_one_error_however_it_is_split(
    microbatch: Any, policy: str | None
) -> None:
    with pytest.raises(
        NonFiniteLossError, match=r"batch 2 \(batch 2 of epoch 0\) holds no tokens that carry loss"
    ) as caught:
        train_tokens(
            token_batches((2,)), device_train_microbatch_size=microbatch, on_nonfinite_loss=policy
        )
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("microbatch", [None, 1, 3, "auto"])
@pytest.mark.parametrize("policy", ["skip", "rewind"])
def test_a_batch_without_loss_tokens_is_skipped(
    tmp_path: Path, microbatch: Any, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing speaks against the weights, so there is nothing to go back to either."""
    kept = [b for i, b in enumerate(token_batches(())) if i not in (1, 3)]
    clean = train_tokens(kept, device_train_microbatch_size=microbatch)
    with caplog.at_level("WARNING", "composer"):
        skipped = train_tokens(
            token_batches((1, 3)),
            device_train_microbatch_size=microbatch,
            on_nonfinite_loss=policy,
            save_folder=str(tmp_path),
            save_interval="1ba",
        )
    assert "batch 3 was skipped: no token of it carries loss" in caplog.text
    assert skipped.state.num_skipped_steps == 2
    for name, value in clean.state.model.state_dict().items():
        assert torch.equal(value, skipped.state.model.state_dict()[name]), name


def test_a_model_that_counts_its_tokens_is_asked_for_whole_batches_too() -> None:
    class Counting(TokenModel):
        def num_loss_tokens(self, batch: Any) -> int:
            return 0

    model = Counting()
    trainer = Trainer(
        model=model, train_dataloader=token_batches(()), max_duration="1ep", progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.5),
    )  # fmt: skip
    with pytest.raises(NonFiniteLossError, match=r"batch 0 .*holds no tokens"):
        trainer.fit()
    trainer.close()
