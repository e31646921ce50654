"""Reads checkpoints that Composer 0.32 wrote, without running anything that is in them.

Such a file holds the same facts in another layout, among them NumPy's random state, wall clocks and
the ``repr`` of each algorithm. Here it is turned into the layout of this library, and a report says
what came over and what did not. Each patch is one function that names the releases it serves.
"""

from __future__ import annotations

import ast
import datetime
import logging
import pickle
import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from composer.checkpoint.layout import FORMAT, FORMAT_VERSION, METADATA, RNG, STATE
from composer.core import plugins

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = [
    "REPORT",
    "Report",
    "fit_to_run",
    "foreign_classes",
    "from_reference",
    "is_from_reference",
    "load_harmless",
    "parse_repr",
]

log = logging.getLogger(__name__)

#: Key of the report in a converted checkpoint.
REPORT = "report"

_GROUP = "composer.algorithms"
_LONGEST_REPR = 10_000


@dataclass
class Report:
    """What came over from a checkpoint of another release, and what did not.

    Attributes:
        source: What wrote the file.
        restored: Field of the state to what of it came over.
        not_restored: What was left out, each with the reason.
        notes: What else its user has to know.

    Example:
        >>> report = Report("Composer 0.32.1", {"model": "weights (2 tensors)"})
        >>> print(report)
        written by Composer 0.32.1
        restored:
          weights (2 tensors)
    """

    source: str
    restored: dict[str, str] = field(default_factory=dict)
    not_restored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"written by {self.source}"]
        for title, items in (
            ("restored", list(self.restored.values())),
            ("not restored", self.not_restored),
            ("note", self.notes),
        ):
            if items:
                lines += [f"{title}:", *(f"  {item}" for item in items)]
        return "\n".join(lines)

    def announce(self) -> None:
        """Log what came over, and warn once about what did not.

        Example:
            >>> Report("Composer 0.32.1").announce()
        """
        log.info("the checkpoint was %s", self)
        if self.not_restored:
            warnings.warn(
                f"the checkpoint was written by {self.source}; not restored: "
                + "; ".join(self.not_restored),
                stacklevel=2,
            )


# ---- reading ----------------------------------------------------------------------------------

# Files of 0.32 hold a NumPy array (the random state) and wall clocks. NumPy's own functions for
# rebuilding arrays are not let near a file: these stand in for them and take numbers only.

_NUMBERS = {f"{kind}{size}" for kind, sizes in (("i", "1248"), ("u", "1248"), ("f", "248"),
            ("c", "8")) for size in sizes} | {"b1", "c16"}  # fmt: skip
_READING = threading.Lock()


class _Dtype:
    """Stands in for the type of an array."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in _NUMBERS:
            raise pickle.UnpicklingError(f"it holds an array of type {code!r}")
        self.code = code
        self.order = "="

    def __setstate__(self, state: Sequence[Any]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"it holds an array of byte order {state[1]!r}")
        self.order = state[1]

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.order.replace("|", "") + self.code)


class _Array:
    """Stands in for an array of numbers."""

    value: np.ndarray[Any, Any]

    def __setstate__(self, state: Sequence[Any]) -> None:
        _, shape, dtype, by_columns, data = state
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("it holds an array of something else than numbers")
        flat = np.frombuffer(data, dtype=dtype.numpy)
        self.value = flat.reshape(shape, order="F" if by_columns else "C")

    @property
    def tensor(self) -> torch.Tensor:
        value = self.value
        if value.dtype.kind == "u" and value.dtype.itemsize > 1:
            value = value.astype(np.int64)
        return torch.from_numpy(value.astype(value.dtype.newbyteorder("="), copy=True))


def _new_array(kind: Any, *_: Any) -> _Array:
    if kind is not _Array:
        raise pickle.UnpicklingError("it holds an array of an unknown kind")
    return _Array()


def _new_scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
        raise pickle.UnpicklingError("it holds a NumPy scalar that is no number")
    return np.frombuffer(data, dtype=dtype.numpy)[0].item()


def _no_bytes() -> bytes:
    return b""  # how the data of an empty array is written


def _stand_ins() -> list[Any]:
    found: list[Any] = [
        datetime.timedelta,
        (str, "torch.torch_version.TorchVersion"),
        (_Array, "numpy.ndarray"),
        (_Dtype, "numpy.dtype"),
        (_no_bytes, "builtins.bytes"),
        (_no_bytes, "__builtin__.bytes"),
    ]
    for home in ("numpy.core.multiarray", "numpy._core.multiarray"):
        found += [(_new_array, f"{home}._reconstruct"), (_new_scalar, f"{home}.scalar")]
    return found


def _plain(value: Any) -> Any:
    """Replace the stand-ins, and containers' own classes, by plain types."""
    if isinstance(value, _Array):
        return value.tensor
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, _Dtype):
        raise pickle.UnpicklingError("it holds the type of an array without the array")
    return value


