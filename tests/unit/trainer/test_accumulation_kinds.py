"""One batch is one update, and its loss is what is logged: every split, size and precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from composer.core.algorithm import Algorithm
from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.logger import Logger
from composer.core.model import ComposerModel
from composer.core.state import State
from composer.loggers import InMemoryLogger
from composer.metrics import MulticlassAccuracy
from composer.models import ComposerClassifier, ComposerSegmenter
from composer.trainer import Trainer
from composer.utils import dist
from composer_testing.tiny import IdDataset, TinyModel, loader, train

# A batch of one, a last batch of one, batches that no microbatch size divides.
SIZES = [1, 5, 13, 12, 1]
SPLITS = [None, 1, 2, 3, 5, 7, 12, 100]


def batches(dtype: torch.dtype = torch.float64) -> list[Any]:
    data = IdDataset(sum(SIZES))
    parts = zip(data.x.to(dtype).split(SIZES), data.y.split(SIZES), strict=True)
    return list(parts)


def logged(memory: InMemoryLogger, name: str = "total") -> list[float]:
    return [float(value) for _, value in memory.data[f"loss/train/{name}"]]


def same_weights(a: nn.Module, b: nn.Module, atol: float) -> None:
    for (name, value), other in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        torch.testing.assert_close(value, other, rtol=0, atol=atol, msg=name)


# ---- every split, every size ---------------------------------------------------------------------


@pytest.mark.parametrize("size", SPLITS)
def test_each_batch_is_one_update_and_its_loss_is_the_logged_one(size: int | None) -> None:
    model = TinyModel().double()
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    losses = []
    for x, y in batches():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(plain.linear(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    steps: list[int] = []
    forwards: list[int] = []

    class Watch(Callback):
        def after_forward(self, state: State, logger: Logger) -> None:
            forwards.append(len(state.outputs))

    mine = torch.optim.SGD(model.parameters(), lr=0.5)
    mine.register_step_post_hook(lambda *unused: steps.append(1))
    memory = InMemoryLogger()
    t = train(
        model, batches(), mine, device_train_microbatch_size=size, loggers=memory, callbacks=Watch()
    )
    same_weights(model, plain, 1e-13)
    assert logged(memory) == pytest.approx(losses, abs=1e-13)
    assert len(steps) == len(SIZES) == int(t.state.timestamp.batch)
    assert int(t.state.timestamp.sample) == sum(SIZES)
    assert sum(forwards) == sum(SIZES)
    assert max(forwards) == (13 if size is None else min(13, size))


class Parts(TinyModel):
    """A loss of several parts, as a mapping with or without a total, or as a sequence."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        each = nn.functional.cross_entropy(outputs, batch[1], reduction="none")
        square = outputs.square().mean()
        if self.kind == "mapping":
            return {"fit": each, "size": square}
        if self.kind == "total":
            return {"fit": each, "size": square, "total": each.mean() + 0.1 * square}
        return [each, square]


@pytest.mark.parametrize("kind", ["mapping", "total", "sequence"])
def test_every_part_of_a_loss_is_that_of_the_whole_batch(kind: str) -> None:
    def run(size: int | None) -> tuple[Parts, dict[str, list[float]]]:
        torch.manual_seed(0)
        model, memory = Parts(kind).double(), InMemoryLogger()
        train(model, batches(), device_train_microbatch_size=size, loggers=memory)
        names = [key[11:] for key in memory.data if key.startswith("loss/train/")]
        return model, {name: logged(memory, name) for name in names}

    expected, values = run(None)
    assert len(values) == 3
    if kind != "total":
        parts = [v for name, v in values.items() if name != "total"]
        assert values["total"] == pytest.approx([a + b for a, b in zip(*parts, strict=True)])
    for size in (1, 3, 5, 12):
        model, found = run(size)
        same_weights(model, expected, 1e-13)
        assert found.keys() == values.keys()
        for name in values:
            assert found[name] == pytest.approx(values[name], abs=1e-13)


