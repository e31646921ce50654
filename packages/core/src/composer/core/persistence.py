"""How the fields of ``State`` become plain types in a checkpoint and come back.

What is saved is a table: field name to a pair of functions. A field that is added is one more line
in it. Nothing that is read is executed: an algorithm which a checkpoint needs is found by its
plugin name and built from its plain arguments.
"""

from __future__ import annotations

import enum
import fnmatch
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from composer.core import plugins
from composer.core.event import Event
from composer.core.model import ComposerModel
from composer.core.serializable import Serializable
from composer.core.time import Time
from composer.core.timestamp import Timestamp
from composer.utils import dist
from composer.utils.modules import unwrapped_names

if TYPE_CHECKING:
    from composer.core.algorithm import Algorithm
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = [
    "SAVED_FIELDS",
    "WeightsMismatchError",
    "collect",
    "optimizer_state_by_name",
    "restore",
    "restore_pending_schedulers",
    "to_plain",
]

log = logging.getLogger(__name__)

_PLAIN = (str, int, float, bool, bytes, complex, type(None))


def to_plain(value: Any, path: str = "state") -> Any:
    """Turn a value into plain types and tensors, or say which part cannot be.

    Args:
        value: Numbers, strings, ``None``, tensors, and lists, tuples and mappings of them.
            NumPy scalars and arrays, times, timestamps and enumeration members are converted.
        path: Where the value stands, for the error.

    Returns:
        The same with builtin containers, readable by ``torch.load(weights_only=True)``.

    Raises:
        TypeError: If a part is something else; the error names where it stands.

    Example:
        >>> to_plain({"n": np.int64(3), "t": Time(2, "ep")})
        {'n': 3, 't': {'value': 2, 'unit': 'ep'}}
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            raise TypeError(f"{path} is an array of {value.dtype}, which a checkpoint cannot hold")
        return torch.from_numpy(np.array(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (Time, Timestamp)):
        return value.state_dict()
    if isinstance(value, Mapping):
        plain = {}
        for key, item in value.items():
            if not isinstance(key, (str, int, float, bool, tuple)):
                raise TypeError(f"{path} has a key {key!r} that a checkpoint cannot hold")
            plain[key] = to_plain(item, f"{path}/{key}")
        return plain
    if isinstance(value, (list, tuple)):
        items = [to_plain(item, f"{path}/{i}") for i, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, enum.Enum):
        return to_plain(value.value, path)
    for base in (str, bool, int, float):  # subclasses, of which only the value is kept
        if isinstance(value, base):
            return base(value)
    if isinstance(value, (torch.Size, torch.dtype, torch.device)):
        return value
    raise TypeError(
        f"{path} is {value!r} of type {kind.__module__}.{kind.__qualname__}; a checkpoint holds "
        f"only numbers, strings, None, tensors, and lists, tuples and dicts of them, so that "
        f"loading one runs no code. Return plain types from `state_dict`"
    )


@dataclass
class _Restoring:
    """What the restoring functions need beside the state and the value."""

    logger: Logger | None
    strict: bool
    exclude_algorithms: Sequence[str] = field(default_factory=tuple)


# ---- model ------------------------------------------------------------------------------------


class WeightsMismatchError(ValueError):
    """Weights of a checkpoint that do not fit the model.

    Args:
        differences: What does not fit, as sentences.
        remedy: What may be done about it by those who load with a trainer.

    Example:
        >>> str(WeightsMismatchError("Not in the model: ['b'].", "Give it one."))
        "the checkpoint's weights do not fit the model. Not in the model: ['b']. Give it one."
    """

    def __init__(self, differences: str, remedy: str = "") -> None:
        words = ("the checkpoint's weights do not fit the model.", differences, remedy)
        super().__init__(" ".join(filter(None, words)))
        self.differences = differences


def _save_model(state: State) -> Any:
    plain = unwrapped_names(state.model)
    return {plain(name): value for name, value in state.get_model_state_dict().items()}


def _load_model(state: State, saved: Any, how: _Restoring) -> None:
    plain = unwrapped_names(state.model)
    held = state.get_model_state_dict()
    name_here = {plain(name): name for name in held}
    own = {plain(name): value for name, value in held.items()}
    missing = [key for key in own if key not in saved]
    unexpected = [key for key in saved if key not in own]
    shapes = [
        f"{key}: stored {tuple(saved[key].shape)}, model {tuple(own[key].shape)}"
        for key in own
        if key in saved
        and isinstance(saved[key], torch.Tensor)
        and isinstance(own[key], torch.Tensor)
        and saved[key].shape != own[key].shape
    ]
    if shapes or (how.strict and (missing or unexpected)):
        differences = [
            *([f"Shapes differ: {shapes}."] if shapes else []),
            *([f"Missing in the checkpoint: {missing}."] if missing else []),
            *([f"Not in the model: {unexpected}."] if unexpected else []),
        ]
        raise WeightsMismatchError(
            " ".join(differences),
            "" if shapes else "Pass load_strict_model_weights=False to load what is in both.",
        )
    if missing or unexpected:
        warnings.warn(
            f"loading weights that are in both model and checkpoint; missing in the checkpoint: "
            f"{missing}; not in the model: {unexpected}",
            stacklevel=2,
        )
    here = {name_here.get(key, key): value for key, value in saved.items()}
    state.model.load_state_dict(here, strict=how.strict)


# ---- optimizers -------------------------------------------------------------------------------


def _short_name(thing: Any) -> str:
    return type(thing).__qualname__


def _optimizer_name(optimizer: Any) -> str:
    """The class of an optimizer; a wrapper whose state is that of what it wraps has its name."""
    return _short_name(getattr(optimizer, "base_optimizer", optimizer))


def _parameter_names(model: torch.nn.Module) -> dict[int, str]:
    plain = unwrapped_names(model)
    return {id(p): plain(name) for name, p in model.named_parameters()}


def optimizer_state_by_name(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Return an optimizer's state keyed by parameter name instead of position.

    Args:
        model: The model whose parameters the optimizer updates.
        optimizer: The optimizer.

    Returns:
        ``state`` (parameter name to state) and ``param_groups`` (options, and ``params`` as
        names).

    Raises:
        ValueError: If the optimizer updates a parameter that is not the model's.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> saved = optimizer_state_by_name(model, torch.optim.SGD(model.parameters(), lr=0.1))
        >>> saved["param_groups"][0]["params"]
        ['weight', 'bias']
    """
    names = _parameter_names(model)
    packed = optimizer.state_dict()
    name_at: dict[int, str] = {}
    for group, packed_group in zip(optimizer.param_groups, packed["param_groups"], strict=True):
        for parameter, index in zip(group["params"], packed_group["params"], strict=True):
            if id(parameter) not in names:
                raise ValueError(
                    f"the {_short_name(optimizer)} updates a parameter of shape "
                    f"{tuple(parameter.shape)} that is not one of the model's"
                )
            name_at[index] = names[id(parameter)]
    groups = [
        {**group, "params": [name_at[index] for index in group["params"]]}
        for group in packed["param_groups"]
    ]
    for group in groups:
        group.pop("param_names", None)
    return {
        "state": {name_at[index]: value for index, value in packed["state"].items()},
        "param_groups": groups,
    }


