"""Every two methods that are not refused train, save, resume exactly and evaluate together.

The table of pairs that `composer methods compat` prints, and the page of methods, are what is held
up here: refused pairs are errors, those warned of warn, all others are quiet.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from composer import Trainer
from composer.algorithms.warnings import NoEffectWarning
from composer.cli.methods import pairs_of
from composer.core import Callback, Logger, State, plugins
from composer.core.algorithm import Algorithm
from composer.core.warnings import NotIntendedUseWarning
from composer.models import ComposerClassifier
from composer.utils.plugin_table import FIRST_PARTY

GROUP = "composer.algorithms"
NAMES = FIRST_PARTY[GROUP]["composer-algorithms"]
BATCHES = 3

IMAGES, TEXT = "images", "text"
#: Arguments of methods whose defaults do nothing at this size.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "alibi": {"max_sequence_length": 16, "train_sequence_length_scaling": 0.5},
    "activation_checkpointing": {"classes": ["Bottleneck", "StochasticBlock", "BertLayer"]},
    "blurpool": {"min_channels": 1},
    "compile": {"backend": "eager"},
    "ema": {"half_life": "1ba"},
    "factorize": {"min_channels": 4, "min_features": 8, "latent_features": 2},
    "ghost_batchnorm": {"ghost_batch_size": 2},
    "gradient_clipping": {"clipping_type": "norm", "clipping_threshold": 0.1},
    "gyro_dropout": {"sigma": 4, "tau": 2},
    "layer_freezing": {"freeze_start": 0.0},
    "progressive_resizing": {"delay_fraction": 0.1, "finetune_fraction": 0.3},
    "scale_schedule": {"ratio": 1.0},
    "selective_backprop": {"start": 0.0, "end": 1.0, "interrupt": 0},
    "seq_length_warmup": {
        "duration": 1.0,
        "min_seq_length": 4,
        "max_seq_length": 8,
        "step_size": 2,
    },
    "squeeze_excite": {"min_channels": 2, "latent_channels": 2},
    "stochastic_depth": {"target_layer_name": "ResNetBottleneck", "drop_rate": 0.5},
    "swa": {"swa_start": "1ba", "swa_end": "2ba", "update_interval": "1ba"},
}
ONLY_TEXT = {"alibi", "gated_linear_units", "seq_length_warmup"}
ONLY_IMAGES = {
    *("augmix", "blurpool", "channels_last", "colout", "cutmix", "cutout", "factorize"),
    *("ghost_batchnorm", "low_precision_groupnorm", "no_op_model", "progressive_resizing"),
    *("randaugment", "squeeze_excite", "stochastic_depth", "weight_standardization", "mixup"),
    *("label_smoothing", "selective_backprop"),
}
#: Leaves the others nothing to change, which they say.
WITHOUT_LAYERS = "no_op_model"


def methods(kind: str) -> list[str]:
    """The methods for a kind of network."""
    other = ONLY_IMAGES if kind == TEXT else ONLY_TEXT
    return [name for name in NAMES if name not in other]


CLASSES: dict[str, type[Algorithm]] = {name: plugins.load(GROUP, name) for name in NAMES}
VERDICTS = {frozenset((p.first, p.second)): p for p in pairs_of(CLASSES)}


class Pictures(Dataset[Any]):
    """Six pictures of random pixels, with a transform as torchvision's data sets have it."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.pixels = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8, generator=generator)
        self.transform: Any = None

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Any:
        picture = self.pixels[index]
        if self.transform is not None:
            picture = self.transform(picture)
        return picture.float() / 255, index % 2


def image_model() -> ComposerClassifier:
    from torchvision.models.resnet import Bottleneck

    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Bottleneck(8, 2),
        Bottleneck(8, 2),
        nn.GroupNorm(2, 8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LayerNorm(8),
        nn.Dropout(0.2),
        nn.Linear(8, 8),
        nn.ReLU(),
        nn.Linear(8, 2),
    )
    return ComposerClassifier(layers, num_classes=2)


