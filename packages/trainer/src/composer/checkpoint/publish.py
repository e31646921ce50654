"""One checkpoint on its way: stored, handed on, pointed at, and what it replaces deleted."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer.checkpoint.ledger import Ledger
from composer.checkpoint.manifest import Manifest, manifest_name
from composer.checkpoint.place import Place
from composer.checkpoint.search import POINTER_ENDING
from composer.utils.paths import create_symlink_file

if TYPE_CHECKING:
    from composer.core.logger import Logger

__all__ = ["Publication"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publication:
    """Everything that writing a checkpoint needs besides its contents, known beforehand.

    Attributes:
        place: Where it goes.
        ledger: The list of checkpoints, which names this one already.
        before: What takes it off the list again.
        name: Its name.
        facts: Its manifest as far as it is known.
        latest: The link to the newest, or ``None``.
        best: The link to the best, or ``None``.
        logger: Whose destinations may keep files.
        remote: Its name there, or ``None``.
        remote_latest: The name of the pointer there, or ``None``.
        overwrite: Whether files there may be replaced.
        stale: A link that nobody moves any more, and the checkpoint that it leads to.

    Example:
        >>> import tempfile
        >>> from composer.checkpoint.places import LocalFolder
        >>> from composer.checkpoint.retention import Retention
        >>> from composer.core.logger import Logger
        >>> ledger, place = Ledger(Retention()), LocalFolder(Path(tempfile.mkdtemp()))
        >>> before = ledger.add("a.pt", {}, None)
        >>> facts = Manifest("", 0, {}, "", 1)
        >>> publication = Publication(
        ...     place, ledger, before, "a.pt", facts, "latest.pt", None, Logger(None)
        ... )
        >>> publication.run({"format": 1, "state": {}})
        >>> sorted(p.name for p in place.folder.iterdir())
        ['a.pt', 'a.pt.manifest.json', 'latest.pt']
    """

    place: Place
    ledger: Ledger
    before: Any
    name: str
    facts: Manifest
    latest: str | None
    best: str | None
    logger: Logger
    remote: str | None = None
    remote_latest: str | None = None
    overwrite: bool = False
    stale: tuple[str, str] | None = None

    def run(self, contents: dict[str, Any]) -> None:
        """Do all of it.

        Args:
            contents: What the checkpoint holds.

        Raises:
            OSError: If it could not be stored; it is off the list then.
        """
        self.store(contents)
        self.point_and_delete()

    def store(self, contents: dict[str, Any]) -> None:
        """Write data and manifest, and hand both on.

        Args:
            contents: What the checkpoint holds.

        Raises:
            OSError: If it could not be stored; it is off the list then.
        """
        try:
            self.place.put(self.name, contents, self.facts, self._hand_on)
        except BaseException:
            self.ledger.take_back(self.before)
            raise

    def point_and_delete(self) -> None:
        """Move the links, then delete what no rule keeps."""
        if self.latest is not None:
            self.place.point(self.latest, self.name)
        if self.best is not None:
            best = self.ledger.best
            self.place.point(self.best, best[0].name if best else None)
        for name in self.ledger.drop_surplus(elsewhere=self.remote is not None):
            if self.stale is not None and self.stale[1] == name:
                self.place.point(self.stale[0], None)
            try:
                self.place.remove(name)
            except Exception as error:
                log.warning("the old checkpoint %s could not be deleted: %s", name, error)

    def _hand_on(self, path: str) -> None:
        if self.remote is None:
            return
        upload = self.logger.upload_file
        upload(self.remote, path, overwrite=self.overwrite)
        upload(manifest_name(self.remote), manifest_name(path), overwrite=self.overwrite)
        if self.remote_latest is not None:
            with tempfile.TemporaryDirectory(prefix="composer-link-") as folder:
                link = Path(folder, f"latest{POINTER_ENDING}")
                create_symlink_file(self.remote, link)
                upload(self.remote_latest + POINTER_ENDING, link, overwrite=True)
