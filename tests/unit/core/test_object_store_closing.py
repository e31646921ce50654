"""Closing in the thread in which fsspec runs its requests, where garbage is collected too."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fsspec.asyn import get_loop, sync

from composer.utils import RemoteUploader
from composer.utils.object_store import LocalObjectStore
from composer.utils.object_store.closing import off_request_thread, on_request_thread


def on_the_request_thread(function: Callable[[], Any]) -> Any:
    """Call a function as the garbage collector may: in the middle of a request."""

    async def request() -> Any:
        return function()

    return asyncio.run_coroutine_threadsafe(request(), get_loop()).result(timeout=30)


def test_which_thread_it_is() -> None:
    assert on_the_request_thread(on_request_thread)
    assert not on_request_thread()

    async def of_a_notebook() -> bool:
        return on_request_thread()

    assert not asyncio.run(of_a_notebook())


def test_errors_are_raised_here_and_logged_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        done.set()
        raise OSError("no answer")

    with pytest.raises(OSError, match="no answer"):
        off_request_thread(fail)
    done.clear()
    on_the_request_thread(lambda: off_request_thread(fail))
    assert done.wait(30)
    for thread in threading.enumerate():
        if thread.name == "composer-closing":
            thread.join(30)
    assert "closing failed: OSError: no answer" in caplog.text


def test_a_client_is_closed_though_its_own_thread_asks_for_it() -> None:
    pytest.importorskip("s3fs")
    from composer.utils.object_store import S3ObjectStore

    closed = threading.Event()

    class Client:
        async def close(self) -> None:
            closed.set()

    store = S3ObjectStore("bucket")
    store.fs._s3 = Client()
    on_the_request_thread(store.close)
    assert closed.wait(30)


def test_an_upload_that_is_under_way_comes_to_its_end(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload takes a request; the thread for requests must not wait for the upload."""
    uploader = RemoteUploader(f"file://{tmp_path}/there")
    begun, real = threading.Event(), LocalObjectStore.upload_object

    async def nothing() -> None:
        pass

    def upload(self: Any, *arguments: Any, **options: Any) -> None:
        begun.set()
        sync(get_loop(), nothing, timeout=30)
        real(self, *arguments, **options)

    monkeypatch.setattr(LocalObjectStore, "upload_object", upload)
    (tmp_path / "a").write_text("x")

    def close() -> None:
        assert begun.wait(30)
        uploader.wait_and_close()

    async def hold() -> None:
        uploader.upload_file_async("a", tmp_path / "a", overwrite=True)
        close()

    asyncio.run_coroutine_threadsafe(hold(), get_loop()).result(timeout=60)
    for thread in threading.enumerate():
        if thread.name == "composer-closing":
            thread.join(30)
    assert (tmp_path / "there" / "a").read_text() == "x"
