"""Each package works with nothing but what it declares.

The wheels of a set are installed into a folder of their own, and a fresh interpreter sees that
folder and links to the third-party packages, but neither the code nor the metadata of the editable
packages of this environment: `-S` keeps the `.pth` files out, `-P` the working folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from composer_testing.repository import portions, pyprojects

pytestmark = pytest.mark.slow


def closure(names: set[str]) -> set[str]:
    """Add the declared siblings of distributions, and theirs."""
    data = pyprojects()
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        needed = {Requirement(line).name for line in data[name]["project"]["dependencies"]}
        waiting |= {other for other in needed if other in data} - found
    return found


def make_island(folder: Path, wheels: Mapping[str, Path], *names: str) -> Path:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--target", str(folder)]
    chosen = [str(wheels[name]) for name in sorted(closure(set(names)))]
    subprocess.run([*command, *chosen], check=True, capture_output=True, text=True)
    return folder


def link_third_party(folder: Path) -> Path:
    """Link to what is installed here beside our own packages, instead of a second torch."""
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not entry.name.startswith(("composer", "_composer", "pip")):
            (folder / entry.name).symlink_to(entry)
    return folder


def run_on(island: Path, code: str, *, cwd: Path) -> str:
    packages = cwd / "third-party"
    if not packages.exists():
        packages.mkdir()
        link_third_party(packages)
    done = subprocess.run(
        [sys.executable, "-P", "-S", "-W", "error::PendingDeprecationWarning", "-c", code],
        env={**os.environ, "PYTHONPATH": f"{island}{os.pathsep}{packages}"},
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


IMPORT_ALL = """
import importlib, pkgutil
island = {island!r}
for portion in {portions!r}:
    package = importlib.import_module(f"composer.{{portion}}")
    assert package.__file__.startswith(island), package.__file__
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)
"""


@pytest.mark.parametrize("name", sorted(set(pyprojects()) - {"composer-full"}))
def test_every_module_imports_with_declared_siblings_alone(
    name: str, wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    island = make_island(tmp_path / "island", wheels, name)
    own = [portion for portion, owner in portions().items() if owner == name]
    run_on(island, IMPORT_ALL.format(island=str(island), portions=own), cwd=tmp_path)


def test_core_alone(wheels: Mapping[str, Path], tmp_path: Path) -> None:
    island = make_island(tmp_path / "island", wheels, "composer-core")
    out = run_on(
        island,
        """
import composer
from composer import Algorithm, Engine, Event, State, Time, Timestamp
from composer.core import plugins

assert Time.from_timestring("90m").value == 5400
assert plugins.names("composer.devices") == ["cpu", "gpu", "mps"]
assert plugins.names("composer.algorithms") == []
for statement in ("from composer import Trainer", "composer.trainer", "composer.functional"):
    try:
        exec(statement)
    except ModuleNotFoundError as error:
        print(error)
try:
    plugins.load("composer.algorithms", "mixup")
except plugins.PluginNotFoundError as error:
    print(error)
""",
        cwd=tmp_path,
    )
    assert out.count("pip install composer-trainer") == 2
    assert out.count("pip install composer-algorithms") == 2


@pytest.mark.slow
def test_core_and_algorithms(wheels: Mapping[str, Path], tmp_path: Path) -> None:
    island = make_island(tmp_path / "island", wheels, "composer-algorithms")
    assert not (island / "composer" / "trainer").exists()
    out = run_on(
        island,
        """
import torch
import torchvision
import composer.functional as cf
from composer.algorithms.blurpool import BlurMaxPool2d
from composer.core import plugins

for build in (torchvision.models.resnet18, torchvision.models.resnet50):
    model = build(weights=None)
    cf.apply_blurpool(model)
    blurred = [m for m in model.modules() if type(m).__name__.startswith("Blur")]
    strided = [
        m for m in model.modules()
        if isinstance(m, torch.nn.Conv2d) and max(m.stride) > 1 and m.in_channels >= 16
    ]
    assert isinstance(model.maxpool, BlurMaxPool2d)
    assert blurred
    with torch.no_grad():
        assert model.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 1000)
print(len(plugins.names("composer.algorithms")))
""",
        cwd=tmp_path,
    )
    expected = pyprojects()["composer-algorithms"]["project"]["entry-points"]
    assert int(out) == len(expected["composer.algorithms"])


def test_core_and_loggers(wheels: Mapping[str, Path], tmp_path: Path) -> None:
    island = make_island(tmp_path / "island", wheels, "composer-loggers")
    assert closure({"composer-loggers"}) == {"composer-core", "composer-loggers"}
    run_on(
        island,
        """
from composer.core import plugins
from composer.loggers import InMemoryLogger, LoggerDestination

assert {"console", "file", "in_memory", "progress_bar"} == set(plugins.names("composer.loggers"))
assert isinstance(plugins.resolve("composer.loggers", "in_memory"), InMemoryLogger)
for name in plugins.names("composer.loggers"):
    assert issubclass(plugins.load("composer.loggers", name), LoggerDestination)
""",
        cwd=tmp_path,
    )


@pytest.mark.slow
def test_trainer_without_algorithms(wheels: Mapping[str, Path], tmp_path: Path) -> None:
    island = make_island(tmp_path / "island", wheels, "composer-trainer")
    assert not (island / "composer" / "algorithms").exists()
    run_on(
        island,
        """
import torch
from composer import Trainer
from composer.models import ComposerClassifier

data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.arange(8) % 2)
trainer = Trainer(
    model=ComposerClassifier(torch.nn.Linear(4, 2), num_classes=2),
    train_dataloader=torch.utils.data.DataLoader(data, batch_size=4),
    max_duration="1ep",
    progress_bar=False,
)
trainer.fit()
assert trainer.state.timestamp.batch.value == 2
trainer.close()
""",
        cwd=tmp_path,
    )


@pytest.mark.slow
def test_everything(wheels: Mapping[str, Path], tmp_path: Path) -> None:
    assert closure({"composer-full"}) == set(pyprojects())
    island = make_island(tmp_path / "island", wheels, "composer-full")
    code = IMPORT_ALL.format(island=str(island), portions=sorted(portions()))
    out = run_on(
        island,
        code
        + """
from importlib import metadata

from composer import Trainer
from composer.cli.main import main

assert main(["plugins", "--strict", "--json"]) == 0
print(metadata.version("composer-full"))
""",
        cwd=tmp_path,
    )
    assert out.splitlines()[-1] == "0.1.0"


@pytest.mark.slow
def test_pip_resolves_and_installs_everything(wheels: Mapping[str, Path], tmp_path: Path) -> None:
    """pip itself accepts the metadata, in an environment that has the third-party packages."""
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True,
        capture_output=True,
        text=True,
    )
    link_third_party(Path(found.stdout.strip()))
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command += ["--no-index", "--find-links", str(wheels["composer-full"].parent), "composer-full"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        [environment / "bin" / "composer", "plugins", "--no-import"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "channels_last" in listed.stdout
