from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from composer.core import plugins
from composer.core.plugins import (
    PluginConflictError,
    PluginLoadError,
    PluginNotFoundError,
    PluginWarning,
    Registry,
)
from composer_testing import run_python, write_distribution

GOOD = """
    from composer.core import LoggerDestination

    class Sink(LoggerDestination):
        def __init__(self, size=1, *, name="x"):
            self.size = size
            self.name = name
"""
HALF = """
    from composer_half import registered
    raise RuntimeError("half way")
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder at the front of the search path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith(("composer_good", "composer_bad", "composer_half", "composer_late")):
            del sys.modules[name]


@pytest.fixture
def three(site: Path) -> Registry:
    """A good distribution, one that raises at once, one that raises half way."""
    write_distribution(
        site,
        "composer-good",
        entry_points={"composer.loggers": {"good": "composer_good:Sink"}},
        modules={"composer_good.py": GOOD},
    )
    write_distribution(
        site,
        "composer-bad",
        version="2.5",
        entry_points={"composer.loggers": {"bad": "composer_bad:Sink"}},
        modules={"composer_bad.py": "import a_module_that_nobody_has"},
    )
    write_distribution(
        site,
        "composer-half",
        entry_points={"composer.loggers": {"half": "composer_half.main:Sink"}},
        modules={
            "composer_half/__init__.py": "",
            "composer_half/registered.py": "",
            "composer_half/main.py": HALF,
        },
    )
    return Registry()


def test_names_and_entries_import_nothing(three: Registry) -> None:
    assert {"good", "bad", "half"} <= set(three.names("composer.loggers"))
    entry = three.find("composer.loggers", "bad")
    assert (entry.distribution, entry.version) == ("composer-bad", "2.5")
    assert entry.location.endswith("composer_bad-2.5.dist-info")
    assert three.state(entry) == "unloaded"
    assert not {"composer_good", "composer_bad", "composer_half"} & set(sys.modules)


def test_metadata_is_read_once_until_refresh(site: Path) -> None:
    registry = Registry()
    assert "late" not in registry.names("composer.models")
    write_distribution(
        site, "composer-late", entry_points={"composer.models": {"late": "composer_late:f"}}
    )
    assert "late" not in registry.names("composer.models")
    registry.refresh()
    assert "late" in registry.names("composer.models")


def test_broken_plugins_do_not_touch_the_good_one(three: Registry, site: Path) -> None:
    sink = three.resolve("composer.loggers", "good", size=3)
    assert (sink.size, sink.name) == (3, "x")
    with pytest.warns(PluginWarning) as caught:
        records = {
            name: three.check(three.find("composer.loggers", name))
            for name in ("good", "bad", "half")
        }
    assert records["good"] is None
    assert len(caught) == 2
    assert "composer-bad 2.5" in str(caught[0].message)
    assert str(site) not in str(caught[0].message)
    assert "a_module_that_nobody_has" in str(caught[0].message)
    assert records["bad"] is not None
    assert "composer_bad.py" in records["bad"].text
    assert records["half"] is not None
    assert "half way" in records["half"].text
    states = {e.name: three.state(e) for e in three.entries("composer.loggers")}
    assert (states["good"], states["bad"], states["half"]) == ("ok", "broken", "broken")


def test_strict_check_raises(three: Registry) -> None:
    with pytest.raises(PluginLoadError, match="composer-half"):
        three.check(three.find("composer.loggers", "half"), strict=True)


def test_requested_broken_plugin_names_everything_and_chains_the_cause(three: Registry) -> None:
    with pytest.raises(PluginLoadError) as caught:
        three.load("composer.loggers", "bad")
    for part in ("logger 'bad'", "composer-bad 2.5", "composer_bad:Sink", "ModuleNotFoundError"):
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert caught.value.__cause__.name == "a_module_that_nobody_has"


def test_failed_import_leaves_no_modules_and_can_be_retried(three: Registry, site: Path) -> None:
    with pytest.raises(PluginLoadError):
        three.load("composer.loggers", "half")
    assert not any(name.startswith("composer_half") for name in sys.modules)
    (site / "composer_half" / "main.py").write_text(
        "from composer.core import LoggerDestination as Sink\n# mended\n"
    )
    entry = three.find("composer.loggers", "half")
    assert three.state(entry) == "broken"
    three.refresh()
    assert three.load("composer.loggers", "half").__name__ == "LoggerDestination"
    assert three.state(entry) == "ok"
    assert three.failure(entry) is None


def test_plugin_that_exits_at_import_does_not_end_the_process(site: Path) -> None:
    write_distribution(
        site,
        "composer-bad",
        entry_points={"composer.loggers": {"bad": "composer_bad:Sink"}},
        modules={"composer_bad.py": "import sys; sys.exit(3)"},
    )
    with pytest.raises(PluginLoadError, match="SystemExit"):
        Registry().load("composer.loggers", "bad")


@pytest.mark.parametrize(
    ("value", "error"),
    [("composer_good:Missing", "AttributeError"), ("not a value", "ValueError")],
)
def test_wrong_value_is_a_broken_plugin(site: Path, value: str, error: str) -> None:
    write_distribution(
        site,
        "composer-good",
        entry_points={"composer.loggers": {"good": value}},
        modules={"composer_good.py": GOOD},
    )
    with pytest.raises(PluginLoadError, match=error):
        Registry().load("composer.loggers", "good")


def test_unreadable_metadata_costs_a_warning(three: Registry, site: Path) -> None:
    info = write_distribution(site, "composer-garbled")
    (info / "entry_points.txt").write_text("[composer.loggers]\nno equals sign\n")
    with pytest.warns(PluginWarning, match="composer_garbled"):
        names = three.names("composer.loggers")
    assert "good" in names


def duplicate(site: Path, value: str = "composer_late:Sink") -> Registry:
    for name, target in (("composer-good", "composer_good:Sink"), ("composer-late", value)):
        write_distribution(
            site,
            name,
            entry_points={"composer.loggers": {"sink": target}},
            modules={f"{name.replace('-', '_')}.py": GOOD},
        )
    return Registry()


def test_one_name_with_two_targets_is_refused_and_can_be_chosen(site: Path) -> None:
    registry = duplicate(site)
    with pytest.raises(PluginConflictError) as caught:
        registry.load("composer.loggers", "sink")
    for part in ("composer-good 1.0", "composer-late 1.0", "'composer-good:sink'", "uninstall"):
        assert part in str(caught.value)
    chosen = registry.load("composer.loggers", "composer-late:sink")
    assert chosen.__module__ == "composer_late"
    assert registry.name_of("composer.loggers", chosen) == "composer-late:sink"
    assert {e.name for e in registry.entries("composer.loggers") if registry.ambiguous(e)} == {
        "sink"
    }
    assert {
        registry.state(e) for e in registry.entries("composer.loggers") if e.name == "sink"
    } == {"duplicate"}


def test_one_name_with_one_target_is_no_conflict(site: Path) -> None:
    registry = duplicate(site, "composer_good:Sink")
    assert not any(registry.ambiguous(entry) for entry in registry.entries("composer.loggers"))
    assert registry.load("composer.loggers", "sink").__module__ == "composer_good"


@pytest.mark.parametrize(
    ("group", "asked", "expected"),
    [
        ("composer.loggers", "godo", 'Did you mean "good"?'),
        ("composer.loggers", "file", "pip install composer-loggers"),
        ("composer.callbacks", "early_stoper", "pip install composer-trainer"),
        ("composer.loggers", "elsewhere:good", "offered by: composer-good 1.0"),
        ("composer.loggers", "godo", "Known names of composer.loggers: bad, good, half."),
    ],
)
def test_unknown_name_teaches(
    three: Registry, site: Path, group: str, asked: str, expected: str
) -> None:
    registry = Registry(path=[str(site)])
    with pytest.raises(PluginNotFoundError) as caught:
        registry.load(group, asked)
    assert expected in str(caught.value)
    # A path has many folders, which would bury what helps.
    assert str(site) not in str(caught.value)


def test_class_name_finds_the_plugin_name() -> None:
    with pytest.raises(PluginNotFoundError, match='Did you mean "channels_last"'):
        plugins.load("composer.algorithms", "ChannelsLast")


def test_stale_metadata_that_hides_newer_is_shown(tmp_path: Path) -> None:
    stale = write_distribution(tmp_path / "a", "composer-good", version="0.9")
    newer = write_distribution(
        tmp_path / "b",
        "composer-good",
        version="1.1",
        entry_points={"composer.loggers": {"good": "composer_good:Sink"}},
    )
    registry = Registry(path=[str(tmp_path / "a"), str(tmp_path / "b")])
    with pytest.raises(PluginNotFoundError) as caught:
        registry.load("composer.loggers", "good")
    assert str(stale) in str(caught.value)
    assert str(newer) in str(caught.value)


def test_unknown_group_is_named_beside_the_right_ones() -> None:
    with pytest.raises(ValueError, match=r"\"composer\.algorithms\""):
        plugins.names("composer.algorithm")


def test_name_must_be_a_string() -> None:
    with pytest.raises(TypeError, match="name must be a string"):
        plugins.load("composer.loggers", 3)  # type: ignore[arg-type]


def test_resolve_returns_an_instance_as_it_is(three: Registry) -> None:
    sink = three.resolve("composer.loggers", "good")
    assert three.resolve("composer.loggers", sink) is sink
    assert isinstance(three.resolve("composer.loggers", type(sink), name="y"), type(sink))


def test_resolve_returns_functions_of_groups_without_a_contract() -> None:
    def schedule(state: object) -> float:
        return 0.5

    assert plugins.resolve("composer.schedulers", schedule) is schedule


@pytest.mark.parametrize(
    ("thing", "arguments", "message"),
    [
        (5, {}, "LoggerDestination.*got 5"),
        (SimpleNamespace, {}, "not a subclass of LoggerDestination"),
        ("good", {"szie": 1}, "no argument 'szie'. Did you mean \"size\""),
    ],
)
def test_resolve_refuses_what_is_no_plugin(
    three: Registry, thing: object, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        three.resolve("composer.loggers", thing, **arguments)


def test_resolve_refuses_a_plugin_that_gives_something_else(site: Path) -> None:
    write_distribution(
        site, "composer-good", entry_points={"composer.loggers": {"good": "builtins:dict"}}
    )
    with pytest.raises(TypeError, match=r"the logger 'good', <class 'dict'>, gave \{\}, which is"):
        Registry().resolve("composer.loggers", "good")


def test_resolve_refuses_arguments_beside_an_instance(three: Registry) -> None:
    sink = three.resolve("composer.loggers", "good")
    with pytest.raises(TypeError, match="size"):
        three.resolve("composer.loggers", sink, size=2)


def test_resolve_names_missing_arguments(site: Path) -> None:
    write_distribution(
        site,
        "composer-good",
        entry_points={"composer.models": {"net": "composer_good:net"}},
        modules={"composer_good.py": "def net(width, depth=2): return width, depth"},
    )
    registry = Registry()
    assert registry.resolve("composer.models", "net", width=3) == (3, 2)
    with pytest.raises(TypeError, match=r"needs the arguments \['width'\]"):
        registry.resolve("composer.models", "net")


def test_name_of_finds_reexported_classes_and_none_for_strangers(three: Registry) -> None:
    cls = three.load("composer.loggers", "good")
    assert three.name_of("composer.loggers", cls) == "good"
    assert three.name_of("composer.loggers", SimpleNamespace) is None
    assert three.name_of("composer.loggers", 5) is None


def test_two_registries_share_nothing(three: Registry) -> None:
    three.load("composer.loggers", "good")
    other = Registry()
    assert other.state(other.find("composer.loggers", "good")) == "unloaded"


def test_module_functions_use_one_registry(
    three: Registry, fresh_plugins: Callable[[], None]
) -> None:
    entry = next(e for e in plugins.entries("composer.loggers") if e.name == "good")
    assert plugins.state(entry) == "unloaded"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plugins.check(entry) is None
    assert plugins.state(entry) == "ok"
    assert plugins.failure(entry) is None
    assert plugins.name_of("composer.loggers", plugins.load("composer.loggers", "good")) == "good"


def test_one_door_under_two_names() -> None:
    from composer.utils import plugins as door

    assert plugins.__all__ == door.__all__
    assert all(getattr(plugins, name) is getattr(door, name) for name in door.__all__)


def test_third_party_plugins_come_in_by_name() -> None:
    from composer_cool import InputNoise

    assert plugins.name_of("composer.algorithms", InputNoise) == "input_noise"
    made = plugins.resolve("composer.algorithms", "input_noise", std=0.2)
    assert isinstance(made, InputNoise)
    assert made.std == 0.2


def test_discovery_does_not_import_torch() -> None:
    run_python(
        """
import sys
from composer.core import plugins
for group in plugins.GROUPS:
    plugins.names(group)
assert "torch" not in sys.modules, "torch was imported"
"""
    )
