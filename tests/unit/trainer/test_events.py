"""The order of events is a public contract, kept as a text that the documentation shows."""

from __future__ import annotations

from pathlib import Path

import torch

from composer.trainer import Trainer
from composer_testing.tiny import EventRecorder, TinyModel, loader

GOLDEN = Path(__file__).parent / "event_order.txt"


LEVELS = {
    "init before_load after_load fit_start fit_end": 0,
    "iteration_start epoch_start epoch_end epoch_checkpoint eval_before_all eval_after_all": 1,
    "before_dataloader after_dataloader batch_start batch_end batch_checkpoint": 2,
    "eval_start eval_end": 2,
    "before_train_batch after_train_batch eval_batch_start eval_batch_end": 3,
}
LEVEL = {name: level for names, level in LEVELS.items() for name in names.split()}


def rendered(recorder: EventRecorder) -> str:
    """One event a line, indented by what it belongs to, with the counters at that moment."""
    lines = []
    for name, epoch, batch, in_epoch, _ in recorder.seen:
        indent = "  " * LEVEL.get(name, 4)
        lines.append(f"{indent + name:<32} epoch {epoch}  batch {batch}  in epoch {in_epoch}")
    return "\n".join(lines) + "\n"


def test_two_epochs_with_microbatches_and_evaluation() -> None:
    recorder = EventRecorder()
    trainer = _trainer(recorder)
    trainer.fit()
    trainer.close()
    assert rendered(recorder) == GOLDEN.read_text()


def _trainer(recorder: EventRecorder) -> Trainer:
    model = TinyModel()
    return Trainer(
        model=model,
        train_dataloader=loader(8, 4),
        eval_dataloader=loader(4, 4),
        eval_interval="1ep",
        max_duration="2ep",
        device_train_microbatch_size=2,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=recorder,
        progress_bar=False,
    )


def test_evaluation_and_prediction_on_their_own() -> None:
    recorder = EventRecorder()
    trainer = _trainer(recorder)
    recorder.seen.clear()
    trainer.eval()
    assert recorder.names == [
        "eval_standalone_start",
        "eval_start",
        "eval_batch_start",
        "eval_before_forward",
        "eval_after_forward",
        "eval_batch_end",
        "eval_end",
        "eval_standalone_end",
    ]
    recorder.seen.clear()
    trainer.predict(loader(4, 4))
    assert recorder.names == [
        "predict_start",
        "predict_batch_start",
        "predict_before_forward",
        "predict_after_forward",
        "predict_batch_end",
        "predict_end",
    ]
    trainer.close()
