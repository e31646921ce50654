"""One batch gives one update, however it is split, in every precision."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from composer.core.algorithm import Algorithm
from composer.core.data_spec import DataSpec
from composer.core.event import Event
from composer.core.logger import Logger
from composer.core.state import State
from composer.devices import DeviceCPU
from composer.trainer import Trainer
from composer.trainer.step import reduce_loss
from composer_testing.tiny import IdDataset, TinyModel, TokenModel, loader, train


def by_hand(model: nn.Module, batches: Any, lr: float = 0.5) -> tuple[nn.Module, list[float]]:
    """The plain loop that the trainer must agree with."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = model.loss(model(batch), batch)  # type: ignore[operator]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


@pytest.mark.parametrize("batch_size", [12, 5])
def test_equals_the_plain_loop_bit_for_bit(batch_size: int) -> None:
    model = TinyModel()
    batches = list(loader(24, batch_size, shuffle=False))
    expected, losses = by_hand(model, batches)
    trainer = train(model, batches)
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(a, b)
    assert trainer.state.total_loss_dict == {"loss/train/total": losses[-1]}


@pytest.mark.parametrize("size", [1, 2, 4, 5, 7, 12, 100])
def test_microbatches_do_not_change_the_update(size: int) -> None:
    model = TinyModel().double()
    batches = [
        (x.double(), y, i) for x, y, i in DataLoader(IdDataset(24), batch_size=12, shuffle=False)
    ]
    expected, losses = by_hand(model, batches)
    trainer = train(model, batches, device_train_microbatch_size=size)
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)
    assert trainer.state.total_loss_dict["loss/train/total"] == pytest.approx(losses[-1], abs=1e-14)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_token_weighting_equals_the_whole_batch(size: int) -> None:
    ids = torch.randint(0, 5, (8, 6))
    labels = ids.clone()
    for row in range(8):  # between one and six tokens that carry loss
        labels[row, 1 + (row * 5) % 6 :] = -100
    batch = {"input_ids": ids, "labels": labels}
    model = TokenModel().double()
    expected, losses = by_hand(model, [batch])
    trainer = train(
        model, [batch], device_train_microbatch_size=size, accumulate_train_batch_on_tokens=True
    )
    torch.testing.assert_close(
        model.embedding.weight,
        expected.embedding.weight,
        rtol=0,
        atol=1e-14,  # type: ignore[union-attr]
    )
    assert trainer.state.total_loss_dict["loss/train/total"] == pytest.approx(losses[0], abs=1e-14)


