"""Models that the trainer can train, and the contract for one's own.

Names resolve on first use: a model that is not asked for costs nothing, and what it is built on
(torchvision, transformers, ...) is imported when it is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer._lazy import lazy_names

if TYPE_CHECKING:
    from composer.core.model import ComposerModel as ComposerModel
    from composer.models.bert import create_bert_classification as create_bert_classification
    from composer.models.bert import create_bert_mlm as create_bert_mlm
    from composer.models.cards import example_batch as example_batch
    from composer.models.classifier import ComposerClassifier as ComposerClassifier
    from composer.models.decoder import Decoder as Decoder
    from composer.models.decoder import DecoderConfig as DecoderConfig
    from composer.models.decoder import composer_decoder as composer_decoder
    from composer.models.deeplabv3 import DeepLabv3 as DeepLabv3
    from composer.models.deeplabv3 import composer_deeplabv3 as composer_deeplabv3
    from composer.models.detection import ComposerDetector as ComposerDetector
    from composer.models.detection import collate_detection as collate_detection
    from composer.models.diffusion import DiffusionModel as DiffusionModel
    from composer.models.diffusion import composer_diffusion as composer_diffusion
    from composer.models.efficientnet import composer_efficientnet as composer_efficientnet
    from composer.models.efficientnet import composer_efficientnetb0 as composer_efficientnetb0
    from composer.models.flops import count_flops as count_flops
    from composer.models.flops import num_parameters as num_parameters
    from composer.models.gpt2 import create_gpt2 as create_gpt2
    from composer.models.huggingface import HuggingFaceModel as HuggingFaceModel
    from composer.models.huggingface import (
        write_huggingface_pretrained_from_composer_checkpoint as write_huggingface_pretrained_from_composer_checkpoint,  # noqa: E501
    )
    from composer.models.initializers import Initializer as Initializer
    from composer.models.language import LanguageModel as LanguageModel
    from composer.models.origin import build_from_origin as build_from_origin
    from composer.models.origin import remembers_origin as remembers_origin
    from composer.models.resnet import composer_resnet as composer_resnet
    from composer.models.resnet_cifar import ResNetCIFAR as ResNetCIFAR
    from composer.models.resnet_cifar import composer_resnet_cifar as composer_resnet_cifar
    from composer.models.retinanet import composer_retinanet as composer_retinanet
    from composer.models.segmentation import ComposerSegmenter as ComposerSegmenter
    from composer.models.small_convnets import MNISTNet as MNISTNet
    from composer.models.small_convnets import ResNet9 as ResNet9
    from composer.models.small_convnets import mnist_model as mnist_model
    from composer.models.small_convnets import resnet9 as resnet9
    from composer.models.timm_models import composer_timm as composer_timm
    from composer.models.unet import UNet as UNet
    from composer.models.unet import composer_unet as composer_unet
    from composer.models.vision_transformer import composer_vit as composer_vit
    from composer.models.vision_transformer import vit_small_patch16 as vit_small_patch16

# Public name -> module that defines it.
_HOMES = {
    "ComposerClassifier": "classifier",
    "ComposerDetector": "detection",
    "ComposerModel": "composer.core.model",
    "ComposerSegmenter": "segmentation",
    "Decoder": "decoder",
    "DecoderConfig": "decoder",
    "DeepLabv3": "deeplabv3",
    "DiffusionModel": "diffusion",
    "HuggingFaceModel": "huggingface",
    "Initializer": "initializers",
    "LanguageModel": "language",
    "MNISTNet": "small_convnets",
    "ResNet9": "small_convnets",
    "ResNetCIFAR": "resnet_cifar",
    "UNet": "unet",
    "build_from_origin": "origin",
    "collate_detection": "detection",
    "composer_decoder": "decoder",
    "composer_deeplabv3": "deeplabv3",
    "composer_diffusion": "diffusion",
    "composer_efficientnet": "efficientnet",
    "composer_efficientnetb0": "efficientnet",
    "composer_resnet": "resnet",
    "composer_resnet_cifar": "resnet_cifar",
    "composer_retinanet": "retinanet",
    "composer_timm": "timm_models",
    "composer_unet": "unet",
    "composer_vit": "vision_transformer",
    "count_flops": "flops",
    "create_bert_classification": "bert",
    "create_bert_mlm": "bert",
    "create_gpt2": "gpt2",
    "example_batch": "cards",
    "mnist_model": "small_convnets",
    "num_parameters": "flops",
    "remembers_origin": "origin",
    "resnet9": "small_convnets",
    "vit_small_patch16": "vision_transformer",
    "write_huggingface_pretrained_from_composer_checkpoint": "huggingface",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

if not TYPE_CHECKING:
    # A type checker takes the imports above for the exported names.
    __all__ = sorted(_HOMES)
