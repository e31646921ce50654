"""Fashion-MNIST: a part that ships with the package, and the ways to the full set.

The part is small and read in a fraction of a second, so that examples, tests and the default recipe
run on real data without a network. Images stay unsigned bytes in memory and become normalised
floats a batch at a time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import overload

import torch
from torch import Tensor
from torch.utils.data import Dataset

from composer.datasets.idx import read_idx
from composer.utils import dist
from composer.utils.paths import atomic_write
from composer.utils.suggestions import did_you_mean
from composer.utils.transfer import get_file

__all__ = ["FashionMNIST", "fashion_mnist"]

#: Where the authors publish the four files.
PUBLIC_HOME = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
#: The Debian package that holds them, and where it puts them.
DEBIAN_PACKAGE = "dataset-fashion-mnist"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")

_EMBEDDED = Path(__file__).parent / "data" / "fashion_mnist"
_PREFIX = {"train": "train", "test": "t10k"}
_MD5 = {
    "train-images-idx3-ubyte.gz": "cf8536b0aa1a6ac5fa3f23001093305c",
    "train-labels-idx1-ubyte.gz": "10bea18fdb374794d4bb42e356e600c9",
    "t10k-images-idx3-ubyte.gz": "f78720b4224f21cce2f2ccf2d7a94c9a",
    "t10k-labels-idx1-ubyte.gz": "0d30e22e447f3c33dab9ed536400ac01",
}
# Of the official training images, as bytes over 255.
_MEAN, _STD = 0.2860, 0.3530


class _Samples(Sequence[tuple[Tensor, Tensor]]):
    """Several samples that were made together.

    It reads as a list of samples, as a dataloader's collate function expects, and still holds the
    whole tensors for a collate function that knows better than to stack the pieces again.
    """

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]: ...
    @overload
    def __getitem__(self, index: slice) -> _Samples: ...
    def __getitem__(self, index: int | slice) -> tuple[Tensor, Tensor] | _Samples:
        if isinstance(index, slice):
            return _Samples(self.images[index], self.labels[index])
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self.images[index], self.labels[index]


class FashionMNIST(Dataset[tuple[Tensor, Tensor]]):
    """Images of clothes, 28x28 pixels, grey, in ten classes, as a map-style dataset.

    A sample is a pair of the image (float32, shape ``(1, 28, 28)``) and the label (int64).

    Args:
        images: The pixels, uint8, shape ``(N, 28, 28)``.
        labels: The classes, shape ``(N,)``.
        normalize: Whether pixels are shifted and scaled to mean 0 and variance 1 over the official
            training images, and not only to between 0 and 1.

    Raises:
        ValueError: If the shapes do not fit.

    Example:
        >>> data = FashionMNIST(torch.zeros(2, 28, 28, dtype=torch.uint8), torch.tensor([0, 9]))
        >>> image, label = data[1]
        >>> image.shape, label
        (torch.Size([1, 28, 28]), tensor(9))
    """

    #: The names of the classes, by label.
    classes: tuple[str, ...] = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )

    def __init__(self, images: Tensor, labels: Tensor, *, normalize: bool = True) -> None:
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise ValueError(
                "images must have shape (N, H, W) and labels (N,), got "
                f"{tuple(images.shape)} and {tuple(labels.shape)}"
            )
        self.images = images
        self.labels = labels.to(torch.int64)
        self.normalize = normalize

    def __len__(self) -> int:
        return len(self.labels)

    def _pixels(self, images: Tensor) -> Tensor:
        pixels = images.to(torch.float32)
        if self.normalize:
            return pixels.mul_(1 / (255 * _STD)).sub_(_MEAN / _STD)
        return pixels.mul_(1 / 255)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._pixels(self.images[index]).unsqueeze(0), self.labels[index]

    @staticmethod
    def collate(samples: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Make a batch, without taking apart and stacking what was made in one piece.

        Args:
            samples: Pairs of image and label.

        Returns:
            Images of shape ``(B, 1, H, W)`` and labels of shape ``(B,)``.

        Example:
            >>> pair = (torch.zeros(1, 28, 28), torch.tensor(3))
            >>> FashionMNIST.collate([pair, pair])[1]
            tensor([3, 3])
        """
        if isinstance(samples, _Samples):
            return samples.images, samples.labels
        images, labels = zip(*samples, strict=True)
        return torch.stack(images), torch.stack(labels)

    def __getitems__(self, indices: list[int]) -> Sequence[tuple[Tensor, Tensor]]:
        chosen = torch.as_tensor(indices)
        return _Samples(self._pixels(self.images[chosen]).unsqueeze(1), self.labels[chosen])


def _embedded(folder: Path = _EMBEDDED) -> dict[str, tuple[Path, str, str]]:
    sums = (folder / "SHA256SUMS").read_text(encoding="utf-8").split()
    return {
        name: (folder / name, "sha256", digest)
        for digest, name in zip(sums[::2], sums[1::2], strict=True)
    }


