"""What a checkpoint's manifest says, and what happens to files that are not what it says."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import resource
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

from composer.callbacks import CheckpointSaver
from composer.checkpoint import (
    NewerFormatError,
    find_newest,
    read_checkpoint,
    read_manifest,
    read_newest,
    save_checkpoint,
    verify,
)
from composer.checkpoint.formats import TAR_MEMBER, write_file
from composer.checkpoint.search import OwnFiles
from composer.core.timestamp import Timestamp
from composer.trainer import Trainer
from composer.utils.compression import KNOWN_COMPRESSORS, CompressorNotFound
from composer_testing.tiny import TinyModel, loader, state_of

INSTALLED = [f"a.pt.{c.extension}" for c in KNOWN_COMPRESSORS if c.exists]
TARS = ["a.tar", "a.tar.gz", "a.tgz", "a.tar.bz2", "a.tar.lzma", "a.tar.xz"]


def saved(folder: Path, batch: int, **settings: Any) -> Path:
    """A checkpoint of a moment, whose weights say which."""
    state = state_of()
    with torch.no_grad():
        state.model.linear.weight.fill_(batch)
    state.timestamp = Timestamp(batch=batch)
    path = save_checkpoint(state, str(folder / "ep{epoch}-ba{batch}.pt"), **settings)
    assert path is not None
    return Path(path)


def manifest_of(path: Path) -> Path:
    return path.with_name(path.name + ".manifest.json")


def edit_manifest(path: Path, **changes: Any) -> None:
    beside = manifest_of(path)
    beside.write_text(json.dumps({**json.loads(beside.read_text()), **changes}))


def test_a_manifest_says_what_the_file_is(tmp_path: Path) -> None:
    path = saved(tmp_path, 7)
    data = path.read_bytes()
    found = json.loads(manifest_of(path).read_text())
    assert found["format"] == 1
    assert found["file"] == "ep0-ba7.pt"
    assert found["size"] == len(data)
    assert found["hashes"] == {"sha256": hashlib.sha256(data).hexdigest()}
    assert found["timestamp"] == Timestamp(batch=7).state_dict()
    assert found["checkpoint_format"] == 1
    assert found["run_name"] == "test"
    assert found["weights_only"] is False
    assert found["written"].endswith("+00:00")
    assert {"rng", "metadata", "state/model", "state/optimizers"} <= set(found["contents"])
    assert found["contents"] == sorted(found["contents"])
    assert found["versions"]["torch"] == torch.__version__
    assert verify(path) == []
    weights = saved(tmp_path / "w", 7, weights_only=True)
    manifest = read_manifest(weights)
    assert manifest is not None
    assert manifest.weights_only
    assert manifest.contents == ["metadata", "state/integrations", "state/model"]


def test_the_hash_is_that_of_large_files_too(tmp_path: Path) -> None:
    """The hash follows the writing, in pieces that do not end where the records do."""
    path = tmp_path / "a.pt"
    contents = {"big": torch.randn(1_500_000), "small": [torch.randn(i) for i in range(50)]}
    size, digest = write_file(contents, path)
    assert (size, digest) == (
        path.stat().st_size,
        hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    data = path.read_bytes()
    middle = data.find(torch.full((3, 4), 1.0).numpy().tobytes())
    for place in (0, 2, 40, middle, middle + 47, len(data) - 30, len(data) - 1):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        real, said = (hashlib.sha256(d).hexdigest() for d in (bytes(changed), data))
        with pytest.raises(ValueError, match=f"{real}, and {said} according to its manifest"):
            read_checkpoint(path)
        assert len(verify(path)) == 1


@pytest.mark.parametrize("more", [-100, -1, 1])
def test_another_size_is_told_with_both_values(more: int, tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    data = path.read_bytes()
    path.write_bytes(data[:more] if more < 0 else data + b"x")
    message = f"it has {len(data) + more:,} bytes, and {len(data):,} according to its manifest"
    with pytest.raises(ValueError, match=message):
        read_checkpoint(path)
    assert message in verify(path)[0]


def test_without_a_manifest_the_checksums_inside_count(tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    manifest_of(path).unlink()
    assert read_checkpoint(path)["state"]["timestamp"]["batch"] == 1
    assert "no manifest" in verify(path)[0]
    data = bytearray(path.read_bytes())
    data[bytes(data).find(torch.full((3, 4), 1.0).numpy().tobytes()) + 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"the checksum of .* does not match"):
        read_checkpoint(path)


def test_a_link_leads_to_the_manifest_of_its_file(tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    (tmp_path / "latest.pt").symlink_to(path.name)
    assert verify(tmp_path / "latest.pt") == []
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ValueError, match="according to its manifest"):
        read_checkpoint(tmp_path / "latest.pt")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("", ValueError, "is damaged"),
        ("[]", ValueError, "is damaged"),
        ("{}", ValueError, "is damaged"),
        ('{"format": 1, "size": "3"}', ValueError, "is damaged"),
        ('{"format": 2}', NewerFormatError, "Upgrade"),
    ],
)
def test_a_bad_manifest_is_told(text: str, kind: Any, message: str, tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    manifest_of(path).write_text(text)
    with pytest.raises(kind, match=message):
        read_checkpoint(path)
    assert message in verify(path)[0]


def test_writing_over_a_file_never_leaves_a_manifest_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import composer.checkpoint.save as module

    path = saved(tmp_path, 1)
    before = path.read_bytes()

    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_manifest", stop)
    with pytest.raises(KeyboardInterrupt):
        saved(tmp_path, 1, ignore_keys=["state/run_name"])
    assert path.read_bytes() != before
    assert not manifest_of(path).exists()
    assert "run_name" not in read_checkpoint(path)["state"]


# ---- the newest ---------------------------------------------------------------------------------


def test_the_clock_of_the_run_decides_and_not_that_of_the_files(tmp_path: Path) -> None:
    paths = [saved(tmp_path, batch) for batch in (2, 10, 6)]
    for age, path in zip((100, 300, 200), paths, strict=True):
        os.utime(path, (1e9 - age, 1e9 - age))
    assert find_newest(tmp_path, None) == paths[1]


def test_what_was_finished_before_the_pointer_moved_is_the_newest(tmp_path: Path) -> None:
    old, new = saved(tmp_path, 2), saved(tmp_path, 4)
    (tmp_path / "latest.pt").symlink_to(old.name)
    assert find_newest(tmp_path, "latest.pt") == new


def test_a_clock_that_was_set_back_leaves_the_pointer_right(tmp_path: Path) -> None:
    saved(tmp_path, 9)
    again = saved(tmp_path, 3)
    (tmp_path / "latest.pt").symlink_to(again.name)
    assert find_newest(tmp_path, "latest.pt") == again


def test_a_file_whose_manifest_is_missing_is_tried_last(tmp_path: Path) -> None:
    """Its writing did not come to its end; it is whole all the same, and better than nothing."""
    old, new = saved(tmp_path, 2), saved(tmp_path, 4)
    manifest_of(new).unlink()
    assert find_newest(tmp_path, None) == old
    old.unlink()
    assert find_newest(tmp_path, None) == new


def test_files_without_manifests_are_found_as_before(tmp_path: Path) -> None:
    old, new = saved(tmp_path, 2), saved(tmp_path, 4)
    for path, age in ((old, 100), (new, 200)):
        manifest_of(path).unlink()
        os.utime(path, (1e9 - age, 1e9 - age))
    assert find_newest(tmp_path, None) == old
    (tmp_path / "latest.pt").symlink_to(new.name)
    assert find_newest(tmp_path, "latest.pt") == new


def damage(how: str, path: Path) -> str:
    """Damage a checkpoint; returns what will be said."""
    data = bytearray(path.read_bytes())
    if how == "cut":
        path.write_bytes(data[:-10])
        return "bytes, and"
    if how == "byte":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        return "the checksum"
    if how == "gone":
        path.unlink()
        return "leads to"
    path.write_bytes(b"")
    return "0 bytes"


@pytest.mark.parametrize("how", ["cut", "byte", "gone", "empty"])
def test_a_damaged_newest_is_passed_over_and_said(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = saved(tmp_path, 2), saved(tmp_path, 4)
    (tmp_path / "latest.pt").symlink_to(new.name)
    said = damage(how, new)
    with caplog.at_level(logging.WARNING):
        found = read_newest(tmp_path, "latest.pt")
    assert found is not None
    assert found[0] == str(old)
    assert found[1]["state"]["timestamp"]["batch"] == 2
    [record] = caplog.records
    assert str(new if how != "gone" else "latest.pt") in record.getMessage()
    assert said in record.getMessage()


def test_a_damaged_manifest_does_not_cost_the_only_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path, 2)
    manifest_of(path).write_text("{")
    with caplog.at_level(logging.WARNING):
        assert find_newest(tmp_path, None) == path
    assert "is damaged" in caplog.text


def test_a_newer_format_is_never_passed_over(tmp_path: Path) -> None:
    """An older release that goes on from an older checkpoint would write over a newer run."""
    saved(tmp_path, 2)
    new = saved(tmp_path, 4)
    edit_manifest(new, format=2)
    with pytest.raises(NewerFormatError, match="Upgrade"):
        find_newest(tmp_path, None)
    torch.save({"format": 99, "state": {}}, new)
    manifest_of(new).unlink()
    (tmp_path / "latest.pt").symlink_to(new.name)
    with pytest.raises(NewerFormatError, match="Upgrade"):
        find_newest(tmp_path, "latest.pt")


def test_weights_alone_cannot_continue_a_run(tmp_path: Path) -> None:
    full = saved(tmp_path, 2)
    saved(tmp_path, 4, weights_only=True)
    saved(tmp_path, 5, ignore_keys=["rng"])
    assert find_newest(tmp_path, None) == full


# ---- kinds of files -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*TARS, *INSTALLED, "a", "a.bin"])
def test_every_ending_comes_back(name: str, tmp_path: Path) -> None:
    state = state_of()
    path = save_checkpoint(state, str(tmp_path / name))
    assert path == str(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == [name, name + ".manifest.json"]
    assert verify(path) == []
    stored = read_checkpoint(path)["state"]["model"]
    for key, value in state.model.state_dict().items():
        assert torch.equal(stored[key], value)
    if name in TARS:
        with tarfile.open(path) as archive:
            assert archive.getnames() == [TAR_MEMBER]
    (tmp_path / "latest.pt").symlink_to(name)
    assert torch.equal(
        read_checkpoint(tmp_path / "latest.pt")["state"]["model"]["linear.bias"],
        stored["linear.bias"],
    )
    manifest_of(Path(path)).unlink()
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"complete checkpoint|damaged"):
        read_checkpoint(path)


@pytest.mark.parametrize("name", [f"a.pt.{c.extension}" for c in KNOWN_COMPRESSORS])
def test_a_missing_tool_is_told_at_construction(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from composer.trainer.options import SaveOptions

    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CompressorNotFound, match=rf"filename='{name}' needs the command"):
        CheckpointSaver(filename=name)
    with pytest.raises(CompressorNotFound, match=rf"save_filename='{name}' needs the command"):
        SaveOptions(folder="x", filename=name)
    CheckpointSaver(filename="a.tar.gz")


def test_a_missing_tool_at_loading_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_checkpoint(state_of(), str(tmp_path / "a.pt.gz"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CompressorNotFound, match="gzip"):
        read_newest(tmp_path, None, "*.gz")
    with pytest.raises(CompressorNotFound, match="gzip"):
        read_checkpoint(str(path))


@pytest.mark.parametrize("member", ["../evil.pt", "/tmp/evil.pt"])
def test_a_tar_that_leaves_its_folder_is_refused(member: str, tmp_path: Path) -> None:
    inside = tmp_path / "in" / "a.pt"
    inside.parent.mkdir()
    torch.save({"format": 1, "state": {}}, inside)
    archive = tmp_path / "in" / "a.tar"
    with tarfile.open(archive, "w") as opened:
        for name in (member, TAR_MEMBER):
            info = opened.gettarinfo(inside, name)
            info.name = name
            with inside.open("rb") as file:
                opened.addfile(info, file)
    with pytest.raises(ValueError, match="leaves the folder"):
        read_checkpoint(archive)
    assert not (tmp_path / "evil.pt").exists()
    assert not Path("/tmp/evil.pt").exists()


def test_a_tar_without_a_checkpoint_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "notes", "notes")
    with pytest.raises(ValueError, match=TAR_MEMBER):
        read_checkpoint(tmp_path / "a.tar")


# ---- a disk that is full ------------------------------------------------------------------------


class _Full:
    """Lets every file of this process hold a few bytes only, as the operating system does it."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __enter__(self) -> None:
        import signal

        self.handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.limits[1]))

    def __exit__(self, *error: Any) -> None:
        import signal

        resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)
        signal.signal(signal.SIGXFSZ, self.handler)


