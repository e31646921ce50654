"""SelectiveBackprop: when, which samples, and that ranking leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from composer.algorithms import MixUp, ProgressiveResizing, SelectiveBackprop
from composer.algorithms.selective_backprop import select_using_loss, should_selective_backprop
from composer.algorithms.selective_backprop.functional import frozen_statistics, sample_by_loss
from composer.core.algorithm import Phase
from composer.core.event import Event
from composer.core.passes import sort_by_phase
from composer.core.warnings import NoEffectWarning
from composer.models import ComposerClassifier


def test_when() -> None:
    table = [
        (0.4, 0, False),  # before the start
        (0.5, 0, True),
        (0.5, 1, False),  # interrupted
        (0.5, 2, True),
        (0.89, 0, True),
        (0.9, 0, False),  # after the end
    ]
    for elapsed, index, expected in table:
        assert should_selective_backprop(elapsed, index) is expected
    assert should_selective_backprop(0.5, 1, interrupt=0)
    chosen = [should_selective_backprop(0.5, i, interrupt=3) for i in range(6)]
    assert chosen == [True, True, False, True, True, False]


@pytest.mark.parametrize(
    ("keep", "n", "expected"), [(0.5, 8, 4), (0.5, 7, 3), (0.1, 4, 1), (1, 5, 5)]
)
def test_number_of_samples(keep: float, n: int, expected: int) -> None:
    chosen = sample_by_loss(torch.rand(n), keep)
    assert len(chosen) == len(set(chosen.tolist())) == expected


@pytest.mark.parametrize("keep", [0.2, 0.5])
def test_high_losses_are_kept_as_often_as_their_weight_says(keep: float) -> None:
    # One of five samples: the probability is the weight itself.
    losses = torch.tensor([3.0, 1.0, 5.0, 2.0, 4.0])
    num_kept = max(1, int(keep * 5))
    counts = torch.zeros(5)
    for _ in range(3000):
        counts[sample_by_loss(losses, keep)] += 1
    if num_kept == 1:
        ranks = losses.argsort().argsort()
        weights = ((ranks + 0.5) / 5) ** (1 / keep - 1)
        torch.testing.assert_close(counts / 3000, weights / weights.sum(), atol=0.03, rtol=0)
    order = counts.argsort()
    assert order.tolist() == losses.argsort().tolist()


def test_selection_depends_on_the_generator_only() -> None:
    losses = torch.rand(20)
    torch.manual_seed(1)
    first = sample_by_loss(losses, 0.5)
    assert torch.equal(first, sample_by_loss(losses, 0.5, torch.Generator().manual_seed(1)))
    torch.manual_seed(1)
    assert torch.equal(first, sample_by_loss(losses * 2, 0.5))


def test_select_using_loss_keeps_pairs_and_computes_no_gradients() -> None:
    x = torch.arange(10.0).unsqueeze(1)
    weight = torch.ones(1, requires_grad=True)
    grad_modes = []

    def model(x: torch.Tensor) -> torch.Tensor:
        grad_modes.append(torch.is_grad_enabled())
        return x * weight

    kept, target = select_using_loss(
        x, x[:, 0] * 2, model, lambda o, y, reduction: o[:, 0] ** 2, 0.3
    )
    assert torch.equal(kept[:, 0] * 2, target)
    assert len(kept) == 3
    assert grad_modes == [False]
    assert weight.grad is None


@pytest.mark.parametrize("shape", [(4, 3, 9), (4, 3, 8, 6), (4, 2, 4, 4, 4)])
def test_ranking_at_a_smaller_scale(shape: tuple[int, ...]) -> None:
    seen: list[tuple[int, ...]] = []

    def model(x: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(x.shape))
        return x.flatten(1).mean(1)

    x = torch.rand(shape)
    kept, _ = select_using_loss(x, torch.zeros(4), model, F.l1_loss, 0.5, scale_factor=0.5)
    assert seen == [(4, shape[1], *(s // 2 for s in shape[2:]))]
    assert kept.shape == (2, *shape[1:])
    with pytest.raises(ValueError, match="scale_factor=1"):
        select_using_loss(torch.rand(4), torch.zeros(4), model, F.l1_loss, 0.5, scale_factor=0.5)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda o, y: o, "reduction='none'"),
        (lambda o, y, reduction: o.mean(), r"shape \(4, ...\)"),
        (lambda o, y, **kwargs: {"a": o}, "dict"),
    ],
)
def test_losses_that_cannot_tell_samples_apart(loss: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        select_using_loss(torch.rand(4), torch.rand(4), lambda x: x, loss)


NORMS = [
    nn.BatchNorm2d(3),
    nn.BatchNorm2d(3, momentum=None),
    nn.SyncBatchNorm(3),
    nn.InstanceNorm2d(3, track_running_stats=True),
    nn.GroupNorm(3, 3),
]


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: type(norm).__name__)
def test_frozen_statistics(norm: nn.Module) -> None:
    model = nn.Sequential(nn.Identity(), norm).train()
    x = torch.randn(4, 3, 5, 5) * 3 + 1
    if isinstance(norm, nn.SyncBatchNorm):
        norm.eval()  # needs a process group to train
    with torch.no_grad():
        expected = nn.Sequential(*(m for m in model))(x)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    with torch.no_grad(), frozen_statistics(model):
        found = model(x)
    torch.testing.assert_close(found, expected)  # as in training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert [m.training for m in model.modules()] == modes
    with torch.no_grad():
        model(x)
    if isinstance(norm, nn.BatchNorm2d):
        assert norm.num_batches_tracked == before["1.num_batches_tracked"] + 1  # it learns again


def test_statistics_come_back_after_an_error() -> None:
    norm = nn.BatchNorm1d(2)
    with pytest.raises(RuntimeError, match="stop"), frozen_statistics(norm):
        raise RuntimeError("stop")
    assert norm.track_running_stats


class _Net(nn.Module):
    """Counts calls and notes how it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)
        )
        self.body.append(nn.Linear(6, 3))
        self.calls: list[SimpleNamespace] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.body(x)
        self.calls.append(
            SimpleNamespace(
                n=len(x), grad=torch.is_grad_enabled(), training=self.training, dtype=out.dtype
            )
        )
        return out