# ---- tokens, and loss scaling --------------------------------------------------------------------


class Tokens(ComposerModel):
    """A loss per token that autocast leaves alone, so that scaling is all that differs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 5)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.embedding(batch["input_ids"])

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs.flatten(0, 1), batch["labels"].flatten())


def ragged(rows: int, length: int, seed: int) -> dict[str, torch.Tensor]:
    """Between none and all tokens of a row carry loss; one row always has some."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 5, (rows, length), generator=generator)
    labels = ids.clone()
    for row in range(rows):
        labels[row, (row * 4 + seed) % (length + 1) :] = -100
    labels[-1, 0] = ids[-1, 0]
    return {"input_ids": ids, "labels": labels}


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("size", [None, 1, 2, 3, 5, 8, 100])
def test_ragged_tokens_with_and_without_loss_scaling(size: int | None, scaled: bool) -> None:
    data = [ragged(8, 6, 0), ragged(1, 6, 3), ragged(5, 2, 1), ragged(13, 9, 2)]
    torch.manual_seed(0)
    model = Tokens().double()
    plain = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.1)
    losses = []
    for batch in data:
        optimizer.zero_grad()
        # Slowly: the sum over tokens, divided by those that carry loss.
        total, count = torch.zeros((), dtype=torch.float64), 0
        for token, label in zip(
            batch["input_ids"].flatten(), batch["labels"].flatten(), strict=True
        ):
            if label != -100:
                total = total - plain.embedding.weight[token].log_softmax(0)[label]
                count += 1
        (total / count).backward()
        optimizer.step()
        losses.append((total / count).item())
    memory = InMemoryLogger()
    t = train(
        model,
        data,
        torch.optim.AdamW(model.parameters(), lr=0.1),
        device_train_microbatch_size=size,
        loggers=memory,
        precision="amp_fp16" if scaled else "fp32",
    )
    assert (t.state.scaler is not None) is scaled
    same_weights(model, plain, 1e-9)  # AdamW divides by what is left of a gradient
    assert logged(memory) == pytest.approx(losses, abs=1e-13)


@pytest.mark.parametrize("size", [None, 1, 3, 5])
def test_loss_scaling_with_microbatches_takes_the_steps_of_torchs_scaler(size: int | None) -> None:
    """Bit for bit what a loop with torch's own scaler and the same pieces gives."""
    model = TinyModel()
    plain: Any = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu")
    for x, y in batches(torch.float32):
        optimizer.zero_grad()
        step = size or len(x)
        for start in range(0, len(x), step):
            piece, target = x[start : start + step], y[start : start + step]
            with torch.autocast("cpu", dtype=torch.float16):
                outputs = plain.linear(piece)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(outputs, target)
            weight = len(piece) / len(x)
            scaler.scale(loss if weight == 1.0 else loss * weight).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    t = train(
        model, batches(torch.float32), precision="amp_fp16", device_train_microbatch_size=size
    )
    same_weights(model, plain, 0.0)
    assert t.state.scaler is not None
    assert t.state.scaler.state_dict() == scaler.state_dict()


class Spoil(Algorithm):
    """Makes the gradient infinite after one microbatch of one batch."""

    events = frozenset({Event.AFTER_BACKWARD})

    def __init__(self, batch: int, piece: int) -> None:
        self.batch, self.piece = batch, piece
        self.seen = 0

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        if int(state.timestamp.batch) == self.batch:
            if self.seen == self.piece:
                state.model.linear.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
            self.seen += 1