@pytest.mark.parametrize("room", [0, 100, 2_000])
@pytest.mark.parametrize("name", ["a.pt", "a.tar", "a.pt.gz"])
def test_a_file_that_does_not_fit_is_told_and_loses_nothing(
    name: str, room: int, tmp_path: Path
) -> None:
    path = save_checkpoint(state_of(), str(tmp_path / name))
    assert path is not None
    before = Path(path).read_bytes()
    with _Full(room), pytest.raises(OSError, match="could not be written"):
        save_checkpoint(state_of(torch.nn.Linear(400, 400)), path)
    assert Path(path).read_bytes() == before
    assert verify(path) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == [name, name + ".manifest.json"]


# ---- which files are a run's own ----------------------------------------------------------------


def continued(folder: str, name: str, template: str, duration: str = "2ep") -> Trainer:
    model = TinyModel()
    trainer = Trainer(
        model=model, train_dataloader=loader(8, 4), max_duration=duration, progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1), run_name=name, autoresume=True,
        save_folder=folder, save_filename=template, save_latest_filename="{run_name}-latest.pt",
    )  # fmt: skip
    before = int(trainer.state.timestamp.epoch)
    trainer.fit()
    trainer.close()
    trainer.state.run_name = f"began at {before}"
    return trainer


@pytest.mark.parametrize("place", ["folder", "store"])
@pytest.mark.parametrize(
    "template", ["{run_name}-ep{epoch}.pt", "ep{epoch}/{run_name}.pt", "{run_name}.{epoch}"]
)
def test_a_run_continues_its_own_checkpoints_only(
    tmp_path: Path, place: str, template: str
) -> None:
    folder = str(tmp_path) if place == "folder" else f"memory://{tmp_path.name}-own/runs"
    continued(folder, "a", template, "3ep")
    assert continued(folder, "b", template, "1ep").state.run_name == "began at 0"
    assert continued(folder, "b", template).state.run_name == "began at 1"


