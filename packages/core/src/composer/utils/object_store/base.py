"""The contract of an object store, which is what the library calls."""

from __future__ import annotations

import pathlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

__all__ = ["ObjectStore", "ObjectStoreTransientError"]

#: Called with the bytes moved so far and the bytes in all.
ProgressCallback = Callable[[int, int], None]


class ObjectStoreTransientError(RuntimeError):
    """A request failed and may succeed when tried again.

    Example:
        >>> issubclass(ObjectStoreTransientError, RuntimeError)
        True
    """


class ObjectStore(ABC):
    """Keeps files under names, somewhere else.

    Example:
        >>> from composer.utils.object_store.local import LocalObjectStore
        >>> isinstance(LocalObjectStore(), ObjectStore)
        True
    """

    @classmethod
    def from_bucket(cls, bucket: str) -> Self:
        """Open the store that a URI names.

        Args:
            bucket: The bucket of the URI.

        Returns:
            The store.

        Example:
            >>> from composer.utils.object_store.local import LocalObjectStore
            >>> LocalObjectStore.from_bucket("").get_uri("a")
            'file:///a'
        """
        return cls(bucket=bucket)  # type: ignore[call-arg]

    @abstractmethod
    def get_uri(self, object_name: str) -> str:
        """Return the URI of an object, whether or not it exists.

        Args:
            object_name: Its name.

        Returns:
            The URI.

        Example:
            >>> from composer.utils.object_store.local import LocalObjectStore
            >>> LocalObjectStore("/data").get_uri("a.pt")
            'file:///data/a.pt'
        """

    @abstractmethod
    def upload_object(
        self,
        object_name: str,
        filename: str | pathlib.Path,
        callback: ProgressCallback | None = None,
        **kwargs: Any,
    ) -> None:
        """Store a file.

        Args:
            object_name: The name to store it under; replaced if it exists.
            filename: The file.
            callback: Told about progress.
            **kwargs: What a particular store takes.

        Raises:
            ObjectStoreTransientError: If trying again may help.

        Example:
            >>> import tempfile
            >>> from composer.utils.object_store.local import LocalObjectStore
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder, "a")
            ...     _ = path.write_text("hello")
            ...     LocalObjectStore(folder).upload_object("b", path)
            ...     pathlib.Path(folder, "b").read_text()
            'hello'
        """

    @abstractmethod
    def get_object_size(self, object_name: str) -> int:
        """Return the size of an object.

        Args:
            object_name: Its name.

        Returns:
            The number of bytes.

        Raises:
            FileNotFoundError: If there is none.
            ObjectStoreTransientError: If trying again may help.

        Example:
            >>> import tempfile
            >>> from composer.utils.object_store.local import LocalObjectStore
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = pathlib.Path(folder, "a").write_text("hello")
            ...     LocalObjectStore(folder).get_object_size("a")
            5
        """

    @abstractmethod
    def download_object(
        self,
        object_name: str,
        filename: str | pathlib.Path,
        overwrite: bool = False,
        callback: ProgressCallback | None = None,
    ) -> None:
        """Fetch an object. The file appears complete or not at all.

        Args:
            object_name: Its name.
            filename: The file to write.
            overwrite: Replace an existing file.
            callback: Told about progress.

        Raises:
            FileExistsError: If the file exists and may not be replaced.
            FileNotFoundError: If there is no such object.
            ObjectStoreTransientError: If trying again may help.

        Example:
            >>> import tempfile
            >>> from composer.utils.object_store.local import LocalObjectStore
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = pathlib.Path(folder, "a").write_text("hello")
            ...     LocalObjectStore(folder).download_object("a", f"{folder}/b")
            ...     pathlib.Path(folder, "b").read_text()
            'hello'
        """

    @abstractmethod
    def list_objects(self, prefix: str | None = None) -> list[str]:
        """List objects.

        Args:
            prefix: Only those whose names start with it.

        Returns:
            Their names, sorted, each as the other methods take it.

        Raises:
            ObjectStoreTransientError: If trying again may help.

        Example:
            >>> import tempfile
            >>> from composer.utils.object_store.local import LocalObjectStore
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = pathlib.Path(folder, "a").write_text("hello")
            ...     LocalObjectStore(folder).list_objects()
            ['a']
        """

    def delete_object(self, object_name: str) -> None:
        """Remove an object; one that is not there is no error.

        Args:
            object_name: Its name.

        Raises:
            NotImplementedError: If the store cannot; such a store keeps all it was given.
            ObjectStoreTransientError: If trying again may help.

        Example:
            >>> import tempfile
            >>> from composer.utils.object_store.local import LocalObjectStore
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = pathlib.Path(folder, "a").write_text("hello")
            ...     LocalObjectStore(folder).delete_object("a")
            ...     LocalObjectStore(folder).list_objects()
            []
        """
        raise NotImplementedError(f"{type(self).__name__} cannot delete {object_name!r}.")

    def close(self) -> None:  # noqa: B027 - most stores have nothing to give back
        """Give connections back. The store must not be used afterwards.

        Example:
            >>> from composer.utils.object_store.local import LocalObjectStore
            >>> LocalObjectStore().close()
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
