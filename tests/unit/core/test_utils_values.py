"""Enums, iteration, batches, hyperparameters, imports and other small values."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import subprocess
import sys
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass
from enum import auto
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import composer.utils
from composer.utils import (
    STR_TO_DTYPE,
    MissingConditionalImportError,
    StringEnum,
    VersionedDeprecationWarning,
    batch_get,
    batch_set,
    convert_flat_dict_to_nested_dict,
    convert_nested_dict_to_flat_dict,
    ensure_tuple,
    extract_hparams,
    get_free_tcp_port,
    import_object,
    is_notebook,
    map_collection,
)
from composer.utils.iteration import IteratorFileStream, iterate_with_callback
from composer.utils.retrying import retry
from composer.utils.signatures import check_arguments
from composer.utils.suggestions import did_you_mean

Pair = namedtuple("Pair", ["x", "y"])


class Fruit(StringEnum):
    APPLE = "apple"
    RED_PEAR = auto()


@dataclass(frozen=True)
class Frozen:
    x: int
    y: int


# ---- StringEnum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["APPLE", "apple", "Apple", Fruit.APPLE])
def test_string_enum_finds_every_spelling(spelling: Any) -> None:
    assert Fruit(spelling) is Fruit.APPLE
    assert spelling == Fruit.APPLE
    assert spelling != Fruit.RED_PEAR


def test_string_enum_values_hash_and_copies() -> None:
    assert Fruit.RED_PEAR.value == "red_pear"
    assert hash(Fruit.APPLE) == object.__hash__(Fruit.APPLE)
    assert type(Fruit.APPLE).__hash__ is object.__hash__
    assert {Fruit.APPLE: 1}[Fruit("apple")] == 1
    assert pickle.loads(pickle.dumps(Fruit.APPLE)) is Fruit.APPLE
    assert copy.deepcopy(Fruit.APPLE) is Fruit.APPLE
    assert Fruit.APPLE != 1
    assert Fruit.APPLE != "stone"


def test_string_enum_rejects_unknown_with_near_match() -> None:
    with pytest.raises(ValueError, match=r"'aple' is not a valid Fruit.*Did you mean \"apple\"\?"):
        Fruit("aple")
    with pytest.raises(ValueError, match="3 is not a valid Fruit"):
        Fruit(3)


def test_string_enum_rules_of_spelling() -> None:
    with pytest.raises(ValueError, match="upper case"):
        StringEnum("Bad", {"apple": "apple"})
    with pytest.raises(ValueError, match="lower case"):
        StringEnum("Bad", {"APPLE": "Apple"})
    with pytest.raises(TypeError, match="one string"):
        StringEnum("Bad", {"APPLE": 1})


def test_string_enum_does_not_import_torch() -> None:
    code = (
        "import sys, composer.utils.string_enum, composer.utils; print('torch' in sys.modules);"
        "composer.utils.StringEnum; composer.utils.retry; print('torch' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert out.stdout.split() == ["False", "False"]


# ---- composer.utils as a door -------------------------------------------------------------------


def test_every_public_name_resolves() -> None:
    for name in composer.utils.__all__:
        assert getattr(composer.utils, name) is not None
    assert set(composer.utils.__all__) <= set(dir(composer.utils))
    assert len(set(composer.utils.__all__)) == len(composer.utils.__all__)


def test_unknown_name_has_a_near_match() -> None:
    with pytest.raises(AttributeError, match='Did you mean "ensure_tuple"'):
        _ = composer.utils.ensure_tupel


def test_name_of_a_missing_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules is how the import system spells "not there".
    for name in [name for name in sys.modules if name.startswith("composer.checkpoint")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(importlib.machinery.PathFinder, "find_spec", lambda *_, **__: None)
    monkeypatch.delitem(vars(composer.utils), "save_checkpoint", raising=False)
    with pytest.raises(ModuleNotFoundError, match="pip install composer-trainer"):
        _ = composer.utils.save_checkpoint


def test_names_of_other_packages_resolve_and_are_not_starred() -> None:
    elsewhere = ["get_save_filename", "load_checkpoint", "safe_torch_load", "save_checkpoint"]
    assert set(elsewhere) <= set(dir(composer.utils)) - set(composer.utils.__all__)
    if importlib.util.find_spec("composer.checkpoint") is not None:
        for name in elsewhere:
            assert getattr(composer.utils, name).__module__.startswith("composer.checkpoint")


# ---- iteration ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (None, ()),
        ("ab", ("ab",)),
        (b"ab", (b"ab",)),
        ([1, 2], (1, 2)),
        ((1,), (1,)),
        ({"a": 1, "b": 2}, (1, 2)),
        (5, (5,)),
        (range(2), (0, 1)),
    ],
)
def test_ensure_tuple(x: Any, expected: tuple[Any, ...]) -> None:
    assert ensure_tuple(x) == expected


def test_map_collection_keeps_types() -> None:
    nested = {"a": [1, (2, Pair(3, 4))], "b": OrderedDict(c=5)}
    mapped = map_collection(nested, lambda x: -x)
    assert mapped == {"a": [-1, (-2, Pair(-3, -4))], "b": OrderedDict(c=-5)}
    assert type(mapped["a"][1][1]) is Pair
    assert type(mapped["b"]) is OrderedDict
    assert nested["a"][0] == 1
    assert map_collection("ab", str.upper) == "AB"
    factory = map_collection(defaultdict(list, a=[1]), str)
    assert factory.default_factory is list
    assert factory["a"] == ["1"]


def test_iterator_file_stream_reads_chunks_of_any_size() -> None:
    chunks = [b"ab", b"", b"cdefg", b"h"]
    stream = IteratorFileStream(iter(chunks))
    pieces = []
    while piece := stream.read(3):
        pieces.append(piece)
    assert b"".join(pieces) == b"abcdefgh"
    assert stream.readable()


def test_iterate_with_callback_without_callback() -> None:
    assert list(iterate_with_callback([b"a"], 1)) == [b"a"]


# ---- batches ------------------------------------------------------------------------------------


class Box:
    def __init__(self) -> None:
        self.x = 1
        self.inner = SimpleNamespace(z=3)


@pytest.mark.parametrize(
    ("batch", "key", "expected"),
    [
        ((10, 20), 0, 10),
        ([10, 20], -1, 20),
        ({"x": 10, "y": 20}, "y", 20),
        (Pair(10, 20), "y", 20),
        (Pair(10, 20), 0, 10),
        (Box(), "x", 1),
        (Box(), "inner.z", 3),
        (Frozen(10, 20), "y", 20),
        ((10, 20), lambda b: b[1], 20),
        ((10, 20), (lambda b: b[0], lambda b, v: b), 10),
        ({"x": 10, "y": 20}, ("y", "x"), (20, 10)),
        ({"x": 10, "y": 20}, ["x"], (10,)),
        ([10, 20, 30], (2, 0), (30, 10)),
        ([10, 20, 30], slice(0, 2), [10, 20]),
        (UserDict(x=1), "x", 1),
        ({("a", "b"): 5}, ("a", "b"), 5),
        ({0: 7}, 0, 7),
    ],
)
def test_batch_get(batch: Any, key: Any, expected: Any) -> None:
    assert batch_get(batch, key) == expected


def test_batch_get_from_a_tensor_indexes_it() -> None:
    x = torch.arange(6).reshape(3, 2)
    assert torch.equal(batch_get(x, 1), x[1])
    assert torch.equal(batch_get(x, [0, 2]), x[[0, 2]])


@pytest.mark.parametrize(
    ("batch", "key", "value", "expected", "in_place"),
    [
        ((10, 20), 0, 1, (1, 20), False),
        ([10, 20], -1, 1, [10, 1], True),
        ({"x": 10, "y": 20}, "y", 1, {"x": 10, "y": 1}, True),
        (Pair(10, 20), "y", 1, Pair(10, 1), False),
        (Pair(10, 20), 0, 1, Pair(1, 20), False),
        (Frozen(10, 20), "y", 1, Frozen(10, 1), False),
        (UserDict(x=1), "x", 2, UserDict(x=2), True),
        ((10, 20), (lambda b: b[0], lambda b, v: (v, *b[1:])), 1, (1, 20), False),
        ({"x": 1}, (None.__class__, lambda b, v: b.update(x=v)), 2, {"x": 2}, True),
        ({"x": 10, "y": 20}, ("y", "x"), (1, 2), {"x": 2, "y": 1}, True),
        ([10, 20, 30], (2, 0), (1, 2), [2, 20, 1], True),
        ((10, 20, 30), (2, 0), [1, 2], (2, 20, 1), False),
        ((10, 20, 30), slice(0, 2), (1, 2), (1, 2, 30), False),
    ],
)
def test_batch_set(batch: Any, key: Any, value: Any, expected: Any, in_place: bool) -> None:
    result = batch_set(batch, key, value)
    assert result == expected
    assert type(result) is type(expected)
    assert (result is batch) == in_place


def test_batch_set_on_objects_and_tensors() -> None:
    box = Box()
    assert batch_set(box, "x", 5) is box
    assert batch_set(box, "inner.z", 6).inner.z == 6
    assert box.x == 5
    x = torch.zeros(2)
    assert batch_set(x, 1, 3.0).tolist() == [0.0, 3.0]


@pytest.mark.parametrize(
    ("batch", "key", "match"),
    [
        ({"inputs": 1}, "input", r"key='input' is not in the batch.*\['inputs'\].*\"inputs\""),
        ((1, 2), 2, "key=2 is not in the batch, which is a tuple with 2 parts"),
        (Pair(1, 2), "z", r"a Pair with the fields \['x', 'y'\]"),
        (Box(), "w", r"a Box with the attributes \['x', 'inner'\]"),
        ({"a": 1}, "keys", r"key='keys' is not in the batch"),
        ([1], "append", "key='append' is not in the batch"),
        (torch.zeros(2), 5, r"tensor of shape \(2,\)"),
        ({"a": 1}, ("a", "b"), "key='b'"),
    ],
)
def test_batch_errors_name_key_and_content(batch: Any, key: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        batch_get(batch, key)
    value = (1, 1) if isinstance(key, tuple) else 1
    before = copy.copy(batch)
    with pytest.raises(ValueError, match=match):
        batch_set(batch, key, value)
    if isinstance(batch, dict):
        assert batch == before


def test_batch_set_refuses_what_cannot_be_meant() -> None:
    with pytest.raises(TypeError, match="can only read"):
        batch_set((1, 2), lambda b: b, 1)
    with pytest.raises(ValueError, match="names 2 parts of the batch, value has 3"):
        batch_set({"a": 1, "b": 2}, ("a", "b"), (1, 2, 3))
    with pytest.raises(ValueError, match="sequence of as many values, not int"):
        batch_set({"a": 1, "b": 2}, ("a", "b"), 1)
    with pytest.raises(ValueError, match="from 2 parts to 3"):
        batch_set((1, 2), slice(0, 1), (1, 2))


# ---- imports, hints, retry ----------------------------------------------------------------------


def test_missing_extra_names_the_exact_command() -> None:
    error = MissingConditionalImportError("vision", "torchvision", distribution="composer-core")
    assert 'pip install "composer-core[vision]"' in str(error)
    assert isinstance(error, ImportError)
    assert error.name == "torchvision"
    assert 'pip install "composer-full[made-up]"' in str(
        MissingConditionalImportError("made-up", "x")
    )


def test_arguments_are_held_against_a_signature() -> None:
    def net(width: int, /, depth: int, *, bias: bool = True) -> None: ...

    check_arguments(net, ["depth"], label="net")
    check_arguments(net, ["bias"], label="net", supplied=["depth"])
    with pytest.raises(TypeError, match=r"net needs the arguments \['depth'\]; got \['bias'\]"):
        check_arguments(net, ["bias"], label="net")
    with pytest.raises(TypeError, match=r"no argument 'bais'. Did you mean \"bias\"\?.*: bias\."):
        check_arguments(net, ["bais"], label="net", supplied=["depth"])
    with pytest.raises(TypeError, match="no argument 'depth'"):
        check_arguments(net, ["depth"], label="net", supplied=["depth"])


def test_arguments_of_things_without_a_signature_are_left_to_the_call() -> None:
    check_arguments(dict, ["anything"], label="x")
    check_arguments(lambda **rest: rest, ["anything"], label="x")


def test_import_object() -> None:
    assert import_object("collections:OrderedDict.fromkeys")("a") == OrderedDict(a=None)
    with pytest.raises(ValueError, match="must have the form"):
        import_object("math.sqrt")
    with pytest.raises(AttributeError, match='Did you mean "sqrt"'):
        import_object("math:sqrtt")
    with pytest.raises(ModuleNotFoundError):
        import_object("not_a_module_at_all:x")


def test_did_you_mean() -> None:
    assert did_you_mean("AdamW", ["adamw", "sgd"]) == ' Did you mean "adamw"?'
    assert did_you_mean("zzz", ["adamw"]) == ""


def test_retry_counts_and_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    calls: list[int] = []

    @retry((ValueError, KeyError), num_attempts=4, initial_backoff=1.0, max_jitter=0.0)
    def fails(retry_index: int = -1) -> None:
        """Fail."""
        calls.append(retry_index)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert calls == [0, 1, 2, 3]
    assert waits == [1.0, 2.0, 4.0]
    assert fails.__doc__ == "Fail."

    @retry(ValueError, num_attempts=3)
    def other() -> None:
        calls.append(9)
        raise TypeError

    with pytest.raises(TypeError):
        other()
    assert calls.count(9) == 1

    @retry
    def bare(x: int) -> int:
        calls.append(7)
        if calls.count(7) < 2:
            raise RuntimeError
        return x

    assert bare(3) == 3
    with pytest.raises(ValueError, match="num_attempts=0"):
        retry(ValueError, num_attempts=0)


# ---- hyperparameters ----------------------------------------------------------------------------


def test_extract_hparams() -> None:
    class Model:
        local_hparams = {"layers": 2}

    given = {
        "self": 1,
        "__class__": 2,
        "_private": 3,
        "lr": 0.1,
        "model": Model(),
        "parts": [Model(), "a"],
        "fruit": Fruit.APPLE,
        "function": len,
        "kind": dict,
        "nested": {"a": (1, None)},
    }
    assert extract_hparams(given) == {
        "lr": 0.1,
        "model": {"Model": {"layers": 2}},
        "parts": [{"Model": {"layers": 2}}, "a"],
        "fruit": "apple",
        "function": "len",
        "kind": "dict",
        "nested": {"a": [1, None]},
    }


def test_flat_and_nested_are_inverse() -> None:
    nested = {"a": {"b": {"c": 1}, "d": 2}, "e": [3], "f": {}}
    flat = convert_nested_dict_to_flat_dict(nested)
    assert flat == {"a/b/c": 1, "a/d": 2, "e": [3], "f": {}}
    assert convert_flat_dict_to_nested_dict(flat) == nested
    assert convert_nested_dict_to_flat_dict({"a": 1}, prefix="p") == {"p/a": 1}


@pytest.mark.parametrize("flat", [{"a": 1, "a/b": 2}, {"a/b": 2, "a": 1}, {"a": {}, "a/b": 1}])
def test_flat_keys_that_collide(flat: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="key"):
        convert_flat_dict_to_nested_dict(flat)


# ---- the rest -----------------------------------------------------------------------------------


def test_small_values() -> None:
    assert STR_TO_DTYPE["bf16"] is torch.bfloat16
    assert not is_notebook()
    assert 0 < get_free_tcp_port() < 65536
    warning = VersionedDeprecationWarning("Use b.", "2.0")
    assert isinstance(warning, DeprecationWarning)
    assert "2.0" in str(warning)


def test_add_vision_dataset_transform() -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    to_tensor, crop, norm = transforms.ToTensor(), transforms.CenterCrop(2), abs
    dataset = SimpleNamespace(transform=transforms.Compose([crop, to_tensor]))
    composer.utils.add_vision_dataset_transform(dataset, norm, is_tensor_transform=True)
    assert dataset.transform.transforms == [crop, to_tensor, norm]
    composer.utils.add_vision_dataset_transform(dataset, max)
    assert dataset.transform.transforms == [crop, max, to_tensor, norm]
    dataset = SimpleNamespace(transform=crop)
    composer.utils.add_vision_dataset_transform(dataset, max)
    assert dataset.transform.transforms == [crop, max]