def test_weights_follow_real_sizes() -> None:
    """Two tokens of loss 3 and six of loss 1 are 1.5 each; the mean of means would say 2."""

    class Fixed(TinyModel):
        def forward(self, batch: Any) -> Any:
            return self.linear.weight.sum() * 0 + batch["input_ids"]

        def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            return outputs[batch["labels"] != -100].float().mean()

    values = torch.tensor([[3, 3, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
    labels = torch.tensor([[1, 1, -100, -100, -100, -100], [1] * 6])
    trainer = train(
        Fixed(),
        [{"input_ids": values, "labels": labels}],
        device_train_microbatch_size=1,
        accumulate_train_batch_on_tokens=True,
    )
    assert trainer.state.total_loss_dict["loss/train/total"] == pytest.approx(1.5, abs=1e-6)


def test_a_microbatch_without_loss_tokens_weighs_nothing() -> None:
    ids = torch.randint(0, 5, (2, 4))
    labels = ids.clone()
    labels[0] = -100
    batch = {"input_ids": ids, "labels": labels}
    model = TokenModel()
    expected, losses = by_hand(model, [batch])
    trainer = train(
        model, [batch], device_train_microbatch_size=1, accumulate_train_batch_on_tokens=True
    )
    torch.testing.assert_close(model.embedding.weight, expected.embedding.weight)  # type: ignore[union-attr]
    assert trainer.state.total_loss_dict["loss/train/total"] == pytest.approx(losses[0])


def test_an_empty_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match="batch 1 of epoch 0 holds no samples"):
        train(TinyModel(), [loader_batch(4), loader_batch(0)])


def loader_batch(size: int) -> Any:
    data = IdDataset(4)
    return data.x[:size], data.y[:size], torch.arange(size)


def test_no_loss_tokens_is_an_error() -> None:
    batch = {"input_ids": torch.zeros(2, 2, dtype=torch.long)}
    spec = DataSpec([batch], get_num_tokens_in_batch=lambda b: 0)
    with pytest.raises(ValueError, match="no tokens that carry loss"):
        train(
            TokenModel(),
            spec,
            device_train_microbatch_size=1,
            accumulate_train_batch_on_tokens=True,
        )


@pytest.mark.parametrize(
    ("loss", "total", "names"),
    [
        (torch.tensor([1.0, 3.0]), 2.0, {"total"}),
        (torch.tensor(2.0), 2.0, {"total"}),
        ([torch.tensor([1.0, 3.0]), torch.tensor(4.0)], 6.0, {"loss0", "loss1", "total"}),
        ({"a": torch.tensor(1.0), "b": torch.tensor(2.0)}, 3.0, {"a", "b", "total"}),
        ({"a": torch.tensor(1.0), "total": torch.tensor(9.0)}, 9.0, {"a", "total"}),
    ],
)
def test_kinds_of_loss(loss: Any, total: float, names: set[str]) -> None:
    scalar, named = reduce_loss(loss)
    assert scalar.item() == total
    assert set(named) == names
    assert named["total"].item() == total


def test_wrong_losses_are_named() -> None:
    with pytest.raises(TypeError, match="float"):
        reduce_loss(3.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scalar"):
        reduce_loss({"total": torch.ones(2)})
    with pytest.raises(ValueError, match="empty"):
        reduce_loss([])


@pytest.mark.parametrize("precision", ["amp_bf16", "amp_fp16", "amp", "bf16"])
def test_low_precision_on_the_cpu_equals_torch_autocast(precision: str) -> None:
    dtype = torch.bfloat16 if "bf16" in precision else torch.float16
    model = TinyModel()
    batches = list(loader(12, 4, shuffle=False))
    expected = copy.deepcopy(model)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype is torch.float16)
    for batch in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            outputs = expected(batch)
        assert outputs.dtype is dtype
        with torch.autocast("cpu", dtype=dtype):
            loss = expected.loss(outputs, batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    train(model, batches, precision=precision)
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(a, b)


class _Overflow(Algorithm):
    """Makes a gradient infinite at one batch."""

    events = frozenset({Event.AFTER_BACKWARD})

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        if int(state.timestamp.batch) == self.batch:
            next(state.model.parameters()).grad.fill_(float("inf"))  # type: ignore[union-attr]


@pytest.mark.parametrize("batch", [0, 1])
def test_an_overflow_skips_the_update_and_is_known(batch: int) -> None:
    model = TinyModel()
    seen: list[tuple[bool, bool, float]] = []

    from composer.core.callback import Callback
    from composer.optim import LinearScheduler

    class Watch(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            self.before = copy.deepcopy(state.model.state_dict())

        def batch_end(self, state: State, logger: Logger) -> None:
            same = all(torch.equal(v, self.before[k]) for k, v in state.model.state_dict().items())
            assert state.scaler is not None
            seen.append((same, state.step_applied, state.scaler.get_scale()))

    trainer = train(
        model,
        loader(12, 4),
        precision="amp_fp16",
        algorithms=_Overflow(batch),
        callbacks=Watch(),
        schedulers=LinearScheduler(),
    )
    for i, (same, applied, scale) in enumerate(seen):
        assert same is (i == batch)
        assert applied is (i != batch)
        assert scale == (65536.0 if i < batch else 32768.0)
    assert trainer.state.num_skipped_steps == 1


def test_gradients_are_unscaled_once_before_they_are_clipped() -> None:
    """True gradient 1, clipped to a half, learning rate 1: the weight moves by a half."""

    class Slope(TinyModel):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(()))

        def forward(self, batch: Any) -> torch.Tensor:
            return self.w * batch.mean()

        def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            return outputs

    class Clip(Algorithm):
        events = frozenset({Event.AFTER_TRAIN_BATCH})

        def apply(self, event: Event, state: State, logger: Logger) -> None:
            nn.utils.clip_grad_norm_([state.model.w], 0.5)  # type: ignore[union-attr]

    model = Slope()
    train(
        model,
        [torch.ones(4)],
        torch.optim.SGD([model.w], lr=1.0),
        precision="amp_fp16",
        algorithms=[Clip(), Clip()],
    )
    assert model.w.item() == pytest.approx(-0.5, abs=1e-5)  # torch adds 1e-6 to the norm


@pytest.mark.parametrize("precision", ["fp32", "amp_fp16"])
def test_closures_reach_the_optimizer(precision: str) -> None:
    """L-BFGS evaluates the batch several times; on a quadratic it is done after one step."""

    class Bowl(TinyModel):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([3.0, -2.0]))

        def forward(self, batch: Any) -> torch.Tensor:
            return ((self.w - batch.mean()) ** 2).sum()

        def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            return outputs

    model = Bowl()
    optimizer = torch.optim.LBFGS([model.w], lr=1.0, line_search_fn="strong_wolfe")
    train(model, [torch.ones(4)], optimizer, precision=precision)
    torch.testing.assert_close(model.w.detach(), torch.ones(2), atol=1e-4, rtol=0)


class StandIn(DeviceCPU):
    """A device of another name on the CPU, that counts what is moved to it."""

    name = "stand_in"
    is_host = False

    def __init__(self) -> None:
        self.moved = 0

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        self.moved += 1
        return tensor.clone()


def test_each_microbatch_moves_to_the_device_once() -> None:
    device = StandIn()
    model = TinyModel()
    batches = list(loader(8, 4, shuffle=False))
    expected, _ = by_hand(model, batches)
    trainer = Trainer(
        model=model,
        train_dataloader=batches,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.5),
        max_duration="1ep",
        device=device,
        device_train_microbatch_size=2,
        progress_bar=False,
    )
    before = device.moved
    trainer.fit()
    trainer.close()
    assert device.moved - before == 12  # two batches of two microbatches of three tensors
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_transforms_run_where_they_are_promised() -> None:
    seen: list[tuple[str, int]] = []

    def whole(batch: Any) -> Any:
        seen.append(("batch", len(batch[0])))
        return batch

    def micro(batch: Any) -> Any:
        seen.append(("microbatch", len(batch[0])))
        return batch

    spec = DataSpec(list(loader(4, 4)), batch_transforms=whole, microbatch_transforms=micro)
    train(TinyModel(), spec, device_train_microbatch_size=2)
    assert seen == [("batch", 4), ("microbatch", 2), ("microbatch", 2)]


def test_train_metrics_see_the_batch_as_it_was() -> None:
    """An algorithm that replaces the labels does not change what metrics compare with."""

    class Labels:
        def __init__(self) -> None:
            self.seen: list[torch.Tensor] = []

        def to(self, device: Any) -> Labels:
            return self

        def reset(self) -> None:
            self.seen.clear()

        def update(self, outputs: torch.Tensor, target: torch.Tensor) -> None:
            self.seen.append(target)

        def compute(self) -> torch.Tensor:
            return torch.cat(self.seen)

    class Spoil(Algorithm):
        events = frozenset({Event.BEFORE_FORWARD})

        def apply(self, event: Event, state: State, logger: Logger) -> None:
            state.batch_set_item(1, torch.zeros_like(state.batch_get_item(1)))

    batches = list(loader(4, 4))
    trainer = train(
        TinyModel(metric=Labels), batches, algorithms=Spoil(), device_train_microbatch_size=2
    )
    assert torch.equal(trainer.state.train_metric_values["Metric"], batches[0][1])


def test_algorithms_may_shrink_the_batch() -> None:
    """The update is that of the shrunken batch; the counters are those of what was loaded."""

    class Half(Algorithm):
        events = frozenset({Event.AFTER_DATALOADER})

        def apply(self, event: Event, state: State, logger: Logger) -> None:
            state.batch = tuple(t[:6] for t in state.batch)

    model = TinyModel().double()
    batches = [(x.double(), y, i) for x, y, i in loader(12, 12, shuffle=False)]
    expected, _ = by_hand(model, [tuple(t[:6] for t in batches[0])])
    trainer = train(model, batches, algorithms=Half(), device_train_microbatch_size=4)
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)
    assert int(trainer.state.timestamp.sample) == 12
