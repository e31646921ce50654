"""Exports of every model, run and compared; and what stands in the way of one is said."""

from __future__ import annotations

import itertools
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.core import plugins
from composer.core.model import ComposerModel
from composer.models import ComposerClassifier, composer_decoder, mnist_model
from composer.models.cards import CARDS, example_batch
from composer.models.export import ExportFormat, export_model
from composer.models.export.masks import _at_once, followable_masks

NAN, INF = float("nan"), float("inf")
#: Models whose program depends on the numbers it computes, which only scripts can express.
DATA_DEPENDENT = {"composer_retinanet"}
#: Models that are only a shell around a module of the user's.
SHELLS = {name for name, card in CARDS.items() if card.batch is None}


def tiny(name: str) -> ComposerModel:
    """A small member of a family, with first weights that give outputs to compare."""
    torch.manual_seed(0)
    card = CARDS[name]
    model = plugins.resolve("composer.models", name, **{**card.arguments, **card.tiny})
    assert isinstance(model, ComposerModel)
    with torch.no_grad():
        for parameter in model.parameters():
            # Some layers start at zero, and a zero is no evidence.
            if not parameter.any():
                parameter.normal_(std=0.02)
    return model


@pytest.fixture(autouse=True)
def _quiet_exporters() -> Iterator[None]:
    """Torch's exporters warn of their own parts, of which users see nothing either."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


def batch_of(model: ComposerModel, num_samples: int = 2) -> Any:
    """The example of the model's card; cut small where a network is heavy and takes any size."""
    batch = example_batch(model, num_samples=num_samples)
    if model.origin is not None and model.origin["name"] == "composer_deeplabv3":
        return tuple(part[..., :33, :40] for part in batch)
    return batch


