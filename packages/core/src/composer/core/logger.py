"""Fan-out of everything a run reports.

``Logger`` is what callbacks and algorithms talk to; ``LoggerDestination`` is what a vendor or a
user implements. Values may be zero-dimensional tensors: whoever really writes or draws one turns it
into a number then, so that logging never synchronises a device for nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from composer.core.callback import Callback

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["Logger", "LoggerDestination", "format_log_data_value"]

log = logging.getLogger(__name__)


class LoggerDestination(Callback):
    """Something that receives what a run reports; a callback with a method per kind of report.

    Example:
        >>> class Print(LoggerDestination):
        ...     def log_metrics(self, metrics, step=None):
        ...         print(step, metrics)
        >>> Print().log_metrics({"loss": 1.0}, step=3)
        3 {'loss': 1.0}
    """

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Receive settings of the run.

        Args:
            hyperparameters: Name to value.

        Example:
            >>> LoggerDestination().log_hyperparameters({"lr": 0.1})
        """

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Receive a table.

        Args:
            columns: Column names.
            rows: One list per row.
            name: Name of the table.
            step: Batch counter.

        Example:
            >>> LoggerDestination().log_table(["a"], [[1]])
        """

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Receive numbers.

        Args:
            metrics: Name to number or zero-dimensional tensor.
            step: Batch counter.

        Example:
            >>> LoggerDestination().log_metrics({"loss": 1.0}, step=0)
        """

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Receive traces of algorithms that ran.

        Args:
            traces: ``algorithm_traces/<Class>/<event>`` to 1.

        Example:
            >>> LoggerDestination().log_traces({})
        """

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
        masks: dict[str, Any] | None = None,
        mask_class_labels: dict[int, str] | None = None,
        use_table: bool = True,
    ) -> None:
        """Receive images.

        Args:
            images: An array or tensor, or a sequence of them.
            name: Name of the images.
            channels_last: Whether the channel dimension comes last.
            step: Batch counter.
            masks: Mask name to masks of the images.
            mask_class_labels: Class number to label.
            use_table: Whether to show them in a table where that exists.

        Example:
            >>> LoggerDestination().log_images(torch.zeros(1, 3, 2, 2))
        """

    def upload_file(
        self,
        state: State,
        remote_file_name: str,
        file_path: Path,
        *,
        overwrite: bool = False,
    ) -> None:
        """Receive a file.

        Args:
            state: The state of the run.
            remote_file_name: Name at the destination.
            file_path: The local file.
            overwrite: Whether an existing remote file may be replaced.

        Example:
            >>> LoggerDestination().upload_file(None, "a.txt", Path("a.txt"))
        """

    def download_file(
        self,
        remote_file_name: str,
        destination: str,
        overwrite: bool = False,
        progress_bar: bool = True,
    ) -> None:
        """Fetch a file that was uploaded.

        Args:
            remote_file_name: Name at the destination.
            destination: The local path to write.
            overwrite: Whether an existing local file may be replaced.
            progress_bar: Whether to show progress.

        Raises:
            NotImplementedError: If the destination keeps no files.

        Example:
            >>> LoggerDestination().can_upload_files()
            False
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no files")

    def can_upload_files(self) -> bool:
        """Say whether the destination keeps files.

        Returns:
            False unless overridden.

        Example:
            >>> LoggerDestination().can_upload_files()
            False
        """
        return False

    def flush(self) -> None:
        """Let go of everything reported so far: when this returns, it is durable or handed over.

        A checkpoint calls this before it is published, so that what a run reported about the time
        before a checkpoint outlives a process that is killed after it. There is nothing to do for
        a destination that holds nothing back.

        Example:
            >>> LoggerDestination().flush()
        """


