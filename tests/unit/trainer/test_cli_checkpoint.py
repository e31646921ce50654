"""`composer checkpoint`: what is there, whether it is whole, what is in it, its weights alone."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.checkpoint import read_newest, save_checkpoint
from composer.checkpoint.manifest import manifest_name
from composer.cli import checkpoint_facts, main
from composer.cli.checkpoint_source import open_source
from composer.core.state import State
from composer.core.timestamp import Timestamp
from composer.models.export.weights import export_safetensors, tied_names
from composer.utils.object_store import maybe_create_object_store_from_uri
from composer.utils.paths import parse_uri
from composer_testing import run_python
from composer_testing.tiny import TinyModel, state_of

OLD = Path(__file__).parent / "data" / "composer-0.32"


def saved(folder: Path, batch: int, model: torch.nn.Module | None = None, **how: Any) -> Path:
    state: State = state_of(model)
    state.timestamp = Timestamp(epoch=batch // 4, batch=batch, batch_in_epoch=batch % 4)
    state.optimizers = [torch.optim.SGD(state.model.parameters(), lr=0.1, momentum=0.9)]
    for parameter in state.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    state.optimizers[0].step()
    path = save_checkpoint(state, str(folder / "ep{epoch}-ba{batch}.pt"), **how)
    assert path is not None
    return Path(path)


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(["checkpoint", *words])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three good ones out of order, with links."""
    for batch in (12, 4, 8):
        saved(tmp_path, batch)
    (tmp_path / "latest-rank0.pt").symlink_to("ep3-ba12.pt")
    (tmp_path / "best-rank0.pt").symlink_to("ep1-ba4.pt")
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    (tmp_path / ".ep9.pt.tmp").write_text("left by a kill")
    return tmp_path


def uploaded(folder: Path) -> str:
    """The same in an object store, where text files stand for links."""
    place = f"{folder.parent.name}/{folder.name}"
    store = maybe_create_object_store_from_uri(f"memory://{place}")
    assert store is not None
    prefix = parse_uri(f"memory://{place}")[2]
    with store:
        for path in folder.rglob("*"):
            name = f"{prefix}/{path.relative_to(folder).as_posix()}"
            if path.is_symlink():
                text = folder.parent / f"{path.name}.pointer"
                text.write_text(f"{prefix}/{path.readlink()}")
                store.upload_object(f"{name}.symlink", text)
            elif path.is_file():
                store.upload_object(name, path)
    return f"memory://{place}"


def place_of(folder: Path, remote: bool) -> str:
    return uploaded(folder) if remote else str(folder)


# ---- list -------------------------------------------------------------------------------------


@pytest.mark.parametrize("remote", [False, True])
def test_list_orders_by_the_clock(
    remote: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run("list", place_of(folder, remote), capsys=capsys)
    assert status == 0
    lines = out.splitlines()
    assert lines[0].split() == ["name", "epoch", "batch", "size", "written", "state"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["ep1-ba4.pt", "1", "4"],
        ["ep2-ba8.pt", "2", "8"],
        ["ep3-ba12.pt", "3", "12"],
    ]
    assert "complete  <- best-rank0.pt" in lines[1]
    assert lines[2].endswith("complete")
    assert "complete  <- latest-rank0.pt" in lines[3]


def test_list_tells_the_states_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "ep1-ba4.pt").open("r+b") as file:
        file.truncate(100)
    Path(manifest_name(str(folder / "ep2-ba8.pt"))).unlink()
    (folder / "ep3-ba12.pt").unlink()
    broken = saved(folder, 16)
    Path(manifest_name(str(broken))).write_text("{")
    (folder / "cut.pt").write_bytes(b"PK\x03\x04")
    saved(folder / "inner", 20, weights_only=True)
    status, out, _ = run("list", str(folder), "--json", capsys=capsys)
    assert status == 0
    found = {record["name"]: record for record in json.loads(out)}
    assert {name: record["state"] for name, record in found.items()} == {
        "ep1-ba4.pt": "damaged",
        "ep2-ba8.pt": "unverified",
        "ep3-ba12.pt": "damaged",
        "ep4-ba16.pt": "damaged",
        "cut.pt": "damaged",
        "inner/ep5-ba20.pt": "complete",
    }
    assert "100 bytes" in found["ep1-ba4.pt"]["problem"]
    assert "the file is gone" in found["ep3-ba12.pt"]["problem"]
    assert "manifest" in found["ep4-ba16.pt"]["problem"]
    assert (found["ep2-ba8.pt"]["epoch"], found["ep2-ba8.pt"]["batch"]) == (2, 8)
    assert found["inner/ep5-ba20.pt"]["weights_only"]
    status, out, _ = run("list", str(folder), capsys=capsys)
    assert "ep1-ba4.pt: it has 100 bytes" in out
    assert "weights only" in out
    assert "unverified: without a manifest" in out


