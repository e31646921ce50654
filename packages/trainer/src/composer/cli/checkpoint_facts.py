"""What is in a checkpoint, as plain facts that can be printed or turned into JSON."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from composer.checkpoint.compat import (
    REPORT,
    LoadReport,
    from_reference,
    is_from_reference,
    load_harmless,
)
from composer.checkpoint.layout import FORMAT, METADATA, RNG, STATE
from composer.checkpoint.structure import check_structure
from composer.models.export.weights import tied_names

__all__ = ["counters", "describe", "facts_of", "megabytes"]


def megabytes(size: int | None) -> str:
    """Write a size for people.

    Args:
        size: Bytes, or ``None``.

    Returns:
        The size with its unit.

    Example:
        >>> megabytes(999), megabytes(1_234_567), megabytes(None)
        ('999 B', '1.23 MB', '-')
    """
    if size is None:
        return "-"
    number = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}" if unit != "B" else f"{size} B"
        number /= 1000
    return f"{number:,.3g} TB"


def counters(path: str | Path) -> Mapping[str, Any]:
    """Read the run's clock from a file without reading its tensors or comparing checksums.

    Args:
        path: A checkpoint.

    Returns:
        The fields of the timestamp; none if the file is compressed, or holds the weights only.

    Raises:
        ValueError: If it is no file of torch, or was cut short.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save({"format": 1, "state": {"timestamp": {"batch": 3}}}, path)
        >>> counters(path)
        {'batch': 3}
    """
    if Path(path).suffix not in (".pt", ".pth", ".ckpt"):
        return {}
    try:
        contents = load_harmless(path)
        if is_from_reference(contents):
            contents, _ = from_reference(contents)
        check_structure(contents, Path(path).name)
        return contents[STATE].get("timestamp") or {}
    except Exception as error:  # a damaged file can fail anywhere in pickle or torch
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"it cannot be read: {reason}") from error


def _size(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(_size(item) for item in value.values())
    return sum(_size(item) for item in value) if isinstance(value, (list, tuple)) else 0


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist() if value.numel() <= 8 else f"tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def facts_of(contents: Mapping[str, Any]) -> dict[str, Any]:
    """Gather what is in a checkpoint.

    Args:
        contents: What ``composer.checkpoint.read_checkpoint`` returned.

    Returns:
        Plain types.

    Example:
        >>> facts = facts_of({"format": 1, "state": {"model": {"w": torch.ones(2, 3)}}})
        >>> facts["kind"], facts["parameters"], facts["tensors"][0]["shape"]
        ('weights only', 6, [2, 3])
    """
    state, metadata = contents[STATE], dict(contents.get(METADATA) or {})
    model = state.get("model") or {}
    tied = tied_names(model)
    tensors = [
        {
            "name": name,
            "shape": list(value.shape),
            "dtype": str(value.dtype).removeprefix("torch."),
            "bytes": _size(value),
            **({"same_as": tied[name]} if name in tied else {}),
        }
        for name, value in model.items()
        if isinstance(value, torch.Tensor)
    ]
    own = [entry for entry in tensors if "same_as" not in entry]
    report = contents.get(REPORT)
    version = metadata.pop("composer_version", None)
    facts: dict[str, Any] = {
        "kind": "full" if "timestamp" in state else "weights only",
        "written_by": report.source
        if isinstance(report, LoadReport)
        else f"composer {version or '?'}",
        "format": None if isinstance(report, LoadReport) else contents.get(FORMAT),
        "run_name": state.get("run_name"),
        "seed": state.get("rank_zero_seed"),
        "timestamp": _plain(state.get("timestamp") or {}),
        "metadata": _plain(metadata),
        "algorithms": [
            {
                "type": entry["type"],
                "arguments": _plain(entry.get("arguments")),
                "required": bool(entry.get("required")),
                "bytes": _size(entry.get("state")),
            }
            for entry in state.get("algorithms") or []
        ],
        "optimizers": [_optimizer(entry) for entry in state.get("optimizers") or []],
        "schedulers": [entry["type"] for entry in state.get("schedulers") or []],
        "callbacks": [entry["type"] for entry in state.get("callbacks") or []],
        "random_states": len(contents.get(RNG) or []),
        "parameters": sum(torch.Size(entry["shape"]).numel() for entry in own),
        "model_bytes": sum(entry["bytes"] for entry in own),
        "tensors": tensors,
        "no_tensors": [n for n, value in model.items() if not isinstance(value, torch.Tensor)],
    }
    if isinstance(report, LoadReport):
        facts["conversion"] = {
            "restored": list(report.restored.values()),
            "not_restored": report.not_restored,
            "notes": report.notes,
        }
    return facts


def _optimizer(entry: Mapping[str, Any]) -> dict[str, Any]:
    saved = entry["state"]
    groups = [
        {
            "parameters": len(group["params"]),
            **{key: _plain(value) for key, value in group.items() if key != "params"},
        }
        for group in saved["param_groups"]
    ]
    return {
        "type": entry["type"],
        "parameters": len(saved["state"]),
        "bytes": _size(saved["state"]),
        "groups": groups,
    }


def _arguments(entry: Mapping[str, Any]) -> str:
    arguments = entry["arguments"]
    if arguments is None:
        return f"{entry['type']} (arguments not stored)"
    return f"{entry['type']}({', '.join(f'{key}={v!r}' for key, v in arguments.items())})"


def describe(facts: Mapping[str, Any]) -> list[str]:
    """Write the facts for people.

    Args:
        facts: What :func:`facts_of` returned.

    Returns:
        Lines of text.

    Example:
        >>> facts = facts_of({"format": 1, "state": {"model": {"w": torch.ones(2, 3)}}})
        >>> print(chr(10).join(describe(facts)))
        kind        weights only, written by composer ?
        model       1 tensor, 6 values, 24 B
        <BLANKLINE>
        tensor  shape  dtype      MB
        w       2 x 3  float32  0.00
    """
    rows = [("kind", f"{facts['kind']}, written by {facts['written_by']}")]
    if facts["run_name"]:
        rows.append(("run", f"{facts['run_name']}, seed {facts['seed']}"))
    if t := facts["timestamp"]:
        spent = datetime.timedelta(seconds=round(t.get("total_wct") or 0))
        rows.append(
            (
                "time",
                ", ".join(
                    [
                        f"epoch {t.get('epoch')}",
                        f"batch {t.get('batch')} ({t.get('batch_in_epoch')} in the epoch)",
                        f"sample {t.get('sample')}",
                        f"token {t.get('token')}",
                        f"{spent} of training",
                    ]
                ),
            )
        )
    for key, value in facts["metadata"].items():
        if value is not None:
            rows.append((key.replace("_", " "), str(value)))
    for entry in facts["algorithms"]:
        required = "; required" if entry["required"] else ""
        size = f"; state of {megabytes(entry['bytes'])}" if entry["bytes"] else ""
        rows.append(("algorithm", _arguments(entry) + required + size))
    for entry in facts["optimizers"]:
        count, size = _number(entry["parameters"], "parameter"), megabytes(entry["bytes"])
        rows.append(("optimizer", f"{entry['type']}, state of {count}, {size}"))
        for group in entry["groups"]:
            options = {k: v for k, v in group.items() if k != "parameters" and v is not None}
            words = ", ".join(f"{key}={value}" for key, value in options.items())
            rows.append(("  group", f"{_number(group['parameters'], 'parameter')}: {words}"))
    for key in ("schedulers", "callbacks"):
        if facts[key]:
            rows.append((key, ", ".join(facts[key])))
    if facts["random_states"]:
        rows.append(("random", f"states of {_number(facts['random_states'], 'rank')}"))
    count, size = _number(len(facts["tensors"]), "tensor"), megabytes(facts["model_bytes"])
    rows.append(("model", f"{count}, {facts['parameters']:,} values, {size}"))
    width = max(11, *(len(key) for key, _ in rows))
    lines = [f"{key:<{width}} {value}" for key, value in rows]
    if conversion := facts.get("conversion"):
        for title, items in conversion.items():
            if items:
                lines += ["", f"{title.replace('_', ' ')}:", *(f"  {item}" for item in items)]
    return [*lines, "", *_table(facts)]


def _table(facts: Mapping[str, Any]) -> list[str]:
    rows = [("tensor", "shape", "dtype", "MB", "")]
    for entry in facts["tensors"]:
        same = f"same as {entry['same_as']}" if "same_as" in entry else ""
        shape = " x ".join(map(str, entry["shape"])) or "-"
        size = f"{entry['bytes'] / 1e6:.2f}"
        rows.append((entry["name"], shape, entry["dtype"], size, same))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = []
    for name, shape, dtype, size, same in rows:
        line = (
            f"{name:<{widths[0]}}  {shape:<{widths[1]}}  {dtype:<{widths[2]}}  {size:>{widths[3]}}"
        )
        lines.append(f"{line}  {same}".rstrip())
    return lines


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
