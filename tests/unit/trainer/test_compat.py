"""Files of Composer 0.32, made by that library: what it says of them is the truth here.

How they were made is in ``data/composer-0.32``.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
import pickle
import random
import shutil
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from composer.algorithms import EMA, GradientClipping, LabelSmoothing
from composer.callbacks import EarlyStopper
from composer.checkpoint import compat, read_checkpoint
from composer.core import plugins
from composer.core.callback import Callback
from composer.core.logger import Logger
from composer.core.state import State
from composer.models import ComposerClassifier
from composer.optim import CosineAnnealingWithWarmupScheduler, DecoupledAdamW
from composer.trainer import Trainer

FOLDER = Path(__file__).parent / "data" / "composer-0.32"


def truth(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


def raw(name: str) -> dict[str, Any]:
    """The file as it is, read without this library."""
    kinds: list[Any] = [
        np.ndarray,
        np.dtype,
        type(np.dtype(np.uint32)),
        datetime.timedelta,
        torch.torch_version.TorchVersion,
        # NumPy renamed the module between its versions.
        (np.zeros(1).__reduce__()[0], "numpy._core.multiarray._reconstruct"),
    ]
    with torch.serialization.safe_globals(kinds):
        return torch.load(FOLDER / f"{name}.pt", weights_only=True)


def data(samples: int = 24, shape: tuple[int, ...] = (4,)) -> TensorDataset:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(samples, *shape, generator=generator)
    return TensorDataset(x, torch.randint(0, 3, (samples,), generator=generator))


def mlp() -> ComposerClassifier:
    return ComposerClassifier(
        torch.nn.Sequential(
            torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 3)
        ),
        num_classes=3,
    )


def convolutional() -> ComposerClassifier:
    return ComposerClassifier(
        torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(16, 3),
        ),
        num_classes=3,
    )


def sgd(model: torch.nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    """The groups of the stored run, which are not in the order of the model's parameters."""
    return DecoupledAdamW(
        [
            {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
            {"params": [p for p in model.parameters() if p.ndim > 1]},
        ],
        lr=0.01,
        betas=(0.9, 0.98),
        weight_decay=1e-5,
    )


class Watch(Callback):
    def __init__(self) -> None:
        self.losses: list[float] = []
        self.rates: list[float] = []

    def batch_start(self, state: State, logger: Logger) -> None:
        self.rates.append(state.optimizers[0].param_groups[0]["lr"])

    def batch_end(self, state: State, logger: Logger) -> None:
        self.losses.append(float(state.total_loss_dict["loss/train/total"]))


def trainer(name: str | Path, model: ComposerClassifier | None = None, **settings: Any) -> Trainer:
    model = model or mlp()
    path = FOLDER / f"{name}.pt" if isinstance(name, str) else name
    settings.setdefault("optimizers", sgd(model))
    settings.setdefault(
        "train_dataloader", DataLoader(data(), batch_size=4, shuffle=settings.pop("shuffle", False))
    )
    return Trainer(
        model=model,
        max_duration="2ep",
        device="cpu",
        progress_bar=False,
        load_path=str(path),
        **settings,
    )


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()


def digests(model: torch.nn.Module) -> dict[str, str]:
    return {name: digest(tensor) for name, tensor in model.state_dict().items()}


def check_optimizer(state: State, stored: dict[str, dict[str, str]]) -> None:
    optimizer = state.optimizers[0]
    found = {
        name: {k: digest(v) for k, v in optimizer.state[p].items()}
        for name, p in state.model.named_parameters()
    }
    assert found == stored


# ---- a run that goes on -----------------------------------------------------------------------


def test_weights_optimizer_and_clock_come_over_exactly() -> None:
    expected = truth("mid-epoch")["loaded"]
    t = trainer("mid-epoch")
    assert digests(t.state.model) == expected["model"]
    check_optimizer(t.state, expected["optimizer"])
    for key, value in expected["timestamp"].items():
        assert int(getattr(t.state.timestamp, key)) == value
    assert t.state.timestamp.total_wct.total_seconds() > 0
    assert t.state.rank_zero_seed == expected["seed"]
    t.close()


def test_the_run_goes_on_as_it_would_have_there() -> None:
    """Data in order and a constant rate: every later batch has the loss that it had in 0.32."""
    expected = truth("mid-epoch")
    watch = Watch()
    t = trainer("mid-epoch", callbacks=[watch])
    t.fit()
    assert watch.losses == pytest.approx([b["loss"] for b in expected["batches"][4:]], rel=1e-5)
    for name, tensor in t.state.model.state_dict().items():
        values = tensor.double().flatten().tolist()
        assert values == pytest.approx(expected["final_values"][name], rel=1e-4, abs=1e-6)
    t.close()


def test_random_streams_are_the_stored_ones() -> None:
    stored = raw("mid-epoch")["rng"][0]
    drawn: list[Any] = []

    class First(Callback):
        def batch_start(self, state: State, logger: Logger) -> None:
            if not drawn:
                drawn.append((torch.get_rng_state(), np.random.get_state(), random.getstate()))

    t = trainer("mid-epoch", callbacks=[First()])
    t.fit()
    t.close()
    torch_, numpy_, python = drawn[0]
    assert torch.equal(torch_, stored["torch"])
    assert np.array_equal(numpy_[1], stored["numpy"][1])
    assert numpy_[2:] == tuple(stored["numpy"][2:])
    assert python == stored["python"]


def test_groups_averages_and_the_schedule_come_over() -> None:
    expected, file = truth("epoch-edge"), raw("epoch-edge")["state"]
    average = EMA(half_life="2ba", update_interval="1ba")
    watch = Watch()
    model = mlp()
    with pytest.warns(UserWarning, match="not restored: .*SpeedMonitor") as caught:
        t = trainer(
            "epoch-edge",
            model,
            optimizers=adamw(model),
            schedulers=CosineAnnealingWithWarmupScheduler(t_warmup="3ba"),
            algorithms=[LabelSmoothing(0.1), GradientClipping("norm", 1.0), average],
            callbacks=[watch],
        )
    assert len(caught) == 1
    check_optimizer(t.state, expected["loaded"]["optimizer"])
    # The file's model is the average; the weights being trained are in the state of EMA.
    trained = dict(file["algorithms"])["EMA"]["ema_model"]["named_parameters_dict"]
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, trained[name])
        assert torch.equal(average.ema_model.named_parameters_dict[name], file["model"][name])
    assert not average.ema_weights_active
    t.fit()
    # 0.32 notes at the end of a batch the rate of the next one, which is the schedule's value at
    # the batch that just ended; here that batch itself trains at it.
    assert watch.rates == pytest.approx([b["lr"][0] for b in expected["batches"][6:]])
    t.close()


