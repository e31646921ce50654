"""Repositories and buckets of the Hugging Face Hub."""

from __future__ import annotations

from typing import Any, final

from composer.utils.object_store.fsspec_store import FsspecFileStore

__all__ = ["HuggingFaceObjectStore"]


@final
class HuggingFaceObjectStore(FsspecFileStore):
    """Keeps objects in a repository on the Hugging Face Hub. Every upload is a commit.

    Args:
        bucket: The first part of the path: ``datasets``, ``spaces``, or for a model its owner.
        prefix: The rest: the repository and a folder in it.
        token: An access token; by default that of the environment or of ``hf auth login``.
        endpoint: The address of another hub; by default what ``HF_ENDPOINT`` says.
        num_attempts: How often a request is made at most.

    Raises:
        MissingConditionalImportError: If huggingface_hub is not installed.

    Example:
        >>> HuggingFaceObjectStore("datasets", "me/runs").get_uri("a.pt")  # doctest: +SKIP
        'hf://datasets/me/runs/a.pt'
        >>> HuggingFaceObjectStore.extra
        'hf'
    """

    extra = "hf"
    kit = "huggingface_hub"
    # Each upload is a commit on top of the last one.
    max_concurrency = 1

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        token: str | None = None,
        endpoint: str | None = None,
        *,
        num_attempts: int = 5,
    ) -> None:
        super().__init__(f"hf://{bucket}/{prefix.strip('/')}", num_attempts=num_attempts)
        self.bucket = bucket
        self.prefix = prefix
        self.token = token
        self.endpoint = endpoint

    def _open(self) -> Any:
        from huggingface_hub import HfFileSystem

        return HfFileSystem(
            token=self.token,
            endpoint=self.endpoint,
            use_listings_cache=False,
            skip_instance_cache=True,
        )
