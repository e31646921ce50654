"""Which checkpoints stay: the last, every m-th, the best; over resumption; and never none."""

from __future__ import annotations

import itertools
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.callbacks import CheckpointSaver
from composer.checkpoint import find_newest, read_checkpoint
from composer.checkpoint.retention import Record, Retention
from composer.checkpoint.selection import MetricWatch
from composer.core.callback import Callback
from composer.core.evaluator import Evaluator
from composer.core.logger import Logger
from composer.core.state import State
from composer.trainer import Trainer
from composer.utils.iteration import flatten_values
from composer_testing.tiny import TinyModel, loader, state_of


class Scripted:
    """A metric that is what a script says of the batch at which it is computed."""

    def __init__(self, values: dict[int, Any]) -> None:
        self.values = values
        self.now = 0

    def reset(self) -> None: ...

    def update(self, *arguments: Any) -> None: ...

    def to(self, device: Any) -> Scripted:
        return self

    def __deepcopy__(self, memo: Any) -> Scripted:
        return self

    def compute(self) -> Any:
        return self.values[self.now]


class Counting(TinyModel):
    """Has a buffer that says after how many batches its weights were."""

    def __init__(self, metric: Scripted) -> None:
        super().__init__()
        self.scripted = metric
        self.register_buffer("counter", torch.zeros(()))

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        return {} if is_train else {"Score": self.scripted}


class Clock(Callback):
    def __init__(self, metric: Scripted) -> None:
        self.metric = metric

    def batch_end(self, state: State, logger: Logger) -> None:
        self.metric.now = int(state.timestamp.batch)
        state.model.counter.fill_(self.metric.now)


def run(
    folder: Path,
    values: dict[int, Any],
    *,
    batches: int = 6,
    every: str = "2ba",
    evaluate: str = "2ba",
    metric: str | None = "metrics/eval/Score",
    mode: str | None = "max",
    load_path: Path | None = None,
    others: tuple[Callback, ...] = (),
    **settings: Any,
) -> CheckpointSaver:
    scripted = Scripted(values)
    model = Counting(scripted)
    saver = CheckpointSaver(
        folder,
        "ba{batch}.pt",
        save_interval=every,
        best_metric=metric,
        best_mode=mode,
        overwrite=True,
        **settings,
    )
    t = Trainer(
        model=model,
        train_dataloader=loader(48, 4),
        eval_dataloader=Evaluator(label="eval", dataloader=loader(4, 4)),
        eval_interval=evaluate,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=[Clock(scripted), saver, *others],
        max_duration=f"{batches}ba",
        load_path=None if load_path is None else str(load_path),
        progress_bar=False,
        seed=1,
    )
    try:
        t.fit()
    finally:
        t.close()
    return saver


def on_disk(folder: Path) -> list[int]:
    return sorted(int(p.name[2:-3]) for p in folder.glob("ba*.pt"))


def best(folder: Path) -> int:
    return int(read_checkpoint(folder / "best-rank0.pt")["state"]["model"]["counter"])


# ---- the rules ----------------------------------------------------------------------------------


