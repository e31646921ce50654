"""What stochastic weight averaging does to a model: the mean of weights, statistics that follow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from composer.algorithms._averages import WeightSet
from composer.utils.checks import check_bool, check_choice, check_integer, check_number
from composer.utils.modules import unwrapped_model

__all__ = [
    "STRATEGIES",
    "Settling",
    "WeightMean",
    "annealed",
    "check_rate_settings",
    "has_batch_statistics",
]

#: How the learning rate goes from the run's to the one of averaging.
STRATEGIES = ("linear", "cos")


def check_rate_settings(
    schedule_swa_lr: bool, anneal_strategy: str, anneal_steps: int, swa_lr: float | None
) -> None:
    """Refuse settings of a learning rate that cannot be.

    Args:
        schedule_swa_lr: Whether there is one.
        anneal_strategy: How it is reached.
        anneal_steps: In how many steps.
        swa_lr: The learning rate, if it is not the one at the start.

    Raises:
        TypeError: If one has the wrong type.
        ValueError: If one is out of range.

    Example:
        >>> check_rate_settings(True, "cos", 10, 0.05)
    """
    check_bool("schedule_swa_lr", schedule_swa_lr)
    check_choice("anneal_strategy", anneal_strategy, STRATEGIES)
    check_integer("anneal_steps", anneal_steps, low=1)
    if swa_lr is not None:
        check_number("swa_lr", swa_lr, low=0.0)


def annealed(initial: float, final: float, share: float, strategy: str) -> float:
    """Return a learning rate between two.

    Args:
        initial: The first one.
        final: The last one.
        share: How much of the way is done; more than 1 is 1.
        strategy: ``"linear"`` or ``"cos"``.

    Returns:
        The learning rate.

    Example:
        >>> annealed(1.0, 0.0, 0.25, "linear")
        0.75
    """
    share = min(share, 1.0)
    weight = share if strategy == "linear" else (1.0 - math.cos(math.pi * share)) / 2.0
    return final * weight + initial * (1.0 - weight)


class WeightMean:
    """The arithmetic mean of a model's trainable parameters at several moments.

    It lies on the devices of the parameters. Buffers are no part of it: the mean of batch
    statistics is not what the mean of the weights would see.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> mean = WeightMean()
        >>> for value in (1.0, 2.0, 6.0):
        ...     _ = model.weight.data.fill_(value)
        ...     mean.add(model)
        >>> mean.put_into(model)
        >>> round(model.weight.item(), 5), mean.num_averaged
        (3.0, 3)
    """

    num_averaged: int

    def __init__(self) -> None:
        self.num_averaged = 0
        self._weights = WeightSet(None)

    def add(self, model: torch.nn.Module) -> None:
        """Let the weights of this moment count.

        Args:
            model: The model.

        Raises:
            ValueError: If the model lacks a parameter that was averaged before.

        Example:
            >>> WeightMean().add(torch.nn.Linear(1, 1))
        """
        if self.num_averaged == 0:
            self._weights = WeightSet(model, buffers=False)
        else:
            self._weights.update(model, 1.0 - 1.0 / (self.num_averaged + 1))
        self.num_averaged += 1

    def put_into(self, model: torch.nn.Module) -> None:
        """Copy the mean into a model.

        Args:
            model: The model.

        Raises:
            ValueError: If the model lacks a parameter.

        Example:
            >>> WeightMean().put_into(torch.nn.Linear(1, 1))  # there is nothing yet
        """
        self._weights.transfer_params(model)

    def move_to(self, model: torch.nn.Module) -> None:
        """Move the mean to where the model has its parameters.

        Args:
            model: The model.

        Example:
            >>> WeightMean().move_to(torch.nn.Linear(1, 1))
        """
        self._weights.move_params_to_device(model)

    def forget(self) -> None:
        """Let go of the weights, which are in the model now; the number of them stays.

        Example:
            >>> WeightMean().forget()
        """
        self._weights = WeightSet(None)

    def state_dict(self) -> dict[str, Any]:
        """Return the mean and of how many weights it is.

        Returns:
            ``num_averaged`` and ``averaged_weights``, parameter by name.

        Example:
            >>> WeightMean().state_dict()
            {'num_averaged': 0, 'averaged_weights': {}}
        """
        weights = dict(self._weights.named_parameters())
        return {"num_averaged": self.num_averaged, "averaged_weights": weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a mean.

        Args:
            state: What :meth:`state_dict` returned.

        Example:
            >>> WeightMean().load_state_dict(WeightMean().state_dict())
        """
        self.num_averaged = int(state["num_averaged"])
        self._weights = WeightSet(None)
        self._weights.load_state_dict(
            {"named_parameters_dict": state["averaged_weights"], "named_buffers_dict": {}}
        )


