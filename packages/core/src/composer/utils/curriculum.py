"""Values of a curriculum that data sets and collate functions can read while they make a batch.

A size that grows during training saves most where small samples are also cheap to read and decode.
Worker processes read ahead, so the value of a batch must not depend on when it is read: it travels
with the batch's indices and is a function of the batch's number alone, in a resumed run too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from composer.utils.checks import check_bool, check_integer

__all__ = [
    "CurriculumBatchSampler",
    "CurriculumData",
    "curriculum_loader",
    "curriculum_value",
    "release_loader",
]

#: What is read while a batch is made in this process.
_VALUES: dict[str, Any] = {}


def curriculum_value(name: str, default: Any) -> Any:
    """Return the value of a curriculum for the batch that is being made.

    To be called by a data set, a transform or a collate function.

    Args:
        name: Name of the curriculum, such as ``"image_scale"`` or ``"sequence_length"``.
        default: What holds where there is none: in evaluation, or without the method.

    Returns:
        The value.

    Example:
        >>> curriculum_value("image_scale", 1.0)
        1.0
    """
    return _VALUES.get(name, default)


def release_loader(loader: Any, *names: str) -> None:
    """Let a loader make its batches without the values of curricula again.

    Args:
        loader: Any loader; one that follows no curriculum is left alone.
        *names: Which curricula; by default all.

    Example:
        >>> release_loader([1, 2])
    """
    sampler = getattr(loader, "batch_sampler", None)
    if isinstance(sampler, CurriculumBatchSampler):
        for name in names or tuple(sampler.schedules):
            sampler.schedules.pop(name, None)


class _StampedIndices(list[Any]):
    """The indices of a batch with the values that hold for it."""

    def __init__(self, indices: Iterable[Any], values: dict[str, Any]) -> None:
        super().__init__(indices)
        self.values = values

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _StampedIndices, (list(self), self.values)


class CurriculumBatchSampler:
    """Batches of indices that carry the values of curricula along.

    Args:
        batches: Where the batches come from: an iterable of lists of indices with a length.

    Attributes:
        sampler: The sampler of single indices inside ``batches``, if there is one.
        schedules: Name of each curriculum to its value at an epoch and a batch of it.

    Example:
        >>> sampler = CurriculumBatchSampler(BatchSampler(range(4), 2, False))
        >>> sampler.schedules["size"] = lambda epoch, batch: 10 * epoch + batch
        >>> sampler.set_epoch(1)
        >>> [batch.values for batch in sampler]
        [{'size': 10}, {'size': 11}]
    """

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self.sampler = getattr(batches, "sampler", None)
        self.batch_size = getattr(batches, "batch_size", None)
        self.drop_last = getattr(batches, "drop_last", False)
        self.schedules: dict[str, Callable[[int, int], Any]] = {}
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next.

        Args:
            epoch: The epoch, counted from 0.

        Example:
            >>> sampler = CurriculumBatchSampler([[0]])
            >>> sampler.set_epoch(2)
            >>> sampler.epoch
            2
        """
        self.epoch = epoch
        forward = getattr(self._batches, "set_epoch", None)
        if callable(forward):
            forward(epoch)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[_StampedIndices]:
        epoch, schedules = self.epoch, self.schedules
        for number, indices in enumerate(self._batches):
            values = {name: schedule(epoch, number) for name, schedule in schedules.items()}
            yield _StampedIndices(indices, values)


class CurriculumData(Dataset[Any]):
    """A data set whose items are made while the values of their batch can be read.

    Args:
        dataset: The data set.

    Example:
        >>> CurriculumData([4, 5])[1]
        5
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: Any) -> list[Any]:
        _VALUES.clear()
        _VALUES.update(getattr(indices, "values", {}))
        try:
            together = getattr(self.dataset, "__getitems__", None)
            if callable(together):
                return together(list(indices))
            return [self.dataset[index] for index in indices]
        except BaseException:
            _VALUES.clear()
            raise


class _CurriculumCollate:
    """A collate function that can read the values, and after which nobody can."""

    def __init__(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, items: list[Any]) -> Any:
        try:
            return self.collate_fn(items)
        finally:
            _VALUES.clear()


def curriculum_loader(
    dataset: Any,
    batch_size: int = 1,
    shuffle: bool = False,
    sampler: Any = None,
    batch_sampler: Any = None,
    drop_last: bool = False,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    generator: Any = None,
    **kwargs: Any,
) -> DataLoader[Any]:
    """Make a loader whose data set and collate function are told the values of curricula.

    A method such as ``ProgressiveResizing`` or ``SeqLengthWarmup`` finds such a loader and leads
    it. Everything else is as with ``torch.utils.data.DataLoader``, exact resumption included.

    Args:
        dataset: A map-style data set. It, its transforms and ``collate_fn`` read values by
            :func:`curriculum_value`.
        batch_size: Samples per batch.
        shuffle: Whether samples are shuffled anew at each epoch.
        sampler: What decides the order instead.
        batch_sampler: What decides the batches instead.
        drop_last: Whether a smaller last batch is left out.
        collate_fn: Makes a batch of a list of samples; by default torch's.
        generator: Random generator of the loader.
        **kwargs: Further arguments of ``DataLoader``, such as ``num_workers``.

    Returns:
        The loader.

    Raises:
        TypeError: If the data set is no map-style one, or an argument has the wrong type.
        ValueError: If ``batch_size`` is less than 1, or arguments contradict each other, as for
            ``DataLoader``.

    Example:
        >>> import torch
        >>> class Ramps(Dataset):
        ...     def __len__(self):
        ...         return 2
        ...     def __getitem__(self, index):
        ...         return torch.arange(curriculum_value("sequence_length", 6))
        >>> loader = curriculum_loader(Ramps(), batch_size=2)
        >>> next(iter(loader)).shape
        torch.Size([2, 6])
        >>> loader.batch_sampler.schedules["sequence_length"] = lambda epoch, batch: 3
        >>> next(iter(loader)).shape
        torch.Size([2, 3])
    """
    if not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")):
        raise TypeError(
            f"dataset={type(dataset).__name__} must be a map-style data set, with a length and "
            f"items by index: the value of a batch goes with its indices"
        )
    check_integer("batch_size", batch_size, low=1)
    check_bool("shuffle", shuffle)
    check_bool("drop_last", drop_last)
    if collate_fn is not None and not callable(collate_fn):
        raise TypeError(f"collate_fn={collate_fn!r} must be a function of a list of samples")
    for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if value is not None and (isinstance(value, str) or not isinstance(value, Iterable)):
            raise TypeError(f"{name}={value!r} must be a sampler, or another iterable of indices")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator={generator!r} must be a torch.Generator or None")
    if batch_sampler is None:
        if sampler is not None and shuffle:
            raise ValueError("shuffle=True and sampler exclude each other; give one of them")
        if sampler is None:
            sampler = (
                RandomSampler(dataset, generator=generator)
                if shuffle
                else SequentialSampler(dataset)
            )
        batch_sampler = BatchSampler(sampler, batch_size, drop_last)
    elif batch_size != 1 or shuffle or sampler is not None or drop_last:
        raise ValueError(
            "batch_sampler decides the batches; leave batch_size, shuffle, sampler and drop_last "
            "out"
        )
    return DataLoader(
        CurriculumData(dataset),
        batch_sampler=CurriculumBatchSampler(batch_sampler),
        collate_fn=_CurriculumCollate(default_collate if collate_fn is None else collate_fn),
        generator=generator,
        **kwargs,
    )
