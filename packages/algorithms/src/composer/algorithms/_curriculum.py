"""How a curriculum reaches the loader: as a function of the batch, which is read ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from composer.core.time import TimeUnit
from composer.utils.curriculum import CurriculumBatchSampler

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["lead_loader"]


def lead_loader(
    state: State, name: str, value_at: Callable[[float], Any], *, inside_epochs: bool = False
) -> bool:
    """Tell the training loader the values of a curriculum, if it is one that listens.

    Args:
        state: The state of the run, as it begins or goes on.
        name: Name of the curriculum.
        value_at: Its value at a share of the run that is over, from 0 to 1.
        inside_epochs: Whether a run measured in epochs is followed inside an epoch too.

    Returns:
        Whether the loader listens; it is one of ``composer.utils.curriculum.curriculum_loader``.

    Raises:
        ValueError: If the share of the run that is over at a batch cannot be told from its number,
            or the loader is evaluated on too.

    Example:
        >>> from types import SimpleNamespace
        >>> lead_loader(SimpleNamespace(train_dataloader=[]), "image_scale", lambda elapsed: 1.0)
        False
    """
    sampler = getattr(state.train_dataloader, "batch_sampler", None)
    if not isinstance(sampler, CurriculumBatchSampler):
        return False
    loaders = [getattr(e.dataloader, "dataloader", e.dataloader) for e in state.evaluators]
    if any(loader is state.train_dataloader for loader in loaders):
        raise ValueError(
            "the train dataloader follows a curriculum, and eval_dataloader is the same loader; "
            "make a second one for evaluation, over the same data set if you like"
        )
    total, length = state.max_duration, state.dataloader_len
    if total is None or total.unit not in (TimeUnit.BATCH, TimeUnit.EPOCH):
        raise ValueError(
            f"a curriculum that the loader follows needs a run whose length is in batches or "
            f"epochs, and max_duration={total}; use such a length, or a plain DataLoader"
        )
    duration = max(int(total.value), 1)
    if total.unit is TimeUnit.EPOCH and not (inside_epochs and length is not None):
        sampler.schedules[name] = lambda epoch, batch: value_at(epoch / duration)
        return True
    if length is None:
        raise ValueError("a curriculum that the loader follows needs a loader with a length")
    per_epoch = int(length.value)
    if total.unit is TimeUnit.EPOCH:
        sampler.schedules[name] = lambda epoch, batch: value_at(
            (epoch + batch / per_epoch) / duration
        )
        return True
    # An earlier call of fit may have ended inside an epoch.
    now = state.timestamp
    shift = int(now.batch) - int(now.epoch) * per_epoch - int(now.batch_in_epoch)
    sampler.schedules[name] = lambda epoch, batch: value_at(
        (shift + epoch * per_epoch + batch) / duration
    )
    return True