def batch(n: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 3, 2, 2), torch.randint(0, 3, (n,))


def test_in_a_run(make_run: Callable[..., Any]) -> None:
    net = _Net()
    model = ComposerClassifier(net, num_classes=3)
    run = make_run(model, [SelectiveBackprop(start=0.5, end=0.9, keep=0.5)])
    run.fire(Event.INIT)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    sizes = []
    for index in range(10):
        run.at(index)
        x, y = batch()
        run.state.batch = (x, y)
        run.fire(Event.AFTER_DATALOADER)
        kept, labels = run.state.batch
        sizes.append(len(labels))
        assert len(kept) == len(labels)
        places = [int((x == one).flatten(1).all(1).nonzero()) for one in kept]
        assert torch.equal(y[places], labels)
    assert sizes == [8, 8, 8, 8, 8, 8, 4, 8, 4, 8]  # batches 5, 7 and 9 are left alone
    assert [call.n for call in net.calls] == [2, 8, 8]  # a trial on two samples comes first
    assert all(call.training and not call.grad for call in net.calls)
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name])
    assert model.training


def test_ranking_gives_random_numbers_back(make_run: Callable[..., Any]) -> None:
    # Dropout draws in the ranking pass; afterwards only the choice itself has used the stream.
    run = make_run(ComposerClassifier(_Net(), num_classes=3), [SelectiveBackprop(0.0, 1.0)])
    run.at(0)
    run.state.batch = batch()
    torch.manual_seed(2)
    run.fire(Event.AFTER_DATALOADER)
    after = torch.get_rng_state()
    torch.manual_seed(2)
    sample_by_loss(torch.rand(8, generator=torch.Generator()), 0.5)
    assert torch.equal(torch.get_rng_state(), after)


def test_ranking_uses_the_precision_of_training(make_run: Callable[..., Any]) -> None:
    net = _Net()
    model = ComposerClassifier(net, num_classes=3)
    run = make_run(model, [SelectiveBackprop(0.0, 1.0)], precision="amp_bf16")
    run.at(0)
    run.state.batch = batch()
    run.fire(Event.AFTER_DATALOADER)
    assert {call.dtype for call in net.calls} == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_everything_with_one_entry_per_sample_is_thinned_out(make_run: Callable[..., Any]) -> None:
    class Model(nn.Module):
        def forward(self, batch: Any) -> torch.Tensor:
            return batch["x"]

        def loss(self, outputs: Any, batch: Any, reduction: str = "mean") -> torch.Tensor:
            assert len(batch["weight"]) == len(outputs)
            return F.l1_loss(outputs, batch["y"], reduction=reduction)

    method = SelectiveBackprop(0.0, 1.0, keep=0.5, interrupt=0, input_key="x", target_key="y")
    run = make_run(Model(), [method])
    x = torch.arange(6.0)
    original = {"x": x, "y": x * 0, "weight": x * 10, "scale": torch.ones(2), "name": "a"}
    run.state.batch = original
    run.at(0)
    run.fire(Event.INIT, Event.AFTER_DATALOADER)
    thin = run.state.batch
    assert len(thin["x"]) == 3
    assert torch.equal(thin["weight"], thin["x"] * 10)
    assert torch.equal(thin["scale"], torch.ones(2))
    assert thin["name"] == "a"
    assert original["x"] is x


