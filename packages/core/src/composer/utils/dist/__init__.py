"""Questions about ranks, and collectives that do nothing in a single process.

Code written with these functions runs unchanged on one process and on many. Wrapping a model for
many ranks is not done here.
"""

from __future__ import annotations

from composer.utils.dist.collectives import (
    all_gather,
    all_gather_object,
    all_reduce,
    any_rank,
    barrier,
    broadcast,
    broadcast_object_list,
    lost_peer,
    max_over_ranks,
    sum_over_ranks,
)
from composer.utils.dist.sampler import get_sampler
from composer.utils.dist.setup import initialize_dist
from composer.utils.dist.waiting import (
    busy_wait_for_local_rank_zero,
    get_node_signal_file_name,
    local_rank_zero_download_and_wait,
    run_local_rank_zero_first,
    write_signal_file,
)
from composer.utils.dist.world import (
    MissingEnvironmentError,
    get_global_rank,
    get_local_rank,
    get_local_world_size,
    get_node_rank,
    get_world_size,
    is_available,
    is_initialized,
)

__all__ = [
    "MissingEnvironmentError",
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "any_rank",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "busy_wait_for_local_rank_zero",
    "get_global_rank",
    "get_local_rank",
    "get_local_world_size",
    "get_node_rank",
    "get_node_signal_file_name",
    "get_sampler",
    "get_world_size",
    "initialize_dist",
    "is_available",
    "is_initialized",
    "local_rank_zero_download_and_wait",
    "lost_peer",
    "max_over_ranks",
    "run_local_rank_zero_first",
    "sum_over_ranks",
    "write_signal_file",
]
