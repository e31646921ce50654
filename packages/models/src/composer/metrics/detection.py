"""Mean average precision of object detectors, as the COCO benchmark defines it.

The reckoning is that of torchmetrics over pycocotools; this puts it behind the names and numbers
that a trainer reports.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from composer.utils import dist
from composer.utils.checks import check_bool
from composer.utils.imports import MissingConditionalImportError
from composer.utils.iteration import map_collection

__all__ = ["MAP"]


class MAP(torch.nn.Module):
    """Mean average precision and recall, over thresholds, sizes and numbers of detections.

    Needs the extra ``detection``. A value of -1 says that there was nothing to judge, as in the
    COCO benchmark.

    Args:
        class_metrics: Whether each class is reported as well.
        dist_sync_on_step: Whether calling the metric covers the batches of all ranks.
        process_group: The ranks that are combined; all by default.
        dist_sync_fn: Another way to gather the ranks' states.

    Raises:
        MissingConditionalImportError: If torchmetrics or pycocotools is not installed.

    Example:
        >>> metric = MAP()
        >>> box = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
        >>> found = {"boxes": box, "scores": torch.tensor([0.9]), "labels": torch.tensor([1])}
        >>> metric.update([found], [{"boxes": box, "labels": torch.tensor([1])}])
        >>> round(float(metric.compute()["map"]), 4)
        1.0
    """

    #: Kept for code that asks torchmetrics' metrics: calling one needs a single update.
    full_state_update: bool = False

    def __init__(
        self,
        class_metrics: bool = False,
        dist_sync_on_step: bool = False,
        process_group: Any | None = None,
        dist_sync_fn: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        check_bool("class_metrics", class_metrics)
        check_bool("dist_sync_on_step", dist_sync_on_step)
        try:
            import pycocotools  # noqa: F401 - torchmetrics looks for it later, in other words
            from torchmetrics.detection import MeanAveragePrecision
        except ImportError as error:
            raise MissingConditionalImportError(
                "detection", error.name or "torchmetrics", distribution="composer-models"
            ) from error
        self.class_metrics = class_metrics
        self._gathers_itself = process_group is None and dist_sync_fn is None
        # It reads its thresholds off tensors, which have no data where a model is built without.
        with torch.device("cpu"):
            self._metric = MeanAveragePrecision(
                class_metrics=class_metrics,
                dist_sync_on_step=dist_sync_on_step,
                process_group=process_group,
                dist_sync_fn=dist_sync_fn,
                # It would exchange list by list, which takes ranks with equally many images.
                sync_on_compute=not self._gathers_itself,
            )

    def update(
        self,
        preds: Sequence[Mapping[str, torch.Tensor]],
        target: Sequence[Mapping[str, torch.Tensor]],
    ) -> None:
        """Add a batch.

        Args:
            preds: Per image ``boxes`` of shape (n, 4) as corners in pixels, ``scores`` of shape
                (n,) and ``labels`` of shape (n,).
            target: Per image ``boxes`` and ``labels``.

        Raises:
            ValueError: If the lists differ in length, or a part is missing.

        Example:
            >>> metric = MAP()
            >>> nothing = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.long)}
            >>> metric.update([{**nothing, "scores": torch.zeros(0)}], [nothing])
        """
        self._metric.update([dict(one) for one in preds], [dict(one) for one in target])

    def compute(self) -> dict[str, torch.Tensor]:
        """Return the values over all batches of all ranks since the last reset.

        Returns:
            ``map``, ``map_50``, ``map_75``, by size ``map_small`` and so on, and the same for
            recall; with ``class_metrics`` also ``map_per_class/<label>`` and
            ``mar_100_per_class/<label>``.

        Example:
            >>> metric = MAP()
            >>> box = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
            >>> label = torch.tensor([1])
            >>> found = {"boxes": box + 100, "scores": torch.tensor([0.9]), "labels": label}
            >>> metric.update([found], [{"boxes": box, "labels": label}])
            >>> round(float(metric.compute()["map"]), 4)
            0.0
        """
        values = dict(self._of_all_ranks().compute())
        classes = values.pop("classes").reshape(-1).tolist()
        for name in ("map_per_class", "mar_100_per_class"):
            per_class = values.pop(name)
            if self.class_metrics:
                for label, value in zip(classes, per_class.reshape(-1), strict=True):
                    values[f"{name}/{label}"] = value
        return values

    def _of_all_ranks(self) -> Any:
        """The metric with what every rank has seen; this rank's own stays as it is."""
        if not self._gathers_itself or dist.get_world_size() == 1:
            return self._metric
        names = list(self._metric._defaults)
        own = {name: map_collection(getattr(self._metric, name), _on_host) for name in names}
        merged = copy.deepcopy(self._metric)
        merged.reset()
        for seen in dist.all_gather_object(own):
            for name in names:
                getattr(merged, name).extend(seen[name])
        # Without an update of its own it would warn that there is nothing to compute.
        merged._update_count = max(1, self._metric._update_count)
        return merged

    def forward(self, preds: Any, target: Any) -> dict[str, torch.Tensor]:
        """Add a batch and return the values of this batch alone.

        Args:
            preds: What :meth:`update` takes.
            target: What :meth:`update` takes.

        Returns:
            The values of the batch, by the names of torchmetrics.

        Example:
            >>> box, label = torch.tensor([[0.0, 0.0, 10.0, 10.0]]), torch.tensor([0])
            >>> found = {"boxes": box, "scores": torch.tensor([0.5]), "labels": label}
            >>> round(float(MAP()([found], [{"boxes": box, "labels": label}])["map_50"]), 4)
            1.0
        """
        return dict(self._metric([dict(one) for one in preds], [dict(one) for one in target]))

    def reset(self) -> None:
        """Forget all batches.

        Example:
            >>> MAP().reset()
        """
        self._metric.reset()

    def persistent(self, mode: bool = False) -> None:
        """Say whether ``state_dict`` holds what was added.

        Args:
            mode: Whether it does.

        Example:
            >>> metric = MAP()
            >>> metric.persistent(True)
            >>> len(metric.state_dict()) > 0
            True
        """
        self._metric.persistent(mode)


def _on_host(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value
