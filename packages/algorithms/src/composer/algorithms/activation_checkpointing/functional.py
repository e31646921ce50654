"""Activations that are computed again in the backward pass instead of being kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from composer.algorithms.activation_checkpointing.layers import plain_class, recompute
from composer.utils.checks import check_integer
from composer.utils.module_surgery import check_surgery

__all__ = ["apply_activation_checkpointing", "blocks_of", "class_names"]


def class_names(classes: Any) -> tuple[str, ...] | None:
    """Turn what a user gave as classes into their names.

    Args:
        classes: A module class or the name of one, or a sequence of them; ``None`` for none.

    Returns:
        The names, or ``None``.

    Raises:
        TypeError: If something is neither a module class nor a name.
        ValueError: If the sequence is empty.

    Example:
        >>> class_names([nn.TransformerEncoderLayer, "GPT2Block"])
        ('TransformerEncoderLayer', 'GPT2Block')
    """
    if classes is None:
        return None
    given = [classes] if isinstance(classes, (str, type)) else classes
    # A tensor without dimensions says that it can be iterated, and cannot.
    if not isinstance(given, Iterable) or isinstance(given, torch.Tensor):
        raise TypeError(f"classes={classes!r} must be module classes or their names")
    names = []
    for one in given:
        if isinstance(one, type) and issubclass(one, nn.Module):
            names.append(one.__name__)
        elif isinstance(one, str):
            names.append(one)
        else:
            raise TypeError(f"classes={classes!r} must be module classes or their names, not {one}")
    if not names:
        raise ValueError("classes is empty; name at least one module class, or leave it out")
    return tuple(names)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return the blocks that a model stacks: members of its lists of modules of one class.

    Args:
        model: The model.

    Returns:
        The outermost such members, in order; lists of one member or of plain layers (without
        children) are no stacks.

    Example:
        >>> def block():
        ...     return nn.Sequential(nn.Linear(1, 1), nn.ReLU())
        >>> len(blocks_of(nn.Sequential(block(), block(), block())))
        3
    """
    found: dict[int, nn.Module] = {}

    def look(module: nn.Module) -> None:
        stack = _is_row(module) and len(list(module.children())) > 1
        for member in module.children():
            # A row of rows, as the stages of a convolutional network are, is looked into.
            if stack and not _is_row(member):
                found.setdefault(id(member), member)
            else:
                look(member)

    look(model)
    return list(found.values())


def _is_row(module: nn.Module) -> bool:
    """Whether a module is a list of modules of one class that have parts."""
    members = list(module.children())
    return (
        plain_class(module) in (nn.ModuleList, nn.Sequential)
        and bool(members)
        and len({plain_class(member) for member in members}) == 1
        and any(True for _ in members[0].children())
    )


def apply_activation_checkpointing(
    model: torch.nn.Module,
    classes: type[nn.Module] | str | Sequence[type[nn.Module] | str] | None = None,
    every: int = 1,
) -> int:
    """Let blocks of a model keep their inputs only, and compute the rest again when it is needed.

    Losses, gradients, random numbers and the statistics of batch norms are what they were; memory
    falls from all activations of a block to its inputs, for about one more forward pass of it.

    Args:
        model: The model, changed in place; its weights and their names stay.
        classes: Which modules: classes, or names of classes. By default the blocks that the model
            stacks: the members of lists of modules of one class.
        every: Every how many of them, counted in the model's order from the first.

    Returns:
        How many modules do so now.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If ``every`` is less than one, or nothing fits.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> model = nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False)
        >>> apply_activation_checkpointing(model, every=2)
        2
    """
    check_surgery(model)
    names = class_names(classes)
    check_integer("every", every, low=1)
    if names is None:
        found = blocks_of(model)
        if not found:
            raise ValueError(
                "the model has no list of blocks of one class to choose from; say "
                "classes=[...], with the classes of the modules whose activations are to be "
                "computed again"
            )
    else:
        # By class as `isinstance` has it: a surgery may have made a subclass of what was named.
        found = [
            module
            for module in model.modules()
            if any(kind.__name__ in names for kind in plain_class(module).__mro__)
        ]
        if not found:
            seen = sorted(
                {
                    plain_class(module).__name__
                    for module in model.modules()
                    if any(module.children())
                }
            )
            raise ValueError(f"classes={names} fit no module of the model, which has {seen}")
    for module in found[::every]:
        recompute(module)
    return len(found[::every])
