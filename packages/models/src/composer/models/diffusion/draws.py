"""Which noise, and how much of it, goes onto which picture.

In training both come from torch's global generators, which a checkpoint keeps: a run that goes on
draws what it would have drawn. In evaluation they follow from the picture itself, so that a picture
gets the same noise in every evaluation, whatever the order, the size of the batches, or the number
of ranks; two evaluations then differ by the network alone.
"""

from __future__ import annotations

import torch

__all__ = ["draw_by_content", "draw_freely"]

#: Timesteps of shape (N,), and noise of the shape of what it is put on.
Draw = tuple[torch.Tensor, torch.Tensor]


def draw_freely(latents: torch.Tensor, num_timesteps: int) -> Draw:
    """Draw from torch's global generator of the device.

    Args:
        latents: What noise is put on, of shape (N, ...).
        num_timesteps: Timesteps are whole numbers below this, each as likely.

    Returns:
        Timesteps and noise.

    Example:
        >>> timesteps, noise = draw_freely(torch.zeros(3, 1, 4, 4), 10)
        >>> timesteps.shape, noise.shape
        (torch.Size([3]), torch.Size([3, 1, 4, 4]))
    """
    timesteps = torch.randint(num_timesteps, (len(latents),), device=latents.device)
    return timesteps, torch.randn_like(latents)


def draw_by_content(images: torch.Tensor, latents: torch.Tensor, num_timesteps: int) -> Draw:
    """Draw for each sample from a generator of its own, whose seed is made from its picture.

    Args:
        images: Pictures of shape (N, C, H, W).
        latents: What noise is put on, of shape (N, ...).
        num_timesteps: Timesteps are whole numbers below this, each as likely.

    Returns:
        Timesteps and noise, on the device of ``latents``.

    Example:
        >>> images = torch.rand(4, 1, 2, 2)
        >>> one = draw_by_content(images, images, 10)[0]
        >>> other = draw_by_content(images.flip(0), images.flip(0), 10)[0]
        >>> torch.equal(one, other.flip(0))
        True
    """
    if images.is_meta:
        # Pictures without pixels, as when operations are counted: there is nothing to compare.
        return draw_freely(latents, num_timesteps)
    timesteps, noise = [], []
    for seed in _seeds(images):
        generator = torch.Generator().manual_seed(seed)
        timesteps.append(torch.randint(num_timesteps, (), generator=generator))
        noise.append(torch.randn(latents.shape[1:], generator=generator))
    return (
        torch.stack(timesteps).to(latents.device),
        torch.stack(noise).to(latents.device, latents.dtype),
    )


def _seeds(images: torch.Tensor) -> list[int]:
    # The bits as whole numbers, each times an odd number of its place: unlike a sum of fractions,
    # it is the same in whatever order a device adds up.
    bits = images.detach().float().contiguous().view(torch.int32).flatten(1).to(torch.int64)
    places = 2 * torch.arange(bits.shape[1], device=bits.device) + 1
    # Seeds that differ little start streams that differ wholly; the sign is not wanted.
    seeds: list[int] = ((bits * places).sum(dim=1) & (2**62 - 1)).tolist()
    return seeds
