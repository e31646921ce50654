"""Finding the largest microbatch that fits into memory, while training goes on.

A batch that runs out of memory is begun again with smaller microbatches: gradients, the model's
buffers and the random streams are put back first, so that it gives the one update it would have
given. The search narrows down between the largest size that worked and the smallest that did not,
a try per batch, until the two are within a tenth of each other. From then on the size only shrinks.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from composer.utils import dist
from composer.utils.modules import KeptBuffers
from composer.utils.oom import is_out_of_memory
from composer.utils.reproducibility import get_local_rng_state, load_local_rng_state

if TYPE_CHECKING:
    from composer.core.state import MicrobatchFindings, State
    from composer.trainer.step import BatchStep

__all__ = [
    "AutoMicrobatchStep",
    "MicrobatchSearch",
    "OutOfMemoryAgreed",
    "evaluate_with_retries",
    "retrying",
    "run_or_agree",
]

log = logging.getLogger(__name__)

_CLOSE_ENOUGH = 0.9


class OutOfMemoryAgreed(Exception):
    """A rank ran out of memory in a batch, and all ranks know.

    Args:
        error: What happened on this rank, if it was this one.

    Attributes:
        error: What happened on this rank, if it was this one.

    Example:
        >>> OutOfMemoryAgreed(MemoryError()).error
        MemoryError()
    """

    def __init__(self, error: BaseException | None) -> None:
        super().__init__("a rank ran out of memory")
        self.error = error


def run_or_agree(work: Callable[[], None]) -> None:
    """Run the part of a batch that may run out of memory, and let all ranks know if it did.

    Args:
        work: Forward and backward passes, without any exchange between ranks.

    Raises:
        OutOfMemoryAgreed: If any rank ran out of memory.

    Example:
        >>> run_or_agree(lambda: None)
    """
    found: BaseException | None = None
    try:
        work()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        found = error.with_traceback(None)  # its frames hold on to what has to be freed
    if dist.any_rank(found is not None):
        raise OutOfMemoryAgreed(found)


class MicrobatchSearch:
    """Narrows a microbatch size down to the largest that fits.

    Args:
        size: The size to try first, which is the largest that can be of use.

    Attributes:
        size: The size to use now.
        fits: The largest that worked; 0 for none.
        fails: The smallest that did not, or ``None``.
        tries: Sizes that were tried, in order, each with whether it worked.

    Example:
        >>> search = MicrobatchSearch(128)
        >>> while not search.settled:
        ...     if search.size <= 100:
        ...         search.worked(search.size)
        ...     else:
        ...         search.failed(MemoryError())
        >>> search.size, len(search.tries)
        (96, 5)
    """

    size: int
    fits: int
    fails: int | None
    tries: list[tuple[int, bool]]

    def __init__(self, size: int) -> None:
        self.size = size
        self.fits = 0
        self.fails = None
        self.tries = []

    @property
    def settled(self) -> bool:
        """Whether the size is known to within a tenth of the largest that fits."""
        if self.fails is None:
            return self.fits >= self.size
        return self.fits > 0 and self.fits >= _CLOSE_ENOUGH * (self.fails - 1)

    def worked(self, size: int) -> None:
        """Take note that microbatches of a size fitted, and choose the next size.

        Args:
            size: The size of the largest microbatch, which may be less than ``self.size``.
        """
        if size > self.fits:
            self.fits = size
            self.tries.append((size, True))
        if self.fails is not None and size >= self.size:
            self.size = self.fits if self.settled else (self.fits + self.fails) // 2

    def failed(self, error: BaseException) -> None:
        """Take note that the size did not fit, and choose a smaller one.

        Args:
            error: What happened.

        Raises:
            RuntimeError: If there is no smaller size.
        """
        self.tries.append((self.size, False))
        if self.size <= 1:
            raise RuntimeError(
                "one sample at a time is already too much for the memory of the device; use a "
                "smaller model, shorter inputs, a lower precision, or a device with more memory"
            ) from error
        if self.size <= self.fits:  # memory that there was before is gone
            self.fits = 0
        self.fails = self.size
        self.size = self.fits if self.settled else max(1, (self.fits + self.fails) // 2)

    def state_dict(self) -> MicrobatchFindings:
        """Return what was found out.

        Returns:
            Plain numbers.
        """
        return {"size": self.size, "fits": self.fits, "fails": self.fails}

    def load_state_dict(self, state: MicrobatchFindings) -> None:
        """Go on with what was found out before.

        Args:
            state: What :meth:`state_dict` returned.
        """
        self.size = state["size"]
        self.fits = state["fits"]
        self.fails = state["fails"]


@contextlib.contextmanager
def retrying(state: State) -> Iterator[Callable[[], None]]:
    """Keep what a batch changes before its update, so that it can be begun again.

    Args:
        state: The state of the run.

    Yields:
        A function that puts the random streams and the model's buffers back, and frees memory.
    """
    streams = get_local_rng_state()
    buffers = KeptBuffers(state.model)

    def put_back() -> None:
        state.outputs = state.loss = None
        load_local_rng_state(streams)
        buffers.put_back()
        state.device.release_memory()

    yield put_back


class AutoMicrobatchStep:
    """Trains on one batch with the largest microbatches that fit.

    Args:
        state: The state of the run; what an earlier process found out is taken from it.
        step: Trains on one batch with microbatches of the state's size, and raises
            ``OutOfMemoryAgreed``.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> class RoomForThree:
        ...     def run(self, num_samples):
        ...         if state.device_train_microbatch_size > 3:
        ...             raise OutOfMemoryAgreed(MemoryError())
        ...         return {}
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> AutoMicrobatchStep(state, RoomForThree()).run(8)
        {}
        >>> state.device_train_microbatch_size, state.microbatch_search
        (2, {'size': 3, 'fits': 2, 'fails': 4})
    """

    def __init__(self, state: State, step: BatchStep) -> None:
        self._state = state
        self._step = step
        self._search: MicrobatchSearch | None = None

    def run(self, num_samples: int | float) -> dict[str, torch.Tensor]:
        """Train on the state's batch.

        Args:
            num_samples: Its number of samples on this rank.

        Returns:
            The losses by name.

        Raises:
            RuntimeError: If not even one sample at a time fits.
        """
        state = self._state
        search = self._search or self._begin(int(num_samples))
        if search.fails is None:
            search.size = max(search.size, int(num_samples))
        batch = state.batch
        with retrying(state) as put_back:
            while True:
                size = search.size
                state.device_train_microbatch_size = size
                try:
                    losses: dict[str, torch.Tensor] = self._step.run(num_samples)
                except OutOfMemoryAgreed as agreed:
                    search.failed(agreed.error or agreed)
                    log.info("microbatches of %d samples do not fit; trying %d", size, search.size)
                    state.batch = batch
                    for optimizer in state.optimizers:
                        optimizer.zero_grad()
                    put_back()
                    continue
                break
        was_settled = search.settled
        search.worked(min(size, int(num_samples)))
        if search.settled and not was_settled:
            log.info("microbatches of %d samples fit into memory", search.size)
        state.microbatch_search = search.state_dict()
        return losses

    def _begin(self, num_samples: int) -> MicrobatchSearch:
        state = self._state
        given = state.device_train_microbatch_size
        start = int(dist.sum_over_ranks([num_samples])[0] / dist.get_world_size())
        search = MicrobatchSearch(max(1, start if given is None else int(given)))
        if state.microbatch_search:
            search.load_state_dict(state.microbatch_search)
        self._search = search
        return search


def evaluate_with_retries(
    state: State,
    search: MicrobatchSearch,
    num_samples: int,
    metrics: dict[str, Any],
    run: Callable[[int], None],
) -> None:
    """Run a batch of an evaluation with the largest microbatches that fit.

    Args:
        state: The state of the run.
        search: What was found out so far.
        num_samples: Samples of the batch.
        metrics: The set's metrics by name; after a try that failed they are as before it.
        run: Runs the batch in microbatches of a size and updates the metrics.
    """
    forget_try = _remembering(metrics.values())
    with retrying(state) as put_back:
        while True:
            size = search.size
            try:
                run(size)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                search.failed(error.with_traceback(None))
                log.info(
                    "evaluation in parts of %d samples does not fit; trying %d", size, search.size
                )
                forget_try()
                put_back()
                continue
            break
    search.worked(min(size, num_samples))


def _remembering(metrics: Iterable[Any]) -> Callable[[], None]:
    """Return a function that sets metrics, in place, back to what they are now.

    Tensors are copied and lists of them are not, so that a metric which keeps all it was given
    costs no more from batch to batch.
    """
    parts = [
        part
        for metric in metrics
        for part in (metric.modules() if isinstance(metric, torch.nn.Module) else (metric,))
    ]
    before = [(part, {name: _kept(value) for name, value in vars(part).items()}) for part in parts]

    def put_back() -> None:
        for part, values in before:
            vars(part).clear()
            vars(part).update({name: _kept(value) for name, value in values.items()})

    return put_back


def _kept(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if type(value) is list:
        return list(value)
    if type(value) is dict:
        return {key: _kept(item) for key, item in value.items()}
    return value
