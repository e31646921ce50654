"""Paths, templates, stores, transfers, compression."""

from __future__ import annotations

import http.server
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from composer.core.timestamp import Timestamp
from composer.utils import (
    CliCompressor,
    ObjectStore,
    atomic_write,
    build_remote_backend,
    create_symlink_file,
    ensure_folder_has_no_conflicting_files,
    ensure_folder_is_empty,
    extract_path_from_symlink,
    format_name_with_dist,
    format_name_with_dist_and_time,
    get_compressor,
    get_file,
    is_compressed_pt,
    is_tar,
    is_uri,
    list_remote_objects,
    maybe_create_object_store_from_uri,
    parse_uri,
    partial_format,
    validate_credentials,
)
from composer.utils.compression import CompressorNotFound
from composer.utils.object_store import LocalObjectStore
from composer_testing import write_distribution


@pytest.mark.parametrize(
    ("template", "args", "kwargs", "expected"),
    [
        ("{a}-{b}", (), {"a": 1}, "1-{b}"),
        ("{a:03d}{b!r:>5}", (), {"a": 1}, "001{b!r:>5}"),
        ("{}-{}", ("x",), {}, "x-{}"),
        ("{0}{1}", ("x",), {}, "x{1}"),
        ("{a.real}{b[0]}", (), {"a": 1}, "1{b[0]}"),
        ("{a:{w}}", (), {"a": 1, "w": 3}, "  1"),
        ("{{x}}{a}", (), {"a": 1}, "{x}1"),
        ("plain", (), {}, "plain"),
    ],
)
def test_partial_format(template: str, args: Any, kwargs: Any, expected: str) -> None:
    assert partial_format(template, *args, **kwargs) == expected


def test_format_name_with_dist(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "NODE_RANK": "2",
    }.items():
        monkeypatch.setenv(name, value)
    template = "{run_name}/{rank}-{local_rank}-{world_size}-{local_world_size}-{node_rank}-{x}"
    assert format_name_with_dist(template, "r", x="y") == "r/5-1-8-4-2-y"
    assert format_name_with_dist("{epoch}/{mlflow_run_id}", "r") == "{epoch}/{mlflow_run_id}"
    with pytest.raises(ValueError, match=r"unknown field \{rankk\}.*Did you mean \"rank\""):
        format_name_with_dist("{rankk}", "r")


def test_format_name_with_dist_and_time() -> None:
    timestamp = Timestamp(epoch=2, batch=30, batch_in_epoch=5, sample=90, total_wct=None)
    timestamp = timestamp.to_next_batch(samples=10, tokens=7, duration=1.5)
    template = "ep{epoch}-ba{batch}-{batch_in_epoch}-{sample}-{token}-{total_wct}-{rank}"
    assert format_name_with_dist_and_time(template, "r", timestamp) == "ep2-ba31-6-100-7-1.5-0"
    with pytest.raises(ValueError, match='"epoch"'):
        format_name_with_dist_and_time("{epcoh}", "r", timestamp)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://b/a/c.pt", ("s3", "b", "a/c.pt")),
        ("S3://b/a", ("s3", "b", "a")),
        ("gs://b", ("gs", "b", "")),
        ("s3://b/", ("s3", "b", "")),
        ("s3://b/a/", ("s3", "b", "a/")),
        ("s3://b/a b%20c#d?e=ü", ("s3", "b", "a b%20c#d?e=ü")),
        ("file:///a/b", ("file", "", "/a/b")),
        ("file://localhost/a", ("file", "", "/a")),
        ("/a/b", ("", "", "/a/b")),
        ("a/b", ("", "", "a/b")),
        ("C:/a/b", ("", "", "C:/a/b")),
        ("C:\\a", ("", "", "C:\\a")),
        ("", ("", "", "")),
    ],
)
def test_parse_uri(uri: str, expected: tuple[str, str, str]) -> None:
    assert parse_uri(uri) == expected
    assert is_uri(uri) == bool(expected[0])


def test_is_tar_and_is_compressed() -> None:
    assert all(map(is_tar, ["a.tar", "a.tgz", "b/a.tar.gz", "a.tar.bz2", "a.tar.lzma"]))
    assert not any(map(is_tar, ["a.pt", "tar", "a.tar.txt", pathlib.Path("x/y.gz")]))
    assert is_compressed_pt("x/ep1.pt.zst")
    assert not is_compressed_pt("x/ep1.pt")