def test_a_run_without_the_average_goes_on_from_the_trained_weights() -> None:
    file = raw("epoch-edge")["state"]
    model = mlp()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        t = trainer(
            "epoch-edge",
            model,
            optimizers=adamw(model),
            schedulers=CosineAnnealingWithWarmupScheduler(t_warmup="3ba"),
        )
    trained = dict(file["algorithms"])["EMA"]["ema_model"]["named_parameters_dict"]
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, trained[name])
    text = " ".join(str(w.message) for w in caught)
    assert "weights that were being trained" in text
    assert "LabelSmoothing: it is not among this run's algorithms" in text
    t.close()


def test_a_required_algorithm_is_applied_again_and_the_run_goes_on() -> None:
    expected = truth("blurpool")
    model, watch = convolutional(), Watch()
    optimizer = sgd(model)
    with pytest.warns(UserWarning, match="trained with .*BlurPool.*applied now"):
        t = trainer(
            "blurpool",
            model,
            optimizers=optimizer,
            schedulers=torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5),
            train_dataloader=DataLoader(data(16, (2, 8, 8)), batch_size=4),
            callbacks=[watch],
        )
    stored = expected["loaded"]["model"]
    fixed = {n for n in stored if n.endswith(("blur_filter", "filt2d"))}
    assert len(fixed) == 2
    assert digests(model) == {n: v for n, v in stored.items() if n not in fixed}
    check_optimizer(t.state, expected["loaded"]["optimizer"])
    assert [type(a).__name__ for a in t.state.algorithms] == ["BlurPool"]
    assert t.state.algorithms[0].arguments() == {
        "replace_convs": True, "replace_maxpools": True, "blur_first": True, "min_channels": 2
    }  # fmt: skip
    t.fit()
    assert watch.losses == pytest.approx([b["loss"] for b in expected["batches"][4:]], rel=1e-4)
    # The torch schedule had stepped once before the file was written.
    assert set(watch.rates) == {0.05}
    t.close()


