"""Uploads behind the run: in order, bounded, and no failure lost."""

from __future__ import annotations

import concurrent.futures
import pathlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from composer.utils import (
    RemoteFilesExistingCheckStatus,
    RemoteUploader,
    get_file,
    list_remote_objects,
    maybe_create_remote_uploader_downloader_from_uri,
)
from composer.utils.object_store import (
    LocalObjectStore,
    MemoryObjectStore,
    ObjectStoreTransientError,
)
from composer_testing import write_distribution


class Slow(LocalObjectStore):
    """A store that waits for the test, and fails as it is told."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.go = threading.Event()
        self.steps: list[str] = []
        self.errors: list[Exception] = []
        self.order: list[str] = []
        self.closed = False
        self.begun = threading.Semaphore(0)
        self.lock = threading.Lock()

    def upload_object(self, object_name: str, *args: Any, **kwargs: Any) -> None:
        with self.lock:
            self.steps.append(f"begin {object_name}")
        self.begun.release()
        assert self.go.wait(30)
        with self.lock:
            error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        super().upload_object(object_name, *args, **kwargs)
        with self.lock:
            self.order.append(object_name)
            self.steps.append(f"end {object_name}")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Slow:
    return Slow(tmp_path / "remote")


@pytest.fixture
def make(store: Slow, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RemoteUploader]]:
    made: list[RemoteUploader] = []
    monkeypatch.setattr(RemoteUploader, "_open", lambda self: store)
    monkeypatch.setattr("composer.utils.retrying.time.sleep", lambda seconds: None)

    def build(**options: Any) -> RemoteUploader:
        made.append(RemoteUploader("file:///run1", **options))
        return made[-1]

    yield build
    store.go.set()
    for uploader in made:
        uploader.upload_executor.shutdown(cancel_futures=True)
        uploader.check_remote_files_exist_executor.shutdown(cancel_futures=True)


def test_file_may_go_as_soon_as_it_is_handed_over(
    make: Callable[..., RemoteUploader], store: Slow, tmp_path: pathlib.Path
) -> None:
    uploader = make()
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    path = folder / "ep1.pt"
    path.write_text("first")
    uploader.upload_file_async("one", path, overwrite=False)
    path.unlink()
    path.write_text("second")
    (tmp_path / "moved").write_text("third")
    uploader.upload_file_async("two", str(path), overwrite=False)
    (tmp_path / "moved").replace(path)
    store.go.set()
    uploader.wait_and_close()
    assert (tmp_path / "remote/run1/one").read_text() == "first"
    assert (tmp_path / "remote/run1/two").read_text() == "second"
    assert [each.name for each in folder.iterdir()] == ["ep1.pt"]
    assert store.closed


@pytest.mark.parametrize("links", [True, False])
def test_folder_of_the_file_may_go_before_the_upload(
    links: bool,
    make: Callable[..., RemoteUploader],
    store: Slow,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not links:
        monkeypatch.setattr("os.link", refuse)
    uploader = make()
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        path = pathlib.Path(folder, "ep1.pt")
        path.write_text("weights")
        uploader.upload_file_async("ep1.pt", path, overwrite=False)
    store.go.set()
    uploader.wait_and_close()
    assert (tmp_path / "remote/run1/ep1.pt").read_text() == "weights"


@pytest.mark.parametrize("links", [True, False])
def test_only_what_was_staged_is_removed(
    links: bool,
    make: Callable[..., RemoteUploader],
    store: Slow,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the folder of the file is called."""
    if not links:
        monkeypatch.setattr("os.link", refuse)
    staging, folder = tmp_path / "staging", tmp_path / "composer-upload-mine"
    for each in (staging, folder):
        each.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(staging))
    (folder / "ep1.pt").write_text("weights")
    (folder / "notes").write_text("mine")
    store.go.set()
    uploader = make()
    uploader.upload_file_async("ep1.pt", folder / "ep1.pt", overwrite=False)
    uploader.wait_and_close()
    assert sorted(each.name for each in folder.iterdir()) == ["ep1.pt", "notes"]
    assert list(staging.iterdir()) == []


def refuse(*args: object) -> None:
    raise OSError("no links here")


