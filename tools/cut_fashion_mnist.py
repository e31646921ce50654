"""Cut the part of Fashion-MNIST that the recipes package ships.

A default run must need no network, and a wheel must stay small: 12,000 training and 2,000 test
images (1,200 and 200 of each class) are about 6 MB. Which images are taken must not depend on any
library's random generator, so they are those whose SHA-256 of ``seed/split/index`` is smallest
within their class; they keep their official order.

Input: the four official ``idx`` files, as Debian's ``dataset-fashion-mnist`` holds them::

    apt-get download dataset-fashion-mnist
    dpkg -x dataset-fashion-mnist_*.deb unpacked
    python tools/cut_fashion_mnist.py unpacked/usr/share/datasets/fashion-mnist

With ``--check`` nothing is written: the cut is made anew and compared with the files in the tree.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import struct
import sys
from pathlib import Path

import numpy as np

SEED = "composer-fashion-mnist-1"
PER_CLASS = {"train": 1200, "t10k": 200}
OFFICIAL_MD5 = {
    "train-images-idx3-ubyte.gz": "cf8536b0aa1a6ac5fa3f23001093305c",
    "train-labels-idx1-ubyte.gz": "10bea18fdb374794d4bb42e356e600c9",
    "t10k-images-idx3-ubyte.gz": "f78720b4224f21cce2f2ccf2d7a94c9a",
    "t10k-labels-idx1-ubyte.gz": "0d30e22e447f3c33dab9ed536400ac01",
}
TARGET = (
    Path(__file__).resolve().parent.parent
    / "packages/recipes/src/composer/datasets/data/fashion_mnist"
)


def read_idx(blob: bytes) -> np.ndarray:
    """Decode a gzip-compressed idx file of unsigned bytes.

    Args:
        blob: The compressed file.

    Returns:
        The array, in the shape that the header gives.

    Raises:
        ValueError: If the header is not one of unsigned bytes.
    """
    raw = gzip.decompress(blob)
    zero, kind, dims = struct.unpack(">HBB", raw[:4])
    if zero != 0 or kind != 8:
        raise ValueError(f"not an idx file of unsigned bytes: header {raw[:4]!r}")
    shape = struct.unpack(f">{dims}I", raw[4 : 4 + 4 * dims])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


def write_idx(array: np.ndarray) -> bytes:
    """Encode an array of unsigned bytes as a gzip-compressed idx file.

    Args:
        array: The values.

    Returns:
        The compressed file, with no time stamp in it, so that equal arrays give equal files.
    """
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    stream = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=9, mtime=0) as file:
        file.write(head + np.ascontiguousarray(array).tobytes())
    return stream.getvalue()


def choose(labels: np.ndarray, split: str) -> np.ndarray:
    """Pick equally many indices of every class.

    Args:
        labels: The official labels of the split.
        split: ``"train"`` or ``"t10k"``.

    Returns:
        The chosen indices, ascending.
    """

    def rank(index: int) -> bytes:
        return hashlib.sha256(f"{SEED}/{split}/{index}".encode()).digest()

    chosen: list[int] = []
    for label in range(10):
        members = np.flatnonzero(labels == label).tolist()
        chosen += sorted(members, key=rank)[: PER_CLASS[split]]
    return np.array(sorted(chosen))


def cut(source: Path) -> dict[str, np.ndarray]:
    """Read the official files and cut them.

    Args:
        source: The folder with the four official files.

    Returns:
        The arrays to ship, by file name.

    Raises:
        ValueError: If a file's MD5 is not the official one.
    """
    blobs = {name: (source / name).read_bytes() for name in OFFICIAL_MD5}
    for name, blob in blobs.items():
        found = hashlib.md5(blob, usedforsecurity=False).hexdigest()
        if found != OFFICIAL_MD5[name]:
            raise ValueError(f"{source / name}: MD5 {found}, expected {OFFICIAL_MD5[name]}")
    arrays = {name: read_idx(blob) for name, blob in blobs.items()}
    result = {}
    for split in PER_CLASS:
        images, labels = f"{split}-images-idx3-ubyte.gz", f"{split}-labels-idx1-ubyte.gz"
        chosen = choose(arrays[labels], split)
        result[images], result[labels] = arrays[images][chosen], arrays[labels][chosen]
    return result


def main() -> int:
    """Cut, or with ``--check`` compare, and report.

    Returns:
        The exit status: 0, or 1 if ``--check`` found a difference.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="folder with the four official idx .gz files")
    parser.add_argument("--target", type=Path, default=TARGET, help="where the cut goes")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()

    arrays = cut(args.source)
    if args.check:
        different = [
            name
            for name, array in arrays.items()
            if not np.array_equal(read_idx((args.target / name).read_bytes()), array)
        ]
        print("different: " + ", ".join(different) if different else "the cut is the shipped one")
        return 1 if different else 0

    args.target.mkdir(parents=True, exist_ok=True)
    sums = []
    for name, array in sorted(arrays.items()):
        blob = write_idx(array)
        (args.target / name).write_bytes(blob)
        sums.append(f"{hashlib.sha256(blob).hexdigest()}  {name}\n")
        print(f"{name}: {array.shape}, {len(blob):,} bytes")
    (args.target / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
