from __future__ import annotations

import ast
import email
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from composer.core import plugins
from composer_testing.repository import ROOT, pyprojects, tracked_files

SOURCES = [path for path in tracked_files() if path.suffix == ".py" and path.parts[0] == "packages"]


def wheel_metadata(wheel: Path) -> email.message.Message:
    with ZipFile(wheel) as archive:
        name = next(file for file in archive.namelist() if file.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_only_siblings_have_upper_bounds(wheels: Mapping[str, Path]) -> None:
    for name, wheel in wheels.items():
        metadata = wheel_metadata(wheel)
        python = SpecifierSet(metadata["Requires-Python"])
        assert [clause.operator for clause in python] == [">="], name
        for line in metadata.get_all("Requires-Dist", []):
            requirement = Requirement(line)
            operators = sorted(clause.operator for clause in requirement.specifier)
            if requirement.name.startswith("composer-"):
                assert operators == ["<", ">="], (name, line)
            else:
                # A known bad release may be left out singly.
                assert operators, (name, line)
                assert set(operators) <= {">=", "!="}, (name, line)


def test_sibling_ranges_admit_what_is_built(wheels: Mapping[str, Path]) -> None:
    versions = {name: wheel_metadata(wheel)["Version"] for name, wheel in wheels.items()}
    for name, wheel in wheels.items():
        for line in wheel_metadata(wheel).get_all("Requires-Dist", []):
            requirement = Requirement(line)
            if requirement.name in versions:
                assert requirement.specifier.contains(versions[requirement.name]), (name, line)


def test_constraints_satisfy_every_requirement() -> None:
    """The pinned set is one that the metadata allows, and it is complete for it."""
    for file in ("constraints.txt", "constraints-oldest.txt"):
        lines = (ROOT / "tools" / file).read_text().splitlines()
        pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
        assert all(re.fullmatch(r"[a-z0-9-]+==\S+", f"{k}=={v}") for k, v in pins.items())
        for name, data in pyprojects().items():
            for line in data["project"]["dependencies"]:
                requirement = Requirement(line)
                if not requirement.name.startswith("composer-"):
                    assert requirement.name in pins, (name, line)
                    assert requirement.specifier.contains(pins[requirement.name]), (name, line)


def imports(name: str, requirement: Requirement) -> bool:
    """Say whether the sources of a package import what a requirement installs."""
    modules = {"pyyaml": "yaml", "pillow": "PIL"}
    module = modules.get(requirement.name, requirement.name.replace("-", "_"))
    used = rf"(import|from) {module}\b|import_module\(\"{module}\b"
    folder = ROOT / "packages" / name.removeprefix("composer-") / "src"
    return any(re.search(used, path.read_text()) for path in folder.rglob("*.py"))


def test_every_requirement_is_used() -> None:
    """What a package makes its users install, its sources import."""
    for name, data in pyprojects().items():
        for line in data["project"]["dependencies"]:
            requirement = Requirement(line)
            if not requirement.name.startswith("composer-"):
                assert imports(name, requirement), f"{name} declares {line} and never imports it"


def test_every_extra_has_code_behind_it() -> None:
    """What a package offers to install as well, its sources import; its readme names the rest."""
    for name, data in pyprojects().items():
        folder = ROOT / "packages" / name.removeprefix("composer-")
        for extra, lines in data["project"].get("optional-dependencies", {}).items():
            assert f"`{extra}`" in (folder / "README.md").read_text() or name == "composer-full"
            for line in lines:
                requirement = Requirement(line)
                if not requirement.name.startswith("composer-"):
                    assert imports(name, requirement), f"{name}[{extra}] never imports {line}"


def test_full_depends_on_everything_and_forwards_every_extra() -> None:
    data = pyprojects()
    full = data.pop("composer-full")["project"]
    assert {Requirement(line).name for line in full["dependencies"]} == set(data)
    forwarded = {
        (Requirement(line).name, extra): name
        for name, lines in full["optional-dependencies"].items()
        for line in lines
        for extra in Requirement(line).extras
    }
    offered = {
        (name, extra)
        for name, package in data.items()
        for extra in package["project"].get("optional-dependencies", {})
    }
    assert set(forwarded) == offered
    assert all(name == extra for (_, extra), name in forwarded.items())


def test_table_of_first_party_names_is_current() -> None:
    declared: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, data in pyprojects().items():
        for group, table in data["project"].get("entry-points", {}).items():
            assert group in plugins.GROUPS, (name, group)
            declared.setdefault(group, {})[name] = tuple(sorted(table))
    known = {
        group: {name: tuple(sorted(names)) for name, names in table.items()}
        for group, table in plugins.FIRST_PARTY.items()
    }
    assert known == declared


def torch_patches(source: str) -> Iterator[int]:
    """Find assignments to attributes of what is imported from torch."""
    tree = ast.parse(source)
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                alias.asname or "torch"
                for alias in node.names
                if alias.name.split(".")[0] == "torch"
            }
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = list(node.targets)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("setattr", "delattr")
            and node.args
        ):
            targets = [ast.Attribute(value=node.args[0], attr="", ctx=ast.Store())]
        for target in targets:
            chain = target
            parts = []
            while isinstance(chain, ast.Attribute):
                parts.append(chain.attr)
                chain = chain.value
            if parts and isinstance(chain, ast.Name) and chain.id in names:
                spelled = [chain.id, *reversed(parts)]
                # The switches of a backend are there to be set.
                if spelled[:2] != ["torch", "backends"] and spelled[0] != "backends":
                    yield node.lineno


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import torch\ntorch.load = f", [2]),
        ("import torch.distributed as dist\ndist.barrier = f", [2]),
        ("from torch import nn\nnn.Module.forward = f", [2]),
        ("from torch.optim import SGD\nsetattr(SGD, 'step', f)", [2]),
        ("import torch\ntorch.backends.cudnn.benchmark = True", []),
        ("import torch\nx = torch.zeros(1)\nx.grad = None", []),
    ],
)
def test_patch_finder(source: str, lines: list[int]) -> None:
    assert list(torch_patches(source)) == lines


def test_no_source_patches_torch() -> None:
    found = [
        f"{path}:{line}" for path in SOURCES for line in torch_patches((ROOT / path).read_text())
    ]
    assert found == []
