"""Checkpoints: what is in them, how they are written, how they are read."""

from composer.checkpoint.layout import remove_keys
from composer.checkpoint.load import (
    apply_checkpoint,
    find_newest,
    load_checkpoint,
    read_checkpoint,
    safe_torch_load,
)
from composer.checkpoint.save import (
    checkpoint_contents,
    get_save_filename,
    link_latest,
    save_checkpoint,
)

__all__ = [
    "apply_checkpoint",
    "checkpoint_contents",
    "find_newest",
    "get_save_filename",
    "link_latest",
    "load_checkpoint",
    "read_checkpoint",
    "remove_keys",
    "safe_torch_load",
    "save_checkpoint",
]
