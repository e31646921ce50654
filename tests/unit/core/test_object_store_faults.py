"""Servers that fail: what heals is healed, what does not is told, and nothing half is left."""

from __future__ import annotations

import logging
import os
import pathlib
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from composer.utils.object_store import ObjectStoreTransientError, S3ObjectStore
from composer_testing.faulty_proxy import FaultyProxy
from composer_testing.sftp_server import serve_sftp

KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
MiB = 1 << 20
SMALL, LARGE = 100_000, 11 * MiB


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    started = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    yield f"http://{host}:{port}"
    started.stop()


def make_store(url: str, timeout: float, num_attempts: int = 5) -> S3ObjectStore:
    return S3ObjectStore(
        "bucket",
        uuid.uuid4().hex,
        "us-east-1",
        url,
        **KEYS,
        transfer_config={"multipart_chunksize": 5 * MiB, "multipart_threshold": 6 * MiB},
        timeout=timeout,
        num_attempts=num_attempts,
    )


class Bench:
    """A store behind a proxy, with an object in it."""

    def __init__(self, server: str, proxy: FaultyProxy, folder: pathlib.Path) -> None:
        self.proxy = proxy
        self.folder = folder
        self.waits: list[float] = []
        self.store = make_store(proxy.url, timeout=5.0)
        self.direct = make_store(server, timeout=5.0)
        self.small = folder / "small"
        self.large = folder / "large"
        self.small.write_bytes(os.urandom(SMALL))
        self.large.write_bytes(os.urandom(LARGE))
        self.store.root = self.direct.root
        self.direct.fs.call_s3("create_bucket", Bucket="bucket")
        self.direct.upload_object("old/small", self.small)
        self.direct.upload_object("old/large", self.large)

    def begin(self) -> None:
        """Leave two objects only; the proxy breaks nothing."""
        self.proxy.heal()
        self.waits.clear()
        self.store._sleep = self.waits.append
        for upload in self.unfinished():
            self.direct.fs.call_s3(
                "abort_multipart_upload",
                Bucket="bucket",
                Key=upload["Key"],
                UploadId=upload["UploadId"],
            )
        if "new" in self.direct.list_objects():
            self.direct.delete_object("new")
        for path in self.folder.glob("got*"):
            path.unlink()

    def unfinished(self) -> list[dict[str, Any]]:
        """List uploads whose parts are still there."""
        found = self.direct.fs.call_s3("list_multipart_uploads", Bucket="bucket")
        uploads: list[dict[str, Any]] = found.get("Uploads", [])
        return uploads


