"""Places and names that cannot be meant are refused at the door, before a file lies anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.callbacks import CheckpointSaver
from composer.checkpoint import (
    find_newest,
    get_save_filename,
    link_latest,
    load_checkpoint,
    read_checkpoint,
    read_manifest,
    read_newest,
    remove_keys,
    safe_torch_load,
    save_checkpoint,
    verify,
)
from composer.checkpoint.inference import export_for_inference
from composer.core.logger import Logger
from composer.core.time import Time
from composer.trainer import Trainer
from composer.utils import get_file, list_remote_objects
from composer.utils.paths import FORMAT_NAME_WITH_DIST_AND_TIME_TABLE
from composer.utils.templates import check_template
from composer_testing.tiny import TinyModel, loader, state_of

BEST: dict[str, Any] = {"save_best_metric": "loss/train/total", "save_best_mode": "min"}


def trainer(folder: Any, **settings: Any) -> Trainer:
    model = TinyModel()
    return Trainer(
        model=model,
        train_dataloader=loader(16, 4),
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        save_folder=folder,
        progress_bar=False,
        **{"max_duration": "2ep", "run_name": "r", "seed": 1, **settings},
    )


def fitted(folder: Any, **settings: Any) -> Trainer:
    t = trainer(folder, **settings)
    try:
        t.fit()
    finally:
        t.close()
    return t


# ---- what the trainer refuses -------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    # no text
    "no name": ({"save_filename": None}, TypeError, "save_filename=None must be a name.*NoneType"),
    "number as name": ({"save_filename": 5}, TypeError, r"save_filename=5 must be a name.*ep{epo"),
    "number as link": ({"save_latest_filename": 5}, TypeError, "save_latest_filename=5.*not int"),
    "number as folder": ({"save_folder": 5}, TypeError, "save_folder=5 must be a path or a URI"),
    "bytes as folder": ({"save_folder": b"x"}, TypeError, "save_folder=b'x' must be.*not bytes"),
    "number to load": ({"load_path": 5}, TypeError, "load_path=5 must be a path or a URI"),
    "overrides": ({"load_overrides": 5}, TypeError, "load_overrides=5 must be a str or a seq"),
    "numbers as overrides": ({"load_overrides": [5]}, TypeError, r"load_overrides=\[5\]"),
    "ignored": ({"load_ignore_keys": 5}, TypeError, "load_ignore_keys=5.*'state/optimizers'"),
    "left out": ({"save_ignore_keys": [5]}, TypeError, r"save_ignore_keys=\[5\].*'state/optim"),
    "excluded": ({"load_exclude_algorithms": 5}, TypeError, "load_exclude_algorithms=5"),
    # no place, or another than is meant
    "empty folder": ({"save_folder": ""}, ValueError, "save_folder='' names no place"),
    "empty path": ({"load_path": ""}, ValueError, "load_path='' names no place"),
    "one slash": ({"save_folder": "s3:/x"}, ValueError, "save_folder='s3:/x'.*'s3://...'"),
    "no slash": ({"save_folder": "s3:"}, ValueError, "save_folder='s3:'.*slash is missing"),
    "loaded with one": ({"load_path": "gs:/x/a.pt"}, ValueError, "load_path='gs:/x/a.pt'.*'gs://"),
    "no scheme": ({"save_folder": "://b/x"}, ValueError, "slash is missing"),
    "home": ({"save_folder": "~/runs"}, ValueError, "save_folder='~/runs'.*expanduser"),
    "NUL": ({"save_folder": "a\0b"}, ValueError, "NUL"),
    # no template
    "open brace": ({"save_folder": "a{run_name"}, ValueError, "save_folder='a{run_name' is not a "),
    "brace to load": ({"load_path": "a}"}, ValueError, "load_path='a}' is not a name template"),
    "unknown": ({"save_filename": "{foo}.pt"}, ValueError, r"save_filename.*{foo}.*{epoch}"),
    "misspelt": ({"save_filename": "{bach}.pt"}, ValueError, r"{bach}\. Did you mean \"batch\""),
    "timestamp": ({"save_filename": "{timestamp}.pt"}, ValueError, "unknown field {timestamp}"),
    "no field": ({"save_filename": "{}.pt"}, ValueError, "unknown field {}"),
    "attribute": ({"save_filename": "{epoch.real}.pt"}, ValueError, "unknown field {epoch.real}"),
    "moment of a link": ({"save_latest_filename": "{epoch}.pt"}, ValueError, "{epoch}. It changes"),
    "moment of a folder": ({"save_folder": "{epoch}/x"}, ValueError, "save_folder.*{epoch}"),
    "field to load": ({"load_path": "{run}/a.pt"}, ValueError, "load_path.*unknown field {run}"),
    "hexadecimal": ({"save_filename": "{batch:x}.pt"}, ValueError, "cannot be found again"),
    "binary": ({"save_filename": "{batch:b}.pt"}, ValueError, "cannot be found again"),
    "thousands": ({"save_filename": "{batch:,}.pt"}, ValueError, "cannot be found again"),
    "bad width": ({"save_filename": "{batch:03q}.pt"}, ValueError, "save_filename='{batch:03q}"),
    # out of the folder, or not a file's name
    "absolute": ({"save_filename": "/a/{batch}.pt"}, ValueError, "inside save_folder"),
    "upwards": ({"save_filename": "../{batch}.pt"}, ValueError, "inside save_folder"),
    "parent": ({"save_filename": ".."}, ValueError, "inside save_folder"),
    "URI": ({"save_filename": "s3://b/{batch}.pt"}, ValueError, "inside save_folder"),
    "folder": ({"save_filename": "ep{epoch}/"}, ValueError, "plain name"),
    "dot": ({"save_filename": "./ep{epoch}.pt"}, ValueError, "plain name"),
    "hidden": ({"save_filename": ".ep{epoch}.pt"}, ValueError, "begin with a dot"),
    "manifest": ({"save_filename": "{epoch}.manifest.json"}, ValueError, "not be taken for a che"),
    "link that is a folder": ({"save_latest_filename": ".."}, ValueError, "is a folder"),
    "link of a store": (
        {"save_folder": "memory://bad/x", "save_latest_filename": "../a"},
        ValueError,
        "save_latest_filename='../a' must be a name inside save_folder",
    ),
    "link with a checkpoint's name": (
        {"save_filename": "ep{epoch}.pt", "save_latest_filename": "ep1.pt"},
        ValueError,
        "latest_filename='ep1.pt' is a name that filename='ep{epoch}.pt' gives too",
    ),
    "run name that leads out": (
        {"save_filename": "{run_name}/ep{epoch}.pt", "run_name": "a/../../b"},
        ValueError,
        "leads out of the folder with run_name='a/../../b'",
    ),
    # two checkpoints of one name, of which one is to be kept
    "one name and best": (
        {"save_filename": "c.pt", **BEST},
        ValueError,
        "save_filename='c.pt'.*sa",
    ),
    "one name and every": (
        {"save_filename": "c.pt", "save_keep_every": 2},
        ValueError,
        "save_keep_every=2 keeps; add {batch}",
    ),
    "place in the epoch": ({"save_filename": "{batch_in_epoch}.pt", **BEST}, ValueError, "{batch}"),
    "saves inside the epoch": (
        {"save_filename": "ep{epoch}.pt", "save_interval": "3ba", **BEST},
        ValueError,
        "save_filename='ep{epoch}.pt' gives checkpoints of one epoch the same name.*'3ba'",
    ),
}


@pytest.mark.parametrize(("settings", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_the_trainer_refuses(
    settings: dict[str, Any],
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message) as caught:
        trainer(**{"folder": "runs", **_as_folder(settings)})
    assert type(caught.value) is error
    assert not list(tmp_path.rglob("*"))


def _as_folder(settings: dict[str, Any]) -> dict[str, Any]:
    return {"folder" if key == "save_folder" else key: v for key, v in settings.items()}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"folder": 5}, "folder=5"),
        ({"filename": None}, "filename=None"),
        ({"latest_filename": 5}, "latest_filename=5"),
        ({"remote_file_name": 5}, "remote_file_name=5"),
        ({"remote_file_name": "{foo}"}, "remote_file_name='{foo}'.*unknown"),
        ({"latest_remote_file_name": "{epoch}"}, "latest_remote_file_name='{epoch}'"),
        ({"ignore_keys": 5}, "ignore_keys=5"),
        ({"filename": "ep{epoch}.pt", "save_interval": "2ba", "keep_every": 2}, "keep_every=2"),
    ],
)
def test_a_saver_refuses(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        CheckpointSaver(**settings)


@pytest.mark.parametrize(
    "template",
    ["ep{epoch:03d}-ba{batch}.pt", "{total_wct}-{batch}.pt", "a{{b}}/{sample}.pt", "{run_name:>5}"],
)
def test_names_that_will_do(template: str) -> None:
    assert check_template(Path(template), "save_filename") == template


def test_every_field_of_the_table_will_do() -> None:
    fields = [line.partition(":")[0] for line in FORMAT_NAME_WITH_DIST_AND_TIME_TABLE.splitlines()]
    assert len(fields) == 20
    for field in fields:
        check_template(f"a{field}.pt", "save_filename")


# ---- what the functions refuse ------------------------------------------------------------------

STATE = state_of()
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "load_checkpoint": lambda path: load_checkpoint(path, STATE),
    "save_checkpoint": lambda path: save_checkpoint(STATE, path),
    "get_save_filename": lambda path: get_save_filename(STATE, path),
    "read_checkpoint": read_checkpoint,
    "read_manifest": read_manifest,
    "safe_torch_load": safe_torch_load,
    "verify": verify,
    "find_newest": lambda path: find_newest(path, None),
    "link of find_newest": lambda path: find_newest(".", path),
    "read_newest": lambda path: read_newest(path, None),
    "link_latest": lambda path: link_latest(path, "l"),
    "link of link_latest": lambda path: link_latest("a.pt", path),
    "get_file": lambda path: get_file(path, "x"),
    "destination of get_file": lambda path: get_file("x", path),
    "list_remote_objects": list_remote_objects,
    "export_for_inference": lambda path: export_for_inference(TinyModel(), "onnx", path),
    "load_path": lambda path: export_for_inference(TinyModel(), "onnx", "x", load_path=path),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("path", [5, b"x", "", "s3:/b/a.pt", "~/a.pt"])
def test_functions_refuse(
    function: Callable[[Any], Any], path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = ValueError if isinstance(path, str) else TypeError
    with pytest.raises(error, match=r"[a-z_]+(=| must be)") as caught:
        function(path)
    assert repr(path) in str(caught.value)
    assert not list(tmp_path.rglob("*"))


def test_a_string_is_a_pattern_and_not_its_letters() -> None:
    contents = {"state": {"model": 1, "optimizers": 2}}
    remove_keys(contents, "state/optimizers", "load_ignore_keys")
    assert contents == {"state": {"model": 1}}


# ---- names that only time tells -----------------------------------------------------------------


def test_names_of_epochs_will_do_for_one_save_an_epoch(tmp_path: Path) -> None:
    t = fitted(str(tmp_path), save_filename="ep{epoch}.pt", **BEST)
    assert [Path(p).name for p in t.saved_checkpoints] == ["ep1.pt", "ep2.pt"]


@pytest.mark.parametrize(
    ("duration", "refused"), [("2ep", False), ("8ba", True), ("6ba", True), ("20sp", True)]
)
def test_an_end_inside_an_epoch(duration: str, refused: bool, tmp_path: Path) -> None:
    settings = {"save_filename": "ep{epoch}.pt", "save_keep_every": 1, "max_duration": duration}
    if not refused:
        fitted(str(tmp_path), **settings)
        return
    with pytest.raises(ValueError, match=rf"training ends after {duration}.*keep_every=1 keeps"):
        fitted(str(tmp_path), **settings)
    assert not list(tmp_path.glob("*.pt"))


def test_a_save_that_would_overwrite_one_that_is_kept_is_refused(tmp_path: Path) -> None:
    state = state_of()
    saver = CheckpointSaver(
        tmp_path, "ep{epoch}.pt", save_interval=lambda state, event: False, keep_every=2
    )
    saver.init(state, Logger(state))

    def save() -> None:
        state.timestamp = state.timestamp.to_next_batch(Time(1, "sp"), Time(0, "tok"))
        saver.save(state, Logger(state))

    save()
    save()  # the first one again, as no rule keeps it
    assert read_checkpoint(tmp_path / "ep0.pt")["state"]["timestamp"]["batch"] == 2
    state.timestamp = state.timestamp.to_next_epoch()
    save()
    with pytest.raises(ValueError, match=r"'ep1.pt', which an earlier one has that keep_every=2"):
        save()
    assert read_checkpoint(tmp_path / "ep1.pt")["state"]["timestamp"]["batch"] == 3
    assert [Path(p).name for p in saver.saved_checkpoints] == ["ep0.pt", "ep1.pt"]


# ---- what lies in the way -----------------------------------------------------------------------


def test_a_folder_under_the_name_of_a_checkpoint_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "ep2-ba8-rank0.pt").mkdir()
    for settings in ({}, {"save_overwrite": True}, {"autoresume": True}):
        with pytest.raises(FileExistsError, match=r"folders under names.*: ep2-ba8-rank0\.pt\."):
            fitted(str(tmp_path), **settings)
    assert [p.name for p in tmp_path.iterdir()] == ["ep2-ba8-rank0.pt"]
    with pytest.raises(IsADirectoryError, match="A folder has this name"):
        save_checkpoint(state_of(), tmp_path / "ep2-ba8-rank0.pt")


# ---- whose files they are -----------------------------------------------------------------------


def writers(folder: Path) -> dict[str, str]:
    return {p.name: json.loads(p.read_bytes())["run_name"] for p in folder.glob("*.json")}


@pytest.mark.parametrize("remote", [False, True])
def test_autoresume_does_not_write_over_another_run(remote: bool, tmp_path: Path) -> None:
    folder = f"memory://{tmp_path.parent.name}-{tmp_path.name}/x" if remote else str(tmp_path)
    fitted(folder, run_name="x", save_interval="2ba")
    before = writers(tmp_path)
    with pytest.raises(
        FileExistsError, match=r"run\(s\) 'x' that the run 'y' would write over: ep"
    ):
        fitted(folder, run_name="y", save_interval="2ba", autoresume=True)
    assert writers(tmp_path) == before
    t = fitted(folder, run_name="x", save_interval="2ba", max_duration="3ep", autoresume=True)
    assert int(t.state.timestamp.batch) == 12
    # It is allowed to those who say so.
    fitted(folder, run_name="y", save_interval="2ba", autoresume=True, save_overwrite=True)


def test_autoresume_writes_over_its_own_that_are_later(tmp_path: Path) -> None:
    fitted(str(tmp_path), save_interval="2ba")
    newest = tmp_path / "ep1-ba8-rank0.pt"
    newest.write_bytes(b"cut")
    (tmp_path / "ep1-ba6-rank0.pt.manifest.json").unlink()  # killed before it was written
    (tmp_path / "ep1-ba6-rank0.pt").write_bytes(b"cut")
    t = trainer(str(tmp_path), save_interval="2ba", autoresume=True)
    assert int(t.state.timestamp.batch) == 4
    t.fit()
    t.close()
    assert verify(newest) == []
