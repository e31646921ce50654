"""Callbacks that come with the trainer."""

from composer.callbacks.checkpoint_saver import CheckpointSaver
from composer.callbacks.early_stopper import EarlyStopper
from composer.callbacks.lr_monitor import LRMonitor
from composer.callbacks.threshold_stopper import ThresholdStopper
from composer.utils.suggestions import names_that_come_later

__all__ = ["CheckpointSaver", "EarlyStopper", "LRMonitor", "ThresholdStopper"]

__getattr__ = names_that_come_later(
    __name__,
    (
        "ActivationMonitor",
        "ExportForInferenceCallback",
        "FreeOutputs",
        "Generate",
        "ImageVisualizer",
        "LoadCheckpoint",
        "MemoryMonitor",
        "MemorySnapshot",
        "NaNMonitor",
        "OOMObserver",
        "OptimizerMonitor",
        "RuntimeEstimator",
        "SpeedMonitor",
        "SystemMetricsMonitor",
    ),
)
