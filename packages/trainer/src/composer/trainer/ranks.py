"""What several ranks tell each other while they train, so that all do the same at the same time.

One process has no such object: the loop asks for ``None`` and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from composer.utils import dist

__all__ = ["LossMean", "Ranks", "ranks_of_this_run"]


class LossMean:
    """Averages losses over ranks, which have to give the same ones.

    Ranks agree on the names when they first meet, and again when one of them has others: what is
    exchanged holds a place for saying so, since an exchange of different lengths would never end.

    Example:
        >>> LossMean()({"total": torch.tensor(2.0)})
        {'total': tensor(2.)}
    """

    def __init__(self) -> None:
        self._names: list[str] = []

    def __call__(self, losses: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Average losses.

        Args:
            losses: Name to 0-d tensor, at least one; on one device.

        Returns:
            Name to mean.

        Raises:
            ValueError: On every rank, if ranks have losses of different names.
        """
        names = sorted(losses)  # each rank in the same order
        while True:
            same = names == self._names
            first = losses[names[0]]
            values = torch.zeros(len(self._names) + 1, dtype=torch.float64, device=first.device)
            if same:
                values[:-1] = torch.stack([losses[name].double() for name in names])
            else:
                values[-1] = 1.0
            dist.all_reduce(values)
            if not values[-1].item():
                break
            self._names = self._agree(names)
        means = (values[:-1] / dist.get_world_size()).unbind()
        return {name: mean.to(losses[name].dtype) for name, mean in zip(names, means, strict=True)}

    @staticmethod
    def _agree(names: list[str]) -> list[str]:
        found = dist.all_gather_object(names)
        for rank, others in enumerate(found):
            if others != found[0]:
                raise ValueError(
                    f"the model's loss must have the same parts on every rank, but rank 0 has "
                    f"{found[0]} and rank {rank} has {others}; give a part that a rank has nothing "
                    f"for as a zero, such as `outputs.sum() * 0.0`"
                )
        return names


class Ranks:
    """The ranks of a run, seen from one of them. Every rank makes the same calls.

    Attributes:
        size: How many there are.
        stopped: Whether, by the last exchange at a batch's start, any rank ended its training.
        leaving: Whether, by that exchange, any rank was asked to end and can draw no more, so that
            all save and end.
        mean: Averages losses over ranks.

    Example:
        >>> ranks = Ranks()
        >>> ranks.share_batch(8, 0), ranks.share_end(stop=False, seconds=0.5)
        ((8, 0), (False, 0.5))
    """

    size: int
    stopped: bool
    leaving: bool
    mean: LossMean

    def __init__(self) -> None:
        self.size = dist.get_world_size()
        self.stopped = False
        self.leaving = False
        self.mean = LossMean()
        self._first = dist.get_global_rank() == 0

    def share_batch(
        self, samples: float, tokens: int, *, stop: bool = False
    ) -> tuple[int, int] | None:
        """Say that this rank has a batch, and hear how large it is over all ranks.

        Args:
            samples: The samples of this rank's batch.
            tokens: Its tokens.
            stop: Whether this rank ended its training instead; all ranks hear of it.

        Returns:
            The samples and tokens of all ranks; ``None`` if a rank has no batch left, so that the
            epoch ends for all.
        """
        return self._share([0.0, samples, tokens, float(stop), 0.0])

    def share_no_batch(self, *, stop: bool = False, leave: bool = False) -> None:
        """Say that this rank has no batch left.

        Args:
            stop: Whether this rank ended its training.
            leave: Whether it was asked to end and its loader can give no more; all hear of it.

        Example:
            >>> ranks = Ranks()
            >>> ranks.share_no_batch(leave=True)
            >>> ranks.leaving
            True
        """
        self._share([1.0, 0.0, 0.0, float(stop), float(leave)])

    def _share(self, told: list[float]) -> tuple[int, int] | None:
        missing, samples, tokens, stops, leaves = dist.sum_over_ranks(told)
        self.stopped, self.leaving = stops > 0, leaves > 0
        return None if missing else (int(samples), int(tokens))

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


def ranks_of_this_run() -> Ranks | None:
    """Return the ranks, or ``None`` for a process on its own.

    Returns:
        The ranks.

    Example:
        >>> ranks_of_this_run() is None
        True
    """
    return Ranks() if dist.get_world_size() > 1 else None
