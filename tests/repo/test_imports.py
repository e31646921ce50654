"""Importing our packages imports torch, numpy and the standard library; the rest comes on use."""

from __future__ import annotations

from composer_testing import run_python
from composer_testing.repository import portions

CODE = """
import importlib, sys
import numpy, torch

before = set(sys.modules)
attempts = []

class Watch:
    # Optional packages raise, as if their import were broken.
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in allowed:
            attempts.append(name)
            raise ImportError(f"{{name}} was imported without need")
        return None

known = {{name.partition(".")[0] for name in before}}
allowed = {{"composer", "torch", "numpy", *sys.stdlib_module_names, *known}}
sys.meta_path.insert(0, Watch())
for portion in {portions!r}:
    importlib.import_module("composer." + portion)
from composer import *
assert attempts == [], attempts
heavy = {{"torchvision", "torchmetrics", "transformers", "mlflow", "pandas", "tqdm", "yaml"}}
heavy &= {{name.partition(".")[0] for name in set(sys.modules) - before}}
assert not heavy, heavy
"""


def test_portions_import_nothing_heavy() -> None:
    run_python(CODE.format(portions=sorted(portions())))


def test_imports_have_no_side_effects() -> None:
    run_python(
        f"""
import atexit, importlib, os, signal, sys
import torch

handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
hook, environment = sys.excepthook, dict(os.environ)
load, step = torch.load, torch.optim.Optimizer.step
registered = []
register, atexit.register = atexit.register, lambda f, *a, **k: registered.append(f)
for portion in {sorted(portions())!r}:
    importlib.import_module("composer." + portion)
from composer import Trainer
assert handlers == [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
assert sys.excepthook is hook
assert dict(os.environ) == environment
assert torch.load is load and torch.optim.Optimizer.step is step
ours = [f for f in registered if (getattr(f, "__module__", "") or "").startswith("composer")]
assert not ours, ours
"""
    )
