"""Checkpoints in object stores: at every instant the pointer leads to one that is complete."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.callbacks import CheckpointSaver
from composer.checkpoint import (
    load_checkpoint,
    read_newest,
    save_checkpoint,
    verify,
)
from composer.checkpoint import places as places_module
from composer.checkpoint.newest import find_newest_remote
from composer.core.callback import Callback
from composer.core.logger import Logger, LoggerDestination
from composer.core.state import State
from composer.core.timestamp import Timestamp
from composer.trainer import Trainer
from composer.utils.object_store import ObjectStore
from composer_testing.tiny import TinyModel, loader, state_of


class Killed(BaseException):
    """The process ended here."""


class FakeStore(ObjectStore):
    """Keeps objects in a dictionary; may die after some operations, or fail some."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.left: int | None = None
        self.operations: list[str] = []
        self.failing: dict[str, Exception] = {}
        self.closed = 0

    def _operation(self, kind: str, name: str) -> None:
        if self.left is not None:
            if self.left == 0:
                raise Killed
            self.left -= 1
        self.operations.append(f"{kind} {name}")
        if f"{kind} {name}" in self.failing:
            raise self.failing[f"{kind} {name}"]

    def get_uri(self, object_name: str) -> str:
        return f"fake://bucket/{object_name}"

    def upload_object(
        self, object_name: str, filename: Any, callback: Any = None, **kwargs: Any
    ) -> None:
        self._operation("begin", object_name)
        data = Path(filename).read_bytes()
        self._operation("upload", object_name)
        self.objects[object_name] = data

    def get_object_size(self, object_name: str) -> int:
        if object_name not in self.objects:
            raise FileNotFoundError(object_name)
        return len(self.objects[object_name])

    def download_object(
        self, object_name: str, filename: Any, overwrite: bool = False, callback: Any = None
    ) -> None:
        if object_name not in self.objects:
            raise FileNotFoundError(object_name)
        Path(filename).write_bytes(self.objects[object_name])

    def list_objects(self, prefix: str | None = None) -> list[str]:
        return sorted(name for name in self.objects if name.startswith(prefix or ""))

    def delete_object(self, object_name: str) -> None:
        self._operation("delete", object_name)
        self.objects.pop(object_name, None)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    fake = FakeStore()
    import composer.checkpoint.newest as newest_module
    import composer.utils.transfer as transfer_module

    def make(uri: str) -> ObjectStore | None:
        assert uri.startswith("fake://bucket/")
        return fake

    for module in (places_module, newest_module, transfer_module):
        monkeypatch.setattr(module, "maybe_create_object_store_from_uri", make)
    return fake


FOLDER = "fake://bucket/{run_name}/ck"


def trainer(saver: CheckpointSaver | None, *others: Callback, **settings: Any) -> Trainer:
    torch.manual_seed(0)
    model = TinyModel()
    settings.setdefault("max_duration", "6ba")
    return Trainer(
        model=model,
        train_dataloader=loader(32, 4),
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        callbacks=[*([] if saver is None else [saver]), *others],
        progress_bar=False,
        run_name="r",
        seed=1,
        **settings,
    )


def complete(store: FakeStore, name: str) -> bool:
    if name not in store.objects or name + ".manifest.json" not in store.objects:
        return False
    manifest = json.loads(store.objects[name + ".manifest.json"])
    data = store.objects[name]
    return manifest["size"] == len(data) and manifest["hashes"] == {
        "sha256": hashlib.sha256(data).hexdigest()
    }


def checkpoints(store: FakeStore) -> list[str]:
    return [n.removeprefix("r/ck/") for n in store.objects if n.endswith(".pt")]


@pytest.mark.parametrize("async_save", [False, True])
def test_a_remote_folder_is_written_in_order(
    async_save: bool, store: FakeStore, tmp_path: Path
) -> None:
    saver = CheckpointSaver(
        FOLDER, "ba{batch}.pt", save_interval="3ba", num_checkpoints_to_keep=1,
        async_save=async_save,
    )  # fmt: skip
    t = trainer(saver)
    store.operations.clear()
    t.fit()
    steps = [o for o in store.operations if not o.startswith("begin")]
    assert steps == [
        "upload r/ck/ba3.pt",
        "upload r/ck/ba3.pt.manifest.json",
        "upload r/ck/latest-rank0.pt.symlink",
        "upload r/ck/ba6.pt",
        "upload r/ck/ba6.pt.manifest.json",
        "upload r/ck/latest-rank0.pt.symlink",
        "delete r/ck/ba3.pt.manifest.json",
        "delete r/ck/ba3.pt",
    ]
    assert store.objects["r/ck/latest-rank0.pt.symlink"] == b"r/ck/ba6.pt"
    assert complete(store, "r/ck/ba6.pt")
    assert t.state.callbacks
    assert saver.saved_checkpoints == ["fake://bucket/r/ck/ba6.pt"]
    t.close()
    assert store.closed == 1


