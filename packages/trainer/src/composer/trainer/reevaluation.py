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
from composer.utils.reproducibility import get_local_rng_state, load_local_rng_state

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
        self._streams: dict[str, Any] = {}

    def begin(self) -> None:
        """Remember the random streams in front of a step's first evaluation."""
        self._streams = get_local_rng_state()

    @contextmanager
    def once_more(self) -> Iterator[None]:
        """Return the context of a later evaluation.

        Yields:
            Nothing; buffers, such as the statistics of batch norm, and random streams are put back.
        """
        if self._buffers is None:
            self._buffers = KeptBuffers(self._model)
        else:
            self._buffers.keep()
        streams = get_local_rng_state()
        load_local_rng_state(self._streams)
        try:
            yield
        finally:
            load_local_rng_state(streams)
            self._buffers.put_back()
