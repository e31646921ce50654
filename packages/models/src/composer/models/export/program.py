"""What is exported: a module and the example inputs it is called with, on the host, in evaluation.

A model of this library takes batches with targets in them; elsewhere it is called with inputs.
Which these are the model says (``ComposerModel.for_inference``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from composer.core.model import ComposerModel
from composer.utils.iteration import map_collection
from composer.utils.modules import is_model_ddp, is_model_fsdp, is_model_fsdp2

__all__ = ["Program", "as_program", "tensors_in"]


def tensors_in(data: Any) -> list[torch.Tensor]:
    """List the tensors of inputs or outputs, in order.

    Args:
        data: Tensors in containers of any kind that torch's exporters know.

    Returns:
        The tensors.

    Example:
        >>> tensors_in({"a": [torch.ones(1)], "b": "word"})
        [tensor([1.])]
    """
    return [leaf for leaf in pytree.tree_leaves(data) if isinstance(leaf, torch.Tensor)]


@dataclass(frozen=True)
class Program:
    """A module to export, and an example of what it is called with.

    Attributes:
        module: The module, a copy on the host in evaluation mode.
        args: Its positional arguments.
        kwargs: Its named arguments.

    Example:
        >>> program = Program(torch.nn.Linear(2, 1), (torch.zeros(3, 2),), {})
        >>> program.batch_size, program.run()[0].shape
        (3, torch.Size([3, 1]))
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def inputs(self) -> list[torch.Tensor]:
        """The example's tensors, in the order in which the module takes them."""
        return tensors_in((self.args, self.kwargs))

    @property
    def batch_size(self) -> int | None:
        """The length of the first dimension of all inputs, if they agree."""
        sizes = {len(tensor) if tensor.ndim else -1 for tensor in self.inputs}
        return sizes.pop() if len(sizes) == 1 and -1 not in sizes else None

    def with_inputs(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Program:
        """Return the program with other inputs.

        Args:
            change: Makes a new input out of each.

        Returns:
            The program.
        """
        args, kwargs = pytree.tree_map_only(torch.Tensor, change, (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)

    @torch.no_grad()
    def run(self) -> list[torch.Tensor]:
        """Call the module with the example.

        Returns:
            The tensors of its outputs.
        """
        return tensors_in(self.module(*self.args, **self.kwargs))


def as_program(
    model: torch.nn.Module,
    sample_input: Any,
    *,
    prepare: Callable[[torch.nn.Module], torch.nn.Module] | None = None,
) -> Program:
    """Copy a model to the host, and read from a sample what it is called with.

    Args:
        model: The model; it is left as it is.
        sample_input: For a :class:`ComposerModel` a batch; for another module a tuple of its
            positional arguments, whose last member may be a dictionary of its named ones, or one
            argument. A batch may be written as ``(batch, {})`` as well.
        prepare: What is done to the copy.

    Returns:
        The program.

    Raises:
        TypeError: If an argument is of the wrong kind, or ``prepare`` returns no module.
        ValueError: If the model is wrapped for several ranks, or the sample is no batch of the
            model's or holds no tensor.

    Example:
        >>> as_program(torch.nn.Linear(2, 1), (torch.zeros(3, 2), {})).kwargs
        {}
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model={model!r} must be a torch.nn.Module")
    if is_model_ddp(model) or is_model_fsdp(model) or is_model_fsdp2(model):
        raise ValueError(
            "a model that is wrapped for several ranks cannot be exported; save a checkpoint and "
            "export from it"
        )
    if sample_input is None:
        raise TypeError(f"sample_input=None must be {_wanted(model)}")
    if prepare is not None and not callable(prepare):
        raise TypeError(f"prepare={prepare!r} must be a function that takes and returns a model")
    twin = copy.deepcopy(model).to("cpu").eval()
    if prepare is not None:
        prepared = prepare(twin)
        if not isinstance(prepared, torch.nn.Module):
            raise TypeError(
                f"prepare={getattr(prepare, '__name__', prepare)} returned {prepared!r}; it must "
                f"return the model that it changed"
            )
        twin = prepared.eval()
    sample = map_collection(sample_input, _to_host)
    if isinstance(twin, ComposerModel):
        if isinstance(sample, tuple) and len(sample) == 2 and sample[1] == {}:
            sample = sample[0]
        try:
            module, args, kwargs = twin.for_inference(sample)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"sample_input of type {type(sample_input).__name__} is no batch that a "
                f"{type(twin).__name__} takes: {error}"
            ) from error
    else:
        module, (args, kwargs) = twin, _arguments(sample)
    program = Program(module.eval(), args, kwargs)
    if not program.inputs:
        raise ValueError(
            f"sample_input of type {type(sample_input).__name__} holds no tensor to call the model "
            f"with; give {_wanted(model)}"
        )
    return program


def _wanted(model: torch.nn.Module) -> str:
    if isinstance(model, ComposerModel):
        return "a batch of the model's"
    return "a tuple of the module's arguments"


def _to_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _arguments(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not isinstance(sample, tuple):
        return (sample,), {}
    if sample and isinstance(sample[-1], Mapping):
        return sample[:-1], dict(sample[-1])
    return sample, {}
