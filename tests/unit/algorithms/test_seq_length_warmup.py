"""Growing sequences: the schedule by hand, batches of every kind, and whole runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from composer import Trainer
from composer.algorithms import SeqLengthWarmup
from composer.algorithms.seq_length_warmup import sequence_length_at
from composer.core import Callback, ComposerModel, Event, Logger, State
from composer.functional import set_batch_sequence_length

# ---- the schedule -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration", "low", "high", "step"),
    [(0.3, 8, 1024, 8), (1.0, 16, 64, 16), (0.5, 10, 100, 7), (0.01, 1, 5, 1), (0.7, 64, 64, 8)],
)
def test_lengths_grow_linearly_in_steps(duration: float, low: int, high: int, step: int) -> None:
    """Batches of a run of a thousand, against the paper's rule in whole numbers."""
    last = 0
    for batch in range(1001):
        length = sequence_length_at(batch / 1000, duration, low, high, step)
        warmup = round(1000 * duration)
        if batch >= warmup:
            expected = high
        else:
            grown = low * warmup + (high - low) * batch  # over `warmup`
            expected = max(low, grown // (warmup * step) * step)
        assert length == expected
        assert last <= length
        last = length
    assert sequence_length_at(0.0, duration, low, high, step) == low


@pytest.mark.parametrize("batches", [1, 2, 3, 5, 10])
def test_a_run_shorter_than_the_steps_still_ends_at_full_length(batches: int) -> None:
    lengths = [sequence_length_at(b / batches) for b in range(batches + 1)]
    assert lengths[0] == 8
    assert lengths[-1] == 1024
    assert lengths == sorted(lengths)


def test_no_warmup_is_full_length_from_the_start() -> None:
    assert sequence_length_at(0.0, duration=0.0, max_seq_length=77) == 77


# ---- batches ----------------------------------------------------------------------------------


def test_every_sequence_is_cut_and_nothing_else() -> None:
    ids, mask = torch.arange(96).reshape(3, 32), torch.ones(3, 32)
    other, names = torch.arange(21).reshape(3, 7), ["a", "b", "c"]
    batch = {"ids": ids, "mask": mask, "other": other, "names": names}
    found = set_batch_sequence_length(batch, 8)
    assert found["ids"].tolist() == ids[:, :8].tolist()
    assert found["mask"].shape == (3, 8)
    assert found["other"] is other
    assert found["names"] is names
    assert batch["ids"] is ids
    assert found["ids"].is_contiguous()


@pytest.mark.parametrize("key", ["input_ids", "inputs_embeds", "attention_mask"])
def test_known_names_tell_the_length_against_the_majority(key: str) -> None:
    told = torch.zeros(2, 6, 3) if key == "inputs_embeds" else torch.zeros(2, 6)
    batch = {"a": torch.zeros(2, 50), "b": torch.zeros(2, 50), key: told}
    found = set_batch_sequence_length(batch, 4)
    assert found[key].shape[1] == 4
    assert found["a"] is batch["a"]


def test_keys_say_which_members_are_meant() -> None:
    batch = {"a": torch.zeros(2, 9), "b": torch.zeros(2, 9), "input_ids": torch.zeros(2, 9)}
    found = set_batch_sequence_length(batch, 4, keys=["a"])
    assert {k: v.shape[1] for k, v in found.items()} == {"a": 4, "b": 9, "input_ids": 9}
    with pytest.raises(ValueError, match=r"keys=\['c'\].*members"):
        set_batch_sequence_length(batch, 4, keys=["c"])
    with pytest.raises(ValueError, match=r"with one T"):
        set_batch_sequence_length({**batch, "c": torch.zeros(2, 5)}, 4, keys=["a", "c"])


def samples() -> dict[str, torch.Tensor]:
    ids = torch.tensor([[1, 5, 6, 7, 8, 2], [1, 5, 2, 0, 0, 0]])
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "labels": ids * 10,
        "token_type_ids": torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 0, 0, 0]]),
    }


