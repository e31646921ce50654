from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from composer_testing.repository import ROOT, portions, pyprojects, tracked_files

TOP = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "packages", "tools", "tests", "docs"}


def test_top_level_is_exactly_as_planned() -> None:
    top = {path.parts[0] for path in tracked_files()}
    assert {name for name in top if not name.startswith(".")} == TOP
    assert {name for name in top if name.startswith(".")} <= {".ci", ".gitignore"}
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_root_is_a_workspace_and_no_distribution() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "project" not in data
    assert "packages/*" in data["tool"]["uv"]["workspace"]["members"]
    assert set(data["tool"]["uv"]["sources"]) == set(pyprojects())


def test_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_make_help_lists_the_targets() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = {"train", "test", "test-oldest", "lint", "docs", "wheels", "bench", "clean", "soak"}
    assert targets <= set(re.findall(r"make ([a-z-]+)", done.stdout))


@pytest.mark.parametrize("name", sorted(pyprojects()))
def test_every_package_has_its_papers(name: str) -> None:
    folder = ROOT / "packages" / name.removeprefix("composer-")
    assert (folder / "README.md").read_text().startswith(f"# {name}\n")
    assert (folder / "CHANGELOG.md").read_text().startswith(f"# Changes of {name}\n")
    version = folder / pyprojects()[name]["tool"]["hatch"]["version"]["path"]
    found = re.search(r'^__version__ = "(\d+\.\d+\.\d+)"$', version.read_text(), re.MULTILINE)
    assert found
    assert f"## {found[1]}\n" in (folder / "CHANGELOG.md").read_text()


def test_every_portion_is_typed_and_every_package_but_core_has_the_marker() -> None:
    for portion, name in portions().items():
        source = ROOT / "packages" / name.removeprefix("composer-") / "src" / "composer"
        assert (source / portion / "__init__.py").is_file(), portion
        assert (source / portion / "py.typed").is_file(), portion
        marker = source / "__init__.pyi"
        if name == "composer-core":
            assert (source / "py.typed").is_file()
            assert not marker.exists()
        else:
            # An aid for editors: it makes all source folders look equally regular.
            assert marker.read_text() == ""


def test_wheels_hold_the_portions_and_no_marker(wheels: Mapping[str, Path]) -> None:
    assert set(wheels) == set(pyprojects())
    owners: dict[str, str] = {}
    for name, wheel in wheels.items():
        with ZipFile(wheel) as archive:
            files = [file for file in archive.namelist() if ".dist-info/" not in file]
        for file in files:
            assert file.startswith("composer/"), (name, file)
            assert owners.setdefault(file, name) == name, (file, owners[file], name)
        assert "composer/__init__.pyi" not in files
        assert ("composer/__init__.py" in files) == (name == "composer-core")
        held = {file.split("/")[1] for file in files if file.count("/") > 1}
        assert held == set(pyprojects()[name]["tool"]["composer"]["order"])
        for portion in held:
            assert f"composer/{portion}/py.typed" in files
    with ZipFile(wheels["composer-full"]) as archive:
        assert all(".dist-info/" in file for file in archive.namelist())


def test_wheels_hold_every_source_file(wheels: Mapping[str, Path]) -> None:
    for name, wheel in wheels.items():
        # Not the list that git gives: a file that .gitignore names by mistake is missed here.
        source = ROOT / "packages" / name.removeprefix("composer-") / "src"
        expected = {
            path.relative_to(source).as_posix()
            for path in source.rglob("*")
            if path.is_file() and path.name != "__init__.pyi" and path.suffix != ".pyc"
        }
        with ZipFile(wheel) as archive:
            held = {file for file in archive.namelist() if ".dist-info/" not in file}
        assert held == expected
