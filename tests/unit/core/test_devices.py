"""Devices."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from composer.core import plugins
from composer.devices import Device, DeviceCPU, DeviceGPU, DeviceMPS, get_device
from composer.devices.base import TModule
from composer_testing import write_distribution

Pair = namedtuple("Pair", ["x", "y"])


class DeviceMeta(Device):
    """Moves for real on every machine: torch's meta device."""

    name: ClassVar[str] = "meta"

    def module_to_device(self, module: TModule) -> TModule:
        return module.to("meta")

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to("meta")


@dataclass
class Sample:
    x: torch.Tensor
    label: str


class Graph:
    def __init__(self, nodes: torch.Tensor) -> None:
        self.nodes = nodes

    def to(self, device: Any) -> Graph:
        return Graph(self.nodes.to(device))


def test_get_device_by_name_instance_and_default() -> None:
    device = DeviceCPU()
    assert get_device(device) is device
    assert isinstance(get_device("CPU"), DeviceCPU)
    if not torch.cuda.is_available() and not torch.backends.mps.is_available():
        assert isinstance(get_device(None), DeviceCPU)
    assert (DeviceCPU.name, DeviceCPU.dist_backend) == ("cpu", "gloo")
    assert (DeviceGPU.name, DeviceGPU.dist_backend) == ("gpu", "nccl")
    assert (DeviceMPS.name, DeviceMPS.dist_backend) == ("mps", "")


@pytest.mark.parametrize(
    ("device", "error", "match"),
    [
        ("gup", ValueError, r"no device named 'gup' is installed\.\nDid you mean \"gpu\""),
        ("tpu", ValueError, "not built in.*plugin"),
        ("hpu", ValueError, "not built in.*plugin"),
        ("neuron", ValueError, "not built in.*plugin"),
        (3, TypeError, "device=3 is a int"),
    ],
)
def test_unknown_devices(device: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        get_device(device)


def write_device(site: Path, distribution: str, name: str, code: str) -> None:
    module = distribution.replace("-", "_")
    write_distribution(
        site,
        distribution,
        entry_points={"composer.devices": {name: f"{module}:Made"}},
        modules={f"{module}.py": code},
    )


@pytest.fixture
def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_plugins: Callable[[], None]
) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_device_of_a_plugin_is_found_and_chosen_among_two(site: Path) -> None:
    code = "from composer.devices import DeviceCPU\nclass Made(DeviceCPU): pass"
    write_device(site, "dev-one", "tpu", code)
    assert type(get_device("TPU")).__module__ == "dev_one"
    write_device(site, "dev-two", "tpu", code)
    plugins.refresh()
    with pytest.raises(plugins.PluginConflictError, match="'dev-one:tpu' or 'dev-two:tpu'"):
        get_device("tpu")
    assert type(get_device("dev-two:tpu")).__module__ == "dev_two"


def test_plugin_cannot_take_the_name_of_a_device_of_ours(site: Path) -> None:
    write_device(site, "dev-three", "cpu", "Made = dict")
    with pytest.raises(plugins.PluginConflictError, match="composer-core:cpu"):
        get_device("cpu")
    with pytest.raises(TypeError, match=r"the device 'dev-three:cpu'.*gave \{\}, which is none"):
        get_device("dev-three:cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_gpu_without_cuda() -> None:
    for name in ("gpu", "cuda"):
        with pytest.raises(ValueError, match=r"torch\.cuda\.is_available"):
            get_device(name)


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="needs a machine without MPS")
def test_mps_without_mps() -> None:
    with pytest.raises(RuntimeError, match="Apple GPU"):
        get_device("mps")


def test_a_batch_that_is_there_is_not_rebuilt() -> None:
    batch = {"x": torch.ones(1), "more": [torch.ones(1), (torch.ones(1), "a")], "n": 3}
    assert DeviceCPU().batch_to_device(batch) is batch
    x = torch.ones(1)
    assert DeviceCPU().batch_to_device(x) is x
    assert DeviceCPU().batch_to_device(None) is None


@pytest.mark.parametrize(
    "batch",
    [
        torch.ones(1),
        (torch.ones(1), torch.ones(2)),
        [torch.ones(1), 3],
        Pair(torch.ones(1), "a"),
        {"x": torch.ones(1), "deep": {"y": [torch.ones(1)]}},
        OrderedDict(x=torch.ones(1)),
        UserDict(x=torch.ones(1), y="text"),
        Sample(torch.ones(1), "a"),
        Graph(torch.ones(1)),
    ],
)
def test_batches_keep_their_types(batch: Any) -> None:
    moved = DeviceMeta().batch_to_device(batch)
    assert type(moved) is type(batch)
    assert moved is not batch
    found: list[torch.Tensor] = []

    def collect(part: Any) -> None:
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif isinstance(part, (dict, UserDict)):
            for one in part.values():
                collect(one)
        elif isinstance(part, (list, tuple)):
            for one in part:
                collect(one)
        elif isinstance(part, (Sample, Graph)):
            collect(list(vars(part).values()))

    collect(moved)
    assert found
    assert all(tensor.is_meta for tensor in found)
    found.clear()
    collect(batch)
    assert all(tensor.is_cpu for tensor in found)


def test_each_tensor_is_moved_once() -> None:
    moves: list[int] = []

    class Counting(DeviceMeta):
        def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_meta:
                moves.append(1)
            return tensor.to("meta")

    there = torch.ones(1, device="meta")
    batch = {"x": [there, torch.ones(1), 3, there], "y": (torch.ones(1), torch.ones(1)), "z": 1}
    moved = Counting().batch_to_device(batch)
    assert len(moves) == 3
    assert moved["x"][0] is moved["x"][3] is there
    assert moved["x"][2] == 3
    assert list(moved) == ["x", "y", "z"]


def test_packed_sequences_are_not_taken_apart() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2, 1), torch.ones(1, 1)])
    assert DeviceCPU().batch_to_device([packed])[0] is packed
    moved = DeviceMeta().batch_to_device(packed)
    assert isinstance(moved, torch.nn.utils.rnn.PackedSequence)
    assert moved.data.is_meta
    assert moved.batch_sizes.is_cpu


def test_modules_and_optimizers() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert DeviceCPU().module_to_device(model) is model
    assert DeviceMeta().optimizer_to_device(optimizer) is optimizer
    assert optimizer.state[model.weight]["exp_avg"].is_meta
    assert DeviceMeta().module_to_device(torch.nn.Linear(1, 1)).weight.is_meta


@pytest.mark.slow
def test_importing_touches_no_device() -> None:
    code = (
        "import torch, composer.devices; "
        "print(torch.cuda.is_initialized(), torch.backends.cuda.matmul.allow_tf32)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert out.stdout.split() == ["False", "False"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu() -> None:
    device = DeviceGPU(0, allow_tf32=False)
    assert not torch.backends.cuda.matmul.allow_tf32
    assert DeviceGPU().name == "gpu"
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32
    batch = device.batch_to_device({"x": torch.ones(2).pin_memory(), "y": 1})
    assert batch["x"].is_cuda
    assert batch["x"].sum().item() == 2
    assert device.batch_to_device(batch) is batch
    model = device.module_to_device(torch.nn.Linear(2, 2))
    assert model.weight.is_cuda
    assert isinstance(get_device(None), DeviceGPU)
    assert isinstance(get_device("cuda"), DeviceGPU)
    with pytest.raises(ValueError, match="device_id=99 is out of range"):
        DeviceGPU(99)