def live(model: ComposerModel, batch: Any) -> list[torch.Tensor]:
    module, args, kwargs = model.eval().for_inference(batch)
    with torch.no_grad():
        outputs = module(*args, **kwargs)
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CARDS.keys() - SHELLS - DATA_DEPENDENT))
def test_onnx_runtime_gives_our_outputs(name: str, tmp_path: Path) -> None:
    """The file is read here by ONNX Runtime itself, with another batch than it was made with."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = tiny(name)
    report = export_model(model, "onnx", tmp_path / "m.onnx", batch_of(model))
    assert report.largest > 0
    session = onnxruntime.InferenceSession(
        str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"]
    )
    batch = batch_of(model, 3 if report.any_batch_size else 2)
    _, args, kwargs = model.for_inference(batch)
    inputs = torch.utils._pytree.tree_leaves((args, kwargs))
    tensors = [leaf for leaf in inputs if isinstance(leaf, torch.Tensor)]
    names = [node.name for node in session.get_inputs()]
    outputs = session.run(None, {n: t.numpy() for n, t in zip(names, tensors, strict=True)})
    for ours, theirs in zip(live(model, batch), outputs, strict=True):
        torch.testing.assert_close(torch.as_tensor(theirs), ours, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CARDS.keys() - SHELLS - DATA_DEPENDENT))
def test_torch_export_and_weights_give_our_outputs(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    batch = batch_of(model)
    expected = live(model, batch)
    export_model(model, "torch_export", tmp_path / "m.pt2", batch)
    _, args, kwargs = model.for_inference(batch)
    with torch.no_grad():
        outputs = torch.export.load(tmp_path / "m.pt2").module()(*args, **kwargs)
    got = [x for x in torch.utils._pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    report = export_model(model, "safetensors", tmp_path / "m.safetensors", batch)
    assert report.max_difference == 0


@pytest.mark.parametrize("name", sorted(DATA_DEPENDENT))
@pytest.mark.parametrize("save_format", ["onnx", "torch_export"])
def test_what_cannot_be_exported_is_said_in_a_line(
    name: str, save_format: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tiny(name)
    with pytest.raises(ValueError, match=rf"RetinaNet cannot be exported as {save_format}") as info:
        export_model(model, save_format, tmp_path / "model", example_batch(model))
    assert "\n" not in str(info.value)
    assert list(tmp_path.iterdir()) == []


def test_torchscript_while_torch_has_it(tmp_path: Path) -> None:
    model = mnist_model()
    batch = example_batch(model, num_samples=2)
    report = export_model(model, ExportFormat.TORCHSCRIPT, tmp_path / "m.ts", batch)
    assert report.any_batch_size
    torch.testing.assert_close(torch.jit.load(tmp_path / "m.ts")(batch[0]), model.eval()(batch))


def test_masks_of_all_positions_at_once_are_those_of_one_at_a_time() -> None:
    padding = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1]]).bool()

    def causal(batch: Any, head: Any, query: Any, key: Any) -> torch.Tensor:
        return torch.as_tensor((key <= query) & (key > query - 3))

    def padded(batch: Any, head: Any, query: Any, key: Any) -> torch.Tensor:
        return causal(batch, head, query, key) & padding[batch, key]

    b, h, q, k = torch.arange(2), torch.arange(1), torch.arange(1, 4), torch.arange(4)
    got = _at_once(padded)(b, h, q, k)
    assert got.shape == (2, 1, 3, 4)
    for place in itertools.product(range(2), range(1), range(3), range(4)):
        one = padded(*(axis[i] for axis, i in zip((b, h, q, k), place, strict=True)))
        assert got[place] == one, place
    # One that looks at neither batch nor head has their dimensions all the same, or not at all.
    assert torch.equal(_at_once(causal)(b, h, q, k)[1, 0], causal(0, 0, q[:, None], k))
    assert _at_once(causal, bh_indices=False)(None, None, q, k).shape == (3, 4)


def test_transformers_has_its_own_masks_again_after_an_export() -> None:
    module = types.SimpleNamespace(_vmap_for_bhqkv=1, TransformGetItemToIndex=2)
    for loaded in (module, types.SimpleNamespace()):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "transformers.masking_utils", loaded)
            before = dict(vars(loaded))
            with pytest.raises(KeyError), followable_masks():  # noqa: PT012 - both happen in it
                assert vars(loaded).get("_vmap_for_bhqkv", _at_once) is _at_once
                raise KeyError
            assert vars(loaded) == before


# ---- the export itself ------------------------------------------------------------------------


class _Named(torch.nn.Module):
    """Takes two arguments, one of them by name, and returns a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scaled": self.linear(x) * scale, "plain": self.linear(x)}


@pytest.mark.parametrize("save_format", list(ExportFormat))
def test_named_arguments_and_several_outputs(save_format: ExportFormat, tmp_path: Path) -> None:
    sample = (torch.rand(4, 3), {"scale": torch.rand(4, 2)})
    if save_format is ExportFormat.TORCHSCRIPT:
        with pytest.raises(ValueError, match="cannot be exported as torchscript"):
            export_model(_Named(), save_format, tmp_path / "m", sample, tolerance=-0.0)
        return
    report = export_model(_Named(), save_format, tmp_path / "m", sample)
    assert report.any_batch_size
    assert report.max_difference <= 1e-6


def test_names_and_dynamic_dimensions_are_those_asked_for(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    export_model(
        torch.nn.Linear(3, 2),
        "onnx",
        tmp_path / "m.onnx",
        (torch.rand(4, 5, 3),),
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {1: "length"}},
        onnx_opset_version=20,
    )
    graph = onnx.load(tmp_path / "m.onnx")
    assert [node.name for node in graph.graph.input] == ["x"]
    assert [node.name for node in graph.graph.output] == ["y"]
    dims = graph.graph.input[0].type.tensor_type.shape.dim
    assert [bool(dim.dim_param) for dim in dims] == [False, True, False]
    assert graph.opset_import[0].version == 20


def test_the_model_is_left_as_it_is(tmp_path: Path) -> None:
    model = mnist_model().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    export_model(model, "torch_export", tmp_path / "m.pt2", example_batch(model, num_samples=2))
    assert model.training
    assert torch.equal(torch.get_rng_state(), generator)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


