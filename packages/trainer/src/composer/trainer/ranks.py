"""What several ranks tell each other while they train, so that all do the same at the same time.

One process has no such object: the loop asks for ``None`` and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from composer.utils import dist

__all__ = ["Ranks", "ranks_of_this_run"]


class Ranks:
    """The ranks of a run, seen from one of them. Every rank makes the same calls.

    Example:
        >>> ranks = Ranks()
        >>> ranks.share_batch(8, 0), ranks.share_end(stop=False, seconds=0.5)
        ((8, 0), (False, 0.5))
    """

    size: int

    def __init__(self) -> None:
        self.size = dist.get_world_size()
        self._first = dist.get_global_rank() == 0

    def share_batch(self, samples: float, tokens: int) -> tuple[int, int] | None:
        """Say that this rank has a batch, and hear how large it is over all ranks.

        Args:
            samples: The samples of this rank's batch.
            tokens: Its tokens.

        Returns:
            The samples and tokens of all ranks; ``None`` if a rank has no batch left, so that the
            epoch ends for all.
        """
        missing, samples, tokens = dist.sum_over_ranks([0.0, samples, tokens])  # type: ignore[assignment]
        return None if missing else (int(samples), int(tokens))

    def share_no_batch(self) -> None:
        """Say that this rank has no batch left."""
        dist.sum_over_ranks([1.0, 0.0, 0.0])

    def share_end(self, *, stop: bool, seconds: float) -> tuple[bool, float]:
        """Agree at a batch's end on whether to stop, and on how long the batch took.

        Args:
            stop: Whether this rank was asked to stop.
            seconds: What this rank's clock says.

        Returns:
            Whether any rank was asked to stop, and what rank zero's clock says.
        """
        stops, agreed = dist.sum_over_ranks([float(stop), seconds if self._first else 0.0])
        return stops > 0, agreed

    def total(self, count: float) -> float:
        """Add a number over ranks.

        Args:
            count: This rank's.

        Returns:
            The sum.

        Example:
            >>> Ranks().total(3)
            3.0
        """
        return dist.sum_over_ranks([count])[0]

    def mean(self, losses: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Average losses over ranks.

        Args:
            losses: Name to 0-d tensor; every rank has the same names.

        Returns:
            Name to mean.

        Example:
            >>> Ranks().mean({"total": torch.tensor(2.0)})
            {'total': tensor(2.)}
        """
        if not losses:
            return {}
        losses = {name: losses[name] for name in sorted(losses)}  # each rank in the same order
        values = torch.stack([value.double() for value in losses.values()])
        dist.all_reduce(values)
        means = (values / self.size).unbind()
        return {
            name: mean.to(value.dtype)
            for (name, value), mean in zip(losses.items(), means, strict=True)
        }


def ranks_of_this_run() -> Ranks | None:
    """Return the ranks, or ``None`` for a process on its own.

    Returns:
        The ranks.

    Example:
        >>> ranks_of_this_run() is None
        True
    """
    return Ranks() if dist.get_world_size() > 1 else None