@pytest.mark.parametrize("same_name", [False, True])
def test_a_kill_after_any_operation_leaves_a_complete_checkpoint(
    same_name: bool, store: FakeStore
) -> None:
    """Also where every checkpoint has the same name, and so replaces the one before."""
    filename = "newest.pt" if same_name else "ba{batch}.pt"

    def session(left: int | None) -> bool:
        """Save twice more; whether it came to the end."""
        state = state_of()
        newest = store.objects.get("r/ck/latest-rank0.pt.symlink")
        state.run_name = "r"
        state.timestamp = Timestamp(batch=0 if newest is None else 2)
        every = None if same_name else 1000
        saver = CheckpointSaver(
            FOLDER, filename, num_checkpoints_to_keep=1, keep_every=every, overwrite=True
        )
        saver._open(state)
        store.left = left
        try:
            for _ in range(2):
                state.timestamp = state.timestamp.to_next_batch(1)
                saver.save(state, Logger(state))
        except Killed:
            return False
        finally:
            store.left = None
        return True

    assert session(None)
    before = dict(store.objects)
    for operations in range(100):
        store.objects = dict(before)
        finished = session(operations)
        pointer = store.objects["r/ck/latest-rank0.pt.symlink"].decode()
        found = read_newest("fake://bucket/r/ck", "latest-rank0.pt")
        if same_name:
            # A manifest that is missing is the one moment where the file stands alone; it is whole.
            assert complete(store, pointer) or pointer + ".manifest.json" not in store.objects
            assert load_checkpoint(f"fake://bucket/{pointer}", state_of())
        else:
            assert complete(store, pointer)
        assert found is not None
        if not same_name:
            assert found[1]["state"]["timestamp"]["batch"] >= 2
        if finished:
            break
    assert operations > 8
    assert finished


