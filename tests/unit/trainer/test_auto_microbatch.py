"""The largest microbatch that fits is found, and the search changes nothing about the training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from composer.core.callback import Callback
from composer.core.evaluator import Evaluator
from composer.core.logger import Logger
from composer.core.state import State
from composer.devices import DeviceCPU
from composer.loggers import InMemoryLogger
from composer.trainer import Trainer
from composer.trainer.auto_microbatch import MicrobatchSearch
from composer.utils.oom import is_out_of_memory
from composer_testing.tiny import TinyModel, loader


class Budget(DeviceCPU):
    """A device with room for some samples at a time."""

    name = "budget"
    is_host = False

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.asked: list[int] = []
        self.released = 0

    def batch_to_device(self, batch: Any) -> Any:
        self.asked.append(len(batch[0]))
        if len(batch[0]) > self.samples:
            raise torch.OutOfMemoryError(f"room for {self.samples} samples")
        return super().batch_to_device(batch)

    def release_memory(self) -> None:
        self.released += 1


class Normed(TinyModel):
    """Dropout draws random numbers, batch norm keeps statistics: a failed try must leave both."""

    def __init__(self, metric: Any = None) -> None:
        super().__init__(dropout=0.4, metric=metric)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.linear(self.dropout(self.norm(batch[0])))


class Sizes(Callback):
    def __init__(self) -> None:
        self.used: list[int] = []

    def batch_end(self, state: State, logger: Logger) -> None:
        size = state.device_train_microbatch_size
        assert size is not None
        self.used.append(int(size))


def train(
    size: Any, device: Any = None, model: Any = None, **settings: Any
) -> tuple[Trainer, list[int]]:
    torch.manual_seed(3)
    model = model or Normed()
    sizes = Sizes()
    settings.setdefault("train_dataloader", loader(64, 16))
    settings.setdefault("max_duration", "2ep")
    settings.setdefault("callbacks", [])
    trainer = Trainer(
        model=model,
        device=device,
        device_train_microbatch_size=size,
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.05),
        progress_bar=False,
        seed=3,
        **{**settings, "callbacks": [*settings["callbacks"], sizes]},
    )
    try:
        trainer.fit()
    finally:
        trainer.close()
    return trainer, sizes.used


# ---- the search -------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [2, 7, 64, 128, 1000])
def test_every_limit_is_met_to_within_a_tenth(start: int) -> None:
    for limit in range(1, start + 10):
        search = MicrobatchSearch(start)
        for _ in range(40):
            if search.size <= limit:
                search.worked(search.size)
            else:
                search.failed(MemoryError())
            if search.settled:
                break
        best = min(limit, start)
        assert 0.9 * best <= search.size <= best, (limit, search.tries)
        assert len(search.tries) <= 2 * math.ceil(math.log2(start)) + 2


def test_a_limit_of_100_from_128_takes_few_tries() -> None:
    search = MicrobatchSearch(128)
    while not search.settled:
        if search.size <= 100:
            search.worked(search.size)
        else:
            search.failed(MemoryError())
    assert 90 <= search.size <= 100
    assert len(search.tries) <= 8


def test_smaller_last_batches_prove_nothing_about_larger_ones() -> None:
    search = MicrobatchSearch(16)
    search.worked(5)
    assert not search.settled
    assert search.size == 16


# ---- in a training ----------------------------------------------------------------------------


def test_a_batch_that_ran_out_of_memory_gives_its_one_update() -> None:
    """Bit for bit what the same sizes give when nothing runs out."""
    device = Budget(6)
    found, sizes = train("auto", device)
    assert sizes[-1] == 6
    assert max(sizes) <= 6
    assert device.released == sum(asked > 6 for asked in device.asked) > 0

    class Replay(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            state.device_train_microbatch_size = sizes[int(state.timestamp.batch)]

    expected, _ = train(16, callbacks=[Replay()])
    for name, value in expected.state.model.state_dict().items():
        assert torch.equal(value, found.state.model.state_dict()[name]), name


def test_a_limit_that_drops_later_is_met(tmp_path: Path) -> None:
    device = Budget(8)

    class Drop(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            if int(state.timestamp.batch) == 2:
                device.samples = 4

    _, sizes = train(
        "auto", device, train_dataloader=loader(64, 8), max_duration="4ba", callbacks=[Drop()],
        save_folder=str(tmp_path),
    )  # fmt: skip
    assert sizes == [8, 8, 4, 4]
    # A run that continues begins with what was found.
    again = Budget(4)
    _, sizes = train(
        "auto", again, train_dataloader=loader(64, 8), max_duration="6ba",
        load_path=str(tmp_path / "ep0-ba4-rank0.pt"),
    )  # fmt: skip
    assert sizes == [4, 4]
    assert max(again.asked) == 4


class FailsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, limit: int) -> torch.Tensor:
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if len(gradient) > ctx.limit:
            raise torch.OutOfMemoryError("no room for gradients")
        return gradient, None


def test_running_out_in_the_backward_pass() -> None:
    class Model(Normed):
        def forward(self, batch: Any) -> torch.Tensor:
            return FailsInBackward.apply(super().forward(batch), 6)

    _, sizes = train("auto", model=Model())
    assert set(sizes) == {4, 6}
    assert sizes[-1] == 6


def test_one_sample_that_does_not_fit_is_an_error_with_its_cause() -> None:
    device = Budget(0)
    with pytest.raises(RuntimeError, match="one sample at a time") as caught:
        train("auto", device)
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert device.asked == [16, 8, 4, 2, 1]


def test_other_errors_go_up_as_they_are() -> None:
    class Model(Normed):
        def forward(self, batch: Any) -> torch.Tensor:
            raise RuntimeError("the memory of the teacher is empty")

    with pytest.raises(RuntimeError, match="memory of the teacher"):
        train("auto", model=Model())


def test_nothing_is_searched_where_all_fits() -> None:
    device = Budget(100)
    _, sizes = train("auto", device)
    assert set(sizes) == {16}
    assert device.released == 0


def test_a_loader_that_does_not_say_its_batch_size() -> None:
    batches = list(loader(48, 12, shuffle=False))
    _, sizes = train("auto", Budget(7), train_dataloader=batches)
    assert set(sizes) <= {6, 7}


def test_the_size_is_logged() -> None:
    memory = InMemoryLogger()
    _, sizes = train("auto", Budget(6), loggers=memory)
    logged = memory.data["trainer/device_train_microbatch_size"]
    assert [value for _, value in logged] == sizes


def test_optimizers_that_evaluate_the_loss_are_refused() -> None:
    model = TinyModel()
    with pytest.raises(ValueError, match="LBFGS does not allow"):
        Trainer(
            model=model, train_dataloader=loader(), progress_bar=False,
            optimizers=torch.optim.LBFGS(model.parameters()), device_train_microbatch_size="auto",
        )  # fmt: skip


# ---- evaluation -------------------------------------------------------------------------------


def accuracy() -> Any:
    from composer.metrics import MulticlassAccuracy

    return MulticlassAccuracy(3, average="micro")


@pytest.mark.parametrize("limit", [1, 5, 7, 100])
def test_evaluation_counts_every_sample_once(limit: int) -> None:
    torch.manual_seed(0)
    model = Normed(metric=accuracy)
    data = loader(40, 16, shuffle=False)
    plain = Trainer(model=model, eval_dataloader=data, progress_bar=False)
    plain.eval()
    plain.close()
    device, memory = Budget(limit), InMemoryLogger()
    evaluator = Evaluator(label="val", dataloader=data, device_eval_microbatch_size="auto")
    trainer = Trainer(
        model=model, eval_dataloader=evaluator, device=device, progress_bar=False, loggers=memory
    )
    trainer.eval()
    trainer.close()
    metric = trainer.state.eval_metrics["val"]["Metric"]
    assert int(metric.total) == 40
    assert metric.compute() == plain.state.eval_metrics["eval"]["Metric"].compute()
    size = memory.data["trainer/val/device_eval_microbatch_size"][-1][1]
    assert 0.9 * min(limit, 16) <= size <= min(limit, 16) or size in device.asked


# ---- what counts as out of memory -------------------------------------------------------------

ERRORS = [
    (torch.OutOfMemoryError("anything"), True),
    (MemoryError(), True),
    (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
    (RuntimeError("CUDA error: out of memory"), True),
    (RuntimeError("HIP out of memory. Tried to allocate 20.00 MiB"), True),
    (RuntimeError("XPU out of memory. Tried to allocate 1.00 GiB"), True),
    (RuntimeError("MPS backend out of memory (MPS allocated: 1.0 GB, other: 2 GB)"), True),
    (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
    (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
    (RuntimeError("the memory of the teacher is empty"), False),
    (ValueError("CUDA out of memory"), False),
    (KeyError("out of memory"), False),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=range(len(ERRORS)))
def test_which_errors_count(error: BaseException, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_a_small_first_batch_does_not_limit_the_others() -> None:
    small, large = list(loader(2, 2, shuffle=False)), list(loader(48, 16, shuffle=False))
    _, sizes = train("auto", Budget(100), train_dataloader=[*small, *large], max_duration="4ba")
    assert sizes == [2, 16, 16, 16]


def test_a_turn_that_ran_out_of_memory_is_begun_again_alone() -> None:
    from composer.trainer import OptimizerStep

    class Two(TinyModel):
        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Linear(4, 3)

        def second(self, batch: Any) -> torch.Tensor:
            return FailsInBackward.apply(self.other(batch[0]) + self.linear(batch[0]), 5)

    def run(size: Any) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = Two().double()
        batches = [(x.double(), y) for x, y, _ in loader(32, 8, shuffle=False)]
        trainer = Trainer(
            model=model, train_dataloader=batches, max_duration="1ep", progress_bar=False,
            device_train_microbatch_size=size,
            optimizers=[
                OptimizerStep(torch.optim.SGD(model.linear.parameters(), lr=0.1), name="one"),
                OptimizerStep(torch.optim.SGD(model.other.parameters(), lr=0.1), name="two",
                              forward="second"),
            ],
        )  # fmt: skip
        trainer.fit()
        trainer.close()
        return model.state_dict()

    found, expected = run("auto"), run(4)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-12)
