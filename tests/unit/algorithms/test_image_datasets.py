"""Methods that put a transform into the training data, with real loaders and trainers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
)

from composer import Trainer
from composer.algorithms import (
    AugmentAndMixTransform,
    AugMix,
    ColOut,
    ColOutTransform,
    RandAugment,
    RandAugmentTransform,
)
from composer.core import Callback, Event, Logger, State
from composer.models import ComposerClassifier

pytest.importorskip("torchvision")
from PIL import Image
from torchvision import datasets, transforms, tv_tensors
from torchvision.datasets import VisionDataset
from torchvision.datasets.vision import StandardTransform
from torchvision.transforms import v2

METHODS: dict[str, tuple[Callable[[], Any], type]] = {
    "augmix": (AugMix, AugmentAndMixTransform),
    "randaugment": (RandAugment, RandAugmentTransform),
    "colout": (lambda: ColOut(batch=False), ColOutTransform),
}
EACH = pytest.mark.parametrize(("make", "kind"), METHODS.values(), ids=METHODS)


class Stripes(VisionDataset):
    """Pillow images with stripes upright or level; it counts nothing and draws nothing."""

    def __init__(self, size: int = 16, transform: Any = None, **arguments: Any) -> None:
        super().__init__("nowhere", transform=transform, **arguments)
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any, int]:
        pixels = np.zeros((8, 8, 3), np.uint8)
        label = index % 2
        lines = slice(index % 3, None, 3)
        pixels[(lines, slice(None)) if label else (slice(None), lines)] = 200
        image: Any = Image.fromarray(pixels)
        if self.transform is not None:
            image = self.transform(image)
        return image, label


class Joint(Stripes):
    """Reads `transforms`, as some data sets of torchvision do."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = Image.new("L", (4, 4), index)
        return (image, 0) if self.transforms is None else self.transforms(image, 0)


def state_of(dataset: Any, *evaluated: Any, **settings: Any) -> Any:
    loaders = [SimpleNamespace(dataloader=SimpleNamespace(dataloader=one)) for one in evaluated]
    loader = DataLoader(dataset, batch_size=4, **settings)
    return SimpleNamespace(train_dataloader=loader, evaluators=loaders)


def insert(method: Any, state: Any) -> None:
    method.apply(Event.FIT_START, state, None)


def steps_of(transform: Any) -> list[str]:
    inner = getattr(transform, "transforms", [transform])
    return [type(step).__name__ for step in inner]


# ---- where it goes ----------------------------------------------------------------------------


@EACH
def test_a_copy_of_the_data_set_gets_it(make: Any, kind: type) -> None:
    given = Stripes(transform=transforms.Compose([transforms.CenterCrop(6), transforms.ToTensor()]))
    state = state_of(given, shuffle=True)
    insert(make(), state)
    dataset = state.train_dataloader.dataset
    assert steps_of(dataset.transform) == ["CenterCrop", kind.__name__, "ToTensor"]
    assert steps_of(dataset.transforms.transform) == steps_of(dataset.transform)
    assert steps_of(given.transform) == ["CenterCrop", "ToTensor"]
    assert isinstance(given.transforms, StandardTransform)
    assert steps_of(given.transforms.transform) == ["CenterCrop", "ToTensor"]
    assert type(dataset) is Stripes
    images, labels = next(iter(state.train_dataloader))
    assert images.dtype == torch.float32
    assert labels.shape == (4,)


@EACH
def test_it_is_put_in_once(make: Any, kind: type) -> None:
    state = state_of(Stripes(transform=transforms.ToTensor()))
    method = make()
    for one in (method, method, make()):
        insert(one, state)
    dataset = state.train_dataloader.dataset
    assert steps_of(dataset.transform) == [kind.__name__, "ToTensor"]
    other = state_of(dataset)
    insert(make(), other)
    assert other.train_dataloader.dataset is dataset


def test_other_settings_of_the_same_are_refused() -> None:
    state = state_of(Stripes())
    insert(AugMix(), state)
    with pytest.raises(ValueError, match=r"severity=3.*severity=5.*new DataLoader"):
        insert(AugMix(severity=5), state)
    insert(RandAugment(), state)
    assert steps_of(state.train_dataloader.dataset.transform) == [
        "AugmentAndMixTransform",
        "RandAugmentTransform",
    ]


