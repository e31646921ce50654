"""Which residual blocks stochastic depth knows, and how each is taken apart.

Blocks are found by the full name of their class, so no library of networks has to be imported for
it. A block of one's own is one more entry.

These are no policies of ``composer.surgery_policies``. A policy is a function that changes a module
in place, for a class and its subclasses, and all that fit a model are applied. Here the user names
one kind of block, which must be known when the method is made; a subclass is none, since it may
compute something else; and the module is exchanged for one of another class, which needs to know
how it is taken apart, and not what to do to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

__all__ = ["ResidualBlock", "form_of", "register_residual_block", "residual_block_names"]

_Part = Callable[[Any, torch.Tensor], torch.Tensor]


def _as_it_is(block: Any, x: torch.Tensor) -> torch.Tensor:
    del block
    return x


@dataclass(frozen=True)
class ResidualBlock:
    """How the block ``finish(branch(x) + shortcut(x))`` is computed from the members of a module.

    The functions are called with the module, which has all members of the original block, and a
    tensor.

    Args:
        branch: The part that is skipped at random.
        shortcut: What goes past it; the input itself by default.
        finish: What is done to the sum, such as an activation; nothing by default.

    Example:
        >>> form = ResidualBlock(lambda block, x: block.norm(block.linear(x)))
        >>> form.shortcut(None, torch.ones(1))
        tensor([1.])
    """

    branch: _Part
    shortcut: _Part = field(default_factory=lambda: _as_it_is)
    finish: _Part = field(default_factory=lambda: _as_it_is)


def _bottleneck_branch(block: Any, x: torch.Tensor) -> torch.Tensor:
    x = block.relu(block.bn1(block.conv1(x)))
    x = block.relu(block.bn2(block.conv2(x)))
    return block.bn3(block.conv3(x))


def _basic_branch(block: Any, x: torch.Tensor) -> torch.Tensor:
    x = block.relu(block.bn1(block.conv1(x)))
    return block.bn2(block.conv2(x))


def _downsample(block: Any, x: torch.Tensor) -> torch.Tensor:
    return x if block.downsample is None else block.downsample(x)


def _relu(block: Any, x: torch.Tensor) -> torch.Tensor:
    return block.relu(x)


def _small_branch(block: Any, x: torch.Tensor) -> torch.Tensor:
    x = F.relu(block.bn1(block.conv1(x)), inplace=True)
    return block.bn2(block.conv2(x))


def _small_shortcut(block: Any, x: torch.Tensor) -> torch.Tensor:
    return block.shortcut(x)


def _plain_relu(block: Any, x: torch.Tensor) -> torch.Tensor:
    del block
    return F.relu(x)


#: Name -> full name of a class -> how it is taken apart.
_BLOCKS: dict[str, dict[str, ResidualBlock]] = {
    "ResNetBottleneck": {
        "torchvision.models.resnet.Bottleneck": ResidualBlock(
            _bottleneck_branch, _downsample, _relu
        ),
    },
    "ResNetBasicBlock": {
        "torchvision.models.resnet.BasicBlock": ResidualBlock(_basic_branch, _downsample, _relu),
        "composer.models.resnet_cifar._BasicBlock": ResidualBlock(
            _small_branch, _small_shortcut, _plain_relu
        ),
    },
}


def residual_block_names() -> list[str]:
    """Return the names that ``target_layer_name`` accepts.

    Returns:
        The names, sorted.

    Example:
        >>> "ResNetBottleneck" in residual_block_names()
        True
    """
    return sorted(_BLOCKS)


def form_of(block: torch.nn.Module, name: str) -> ResidualBlock | None:
    """Return how a module is taken apart.

    Args:
        block: The module.
        name: The name of the kind of block.

    Returns:
        The form; ``None`` if the module is no block of that kind. An instance of a subclass is
        none, since it may compute something else.

    Example:
        >>> form_of(torch.nn.ReLU(), "ResNetBottleneck") is None
        True
    """
    kind = type(block)
    return _BLOCKS[name].get(f"{kind.__module__}.{kind.__qualname__}")


def register_residual_block(
    name: str,
    block_class: type[torch.nn.Module] | Sequence[type[torch.nn.Module]],
    form: ResidualBlock,
) -> None:
    """Let stochastic depth know a residual block.

    Register before ``StochasticDepth`` is made, also where a checkpoint brings it.

    Args:
        name: What ``target_layer_name`` calls it. A name that is there gets one more class.
        block_class: The class of the blocks, or several that are taken apart alike.
        form: How they are taken apart.

    Raises:
        TypeError: If ``block_class`` holds something that is no class of modules, or ``form`` is no
            :class:`ResidualBlock`.

    Example:
        >>> class Block(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.inner = torch.nn.Linear(2, 2)
        ...     def forward(self, x):
        ...         return x + self.inner(x)
        >>> register_residual_block("Block", Block, ResidualBlock(lambda b, x: b.inner(x)))
        >>> "Block" in residual_block_names()
        True
    """
    classes = [block_class] if isinstance(block_class, type) else list(block_class)
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
            raise TypeError(f"block_class={kind!r} must be a subclass of torch.nn.Module")
    if not isinstance(form, ResidualBlock):
        raise TypeError(f"form={form!r} must be a ResidualBlock, not {type(form).__name__}")
    known = _BLOCKS.setdefault(name, {})
    known.update({f"{kind.__module__}.{kind.__qualname__}": form for kind in classes})
