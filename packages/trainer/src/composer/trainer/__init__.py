"""The trainer."""

from composer.trainer.alternating import OptimizerStep
from composer.trainer.interruption import TrainingInterrupted
from composer.trainer.nonfinite import NonFiniteLossError
from composer.trainer.trainer import Trainer

__all__ = ["NonFiniteLossError", "OptimizerStep", "Trainer", "TrainingInterrupted"]
