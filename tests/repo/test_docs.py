"""What a page copies from a file is that file's text."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from composer_testing.repository import ROOT

PRESETS = Path("packages/recipes/src/composer/recipes/presets")


@pytest.mark.parametrize(
    ("page", "language", "source"),
    [
        ("docs/events.md", "text", Path("tests/unit/trainer/event_order.txt")),
        ("docs/recipes.md", "yaml", PRESETS / "fashion_mnist_resnet8.yaml"),
    ],
)
def test_copies_in_pages_are_exact(page: str, language: str, source: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert (ROOT / source).read_text(encoding="utf-8") in blocks


def test_the_page_of_methods_lists_what_is_installed() -> None:
    with (ROOT / "packages" / "algorithms" / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)["project"]["entry-points"]["composer.algorithms"]
    page = (ROOT / "docs" / "methods.md").read_text()
    readme = (ROOT / "packages" / "algorithms" / "README.md").read_text()
    for name, value in table.items():
        title = value.partition(":")[2]
        assert f"[{title}](methods/{name}.md)" in page
        assert title in readme


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "tools" / "mkdocs.yml").read_text()
    pages = ROOT / "docs"
    for path in [*pages.glob("*.md"), *pages.glob("methods/*.md")]:
        assert f": {path.relative_to(pages).as_posix()}\n" in text
