"""Seeds, deterministic mode and the state of the random number generators.

States are kept as lists, numbers, strings and tensors, so that a checkpoint that holds them can be
read without running any code from it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from composer.utils import dist

__all__ = [
    "MAX_SEED",
    "configure_deterministic_mode",
    "get_host_streams",
    "get_random_seed",
    "get_rng_state",
    "host_streams",
    "load_rng_state",
    "outermost_streams",
    "seed_all",
    "seed_context",
    "set_host_streams",
]

log = logging.getLogger(__name__)

#: The largest seed that all generators accept.
MAX_SEED = 2**32 - 1


def configure_deterministic_mode() -> None:
    """Make torch use deterministic algorithms only, and refuse operations that have none.

    Runs get slower. ``CUBLAS_WORKSPACE_CONFIG`` is set for CUDA unless it already is.

    Example:
        >>> configure_deterministic_mode()
        >>> torch.are_deterministic_algorithms_enabled()
        True
        >>> torch.use_deterministic_algorithms(False)
    """
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    log.info("Deterministic mode is on; expect slower steps.")


def get_random_seed() -> int:
    """Draw a seed from the operating system, leaving every generator as it is.

    Returns:
        A number from 0 to ``MAX_SEED``.

    Example:
        >>> 0 <= get_random_seed() <= MAX_SEED
        True
    """
    return random.SystemRandom().randint(0, MAX_SEED)


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators, those of accelerators included.

    Args:
        seed: A number from 0 to ``MAX_SEED``.

    Raises:
        ValueError: If the seed is out of range.

    Example:
        >>> seed_all(7)
        >>> a = torch.rand(1)
        >>> seed_all(7)
        >>> bool(a == torch.rand(1))
        True
    """
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed={seed} is out of range; accepted are 0 to {MAX_SEED}.")
    random.seed(seed)
    np.random.seed(seed)
    # torch passes the seed on to every accelerator, also to one that is initialised later.
    torch.manual_seed(seed)


def get_local_rng_state() -> dict[str, Any]:
    """Return the state of this process's generators.

    Returns:
        Plain types and tensors, by generator: ``python``, ``numpy``, ``torch``, and ``cuda`` or
        ``mps`` where such a device is in use.

    Example:
        >>> sorted(get_local_rng_state())[-2:]
        ['python', 'torch']
    """
    version, internal, gauss_next = random.getstate()
    name, keys, pos, has_gauss, cached = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": [version, list(internal), gauss_next],
        "numpy": [
            str(name),
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(pos),
            int(has_gauss),
            float(cached),
        ],
        "torch": torch.random.get_rng_state(),
    }
    # Asking a device that was never used would initialise it for nothing.
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def load_local_rng_state(state: dict[str, Any]) -> None:
    """Put this process's generators back into a state.

    Args:
        state: What :func:`get_local_rng_state` returned.

    Example:
        >>> saved = get_local_rng_state()
        >>> a = torch.rand(1)
        >>> load_local_rng_state(saved)
        >>> bool(a == torch.rand(1))
        True
    """
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))
    name, keys, pos, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.asarray(keys).astype(np.uint32), pos, has_gauss, cached))
    torch.random.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])


def get_rng_state() -> list[dict[str, Any]]:
    """Collect the state of the generators of all ranks.

    Returns:
        One dictionary for each rank, in the order of ranks, with the keys ``python``, ``numpy`` and
        ``torch``, and ``cuda`` or ``mps`` where such a device is in use.

    Example:
        >>> [sorted(state)[-2:] for state in get_rng_state()]
        [['python', 'torch']]
    """
    return dist.all_gather_object(get_local_rng_state())