def test_batch_objects(make_run: Callable[..., Any]) -> None:
    class Model(nn.Module):
        def forward(self, batch: Any) -> torch.Tensor:
            return batch.x

        def loss(self, outputs: Any, batch: Any, reduction: str = "mean") -> torch.Tensor:
            return F.l1_loss(outputs, batch.y, reduction=reduction)

    run = make_run(Model(), [SelectiveBackprop(0.0, 1.0, input_key="x", target_key="y")])
    run.state.batch = original = SimpleNamespace(x=torch.arange(4.0), y=torch.zeros(4))
    run.at(0)
    run.fire(Event.INIT, Event.AFTER_DATALOADER)
    assert len(run.state.batch.x) == len(run.state.batch.y) == 2
    assert len(original.x) == 4


class _Lines(nn.Module):
    """One loss per sample, whatever else the batch holds."""

    def forward(self, batch: Any) -> torch.Tensor:
        return batch["x"].float()

    def loss(self, outputs: Any, batch: Any, reduction: str = "mean") -> torch.Tensor:
        return F.l1_loss(outputs, batch["y"], reduction=reduction)


def lines_run(make_run: Callable[..., Any], **fields: Any) -> Any:
    method = SelectiveBackprop(0.0, 1.0, interrupt=0, input_key="x", target_key="y")
    run = make_run(_Lines(), [method], **fields)
    run.at(0)
    return run


def lines(n: int, **members: Any) -> dict[str, Any]:
    x = torch.arange(float(n))
    return {"x": x, "y": torch.zeros(n), **members}


def thinned(run: Any, batch: Any) -> Any:
    run.state.batch = batch
    run.fire(Event.AFTER_DATALOADER)
    return run.state.batch


class Pair(NamedTuple):
    ids: Any
    length: Any


def test_lists_and_nested_members_are_thinned_out_alike(make_run: Callable[..., Any]) -> None:
    run = lines_run(make_run)
    names = list("abcdefgh")
    batch = lines(
        8,
        names=names,
        rows=np.arange(8) * 10,
        boxes=[torch.full((i + 1, 4), float(i)) for i in range(8)],
        meta={"size": tuple((i, i) for i in range(8)), "source": "disk", "none": None},
        pair=Pair(torch.arange(8), torch.tensor(3)),
        views=[torch.arange(8), torch.arange(8) * 2],
        labels=("cat", None, "dog"),
        maybe=["a", None, 3, "d", "e", "f", "g", "h"],
        constant=torch.ones(3),
    )
    thin = thinned(run, batch)
    kept = [int(i) for i in thin["x"]]
    assert len(kept) == 4
    assert thin["names"] == [names[i] for i in kept]
    assert thin["rows"].tolist() == [10 * i for i in kept]
    assert [box.shape[0] for box in thin["boxes"]] == [i + 1 for i in kept]
    assert thin["meta"]["size"] == tuple((i, i) for i in kept)
    assert (thin["meta"]["source"], thin["meta"]["none"]) == ("disk", None)
    assert thin["pair"].ids.tolist() == kept
    assert thin["pair"].length == 3
    assert [view.tolist() for view in thin["views"]] == [kept, [2 * i for i in kept]]
    assert thin["labels"] == ("cat", None, "dog")
    assert thin["maybe"] == [batch["maybe"][i] for i in kept]
    assert thin["constant"].shape == (3,)
    assert len(batch["names"]) == len(batch["x"]) == 8


