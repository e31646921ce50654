"""The data set works under every way of starting worker processes, and wherever it is made."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.data import DataLoader, Subset

from composer.datasets import fashion_mnist
from composer.utils import dist


def test_pickle_round_trip() -> None:
    data = fashion_mnist("test")
    twin = pickle.loads(pickle.dumps(data))
    assert torch.equal(twin[7][0], data[7][0])
    loader = pickle.loads(pickle.dumps(DataLoader(data, batch_size=4)))
    assert torch.equal(next(iter(loader))[1], next(iter(DataLoader(data, batch_size=4)))[1])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_worker_processes(method: str) -> None:
    data = Subset(fashion_mnist("test"), range(16))
    plain = list(DataLoader(data, batch_size=4))
    workers = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=method)
    for (x, y), (u, v) in zip(plain, workers, strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)


def test_ranks_are_read_when_a_sampler_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    data = fashion_mnist("test")  # made before anybody knows about ranks
    for name, value in {"WORLD_SIZE": "4", "RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    sampler = dist.get_sampler(data, shuffle=False)
    assert list(sampler)[:3] == [1, 5, 9]
