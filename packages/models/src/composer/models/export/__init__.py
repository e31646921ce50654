"""Leaving with a file that other tools read, and knowing that it computes the same."""

from __future__ import annotations

from composer.models.export.exporter import ExportReport, export_model
from composer.models.export.formats import ExportFormat
from composer.models.export.weights import export_safetensors

__all__ = ["ExportFormat", "ExportReport", "export_model", "export_safetensors"]