def test_an_unknown_required_algorithm_is_named_and_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hidden, entries = {"stochastic_depth", "colout"}, plugins.entries
    monkeypatch.setattr(
        plugins, "entries", lambda group: [e for e in entries(group) if e.name not in hidden]
    )
    images = DataLoader(data(16, (2, 8, 8)), batch_size=4)
    with pytest.raises(ValueError, match=r"StochasticDepth.*load_exclude_algorithms"):
        trainer("unknown", convolutional(), train_dataloader=images)
    model = convolutional()
    with pytest.warns(UserWarning, match="ColOut: no plugin of that name is installed"):
        t = trainer(
            "unknown",
            model,
            train_dataloader=images,
            load_exclude_algorithms=["StochasticDepth"],
        )
    assert digests(model) == truth("unknown")["loaded"]["model"]
    t.close()


@pytest.mark.parametrize("name", ["weights-only", "mid-epoch"])
def test_weights_alone(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "composer.checkpoint.compat"):
        t = trainer(name, load_weights_only=True)
    assert digests(t.state.model) == truth(name)["loaded"]["model"]
    assert int(t.state.timestamp.batch) == 0
    assert not t.state.optimizers[0].state
    assert "weights (9 tensors)" in caplog.text
    assert "timestamp" not in caplog.text
    t.close()


def test_a_weights_only_file_in_a_full_load_is_said() -> None:
    with pytest.warns(UserWarning, match="holds no optimizer state"):
        t = trainer("weights-only")
    assert digests(t.state.model) == truth("weights-only")["loaded"]["model"]
    t.close()


def test_what_is_ignored_is_not_reported_as_restored(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "composer.checkpoint.compat"),
        pytest.warns(UserWarning, match="holds no optimizer state"),
    ):
        t = trainer("mid-epoch", load_ignore_keys=["state/optimizers", "rng"])
    assert "weights (9 tensors)" in caplog.text
    assert "optimizer: SGD" not in caplog.text
    assert "random streams" not in caplog.text
    t.close()


def test_a_shuffled_epoch_that_was_begun_is_said_not_to_repeat() -> None:
    with pytest.warns(UserWarning, match="order of the data in this epoch"):
        t = trainer("mid-epoch", shuffle=True)
    t.fit()
    assert int(t.state.timestamp.batch) == 12
    t.close()


def test_the_report_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "composer.checkpoint.compat"):
        trainer("mid-epoch").close()
    lines = [r.message for r in caplog.records if r.name == "composer.checkpoint.compat.reporting"]
    assert len(lines) == 1
    for part in (
        "written by Composer 0.32.1",
        "weights (9 tensors)",
        "optimizer: SGD (6 parameters, 1 group)",
        "timestamp (epoch 0, batch 4)",
        "random streams of 1 rank",
    ):
        assert part in lines[0]


def test_the_lag_of_the_learning_rate_is_in_the_report() -> None:
    _, report = compat.from_reference(compat.load_harmless(FOLDER / "epoch-edge.pt"))
    (line,) = [n for n in report.notes if n.startswith("learning rate")]
    # The value at batch 5, which 0.32 would have used for the batch after 6.
    assert "one batch late" in line
    assert f"{truth('epoch-edge')['batches'][5]['lr'][0]}" in line


def test_state_of_a_callback_that_is_here_comes_over(tmp_path: Path) -> None:
    class Counter(Callback):
        def __init__(self) -> None:
            self.seen = 0

        def state_dict(self) -> dict[str, Any]:
            return {"seen": self.seen}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.seen = state["seen"]

    contents = raw("mid-epoch")
    contents["state"]["callbacks"][Counter.__qualname__] = {"seen": 4}
    torch.save(contents, tmp_path / "a.pt")
    counter = Counter()
    t = trainer(tmp_path / "a.pt", callbacks=[counter])
    assert counter.seen == 4
    t.close()


