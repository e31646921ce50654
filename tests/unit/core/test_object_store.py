"""One contract that every object store keeps, over real servers where there is a protocol."""

from __future__ import annotations

import inspect
import logging
import pathlib
import pickle
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from composer.utils.imports import MissingConditionalImportError
from composer.utils.object_store import (
    AzureObjectStore,
    FsspecObjectStore,
    GCSObjectStore,
    HiddenObjectError,
    HuggingFaceObjectStore,
    LibcloudObjectStore,
    LocalObjectStore,
    MemoryObjectStore,
    ObjectStat,
    ObjectStore,
    ObjectStoreTransientError,
    OCIObjectStore,
    S3ObjectStore,
    SFTPObjectStore,
    TemplateObjectStore,
    build_remote_backend,
    maybe_create_object_store_from_uri,
)
from composer.utils.object_store.errors import explain
from composer.utils.object_store.forwarding import ForwardingObjectStore
from composer_testing import run_python
from composer_testing.sftp_server import SftpServer, serve_sftp

KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
MiB = 1 << 20


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """A server that speaks the protocol of S3."""
    moto = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def sftp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SftpServer]:
    pytest.importorskip("paramiko")
    base = tmp_path_factory.mktemp("sftp")
    (base / "root").mkdir()
    with serve_sftp(base / "root", base) as server:
        yield server


class Clients:
    """Making a client takes half a second; stores for the same server share one."""

    def __init__(self, server: str) -> None:
        self.first = S3ObjectStore("none", "", "us-east-1", server, **KEYS)

    def store(self, bucket: str, prefix: str = "") -> S3ObjectStore:
        store = S3ObjectStore(
            bucket,
            prefix,
            transfer_config={"multipart_chunksize": 5 * MiB, "multipart_threshold": 6 * MiB},
        )
        self.lend(store)
        store.fs.call_s3("create_bucket", Bucket=bucket)
        return store

    def lend(self, store: S3ObjectStore) -> None:
        fs = self.first.fs
        store._open = lambda: fs  # type: ignore[method-assign]
        store.close = lambda: None  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def s3_clients(s3_server: str) -> Iterator[Clients]:
    clients = Clients(s3_server)
    yield clients
    clients.first.close()


def sftp_store(server: SftpServer, **options: Any) -> SFTPObjectStore:
    arguments: dict[str, Any] = {
        "port": server.port,
        "username": server.username,
        "password": server.password,
        "known_hosts_filename": server.known_hosts,
        "cwd": f"/{uuid.uuid4().hex}",
        "connect_kwargs": {"look_for_keys": False, "allow_agent": False},
        **options,
    }
    return SFTPObjectStore("127.0.0.1", **arguments)


