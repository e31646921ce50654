"""A module that keeps its inputs instead of its activations.

It stays the module that it was, under a class derived from its own: names of weights, attributes,
hooks and tests of its class are those it had, and optimizers and checkpoints notice nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["Recomputed", "plain_class", "recompute"]

# What a transformer's layer is given to remember between calls, and what it is given here instead:
# a second run would remember twice.
_FORGOTTEN = {
    "past_key_value": None,
    "past_key_values": None,
    "layer_past": None,
    "use_cache": False,
}


class Recomputed(nn.Module):
    """What a module becomes: its forward pass runs again when its gradients are needed.

    Example:
        >>> block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> recompute(block)
        >>> isinstance(block, Recomputed), isinstance(block, nn.Sequential)
        (True, True)
    """

    #: Places of positional arguments that are a memory, and what stands there instead.
    _forgotten_places: ClassVar[tuple[tuple[int, Any], ...]] = ()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute what the module computes.

        Args:
            *args: What the module takes.
            **kwargs: What the module takes by name.

        Returns:
            What the module returns.
        """
        compute = super().forward
        if not (self.training and torch.is_grad_enabled()):
            return compute(*args, **kwargs)
        for name, instead in _FORGOTTEN.items():
            if name in kwargs:
                kwargs[name] = instead
        # Transformers before 5 gives some layers their memory by its place.
        for place, instead in self._forgotten_places:
            if place < len(args):
                args = (*args[:place], instead, *args[place + 1 :])
        return _OUTSIDE_GRAPHS[0](self, compute, *args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Say how a copy is made: of the plain class first, which is one that can be imported."""
        return _rebuild, (plain_class(self),), self.__dict__


def _rebuild(plain: type[nn.Module]) -> nn.Module:
    derived = _derived(plain)
    return derived.__new__(derived)


_DERIVED: dict[type[nn.Module], type[nn.Module]] = {}


def _derived(plain: type[nn.Module]) -> type[nn.Module]:
    if not _OUTSIDE_GRAPHS:
        _OUTSIDE_GRAPHS.append(torch.compiler.disable(_checkpointed, recursive=False))
    if plain not in _DERIVED:
        name = f"Recomputed{plain.__name__}"
        own = {"__module__": __name__, "_forgotten_places": _places(plain)}
        _DERIVED[plain] = type(name, (Recomputed, plain), own)
    return _DERIVED[plain]


def _places(plain: type[nn.Module]) -> tuple[tuple[int, Any], ...]:
    """Where a class takes a memory by its place, counted without the module itself."""
    own = inspect.getattr_static(plain, "forward")
    if not inspect.isfunction(own):
        return ()  # that of a script of TorchScript, which has no signature before it is one
    names = list(inspect.signature(own).parameters)[1:]
    return tuple((names.index(name), _FORGOTTEN[name]) for name in names if name in _FORGOTTEN)


def plain_class(module: nn.Module) -> type[nn.Module]:
    """Return the class that a module has, or had before it was changed.

    Args:
        module: The module.

    Returns:
        The class.

    Example:
        >>> layer = nn.Linear(1, 1)
        >>> recompute(layer)
        >>> plain_class(layer).__name__
        'Linear'
    """
    return type(module).__mro__[2] if isinstance(module, Recomputed) else type(module)


def recompute(module: nn.Module) -> None:
    """Let a module keep its inputs instead of its activations, in place.

    Args:
        module: The module; one that does so already stays as it is.

    Example:
        >>> layer = nn.Linear(1, 1)
        >>> recompute(layer)
        >>> type(layer).__name__
        'RecomputedLinear'
    """
    if not isinstance(module, Recomputed):
        module.__class__ = _derived(type(module))


#: What runs a module, where a compiled graph ends and another begins inside. In one graph,
#: statistics would be inputs that the forward pass changes, and some backends draw other random
#: numbers the second time. Made when it is used, since torch imports its compiler for it.
_OUTSIDE_GRAPHS: list[Callable[..., Any]] = []


def _checkpointed(module: nn.Module, compute: Any, *args: Any, **kwargs: Any) -> Any:
    contexts = partial(_contexts, module)
    return checkpoint(compute, *args, use_reentrant=False, context_fn=contexts, **kwargs)


def _contexts(
    module: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    # This runs in front of the forward pass: what layers count there is what they count again.
    counted = [
        (part, {name: vars(part)[name] for name in names})
        for part in module.modules()
        if (names := getattr(type(part), "counts_in_forward", ()))
    ]
    return nullcontext(), _as_at_first(module, counted)


@contextmanager
def _as_at_first(
    module: nn.Module, counted: list[tuple[nn.Module, dict[str, Any]]]
) -> Iterator[None]:
    """Let layers compute what they computed, and move statistics and counters no second time.

    A layer names the attributes that it moves by itself in ``counts_in_forward``.
    """
    kept = [
        (part._buffers, dict(part._buffers))
        for part in module.modules()
        if part.training and part._buffers.get("running_mean") is not None
    ]
    now = [(part, {name: vars(part)[name] for name in then}) for part, then in counted]
    for buffers, own in kept:
        # As many tensors of the same shapes are saved for the backward pass as before.
        buffers.update({k: None if v is None else v.clone() for k, v in own.items()})
    for part, then in counted:
        vars(part).update(then)
    try:
        yield
    finally:
        for buffers, own in kept:
            buffers.update(own)
        for part, values in now:
            vars(part).update(values)
