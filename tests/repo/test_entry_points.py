"""Every exported plugin class has an entry point, and every entry point an exported class."""

from __future__ import annotations

import importlib
import inspect
from importlib import metadata

import pytest

from composer.core import plugins
from composer_testing.repository import pyprojects

# Group -> (portion whose exports are compared, contract, exported classes that are not plugins).
EXPORTED = {
    "composer.algorithms": ("composer.algorithms", "composer.core.algorithm:Algorithm", set()),
    "composer.callbacks": ("composer.callbacks", "composer.core.callback:Callback", set()),
    "composer.devices": ("composer.devices", "composer.devices.base:Device", set()),
    "composer.loggers": ("composer.loggers", "composer.core.logger:LoggerDestination", set()),
    "composer.object_stores": (
        "composer.utils.object_store",
        "composer.utils.object_store.base:ObjectStore",
        set(),
    ),
    "composer.optimizers": ("composer.optim", "torch.optim:Optimizer", set()),
    "composer.schedulers": ("composer.optim", "composer.optim.scheduler:ComposerScheduler", set()),
}
# In these groups a plugin is named after its module.
NAMED_AFTER_MODULE = {"composer.algorithms", "composer.callbacks", "composer.loggers"}

TABLES = [
    (name, group, plugin, value)
    for name, data in pyprojects().items()
    for group, table in data["project"].get("entry-points", {}).items()
    for plugin, value in table.items()
]


def locate(value: str) -> object:
    module, _, attribute = value.partition(":")
    return getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("group", sorted(EXPORTED))
def test_tables_match_exported_classes(group: str) -> None:
    portion, contract, left_out = EXPORTED[group]
    base = locate(contract)
    assert isinstance(base, type)
    module = importlib.import_module(portion)
    exported = {
        value
        for name in module.__all__
        if inspect.isclass(value := getattr(module, name))
        and issubclass(value, base)
        and value is not base
        and not inspect.isabstract(value)
        and value.__module__.startswith("composer.")
        and value.__module__.startswith(portion)
        and name not in left_out
    }
    registered = {locate(value) for _, of, _, value in TABLES if of == group}
    assert registered == exported


@pytest.mark.parametrize(("name", "group", "plugin", "value"), TABLES)
def test_entry_points_somewhere(name: str, group: str, plugin: str, value: str) -> None:
    found = locate(value)
    module = value.partition(":")[0]
    assert plugin == plugin.lower()
    if group in NAMED_AFTER_MODULE:
        assert plugin == module.rpartition(".")[2]
    if inspect.isclass(found) and group != "composer.commands":
        # A name in a checkpoint is turned back into the class, and the class into its name.
        assert plugins.name_of(group, found) == plugin
        assert found.__module__.startswith(module)


@pytest.mark.parametrize("name", sorted(pyprojects()))
def test_installed_metadata_is_that_of_the_tree(name: str) -> None:
    declared = {
        (group, plugin, value)
        for group, table in pyprojects()[name]["project"].get("entry-points", {}).items()
        for plugin, value in table.items()
    }
    installed = {
        (point.group, point.name, point.value)
        for point in metadata.distribution(name).entry_points
        if point.group in plugins.GROUPS
    }
    assert installed == declared, "the environment is stale: run `make install-dev` again"