def test_inside_subsets_and_concatenations() -> None:
    base, other = Stripes(transform=transforms.ToTensor()), Stripes(6, v2.ToImage())
    given: Any = ConcatDataset(
        [Subset(base, [0, 1, 2]), Subset(Subset(base, range(8)), [3]), other]
    )
    state = state_of(given)
    insert(RandAugment(), state)
    dataset: Any = state.train_dataloader.dataset
    first, second, third = dataset.datasets
    assert (type(first), list(first.indices), len(dataset)) == (Subset, [0, 1, 2], 10)
    assert first.dataset is second.dataset.dataset  # one copy of what was one
    assert steps_of(first.dataset.transform) == ["RandAugmentTransform", "ToTensor"]
    assert steps_of(third.transform) == ["RandAugmentTransform", "ToImage"]
    for untouched in (base, other):
        assert len(steps_of(untouched.transform)) == 1
    assert given.datasets[0].dataset is base
    insert(RandAugment(), state)
    assert state.train_dataloader.dataset is dataset


class Numbers(IterableDataset[Any]):
    transform: Any = None

    def __iter__(self) -> Iterator[Any]:
        for _ in range(4):
            yield (
                torch.zeros(3, 8, 8)
                if self.transform is None
                else self.transform(torch.zeros(3, 8, 8))
            )


def test_iterable_data_and_chains() -> None:
    base = Numbers()
    state = state_of(ChainDataset([base, base]))
    insert(ColOut(batch=False, p_row=0.5), state)
    assert [tuple(x.shape) for x in state.train_dataloader] == [(4, 3, 4, 6)] * 2
    assert base.transform is None


def test_a_data_set_that_reads_the_joint_transforms() -> None:
    for given in (Joint(4), Joint(4, transforms.PILToTensor(), target_transform=lambda t: t + 5)):
        state = state_of(given)
        insert(RandAugment(depth=1), state)
        calls: list[int] = []
        dataset = state.train_dataloader.dataset
        inner = dataset.transforms.transform
        step = inner.transforms[0] if hasattr(inner, "transforms") else inner
        step.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        label = dataset[0][1]
        assert calls == [1]
        assert label == (0 if given.target_transform is None else 5)
    with pytest.raises(ValueError, match="image and target together"):
        insert(RandAugment(), state_of(Joint(4, transforms=v2.Compose([v2.ToImage()]))))


def test_a_data_set_wrapped_for_tensors_of_torchvision() -> None:
    class Digits(datasets.MNIST):
        """Of a class that the wrapper knows, with items of its own."""

        def __init__(self, transform: Any) -> None:
            VisionDataset.__init__(self, "nowhere", transform=transform)

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[Any, int]:
            assert self.transforms is None  # the wrapper takes them over
            return Image.new("L", (8, 8), index), index

    wrapped = datasets.wrap_dataset_for_transforms_v2(Digits(v2.Compose([v2.ToImage()])))
    state = state_of(wrapped)
    insert(RandAugment(), state)
    dataset = state.train_dataloader.dataset
    assert steps_of(dataset.transforms.transform) == ["RandAugmentTransform", "ToImage"]
    assert steps_of(wrapped.transforms.transform) == ["ToImage"]
    assert type(dataset[0][0]) is tv_tensors.Image


class Forwarding(Dataset[Any]):
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["inner"], name)


class ReadOnly(Dataset[Any]):
    @property
    def transform(self) -> None:
        return None


class NoCallable(Dataset[Any]):
    transform = "flip"


@EACH
@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (TensorDataset(torch.zeros(4, 3, 8, 8)), "TensorDataset has no `transform`"),
        (Subset(TensorDataset(torch.zeros(4)), [0]), "TensorDataset has no `transform`"),
        (Forwarding(Stripes()), "Forwarding has no `transform` of its own"),
        (ReadOnly(), "ReadOnly cannot be set"),
        (NoCallable(), "NoCallable is a str"),
        ([1, 2], "list has no `transform`"),
    ],
    ids=["tensors", "subset", "forwarding", "property", "text", "list"],
)
def test_other_data_is_refused_with_what_to_do(
    make: Any, kind: type, dataset: Any, words: str
) -> None:
    del kind
    state = SimpleNamespace(
        train_dataloader=DataLoader(dataset, sampler=[0]),
        evaluators=[],
    )
    with pytest.raises(TypeError, match=f"{words}.*Subset.*call the transform yourself"):
        insert(make(), state)
    assert state.train_dataloader.dataset is dataset


def test_other_loaders_are_refused() -> None:
    state = SimpleNamespace(train_dataloader=[1, 2], evaluators=[])
    with pytest.raises(TypeError, match="dataloader is a list"):
        insert(AugMix(), state)


