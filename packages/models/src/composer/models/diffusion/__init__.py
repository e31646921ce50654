"""Diffusion models: a network learns to say what is noise in a picture, and so to draw pictures."""

from __future__ import annotations

from composer.models.diffusion.factory import composer_diffusion
from composer.models.diffusion.model import DiffusionModel

__all__ = ["DiffusionModel", "composer_diffusion"]
