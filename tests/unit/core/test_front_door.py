from __future__ import annotations

from pathlib import Path

import pytest

import composer
from composer._lazy import PORTIONS
from composer_testing import run_python, write_distribution

# Run in an interpreter whose path holds the front door and nothing else of ours.
ALONE = "import sys; sys.path.insert(0, {folder!r})\n"


@pytest.fixture
def alone(tmp_path: Path) -> str:
    """A folder with the front door only, as if no portion were installed."""
    source = Path(composer.__file__).parent
    target = tmp_path / "alone" / "composer"
    target.mkdir(parents=True)
    for name in ("__init__.py", "_lazy.py", "_version.py"):
        (target / name).write_text((source / name).read_text())
    return str(target.parent)


def run_alone(folder: str, code: str) -> str:
    # -S keeps the editable packages of this environment out.
    return run_python(ALONE.format(folder=folder) + code, options=("-P", "-S")).stdout


def test_bare_import_is_light() -> None:
    run_python(
        """
import sys
before = set(sys.modules)
import composer
assert composer.__version__
added = set(sys.modules) - before
assert not any(name.split(".")[0] in ("torch", "numpy") for name in added), added
assert "composer.core" not in added and "composer.trainer" not in added
"""
    )


@pytest.mark.parametrize("name", [n for n in composer.__all__ if n != "__version__"])
def test_every_public_name_resolves_to_its_home(name: str) -> None:
    value = getattr(composer, name)
    assert value.__name__ == name
    assert value.__module__.startswith("composer.")
    # The next look-up does not go through __getattr__.
    assert vars(composer)[name] is value


def test_all_table_and_dir_agree() -> None:
    assert sorted(composer._HOMES) == sorted(composer.__all__)
    assert set(composer.__all__) <= set(dir(composer))
    assert set(PORTIONS) <= set(dir(composer))


def test_portions_resolve_as_attributes() -> None:
    run_python("import composer; composer.optim.DecoupledSGDW; composer.core.Time")


def test_star_import_and_pickling() -> None:
    run_python(
        """
import pickle
from composer import *
assert Trainer.__module__.startswith("composer.trainer")
assert pickle.loads(pickle.dumps(Event.INIT)) is Event.INIT
"""
    )


def test_unknown_name_gets_the_near_match() -> None:
    with pytest.raises(AttributeError, match='Did you mean "Trainer"'):
        composer.Trainr  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "distribution"),
    [
        ("from composer import Trainer", "composer-trainer"),
        ("import composer; composer.optim", "composer-trainer"),
        ("import composer; composer.functional", "composer-algorithms"),
        ("from composer import Time", "composer-core"),
    ],
)
def test_missing_home_names_the_distribution(alone: str, statement: str, distribution: str) -> None:
    out = run_alone(
        alone,
        f"""
try:
    exec({statement!r})
except ModuleNotFoundError as error:
    print(error)
""",
    )
    assert f"pip install {distribution}" in out


def test_folder_left_behind_by_an_uninstall_counts_as_missing(alone: str) -> None:
    (Path(alone) / "composer" / "trainer" / "__pycache__").mkdir(parents=True)
    out = run_alone(
        alone,
        """
try:
    from composer import Trainer
except ModuleNotFoundError as error:
    print(error)
""",
    )
    assert "pip install composer-trainer" in out


def test_failure_inside_a_home_is_not_hidden(alone: str) -> None:
    home = Path(alone) / "composer" / "trainer"
    home.mkdir()
    (home / "__init__.py").write_text("import a_module_that_nobody_has")
    out = run_alone(
        alone,
        """
try:
    from composer import Trainer
except ModuleNotFoundError as error:
    print(error.name, "pip install" in str(error))
""",
    )
    assert out.split() == ["a_module_that_nobody_has", "False"]


@pytest.mark.parametrize("rival", ["mosaicml", "composer"])
def test_other_distribution_with_the_same_package_is_named(alone: str, rival: str) -> None:
    write_distribution(Path(alone), rival, version="0.32.1", modules={"composer/other.py": "x = 1"})
    out = run_alone(
        alone,
        """
try:
    from composer import Trainer
except ModuleNotFoundError as error:
    print(error)
""",
    )
    assert "pip install composer-trainer" in out
    assert f"{rival} 0.32.1" in out
    assert f"pip uninstall {rival}" in out


def test_rival_is_told_when_names_resolve_all_the_same(alone: str) -> None:
    home = Path(alone) / "composer" / "trainer"
    home.mkdir()
    (home / "__init__.py").write_text("class Trainer: pass")
    write_distribution(
        Path(alone), "mosaicml", version="0.32.1", modules={"composer/other.py": "x = 1"}
    )
    out = run_alone(
        alone,
        """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from composer import Trainer
print(len(caught), caught[0].category.__name__, caught[0].message)
""",
    )
    assert out.startswith("1 RuntimeWarning")
    assert "mosaicml 0.32.1" in out


def test_package_of_that_name_with_other_files_is_no_rival(alone: str) -> None:
    write_distribution(Path(alone), "composer", modules={"composer_music/__init__.py": ""})
    out = run_alone(
        alone,
        """
try:
    from composer import Trainer
except ModuleNotFoundError as error:
    print(error)
""",
    )
    assert "uninstall" not in out
