"""Helpers that several packages share, each in a module named for its topic.

Names resolve on first use, so that importing this package, or one module of it, costs no more than
that module. The tables hold strings: names whose code lives on upper floors are found as well, and
nothing is imported until somebody asks for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer._lazy import lazy_names

if TYPE_CHECKING:
    from composer.core.intervals import create_interval_scheduler as create_interval_scheduler
    from composer.devices.select import get_device as get_device
    from composer.utils import dist as dist
    from composer.utils.archives import extract_file as extract_file
    from composer.utils.archives import pack_file as pack_file
    from composer.utils.batches import batch_get as batch_get
    from composer.utils.batches import batch_set as batch_set
    from composer.utils.compression import KNOWN_COMPRESSORS as KNOWN_COMPRESSORS
    from composer.utils.compression import CliCompressor as CliCompressor
    from composer.utils.compression import get_compressor as get_compressor
    from composer.utils.compression import is_compressed_pt as is_compressed_pt
    from composer.utils.dtypes import STR_TO_DTYPE as STR_TO_DTYPE
    from composer.utils.environment_report import configure_excepthook as configure_excepthook
    from composer.utils.environment_report import disable_env_report as disable_env_report
    from composer.utils.environment_report import enable_env_report as enable_env_report
    from composer.utils.environment_report import get_composer_env_dict as get_composer_env_dict
    from composer.utils.environment_report import print_env as print_env
    from composer.utils.hparams import (
        convert_flat_dict_to_nested_dict as convert_flat_dict_to_nested_dict,
    )
    from composer.utils.hparams import (
        convert_nested_dict_to_flat_dict as convert_nested_dict_to_flat_dict,
    )
    from composer.utils.hparams import extract_hparams as extract_hparams
    from composer.utils.imports import (
        MissingConditionalImportError as MissingConditionalImportError,
    )
    from composer.utils.imports import import_object as import_object
    from composer.utils.imports import is_hpu_installed as is_hpu_installed
    from composer.utils.imports import is_xla_installed as is_xla_installed
    from composer.utils.iteration import IteratorFileStream as IteratorFileStream
    from composer.utils.iteration import ensure_tuple as ensure_tuple
    from composer.utils.iteration import map_collection as map_collection
    from composer.utils.module_surgery import ReplacementFunction as ReplacementFunction
    from composer.utils.module_surgery import count_module_instances as count_module_instances
    from composer.utils.module_surgery import replace_module_classes as replace_module_classes
    from composer.utils.module_surgery import (
        update_params_in_optimizer as update_params_in_optimizer,
    )
    from composer.utils.modules import is_model_ddp as is_model_ddp
    from composer.utils.modules import is_model_fsdp as is_model_fsdp
    from composer.utils.modules import is_model_fsdp2 as is_model_fsdp2
    from composer.utils.modules import model_eval_mode as model_eval_mode
    from composer.utils.notebook import is_notebook as is_notebook
    from composer.utils.object_store import GCSObjectStore as GCSObjectStore
    from composer.utils.object_store import LibcloudObjectStore as LibcloudObjectStore
    from composer.utils.object_store import ObjectStore as ObjectStore
    from composer.utils.object_store import ObjectStoreTransientError as ObjectStoreTransientError
    from composer.utils.object_store import OCIObjectStore as OCIObjectStore
    from composer.utils.object_store import (
        RemoteFilesExistingCheckStatus as RemoteFilesExistingCheckStatus,
    )
    from composer.utils.object_store import RemoteUploader as RemoteUploader
    from composer.utils.object_store import S3ObjectStore as S3ObjectStore
    from composer.utils.object_store import SFTPObjectStore as SFTPObjectStore
    from composer.utils.object_store import build_remote_backend as build_remote_backend
    from composer.utils.object_store import (
        maybe_create_object_store_from_uri as maybe_create_object_store_from_uri,
    )
    from composer.utils.paths import (
        FORMAT_NAME_WITH_DIST_AND_TIME_TABLE as FORMAT_NAME_WITH_DIST_AND_TIME_TABLE,
    )
    from composer.utils.paths import FORMAT_NAME_WITH_DIST_TABLE as FORMAT_NAME_WITH_DIST_TABLE
    from composer.utils.paths import atomic_write as atomic_write
    from composer.utils.paths import create_symlink_file as create_symlink_file
    from composer.utils.paths import ensure_folder_is_empty as ensure_folder_is_empty
    from composer.utils.paths import format_name_with_dist as format_name_with_dist
    from composer.utils.paths import (
        format_name_with_dist_and_time as format_name_with_dist_and_time,
    )
    from composer.utils.paths import is_tar as is_tar
    from composer.utils.paths import is_uri as is_uri
    from composer.utils.paths import parse_uri as parse_uri
    from composer.utils.paths import partial_format as partial_format
    from composer.utils.ports import get_free_tcp_port as get_free_tcp_port
    from composer.utils.reproducibility import MAX_SEED as MAX_SEED
    from composer.utils.reproducibility import (
        configure_deterministic_mode as configure_deterministic_mode,
    )
    from composer.utils.reproducibility import get_random_seed as get_random_seed
    from composer.utils.reproducibility import get_rng_state as get_rng_state
    from composer.utils.reproducibility import load_rng_state as load_rng_state
    from composer.utils.reproducibility import seed_all as seed_all
    from composer.utils.reproducibility import seed_context as seed_context
    from composer.utils.retrying import retry as retry
    from composer.utils.string_enum import StringEnum as StringEnum
    from composer.utils.suggestions import did_you_mean as did_you_mean
    from composer.utils.templates import (
        ensure_folder_has_no_conflicting_files as ensure_folder_has_no_conflicting_files,
    )
    from composer.utils.transfer import extract_path_from_symlink as extract_path_from_symlink
    from composer.utils.transfer import get_file as get_file
    from composer.utils.transfer import list_remote_objects as list_remote_objects
    from composer.utils.transfer import (
        maybe_create_remote_uploader_downloader_from_uri as maybe_create_remote_uploader_downloader_from_uri,  # noqa: E501
    )
    from composer.utils.transfer import validate_credentials as validate_credentials
    from composer.utils.vision import add_vision_dataset_transform as add_vision_dataset_transform
    from composer.utils.warnings import VersionedDeprecationWarning as VersionedDeprecationWarning

# Name -> module of this package that defines it.
_HOMES = {
    "extract_file": "archives",
    "pack_file": "archives",
    "batch_get": "batches",
    "batch_set": "batches",
    "KNOWN_COMPRESSORS": "compression",
    "CliCompressor": "compression",
    "get_compressor": "compression",
    "is_compressed_pt": "compression",
    "STR_TO_DTYPE": "dtypes",
    "configure_excepthook": "environment_report",
    "disable_env_report": "environment_report",
    "enable_env_report": "environment_report",
    "get_composer_env_dict": "environment_report",
    "print_env": "environment_report",
    "convert_flat_dict_to_nested_dict": "hparams",
    "convert_nested_dict_to_flat_dict": "hparams",
    "extract_hparams": "hparams",
    "MissingConditionalImportError": "imports",
    "import_object": "imports",
    "is_hpu_installed": "imports",
    "is_xla_installed": "imports",
    "IteratorFileStream": "iteration",
    "ensure_tuple": "iteration",
    "map_collection": "iteration",
    "ReplacementFunction": "module_surgery",
    "count_module_instances": "module_surgery",
    "replace_module_classes": "module_surgery",
    "update_params_in_optimizer": "module_surgery",
    "is_model_ddp": "modules",
    "is_model_fsdp": "modules",
    "is_model_fsdp2": "modules",
    "model_eval_mode": "modules",
    "is_notebook": "notebook",
    "ObjectStore": "object_store",
    "GCSObjectStore": "object_store",
    "LibcloudObjectStore": "object_store",
    "OCIObjectStore": "object_store",
    "RemoteFilesExistingCheckStatus": "object_store",
    "RemoteUploader": "object_store",
    "S3ObjectStore": "object_store",
    "SFTPObjectStore": "object_store",
    "ObjectStoreTransientError": "object_store",
    "build_remote_backend": "object_store",
    "maybe_create_object_store_from_uri": "object_store",
    "FORMAT_NAME_WITH_DIST_AND_TIME_TABLE": "paths",
    "FORMAT_NAME_WITH_DIST_TABLE": "paths",
    "atomic_write": "paths",
    "create_symlink_file": "paths",
    "ensure_folder_has_no_conflicting_files": "templates",
    "ensure_folder_is_empty": "paths",
    "format_name_with_dist": "paths",
    "format_name_with_dist_and_time": "paths",
    "is_tar": "paths",
    "is_uri": "paths",
    "parse_uri": "paths",
    "partial_format": "paths",
    "get_free_tcp_port": "ports",
    "MAX_SEED": "reproducibility",
    "configure_deterministic_mode": "reproducibility",
    "get_random_seed": "reproducibility",
    "get_rng_state": "reproducibility",
    "load_rng_state": "reproducibility",
    "seed_all": "reproducibility",
    "seed_context": "reproducibility",
    "retry": "retrying",
    "StringEnum": "string_enum",
    "did_you_mean": "suggestions",
    "extract_path_from_symlink": "transfer",
    "get_file": "transfer",
    "list_remote_objects": "transfer",
    "maybe_create_remote_uploader_downloader_from_uri": "transfer",
    "validate_credentials": "transfer",
    "add_vision_dataset_transform": "vision",
    "VersionedDeprecationWarning": "warnings",
    # Of upper floors of this distribution.
    "create_interval_scheduler": "composer.core.intervals",
    "get_device": "composer.devices.select",
}

# Names of `composer.utils` whose code other distributions bring. A star import does not ask for
# them, since those may be missing.
_ELSEWHERE = {
    "ExportFormat": "composer.checkpoint.inference",
    "Transform": "composer.checkpoint.inference",
    "export_for_inference": "composer.checkpoint.inference",
    "export_with_logger": "composer.checkpoint.inference",
    "get_save_filename": "composer.checkpoint",
    "load_checkpoint": "composer.checkpoint",
    "quantize_dynamic": "composer.checkpoint.inference",
    "read_checkpoint": "composer.checkpoint",
    "safe_torch_load": "composer.checkpoint",
    "save_checkpoint": "composer.checkpoint",
}

# Names that come with a later release; their home says so.
_LATER = {
    "MLFLOW_EXPERIMENT_ID_FORMAT_KEY": "object_store",
    "MLFLOW_RUN_ID_FORMAT_KEY": "object_store",
    "MLFlowObjectStore": "object_store",
    "UCObjectStore": "object_store",
}

__getattr__, __dir__ = lazy_names(__name__, {**_HOMES, **_ELSEWHERE, **_LATER}, modules=("dist",))

if not TYPE_CHECKING:
    # A type checker takes the imports above for the exported names.
    __all__ = sorted([*_HOMES, "dist"])
