"""Algorithms that exclude each other are refused when the run begins; others draw a warning."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import torch

from composer.algorithms import CutMix, LabelSmoothing, MixUp
from composer.core import Algorithm, Engine, Event, Logger, State
from composer.core.warnings import NotIntendedUseWarning
from composer.devices import DeviceCPU


class _Picky(Algorithm):
    events = frozenset({Event.INIT})
    excludes = MappingProxyType({"mixup": "both want the same pixels"})
    cautions = MappingProxyType({"label_smoothing": "labels are smooth enough"})

    def apply(self, event: Event, state: State, logger: Any) -> None:
        pass


def begin(*algorithms: Algorithm) -> None:
    state = State(torch.nn.Linear(1, 1), 0, "run", DeviceCPU())
    state.algorithms = list(algorithms)
    engine = Engine(state, Logger(state))
    try:
        engine.run_event(Event.INIT)
    finally:
        engine.close()


@pytest.mark.parametrize("order", [(_Picky(), MixUp()), (MixUp(), _Picky())])
def test_the_pair_is_refused_in_either_order(order: tuple[Algorithm, ...]) -> None:
    with pytest.raises(ValueError, match=r"_Picky and MixUp .*: both want the same pixels"):
        begin(*order)


def test_a_caution_is_a_warning_with_its_reason() -> None:
    with pytest.warns(NotIntendedUseWarning, match="_Picky and LabelSmoothing .*smooth enough"):
        begin(LabelSmoothing(), _Picky())


def test_others_are_left_alone() -> None:
    begin(_Picky(), CutMix())
