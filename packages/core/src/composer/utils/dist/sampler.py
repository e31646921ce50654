"""Deal the samples of a dataset out to the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler

from composer.utils.dist.world import get_global_rank, get_world_size

__all__ = ["get_sampler"]


def get_sampler(
    dataset: Dataset[Any] | Sequence[Any],
    *,
    drop_last: bool = False,
    shuffle: bool = False,
    num_replicas: int | None = None,
    rank: int | None = None,
    seed: int = 0,
) -> DistributedSampler[Any]:
    """Build a sampler that gives each rank its share of a dataset.

    The order of an epoch depends on the seed and the epoch only (``set_epoch``), so a resumed run
    sees the same order whatever else drew random numbers.

    Args:
        dataset: A dataset with a length.
        drop_last: Drop the tail that cannot be dealt out evenly, instead of repeating some samples.
        shuffle: Shuffle every epoch.
        num_replicas: Among how many to deal; by default the number of ranks.
        rank: Whose share; by default this rank's.
        seed: The seed of the shuffle, equal on all ranks.

    Returns:
        The sampler.

    Example:
        >>> list(get_sampler([10, 11, 12, 13], num_replicas=2, rank=1))
        [1, 3]
    """
    return DistributedSampler(
        dataset,  # type: ignore[arg-type]
        num_replicas=get_world_size() if num_replicas is None else num_replicas,
        rank=get_global_rank() if rank is None else rank,
        shuffle=shuffle,
        drop_last=drop_last,
        seed=seed,
    )