class Sentences(Dataset[Any]):
    """Six sequences of eight tokens with a class each."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(1, 20, (6, 8), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Any:
        ids = self.tokens[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def text_model() -> Any:
    from transformers import BertConfig, BertForMaskedLM

    from composer.models import HuggingFaceModel

    config = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    return HuggingFaceModel(BertForMaskedLM(config))


def train(
    kind: str, names: tuple[str, ...], folder: Path, *, until: int, precision: str
) -> Trainer:
    """Train to a batch, from the newest checkpoint in the folder."""
    torch.manual_seed(0)
    images = kind == IMAGES
    model = image_model() if images else text_model()
    dataset: Dataset[Any] = Pictures() if images else Sentences()

    def loader(data: Dataset[Any], *, shuffle: bool = False) -> DataLoader[Any]:
        return DataLoader(data, batch_size=4, shuffle=shuffle, drop_last=shuffle)

    class StopAt(Callback):
        def batch_end(self, state: State, logger: Logger) -> None:
            if state.timestamp.batch == until:
                state.stop_training()

    trainer = Trainer(
        model=model,
        train_dataloader=loader(dataset, shuffle=True),
        eval_dataloader=loader(Pictures() if images else Sentences()),
        eval_interval="2ba",
        max_duration=f"{BATCHES}ep",  # of one batch each
        optimizers=torch.optim.AdamW(model.parameters(), lr=1e-3),
        algorithms=[CLASSES[name](**ARGUMENTS.get(name, {})) for name in names],
        callbacks=[StopAt()],
        precision=precision,
        save_folder=str(folder),
        save_interval="1ba",
        autoresume=True,
        run_name="run",
        seed=1,
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()
    return trainer


@contextlib.contextmanager
def warnings_as_declared(names: tuple[str, str]) -> Iterator[None]:
    """Let pass what the pair declares, and nothing else."""
    pair = VERDICTS[frozenset(names)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.simplefilter("always", NotIntendedUseWarning)
        # Torch hides one of its own while it traces, which "error" makes an error of.
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor")
        if WITHOUT_LAYERS in names:
            warnings.simplefilter("ignore", NoEffectWarning)
        yield
    texts = [str(one.message) for one in caught]
    # Once for each trainer that was made.
    assert all(pair.reason in text for text in texts), texts
    assert bool(texts) == (pair.verdict == "warned"), texts


def check(kind: str, names: tuple[str, str], tmp_path: Path) -> None:
    narrow = any(name.startswith("low_precision") for name in names)
    precision = "amp_bf16" if narrow else "fp32"
    pair = VERDICTS[frozenset(names)]
    if pair.verdict == "refused":
        with pytest.raises(ValueError, match="cannot be used together"):
            train(kind, names, tmp_path / "refused", until=1, precision=precision)
        return
    with warnings_as_declared(names):
        straight = train(kind, names, tmp_path / "straight", until=BATCHES, precision=precision)
        train(kind, names, tmp_path / "cut", until=2, precision=precision)
        resumed = train(kind, names, tmp_path / "cut", until=BATCHES, precision=precision)
    assert resumed.state.timestamp.batch == straight.state.timestamp.batch == BATCHES
    ours, theirs = resumed.state.model.state_dict(), straight.state.model.state_dict()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert all(torch.isfinite(value).all() for value in ours.values())
    for trainer in (straight, resumed):
        for label, metrics in trainer.state.eval_metrics.items():
            for name, metric in metrics.items():
                assert torch.isfinite(metric.compute()).all(), (label, name)


def pairs(kind: str) -> list[tuple[str, str]]:
    return list(itertools.combinations(methods(kind), 2))


@pytest.mark.parametrize("names", pairs(IMAGES), ids="+".join)
def test_pairs_on_images(names: tuple[str, str], tmp_path: Path) -> None:
    check(IMAGES, names, tmp_path)


@pytest.mark.parametrize("names", pairs(TEXT), ids="+".join)
def test_pairs_on_text(names: tuple[str, str], tmp_path: Path) -> None:
    check(TEXT, names, tmp_path)


def test_every_pair_that_has_data_in_common_is_tried() -> None:
    tried = {frozenset(pair) for kind in (IMAGES, TEXT) for pair in pairs(kind)}
    apart = {frozenset((text, image)) for text in ONLY_TEXT for image in ONLY_IMAGES}
    assert tried | apart == set(VERDICTS)
    assert not tried & apart
