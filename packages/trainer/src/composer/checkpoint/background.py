"""Saving behind the training loop: a private copy in host memory, and a thread that writes it."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Background", "HostBuffers"]

log = logging.getLogger(__name__)


class HostBuffers:
    """Copies nested tensors to host memory that is kept from one copy to the next.

    Memory that was written to before takes a copy several times faster than memory fresh from the
    system. Buffers of accelerators are page-locked, so that their copies run side by side.

    Example:
        >>> buffers = HostBuffers()
        >>> weights = torch.zeros(2)
        >>> copy = buffers.fill({"weights": weights, "n": 3})
        >>> _ = weights.add_(1)
        >>> copy
        {'weights': tensor([0., 0.]), 'n': 3}
    """

    def __init__(self) -> None:
        self._free: dict[Any, list[torch.Tensor]] = {}
        self._used: dict[Any, list[torch.Tensor]] = {}
        self._copied: dict[Any, torch.Tensor] = {}
        self._devices: set[torch.device] = set()

    def fill(self, contents: Any) -> Any:
        """Copy tensors, and the containers around them.

        Args:
            contents: Dictionaries, lists and tuples of tensors and plain values.

        Returns:
            The same on the host. It stays as it is until the next call, which writes to the same
            memory. Tensors that are one stay one.
        """
        self._used, self._copied, self._devices = {}, {}, set()
        result = self._copy(contents)
        for device in self._devices:
            torch.cuda.synchronize(device)
        # What this copy did not need is given back to the system.
        self._free, self._copied = self._used, {}
        return result

    def release(self) -> None:
        """Give all memory back."""
        self._free, self._used = {}, {}

    def _copy(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._copy_tensor(value)
        if isinstance(value, dict):
            return {key: self._copy(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._copy(item) for item in value]
        if isinstance(value, tuple):
            return tuple(self._copy(item) for item in value)
        return value

    def _copy_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
            return tensor.to("cpu", copy=True)
        shape, stride = tensor.shape, tensor.stride()
        view = (tensor.is_conj(), tensor.is_neg())
        same = (tensor.data_ptr(), tensor.device, shape, stride, tensor.dtype, view)
        if tensor.numel() and same in self._copied:
            return self._copied[same]
        on_cuda = tensor.is_cuda
        kind = (shape, stride, tensor.dtype, on_cuda)
        waiting = self._free.get(kind)
        if waiting:
            buffer = waiting.pop()
        else:
            buffer = torch.empty_like(tensor, device="cpu", pin_memory=on_cuda)
        buffer.copy_(tensor, non_blocking=on_cuda)
        if on_cuda:
            self._devices.add(tensor.device)
        self._used.setdefault(kind, []).append(buffer)
        self._copied[same] = buffer
        return buffer


class Background:
    """Runs one job at a time in a thread, and hands its error to who asks next.

    The thread lives as long as its job. The end of the process waits for it, but for no longer
    than ``timeout``, after which it says what was cut off: a store that never answers does not keep
    a process for ever.

    Args:
        timeout: Seconds that a job may take once somebody waits for it.

    Example:
        >>> background, written = Background(timeout=10), []
        >>> background.start(lambda: written.append("ep1.pt"), "ep1.pt")
        >>> _ = background.wait()
        >>> written
        ['ep1.pt']
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._thread: threading.Thread | None = None
        self._what = ""
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether a job is being run."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], None], what: str) -> None:
        """Run a job; one that is still running is waited for.

        Args:
            job: What to run.
            what: What it writes, for messages.

        Raises:
            BaseException: The error of the job before.
        """
        self.wait()
        self._what = what
        self._thread = threading.Thread(
            target=self._run, args=(job,), name=f"checkpoint {what}", daemon=True
        )
        atexit.register(self._at_exit)
        self._thread.start()

    def _run(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            error.add_note(f"while the checkpoint {self._what} was written behind the training")
            self._error = error

    def check(self) -> None:
        """Raise the error of a job that failed, once.

        Raises:
            BaseException: The error, as it was raised in the thread.
        """
        error = self._error
        # The error is there before the thread has ended.
        if error is not None:
            self.wait()

    def wait(self) -> float:
        """Wait until there is nothing left to do.

        Returns:
            The seconds that it took.

        Raises:
            TimeoutError: If the job takes longer than allowed; it goes on, and can be waited for
                again.
            BaseException: The error of the job.
        """
        thread, begin = self._thread, time.perf_counter()
        if thread is not None:
            thread.join(self.timeout)
            if thread.is_alive():
                raise TimeoutError(
                    f"writing the checkpoint {self._what} takes longer than "
                    f"upload_timeout_in_seconds={self.timeout:g}"
                )
            self._thread = None
            atexit.unregister(self._at_exit)
        error, self._error = self._error, None
        if error is not None:
            raise error
        return time.perf_counter() - begin

    def _at_exit(self) -> None:
        """Let the last write end before the process does; nobody is left to raise an error to."""
        try:
            self.wait()
        except Exception as error:
            log.exception("the checkpoint %s was not written: %s", self._what, error)
