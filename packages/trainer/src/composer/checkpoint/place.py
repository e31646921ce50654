"""The contract of a place where checkpoints are kept, which a folder and a store fulfil alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from composer.checkpoint.manifest import Manifest

__all__ = ["Place"]


class Place(ABC):
    """Keeps checkpoints under names.

    Example:
        >>> import inspect
        >>> inspect.isabstract(Place)
        True
    """

    @abstractmethod
    def prepare(self, templates: Iterable[str], run_name: str) -> None:
        """Find out now whether it can be written to; remove what killed saves left.

        Args:
            templates: Those of all names that a run writes here, links included.
            run_name: The name of the run.

        Raises:
            OSError: If it cannot.
        """

    @abstractmethod
    def names(self, template: str, run_name: str) -> list[str]:
        """List what is there of a template.

        Args:
            template: The template of the names.
            run_name: The name of the run.

        Returns:
            Names relative to this place, sorted.
        """

    @abstractmethod
    def folders(self, template: str, run_name: str) -> list[str]:
        """List the folders under names of a template, where no file can be written.

        Args:
            template: The template of the names.
            run_name: The name of the run.

        Returns:
            Names relative to this place, sorted; none where folders are a part of names only.
        """

    @abstractmethod
    def written_by(self, name: str) -> str | None:
        """Say which run wrote a checkpoint, by its manifest.

        Args:
            name: Its name.

        Returns:
            The run's name; ``None`` without a manifest that tells.
        """

    @abstractmethod
    def takes_link(self, link: str) -> bool:
        """Say whether a link can be made or moved.

        Args:
            link: Name of the link.

        Returns:
            False if something is there that is no link.
        """

    @abstractmethod
    def has(self, name: str) -> bool:
        """Say whether there is a file of a name.

        Args:
            name: The name.

        Returns:
            True if there is, and it is no link.
        """

    @abstractmethod
    def path(self, name: str) -> str:
        """Return the path or URI of a name.

        Args:
            name: The name.

        Returns:
            What ``load_path`` takes.
        """

    @abstractmethod
    def holds(self, path: str) -> bool:
        """Say whether a path or URI lies here.

        Args:
            path: The path or URI.

        Returns:
            True if it does.
        """

    @abstractmethod
    def put(
        self, name: str, contents: dict[str, Any], facts: Manifest, then: Callable[[str], None]
    ) -> None:
        """Store a checkpoint: data, manifest, and a look whether both are there.

        Args:
            name: Its name.
            contents: What it holds.
            facts: What is known of it.
            then: Called with the path of the complete file on this machine, while it is there.

        Raises:
            OSError: If it cannot be stored; what was there before is untouched.
        """

    @abstractmethod
    def point(self, link: str, name: str | None) -> None:
        """Let a link lead to a checkpoint.

        Args:
            link: Name of the link.
            name: Name of the checkpoint; ``None`` removes the link.
        """

    @abstractmethod
    def target(self, link: str) -> str | None:
        """Find out where a link leads.

        Args:
            link: Name of the link.

        Returns:
            The name of a checkpoint here, which need not exist; ``None`` if there is no such link,
            or if it leads elsewhere.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete a checkpoint, its manifest first; one that is gone is no error.

        Args:
            name: Its name. In a store that cannot delete it stays, and that is said once.

        Raises:
            OSError: If it cannot be deleted.
        """

    def close(self) -> None:  # noqa: B027 - a folder holds nothing
        """Give back what is held."""
