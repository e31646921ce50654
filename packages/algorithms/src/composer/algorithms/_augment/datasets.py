"""Put a transform of images into the data that a run trains on, and into no other.

The data set that a user gave may be evaluated on too, by this trainer, another one or a loop of
the user's own, so it is left as it is. What the training loader reads is a shallow copy: the
containers from the loader down to the data set with the ``transform``, each without its items.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from torch.utils.data import ChainDataset, ConcatDataset, DataLoader, Subset

from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.curriculum import CurriculumData
from composer.utils.vision import add_vision_dataset_transform

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["TransformAlgorithm", "insert_image_transform"]


class TransformAlgorithm(Algorithm, ABC):
    """A method that puts a transform of single images into the training data.

    When training starts, the training loader is given a copy of its data set that applies the
    transform to each image before it becomes a tensor. The data set itself is left as it is.

    Example:
        >>> class Negative(TransformAlgorithm):
        ...     def transform(self):
        ...         return abs
        >>> Negative().match(Event.FIT_START, None)
        True
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.FIT_START})
    kind: ClassVar[str] = "data"

    @abstractmethod
    def transform(self) -> Any:
        """Return the transform of one image.

        Returns:
            A function, which shows its arguments: one that is in the data is not put in again.

        Example:
            >>> from composer.algorithms import RandAugment
            >>> RandAugment(depth=1).transform()
            RandAugmentTransform(severity=9, depth=1, augmentation_set='all')
        """

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Put the transform into the training data.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Raises:
            TypeError: If nothing in the training loader takes a transform.
            ValueError: If the training loader is evaluated on too, or augments otherwise already.

        Example:
            >>> from types import SimpleNamespace
            >>> from torch.utils.data import DataLoader
            >>> from composer.algorithms import RandAugment
            >>> class Images(list):
            ...     transform = None
            >>> state = SimpleNamespace(train_dataloader=DataLoader(Images([1])), evaluators=[])
            >>> RandAugment().apply(Event.FIT_START, state, None)
            >>> type(state.train_dataloader.dataset.transform).__name__
            'RandAugmentTransform'
        """
        del event, logger
        insert_image_transform(state, type(self).__name__, self.transform())


def insert_image_transform(state: State, owner: str, transform: Any) -> None:
    """Let the training loader read a copy of its data set that applies a transform too.

    The transform goes before the first one that makes tensors. One that was put in before, by an
    earlier call of ``fit`` or another trainer, is not put in again. Worker processes that a loader
    keeps are let go of, since they hold the old data set.

    Args:
        state: The state of the run.
        owner: The method that asks.
        transform: The transform of one image.

    Raises:
        TypeError: If nothing in the loader takes a transform.
        ValueError: If the loader is evaluated on too, or has such a transform of other settings.

    Example:
        >>> from types import SimpleNamespace
        >>> class Faces(list):
        ...     transform = None
        >>> loader = DataLoader(Faces([1, 2]))
        >>> state = SimpleNamespace(train_dataloader=loader, evaluators=[])
        >>> insert_image_transform(state, "Negative", abs)
        >>> loader.dataset.transform
        <built-in function abs>
    """
    loader: Any = state.train_dataloader
    if not isinstance(loader, DataLoader):
        raise TypeError(_refusal(owner, f"the train dataloader is a {type(loader).__name__}"))
    loaders = [getattr(e.dataloader, "dataloader", e.dataloader) for e in state.evaluators]
    if any(other is loader for other in loaders):
        raise ValueError(
            f"{owner} changes the images that the train dataloader gives, and eval_dataloader is "
            f"the same loader; make a second DataLoader for evaluation (over the same data set, if "
            f"you like, which stays as it is)"
        )
    dataset = _with_transform(loader.dataset, owner, transform, {})
    if dataset is loader.dataset:
        return
    # Setting this attribute of a loader is refused, lest its sampler fit no more: a copy's does.
    vars(loader)["dataset"] = dataset
    if vars(loader).get("_iterator") is not None:
        vars(loader)["_iterator"] = None


def _with_transform(dataset: Any, owner: str, transform: Any, done: dict[int, Any]) -> Any:
    """Return a data set that applies the transform: the same one, if it does so already."""
    if id(dataset) in done:
        return done[id(dataset)]
    # What a data set passes on from one inside it could be set, but nothing would come of it.
    own = getattr(dataset, "__dict__", {})
    if "transform" in own or hasattr(type(dataset), "transform"):
        made = _transformed(dataset, owner, transform)
    elif isinstance(dataset, (Subset, CurriculumData)):
        inner = _with_transform(dataset.dataset, owner, transform, done)
        made = dataset if inner is dataset.dataset else _copied(dataset, dataset=inner)
    elif isinstance(dataset, (ConcatDataset, ChainDataset)):
        parts = list(dataset.datasets)
        new = [_with_transform(part, owner, transform, done) for part in parts]
        same = all(a is b for a, b in zip(parts, new, strict=True))
        made = dataset if same else _copied(dataset, datasets=new)
    else:
        name = type(dataset).__name__
        raise TypeError(_refusal(owner, f"the data set {name} has no `transform` of its own"))
    done[id(dataset)] = made
    return made


def _transformed(dataset: Any, owner: str, transform: Any) -> Any:
    current = dataset.transform
    if current is not None and not callable(current):
        kind = type(current).__name__
        name = type(dataset).__name__
        raise TypeError(_refusal(owner, f"`transform` of the data set {name} is a {kind}"))
    for step in _steps(current):
        if type(step) is type(transform):
            if repr(step) != repr(transform):
                raise ValueError(
                    f"the data set {type(dataset).__name__} applies {step!r} already, but {owner} "
                    f"would put in {transform!r}; give the settings once, or make a new DataLoader "
                    f"for this run if another one left the first there"
                )
            return dataset
    made = _copied(dataset)
    try:
        add_vision_dataset_transform(made, transform)
    except AttributeError as error:  # a property, or slots
        name = type(dataset).__name__
        raise TypeError(_refusal(owner, f"`transform` of {name} cannot be set")) from error
    return made


def _steps(transform: Any) -> Iterable[Any]:
    """All transforms in lists of transforms, whatever their class."""
    inner = getattr(transform, "transforms", None)
    if not isinstance(inner, (list, tuple)):
        return [transform]
    return [step for part in inner for step in _steps(part)]


def _copied(dataset: Any, /, **attributes: Any) -> Any:
    made = copy.copy(dataset)
    # How a data set is pickled, which copying goes by, may leave out some of what it holds.
    vars(made).update(vars(dataset), **attributes)
    return made


def _refusal(owner: str, found: str) -> str:
    return (
        f"{owner} puts a transform into the training data, and {found}. Accepted is a torch "
        f"DataLoader over a data set with an attribute `transform` that is callable or None, as "
        f"torchvision's have, also inside Subset or ConcatDataset. For other data call the "
        f"transform yourself where an image is read, and leave {owner} out"
    )
