"""What holds for every test: one thread, no network, the same seed, no vendor service."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Before torch is imported anywhere: two workers with two threads each are slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")


@pytest.fixture(autouse=True)
def _same_seed() -> None:
    """Start every test from the same random state, without importing what it does not use."""
    import random

    random.seed(17)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(17)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(17)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests talk to this machine only; what is fetched silently is found here."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = address[0]
            local = host == "localhost"
            if not local:
                try:
                    local = ipaddress.ip_address(host.partition("%")[0]).is_loopback
                except ValueError:
                    local = False
            if not local:
                raise OSError(f"tests may not connect to {address!r}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def fresh_plugins() -> Iterator[None]:
    """Read plugin metadata again for this test, and once more after it."""
    from composer.core import plugins

    plugins.refresh()
    yield
    plugins.refresh()


@pytest.fixture(scope="session")
def ranks() -> Iterator[Any]:
    """Runs functions on several ranks; see ``composer_testing.ranks``."""
    from composer_testing.ranks import RankServer

    server = RankServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel of every package by distribution name, built once for all workers."""
    from composer_testing.repository import build_wheels

    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, failed = base / "wheels", base / "wheels-failed"
    try:
        (base / "wheels-lock").mkdir()
    except FileExistsError:
        deadline = time.monotonic() + 240
        while not folder.exists():
            assert not failed.exists(), failed.read_text()
            assert time.monotonic() < deadline, "another worker did not finish the wheels"
            time.sleep(0.2)
    else:
        try:
            build_wheels(base / "wheels-part")
        except BaseException as error:
            failed.write_text(str(error))
            raise
        (base / "wheels-part").rename(folder)
    return {
        wheel.name.split("-")[0].replace("_", "-"): wheel for wheel in sorted(folder.glob("*.whl"))
    }