def _save_optimizers(state: State) -> Any:
    return [
        {"type": _optimizer_name(o), "state": optimizer_state_by_name(state.model, o)}
        for o in state.optimizers
    ]


def _load_optimizers(state: State, saved: Any, how: _Restoring) -> None:
    if len(saved) != len(state.optimizers):
        raise ValueError(
            f"the checkpoint holds {len(saved)} optimizers, this run has {len(state.optimizers)}; "
            f"to start with a fresh one pass load_ignore_keys=['state/optimizers']"
        )
    for optimizer, stored in zip(state.optimizers, saved, strict=True):
        if stored["type"] != _optimizer_name(optimizer):
            raise ValueError(
                f"the checkpoint's optimizer is {stored['type']}, this run's is "
                f"{_optimizer_name(optimizer)}; use the same, or pass "
                f"load_ignore_keys=['state/optimizers'] to start it fresh"
            )
        _load_optimizer(state.model, optimizer, stored["state"])


def _load_optimizer(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: dict[str, Any]
) -> None:
    names = _parameter_names(model)
    packed = optimizer.state_dict()
    index_of: dict[str, int] = {}
    own_groups: list[list[str]] = []
    for group, packed_group in zip(optimizer.param_groups, packed["param_groups"], strict=True):
        own_groups.append([names[id(p)] for p in group["params"]])
        index_of.update(zip(own_groups[-1], packed_group["params"], strict=True))
    stored_groups = [group["params"] for group in saved["param_groups"]]
    if [sorted(g) for g in own_groups] != [sorted(g) for g in stored_groups]:
        own = {name for group in own_groups for name in group}
        stored = {name for group in stored_groups for name in group}
        raise ValueError(
            f"the checkpoint's parameter groups do not fit the optimizer's: stored sizes "
            f"{[len(g) for g in stored_groups]}, here {[len(g) for g in own_groups]}; only "
            f"stored: {sorted(stored - own)}; only here: {sorted(own - stored)}. Build the "
            f"optimizer as in the saved run, or pass load_ignore_keys=['state/optimizers']"
        )
    groups = []
    for stored_group, packed_group in zip(
        saved["param_groups"], packed["param_groups"], strict=True
    ):
        options = {**packed_group, **stored_group}
        options["params"] = packed_group["params"]
        groups.append(options)
    optimizer.load_state_dict(
        {
            "state": {index_of[name]: value for name, value in saved["state"].items()},
            "param_groups": groups,
        }
    )