def load_harmless(path: str | Path, map_location: str = "cpu", *, mmap: bool = True) -> Any:
    """Read a file that holds arrays of numbers and wall clocks beside plain types.

    Args:
        path: The file.
        map_location: Where tensors go.
        mmap: Whether to map the file instead of reading it whole.

    Returns:
        What the file holds: arrays as tensors, clocks as seconds.

    Raises:
        pickle.UnpicklingError: If it holds anything else; the error names the classes.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save({"keys": np.array([1, 2], dtype=np.uint32)}, path)
        >>> load_harmless(path)
        {'keys': tensor([1, 2])}
    """
    with _READING:  # torch keeps the list of allowed classes for the whole process
        try:
            with torch.serialization.safe_globals(_stand_ins()):
                found = torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
        except pickle.UnpicklingError as error:
            classes = foreign_classes(path)
            if not classes:
                raise
            raise pickle.UnpicklingError(f"It asks for {', '.join(classes)}") from error
    return _plain(found)


def foreign_classes(path: str | Path) -> list[str]:
    """Name what a file would have to run or build beside plain types, without doing so.

    Args:
        path: A file of torch.

    Returns:
        Full names of classes and functions, sorted.

    Example:
        >>> import collections, tempfile
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save(collections.ChainMap(), path)
        >>> foreign_classes(path)
        ['collections.ChainMap']
    """
    known = {entry[1] for entry in _stand_ins() if isinstance(entry, tuple)}
    known.add("datetime.timedelta")
    try:
        found = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
    except Exception:  # a damaged file can fail anywhere in it
        return []
    return sorted(set(found) - known)


# ---- converting -------------------------------------------------------------------------------

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


def from_reference(contents: Mapping[str, Any]) -> tuple[dict[str, Any], Report]:
    """Turn a checkpoint of Composer 0.32 into one of this library.

    Args:
        contents: What :func:`load_harmless` returned.

    Returns:
        The checkpoint, whose tensors are the given ones, and the report; the checkpoint holds the
        report too, for :func:`fit_to_run`.

    Raises:
        ValueError: If it has another layout.

    Example:
        >>> old = {"state": {"model": {"weight": torch.ones(1)}, "rank_zero_seed": 3}}
        >>> new, report = from_reference(old)
        >>> new["format"], new["state"]["rank_zero_seed"], list(report.restored)
        (1, 3, ['model', 'rank_zero_seed'])
    """
    if not is_from_reference(contents):
        raise ValueError("these contents do not have the layout of Composer 0.32")
    stored = _without_underscores(contents[STATE])
    environment = (stored.get("metadata") or {}).get("composer_env_info") or {}
    version = environment.get("composer_version")
    report = Report(f"Composer {version}" if version else "an old release of Composer")
    state: dict[str, Any] = {}
    for name, convert in _CONVERSIONS.items():
        # Releases that kept no place in the data counted it in batches all the same.
        here = "timestamp" if name == "dataset_state" else name
        if stored.get(here) is not None:
            convert(stored, state, report)
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