@pytest.mark.parametrize("piece", [0, 1, 2])
def test_one_microbatch_that_overflows_takes_the_whole_batch_with_it(piece: int) -> None:
    """The run equals one without the batch; the scale halves once."""
    data = batches()
    torch.manual_seed(0)
    model = TinyModel().double()
    expected = copy.deepcopy(model)
    train(expected, [b for i, b in enumerate(data) if i != 2], precision="amp_fp16")
    t = train(
        model,
        data,
        precision="amp_fp16",
        device_train_microbatch_size=5,
        algorithms=Spoil(2, piece),
    )
    same_weights(model, expected, 1e-12)
    assert t.state.scaler is not None
    assert t.state.scaler.get_scale() == 32768.0
    assert t.state.num_skipped_steps == 1
    assert int(t.state.timestamp.batch) == len(SIZES)


class Slope(TinyModel):
    """A gradient of one, whatever the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, batch: Any) -> torch.Tensor:
        return self.w * batch.mean()

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return outputs


@pytest.mark.parametrize("precision", ["fp32", "amp_fp16"])
@pytest.mark.parametrize("size", [None, 1, 3])
def test_clipping_and_monitors_see_the_true_gradient(size: int | None, precision: str) -> None:
    seen: list[float] = []

    class Clip(Algorithm):
        events = frozenset({Event.AFTER_TRAIN_BATCH})

        def __init__(self, most: float) -> None:
            self.most = most

        def apply(self, event: Event, state: State, logger: Logger) -> None:
            nn.utils.clip_grad_norm_([state.model.w], self.most)  # type: ignore[union-attr]

    class Monitor(Callback):
        def after_train_batch(self, state: State, logger: Logger) -> None:
            seen.append(float(state.model.w.grad))  # type: ignore[union-attr,arg-type]

    model = Slope()
    train(
        model,
        [torch.ones(4)],
        torch.optim.SGD([model.w], lr=1.0),
        precision=precision,
        device_train_microbatch_size=size,
        algorithms=[Clip(0.5), Clip(0.75)],
        callbacks=Monitor(),
    )
    assert model.w.item() == pytest.approx(-0.5, abs=1e-5)
    assert seen == pytest.approx([0.5], abs=1e-5)  # observers come after methods


@pytest.mark.parametrize("precision", ["fp32", "amp_fp16"])
def test_an_optimizer_that_evaluates_the_loss_gets_that_of_the_whole_batch(precision: str) -> None:
    def run(size: int | None) -> TinyModel:
        torch.manual_seed(0)
        model = TinyModel().double()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
        train(model, batches(), optimizer, device_train_microbatch_size=size, precision=precision)
        return model

    expected = run(None)
    for size in (1, 5, 12):
        same_weights(run(size), expected, 1e-9)


# ---- training metrics ----------------------------------------------------------------------------


class Met(Tokens):
    """Compares the first token of each row with itself: always right, once per row."""

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        return {"Accuracy": MulticlassAccuracy(5, average="micro")} if is_train else {}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        metric.update(outputs[:, 0], batch["input_ids"][:, 0])


@pytest.mark.parametrize("size", [None, 1, 2, 3])
def test_training_metrics_see_every_row_once_also_one_without_loss(size: int | None) -> None:
    batch = ragged(4, 3, 0)
    batch["labels"][0] = -100  # a microbatch of it has nothing to learn from
    t = train(Met(), [batch], device_train_microbatch_size=size)
    assert int(t.state.train_metrics["Accuracy"].total) == 4


def shares(many: bool) -> list[Any]:
    data = IdDataset(8)
    start, stop = (0, 8) if not many else ((0, 7) if dist.get_global_rank() == 0 else (7, 8))
    return [(data.x[start:stop], data.y[start:stop])]


class Classes(TinyModel):
    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        return {"Accuracy": MulticlassAccuracy(3, average="micro")}


def train_unevenly(strategies: list[str], many: bool) -> list[tuple[float, int]]:
    """Seven samples here and one there, so that ranks have unequally many microbatches."""
    found = []
    for strategy in strategies:
        torch.manual_seed(0)
        memory = InMemoryLogger()
        t = train(
            Classes(),
            shares(many),
            device_train_microbatch_size=2,
            ddp_sync_strategy=strategy,
            loggers=memory,
        )
        accuracy = float(memory.data["metrics/train/Accuracy"][-1][1])
        found.append((accuracy, int(t.state.train_metrics["Accuracy"].total)))
    return found


def test_training_metrics_are_those_of_all_ranks_samples(ranks: Any) -> None:
    strategies = ["single_auto_sync", "multi_auto_sync", "forced_sync"]
    [(accuracy, _)] = train_unevenly(strategies[:1], False)
    one, other = ranks.run(train_unevenly, strategies, True)
    assert [value for value, _ in one] == pytest.approx([accuracy] * 3)
    assert [count for _, count in one] == [7] * 3
    assert [count for _, count in other] == [1] * 3


# ---- several ranks -------------------------------------------------------------------------------


def overflow_on_one(strategies: list[str | None]) -> list[Any]:
    """The second rank's second batch gives gradients that are not finite."""
    found = []
    for strategy in strategies:
        torch.manual_seed(0)
        model = TinyModel().double()
        data = list(loader(16, 4, shuffle=False))
        data = [(x.double(), y) for x, y, _ in data]
        if dist.get_global_rank() == 1:
            data[1][0][0, 0] = float("inf")
        t = train(
            model, data, precision="amp_fp16", ddp_sync_strategy=strategy,
            device_train_microbatch_size=3,
        )  # fmt: skip
        assert t.state.scaler is not None
        scale = t.state.scaler.get_scale()
        found.append((t.state.num_skipped_steps, scale, model.linear.weight.detach().clone()))
    return found