class Settling:
    """Lets batch statistics become those of other weights, in a few batches of training.

    The next batch replaces what they were, and the following ones average with it, until as many
    have been seen as the layer's momentum looks back on; then the layer is as it was.

    Args:
        momenta: What an earlier one had, to go on from: name of a layer that settles to its own
            momentum.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(1, momentum=0.5))
        >>> settling = Settling()
        >>> settling.begin(model)
        >>> for value in (1.0, 3.0):
        ...     _ = model(torch.full((2, 1), value))
        ...     settling.step()
        >>> model[0].running_mean.item(), model[0].momentum
        (2.0, 0.5)
    """

    #: Name of a layer that settles -> its own momentum.
    momenta: dict[str, float]
    # The layers themselves: no walk over the model at every step.
    _layers: dict[str, Any]

    def __init__(self, momenta: Mapping[str, float] | None = None) -> None:
        self.momenta = dict(momenta or {})
        self._layers = {}

    def begin(self, model: torch.nn.Module) -> None:
        """Let statistics settle from now on.

        Args:
            model: The model, in training mode; layers that are not are left alone.

        Example:
            >>> Settling().begin(torch.nn.BatchNorm1d(1))
        """
        self.end()
        for name, layer in _layers_with_statistics(model):
            if not layer.training:
                continue
            # Values stay until there are better ones: an evaluation may come first.
            layer.num_batches_tracked.zero_()
            if layer.momentum is not None:
                self.momenta[name] = layer.momentum
        self.resume(model)

    def resume(self, model: torch.nn.Module) -> None:
        """Go on in a model that was loaded.

        Args:
            model: The model.

        Example:
            >>> layer = torch.nn.BatchNorm1d(1)
            >>> Settling({"": 0.1}).resume(layer)
            >>> layer.momentum is None
            True
        """
        if not self.momenta:
            return
        self._layers = {n: m for n, m in _layers_with_statistics(model) if n in self.momenta}
        for layer in self._layers.values():
            layer.momentum = None

    def step(self) -> None:
        """Give layers that have seen enough batches their momentum back.

        While there are such layers, the device is waited for, once for all of them: how many
        batches they have seen is counted there, parts of batches and repeated passes included.

        Example:
            >>> Settling().step()
        """
        if not self._layers:
            return
        counters = [layer.num_batches_tracked for layer in self._layers.values()]
        # Parts of one model may lie on several devices.
        where = counters[0].device
        seen: list[int] = torch.stack([counter.to(where) for counter in counters]).tolist()
        for name, count in zip(list(self._layers), seen, strict=True):
            if self.momenta[name] * count >= 1.0:
                self._restore(name)

    def end(self) -> None:
        """Give all layers their momentum back.

        Example:
            >>> layer = torch.nn.BatchNorm1d(1)
            >>> settling = Settling()
            >>> settling.begin(layer)
            >>> settling.end()
            >>> layer.momentum
            0.1
        """
        for name in list(self._layers):
            self._restore(name)
        self.momenta.clear()

    def _restore(self, name: str) -> None:
        self._layers.pop(name).momentum = self.momenta.pop(name)


def has_batch_statistics(model: torch.nn.Module) -> bool:
    """Say whether a model has layers that keep statistics of batches.

    Args:
        model: The model.

    Returns:
        Whether it has.

    Example:
        >>> has_batch_statistics(torch.nn.BatchNorm1d(1)), has_batch_statistics(torch.nn.ReLU())
        (True, False)
    """
    return any(True for _ in _layers_with_statistics(model))


def _layers_with_statistics(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for name, module in unwrapped_model(model).named_modules():
        buffers = (module._buffers.get(key) for key in ("running_mean", "num_batches_tracked"))
        if hasattr(module, "momentum") and all(buffer is not None for buffer in buffers):
            yield name.replace("_orig_mod.", ""), module