_SILENT = {"metadata", "integrations"}


def _model(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
    weights = dict(stored["model"])
    state["model"] = weights
    report.restored["model"] = f"weights ({len(weights)} tensors)"
    if stored.get("integrations"):
        report.not_restored.append(
            f"integrations: {sorted(stored['integrations'])}; configuration and tokenizer come "
            f"with the models that use them"
        )


def _optimizers(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
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
        words.append(f"{name} ({len(saved['state'])} parameters, {_count(groups, 'group')})")
    state["optimizers"] = entries
    report.restored["optimizers"] = f"optimizer: {', '.join(words) or 'none'}"


def _schedulers(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
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


def _algorithms(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
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


def _callbacks(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
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


def _scaler(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
    saved = next((dict(s) for s in stored["scaler"].values() if s), None)
    state["scaler"] = saved
    if saved:
        report.restored["scaler"] = "loss scaler"


def _timestamp(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
    saved = stored["timestamp"]
    fields = dict(saved.get("Timestamp", saved))
    state["timestamp"] = {key.removeprefix("_"): value for key, value in fields.items()}
    epoch, batch = (state["timestamp"].get(key, 0) for key in ("epoch", "batch"))
    report.restored["timestamp"] = f"timestamp (epoch {epoch}, batch {batch})"


def _seed(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
    state["rank_zero_seed"] = stored["rank_zero_seed"]
    report.restored["rank_zero_seed"] = f"seed {stored['rank_zero_seed']}"


def _run_name(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
    del report  # the name of a run is its user's choice, whatever wrote the file
    state["run_name"] = stored["run_name"]


def _dataset_state(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
    # Without a state of its own, the data is gone over up to the stored batch of the epoch.
    position: dict[str, Any] = {"epoch_start": {}, "offset": 0}
    own = (stored.get("dataset_state") or {}).get("train")
    words = "place in the data: the number of batches in the epoch"
    if own is not None:
        position["dataset"] = own
        words = "place in the data: the dataset's own state"
    state["dataset_state"] = position
    report.restored["dataset_state"] = words


def _metrics(stored: Mapping[str, Any], state: dict[str, Any], report: Report) -> None:
    del state
    found = [name for name in ("train_metrics", "eval_metrics") if stored.get(name)]
    line = f"{' and '.join(found)}: they count anew, since theirs average otherwise"
    if found and line not in report.not_restored:
        report.not_restored.append(line)


_CONVERSIONS: dict[str, Callable[[Mapping[str, Any], dict[str, Any], Report], None]] = {
    "model": _model,
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


def _random_states(saved: Sequence[Any], report: Report) -> list[dict[str, Any]] | None:
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
    report.restored[RNG] = f"random streams of {_count(found, 'rank')}"
    return found


def _count(things: Collection[Any], word: str) -> str:
    return f"{len(things)} {word}{'s' if len(things) != 1 else ''}"


# ---- patches ----------------------------------------------------------------------------------


def _without_underscores(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Serves releases before 0.10 (2022), which named fields of the state ``_model`` and so on.

    Added 2026-11.
    """
    return {str(name).removeprefix("_"): value for name, value in saved.items()}


def _drop_blur_filters(state: dict[str, Any], report: Report) -> None:
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
            f"BlurPool: {_count(filters, 'filter')} among the weights dropped; they are fixed"
        )


_PATCHES: tuple[Callable[[dict[str, Any], Report], None], ...] = (_drop_blur_filters,)


def _drop_wrapper_prefix(contents: dict[str, Any], own: Collection[str], report: Report) -> None:
    """Serves releases before 0.11 (2022), which kept the ``module.`` of a data-parallel wrapper.

    A model may have a child of that name itself, so the names of the run's model decide.
    Added 2026-11.
    """
    state = contents[STATE]
    model = state.get("model")
    prefix = "module."
    if not model or not all(name.startswith(prefix) for name in model):
        return
    bare = {name.removeprefix(prefix) for name in model}
    if len(bare & set(own)) <= len(set(model) & set(own)):
        return
    state["model"] = _renamed(model, prefix)
    for optimizer in state.get("optimizers") or []:
        saved = optimizer["state"]
        saved["state"] = _renamed(saved["state"], prefix)
        for group in saved["param_groups"]:
            group["params"] = [name.removeprefix(prefix) for name in group["params"]]
    report.notes.append("names: the `module.` of a data-parallel wrapper was taken off")


def _renamed(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in tree.items()}


# ---- in a run ---------------------------------------------------------------------------------


def fit_to_run(
    contents: dict[str, Any], state: State, *, weights_only: bool = False
) -> Report | None:
    """Finish a conversion with what only the run knows, and make its report true for that run.

    Args:
        contents: What a file held, converted or not; a converted one is changed in place.
        state: The state of the run that it will be put into.
        weights_only: Whether only the weights will be.

    Returns:
        The report, to be announced once all is restored; ``None`` for a file of this library.

    Example:
        >>> fit_to_run({"format": 1, "state": {}}, None) is None
        True
    """
    report = contents.get(REPORT)
    if not isinstance(report, Report):
        return None
    _drop_wrapper_prefix(contents, state.get_model_state_dict(), report)
    if weights_only:
        report.restored = {k: v for k, v in report.restored.items() if k == "model"}
        report.not_restored, report.notes = [], []
        return report
    kept = contents[STATE]
    for name in [n for n in report.restored if n != RNG and n not in kept]:
        del report.restored[name]
    if RNG not in contents:
        report.restored.pop(RNG, None)
    _fit_algorithms(kept, state, report)
    _fit_callbacks(kept, state, report)
    inside = kept.get("timestamp", {}).get("batch_in_epoch", 0)
    if inside and _is_shuffled(state.train_dataloader):
        report.not_restored.append(
            f"order of the data in this epoch: it was drawn by {report.source} from random streams "
            f"that cannot be drawn from again, so after {_count(range(inside), 'batch')} passed "
            f"over, some samples come twice in this epoch and others not at all"
        )
    return report


def _fit_algorithms(kept: Mapping[str, Any], state: State, report: Report) -> None:
    entries = kept.get("algorithms") or []
    here = [type(a).__qualname__ for a in state.algorithms]
    restored = []
    for entry in entries:
        name = entry["type"]
        if name in here:
            here.remove(name)
            restored.append(name)
        elif entry["required"]:
            restored.append(f"{name} (applied again)")
        elif entry["plugin"] is None:
            report.not_restored.append(f"{name}: no plugin of that name is installed")
        else:
            report.not_restored.append(
                f"{name}: it is not among this run's algorithms, and the file does not hold its "
                f"arguments; pass it to go on with it"
            )
    report.restored.pop("algorithms", None)
    if restored:
        report.restored["algorithms"] = f"algorithms: {', '.join(restored)}"


def _fit_callbacks(kept: Mapping[str, Any], state: State, report: Report) -> None:
    here = {type(c).__qualname__ for c in state.callbacks}
    stored = [entry["type"] for entry in kept.get("callbacks") or []]
    restored = [name for name in stored if name in here]
    report.restored.pop("callbacks", None)
    if restored:
        report.restored["callbacks"] = f"callbacks: {', '.join(restored)}"
    report.not_restored += [
        f"{name}: this run has no such callback" for name in stored if name not in here
    ]


def _is_shuffled(loader: Any) -> bool:
    sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    sampler = sampler or getattr(loader, "sampler", None)
    return isinstance(sampler, torch.utils.data.RandomSampler)