class Shelf(TemplateObjectStore):
    """The least that a plugin writes."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def get_uri(self, object_name: str) -> str:
        return f"shelf://{object_name}"

    def _stat(self, name: str) -> ObjectStat:
        if name not in self.data:
            raise FileNotFoundError(name)
        return ObjectStat(len(self.data[name]))

    def _read(self, name: str, start: int, stop: int) -> bytes:
        return self.data[name][start:stop]

    def _write(
        self, name: str, path: pathlib.Path, report: Callable[[int], None], **kwargs: Any
    ) -> None:
        if kwargs:
            raise TypeError(f"Shelf takes no {', '.join(kwargs)}")
        self.data[name] = path.read_bytes()

    def _names(self, prefix: str) -> Iterable[str]:
        return self.data


class Cupboard(Shelf):
    """And what it writes if objects can be deleted."""

    def _delete(self, name: str) -> None:
        if name not in self.data:
            raise FileNotFoundError(name)
        del self.data[name]


@pytest.fixture(
    params=["local", "memory", "fsspec", "s3", "s3-prefix", "gs-hmac", "sftp", "plugin"]
)
def store(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectStore]:
    """An empty store."""
    made: ObjectStore
    bucket = f"bucket-{uuid.uuid4().hex}"
    match request.param:
        case "local":
            made = LocalObjectStore(tmp_path / "store")
        case "memory":
            made = MemoryObjectStore(bucket, "runs")
        case "fsspec":
            made = FsspecObjectStore(f"file://{tmp_path}/store", {"auto_mkdir": True})
        case "s3":
            made = request.getfixturevalue("s3_clients").store(bucket)
        case "s3-prefix":
            made = request.getfixturevalue("s3_clients").store(bucket, "runs/1/")
        case "gs-hmac":
            clients = request.getfixturevalue("s3_clients")
            clients.store(bucket)
            monkeypatch.setenv("GCS_KEY", "key")
            monkeypatch.setenv("GCS_SECRET", "secret")
            monkeypatch.setenv("GCS_S3_ENDPOINT_URL", request.getfixturevalue("s3_server"))
            made = GCSObjectStore(bucket, "runs")
            assert isinstance(made.store, S3ObjectStore)
            assert (
                made.store.storage_options["endpoint_url"]
                == clients.first.storage_options["endpoint_url"]
            )
            clients.lend(made.store)
        case "sftp":
            made = sftp_store(request.getfixturevalue("sftp_server"))
        case "plugin":
            made = Cupboard()
    if isinstance(made, TemplateObjectStore):
        made.chunk_size = 5 * MiB
    with made:
        yield made


def write(path: pathlib.Path, size: int) -> pathlib.Path:
    # Every piece differs from its neighbours, so that pieces at the wrong place are seen.
    unit = b"".join(number.to_bytes(4, "big") for number in range(min(size, 4 * MiB) // 4 + 1))
    path.write_bytes((unit * (size // len(unit) + 1))[:size])
    return path


@pytest.mark.parametrize("size", [0, 5 * MiB, 11 * MiB + 3])
def test_what_goes_in_comes_out(store: ObjectStore, size: int, tmp_path: pathlib.Path) -> None:
    source = write(tmp_path / "source", size)
    up: list[tuple[int, int]] = []
    down: list[tuple[int, int]] = []
    store.upload_object("a/b.pt", source, callback=lambda *now: up.append(now))
    assert store.get_object_size("a/b.pt") == size
    target = tmp_path / "new" / "folder" / "target"
    store.download_object("a/b.pt", target, callback=lambda *now: down.append(now))
    assert target.read_bytes() == source.read_bytes()
    assert [path.name for path in target.parent.iterdir()] == ["target"]
    for told in (up, down):
        assert told[0] == (0, size)
        assert told[-1] == (size, size)
        assert told == sorted(told)


def test_names_are_relative_and_odd_ones_work(store: ObjectStore, tmp_path: pathlib.Path) -> None:
    source = write(tmp_path / "source", 10)
    names = ["a.pt", "ep1/ba 2.pt", "ep1/ba%203.pt", "ep1/x+#&=.pt", "ep1/é.pt", "ep10/a.pt", "ep2"]
    for name in names:
        store.upload_object(name, source)
    store.upload_object("/slash", source)
    names = sorted([*names, "slash"])
    assert store.list_objects() == names
    assert store.list_objects("") == names
    assert store.list_objects("ep1/") == [name for name in names if name.startswith("ep1/")]
    assert store.list_objects("ep1") == [name for name in names if name.startswith("ep1")]
    assert store.list_objects("ep1/ba") == ["ep1/ba 2.pt", "ep1/ba%203.pt"]
    assert store.list_objects("/ep2") == ["ep2"]
    assert store.list_objects("none/") == []
    assert store.list_objects("none") == []
    for number, name in enumerate(store.list_objects()):
        assert store.get_object_size(name) == 10
        store.download_object(name, tmp_path / str(number))
        assert store.get_uri(name).endswith(f"/{name}")


def test_listing_an_empty_store(store: ObjectStore) -> None:
    assert store.list_objects() == []


def test_missing_objects_and_files(store: ObjectStore, tmp_path: pathlib.Path) -> None:
    source = write(tmp_path / "source", 10)
    store.upload_object("folder/a", source)
    older = tmp_path / "older"
    older.write_text("older")
    for name in ("none", "folder", "folder/a/b", "folde"):
        with pytest.raises(FileNotFoundError):
            store.get_object_size(name)
        with pytest.raises(FileNotFoundError):
            store.download_object(name, tmp_path / "target")
        with pytest.raises(FileNotFoundError):
            store.download_object(name, older, overwrite=True)
    with pytest.raises(FileNotFoundError, match="nothing"):
        store.upload_object("x", tmp_path / "nothing")
    assert older.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["older", "source"]


def test_deleting(store: ObjectStore, tmp_path: pathlib.Path) -> None:
    source = write(tmp_path / "source", 10)
    for name in ("folder/a", "folder/ab"):
        store.upload_object(name, source)
    store.delete_object("folder/a")
    assert store.list_objects() == ["folder/ab"]
    with pytest.raises(FileNotFoundError):
        store.get_object_size("folder/a")
    store.delete_object("folder/a")  # it is gone already, which is what was asked for
    store.delete_object("nobody")
    assert store.list_objects() == ["folder/ab"]
    with pytest.raises(ValueError, match="leads out"):
        store.delete_object("../source")


def test_a_store_that_cannot_delete_says_so(tmp_path: pathlib.Path) -> None:
    store = Shelf()
    store.upload_object("a", write(tmp_path / "a", 5))
    with pytest.raises(NotImplementedError, match="Shelf cannot delete 'a'"):
        store.delete_object("a")


def test_replacing(store: ObjectStore, tmp_path: pathlib.Path) -> None:
    store.upload_object("a", write(tmp_path / "one", 7 * MiB))
    store.upload_object("a", write(tmp_path / "two", 3))
    assert store.get_object_size("a") == 3
    with pytest.raises(FileExistsError, match="allow overwriting"):
        store.download_object("a", tmp_path / "one")
    assert (tmp_path / "one").stat().st_size == 7 * MiB
    store.download_object("a", tmp_path / "one", overwrite=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert store.list_objects() == ["a"]


def test_names_that_leave_and_options_that_are_unknown(
    store: ObjectStore, tmp_path: pathlib.Path
) -> None:
    source = write(tmp_path / "source", 10)
    for name in ("../a", "a/../../a"):
        for act in (
            lambda name=name: store.upload_object(name, source),
            lambda name=name: store.download_object(name, tmp_path / "target"),
            lambda name=name: store.get_object_size(name),
        ):
            with pytest.raises(ValueError, match="leads out"):
                act()
    with pytest.raises(TypeError, match="colour"):
        store.upload_object("a", source, colour="red")
    assert store.list_objects() == []


def test_upload_that_fails_leaves_nothing(
    store: ObjectStore, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "source", 11 * MiB)
    seen: list[int] = []

    def stop(done: int, total: int) -> None:
        seen.append(done)
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.upload_object("a/b", source, callback=stop)
    # Some stores learn of progress only when all is done; then the object is whole.
    if store.list_objects():
        assert seen[-1] == 11 * MiB
        assert store.get_object_size("a/b") == 11 * MiB
    # Whatever was left under other names does not come back as an object.
    assert store.list_objects() in ([], ["a/b"])
    store.upload_object("a/b", source)
    assert store.get_object_size("a/b") == 11 * MiB


def test_stores_travel_to_other_processes(s3_server: str, tmp_path: pathlib.Path) -> None:
    bucket = f"bucket-{uuid.uuid4().hex}"
    with S3ObjectStore(bucket, "", "us-east-1", s3_server, **KEYS) as store:
        store.fs.call_s3("create_bucket", Bucket=bucket)
        store.upload_object("a", write(tmp_path / "a", 5))
        with pickle.loads(pickle.dumps(store)) as copy:
            assert copy.get_object_size("a") == 5


# ---- S3 -----------------------------------------------------------------------------------------


def test_s3_settings_from_the_environment(
    s3_server: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = f"bucket-{uuid.uuid4().hex}"
    monkeypatch.setenv("S3_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("S3_CANNED_ACL", "public-read")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = maybe_create_object_store_from_uri(f"s3://{bucket}/folder/a.pt")
    assert isinstance(store, S3ObjectStore)
    store.chunk_size, store.multipart_threshold = 5 * MiB, 5 * MiB
    with store:
        store.fs.call_s3("create_bucket", Bucket=bucket)
        everybody = "http://acs.amazonaws.com/groups/global/AllUsers"
        for name, size in (("small", 5), ("large", 6 * MiB)):
            store.upload_object(name, write(tmp_path / "a", size))
            grants = store.fs.call_s3("get_object_acl", Bucket=bucket, Key=name)["Grants"]
            assert everybody in {grant["Grantee"].get("URI") for grant in grants}
        store.upload_object(
            "own", tmp_path / "a", ExtraArgs={"ACL": "private"}, Metadata={"k": "v"}
        )
        grants = store.fs.call_s3("get_object_acl", Bucket=bucket, Key="own")["Grants"]
        assert everybody not in {grant["Grantee"].get("URI") for grant in grants}
        head = store.fs.call_s3("head_object", Bucket=bucket, Key="own")
        assert head["Metadata"] == {"k": "v"}


def test_s3_prefix_on_names_and_keys(s3_clients: Clients, tmp_path: pathlib.Path) -> None:
    bucket = f"bucket-{uuid.uuid4().hex}"
    source = write(tmp_path / "a", 5)
    with s3_clients.store(bucket) as whole, s3_clients.store(bucket, "/runs/1/") as part:
        part.upload_object("ep1.pt", source)
        whole.upload_object("runs/10/ep1.pt", source)
        assert part.get_key("ep1.pt") == "runs/1/ep1.pt"
        assert part.get_uri("ep1.pt") == f"s3://{bucket}/runs/1/ep1.pt"
        assert part.list_objects() == ["ep1.pt"]
        assert whole.list_objects() == ["runs/1/ep1.pt", "runs/10/ep1.pt"]


def test_s3_missing_bucket_is_no_empty_one(s3_server: str, tmp_path: pathlib.Path) -> None:
    with S3ObjectStore("nobody-made-it", endpoint_url=s3_server, **KEYS) as store:
        with pytest.raises(FileNotFoundError, match="s3://nobody-made-it"):
            store.list_objects()
        with pytest.raises(FileNotFoundError, match="s3://nobody-made-it/a"):
            store.upload_object("a", write(tmp_path / "a", 5))


def test_s3_failed_multipart_upload_keeps_no_parts(
    s3_clients: Clients, tmp_path: pathlib.Path
) -> None:
    bucket = f"bucket-{uuid.uuid4().hex}"

    def stop(done: int, total: int) -> None:
        if done:
            raise RuntimeError("stop")

    with s3_clients.store(bucket) as store:
        with pytest.raises(RuntimeError, match="stop"):
            store.upload_object("a", write(tmp_path / "a", 20 * MiB), callback=stop)
        left = store.fs.call_s3("list_multipart_uploads", Bucket=bucket)
        assert left.get("Uploads", []) == []
        assert store.list_objects() == []


def test_s3_transfer_config_is_checked() -> None:
    pytest.importorskip("s3fs")
    S3ObjectStore("b", transfer_config={"max_concurrency": 2, "use_threads": True})
    with pytest.raises(ValueError, match='"max_concurrency"'):
        S3ObjectStore("b", transfer_config={"max_concurency": 2})


class Refused(Exception):
    def __init__(self, code: str, status: int) -> None:
        super().__init__(f"refused: {code}")
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        ({"Contents": []}, FileNotFoundError),
        ({"Contents": [{"Key": "a-longer"}]}, FileNotFoundError),
        ({"Contents": [{"Key": "a"}]}, PermissionError),
        (Refused("AccessDenied", 403), HiddenObjectError),
        (Refused("ExpiredToken", 403), PermissionError),
    ],
)
def test_s3_forbidden_or_missing(listing: Any, expected: type[Exception]) -> None:
    """A 403 is told as missing only where the credentials may not learn better."""
    pytest.importorskip("s3fs")

    class Fs:
        def info(self, path: str) -> Any:
            raise PermissionError("Forbidden") from Refused("403", 403)

        def call_s3(self, method: str, **arguments: Any) -> Any:
            assert (method, arguments["Prefix"]) == ("list_objects_v2", "a")
            if isinstance(listing, dict):
                return listing
            raise PermissionError(str(listing)) from listing

    import os

    store = S3ObjectStore("b")
    store._opened = (os.getpid(), Fs())
    with pytest.raises((FileNotFoundError, PermissionError)) as caught:
        store.get_object_size("a")
    assert type(caught.value) is expected
    assert "s3://b/a" in str(caught.value)
    store._opened = None


@pytest.mark.parametrize("is_whole", [True, False])
def test_s3_completion_whose_answer_was_lost(is_whole: bool, tmp_path: pathlib.Path) -> None:
    """The second request finds no upload; whether the first was carried out, the object tells."""
    pytest.importorskip("s3fs")
    source = write(tmp_path / "a", 11 * MiB)
    calls: list[str] = []

    class Fs:
        def info(self, path: str) -> Any:
            return {"size": 11 * MiB if is_whole else 5, "type": "file"}

        def call_s3(self, method: str, **arguments: Any) -> Any:
            calls.append(method)
            if method == "complete_multipart_upload":
                if calls.count(method) == 1:
                    raise ConnectionResetError
                raise FileNotFoundError("The specified upload does not exist.")
            return {"UploadId": "1", "ETag": "e"}

    store = S3ObjectStore("b", transfer_config={"multipart_chunksize": 5 * MiB})
    store._open = Fs  # type: ignore[method-assign]
    store._sleep = lambda seconds: None
    if is_whole:
        store.upload_object("a", source)
    else:
        with pytest.raises(FileNotFoundError, match="upload does not exist"):
            store.upload_object("a", source)
    assert ("abort_multipart_upload" in calls) is not is_whole
    store._opened = None


# ---- SFTP ---------------------------------------------------------------------------------------


def test_sftp_from_a_uri(
    sftp_server: SftpServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSER_SFTP_KNOWN_HOSTS_FILE", str(sftp_server.known_hosts))
    uri = f"sftp://me:secret@127.0.0.1:{sftp_server.port}/uri/a.pt"
    with maybe_create_object_store_from_uri(uri) as store:  # type: ignore[union-attr]
        store.upload_object("uri/a.pt", write(tmp_path / "a", 5))
        assert store.list_objects("uri/") == ["uri/a.pt"]
        # No secret in what goes into logs and errors.
        assert store.get_uri("uri/a.pt") == f"sftp://127.0.0.1:{sftp_server.port}/uri/a.pt"


def test_sftp_refuses_strangers(sftp_server: SftpServer, tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").touch()
    with (
        sftp_store(sftp_server, known_hosts_filename=tmp_path / "empty") as store,
        pytest.raises(PermissionError, match="not known"),
    ):
        store.list_objects()
    with (
        sftp_store(sftp_server, password="wrong") as store,
        pytest.raises(PermissionError, match="log-in failed"),
    ):
        store.list_objects()
    with pytest.raises(ValueError, match="RejectPolicy"):
        sftp_store(sftp_server, missing_host_key_policy="Whatever")


def test_sftp_connects_again(sftp_server: SftpServer, tmp_path: pathlib.Path) -> None:
    waits: list[float] = []
    with sftp_store(sftp_server) as store:
        store._sleep = waits.append
        store.upload_object("a", write(tmp_path / "a", 5))
        sftp_server.cut_connections()
        assert store.get_object_size("a") == 5
        sftp_server.cut_connections()
        store.download_object("a", tmp_path / "b")
    assert 1 <= len(waits) <= 4


# ---- from a URI or a name -----------------------------------------------------------------------


def test_memory_uri(tmp_path: pathlib.Path) -> None:
    bucket = uuid.uuid4().hex
    first = maybe_create_object_store_from_uri(f"memory://{bucket}/a")
    assert first is not None
    first.upload_object("a", write(tmp_path / "a", 5))
    second = build_remote_backend("memory", {"bucket": bucket})
    assert second.list_objects() == ["a"]
    assert second.get_uri("a") == f"memory://{bucket}/a"


@pytest.mark.parametrize(
    ("uri", "kind", "expected"),
    [
        ("s3://b/a", S3ObjectStore, "s3://b/a"),
        ("s3a://b/a", S3ObjectStore, "s3://b/a"),
        ("gs://b/a", GCSObjectStore, "gs://b/a"),
        ("az://b/a", AzureObjectStore, "az://b/a"),
        ("azure://b/a", AzureObjectStore, "az://b/a"),
        ("abfs://b@account.dfs.core.windows.net/a", AzureObjectStore, "az://b/a"),
        ("oci://b/a", OCIObjectStore, "oci://b/a"),
        ("hf://datasets/a", HuggingFaceObjectStore, "hf://datasets/a"),
        ("sftp://host/a", SFTPObjectStore, "sftp://host:22/a"),
    ],
)
def test_schemes(uri: str, kind: type, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kits need not be there to find the right class.
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setenv("GCS_KEY", "key")
    monkeypatch.setenv("GCS_SECRET", "secret")
    store = maybe_create_object_store_from_uri(uri)
    assert type(store) is kind
    assert store.get_uri("a") == expected
    if "@" in uri:
        assert isinstance(store, AzureObjectStore)
        assert store.account_name == "account"


@pytest.mark.parametrize("scheme", ["fsspec", "libcloud"])
def test_schemes_that_name_no_service(scheme: str) -> None:
    with pytest.raises(ValueError, match="scheme"):
        maybe_create_object_store_from_uri(f"{scheme}://b/a")
    with pytest.raises(ValueError, match="must start with a scheme"):
        FsspecObjectStore("folder")


@pytest.mark.parametrize(
    ("uri", "package", "extra"),
    [
        ("s3://b/a", "s3fs", "s3"),
        ("gs://b/a", "gcsfs", "gcs"),
        ("az://b/a", "adlfs", "azure"),
        ("oci://b/a", "ocifs", "oci"),
        ("hf://b/a", "huggingface_hub", "hf"),
        ("sftp://b/a", "paramiko", "sftp"),
    ],
)
def test_missing_kit_says_what_to_install(
    uri: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.metadata
    import importlib.util

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == package else find_spec(name)
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delenv("GCS_KEY", raising=False)
    with pytest.raises(MissingConditionalImportError) as caught:
        maybe_create_object_store_from_uri(uri)
    assert f'pip install "composer-core[{extra}]"' in str(caught.value)
    # An extra that the distribution really has, as those above it have it too.
    for distribution in ("composer-core", "composer-trainer", "composer-full"):
        offered = importlib.metadata.metadata(distribution).get_all("Provides-Extra") or []
        assert extra in offered, distribution


def test_stores_that_come_later_say_so() -> None:
    import composer.utils
    import composer.utils.object_store

    for module in (composer.utils, composer.utils.object_store):
        for name in ("UCObjectStore", "MLFlowObjectStore"):
            with pytest.raises(ImportError, match="later release"):
                getattr(module, name)


def test_libcloud_hands_on(tmp_path: pathlib.Path) -> None:
    source = write(tmp_path / "a", 5)
    with LibcloudObjectStore("local", "c", provider_kwargs={"key": str(tmp_path)}) as store:
        store.upload_object("x/b", source)
        assert (tmp_path / "c/x/b").read_bytes() == source.read_bytes()
        assert store.list_objects("x/") == ["x/b"]
        assert store.get_object_size("x/b") == 5
        store.download_object("x/b", tmp_path / "d")
        with pytest.raises(FileExistsError):
            store.download_object("x/b", tmp_path / "d")
        store.download_object("x/b", tmp_path / "d", overwrite=True)
        assert store.get_uri("x/b") == f"file://{tmp_path}/c/x/b"


def test_libcloud_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setenv("MY_KEY", "key")
    monkeypatch.setenv("MY_SECRET", "secret")
    environment = {"key_environ": "MY_KEY", "secret_environ": "MY_SECRET"}
    amazon = LibcloudObjectStore("S3_US_WEST_2", "c", **environment).store
    assert isinstance(amazon, S3ObjectStore)
    assert amazon.storage_options["client_kwargs"] == {"region_name": "us-west-2"}
    assert (amazon.storage_options["key"], amazon.storage_options["secret"]) == ("key", "secret")
    minio = LibcloudObjectStore(
        "minio", "c", provider_kwargs={"host": "box", "port": 9000, "secure": False}
    ).store
    assert isinstance(minio, S3ObjectStore)
    assert minio.storage_options["endpoint_url"] == "http://box:9000"
    azure = LibcloudObjectStore("AZURE_BLOBS", "c", **environment).store
    assert isinstance(azure, AzureObjectStore)
    assert (azure.account_name, azure.account_key) == ("key", "secret")
    google = LibcloudObjectStore("GOOGLE_STORAGE", "c", **environment).store
    assert isinstance(google, S3ObjectStore)
    assert google.storage_options["endpoint_url"] == "https://storage.googleapis.com"
    with pytest.raises(ValueError, match="endpoint_url"):
        LibcloudObjectStore("CLOUDFILES", "c")
    with pytest.raises(ValueError, match="ex_force"):
        LibcloudObjectStore("S3", "c", provider_kwargs={"ex_force": True})


def test_no_kit_is_imported_before_it_is_used() -> None:
    run_python(
        """
