"""How to read a loader's batches: how many samples and tokens they hold and how to split them.

The trainer never guesses about a batch; it asks the loader's ``DataSpec``. The defaults understand
tensors, tuples and lists of them, and mappings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data.distributed import DistributedSampler

from composer.core.types import Batch
from composer.utils import dist

__all__ = ["DataSpec", "default_split_batch", "ensure_data_spec"]

_PLAIN = (str, bytes, int, float, bool, type(None))


def _split_list(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [values[i : i + size] for i in range(0, len(values), size)]


def _split_piece(piece: Any, size: int, count: int) -> Sequence[Any]:
    """Split one member of a batch into ``count`` pieces; plain values are repeated."""
    if isinstance(piece, torch.Tensor):
        return piece.split(size) if piece.dim() else [piece] * count
    if isinstance(piece, Mapping):
        return _split_mapping(piece, size, count)
    if isinstance(piece, _PLAIN):
        return [piece] * count
    if isinstance(piece, (list, tuple)):
        return _split_list(piece, size)
    raise TypeError(
        f"a batch member of type {type(piece).__name__} cannot be split; pass `split_batch` to "
        f"DataSpec, or set `device_train_microbatch_size` to the batch size"
    )


def _split_mapping(batch: Mapping[Any, Any], size: int, count: int) -> list[Any]:
    columns = {key: _split_piece(value, size, count) for key, value in batch.items()}
    for key, pieces in columns.items():
        if len(pieces) != count:
            raise ValueError(
                f"batch member {key!r} splits into {len(pieces)} pieces of {size}, not {count}: "
                f"its length differs from the batch's number of samples"
            )
    # The mapping's own type is kept: a model may rely on its methods.
    rows = [{key: pieces[i] for key, pieces in columns.items()} for i in range(count)]
    return rows if type(batch) is dict else [_like(batch, row) for row in rows]


def _like(original: Mapping[Any, Any], row: dict[Any, Any]) -> Any:
    try:
        return type(original)(row)  # type: ignore[call-arg]
    except TypeError:
        return row


def default_split_batch(batch: Batch, microbatch_size: int | float) -> Sequence[Batch]:
    """Split a batch along its samples.

    Args:
        batch: A tensor, a tuple or list of tensors or lists (split in parallel), a mapping (split
            key by key; plain values are repeated), or a list of plain values.
        microbatch_size: Samples per piece; the last piece may be smaller.

    Returns:
        The pieces; the batch itself, unchanged, if it is not larger than one piece.

    Raises:
        TypeError: If the batch holds something that cannot be split.
        ValueError: If its members disagree about the number of samples.

    Example:
        >>> [tuple(x.shape) for x, y in default_split_batch((torch.zeros(5, 2), torch.zeros(5)), 2)]
        [(2, 2), (2, 2), (1, 2)]
    """
    size = int(microbatch_size)
    if size < 1 or size != microbatch_size:
        raise ValueError(f"microbatch_size must be a positive whole number, not {microbatch_size}")
    samples = default_num_samples(batch)
    if samples <= size:
        return [batch]
    count = math.ceil(samples / size)
    if isinstance(batch, torch.Tensor):
        return batch.split(size)
    if isinstance(batch, Mapping):
        return _split_mapping(batch, size, count)
    if isinstance(batch, list) and all(isinstance(x, _PLAIN) for x in batch):
        return _split_list(batch, size)
    columns = [_split_piece(piece, size, count) for piece in batch]
    if isinstance(batch, tuple):
        if type(batch) is tuple:
            return list(zip(*columns, strict=True))
        return [type(batch)(*row) for row in zip(*columns, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def default_num_samples(batch: Batch) -> int:
    """Count the samples of a batch: the first dimension, which all members must share.

    Args:
        batch: As for :func:`default_split_batch`.

    Returns:
        The number of samples.

    Raises:
        ValueError: If the members disagree, or nothing in the batch can be counted.

    Example:
        >>> default_num_samples({"x": torch.zeros(4, 2), "task": "test"})
        4
    """
    if type(batch) is tuple or type(batch) is list:
        # The common case, a pair of tensors, without building sets.
        if batch and isinstance(batch[0], torch.Tensor) and batch[0].dim():
            first = batch[0].size(0)  # `len` runs Python code of torch's
            for other in batch[1:]:
                if not (isinstance(other, torch.Tensor) and other.dim() and other.size(0) == first):
                    break
            else:
                return first
        if type(batch) is list and batch and all(isinstance(x, _PLAIN) for x in batch):
            return len(batch)
    sizes: dict[str, int] = {}
    _collect_sizes(batch, "batch", sizes)
    if not sizes:
        raise ValueError(
            f"cannot count the samples of a batch of type {type(batch).__name__}; pass "
            f"`get_num_samples_in_batch` to DataSpec"
        )
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"the members of the batch disagree about its number of samples: {sizes}; make them "
            f"agree or pass `get_num_samples_in_batch` to DataSpec"
        )
    return next(iter(sizes.values()))


def _collect_sizes(piece: Any, path: str, sizes: dict[str, int]) -> None:
    if isinstance(piece, torch.Tensor):
        if piece.dim():
            sizes[path] = len(piece)
    elif isinstance(piece, Mapping):
        for key, value in piece.items():
            if isinstance(value, (list, tuple)):
                sizes[f"{path}[{key!r}]"] = len(value)
            else:
                _collect_sizes(value, f"{path}[{key!r}]", sizes)
    elif isinstance(piece, (list, tuple)):
        for i, value in enumerate(piece):
            if isinstance(value, (list, tuple)):
                sizes[f"{path}[{i}]"] = len(value)
            else:
                _collect_sizes(value, f"{path}[{i}]", sizes)


class DataSpec:
    """A loader together with how to read its batches.

    Args:
        dataloader: Any iterable that yields this rank's batches.
        num_samples: Samples of one epoch over all ranks; gives an unsized loader with a
            ``batch_size`` a length. By default the length of the loader's dataset, if it has one.
        num_tokens: Tokens of one epoch over all ranks.
        batch_transforms: Applied to a whole batch on the host.
        microbatch_transforms: Applied to a microbatch after its move to the device.
        split_batch: ``(batch, size) -> sequence of batches``.
        get_num_samples_in_batch: ``batch -> number of samples``.
        get_num_tokens_in_batch: ``batch -> tokens``, as an int or as a mapping with the keys
            ``total`` and ``loss_generating``.

    Raises:
        TypeError: If ``dataloader`` cannot be iterated.
        ValueError: On more than one rank, if the loader's dataset is map-style and its sampler
            does not split it over the ranks.

    Example:
        >>> spec = DataSpec([torch.zeros(4, 2)])
        >>> spec.get_num_samples_in_batch(torch.zeros(4, 2))
        4
    """

    dataloader: Iterable[Batch]
    num_samples: int | None
    num_tokens: int | None
    batch_transforms: Callable[[Batch], Batch] | None
    microbatch_transforms: Callable[[Batch], Batch] | None
    split_batch: Callable[[Batch, int | float], Sequence[Batch]]
    get_num_samples_in_batch: Callable[[Batch], int | float]

    def __init__(
        self,
        dataloader: Iterable[Batch] | DataLoader[Any],
        num_samples: int | None = None,
        num_tokens: int | None = None,
        batch_transforms: Callable[[Batch], Batch] | None = None,
        microbatch_transforms: Callable[[Batch], Batch] | None = None,
        split_batch: Callable[[Batch, int | float], Sequence[Batch]] | None = None,
        get_num_samples_in_batch: Callable[[Batch], int | float] | None = None,
        get_num_tokens_in_batch: Callable[[Batch], int | dict[str, int]] | None = None,
    ) -> None:
        if isinstance(dataloader, TorchDataset) and not isinstance(dataloader, IterableDataset):
            raise TypeError(
                f"a {type(dataloader).__name__} is a dataset of samples and not a loader of "
                f"batches; wrap it: torch.utils.data.DataLoader(dataset, batch_size=...)"
            )
        if not isinstance(dataloader, Iterable) and not callable(
            getattr(dataloader, "__getitem__", None)
        ):
            raise TypeError(
                f"dataloader must be an iterable of batches, a DataSpec, or a dict of DataSpec "
                f"arguments, not {dataloader!r} of type {type(dataloader).__name__}"
            )
        self.dataloader = dataloader
        self.batch_transforms = batch_transforms
        self.microbatch_transforms = microbatch_transforms
        self.split_batch = split_batch or default_split_batch
        self.get_num_samples_in_batch = get_num_samples_in_batch or default_num_samples
        self._count_tokens = get_num_tokens_in_batch
        dataset = getattr(dataloader, "dataset", None)
        self._max_seq_len: int | None = getattr(dataset, "max_seq_len", None)
        if num_samples is None and dataset is not None:
            try:
                num_samples = len(dataset)
            except (TypeError, NotImplementedError):
                num_samples = None
        self.num_samples = num_samples
        self.num_tokens = num_tokens
        self._refuse_unsplit_dataset()

    def _refuse_unsplit_dataset(self) -> None:
        loader = self.dataloader
        if not isinstance(loader, DataLoader) or dist.get_world_size() == 1:
            return
        if isinstance(loader.dataset, IterableDataset):
            return
        if type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
            return  # a batch sampler of the user's own; it may split the data itself
        # A loader that was given a batch sampler shows another sampler, which it does not use.
        if isinstance(loader.batch_sampler.sampler, DistributedSampler):
            return
        raise ValueError(
            f"on {dist.get_world_size()} ranks each rank must see its own part of the data, but "
            f"the loader's sampler is a {type(loader.batch_sampler.sampler).__name__}; pass "
            f"`sampler=composer.utils.dist.get_sampler(dataset, shuffle=...)` to the DataLoader"
        )

    @property
    def num_batches(self) -> int | None:
        """Batches of one epoch on this rank, or ``None`` if the loader cannot tell."""
        try:
            return len(self.dataloader)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            pass
        batch_size = getattr(self.dataloader, "batch_size", None)
        if self.num_samples is None or not isinstance(batch_size, int):
            return None
        return math.ceil(self.num_samples / (batch_size * dist.get_world_size()))

    def get_num_tokens_in_batch(self, batch: Batch, token_type: str = "total") -> int:
        """Count the tokens of a batch.

        Args:
            batch: The batch.
            token_type: ``"total"``, or ``"loss_generating"`` for those that carry loss.

        Returns:
            The count; by default the size of ``input_ids``, else the dataset's ``max_seq_len``
            times the samples, else 0. Where labels mark tokens to ignore with -100, the
            loss-generating ones are those that are not marked.

        Raises:
            ValueError: If ``token_type`` is neither.

        Example:
            >>> DataSpec([]).get_num_tokens_in_batch({"input_ids": torch.zeros(2, 8)})
            16
        """
        if token_type not in ("total", "loss_generating"):
            raise ValueError(f"token_type must be 'total' or 'loss_generating', not {token_type!r}")
        if self._count_tokens is not None:
            count = self._count_tokens(batch)
            if isinstance(count, Mapping):
                if token_type not in count:
                    raise ValueError(
                        f"get_num_tokens_in_batch returned {dict(count)}, without {token_type!r}"
                    )
                return count[token_type]
            return count
        if type(batch) is tuple and self._max_seq_len is None:
            return 0  # the usual pair of inputs and targets, asked for at every batch
        if isinstance(batch, Mapping) and isinstance(batch.get("input_ids"), torch.Tensor):
            labels = batch.get("labels")
            if token_type == "loss_generating" and isinstance(labels, torch.Tensor):
                return int((labels != -100).sum())
            return batch["input_ids"].numel()
        if self._max_seq_len is not None:
            return int(self._max_seq_len * self.get_num_samples_in_batch(batch))
        return 0


def ensure_data_spec(dataloader: DataSpec | Iterable[Batch] | dict[str, Any]) -> DataSpec:
    """Turn what a user gave into a ``DataSpec``.

    Args:
        dataloader: A ``DataSpec`` (returned as it is), a dictionary of its arguments, or any
            iterable of batches.

    Returns:
        The spec.

    Raises:
        TypeError: If it is none of these.

    Example:
        >>> ensure_data_spec([torch.zeros(2)]).num_batches
        1
    """
    if isinstance(dataloader, DataSpec):
        return dataloader
    if isinstance(dataloader, dict):
        return DataSpec(**dataloader)
    return DataSpec(dataloader)
