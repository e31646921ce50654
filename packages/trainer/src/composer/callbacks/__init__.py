"""Callbacks that come with the trainer."""

from composer.callbacks.checkpoint_saver import CheckpointSaver
from composer.callbacks.early_stopper import EarlyStopper
from composer.callbacks.lr_monitor import LRMonitor
from composer.callbacks.threshold_stopper import ThresholdStopper

__all__ = ["CheckpointSaver", "EarlyStopper", "LRMonitor", "ThresholdStopper"]
