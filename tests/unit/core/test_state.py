"""State, data specs, intervals, evaluators and what of them is saved."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from composer.core.data_spec import DataSpec, default_split_batch, ensure_data_spec
from composer.core.evaluator import Evaluator, ensure_evaluator
from composer.core.event import Event
from composer.core.intervals import create_interval_scheduler
from composer.core.persistence import collect, restore, to_plain
from composer.core.precision import Precision, ensure_precision, get_precision_context
from composer.core.time import Time, TimeUnit
from composer.core.timestamp import Timestamp
from composer_testing.tiny import TinyModel, state_of

# ---- progress -----------------------------------------------------------------------------------


def test_duration_and_elapsed() -> None:
    state = state_of(max_duration=4)
    assert state.max_duration == Time(4, "ep")
    state.timestamp = Timestamp(epoch=1, batch=7)
    assert state.get_elapsed_duration() == Time(0.25, "dur")
    state.max_duration = "14ba"
    assert state.get_elapsed_duration() == Time(0.5, "dur")
    with pytest.raises(ValueError, match="share of itself"):
        state.max_duration = "0.5dur"


@pytest.mark.parametrize(
    ("duration", "stopped"),
    [("9ep", "7ba"), ("90ba", "7ba"), ("900sp", "28sp"), ("900tok", "56tok"), ("9h", "7ba")],
)
def test_stop_training_moves_the_end_to_now(duration: str, stopped: str) -> None:
    state = state_of(max_duration=duration)
    state.timestamp = Timestamp(epoch=1, batch=7, sample=28, token=56)
    state.stop_training()
    assert state.max_duration == Time.from_timestring(stopped)
    elapsed = state.get_elapsed_duration()
    assert elapsed is not None
    assert elapsed.value == 1.0


def test_dataloader_length() -> None:
    state = state_of(dataloader=[1, 2, 3], dataloader_label="train")
    assert state.dataloader_len == Time(3, "ba")
    state.dataloader_len = 2
    assert state.dataloader_len == Time(2, "ba")
    state.dataloader_len = -1
    assert state.dataloader_len == Time(3, "ba")
    with pytest.warns(UserWarning, match="holds 3 batches; dataloader_len=5"):
        state.dataloader_len = 5
    assert state.dataloader_len == Time(3, "ba")
    state.set_dataloader((x for x in range(3)), "train")
    assert state.dataloader_len is None


def test_losses_become_floats_when_read() -> None:
    state = state_of()
    state.total_loss_dict = {"loss/train/total": torch.tensor(0.5)}
    assert state.total_loss_dict == {"loss/train/total": 0.5}
    assert type(state.total_loss_dict["loss/train/total"]) is float


def test_metric_values_do_not_overwrite_each_other() -> None:
    class Fixed:
        def __init__(self, value: int) -> None:
            self.value = value

        def compute(self) -> int:
            return self.value

    state = state_of()
    state.eval_metrics = {"a": {"M": Fixed(1), "N": Fixed(3)}, "b": {"M": Fixed(2)}}
    assert state.eval_metric_values == {"a/M": 1, "b/M": 2, "a/N": 3, "N": 3}


# ---- batches ------------------------------------------------------------------------------------

Pair = namedtuple("Pair", ["x", "y"])


class Encoding(dict[str, Any]):
    """A mapping with a type of its own, as tokenizers return."""


BATCHES: list[tuple[str, Any]] = [
    ("tensor", torch.arange(5)),
    ("tuple", (torch.arange(5), torch.arange(10).reshape(5, 2))),
    ("list of tensors", [torch.arange(5), torch.arange(5)]),
    ("named tuple", Pair(torch.arange(5), torch.arange(5))),
    ("tuple with a list", (torch.arange(5), ["a", "b", "c", "d", "e"])),
    ("mapping", {"x": torch.arange(5), "names": list("abcde"), "mode": "train", "n": 3}),
    ("nested mapping", {"in": {"x": torch.arange(5)}, "y": torch.arange(5)}),
    ("own mapping", Encoding(x=torch.arange(5), task="t")),
    ("plain values", [1, 2, 3, 4, 5]),
    ("with a scalar", {"x": torch.arange(5), "temperature": torch.tensor(2.0)}),
]


@pytest.mark.parametrize(("kind", "batch"), BATCHES, ids=[k for k, _ in BATCHES])
@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_splitting_keeps_every_sample_and_the_type(kind: str, batch: Any, size: int) -> None:
    spec = DataSpec([batch])
    assert spec.get_num_samples_in_batch(batch) == 5
    pieces = default_split_batch(batch, size)
    counts = [spec.get_num_samples_in_batch(piece) for piece in pieces]
    assert counts == [min(size, 5 - i) for i in range(0, 5, min(size, 5))]
    for piece in pieces:
        assert type(piece) is type(batch)
    if isinstance(batch, torch.Tensor):
        assert torch.equal(torch.cat(list(pieces)), batch)
    elif isinstance(batch, tuple):
        assert torch.equal(torch.cat([p[0] for p in pieces]), batch[0])
    elif isinstance(batch, Mapping) and "x" in batch:
        assert torch.equal(torch.cat([p["x"] for p in pieces]), batch["x"])
        assert all(p.get("mode") == batch.get("mode") for p in pieces)


@pytest.mark.parametrize("batch", [["x", "y"], {0: "x", 1: "y"}, ("x", "y")])
def test_setting_a_member_leaves_the_loaders_container_alone(batch: Any) -> None:
    state = state_of()
    state.batch = batch
    state.batch_set_item(1, "z")
    assert state.batch_get_item(1) == "z"
    assert batch[1] == "y"
    assert type(state.batch) is type(batch)


def test_members_must_agree() -> None:
    with pytest.raises(ValueError, match="disagree"):
        DataSpec([]).get_num_samples_in_batch((torch.zeros(3), torch.zeros(4)))
    with pytest.raises(ValueError, match="get_num_samples_in_batch"):
        DataSpec([]).get_num_samples_in_batch(object())
    with pytest.raises(TypeError, match="cannot be split"):
        default_split_batch((torch.zeros(3), {1, 2, 3}), 2)
    with pytest.raises(ValueError, match="positive whole number"):
        default_split_batch(torch.zeros(3), 1.5)


def test_tokens() -> None:
    batch = {"input_ids": torch.zeros(2, 8), "labels": torch.tensor([[1, -100], [-100, -100]])}
    assert DataSpec([]).get_num_tokens_in_batch(batch) == 16
    assert DataSpec([]).get_num_tokens_in_batch(batch, "loss_generating") == 1
    own = DataSpec([], get_num_tokens_in_batch=lambda b: {"total": 5, "loss_generating": 3})
    assert (own.get_num_tokens_in_batch(batch), own.get_num_tokens_in_batch(batch, "total")) == (
        5,
        5,
    )
    assert own.get_num_tokens_in_batch(batch, "loss_generating") == 3
    with pytest.raises(ValueError, match="token_type"):
        own.get_num_tokens_in_batch(batch, "all")


def test_a_known_number_of_samples_gives_a_length() -> None:
    class Unsized:
        batch_size = 4

        def __iter__(self) -> Any:
            return iter(())

    assert DataSpec(Unsized()).num_batches is None
    assert DataSpec(Unsized(), num_samples=10).num_batches == 3


def test_what_is_no_loader_is_refused() -> None:
    with pytest.raises(TypeError, match=r"DataLoader\(dataset"):
        ensure_data_spec(torch.utils.data.TensorDataset(torch.zeros(3)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dataloader must be"):
        ensure_data_spec(3)  # type: ignore[arg-type]
    assert ensure_data_spec({"dataloader": [1], "num_samples": 9}).num_samples == 9


# ---- intervals ----------------------------------------------------------------------------------


def _due_batches(interval: Any, batches: int, per_epoch: int = 4, **settings: Any) -> list[int]:
    """Fire the events of a run without a trainer and note at which batches it was due."""
    state = state_of(max_duration=f"{batches}ba", dataloader=[0] * per_epoch)
    due = create_interval_scheduler(interval, **settings)
    found = []
    checkpoint = settings.get("checkpoint_events", True)
    batch_event = Event.BATCH_CHECKPOINT if checkpoint else Event.BATCH_END
    epoch_event = Event.EPOCH_CHECKPOINT if checkpoint else Event.EPOCH_END
    for i in range(batches):
        state.previous_timestamp = state.timestamp
        state.timestamp = state.timestamp.to_next_batch(samples=3, tokens=5, duration=0.4)
        if due(state, batch_event):
            found.append(i + 1)
        if (i + 1) % per_epoch == 0:
            state.previous_timestamp = state.timestamp
            state.timestamp = state.timestamp.to_next_epoch()
            if due(state, epoch_event):
                found.append(i + 1)
    if due(state, Event.FIT_END):
        found.append(batches)
    return found


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ("3ba", [3, 6, 9, 10]),
        ("100ba", [10]),
        ("0.25dur", [3, 6, 9, 10]),
        ("1ep", [4, 8, 10]),
        (2, [8, 10]),
        ("10sp", [4, 7, 10]),
        ("10tok", [2, 4, 6, 8, 10]),
        ("1sec", [3, 5, 8, 10]),
        ("0ba", []),
        (0, []),
    ],
)
@pytest.mark.parametrize("flavour", ["saving", "evaluating"])
def test_when_an_interval_is_due(interval: Any, expected: list[int], flavour: str) -> None:
    settings: dict[str, Any] = {}
    if flavour == "evaluating":
        settings = {"checkpoint_events": False, "final_events": {Event.FIT_END}}
    assert _due_batches(interval, 10, **settings) == expected


def test_end_of_training_can_be_left_out() -> None:
    assert _due_batches("3ba", 10, include_end_of_training=False) == [3, 6, 9]


def test_a_function_is_an_interval_of_its_own() -> None:
    def due(state: Any, event: Event) -> bool:
        return True

    assert create_interval_scheduler(due) is due


def test_a_share_of_the_run_needs_its_length() -> None:
    state = state_of(max_duration="2ep", dataloader=(i for i in range(3)))
    state.timestamp = Timestamp(batch=1)
    with pytest.raises(ValueError, match="sized"):
        create_interval_scheduler("0.5dur")(state, Event.BATCH_CHECKPOINT)


def test_evaluators() -> None:
    assert ensure_evaluator([1], ["M"]).label == "eval"
    with pytest.raises(ValueError, match="label"):
        Evaluator(label="", dataloader=[])
    with pytest.raises(ValueError, match="subset_num_batches"):
        Evaluator(label="a", dataloader=[], subset_num_batches=0)
    with pytest.raises(TypeError, match="list of strings"):
        Evaluator(label="a", dataloader=[], metric_names="M")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="or 'auto', not 'most'"):
        Evaluator(label="a", dataloader=[], device_eval_microbatch_size="most")
    with pytest.raises(ValueError, match="time string"):
        Evaluator(label="a", dataloader=[], eval_interval="often")


# ---- precision ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [("fp32", "fp32"), ("amp", "amp_fp16"), ("bf16", "amp_bf16"), ("AMP_BF16", "amp_bf16")],
)
def test_precision_names(name: str, expected: str) -> None:
    assert ensure_precision(name) is Precision(expected)


def test_unknown_precision_names_the_near_one() -> None:
    with pytest.raises(ValueError, match="amp_bf16"):
        ensure_precision("amp_bf17")


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", torch.float32), ("amp_fp16", torch.float16), ("amp_bf16", torch.bfloat16)],
)
def test_precision_context_on_the_cpu(precision: str, dtype: torch.dtype) -> None:
    with get_precision_context(precision, device_type="cpu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is dtype
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


# ---- saving -------------------------------------------------------------------------------------


def test_plain_types() -> None:
    value = {
        "np": np.float32(0.5),
        "array": np.arange(3),
        "time": Time(1, "ep"),
        "unit": TimeUnit.EPOCH,
        "nested": [(1, None), {"x": [2]}],
    }
    plain = to_plain(value)
    assert torch.equal(plain.pop("array"), torch.arange(3))
    assert plain == {
        "np": 0.5,
        "time": {"value": 1, "unit": "ep"},
        "unit": "ep",
        "nested": [(1, None), {"x": [2]}],
    }
    assert type(plain["unit"]) is str
    with pytest.raises(TypeError, match=r"state is \{1\} of type builtins.set"):
        to_plain({1})  # it would come back as something else
    with pytest.raises(TypeError, match="callbacks/0/x is <object"):
        to_plain({"0": {"x": object()}}, "callbacks")


def test_optimizer_state_is_keyed_by_name_and_survives_reordering() -> None:
    model = TinyModel()
    named = dict(model.named_parameters())
    optimizer = torch.optim.Adam(list(named.values()), lr=0.1)
    sum(p.sum() for p in named.values()).backward()
    optimizer.step()
    saved = collect(state_of(model, optimizers=optimizer))
    twin = TinyModel()
    reversed_ = torch.optim.Adam([p for _, p in reversed(list(twin.named_parameters()))], lr=0.5)
    restore(state_of(twin, optimizers=reversed_), saved)
    for name, parameter in twin.named_parameters():
        original = optimizer.state[named[name]]
        assert torch.equal(reversed_.state[parameter]["exp_avg"], original["exp_avg"])
    assert reversed_.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("what", ["type", "groups"])
def test_another_optimizer_is_refused(what: str) -> None:
    model = TinyModel()
    saved = collect(state_of(model, optimizers=torch.optim.SGD(model.parameters(), lr=0.1)))
    other: torch.optim.Optimizer
    if what == "type":
        other = torch.optim.Adam(model.parameters())
    else:
        other = torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.1)
    with pytest.raises(ValueError, match="state/optimizers"):
        restore(state_of(model, optimizers=other), saved)


def test_weights_that_do_not_fit_are_named() -> None:
    saved = collect(state_of(TinyModel()))
    saved["model"]["linear.extra"] = saved["model"].pop("linear.bias")
    with pytest.raises(ValueError, match=r"Missing .*linear\.bias.*Not in the model.*extra"):
        restore(state_of(TinyModel()), saved)
    with pytest.warns(UserWarning, match="in both"):
        restore(state_of(TinyModel()), saved, strict=False)
    saved["model"]["linear.weight"] = torch.zeros(9, 9)
    with pytest.raises(ValueError, match=r"stored \(9, 9\), model \(3, 4\)"):
        restore(state_of(TinyModel()), saved, strict=False)
