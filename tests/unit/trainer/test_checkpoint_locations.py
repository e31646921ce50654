"""Paths, URIs and path objects in every public function; values of wrong kinds in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from composer import checkpoint
from composer.callbacks import CheckpointSaver
from composer.cli import main
from composer.core.timestamp import Timestamp
from composer.trainer import Trainer
from composer.utils.object_store import maybe_create_object_store_from_uri
from composer.utils.paths import parse_uri
from composer_testing.tiny import TinyModel, loader, state_of

KINDS = ["str", "Path", "file", "memory"]


def place(kind: str, folder: Path) -> Any:
    """One and the same folder in each of its spellings; in memory another one."""
    return {
        "str": str(folder),
        "Path": folder,
        "file": f"file://{folder}",
        "memory": f"memory://{folder.parent.name}-{folder.name}/x",
    }[kind]


def inside(where: Any, name: str) -> Any:
    return where / name if isinstance(where, Path) else f"{where}/{name}"


# ---- where files are ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_function_takes_paths_and_uris(kind: str, tmp_path: Path) -> None:
    where, state = place(kind, tmp_path), state_of()
    for batch in (1, 2):
        state.timestamp = Timestamp(batch=batch)
        with torch.no_grad():
            state.model.linear.weight.fill_(batch)
        written = checkpoint.save_checkpoint(state, inside(where, "sub/ba{batch}.pt"))
        assert written == str(inside(where, f"sub/ba{batch}.pt")).removeprefix("file://")
    path = inside(where, "sub/ba2.pt")
    assert checkpoint.verify(path) == []
    assert "there is no file" in checkpoint.verify(inside(where, "sub/ba3.pt"))[0]
    assert checkpoint.read_checkpoint(path)["state"]["timestamp"]["batch"] == 2
    assert checkpoint.find_newest(inside(where, "sub"), None) is not None
    assert str(checkpoint.find_newest(inside(where, "sub"), None)).endswith("/sub/ba2.pt")
    assert checkpoint.find_newest(inside(where, "nothing"), None) is None
    newest = checkpoint.read_newest(inside(where, "sub"), None, progress_bar=False)
    assert newest is not None
    other = state_of()
    assert checkpoint.load_checkpoint(path, other, progress_bar=False) is not None
    assert torch.equal(other.model.linear.weight, torch.full((3, 4), 2.0))
    with pytest.raises(FileNotFoundError, match=r"sub/ba3\.pt"):
        checkpoint.read_checkpoint(inside(where, "sub/ba3.pt"))


def test_verify_finds_a_changed_byte_in_a_store(tmp_path: Path) -> None:
    uri = str(place("memory", tmp_path))
    checkpoint.save_checkpoint(state_of(), f"{uri}/a.pt")
    store = maybe_create_object_store_from_uri(uri)
    assert store is not None
    name = f"{parse_uri(uri)[2]}/a.pt"
    store.download_object(name, tmp_path / "a.pt")
    content = bytearray((tmp_path / "a.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "a.pt").write_bytes(content)
    store.upload_object(name, tmp_path / "a.pt")
    (problem,) = checkpoint.verify(f"{uri}/a.pt")
    assert "checksum" in problem
    assert f"{uri}/a.pt" in problem
    store.delete_object(f"{name}.manifest.json")
    assert "no manifest" in checkpoint.verify(f"{uri}/a.pt")[0]


@pytest.mark.parametrize(
    "function",
    [
        checkpoint.read_checkpoint,
        checkpoint.verify,
        lambda path: checkpoint.find_newest(path, None),
        lambda path: checkpoint.read_newest(path, None),
        lambda path: checkpoint.save_checkpoint(state_of(), path),
        lambda path: checkpoint.load_checkpoint(path, state_of()),
        lambda path: CheckpointSaver(folder=path),
    ],
)
def test_a_path_object_made_of_a_uri_is_told(
    function: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("s3://bucket/run/a.pt")  # which pathlib writes with one slash
    assert str(path) == "s3:/bucket/run/a.pt"
    with pytest.raises(ValueError, match=r"'s3:/bucket/run/a.pt'.*URI.*str"):
        function(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("function", [checkpoint.read_manifest, checkpoint.safe_torch_load])
def test_what_takes_files_of_this_machine_alone_says_so(function: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match=r"memory://b/a\.pt.*this machine"):
        function("memory://b/a.pt")


def test_links_are_made_on_this_machine_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"memory://b/latest.*this machine"):
        checkpoint.link_latest(tmp_path / "a.pt", "memory://b/latest")


# ---- what is in them ----------------------------------------------------------------------------


def written(folder: Path, key: str, value: Any) -> Path:
    """A checkpoint without a manifest, of which one part is something else."""
    state = state_of()
    state.optimizers = [torch.optim.SGD(state.model.parameters(), lr=0.1, momentum=0.9)]
    contents = checkpoint.checkpoint_contents(state)
    part: Any = contents
    *path, last = key.split("/")
    for word in path:
        part = part[int(word)] if isinstance(part, list) else part[word]
    if isinstance(part, list):
        part[int(last)] = value
    else:
        part[last] = value
    torch.save(contents, folder / "a.pt")
    return folder / "a.pt"


SPOILT: list[tuple[str, Any]] = [
    ("state", [1, 2]),
    ("state", "text"),
    ("rng", "text"),
    ("rng/0", 3),
    ("metadata", "text"),
    ("metadata", [1]),
    ("state/model", [1]),
    ("state/model", "text"),
    ("state/timestamp", "text"),
    ("state/timestamp", [1]),
    ("state/timestamp/batch", "text"),
    ("state/timestamp/batch_in_epoch", None),
    ("state/timestamp/epoch", -1),
    ("state/timestamp/total_wct", "text"),
    ("state/optimizers", "text"),
    ("state/optimizers", {"a": 1}),
    ("state/optimizers/0", "text"),
    ("state/optimizers/0/type", 3),
    ("state/optimizers/0/state", "text"),
    ("state/optimizers/0/state/param_groups", "text"),
    ("state/optimizers/0/state/param_groups/0", "text"),
    ("state/optimizers/0/state/param_groups/0/params", 3),
    ("state/optimizers/0/state/state", [1]),
    ("state/algorithms", "text"),
    ("state/algorithms", [{"type": "EMA"}]),
    ("state/algorithms", [3]),
    ("state/callbacks", [{"state": {}}]),
    ("state/callbacks", 3),
    ("state/schedulers", "text"),
    ("state/rank_zero_seed", "text"),
    ("state/run_name", 3),
    ("state/schedulers", ["text"]),
    ("state/schedulers", [{"type": 3, "state": {}}]),
    ("state/settings", "text"),
    ("state/settings/schedulers", 3),
    ("state/settings/schedulers", ["text"]),
    ("state/settings/schedulers", [{"t_max": "1dur"}]),
    ("state/settings/schedulers", [{"type": "SequentialLR", "schedulers": [3]}]),
    ("state/settings/optimizers", {"lr": 0.1}),
    ("state/settings/optimizers", [[3]]),
    ("state/settings/max_duration", 3),
    ("state/dataset_state", "text"),
    ("state/train_metrics", "text"),
    ("state/eval_metrics", [1]),
    ("state/num_skipped_steps", "text"),
    ("state/pending_evaluations", "text"),
    ("state/microbatch_search", 3),
    ("state/scaler", "text"),
]


@pytest.mark.parametrize(("key", "value"), SPOILT)
def test_a_value_of_a_wrong_kind_is_named(
    key: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, key, value)
    with pytest.raises(checkpoint.CheckpointError) as caught:
        checkpoint.read_checkpoint(path)
    assert str(path) in str(caught.value)
    assert repr(key) in str(caught.value) or f"{key}/" in str(caught.value)
    for action in ("show", "list", "verify"):
        status = main(["checkpoint", action, str(path), "--json"])
        out, err = capsys.readouterr()
        assert status == (0 if action == "list" else 1)
        assert key in out + err or action == "list"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state/timestamp", "text"),
        *(s for s in SPOILT if s[0].startswith(("state/schedulers", "state/settings"))),
    ],
)
def test_a_run_is_told_of_a_value_of_a_wrong_kind(key: str, value: Any, tmp_path: Path) -> None:
    path = written(tmp_path, key, value)
    model = TinyModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    with pytest.raises(checkpoint.CheckpointError, match=rf"{path}.*'{key}"):
        Trainer(
            model=model,
            train_dataloader=loader(),
            optimizers=optimizer,
            schedulers=schedule,
            load_path=str(path),
        )


@pytest.mark.parametrize(("key", "value"), [s for s in SPOILT if s[0].startswith("state/")])
def test_a_damaged_part_can_be_left_out(key: str, value: Any, tmp_path: Path) -> None:
    path, part = written(tmp_path, key, value), "/".join(key.split("/")[:2])
    state = state_of()
    if part not in ("state/model", "state/algorithms"):  # which may be needed for the weights
        assert checkpoint.load_checkpoint(str(path), state, load_weights_only=True) is None
        checkpoint.load_checkpoint(str(path), state, ignore_keys=[*{part, "state/optimizers"}])


OLD = Path(__file__).parent / "data" / "composer-0.32" / "mid-epoch.pt"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "text"),
        ("optimizers", "text"),
        ("optimizers", {"Adam": "text"}),
        ("schedulers", 3),
        ("algorithms", "text"),
        ("callbacks", "text"),
        ("scaler", 3),
        ("timestamp", "text"),
        ("rank_zero_seed", "text"),
        ("run_name", 3),
        ("dataset_state", "text"),
        ("metadata", "text"),
        ("metadata", {"composer_env_info": "text"}),
    ],
)
def test_a_value_of_a_wrong_kind_in_a_file_of_another_release(
    key: str, value: Any, tmp_path: Path
) -> None:
    from composer.checkpoint import compat

    contents = compat.load_harmless(OLD)
    contents["state"][key] = value
    torch.save(contents, tmp_path / "a.pt")
    with pytest.raises(checkpoint.CheckpointError, match=rf"{tmp_path}/a.pt.*'state/{key}"):
        checkpoint.read_checkpoint(tmp_path / "a.pt")
