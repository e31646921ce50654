"""Saved names never carry what wrappers add, so every checkpoint loads in every wrapping."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.checkpoint import read_checkpoint
from composer.trainer import Trainer
from composer.utils.modules import unwrapped_names
from composer_testing.tiny import TinyModel, loader


def plain() -> Any:
    torch.manual_seed(3)
    return TinyModel()


def compiled() -> Any:
    return torch.compile(plain(), backend="eager")


def recomputed() -> Any:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = plain()
    model.linear = checkpoint_wrapper(model.linear)
    return model


def compiled_in_part() -> Any:
    model = plain()
    model.linear = torch.compile(model.linear, backend="eager")
    return model


KINDS: tuple[Callable[[], Any], ...] = (plain, compiled, recomputed, compiled_in_part)


def trainer(model: Any, **settings: Any) -> Trainer:
    return Trainer(
        model=model,
        train_dataloader=loader(16, 4),
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.1),
        progress_bar=False,
        run_name="r",
        seed=1,
        load_overrides=(),
        **settings,
    )


def test_wrappers_leave_no_trace_in_names() -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.compile(
                torch.nn.Sequential(torch.compile(torch.nn.Linear(1, 1), backend="eager")),
                backend="eager",
            )
            self.module = torch.nn.Linear(1, 1)  # merely called so

    model = Outer()
    assert "a._orig_mod.0._orig_mod.weight" in model.state_dict()
    names = unwrapped_names(model)
    assert [names(name) for name in model.state_dict()] == [
        *("a.0.weight", "a.0.bias", "module.weight", "module.bias")
    ]
    assert names("a._orig_mod_of_another") == "a._orig_mod_of_another"


@pytest.mark.slow
def test_checkpoints_do_not_depend_on_wrappers(tmp_path: Path) -> None:
    path = {}
    for make in KINDS:
        t = trainer(make(), max_duration="2ba")
        t.fit()
        path[make] = str(t.save_checkpoint(str(tmp_path / f"{make.__name__}.pt")))
        t.close()
        state = read_checkpoint(path[make])["state"]
        assert list(state["model"]) == ["linear.weight", "linear.bias"]
        optimizer = state["optimizers"][0]["state"]
        assert list(optimizer["state"]) == ["linear.weight", "linear.bias"]
        assert optimizer["param_groups"][0]["params"] == ["linear.weight", "linear.bias"]
    ends = []
    for saved, here in itertools.product(KINDS, KINDS):
        t = trainer(here(), max_duration="4ba", load_path=path[saved])
        t.fit()
        t.close()
        moments = [s["exp_avg"] for s in t.state.optimizers[0].state.values()]
        ends.append([*(p.detach() for p in t.state.model.parameters()), *moments])
    for end in ends[1:]:
        for value, wanted in zip(end, ends[0], strict=True):
            assert torch.equal(value, wanted)