def _official(folder: Path) -> dict[str, tuple[Path, str, str]]:
    return {name: (folder / name, "md5", digest) for name, digest in _MD5.items()}


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _MD5)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "composer" / "fashion-mnist"


def _unpack_debian_package(target: Path) -> None:
    """Fetch the Debian package and take the files out of it; no root is needed."""
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise RuntimeError(f"there is no {program} here")
    with tempfile.TemporaryDirectory() as scratch:
        for command in (
            ["apt-get", "download", DEBIAN_PACKAGE],
            ["dpkg", "-x", f"{DEBIAN_PACKAGE}.deb", "unpacked"],
        ):
            if command[0] == "dpkg":
                package = next(Path(scratch).glob("*.deb"))
                package.rename(Path(scratch) / f"{DEBIAN_PACKAGE}.deb")
            done = subprocess.run(
                command, cwd=scratch, capture_output=True, text=True, timeout=600, check=False
            )
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise RuntimeError(f"`{' '.join(command)}` failed: {last}")
        unpacked = Path(scratch) / "unpacked" / DEBIAN_FOLDER.relative_to("/")
        for name in _MD5:
            _put(target / name, unpacked / name)


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for name in _MD5:
            get_file(PUBLIC_HOME + name, f"{scratch}/{name}")
            _put(target / name, Path(scratch) / name)


def _put(path: Path, source: Path) -> None:
    """Keep a file if it is the right one."""
    blob = source.read_bytes()
    found = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    if found != _MD5[path.name]:
        raise ValueError(f"{path.name} has md5 {found}, expected {_MD5[path.name]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(blob)


def _find_full(folder: str | Path | None, download: bool) -> Path:
    if folder is not None:
        missing = [name for name in _MD5 if not (Path(folder) / name).is_file()]
        if missing:
            raise FileNotFoundError(
                f"folder={str(folder)!r} lacks {', '.join(missing)}; it must hold the four files "
                "of the official distribution, still compressed"
            )
        return Path(folder)
    cache = _cache_folder()
    for known in (DEBIAN_FOLDER, cache):
        if _is_complete(known):
            return known
    ways: list[tuple[str, Callable[[Path], None]]] = [
        (f"the Debian package {DEBIAN_PACKAGE}", _unpack_debian_package),
        (PUBLIC_HOME, _fetch),
    ]
    failures = []
    if not download:
        failures.append("download=False was given")
    else:
        for source, get in ways:
            try:
                get(cache)
                return cache
            except (OSError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
                failures.append(f"{source}: {error}")
    raise FileNotFoundError(
        "the full Fashion-MNIST is not here. Three ways to it: (1) give folder= with the four "
        f"official .gz files; (2) install the Debian package (`apt-get install {DEBIAN_PACKAGE}`), "
        f"or let it be downloaded and unpacked into {cache}; (3) let it be fetched over the "
        f"network from {PUBLIC_HOME}. Tried: {'; '.join(failures)}"
    )


def fashion_mnist(
    split: str = "train",
    *,
    full: bool = False,
    folder: str | Path | None = None,
    download: bool = True,
    normalize: bool = True,
) -> FashionMNIST:
    """Read Fashion-MNIST.

    The default is the part that ships with the package: 12,000 training and 2,000 test images,
    equally many of each class. The full set (60,000 and 10,000) is taken from ``folder``, else from
    where its Debian package puts it, else from a cache, into which it is first brought through
    ``apt-get download`` (no root needed) or over the network. Hashes are checked either way.

    Args:
        split: ``"train"`` or ``"test"``.
        full: Whether to read the full set.
        folder: Where the four official files lie; implies ``full``.
        download: Whether the full set may be fetched.
        normalize: Whether pixels get mean 0 and variance 1.

    Returns:
        The dataset.

    Raises:
        ValueError: If the split is unknown, or a file is not the one it should be.
        FileNotFoundError: If the full set cannot be had; the message names all ways to it.

    Example:
        >>> data = fashion_mnist("test")
        >>> len(data), data.classes[int(data[0][1])]
        (2000, 'Coat')
    """
    if split not in _PREFIX:
        raise ValueError(f"split must be 'train' or 'test', got {split!r}.{_hint(split)}")
    if full or folder is not None:
        with dist.run_local_rank_zero_first():
            files = _official(_find_full(folder, download))
    else:
        files = _embedded()
    images, labels = (
        read_idx(path, algorithm=algorithm, expected=expected)
        for path, algorithm, expected in (
            files[f"{_PREFIX[split]}-images-idx3-ubyte.gz"],
            files[f"{_PREFIX[split]}-labels-idx1-ubyte.gz"],
        )
    )
    return FashionMNIST(images, labels, normalize=normalize)


def _hint(split: object) -> str:
    return did_you_mean(str(split), _PREFIX)
