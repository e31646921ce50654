"""The training objective: put noise on a picture and let a network say what was put on.

Ho et al., Denoising Diffusion Probabilistic Models (2020), equation 14: of
``x_t = sqrt(a_t) x + sqrt(1 - a_t) noise`` the network is to tell the noise. With ``v_prediction``
it is to tell ``sqrt(a_t) noise - sqrt(1 - a_t) x`` instead (Salimans and Ho, Progressive
Distillation for Fast Sampling of Diffusion Models, 2022). The error is squared, all timesteps weigh
the same. With an autoencoder all of it happens to its latent pictures (Rombach et al.,
High-Resolution Image Synthesis with Latent Diffusion Models, 2022).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from composer.metrics.regression import MeanSquaredError
from composer.models._tasks import TaskModel, check_module
from composer.models.diffusion.conditions import CONDITIONS, check_conditions, read_batch
from composer.models.diffusion.draws import draw_by_content, draw_freely
from composer.utils.checks import check_integer

__all__ = ["DiffusionModel"]

_TARGETS = ("epsilon", "v_prediction")


class DiffusionModel(TaskModel):
    """Train a network of diffusers to take noise away, and draw pictures with it.

    A batch is a mapping with ``images``, and with ``labels`` (classes, of shape (N,)) or
    ``encoder_hidden_states`` (an embedded text, of shape (N, T, D)) if the network is told what is
    in the picture; or a pair of images and labels. Pictures are of shape (N, C, H, W), from -1 to
    1.

    In training, timesteps and noise are drawn from torch's global generators; in evaluation they
    follow from each picture, see :mod:`composer.models.diffusion.draws`.

    Args:
        unet: Called with noisy pictures, timesteps and conditions, such as ``UNet2DModel`` or
            ``UNet2DConditionModel``.
        scheduler: How much noise each timestep has, such as a ``DDPMScheduler``; its
            ``prediction_type`` is what the network learns to tell.
        autoencoder: An ``AutoencoderKL``, which is not trained; by default the network sees the
            pictures themselves.

    Raises:
        TypeError: If a network is no ``torch.nn.Module``, or the scheduler none of diffusers.
        ValueError: If the scheduler has another prediction type than ``"epsilon"`` or
            ``"v_prediction"``.

    Example:
        >>> from composer.models import composer_diffusion
        >>> model = composer_diffusion(8, 1, width=8, multipliers=(1, 2), attention_levels=())
        >>> batch = {"images": torch.zeros(2, 1, 8, 8)}
        >>> model.loss(model(batch), batch).ndim
        0
    """

    unet: torch.nn.Module
    scheduler: Any
    autoencoder: torch.nn.Module | None

    def __init__(
        self, unet: torch.nn.Module, scheduler: Any, autoencoder: torch.nn.Module | None = None
    ) -> None:
        super().__init__()
        check_module(unet, "unet")
        prediction_type = getattr(getattr(scheduler, "config", None), "prediction_type", None)
        if prediction_type is None or not hasattr(scheduler, "add_noise"):
            raise TypeError(
                f"scheduler={scheduler!r} must be a scheduler of diffusers, such as DDPMScheduler()"
            )
        if prediction_type not in _TARGETS:
            raise ValueError(
                f"scheduler has prediction_type={prediction_type!r}; accepted are "
                f"{', '.join(_TARGETS)}"
            )
        self.unet = unet
        self.scheduler = scheduler
        if autoencoder is not None:
            check_module(autoencoder, "autoencoder")
            autoencoder.requires_grad_(False).eval()
        self.autoencoder = autoencoder
        self.train_metrics = MeanSquaredError()
        self.val_metrics = MeanSquaredError()

    def train(self, mode: bool = True) -> DiffusionModel:
        """Change the mode of all but the autoencoder.

        Args:
            mode: Whether for training.

        Returns:
            The model.

        Example:
            >>> from composer.models import composer_diffusion
            >>> model = composer_diffusion(8, 1, width=8, multipliers=(1,), attention_levels=())
            >>> model.train(False).training
            False
        """
        super().train(mode)
        if self.autoencoder is not None:
            self.autoencoder.eval()
        return self

    def forward(self, batch: Any) -> dict[str, torch.Tensor]:
        """Put noise on pictures and let the network say what was put on.

        Args:
            batch: A mapping with ``images``, or images and labels.

        Returns:
            ``prediction`` and ``target``, both of the shape of the (latent) pictures.

        Example:
            >>> from composer.models import composer_diffusion
            >>> model = composer_diffusion(8, 1, width=8, multipliers=(1,), attention_levels=())
            >>> sorted(model((torch.zeros(2, 1, 8, 8), None)))
            ['prediction', 'target']
        """
        images, conditions = read_batch(batch)
        latents = self.encode(images)
        num_timesteps = self.scheduler.config.num_train_timesteps
        if self.training:
            timesteps, noise = draw_freely(latents, num_timesteps)
        else:
            timesteps, noise = draw_by_content(images, latents, num_timesteps)
        return self.predict(latents, timesteps, noise, **conditions)

    def predict(
        self,
        latents: torch.Tensor,
        timesteps: torch.Tensor,
        noise: torch.Tensor,
        **conditions: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        """Do what :meth:`forward` does with noise that is given.

        Args:
            latents: Pictures, or those of the autoencoder.
            timesteps: How noisy each becomes, whole numbers of shape (N,).
            noise: Of the shape of ``latents``.
            **conditions: What else the network is told.

        Returns:
            ``prediction`` and ``target``.

        Example:
            >>> from composer.models import composer_diffusion
            >>> model = composer_diffusion(8, 1, width=8, multipliers=(1,), attention_levels=())
            >>> noise = torch.randn(2, 1, 8, 8)
            >>> outputs = model.predict(torch.zeros(2, 1, 8, 8), torch.tensor([0, 999]), noise)
            >>> torch.equal(outputs["target"], noise)
            True
        """
        noisy = self.scheduler.add_noise(latents, noise, timesteps)
        target = noise
        if self.scheduler.config.prediction_type == "v_prediction":
            target = self.scheduler.get_velocity(latents, noise, timesteps)
        return {"prediction": self.unet(noisy, timesteps, **conditions).sample, "target": target}

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Compute the mean squared error.

        Args:
            outputs: What :meth:`forward` returned.
            batch: Not looked at.
            *args: Handed on to the loss function.
            **kwargs: Handed on to the loss function, for instance ``reduction="none"``.

        Returns:
            The error, in single precision; about 1 for a network that always says zero.

        Example:
            >>> from composer.models import composer_diffusion
            >>> model = composer_diffusion(8, 1, width=8, multipliers=(1,), attention_levels=())
            >>> outputs = {"prediction": torch.zeros(2, 3), "target": torch.full((2, 3), 2.0)}
            >>> model.loss(outputs, None)
            tensor(4.)
        """
        return F.mse_loss(outputs["prediction"].float(), outputs["target"].float(), *args, **kwargs)

    def for_inference(self, batch: Any) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Say what is exported: the network, called with noisy pictures and timesteps.

        Args:
            batch: A mapping with ``images``, or images and labels.

        Returns:
            The network, and its positional and named arguments.

        Example:
            >>> from composer.models import composer_diffusion
            >>> model = composer_diffusion(8, 1, width=8, multipliers=(1,), attention_levels=())
            >>> model.for_inference((torch.zeros(2, 1, 8, 8), None))[1][1]
            tensor([0, 0])
        """
        images, conditions = read_batch(batch)
        latents = self.encode(images)
        timesteps = torch.zeros(len(latents), dtype=torch.long, device=latents.device)
        return self.unet, (latents, timesteps), conditions

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        """Turn pictures into what the network works on.

        Args:
            images: Pictures of shape (N, C, H, W), from -1 to 1.

        Returns:
            The pictures, or those of the autoencoder, scaled to a spread of about 1: drawn from its
            distribution in training, the likeliest in evaluation.

        Example:
            >>> from composer.models import composer_diffusion
            >>> model = composer_diffusion(8, 1, width=8, multipliers=(1,), attention_levels=())
            >>> model.encode(torch.ones(1, 1, 8, 8)).mean()
            tensor(1.)
        """
        if self.autoencoder is None:
            return images
        with torch.no_grad():
            found = self.autoencoder.encode(images).latent_dist  # type: ignore[operator]
            latents = found.sample() if self.training else found.mode()
        scaled: torch.Tensor = latents * self._scale()
        return scaled

    @torch.no_grad()
    def generate(
        self,
        num_samples: int = 1,
        num_steps: int | None = None,
        generator: torch.Generator | None = None,
        **conditions: torch.Tensor,
    ) -> torch.Tensor:
        """Draw pictures: start from noise and take it away step by step.

        Args:
            num_samples: Number of pictures.
            num_steps: Number of steps, at most as many as there are timesteps; all of them by
                default.
            generator: Source of the noise, on the host or the model's device; torch's global one by
                default.
            **conditions: ``labels`` or ``encoder_hidden_states``, one per picture.

        Returns:
            Pictures of shape (num_samples, C, H, W), about from -1 to 1.

        Raises:
            TypeError: If a number is no integer, or a condition is unknown or no tensor.
            ValueError: If a number is not accepted, or a condition does not fit the number of
                pictures or the classes.

        Example:
            >>> from composer.models import composer_diffusion
            >>> model = composer_diffusion(8, 1, width=8, multipliers=(1,), attention_levels=())
            >>> model.generate(2, num_steps=3).shape
            torch.Size([2, 1, 8, 8])
        """
        timesteps = self.scheduler.config.num_train_timesteps
        num_steps = timesteps if num_steps is None else num_steps
        check_integer("num_samples", num_samples, low=1)
        check_integer("num_steps", num_steps, low=1)
        if num_steps > timesteps:
            raise ValueError(f"num_steps={num_steps} must be at most {timesteps}")
        check_conditions(
            conditions, num_samples, getattr(self.unet.config, "num_class_embeds", None)
        )
        parameter = next(self.unet.parameters())
        config: Any = self.unet.config
        shape = (num_samples, config.in_channels, config.sample_size, config.sample_size)
        where = parameter.device if generator is None else generator.device
        noise = torch.randn(shape, generator=generator, device=where)
        latents = noise.to(parameter.device, parameter.dtype)
        told = {CONDITIONS[name]: value for name, value in conditions.items()}
        # A scheduler of its own: the steps to take are kept in it.
        scheduler = type(self.scheduler).from_config(self.scheduler.config)
        scheduler.set_timesteps(num_steps, device=parameter.device)
        was_training = self.training
        self.eval()
        try:
            for timestep in scheduler.timesteps:
                said = self.unet(latents, timestep, **told).sample
                latents = scheduler.step(said, timestep, latents, generator=generator).prev_sample
            if self.autoencoder is None:
                return latents
            images: torch.Tensor = self.autoencoder.decode(  # type: ignore[operator]
                latents / self._scale()
            ).sample
            return images
        finally:
            self.train(was_training)

    def _scale(self) -> float:
        assert self.autoencoder is not None
        config: Any = self.autoencoder.config
        return float(config.scaling_factor)

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        """Add a batch to a metric.

        Args:
            batch: Not looked at.
            outputs: What :meth:`forward` returned.
            metric: The metric, called with prediction and target.

        Example:
            >>> from composer.models import composer_diffusion
            >>> model = composer_diffusion(8, 1, width=8, multipliers=(1,), attention_levels=())
            >>> metric = model.get_metrics()["MeanSquaredError"]
            >>> outputs = {"prediction": torch.zeros(2, 3), "target": torch.full((2, 3), 2.0)}
            >>> model.update_metric(None, outputs, metric)
            >>> metric.compute()
            tensor(4.)
        """
        metric.update(outputs["prediction"], outputs["target"])
