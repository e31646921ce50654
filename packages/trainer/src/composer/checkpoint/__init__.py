"""Checkpoints: what is in them, how they are written, how they are read."""

from composer.checkpoint.layout import CheckpointError, NewerFormatError, remove_keys
from composer.checkpoint.load import apply_checkpoint, load_checkpoint
from composer.checkpoint.manifest import Manifest, read_manifest, write_manifest
from composer.checkpoint.newest import find_newest, read_newest
from composer.checkpoint.reading import read_checkpoint, safe_torch_load, verify
from composer.checkpoint.save import (
    checkpoint_contents,
    get_save_filename,
    link_latest,
    save_checkpoint,
)

__all__ = [
    "CheckpointError",
    "Manifest",
    "NewerFormatError",
    "apply_checkpoint",
    "checkpoint_contents",
    "find_newest",
    "get_save_filename",
    "link_latest",
    "load_checkpoint",
    "read_checkpoint",
    "read_manifest",
    "read_newest",
    "remove_keys",
    "safe_torch_load",
    "save_checkpoint",
    "verify",
    "write_manifest",
]