class Logger:
    """Passes every report on to the destinations, with the batch counter as the step.

    Args:
        state: The state of the run.
        destinations: One destination, several, or none.

    Example:
        >>> class Keep(LoggerDestination):
        ...     def log_metrics(self, metrics, step=None):
        ...         self.last = (step, metrics)
        >>> keep = Keep()
        >>> Logger(None, keep).log_metrics({"loss": 1.0}, step=3)
        >>> keep.last
        (3, {'loss': 1.0})
    """

    destinations: tuple[LoggerDestination, ...]

    def __init__(
        self,
        state: State,
        destinations: LoggerDestination | Sequence[LoggerDestination] | None = None,
    ) -> None:
        if destinations is None:
            destinations = ()
        elif isinstance(destinations, LoggerDestination):
            destinations = (destinations,)
        self._state = state
        self.destinations = tuple(destinations)

    def _step(self, step: int | None) -> int:
        return int(self._state.timestamp.batch) if step is None else step

    def log_hyperparameters(self, parameters: dict[str, Any]) -> None:
        """Report settings of the run.

        Args:
            parameters: Name to value.

        Example:
            >>> Logger(None).log_hyperparameters({"lr": 0.1})
        """
        for destination in self.destinations:
            destination.log_hyperparameters(parameters)

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Report numbers.

        Args:
            metrics: Name to number or zero-dimensional tensor.
            step: Batch counter; the run's own by default.

        Example:
            >>> Logger(None).log_metrics({"loss": 1.0}, step=0)
        """
        if self.destinations:
            step = self._step(step)
            for destination in self.destinations:
                destination.log_metrics(metrics, step)

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Report a table.

        Args:
            columns: Column names.
            rows: One list per row.
            name: Name of the table.
            step: Batch counter; the run's own by default.

        Example:
            >>> Logger(None).log_table(["a"], [[1]], step=0)
        """
        for destination in self.destinations:
            destination.log_table(columns, rows, name, self._step(step))

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
        masks: dict[str, Any] | None = None,
        mask_class_labels: dict[int, str] | None = None,
        use_table: bool = True,
    ) -> None:
        """Report images.

        Args:
            images: An array or tensor, or a sequence of them.
            name: Name of the images.
            channels_last: Whether the channel dimension comes last.
            step: Batch counter; the run's own by default.
            masks: Mask name to masks of the images.
            mask_class_labels: Class number to label.
            use_table: Whether to show them in a table where that exists.

        Example:
            >>> Logger(None).log_images(torch.zeros(1, 3, 2, 2), step=0)
        """
        for destination in self.destinations:
            destination.log_images(
                images, name, channels_last, self._step(step), masks, mask_class_labels, use_table
            )

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Report which algorithms ran.

        Args:
            traces: ``algorithm_traces/<Class>/<event>`` to 1.

        Example:
            >>> Logger(None).log_traces({})
        """
        for destination in self.destinations:
            destination.log_traces(traces)

    def upload_file(
        self, remote_file_name: str, file_path: str | Path, *, overwrite: bool = False
    ) -> None:
        """Hand a file to every destination.

        Args:
            remote_file_name: Name at the destination; may hold ``{run_name}`` and rank fields.
            file_path: The local file.
            overwrite: Whether an existing remote file may be replaced.

        Example:
            >>> Logger(None).upload_file("a.txt", "a.txt")
        """
        if not self.destinations:
            return
        from composer.utils.paths import format_name_with_dist

        name = format_name_with_dist(remote_file_name, run_name=self._state.run_name)
        for destination in self.destinations:
            destination.upload_file(self._state, name, Path(file_path), overwrite=overwrite)

    def has_file_upload_destination(self) -> bool:
        """Say whether any destination keeps files.

        Returns:
            True if one does.

        Example:
            >>> Logger(None).has_file_upload_destination()
            False
        """
        return any(destination.can_upload_files() for destination in self.destinations)

    def flush(self) -> None:
        """Have every destination let go of what it holds; errors are logged, not raised.

        Example:
            >>> class Keep(LoggerDestination):
            ...     def flush(self):
            ...         print("kept")
            >>> Logger(None, Keep()).flush()
            kept
        """
        for destination in self.destinations:
            try:
                destination.flush()
            except Exception:
                log.exception("flushing %s failed", type(destination).__name__)


def format_log_data_value(data: Any) -> str:
    """Render a value for people.

    Args:
        data: ``None``, a string, number, tensor, mapping or iterable.

    Returns:
        The text; numbers with four decimals.

    Example:
        >>> format_log_data_value({"a": 0.12345, "b": [1, None]})
        '{ "a": 0.1235, "b": [1, None], }'
    """
    if data is None:
        return "None"
    if isinstance(data, str):
        return f'"{data}"'
    if isinstance(data, bool):
        return str(data)
    if isinstance(data, int):
        return str(data)
    if isinstance(data, float):
        return f"{data:.4f}"
    if isinstance(data, torch.Tensor):
        if data.numel() == 1:
            return format_log_data_value(data.item())
        return f"Tensor of shape {tuple(data.shape)}"
    if isinstance(data, Mapping):
        inner = "".join(f'"{k}": {format_log_data_value(v)}, ' for k, v in data.items())
        return "{ " + inner + "}"
    if isinstance(data, Iterable):
        return "[" + ", ".join(format_log_data_value(v) for v in data) + "]"
    return str(data)
