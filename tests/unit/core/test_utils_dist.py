"""Ranks and collectives, in one process and in three."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.distributed as torch_dist

from composer.utils import dist

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_one_process() -> None:
    assert dist.get_world_size() == dist.get_local_world_size() == 1
    assert dist.get_global_rank() == dist.get_local_rank() == dist.get_node_rank() == 0
    assert dist.is_available()
    assert not dist.is_initialized()
    x = torch.ones(2)
    dist.barrier()
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    assert x.tolist() == [1, 1]
    assert dist.all_gather(x)[0] is x
    assert dist.all_gather_object("a") == ["a"]
    things = [1, "b"]
    dist.broadcast_object_list(things)
    assert things == [1, "b"]
    assert dist.any_rank(True)
    assert not dist.any_rank(False)


def test_environment_answers_without_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(VARIABLES[:5], "58142", strict=True):
        monkeypatch.setenv(name, value)
    assert dist.get_global_rank() == 5
    assert dist.get_world_size() == 8
    assert dist.get_local_rank() == 1
    assert dist.get_local_world_size() == 4
    assert dist.get_node_rank() == 2
    monkeypatch.delenv("NODE_RANK")
    monkeypatch.setenv("GROUP_RANK", "7")
    assert dist.get_node_rank() == 7
    with pytest.raises(
        RuntimeError, match=r"8 ranks and there is no process group.*initialize_dist"
    ):
        dist.barrier()
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ValueError, match="WORLD_SIZE='many'"):
        dist.get_world_size()


def test_unknown_reduction() -> None:
    with pytest.raises(ValueError, match=r"reduce_operation='SUMM'.*\"SUM\""):
        dist.all_reduce(torch.ones(1), "SUMM")


def test_single_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    dist.initialize_dist("cpu")
    try:
        assert torch_dist.get_backend() == "gloo"
        dist.initialize_dist("cpu")
        assert dist.get_world_size() == 1
        assert dist.get_local_rank() == dist.get_node_rank() == 0
        assert dist.all_gather_object({"a": 1}) == [{"a": 1}]
        assert dist.any_rank(True)
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(RuntimeError, match=r"process group says 1.*WORLD_SIZE=2"):
            dist.get_world_size()
        monkeypatch.delenv("WORLD_SIZE")

        class Other:
            name = "other"
            dist_backend = "nccl"

        monkeypatch.setattr("composer.devices.select.get_device", lambda _: Other())
        with pytest.raises(RuntimeError, match=r"runs with the backend 'gloo'.*needs 'nccl'"):
            dist.initialize_dist("other")
    finally:
        torch_dist.destroy_process_group()


def test_missing_variables_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(RuntimeError, match="LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR"):
        dist.initialize_dist("cpu")


def test_sampler_deals_every_sample() -> None:
    dataset = list(range(10))
    shares = [
        list(dist.get_sampler(dataset, shuffle=True, num_replicas=2, rank=rank, seed=3))
        for rank in (0, 1)
    ]
    assert sorted(shares[0] + shares[1]) == dataset
    generator = torch.Generator()
    generator.manual_seed(3)
    order = torch.randperm(10, generator=generator).tolist()
    assert shares == [order[0::2], order[1::2]]
    assert list(dist.get_sampler(dataset)) == dataset
    assert len(dist.get_sampler(range(11), num_replicas=2, rank=0, drop_last=True)) == 5


def test_signal_files(tmp_path: Path) -> None:
    name = dist.get_node_signal_file_name()
    assert name != dist.get_node_signal_file_name()
    path = dist.write_signal_file(name, str(tmp_path / "new"))
    assert Path(path) == tmp_path / "new" / name
    assert Path(path).exists()
    with dist.busy_wait_for_local_rank_zero(str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]


SCRIPT = """
import os, sys, traceback
import torch, torch.distributed as torch_dist
import composer.devices
from composer.utils import dist
from composer.utils.reproducibility import get_rng_state, load_rng_state

folder, port = sys.argv[1:]