def test_list_of_files_of_another_release(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("list", str(OLD), "--json", capsys=capsys)
    found = {record["name"]: record for record in json.loads(out)}
    assert found["mid-epoch.pt"]["batch"] == 4
    assert found["epoch-edge.pt"]["epoch"] == 1
    assert found["compressed.pt.gz"]["batch"] is None
    assert {record["state"] for record in found.values()} == {"unverified"}


def test_an_empty_folder_lists_nothing_and_verifies_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run("list", str(tmp_path), capsys=capsys)
    assert (status, out) == (0, f"no checkpoints in {tmp_path}\n")
    status, out, _ = run("list", str(tmp_path), "--json", capsys=capsys)
    assert (status, json.loads(out)) == (0, [])
    for words in ([], ["--json"], ["--strict"]):
        status, out, err = run("verify", str(tmp_path), *words, capsys=capsys)
        assert (status, out.strip()) == (2, "[]" if "--json" in words else "")
        assert err == f"composer checkpoint verify: there is no checkpoint in {tmp_path}\n"


def strict_json(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_null_in_json(
    value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, 4)
    contents = torch.load(path, weights_only=True)
    contents["state"]["optimizers"][0]["state"]["param_groups"][0]["lr"] = value
    torch.save(contents, path)
    Path(manifest_name(str(path))).unlink()
    _, out, _ = run("show", str(path), "--json", capsys=capsys)
    assert strict_json(out)["optimizers"][0]["groups"][0]["lr"] is None
    # A clock of floats, as a manifest of a careless program may have it.
    saved(tmp_path, 8)
    rewrite(tmp_path / "ep2-ba8.pt", size=float("nan"))
    for action in ("list", "verify"):
        _, out, _ = run(action, str(tmp_path), "--json", capsys=capsys)
        assert {record["name"] for record in strict_json(out)} == {"ep1-ba4.pt", "ep2-ba8.pt"}


@pytest.mark.parametrize("remote", [False, True])
def test_manifests_and_links_are_no_checkpoints_of_their_own(
    remote: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "web.manifest.json").write_text('{"name": "a page"}')
    (folder / "pointer.symlink").write_text(
        "ep1-ba4.pt" if not remote else f"{folder.parent.name[:0]}{folder.name}/ep1-ba4.pt"
    )
    place = place_of(folder, remote)
    spellings = [place]
    if not remote:
        spellings += [f"file://{folder}", f"FILE://{folder}", f"file://localhost{folder}"]
    for where in spellings:
        status, out, _ = run("list", where, "--json", capsys=capsys)
        names = [record["name"] for record in json.loads(out)]
        assert (status, names) == (0, ["ep1-ba4.pt", "ep2-ba8.pt", "ep3-ba12.pt"])
        for name, leads in [
            ("ep2-ba8.pt.manifest.json", "ep2-ba8.pt"),
            ("latest-rank0.pt", "ep3-ba12.pt"),
            ("best-rank0.pt", "ep1-ba4.pt"),
            ("pointer.symlink", "ep1-ba4.pt"),
        ]:
            for action in ("list", "verify"):
                status, out, _ = run(action, f"{where}/{name}", "--json", capsys=capsys)
                assert [record["name"] for record in json.loads(out)] == [leads]
                assert status == 0


@pytest.mark.parametrize("remote", [False, True])
def test_a_manifest_whose_file_is_gone_is_told(
    remote: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ep2-ba8.pt").unlink()
    where = f"{place_of(folder, remote)}/ep2-ba8.pt.manifest.json"
    status, out, _ = run("verify", where, capsys=capsys)
    assert (status, "the file is gone" in out) == (1, True)


def test_a_link_in_a_store_that_leads_nowhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "gone.pt").symlink_to("nothing.pt")
    where = f"{uploaded(folder)}/gone.pt"
    status, _, err = run("show", where, capsys=capsys)
    assert status == 2
    assert "nothing.pt, which is gone" in err


@pytest.mark.parametrize("action", [["list"], ["verify"], ["show"], ["export", "--to", "a.pt"]])
@pytest.mark.parametrize("where", ["/nowhere/at/all", "memory://nowhere/at/all"])
def test_a_place_that_is_not_there(
    action: list[str], where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(*action, where, capsys=capsys)
    assert (status, out) == (2, "")
    assert err.startswith(f"composer checkpoint {action[0]}: there is no")
    assert where.removeprefix("file://") in err


def test_a_scheme_without_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    for where in ("gopher://a/b", "fsspec://a/b"):
        for action in (["list"], ["verify"], ["show"], ["export", "--to", "a.safetensors"]):
            status, out, err = run(*action, where, capsys=capsys)
            assert (status, out) == (2, "")
            assert where.partition(":")[0] in err


# ---- verify -----------------------------------------------------------------------------------


@pytest.mark.parametrize("remote", [False, True])
def test_verify_of_good_ones(
    remote: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run("verify", place_of(folder, remote), capsys=capsys)
    assert (status, out) == (0, "ep1-ba4.pt  ok\nep2-ba8.pt  ok\nep3-ba12.pt  ok\n")


@pytest.mark.parametrize("remote", [False, True])
def test_verify_finds_one_changed_byte(
    remote: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "ep2-ba8.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    status, out, _ = run("verify", place_of(folder, remote), capsys=capsys)
    assert status == 1
    lines = out.splitlines()
    assert lines[0] == "ep1-ba4.pt  ok"
    assert lines[1].startswith("ep2-ba8.pt  bad: ")
    assert "checksum" in lines[1]
    assert lines[-1] == "1 of 3 is bad"


def test_verify_names_each_problem(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ep1-ba4.pt").unlink()
    (folder / "ep2-ba8.pt").write_bytes((folder / "ep2-ba8.pt").read_bytes()[:-1])
    (folder / "foreign.pt").write_bytes(b"no file of torch")
    status, out, _ = run("verify", str(folder), "--json", capsys=capsys)
    assert status == 1
    found = {record["name"]: record for record in json.loads(out)}
    assert {name for name, record in found.items() if record["ok"]} == {"ep3-ba12.pt"}
    assert "gone" in found["ep1-ba4.pt"]["problem"]
    assert "bytes" in found["ep2-ba8.pt"]["problem"]
    assert "cannot be read" in found["foreign.pt"]["problem"]


def test_verify_without_a_manifest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "ep2-ba8.pt"
    Path(manifest_name(str(path))).unlink()
    status, out, _ = run("verify", str(path), capsys=capsys)
    assert status == 0
    assert out == "ep2-ba8.pt  ok (no manifest; the checksums inside the file were compared)\n"
    status, out, _ = run("verify", str(path), "--strict", capsys=capsys)
    assert status == 1
    assert "bad: there is no manifest" in out
    content = bytearray(path.read_bytes())
    spot = content.index(b"data/0") + 200
    content[spot] ^= 1
    path.write_bytes(content)
    status, out, _ = run("verify", str(path), capsys=capsys)
    assert status == 1
    assert "not a complete checkpoint" in out


def test_verify_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.system, (f"touch {tmp_path / 'marker'}",))

    torch.save({"format": 1, "state": {"model": {}, "x": Payload()}}, tmp_path / "a.pt")
    for action in ("list", "verify", "show"):
        status, out, err = run(action, str(tmp_path / "a.pt"), capsys=capsys)
        assert "system" in out + err
        assert status == (0 if action == "list" else 1)
    assert not (tmp_path / "marker").exists()


def test_verify_of_a_manifest_that_promises_more(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(manifest_name(str(folder / "ep2-ba8.pt")))
    manifest = json.loads(path.read_text())
    manifest["contents"].append("state/second_model")
    path.write_text(json.dumps(manifest))
    status, out, _ = run("verify", str(folder), capsys=capsys)
    assert status == 1
    assert "promises state/second_model" in out


# ---- show -------------------------------------------------------------------------------------


def test_show_of_a_folder_takes_the_newest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run("show", str(folder), capsys=capsys)
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("ep3-ba12.pt, ")
    assert lines[0].endswith(", complete")
    assert "epoch 3, batch 12 (0 in the epoch)" in out
    assert "SGD, state of 2 parameters, 60 B" in out
    assert "2 parameters: lr=0.1, momentum=0.9" in out
    assert re.search("^model +2 tensors, 15 values, 60 B$", out, re.MULTILINE)
    assert "linear.weight  3 x 4  float32  0.00" in out


def test_show_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("show", f"{uploaded(folder)}/ep2-ba8.pt", "--json", capsys=capsys)
    assert status == 0
    facts = json.loads(out)
    assert facts["name"] == "ep2-ba8.pt"
    assert facts["state"] == "complete"
    assert facts["timestamp"]["batch"] == 8
    assert facts["run_name"] == "test"
    assert facts["tensors"][0] == {
        "name": "linear.weight", "shape": [3, 4], "dtype": "float32", "bytes": 48
    }  # fmt: skip
    assert facts["optimizers"][0]["groups"][0]["lr"] == 0.1
    assert facts["metadata"]["torch_version"] == torch.__version__


def test_show_of_another_release(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("show", str(OLD / "blurpool.pt"), capsys=capsys)
    assert status == 0
    for part in (
        "written by Composer 0.32.1",
        "epoch 1, batch 4",
        "BlurPool(replace_convs=True, replace_maxpools=True, blur_first=True, min_channels=2)",
        " StepLR\n",
        "restored:\n  weights (8 tensors)",
        "module.0.conv.weight",
    ):
        assert part in out
    status, out, _ = run("show", str(OLD / "epoch-edge.pt"), "--json", capsys=capsys)
    facts = json.loads(out)
    assert "LabelSmoothing (arguments not stored)" in "\n".join(checkpoint_facts.describe(facts))
    assert any("one batch late" in note for note in facts["conversion"]["notes"])


def rewrite(path: Path, **facts: Any) -> None:
    manifest = Path(manifest_name(str(path)))
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **facts}))


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("as saved", "ep3-ba12.pt"),
        ("killed before the link moved", "ep3-ba12.pt"),
        ("clock set back", "ep1-ba4.pt"),
        ("no link", "ep3-ba12.pt"),
        ("weights only", "ep2-ba8.pt"),
        ("cut short", "ep2-ba8.pt"),
        ("deeper", "ep3-ba12.pt"),
    ],
)
def test_show_of_a_folder_and_autoresume_agree(
    case: str, expected: str, remote: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for batch in (4, 8, 12):
        written = f"2026-01-01T00:00:{batch:02}+00:00"
        rewrite(folder / f"ep{batch // 4}-ba{batch}.pt", written=written)
    latest, newest = folder / "latest-rank0.pt", folder / "ep3-ba12.pt"
    if case != "as saved":
        latest.unlink()
    if case in ("killed before the link moved", "clock set back"):
        latest.symlink_to("ep1-ba4.pt")
    if case == "clock set back":
        rewrite(folder / "ep1-ba4.pt", written="2026-01-01T00:01:00+00:00")
    if case == "weights only":
        rewrite(newest, weights_only=True)
    if case == "cut short":
        newest.write_bytes(newest.read_bytes()[:-1])
    if case == "deeper":
        saved(folder / "another-run", 20)
    place = place_of(folder, remote)
    found = read_newest(place, latest.name, progress_bar=False)
    assert found is not None
    assert found[0].rpartition("/")[2] == expected
    status, out, _ = run("show", place, capsys=capsys)
    assert status == 0
    assert out.startswith(f"{expected}, ")


def test_show_follows_a_link(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("show", str(folder / "best-rank0.pt"), capsys=capsys)
    assert out.startswith("ep1-ba4.pt, ")
    (folder / "gone.pt").symlink_to("nothing.pt")
    status, _, err = run("show", str(folder / "gone.pt"), capsys=capsys)
    assert status == 2
    assert "a link to nothing.pt, which is gone" in err


def test_show_passes_over_a_damaged_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ep3-ba12.pt").write_bytes(b"")
    _, out, _ = run("show", str(folder), capsys=capsys)
    assert out.startswith("ep2-ba8.pt, ")
    for path in folder.glob("ep*.pt"):
        path.write_bytes(b"")
    status, _, err = run("show", str(folder), capsys=capsys)
    assert status == 1
    assert "0 bytes" in err


# ---- export -----------------------------------------------------------------------------------


@pytest.mark.parametrize("remote", [False, True])
def test_export(remote: bool, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file

    source, target = folder / "ep2-ba8.pt", folder / "model.safetensors"
    where = f"{place_of(folder, remote)}/{source.name}"
    status, out, _ = run("export", where, "--to", str(target), capsys=capsys)
    assert status == 0
    assert out.startswith(f"{target}: 2 tensors of ep2-ba8.pt")
    expected = torch.load(source, weights_only=True)["state"]["model"]
    found = load_file(target)
    assert list(found) == sorted(expected)
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor)
    with safe_open(target, "pt") as file:
        about = file.metadata()
    assert (about["format"], about["source"], about["batch"]) == ("pt", "ep2-ba8.pt", "8")
    assert about["written_by"].startswith("composer ")


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("counter", torch.tensor(3))


def test_export_of_tied_weights_in_another_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_model

    model = Tied()
    source, target = saved(tmp_path, 4, model), tmp_path / "model.safetensors"
    words = ["export", str(source), "--to", str(target), "--dtype", "bfloat16"]
    status, out, _ = run(*words, capsys=capsys)
    assert status == 0
    assert "head.weight is embedding.weight, saved once" in out
    with safe_open(target, "pt") as file:
        assert sorted(file.keys()) == ["counter", "embedding.weight"]
        assert file.metadata()["head.weight"] == "embedding.weight"
        assert file.get_tensor("embedding.weight").dtype == torch.bfloat16
        assert file.get_tensor("counter").dtype == torch.int64
    other = Tied()
    assert load_model(other, target) == (set(), [])
    assert torch.equal(other.head.weight, model.head.weight.to(torch.bfloat16).float())


def test_export_of_another_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import load_file

    target = tmp_path / "model.safetensors"
    status, out, _ = run("export", str(OLD / "epoch-edge.pt"), "--to", str(target), capsys=capsys)
    assert status == 0
    assert "the average that EMA kept" in out
    truth = json.loads((OLD / "epoch-edge.json").read_text())["loaded"]["model"]
    assert set(load_file(target)) == set(truth)


def test_export_never_harms_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = folder / "model.safetensors"
    target.write_text("precious")
    words = ["export", str(folder), "--to", str(target)]
    status, _, err = run(*words, capsys=capsys)
    assert status == 2
    assert "--overwrite" in err
    (folder / "bad.pt").write_bytes(b"x")
    status, _, err = run("export", str(folder / "bad.pt"), *words[2:], "--overwrite", capsys=capsys)
    assert status == 1
    assert target.read_text() == "precious"
    assert run(*words, "--overwrite", capsys=capsys)[0] == 0
    assert target.read_bytes() != b"precious"
    assert [p.name for p in folder.glob("*.tmp")] == [".ep9.pt.tmp"]


@pytest.mark.parametrize("to", ["folder", "model.pt", "hugging_face/"])
def test_export_to_another_format(
    to: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run("export", str(folder), "--to", str(folder / to), capsys=capsys)
    assert status == 2
    assert ".safetensors" in err
    assert "Hugging Face" in err


def test_export_into_a_folder_that_is_not_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run("export", str(folder), "--to", "/nowhere/a.safetensors", capsys=capsys)
    assert status == 2
    assert "no folder /nowhere" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--to a.safetensors --adapter alone", "--adapter goes with --format huggingface"),
        ("--to a.safetensors --base x", "--base goes with --format huggingface"),
        ("--to a.safetensors --max-shard-size x", "--max-shard-size goes with --format hugg"),
        ("--to a.safetensors --trust-remote-code", "--trust-remote-code goes with --format hugg"),
        ("--to s3://bucket/a.safetensors", "--to 's3://bucket/a.safetensors' must be a place of"),
        ("--to=", "--to '' names no place"),
        ("--to out --format huggingface --overwrite", "--overwrite replaces a file and no folder"),
        ("--to out --format huggingface --base x", "--base goes with --adapter merged"),
        ("--to out --format huggingface --max-shard-size x", "--max-shard-size 'x' must be a size"),
        ("--to out --format huggingface --max-shard-size 0", "--max-shard-size '0' must be a size"),
        ("--to s3://bucket/m --format huggingface", "must be a place of this machine"),
        ("--to taken --format huggingface", "taken exists; name another"),
        ("--to taken/in --format huggingface", "no folder taken to write in in"),
    ],
)
def test_export_refuses_options_in_a_line(
    words: str,
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    Path("taken").write_text("precious")
    before = sorted(folder.iterdir())
    status, _, err = run("export", str(folder / "ep1-ba4.pt"), *words.split(), capsys=capsys)
    assert status == 2
    assert err.startswith("composer checkpoint export: ")
    assert said in err
    assert err.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_export_without_the_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    target = folder / "model.safetensors"
    status, _, err = run("export", str(folder), "--to", str(target), capsys=capsys)
    assert status == 2
    assert 'pip install "composer-models[safetensors]"' in err
    assert not target.exists()


def test_exported_views_hold_their_own_numbers(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    base = torch.arange(6.0)
    weights = {
        "part": base[:4],
        "rest": base[2:],
        "turned": base.reshape(2, 3).T,
        "empty": torch.zeros(0),
        "none": torch.zeros(0, 3),
        "extra": {"no": "tensor"},
    }
    assert tied_names(weights) == {}
    tied, left_out = export_safetensors(weights, tmp_path / "a.safetensors")
    assert (tied, left_out) == ({}, ["extra"])
    found = load_file(tmp_path / "a.safetensors")
    for name, tensor in weights.items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(found[name], tensor)


def test_export_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"float61.*float16"):
        export_safetensors({"a": torch.ones(1)}, tmp_path / "a.safetensors", dtype="float61")
    with pytest.raises(ValueError, match="no weights"):
        export_safetensors({"a": 3}, tmp_path / "a.safetensors")


# ---- the command itself -----------------------------------------------------------------------


@pytest.mark.parametrize("action", ["list", "verify", "show", "export"])
def test_help_of_each_action_has_examples(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["checkpoint", action, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert f"examples:\n  composer checkpoint {action} " in out


@pytest.mark.parametrize("words", [[], ["lst", "."], ["list"], ["export", "a.pt"]])
def test_wrong_words_are_usage_errors(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["checkpoint", *words])
    assert caught.value.code == 2
    assert "usage: composer checkpoint" in capsys.readouterr().err


def test_the_overview_does_not_import_torch() -> None:
    run_python(
        "import sys\n"
        "from composer.cli.checkpoint import CheckpointCommand\n"
        "assert CheckpointCommand.help\n"
        "assert 'torch' not in sys.modules\n"
    )


def test_a_uri_of_this_machine_is_a_path(folder: Path) -> None:
    with open_source(f"file://{folder}") as source:
        assert [item.state for item in source.items()] == ["complete"] * 3
        assert source.links() == {
            "best-rank0.pt": "ep1-ba4.pt", "latest-rank0.pt": "ep3-ba12.pt"
        }  # fmt: skip


def test_a_tiny_model_is_what_is_saved() -> None:
    """The numbers above are those of this model."""
    assert sum(p.numel() for p in TinyModel().parameters()) == 15