def test_what_belongs_to_samples_is_decided_on_the_first_batch(
    make_run: Callable[..., Any],
) -> None:
    run = lines_run(make_run)
    classes = ["a", "b", "c"]
    assert len(thinned(run, lines(8, names=list("abcdefgh"), classes=classes))["names"]) == 4
    # A later batch that happens to have as many samples as there are classes.
    last = thinned(run, lines(3, names=list("xyz"), classes=classes))
    assert len(last["x"]) == len(last["names"]) == 2
    assert last["classes"] == classes
    with pytest.raises(ValueError, match=r"\['names'\].* batch of 8 samples it has 7 entries"):
        thinned(run, lines(8, names=list("abcdefg"), classes=classes))


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        ({"twice": [torch.zeros(3, 2)] * 3}, TypeError, r"cannot tell .*\['twice'\]"),
        ({"a": {"mixed": [torch.zeros(3), "x", None]}}, TypeError, r"\['a'\]\['mixed'\]"),
        ({"marks": {"a", "b", "c"}}, TypeError, r"\['marks'\], a set"),
        (
            {"packed": nn.utils.rnn.pack_sequence([torch.zeros(2)] * 3)},
            TypeError,
            r"\['packed'\], a PackedSequence",
        ),
        ({"x": torch.zeros(1, 3)}, ValueError, "at 'x' in the batch; samples must come first"),
    ],
)
def test_members_that_would_get_out_of_step_are_refused_at_the_first_batch(
    make_run: Callable[..., Any], members: dict[str, Any], error: type[Exception], message: str
) -> None:
    method = SelectiveBackprop(0.5, 0.9, input_key="x", target_key="y")
    run = make_run(_Lines(), [method])
    run.at(0)
    with pytest.raises(error, match=message):
        thinned(run, lines(3, **members))


def test_attributes_of_batch_objects_are_thinned_out_alike(make_run: Callable[..., Any]) -> None:
    class Model(_Lines):
        def forward(self, batch: Any) -> torch.Tensor:
            return batch.x

        def loss(self, outputs: Any, batch: Any, reduction: str = "mean") -> torch.Tensor:
            return F.l1_loss(outputs, batch.y, reduction=reduction)

    run = make_run(Model(), [SelectiveBackprop(0.0, 1.0, input_key="x", target_key="y")])
    run.at(0)
    original = SimpleNamespace(**lines(6, names=list("abcdef"), scale=2.0))
    thin = thinned(run, original)
    assert thin.names == ["abcdef"[int(i)] for i in thin.x]
    assert (len(thin.y), thin.scale, len(original.names)) == (3, 2.0, 6)


def test_bytes_are_ranked_as_the_microbatch_transforms_leave_them(
    make_run: Callable[..., Any],
) -> None:
    net = _Net()
    run = make_run(ComposerClassifier(net, num_classes=3), [SelectiveBackprop(0.0, 1.0)])
    before_random: list[torch.Tensor] = []

    def transform(batch: Any) -> Any:
        batch[1].add_(0)  # may write into what it gets
        images = batch[0].float().div_(255)
        batch[0].zero_()
        before_random.append(torch.rand(1))
        return images, batch[1]

    run.state.train_microbatch_transforms = transform
    run.at(0)
    x = torch.randint(1, 256, (8, 3, 2, 2), dtype=torch.uint8)
    y = torch.randint(0, 3, (8,))
    torch.manual_seed(2)
    kept, labels = thinned(run, (x, y))
    after = torch.get_rng_state()
    assert kept.dtype == torch.uint8
    assert bool((x > 0).all())
    places = [int((x == one).flatten(1).all(1).nonzero()) for one in kept]
    assert torch.equal(y[places], labels)
    assert [call.n for call in net.calls] == [2, 8]
    torch.manual_seed(2)
    sample_by_loss(torch.rand(8, generator=torch.Generator()), 0.5)
    assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize(("n", "left"), [(2, 2), (3, 2), (4, 2), (5, 2), (9, 2), (40, 4)])
def test_batch_norm_has_two_samples_to_train_on(
    make_run: Callable[..., Any], n: int, left: int
) -> None:
    model = ComposerClassifier(_Net(), num_classes=3)
    run = make_run(model, [SelectiveBackprop(0.0, 1.0, keep=0.1, interrupt=0)])
    run.at(0)
    run.state.batch = batch(n)
    with pytest.warns(NoEffectWarning, match="batches of 2") if n == 2 else nullcontext():
        run.fire(Event.AFTER_DATALOADER)
    assert len(run.state.batch[0]) == len(run.state.batch[1]) == left
    model.loss(model(run.state.batch), run.state.batch)


def test_a_second_run_is_tried_anew(make_run: Callable[..., Any]) -> None:
    method = SelectiveBackprop(0.5, 0.9)
    for _ in range(2):
        net = _Net()
        run = make_run(ComposerClassifier(net, num_classes=3), [method])
        run.fire(Event.INIT)
        run.at(0)
        thinned(run, batch())
        assert [call.n for call in net.calls] == [2]


