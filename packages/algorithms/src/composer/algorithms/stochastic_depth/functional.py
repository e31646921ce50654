"""Stochastic depth as surgery on residual networks."""

from __future__ import annotations

import warnings

import torch

from composer.algorithms._surgery import recast
from composer.algorithms.stochastic_depth.blocks import form_of, residual_block_names
from composer.algorithms.warnings import NoEffectWarning
from composer.utils.checks import check_choice, check_number
from composer.utils.module_surgery import (
    check_surgery,
    count_module_instances,
    replace_module_classes,
)

__all__ = ["DRAWS", "SPREADS", "apply_stochastic_depth", "check_settings", "set_progress"]

#: Who draws: the batch for a whole block, or each sample for itself.
DRAWS = ("block", "sample")
#: How the rate is spread over the blocks.
SPREADS = ("uniform", "linear")


def check_settings(
    target_layer_name: str, stochastic_method: str, drop_rate: float, drop_distribution: str
) -> None:
    """Refuse settings that cannot be.

    Args:
        target_layer_name: Name of the kind of block.
        stochastic_method: Who draws.
        drop_rate: How often the last block's branch is left out.
        drop_distribution: How the rate is spread.

    Raises:
        TypeError: If ``drop_rate`` is no number.
        ValueError: If a name is unknown or the rate is no probability below 1.

    Example:
        >>> check_settings("ResNetBottleneck", "sample", 0.2, "linear")
    """
    check_choice("target_layer_name", target_layer_name, residual_block_names())
    check_choice("stochastic_method", stochastic_method, DRAWS)
    check_number("drop_rate", drop_rate, low=0.0, high=1.0, open_high=True)
    check_choice("drop_distribution", drop_distribution, SPREADS)


def apply_stochastic_depth(
    model: torch.nn.Module,
    target_layer_name: str,
    stochastic_method: str = "block",
    drop_rate: float = 0.2,
    drop_distribution: str = "linear",
) -> None:
    """Let residual blocks leave out their branch at random, in place.

    Parameters, buffers and their names stay as they are, so optimizers need no notice. Blocks that
    are stochastic already are left alone.

    Args:
        model: The model.
        target_layer_name: Which blocks: ``"ResNetBottleneck"``, ``"ResNetBasicBlock"``, or a name
            that was given to :func:`~composer.algorithms.stochastic_depth.register_residual_block`.
        stochastic_method: Whether a ``"block"`` draws once per batch, or each ``"sample"`` draws.
        drop_rate: Probability that the branch is left out, from 0 to below 1; of the last block
            where it is spread linearly.
        drop_distribution: ``"uniform"``, or ``"linear"`` in the block's place in the network.

    Raises:
        TypeError: If ``drop_rate`` is no number.
        ValueError: If a name is unknown or the rate is out of range.

    Example:
        >>> from composer.models import composer_resnet_cifar
        >>> model = composer_resnet_cifar("resnet_8")
        >>> apply_stochastic_depth(model, "ResNetBasicBlock", drop_rate=0.3)
        >>> [round(block.drop_rate, 2) for block in model.module.blocks]
        [0.1, 0.2, 0.3]
    """
    from composer.algorithms.stochastic_depth.layers import StochasticBlock

    check_surgery(model)
    check_settings(target_layer_name, stochastic_method, drop_rate, drop_distribution)
    made: list[StochasticBlock] = []

    def replace(module: torch.nn.Module, index: int) -> torch.nn.Module | None:
        del index
        form = form_of(module, target_layer_name)
        if form is None:
            return None
        per_sample = stochastic_method == "sample"
        made.append(recast(module, StochasticBlock, form=form, per_sample=per_sample))
        return made[-1]

    kinds = {type(m) for m in model.modules() if form_of(m, target_layer_name) is not None}
    replace_module_classes(model, dict.fromkeys(kinds, replace))
    for place, block in enumerate(made, start=1):
        share = place / len(made) if drop_distribution == "linear" else 1.0
        block.drop_rate = block.final_drop_rate = share * drop_rate
    if not count_module_instances(model, StochasticBlock):
        warnings.warn(
            f"StochasticDepth found no block with target_layer_name={target_layer_name!r}",
            NoEffectWarning,
            stacklevel=2,
        )


def set_progress(model: torch.nn.Module, progress: float) -> None:
    """Set all rates to a share of their final values.

    Args:
        model: The model.
        progress: The share, from 0 to 1.

    Example:
        >>> from composer.models import composer_resnet_cifar
        >>> model = composer_resnet_cifar("resnet_8")
        >>> apply_stochastic_depth(model, "ResNetBasicBlock", drop_rate=0.3)
        >>> set_progress(model, 0.5)
        >>> [round(block.drop_rate, 2) for block in model.module.blocks]
        [0.05, 0.1, 0.15]
    """
    from composer.algorithms.stochastic_depth.layers import StochasticBlock

    for module in model.modules():
        if isinstance(module, StochasticBlock):
            module.drop_rate = progress * module.final_drop_rate
