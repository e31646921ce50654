"""Models of transformers, with or without adapters of peft, in the trainer and out of checkpoints.

transformers and peft are imported when they are used, and never by importing this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer._lazy import lazy_names

if TYPE_CHECKING:
    from composer.models.huggingface.adapter_weights import (
        filter_state_dict_peft as filter_state_dict_peft,
    )
    from composer.models.huggingface.adapters import peft_installed as peft_installed
    from composer.models.huggingface.configurations import (
        get_hf_config_from_composer_state_dict as get_hf_config_from_composer_state_dict,
    )
    from composer.models.huggingface.configurations import (
        get_peft_config_from_composer_state_dict as get_peft_config_from_composer_state_dict,
    )
    from composer.models.huggingface.export import (
        write_huggingface_pretrained_from_composer_checkpoint as write_huggingface_pretrained_from_composer_checkpoint,  # noqa: E501
    )
    from composer.models.huggingface.heads import (
        maybe_get_underlying_model as maybe_get_underlying_model,
    )
    from composer.models.huggingface.model import HuggingFaceModel as HuggingFaceModel

# Public name -> module that defines it.
_HOMES = {
    "HuggingFaceModel": "model",
    "filter_state_dict_peft": "adapter_weights",
    "get_hf_config_from_composer_state_dict": "configurations",
    "get_peft_config_from_composer_state_dict": "configurations",
    "maybe_get_underlying_model": "heads",
    "peft_installed": "adapters",
    "write_huggingface_pretrained_from_composer_checkpoint": "export",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

if not TYPE_CHECKING:
    # A type checker takes the imports above for the exported names.
    __all__ = sorted(_HOMES)