def test_files_of_another_run_under_the_same_names_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    continued(str(tmp_path), "a", "ep{epoch}.pt", "3ep")
    with caplog.at_level("WARNING", "composer"):
        found = read_newest(tmp_path, None, own=OwnFiles("ep{epoch}.pt", "b"))
    assert found is None
    assert "was written by the run 'a' and not by 'b'" in caplog.text


@pytest.mark.parametrize("template", ["ep{epoch}/x.pt", "ep{epoch}.{batch}"])
def test_a_damaged_newest_falls_back_whatever_the_names(tmp_path: Path, template: str) -> None:
    continued(str(tmp_path), "a", template, "3ep")
    newest = tmp_path / template.format(epoch=3, batch=6)
    newest.write_bytes(newest.read_bytes()[:-100])
    assert continued(str(tmp_path), "a", template, "4ep").state.run_name == "began at 2"


def test_weights_alone_are_passed_over_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = TinyModel()
    trainer = Trainer(
        model=model, train_dataloader=loader(8, 4), max_duration="1ep", progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1), run_name="a",
        save_folder=str(tmp_path), save_weights_only=True,
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    with caplog.at_level("WARNING", "composer"):
        assert read_newest(tmp_path, "latest-rank0.pt") is None
    assert "it holds weights only" in caplog.text


