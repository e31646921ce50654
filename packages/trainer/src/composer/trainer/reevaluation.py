"""Optimizers that evaluate the loss several times in one step, of one and the same function.

What the first evaluation drew and counted is what the step drew and counted: later ones repeat its
random numbers, so that dropout and mixing are the same, and leave nothing behind but gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from composer.utils.modules import KeptBuffers
from composer.utils.reproducibility import get_host_streams, set_host_streams

__all__ = ["Reevaluations"]


class Reevaluations:
    """Lets later evaluations of a step leave no trace but gradients.

    Args:
        model: The model.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(1), torch.nn.Dropout())
        >>> again = Reevaluations(model)
        >>> again.begin()
        >>> first = model(torch.ones(8, 1))
        >>> with again.once_more():
        ...     second = model(torch.ones(8, 1))
        >>> torch.equal(first, second), int(model[0].num_batches_tracked)
        (True, 1)
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._buffers: KeptBuffers | None = None
        self._streams: list[Any] = []

    def begin(self) -> None:
        """Remember the random streams in front of a step's first evaluation.

        Example:
            >>> Reevaluations(torch.nn.Identity()).begin()
        """
        self._streams = _streams()

    @contextmanager
    def once_more(self) -> Iterator[None]:
        """Return the context of a later evaluation.

        Yields:
            Nothing; buffers, such as the statistics of batch norm, and random streams are put back.

        Example:
            >>> again = Reevaluations(torch.nn.Identity())
            >>> again.begin()
            >>> first = torch.rand(1)
            >>> with again.once_more():
            ...     print(bool(torch.rand(1) == first))
            True
        """
        if self._buffers is None:
            self._buffers = KeptBuffers(self._model)
        else:
            self._buffers.keep()
        streams = _streams()
        _set_streams(self._streams)
        try:
            yield
        finally:
            _set_streams(streams)
            self._buffers.put_back()


# As they are, and not in the plain types of a checkpoint: this is done at every step.
def _streams() -> list[Any]:
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    return [get_host_streams(), cuda, mps]


def _set_streams(streams: list[Any]) -> None:
    host, cuda, mps = streams
    set_host_streams(host)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda)
    if mps is not None:
        torch.mps.set_rng_state(mps)
