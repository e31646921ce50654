"""``composer methods`` says what the engine does, and the page of methods says the same."""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from composer.cli.methods import MethodsCommand, Pair, markdown_of, pairs_of
from composer.core import Algorithm, Event, plugins
from composer.core.algorithm import Phase
from composer.core.passes import check_together, sort_by_phase
from composer.utils.plugin_table import FIRST_PARTY

GROUP = "composer.algorithms"
NAMES = FIRST_PARTY[GROUP]["composer-algorithms"]
ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command = MethodsCommand()
    command.add_arguments(parser)
    return command.run(parser.parse_args(list(arguments)))


def classes() -> dict[str, type[Algorithm]]:
    return {name: plugins.load(GROUP, name) for name in NAMES}


def test_the_list_has_a_line_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    for name, cls in classes().items():
        (line,) = (one for one in lines if one.split()[0] == name)
        for part in (cls.kind, cls.cost, cls.source, (cls.__doc__ or "").splitlines()[0]):
            assert part
            assert part in line
    assert run("--json") == 0
    found = {fact["name"]: fact for fact in json.loads(capsys.readouterr().out)}
    assert found["mixup"]["arguments"]["alpha"] == "0.2"
    assert found["mixup"]["events"] == ["before_forward", "before_loss", "before_backward"]
    assert run("--markdown") == 0
    assert len(capsys.readouterr().out.splitlines()) == len(plugins.names(GROUP)) + 2


def test_one_is_shown_closely(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gradient_clipping") == 0
    out = capsys.readouterr().out
    assert "clipping_threshold" in out
    assert "arXiv 1211.5063" in out
    assert "composer.algorithms.gradient_clipping" in out


@pytest.mark.parametrize(
    ("names", "status", "words"),
    [
        (("ema", "swa"), 1, "ema + swa: refused: "),
        (("cutmix", "label_smoothing"), 0, "label_smoothing + cutmix: safe in this order"),
        (("randaugment", "augmix"), 0, "randaugment + augmix: warned: "),
        (("blurpool", "ema"), 0, "blurpool + ema: safe"),
        (("blurpool", "ema", "swa"), 1, "blurpool + swa: safe"),
    ],
)
def test_pairs_are_judged(
    capsys: pytest.CaptureFixture[str], names: tuple[str, ...], status: int, words: str
) -> None:
    assert run("compat", *names) == status
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list(itertools.combinations(names, 2)))
    assert any(line.startswith(words) for line in lines)
    assert run("compat", *names, "--json") == status
    assert len(json.loads(capsys.readouterr().out)) == len(lines)


def test_wrong_names_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compat", "ema", "swaa") == 2
    assert "swaa" in capsys.readouterr().err
    assert run("mixupp") == 2
    assert "mixup" in capsys.readouterr().err
    assert run("compat", "ema") == 2
    assert "two or more" in capsys.readouterr().err


def test_the_whole_table_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compat") == 0
    out = capsys.readouterr().out
    assert "first at their events: selective_backprop" in out


def test_the_page_has_the_table_of_pairs() -> None:
    page = ROOT / "docs" / "methods.md"
    if not page.exists():
        pytest.skip("the repository is not here")
    table = markdown_of([pair for pair in pairs_of(classes()) if pair.reason])
    assert table in page.read_text(encoding="utf-8")


def test_verdicts_are_what_the_engine_does() -> None:
    """Each verdict is compared with what the engine's own functions do with the two classes."""

    def made(cls: type[Algorithm]) -> Algorithm:
        return cls.__new__(cls)

    loaded = classes()
    for pair in pairs_of(loaded):
        both = [made(loaded[pair.second]), made(loaded[pair.first])]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                check_together(both)
                refused = False
            except ValueError:
                refused = True
        assert refused == (pair.verdict == "refused"), pair
        assert bool(caught) == (pair.verdict == "warned"), pair
        if pair.verdict == "safe in this order":
            assert [type(a) for a in sort_by_phase(both)] == [
                loaded[pair.first],
                loaded[pair.second],
            ]


class _Early(Algorithm):
    events = frozenset({Event.INIT})
    phase: ClassVar[Phase] = Phase.FIRST
    remarks: ClassVar[Mapping[str, str]] = MappingProxyType({"late": "early tells late"})

    def apply(self, event: Event, state: Any, logger: Any) -> None: ...


class _Late(_Early):
    phase: ClassVar[Phase] = Phase.NORMAL
    remarks: ClassVar[Mapping[str, str]] = MappingProxyType({})


def test_a_remark_and_a_place() -> None:
    assert pairs_of({"late": _Late, "early": _Early}) == [
        Pair("early", "late", "safe in this order", "early tells late")
    ]


def test_one_that_cannot_be_imported_does_not_hide_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load: Callable[..., Any] = plugins.load

    def broken(group: str, name: str) -> Any:
        if name == "ema":
            raise plugins.PluginLoadError("ema: no module named nothing")
        return load(group, name)

    monkeypatch.setattr(plugins, "load", broken)
    assert run() == 1
    captured = capsys.readouterr()
    assert "no module named nothing" in captured.err
    assert "mixup" in captured.out
