"""Exports with a trainer, a checkpoint, surgery and transforms, and the command over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.algorithms import EMA, BlurPool
from composer.cli.main import main
from composer.core import LoggerDestination, State
from composer.functional import apply_blurpool
from composer.models import composer_resnet_cifar, mnist_model
from composer.models.export import ExportReport
from composer.utils import export_for_inference, quantize_dynamic
from composer.utils.object_store import LocalObjectStore
from composer_testing.tiny import TinyModel, loader

IMAGES = torch.rand(8, 1, 8, 8)
LABELS = torch.arange(8) % 3


def digits() -> DataLoader[Any]:
    return DataLoader(TensorDataset(IMAGES, LABELS), 4)


def small() -> Any:
    return composer_resnet_cifar("resnet_8", num_classes=3, width=16, in_channels=1)


def run(path: Path, inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        outputs: torch.Tensor = torch.export.load(path).module()(inputs)
    return outputs


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[Trainer]:
    model = small()
    trainer = Trainer(
        model=model,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.05),
        algorithms=[BlurPool(), EMA(half_life="1ba")],
        train_dataloader=digits(),
        max_duration="2ep",
        save_folder=str(tmp_path / "checkpoints"),
        progress_bar=False,
    )
    trainer.fit()
    yield trainer
    trainer.close()


def test_the_trainer_exports_what_evaluation_sees(trained: Trainer, tmp_path: Path) -> None:
    """The averaged weights, as in the checkpoint; the live ones go on as they were."""
    live = {name: value.clone() for name, value in trained.state.model.state_dict().items()}
    report = trained.export_for_inference("torch_export", str(tmp_path / "m.pt2"))
    assert isinstance(report, ExportReport)
    assert report.any_batch_size
    (newest,) = (tmp_path / "checkpoints").glob("ep2-*.pt")
    averaged = torch.load(newest, weights_only=True)["state"]["model"]
    for name, value in trained.state.model.state_dict().items():
        assert torch.equal(value, live[name])
    twin = small()
    apply_blurpool(twin)
    twin.load_state_dict(averaged)
    torch.testing.assert_close(run(tmp_path / "m.pt2", IMAGES[:3]), twin.eval()((IMAGES[:3], None)))
    assert any(not torch.equal(averaged[name], live[name]) for name in live)


def test_surgery_weights_and_transforms_in_this_order(trained: Trainer, tmp_path: Path) -> None:
    path = trained.save_checkpoint(str(tmp_path / "whole.pt"))
    seen: list[bool] = []

    def transform(module: torch.nn.Module) -> torch.nn.Module:
        seen.append(module.training)
        with torch.no_grad():
            module.get_parameter("module.fc.bias").add_(1.0)
        return module

    report = export_for_inference(
        small(),
        "torch_export",
        str(tmp_path / "m.pt2"),
        sample_input=(IMAGES[:2], LABELS[:2]),
        surgery_algs=apply_blurpool,
        transforms=[transform],
        load_path=path,
        load_strict=True,
    )
    assert report is not None
    assert len(seen) == 1
    twin = small()
    apply_blurpool(twin)
    twin.load_state_dict(torch.load(path, weights_only=True)["state"]["model"])
    torch.testing.assert_close(run(tmp_path / "m.pt2", IMAGES), twin.eval()((IMAGES, None)) + 1.0)


def test_a_store_receives_the_file(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "store")
    export_for_inference(mnist_model(), "safetensors", "deep/m.safetensors", store)
    assert (tmp_path / "store" / "deep" / "m.safetensors").is_file()
    uri = (tmp_path / "by_uri").as_uri() + "/m.safetensors"
    export_for_inference(mnist_model(), "safetensors", uri)
    assert (tmp_path / "by_uri" / "m.safetensors").is_file()


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"surgery_algs": 5}, TypeError, "surgery_algs holds 5; it must be functions"),
        ({"transforms": ["x"]}, TypeError, "transforms holds 'x'; it must be functions"),
        ({"load_strict": "no"}, TypeError, "load_strict='no' must be True or False"),
        ({"load_object_store": object()}, ValueError, "without load_path"),
        ({"model": TinyModel()}, ValueError, "sample_input is needed: .*registered factory"),
        ({"input_names": "x"}, TypeError, "input_names='x' must be a list of names"),
        ({"onnx_opset_version": 18}, ValueError, "goes with the format onnx"),
    ],
)
def test_bad_arguments_are_named(
    options: dict[str, Any], kind: type[Exception], words: str, tmp_path: Path
) -> None:
    usual: dict[str, Any] = {"model": mnist_model(), "save_format": "torch_export"}
    with pytest.raises(kind, match=words):
        export_for_inference(**{**usual, "save_path": str(tmp_path / "m.pt2"), **options})
    assert list(tmp_path.iterdir()) == []


class _Keeps(LoggerDestination):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def can_upload_files(self) -> bool:
        return True

    def upload_file(
        self, state: State, remote_file_name: str, file_path: Path, *, overwrite: bool = False
    ) -> None:
        self.waiting = (remote_file_name, file_path)

    def flush(self) -> None:
        # Only now, as a destination does that uploads behind the run.
        name, path = self.waiting
        (self.folder / Path(name).name).write_bytes(path.read_bytes())


def test_loggers_that_can_upload_receive_the_file(tmp_path: Path) -> None:
    trainer = Trainer(model=mnist_model(), loggers=[_Keeps(tmp_path)], progress_bar=False)
    trainer.export_for_inference("safetensors", "exports/m.safetensors")
    assert (tmp_path / "m.safetensors").is_file()
    trainer.loggers = []
    trainer.state.callbacks.clear()
    trainer.close()


def test_eight_bit_weights(tmp_path: Path) -> None:
    model = mnist_model()
    # Torch says that this way of quantizing is going.
    with pytest.warns((DeprecationWarning, UserWarning), match="deprecated"):
        report = export_for_inference(
            model, "torchscript", str(tmp_path / "m.ts"), transforms=[quantize_dynamic]
        )
    assert report is not None
    full = export_for_inference(model, "torchscript", str(tmp_path / "full.ts"))
    assert full is not None
    assert report.num_bytes < full.num_bytes


# ---- the command ------------------------------------------------------------------------------


def test_a_checkpoint_is_exported_without_its_script(
    trained: Trainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(UserWarning, match="is applied now"):
        status = main(
            ["export", str(tmp_path / "checkpoints"), "--format", "torch_export", "--to",
             str(tmp_path / "m.pt2")]
        )  # fmt: skip
    assert status == 0
    assert "any batch size" in capsys.readouterr().out
    (newest,) = (tmp_path / "checkpoints").glob("ep2-*.pt")
    twin = small()
    apply_blurpool(twin)
    twin.load_state_dict(torch.load(newest, weights_only=True)["state"]["model"])
    images = torch.rand(5, 1, 32, 32)
    torch.testing.assert_close(run(tmp_path / "m.pt2", images), twin.eval()((images, None)))


def test_what_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = Trainer(model=TinyModel(), train_dataloader=loader(), progress_bar=False)
    path = str(trainer.save_checkpoint(str(tmp_path / "own.pt")))
    trainer.close()
    target = str(tmp_path / "m.pt2")
    common = ["export", path, "--format", "torch_export", "--to", target]
    for arguments, words in (
        (common, "does not say how its model is built"),
        ([*common, "--model", "mnist_modle"], 'Did you mean "mnist_model"'),
        ([*common, "--model", "mnist_model", "classes"], "KEY=VALUE"),
        (
            [*common, "--model", "mnist_model", "num_classes=3"],
            "own.pt do not fit: --model mnist_model num_classes=3 builds another network than",
        ),
        ([*common, "--model", "mnist_model", "width=8"], "has no argument 'width'"),
        ([*common, "--model", "mnist_model", "num_classes=x"], "num_classes='x' must be an int"),
        ([*common, "--model", "mnist_model", "initializers=5"], "initializers=5 must be a list"),
        ([*common, "--model", "composer_classifier"], "needs the arguments ['module']"),
        ([*common, "--model", "mnist_model", "--samples", "0"], "--samples=0 must be at least 1"),
        ([*common, "--tolerance", "nan"], "--tolerance=nan must be at least 0"),
        ([*common, "--tolerance", "-1"], "--tolerance=-1.0 must be at least 0"),
        ([*common, "--opset", "0"], "--opset=0 must be at least 1"),
        ([*common, "--opset", "18"], "--opset=18 goes with --format onnx, not torch_export"),
        ([*common, "--base", "x"], "--base='x' goes with a checkpoint of a Hugging Face model"),
        ([*common[:-1], "s3://bucket/m.pt2"], "--to='s3://bucket/m.pt2' must be a file of this"),
        ([*common[:-1], ""], "--to='' names no place"),
        (["export", str(tmp_path / "none"), "--format", "onnx"], "none"),
    ):
        assert main(arguments) == 2, arguments
        said = capsys.readouterr().err
        assert words in said
        assert said.startswith("composer export: ")
        assert "load_strict" not in said  # which no command has
    Path(target).write_text("before")
    assert main(common) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert Path(target).read_text() == "before"


@pytest.mark.slow
def test_a_checkpoint_of_transformers_is_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    from composer.models import HuggingFaceModel

    config = transformers.GPT2Config(
        n_layer=1, n_embd=8, n_head=2, vocab_size=20, bos_token_id=0, eos_token_id=0
    )
    model = HuggingFaceModel(transformers.GPT2LMHeadModel(config))
    trainer = Trainer(model=model, progress_bar=False)
    path = str(trainer.save_checkpoint(str(tmp_path / "gpt2.pt")))
    trainer.close()
    target = tmp_path / "gpt2.pt2"
    assert main(["export", path, "--format", "onnx", "--to", str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err
    folder = ["--to", str(tmp_path), "--overwrite"]
    assert main(["export", path, "--format", "torch_export", *folder]) == 2
    assert "is a folder; name a file in it" in capsys.readouterr().err
    inside = ["--to", f"{path}/a.pt2"]
    assert main(["export", path, "--format", "torch_export", *inside]) == 2
    assert "gpt2.pt, a file" in capsys.readouterr().err
    assert main(["export", path, "--format", "torch_export", "--to", str(target)]) == 0
    assert "differs from the live model" in capsys.readouterr().out
    tokens = torch.randint(20, (3, 8))
    with torch.no_grad():
        outputs = torch.export.load(target).module()(
            input_ids=tokens, attention_mask=torch.ones_like(tokens)
        )
        expected = model.model.eval()(input_ids=tokens).logits
    torch.testing.assert_close(outputs.logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_model_that_takes_no_tokens_is_left_to_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    from composer.models import HuggingFaceModel

    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8,
    )  # fmt: skip
    model = HuggingFaceModel(transformers.ViTForImageClassification(config))
    trainer = Trainer(model=model, progress_bar=False)
    path = str(trainer.save_checkpoint(str(tmp_path / "vit.pt")))
    trainer.close()
    target = str(tmp_path / "m.pt2")
    assert main(["export", path, "--format", "torch_export", "--to", target]) == 2
    assert "vit.pt takes no tokens but" in capsys.readouterr().err
