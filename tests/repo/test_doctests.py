"""The examples in the docstrings of all packages run and print what they say."""

from __future__ import annotations

import doctest
import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from composer_testing.repository import modules_of, portions

FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("portion", sorted(portions()))
def test_examples(portion: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Examples may write files by relative names.
    monkeypatch.chdir(tmp_path)
    failures, report = 0, io.StringIO()
    for module in modules_of(portion):
        with redirect_stdout(report):
            failures += doctest.testmod(module, optionflags=FLAGS).failed
    assert failures == 0, report.getvalue()


@pytest.mark.parametrize("name", ["composer_testing", "composer_cool"])
def test_examples_of_development_packages(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib
    import pkgutil

    monkeypatch.chdir(tmp_path)
    package = importlib.import_module(name)
    for info in pkgutil.walk_packages(package.__path__, f"{name}."):
        module = importlib.import_module(info.name)
        report = io.StringIO()
        with redirect_stdout(report):
            result = doctest.testmod(module, optionflags=FLAGS)
        assert result.failed == 0, report.getvalue()