# ---- lists of stateful things -----------------------------------------------------------------


def _save_stateful(things: Iterable[Any], kind: str) -> list[dict[str, Any]]:
    return [
        {
            "type": _short_name(thing),
            "state": to_plain(thing.state_dict(), f"{kind}/{i}/{_short_name(thing)}"),
        }
        for i, thing in enumerate(things)
    ]


def _load_stateful(things: Iterable[Any], saved: Any, kind: str) -> None:
    """Match by class and by place among those of the same class, so twins do not collide."""
    waiting: dict[str, list[Any]] = {}
    for stored in saved:
        waiting.setdefault(stored["type"], []).append(stored["state"])
    for thing in things:
        states = waiting.get(_short_name(thing))
        if states:
            thing.load_state_dict(states.pop(0))
        elif thing.state_dict():
            warnings.warn(
                f"the checkpoint holds no state for the {kind} {_short_name(thing)}; it starts "
                f"fresh",
                stacklevel=2,
            )
    left = [name for name, states in waiting.items() for s in states if s]
    if left:
        # An observer that was left out changes nothing; what shapes the training does.
        message = f"the checkpoint holds state of {kind}s that this run does not have: {left}"
        if kind == "callback":
            log.info(message)
        else:
            warnings.warn(message, stacklevel=2)


def _save_schedulers(state: State) -> Any:
    if state.scheduler_resumption and not state.schedulers:
        return state.scheduler_resumption  # loaded, and still to be put in place
    return _save_stateful(state.schedulers, "scheduler")


def _load_schedulers(state: State, saved: Any, how: _Restoring) -> None:
    if state.schedulers or not saved:
        _load_stateful(state.schedulers, saved, "scheduler")
    else:
        state.scheduler_resumption = saved


def restore_pending_schedulers(state: State) -> None:
    """Give the schedulers the state that was loaded before they were made.

    Args:
        state: The state of the run.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> restore_pending_schedulers(State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU()))
    """
    saved, state.scheduler_resumption = state.scheduler_resumption, []
    if saved:
        _load_stateful(state.schedulers, saved, "scheduler")


def _save_callbacks(state: State) -> Any:
    return _save_stateful(state.callbacks, "callback")


def _load_callbacks(state: State, saved: Any, how: _Restoring) -> None:
    _load_stateful(state.callbacks, saved, "callback")


# ---- algorithms -------------------------------------------------------------------------------


def _plain_arguments(algorithm: Algorithm) -> Any:
    """The arguments, or ``None`` when the algorithm cannot be rebuilt from plain ones."""
    try:
        return to_plain(algorithm.arguments(), type(algorithm).__name__)
    except (AttributeError, TypeError) as error:
        log.debug("%s keeps no plain arguments: %s", type(algorithm).__name__, error)
        return None