def test_staging_that_fails_leaves_nothing(
    make: Callable[..., RemoteUploader], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "staging"))
    (tmp_path / "staging").mkdir()
    (tmp_path / "a").write_text("x")
    monkeypatch.setattr("os.link", refuse)
    monkeypatch.setattr("shutil.copyfile", refuse)
    with pytest.raises(OSError, match="no links here"):
        make().upload_file_async("a", tmp_path / "a", overwrite=False)
    assert list((tmp_path / "staging").iterdir()) == []


def test_staging_without_links(
    make: Callable[..., RemoteUploader],
    store: Slow,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    monkeypatch.setattr("os.link", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(staging))
    uploader = make()
    path = tmp_path / "a"
    path.write_text("first")
    uploader.upload_file_async("a", path, overwrite=False)
    path.unlink()
    store.go.set()
    uploader.wait_and_close()
    assert (tmp_path / "remote/run1/a").read_text() == "first"
    assert list(staging.iterdir()) == []


def test_what_points_to_data_goes_after_it(
    make: Callable[..., RemoteUploader], store: Slow, tmp_path: pathlib.Path
) -> None:
    uploader = make(num_concurrent_uploads=4)
    path = tmp_path / "a"
    path.write_text("x")
    data = Watched(uploader.upload_file_async("data", path, overwrite=False))
    manifest = Watched(
        uploader.upload_file_async("manifest", path, overwrite=False, after=[data.future])
    )
    uploader.upload_file_async("latest", path, overwrite=True, after=[data, manifest])
    # The last one has a thread, and looks whether it may begin.
    assert data.asked.wait(30)
    store.go.set()
    uploader.wait_and_close()
    names = ("run1/data", "run1/manifest", "run1/latest")
    assert store.steps == [f"{step} {name}" for name in names for step in ("begin", "end")]


class Watched(concurrent.futures.Future[None]):
    """An upload that notes when another one asks for its outcome."""

    def __init__(self, future: concurrent.futures.Future[None]) -> None:
        super().__init__()
        self.future = future
        self.asked = threading.Event()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.asked.set()
        return self.future.exception(timeout)


def test_what_points_to_data_that_failed_is_not_uploaded(
    make: Callable[..., RemoteUploader], store: Slow, tmp_path: pathlib.Path
) -> None:
    uploader = make(num_concurrent_uploads=1)
    path = tmp_path / "a"
    path.write_text("x")
    store.errors = [PermissionError("may not write")]
    store.go.set()
    data = uploader.upload_file_async("data", path, overwrite=False)
    uploader.upload_file_async("latest", path, overwrite=True, after=[data])
    with pytest.raises(RuntimeError, match=r"may not write So did 1 more"):
        uploader.wait()
    assert store.order == []


def test_failures_surface_and_stay(
    make: Callable[..., RemoteUploader], store: Slow, tmp_path: pathlib.Path
) -> None:
    uploader = make()
    path = tmp_path / "a"
    path.write_text("x")
    uploader.check_workers()
    store.errors = [PermissionError("may not write")]
    future = uploader.upload_file_async("a", path, overwrite=False)
    uploader.check_workers()
    assert not uploader.is_remote_upload_failed
    store.go.set()
    with pytest.raises(PermissionError):
        future.result(30)
    for ask in (uploader.check_workers, uploader.check_workers, uploader.wait):
        with pytest.raises(RuntimeError, match="'file:///run1' failed: PermissionError") as caught:
            ask()
        assert isinstance(caught.value.__cause__, PermissionError)
    # Later uploads go on, and the end still tells.
    uploader.upload_file_async("b", path, overwrite=False).result(30)
    with pytest.raises(RuntimeError, match="may not write"):
        uploader.wait_and_close()
    assert store.closed
    assert [each.name for each in tmp_path.iterdir()] in (["a", "remote"], ["remote", "a"])
    with pytest.raises(RuntimeError, match="is closed"):
        uploader.upload_file_async("c", path, overwrite=False)


def test_transient_failures_are_tried_again(
    make: Callable[..., RemoteUploader], store: Slow, tmp_path: pathlib.Path
) -> None:
    uploader = make(num_attempts=3)
    path = tmp_path / "a"
    path.write_text("x")
    store.go.set()
    store.errors = [ObjectStoreTransientError("away")] * 2
    uploader.upload_file_async("a", path, overwrite=False)
    uploader.wait()
    store.errors = [ObjectStoreTransientError("away")] * 3
    uploader.upload_file_async("b", path, overwrite=False)
    with pytest.raises(RuntimeError, match="ObjectStoreTransientError: away"):
        uploader.wait()
    assert store.order == ["run1/a"]


def test_overwriting(
    make: Callable[..., RemoteUploader], store: Slow, tmp_path: pathlib.Path
) -> None:
    uploader = make()
    path = tmp_path / "a"
    store.go.set()
    for text, overwrite in (("1", False), ("2", True)):
        path.write_text(text)
        uploader.upload_file_async("a", path, overwrite=overwrite).result(30)
    path.write_text("3")
    uploader.upload_file_async("a", path, overwrite=False)
    with pytest.raises(RuntimeError, match="allow overwriting"):
        uploader.wait()
    assert (tmp_path / "remote/run1/a").read_text() == "2"
    with pytest.raises(FileNotFoundError):
        uploader.upload_file_async("b", tmp_path / "none", overwrite=False)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_number_of_uploads_at_one_time(
    number: int, make: Callable[..., RemoteUploader], store: Slow, tmp_path: pathlib.Path
) -> None:
    uploader = make(num_concurrent_uploads=number)
    path = tmp_path / "a"
    path.write_text("x")
    before = set(threading.enumerate())
    for each in range(6):
        uploader.upload_file_async(str(each), path, overwrite=False)
    # That many are held by the store at one time, and no other has a thread to begin in.
    for _ in range(number):
        assert store.begun.acquire(timeout=30)
    assert len(set(threading.enumerate()) - before) == number
    assert len(store.steps) == number
    store.go.set()
    uploader.wait()
    assert len(store.order) == 6


def test_waiting_for_remote_files(
    make: Callable[..., RemoteUploader], store: Slow, tmp_path: pathlib.Path
) -> None:
    status = RemoteFilesExistingCheckStatus
    uploader = make()
    store.go.set()
    path = tmp_path / "a"
    path.write_text("x")
    uploader.upload_file_async("a", path, overwrite=False).result(30)
    ask = uploader.check_remote_files_exist_async
    assert ask(["a"]).result(30) is status.EXIST
    assert ask(["a", "b"], 0, 0.01).result(30) is status.TIMEOUT
    waiting = ask(["a", "b"], 60, 0.01)
    assert not waiting.done()
    uploader.upload_file_async("b", path, overwrite=False).result(30)
    assert waiting.result(30) is status.EXIST
    waiting = ask(["c"], 60, 0.01)
    store.errors = [PermissionError("may not write")]
    uploader.upload_file_async("c", path, overwrite=False)
    assert waiting.result(30) is status.ERROR


def test_closing_does_not_wait_for_files_that_never_come(
    make: Callable[..., RemoteUploader], store: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()

    def missing(name: str) -> int:
        looked.set()
        raise FileNotFoundError(name)

    monkeypatch.setattr(store, "get_object_size", missing)
    uploader = make()
    waiting = uploader.check_remote_files_exist_async(["a"], 60, 60)
    assert looked.wait(30)
    uploader.wait_and_close()
    # Had it slept to the end, the outcome would be that the time is over.
    assert waiting.result(0) is RemoteFilesExistingCheckStatus.ERROR


def test_store_from_uri_and_arguments(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a"
    path.write_text("x")
    uploader = RemoteUploader("memory://shelf/run1/")
    uploader.init()
    uploader.upload_file_async("ep1.pt", path, overwrite=False)
    # As the path in the bucket is spelled by some.
    uploader.upload_file_async("run1/ep2.pt", path, overwrite=False)
    uploader.wait_and_close()
    names = list_remote_objects("memory://shelf/run1/")
    assert names == [
        "run1/.credentials_validated_successfully",
        "run1/ep1.pt",
        "run1/ep2.pt",
    ]
    get_file("memory://shelf/run1/ep2.pt", str(tmp_path / "got"))
    assert (tmp_path / "got").read_text() == "x"
    other = RemoteUploader("memory://shelf/run1", {"prefix": "deep"})
    assert isinstance(other.remote_backend, MemoryObjectStore)
    assert other.remote_backend.get_uri("a") == "memory://shelf/deep/a"
    with pytest.raises(ValueError, match="must be a URI"):
        RemoteUploader("folder")
    with pytest.raises(ValueError, match="num_attempts=0"):
        RemoteUploader("memory://shelf", num_attempts=0)


def test_init_finds_a_store_that_may_not_be_written(
    make: Callable[..., RemoteUploader], store: Slow
) -> None:
    store.go.set()
    store.errors = [PermissionError("may not write")]
    with pytest.raises(PermissionError):
        make().init()


def test_uploading_logger_comes_in_through_the_door(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, fresh_plugins: Callable[[], None]
) -> None:
    build = maybe_create_remote_uploader_downloader_from_uri
    assert build("folder", []) is None
    write_distribution(
        tmp_path,
        "composer-post",
        entry_points={"composer.loggers": {"remote_uploader_downloader": "composer_post:Post"}},
        modules={
            "composer_post.py": """
                class Post:
                    def __init__(self, bucket_uri):
                        self.remote_backend_name, _, self.remote_bucket_name = (
                            bucket_uri.partition("://")
                        )
            """
        },
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    made: Any = build("s3://bucket/a/b", [])
    assert (made.remote_backend_name, made.remote_bucket_name) == ("s3", "bucket")
    with pytest.warns(UserWarning, match="s3://bucket is there already"):
        assert build("s3://bucket/c", [made]) is None
    assert build("s3://other/c", [made]) is not None


# ---- links --------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["ep1.pt", "/run/ep1.pt", "memory://{bucket}/run/ep1.pt"])
def test_links_in_a_bucket(content: str, tmp_path: pathlib.Path) -> None:
    bucket = f"links{abs(hash(content))}"
    store = MemoryObjectStore(bucket)
    (tmp_path / "a").write_text("weights")
    store.upload_object("run/ep1.pt", tmp_path / "a")
    store.upload_object("ep1.pt", tmp_path / "a")
    (tmp_path / "link").write_text(content.format(bucket=bucket))
    store.upload_object("run/latest.symlink", tmp_path / "link")
    get_file(f"memory://{bucket}/run/latest.symlink", str(tmp_path / "got1"))
    get_file("run/latest.symlink", str(tmp_path / "got2"), object_store=store)
    assert (tmp_path / "got1").read_text() == (tmp_path / "got2").read_text() == "weights"


@pytest.mark.parametrize(
    "content",
    [
        "../ep1.pt",
        "run/../../ep1.pt",
        "memory://other/ep1.pt",
        "s3://bucket/ep1.pt",
        "file:///etc/passwd",
        "",
    ],
)
def test_links_that_leave_a_bucket_are_refused(content: str, tmp_path: pathlib.Path) -> None:
    store = MemoryObjectStore("links")
    (tmp_path / "link").write_text(content)
    store.upload_object("run/latest.symlink", tmp_path / "link")
    for path, where in (
        ("memory://links/run/latest.symlink", None),
        ("run/latest.symlink", store),
    ):
        with pytest.raises(ValueError, match=r"leaves its bucket|names no file"):
            get_file(path, str(tmp_path / "got"), object_store=where)
    assert not (tmp_path / "got").exists()


@pytest.mark.parametrize("start", ["", "file://"])
@pytest.mark.parametrize(
    ("content", "fine"),
    [
        ("ep1.pt", True),
        ("deep/ep1.pt", True),
        ("{folder}/ep1.pt", True),
        ("file://{folder}/ep1.pt", True),
        ("../secret", False),
        ("deep/../../secret", False),
        ("{folder}/../secret", False),
        ("/etc/passwd", False),
        ("file:///etc/passwd", False),
        ("s3://bucket/ep1.pt", False),
    ],
)
def test_links_in_a_folder(start: str, content: str, fine: bool, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (folder / "ep1.pt").write_text("weights")
    (folder / "deep/ep1.pt").write_text("weights")
    (folder / "latest.symlink").write_text(content.format(folder=folder))
    got = tmp_path / "got"
    if fine:
        get_file(f"{start}{folder}/latest.symlink", str(got))
        assert got.read_text() == "weights"
    else:
        with pytest.raises(ValueError, match="leaves its folder"):
            get_file(f"{start}{folder}/latest.symlink", str(got))
        assert not got.exists()


def test_links_that_lead_to_each_other(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.symlink").write_text("b.symlink")
    (tmp_path / "b.symlink").write_text("a.symlink")
    with pytest.raises(ValueError, match="lead to each other"):
        get_file(str(tmp_path / "a.symlink"), str(tmp_path / "got"))
    (tmp_path / "b.symlink").write_text("c")
    (tmp_path / "c").write_text("weights")
    get_file(str(tmp_path / "a.symlink"), str(tmp_path / "got"))
    assert (tmp_path / "got").read_text() == "weights"