def test_ensure_folder_is_empty(tmp_path: pathlib.Path) -> None:
    ensure_folder_is_empty(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()
    ensure_folder_is_empty(tmp_path)
    (tmp_path / "new" / "file").touch()
    with pytest.raises(FileExistsError, match="file"):
        ensure_folder_is_empty(tmp_path)


def test_conflicting_files(tmp_path: pathlib.Path) -> None:
    now = Timestamp(epoch=1, batch=4)
    template = "ep{epoch}-ba{batch}-rank{rank}.pt"
    for name in ("ep1-ba4-rank0.pt", "ep0-ba3-rank7.pt", "other-ep9.pt", "ep9-ba9.pt"):
        (tmp_path / name).touch()
    ensure_folder_has_no_conflicting_files(tmp_path, template, now)
    ensure_folder_has_no_conflicting_files(tmp_path / "none", template, now)
    (tmp_path / "ep1-ba5-rank0.pt").touch()
    (tmp_path / "ep2-ba4-rank0.pt").touch()
    with pytest.raises(FileExistsError, match=r"ep1-ba5-rank0.pt, ep2-ba4-rank0.pt"):
        ensure_folder_has_no_conflicting_files(tmp_path, template, now)
    (tmp_path / "latest-rank0").touch()
    with pytest.raises(FileExistsError, match="latest"):
        ensure_folder_has_no_conflicting_files(tmp_path, "latest-rank{rank}", now)


# ---- atomic writing -----------------------------------------------------------------------------


def test_atomic_write_replaces_and_leaves_nothing_else(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
        # In the same folder, so that the rename cannot become a copy.
        assert len(list(tmp_path.iterdir())) == 2
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_atomic_write_keeps_the_old_file_after_an_error(
    tmp_path: pathlib.Path, error: type[BaseException]
) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"old")

    def fail_half_way() -> None:
        with atomic_write(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_write_order_of_operations(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, pathlib.Path.replace

    def note_fsync(descriptor: int) -> None:
        done.append("fsync")
        fsync(descriptor)

    def note_replace(self: pathlib.Path, target: Any) -> Any:
        done.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(pathlib.Path, "replace", note_replace)
    with atomic_write(tmp_path / "a") as file:
        file.write(b"x")
    assert done == ["fsync", "replace", "fsync"]


def test_atomic_write_follows_links(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with atomic_write(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_atomic_write_into_a_missing_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "no" / "a"):
        pass


# ---- stores and transfer ------------------------------------------------------------------------


def test_local_store_round_trip(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 5_000_000)
    seen: list[tuple[int, int]] = []
    with LocalObjectStore(tmp_path / "store") as store:
        assert isinstance(store, ObjectStore)
        store.upload_object("a/b c.pt", source, callback=lambda *now: seen.append(now))
        assert seen[0] == (0, 5_000_000)
        assert seen[-1] == (5_000_000, 5_000_000)
        assert store.get_object_size("a/b c.pt") == 5_000_000
        store.upload_object("/a/d", source)
        store.upload_object("e", source)
        assert store.list_objects() == ["a/b c.pt", "a/d", "e"]
        assert store.list_objects("a/") == ["a/b c.pt", "a/d"]
        assert store.list_objects("a/b") == ["a/b c.pt"]
        assert store.list_objects("none/") == []
        target = tmp_path / "new" / "target"
        store.download_object("a/b c.pt", target)
        assert target.read_bytes() == source.read_bytes()
        with pytest.raises(FileExistsError):
            store.download_object("e", target)
        store.download_object("e", target, overwrite=True)
        with pytest.raises(FileNotFoundError):
            store.download_object("nothing", tmp_path / "other")
        with pytest.raises(FileNotFoundError):
            store.get_object_size("nothing")
        with pytest.raises(FileNotFoundError):
            store.upload_object("x", tmp_path / "nothing")
        with pytest.raises(ValueError, match="leads out"):
            store.get_object_size("../source")
        with pytest.raises(TypeError, match="takes no acl"):
            store.upload_object("x", source, acl="public")
    assert not list(tmp_path.rglob("*.tmp"))
    assert store.get_uri("a/d") == f"file://{tmp_path}/store/a/d"


def test_store_from_uri() -> None:
    assert maybe_create_object_store_from_uri("/a/b") is None
    assert isinstance(maybe_create_object_store_from_uri("file:///a"), LocalObjectStore)
    assert isinstance(build_remote_backend("file", {"root": "/"}), LocalObjectStore)
    with pytest.raises(
        ValueError, match=r"no object store named 'fil' is installed\.\nDid you mean \"file\""
    ):
        maybe_create_object_store_from_uri("fil://b/a")
    with pytest.raises(ValueError, match="no bucket"):
        LocalObjectStore.from_bucket("b")


def test_store_of_a_plugin_comes_in_through_the_door(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, fresh_plugins: Callable[[], None]
) -> None:
    code = """
        from composer.utils.object_store import LocalObjectStore

        class Store(LocalObjectStore):
            @classmethod
            def from_bucket(cls, bucket):
                return cls("/" + bucket)
    """
    write_distribution(
        tmp_path,
        "composer-shelf",
        entry_points={
            "composer.object_stores": {"shelf": "composer_shelf:Store", "no": "builtins:dict"}
        },
        modules={"composer_shelf.py": code},
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    store = maybe_create_object_store_from_uri("shelf://b/a")
    assert store is not None
    assert store.get_uri("a") == "file:///b/a"
    assert (
        build_remote_backend("composer-shelf:shelf", {"root": "/c"}).get_uri("a") == "file:///c/a"
    )
    with pytest.raises(TypeError, match="no argument 'rot'"):
        build_remote_backend("shelf", {"rot": "/c"})
    for ask in (
        lambda: build_remote_backend("no", {}),
        lambda: maybe_create_object_store_from_uri("no://b/a"),
    ):
        with pytest.raises(TypeError, match="is none"):
            ask()


def test_get_file_from_path_uri_and_store(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a b").write_text("hello")
    for number, path in enumerate([f"{tmp_path}/a b", f"file://{tmp_path}/a b"]):
        target = tmp_path / "out" / str(number)
        get_file(path, str(target))
        assert target.read_text() == "hello"
        with pytest.raises(FileExistsError):
            get_file(path, str(target))
        get_file(path, str(target), overwrite=True)
    get_file("a b", str(tmp_path / "2"), object_store=LocalObjectStore(tmp_path))
    assert (tmp_path / "2").read_text() == "hello"
    # A copy: the original may go.
    (tmp_path / "a b").unlink()
    assert (tmp_path / "out" / "0").read_text() == "hello"
    for path in (f"{tmp_path}/none", f"file://{tmp_path}/none"):
        with pytest.raises(FileNotFoundError):
            get_file(path, str(tmp_path / "3"))
    assert not (tmp_path / "3").exists()


def test_get_file_through_a_logger_destination(tmp_path: pathlib.Path) -> None:
    calls: list[Any] = []

    class Destination:
        def download_file(self, *args: Any) -> None:
            calls.append(args)

    get_file("a", "b", object_store=Destination(), progress_bar=False)  # type: ignore[arg-type]
    assert calls == [("a", "b", False, False)]


def test_symlink_files(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"must end in '.symlink'"):
        create_symlink_file("x", tmp_path / "latest")
    (tmp_path / "ep1.pt").write_text("weights")
    link = tmp_path / "latest.symlink"
    create_symlink_file(f"{tmp_path}/ep1.pt", link)
    assert extract_path_from_symlink(str(link)) == f"{tmp_path}/ep1.pt"
    get_file(str(link), str(tmp_path / "got"))
    get_file(f"file://{link}", str(tmp_path / "got2"))
    assert (tmp_path / "got").read_text() == (tmp_path / "got2").read_text() == "weights"
    create_symlink_file("ep1.pt", link)
    get_file("latest.symlink", str(tmp_path / "got3"), LocalObjectStore(tmp_path))
    assert (tmp_path / "got3").read_text() == "weights"


def test_list_and_validate(tmp_path: pathlib.Path) -> None:
    validate_credentials(LocalObjectStore(tmp_path), "probe")
    names = list_remote_objects(f"file://{tmp_path}/")
    assert names == [f"{tmp_path}/probe".lstrip("/")]
    with pytest.raises(ValueError, match="no URI"):
        list_remote_objects(str(tmp_path))


@pytest.fixture
def web(tmp_path: pathlib.Path) -> Iterator[str]:
    (tmp_path / "file").write_text("from the web")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_get_file_from_the_web(web: str, tmp_path: pathlib.Path) -> None:
    get_file(f"{web}/file", str(tmp_path / "got"))
    assert (tmp_path / "got").read_text() == "from the web"
    with pytest.raises(FileNotFoundError, match="404"):
        get_file(f"{web}/none", str(tmp_path / "got2"))


# ---- compression --------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_compression_round_trip(ending: str, tmp_path: pathlib.Path) -> None:
    compressor = get_compressor(f"a.pt.{ending}")
    if not compressor.exists:
        pytest.skip(f"{compressor.cmd} is not installed")
    path = str(tmp_path / f"a.pt.{ending}")
    data = b"0123456789" * 200_000
    with compressor.compress(path) as out:
        out.write(data)
    assert 0 < pathlib.Path(path).stat().st_size < len(data) / 10
    with compressor.decompress(path) as source:
        assert source.read() == data
    with compressor.decompress(path) as source:
        assert source.read(3) == b"012"


def test_compression_errors(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CompressorNotFound, match="no-such-tool"):
        CliCompressor("gz", "no-such-tool").check_exists()
    with pytest.raises(ValueError, match="no known compressed ending"):
        get_compressor("a.pt")
    damaged = tmp_path / "a.gz"
    damaged.write_bytes(b"not compressed")
    with (
        pytest.raises(OSError, match="failed with code"),
        get_compressor("a.gz").decompress(str(damaged)) as source,
    ):
        source.read()
