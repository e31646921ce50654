"""Saves checkpoints while a run goes on: what, where and when are three separate settings."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer.checkpoint.layout import IgnoreKeys
from composer.checkpoint.save import get_save_filename, link_latest, retained, save_checkpoint
from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.intervals import IntervalScheduler, create_interval_scheduler
from composer.core.time import Time
from composer.utils import dist
from composer.utils.paths import (
    ensure_folder_has_no_conflicting_files,
    format_name_with_dist,
    is_inside,
    is_uri,
    matches_template,
)

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["CheckpointSaver"]

log = logging.getLogger(__name__)

_SECONDS_A_SAVE_MAY_TAKE = 24 * 3600


class CheckpointSaver(Callback):
    """Saves checkpoints at an interval and once more at the end of training.

    A checkpoint is written under a temporary name, flushed to the disk and renamed; then the link
    to the newest one moves; then those beyond the number to keep are deleted. The names are part
    of the saved state, so that the number to keep holds over resumption; only files in this run's
    own folder that bear a name of its template are ever counted or deleted.

    Args:
        folder: Where to save; may hold ``{run_name}``.
        filename: Name of a checkpoint; see ``composer.utils.FORMAT_NAME_WITH_DIST_AND_TIME_TABLE``.
        remote_file_name: Name under which logger destinations that keep files receive it;
            ``None`` for not at all.
        latest_filename: Name of the link to the newest checkpoint; ``None`` for none.
        latest_remote_file_name: Name of that link at the destinations.
        save_interval: An int (epochs), a time string, a time, or a function of state and event.
        overwrite: Whether files that could clash with this run's later checkpoints are allowed.
        num_checkpoints_to_keep: How many to keep in the folder; -1 for all.
        weights_only: Whether to save the model only.
        ignore_keys: What to leave out of the checkpoints.
        num_concurrent_uploads: Uploads at a time.
        upload_timeout_in_seconds: How long an upload may take.

    Raises:
        NotImplementedError: If ``folder`` is a URI of a remote store.
        ValueError: If a number is out of range.

    Example:
        >>> saver = CheckpointSaver(folder="checkpoints", save_interval="500ba")
        >>> saver.saved_checkpoints
        []
    """

    def __init__(
        self,
        folder: str | Path = "{run_name}/checkpoints",
        filename: str | Path = "ep{epoch}-ba{batch}-rank{rank}.pt",
        remote_file_name: str
        | Path
        | None = "{run_name}/checkpoints/ep{epoch}-ba{batch}-rank{rank}.pt",
        latest_filename: str | Path | None = "latest-rank{rank}.pt",
        latest_remote_file_name: str | Path | None = "{run_name}/checkpoints/latest-rank{rank}.pt",
        save_interval: Time[int] | str | int | Callable[[State, Event], bool] = "1ep",
        *,
        overwrite: bool = False,
        num_checkpoints_to_keep: int = -1,
        weights_only: bool = False,
        ignore_keys: IgnoreKeys = None,
        num_concurrent_uploads: int = 1,
        upload_timeout_in_seconds: int = 3600,
    ) -> None:
        folder = str(folder)
        if folder.startswith("file://"):
            folder = folder.removeprefix("file://")
        if is_uri(folder):
            raise NotImplementedError(
                f"save_folder={folder!r} is a remote store; saving to one comes with object "
                f"stores. Give a local folder"
            )
        if not isinstance(num_checkpoints_to_keep, int) or num_checkpoints_to_keep < -1:
            raise ValueError(
                f"num_checkpoints_to_keep must be a whole number, -1 for all, not "
                f"{num_checkpoints_to_keep!r}"
            )
        if num_concurrent_uploads != 1 or upload_timeout_in_seconds != 3600:
            raise NotImplementedError(
                "num_concurrent_uploads and upload_timeout_in_seconds come with object stores"
            )
        self.folder = folder
        self.filename = str(filename)
        self.remote_file_name = None if remote_file_name is None else str(remote_file_name)
        self.latest_filename = None if latest_filename is None else str(latest_filename)
        self.latest_remote_file_name = (
            None if latest_remote_file_name is None else str(latest_remote_file_name)
        )
        self.overwrite = overwrite
        self.num_checkpoints_to_keep = num_checkpoints_to_keep
        self.weights_only = weights_only
        self.ignore_keys = ignore_keys
        self.num_concurrent_uploads = num_concurrent_uploads
        self.upload_timeout_in_seconds = upload_timeout_in_seconds
        self.save_interval = create_interval_scheduler(save_interval)
        self._where: Path | None = None
        self._saved: list[str] = []
        self._checked = False
        self._timestamps: dict[str, dict[str, Any]] = {}

    # ---- what was saved -----------------------------------------------------------------------

    @property
    def saved_checkpoints(self) -> list[str]:
        """Paths of the checkpoints that are kept, oldest first."""
        return [] if self._where is None else [str(self._where / name) for name in self._saved]

    @property
    def all_saved_checkpoints_to_timestamp(self) -> dict[str, dict[str, Any]]:
        """Path of every checkpoint ever saved to the fields of its timestamp."""
        where = Path(self.folder) if self._where is None else self._where
        return {str(where / name): fields for name, fields in self._timestamps.items()}

    # ---- events -------------------------------------------------------------------------------

    def init(self, state: State, logger: Logger) -> None:
        """Make the folder and try to write in it, so that a bad one is told at once.

        Args:
            state: The state of the run.
            logger: Unused.

        Raises:
            OSError: If the folder cannot be made or written in.
        """
        del logger
        folder = self._folder(state)
        if dist.get_global_rank() != 0:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
            self._remove_leftovers(folder)
        except OSError as error:
            raise type(error)(
                error.errno,
                f"checkpoints cannot be saved in save_folder={str(folder)!r} ({error.strerror}); "
                f"choose a folder that can be written",
            ) from error

    def _remove_leftovers(self, folder: Path) -> None:
        """Delete what a killed save left, once it is too old to be one that goes on."""
        for path in folder.glob(".*.tmp"):
            if not matches_template(path.name[1:].rsplit(".", 2)[0], self.filename):
                continue
            # Another process may be at work in the folder; what cannot be deleted stays.
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _SECONDS_A_SAVE_MAY_TAKE:
                    path.unlink()

    def fit_start(self, state: State, logger: Logger) -> None:
        """Refuse to start if later checkpoints of this run would meet files of another.

        Args:
            state: The state of the run.
            logger: Unused.

        Raises:
            FileExistsError: If the folder holds such files and ``overwrite`` is false.
        """
        del logger
        if isinstance(self.save_interval, IntervalScheduler):
            self.save_interval.restart()
        # A checkpoint says what its run had saved. Only if it lies here is that this run's.
        folder = self._folder(state)
        if state.load_path is not None and not self._checked:
            own = is_inside(state.load_path, folder)
            self._saved = [n for n in self._saved if own and self._is_ours(folder, n)]
        self._checked = True
        if not self.overwrite and dist.get_global_rank() == 0:
            try:
                ensure_folder_has_no_conflicting_files(
                    self._folder(state), self.filename, state.timestamp
                )
            except FileExistsError as error:
                raise FileExistsError(
                    f"{error} With the trainer: save_overwrite=True to allow it, autoresume=True "
                    f"and a run_name to go on with that run, or another save_folder"
                ) from None

    def batch_checkpoint(self, state: State, logger: Logger) -> None:
        """Save if it is due.

        Args:
            state: The state of the run.
            logger: Receives the file.
        """
        if self.save_interval(state, Event.BATCH_CHECKPOINT):
            self.save(state, logger)

    def epoch_checkpoint(self, state: State, logger: Logger) -> None:
        """Save if it is due.

        Args:
            state: The state of the run.
            logger: Receives the file.
        """
        if self.save_interval(state, Event.EPOCH_CHECKPOINT):
            self.save(state, logger)

    def iteration_checkpoint(self, state: State, logger: Logger) -> None:
        """Save if it is due.

        Args:
            state: The state of the run.
            logger: Receives the file.
        """
        if self.save_interval(state, Event.ITERATION_CHECKPOINT):
            self.save(state, logger)

    # ---- saving -------------------------------------------------------------------------------

    def _folder(self, state: State) -> Path:
        # Found once: a process that changes its working folder goes on saving where it began.
        if self._where is None:
            self._where = Path(format_name_with_dist(self.folder, state.run_name)).absolute()
        return self._where

    def _is_ours(self, folder: Path, name: str) -> bool:
        """Whether a stored name is a checkpoint of this run, and not a path to somewhere else."""
        path = folder / name
        leaves = Path(name).is_absolute() or ".." in Path(name).parts
        return (
            not leaves
            and matches_template(name, self.filename)
            and path.is_file()
            and not path.is_symlink()
        )

    def save(self, state: State, logger: Logger) -> str | None:
        """Save now.

        Args:
            state: The state of the run.
            logger: Receives the file.

        Returns:
            The path, or ``None`` on ranks that do not write.

        Raises:
            OSError: If the file cannot be written; earlier checkpoints are untouched.
        """
        folder = self._folder(state)
        name = get_save_filename(state, self.filename)
        # What was reported before the checkpoint is on disk before the checkpoint is.
        logger.flush()
        # The checkpoint lists itself, so that a run which resumes from it counts it.
        before = self._saved, self._timestamps
        self._saved = [n for n in self._saved if n != name] + [name]
        self._timestamps = {**self._timestamps, name: state.timestamp.state_dict()}
        try:
            written = save_checkpoint(
                state,
                str(folder / name),
                weights_only=self.weights_only,
                ignore_keys=self.ignore_keys,
            )
        except BaseException:
            self._saved, self._timestamps = before
            raise
        if written is not None:
            self._publish(state, logger, folder, written)
        return written

    def _publish(self, state: State, logger: Logger, folder: Path, path: str) -> None:
        if self.latest_filename is not None and self.num_checkpoints_to_keep != 0:
            latest = format_name_with_dist(self.latest_filename, state.run_name)
            link_latest(path, folder / latest)
        if self.remote_file_name is not None and logger.has_file_upload_destination():
            remote = get_save_filename(state, self.remote_file_name)
            logger.upload_file(remote, path, overwrite=self.overwrite)
        self._saved, surplus = retained(self._saved, self.num_checkpoints_to_keep)
        for old in surplus:
            try:
                (folder / old).unlink()
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warning("the old checkpoint %s could not be deleted: %s", old, error)

    # ---- state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the names and timestamps of what was saved.

        Returns:
            Plain types.
        """
        return {"saved_checkpoints": list(self._saved), "timestamps": dict(self._timestamps)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the names and timestamps; those that are not this run's are dropped at its start.

        Args:
            state: What :meth:`state_dict` returned.
        """
        self._saved = list(state["saved_checkpoints"])
        self._checked = False
        self._timestamps = dict(state["timestamps"])
