"""The training clock."""

from __future__ import annotations

import copy
import datetime
import pickle

import pytest

from composer.core.time import Time, TimeUnit
from composer.core.timestamp import Timestamp

FIELDS = list(Timestamp().state_dict())


def test_each_advance_moves_what_it_should() -> None:
    second = datetime.timedelta(seconds=1)
    t = Timestamp(
        iteration=1, epoch=2, batch=3, sample=4, token=5, epoch_in_iteration=6,
        token_in_iteration=7, batch_in_epoch=8, sample_in_epoch=9, token_in_epoch=10,
        total_wct=second, iteration_wct=second, epoch_wct=second, batch_wct=second,
    )  # fmt: skip
    b = t.to_next_batch(10, 20, datetime.timedelta(seconds=2))
    assert [b.state_dict()[f] for f in FIELDS] == [
        1, 2, 4, 14, 25, 6, 27, 9, 19, 30, 3.0, 3.0, 3.0, 2.0,
    ]  # fmt: skip
    e = t.to_next_epoch()
    assert [e.state_dict()[f] for f in FIELDS] == [
        1, 3, 3, 4, 5, 7, 7, 0, 0, 0, 1.0, 1.0, 0.0, 0.0,
    ]  # fmt: skip
    i = t.to_next_iteration(second)
    assert [i.state_dict()[f] for f in FIELDS] == [
        2, 2, 3, 4, 5, 0, 0, 0, 0, 0, 2.0, 0.0, 0.0, 0.0,
    ]  # fmt: skip
    assert t.batch == "3ba"  # the original did not move


def test_times_and_plain_numbers_advance_alike() -> None:
    a = Timestamp().to_next_batch(Time(8, "sp"), Time(16, "tok"), datetime.timedelta(seconds=0.5))
    b = Timestamp().to_next_batch(8, 16, 0.5)
    assert a == b


def test_comparison_uses_the_matching_counter() -> None:
    t = Timestamp(epoch=2, batch=20, total_wct=datetime.timedelta(seconds=90))
    assert t < "3ep"
    assert t >= Time(20, "ba")
    assert t > "19ba"
    assert t <= "2ep"
    assert t == "20ba"
    assert t.get("sec") == Time(90, "sec")
    with pytest.raises(ValueError, match="dur"):
        t.get("dur")
    with pytest.raises(TypeError):
        t < 3  # type: ignore[operator] # noqa: B015


def test_copy_and_refusals() -> None:
    t = Timestamp(batch=3)
    assert t.copy(epoch=Time(1, "ep"), batch=None) == Timestamp(batch=3, epoch=1)
    with pytest.raises(TypeError, match="no field 'bach'"):
        t.copy(bach=3)
    with pytest.raises(ValueError, match="negative"):
        Timestamp(batch=-1)
    with pytest.raises(ValueError, match="counts in 'ba'"):
        Timestamp(batch=Time(1, "ep"))


def test_round_trips() -> None:
    t = Timestamp(batch=3, total_wct=datetime.timedelta(seconds=1.5))
    other = Timestamp()
    other.load_state_dict(t.state_dict())
    assert other == t
    assert pickle.loads(pickle.dumps(t)) == t
    assert copy.deepcopy(t) == t
    # What other releases stored: times and timedeltas, and fewer fields.
    other.load_state_dict({"batch": Time(4, "ba"), "total_wct": datetime.timedelta(seconds=2)})
    assert other == Timestamp(batch=4, total_wct=datetime.timedelta(seconds=2))


def test_all_units_but_one_have_a_counter() -> None:
    for unit in TimeUnit:
        if unit is not TimeUnit.DURATION:
            assert Timestamp().count(unit) == 0