def _save_algorithms(state: State) -> Any:
    return [
        {
            "type": _short_name(a),
            "plugin": plugins.name_of("composer.algorithms", type(a)),
            "arguments": _plain_arguments(a),
            "required": bool(a.required_on_load()),
            "state": to_plain(a.state_dict(), f"algorithms/{i}/{_short_name(a)}"),
        }
        for i, a in enumerate(state.algorithms)
    ]


def _say_other_arguments(state: State, saved: Sequence[Any]) -> None:
    """Warn of methods that the script gives other arguments than the checkpoint was made with."""
    waiting = list(saved)
    for algorithm in state.algorithms:
        stored = next((s for s in waiting if s["type"] == _short_name(algorithm)), None)
        if stored is None:
            continue
        waiting.remove(stored)
        now, then = _plain_arguments(algorithm), stored["arguments"]
        if now is None or then is None:
            continue
        differ = [
            f"{name}: stored {then.get(name)!r}, script {now.get(name)!r}"
            for name in {**then, **now}
            if then.get(name) != now.get(name)
        ]
        if differ:
            warnings.warn(
                f"{_short_name(algorithm)} has other arguments than in the run that made the "
                f"checkpoint; the script's are used. {'; '.join(differ)}",
                stacklevel=2,
            )


def _load_algorithms(state: State, saved: Any, how: _Restoring) -> None:
    excluded = set(how.exclude_algorithms)
    _say_other_arguments(state, [s for s in saved if s["type"] not in excluded])
    _load_stateful(
        [a for a in state.algorithms if _short_name(a) not in excluded],
        [s for s in saved if s["type"] not in excluded],
        "algorithm",
    )


def _resume_without(state: State, stored: Sequence[Any], loaded: Sequence[Any]) -> None:
    """Let algorithms that are in the checkpoint and not in this run undo what saving did."""
    waiting = [s["type"] for s in loaded]
    here = [_short_name(a) for a in state.algorithms]
    for entry in stored:
        name = entry["type"]
        if name in waiting and name in here:
            waiting.remove(name)
            here.remove(name)
            continue
        if entry.get("plugin") is None:
            continue
        try:
            kind: type[Algorithm] = plugins.load("composer.algorithms", entry["plugin"])
        except plugins.PluginError as error:
            warnings.warn(
                f"the checkpoint was trained with {name}, which is not installed, so what it did "
                f"to the stored model stays: {error}",
                stacklevel=2,
            )
        else:
            kind.resume_without(entry["state"], state)


def _apply_required_algorithms(state: State, saved: Sequence[Any], how: _Restoring) -> None:
    """Put algorithms that shaped the stored model on this one, where the user left them out."""
    here = [_short_name(a) for a in state.algorithms]
    excluded = set(how.exclude_algorithms)
    missing: list[Any] = []
    for stored in saved:
        if not stored["required"] or stored["type"] in excluded:
            continue
        if stored["type"] in here:
            here.remove(stored["type"])
            if missing:
                raise ValueError(
                    f"the checkpoint was trained with {missing[0]['type']} applied before "
                    f"{stored['type']}; this run applies only the latter, so the former cannot be "
                    f"put back in order. Pass it in `algorithms`, or name it in "
                    f"load_exclude_algorithms"
                )
        else:
            missing.append(stored)
    for stored in missing:
        algorithm = _rebuild_algorithm(stored)
        warnings.warn(
            f"the checkpoint was trained with {algorithm!r}, which changes the model and is not "
            f"among this run's algorithms; it is applied now. Name it in "
            f"load_exclude_algorithms to leave it out",
            stacklevel=2,
        )
        if algorithm.match(Event.INIT, state):
            algorithm.apply(Event.INIT, state, how.logger)  # type: ignore[arg-type]
        state.algorithms.append(algorithm)


def _rebuild_algorithm(stored: Mapping[str, Any]) -> Algorithm:
    name = stored["type"]
    advice = f"pass it in `algorithms`, or name {name!r} in load_exclude_algorithms"
    if stored["plugin"] is None or stored["arguments"] is None:
        raise ValueError(
            f"the checkpoint needs the algorithm {name}, which is not a registered plugin with "
            f"plain arguments and so cannot be rebuilt; {advice}"
        )
    try:
        algorithm: Algorithm = plugins.resolve(
            "composer.algorithms", stored["plugin"], **stored["arguments"]
        )
    except Exception as error:
        raise ValueError(
            f"the checkpoint needs the algorithm {name} (plugin {stored['plugin']!r}, arguments "
            f"{stored['arguments']}), which could not be built: {error}; {advice}"
        ) from error
    return algorithm


