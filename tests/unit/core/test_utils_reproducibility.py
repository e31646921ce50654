"""Seeds and random states."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
import torch

from composer.utils.reproducibility import (
    MAX_SEED,
    configure_deterministic_mode,
    get_random_seed,
    get_rng_state,
    load_rng_state,
    seed_all,
    seed_context,
)


def draw() -> tuple[float, float, float, float, float]:
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        float(torch.rand(1)),
    )


def test_seed_all_repeats_and_matches_each_library() -> None:
    seed_all(7)
    first = draw()
    seed_all(7)
    assert draw() == first
    seed_all(8)
    assert draw() != first
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    assert draw() == first


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1])
def test_seed_out_of_range(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed={seed} is out of range"):
        seed_all(seed)


def test_the_largest_seed_works() -> None:
    seed_all(MAX_SEED)


def test_get_random_seed_leaves_the_generators_alone() -> None:
    seed_all(3)
    first = draw()
    seed_all(3)
    seeds = {get_random_seed() for _ in range(8)}
    assert len(seeds) > 1
    assert all(0 <= seed <= MAX_SEED for seed in seeds)
    assert draw() == first


def test_state_round_trip_through_a_safe_file() -> None:
    seed_all(5)
    # An odd number of normals leaves a cached one in each generator.
    random.gauss(0, 1)
    np.random.randn()
    file = io.BytesIO()
    torch.save(get_rng_state(), file)
    expected = [draw() for _ in range(3)]
    draw()
    file.seek(0)
    load_rng_state(torch.load(file, weights_only=True))
    assert [draw() for _ in range(3)] == expected


def test_state_as_the_libraries_give_it_can_be_loaded() -> None:
    saved = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
    }
    expected = draw()
    load_rng_state([saved])
    assert draw() == expected


def test_other_world_size_warns_and_restores_what_fits() -> None:
    saved = get_rng_state()
    expected = draw()
    with pytest.warns(RuntimeWarning, match=r"saved by 2 rank\(s\) and are loaded by 1"):
        load_rng_state(saved * 2)
    assert draw() == expected
    before = torch.get_rng_state()
    with pytest.warns(RuntimeWarning, match=r"saved by 0"):
        load_rng_state([])
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_mismatch_warns() -> None:
    saved = get_rng_state()
    saved[0]["cuda"] = torch.zeros(16, dtype=torch.uint8)
    with pytest.warns(RuntimeWarning, match="saved with CUDA and is loaded without"):
        load_rng_state(saved)


def test_seed_context_restores_also_after_an_error() -> None:
    seed_all(1)
    first = draw()
    seed_all(1)

    def fail_inside() -> None:
        with seed_context(99):
            draw()
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert draw() == first
    with seed_context(4):
        a = draw()
    with seed_context(4):
        assert draw() == a


def test_deterministic_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    benchmark, deterministic = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    try:
        configure_deterministic_mode()
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.benchmark
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = benchmark
        torch.backends.cudnn.deterministic = deterministic
