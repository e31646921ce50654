"""A default run with accuracy, bar and methods pays for nothing that it does not use."""

from __future__ import annotations

import pytest

from composer_testing import run_python

CODE = """
import sys
import torch
from composer import Trainer
from composer.models import composer_resnet_cifar

torch.manual_seed(0)
model = composer_resnet_cifar("resnet_8", width=8)
batches = [(torch.zeros(4, 3, 16, 16), torch.tensor([0, 1, 2, 3])) for _ in range(2)]
trainer = Trainer(
    model=model,
    train_dataloader=batches,
    eval_dataloader=batches,
    max_duration="1ep",
    optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
    algorithms=["channels_last", "label_smoothing", "ema"],
    log_to_console=True,
    device="cpu",
)
trainer.fit()
trainer.close()
slow = {"torchmetrics", "transformers", "torchvision", "mlflow", "wandb", "pandas", "PIL"}
assert not slow & set(sys.modules), slow & set(sys.modules)
"""


@pytest.mark.slow
def test_a_default_run_imports_nothing_heavy() -> None:
    run_python(CODE)
