"""A metric is a few sums and a formula over them.

Sums can be added over batches and over ranks in any grouping without changing the result, so a
metric here is exact for unequal batches and unequal ranks by construction. The calls are those of
torchmetrics (``update``, ``compute``, ``reset``, ``forward``, ``to``), whose metrics can be used
beside these; it is not imported here, because that takes seconds where transformers is installed.

The sums are plain attributes and not buffers: as buffers of a model they would be averaged by
weight averaging, overwritten by data-parallel broadcasts and written into the model's weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from composer.utils.checks import check_bool
from composer.utils.dist.collectives import all_reduce
from composer.utils.dist.world import get_world_size

__all__ = ["Metric"]


class Metric(torch.nn.Module, ABC):
    """Base class: name the sums with :meth:`add_state`, add to them, and say what they give.

    Args:
        dist_sync_on_step: Whether the value that calling the metric returns covers the batches of
            all ranks; by default it covers this rank's batch.

    Example:
        >>> class Mean(Metric):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.add_state("total", torch.tensor(0.0))
        ...         self.add_state("count", torch.tensor(0))
        ...     def update(self, values):
        ...         self.total += values.sum()
        ...         self.count += values.numel()
        ...     def result(self, total, count):
        ...         return total / count
        >>> mean = Mean()
        >>> mean.update(torch.tensor([1.0, 2.0, 3.0]))
        >>> mean.update(torch.tensor([6.0]))
        >>> mean.compute()
        tensor(3.)
    """

    #: Kept for code that asks torchmetrics' metrics: calling one needs a single update.
    full_state_update: bool = False

    dist_sync_on_step: bool
    _defaults: dict[str, torch.Tensor]
    _persistent: bool

    def __init__(self, dist_sync_on_step: bool = False) -> None:
        super().__init__()
        check_bool("dist_sync_on_step", dist_sync_on_step)
        self.dist_sync_on_step = dist_sync_on_step
        self._defaults = {}
        self._persistent = False

    def add_state(self, name: str, default: torch.Tensor, dist_reduce_fx: str = "sum") -> None:
        """Declare a sum, which becomes an attribute.

        Args:
            name: The attribute.
            default: Its value before the first update; zero where it was made on the meta device,
                which holds no values.
            dist_reduce_fx: How ranks are combined; only ``"sum"`` is known.

        Raises:
            ValueError: If another combination is asked for, or the name is no identifier.

        Example:
            >>> from composer.metrics import MulticlassAccuracy
            >>> metric = MulticlassAccuracy(2)
            >>> metric.add_state("num_empty", torch.tensor(0))
            >>> metric.num_empty
            tensor(0)
        """
        if dist_reduce_fx != "sum":
            raise ValueError(
                f"dist_reduce_fx={dist_reduce_fx!r} is unknown; a metric here keeps sums only "
                f"('sum'). For others use a metric of torchmetrics"
            )
        if not name.isidentifier():
            raise ValueError(f"name={name!r} must be a valid attribute name")
        if default.is_meta:
            # A model may be built there and get its weights later; nobody would fill a sum.
            default = torch.zeros_like(default, device="cpu")
        self._defaults[name] = default.detach().clone()
        setattr(self, name, default.detach().clone())

    @abstractmethod
    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add a batch to the sums, in place.

        Args:
            *args: What the metric looks at, usually predictions and targets.
            **kwargs: The same, by name.
        """

    @abstractmethod
    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Turn sums into the value.

        Args:
            **totals: The sums by name, already summed over ranks.

        Returns:
            The value.
        """

    def compute(self) -> torch.Tensor:
        """Return the value over all batches of all ranks since the last reset.

        Every rank must call this together. The sums stay as they are.

        Returns:
            The value; NaN where there was nothing to divide by.

        Example:
            >>> from composer.metrics import MulticlassAccuracy
            >>> metric = MulticlassAccuracy(2)
            >>> metric.update(torch.tensor([0, 1]), torch.tensor([1, 1]))
            >>> metric.compute()
            tensor(0.5000)
        """
        return self.result(**self.sum_over_ranks(self.totals()))

    def totals(self) -> dict[str, torch.Tensor]:
        """Return this rank's sums.

        Returns:
            Name to sum.

        Example:
            >>> from composer.metrics import MulticlassAccuracy
            >>> MulticlassAccuracy(2).totals()
            {'correct': tensor(0), 'total': tensor(0)}
        """
        return {name: getattr(self, name) for name in self._defaults}

    def sum_over_ranks(self, totals: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Add up the ranks' sums; override for metrics that combine ranks in another way.

        Args:
            totals: This rank's sums.

        Returns:
            The sums of all ranks, in new tensors if there are several.

        Example:
            >>> from composer.metrics import MulticlassAccuracy
            >>> MulticlassAccuracy(2).sum_over_ranks({"total": torch.tensor(3)})
            {'total': tensor(3)}
        """
        if get_world_size() == 1:
            return totals
        summed = {name: value.clone() for name, value in totals.items()}
        for value in summed.values():
            all_reduce(value, reduce_operation="SUM")
        return summed

    def reset(self) -> None:
        """Forget all batches.

        Example:
            >>> from composer.metrics import MulticlassAccuracy
            >>> metric = MulticlassAccuracy(2)
            >>> metric.update(torch.tensor([1]), torch.tensor([1]))
            >>> metric.reset()
            >>> metric.total
            tensor(0)
        """
        for name, default in self._defaults.items():
            getattr(self, name).copy_(default)

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Add a batch and return the value of this batch alone.

        Args:
            *args: What :meth:`update` takes.
            **kwargs: What :meth:`update` takes.

        Returns:
            The value of the batch.

        Example:
            >>> from composer.metrics import MulticlassAccuracy
            >>> metric = MulticlassAccuracy(2)
            >>> metric(torch.tensor([0]), torch.tensor([0]))
            tensor(1.)
            >>> metric(torch.tensor([0]), torch.tensor([1])), metric.compute()
            (tensor(0.), tensor(0.5000))
        """
        before = {name: total.clone() for name, total in self.totals().items()}
        self.reset()
        try:
            self.update(*args, **kwargs)
            totals = {name: total.clone() for name, total in self.totals().items()}
            summed = self.sum_over_ranks(totals) if self.dist_sync_on_step else totals
            value = self.result(**summed)
        finally:
            for name, total in before.items():
                getattr(self, name).add_(total)
        return value

    @property
    def device(self) -> torch.device:
        """Where the sums are."""
        for name in self._defaults:
            device: torch.device = getattr(self, name).device
            return device
        return torch.device("cpu")

    def persistent(self, mode: bool = False) -> None:
        """Say whether ``state_dict`` holds the sums.

        Args:
            mode: Whether it does. It does not at first, so that a model's weights hold no metrics.

        Example:
            >>> from composer.metrics import MulticlassAccuracy
            >>> metric = MulticlassAccuracy(2)
            >>> metric.persistent(True)
            >>> list(metric.state_dict())
            ['correct', 'total']
        """
        self._persistent = mode

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._persistent:
            for name, total in self.totals().items():
                # A copy: the sums go on in place while a checkpoint is being written.
                destination[prefix + name] = total.clone()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for name, total in self.totals().items():
            saved = state_dict.pop(prefix + name, None)
            if saved is None:
                if self._persistent and strict:
                    missing_keys.append(prefix + name)
            elif saved.shape != total.shape:
                error_msgs.append(
                    f"{prefix}{name} was saved with shape {tuple(saved.shape)}, "
                    f"this metric has {tuple(total.shape)}"
                )
            else:
                total.copy_(saved)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Metric:
        """Follow device moves; keep the dtype, since sums in half precision stop growing."""
        super()._apply(fn, recurse)
        for name, total in self.totals().items():
            device = fn(torch.empty(0, device=total.device)).device
            # The one device without double precision.
            narrow = device.type == "mps" and total.dtype == torch.float64
            dtype = torch.float32 if narrow else total.dtype
            setattr(self, name, total.to(device=device, dtype=dtype))
        return self
