"""Tar archives: what goes in comes out, and what an archive says is not believed."""

from __future__ import annotations

import io
import pathlib
import shutil
import tarfile

import pytest

from composer.utils.archives import extract_file, pack_file

ENDINGS = [".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.lzma", ".tar.xz", ".tar.zst"]
CONTENT = bytes(range(256)) * 5000


def skip_without_tool(ending: str) -> None:
    if ending == ".tar.zst" and shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")


def build(path: pathlib.Path, *members: tarfile.TarInfo, content: bytes = b"x") -> pathlib.Path:
    with tarfile.open(path, "w") as archive:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize("ending", ENDINGS)
def test_round_trip(ending: str, tmp_path: pathlib.Path) -> None:
    skip_without_tool(ending)
    (tmp_path / "source").write_bytes(CONTENT)
    archive = tmp_path / f"ep1{ending}"
    archive.write_bytes(b"older")
    pack_file(tmp_path / "source", archive, "composer_states.pt")
    if ending != ".tar.zst":
        with tarfile.open(archive) as opened:
            assert opened.getnames() == ["composer_states.pt"]
    if ending != ".tar":
        assert archive.stat().st_size < len(CONTENT) / 2
    # How it is packed is in the content, not in the name.
    moved = archive.rename(tmp_path / "moved")
    (tmp_path / "got").write_bytes(b"older")
    extract_file(moved, "composer_states.pt", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["got", "moved", "source"]


def test_a_temporary_name_is_packed_like_another(tmp_path: pathlib.Path) -> None:
    (tmp_path / "source").write_bytes(CONTENT)
    pack_file(tmp_path / "source", tmp_path / "x.tmp", "a", like="ep1.tar.gz")
    assert (tmp_path / "x.tmp").read_bytes()[:2] == b"\x1f\x8b"
    with pytest.raises(ValueError, match=r"must end in .tar"):
        pack_file(tmp_path / "source", tmp_path / "x.tmp", "a")
    with pytest.raises(ValueError, match="relative path"):
        pack_file(tmp_path / "source", tmp_path / "x.tar", "../a")
    with pytest.raises(FileNotFoundError):
        pack_file(tmp_path / "none", tmp_path / "y.tar", "a")
    assert not (tmp_path / "y.tar").exists()


def test_a_folder_packed_under_the_empty_name(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "composer_states.pt").write_bytes(CONTENT)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(folder, arcname="")
    extract_file(tmp_path / "a.tar.gz", "composer_states.pt", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "bad",
    [
        member("../evil"),
        member("a/../../evil"),
        member("/etc/evil"),
        member("..\\evil"),
        member("C:/evil"),
        member("state", tarfile.SYMTYPE, "/etc/passwd"),
        member("state", tarfile.LNKTYPE, "../secret"),
        member("state", tarfile.FIFOTYPE),
        member("state", tarfile.DIRTYPE),
    ],
    ids=lambda info: f"{info.name}-{info.type.decode()}",
)
@pytest.mark.parametrize("first", [True, False])
def test_members_that_are_refused(
    bad: tarfile.TarInfo, first: bool, tmp_path: pathlib.Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    good = member("state")
    archive = build(inside / "a.tar", *([bad, good] if first else [good, bad]))
    with pytest.raises(ValueError, match=r"a\.tar"):
        extract_file(archive, "state", inside / "got")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.tar", "inside"]


def test_missing_members_and_bad_names(tmp_path: pathlib.Path) -> None:
    archive = build(tmp_path / "a.tar", member("./b/state"), member("b/state"))
    extract_file(archive, "b/state", tmp_path / "got")
    with pytest.raises(FileNotFoundError, match=r"no member 'state'. It has: b/state"):
        extract_file(archive, "state", tmp_path / "got2")
    with pytest.raises(FileNotFoundError):
        extract_file(tmp_path / "none.tar", "state", tmp_path / "got2")
    with pytest.raises(ValueError, match="relative path"):
        extract_file(archive, "../state", tmp_path / "got2")
    assert not (tmp_path / "got2").exists()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_archives_cut_short(ending: str, share: float, tmp_path: pathlib.Path) -> None:
    skip_without_tool(ending)
    source = tmp_path / "source"
    source.write_bytes(bytes((7 * i * i + i) % 251 for i in range(300_000)))
    archive = tmp_path / f"a{ending}"
    pack_file(source, archive, "state")
    data = archive.read_bytes()
    archive.write_bytes(data[: int(len(data) * share)])
    (tmp_path / "got").write_bytes(b"older")
    with pytest.raises(ValueError, match="damaged"):
        extract_file(archive, "state", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"older"


def test_no_archive_at_all(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"these are no bytes of an archive" * 100)
    with pytest.raises(ValueError, match="damaged or no tar archive"):
        extract_file(tmp_path / "a.tar", "state", tmp_path / "got")
