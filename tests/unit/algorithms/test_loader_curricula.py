"""Curricula that the loader follows: each batch is made at the size at which it is trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from composer import Trainer
from composer.algorithms import ProgressiveResizing, SeqLengthWarmup
from composer.core import Callback, ComposerModel, Logger, State
from composer.utils.curriculum import curriculum_loader, curriculum_value

SETTINGS: dict[str, Any] = {
    "initial_scale": 0.5,
    "delay_fraction": 0.25,
    "finetune_fraction": 0.25,
    "size_increment": 1,
}


class Pictures(Dataset[Any]):
    """Sixteen pictures of eight by eight, made at the size that is asked for."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        side = round(8 * curriculum_value("image_scale", 1.0))
        return torch.full((1, side, side), float(index)), index % 2


def collate(items: list[Any]) -> Any:
    batch = torch.utils.data.default_collate(items)
    return [*batch, curriculum_value("image_scale", 1.0)]


class Model(ComposerModel):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 2)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.linear(batch[0].mean((2, 3)))

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, batch[1])


class Seen(Callback):
    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.sizes: list[int] = []
        self.scales: list[float] = []
        self.evaluated: list[int] = []
        self.items: list[float] = []

    def after_dataloader(self, state: State, logger: Logger) -> None:
        self.sizes.append(state.batch[0].shape[-1])
        self.scales.append(state.batch[2])
        self.items += state.batch[0][:, 0, 0, 0].tolist()

    def eval_batch_start(self, state: State, logger: Logger) -> None:
        self.evaluated.append(state.batch[0].shape[-1])

    def batch_end(self, state: State, logger: Logger) -> None:
        if state.timestamp.batch == self.stop_at:
            state.stop_training()


def train(
    folder: Path, *, workers: int = 0, stop_at: int | None = None, duration: str = "16ba"
) -> Seen:
    torch.manual_seed(0)
    model = Model()
    seen = Seen(stop_at)
    trainer = Trainer(
        model=model,
        train_dataloader=curriculum_loader(
            Pictures(), batch_size=4, shuffle=True, collate_fn=collate, num_workers=workers
        ),
        eval_dataloader=DataLoader(Pictures(), 8),
        max_duration=duration,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.01),
        algorithms=[ProgressiveResizing(**SETTINGS)],
        callbacks=[seen],
        save_folder=str(folder),
        save_interval="1ba",
        autoresume=True,
        run_name="run",
        seed=5,
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    return seen


