"""The files of a tokenizer, into a checkpoint and out of it.

Texts are kept as they were written, byte for byte. What comes out of a checkpoint is written into
its folder and nowhere else, and no Python is among it unless its user trusts it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from composer.models.huggingface._doors import import_transformers

__all__ = ["load_tokenizer", "tokenizer_files", "write_tokenizer_files"]


# What a folder of a model holds beside its tokenizer; a tokenizer's file of such a name would
# replace it, and a loader would take it for the model's.
_NOT_OF_TOKENIZERS = (
    "config.json",
    "generation_config.json",
    "adapter_*",
    "*.safetensors*",
    "*.bin",
    "*.bin.index.json",
    "*.h5",
    "*.msgpack",
)
_PYTHON = (".py", ".pyc", ".pyo", ".pyd", ".pyw", ".so")


def tokenizer_files(tokenizer: Any) -> dict[str, Any]:
    """Gather the files that a tokenizer saves.

    Args:
        tokenizer: Anything with ``save_pretrained``.

    Returns:
        Name of the file to its ending and its content: a text, or bytes where it is none.

    Example:
        >>> class Words:
        ...     def save_pretrained(self, folder):
        ...         Path(folder, "vocab.txt").write_text("a b")
        >>> tokenizer_files(Words())
        {'vocab.txt': {'file_extension': '.txt', 'content': 'a b'}}
    """
    files: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save_pretrained(str(folder))
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            data = path.read_bytes()
            content: str | bytes = data
            if path.suffix != ".model":
                try:
                    content = data.decode()
                except UnicodeDecodeError:
                    content = data
            files[path.relative_to(folder).as_posix()] = {
                "file_extension": path.suffix,
                "content": content,
            }
    return files


def write_tokenizer_files(
    files: Mapping[str, Any], folder: str | Path, *, trust_remote_code: bool = False
) -> list[str]:
    """Write a tokenizer's files.

    Args:
        files: What :func:`tokenizer_files` returned, or what Composer 0.32 kept: lists of lines and
            parsed JSON, under names with or without their endings.
        folder: Where to, an existing folder.
        trust_remote_code: Whether files of Python are written, which transformers would run.

    Returns:
        The names of the files that were written.

    Raises:
        ValueError: If a name leads out of the folder, is that of a file of the model's or comes
            twice, or an entry is of another kind; nothing is written then.

    Example:
        >>> folder = tempfile.mkdtemp()
        >>> write_tokenizer_files({"a.txt": {"file_extension": ".txt", "content": ["x"]}}, folder)
        ['a.txt']
    """
    planned: dict[Path, bytes] = {}
    if not isinstance(files, Mapping):
        raise ValueError(
            f"the tokenizer in the checkpoint must be a mapping of names to files, not "
            f"{type(files).__name__}; the file is damaged"
        )
    for key, entry in files.items():
        if not isinstance(key, str):
            raise ValueError(
                f"the tokenizer in the checkpoint has a file named {key!r}, where a text belongs"
            )
        if not isinstance(entry, Mapping) or "content" not in entry:
            raise ValueError(f"the tokenizer's {key!r} in the checkpoint is no file with content")
        ending = str(entry.get("file_extension", ""))
        name = key if key.endswith(ending) else key + ending
        # Some systems leave out dots and spaces at the end of a name.
        if name.lower().rstrip(". ").endswith(_PYTHON) and not trust_remote_code:
            continue
        path = _inside(Path(folder), name)
        if path in planned:
            raise ValueError(f"the checkpoint names a tokenizer's file {name!r} twice")
        planned[path] = _as_bytes(name, entry["content"])
    for path in planned:
        for parent in path.parents:
            if parent in planned:
                raise ValueError(
                    f"the checkpoint names {parent.name!r} as a tokenizer's file and as the folder "
                    f"of another, {path.name!r}; nothing was written"
                )
    for path, data in planned.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return [path.relative_to(folder).as_posix() for path in planned]


def _inside(folder: Path, name: str) -> Path:
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    leads_out = posix.is_absolute() or windows.drive or windows.root or ".." in windows.parts
    if leads_out or not posix.name or "\0" in name:
        raise ValueError(
            f"the checkpoint names a tokenizer's file {name!r}, which leads out of the folder that "
            f"it belongs in; nothing was written"
        )
    plain = str(posix).lower().rstrip(". ")
    if any(fnmatchcase(plain, pattern) for pattern in _NOT_OF_TOKENIZERS):
        raise ValueError(
            f"the checkpoint names a tokenizer's file {name!r}, which is the name of a file of the "
            f"model's own; nothing was written"
        )
    return folder / posix


def _as_bytes(name: str, content: Any) -> bytes:
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    if name.endswith(".txt") and isinstance(content, list):
        return "\n".join(map(str, content)).encode()
    try:
        return json.dumps(content, indent=2, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the tokenizer's {name!r} in the checkpoint is no text and not made of plain types: "
            f"{error}"
        ) from None


def load_tokenizer(
    files: Mapping[str, Any],
    *,
    name_or_path: str = "",
    trust_remote_code: bool = False,
    folder: str | Path | None = None,
) -> Any:
    """Build a tokenizer from the files that a checkpoint keeps.

    Args:
        files: What :func:`tokenizer_files` returned.
        name_or_path: What it shall call itself.
        trust_remote_code: Whether code among the files is written and run.
        folder: Where the files are left; by default in a folder that is removed again.

    Returns:
        The tokenizer; ``None`` if there are no files.

    Raises:
        ValueError: If a file's name leads out of the folder, or transformers makes no tokenizer
            of the files.

    Example:
        >>> load_tokenizer({}) is None
        True
    """
    if not files:
        return None
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            return _tokenizer_of(files, Path(temporary), name_or_path, trust_remote_code)
    Path(folder).mkdir(parents=True, exist_ok=True)
    return _tokenizer_of(files, Path(folder), name_or_path, trust_remote_code)


def _tokenizer_of(files: Mapping[str, Any], folder: Path, name: str, trusted: bool) -> Any:
    transformers = import_transformers()
    write_tokenizer_files(files, folder, trust_remote_code=trusted)
    try:
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, trust_remote_code=trusted
            )
        except ValueError:
            # The class that a later transformers names for its plain tokenizers is not in an
            # earlier.
            if not (folder / "tokenizer.json").is_file():
                raise
            tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"transformers makes no tokenizer of the files in the checkpoint: "
            f"{type(error).__name__}: {error}"
        ) from error
    if name:
        tokenizer.name_or_path = name
    return tokenizer