import sys
import torch
before = set(sys.modules)
import composer.utils
from composer.utils import RemoteUploader, S3ObjectStore, maybe_create_object_store_from_uri
maybe_create_object_store_from_uri("s3://bucket/a").get_uri("b")
maybe_create_object_store_from_uri("memory://bucket/a").get_uri("b")
new = {name.partition(".")[0] for name in set(sys.modules) - before}
kits = {"fsspec", "s3fs", "botocore", "aiobotocore", "aiohttp", "gcsfs", "adlfs", "paramiko"}
assert not new & kits, new & kits
"""
    )


# ---- what errors mean ---------------------------------------------------------------------------


class WithStatus(Exception):
    def __init__(self, **facts: Any) -> None:
        super().__init__("told")
        vars(self).update(facts)


def kit_error(package: str, *names: str) -> Exception:
    cls: type = Exception
    for name in names:
        cls = type(name, (cls,), {"__module__": f"{package}.exceptions"})
    return cls("told")


TRANSIENT = ObjectStoreTransientError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *[(WithStatus(status=status), TRANSIENT) for status in (408, 429, 500, 502, 503, 504)],
        (WithStatus(status_code=404), FileNotFoundError),
        (WithStatus(code="403"), PermissionError),
        (WithStatus(response=type("R", (), {"status_code": 503})()), TRANSIENT),
        (WithStatus(status=400), None),
        (WithStatus(status=501), None),
        (WithStatus(code=2), None),
        (Refused("SlowDown", 503), TRANSIENT),
        (Refused("InternalError", 200), TRANSIENT),
        (Refused("AccessDenied", 403), PermissionError),
        (Refused("InvalidArgument", 400), None),
        (ConnectionResetError(), TRANSIENT),
        (TimeoutError(), TRANSIENT),
        (OSError(28, "no space left on device"), None),
        (OSError(113, "no route to host"), TRANSIENT),
        (FileNotFoundError("a"), FileNotFoundError),
        (PermissionError("a"), PermissionError),
        (kit_error("aiohttp", "ClientError", "ClientPayloadError"), TRANSIENT),
        (kit_error("aiohttp", "ClientError", "InvalidURL"), None),
        (kit_error("botocore", "HTTPClientError", "ReadTimeoutError"), TRANSIENT),
        (kit_error("botocore", "HTTPClientError", "SSLError"), None),
        (kit_error("botocore", "BotoCoreError", "NoCredentialsError"), PermissionError),
        (kit_error("google", "GoogleAuthError", "DefaultCredentialsError"), PermissionError),
        (kit_error("azure", "AzureError", "ServiceRequestError"), TRANSIENT),
        (kit_error("requests", "RequestException", "ConnectionError"), TRANSIENT),
        (kit_error("elsewhere", "ConnectionError"), None),
        (KeyError("a"), None),
    ],
    ids=lambda value: f"{value!r}"[:60],
)
def test_explained(error: Exception, expected: type[Exception] | None) -> None:
    found = explain(error, "s3://b/a")
    if expected is None:
        assert found is error
        return
    assert type(found) is expected
    assert "s3://b/a" in str(found)
    # The cause counts where the error itself says nothing.
    outer = OSError("wrapped")
    outer.__cause__ = error
    assert type(explain(outer, "s3://b/a")) is expected


# ---- the template -------------------------------------------------------------------------------


def test_template_tries_again_and_gives_up(tmp_path: pathlib.Path) -> None:
    source = write(tmp_path / "a", 5)
    store = Shelf()
    waits: list[float] = []
    store._sleep = waits.append
    store.initial_backoff, store.max_jitter, store.num_attempts = 1.0, 0.0, 4
    failures = [TimeoutError()] * 3
    write_it = store._write

    def fails(*args: Any, **kwargs: Any) -> None:
        if failures:
            raise failures.pop()
        write_it(*args, **kwargs)

    store._write = fails  # type: ignore[method-assign]
    store.upload_object("a", source)
    assert waits == [1.0, 2.0, 4.0]
    failures += [TimeoutError("no answer")] * 4
    with pytest.raises(
        ObjectStoreTransientError, match=r"shelf://a: storing failed 4 times within .* no answer"
    ) as caught:
        store.upload_object("a", source)
    assert isinstance(caught.value.__cause__, ObjectStoreTransientError)
    assert isinstance(caught.value.__cause__.__cause__, TimeoutError)
    failures += [KeyError("not ours")]
    waits.clear()
    with pytest.raises(KeyError, match="not ours"):
        store.upload_object("a", source)
    assert waits == []


def test_pieces_that_arrive_short_are_asked_for_again(tmp_path: pathlib.Path) -> None:
    store = Shelf()
    store._sleep = lambda seconds: None
    store.chunk_size = 4
    store.data["a"] = b"0123456789"
    read, cuts = store._read, [1, 0]

    def cut(name: str, start: int, stop: int) -> bytes:
        piece = read(name, start, stop)
        return piece[: cuts.pop()] if start == 4 and cuts else piece

    store._read = cut  # type: ignore[method-assign]
    store.download_object("a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"0123456789"
    assert cuts == []
    store._read = lambda name, start, stop: b"01"  # type: ignore[method-assign]
    with pytest.raises(ObjectStoreTransientError, match="2 of 4 bytes arrived"):
        store.download_object("a", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_object_that_changes_while_it_is_read(tmp_path: pathlib.Path) -> None:
    store = Shelf()
    store.chunk_size = store.max_concurrency = 1
    versions = iter([1, 2, 2, 3, 4, 5, 6])
    store._stat = lambda name: ObjectStat(2, next(versions))  # type: ignore[method-assign]
    contents = iter([b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"])
    store._read = lambda name, start, stop: next(contents)  # type: ignore[method-assign]
    store.download_object("x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"cd"
    contents = iter([b"a"] * 6)
    with pytest.raises(ObjectStoreTransientError, match="changed while it was read"):
        store.download_object("x", tmp_path / "y")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_upload_that_arrives_short_is_removed(tmp_path: pathlib.Path) -> None:
    store = Cupboard()

    def write_half(name: str, path: pathlib.Path, report: Any) -> None:
        store.data[name] = path.read_bytes()[:2]

    store._write = write_half  # type: ignore[method-assign, assignment]
    with pytest.raises(ObjectStoreTransientError, match="2 of the 5 bytes"):
        store.upload_object("a", write(tmp_path / "a", 5))
    assert store.data == {}


def test_credentials_that_may_only_write(tmp_path: pathlib.Path) -> None:
    store = Shelf()

    def refuse(name: str) -> ObjectStat:
        raise PermissionError("write only")

    store._stat = refuse  # type: ignore[method-assign]
    store.upload_object("a", write(tmp_path / "a", 5))
    assert len(store.data["a"]) == 5


def test_download_takes_bounded_memory(tmp_path: pathlib.Path) -> None:
    import threading

    store = Shelf()
    store.chunk_size, store.max_concurrency = 1000, 3
    store.data["a"] = bytes(100_000)
    lock = threading.Lock()
    now, most = 0, 0
    read = store._read

    def counted(name: str, start: int, stop: int) -> bytes:
        nonlocal now, most
        assert stop - start <= 1000
        with lock:
            now += 1
            most = max(most, now)
        piece = read(name, start, stop)
        with lock:
            now -= 1
        return piece

    store._read = counted  # type: ignore[method-assign]
    store.download_object("a", tmp_path / "a")
    assert most <= 3
    assert (tmp_path / "a").read_bytes() == bytes(100_000)


def test_classes_of_stores_are_contracts_or_leaves() -> None:
    """Nobody derives from a store that can be made; what is derived from cannot be made."""
    import composer.utils.object_store as home

    stores = [
        getattr(home, name)
        for name in home.__all__
        if isinstance(getattr(home, name), type) and issubclass(getattr(home, name), ObjectStore)
    ]
    assert len(stores) > 10
    for store in stores:
        for base in store.__mro__[1:]:
            made = issubclass(base, ObjectStore) and not inspect.isabstract(base)
            # Which does nothing itself, and whose methods nobody overrides.
            assert not made or base is ForwardingObjectStore, (store, base)