def test_surplus_is_what_no_rule_wants() -> None:
    scores = [0.1, None, 0.9, math.nan, 0.9, 0.3, 0.2]
    records = [Record(str(i + 1), i + 1, {}, s) for i, s in enumerate(scores)]

    def kept(**rules: Any) -> list[int]:
        gone = {r.name for r in Retention(**rules).surplus(records)}
        return [r.index for r in records if r.name not in gone]

    assert kept() == [1, 2, 3, 4, 5, 6, 7]
    assert kept(keep_last=2) == [6, 7]
    assert kept(keep_last=2, keep_every=3) == [3, 6, 7]
    assert kept(keep_last=1, best_metric="m", best_mode="max") == [3, 7]
    assert kept(keep_last=1, best_metric="m", best_mode="max", num_best=3) == [3, 5, 6, 7]
    assert kept(keep_last=1, best_metric="m", best_mode="min", num_best=2) == [1, 7]
    assert kept(keep_last=0, best_metric="m", best_mode="min") == [1, 7]  # the newest may be needed
    elsewhere = Retention(0, best_metric="m", best_mode="min").surplus(records, elsewhere=True)
    assert [r.index for r in elsewhere] == [2, 3, 4, 5, 6, 7]
    assert kept(keep_last=99) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"keep_last": -2}, "num_checkpoints_to_keep must be a whole number"),
        ({"keep_last": 1.0}, "num_checkpoints_to_keep must be a whole number"),
        ({"keep_every": 0}, "save_keep_every must be a positive"),
        ({"best_metric": "m"}, "save_best_mode must say whether 'max' or 'min'"),
        ({"best_metric": "m", "best_mode": "maxx"}, 'Did you mean "max"'),
        ({"best_mode": "max"}, "need save_best_metric"),
        ({"num_best": 2}, "need save_best_metric"),
        ({"best_metric": "m", "best_mode": "max", "num_best": 0}, "save_num_best_to_keep"),
    ],
)
def test_rules_that_make_no_sense(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Retention(prefix="save_", **rules)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_every": -1}, "keep_every"),
        ({"best_metric": "m"}, "best_mode"),
        ({"num_concurrent_uploads": 0}, "num_concurrent_uploads"),
        ({"upload_timeout_in_seconds": 0}, "upload_timeout_in_seconds"),
        (
            {"filename": "best-rank{rank}.pt", "best_metric": "m", "best_mode": "max"},
            "name of the link",
        ),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CheckpointSaver(**settings)


# ---- keep -----------------------------------------------------------------------------------


def test_every_mth_stays_over_resumption(tmp_path: Path) -> None:
    """The third and the sixth saved stay, though they were saved by different sessions."""
    settings: dict[str, Any] = {
        "every": "1ba", "metric": None, "mode": None, "keep_every": 3,
        "num_checkpoints_to_keep": 1, "values": dict.fromkeys(range(20), 0.0),
    }  # fmt: skip
    run(tmp_path, batches=4, **settings)
    assert on_disk(tmp_path) == [3, 4]
    run(tmp_path, batches=5, load_path=tmp_path / "latest-rank0.pt", **settings)
    assert on_disk(tmp_path) == [3, 5]
    run(tmp_path, batches=8, load_path=tmp_path / "latest-rank0.pt", **settings)
    assert on_disk(tmp_path) == [3, 6, 8]


@pytest.mark.parametrize("async_save", [False, True])
def test_what_was_resumed_from_stays_until_a_newer_one_is_there(
    async_save: bool, tmp_path: Path
) -> None:
    values = dict.fromkeys(range(20), 0.0)
    settings: dict[str, Any] = {
        "every": "2ba", "metric": None, "mode": None, "num_checkpoints_to_keep": 1,
        "async_save": async_save,
    }  # fmt: skip
    run(tmp_path, values, batches=2, **settings)

    class Look(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) <= 4:
                assert (tmp_path / "ba2.pt").exists()

    run(tmp_path, values, batches=6, load_path=tmp_path / "ba2.pt", others=(Look(),), **settings)
    assert on_disk(tmp_path) == [6]


def test_a_save_that_fails_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = dict.fromkeys(range(20), 0.0)
    run(tmp_path, values, batches=2, num_checkpoints_to_keep=1)
    from composer.checkpoint import places

    def fails(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(places, "write_checkpoint", fails)
    with pytest.raises(OSError, match="No space"):
        run(tmp_path, values, load_path=tmp_path / "ba2.pt", num_checkpoints_to_keep=1)
    assert find_newest(tmp_path, "latest-rank0.pt") == tmp_path / "ba2.pt"
    assert best(tmp_path) == 2


def test_a_folder_that_was_removed_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "ck"

    class Remove(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 3:
                import shutil

                shutil.rmtree(folder)

    values = dict.fromkeys(range(20), 0.0)
    with caplog.at_level(logging.WARNING):
        run(folder, values, others=(Remove(),), num_checkpoints_to_keep=2)
    assert "was removed while the run goes on" in caplog.text
    assert on_disk(folder) == [4, 6]
    assert find_newest(folder, "latest-rank0.pt") == folder / "ba6.pt"


# ---- the best -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "scores", "wanted"),
    [
        ("max", (0.1, 0.9, 0.5), 4),
        ("min", (0.1, 0.9, 0.5), 2),
        ("max", (math.nan, 0.2, math.nan), 4),
        ("min", (math.nan, 0.2, math.nan), 4),
        ("max", (0.5, 0.5, 0.5), 2),
        ("max", (torch.tensor(0.1), torch.tensor([0.2]), torch.tensor(0.15)), 4),
        ("max", (-math.inf, -5.0, -6.0), 4),
    ],
)
@pytest.mark.parametrize("async_save", [False, True])
def test_the_best_is_that_of_the_evaluation_of_its_moment(
    mode: str, scores: tuple[Any, ...], wanted: int, async_save: bool, tmp_path: Path
) -> None:
    values = dict(zip((2, 4, 6), scores, strict=True))
    saver = run(tmp_path, values, mode=mode, num_checkpoints_to_keep=1, async_save=async_save)
    assert best(tmp_path) == wanted
    assert on_disk(tmp_path) == sorted({wanted, 6})
    assert saver.best_checkpoints == [str(tmp_path / f"ba{wanted}.pt")]


def test_a_value_that_is_never_a_number_is_never_best(tmp_path: Path) -> None:
    run(tmp_path, dict.fromkeys((2, 4, 6), math.nan), num_checkpoints_to_keep=1)
    assert not (tmp_path / "best-rank0.pt").is_symlink()
    assert on_disk(tmp_path) == [6]


def test_a_save_without_an_evaluation_of_its_moment_does_not_compete(tmp_path: Path) -> None:
    """The best value is still in the metric at batch 3, where another model is saved."""
    saver = run(tmp_path, {2: 0.9, 4: 0.1, 6: 0.2}, every="3ba", num_checkpoints_to_keep=1)
    assert best(tmp_path) == 6
    assert [r.score for r in saver._ledger.records] == [0.2]


def test_the_best_k_stay(tmp_path: Path) -> None:
    scores = {2: 0.3, 4: 0.9, 6: 0.1, 8: 0.5, 10: 0.2}
    run(tmp_path, scores, batches=10, num_best_to_keep=2, num_checkpoints_to_keep=1)
    assert on_disk(tmp_path) == [4, 8, 10]
    assert best(tmp_path) == 4


def test_scores_hold_over_resumption_and_a_move(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    scores = {2: 0.9, 4: 0.1, 6: 0.2, 8: 0.3}
    run(old, scores, batches=4, num_checkpoints_to_keep=1)
    old.rename(new)
    saver = run(
        new, scores, batches=8, num_checkpoints_to_keep=1, load_path=new / "latest-rank0.pt"
    )
    assert best(new) == 2
    assert on_disk(new) == [2, 8]
    assert saver.best_checkpoints == [str(new / "ba2.pt")]


def test_a_best_that_is_gone_is_cleared_with_one_warning(tmp_path: Path) -> None:
    scores = {2: 0.9, 4: 0.1, 6: 0.2, 8: 0.05}
    settings: dict[str, Any] = {"num_checkpoints_to_keep": 1}
    run(tmp_path, scores, batches=4, **settings)
    (tmp_path / "ba2.pt").unlink()
    with pytest.warns(UserWarning, match=r"were \['ba2.pt'\].*the best is now ba4.pt") as warned:
        run(tmp_path, scores, batches=8, load_path=tmp_path / "latest-rank0.pt", **settings)
    assert len(warned) == 1
    assert best(tmp_path) == 6
    assert on_disk(tmp_path) == [6, 8]


def test_scores_of_another_metric_do_not_compete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scores = {2: 0.9, 4: 0.5, 6: 0.6}
    run(tmp_path, scores, batches=4)
    with caplog.at_level(logging.WARNING):
        run(tmp_path, scores, mode="min", load_path=tmp_path / "latest-rank0.pt")
    assert "do not compete" in caplog.text
    assert best(tmp_path) == 6


def test_metrics_of_several_numbers_are_known_by_their_flat_names(tmp_path: Path) -> None:
    values = {
        2: {"a": 0.1, "b": [5.0, 1.0]},
        4: {"a": 0.2, "b": [5.0, 3.0]},
        6: {"a": 0.3, "b": [5.0, 2.0]},
    }
    run(tmp_path / "b", values, metric="metrics/eval/Score/b/1")
    assert best(tmp_path / "b") == 4
    with pytest.raises(ValueError, match=r"'metrics/eval/Score' is nothing.*metrics/eval/Score/a"):
        run(tmp_path / "c", values)
    with pytest.raises(ValueError, match="Did you mean"):
        run(tmp_path / "d", values, metric="metrics/eval/Score/b/9")


@pytest.mark.parametrize("metric", ["metrics/eval/Scor", "metrics/evil/Score", "Score", "loss"])
def test_an_unknown_metric_is_told_before_training(metric: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"'{metric}' is nothing.*metrics/eval/Score, loss/train"):
        run(tmp_path, {}, metric=metric)
    assert on_disk(tmp_path) == []


def test_the_loss_can_decide(tmp_path: Path) -> None:
    losses: dict[int, float] = {}

    class Note(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            losses[int(state.timestamp.batch)] = float(state.total_loss_dict["loss/train/total"])

    run(
        tmp_path, dict.fromkeys(range(20), 0.0), metric="loss/train/total", mode="min", every="1ba",
        others=(Note(),), evaluate="1ba",
    )  # fmt: skip
    assert best(tmp_path) == min(losses, key=lambda batch: losses[batch])


def test_a_loss_of_no_such_name_is_told() -> None:
    watch = MetricWatch("loss/train/other")

    class Fake:
        total_loss_dict = {"loss/train/total": 1.0}

    with pytest.raises(ValueError, match="it computes: loss/train/total"):
        watch.score(Fake())  # type: ignore[arg-type]


def test_an_evaluation_of_several_batches_counts_as_a_whole() -> None:
    """Of 0.9 and 0.1 the mean is ranked, not the last."""
    from composer.metrics import MulticlassAccuracy

    metric = MulticlassAccuracy(2)
    state = state_of()
    state.eval_metrics = {"eval": {"A": metric}}
    state.set_dataloader([1], "eval")
    for right in (9, 1):
        target = torch.zeros(10, dtype=torch.long)
        guess = torch.tensor([0] * right + [1] * (10 - right))
        metric.update(torch.nn.functional.one_hot(guess, 2).float(), target)
    watch = MetricWatch("metrics/eval/A")
    watch.evaluated(state)
    assert watch.score(state) == pytest.approx(0.5)


def test_numbers_get_names_whatever_they_are_nested_in() -> None:
    tensor = torch.arange(4.0).reshape(2, 2)
    flat = flatten_values(
        {
            "m": {"a": 1.0, "b": [2.0, 3.0]},
            "t": tensor,
            "one": torch.ones(1),
            "zero": torch.ones(()),
        }
    )
    assert list(flat) == [
        *("m/a", "m/b/0", "m/b/1"),
        *(f"t/{i}/{j}" for i, j in itertools.product((0, 1), repeat=2)),
        *("one", "zero"),
    ]
    assert float(flat["t/1/0"]) == 2.0
    assert flatten_values({"e": torch.empty(0), "l": [], "s": "text"}) == {"s": "text"}
