from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch  # noqa: F401  # before a test breaks the metadata that importing torch reads

from composer.cli import Command, PluginsCommand, main
from composer.core import plugins
from composer_testing import run_python, write_distribution

COMMAND = """
    class Hello:
        name = "hello"
        help = "say hello"
        examples = "  composer hello --to you"

        def add_arguments(self, parser):
            parser.add_argument("--to", required=True)

        def run(self, args):
            print("hello", args.to)
            return 7
"""


@pytest.fixture
def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_plugins: Callable[[], None]
) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("hello_", "broken_")):
            del sys.modules[name]


def write_hello(site: Path) -> None:
    write_distribution(
        site,
        "hello",
        entry_points={"composer.commands": {"hello": "hello_command:Hello"}},
        modules={"hello_command.py": COMMAND},
    )


def write_broken(site: Path, group: str = "composer.commands") -> None:
    write_distribution(
        site,
        "broken",
        version="0.2",
        entry_points={group: {"broken_one": "broken_command:Nothing"}},
        modules={"broken_command.py": "raise RuntimeError('out of order')"},
    )


def test_command_of_a_third_party_runs(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_hello(site)
    assert main(["hello", "--to", "you"]) == 7
    assert capsys.readouterr().out == "hello you\n"


def test_overview_lists_every_command_also_beside_a_broken_one(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_hello(site)
    write_broken(site)
    assert main([]) == 0
    out = capsys.readouterr().out
    for part in ("hello", "say hello", "plugins", "train", "examples:", "doctor broken_one"):
        assert part in out


def test_help_of_a_command_shows_its_examples(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_hello(site)
    with pytest.raises(SystemExit) as caught:
        main(["hello", "--help"])
    assert caught.value.code == 0
    assert "examples:\n  composer hello --to you" in capsys.readouterr().out


def test_wrong_option_is_a_usage_error(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_hello(site)
    with pytest.raises(SystemExit) as caught:
        main(["hello"])
    assert caught.value.code == 2
    assert "--to" in capsys.readouterr().err


def test_unknown_command_gets_the_near_match(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugin"]) == 2
    assert 'Did you mean "plugins"' in capsys.readouterr().err


@pytest.mark.parametrize("words", [["train.py"], ["-n", "2", "train.py"]])
def test_starting_a_script_says_what_to_do(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "python SCRIPT.py" in capsys.readouterr().err


def test_interrupt_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: PluginsCommand, args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(PluginsCommand, "run", interrupted)
    assert main(["plugins"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_first_party_commands_meet_the_contract() -> None:
    for entry in plugins.entries("composer.commands"):
        command = plugins.load("composer.commands", entry.name)()
        assert isinstance(command, Command)
        assert command.name == entry.name
        assert command.help
        assert f"composer {entry.name}" in command.examples


def test_listing_has_a_row_per_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "--no-import", "--group", "composer.loggers"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["group", "name", "distribution", "version", "state"]
    assert "composer.loggers" in rows[0]
    assert ["composer.loggers", "console", "composer-loggers", "0.1.0"] in [
        row.split()[:4] for row in rows
    ]


def test_strict_passes_when_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["plugins", "--strict"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert "broken" not in out


def test_strict_fails_on_a_broken_plugin(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_broken(site, "composer.loggers")
    assert main(["plugins", "--group", "composer.loggers"]) == 0
    assert main(["plugins", "--group", "composer.loggers", "--strict"]) == 1
    out = capsys.readouterr().out
    assert "broken:broken_one is broken: RuntimeError: out of order" in out


def test_strict_fails_on_an_ambiguous_name(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_hello(site)
    write_distribution(
        site, "hello-too", entry_points={"composer.commands": {"hello": "hello_command:Other"}}
    )
    module = site / "hello_command.py"
    module.write_text(module.read_text() + "\nclass Other(Hello): pass\n")
    assert main(["plugins", "--group", "composer.commands", "--strict"]) == 1
    out = capsys.readouterr().out
    assert "duplicate" in out
    assert "hello:hello or hello-too:hello" in out
    assert main(["hello", "--to", "you"]) == 2
    assert "hello-too" in capsys.readouterr().err


def test_strict_fails_on_unreadable_metadata(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = write_distribution(site, "garbled")
    (info / "entry_points.txt").write_text("[composer.loggers]\nno equals sign\n")
    group = ["--group", "composer.devices"]
    assert main(["plugins", *group]) == 0
    assert main(["plugins", "--strict", *group]) == 1
    assert "garbled" in capsys.readouterr().err


def test_json_listing_is_for_programs(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_broken(site, "composer.devices")
    assert main(["plugins", "--json", "--group", "composer.devices"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["cpu"]["state"] == "ok"
    assert rows["cpu"]["error"] is None
    assert rows["broken_one"]["state"] == "broken"
    assert rows["broken_one"]["version"] == "0.2"


def test_the_help_shows_doctor_as_what_may_be_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["plugins", "--help"])
    usage = capsys.readouterr().out.partition("list installed plugins")[0]
    assert "[doctor NAME] ..." in usage
    assert main(["plugins", "--no-import", "--group", "composer.devices"]) == 0


def test_doctor_shows_the_traceback(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_broken(site, "composer.loggers")
    assert main(["plugins", "doctor", "broken_one"]) == 1
    out = capsys.readouterr().out
    for part in ("broken 0.2", "broken_command:Nothing", "Traceback", "broken_command.py", "order"):
        assert part in out


def test_doctor_of_a_sound_plugin_and_of_an_unknown_name(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins", "doctor", "composer-core:cpu"]) == 0
    assert "state         ok" in capsys.readouterr().out
    assert main(["plugins", "doctor", "consol"]) == 2
    err = capsys.readouterr().err
    assert 'Did you mean "console"' in err
    assert "Folders searched: " in err
    assert main(["plugins", "doctor", "zzzzzz"]) == 2
    err = capsys.readouterr().err
    assert "in any group" in err
    folders = err.splitlines()[-1].removeprefix("Folders searched: ").split(", ")
    assert str(site) in folders


@pytest.mark.slow
def test_console_script_is_installed_and_does_not_import_torch() -> None:
    script = Path(sys.executable).parent / "composer"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == "composer 0.1.0\n"
    run_python(
        """
import sys
from composer.cli.main import main
assert main(["plugins", "--no-import"]) == 0
assert "torch" not in sys.modules, "torch was imported"
"""
    )
