"""Dropout whose masks come from a fixed number of them, a few of which are in use at a time."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from composer.utils.checks import check_integer, check_number

__all__ = ["GyroDropoutLayer", "check_settings"]

#: Between the seeds of masks and of orders, so that none of them meets another layer's.
_STRIDE = 1_000_003


def check_settings(p: float | None, sigma: int, tau: int) -> None:
    """Refuse settings that cannot be.

    Args:
        p: Probability that a neuron is dropped; ``None`` for the layer's own.
        sigma: Number of masks.
        tau: Number of masks in use at a time.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range.

    Example:
        >>> check_settings(0.5, 256, 16)
    """
    if p is not None:
        check_number("p", p, low=0.0, high=1.0, open_high=True)
    check_integer("sigma", sigma, low=1)
    check_integer("tau", tau, low=1)
    if tau > sigma:
        raise ValueError(f"tau={tau} masks in use at a time must be at most sigma={sigma} in all")


class GyroDropoutLayer(nn.Module):
    """Dropout with ``sigma`` masks, of which ``tau`` are in use at a time.

    Training is cut into windows. In each the batch is divided among ``tau`` masks, as evenly as its
    size allows; over ``sigma / tau`` windows, which is the length of the training, every mask gets
    its turn in an order drawn at random. Masks are functions of ``seed`` and the shape of the
    input, so they need no storage; those in use are kept. In evaluation the layer does nothing.

    A mask covers one sample: all of its neurons, except that inputs of three dimensions are
    sequences of shape (N, length, features), of which all places share one mask over the features.

    Args:
        iters_per_epoch: Number of training forward passes per epoch; ``None`` if the windows are
            set by :meth:`enter_window` from outside.
        max_epoch: Number of epochs; ``None`` likewise.
        p: Probability that a neuron is dropped.
        sigma: Number of masks.
        tau: Number of masks in use at a time.
        seed: What the masks are made from; drawn from torch's generator by default.

    Attributes:
        window: The number of the window.
        step: How many training forward passes there were, by which windows are counted unless they
            are set from outside. Keep it and ``seed`` to go on exactly.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range.

    Example:
        >>> layer = GyroDropoutLayer(10, 2, p=0.5, sigma=4, tau=2)
        >>> len(layer(torch.ones(64, 8)).unique(dim=0)) <= 2
        True
        >>> layer.eval()(torch.ones(1, 3))
        tensor([[1., 1., 1.]])
    """

    #: What a training forward pass moves beside random streams; see ActivationCheckpointing.
    counts_in_forward: ClassVar[tuple[str, ...]] = ("step", "window", "_masks")

    window: int
    step: int

    def __init__(
        self,
        iters_per_epoch: int | None,
        max_epoch: int | None,
        p: float = 0.5,
        sigma: int = 256,
        tau: int = 16,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        check_settings(p, sigma, tau)
        if (iters_per_epoch is None) != (max_epoch is None):
            raise ValueError(
                f"iters_per_epoch={iters_per_epoch!r} and max_epoch={max_epoch!r} belong together: "
                f"give both or neither"
            )
        if iters_per_epoch is not None and max_epoch is not None:
            check_integer("iters_per_epoch", iters_per_epoch, low=1)
            check_integer("max_epoch", max_epoch, low=1)
        self.iters_per_epoch = iters_per_epoch
        self.max_epoch = max_epoch
        self.p = p
        self.sigma = sigma
        self.tau = tau
        self.seed = int(torch.randint(2**31, ())) if seed is None else seed
        self.step = 0
        self.window = 0
        # Of shape (tau, *sample), scaled; made at the first batch of a window.
        self._masks: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop neurons.

        Args:
            x: The input, of shape (N, ...).

        Returns:
            The input with dropped neurons zero and the others divided by ``1 - p``; in evaluation
            the input.
        """
        if not self.training or not self.p:
            return x
        if self.iters_per_epoch is not None and self.max_epoch is not None:
            total = self.iters_per_epoch * self.max_epoch
            window = self.step * self.sigma // (self.tau * total)
            if window != self.window:
                # Not in place: an earlier forward pass may still have to be recomputed.
                self.window, self._masks = window, None
            self.step += 1
        masks, shape = self._masks, _mask_shape(x)
        if masks is None or masks.shape[1:] != shape or masks.dtype != x.dtype:
            masks = self._masks = self._make_masks(shape).to(x)
        elif masks.device != x.device:
            masks = self._masks = masks.to(x.device)
        # Dealt out in turn from a random start: equal parts, and none is left out for ever where
        # the batch is smaller than tau.
        start = torch.randint(self.tau, (1,), device=x.device)
        chosen = masks[(torch.arange(len(x), device=x.device) + start) % self.tau]
        return x * (chosen.unsqueeze(1) if x.ndim == 3 else chosen)

    def enter_window(self, window: int) -> None:
        """Use the masks of a window.

        Args:
            window: Its number.

        Example:
            >>> layer = GyroDropoutLayer(None, None, sigma=4, tau=2)
            >>> layer.enter_window(3)
            >>> layer.window
            3
        """
        if window != self.window:
            self.window = window
            self._renew()

    def start_from(self, seed: int) -> None:
        """Use the masks that another seed gives.

        Args:
            seed: The seed.

        Example:
            >>> layer = GyroDropoutLayer(None, None)
            >>> layer.start_from(3)
            >>> layer.seed
            3
        """
        self.seed = seed
        self._renew()

    def mask_numbers(self, window: int) -> list[int]:
        """Return which masks a window uses.

        Args:
            window: The number of the window.

        Returns:
            ``tau`` different numbers below ``sigma``. A round of windows uses every mask equally
            often, or with a difference of one where ``tau`` does not divide ``sigma``.

        Example:
            >>> layer = GyroDropoutLayer(None, None, sigma=4, tau=2, seed=0)
            >>> sorted(layer.mask_numbers(0) + layer.mask_numbers(1))
            [0, 1, 2, 3]
        """
        in_a_round = -(-self.sigma // self.tau)
        number, place = divmod(window, in_a_round)
        generator = torch.Generator().manual_seed(self.seed * _STRIDE + self.sigma + number)
        order = torch.randperm(self.sigma, generator=generator).tolist()
        return [order[(place * self.tau + i) % self.sigma] for i in range(self.tau)]

    def _renew(self) -> None:
        # In place: a compiled model goes on with the tensor that it knows.
        if self._masks is not None:
            self._masks.copy_(self._make_masks(tuple(self._masks.shape[1:])))

    def _make_masks(self, shape: tuple[int, ...]) -> torch.Tensor:
        """The masks of this window, made on the host so that they are the same on every device."""
        masks = []
        for number in self.mask_numbers(self.window):
            generator = torch.Generator().manual_seed(self.seed * _STRIDE + number)
            masks.append(torch.rand(shape, generator=generator, dtype=torch.float32) >= self.p)
        return torch.stack(masks).float() / (1.0 - self.p)

    def extra_repr(self) -> str:
        """Return what is shown of the layer.

        Returns:
            Its settings.
        """
        return f"p={self.p:g}, sigma={self.sigma}, tau={self.tau}"


def _mask_shape(x: torch.Tensor) -> tuple[int, ...]:
    return tuple(x.shape[-1:] if x.ndim == 3 else x.shape[1:])
