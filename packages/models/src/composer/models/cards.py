"""What is known of every registered model without building it: its source, and a batch for it.

A model is built from arguments, and what a batch has to look like follows from the same arguments.
Commands, exports and tests ask here for a sample instead of each inventing one. A model of another
distribution has a card as the attribute ``card`` of its factory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from composer.core import plugins
from composer.core.model import ComposerModel
from composer.utils.checks import check_integer
from composer.utils.suggestions import did_you_mean

__all__ = ["CARDS", "Card", "card_of", "example_batch"]

#: Called with the arguments of the model, the number of samples and a generator.
BatchBuilder = Callable[[Mapping[str, Any], int, torch.Generator], Any]


@dataclass(frozen=True, kw_only=True)
class Card:
    """What is known of a model beside its factory.

    Args:
        family: What its batches are: ``"classification"``, ``"segmentation"``, ``"detection"``,
            ``"language"``, ``"masked language"``, ``"text classification"`` or ``"diffusion"``.
        source: The paper, or whose implementation it is.
        extras: Extras of composer-models that it needs.
        arguments: Arguments that the factory has no default for, for a model of the usual size.
        tiny: Arguments of a small member, for tests; the other arguments as above.
        batch: Makes a batch; ``None`` for a task class, whose batches depend on the module that it
            is put around.
        network: Returns the outputs of the part whose cost is counted, given the model and a batch,
            where the whole cannot run without data; by default the model itself.

    Example:
        >>> CARDS["composer_resnet"].extras
        ('vision',)
    """

    family: str
    source: str
    extras: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tiny: Mapping[str, Any] = field(default_factory=dict)
    batch: BatchBuilder | None = None
    network: Callable[[Any, Any], Any] | None = None


def card_of(name: str) -> Card | None:
    """Find the card of a registered model.

    Args:
        name: What the model is registered as among ``composer.models``.

    Returns:
        The card, or ``None`` if the model has none.

    Raises:
        PluginError: If nothing of that name is installed, or it cannot be imported.

    Example:
        >>> card_of("mnist_model").family
        'classification'
    """
    if name in CARDS:
        return CARDS[name]
    card = getattr(plugins.load("composer.models", name), "card", None)
    return card if isinstance(card, Card) else None


def example_batch(name_or_model: str | ComposerModel, *, num_samples: int = 1) -> Any:
    """Make a batch that a model can be called with, trained on and exported with.

    The values are random and the same every time; torch's global generator is left alone.

    Args:
        name_or_model: A model of a registered factory, or the name of one; for a name, the batch
            fits the model with the usual arguments.
        num_samples: Number of samples.

    Returns:
        A batch of the model's kind, on the host.

    Raises:
        ValueError: If the model was not built by a registered factory, or has no card that says
            what its batches are.
        PluginError: If nothing of the name is installed.

    Example:
        >>> images, labels = example_batch("mnist_model", num_samples=2)
        >>> images.shape, labels.shape
        (torch.Size([2, 1, 28, 28]), torch.Size([2]))
        >>> from composer.models import mnist_model
        >>> example_batch(mnist_model(in_channels=3))[0].shape
        torch.Size([1, 3, 28, 28])
    """
    check_integer("num_samples", num_samples, low=1)
    if isinstance(name_or_model, str):
        name, given = name_or_model, None
    elif (origin := getattr(name_or_model, "origin", None)) is not None:
        name, given = origin["name"], origin["arguments"]
    else:
        raise ValueError(
            f"name_or_model of type {type(name_or_model).__name__} was not built by a registered "
            f"factory from plain arguments, so its batches are not known; give a batch of your own"
        )
    card = card_of(name)
    if card is None or card.batch is None:
        known = [key for key, card in CARDS.items() if card.batch is not None]
        raise ValueError(
            f"what a batch of {name!r} is depends on what it is built around; an example is known "
            f"of {', '.join(known)}.{did_you_mean(name, known)}"
        )
    factory = plugins.load("composer.models", name)
    arguments = {
        key: parameter.default
        for key, parameter in inspect.signature(factory).parameters.items()
        if parameter.default is not parameter.empty
    }
    arguments |= card.arguments if given is None else given
    return card.batch(arguments, num_samples, torch.Generator().manual_seed(0))


def _images(channels: int, size: int, samples: int, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(samples, channels, size, size, generator=generator, device="cpu")


def _whole(limit: int, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randint(limit, shape, generator=generator, device="cpu")


def _classification(size: int) -> BatchBuilder:
    """Images with a side of ``size``, and classes."""

    def build(arguments: Mapping[str, Any], samples: int, generator: torch.Generator) -> Any:
        images = _images(
            arguments.get("in_channels", 3), arguments.get("image_size", size), samples, generator
        )
        return images, _whole(arguments["num_classes"], (samples,), generator)

    return build


def _timm(arguments: Mapping[str, Any], samples: int, generator: torch.Generator) -> Any:
    import timm

    options = timm.models.get_pretrained_cfg(arguments["model_name"])
    channels, size, _ = (3, 224, 224) if options is None else options.input_size
    images = _images(
        arguments.get("in_chans", channels), arguments.get("img_size", size), samples, generator
    )
    return images, _whole(arguments["num_classes"], (samples,), generator)


def _segmentation(size: int) -> BatchBuilder:
    def build(arguments: Mapping[str, Any], samples: int, generator: torch.Generator) -> Any:
        images = _images(arguments.get("in_channels", 3), size, samples, generator)
        return images, _whole(arguments["num_classes"], (samples, size, size), generator)

    return build


def _detection(arguments: Mapping[str, Any], samples: int, generator: torch.Generator) -> Any:
    size = arguments["min_size"]
    box = torch.tensor([[0.25, 0.25, 0.75, 0.75]], device="cpu") * size
    targets = [
        {"boxes": box.clone(), "labels": torch.ones(1, dtype=torch.long, device="cpu")}
        for _ in range(samples)
    ]
    return list(_images(3, size, samples, generator)), targets


def _tokens(length: int) -> BatchBuilder:
    """Tokens, by the vocabulary and the greatest length in the arguments or ``model_config``."""

    def build(arguments: Mapping[str, Any], samples: int, generator: torch.Generator) -> Any:
        config = arguments.get("model_config") or {}
        limit = config.get("vocab_size", arguments.get("vocab_size") or 1000)
        longest = config.get("n_positions", config.get("max_position_embeddings", length))
        shape = (samples, min(length, longest))
        return {"input_ids": _whole(min(limit, 1000), shape, generator)}

    return build


def _text_to_go_on(arguments: Mapping[str, Any], samples: int, generator: torch.Generator) -> Any:
    batch = _tokens(1024)(arguments, samples, generator)
    return {**batch, "labels": batch["input_ids"].clone()}


def _masked_text(arguments: Mapping[str, Any], samples: int, generator: torch.Generator) -> Any:
    batch = _tokens(512)(arguments, samples, generator)
    tokens = batch["input_ids"]
    # One word in seven or so; the first, so that there is always one.
    masked = _whole(7, tuple(tokens.shape), generator) == 0
    masked[:, 0] = True
    return {**batch, "labels": torch.where(masked, tokens, -100)}


def _classed_text(arguments: Mapping[str, Any], samples: int, generator: torch.Generator) -> Any:
    batch = _tokens(512)(arguments, samples, generator)
    labels = _whole(max(2, arguments["num_labels"]), (samples,), generator)
    return {**batch, "labels": labels.float() if arguments["num_labels"] == 1 else labels}


def _pictures(arguments: Mapping[str, Any], samples: int, generator: torch.Generator) -> Any:
    if arguments.get("autoencoder") is not None:
        raise ValueError(
            "what a batch is depends on the autoencoder, which says how large its pictures are; "
            "give a batch of your own"
        )
    images = _images(arguments["in_channels"], arguments["image_size"], samples, generator)
    batch = {"images": 2 * images - 1}
    if (num_classes := arguments["num_classes"]) is not None:
        batch["labels"] = _whole(num_classes, (samples,), generator)
    if (size := arguments["text_size"]) is not None:
        shape = (samples, 77, size)
        batch["encoder_hidden_states"] = torch.randn(shape, generator=generator, device="cpu")
    return batch


def _denoising(model: Any, batch: Any) -> Any:
    # Noise comes from what is in the pictures, and here there may be no data.
    network, args, kwargs = model.for_inference(batch)
    return network(*args, **kwargs)


def _every_word(model: Any, batch: Any) -> Any:
    from composer.models.huggingface._doors import transformers_before_5

    # BERT of transformers before 5 looks whether its mask leaves a word out, and here there may be
    # no data; a mask of pairs of words it takes as it is, and later ones look at none.
    if transformers_before_5():
        tokens = batch["input_ids"]
        pairs = torch.ones(*tokens.shape, tokens.shape[1], device=tokens.device)
        batch = {**batch, "attention_mask": pairs}
    return model(batch)


def _features_and_head(model: Any, batch: Any) -> Any:
    # What follows looks at values: which boxes are good enough, and which overlap.
    features = model.module.backbone(torch.stack(batch[0]))
    return model.module.head(list(features.values()))


_RESNET = "He et al., Deep Residual Learning for Image Recognition (2015)"

_TINY_BERT = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "vocab_size": 100,
}

#: Name among ``composer.models`` -> card.
CARDS: Mapping[str, Card] = {
    "bert_classification": Card(
        family="text classification",
        source="Devlin et al., BERT (2018)",
        extras=("huggingface",),
        tiny={"num_labels": 3, "model_config": _TINY_BERT},
        batch=_classed_text,
        network=_every_word,
    ),
    "bert_mlm": Card(
        family="masked language",
        source="Devlin et al., BERT (2018)",
        extras=("huggingface",),
        tiny={"model_config": _TINY_BERT},
        batch=_masked_text,
        network=_every_word,
    ),
    "composer_classifier": Card(family="classification", source="any module"),
    "composer_decoder": Card(
        family="language",
        source="RMSNorm, rotary positions, grouped queries, SwiGLU (2019 to 2023)",
        tiny={"size": "tiny", "vocab_size": 100, "num_kv_heads": 2},
        batch=_tokens(1024),
    ),
    "composer_deeplabv3": Card(
        family="segmentation",
        source="Chen et al., Encoder-Decoder with Atrous Separable Convolution (2018)",
        extras=("vision",),
        arguments={"num_classes": 150},
        tiny={"num_classes": 3, "backbone_arch": "resnet50"},
        batch=_segmentation(512),
    ),
    "composer_detector": Card(family="detection", source="any module"),
    "composer_diffusion": Card(
        family="diffusion",
        source="Ho et al., Denoising Diffusion Probabilistic Models (2020)",
        extras=("diffusion",),
        tiny={
            "image_size": 8,
            "in_channels": 1,
            "num_classes": 10,
            "width": 8,
            "multipliers": [1, 2],
            "attention_levels": [1],
        },
        batch=_pictures,
        network=_denoising,
    ),
    "composer_efficientnet": Card(
        family="classification",
        source="Tan and Le, EfficientNet (2019)",
        extras=("vision",),
        tiny={"num_classes": 10},
        batch=_classification(224),
    ),
    "composer_resnet": Card(
        family="classification",
        source=_RESNET,
        extras=("vision",),
        tiny={"model_name": "resnet18", "num_classes": 10},
        batch=_classification(224),
    ),
    "composer_resnet_cifar": Card(
        family="classification",
        source=f"{_RESNET}, section 4.2",
        tiny={"model_name": "resnet_8", "width": 4, "in_channels": 1},
        batch=_classification(32),
    ),
    "composer_retinanet": Card(
        family="detection",
        source="Lin et al., Focal Loss for Dense Object Detection (2017)",
        extras=("vision", "detection"),
        arguments={"num_classes": 91},
        tiny={"num_classes": 3, "backbone_arch": "resnet18", "min_size": 64, "max_size": 64},
        batch=_detection,
        network=_features_and_head,
    ),
    "composer_segmenter": Card(family="segmentation", source="any module"),
    "composer_timm": Card(
        family="classification",
        source="timm, any of its image classifiers",
        extras=("timm",),
        arguments={"model_name": "resnet50"},
        tiny={"model_name": "resnet10t", "num_classes": 10},
        batch=_timm,
    ),
    "composer_unet": Card(
        family="segmentation",
        source="Ronneberger et al., U-Net (2015)",
        arguments={"num_classes": 2},
        tiny={"num_classes": 3, "width": 4, "depth": 2},
        batch=_segmentation(256),
    ),
    "composer_vit": Card(
        family="classification",
        source="Dosovitskiy et al., An Image is Worth 16x16 Words (2020)",
        extras=("vision",),
        tiny={
            "size": "tiny",
            "num_classes": 10,
            "image_size": 12,
            "patch_size": 4,
            "in_channels": 1,
            "hidden_size": 16,
            "num_layers": 2,
            "num_heads": 2,
        },
        batch=_classification(224),
    ),
    "gpt2": Card(
        family="language",
        source="Radford et al., Language Models are Unsupervised Multitask Learners (2019)",
        extras=("huggingface",),
        tiny={
            "model_config": {
                "n_layer": 2,
                "n_embd": 32,
                "n_head": 2,
                "n_positions": 64,
                "vocab_size": 100,
                "bos_token_id": 0,
                "eos_token_id": 0,
            }
        },
        batch=_text_to_go_on,
    ),
    "language_model": Card(family="language", source="any module"),
    "mnist_model": Card(
        family="classification",
        source="two convolutions and two linear layers",
        batch=_classification(28),
    ),
    "resnet9": Card(
        family="classification",
        source="Page, How to train your ResNet (2018)",
        tiny={"width": 8, "in_channels": 1},
        batch=_classification(32),
    ),
}
