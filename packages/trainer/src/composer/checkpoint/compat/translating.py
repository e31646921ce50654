"""Turns the layout of Composer 0.32 into that of this library.

Each patch is one function that names the releases it serves.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from composer.checkpoint.compat.reporting import REPORT, LoadReport, counted
from composer.checkpoint.layout import (
    FORMAT,
    FORMAT_VERSION,
    METADATA,
    RNG,
    STATE,
    CheckpointError,
)
from composer.core import plugins

__all__ = ["from_reference", "is_from_reference", "parse_repr"]

log = logging.getLogger(__name__)

_GROUP = "composer.algorithms"
_LONGEST_REPR = 10_000

_MARKS = ("metadata", "integrations", "timestamp", "rank_zero_seed", "run_name")


def is_from_reference(contents: Any) -> bool:
    """Say whether a file's contents have the layout of Composer 0.32.

    Args:
        contents: What the file holds.

    Returns:
        Whether it does.

    Example:
        >>> is_from_reference({"state": {"model": {}, "integrations": {}}})
        True
        >>> is_from_reference({"format": 1, "state": {}})
        False
    """
    if not isinstance(contents, dict) or FORMAT in contents:
        return False
    state = contents.get(STATE)
    if not isinstance(state, dict):
        return False
    names = {str(name).removeprefix("_") for name in state}
    return "model" in names and not names.isdisjoint(_MARKS)


def from_reference(contents: Mapping[str, Any]) -> tuple[dict[str, Any], LoadReport]:
    """Turn a checkpoint of Composer 0.32 into one of this library.

    Args:
        contents: What :func:`load_harmless` returned.

    Returns:
        The checkpoint, whose tensors are the given ones, and the report; the checkpoint holds the
        report too, for :func:`fit_to_run`.

    Raises:
        ValueError: If it has another layout.
        CheckpointError: If a part is of another kind; its key is named.

    Example:
        >>> old = {"state": {"model": {"weight": torch.ones(1)}, "rank_zero_seed": 3}}
        >>> new, report = from_reference(old)
        >>> new["format"], new["state"]["rank_zero_seed"], list(report.restored)
        (1, 3, ['model', 'rank_zero_seed'])
    """
    if not is_from_reference(contents):
        raise ValueError("these contents do not have the layout of Composer 0.32")
    stored = _without_underscores(contents[STATE])
    try:
        environment = (stored.get("metadata") or {}).get("composer_env_info") or {}
        version = environment.get("composer_version")
    except _OF_ANOTHER_KIND as error:
        raise CheckpointError(f"'{STATE}/metadata' is of another kind: {error!r}") from error
    report = LoadReport(f"Composer {version}" if version else "an old release of Composer")
    state: dict[str, Any] = {}
    for name, convert in _CONVERSIONS.items():
        # Releases that kept no place in the data counted it in batches all the same.
        here = "timestamp" if name == "dataset_state" else name
        if stored.get(here) is not None:
            try:
                convert(stored, state, report)
            except _OF_ANOTHER_KIND as error:
                raise CheckpointError(f"'{STATE}/{name}' is of another kind: {error!r}") from error
    for name in sorted(set(stored) - set(_CONVERSIONS) - _SILENT):
        report.not_restored.append(f"{name}: not known here")
    for patch in _PATCHES:
        patch(state, report)
    new: dict[str, Any] = {
        FORMAT: FORMAT_VERSION,
        STATE: state,
        METADATA: _metadata(stored, version),
        REPORT: report,
    }
    if contents.get(RNG):
        streams = _random_states(contents[RNG], report)
        if streams is not None:
            new[RNG] = streams
    return new, report


# What values of wrong kinds meet on their way.
_OF_ANOTHER_KIND = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_SILENT = {"metadata"}


def _model(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    weights = dict(stored["model"])
    state["model"] = weights
    report.restored["model"] = f"weights ({len(weights)} tensors)"


def _integrations(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    del report  # what a model is built from; a run has built its own
    state["integrations"] = dict(stored["integrations"])


def _optimizers(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    entries, words = [], []
    for name, saved in stored["optimizers"].items():
        groups = saved["param_groups"]
        if not all(isinstance(p, str) for group in groups for p in group["params"]):
            report.not_restored.append(
                f"optimizer {name}: its state is kept by position, as before parameters had names"
            )
            return
        entries.append(
            {
                "type": name,
                "state": {
                    "state": {key: dict(value) for key, value in saved["state"].items()},
                    "param_groups": [{**g, "params": list(g["params"])} for g in groups],
                },
            }
        )
        words.append(f"{name} ({len(saved['state'])} parameters, {counted(groups, 'group')})")
    state["optimizers"] = entries
    report.restored["optimizers"] = f"optimizer: {', '.join(words) or 'none'}"


def _schedulers(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    state["schedulers"] = [
        {"type": name, "state": dict(saved)} for name, saved in stored["schedulers"].items()
    ]
    names = list(stored["schedulers"])
    if names:
        report.restored["schedulers"] = f"schedulers: {', '.join(names)}"
    if "LambdaLR" in names:
        rate = stored["schedulers"]["LambdaLR"].get("_last_lr")
        report.notes.append(
            f"learning rate: {report.source} applied schedules one batch late, so the next batch "
            f"would have had {rate}; it gets the schedule's own value at the stored time instead"
        )


def _algorithms(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    entries, names = [], []
    pairs = stored["algorithms"]
    for name, saved in pairs.items() if isinstance(pairs, dict) else pairs:
        entry = _algorithm(name, saved)
        entries.append(entry)
        names.append(name)
    state["algorithms"] = entries
    if names:
        report.restored["algorithms"] = f"algorithms: {', '.join(names)}"


def _algorithm(name: str, saved: Mapping[str, Any]) -> dict[str, Any]:
    plugin, required = None, name in _REQUIRED_IN_REFERENCE
    for entry in plugins.entries(_GROUP):
        if entry.value.rpartition(":")[2] == name:
            plugin = entry.name
            try:
                required = bool(plugins.load(_GROUP, entry.name).required_on_load())
            except plugins.PluginError as error:
                log.debug("%s cannot be asked whether it is required: %s", name, error)
            break
    parsed = parse_repr(saved.get("repr"))
    return {
        "type": name,
        "plugin": plugin,
        "arguments": parsed[1] if parsed is not None and parsed[0] == name else None,
        "required": required,
        "state": {key: value for key, value in saved.items() if key != "repr"},
    }


#: Algorithms without which 0.32 itself did not load a checkpoint that was trained with them.
_REQUIRED_IN_REFERENCE = frozenset(
    {
        "Alibi",
        "BlurPool",
        "Factorize",
        "GatedLinearUnits",
        "GhostBatchNorm",
        "GyroDropout",
        "LowPrecisionGroupNorm",
        "LowPrecisionLayerNorm",
        "NoOpModel",
        "SqueezeExcite",
        "StochasticDepth",
    }
)


def parse_repr(text: Any) -> tuple[str, dict[str, Any]] | None:
    """Read class name and keyword arguments from ``Name(a=1, b='x')`` without evaluating it.

    Args:
        text: What an algorithm's ``repr`` was.

    Returns:
        Name and arguments; ``None`` if it is anything but a name and literal keyword arguments.
        A time, ``Time(0.5, TimeUnit.DURATION)``, becomes its string.

    Example:
        >>> parse_repr("BlurPool(replace_convs=True,min_channels=16)")
        ('BlurPool', {'replace_convs': True, 'min_channels': 16})
        >>> parse_repr("BlurPool(min_channels=print('ran'))") is None
        True
    """
    if not isinstance(text, str) or len(text) > _LONGEST_REPR:
        return None
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            return None
        arguments: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                return None
            arguments[keyword.arg] = _literal(keyword.value)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None
    return call.func.id, arguments


_UNITS = {"ITERATION": "iter", "EPOCH": "ep", "BATCH": "ba", "SAMPLE": "sp", "TOKEN": "tok",
          "DURATION": "dur", "SECOND": "sec"}  # fmt: skip


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        match node:
            case ast.Call(
                func=ast.Name(id="Time"),
                args=[
                    ast.Constant(value=int() | float() as value),
                    ast.Attribute(value=ast.Name(id="TimeUnit"), attr=unit),
                ],
                keywords=[],
            ) if unit in _UNITS:
                return f"{value}{_UNITS[unit]}"
            case _:
                raise ValueError("a call is no literal")
    return ast.literal_eval(node)


def _callbacks(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    kept = []
    for name, saved in stored["callbacks"].items():
        if name == "CheckpointSaver":
            report.notes.append(
                "CheckpointSaver: the files that it lists are not counted or deleted by this run"
            )
        elif saved:
            kept.append({"type": name, "state": dict(saved)})
    state["callbacks"] = kept
    if kept:
        report.restored["callbacks"] = f"callbacks: {', '.join(c['type'] for c in kept)}"


def _scaler(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    saved = next((dict(s) for s in stored["scaler"].values() if s), None)
    state["scaler"] = saved
    if saved:
        report.restored["scaler"] = "loss scaler"


def _timestamp(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    saved = stored["timestamp"]
    fields = dict(saved.get("Timestamp", saved))
    state["timestamp"] = {key.removeprefix("_"): value for key, value in fields.items()}
    epoch, batch = (state["timestamp"].get(key, 0) for key in ("epoch", "batch"))
    report.restored["timestamp"] = f"timestamp (epoch {epoch}, batch {batch})"


def _seed(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    state["rank_zero_seed"] = stored["rank_zero_seed"]
    report.restored["rank_zero_seed"] = f"seed {stored['rank_zero_seed']}"


def _run_name(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    del report  # the name of a run is its user's choice, whatever wrote the file
    state["run_name"] = stored["run_name"]


def _dataset_state(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    # Without a state of its own, the data is gone over up to the stored batch of the epoch.
    position: dict[str, Any] = {"epoch_start": {}, "offset": 0}
    own = (stored.get("dataset_state") or {}).get("train")
    words = "place in the data: the number of batches in the epoch"
    if own is not None:
        position["dataset"] = own
        words = "place in the data: the dataset's own state"
    state["dataset_state"] = position
    report.restored["dataset_state"] = words


def _metrics(stored: Mapping[str, Any], state: dict[str, Any], report: LoadReport) -> None:
    del state
    found = [name for name in ("train_metrics", "eval_metrics") if stored.get(name)]
    line = f"{' and '.join(found)}: they count anew, since theirs average otherwise"
    if found and line not in report.not_restored:
        report.not_restored.append(line)


_CONVERSIONS: dict[str, Callable[[Mapping[str, Any], dict[str, Any], LoadReport], None]] = {
    "model": _model,
    "integrations": _integrations,
    "optimizers": _optimizers,
    "schedulers": _schedulers,
    "algorithms": _algorithms,
    "callbacks": _callbacks,
    "scaler": _scaler,
    "timestamp": _timestamp,
    "rank_zero_seed": _seed,
    "run_name": _run_name,
    "dataset_state": _dataset_state,
    "train_metrics": _metrics,
    "eval_metrics": _metrics,
}


def _metadata(stored: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    facts = dict(stored.get("metadata") or {})
    facts.pop("composer_env_info", None)
    batch_size = facts.pop("train_dataloader_batch_size", None)
    return {"composer_version": version, **facts, "dataloader_batch_size": batch_size}


def _random_states(saved: Sequence[Any], report: LoadReport) -> list[dict[str, Any]] | None:
    found = []
    try:
        for rank in saved:
            version, internal, gauss_next = rank["python"]
            name, keys, place, has_gauss, cached = rank["numpy"]
            streams = {
                "python": [version, [int(i) for i in internal], gauss_next],
                "numpy": [str(name), keys.to(torch.int64), int(place), int(has_gauss),
                          float(cached)],
                "torch": rank["torch"],
            }  # fmt: skip
            streams.update({k: rank[k] for k in ("cuda", "mps") if rank.get(k) is not None})
            found.append(streams)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        report.not_restored.append(f"random streams: they have another form ({error!r})")
        return None
    report.restored[RNG] = f"random streams of {counted(found, 'rank')}"
    return found


# ---- patches ----------------------------------------------------------------------------------


def _without_underscores(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Serves releases before 0.10 (2022), which named fields of the state ``_model`` and so on.

    Added 2026-11.
    """
    return {str(name).removeprefix("_"): value for name, value in saved.items()}


def _drop_blur_filters(state: dict[str, Any], report: LoadReport) -> None:
    """Serves releases up to 0.32 (2025), in which ``BlurPool`` kept its fixed filters as weights.

    Added 2026-11.
    """
    if all(entry["type"] != "BlurPool" for entry in state.get("algorithms", [])):
        return
    model = state["model"]
    filters = [name for name in model if name.rpartition(".")[2] in ("blur_filter", "filt2d")]
    for name in filters:
        del model[name]
    if filters:
        report.restored["model"] = f"weights ({len(model)} tensors)"
        report.notes.append(
            f"BlurPool: {counted(filters, 'filter')} among the weights dropped; they are fixed"
        )


_PATCHES: tuple[Callable[[dict[str, Any], LoadReport], None], ...] = (_drop_blur_filters,)