def test_a_stopper_whose_state_was_not_kept_starts_fresh() -> None:
    model = mlp()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        t = trainer(
            "epoch-edge",
            model,
            optimizers=adamw(model),
            schedulers=CosineAnnealingWithWarmupScheduler(t_warmup="3ba"),
            eval_dataloader=DataLoader(data(8), batch_size=4),
            callbacks=[EarlyStopper("MulticlassAccuracy", "eval", patience="5ep")],
        )
    assert "no state for the callback EarlyStopper" in " ".join(str(w.message) for w in caught)
    t.close()


# ---- older files ------------------------------------------------------------------------------


def test_names_with_the_prefix_of_a_wrapper(tmp_path: Path) -> None:
    contents = raw("mid-epoch")
    state = contents["state"]
    state["model"] = {f"module.{name}": v for name, v in state["model"].items()}
    saved = state["optimizers"]["SGD"]
    saved["state"] = {f"module.{name}": v for name, v in saved["state"].items()}
    for group in saved["param_groups"]:
        group["params"] = [f"module.{name}" for name in group["params"]]
    torch.save(contents, tmp_path / "a.pt")
    t = trainer(tmp_path / "a.pt")
    expected = truth("mid-epoch")["loaded"]
    assert digests(t.state.model) == expected["model"]
    check_optimizer(t.state, expected["optimizer"])
    t.close()


def test_names_with_underscores(tmp_path: Path) -> None:
    contents = raw("mid-epoch")
    contents["state"] = {f"_{name}": value for name, value in contents["state"].items()}
    torch.save(contents, tmp_path / "a.pt")
    t = trainer(tmp_path / "a.pt")
    assert digests(t.state.model) == truth("mid-epoch")["loaded"]["model"]
    t.close()


def test_a_file_that_keeps_no_place_in_the_data(tmp_path: Path) -> None:
    contents = raw("mid-epoch")
    del contents["state"]["dataset_state"]
    torch.save(contents, tmp_path / "a.pt")
    watch = Watch()
    t = trainer(tmp_path / "a.pt", callbacks=[watch])
    t.fit()
    t.close()
    expected = [b["loss"] for b in truth("mid-epoch")["batches"][4:]]
    assert watch.losses == pytest.approx(expected, rel=1e-5)


def test_a_file_made_at_an_epochs_last_batch_before_its_counter_moved(tmp_path: Path) -> None:
    """0.32 does so when the duration is given in batches."""
    contents = raw("epoch-edge")
    clock = contents["state"]["timestamp"]["Timestamp"]
    clock.update(epoch=0, batch_in_epoch=6, sample_in_epoch=24, epoch_in_iteration=0)
    torch.save(contents, tmp_path / "a.pt")
    model, watch = mlp(), Watch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t = trainer(
            tmp_path / "a.pt",
            model,
            optimizers=adamw(model),
            schedulers=CosineAnnealingWithWarmupScheduler(t_warmup="3ba"),
            callbacks=[watch],
        )
    t.fit()
    assert len(watch.losses) == 6
    assert (int(t.state.timestamp.epoch), int(t.state.timestamp.batch)) == (2, 12)
    t.close()


def test_an_optimizer_kept_by_position_is_left_out(tmp_path: Path) -> None:
    contents = raw("mid-epoch")
    saved = contents["state"]["optimizers"]["SGD"]
    saved["state"] = dict(enumerate(saved["state"].values()))
    saved["param_groups"][0]["params"] = list(range(6))
    torch.save(contents, tmp_path / "a.pt")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        t = trainer(tmp_path / "a.pt")
    assert "kept by position" in " ".join(str(w.message) for w in caught)
    assert not t.state.optimizers[0].state
    t.close()


# ---- nothing runs -----------------------------------------------------------------------------


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.marker}",))


