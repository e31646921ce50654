"""A diffusion model over networks of diffusers, by the numbers of its sizes.

By default it is that of Ho et al., Denoising Diffusion Probabilistic Models (2020), for CIFAR-10:
35.7 million parameters, a thousand timesteps, variances from 0.0001 to 0.02 in equal steps. The
first weights are those of diffusers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from composer.models.diffusion.model import DiffusionModel
from composer.models.origin import remembers_origin
from composer.utils.checks import check_choice, check_integer, check_number
from composer.utils.imports import MissingConditionalImportError

__all__ = ["composer_diffusion"]

_PREDICTIONS = ("epsilon", "v_prediction")
_SCHEDULES = ("linear", "scaled_linear", "squaredcos_cap_v2")


@remembers_origin("composer_diffusion")
def composer_diffusion(
    image_size: int = 32,
    in_channels: int = 3,
    num_classes: int | None = None,
    *,
    text_size: int | None = None,
    width: int = 128,
    multipliers: Sequence[int] = (1, 2, 2, 2),
    attention_levels: Sequence[int] = (1,),
    layers_per_block: int = 2,
    dropout: float = 0.1,
    prediction_type: str = "epsilon",
    num_timesteps: int = 1000,
    beta_schedule: str = "linear",
    autoencoder: Any | None = None,
) -> DiffusionModel:
    """Build a diffusion model.

    Needs the extra ``diffusion``.

    Args:
        image_size: Height and width of what the network works on, in pixels: of the pictures, or of
            those of the autoencoder; halved between levels, so a multiple of two to the power of
            their number less one.
        in_channels: Channels of the same.
        num_classes: Number of classes, if the network is told the class of a picture: the batch
            then has ``labels``.
        text_size: Size of the vectors of an embedded text, if the network is told one: the batch
            then has ``encoder_hidden_states`` of shape (N, T, text_size).
        width: Channels of the first level.
        multipliers: Per level, how many times ``width`` channels it has.
        attention_levels: Levels at which pixels look at each other, counted from 0.
        layers_per_block: Number of residual layers per level.
        dropout: Share of activations set to zero in training, without ``text_size`` or with.
        prediction_type: What the network tells: ``"epsilon"``, the noise, or ``"v_prediction"``.
        num_timesteps: Number of timesteps.
        beta_schedule: How the variances of the noise grow: ``"linear"`` (Ho et al.),
            ``"scaled_linear"`` (Rombach et al., on latent pictures) or ``"squaredcos_cap_v2"``
            (Nichol and Dhariwal, 2021).
        autoencoder: An ``AutoencoderKL`` of diffusers, or where one is read from: a folder, or a
            name on the Hugging Face hub.

    Returns:
        The model, with the mean squared error as its metric.

    Raises:
        ValueError: If a value is not accepted.
        MissingConditionalImportError: If diffusers is not installed.

    Example:
        >>> model = composer_diffusion(8, 1, 10, width=8, multipliers=(1, 2), attention_levels=())
        >>> import torch
        >>> batch = (torch.zeros(2, 1, 8, 8), torch.tensor([3, 4]))
        >>> model(batch)["prediction"].shape
        torch.Size([2, 1, 8, 8])
    """
    _check(
        image_size=image_size,
        in_channels=in_channels,
        num_classes=num_classes,
        text_size=text_size,
        width=width,
        multipliers=multipliers,
        attention_levels=attention_levels,
        layers_per_block=layers_per_block,
        num_timesteps=num_timesteps,
    )
    check_number("dropout", dropout, low=0, high=1, open_high=True)
    check_choice("prediction_type", prediction_type, _PREDICTIONS)
    check_choice("beta_schedule", beta_schedule, _SCHEDULES)
    try:
        import diffusers
    except ImportError as error:
        raise MissingConditionalImportError(
            "diffusion", "diffusers", distribution="composer-models"
        ) from error

    mixed = "Attn" if text_size is None else "CrossAttn"
    levels = ["" if level not in attention_levels else mixed for level in range(len(multipliers))]
    options: dict[str, Any] = {
        "sample_size": image_size,
        "in_channels": in_channels,
        "out_channels": in_channels,
        "block_out_channels": tuple(width * times for times in multipliers),
        "layers_per_block": layers_per_block,
        "down_block_types": tuple(f"{mix}DownBlock2D" for mix in levels),
        "up_block_types": tuple(f"{mix}UpBlock2D" for mix in reversed(levels)),
        # Thirty-two groups wherever the channels allow it.
        "norm_num_groups": math.gcd(32, width),
        "dropout": dropout,
        "num_class_embeds": num_classes,
    }
    unet: Any
    if text_size is None:
        # One head, as in Ho et al.
        unet = diffusers.UNet2DModel(**options, attention_head_dim=None)
    else:
        unet = diffusers.UNet2DConditionModel(**options, cross_attention_dim=text_size)
    scheduler = diffusers.DDPMScheduler(
        num_train_timesteps=num_timesteps,
        beta_schedule=beta_schedule,
        prediction_type=prediction_type,
        # Latent pictures have no bounds to be cut off at.
        clip_sample=autoencoder is None,
    )
    if isinstance(autoencoder, str):
        try:
            autoencoder = diffusers.AutoencoderKL.from_pretrained(autoencoder)
        except OSError as error:
            raise OSError(
                f"autoencoder={autoencoder!r} is neither a folder that diffusers reads, nor found "
                f"on the Hugging Face hub or in its cache here: {str(error).splitlines()[0]}"
            ) from error
    return DiffusionModel(unet, scheduler, autoencoder)


def _check(
    *,
    image_size: int,
    num_classes: int | None,
    text_size: int | None,
    multipliers: Sequence[int],
    attention_levels: Sequence[int],
    **numbers: int,
) -> None:
    numbers["image_size"] = image_size
    optional = {"num_classes": num_classes, "text_size": text_size}
    numbers |= {name: value for name, value in optional.items() if value is not None}
    for name, value in numbers.items():
        check_integer(name, value, low=1)
    for name, levels in (("multipliers", multipliers), ("attention_levels", attention_levels)):
        if isinstance(levels, str) or not isinstance(levels, Sequence):
            raise TypeError(f"{name}={levels!r} must be a sequence of integers")
    if not multipliers:
        raise ValueError("multipliers=() must have one number per level, at least one")
    for times in multipliers:
        check_integer("multipliers", times, low=1)
    if image_size % 2 ** (len(multipliers) - 1):
        raise ValueError(
            f"image_size={image_size} must be a multiple of {2 ** (len(multipliers) - 1)}, since "
            f"it is halved between the {len(multipliers)} levels of multipliers={multipliers!r}"
        )
    for level in attention_levels:
        if level not in range(len(multipliers)):
            raise ValueError(
                f"attention_levels={attention_levels!r} must be below {len(multipliers)}, the "
                f"number of levels"
            )
    if text_size is not None and not attention_levels:
        raise ValueError(
            f"text_size={text_size} needs attention_levels, at which pixels look at the text"
        )