def test_the_end_of_a_sample_is_kept_with_all_that_belongs_to_it() -> None:
    batch = samples()
    found = set_batch_sequence_length(batch, 4, preserve_end_of_sequence=True)
    assert found["input_ids"].tolist() == [[1, 5, 6, 2], [1, 5, 2, 0]]
    assert found["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert found["labels"].tolist() == [[10, 50, 60, 20], [10, 50, 20, 0]]
    assert found["token_type_ids"].tolist() == [[0, 0, 0, 1], [0, 0, 1, 0]]
    assert batch["input_ids"].tolist() == samples()["input_ids"].tolist()
    plain = set_batch_sequence_length(batch, 4)
    assert plain["input_ids"].tolist() == [[1, 5, 6, 7], [1, 5, 2, 0]]


def test_a_batch_of_one_sample_is_not_written_to() -> None:
    batch = {key: value[:1].clone() for key, value in samples().items()}
    found = set_batch_sequence_length(batch, 4, preserve_end_of_sequence=True)
    assert found["input_ids"].tolist() == [[1, 5, 6, 2]]
    assert batch["input_ids"].tolist() == [[1, 5, 6, 7, 8, 2]]


def test_samples_without_tokens_keep_their_padding() -> None:
    batch = samples()
    batch["attention_mask"][1] = 0
    found = set_batch_sequence_length(batch, 2, preserve_end_of_sequence=True)
    assert found["input_ids"].tolist() == [[1, 2], [1, 5]]


def test_ends_need_a_mask_also_where_nothing_is_cut() -> None:
    batch = samples()
    del batch["attention_mask"]
    for length in (4, 100):
        with pytest.raises(ValueError, match="attention_mask"):
            set_batch_sequence_length(batch, length, preserve_end_of_sequence=True)


def test_rows_hold_the_same_tokens() -> None:
    ids = torch.arange(16).reshape(2, 8)
    batch = {"input_ids": ids, "labels": ids + 50, "vectors": torch.randn(2, 8, 3)}
    found = set_batch_sequence_length(batch, 4, truncate=False)
    assert {k: tuple(v.shape[:2]) for k, v in found.items()} == dict.fromkeys(batch, (4, 4))
    assert Counter(found["input_ids"].flatten().tolist()) == Counter(ids.flatten().tolist())
    assert (found["labels"] - found["input_ids"] == 50).all()
    torch.testing.assert_close(found["vectors"].reshape(2, 8, 3), batch["vectors"])


def test_rows_that_cannot_be_filled_are_left_out() -> None:
    ids = torch.arange(22).reshape(2, 11)
    found = set_batch_sequence_length({"input_ids": ids}, 5, truncate=False)
    assert found["input_ids"].tolist() == torch.arange(20).reshape(4, 5).tolist()


def test_what_is_there_per_sample_goes_to_its_rows() -> None:
    batch = {
        "input_ids": torch.arange(16).reshape(2, 8),
        "y": torch.tensor([3, 4]),
        "n": ("a", "b"),
    }
    found = set_batch_sequence_length(batch, 2, truncate=False)
    assert found["y"].tolist() == [3, 3, 3, 3, 4, 4, 4, 4]
    assert found["n"] == tuple("aaaabbbb")
    with pytest.raises(ValueError, match=r"rows of 3 out of sequences of 8.*'y'"):
        set_batch_sequence_length(batch, 3, truncate=False)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("length", [6, 7, 1000])
def test_nothing_is_ever_lengthened(truncate: bool, length: int) -> None:
    batch = samples()
    assert set_batch_sequence_length(batch, length, truncate) is batch


class Frozen(Mapping):  # type: ignore[type-arg]
    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members

    def __getitem__(self, key: str) -> Any:
        return self._members[key]

    def __iter__(self) -> Any:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


@pytest.mark.parametrize("truncate", [True, False])
def test_any_mapping_will_do(truncate: bool) -> None:
    transformers = pytest.importorskip("transformers")
    expected = set_batch_sequence_length(samples(), 3, truncate)
    for kind in (transformers.BatchEncoding, Frozen):
        batch = kind(samples())
        found = set_batch_sequence_length(batch, 3, truncate)
        assert {k: v.tolist() for k, v in found.items()} == {
            k: v.tolist() for k, v in expected.items()
        }
        assert batch["input_ids"].shape == (2, 6)
        if kind is not Frozen:
            assert type(found) is kind


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        ((torch.ones(2, 3), torch.ones(2)), TypeError, "tuple"),
        ({"x": torch.ones(3), "y": ["a"]}, ValueError, "found no sequences.*'x': .3,"),
    ],
)
def test_other_batches_are_refused(batch: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        set_batch_sequence_length(batch, 2)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"duration": 1.5}, ValueError),
        ({"duration": "0.3"}, TypeError),
        ({"min_seq_length": 0}, ValueError),
        ({"max_seq_length": 4}, ValueError),
        ({"step_size": 0}, ValueError),
        ({"step_size": 0.5}, TypeError),
        ({"truncate": 1}, TypeError),
        ({"preserve_end_of_sequence": "yes"}, TypeError),
        ({"preserve_end_of_sequence": True, "truncate": False}, ValueError),
        ({"keys": "input_ids"}, TypeError),
        ({"keys": []}, TypeError),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        SeqLengthWarmup(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"curr_seq_len": 0}, ValueError),
        ({"curr_seq_len": 2.0}, TypeError),
        ({"truncate": 1}, TypeError),
        ({"preserve_end_of_sequence": "yes"}, TypeError),
        ({"keys": "input_ids"}, TypeError),
    ],
)
def test_bad_arguments_of_the_function_are_named(
    arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        set_batch_sequence_length(samples(), **{"curr_seq_len": 2, **arguments})


class _Copies(TorchDispatchMode):
    """Counts the tensors that are copied."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in (torch.ops.aten.clone.default, torch.ops.aten.copy_.default)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("preserve", [False, True])
def test_each_member_is_copied_once(preserve: bool) -> None:
    batch = {name: torch.ones(4, 9) for name in ("input_ids", "attention_mask", "labels")}
    with _Copies() as copies:
        found = set_batch_sequence_length(batch, 4, preserve_end_of_sequence=preserve)
    assert copies.count == 3
    assert all(value.is_contiguous() and value.shape == (4, 4) for value in found.values())


# ---- whole runs -------------------------------------------------------------------------------


class Tagger(ComposerModel):
    """A model of nobody's library: tokens in, a label per token out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(12, 8)
        self.head = nn.Linear(8, 3)
        self.seen: list[tuple[int, ...]] = []

    def forward(self, batch: Any) -> torch.Tensor:
        self.seen.append((int(self.training), *batch["ids"].shape))
        return self.head(F.dropout(self.embedding(batch["ids"]), 0.1, self.training))

    def loss(self, outputs: torch.Tensor, batch: Any) -> torch.Tensor:
        return F.cross_entropy(outputs.flatten(0, 1), batch["tags"].flatten())

    def eval_forward(self, batch: Any, outputs: Any = None) -> torch.Tensor:
        return self(batch)


def loader(samples: int = 16, length: int = 32) -> DataLoader[Any]:
    ids = torch.randint(0, 12, (samples, length), generator=torch.Generator().manual_seed(2))
    rows = [{"ids": row, "tags": row % 3} for row in ids]
    return DataLoader(rows, 4, shuffle=True)  # type: ignore[arg-type]


class _StopAt(Callback):
    def __init__(self, batch: int) -> None:
        self.batch = batch

    def batch_end(self, state: State, logger: Logger) -> None:
        if state.timestamp.batch == self.batch:
            state.stop_training()


def train(method: SeqLengthWarmup, max_duration: str = "10ba", **settings: Any) -> Trainer:
    model = Tagger()
    stop_at = settings.pop("stop_at", None)
    trainer = Trainer(
        model=model,
        train_dataloader=settings.pop("data", None) or loader(),
        max_duration=max_duration,
        optimizers=torch.optim.Adam(model.parameters(), lr=0.05),
        algorithms=[method],
        callbacks=[] if stop_at is None else [_StopAt(stop_at)],
        run_name="run",
        seed=3,
        progress_bar=False,
        **settings,
    )
    trainer.fit()
    trainer.close()
    return trainer


def trained_on(trainer: Trainer) -> list[tuple[int, ...]]:
    model: Any = trainer.state.model
    return [shape for training, *shape in model.seen if training]


# 40 batches of 4 samples, 4 batches an epoch; the length grows by 8 every 5 batches.
@pytest.mark.parametrize("max_duration", ["10ep", "40ba", "160sp"])
def test_lengths_grow_with_the_run_in_every_unit(max_duration: str) -> None:
    method = SeqLengthWarmup(0.5, 8, 40, 8)
    data = loader(length=48)
    lengths = [length for _, length in trained_on(train(method, max_duration, data=data))]
    assert lengths == [8] * 5 + [16] * 5 + [24] * 5 + [32] * 5 + [40] * 20


def test_tokens_count_as_they_were_drawn(tmp_path: Path) -> None:
    from composer.core import DataSpec

    spec = DataSpec(loader(), get_num_tokens_in_batch=lambda batch: batch["ids"].numel())
    trainer = train(SeqLengthWarmup(0.5, 8, 32, 8), "1280tok", data=spec)
    assert [length for _, length in trained_on(trainer)] == [8, 8, 16, 16, 24, 32, 32, 32, 32, 32]
    assert int(trainer.state.timestamp.token) == 1280
    assert int(trainer.state.timestamp.sample) == 40


@pytest.mark.parametrize("microbatch", [None, 3])
def test_rows_count_as_the_samples_they_came_from(microbatch: int | None) -> None:
    """They go through the model in microbatches, of the loader's batch size if none is given."""
    method = SeqLengthWarmup(1.0, 8, 32, 8, truncate=False)
    trainer = train(method, "4ba", device_train_microbatch_size=microbatch)
    shapes = trained_on(trainer)
    # 4 samples of 32 tokens as rows of 8, of 14 rounded down to 8, of 20 to 16, and of 26 to 24.
    expected = {8: 32, 16: 8, 24: 5}
    rows: Counter[int] = Counter()
    for count, length in shapes:
        rows[length] += count
    assert rows == expected
    assert max(count for count, _ in shapes) == (microbatch or 4)
    assert int(trainer.state.timestamp.sample) == 16


@pytest.mark.parametrize("max_duration", ["1ba", "2ba", "1ep"])
def test_short_runs_divide_by_nothing(max_duration: str) -> None:
    lengths = [length for _, length in trained_on(train(SeqLengthWarmup(), max_duration))]
    assert lengths[0] == 8


def test_evaluation_sees_whole_batches() -> None:
    method = SeqLengthWarmup(1.0, 8, 16, 8)
    trainer = train(method, "4ba", eval_dataloader=loader(), eval_interval="1ba")
    model: Any = trainer.state.model
    assert {tuple(shape) for training, *shape in model.seen if not training} == {(4, 32)}


def test_it_resumes_exactly(tmp_path: Path) -> None:
    def go(folder: str, stop_at: int | None = None) -> Trainer:
        return train(
            SeqLengthWarmup(0.8, 8, 32, 8),
            "3ep",
            stop_at=stop_at,
            save_folder=str(tmp_path / folder),
            save_interval="1ba",
            autoresume=True,
        )

    straight = go("straight")
    first = trained_on(go("cut", 5))
    resumed = go("cut")
    assert [*first, *trained_on(resumed)] == trained_on(straight)
    assert len(set(map(tuple, first))) > 1
    torch.testing.assert_close(
        resumed.state.model.state_dict(), straight.state.model.state_dict(), rtol=0, atol=0
    )
    model = straight.state.model.eval()
    (batch,) = DataLoader(loader().dataset, 16)
    assert float(model.loss(model(batch), batch).detach()) < 0.5 < 1.09


def test_a_plain_module_is_accepted_and_the_length_is_reported(make_run: Any) -> None:
    run = make_run(nn.Linear(1, 1), [SeqLengthWarmup(1.0, 8, 16, 8)], max_duration="10ba")
    run.fire(Event.FIT_START)
    run.at(9)
    run.state.batch = samples() | {"input_ids": torch.ones(2, 30), "labels": torch.ones(2, 30)}
    run.fire(Event.AFTER_DATALOADER)
    assert run.state.batch["labels"].shape == (2, 8)
    assert run.recorder.metrics == [
        {"seq_length_warmup/curr_seq_len": 8, "seq_length_warmup/curr_bs": 2}
    ]


def test_the_length_of_the_run_is_asked_for_at_its_start(make_run: Any) -> None:
    run = make_run(nn.Linear(1, 1), [SeqLengthWarmup()], max_duration=None)
    with pytest.raises(ValueError, match="max_duration"):
        run.fire(Event.FIT_START)