# ---- metrics ----------------------------------------------------------------------------------


def _with_state(metric: Any) -> Any:
    """Metrics of torchmetrics keep their state out of ``state_dict`` unless they are asked."""
    persistent = getattr(metric, "persistent", None)
    if callable(persistent):
        persistent(True)
    return metric


def _save_train_metrics(state: State) -> Any:
    if not state.save_metrics:
        return None
    return {name: _with_state(metric).state_dict() for name, metric in state.train_metrics.items()}


def _load_metrics(metrics: Mapping[str, Any], saved: Mapping[str, Any] | None) -> None:
    for name, stored in (saved or {}).items():
        if name in metrics:
            _with_state(metrics[name]).load_state_dict(stored)


def _load_train_metrics(state: State, saved: Any, how: _Restoring) -> None:
    _load_metrics(state.train_metrics, saved)


def _save_eval_metrics(state: State) -> Any:
    if not state.save_metrics:
        return None
    return {
        label: {name: _with_state(metric).state_dict() for name, metric in metrics.items()}
        for label, metrics in state.eval_metrics.items()
    }


def _load_eval_metrics(state: State, saved: Any, how: _Restoring) -> None:
    for label, metrics in (saved or {}).items():
        _load_metrics(state.eval_metrics.get(label, {}), metrics)


# ---- plain fields -----------------------------------------------------------------------------


def _load_timestamp(state: State, saved: Any, how: _Restoring) -> None:
    timestamp = Timestamp()
    timestamp.load_state_dict(saved)
    state.timestamp = timestamp
    state.previous_timestamp = timestamp


def _save_dataset_state(state: State) -> Any:
    """Each rank has a place of its own in its own data."""
    position = state.dataset_state
    if position is None:
        position = state.dataset_resumption or None  # loaded, and its data is still to come
    own = position.state_dict() if isinstance(position, Serializable) else position
    if dist.get_world_size() == 1:
        return own
    return {"ranks": dist.all_gather_object(to_plain(own, "dataset_state"))}


def _load_dataset_state(state: State, saved: Any, how: _Restoring) -> None:
    if saved and "ranks" in saved:
        if len(saved["ranks"]) != dist.get_world_size():
            return  # a place inside an epoch is refused by the trainer; at its edge none is needed
        saved = saved["ranks"][dist.get_global_rank()]
    state.dataset_resumption = saved or {}


def _load_scaler(state: State, saved: Any, how: _Restoring) -> None:
    if saved and state.scaler is not None:
        state.scaler.load_state_dict(saved)


def _set(name: str) -> Callable[[State, Any, _Restoring], None]:
    def load(state: State, saved: Any, how: _Restoring) -> None:
        setattr(state, name, saved)

    return load


def _keep_own(state: State, saved: Any, how: _Restoring) -> None:
    """The script's own stays; the stored one is there to be read."""


def _save_integrations(state: State) -> Any:
    return state.model.integrations() if isinstance(state.model, ComposerModel) else {}


#: Field name to how it is saved and how it comes back, in the order of restoring.
SAVED_FIELDS: dict[str, tuple[Callable[[State], Any], Callable[[State, Any, _Restoring], None]]] = {
    "model": (_save_model, _load_model),
    "integrations": (_save_integrations, _keep_own),
    "optimizers": (_save_optimizers, _load_optimizers),
    "schedulers": (_save_schedulers, _load_schedulers),
    "algorithms": (_save_algorithms, _load_algorithms),
    "callbacks": (_save_callbacks, _load_callbacks),
    "scaler": (lambda s: s.scaler.state_dict() if s.scaler is not None else None, _load_scaler),
    "timestamp": (lambda s: s.timestamp.state_dict(), _load_timestamp),
    "rank_zero_seed": (lambda s: s.rank_zero_seed, _set("rank_zero_seed")),
    "run_name": (lambda s: s.run_name, _keep_own),
    "num_skipped_steps": (lambda s: s.num_skipped_steps, _set("num_skipped_steps")),
    "num_skipped_samples": (lambda s: s.num_skipped_samples, _set("num_skipped_samples")),
    "num_skipped_tokens": (lambda s: s.num_skipped_tokens, _set("num_skipped_tokens")),
    "missed_turns": (lambda s: s.missed_turns, _set("missed_turns")),
    "microbatch_search": (lambda s: s.microbatch_search, _set("microbatch_search")),
    "settings": (lambda s: s.settings, _set("stored_settings")),
    "pending_evaluations": (
        lambda s: s.pending_evaluations,
        _set("pending_evaluations"),
    ),
    "dataset_state": (_save_dataset_state, _load_dataset_state),
    "train_metrics": (_save_train_metrics, _load_train_metrics),
    "eval_metrics": (_save_eval_metrics, _load_eval_metrics),
}


