"""A method and a logger that live outside of Composer and enter by entry points."""

from composer_cool.input_noise import InputNoise
from composer_cool.json_lines import JSONLinesLogger

__all__ = ["InputNoise", "JSONLinesLogger"]