@pytest.fixture(scope="module")
def bench_of_module(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with FaultyProxy(server) as proxy:
        bench = Bench(server, proxy, tmp_path_factory.mktemp("bench"))
        yield bench
        bench.store.close()
        bench.direct.close()


@pytest.fixture
def bench(bench_of_module: Bench) -> Bench:
    bench_of_module.begin()
    return bench_of_module


def ask_size(bench: Bench) -> None:
    assert bench.store.get_object_size("old/small") == SMALL


def ask_names(bench: Bench) -> None:
    assert bench.store.list_objects() == ["old/large", "old/small"]


def download(bench: Bench) -> None:
    bench.store.download_object("old/large", bench.folder / "got")
    assert (bench.folder / "got").read_bytes() == bench.large.read_bytes()


def upload_small(bench: Bench) -> None:
    bench.store.upload_object("new", bench.small)
    bench.direct.download_object("new", bench.folder / "got")
    assert (bench.folder / "got").read_bytes() == bench.small.read_bytes()


def upload_large(bench: Bench) -> None:
    bench.store.upload_object("new", bench.large)
    bench.direct.download_object("new", bench.folder / "got")
    assert (bench.folder / "got").read_bytes() == bench.large.read_bytes()


# What is done, and the request of it that is broken.
WHERE: dict[str, tuple[Callable[[Bench], None], dict[str, Any]]] = {
    "size": (ask_size, {"method": "HEAD"}),
    "names": (ask_names, {"method": "GET", "contains": "list-type=2"}),
    "download-first": (download, {"method": "GET", "contains": "old/large"}),
    "download-third": (download, {"method": "GET", "contains": "old/large", "after": 2}),
    "upload": (upload_small, {"method": "PUT", "contains": "/new"}),
    "upload-verify": (upload_small, {"method": "HEAD", "contains": "/new"}),
    "parts-begin": (upload_large, {"method": "POST", "contains": "?uploads"}),
    "part": (upload_large, {"method": "PUT", "contains": "partNumber=2"}),
    "parts-complete": (upload_large, {"method": "POST", "contains": "uploadId="}),
}
HOW: dict[str, dict[str, Any]] = {
    "500": {"kind": "status", "status": 500},
    "503": {"kind": "status", "status": 503},
    "429": {"kind": "status", "status": 429},
    "reset": {"kind": "reset"},
    "lost": {"kind": "lost"},
    "cut": {"kind": "cut"},
    "slow": {"kind": "slow", "seconds": 0.2},
}
# An answer without a body cannot be cut off, and one status stands for the others.
CASES = [
    (where, how)
    for where in WHERE
    for how in HOW
    if (how != "cut" or where.startswith(("names", "download")))
    and (how not in ("503", "429") or where == "upload")
]


@pytest.mark.parametrize(("where", "how"), CASES)
def test_one_fault_heals(where: str, how: str, bench: Bench) -> None:
    act, which = WHERE[where]
    bench.proxy.break_requests(**which, **HOW[how])
    act(bench)
    assert bench.proxy.faults[0].times == 0, "the fault never happened"
    if how in ("500", "503", "429", "cut"):
        assert len(bench.waits) == 1
    # The client itself may send a request once more over a new connection.
    assert len(bench.waits) <= (0 if how == "slow" else 1)
    # The name of an upload whose beginning got no answer is not known; it holds no parts.
    assert len(bench.unfinished()) == (1 if (where, how) == ("parts-begin", "lost") else 0)


@pytest.mark.parametrize("how", ["500", "reset"])
@pytest.mark.parametrize("where", list(WHERE))
def test_faults_for_good_are_told(where: str, how: str, bench: Bench) -> None:
    act, which = WHERE[where]
    bench.proxy.break_requests(**which, times=None, **HOW[how])
    with pytest.raises(
        ObjectStoreTransientError, match=rf"s3://{bench.store.root}/.* failed 5 times within"
    ) as caught:
        act(bench)
    assert caught.value.__cause__ is not None
    # The waits grow: 0.5, 1, 2, 4 seconds and up to half a second more each.
    assert len(bench.waits) == (4 if not where.startswith("download") else len(bench.waits))
    for number, wait in enumerate(bench.waits[:4]):
        if not where.startswith("download"):
            assert 0.5 * 2**number <= wait <= 0.5 * 2**number + 0.5
    bench.proxy.heal()
    # Nothing half is to be seen, neither there nor here; what could not be verified is whole.
    names = bench.direct.list_objects()
    if where == "upload-verify":
        assert bench.direct.get_object_size("new") == SMALL
    else:
        assert names == ["old/large", "old/small"]
    assert list(bench.folder.glob("got*")) == []
    assert list(bench.folder.glob(".*")) == []
    assert bench.unfinished() == []


def test_a_failed_download_keeps_the_older_file(bench: Bench) -> None:
    target = bench.folder / "got"
    target.write_text("older")
    bench.proxy.break_requests("cut", method="GET", contains="old/large", after=1, times=None)
    with pytest.raises(ObjectStoreTransientError):
        bench.store.download_object("old/large", target, overwrite=True)
    assert target.read_text() == "older"


def test_a_failed_upload_keeps_the_older_object(bench: Bench) -> None:
    bench.proxy.break_requests("reset", method="PUT", times=None)
    for name, path in (("old/small", bench.large), ("old/large", bench.small)):
        with pytest.raises(ObjectStoreTransientError):
            bench.store.upload_object(name, path)
    assert bench.direct.get_object_size("old/small") == SMALL
    assert bench.direct.get_object_size("old/large") == LARGE


@pytest.mark.parametrize(
    ("status", "expected"), [(400, OSError), (403, PermissionError), (404, FileNotFoundError)]
)
def test_lasting_errors_are_told_at_once(
    status: int, expected: type[Exception], bench: Bench
) -> None:
    bench.proxy.break_requests("status", status=status, times=None, method="PUT")
    with pytest.raises(expected) as caught:
        bench.store.upload_object("new", bench.small)
    assert not isinstance(caught.value, ObjectStoreTransientError)
    assert bench.waits == []
    assert len([each for each in bench.proxy.requests if each[0] == "PUT"]) == 1


def test_expired_credentials_are_no_missing_object(bench: Bench) -> None:
    bench.proxy.break_requests("status", status=403, times=None, method="HEAD")
    with pytest.raises(PermissionError) as caught:
        bench.store.get_object_size("old/small")
    assert not isinstance(caught.value, FileNotFoundError)
    # Listing is allowed and shows nothing: it is missing.
    with pytest.raises(FileNotFoundError, match="no such object"):
        bench.store.get_object_size("none")


@pytest.mark.parametrize("where", ["size", "names", "download-first", "upload", "part"])
def test_server_that_never_answers(where: str, bench: Bench) -> None:
    act, which = WHERE[where]
    bench.proxy.break_requests("silent", **which, times=None)
    usual = bench.store
    bench.store = make_store(bench.proxy.url, timeout=0.4, num_attempts=2)
    bench.store.root, bench.store._sleep = usual.root, bench.waits.append
    try:
        with pytest.raises(
            ObjectStoreTransientError,
            match=rf"s3://{usual.root}/.* failed 2 times within [0-9.]+ s .*[Tt]imeout",
        ):
            act(bench)
    finally:
        bench.store.close()
        bench.store = usual
    method, path = which["method"], which.get("contains", "")
    asked = [each for each in bench.proxy.requests if each[0] == method and path in each[1]]
    if where == "download-first":  # several pieces at one time, each by itself
        assert len(asked) >= 2
        assert bench.waits
    else:
        assert (len(asked), len(bench.waits)) == (2, 1)


def test_server_that_does_not_answer_once(bench: Bench) -> None:
    bench.proxy.break_requests("silent", method="HEAD")
    usual = bench.store
    bench.store = make_store(bench.proxy.url, timeout=0.4)
    bench.store.root, bench.store._sleep = usual.root, bench.waits.append
    try:
        ask_size(bench)
    finally:
        bench.store.close()
        bench.store = usual
    assert len(bench.waits) == 1


def test_no_server_at_all(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("s3fs")
    with FaultyProxy("http://127.0.0.1:1") as proxy:
        url = proxy.url
    with make_store(url, timeout=1.0, num_attempts=2) as store:
        store._sleep = lambda seconds: None
        with pytest.raises(ObjectStoreTransientError, match="failed 2 times"):
            store.list_objects()


KILLED = """
import os, signal, sys
from composer.utils.object_store import S3ObjectStore, SFTPObjectStore
{make}
def kill(done, total):
    if done:
        os.kill(os.getpid(), signal.SIGKILL)
store.upload_object("new", sys.argv[1], callback=kill)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["s3", "sftp"])
def test_killed_upload_shows_no_object(kind: str, bench: Bench, tmp_path: pathlib.Path) -> None:
    if kind == "sftp":
        pytest.importorskip("paramiko")
        (tmp_path / "root").mkdir()
        with serve_sftp(tmp_path / "root", tmp_path) as server:
            make = f"""store = SFTPObjectStore(
                "127.0.0.1", {server.port}, "me", "secret", {str(server.known_hosts)!r},
                cwd="/run", connect_kwargs=dict(look_for_keys=False, allow_agent=False))"""
            killed = subprocess.run([sys.executable, "-c", KILLED.format(make=make), bench.large])
        assert [path.name for path in (tmp_path / "root" / "run").glob("[!.]*")] == []
    else:
        make = f"""store = S3ObjectStore(
            "bucket", {bench.store.root.partition("/")[2]!r}, "us-east-1", {bench.proxy.url!r},
            "key", "secret", transfer_config=dict(multipart_chunksize=5 << 20))"""
        killed = subprocess.run([sys.executable, "-c", KILLED.format(make=make), bench.large])
        assert bench.direct.list_objects() == ["old/large", "old/small"]
        assert ("PUT", "partNumber") in {
            (method, "partNumber" if "partNumber" in path else "")
            for method, path in bench.proxy.requests
        }
    assert killed.returncode == -signal.SIGKILL