class _Moody(torch.nn.Module):
    """Computes something else whenever it is called anew, so that no export is right."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        type(self).calls += 1
        return x + type(self).calls


def test_an_export_that_computes_something_else_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(b"the one before")
    with pytest.raises(ValueError, match=r"differs from the live model by .* Nothing was written"):
        export_model(_Moody(), "torch_export", tmp_path / "m.pt2", (torch.rand(2, 2),))
    assert (tmp_path / "m.pt2").read_bytes() == b"the one before"
    assert [path.name for path in tmp_path.iterdir()] == ["m.pt2"]


class _Spoilt(torch.nn.Module):
    """Adds a row of numbers to its inputs, and another one once it is exported."""

    def __init__(self, live: list[float], exported: list[float]) -> None:
        super().__init__()
        self.register_buffer("live", torch.tensor(live))
        self.register_buffer("exported", torch.tensor(exported))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.exported if torch.compiler.is_compiling() else self.live)


@pytest.mark.parametrize(
    ("live", "exported"),
    [([0, 0], [0, NAN]), ([0, NAN], [0, 0]), ([0, INF], [0, -INF]), ([0, INF], [1, INF])],
)
def test_numbers_that_are_none_hide_no_difference(
    live: list[float], exported: list[float], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="differs from the live model by"):
        export_model(_Spoilt(live, exported), "torch_export", tmp_path / "m", (torch.rand(2, 2),))
    assert list(tmp_path.iterdir()) == []


def test_the_same_numbers_that_are_none_differ_by_nothing(tmp_path: Path) -> None:
    row = [0.0, NAN, INF, -INF]
    report = export_model(
        _Spoilt(row, row), "torch_export", tmp_path / "m", (torch.full((2, 4), 3.0),)
    )
    assert (report.max_difference, report.largest) == (0.0, 3.0)


def _forgetful(model: torch.nn.Module) -> None:
    """Changes a model, say, and forgets to return it."""


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"save_format": "onyx"}, ValueError, "onyx"),
        ({"save_format": 5}, ValueError, "5 is not a valid ExportFormat; accepted are: torch"),
        ({"save_path": 5}, TypeError, "save_path=5 must be a path"),
        ({"save_path": ""}, ValueError, "save_path='' names no place"),
        ({"save_path": "s3://bucket/m"}, ValueError, "save_path='s3://bucket/m' must be a file"),
        ({"save_path": "."}, IsADirectoryError, "save_path='.' is a folder"),
        ({"sample_input": ()}, ValueError, "holds no tensor"),
        ({"sample_input": None}, TypeError, "sample_input=None must be a tuple of the module's"),
        ({"tolerance": -1}, ValueError, "tolerance=-1 must be at least 0"),
        ({"tolerance": NAN}, ValueError, "tolerance=nan must be at least 0"),
        ({"tolerance": "x"}, TypeError, "tolerance='x' must be a number"),
        ({"prepare": _forgetful}, TypeError, "prepare=_forgetful returned None; it must return"),
        ({"prepare": "x"}, TypeError, "prepare='x' must be a function"),
        ({"input_names": "x"}, TypeError, "input_names='x' must be a list of names"),
        ({"input_names": [5]}, TypeError, r"input_names=\[5\] must be a list of names"),
        ({"input_names": ["x", "y"]}, ValueError, "has 2 names, but there is 1 to be named"),
        ({"output_names": 5}, TypeError, "output_names=5 must be a list of names"),
        ({"output_names": ["x", "x"]}, ValueError, "has a name twice"),
        ({"output_names": ["x", "y"]}, ValueError, r"output_names=\['x', 'y'\] has 2 names"),
        ({"dynamic_axes": 5}, TypeError, "dynamic_axes=5 must be a mapping"),
        ({"dynamic_axes": {"x": 0}, "input_names": ["x"]}, TypeError, "must be a mapping of names"),
        ({"dynamic_axes": {"x": [2]}, "input_names": ["x"]}, ValueError, "accepted are 0 to 1"),
        ({"dynamic_axes": {"x": [0]}}, ValueError, r"dynamic_axes names \['x'\]"),
        (
            {"dynamic_axes": {"z": [0]}, "input_names": ["x"]},
            ValueError,
            r"\['z'\] are unknown",
        ),
        ({"onnx_opset_version": 18}, ValueError, "goes with the format onnx, not with torch_exp"),
        *(
            ({"save_format": "onnx", "onnx_opset_version": version}, kind, words)
            for version, kind, words in [
                (0, ValueError, "onnx_opset_version=0 must be at least 1"),
                (-3, ValueError, "onnx_opset_version=-3 must be at least 1"),
                (9999, ValueError, "onnx_opset_version=9999 is none of .* up to"),
                ("18", TypeError, "onnx_opset_version='18' must be an integer"),
            ]
        ),
    ],
)
def test_bad_arguments_are_named(
    arguments: dict[str, Any], kind: type[Exception], words: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "save_format": "torch_export",
        "save_path": tmp_path / "m",
        "sample_input": (torch.rand(2, 3),),
        **arguments,
    }
    with pytest.raises(kind, match=words):
        export_model(torch.nn.Linear(3, 2), **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "sample", "kind", "words"),
    [
        (5, (torch.rand(2, 3),), TypeError, "model=5 must be a torch.nn.Module"),
        (mnist_model(), None, TypeError, "sample_input=None must be a batch"),
        (mnist_model(), {"x": torch.rand(2, 3)}, ValueError, "is no batch .* ComposerClassifier"),
        (mnist_model(), torch.rand(2, 1, 9, 9), ValueError, "a pair of inputs and targets; got T"),
        (composer_decoder("tiny", 9), torch.ones(2, 3), ValueError, "mapping with `input_ids`"),
    ],
)
def test_what_is_no_batch_of_the_model_is_said(
    model: Any, sample: Any, kind: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=words):
        export_model(model, "torch_export", tmp_path / "m", sample)


def test_operators_of_a_version_that_cannot_be_had_are_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Torch itself logs a trace, and writes a version that nobody asked for."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    linear, sample = torch.nn.Linear(3, 2), (torch.rand(2, 3),)
    with pytest.raises(ValueError, match=r"onnx_opset_version=7 cannot be had for Linear.* 18"):
        export_model(linear, "onnx", tmp_path / "m.onnx", sample, onnx_opset_version=7)
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in caplog.text + "".join(capfd.readouterr())
    export_model(linear, "onnx", tmp_path / "m.onnx", sample, onnx_opset_version=20)
    assert [one.version for one in onnx.load(tmp_path / "m.onnx").opset_import] == [20]


@pytest.mark.parametrize("masked", [False, True])
def test_a_trace_takes_positional_and_named_arguments_together(
    masked: bool, tmp_path: Path
) -> None:
    model = composer_decoder("tiny", 9)
    batch = {"input_ids": torch.randint(9, (2, 5), generator=torch.Generator().manual_seed(0))}
    if masked:
        batch["attention_mask"] = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])
    report = export_model(model, "torchscript", tmp_path / "m.ts", batch)
    assert report.max_difference < 1e-5 < report.largest
    torch.testing.assert_close(torch.jit.load(tmp_path / "m.ts")(**batch), model.eval()(batch))


def test_a_single_sample_is_no_reason_for_a_fixed_batch(tmp_path: Path) -> None:
    model = ComposerClassifier(torch.nn.Linear(4, 3), num_classes=3)
    report = export_model(model, "torch_export", tmp_path / "m", (torch.rand(1, 4), None))
    assert report.any_batch_size


@pytest.mark.parametrize(
    ("save_format", "module", "extra"),
    [("safetensors", "safetensors.torch", "safetensors"), ("onnx", "onnxruntime", "onnx")],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    save_format: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"composer-models\[{extra}\]"):
        export_model(torch.nn.Linear(3, 2), save_format, tmp_path / "m", (torch.rand(2, 3),))
    assert list(tmp_path.iterdir()) == []
