"""A checkpoint as a folder that the loaders of transformers and peft read, without a device.

Weights are read from the mapped checkpoint and written one by one, so a model need not fit into
memory; only merging adapters builds the model. The folder appears whole or not at all.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from composer.models.huggingface._arguments import check_flags
from composer.models.huggingface._doors import import_peft
from composer.models.huggingface.adapters import (
    adapter_keys,
    check_restorable,
    embedding_keys,
    filter_state_dict_peft,
    quiet_peft,
)
from composer.models.huggingface.from_checkpoint import read_contents
from composer.models.huggingface.metadata import (
    ModelFacts,
    huggingface_part,
    load_adapter_config,
    load_config,
)
from composer.models.huggingface.rebuild import (
    build_model,
    fill,
    find_class,
    holds_base,
    load_trained,
    stored_weights,
    with_adapters,
)
from composer.models.huggingface.safetensors_file import TensorShape, write_safetensors
from composer.models.huggingface.ties import part_shared, tied_weights
from composer.models.huggingface.tokenizer import write_tokenizer_files
from composer.utils.dtypes import STR_TO_DTYPE
from composer.utils.paths import local_path

__all__ = [
    "Exported",
    "export_contents",
    "parse_size",
    "write_huggingface_pretrained_from_composer_checkpoint",
]

_ADAPTER_WAYS = ("alone", "merged")
_FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass
class Exported:
    """What was written.

    Attributes:
        files: Names in the folder.
        num_tensors: How many weights.
        tied: Names that were left out to the name that stands for them.

    Example:
        >>> Exported(["model.safetensors"], 2).tied
        {}
    """

    files: list[str] = field(default_factory=list)
    num_tensors: int = 0
    tied: dict[str, str] = field(default_factory=dict)


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
    check_flags(trust_remote_code=trust_remote_code)
    target = local_path(output_folder, "output_folder")
    facts = ModelFacts(huggingface_part(contents, shown))
    if adapter is not None and adapter not in _ADAPTER_WAYS:
        raise ValueError(f"adapter={adapter!r} must be one of {', '.join(_ADAPTER_WAYS)}")
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
            done = _write_adapter(
                part, facts, weights, number_format,
                shown=shown, trust_remote_code=trust_remote_code,
            )  # fmt: skip
        else:
            done = _write_model(
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
    names = {str(kind).removeprefix("torch."): kind for kind in _FLOATING} | STR_TO_DTYPE
    found = names.get(dtype) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or found not in _FLOATING:
        raise ValueError(f"dtype={dtype!r} must be one of {', '.join(names)}")
    return found


# ---- a model ----------------------------------------------------------------------------------


def _write_model(
    folder: Path, contents: Mapping[str, Any], facts: ModelFacts, weights: dict[str, Any],
    dtype: torch.dtype | None, largest: int, *, shown: str, base_model: Any,
    trust_remote_code: bool,
) -> Exported:  # fmt: skip
    config = facts.config
    if facts.adapters:
        merged = _merged(
            contents, facts, shown=shown, base_model=base_model, trust_remote_code=trust_remote_code
        )
        name, weights = type(merged).__name__, dict(merged.state_dict())
        config = {**config, **json.loads(merged.config.to_json_string())}
        tied, untied = _ties(weights, lambda tied: _twin(merged, tied), shown)
    else:
        name = facts.class_name

        def build(tied: bool) -> Any | None:
            return _skeleton(facts, trust_remote_code, tied=tied)

        tied, untied = _ties(weights, build, shown)
    if untied:
        config["tie_word_embeddings"] = False
    kept = {name: tensor for name, tensor in weights.items() if name not in tied}
    shapes = {name: _shape(tensor, dtype) for name, tensor in kept.items()}
    files = _write_shards(folder, "model", shapes, kept, largest)
    _write_json(folder / "config.json", _told(config, name, shapes.values()))
    files.append("config.json")
    if facts.generation is not None:
        _write_json(folder / "generation_config.json", facts.generation)
        files.append("generation_config.json")
    return Exported(files, len(kept), tied)


def _merged(
    contents: Mapping[str, Any], facts: ModelFacts, *, shown: str, base_model: Any,
    trust_remote_code: bool,
) -> Any:  # fmt: skip
    """The plain model with its adapter in its weights."""
    with warnings.catch_warnings():
        # Said of adapters on tied weights, which are taken apart before they are merged.
        warnings.filterwarnings("ignore", ".*`?tie_word_embeddings=True`?", UserWarning)
        model = load_trained(
            contents, shown=shown, base_model=base_model, trust_remote_code=trust_remote_code
        )
        if model.active_peft_config.is_prompt_learning or not hasattr(model, "merge_and_unload"):
            raise ValueError(
                f"an adapter of the kind {model.active_peft_config.peft_type.value} cannot be "
                f"worked into the weights of its model; export it alone"
            )
        # An adapter on one of two tied weights changes that one alone.
        part_shared(model)
        config = model.get_base_model().config
        says_tied = getattr(config, "tie_word_embeddings", False)
        if says_tied:  # else peft warns that they are not, though they may be equal afterwards
            config.tie_word_embeddings = False
        with quiet_peft():
            merged = model.merge_and_unload(safe_merge=True, adapter_names=[facts.adapter_name])
    if says_tied:
        merged.config.tie_word_embeddings = True
    return merged


def _twin(model: Any, tied: bool) -> Any:
    """A new model like one, without numbers."""
    config = copy.deepcopy(model.config)
    if not tied:
        config.tie_word_embeddings = False
    with torch.device("meta"):
        return type(model)(config)


def _skeleton(
    facts: ModelFacts, trust_remote_code: bool, *, device: str = "meta", tied: bool = True
) -> Any | None:
    """The model without numbers, which says what is tied; none for a class that is not known."""
    try:
        cls = find_class(facts, None, trust_remote_code=trust_remote_code)
    except ValueError:
        return None
    content = facts.config if tied else {**facts.config, "tie_word_embeddings": False}
    config = load_config(content, trust_remote_code=trust_remote_code)
    with torch.device(device):
        return build_model(cls, config, trust_remote_code=trust_remote_code)


def _ties(
    weights: Mapping[str, Any], build: Callable[[bool], Any | None], shown: str
) -> tuple[dict[str, str], bool]:
    """What is tied, and whether the configuration has to say that nothing is.

    The model without numbers takes the weights too, so that a missing or misshapen one is noticed.
    """
    model = build(True)
    tied = tied_weights(model, weights)
    untied = tied is None
    if tied is None:
        model = build(False)
        tied = tied_weights(model, weights)
        if tied is None:
            raise ValueError(
                f"weights of {shown} that its model ties differ, and its configuration has no "
                f"`tie_word_embeddings` that would untie them, so no folder can hold them; take "
                f"the model with HuggingFaceModel.hf_from_composer_checkpoint"
            )
    if model is not None:
        fill(model, weights, shown, assign=True)
    return tied, untied


def _shape(tensor: torch.Tensor, dtype: torch.dtype | None) -> TensorShape:
    converted = dtype is not None and tensor.is_floating_point()
    return (dtype if converted and dtype is not None else tensor.dtype, tuple(tensor.shape))


def _write_shards(
    folder: Path, stem: str, shapes: Mapping[str, TensorShape], weights: Mapping[str, Any],
    largest: int,
) -> list[str]:  # fmt: skip
    sizes = {name: torch.Size(shape).numel() * dtype.itemsize for name, (dtype, shape) in
             shapes.items()}  # fmt: skip
    shards: list[list[str]] = [[]]
    room = largest
    for name, size in sizes.items():
        if size > room and shards[-1]:
            shards.append([])
            room = largest
        shards[-1].append(name)
        room -= size

    def read(name: str) -> torch.Tensor:
        return weights[name].to(shapes[name][0])

    count = len(shards)
    place: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        numbered = f"{stem}-{number:05d}-of-{count:05d}" if count > 1 else stem
        file = f"{numbered}.safetensors"
        write_safetensors(folder / file, {name: shapes[name] for name in names}, read)
        place.update(dict.fromkeys(names, file))
    files = sorted(set(place.values()))
    if count > 1:
        index = f"{stem}.safetensors.index.json"
        total = {"total_size": sum(sizes.values())}
        _write_json(folder / index, {"metadata": total, "weight_map": dict(sorted(place.items()))})
        files.append(index)
    return files


def _told(
    config: Mapping[str, Any], class_name: str, shapes: Iterable[TensorShape]
) -> dict[str, Any]:
    """The configuration with what the loaders go by: the class, and the type of the weights."""
    told = dict(config)
    told.pop("_name_or_path", None)
    if class_name:
        told["architectures"] = [class_name]
    floating = next((dtype for dtype, _ in shapes if dtype.is_floating_point), None)
    if floating is not None:
        # Releases of transformers before 4.56 know it by the older name.
        key = "torch_dtype" if "torch_dtype" in told else "dtype"
        told[key] = str(floating).removeprefix("torch.")
    return told


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


# ---- an adapter -------------------------------------------------------------------------------


def _write_adapter(
    folder: Path, facts: ModelFacts, weights: Mapping[str, Any], dtype: torch.dtype | None,
    *, shown: str, trust_remote_code: bool,
) -> Exported:  # fmt: skip
    assert facts.adapter is not None
    saved = _as_peft_saves(facts, weights, shown, trust_remote_code)
    shapes = {name: _shape(tensor, dtype) for name, tensor in saved.items()}
    write_safetensors(
        folder / "adapter_model.safetensors",
        shapes,
        lambda name: saved[name].to(shapes[name][0]),
    )
    _write_json(folder / "adapter_config.json", {**facts.adapter, "inference_mode": True})
    _write_json(folder / "config.json", _told(facts.config, facts.class_name, ()))
    return Exported(["adapter_model.safetensors", "adapter_config.json", "config.json"], len(saved))


def _as_peft_saves(
    facts: ModelFacts, weights: Mapping[str, Any], shown: str, trust_remote_code: bool
) -> dict[str, torch.Tensor]:
    """The adapter's weights under the names of peft's files; embeddings if they were kept too."""
    config = load_adapter_config(facts.adapter or {})
    check_restorable({facts.adapter_name: config}, alone=True)
    # What peft saves of a prompt it computes from the prompt's weights, and the mask of a sparse
    # adapter from the sizes; both take numbers.
    counted = config.is_prompt_learning or config.peft_type == "SHIRA"
    device = "cpu" if counted else "meta"
    base = _skeleton(facts, trust_remote_code, device=device)
    if base is None:
        return filter_state_dict_peft(dict(weights), config, facts.adapter_name)
    with torch.device(device):
        model = with_adapters(base, facts)
    alone = not holds_base(weights)
    # Beside adapters alone, embeddings are kept only if they have rows that the base lacks.
    rows = set(embedding_keys(model)) - set(adapter_keys(model))
    with_rows = alone and not rows.isdisjoint(weights)
    fill(model, weights, shown, alone=alone, assign=True)
    own = dict(model.state_dict())
    peft = import_peft()
    with quiet_peft():
        saved = peft.get_peft_model_state_dict(
            model, state_dict=dict(own), adapter_name=facts.adapter_name,
            save_embedding_layers=with_rows,
        )  # fmt: skip
    return {name: tensor for name, tensor in saved.items() if not tensor.is_meta}