def load_rng_state(rng_state_dicts: list[dict[str, Any]]) -> None:
    """Put this rank's generators back into a saved state.

    With another number of ranks, or other devices, than when the state was saved, numbers cannot
    repeat: that is said in a warning, and what fits is restored.

    Args:
        rng_state_dicts: What ``get_rng_state`` returned.

    Example:
        >>> saved = get_rng_state()
        >>> a = torch.rand(1)
        >>> load_rng_state(saved)
        >>> bool(a == torch.rand(1))
        True
    """
    world_size = dist.get_world_size()
    rank = dist.get_global_rank()
    if len(rng_state_dicts) != world_size:
        warnings.warn(
            f"The random states were saved by {len(rng_state_dicts)} rank(s) and are loaded by "
            f"{world_size}; random numbers will differ from those of an uninterrupted run.",
            RuntimeWarning,
            stacklevel=2,
        )
    if rank >= len(rng_state_dicts):
        return
    state = rng_state_dicts[rank]
    cuda_in_use = torch.cuda.is_available() and torch.cuda.is_initialized()
    if ("cuda" in state) != cuda_in_use:
        saved, now = ("with", "without") if "cuda" in state else ("without", "with")
        warnings.warn(
            f"The random state of rank {rank} was saved {saved} CUDA and is loaded {now} CUDA; "
            "random numbers will differ from those of an uninterrupted run.",
            RuntimeWarning,
            stacklevel=2,
        )
    load_local_rng_state(state)


HostStreams = tuple[Any, Any, torch.Tensor]


def get_host_streams() -> HostStreams:
    """Return the state of the host's random streams as it is, not in plain types.

    Returns:
        The states of Python's, NumPy's and torch's, for :func:`set_host_streams`.

    Example:
        >>> len(get_host_streams())
        3
    """
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def set_host_streams(streams: HostStreams) -> None:
    """Put the host's random streams back.

    Args:
        streams: What :func:`get_host_streams` returned.

    Example:
        >>> before = get_host_streams()
        >>> first = torch.rand(1)
        >>> set_host_streams(before)
        >>> bool(torch.rand(1) == first)
        True
    """
    python, numpy_, torch_ = streams
    random.setstate(python)
    np.random.set_state(numpy_)
    torch.set_rng_state(torch_)


#: Streams that blocks with their own put aside, the outermost first.
_SET_ASIDE: list[HostStreams] = []


@contextlib.contextmanager
def host_streams(seed: int) -> Iterator[None]:
    """Seed the host's random streams for a block and put them back; devices are left alone.

    Args:
        seed: The seed.

    Yields:
        Nothing.

    Example:
        >>> before = torch.get_rng_state()
        >>> with host_streams(3):
        ...     _ = torch.rand(1)
        >>> torch.equal(before, torch.get_rng_state())
        True
    """
    outer = get_host_streams()
    random.seed(seed)
    np.random.seed(seed)
    torch.random.default_generator.manual_seed(seed)
    _SET_ASIDE.append(outer)
    try:
        yield
    finally:
        _SET_ASIDE.pop()
        set_host_streams(outer)


@contextlib.contextmanager
def outermost_streams() -> Iterator[None]:
    """Put the streams of a run in place that blocks such as :func:`host_streams` put aside.

    What is saved in the midst of such a block, an evaluation say, holds the streams with which the
    run goes on afterwards.

    Yields:
        Nothing; the streams of the block come back.

    Example:
        >>> before = torch.get_rng_state()
        >>> with host_streams(3), outermost_streams():
        ...     torch.equal(before, torch.get_rng_state())
        True
    """
    if not _SET_ASIDE:
        yield
        return
    inner = get_host_streams()
    set_host_streams(_SET_ASIDE[0])
    try:
        yield
    finally:
        set_host_streams(inner)


@contextlib.contextmanager
def seed_context(seed: int) -> Iterator[None]:
    """Run a block with its own seed and put the generators back afterwards, also after an error.

    Args:
        seed: A number from 0 to ``MAX_SEED``.

    Yields:
        Nothing.

    Example:
        >>> with seed_context(3):
        ...     a = torch.rand(1)
        >>> with seed_context(3):
        ...     b = torch.rand(1)
        >>> bool(a == b)
        True
    """
    saved = get_local_rng_state()
    try:
        seed_all(seed)
        yield
    finally:
        load_local_rng_state(saved)
