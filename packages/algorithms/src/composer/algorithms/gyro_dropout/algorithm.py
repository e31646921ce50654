"""Gyro dropout as a method of training."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._progress import elapsed_share
from composer.algorithms.gyro_dropout.functional import replace_dropouts
from composer.algorithms.gyro_dropout.layers import GyroDropoutLayer, check_settings
from composer.core.algorithm import Algorithm
from composer.core.event import Event

if TYPE_CHECKING:
    import torch

    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["GyroDropout"]

log = logging.getLogger(__name__)

# The layers of a run have seeds that follow one another. Those of the run's next seed begin so far
# off, by a prime, that runs of neighbouring seeds, as in a comparison, have no mask in common.
_APART = 8191


class GyroDropout(Algorithm):
    """Train a fixed number of dropout masks, a few at a time, instead of a new one at every step.

    Over the run, whatever its length is measured in, every mask is in use for an equal share of it:
    ``tau / sigma``. All ranks use the same masks.

    Args:
        p: Probability that a neuron is dropped, the same for all layers; ``None`` for what each
            layer has.
        sigma: Number of masks.
        tau: Number of masks in use at a time.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range.

    Example:
        >>> GyroDropout(p=None, sigma=64, tau=8)
        GyroDropout(p=None, sigma=64, tau=8)
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT, Event.BATCH_START})
    kind: ClassVar[str] = "surgery"
    source: ClassVar[str] = "Park, Lee, Seo, Gyro Dropout, MLSys 2023"
    cost: ClassVar[str] = "tau masks per layer in place of a new one per step"

    def __init__(self, p: float | None = 0.5, sigma: int = 256, tau: int = 16) -> None:
        check_settings(p, sigma, tau)
        self.p = p
        self.sigma = sigma
        self.tau = tau
        self._layers: list[GyroDropoutLayer] = []
        self._model: weakref.ref[torch.nn.Module] | None = None

    @staticmethod
    def required_on_load() -> bool:
        """Whether a checkpoint trained with the method can only be loaded with it.

        Returns:
            True: to go on without it is to go on with another training, though weights and
            evaluation are those of the plain model.

        Example:
            >>> GyroDropout.required_on_load()
            True
        """
        return True

    def match(self, event: Event, state: State) -> bool:
        """Say whether the method acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether the run is set up, or other masks have their turn.

        Example:
            >>> GyroDropout().match(Event.BATCH_END, None)
            False
        """
        if event is Event.BATCH_START:
            layers = self._layers_of(state.model)
            return bool(layers) and self._window_now(state) != layers[0].window
        return event is Event.INIT

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Replace the layers, or let other masks have their turn.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the number of layers, and the number of the window.

        Example:
            >>> GyroDropout().match(Event.INIT, None)
            True
        """
        if event is Event.INIT:
            self._layers = replace_dropouts(state.model, self.p, self.sigma, self.tau)
            self._model = weakref.ref(state.model)
            for index, layer in enumerate(self._layers):
                # All ranks know this seed, and it is not the one that they draw from.
                layer.start_from((state.rank_zero_seed * _APART + index) % 2**31)
            log.info("GyroDropout: %d layers", len(self._layers))
            logger.log_hyperparameters({"gyro_dropout/num_layers": len(self._layers)})
            return
        window = self._window_now(state)
        for layer in self._layers_of(state.model):
            layer.enter_window(window)
        logger.log_metrics({"gyro_dropout/window": window})

    def state_dict(self) -> dict[str, Any]:
        """Return what the masks are made from; which have their turn is told by the clock.

        Returns:
            The seeds of the layers, in the order of the model.

        Example:
            >>> GyroDropout().state_dict()
            {'seeds': []}
        """
        return {"seeds": [layer.seed for layer in self._layers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the masks of a checkpoint.

        Args:
            state: What :meth:`state_dict` returned; one of Composer 0.32, which kept no masks, is
                accepted and changes nothing.

        Example:
            >>> GyroDropout().load_state_dict({"seeds": []})
        """
        for layer, seed in zip(self._layers, state.get("seeds", ()), strict=False):
            layer.start_from(seed)

    def _layers_of(self, model: torch.nn.Module) -> list[GyroDropoutLayer]:
        # Two trainers may have been given this object.
        if self._model is None or self._model() is not model:
            self._layers = [m for m in model.modules() if isinstance(m, GyroDropoutLayer)]
            self._model = weakref.ref(model)
        return self._layers

    def _window_now(self, state: State) -> int:
        # The share of a batch may be a hair below the quotient that it stands for.
        return int((elapsed_share(state) or 0.0) * self.sigma / self.tau + 1e-9)
