"""Object stores: files under names, somewhere else. No client kit is imported before it is used."""

from __future__ import annotations

from composer.utils.object_store.azure import AzureObjectStore
from composer.utils.object_store.base import ObjectStore, ObjectStoreTransientError
from composer.utils.object_store.errors import HiddenObjectError
from composer.utils.object_store.fsspec_store import FsspecObjectStore
from composer.utils.object_store.gcs import GCSObjectStore
from composer.utils.object_store.huggingface import HuggingFaceObjectStore
from composer.utils.object_store.libcloud import LibcloudObjectStore
from composer.utils.object_store.local import LocalObjectStore
from composer.utils.object_store.memory import MemoryObjectStore
from composer.utils.object_store.oci import OCIObjectStore
from composer.utils.object_store.registry import (
    build_remote_backend,
    maybe_create_object_store_from_uri,
)
from composer.utils.object_store.s3 import S3ObjectStore
from composer.utils.object_store.sftp import SFTPObjectStore
from composer.utils.object_store.template import ObjectStat, TemplateObjectStore
from composer.utils.object_store.uploader import RemoteFilesExistingCheckStatus, RemoteUploader
from composer.utils.suggestions import names_that_come_later

__all__ = [
    "AzureObjectStore",
    "FsspecObjectStore",
    "GCSObjectStore",
    "HiddenObjectError",
    "HuggingFaceObjectStore",
    "LibcloudObjectStore",
    "LocalObjectStore",
    "MemoryObjectStore",
    "OCIObjectStore",
    "ObjectStat",
    "ObjectStore",
    "ObjectStoreTransientError",
    "RemoteFilesExistingCheckStatus",
    "RemoteUploader",
    "S3ObjectStore",
    "SFTPObjectStore",
    "TemplateObjectStore",
    "build_remote_backend",
    "maybe_create_object_store_from_uri",
]

__getattr__ = names_that_come_later(
    __name__,
    (
        "MLFLOW_EXPERIMENT_ID_FORMAT_KEY",
        "MLFLOW_RUN_ID_FORMAT_KEY",
        "MLFlowObjectStore",
        "UCObjectStore",
    ),
)