def test_a_store_that_loses_bytes_is_noticed(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = CheckpointSaver(FOLDER, "ba{batch}.pt", save_interval="3ba", num_checkpoints_to_keep=1)
    real = store.upload_object

    def lossy(name: str, filename: Any, *more: Any, **others: Any) -> None:
        real(name, filename)
        if name.endswith("ba6.pt"):
            store.objects[name] = store.objects[name][:-1]

    monkeypatch.setattr(store, "upload_object", lossy)
    t = trainer(saver)
    with pytest.raises(OSError, match="does not count as saved"):
        t.fit()
    t.close()
    assert store.objects["r/ck/latest-rank0.pt.symlink"] == b"r/ck/ba3.pt"
    assert complete(store, "r/ck/ba3.pt")


@pytest.mark.parametrize("async_save", [False, True])
def test_a_store_that_fails_is_told(async_save: bool, store: FakeStore) -> None:
    error = ConnectionError("the store is away")
    store.failing["upload r/ck/ba3.pt.manifest.json"] = error
    saver = CheckpointSaver(FOLDER, "ba{batch}.pt", save_interval="3ba", async_save=async_save)
    t = trainer(saver)
    with pytest.raises(ConnectionError, match="away") as caught:
        t.fit()
    assert caught.value is error
    assert saver.saved_checkpoints == []
    assert "r/ck/latest-rank0.pt.symlink" not in store.objects
    t.close()


def test_a_store_that_cannot_be_written_is_told_at_once(store: FakeStore) -> None:
    store.failing["upload r/ck/.composer-write-test"] = PermissionError("403")
    with pytest.raises(OSError, match=r"save_folder='fake://bucket/r/ck' \(403\)"):
        trainer(CheckpointSaver(FOLDER))


def test_nothing_is_left_on_this_machine(
    store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    saver = CheckpointSaver(FOLDER, "ba{batch}.pt", save_interval="3ba")
    t = trainer(saver)
    t.fit()
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    t.close()
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_delete_keeps_all(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The contract's own, which a store that cannot delete does not replace.
    monkeypatch.setattr(FakeStore, "delete_object", ObjectStore.delete_object)
    for _ in range(2):  # the second time over files that are there
        caplog.clear()
        saver = CheckpointSaver(
            FOLDER, "ba{batch}.pt", save_interval="2ba", num_checkpoints_to_keep=1, overwrite=True
        )
        t = trainer(saver)
        t.fit()
        t.close()
        warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(warned) == 1
        assert "the store of fake://bucket/r/ck cannot delete: ba2.pt" in warned[0]
        assert saver.saved_checkpoints == ["fake://bucket/r/ck/ba6.pt"]
    assert all(complete(store, f"r/ck/ba{batch}.pt") for batch in (2, 4, 6))
    assert store.objects["r/ck/latest-rank0.pt.symlink"] == b"r/ck/ba6.pt"


def test_links_go_on_in_a_store_that_cannot_delete(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeStore, "delete_object", ObjectStore.delete_object)
    place = places_module.RemoteFolder("fake://bucket/r", store)
    place.prepare(["ba{batch}.pt"], "r")
    place.point("best.pt", "a.pt")
    place.point("best.pt", None)
    place.point("best.pt", "b.pt")
    assert store.objects["r/best.pt.symlink"] == b"r/b.pt"


def test_other_runs_in_the_store_are_left_alone(store: FakeStore) -> None:
    store.objects["r/ck/ba9.pt"] = b"another run's"
    t = trainer(CheckpointSaver(FOLDER, "ba{batch}.pt"))
    with pytest.raises(FileExistsError, match=r"ba9\.pt"):
        t.fit()
    t.close()
    saver = CheckpointSaver(FOLDER, "ba{batch}.pt", overwrite=True, num_checkpoints_to_keep=1)
    t = trainer(saver)
    t.fit()
    t.close()
    assert store.objects["r/ck/ba9.pt"] == b"another run's"


def test_retention_and_scores_hold_over_sessions(store: FakeStore) -> None:
    settings: dict[str, Any] = {
        "save_interval": "1ba", "num_checkpoints_to_keep": 1, "keep_every": 3, "overwrite": True,
        "best_metric": "loss/train/total", "best_mode": "max",
    }  # fmt: skip
    first = CheckpointSaver(FOLDER, "ba{batch}.pt", **settings)
    t = trainer(first, max_duration="4ba")
    t.fit()
    t.close()
    best = store.objects["r/ck/best-rank0.pt.symlink"].decode()
    second = CheckpointSaver(FOLDER, "ba{batch}.pt", **settings)
    t = trainer(second, load_path="fake://bucket/r/ck/latest-rank0.pt")
    assert int(t.state.timestamp.batch) == 4
    t.fit()
    t.close()
    kept = {"ba3.pt", "ba6.pt", second.best_checkpoints[0].rpartition("/")[2]}
    assert set(checkpoints(store)) == kept
    assert best in {f"r/ck/ba{i}.pt" for i in range(1, 5)}
    assert store.objects["r/ck/best-rank0.pt.symlink"].decode() in store.objects
    assert second.saved_checkpoints[-1] == "fake://bucket/r/ck/ba6.pt"


# ---- the newest ---------------------------------------------------------------------------------


def filled(store: FakeStore) -> None:
    t = trainer(CheckpointSaver(FOLDER, "ba{batch}.pt", save_interval="2ba"))
    t.fit()
    t.close()


def test_the_newest_is_found_and_read(store: FakeStore) -> None:
    filled(store)
    assert find_newest_remote(store, "r/ck", "latest-rank0.pt") == "r/ck/ba6.pt"
    found = read_newest("fake://bucket/r/ck/", "latest-rank0.pt")
    assert found is not None
    assert found[0] == "fake://bucket/r/ck/ba6.pt"
    assert found[1]["state"]["timestamp"]["batch"] == 6
    assert find_newest_remote(store, "elsewhere", "latest-rank0.pt") is None
    # A name that merely begins like the folder's is another folder.
    assert find_newest_remote(store, "r/c", "latest-rank0.pt") is None


def test_an_upload_before_the_pointer_moved_counts(store: FakeStore) -> None:
    filled(store)
    store.objects["r/ck/latest-rank0.pt.symlink"] = b"r/ck/ba4.pt"
    assert find_newest_remote(store, "r/ck", "latest-rank0.pt") == "r/ck/ba6.pt"
    del store.objects["r/ck/latest-rank0.pt.symlink"]
    assert find_newest_remote(store, "r/ck", "latest-rank0.pt") == "r/ck/ba6.pt"


@pytest.mark.parametrize("how", ["manifest gone", "manifest cut", "cut", "byte", "gone"])
def test_what_is_not_complete_is_passed_over_and_said(
    how: str, store: FakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store)
    name = "r/ck/ba6.pt"
    if how == "manifest gone":
        del store.objects[name + ".manifest.json"]
    elif how == "manifest cut":
        store.objects[name + ".manifest.json"] = b"{"
    elif how == "cut":
        store.objects[name] = store.objects[name][:-1]
    elif how == "byte":
        data = store.objects[name]
        store.objects[name] = data[:500] + bytes([data[500] ^ 1]) + data[501:]
    else:
        del store.objects[name]
    with caplog.at_level(logging.WARNING):
        found = read_newest("fake://bucket/r/ck", "latest-rank0.pt")
    assert found is not None
    assert found[0] == "fake://bucket/r/ck/ba4.pt"
    if how != "gone":
        assert "passing over fake://bucket/r/ck/ba6.pt" in caplog.text
    if how != "byte":  # which only the whole file can tell
        assert find_newest_remote(store, "r/ck", "latest-rank0.pt") == "r/ck/ba4.pt"
    if how == "byte":
        assert "according to its manifest" in caplog.text


@pytest.mark.parametrize("name", ["latest-rank0.pt", "latest-rank0.pt.symlink", "ba6.pt"])
def test_loading_by_any_name(name: str, store: FakeStore) -> None:
    filled(store)
    state = state_of()
    load_checkpoint(f"fake://bucket/r/ck/{name}", state, load_weights_only=True)
    load_checkpoint(f"r/ck/{name}", state_of(), object_store=store, load_weights_only=True)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at fake://bucket/r/ck/x\.pt"):
        load_checkpoint("fake://bucket/r/ck/x.pt", state)
    data = bytearray(store.objects["r/ck/ba6.pt"])
    data[300] ^= 1
    store.objects["r/ck/ba6.pt"] = bytes(data)
    with pytest.raises(ValueError, match="according to its manifest"):
        load_checkpoint(f"fake://bucket/r/ck/{name}", state)


@pytest.mark.parametrize("name", ["latest-rank0.pt", "latest-rank0.pt.symlink"])
@pytest.mark.parametrize(
    "target",
    [
        *("fake://other/r/ck/ba6.pt", "http://host/ba6.pt", "file:///ba6.pt"),
        *("r/ck/../../secret.pt", ""),
    ],
)
@pytest.mark.parametrize("by_uri", [True, False])
def test_pointers_out_of_the_store_are_refused(
    by_uri: bool, target: str, name: str, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    store.objects["r/ck/latest-rank0.pt.symlink"] = target.encode()
    # What a store that resolves all of them would fetch.
    good = store.objects["r/ck/ba6.pt"]
    for other in ("r/ck/../../secret.pt", "ba6.pt", "/ba6.pt", target):
        store.objects[other] = good
    where: dict[str, Any] = {} if by_uri else {"object_store": store}
    path = f"fake://bucket/r/ck/{name}" if by_uri else f"r/ck/{name}"
    with pytest.raises(ValueError, match=r"leaves its bucket|names no file"):
        load_checkpoint(path, state_of(), load_weights_only=True, **where)


def test_pointers_of_one_bucket_do_not_lead_to_another(tmp_path: Path) -> None:
    from composer.utils.object_store import MemoryObjectStore

    pytest.importorskip("fsspec")
    here, there = MemoryObjectStore("pointer-here"), MemoryObjectStore("pointer-there")
    saved = save_checkpoint(state_of(), str(tmp_path / "x.pt"))
    assert saved is not None
    there.upload_object("x.pt", saved)
    (tmp_path / "link").write_text("memory://pointer-there/x.pt")
    here.upload_object("latest.symlink", tmp_path / "link")
    for name in ("latest.symlink", "latest"):
        with pytest.raises(ValueError, match="leaves its bucket"):
            load_checkpoint(f"memory://pointer-here/{name}", state_of())


@pytest.mark.parametrize(
    "target", ["r/ck/latest-rank0.pt", "r/ck/latest-rank0.pt.symlink", "r/ck/b.symlink"]
)
@pytest.mark.parametrize("name", ["latest-rank0.pt", "latest-rank0.pt.symlink"])
def test_pointers_that_lead_in_a_circle_end(name: str, target: str, store: FakeStore) -> None:
    filled(store)
    store.objects["r/ck/latest-rank0.pt.symlink"] = target.encode()
    store.objects["r/ck/b.symlink"] = b"r/ck/latest-rank0.pt.symlink"
    with pytest.raises(
        (ValueError, FileNotFoundError), match=r"lead to each other|no checkpoint at"
    ):
        load_checkpoint(f"fake://bucket/r/ck/{name}", state_of())


@pytest.mark.parametrize("target", ["fake://bucket/r/ck/ba4.pt", "/r/ck/ba4.pt", "../ba2.pt", ""])
def test_the_newest_where_the_pointer_is_spelled_otherwise_or_bad(
    target: str, store: FakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store)
    # A clock that was set back: by the counters alone the last is the newest.
    manifest = json.loads(store.objects["r/ck/ba6.pt.manifest.json"])
    manifest["written"] = "2026-01-01T00:00:00+00:00"
    store.objects["r/ck/ba6.pt.manifest.json"] = json.dumps(manifest).encode()
    store.objects["r/ck/latest-rank0.pt.symlink"] = target.encode()
    good = "ba4" in target
    newest = find_newest_remote(store, "r/ck", "latest-rank0.pt")
    assert newest == ("r/ck/ba4.pt" if good else "r/ck/ba6.pt")
    assert ("passing over" in caplog.text) is not good


def test_endings_of_remote_files_are_kept(store: FakeStore) -> None:
    saver = CheckpointSaver(FOLDER, "ba{batch}.tar.gz", save_interval="6ba")
    t = trainer(saver)
    t.fit()
    t.close()
    found = read_newest("fake://bucket/r/ck", "latest-rank0.pt", "*.gz")
    assert found is not None
    assert found[0].endswith("ba6.tar.gz")


# ---- others -------------------------------------------------------------------------------------


def test_an_address_of_files_is_a_folder(tmp_path: Path) -> None:
    saver = CheckpointSaver(f"file://{tmp_path}/ck", "ba{batch}.pt", save_interval="3ba")
    t = trainer(saver)
    t.fit()
    t.close()
    assert saver.saved_checkpoints == [str(tmp_path / "ck" / f"ba{i}.pt") for i in (3, 6)]
    assert verify(tmp_path / "ck" / "latest-rank0.pt") == []
    found = read_newest(f"file://{tmp_path}/ck", "latest-rank0.pt")
    assert found is not None
    assert found[0] == str(tmp_path / "ck" / "ba6.pt")
    load_checkpoint(f"file://{tmp_path}/ck/latest-rank0.pt", state_of(), load_weights_only=True)


def test_loggers_that_keep_files_get_data_manifest_and_pointer(tmp_path: Path) -> None:
    class Keeps(LoggerDestination):
        def __init__(self) -> None:
            self.files: dict[str, bytes] = {}

        def can_upload_files(self) -> bool:
            return True

        def upload_file(
            self, state: State, remote_file_name: str, file_path: Path, *, overwrite: bool = False
        ) -> None:
            self.files[remote_file_name] = Path(file_path).read_bytes()

    keeps = Keeps()
    saver = CheckpointSaver(tmp_path, save_interval="6ba")
    t = trainer(saver, loggers=keeps)
    t.fit()
    t.close()
    name = "r/checkpoints/ep0-ba6-rank0.pt"
    assert list(keeps.files) == [
        name,
        name + ".manifest.json",
        "r/checkpoints/latest-rank0.pt.symlink",
    ]
    assert keeps.files["r/checkpoints/latest-rank0.pt.symlink"] == name.encode()
    assert (
        hashlib.sha256(keeps.files[name]).hexdigest()
        in keeps.files[name + ".manifest.json"].decode()
    )


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_stores_that_are_there(scheme: str, tmp_path: Path) -> None:
    """The same with stores of the library, in the memory of the process and in a folder."""
    from composer.checkpoint.manifest import Manifest
    from composer.utils.object_store import LocalObjectStore

    if scheme == "memory":
        pytest.importorskip("fsspec")
        uri = f"memory://{tmp_path.name}/r/ck"
        place = places_module.RemoteFolder(uri)
    else:
        uri = f"file://{tmp_path}/r/ck"
        place = places_module.RemoteFolder(uri, LocalObjectStore())
    place.prepare(["ba{batch}.pt"], "r")
    for batch in (1, 2):
        facts = Manifest("", 0, {}, "", 1, {"batch": batch}, ["rng", "state/model"])
        contents = {"format": 1, "state": {"timestamp": {"batch": batch}}, "rng": []}
        for _ in range(2):
            place.put(f"ba{batch}.pt", contents, facts, lambda path: None)
        place.point("latest.pt", f"ba{batch}.pt")
    assert place.has("ba1.pt")
    assert place.holds(place.path("ba1.pt"))
    place.remove("ba1.pt")
    place.remove("ba1.pt")
    assert place.names("ba{batch}.pt", "r") == ["ba2.pt"]
    found = place.store.list_objects(place._prefix)
    assert find_newest_remote(place.store, place._prefix, "latest.pt") == found[0]
    if scheme == "memory":
        newest = read_newest(uri, "latest.pt")
        assert newest is not None
        assert newest[0] == f"{uri}/ba2.pt"
    place.point("latest.pt", None)
    assert place.target("latest.pt") is None
    place.close()
