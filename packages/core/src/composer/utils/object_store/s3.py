"""S3 and what speaks its protocol."""

from __future__ import annotations

import math
import os
import pathlib
import threading
from collections.abc import Callable
from typing import Any, final

from composer.utils.object_store.errors import HiddenObjectError, service_code
from composer.utils.object_store.fsspec_store import FsspecTemplate
from composer.utils.suggestions import did_you_mean

__all__ = ["S3ObjectStore"]

# A multipart upload may have ten thousand parts.
_MAX_PARTS = 9_000
# What `transfer_config` may hold, as boto3 spells it; the rest tunes boto3's own machinery.
_TRANSFER = {"multipart_threshold", "multipart_chunksize", "max_concurrency"}
_TRANSFER_IGNORED = {
    *("use_threads", "num_download_attempts", "max_io_queue", "io_chunksize"),
    *("max_bandwidth", "preferred_transfer_client"),
}


@final
class S3ObjectStore(FsspecTemplate):
    """Keeps objects in a bucket of S3, or of a service that speaks its protocol.

    Names are relative to ``prefix``, those of listings too. ``S3_CANNED_ACL`` in the environment
    is the access list of uploads.

    S3 answers 403 for a missing object where the credentials may not list the bucket. Where a
    listing is refused as well, ``HiddenObjectError`` is raised, which is both a
    ``FileNotFoundError`` and a ``PermissionError``; where it is not, the listing decides.

    Args:
        bucket: The bucket.
        prefix: A folder in it.
        region_name: The region.
        endpoint_url: The address of another service than Amazon's; by default what
            ``S3_ENDPOINT_URL`` in the environment says.
        aws_access_key_id: The key, where the usual places (environment, files, machine) have none.
        aws_secret_access_key: Its secret.
        aws_session_token: The token of temporary credentials.
        client_config: Arguments of ``botocore.config.Config``.
        transfer_config: ``multipart_threshold``, ``multipart_chunksize`` and ``max_concurrency``,
            as of boto3's ``TransferConfig``; its other arguments have no effect.
        timeout: Seconds to wait for an answer that does not go on.
        num_attempts: How often a request is made at most.

    Raises:
        MissingConditionalImportError: If s3fs is not installed.
        ValueError: If ``transfer_config`` has an unknown key.

    Example:
        >>> S3ObjectStore.from_bucket("bucket").get_uri("ep1.pt")  # doctest: +SKIP
        's3://bucket/ep1.pt'
        >>> S3ObjectStore.kit
        's3fs'
    """

    extra = "s3"
    kit = "s3fs"
    _narrows = True

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        region_name: str | None = None,
        endpoint_url: str | None = None,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        aws_session_token: str | None = None,
        client_config: dict[Any, Any] | None = None,
        transfer_config: dict[Any, Any] | None = None,
        *,
        timeout: float = 60.0,
        num_attempts: int = 5,
    ) -> None:
        super().__init__(f"s3://{bucket}/{prefix.strip('/')}", num_attempts=num_attempts)
        self.bucket = bucket.strip("/")
        self.prefix = prefix.strip("/")
        self.timeout = timeout
        self.transfer_config = dict(transfer_config or {})
        for key in self.transfer_config:
            if key not in _TRANSFER | _TRANSFER_IGNORED:
                raise ValueError(
                    f"transfer_config has the unknown key {key!r}; known are: "
                    f"{', '.join(sorted(_TRANSFER))}.{did_you_mean(str(key), _TRANSFER)}"
                )
        self.chunk_size = int(self.transfer_config.get("multipart_chunksize", self.chunk_size))
        self.max_concurrency = int(
            self.transfer_config.get("max_concurrency", self.max_concurrency)
        )
        self.multipart_threshold = int(
            self.transfer_config.get("multipart_threshold", 2 * self.chunk_size)
        )
        endpoint_url = endpoint_url or os.environ.get("S3_ENDPOINT_URL")
        config: dict[str, Any] = {
            "connect_timeout": min(timeout, 20.0),
            "read_timeout": timeout,
            # Tries of three floors would multiply; ours know the object and say what they did.
            "retries": {"total_max_attempts": 1},
            "max_pool_connections": max(10, self.max_concurrency),
        }
        if endpoint_url is not None:
            # Services that are not Amazon's refuse checksums they have never heard of.
            config["request_checksum_calculation"] = "when_required"
            config["response_checksum_validation"] = "when_required"
        self.storage_options = {
            "endpoint_url": endpoint_url,
            "key": aws_access_key_id,
            "secret": aws_secret_access_key,
            "token": aws_session_token,
            "client_kwargs": {"region_name": region_name} if region_name else {},
            "config_kwargs": {**config, **(client_config or {})},
        }

    def get_key(self, object_name: str) -> str:
        """Return the name of an object in the bucket.

        Args:
            object_name: Its name in the store.

        Returns:
            The name with the prefix.

        Example:
            >>> S3ObjectStore("bucket", "run1").get_key("ep1.pt")  # doctest: +SKIP
            'run1/ep1.pt'
        """
        return self._path(object_name.lstrip("/")).removeprefix(f"{self.bucket}/")

    def _open(self) -> Any:
        from s3fs import S3FileSystem

        fs = S3FileSystem(
            use_listings_cache=False, skip_instance_cache=True, **self.storage_options
        )
        fs.retries = 1
        return fs

    def _explain_refusal(self, name: str, error: PermissionError) -> None:
        """Raise a better error than a 403, if the service has one."""
        try:
            found = self.fs.call_s3(
                "list_objects_v2", Bucket=self.bucket, Prefix=self.get_key(name), MaxKeys=1
            )
        except PermissionError as refusal:
            if service_code(refusal) in ("AccessDenied", None):
                raise HiddenObjectError(
                    f"{self.get_uri(name)}: it does not exist, or may not be read with these "
                    "credentials, which may not list the bucket either"
                ) from error
            # Such as an expired token or a wrong key; a HEAD cannot say so.
            raise
        if self.get_key(name) not in {each["Key"] for each in found.get("Contents", ())}:
            raise FileNotFoundError(f"{self.get_uri(name)}: there is no such object") from error

    def _check_bucket(self) -> None:
        # An empty listing and a missing bucket look alike to the file system.
        self.fs.call_s3("list_objects_v2", Bucket=self.bucket, MaxKeys=1)

    def _store(
        self, name: str, path: pathlib.Path, report: Callable[[int], None], **kwargs: Any
    ) -> None:
        options = {**kwargs.pop("ExtraArgs", {}), **kwargs}
        if acl := os.environ.get("S3_CANNED_ACL"):
            options.setdefault("ACL", acl)
        self._check_options(options)
        if path.stat().st_size >= max(self.multipart_threshold, 1):
            self._store_in_parts(name, path, report, options)
        else:
            super()._store(name, path, report, **options)

    def _check_options(self, options: dict[str, Any]) -> None:
        """Refuse what the file system would leave out without a word."""
        if not options:
            return
        known = self.fs.s3.meta.service_model.operation_model("PutObject").input_shape.members
        for key in options:
            if key not in known:
                raise TypeError(
                    f"S3ObjectStore.upload_object takes no {key}.{did_you_mean(key, known)} "
                    "It takes what the request PutObject takes, such as ACL or StorageClass."
                )

    def _write(
        self, name: str, path: pathlib.Path, report: Callable[[int], None], **kwargs: Any
    ) -> None:
        where = {"Bucket": self.bucket, "Key": self.get_key(name)}
        self.fs.call_s3("put_object", **where, Body=path.read_bytes(), **kwargs)

    def _store_in_parts(
        self,
        name: str,
        path: pathlib.Path,
        report: Callable[[int], None],
        options: dict[str, Any],
    ) -> None:
        size = path.stat().st_size
        chunk = max(self.chunk_size, 5 << 20, math.ceil(size / _MAX_PARTS))
        where = {"Bucket": self.bucket, "Key": self.get_key(name)}
        upload = self._try(
            "beginning an upload",
            name,
            lambda: self.fs.call_s3("create_multipart_upload", **where, **options),
        )
        where["UploadId"] = upload["UploadId"]
        done, lock = 0, threading.Lock()

        def send(start: int) -> dict[str, Any]:
            nonlocal done
            with path.open("rb") as file:
                file.seek(start)
                body = file.read(chunk)
            number = start // chunk + 1
            sent = self._try(
                f"storing part {number}",
                name,
                lambda: self.fs.call_s3("upload_part", **where, PartNumber=number, Body=body),
            )
            with lock:
                done += len(body)
            return {"PartNumber": number, "ETag": sent["ETag"]}

        try:
            parts = []
            for part in self._in_parallel(send, range(0, size, chunk)):
                parts.append(part)
                report(done)
            parts.sort(key=lambda part: part["PartNumber"])
            self._complete(name, size, where, parts)
        except BaseException:
            self._abort(name, where)
            raise

    def _complete(
        self, name: str, size: int, where: dict[str, Any], parts: list[dict[str, Any]]
    ) -> None:
        try:
            self._try(
                "completing the upload",
                name,
                lambda: self.fs.call_s3(
                    "complete_multipart_upload", **where, MultipartUpload={"Parts": parts}
                ),
            )
        except FileNotFoundError:
            # Done already, by a request whose answer was lost?
            if self._stat(name).size != size:
                raise

    def _abort(self, name: str, where: dict[str, Any]) -> None:
        """Let the service forget the parts, which cost money and no listing shows."""
        try:
            self.fs.call_s3("abort_multipart_upload", **where)
        except Exception as error:
            import warnings

            warnings.warn(
                f"{self.get_uri(name)}: the parts of an upload that failed could not be removed "
                f"({error}); a lifecycle rule of the bucket can do it.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _close_client(self, fs: Any) -> None:
        from fsspec.asyn import sync

        client = getattr(fs, "_s3", None)
        if client is not None:
            fs._s3 = None
            sync(fs.loop, client.close, timeout=5)
