"""A checkpoint as a folder that the loaders of transformers and peft read, without a device.

Weights are read from the mapped checkpoint and written one by one, so a model need not fit into
memory; only merging adapters builds the model. The folder appears whole or not at all.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from composer.models.export.weights import DTYPES
from composer.models.huggingface.adapter_folder import write_adapter
from composer.models.huggingface.checkpoint_weights import stored_weights
from composer.models.huggingface.folder_files import Exported
from composer.models.huggingface.from_checkpoint import read_contents
from composer.models.huggingface.metadata import ModelFacts, huggingface_part
from composer.models.huggingface.model_folder import write_model
from composer.models.huggingface.tokenizer import write_tokenizer_files
from composer.utils.checks import check_bool, check_choice
from composer.utils.dtypes import STR_TO_DTYPE
from composer.utils.paths import local_path

__all__ = [
    "export_contents",
    "parse_size",
    "write_huggingface_pretrained_from_composer_checkpoint",
]

_ADAPTER_WAYS = ("alone", "merged")


def write_huggingface_pretrained_from_composer_checkpoint(
    checkpoint_path: str | Path,
    output_folder: str | Path,
    local_checkpoint_save_location: str | Path | None = None,
    *,
    adapter: str | None = None,
    dtype: str | torch.dtype | None = None,
    max_shard_size: int | str = "5GB",
    base_model: Any | None = None,
    trust_remote_code: bool = False,
) -> None:
    """Turn a checkpoint into a folder for ``from_pretrained``.

    Args:
        checkpoint_path: A checkpoint of this library or of Composer 0.32: path or URI.
        output_folder: The folder, which is made; one that exists has to be empty.
        local_checkpoint_save_location: Where a download is left; by default nowhere.
        adapter: Of a model with adapters: ``"alone"`` writes the adapter as peft does, ``"merged"``
            a plain model with the adapter worked into its weights. By default alone.
        dtype: Type that floating point weights are turned into; unchanged by default.
        max_shard_size: Bytes, or a text such as ``"500MB"``, that a file of weights may have.
        base_model: For merging adapters that were saved alone the model beneath: a model of
            transformers, a folder, or a name on the Hub; by default what the adapter names.
        trust_remote_code: Whether code that the checkpoint names may be run and the Python files
            of its tokenizer are written.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        FileExistsError: If something is in the folder.
        TypeError: If an argument is of another kind.
        ValueError: If the checkpoint holds no model of Hugging Face, or weights that do not fit
            its model, or an argument is not accepted.

    Example:
        >>> from composer.models import HuggingFaceModel
        >>> from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
        >>> tiny = GPT2Config(n_embd=4, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
        >>> model = HuggingFaceModel(GPT2LMHeadModel(tiny))
        >>> folder = Path(tempfile.mkdtemp())
        >>> state = {"model": model.state_dict(), "integrations": model.integrations()}
        >>> torch.save({"format": 1, "state": state}, folder / "a.pt")
        >>> write_huggingface_pretrained_from_composer_checkpoint(folder / "a.pt", folder / "out")
        >>> again = AutoModelForCausalLM.from_pretrained(folder / "out")
        >>> torch.equal(again.lm_head.weight, model.model.lm_head.weight)
        True
    """
    contents = read_contents(checkpoint_path, local_checkpoint_save_location)
    export_contents(
        contents,
        output_folder,
        shown=str(checkpoint_path),
        adapter=adapter,
        dtype=dtype,
        max_shard_size=max_shard_size,
        base_model=base_model,
        trust_remote_code=trust_remote_code,
    )


def export_contents(
    contents: Mapping[str, Any],
    output_folder: str | Path,
    *,
    shown: str = "the checkpoint",
    adapter: str | None = None,
    dtype: str | torch.dtype | None = None,
    max_shard_size: int | str = "5GB",
    base_model: Any | None = None,
    trust_remote_code: bool = False,
) -> Exported:
    """Write what a checkpoint's file holds into a folder; see
    :func:`write_huggingface_pretrained_from_composer_checkpoint`.

    Args:
        contents: What the file holds.
        output_folder: The folder.
        shown: The file, for errors.
        adapter: ``"alone"``, ``"merged"`` or ``None``.
        dtype: Type of floating point weights.
        max_shard_size: Size of a file of weights.
        base_model: The model beneath adapters.
        trust_remote_code: Whether code of the checkpoint's is trusted.

    Returns:
        What was written.

    Raises:
        FileExistsError: If something is in the folder.
        ValueError: If the checkpoint does not fit or an argument is not accepted.

    Example:
        >>> try:
        ...     export_contents({"state": {}}, tempfile.mkdtemp())
        ... except ValueError as error:
        ...     print("no model of Hugging Face" in str(error))
        True
    """
    check_bool("trust_remote_code", trust_remote_code)
    target = local_path(output_folder, "output_folder")
    facts = ModelFacts(huggingface_part(contents, shown))
    if adapter is not None:
        check_choice("adapter", adapter, _ADAPTER_WAYS)
    if adapter is not None and not facts.adapters:
        raise ValueError(f"adapter={adapter!r} was given, but the model in {shown} has no adapters")
    number_format = _parse_dtype(dtype)
    largest = parse_size(max_shard_size)
    for parent in target.parents:
        if parent.exists() and not parent.is_dir():
            raise NotADirectoryError(f"{parent} is a file, so {target} cannot be in it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is no empty folder; choose another")
    weights = stored_weights(contents, shown)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        if facts.adapters and adapter != "merged":
            done = write_adapter(
                part, facts, weights, number_format,
                shown=shown, trust_remote_code=trust_remote_code,
            )  # fmt: skip
        else:
            done = write_model(
                part, contents, facts, weights, number_format, largest,
                shown=shown, base_model=base_model, trust_remote_code=trust_remote_code,
            )  # fmt: skip
        written = write_tokenizer_files(facts.tokenizer, part, trust_remote_code=trust_remote_code)
        part.chmod(0o755)  # a temporary folder is its maker's alone
        if target.exists():
            target.rmdir()
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    done.files += written
    return done


def parse_size(size: int | str) -> int:
    """Read a number of bytes.

    Args:
        size: A number, or a text with one of B, KB, MB, GB, TB (thousands) or KiB, MiB, GiB.

    Returns:
        Bytes.

    Raises:
        ValueError: If it is no size of at least a byte.

    Example:
        >>> parse_size("5GB"), parse_size("1KiB"), parse_size(7)
        (5000000000, 1024, 7)
    """
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    units |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
    text = str(size) if isinstance(size, int | str) and not isinstance(size, bool) else ""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = found[2].upper() if found else ""
    value = int(float(found[1]) * units[unit]) if found and unit in units else 0
    if value < 1:
        raise ValueError(f"max_shard_size={size!r} must be a size such as '5GB', or bytes")
    return value


def _parse_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None:
        return None
    names = DTYPES | STR_TO_DTYPE
    found = names.get(dtype) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or found not in DTYPES.values():
        raise ValueError(f"dtype={dtype!r} must be one of {', '.join(names)}")
    return found