def test_an_overflow_on_one_rank_skips_the_batch_on_all(ranks: Any) -> None:
    torch.manual_seed(0)
    expected = TinyModel().double()
    data = [(x.double(), y) for x, y, _ in loader(16, 4, shuffle=False)]
    train(expected, [b for i, b in enumerate(data) if i != 1], precision="amp_fp16")
    strategies = [None, "multi_auto_sync", "forced_sync"]
    for found in ranks.run(overflow_on_one, strategies):
        for skipped, scale, weight in found:
            assert (skipped, scale) == (1, 32768.0)
            torch.testing.assert_close(weight, expected.linear.weight, rtol=0, atol=1e-12)


def two_losses() -> tuple[float, float]:
    """Two tokens of loss 3 here and six of loss 1 there."""

    class Fixed(ComposerModel):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(()))

        def forward(self, batch: Any) -> torch.Tensor:
            return self.w * batch["input_ids"]

        def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            return outputs[batch["labels"] != -100].mean()

    rank = dist.get_global_rank()
    value, count = (3, 2) if rank == 0 else (1, 6)
    labels = torch.full((1, 6), -100)
    labels[0, :count] = 1
    model = Fixed()
    data = [{"input_ids": torch.full((1, 6), value), "labels": labels}]
    t = train(model, data, torch.optim.SGD([model.w], lr=1.0))
    return t.state.total_loss_dict["loss/train/total"], model.w.item()


def test_the_mean_is_taken_over_the_tokens_of_all_ranks(ranks: Any) -> None:
    """12 divided by 8; the mean of the means would be 2. The gradient is the same number."""
    for loss, weight in ranks.run(two_losses):
        assert loss == pytest.approx(1.5, abs=1e-6)
        assert weight == pytest.approx(1.0 - 1.5, abs=1e-6)


# ---- the size from one call of fit to the next ---------------------------------------------------


@pytest.mark.parametrize(
    "change", [lambda t: t.fit(duration="1ep", device_train_microbatch_size=3)]
)
def test_another_size_in_a_second_fit(change: Callable[[Trainer], None]) -> None:
    def run(second: Callable[[Trainer], None]) -> TinyModel:
        torch.manual_seed(0)
        model = TinyModel().double()
        t = Trainer(
            model=model, train_dataloader=batches(), max_duration="1ep", progress_bar=False,
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        )  # fmt: skip
        t.fit()
        second(t)
        t.close()
        return model

    same_weights(run(change), run(lambda t: t.fit(duration="1ep")), 1e-13)