def test_a_loader_that_is_evaluated_too_is_refused() -> None:
    state = state_of(Stripes())
    state.evaluators = [SimpleNamespace(dataloader=state.train_dataloader)]
    with pytest.raises(ValueError, match="second DataLoader"):
        insert(AugMix(), state)


@EACH
def test_transforms_travel_to_workers_that_share_nothing(make: Any, kind: type) -> None:
    state = state_of(Stripes(transform=transforms.ToTensor()))
    insert(make(), state)
    again = pickle.loads(pickle.dumps(state.train_dataloader.dataset))
    assert steps_of(again.transform) == [kind.__name__, "ToTensor"]
    torch.manual_seed(0)
    image, _ = again[0]
    torch.manual_seed(0)
    assert torch.equal(image, state.train_dataloader.dataset[0][0])


# ---- with a trainer ---------------------------------------------------------------------------


class Seen(Callback):
    """Keeps what came, for training and evaluation."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.train: dict[int, torch.Tensor] = {}
        self.eval: list[torch.Tensor] = []
        self._stop_at = stop_at

    def batch_start(self, state: State, logger: Logger) -> None:
        self.train[int(state.timestamp.batch)] = state.batch[0].clone()

    def eval_batch_start(self, state: State, logger: Logger) -> None:
        self.eval.append(state.batch[0].clone())

    def batch_end(self, state: State, logger: Logger) -> None:
        if state.timestamp.batch == self._stop_at:
            state.stop_training()


def network() -> ComposerClassifier:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.1),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 2),
    )
    return ComposerClassifier(layers, num_classes=2)


def trainer_with(
    method: Any, dataset: Any, seen: Seen, loader: Any = None, **settings: Any
) -> Trainer:
    model = network()
    workers = settings.pop("num_workers", 0)
    stay = settings.pop("persistent_workers", False)
    if loader is None:
        loader = DataLoader(dataset, 4, shuffle=True, num_workers=workers, persistent_workers=stay)
    return Trainer(
        **{
            "model": model,
            "train_dataloader": loader,
            "max_duration": "3ep",
            "optimizers": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            "algorithms": [method],
            "callbacks": [seen],
            "seed": 3,
            "progress_bar": False,
            **settings,
        }
    )


def plain_images() -> torch.Tensor:
    return torch.stack([Stripes(transform=transforms.ToTensor())[i][0] for i in range(16)])


@EACH
def test_evaluation_of_the_same_data_set_stays_as_it_is(make: Any, kind: type) -> None:
    del kind
    dataset = Stripes(transform=transforms.ToTensor())
    seen = Seen()
    trainer = trainer_with(make(), dataset, seen, eval_dataloader=DataLoader(dataset, 16))
    trainer.fit()
    trainer.close()
    assert len(seen.eval) == 3
    for images in seen.eval:
        assert torch.equal(images, plain_images())
    assert len(seen.train) == 12
    known = plain_images()
    fresh = [i for b in seen.train.values() for i in b if not any(map(i.equal, known))]
    assert len(fresh) > 24
    assert steps_of(dataset.transform) == ["ToTensor"]


def test_several_fits_and_trainers_transform_once() -> None:
    dataset = Stripes(transform=transforms.ToTensor())
    loader: Any = DataLoader(dataset, 4, shuffle=True)
    trainer = trainer_with(AugMix(), dataset, Seen(), loader, max_duration="1ep")
    trainer.fit()
    trainer.fit(duration="1ep")
    trainer.close()
    second = trainer_with(AugMix(), dataset, Seen(), loader, max_duration="1ep")
    second.fit()
    second.close()
    assert steps_of(loader.dataset.transform) == ["AugmentAndMixTransform", "ToTensor"]


@EACH
@pytest.mark.parametrize("stop_at", [1, 4, 6])
def test_a_resumed_run_draws_the_same(make: Any, kind: type, stop_at: int, tmp_path: Path) -> None:
    compare_with_interrupted(make, stop_at, tmp_path)
    del kind


@pytest.mark.parametrize("persistent_workers", [False, True])
@pytest.mark.parametrize("stop_at", [2, 4])
def test_a_resumed_run_draws_the_same_in_a_worker(
    stop_at: int, persistent_workers: bool, tmp_path: Path
) -> None:
    compare_with_interrupted(
        AugMix, stop_at, tmp_path, num_workers=1, persistent_workers=persistent_workers
    )


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata calls it
@pytest.mark.parametrize("num_workers", [0, 1])
def test_loaders_with_a_state_of_their_own_read_the_copy(num_workers: int) -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    dataset = Stripes(transform=transforms.ToTensor())
    loader = module.StatefulDataLoader(dataset, 4, shuffle=True, num_workers=num_workers)
    seen = Seen()
    trainer = trainer_with(
        ColOut(batch=False, p_row=0.5), dataset, seen, loader, max_duration="2ep"
    )
    trainer.fit()
    trainer.close()
    assert [tuple(x.shape) for x in seen.train.values()] == [(4, 3, 4, 6)] * 8


def compare_with_interrupted(make: Any, stop_at: int, folder: Path, **settings: Any) -> None:
    def run(name: str, seen: Seen) -> Trainer:
        dataset = Stripes(transform=transforms.ToTensor())
        trainer = trainer_with(
            make(),
            dataset,
            seen,
            save_folder=str(folder / name),
            save_interval="1ba",
            autoresume=True,
            run_name="run",
            **settings,
        )
        trainer.fit()
        trainer.close()
        return trainer

    straight, first, rest = Seen(), Seen(stop_at), Seen()
    expected = run("straight", straight).state.model.state_dict()
    run("cut", first)
    found = run("cut", rest).state.model.state_dict()
    assert sorted({*first.train, *rest.train}) == sorted(straight.train) == list(range(12))
    for batch, images in {**first.train, **rest.train}.items():
        assert torch.equal(images, straight.train[batch])
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    known = plain_images()
    fresh = [i for b in straight.train.values() for i in b if not any(map(i.equal, known))]
    assert len(fresh) > 24  # it did act, in the worker too
    assert len({image.numpy().tobytes() for image in fresh}) > 20


def test_workers_that_stayed_from_before_training_are_let_go() -> None:
    dataset = Stripes(transform=transforms.ToTensor())
    loader: Any = DataLoader(dataset, 16, num_workers=1, persistent_workers=True)
    assert torch.equal(next(iter(loader))[0], plain_images())
    state = SimpleNamespace(train_dataloader=loader, evaluators=[])
    insert(ColOut(batch=False, p_row=0.5), state)
    assert next(iter(loader))[0].shape == (16, 3, 4, 6)


class Counting(Stripes):
    """Gives items by a state of its own, and by the epoch that it is told."""

    def __init__(self) -> None:
        super().__init__(8, transforms.ToTensor())
        self.read, self.epoch = 0, -1

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.read += 1
        image, label = super().__getitem__(index)
        image[:] = self.read + 100 * self.epoch
        return image, label

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        return {"read": self.read}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.read = state["read"]


def test_the_copy_is_what_the_trainer_asks_for_its_state(tmp_path: Path) -> None:
    def run(name: str, seen: Seen) -> None:
        trainer = trainer_with(
            ColOut(batch=False, p_row=0.0, p_col=0.5),
            Counting(),
            seen,
            save_folder=str(tmp_path / name),
            save_interval="1ba",
            autoresume=True,
            run_name="run",
        )
        trainer.fit()
        trainer.close()

    straight, first, rest = Seen(), Seen(3), Seen()
    run("straight", straight)
    run("cut", first)
    run("cut", rest)
    assert [float(straight.train[b][0].max()) for b in range(6)] == [1, 5, 109, 113, 217, 221]
    for batch, images in {**first.train, **rest.train}.items():
        assert torch.equal(images, straight.train[batch])


def test_training_with_augmentation_lowers_the_loss() -> None:
    for make in (lambda: AugMix(severity=1), lambda: RandAugment(1, 1), lambda: ColOut(batch=True)):
        dataset = Stripes(32, transforms.ToTensor())
        batch = next(iter(DataLoader(dataset, 32)))
        trainer = trainer_with(make(), dataset, Seen(), max_duration="12ep")
        model = trainer.state.model

        def loss(model: Any = model, batch: Any = batch) -> float:
            model.eval()
            with torch.no_grad():
                return float(model.loss(model(batch), batch))

        before = loss()
        trainer.fit()
        trainer.close()
        assert loss() < 0.6 * before


def test_both_distortions_together_are_cautioned() -> None:
    with pytest.warns(UserWarning, match="distort"):
        trainer_with(
            AugMix(),
            Stripes(transform=transforms.ToTensor()),
            Seen(),
            algorithms=[AugMix(), RandAugment()],
        ).close()
