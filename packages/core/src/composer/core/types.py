"""Aliases and small enumerations shared by all packages."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch.utils.data import Dataset as TorchDataset

from composer.utils.string_enum import StringEnum

__all__ = ["JSON", "Batch", "Dataset", "MemoryFormat", "PyTorchScheduler", "TrainerMode"]

#: Whatever a dataloader yields: tensors, tuples, mappings, or a user's own type.
Batch: TypeAlias = Any

#: What JSON can hold.
JSON: TypeAlias = "str | float | int | list[JSON] | dict[str, JSON] | None"

#: A map-style or iterable dataset whose samples are collated into batches.
Dataset: TypeAlias = TorchDataset[Any]

#: A learning rate scheduler of torch.
PyTorchScheduler: TypeAlias = torch.optim.lr_scheduler.LRScheduler


class TrainerMode(StringEnum):
    """What the trainer is doing.

    Example:
        >>> TrainerMode("train") is TrainerMode.TRAIN
        True
    """

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "predict"


class MemoryFormat(StringEnum):
    """How a tensor's dimensions lie in memory; the names are torch's.

    Example:
        >>> MemoryFormat("channels_last").value
        'channels_last'
    """

    CONTIGUOUS_FORMAT = "contiguous_format"
    CHANNELS_LAST = "channels_last"
    CHANNELS_LAST_3D = "channels_last_3d"
    PRESERVE_FORMAT = "preserve_format"
