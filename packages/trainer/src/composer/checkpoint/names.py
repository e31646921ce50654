"""Names of checkpoints, parsed at the door: inside the folder, complete, and apart from each other.

What a run keeps is told by name, over all its processes. So a name that leads out of the folder,
that cannot be found again or that two checkpoints share would undo the rules of what is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, NamedTuple

from composer.checkpoint.formats import check_format
from composer.checkpoint.manifest import MANIFEST_ENDING
from composer.checkpoint.search import POINTER_ENDING
from composer.core.intervals import IntervalScheduler, create_interval_scheduler
from composer.core.time import TimeUnit
from composer.utils.paths import is_uri, location, parse_uri
from composer.utils.templates import check_template, matches_template, time_fields

if TYPE_CHECKING:
    from composer.checkpoint.retention import Retention
    from composer.core.state import State

__all__ = [
    "BEST_FILENAME",
    "Names",
    "check_apart",
    "check_filled_in",
    "check_folder",
    "check_last_save",
]

#: Name template of the link to the best checkpoint.
BEST_FILENAME = "best-rank{rank}.pt"

# What tells any two batches apart, alone or beside the epoch.
_OF_A_BATCH = {"batch", "sample", "token", "total_wct"}
_IN_AN_EPOCH = {"batch_in_epoch", "sample_in_epoch", "token_in_epoch", "epoch_wct"}


class Names(NamedTuple):
    """Where checkpoints go and what they are called, as templates.

    Attributes:
        folder: A path or URI.
        filename: The name of a checkpoint in it.
        latest: The name of the link to the newest, or ``None``.

    Example:
        >>> Names.parse("runs", "ep{epoch}.pt", None).filename
        'ep{epoch}.pt'
    """

    folder: str | None
    filename: str
    latest: str | None

    @classmethod
    def parse(cls, folder: Any, filename: Any, latest: Any, *, prefix: str = "") -> Names:
        """Take what a user gave.

        Args:
            folder: A path or URI, or ``None`` for nowhere.
            filename: The name of a checkpoint.
            latest: The name of the link to the newest, or ``None``.
            prefix: What the arguments' names begin with, for messages.

        Returns:
            The names.

        Raises:
            TypeError: If one is no text.
            ValueError: If one is no template, or leads out of the folder, or cannot be found again.
            CompressorNotFound: If files of this name need a command that is not installed.

        Example:
            >>> Names.parse("runs", "../ep{epoch}.pt", None)
            Traceback (most recent call last):
            ValueError: filename='../ep{epoch}.pt' must be a name inside folder; ...
        """
        if folder is not None:
            folder = check_folder(folder, f"{prefix}folder")
        argument = f"{prefix}filename"
        filename = check_template(filename, argument)
        _check_inside(filename, argument, f"{prefix}folder")
        last = filename.rpartition("/")[2]
        if last.startswith(".") or last.endswith((MANIFEST_ENDING, POINTER_ENDING)):
            raise ValueError(
                f"{argument}={filename!r} would not be taken for a checkpoint when one is looked "
                f"for: names that begin with a dot or end in {MANIFEST_ENDING!r} or "
                f"{POINTER_ENDING!r} are of other files. Choose a name such as "
                f"'ep{{epoch}}-ba{{batch}}.pt'"
            )
        if folder is not None:
            check_format(filename, argument)
        if latest is not None:
            argument = f"{prefix}latest_filename"
            latest = check_template(latest, argument, timed=False)
            if folder is not None and parse_uri(folder)[0] not in ("", "file"):
                _check_inside(latest, argument, f"{prefix}folder")
            elif latest.rpartition("/")[2] in ("", ".", ".."):
                raise ValueError(
                    f"{argument}={latest!r} is a folder; give a name such as 'latest-rank{{rank}}"
                    f".pt', or None for no link"
                )
        if filename == latest:
            raise ValueError(
                f"{prefix}filename and {prefix}latest_filename are both {filename!r}; the link to "
                f"the newest checkpoint needs a name of its own"
            )
        return cls(folder, filename, latest)


def check_folder(folder: Any, argument: str) -> str:
    """Take a place as a template.

    Args:
        folder: A path or URI in which facts about run and rank may be left to be filled in.
        argument: Name of the argument, for messages.

    Returns:
        The path or URI.

    Raises:
        TypeError: If it is none.
        ValueError: If it is empty, looks like a slip, or has a field that is never filled in.

    Example:
        >>> check_folder("runs/{run_name}", "save_folder")
        'runs/{run_name}'
    """
    return check_template(location(folder, argument), argument, timed=False)


def _check_inside(name: str, argument: str, folder: str) -> None:
    parts = name.split("/")
    outside = is_uri(name) or PureWindowsPath(name).is_absolute() or name.startswith("/")
    if outside or ".." in parts:
        raise ValueError(
            f"{argument}={name!r} must be a name inside {folder}; say with {folder} where "
            f"checkpoints go, since only what lies in it is found and kept count of"
        )
    if "" in parts or "." in parts:
        raise ValueError(
            f"{argument}={name!r} must be a plain name such as 'ep{{epoch}}.pt' or "
            f"'sub/ep{{epoch}}.pt', without '.' or nothing between two slashes"
        )


def check_filled_in(
    names: Names, filled: str, latest: str | None, best: str | None, *, run_name: str
) -> None:
    """Refuse names that only the run's name leads astray.

    Args:
        names: The templates.
        filled: The name of a checkpoint, filled in.
        latest: The name of the link to the newest, filled in, or ``None``.
        best: The name of the link to the best, filled in, or ``None``.
        run_name: The run's name.

    Raises:
        ValueError: If a checkpoint would lie outside the folder, or bear the name of a link.

    Example:
        >>> names = Names.parse("runs", "ep{epoch}.pt", "ep1.pt")
        >>> check_filled_in(names, "ep0.pt", "ep1.pt", None, run_name="r")
        Traceback (most recent call last):
        ValueError: latest_filename='ep1.pt' is a name that filename='ep{epoch}.pt' gives too; ...
    """
    if filled.startswith("/") or ".." in PurePosixPath(filled).parts:
        raise ValueError(
            f"filename={names.filename!r} leads out of the folder with run_name={run_name!r}; "
            f"choose another run_name, or leave {{run_name}} out of the name"
        )
    for argument, link in (("latest_filename", latest), ("the link to the best", best)):
        if link is not None and matches_template(link, names.filename, run_name=run_name):
            raise ValueError(
                f"{argument}={link!r} is a name that filename={names.filename!r} gives too; a link "
                f"needs a name that no checkpoint has"
            )


def check_apart(
    filename: str,
    interval: Any,
    retention: Retention,
    *,
    prefix: str = "",
) -> None:
    """Refuse a name that checkpoints would share of which a rule keeps one.

    Args:
        filename: The template of the names.
        interval: When they are saved.
        retention: What is kept. Only rules that keep older ones for good count: who wants the
            newest may well write it under one name.
        prefix: What the arguments' names begin with, for messages.

    Raises:
        ValueError: If two of them would have one name.

    Example:
        >>> from composer.checkpoint.retention import Retention
        >>> check_apart("ep{epoch}.pt", "1ep", Retention(keep_every=2))
        >>> check_apart("ep{epoch}.pt", "5ba", Retention(keep_every=2))
        Traceback (most recent call last):
        ValueError: filename='ep{epoch}.pt' gives checkpoints of one epoch the same name, ...
    """
    rule = _lasting(retention)
    fields = time_fields(filename)
    if not rule or _tells_batches_apart(fields):
        return
    if "epoch" not in fields:
        raise ValueError(
            f"{prefix}filename={filename!r} gives checkpoints of different moments the same name, "
            f"so that later ones would overwrite those that {prefix}{rule} keeps; add {{batch}} to "
            f"it"
        )
    due = create_interval_scheduler(interval)
    # Of a function nothing is known; a save that would overwrite one that is kept is refused.
    if isinstance(due, IntervalScheduler) and due.interval.unit is not TimeUnit.EPOCH:
        raise ValueError(
            f"{prefix}filename={filename!r} gives checkpoints of one epoch the same name, and "
            f"save_interval={str(due.interval)!r} may save several in one, so that later ones "
            f"would overwrite those that {prefix}{rule} keeps; add {{batch}} to the name, or save "
            f"once an epoch"
        )


def check_last_save(
    filename: str, due: Callable[[State, Any], bool], retention: Retention, state: State
) -> None:
    """Refuse a name that the save at the end of training would share with that of its last epoch.

    Args:
        filename: The template of the names.
        due: When they are saved.
        retention: What is kept.
        state: The state of the run, which says when it ends.

    Raises:
        ValueError: If training ends inside an epoch, and the name does not say where.

    Example:
        >>> from composer.checkpoint.retention import Retention
        >>> check_last_save("ep{epoch}.pt", create_interval_scheduler(1), Retention(), None)
    """
    rule, end = _lasting(retention), None
    if rule and isinstance(due, IntervalScheduler) and due.final_events and due.interval.value:
        end = state.max_duration
    if end is None or _tells_batches_apart(time_fields(filename)) or end.unit is TimeUnit.EPOCH:
        return
    # An end that is counted in batches is saved before its epoch counts as finished.
    raise ValueError(
        f"filename={filename!r} gives checkpoints of one epoch the same name, and training ends "
        f"after {end!s}, before an epoch is counted as finished, so that the last one saved would "
        f"overwrite one that {rule} keeps; add {{batch}} to the name, or give the duration in "
        f"epochs"
    )


def _tells_batches_apart(fields: set[str]) -> bool:
    return bool(fields & _OF_A_BATCH) or ("epoch" in fields and bool(fields & _IN_AN_EPOCH))


def _lasting(retention: Retention) -> str:
    """The setting that keeps checkpoints which are not the newest any more, or nothing."""
    if retention.best_metric is not None:
        return f"best_metric={retention.best_metric!r}"
    return "" if retention.keep_every is None else f"keep_every={retention.keep_every}"
