"""Compilation of a model in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from composer.utils.checks import check_bool
from composer.utils.module_surgery import check_surgery
from composer.utils.suggestions import did_you_mean

__all__ = ["apply_compile", "check_settings"]


def check_settings(
    backend: str,
    mode: str | None,
    fullgraph: bool,
    dynamic: bool | None,
    options: Mapping[str, Any] | None,
) -> None:
    """Refuse what ``torch.compile`` would refuse only at the first batch.

    Args:
        backend: Name of the backend.
        mode: Name of the mode.
        fullgraph: Whether a break in the graph is an error.
        dynamic: Whether to compile for changing shapes.
        options: Options of the backend.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a name is unknown, or mode and options are both given.

    Example:
        >>> check_settings("eager", None, False, None, None)
    """
    from torch._dynamo import list_backends

    known = list_backends(exclude_tags=())
    if not isinstance(backend, str):
        raise TypeError(f"backend={backend!r} must be the name of a backend, one of {known}")
    if backend not in known:
        raise ValueError(
            f"backend={backend!r} is unknown; there are {known}.{did_you_mean(backend, known)}"
        )
    check_bool("fullgraph", fullgraph)
    if dynamic is not None:
        check_bool("dynamic", dynamic)
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options={options!r} must be a mapping of names to values, or None")
    if mode is not None:
        if not isinstance(mode, str):
            raise TypeError(f"mode={mode!r} must be the name of a mode, or None")
        modes = list(torch._inductor.list_mode_options())
        if mode not in modes:
            raise ValueError(f"mode={mode!r} must be one of {modes}.{did_you_mean(mode, modes)}")
        if options is not None:
            raise ValueError(
                f"mode={mode!r} stands for a set of options, so options={options!r} cannot be "
                f"given beside it; give one of the two"
            )


def apply_compile(
    model: torch.nn.Module,
    backend: str = "inductor",
    mode: str | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Compile what a model computes, in place; names of weights stay as they are.

    Args:
        model: The model. Change its layers before, not after.
        backend: Who generates the code; ``"eager"`` only traces, which finds what cannot be.
        mode: A trade between time of compilation and speed, such as ``"max-autotune"``.
        fullgraph: Whether what cannot be traced is an error instead of a break.
        dynamic: Whether to compile for changing shapes; by default once a shape has changed.
        options: Options of the backend, instead of a mode.

    Raises:
        RuntimeError: If the model is compiled already.
        TypeError: If an argument has the wrong type.
        ValueError: If a name is unknown, or mode and options are both given.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> apply_compile(model, backend="eager")
        >>> list(model.state_dict())
        ['weight', 'bias']
    """
    check_surgery(model)
    check_settings(backend, mode, fullgraph, dynamic, options)
    if getattr(model, "_compiled_call_impl", None) is not None:
        raise RuntimeError(
            "the model is compiled already; compile it once, by Compile, by the trainer's "
            "compile_config or by yourself"
        )
    model.compile(
        backend=backend,
        mode=mode,
        fullgraph=fullgraph,
        dynamic=dynamic,
        options=None if options is None else dict(options),
    )
