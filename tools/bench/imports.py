"""What importing costs in CPU seconds, over `import torch` in the same process.

python tools/bench/imports.py [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

CASES = {
    "import composer": 0.05,
    "from composer.core import *": 0.15,
    "from composer import Trainer": 0.6,
    "import composer.functional": 0.6,
}
PROGRAM = """
import time
if {torch}:
    import torch
a = time.process_time()
{statement}
print(time.process_time() - a)
import sys
print(",".join(m for m in ("torch", "torchmetrics", "torchvision", "transformers", "tqdm", "rich",
                           "yaml", "pandas", "mlflow", "wandb") if m in sys.modules))
"""


def measure(statement: str, *, torch: bool, rounds: int) -> tuple[float, str]:
    """The median of several processes, and which heavy modules were loaded."""
    seconds, loaded = [], ""
    for _ in range(rounds):
        program = PROGRAM.format(statement=statement, torch=torch)
        out = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        seconds.append(float(out[0]))
        loaded = out[1] if len(out) > 1 else ""
    return statistics.median(seconds), loaded


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="processes per statement")
    rounds = parser.parse_args().rounds
    torch_alone, _ = measure("import torch", torch=False, rounds=rounds)
    print(f"import torch: {torch_alone:.2f} CPU s")
    print(f"{'statement':<32}{'over torch':>11}{'target':>8}  loaded")
    for statement, target in CASES.items():
        alone = statement == "import composer"
        seconds, loaded = measure(statement, torch=not alone, rounds=rounds)
        print(f"{statement:<32}{seconds:>11.3f}{target:>8.2f}  {loaded}", flush=True)


if __name__ == "__main__":
    main()