def test_another_precision_in_a_second_fit_starts_a_scale_and_the_same_keeps_it() -> None:
    # Gradients of a first model drawn at will may overflow by themselves at this scale.
    torch.manual_seed(0)
    model = TinyModel()
    t = Trainer(
        model=model, train_dataloader=loader(12, 4), max_duration="1ep", progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1), algorithms=Spoil(1, 0),
        precision="amp_fp16", seed=0,
    )  # fmt: skip
    t.fit()
    assert t.state.scaler is not None
    assert t.state.scaler.get_scale() == 32768.0
    t.fit(duration="1ep", precision="amp_fp16")
    assert t.state.scaler.get_scale() == 32768.0
    t.fit(duration="1ep", precision="fp32")
    assert t.state.scaler is None
    t.fit(duration="1ep", precision="amp_fp16")
    assert t.state.scaler is not None
    assert t.state.scaler.get_scale() == 65536.0
    t.close()


# ---- targets that do not count -------------------------------------------------------------------


def ignored_targets(kind: str) -> tuple[ComposerModel, list[Any]]:
    """A task model, and a batch of which some targets (and one whole part) do not count."""
    generator = torch.Generator().manual_seed(5)
    torch.manual_seed(5)
    if kind.startswith("segmenter"):
        model: ComposerModel = ComposerSegmenter(nn.Conv2d(2, 3, 1), num_classes=3).double()
        inputs = torch.randn(6, 2, 4, 3, generator=generator, dtype=torch.float64)
        targets = torch.randint(3, (6, 4, 3), generator=generator)
        targets[torch.rand(6, 4, 3, generator=generator) < 0.4] = -1
        targets[2:4] = -1
    else:
        model = ComposerClassifier(nn.Linear(2, 3), num_classes=3).double()
        inputs = torch.randn(6, 2, generator=generator, dtype=torch.float64)
        targets = torch.tensor([0, -100, -100, -100, 2, 1])
    if kind.endswith("soft"):
        keep = (targets >= 0).unsqueeze(1)
        one_hot = nn.functional.one_hot(targets.clamp(min=0), 3).movedim(-1, 1).double()
        targets = one_hot * keep
    return model, [(inputs, targets)]


@pytest.mark.filterwarnings("ignore:the probabilities of")
@pytest.mark.parametrize("kind", ["classifier", "classifier soft", "segmenter", "segmenter soft"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_targets_that_do_not_count_have_no_say_in_the_split(kind: str, size: int) -> None:
    model, data = ignored_targets(kind)
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=1.0)
    inputs, targets = data[0]
    loss = plain.loss(plain(data[0]), data[0])
    assert isinstance(loss, torch.Tensor)
    # The mean by a loop over what counts.
    flat = targets.movedim(1, -1).reshape(-1, 3) if "soft" in kind else targets.reshape(-1)
    with torch.no_grad():
        outputs = plain((inputs, targets))
        logits = outputs["out"] if isinstance(outputs, dict) else outputs
        rows = logits.movedim(1, -1).reshape(-1, 3).log_softmax(-1)
        classes = flat.argmax(-1).masked_fill(flat.sum(-1) == 0, -1) if "soft" in kind else flat
        costs = [-float(row[c]) for row, c in zip(rows, classes.tolist(), strict=True) if c >= 0]
    assert loss.item() == pytest.approx(sum(costs) / len(costs))
    loss.backward()
    optimizer.step()
    trainer = Trainer(
        model=model,
        train_dataloader=data,
        max_duration="1ba",
        optimizers=torch.optim.SGD(model.parameters(), lr=1.0),
        device_train_microbatch_size=size,
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    same_weights(model, plain, atol=1e-12)