def test_a_malicious_pickle_is_refused_by_name(tmp_path: Path) -> None:
    contents = raw("mid-epoch")
    contents["state"]["callbacks"]["Bad"] = {"state": Payload(tmp_path / "marker")}
    torch.save(contents, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"refused and nothing ran.*(posix|nt)\.system"):
        read_checkpoint(tmp_path / "a.pt")
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "value",
    [
        np.array([Path("x")], dtype=object),
        np.array(["text"]),
        np.zeros(1, dtype=[("a", "i4")]),
    ],
)
def test_arrays_of_something_else_than_numbers_are_refused(value: Any, tmp_path: Path) -> None:
    torch.save({"state": {"model": {}, "metadata": {}}, "rng": value}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="refused and nothing ran"):
        read_checkpoint(tmp_path / "a.pt")


@pytest.mark.parametrize(
    "text",
    [
        "BlurPool(min_channels=__import__('os').system('touch {marker}'))",
        "__import__('os').system('touch {marker}')",
        "BlurPool(min_channels=(lambda: open('{marker}', 'w'))())",
        "BlurPool(**{{'min_channels': 2}})",
        "BlurPool(min_channels=[__import__('os').system('touch {marker}')])",
        "BlurPool(min_channels=open('{marker}', 'w').name)",
        "BlurPool(min_channels=Time(__import__('os').system('touch {marker}'), TimeUnit.EPOCH))",
        "BlurPool(2)",
        "(" * 3000,
        "<composer.algorithms.blurpool.blurpool.BlurPool object at 0x7f00>",
        None,
    ],
)
def test_a_repr_is_never_evaluated(text: str | None, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    contents = raw("blurpool")
    text = text and text.format(marker=marker)
    assert compat.parse_repr(text) is None
    contents["state"]["algorithms"] = [("BlurPool", {"repr": text})]
    torch.save(contents, tmp_path / "a.pt")
    model = convolutional()
    images = DataLoader(data(16, (2, 8, 8)), batch_size=4)
    with pytest.raises(ValueError, match="needs the algorithm BlurPool"):
        trainer(tmp_path / "a.pt", model, train_dataloader=images)
    assert not marker.exists()


def test_a_repr_of_another_class_gives_no_arguments(tmp_path: Path) -> None:
    contents = raw("blurpool")
    contents["state"]["algorithms"] = [("BlurPool", {"repr": "CutOut(num_holes=1)"})]
    torch.save(contents, tmp_path / "a.pt")
    (entry,) = read_checkpoint(tmp_path / "a.pt")["state"]["algorithms"]
    assert entry["arguments"] is None


def test_the_list_of_allowed_classes_is_put_back() -> None:
    before = set(torch.serialization.get_safe_globals())
    threads = [
        threading.Thread(target=compat.load_harmless, args=(FOLDER / "mid-epoch.pt",))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(torch.serialization.get_safe_globals()) == before
    with pytest.raises(pickle.UnpicklingError):
        torch.load(FOLDER / "mid-epoch.pt", weights_only=True)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        np.array([1, 300], dtype=">i4"),
        np.array([True, False]),
        np.array([1.5], dtype=np.float16),
        np.array(3, dtype=np.int64),
        np.zeros((0, 2), dtype=np.float32),
    ],
)
def test_arrays_become_tensors(array: Any, tmp_path: Path) -> None:
    torch.save([array, np.float32(1.5), np.int64(3)], tmp_path / "a.pt")
    found, number, count = compat.load_harmless(tmp_path / "a.pt")
    assert torch.equal(found, torch.tensor(array.tolist(), dtype=found.dtype).reshape(array.shape))
    assert (number, count) == (1.5, 3)
    assert type(number) is float


@pytest.mark.skipif(shutil.which("gzip") is None, reason="needs the command gzip")
def test_a_compressed_file() -> None:
    contents = read_checkpoint(FOLDER / "compressed.pt.gz")
    model = {name: digest(tensor) for name, tensor in contents["state"]["model"].items()}
    assert model == truth("compressed")["final_model"]
    assert contents["state"]["timestamp"]["batch"] == truth("compressed")["saved_after_batch"]


def test_files_of_another_library_are_still_refused(tmp_path: Path) -> None:
    torch.save({"state": {"model": {}}}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="another library"):
        read_checkpoint(tmp_path / "a.pt")
    with pytest.raises(ValueError, match="layout"):
        compat.from_reference({"model": {}})
