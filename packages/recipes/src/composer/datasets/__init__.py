"""Data sets that recipes name, and that examples and tests can rely on."""

from __future__ import annotations

from composer.datasets.fashion import FashionMNIST, fashion_mnist

__all__ = ["FashionMNIST", "fashion_mnist"]