def rank_main(rank):
    os.environ.update(
        RANK=str(rank), WORLD_SIZE="3", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="3", NODE_RANK="0",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
    )
    dist.initialize_dist("cpu", timeout=60)
    assert dist.get_world_size() == 3 and dist.get_global_rank() == rank
    x = torch.tensor([float(rank)])
    assert torch.cat(dist.all_gather(x)).tolist() == [0, 1, 2]
    assert dist.all_gather_object({"rank": rank}) == [{"rank": r} for r in range(3)]
    y = x.clone(); dist.all_reduce(y); assert y.item() == 3
    y = x.clone(); dist.all_reduce(y, "MAX"); assert y.item() == 2
    y = x.clone(); dist.broadcast(y, 2); assert y.item() == 2
    things = [rank]; dist.broadcast_object_list(things, src=1); assert things == [1]
    assert dist.any_rank(rank == 2) is True
    assert dist.any_rank(False) is False
    # A tensor that is not contiguous, and one with a shape.
    z = torch.arange(6).reshape(2, 3).t() + rank
    assert [t.tolist() for t in dist.all_gather(z)] == [
        (torch.arange(6).reshape(2, 3).t() + r).tolist() for r in range(3)
    ]

    group = torch_dist.new_group([0, 2])
    if rank in (0, 2):
        assert dist.get_global_rank(group) == {0: 0, 2: 1}[rank]
        assert torch.cat(dist.all_gather(x, group)).tolist() == [0, 2]
        assert dist.all_gather_object(rank, group) == [0, 2]
        assert dist.any_rank(rank == 2, group) is True
    else:
        assert dist.get_global_rank(group) == -1
        try:
            dist.all_gather(x, group)
        except ValueError as error:
            assert "not a member" in str(error)
        else:
            raise AssertionError("no error")
    dist.barrier()

    log = os.path.join(folder, "order")
    def note():
        with open(log, "a") as file:
            file.write(str(rank))
    with dist.run_local_rank_zero_first():
        note()
    dist.barrier()
    assert open(log).read()[0] == "0" and len(open(log).read()) == 3
    with dist.busy_wait_for_local_rank_zero(folder):
        note()
    assert open(log).read()[3] == "0"
    fetched = os.path.join(folder, "fetched")
    with dist.local_rank_zero_download_and_wait(fetched):
        if rank == 0:
            open(fetched, "w").close()
        assert os.path.exists(fetched)
    names = dist.all_gather_object(dist.get_node_signal_file_name())
    assert len(set(names)) == 1

    torch.manual_seed(rank)
    states = get_rng_state()
    assert len(states) == 3
    expected = torch.rand(1).item()
    load_rng_state(states)
    assert torch.rand(1).item() == expected
    assert list(dist.get_sampler(range(6))) == [rank, rank + 3]

    del os.environ["LOCAL_RANK"]
    try:
        dist.get_local_rank()
    except dist.MissingEnvironmentError as error:
        assert "LOCAL_RANK" in str(error)
    else:
        raise AssertionError("no error")
    torch_dist.barrier()

children = []
for rank in range(3):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            rank_main(rank)
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
    children.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in children]
print("ok" if codes == [0, 0, 0] else codes)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_three_ranks(tmp_path: Path) -> None:
    from composer.utils.ports import get_free_tcp_port

    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path), str(get_free_tcp_port())],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert out.stdout.strip() == "ok", out.stdout + out.stderr


_LAST = """
import time
from composer.utils import dist
dist.initialize_dist("cpu", 60)
dist.barrier()
time.sleep = lambda seconds: print("the others had", seconds)
"""


@pytest.mark.slow
def test_a_rank_leaves_threads_a_moment_before_the_interpreter_goes(tmp_path: Path) -> None:
    """One of gloo's that still holds a tensor then would abort a process that succeeded."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    size = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0"}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _LAST],
            env={**os.environ, **size, **address, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=60)[0].strip() for process in ranks]
    assert said == ["the others had 0.2"] * 2
    assert [process.returncode for process in ranks] == [0, 0]
