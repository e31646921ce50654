"""Mistakes are told at the earliest moment, with the argument, the value and what would do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from composer.core.evaluator import Evaluator
from composer.trainer import Trainer
from composer_testing.tiny import TinyModel, loader


def build(**settings: Any) -> Trainer:
    model = settings.pop("model", None) or TinyModel()
    parameters = model.parameters() if isinstance(model, nn.Module) else []
    settings.setdefault("optimizers", torch.optim.SGD(parameters or [torch.ones(1)], lr=0.1))
    return Trainer(model=model, progress_bar=False, **settings)


def foreign() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(7, 9).parameters(), lr=0.1)


MISTAKES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "plain module": ({"model": nn.Linear(1, 1)}, TypeError, "ComposerClassifier"),
    "no module": ({"model": 3}, TypeError, "not 3 of type int"),
    "another model's parameters": ({"optimizers": foreign()}, ValueError, r"\(9, 7\)"),
    "no optimizer": ({"optimizers": "sgd"}, TypeError, "torch.optim.Optimizer"),
    "two foreign optimizers": ({"optimizers": [foreign(), foreign()]}, ValueError, "not the mod"),
    "unknown device": ({"device": "gpuu"}, ValueError, "gpu"),
    "unknown precision": ({"precision": "fp23"}, ValueError, "fp32"),
    "fp8": ({"precision": "amp_fp8"}, NotImplementedError, "comes with"),
    "unknown unit": ({"max_duration": "10epochs"}, ValueError, "max_duration='10epochs'.*'10ep'"),
    "iterations": ({"max_duration": "3iter"}, ValueError, "no run advances"),
    "save iterations": ({"save_interval": "1iter", "save_folder": "x"}, ValueError, "iterations"),
    "share as duration": ({"max_duration": "0.5dur"}, ValueError, "share of itself"),
    "no duration": ({"max_duration": 0}, ValueError, "must be positive"),
    "fractional epochs": ({"max_duration": 1.5}, TypeError, "max_duration=1.5"),
    "no loader": ({"train_dataloader": 3}, TypeError, "iterable of batches"),
    "unknown algorithm": ({"algorithms": "mixupp"}, ValueError, "mixup"),
    "algorithm class": ({"algorithms": type(foreign())}, TypeError, "algorithms takes Algorithm"),
    "callback as logger": ({"loggers": [object()]}, TypeError, "loggers takes LoggerDestination"),
    "unknown callback": ({"callbacks": ["lr_monitr"]}, ValueError, "lr_monitor"),
    "microbatch of zero": ({"device_train_microbatch_size": 0}, ValueError, "positive whole"),
    "half a microbatch": ({"device_train_microbatch_size": 0.5}, ValueError, "positive whole"),
    "automatic": ({"device_train_microbatch_size": "automatic"}, ValueError, "or 'auto'"),
    "profiler": ({"profiler": object()}, NotImplementedError, "comes with"),
    "sharding": ({"parallelism_config": {"fsdp": {}}}, NotImplementedError, "comes with"),
    "sync strategy": ({"ddp_sync_strategy": "forced"}, ValueError, "single_auto_sync"),
    "policy": ({"on_nonfinite_loss": "skipp"}, ValueError, '"skip"'),
    "wall clock": ({"max_wall_clock": "3ep"}, ValueError, "'3h50m'"),
    "no wall clock": ({"max_wall_clock": "soon"}, ValueError, "max_wall_clock='soon'"),
    "negative seed": ({"seed": -1}, ValueError, "seed=-1"),
    "huge seed": ({"seed": 2**32}, ValueError, "4294967295"),
    "console": ({"console_stream": "stdoutt"}, ValueError, "'stdout', 'stderr'"),
    "log level": ({"python_log_level": "LOUD"}, ValueError, "INFO"),
    "ratio alone": ({"scale_schedule_ratio": 0.5}, ValueError, "needs schedulers"),
    "subset of zero": (
        {"train_dataloader": loader(), "train_subset_num_batches": 0},
        ValueError,
        "train_subset_num_batches",
    ),
    "eval interval": ({"eval_interval": "sometimes"}, ValueError, "sometimes"),
    "eval subset": ({"eval_subset_num_batches": -2}, ValueError, "eval_subset_num_batches"),
    "save interval": ({"save_interval": "1epp", "save_folder": "x"}, ValueError, "1epp"),
    "negative interval": ({"save_interval": "-1ba", "save_folder": "x"}, ValueError, "negative"),
    "negative evaluation": ({"eval_interval": -1}, ValueError, "negative"),
    "remote folder": ({"save_folder": "s4://bucket/x"}, ValueError, "s4"),
    "keep": (
        {"save_folder": "x", "save_num_checkpoints_to_keep": -2},
        ValueError,
        "num_checkpoints_to_keep",
    ),
    "mixed evaluators": (
        {"eval_dataloader": [Evaluator(label="a", dataloader=[]), loader()]},
        ValueError,
        "mixes",
    ),
    "labels": (
        {"eval_dataloader": [Evaluator(label="a", dataloader=[]) for _ in range(2)]},
        ValueError,
        r"\['a', 'a'\]",
    ),
    "metric names": (
        {"eval_dataloader": Evaluator(label="a", dataloader=[], metric_names=["Acc"])},
        ValueError,
        r"\['Acc'\]",
    ),
    "text as seed": ({"seed": "a"}, TypeError, "whole number, not 'a'"),
    "half a seed": ({"seed": 1.5}, TypeError, "whole number, not 1.5"),
    "ratio of nothing": (
        {"scale_schedule_ratio": float("nan"), "schedulers": lambda state: 1.0},
        ValueError,
        "positive number, not nan",
    ),
    "braces in the name": ({"run_name": "a{b"}, ValueError, "without braces"),
    "field in the name": ({"run_name": "{epoch}"}, ValueError, "without braces"),
    "broken template": ({"save_filename": "{epoch.pt"}, ValueError, "not a name template"),
    "no name": ({"save_filename": ""}, ValueError, "save_filename"),
    "no link name": ({"save_latest_filename": ""}, ValueError, "save_latest_filename"),
    "one name for two": (
        {"save_filename": "a.pt", "save_latest_filename": "a.pt"},
        ValueError,
        "a name of its own",
    ),
    "a dataset": ({"train_dataloader": loader().dataset}, TypeError, "wrap it"),
    "passes": ({"algorithm_passes": "first"}, TypeError, "algorithm_passes"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_constructor(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings, error, message = MISTAKES[name]
    with pytest.raises(error, match=message):
        build(**settings)


def test_a_scheduler_of_another_optimizer() -> None:
    stranger = torch.optim.lr_scheduler.StepLR(foreign(), 1)
    with pytest.raises(ValueError, match="StepLR drives an optimizer"):
        build(schedulers=stranger, train_dataloader=loader(), max_duration=1)


def test_a_scheduler_that_steps_by_a_metric() -> None:
    model = TinyModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(ValueError, match="ReduceLROnPlateau steps by a metric"):
        build(
            model=model,
            optimizers=optimizer,
            schedulers=plateau,
            train_dataloader=loader(),
            max_duration=1,
        )


def test_numbers_of_numpy_are_seeds() -> None:
    import numpy as np

    trainer = build(seed=np.int64(4))
    assert trainer.state.rank_zero_seed == 4
    assert type(trainer.state.rank_zero_seed) is int
    trainer.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no training data"),
        ({"train_dataloader": loader()}, "how long to train"),
        ({"train_dataloader": loader(), "duration": "1epoch"}, "duration='1epoch'"),
        ({"train_dataloader": loader(), "scale_schedule_ratio": 2.0}, "needs schedulers"),
        ({"eval_interval": "3ba"}, "eval_dataloader"),
        ({"eval_subset_num_batches": 3}, "eval_dataloader"),
        ({"train_dataloader_label": "mine"}, "train_dataloader_label='mine'"),
        ({"train_dataloader": loader(), "step_schedulers_every_batch": True}, "needs schedulers"),
    ],
)
def test_fit(arguments: dict[str, Any], message: str) -> None:
    trainer = build()
    with pytest.raises(ValueError, match=message):
        trainer.fit(**arguments)
    trainer.close()


def test_evaluation_without_data() -> None:
    trainer = build()
    with pytest.raises(ValueError, match="nothing to evaluate on"):
        trainer.eval()
    with pytest.raises(ValueError, match="subset_num_batches"):
        trainer.predict(loader(), subset_num_batches=0)
    with pytest.raises(ValueError, match="torchskript"):
        trainer.export_for_inference("torchskript", "a.pt", sample_input=torch.zeros(1))
    trainer.close()


def test_tokens_that_nobody_counts_are_told_at_the_first_batch() -> None:
    trainer = build(train_dataloader=loader(), max_duration="100tok")
    with pytest.raises(ValueError, match="get_num_tokens_in_batch"):
        trainer.fit()
    trainer.close()
    assert int(trainer.state.timestamp.batch) == 0


def test_a_device_says_which_precisions_it_has() -> None:
    from composer.devices import DeviceCPU

    class Narrow(DeviceCPU):
        name = "narrow"
        precisions = frozenset({"fp32"})

    with pytest.raises(ValueError, match=r"'amp_bf16' does not work on device='narrow'.*fp32"):
        build(device=Narrow(), precision="bf16")


def test_a_closed_trainer_says_so() -> None:
    trainer = build(train_dataloader=loader(), max_duration=1)
    trainer.close()
    with pytest.raises(RuntimeError, match="closed"):
        trainer.fit()


def test_a_metric_that_cannot_be_saved_is_told_at_once() -> None:
    class Bare:
        def to(self, device: Any) -> Bare:
            return self

    with pytest.raises(ValueError, match=r"'Metric' \(Bare\) has no `state_dict`"):
        build(model=TinyModel(metric=Bare), save_metrics=True)
