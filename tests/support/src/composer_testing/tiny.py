"""Models, data and observers that are as small as a test allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.logger import Logger
from composer.core.model import ComposerModel
from composer.core.state import State
from composer.devices import DeviceCPU

if TYPE_CHECKING:
    from composer.trainer import Trainer

__all__ = [
    "EventRecorder",
    "IdDataset",
    "IdRecorder",
    "TinyModel",
    "TokenModel",
    "loader",
    "state_of",
    "train",
]


class TinyModel(ComposerModel):
    """A linear classifier over four features and three classes, with dropout if asked."""

    def __init__(self, dropout: float = 0.0, metric: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout(dropout)
        self.linear = torch.nn.Linear(4, 3)
        self.metric = metric

    def forward(self, batch: Any) -> torch.Tensor:
        return self.linear(self.dropout(batch[0]))

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, batch[1], **kwargs)

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        return {} if self.metric is None else {"Metric": self.metric()}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        metric.update(outputs, batch[1])


class TokenModel(ComposerModel):
    """A loss per token, with labels to ignore, as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 5)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.embedding(batch["input_ids"])

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        targets = batch["labels"].flatten()
        return torch.nn.functional.cross_entropy(outputs.flatten(0, 1), targets)


class IdDataset(Dataset[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]):
    """Samples of features, class and number; counts how many were read."""

    def __init__(self, size: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, 4, generator=generator)
        self.y = torch.randint(0, 3, (size,), generator=generator)
        self.reads = 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        self.reads += 1
        return self.x[index], self.y[index], torch.tensor(index)


def loader(size: int = 24, batch_size: int = 4, **settings: Any) -> DataLoader[Any]:
    """A loader over an :class:`IdDataset`, shuffled unless told otherwise."""
    settings.setdefault("shuffle", "sampler" not in settings and "batch_sampler" not in settings)
    return DataLoader(IdDataset(size), batch_size=batch_size, **settings)


class IdRecorder(Callback):
    """Records the numbers of the samples of each batch, and the loss."""

    def __init__(self) -> None:
        self.ids: list[list[int]] = []
        self.losses: list[float] = []

    def batch_start(self, state: State, logger: Logger) -> None:
        self.ids.append(state.batch[2].tolist())

    def batch_end(self, state: State, logger: Logger) -> None:
        self.losses.append(state.total_loss_dict["loss/train/total"])


class EventRecorder(Callback):
    """Records every event with the counters at that moment."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int, int, int]] = []

    def run_event(self, event: Event, state: State, logger: Logger) -> None:
        t = state.timestamp
        counts = (int(t.epoch), int(t.batch), int(t.batch_in_epoch), int(t.sample))
        self.seen.append((event.value, *counts))

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.seen]


def state_of(model: torch.nn.Module | None = None, **fields: Any) -> State:
    """A state with a model on the CPU."""
    fields.setdefault("max_duration", "2ep")
    return State(model or TinyModel(), 0, "test", DeviceCPU(), **fields)


def train(
    model: Any, batches: Any, optimizer: torch.optim.Optimizer | None = None, **settings: Any
) -> Trainer:
    """Train a model with SGD at 0.5 for an epoch, unless told otherwise, and close the trainer."""
    from composer.trainer import Trainer

    settings.setdefault("max_duration", "1ep")
    trainer = Trainer(
        model=model,
        train_dataloader=batches,
        optimizers=optimizer or torch.optim.SGD(model.parameters(), lr=0.5),
        progress_bar=False,
        seed=1,
        **settings,
    )
    trainer.fit()
    trainer.close()
    return trainer


def batches_of(source: DataLoader[Any]) -> Iterator[list[int]]:
    """The sample numbers of a loader's batches."""
    for batch in source:
        yield batch[2].tolist()
