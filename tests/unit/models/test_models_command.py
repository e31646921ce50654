"""``composer models``: the table, one model, and what is missing or broken."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import pytest

from composer.core import plugins
from composer.models.cards import CARDS
from composer.models.command import ModelsCommand
from composer_testing.repository import ROOT


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command = ModelsCommand()
    command.add_arguments(parser)
    return command.run(parser.parse_args(list(words)))


def short(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    raise AssertionError(number)


@pytest.mark.slow
def test_the_page_shows_what_the_command_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    records = json.loads(capsys.readouterr().out)
    known = {record["name"]: record for record in records}
    rows = []
    for name, card in CARDS.items():
        record = known[name]
        sizes = ["", ""]
        if card.batch is not None:
            sizes = [short(record["parameters"]), short(record["flops"])]
        extras = ", ".join(f"`{extra}`" for extra in card.extras)
        rows.append(f"| `{name}` | {sizes[0]} | {sizes[1]} | {extras} | {card.source} |")
    table = "\n".join(rows)
    assert table in (ROOT / "docs" / "models.md").read_text(encoding="utf-8"), table


def test_the_table_without_building(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--no-build") == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "extra", "source"]
    assert {line.split()[0] for line in lines} >= set(CARDS)


def test_one_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("composer_unet") == 0
    text = capsys.readouterr().out
    for words in (
        "Ronneberger",
        "sizes with  num_classes=2",
        # Two channels in the last layer: the paper's network, as it is built here.
        "parameters  31,037,698",
        "    num_classes\n",
        "    width = 64\n",
    ):
        assert words in text, text


def test_unknown_names_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("mnist_modle") == 2
    assert "mnist_model" in capsys.readouterr().err


def test_what_is_not_installed_does_not_hide_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    assert run("composer_timm", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["parameters"] is None
    assert record["note"] == "not installed: timm"
    assert record["arguments"]["pretrained"] == "False"
    assert record["arguments"]["model_name"] is None


def test_a_broken_model_is_told_and_the_others_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = plugins.load

    def fail(group: str, name: str) -> Any:
        if name == "resnet9":
            raise plugins.PluginLoadError("resnet9 cannot be imported:\nbecause")
        return load(group, name)

    monkeypatch.setattr(plugins, "load", fail)
    assert run("--no-build") == 1
    text = capsys.readouterr().out
    assert "(resnet9 cannot be imported:)" in text
    assert "mnist_model" in text