def scale(elapsed: float) -> float:
    """The curve of the method: constant, a straight line over half the run, constant."""
    return 0.5 + 0.5 * min(max((elapsed - 0.25) / 0.5, 0), 1)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("duration", "elapsed"),
    [("16ba", [b / 16 for b in range(16)]), ("4ep", [b // 4 / 4 for b in range(16)])],
)
def test_a_batch_is_made_at_its_size(
    tmp_path: Path, workers: int, duration: str, elapsed: list[float]
) -> None:
    seen = train(tmp_path, workers=workers, duration=duration)
    assert seen.scales == pytest.approx([scale(share) for share in elapsed])
    assert seen.sizes == [round(8 * scale(share)) for share in elapsed]
    # Evaluation reads the same data set, at its own size.
    assert set(seen.evaluated) == {8}


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stop_at", [3, 6, 9])
def test_a_resumed_run_makes_the_same_batches(tmp_path: Path, workers: int, stop_at: int) -> None:
    straight = train(tmp_path / "straight", workers=workers)
    first = train(tmp_path / "cut", workers=workers, stop_at=stop_at)
    second = train(tmp_path / "cut", workers=workers)
    assert first.sizes + second.sizes == straight.sizes
    assert first.items + second.items == straight.items


def test_batches_of_a_plain_loader_are_resized_by_the_method() -> None:
    made, trained = [], []

    def collate_full(items: list[Any]) -> Any:
        made.append(items[0][0].shape[-1])
        return torch.utils.data.default_collate(items)

    class Sizes(Callback):
        def before_train_batch(self, state: State, logger: Logger) -> None:
            trained.append(state.batch[0].shape[-1])

    model = Model()
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(Pictures(), 4, collate_fn=collate_full),
        max_duration="16ba",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.01),
        algorithms=[ProgressiveResizing(**SETTINGS)],
        callbacks=[Sizes()],
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    assert set(made) == {8}
    assert trained == [round(8 * scale(batch / 16)) for batch in range(16)]


def test_a_length_that_batches_do_not_tell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_duration=32sp"):
        train(tmp_path, duration="32sp")


def test_the_loader_takes_what_torchs_takes() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        curriculum_loader(Pictures(), 2, shuffle=True, sampler=range(4))
    with pytest.raises(ValueError, match="batch_sampler decides"):
        curriculum_loader(Pictures(), 2, batch_sampler=[[0, 1]])
    with pytest.raises(TypeError, match="map-style"):
        curriculum_loader(iter([1]))
    batches = list(curriculum_loader(Pictures(), batch_sampler=[[1, 0], [3]]))
    assert [b[0][:, 0, 0, 0].tolist() for b in batches] == [[1.0, 0.0], [3.0]]


def test_values_end_with_their_batch() -> None:
    class Fails(Pictures):
        def __getitem__(self, index: int) -> Any:
            raise OSError("broken file")

    for dataset, made in ((Pictures(), True), (Fails(), False)):
        loader = curriculum_loader(dataset, 4)
        loader.batch_sampler.schedules["image_scale"] = lambda epoch, batch: 0.5  # type: ignore[union-attr]
        if made:
            assert next(iter(loader))[0].shape[-1] == 4
        else:
            with pytest.raises(OSError, match="broken file"):
                next(iter(loader))
        assert curriculum_value("image_scale", 1.0) == 1.0


def test_image_transforms_find_the_data_inside() -> None:
    from types import SimpleNamespace

    from composer.algorithms._augment.datasets import insert_image_transform

    class Plain(Pictures):
        transform: Any = None

    dataset = Plain()
    loader = curriculum_loader(dataset, 4)
    state = SimpleNamespace(train_dataloader=loader, evaluators=[])
    insert_image_transform(state, "Negative", abs)  # type: ignore[arg-type]
    assert loader.dataset.transform is abs  # type: ignore[attr-defined]
    assert dataset.transform is None


class Lines(Dataset[Any]):
    """Eight sequences of sixteen tokens, or of as many as are asked for."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        length = min(16, curriculum_value("sequence_length", 16))
        return {"input_ids": torch.arange(length) + index}


@pytest.mark.parametrize("duration", ["8ba", "4ep"])
def test_sequences_are_made_as_short_as_they_are_cut(duration: str) -> None:
    class Reader(ComposerModel):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(32, 1)

        def forward(self, batch: Any) -> torch.Tensor:
            return self.embedding(batch["input_ids"])

        def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            return outputs.square().mean()

    class Lengths(Callback):
        def __init__(self) -> None:
            self.made: list[int] = []
            self.cut: list[int] = []

        def before_train_batch(self, state: State, logger: Logger) -> None:
            self.cut.append(state.batch["input_ids"].shape[1])

    lengths = Lengths()

    def collate(items: list[Any]) -> Any:
        lengths.made.append(len(items[0]["input_ids"]))
        return torch.utils.data.default_collate(items)

    model = Reader()
    trainer = Trainer(
        model=model,
        train_dataloader=curriculum_loader(Lines(), 4, collate_fn=collate),
        max_duration=duration,
        algorithms=[
            SeqLengthWarmup(duration=0.5, min_seq_length=4, max_seq_length=16, step_size=4)
        ],
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=[lengths],
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    assert lengths.made == lengths.cut
    assert lengths.made[0] == 4
    assert lengths.made[4:] == [16] * 4
    assert sorted(lengths.made) == lengths.made
    assert len(set(lengths.made)) > 2
