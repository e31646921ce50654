"""What a page copies from a file is that file's text."""

from __future__ import annotations

import re
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
