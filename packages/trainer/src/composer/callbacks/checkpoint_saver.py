"""Saves checkpoints while a run goes on: what, where and when are three separate settings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer.checkpoint.background import Background, HostBuffers
from composer.checkpoint.layout import IgnoreKeys, check_ignored, check_whole
from composer.checkpoint.ledger import Ledger
from composer.checkpoint.manifest import Manifest
from composer.checkpoint.names import (
    BEST_FILENAME,
    Names,
    check_apart,
    check_filled_in,
    check_folder,
    check_last_save,
)
from composer.checkpoint.place import Place
from composer.checkpoint.places import open_place
from composer.checkpoint.publish import Publication
from composer.checkpoint.retention import Retention
from composer.checkpoint.save import collected, describe, get_save_filename
from composer.checkpoint.selection import MetricWatch
from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.intervals import IntervalScheduler, create_interval_scheduler
from composer.core.time import Time
from composer.utils import dist
from composer.utils.object_store.closing import off_request_thread
from composer.utils.paths import format_name_with_dist
from composer.utils.templates import check_template, conflicting_names

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import PendingEvaluations, State

__all__ = ["BEST_FILENAME", "CheckpointSaver"]

log = logging.getLogger(__name__)


class CheckpointSaver(Callback):
    """Saves checkpoints at an interval and once more at the end of training.

    The order is data, manifest, a look whether both are there, the link to the newest, and only
    then the deletion of those that no rule keeps: at every moment the link leads to a complete
    checkpoint. Names, counts and scores are part of the saved state, so that what is kept holds
    over resumption; only files in this run's own folder that bear a name of its template are ever
    counted or deleted.

    Args:
        folder: Where to save: a folder, or a URI such as ``s3://bucket/{run_name}/checkpoints``.
        filename: Name of a checkpoint; see ``composer.utils.FORMAT_NAME_WITH_DIST_AND_TIME_TABLE``.
            Its ending chooses the kind of file: ``.tar`` and its compressed forms, ``.pt.zst`` and
            the like, else a bare file of torch.
        remote_file_name: Name under which logger destinations that keep files receive it;
            ``None`` for not at all.
        latest_filename: Name of the link to the newest checkpoint; ``None`` for none.
        latest_remote_file_name: Name of that link at the destinations, as a text file with
            ``.symlink`` added; ``None`` for none.
        save_interval: An int (epochs), a time string, a time, or a function of state and event.
        overwrite: Whether files that could clash with this run's later checkpoints are allowed. A
            run that continues itself (``autoresume``) replaces its own in any case.
        num_checkpoints_to_keep: How many of the newest to keep; -1 for all.
        weights_only: Whether to save the model only.
        ignore_keys: What to leave out of the checkpoints.
        num_concurrent_uploads: Has no effect: a checkpoint is one object, and its upload ends
            before that of its manifest begins.
        upload_timeout_in_seconds: How long the end of ``fit``, closing and the end of the process
            wait for a checkpoint that is being written.
        async_save: Whether training goes on while a copy in host memory is written by a thread. A
            save that comes while one is under way waits for it; a failure is raised at the next
            batch, or when training ends.
        keep_every: Every how many saved checkpoints one is kept for good.
        best_metric: Name of the metric, as logged, by which the best checkpoints are kept; the
            value of the evaluation of the same moment counts. ``best-rank0.pt`` leads to the best.
        best_mode: ``"max"`` or ``"min"``; must be given with the metric.
        num_best_to_keep: How many of the best to keep.

    Raises:
        CompressorNotFound: If files of this name need a command that is not installed.
        TypeError: If a place or a name is no text.
        ValueError: If a number is out of range, settings contradict each other, or a name is no
            template, leads out of the folder, or is shared by checkpoints of which one is kept.

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
        async_save: bool = False,
        keep_every: int | None = None,
        best_metric: str | None = None,
        best_mode: str | None = None,
        num_best_to_keep: int = 1,
    ) -> None:
        if num_concurrent_uploads < 1:
            raise ValueError(
                f"num_concurrent_uploads must be at least 1, not {num_concurrent_uploads!r}"
            )
        if not upload_timeout_in_seconds > 0:
            raise ValueError(
                f"upload_timeout_in_seconds must be positive, not {upload_timeout_in_seconds!r}"
            )
        retention = Retention(
            num_checkpoints_to_keep, keep_every, best_metric, best_mode, num_best_to_keep
        )
        check_ignored(ignore_keys, "save_ignore_keys")
        self.folder = check_folder(folder, "folder")
        self._names = Names.parse(self.folder, filename, latest_filename)
        self.filename = self._names.filename
        self.latest_filename = self._names.latest
        self.remote_file_name, self.latest_remote_file_name = (
            None if name is None else check_template(name, argument, timed=timed)
            for name, argument, timed in (
                (remote_file_name, "remote_file_name", True),
                (latest_remote_file_name, "latest_remote_file_name", False),
            )
        )
        if best_metric is not None and BEST_FILENAME in (self.filename, self.latest_filename):
            raise ValueError(
                f"{BEST_FILENAME!r} is the name of the link to the best checkpoint; choose another "
                f"filename or latest_filename"
            )
        check_apart(self.filename, save_interval, retention)
        self.overwrite = overwrite
        self.num_checkpoints_to_keep = num_checkpoints_to_keep
        self.weights_only = weights_only
        self.ignore_keys = ignore_keys
        self.num_concurrent_uploads = num_concurrent_uploads
        self.upload_timeout_in_seconds = upload_timeout_in_seconds
        self.async_save = async_save
        self.save_interval = create_interval_scheduler(save_interval)
        self._place: Place | None = None
        self._watch = None if best_metric is None else MetricWatch(best_metric)
        self._ledger = Ledger(retention)
        self._checked = False
        # The link to the best that an earlier process of the run left, and where it leads.
        self._stale: tuple[str, str] | None = None
        self._buffers = HostBuffers()
        self._background = Background(upload_timeout_in_seconds)
        self._said_waiting = False
        # The evaluation that was under way when the newest checkpoint was made.
        self._pending: PendingEvaluations = {}

    # ---- what was saved -----------------------------------------------------------------------

    @property
    def saved_checkpoints(self) -> list[str]:
        """Paths or URIs of the checkpoints that are kept, oldest first."""
        place = self._place
        return [] if place is None else [place.path(r.name) for r in self._ledger.records]

    @property
    def best_checkpoints(self) -> list[str]:
        """Paths or URIs of the best checkpoints that are kept, the best first."""
        place = self._place
        return [] if place is None else [place.path(r.name) for r in self._ledger.best]

    @property
    def all_saved_checkpoints_to_timestamp(self) -> dict[str, dict[str, Any]]:
        """Path of every checkpoint ever saved to the fields of its timestamp."""
        place = open_place(self.folder) if self._place is None else self._place
        return {place.path(name): fields for name, fields in self._ledger.timestamps.items()}

    # ---- events -------------------------------------------------------------------------------

    def init(self, state: State, logger: Logger) -> None:
        """Make the folder and try to write in it, so that a bad one is told at once.

        Args:
            state: The state of the run.
            logger: Unused.

        Raises:
            OSError: If the folder cannot be made or written in.
            ValueError: If what is left out is needed to continue the run by itself.
        """
        del logger
        check_ignored(self.ignore_keys, "save_ignore_keys", resumable=self._resumable(state))
        place, latest = self._open(state), self.latest_filename
        links = [] if latest is None else [format_name_with_dist(latest, state.run_name)]
        best = [] if self._watch is None else [self._best_link(state)]
        check_filled_in(
            self._names,
            get_save_filename(state, self.filename),
            links[0] if links else None,
            best[0] if best else None,
            run_name=state.run_name,
        )
        if dist.get_global_rank() == 0:
            templates = [] if latest is None else [latest]
            place.prepare([self.filename, *templates, BEST_FILENAME], state.run_name)
            for link in (*links, *best):
                if not place.takes_link(link):
                    raise FileExistsError(
                        f"{place.path(link)} is no link to a checkpoint, and this run would make "
                        f"one there; move it away, or choose another save_folder or "
                        f"save_latest_filename"
                    )

    def fit_start(self, state: State, logger: Logger) -> None:
        """Refuse to start if later checkpoints of this run would meet files of another.

        Args:
            state: The state of the run.
            logger: Unused.

        Raises:
            FileExistsError: If the folder holds such files and ``overwrite`` is false, or folders
                under names of checkpoints.
            ValueError: If the run has no metric of the name by which the best are to be kept, or
                ends inside an epoch while names tell epochs only.
        """
        del logger
        check_last_save(self.filename, self.save_interval, self._ledger.retention, state)
        if isinstance(self.save_interval, IntervalScheduler):
            self.save_interval.restart()
        if self._watch is not None:
            self._watch.start(state)
        place = self._open(state)
        if state.load_path is not None and not self._checked:
            self._pending = state.pending_evaluations.copy()
            self._take_stock(place, state, state.load_path)
        if self._watch is None and self.num_checkpoints_to_keep >= 0 and not self._checked:
            link = self._best_link(state)
            leads = place.target(link) if dist.get_global_rank() == 0 else None
            self._stale = None if leads is None else (link, leads)
        self._checked = True
        found: list[str] = [""]
        if dist.get_global_rank() == 0:
            found = [self._clash(place, state)]
        dist.broadcast_object_list(found)  # all ranks refuse, or none does
        if found[0]:
            raise FileExistsError(found[0])

    def _clash(self, place: Place, state: State) -> str:
        """What is in the way of this run's later checkpoints, in words; empty if nothing is."""

        def later(names: list[str]) -> list[str]:
            return conflicting_names(names, self.filename, state.timestamp, run_name=state.run_name)

        if folders := later(place.folders(self.filename, state.run_name)):
            return (
                f"the folder {place.path('')} holds folders under names that this run's "
                f"checkpoints would have: {', '.join(folders)}. Move them away, or choose another "
                f"save_folder or save_filename"
            )
        if self.overwrite:
            return ""
        files = later(place.names(self.filename, state.run_name))
        if files and not state.is_continuation:
            return (
                f"the folder {place.path('')} holds files that this run would write again: "
                f"{', '.join(files)}. Remove them, or with the trainer: save_overwrite=True to "
                f"allow it, autoresume=True and a run_name to go on with that run, or another "
                f"save_folder"
            )
        # A run that continues itself replaces its own; one that was killed before it had written
        # the manifest is taken for its own.
        writers = {name: place.written_by(name) for name in files}
        others = {n: who for n, who in writers.items() if who and who != state.run_name}
        if not others:
            return ""
        return (
            f"the folder {place.path('')} holds files of the run(s) "
            f"{', '.join(map(repr, sorted(set(others.values()))))} that the run "
            f"{state.run_name!r} would write over: {', '.join(others)}. Choose another "
            f"save_folder, put {{run_name}} into save_folder or save_filename, or pass "
            f"save_overwrite=True"
        )

    def eval_end(self, state: State, logger: Logger) -> None:
        """Remember the metric by which checkpoints are compared.

        Args:
            state: The state of the run.
            logger: Unused.
        """
        del logger
        if self._watch is not None:
            self._watch.evaluated(state)

    def batch_checkpoint(self, state: State, logger: Logger) -> None:
        """Save if it is due, and raise what a save behind the training met.

        Args:
            state: The state of the run.
            logger: Receives the file.
        """
        self._background.check()
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

    def fit_end(self, state: State, logger: Logger) -> None:
        """Wait for what is being written.

        Args:
            state: The state of the run.
            logger: Unused.
        """
        del state, logger
        self.wait()

    def close(self, state: State, logger: Logger) -> None:
        """Wait for what is being written, and give back memory and connections.

        Args:
            state: The state of the run.
            logger: Unused.
        """
        del state, logger
        off_request_thread(self._wait_and_close)

    def _wait_and_close(self) -> None:
        try:
            self.wait()
        finally:
            if self._place is not None:
                self._place.close()

    def wait(self, *, keep_memory: bool = False) -> None:
        """Wait until what is being written is complete and published.

        Args:
            keep_memory: Whether the host memory of the copy is kept for the next one.

        Raises:
            TimeoutError: If that takes longer than ``upload_timeout_in_seconds``.
            BaseException: What writing it met.
        """
        self._background.wait()
        if not keep_memory:
            self._buffers.release()

    # ---- saving -------------------------------------------------------------------------------

    def _open(self, state: State) -> Place:
        # Found once: a process that changes its working folder goes on saving where it began.
        if self._place is None:
            self._place = open_place(format_name_with_dist(self.folder, state.run_name))
        return self._place

    def save(self, state: State, logger: Logger) -> str | None:
        """Save now.

        Args:
            state: The state of the run.
            logger: Receives the file.

        Returns:
            The path or URI, or ``None`` on ranks that do not write. An asynchronous save is not
            complete when this returns; see :meth:`wait`.

        Raises:
            OSError: If the file cannot be written; earlier checkpoints are untouched.
            ValueError: If it would overwrite one that a rule keeps.
        """
        self._wait_for_the_one_before()
        self._pending = state.pending_evaluations.copy()
        place = self._open(state)
        name = get_save_filename(state, self.filename)
        # What was reported before the checkpoint is on disk before the checkpoint is.
        logger.flush()
        score = None if self._watch is None else self._watch.score(state)
        lost = self._ledger.would_lose(name, state.timestamp.state_dict(), score)
        if lost:
            raise ValueError(
                f"filename={self.filename!r} gives the checkpoint of this moment the name "
                f"{name!r}, which an earlier one has that {lost} keeps; nothing was written. Add "
                f"{{batch}} to the name"
            )
        # The checkpoint lists itself, so that a run which resumes from it counts it.
        before = self._ledger.add(name, state.timestamp.state_dict(), score)
        try:
            with collected(
                state, weights_only=self.weights_only, ignore_keys=self.ignore_keys
            ) as contents:
                check_whole(contents, "save_ignore_keys", resumable=self._resumable(state))
                if dist.get_global_rank() != 0:
                    self._ledger.drop_surplus(elsewhere=self._handed_on(logger))
                    return None
                facts = describe(state, contents, weights_only=self.weights_only)
                publication = self._publication(place, name, facts, before, state, logger)
                if self.async_save:
                    contents = self._buffers.fill(contents)
                else:
                    # Inside, since what was collected are the live tensors.
                    publication.store(contents)
        except BaseException:
            self._ledger.take_back(before)
            raise
        if self.async_save:
            self._background.start(lambda: publication.run(contents), name)
        else:
            publication.point_and_delete()
        return place.path(name)

    def save_unless_saved(self, state: State, logger: Logger) -> str | None:
        """Save this moment if the newest checkpoint is not of it, and wait until that is written.

        Args:
            state: The state of the run; where an evaluation of it waits, it is saved in any case.
            logger: Receives the file.

        Returns:
            The path or URI, or ``None`` on ranks that do not write.
        """
        self.wait()
        kept = self._ledger.records
        there = bool(kept) and kept[-1].timestamp == state.timestamp.state_dict()
        # A checkpoint of this moment that tells of an evaluation under way is out of date, unless
        # one is: then it has to tell of it.
        if there and self._pending == state.pending_evaluations == {}:
            return self._open(state).path(kept[-1].name)
        path = self.save(state, logger)
        self.wait()
        return path

    def _wait_for_the_one_before(self) -> None:
        seconds = self._background.wait()
        if seconds > 0.1 and not self._said_waiting:
            self._said_waiting = True
            log.warning(
                "training waited %.1f s for the checkpoint before to be written: checkpoints come "
                "faster than they can be stored. Save less often (said once)",
                seconds,
            )

    def _publication(
        self, place: Place, name: str, facts: Manifest, before: Any, state: State, logger: Logger
    ) -> Publication:
        latest, remote, pointer = self.latest_filename, self.remote_file_name, None
        if latest is not None:
            latest = format_name_with_dist(latest, state.run_name)
        if remote is not None and self._handed_on(logger):
            remote = get_save_filename(state, remote)
            if self.latest_remote_file_name is not None:
                pointer = format_name_with_dist(self.latest_remote_file_name, state.run_name)
        else:
            remote = None
        return Publication(
            place=place,
            ledger=self._ledger,
            before=before,
            name=name,
            facts=facts,
            latest=latest if self.num_checkpoints_to_keep or remote is None else None,
            best=None if self._watch is None else self._best_link(state),
            logger=logger,
            remote=remote,
            remote_latest=pointer,
            # A run that continues itself hands on again what it lost.
            overwrite=self.overwrite or state.is_continuation,
            stale=self._stale,
        )

    def _handed_on(self, logger: Logger) -> bool:
        return self.remote_file_name is not None and logger.has_file_upload_destination()

    def _resumable(self, state: State) -> bool:
        """Whether the run is to be continued by itself, which goes by the link to the newest."""
        linked = self.latest_filename is not None and not self.weights_only
        return state.is_continuation and linked

    def _best_link(self, state: State) -> str:
        return format_name_with_dist(BEST_FILENAME, state.run_name)

    # ---- state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the names, counts, scores and timestamps of what was saved.

        Returns:
            Plain types. Names are relative to the folder.
        """
        return self._ledger.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; what is not this run's is dropped at its start.

        Args:
            state: What :meth:`state_dict` returned.
        """
        self._background.wait()
        self._ledger.load_state_dict(state)
        self._checked = False

    def _take_stock(self, place: Place, state: State, loaded: str) -> None:
        """Drop from a loaded list what is not this run's, or is gone."""
        # A checkpoint says what its run had saved. Only if it lies here is that run this one.
        if not place.holds(loaded):
            self._ledger.forget()
            return
        lost = self._ledger.keep_what_is_there(place.has, self.filename, run_name=state.run_name)
        if lost and self._watch is not None and dist.get_global_rank() == 0:
            best = self._ledger.best
            place.point(self._best_link(state), best[0].name if best else None)
