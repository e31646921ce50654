"""What each method costs: a step with it next to a plain step, and next to Composer 0.32.

    python tools/bench/methods.py [--only ema,cutmix] [--blocks 5] [--reference PYTHON]

``--reference`` is the Python of an environment in which Composer 0.32 is installed (``pip install
mosaicml==0.32.1``, newer torch on top of it where that is wanted). Its process and ours run in
turns, so that what else the machine does weighs on both alike; the best of all blocks counts. A
step is that of a small convolutional network on 32 images on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CASES = Path(__file__).with_name("method_cases.py")


def times_of(python: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run the cases by a Python, away from this repository's folders."""
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            [python, "-P", str(CASES), args.only, str(args.blocks), str(args.seconds)],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return dict(json.loads(result.stdout.splitlines()[-1]))


def best_of(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The best of several rounds for each case; the text of an error where there is one."""
    found: dict[str, Any] = {}
    for times in rounds:
        for name, value in times["times"].items():
            old = found.get(name)
            if old is None or isinstance(value, str):
                found[name] = value
            elif not isinstance(old, str):
                found[name] = [
                    None if a is None else min(a, b) for a, b in zip(old, value, strict=True)
                ]
    return found


def short(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:,.0f} us" if seconds < 1e-2 else f"{seconds * 1e3:,.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of methods, separated by commas")
    parser.add_argument("--blocks", type=int, default=5, help="blocks of calls per process")
    parser.add_argument("--seconds", type=float, default=0.15, help="length of a block")
    parser.add_argument("--rounds", type=int, default=3, help="how often the processes take turns")
    parser.add_argument("--reference", metavar="PYTHON", help="Python with Composer 0.32")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    args = parser.parse_args()
    own_rounds, their_rounds = [], []
    for _ in range(args.rounds):
        own_rounds.append(times_of(sys.executable, args))
        if args.reference:
            their_rounds.append(times_of(args.reference, args))
    print(file=sys.stderr)
    own, theirs = best_of(own_rounds), best_of(their_rounds)
    print(f"torch {own_rounds[0]['torch']}", end="")
    print(f", reference on torch {their_rounds[0]['torch']}" if their_rounds else "")
    print(f"{'method':34}{'time':>12}{'of a step':>12}{'0.32':>12}{'0.32 / ours':>13}")
    for name, value in own.items():
        if isinstance(value, str):
            print(f"{name:34}{value}")
            continue
        time, plain = value
        share = "-" if plain is None else f"{time / plain:.2f}"
        other = theirs.get(name)
        known = isinstance(other, list)
        reference = short(other[0]) if known else "-"
        # A step is held against the plain step of its own process, which noise weighs on as well.
        ratio = "-"
        if known:
            mine = time if plain is None else time / plain
            their = other[0] if plain is None else other[0] / other[1]
            ratio = f"{their / mine:.2f}"
        print(f"{name:34}{short(time):>12}{share:>12}{reference:>12}{ratio:>13}")
    if args.json:
        Path(args.json).write_text(json.dumps({"ours": own, "reference": theirs}, indent=2))


if __name__ == "__main__":
    main()
