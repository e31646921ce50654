"""The diffusion model: its loss next to a slow formula, its draws, and a small real task."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.metrics import MeanSquaredError
from composer.models import (
    DiffusionModel,
    build_from_origin,
    composer_diffusion,
    example_batch,
    num_parameters,
)

pytest.importorskip("diffusers")


def tiny(**changes: Any) -> DiffusionModel:
    options: dict[str, Any] = {
        "image_size": 8,
        "in_channels": 1,
        "width": 8,
        "multipliers": (1, 2),
        "attention_levels": (1,),
        "dropout": 0.0,
    }
    return composer_diffusion(**options | changes)


def pictures(count: int = 4, channels: int = 1) -> torch.Tensor:
    return torch.rand(count, channels, 8, 8) * 2 - 1


@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction"])
def test_the_loss_is_the_slow_formula(prediction_type: str) -> None:
    model = tiny(prediction_type=prediction_type).eval()
    images, noise, timesteps = pictures(3), torch.randn(3, 1, 8, 8), torch.tensor([0, 500, 999])
    with torch.no_grad():
        outputs = model.predict(images, timesteps, noise)
        total = 0.0
        for index, timestep in enumerate(timesteps.tolist()):
            kept = 1.0
            for step in range(timestep + 1):
                # Ho et al., section 4: from 0.0001 to 0.02 in a thousand equal steps.
                kept *= 1 - (1e-4 + (0.02 - 1e-4) * step / 999)
            clear, noisy = math.sqrt(kept), math.sqrt(1 - kept)
            x, e = images[index], noise[index]
            said = model.unet((clear * x + noisy * e)[None], torch.tensor([timestep])).sample[0]
            target = e if prediction_type == "epsilon" else clear * e - noisy * x
            total += float(((said - target) ** 2).sum())
    assert float(model.loss(outputs, None)) == pytest.approx(total / (3 * 64), rel=1e-4)
    metric = model.get_metrics()["MeanSquaredError"]
    model.update_metric(None, outputs, metric)
    assert float(metric.compute()) == pytest.approx(total / (3 * 64), rel=1e-4)


def test_training_draws_from_the_global_generator() -> None:
    model, batch = tiny().train(), {"images": pictures()}
    targets = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        targets.append(model(batch)["target"])
    assert torch.equal(targets[0], targets[1])
    assert not torch.equal(targets[0], targets[2])
    # Drawn anew at every call, unlike in evaluation.
    assert not torch.equal(model(batch)["target"], model(batch)["target"])


def test_evaluation_draws_follow_from_the_picture() -> None:
    model, images = tiny().eval(), pictures(6)
    torch.manual_seed(1)
    with torch.no_grad():
        whole = model({"images": images})
        generator = torch.get_rng_state()
        order = torch.tensor([4, 2, 0, 5, 1, 3])
        parts = [model({"images": part}) for part in images[order].split([1, 3, 2])]
    assert torch.equal(torch.get_rng_state(), generator)
    for name in ("prediction", "target"):
        shuffled = torch.cat([part[name] for part in parts])
        torch.testing.assert_close(shuffled, whole[name][order])
    # Noise of another picture is other noise, however little the pictures differ.
    other = images.clone()
    other[0, 0, 0, 0] += 1e-6
    with torch.no_grad():
        found = model({"images": other})["target"]
    torch.testing.assert_close(found[1:], whole["target"][1:])
    assert float((found[0] - whole["target"][0]).abs().mean()) > 0.5
    # All of it is normal, and no picture's looks like another's.
    noise = torch.cat([model({"images": pictures(50)})["target"] for _ in range(2)]).flatten(1)
    assert float(noise.mean()) == pytest.approx(0, abs=4 / math.sqrt(noise.numel()))
    assert float(noise.std()) == pytest.approx(1, abs=0.05)
    likeness = torch.corrcoef(noise) - torch.eye(100)
    assert float(likeness.abs().max()) < 0.7


def test_the_network_of_the_paper_has_its_size() -> None:
    # Ho et al., appendix B.
    with torch.device("meta"):
        model = composer_diffusion()
    assert num_parameters(model) / 1e6 == pytest.approx(35.7, abs=0.05)


def test_conditions_reach_the_network() -> None:
    for model, condition in (
        (tiny(num_classes=3), {"labels": torch.tensor([0, 2])}),
        (tiny(text_size=6), {"encoder_hidden_states": torch.randn(2, 5, 6)}),
    ):
        model.eval()
        batch = {"images": pictures(1).expand(2, 1, 8, 8), **condition}
        with torch.no_grad():
            said = model(batch)["prediction"]
            # The same picture and the same noise; only what the network is told differs.
            assert not torch.allclose(said[0], said[1])
            assert model.generate(2, num_steps=2, **condition).shape == (2, 1, 8, 8)
    pair = (pictures(2), torch.tensor([0, 2]))
    model = tiny(num_classes=3).eval()
    with torch.no_grad():
        named = model({"images": pair[0], "labels": pair[1]})["prediction"]
        assert torch.equal(model(pair)["prediction"], named)


def test_latent_pictures_are_scaled_and_their_maker_is_not_trained() -> None:
    import diffusers

    autoencoder = diffusers.AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        block_out_channels=(4, 8),
        layers_per_block=1,
        norm_num_groups=2,
        latent_channels=2,
        sample_size=16,
        scaling_factor=0.25,
    )
    model = tiny(in_channels=2, autoencoder=autoencoder)
    assert model.origin is None
    model.train()
    assert not autoencoder.training
    images = torch.rand(2, 3, 16, 16) * 2 - 1
    with torch.no_grad():
        found = autoencoder.encode(images).latent_dist
        torch.manual_seed(3)
        drawn = model.encode(images)
        torch.manual_seed(3)
        torch.testing.assert_close(drawn, found.sample() * 0.25)
        torch.testing.assert_close(model.eval().encode(images), found.mean * 0.25)
    batch = {"images": images}
    model.train()
    model.loss(model(batch), batch).backward()
    assert all(p.grad is None for p in autoencoder.parameters())
    assert all(p.grad is not None for p in model.unet.parameters())
    assert model.generate(1, num_steps=2).shape == (1, 3, 16, 16)
    model.origin = {"name": "composer_diffusion", "arguments": {"autoencoder": "there"}}
    with pytest.raises(ValueError, match="depends on the autoencoder"):
        example_batch(model)


def test_pictures_follow_the_generator_and_leave_the_model_as_it_was() -> None:
    model = tiny().train()
    drawn = [model.generate(2, 3, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert model.training
    assert model.scheduler.num_inference_steps is None


@pytest.mark.parametrize("num_steps", [None, 20])
def test_a_network_that_knows_the_noise_draws_the_picture(num_steps: int | None) -> None:
    """With the true noise told at every step, any start ends at the one picture there is."""
    model, picture = tiny(num_timesteps=50, beta_schedule="squaredcos_cap_v2"), pictures(1)
    kept, before = model.scheduler.alphas_cumprod, model.unet.config

    class _Knowing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = before
            # Pictures are made in the dtype of the weights, where they are.
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, noisy: torch.Tensor, timestep: torch.Tensor) -> Any:
            clear = kept[timestep]
            noise = (noisy - clear.sqrt() * picture) / (1 - clear).sqrt()
            return type("Said", (), {"sample": noise})

    model.unet = _Knowing()
    drawn = model.generate(3, num_steps)
    torch.testing.assert_close(drawn, picture.expand(3, 1, 8, 8), rtol=0, atol=1e-2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image_size": 9}, "image_size=9 must be a multiple of 2"),
        ({"attention_levels": (2,)}, r"attention_levels=\(2,\) must be below 2"),
        ({"multipliers": ()}, "multipliers"),
        ({"multipliers": (1, 0)}, "multipliers=0"),
        ({"prediction_type": "x0"}, "prediction_type='x0'.*epsilon"),
        ({"beta_schedule": "cosine"}, "beta_schedule='cosine'"),
        ({"text_size": 4, "attention_levels": ()}, "text_size=4 needs attention_levels"),
        ({"num_classes": 0}, "num_classes=0"),
        ({"dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_values_that_do_not_fit_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny(**changes)


def test_misuse_is_named() -> None:
    model = tiny()
    with pytest.raises(TypeError, match=r"`images`, or images and labels; got \['pixels'\]"):
        model({"pixels": pictures()})
    with pytest.raises(ValueError, match="num_steps=1001 must be at most 1000"):
        model.generate(num_steps=1001)
    with pytest.raises(TypeError, match="'label' is no condition; accepted are labels"):
        model.generate(label=torch.tensor([1]))
    model.scheduler.register_to_config(prediction_type="sample")
    with pytest.raises(ValueError, match="prediction_type='sample'"):
        DiffusionModel(model.unet, model.scheduler)
    with pytest.raises(ValueError, match="must have the shape of target"):
        MeanSquaredError().update(torch.zeros(2), torch.zeros(1))


def test_the_metric_counts_elements_of_unequal_batches() -> None:
    metric, predictions, targets = MeanSquaredError(), torch.randn(7, 3), torch.randn(7, 3)
    for part in (slice(0, 2), slice(2, 7)):
        metric.update(predictions[part], targets[part])
    torch.testing.assert_close(metric.compute(), F.mse_loss(predictions, targets))


def test_it_can_be_built_again_from_its_origin() -> None:
    model = tiny(num_classes=4, prediction_type="v_prediction")
    assert model.origin is not None
    again = build_from_origin(model.origin)
    again.load_state_dict(model.state_dict())
    assert isinstance(again, DiffusionModel)
    assert again.scheduler.config.prediction_type == "v_prediction"


@pytest.mark.slow
@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction"])
def test_it_learns_what_digits_look_like(prediction_type: str) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    data = TensorDataset(
        torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1, torch.tensor(labels)
    )
    train, rest = torch.utils.data.random_split(data, [1500, 297], torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = tiny(num_classes=10, width=16, prediction_type=prediction_type, layers_per_block=1)
    trainer = Trainer(
        model=model,
        train_dataloader=DataLoader(train, 50, shuffle=True),
        eval_dataloader=DataLoader(rest, 99),
        eval_interval=0,
        max_duration="6ep",
        optimizers=torch.optim.AdamW(model.parameters(), lr=3e-3),
        progress_bar=False,
        seed=0,
    )
    trainer.fit()
    trainer.eval()
    error = float(trainer.state.eval_metric_values["MeanSquaredError"])
    trainer.eval()
    assert float(trainer.state.eval_metric_values["MeanSquaredError"]) == error
    trainer.close()
    # Zero costs 1 where noise is told, and else something between 1 and the pictures' mean square.
    square = float(data.tensors[0].square().mean())
    assert error < 0.45 < 0.7 * min(1, square), (error, square)
