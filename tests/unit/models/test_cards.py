"""One property over all models: the example batch fits, and the model can be trained on it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from composer.core import plugins
from composer.models import ComposerModel, build_from_origin, example_batch
from composer.models.cards import CARDS, Card, card_of

WITH_BATCH = [name for name, card in CARDS.items() if card.batch is not None]


def build(name: str, **changes: Any) -> ComposerModel:
    card = CARDS[name]
    arguments = {**card.arguments, **card.tiny, **changes}
    model: ComposerModel = plugins.resolve("composer.models", name, **arguments)
    return model


def moved(value: Any, batch: Any) -> bool:
    """Whether two batches differ anywhere."""
    if isinstance(value, torch.Tensor):
        return not torch.equal(value, batch)
    if isinstance(value, dict):
        return any(moved(value[key], batch[key]) for key in value)
    return any(moved(one, other) for one, other in zip(value, batch, strict=True))


def test_every_registered_model_has_a_card() -> None:
    registered = {
        entry.name
        for entry in plugins.entries("composer.models")
        if entry.distribution == "composer-models"
    }
    assert registered - set(CARDS) <= {"huggingface_model"}
    assert set(CARDS) <= registered


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_BATCH)
def test_every_model_can_be_trained_on_its_example(name: str) -> None:
    model = build(name)
    generator = torch.get_rng_state()
    batch = example_batch(model, num_samples=2)
    assert torch.equal(torch.get_rng_state(), generator)
    assert not moved(batch, example_batch(model, num_samples=2))
    if CARDS[name].family == "segmentation":
        # Large maps are slow to train on here.
        batch = tuple(part[..., :64, :64] for part in batch)
    model.train()
    loss = model.loss(model(batch), batch)
    total = sum(loss.values()) if isinstance(loss, dict) else loss
    assert isinstance(total, torch.Tensor)
    total.backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    # BERT has a pooling layer for the task of pairs, which guessing words does not use.
    assert [n for n in without if "pooler" not in n] == []
    assert bool(total.isfinite())
    # The same batch goes to another model of that origin.
    assert model.origin is not None
    again = build_from_origin(model.origin)
    again.load_state_dict(model.state_dict())


@pytest.mark.parametrize("name", ["mnist_model", "composer_decoder", "composer_unet"])
def test_a_name_stands_for_the_usual_arguments(name: str) -> None:
    usual: ComposerModel = plugins.resolve("composer.models", name, **CARDS[name].arguments)
    assert not moved(example_batch(name), example_batch(usual))


def test_what_has_no_example_is_told() -> None:
    with pytest.raises(ValueError, match="'composer_classifier' is depends on what it is built"):
        example_batch("composer_classifier")
    with pytest.raises(plugins.PluginNotFoundError, match="resnet99"):
        example_batch("resnet99")
    with pytest.raises(ValueError, match="num_samples=0"):
        example_batch("mnist_model", num_samples=0)
    with pytest.raises(ValueError, match="was not built by a registered factory"):
        example_batch(torch.nn.Linear(1, 1))  # type: ignore[arg-type]


def test_other_distributions_bring_their_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(
        family="classification",
        source="elsewhere",
        batch=lambda arguments, samples, generator: torch.rand(
            samples, arguments["width"], generator=generator
        ),
    )

    def factory(width: int = 3) -> None:
        del width

    factory.card = card  # type: ignore[attr-defined]
    monkeypatch.setattr(plugins, "load", lambda group, name: factory)
    assert card_of("theirs") is card
    assert example_batch("theirs", num_samples=2).shape == (2, 3)


@pytest.mark.parametrize("name", sorted(CARDS))
def test_no_argument_takes_any_object(name: str) -> None:
    """Each is refused when the model is built, in words that name the argument."""
    card, factory = CARDS[name], plugins.load("composer.models", name)
    modules: dict[str, torch.nn.Module] = {
        "composer_segmenter": torch.nn.Conv2d(1, 2, 1),
        "language_model": torch.nn.Embedding(3, 3),
    }
    usual = {**card.arguments, **card.tiny}
    if card.batch is None:
        usual["module"] = modules.get(name, torch.nn.Identity())
    if name in ("composer_classifier", "composer_segmenter"):
        usual["num_classes"] = 2
    parameters = inspect.signature(factory).parameters.values()
    for argument in (p.name for p in parameters if p.kind is not p.VAR_KEYWORD):
        with torch.device("meta"), pytest.raises((TypeError, ValueError), match=argument):
            factory(**{**usual, argument: object()})