def collect(state: State, fields: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the saved form of a state's fields.

    Args:
        state: The state of the run.
        fields: Which fields; all of ``SAVED_FIELDS`` by default.

    Returns:
        Field name to plain types and tensors; tensors are the live ones, not copies.

    Raises:
        TypeError: If a part is not plain; the error names where it stands.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> collect(State(torch.nn.Linear(1, 1), 7, "r", DeviceCPU()), ["rank_zero_seed"])
        {'rank_zero_seed': 7}
    """
    chosen = SAVED_FIELDS if fields is None else {name: SAVED_FIELDS[name] for name in fields}
    return {name: to_plain(save(state), name) for name, (save, _) in chosen.items()}


def restore(
    state: State,
    saved: Mapping[str, Any],
    *,
    logger: Logger | None = None,
    strict: bool = True,
    exclude_algorithms: Sequence[str] | None = None,
    fields: Iterable[str] | None = None,
    stored_algorithms: Sequence[Any] | None = None,
) -> None:
    """Put saved fields back into a state.

    Algorithms that shaped the stored model and are missing here are applied first, so that the
    weights fit.

    Args:
        state: The state of the run.
        saved: What :func:`collect` returned; fields that are missing are left alone.
        logger: Passed to algorithms that are applied.
        strict: Whether the model's keys must match exactly.
        exclude_algorithms: Names (patterns allowed) of algorithms that must not be applied again.
        fields: Which fields; all by default.
        stored_algorithms: The checkpoint's algorithms before parts of it were ignored; those of
            ``saved`` by default.

    Raises:
        ValueError: If the model, the optimizer or a required algorithm does not fit.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 7, "r", DeviceCPU())
        >>> restore(state, {"rank_zero_seed": 8})
        >>> state.rank_zero_seed
        8
    """
    names = [s["type"] for s in saved.get("algorithms") or []]
    patterns = list(exclude_algorithms or ())
    for pattern in patterns:
        if names and not fnmatch.filter(names, pattern):
            warnings.warn(
                f"load_exclude_algorithms names {pattern!r}, but the checkpoint holds {names}",
                stacklevel=2,
            )
    excluded = [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    how = _Restoring(logger, strict, excluded)
    chosen = list(SAVED_FIELDS) if fields is None else list(fields)
    if "model" in chosen and "model" in saved:
        _apply_required_algorithms(state, saved.get("algorithms") or [], how)
    for name in chosen:
        if name in saved:
            try:
                SAVED_FIELDS[name][1](state, saved[name], how)
            except (AttributeError, IndexError, KeyError, RuntimeError, TypeError) as error:
                raise ValueError(
                    f"the checkpoint's {name!r} cannot be restored: {error!r}. It is damaged or of "
                    f"another kind; load another checkpoint, or leave the part out with "
                    f"load_ignore_keys=['state/{name}']"
                ) from error
        elif name == "optimizers" and state.optimizers:
            warnings.warn(
                "the checkpoint holds no optimizer state; the optimizer starts fresh", stacklevel=2
            )
    if {"model", "optimizers"} <= saved.keys() and {"model", "optimizers"} <= set(chosen):
        kept = [s for s in saved.get("algorithms") or [] if s["type"] not in excluded]
        _resume_without(state, stored_algorithms or saved.get("algorithms") or [], kept)
