"""The Python blocks of the README pages and the first page of the documentation run as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/index.md", *sorted(
    str(p.relative_to(ROOT)) for p in ROOT.glob("packages/*/README.md")
)]  # fmt: skip


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data import Subset

    from composer import datasets

    whole = datasets.fashion_mnist
    # The pages train on all of the data; a part of it shows as well that they run.
    monkeypatch.setattr(
        datasets, "fashion_mnist", lambda split="train": Subset(whole(split), range(600))
    )
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        exec(compile(block, page, "exec"), {"__name__": "__main__"})