@pytest.mark.parametrize(
    "spoilt",
    [
        '{"timestamp": {"epoch": "x", "batch": 1}}', '{"timestamp": {"epoch": null}}',
        '{"timestamp": {"batch": 1e999}}', '{"timestamp": {"batch": -3}}', '{"run_name": [1]}',
        '{"written": "garbage"}', "[" * 100_000, "folder", "loop",
    ],
)  # fmt: skip
def test_an_absurd_manifest_does_not_hide_the_others(tmp_path: Path, spoilt: str) -> None:
    continued(str(tmp_path), "a", "ep{epoch}.pt", "3ep")
    manifest = tmp_path / "ep2.pt.manifest.json"
    if spoilt in ("folder", "loop"):
        manifest.unlink()
        manifest.mkdir() if spoilt == "folder" else manifest.symlink_to(manifest.name)
    elif spoilt.startswith("{"):
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **json.loads(spoilt)}))
    else:
        manifest.write_text(spoilt)
    found = read_newest(tmp_path, "a-latest.pt", own=OwnFiles("ep{epoch}.pt", "a"))
    assert found is not None
    assert found[0].endswith("ep3.pt")
    assert continued(str(tmp_path), "a", "ep{epoch}.pt", "4ep").state.run_name == "began at 3"


def test_a_checkpoint_without_a_model_is_not_loaded_in_silence(tmp_path: Path) -> None:
    model = TinyModel()
    trainer = Trainer(
        model=model, train_dataloader=loader(8, 4), max_duration="1ep", progress_bar=False,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1), save_folder=str(tmp_path),
        save_filename="a.pt", save_ignore_keys=["state/model"],
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    model = TinyModel()
    with pytest.warns(UserWarning, match="holds no state/model"):
        Trainer(
            model=model, progress_bar=False, load_path=str(tmp_path / "a.pt"),
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        ).close()  # fmt: skip


@pytest.mark.parametrize("place", ["folder", "store"])
def test_a_run_whose_checkpoints_are_all_useless_does_not_start_over(
    tmp_path: Path, place: str
) -> None:
    """It would write over what somebody may still want to look at."""
    if place == "folder":
        folder = str(tmp_path)
        continued(folder, "a", "ep{epoch}.pt", "2ep")
        for file in tmp_path.glob("ep*.pt"):
            file.write_bytes(file.read_bytes()[:-50])
    else:
        folder = f"memory://{tmp_path.name}-useless/runs"
        model = TinyModel()
        trainer = Trainer(
            model=model, train_dataloader=loader(8, 4), max_duration="1ep", progress_bar=False,
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1), run_name="a",
            save_folder=folder, save_filename="ep{epoch}.pt", save_weights_only=True,
        )  # fmt: skip
        trainer.fit()
        trainer.close()
    with pytest.raises(ValueError, match=r"the run 'a' has checkpoints .*none of them can be"):
        continued(folder, "a", "ep{epoch}.pt", "3ep")
    assert continued(folder, "b", "b-ep{epoch}.pt", "1ep").state.run_name == "began at 0"
