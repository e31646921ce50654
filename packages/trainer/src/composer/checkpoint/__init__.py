"""Checkpoints: what is in them, how they are written, how they are read."""

from composer.checkpoint.layout import NewerFormatError, remove_keys
from composer.checkpoint.load import (
    apply_checkpoint,
    find_newest,
    find_newest_remote,
    load_checkpoint,
    read_checkpoint,
    read_newest,
    safe_torch_load,
)
from composer.checkpoint.manifest import Manifest, read_manifest, verify, write_manifest
from composer.checkpoint.save import (
    checkpoint_contents,
    get_save_filename,
    link_latest,
    save_checkpoint,
)

__all__ = [
    "Manifest",
    "NewerFormatError",
    "apply_checkpoint",
    "checkpoint_contents",
    "find_newest",
    "find_newest_remote",
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