def test_checks_come_long_before_the_start(make_run: Callable[..., Any]) -> None:
    method = SelectiveBackprop(start=0.5)
    without = ComposerClassifier(nn.Identity(), num_classes=3)
    without.loss = lambda outputs, batch: outputs.sum()  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError, match="reduction='none'"):
        make_run(without, [method]).fire(Event.INIT)
    with pytest.raises(TypeError, match="ComposerModel"):
        make_run(nn.Identity(), [method]).fire(Event.INIT)
    averaging = ComposerClassifier(_Net(), num_classes=3, loss_fn=lambda o, y, reduction: o.sum())
    run = make_run(averaging, [method])
    run.fire(Event.INIT)
    run.at(0)
    run.state.batch = batch()
    with pytest.raises(TypeError, match="one loss per sample"):
        run.fire(Event.AFTER_DATALOADER)


def test_batch_of_one_and_keep_one(make_run: Callable[..., Any]) -> None:
    model = ComposerClassifier(nn.Flatten(), num_classes=12)
    run = make_run(model, [SelectiveBackprop(0.0, 1.0)])
    run.at(0)
    run.state.batch = batch(1)
    with pytest.warns(NoEffectWarning, match="batches of 1"):
        run.fire(Event.AFTER_DATALOADER)
    assert len(run.state.batch[0]) == 1
    off = SelectiveBackprop(0.0, 1.0, keep=1)
    assert not off.match(Event.INIT, run.state)
    assert not off.match(Event.AFTER_DATALOADER, run.state)


def test_it_comes_first() -> None:
    methods = [MixUp(), ProgressiveResizing(), SelectiveBackprop()]
    assert SelectiveBackprop.phase is Phase.FIRST
    assert sort_by_phase(methods)[0] is methods[2]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"start": 0.9, "end": 0.5}, ValueError, "start=0.9"),
        ({"start": -0.1}, ValueError, "start"),
        ({"keep": 0.0}, ValueError, "keep"),
        ({"keep": 1.5}, ValueError, "keep"),
        ({"scale_factor": 2.0}, ValueError, "scale_factor"),
        ({"interrupt": -1}, ValueError, "interrupt"),
        ({"interrupt": 1}, ValueError, "every batch"),
        ({"interrupt": 2.0}, TypeError, "interrupt"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SelectiveBackprop(**arguments)


class _Plain(nn.Module):
    """Samples do not see each other; notes how many come at a time, and has room for some."""

    def __init__(self, room: int = 100) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 3)
        self.room = room
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(x))
        if len(x) > self.room:
            raise torch.OutOfMemoryError(f"room for {self.room}")
        return self.linear(x.flatten(1))


def ranked(make_run: Callable[..., Any], net: _Plain, n: int = 9, **fields: Any) -> torch.Tensor:
    """The losses by which a batch was thinned out."""
    run = make_run(ComposerClassifier(net, num_classes=3), [SelectiveBackprop(0.0, 1.0)], **fields)
    run.fire(Event.INIT)
    run.at(0)
    torch.manual_seed(4)
    run.state.batch = batch(n)
    run.fire(Event.AFTER_DATALOADER)
    samples: torch.Tensor = run.state.batch[0]
    return samples


@pytest.mark.parametrize(
    ("size", "parts"),
    [(None, [9]), (100, [9]), (4, [3, 3, 3]), (2, [3, 2, 2, 2]), (1, [3, 2, 2, 2])],
)
def test_ranking_goes_in_parts_no_larger_than_a_microbatch(
    make_run: Callable[..., Any], size: int | None, parts: list[int]
) -> None:
    whole, net = _Plain(), _Plain()
    net.load_state_dict(whole.state_dict())
    expected = ranked(make_run, whole)
    found = ranked(make_run, net, device_train_microbatch_size=size)
    assert net.seen == [2, *parts]  # behind the trial on two samples
    assert torch.equal(found, expected)


def test_a_ranking_without_room_is_done_again_in_smaller_parts(
    make_run: Callable[..., Any],
) -> None:
    whole, net = _Plain(), _Plain(room=2)
    net.load_state_dict(whole.state_dict())
    expected = ranked(make_run, whole, 8)
    found = ranked(make_run, net, 8, auto_microbatching=True)
    assert net.seen == [2, 8, 4, 2, 2, 2, 2]
    assert torch.equal(found, expected)
    with pytest.raises(torch.OutOfMemoryError):
        ranked(make_run, _Plain(room=2), 8)  # nobody asked for a search
    with pytest.raises(torch.OutOfMemoryError):
        ranked(make_run, _Plain(room=1), 8, auto_microbatching=True)
