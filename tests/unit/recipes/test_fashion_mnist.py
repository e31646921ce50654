"""The embedded part of Fashion-MNIST, and the ways to the full set without a network."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import pickle
import shutil
import struct
import subprocess
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

from composer.datasets import FashionMNIST, fashion, fashion_mnist

NAMES = [
    f"{prefix}-{kind}-ubyte.gz"
    for prefix in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
]


@pytest.fixture(scope="module")
def test_split() -> FashionMNIST:
    return fashion_mnist("test")


@pytest.mark.parametrize(("split", "per_class"), [("train", 1200), ("test", 200)])
def test_embedded_part_is_stratified_real_data(split: str, per_class: int) -> None:
    data = fashion_mnist(split)
    assert len(data) == 10 * per_class
    assert torch.bincount(data.labels).tolist() == [per_class] * 10
    # what is published of the official training images, within the error of a sample
    pixels = data.images.double() / 255
    assert pixels.mean().item() == pytest.approx(0.2860, abs=0.004)
    assert pixels.std().item() == pytest.approx(0.3530, abs=0.004)
    # no image twice
    assert len(torch.unique(data.images.flatten(1), dim=0)) > 0.998 * len(data)


def test_part_is_small_and_documented() -> None:
    folder = Path(fashion.__file__).parent / "data" / "fashion_mnist"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 6.5e6
    assert "Zalando" in (folder / "LICENSE").read_text()
    assert {line.split()[1] for line in (folder / "SHA256SUMS").read_text().splitlines()} == set(
        NAMES
    )


def test_samples_are_normalised(test_split: FashionMNIST) -> None:
    image, label = test_split[3]
    assert image.shape == (1, 28, 28)
    assert image.dtype is torch.float32
    assert label.dtype is torch.int64
    expected = (test_split.images[3].double() / 255 - 0.2860) / 0.3530
    torch.testing.assert_close(image[0].double(), expected, rtol=1e-5, atol=1e-6)
    plain, _ = fashion_mnist("test", normalize=False)[3]
    torch.testing.assert_close(plain[0].double(), test_split.images[3].double() / 255)


def test_batches_equal_stacked_samples(test_split: FashionMNIST) -> None:
    indices = [5, 0, 1999, 5]
    images = torch.stack([test_split[i][0] for i in indices])
    labels = torch.stack([test_split[i][1] for i in indices])
    samples = test_split.__getitems__(indices)
    assert len(samples) == 4
    for i, (image, label) in enumerate(samples):
        assert torch.equal(image, images[i])
        assert label == labels[i]
    assert [len(samples[1:3]), int(samples[-1][1])] == [2, int(labels[3])]
    with pytest.raises(IndexError):
        samples[4]
    # the default collate of a user's own loader, subsets and pickling for workers
    for data in (test_split, Subset(test_split, list(range(2000)))):
        loader: Any = DataLoader(data, batch_size=4, sampler=indices)
        (batch,) = list(loader)
        assert torch.equal(batch[0], images)
        assert torch.equal(batch[1], labels)
    assert torch.equal(pickle.loads(pickle.dumps(samples)).images, images)


def test_unknown_split() -> None:
    with pytest.raises(ValueError, match=r"split must be .* got 'tset'.*test"):
        fashion_mnist("tset")
    with pytest.raises(ValueError, match="shape"):
        FashionMNIST(torch.zeros(2, 28, 28), torch.zeros(3))


# ---- damage ----------------------------------------------------------------------------------


@pytest.fixture
def embedded_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source = fashion._EMBEDDED
    target = tmp_path / "embedded"
    shutil.copytree(source, target)
    copy = fashion._embedded(target)
    monkeypatch.setattr(fashion, "_embedded", lambda: copy)
    return target


def test_a_changed_byte_is_noticed(embedded_copy: Path) -> None:
    assert len(fashion_mnist("test")) == 2000
    file = embedded_copy / "t10k-labels-idx1-ubyte.gz"
    blob = bytearray(file.read_bytes())
    blob[500] ^= 1
    file.write_bytes(blob)
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte.gz is not the file"):
        fashion_mnist("test")


def test_a_truncated_or_missing_file_is_noticed(embedded_copy: Path) -> None:
    file = embedded_copy / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ValueError, match="download that broke off"):
        fashion_mnist("test")
    file.unlink()
    with pytest.raises(FileNotFoundError):
        fashion_mnist("test")


@pytest.mark.parametrize(
    "blob",
    [b"no gzip", gzip.compress(b"\x00\x00\x08\x01"), gzip.compress(b"\x00\x00\x09\x01" + bytes(9))],
    # Names of their own: a gzip header holds the time, which differs between the workers.
    ids=["no gzip", "no sizes", "other type"],
)
def test_a_file_that_is_no_idx_file(tmp_path: Path, blob: bytes) -> None:
    from composer.datasets.idx import read_idx

    file = tmp_path / "x.gz"
    file.write_bytes(blob)
    with pytest.raises(ValueError, match="not a gzip-compressed idx file"):
        read_idx(file, algorithm="sha256", expected=hashlib.sha256(blob).hexdigest())


# ---- the full set ----------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


@pytest.fixture
def tiny_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """Stand-ins for the official files, and nothing installed, cached or reachable."""
    blobs = {}
    for prefix, count in (("train", 6), ("t10k", 2)):
        pixels = np.arange(count * 784, dtype=np.int64).reshape(count, 28, 28) % 256
        blobs[f"{prefix}-images-idx3-ubyte.gz"] = idx(pixels.astype(np.uint8))
        blobs[f"{prefix}-labels-idx1-ubyte.gz"] = idx(np.arange(count, dtype=np.uint8))
    monkeypatch.setattr(
        fashion, "_MD5", {name: hashlib.md5(blob).hexdigest() for name, blob in blobs.items()}
    )
    monkeypatch.setattr(fashion, "DEBIAN_FOLDER", tmp_path / "usr" / "share")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "which", lambda _: None)

    def unreachable(url: str, timeout: float) -> Any:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    return blobs


class Response(io.BytesIO):
    """What a web server answers."""

    def __init__(self, blob: bytes) -> None:
        super().__init__(blob)
        self.headers = {"Content-Length": str(len(blob))}


def put(folder: Path, blobs: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, blob in blobs.items():
        (folder / name).write_bytes(blob)
    return folder


def test_full_from_a_folder(tiny_full: dict[str, bytes], tmp_path: Path) -> None:
    folder = put(tmp_path / "mine", tiny_full)
    assert len(fashion_mnist(full=True, folder=folder)) == 6
    assert fashion_mnist("test", folder=str(folder)).labels.tolist() == [0, 1]
    (folder / NAMES[0]).write_bytes(tiny_full[NAMES[0]] + b"x")
    with pytest.raises(ValueError, match="not the file it should be: md5"):
        fashion_mnist(folder=folder)
    (folder / NAMES[1]).unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks {NAMES[1]}"):
        fashion_mnist(folder=folder)


def test_full_from_where_debian_puts_it(tiny_full: dict[str, bytes]) -> None:
    put(fashion.DEBIAN_FOLDER, tiny_full)
    assert len(fashion_mnist(full=True, download=False)) == 6


def test_full_over_the_network_is_cached(
    tiny_full: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def urlopen(url: str, timeout: float) -> Any:
        asked.append(url)
        return Response(tiny_full[url.rsplit("/", 1)[1]])

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    assert len(fashion_mnist(full=True)) == 6
    assert len(asked) == 4
    assert all(url.startswith(fashion.PUBLIC_HOME) for url in asked)
    assert len(fashion_mnist("test", full=True)) == 2
    assert len(asked) == 4
    assert sorted(f.name for f in (tmp_path / "cache/composer/fashion-mnist").iterdir()) == sorted(
        NAMES
    )


def test_full_from_a_downloaded_package(
    tiny_full: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    ran: list[str] = []

    def run(command: list[str], *, cwd: str, **_: Any) -> Any:
        ran.append(command[0])
        if command[0] == "apt-get":
            (Path(cwd) / f"{fashion.DEBIAN_PACKAGE}_1_all.deb").touch()
        else:
            put(Path(cwd) / "unpacked" / fashion.DEBIAN_FOLDER.relative_to("/"), tiny_full)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert len(fashion_mnist(full=True)) == 6
    assert ran == ["apt-get", "dpkg"]


def test_a_wrong_download_is_not_kept(
    tiny_full: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: Response(b"<html>"))
    with pytest.raises(FileNotFoundError, match="expected"):
        fashion_mnist(full=True)
    assert not list(tmp_path.rglob("*.gz"))


@pytest.mark.parametrize("download", [True, False])
def test_the_error_names_all_three_ways(tiny_full: dict[str, bytes], download: bool) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        fashion_mnist(full=True, download=download)
    text = str(caught.value)
    assert "folder=" in text
    assert "apt-get install dataset-fashion-mnist" in text
    assert fashion.PUBLIC_HOME in text
    assert ("no route" in text) is download
    assert ("download=False" in text) is not download


# ---- the tool --------------------------------------------------------------------------------


def test_the_tool_cuts_stratified_and_reproducibly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(__file__).parents[3] / "tools" / "cut_fashion_mnist.py"
    spec = importlib.util.spec_from_file_location("cut_fashion_mnist", path)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)

    monkeypatch.setattr(tool, "PER_CLASS", {"train": 3, "t10k": 2})
    labels = np.tile(np.arange(10, dtype=np.uint8), 5)
    chosen = tool.choose(labels, "train")
    assert np.bincount(labels[chosen]).tolist() == [3] * 10
    assert chosen.tolist() == sorted(chosen.tolist()) == tool.choose(labels, "train").tolist()

    images = np.arange(50 * 4, dtype=np.uint8).reshape(50, 2, 2)
    assert tool.write_idx(images) == tool.write_idx(images.copy())
    assert np.array_equal(tool.read_idx(tool.write_idx(images)), images)
    with pytest.raises(ValueError, match="idx"):
        tool.read_idx(gzip.compress(b"abcdefgh"))
    for name in tool.OFFICIAL_MD5:
        (tmp_path / name).write_bytes(b"other")
    with pytest.raises(ValueError, match="MD5"):
        tool.cut(tmp_path)
