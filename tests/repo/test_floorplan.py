from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from composer_testing.repository import ROOT


@pytest.fixture(scope="module")
def floorplan() -> ModuleType:
    spec = importlib.util.spec_from_file_location("floorplan", ROOT / "tools" / "floorplan.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["floorplan"] = module
    spec.loader.exec_module(module)
    return module


class House:
    """A repository of two packages that is in order until a test breaks one thing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package("core", ["utils", "core"], ["torch>=2.6"])
        self.package(
            "algorithms", ["algorithms"], ["composer-core>=0.1,<0.2", "torch>=2.6"], ["pillow>=10"]
        )
        self.write("core", "__init__.py", "")
        self.write("core", "_version.py", '__version__ = "0.1.0"\n')
        self.write("core", "utils/__init__.py", "import os\n")
        self.write("core", "core/__init__.py", "from composer.utils import x\nimport torch\n")
        self.write("algorithms", "algorithms/__init__.py", "from composer.core import y\n")

    def package(
        self,
        name: str,
        order: list[str],
        dependencies: list[str],
        extras: list[str] | None = None,
        version: str = "0.1.0",
    ) -> None:
        folder = self.root / "packages" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "_version.py").write_text(f'__version__ = "{version}"\n')
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "composer-{name}"\ndependencies = {dependencies}\n'
            f"[project.optional-dependencies]\nextra = {extras or []}\n"
            f'[tool.hatch.version]\npath = "_version.py"\n'
            f"[tool.composer]\norder = {order}\n"
        )

    def write(self, package: str, path: str, text: str) -> None:
        file = self.root / "packages" / package / "src" / "composer" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def only(problems: list[str], *parts: str) -> None:
    assert len(problems) == 1, problems
    for part in parts:
        assert part in problems[0]


def test_this_repository_is_in_order(floorplan: ModuleType) -> None:
    assert floorplan.check(ROOT) == []


def test_house_in_order_has_no_problem(floorplan: ModuleType, house: House) -> None:
    assert floorplan.check(house.root) == []


@pytest.mark.parametrize(
    "code",
    [
        "from composer.algorithms import MixUp",
        "import composer.algorithms.mixup",
        "def f():\n    from composer.algorithms import MixUp",
        "import typing\nif typing.TYPE_CHECKING:\n    from composer.algorithms import MixUp",
    ],
)
def test_upward_import_across_packages(floorplan: ModuleType, house: House, code: str) -> None:
    house.write("core", "core/bad.py", code)
    only(floorplan.check(house.root), "core/bad.py:", "composer-algorithms", "does not declare")


@pytest.mark.parametrize(
    "code",
    [
        "from composer.core.state import State",
        "from ..core import State",
        "def f():\n    import composer.core",
        "try:\n    import composer.core\nexcept ImportError:\n    pass",
    ],
)
def test_upward_import_inside_a_package(floorplan: ModuleType, house: House, code: str) -> None:
    house.write("core", "utils/bad.py", code)
    only(floorplan.check(house.root), "utils/bad.py:", "above it", "utils < core")


def test_annotation_may_name_what_is_above_in_its_own_package(
    floorplan: ModuleType, house: House
) -> None:
    code = "import typing\nif typing.TYPE_CHECKING:\n    from composer.core import State\n"
    house.write("core", "utils/fine.py", code)
    assert floorplan.check(house.root) == []


@pytest.mark.parametrize("code", ["import composer", "from composer import Trainer"])
def test_front_door_inside_packages(floorplan: ModuleType, house: House, code: str) -> None:
    house.write("algorithms", "algorithms/bad.py", code)
    only(floorplan.check(house.root), "algorithms/bad.py:1", "front door")


def test_portion_that_nobody_owns(floorplan: ModuleType, house: House) -> None:
    house.write("algorithms", "algorithms/bad.py", "import composer.nowhere")
    only(floorplan.check(house.root), "composer.nowhere", "no package owns")


def test_portion_missing_from_the_order(floorplan: ModuleType, house: House) -> None:
    house.write("algorithms", "functional/__init__.py", "")
    only(floorplan.check(house.root), "composer-algorithms", "functional", "order")


def test_portion_with_two_owners(floorplan: ModuleType, house: House) -> None:
    house.package("algorithms", ["algorithms", "utils"], ["composer-core>=0.1,<0.2"])
    problems = floorplan.check(house.root)
    assert any("utils belongs to" in problem for problem in problems), problems


def test_second_front_door(floorplan: ModuleType, house: House) -> None:
    house.write("algorithms", "__init__.py", "")
    only(floorplan.check(house.root), "composer-algorithms", "only composer-core")


def test_cycle_among_distributions(floorplan: ModuleType, house: House) -> None:
    house.package("core", ["utils", "core"], ["composer-algorithms>=0.1,<0.2", "torch>=2.6"])
    only(floorplan.check(house.root), "cycle", "composer-core", "composer-algorithms")


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("composer-core>=0.2,<0.3", "does not admit composer-core 0.1.0"),
        ("composer-core>=0.0,<0.1", "does not admit composer-core 0.1.0"),
        ("composer-core", "must be a range"),
        ("composer-core>=0.1", "must be a range"),
    ],
)
def test_sibling_ranges(
    floorplan: ModuleType, house: House, requirement: str, message: str
) -> None:
    house.package("algorithms", ["algorithms"], [requirement])
    only(floorplan.check(house.root), message)


def test_unknown_sibling(floorplan: ModuleType, house: House) -> None:
    house.package(
        "algorithms", ["algorithms"], ["composer-core>=0.1,<0.2", "composer-nothing>=0.1,<0.2"]
    )
    only(floorplan.check(house.root), "composer-nothing", "no package of this repository")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import numpy", "imports numpy, which composer-algorithms does not declare"),
        ("def f():\n    import numpy", "does not declare"),
        ("from PIL import Image", "of an extra at module level"),
    ],
)
def test_undeclared_requirement(
    floorplan: ModuleType, house: House, code: str, message: str
) -> None:
    house.write("algorithms", "algorithms/bad.py", code)
    only(floorplan.check(house.root), "algorithms/bad.py", message)


def test_extra_may_be_imported_where_it_is_used(floorplan: ModuleType, house: House) -> None:
    house.write("algorithms", "algorithms/fine.py", "def f():\n    from PIL import Image\n")
    assert floorplan.check(house.root) == []


@pytest.mark.parametrize(
    "code",
    [
        "from composer.core import State",
        "from composer.algorithms.mixup.algorithm import MixUp",
        "def f():\n    from composer.core import State",
    ],
)
def test_functional_knows_no_state(floorplan: ModuleType, house: House, code: str) -> None:
    house.write("algorithms", "algorithms/mixup/functional.py", code)
    only(floorplan.check(house.root), "functional.py imports composer.")


def test_functional_may_use_torch_and_its_neighbours(floorplan: ModuleType, house: House) -> None:
    house.write(
        "algorithms",
        "algorithms/mixup/functional.py",
        "import torch\nfrom composer.algorithms.mixup import layers\nimport composer.utils\n",
    )
    assert floorplan.check(house.root) == []


@pytest.mark.parametrize("parent", ["", "packages", "tests", "tools", "docs"])
def test_folder_named_like_the_namespace(floorplan: ModuleType, house: House, parent: str) -> None:
    (house.root / parent / "composer").mkdir(parents=True)
    only(floorplan.check(house.root), "becomes part of the namespace")


def test_command_line(floorplan: ModuleType, house: House) -> None:
    tool = [sys.executable, "-P", str(ROOT / "tools" / "floorplan.py"), "--root", str(house.root)]
    fine = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert (fine.returncode, fine.stderr) == (0, "")
    listed = subprocess.run([*tool, "--mypy-arguments"], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == [
        *("-p", "composer"),
        *("-p", "composer.algorithms"),
    ]
    house.write("core", "core/bad.py", "from composer.algorithms import MixUp")
    bad = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert bad.returncode == 1
    assert "1 violations" in bad.stderr
