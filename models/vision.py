"""Builders of image models: ViT, ResNet-50, MobileNetV2, ConvNeXt, SegFormer, Swin, YOLOS."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

from . import weights
from .spec import Axes, Built, Exporter, Size

SEED = 0
BATCH = 2
FIXED = {0: "batch"}
ANY_SIZE = {0: "batch", 2: "height", 3: "width"}


class Pixels(nn.Module):
    """Images in, the first outputs of the model out."""

    def __init__(self, model: nn.Module, outputs: int) -> None:
        super().__init__()
        self.model = model
        self.outputs = outputs

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Run the model and give its first outputs."""
        results = self.model(pixel_values=pixel_values, return_dict=False)
        return results[0] if self.outputs == 1 else tuple(results[: self.outputs])


def images(batch: int, height: int, width: int) -> torch.Tensor:
    """Draw images that have structure at every scale, as photographs have, with mean 0 and variance near 1."""
    gen = weights.generator(SEED, "images")
    total = torch.zeros(batch, 3, height, width)
    for cells in (1, 2, 4, 8, 16, 32):
        coarse = torch.randn(batch, 3, min(cells, height), min(cells, width), generator=gen)
        total += nn.functional.interpolate(coarse, (height, width), mode="nearest")
    return total / 6**0.5


def built(model: nn.Module, size: tuple[int, int], outputs: dict[str, Axes], axes: Axes | None = None) -> Built:
    """Wrap an image model, its batch statistics calibrated on images and on noise, as it will meet both."""
    module = Pixels(model, len(outputs)).eval()
    noise = torch.randn(4, 3, *size, generator=weights.generator(SEED, "noise"))
    weights.calibrate(module, (torch.cat([images(4, *size), noise]),), SEED)
    return Built(module, (images(BATCH, *size),), {"pixel_values": axes or FIXED}, outputs)


def vit(size: Size, exporter: Exporter) -> Built:
    """Build ViT-base/16 without a head."""
    shape: dict[str, Any] = {"image_size": 224}
    if size == "small":
        shape = {"image_size": 64, "hidden_size": 24, "intermediate_size": 48}
    config = transformers.ViTConfig(attn_implementation="eager", **shape)
    model = transformers.ViTModel(config, add_pooling_layer=False)
    weights.randomise(model, SEED)
    return built(model, (config.image_size, config.image_size), {"last_hidden_state": FIXED})


def resnet50(size: Size, exporter: Exporter) -> Built:
    """Build ResNet-50; height and width are free."""
    shape: dict[str, Any] = {"num_labels": 1000}
    if size == "small":
        shape = {"embedding_size": 8, "hidden_sizes": [16, 24, 32, 48], "num_labels": 10}
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(**shape))
    weights.randomise(model, SEED)
    side = 224 if size == "full" else 64
    return built(model, (side, side), {"logits": FIXED}, ANY_SIZE)


def mobilenet(size: Size, exporter: Exporter) -> Built:
    """Build MobileNetV2 1.0."""
    shape: dict[str, Any] = {"num_labels": 1000}
    if size == "small":
        shape = {"num_labels": 10, "depth_multiplier": 0.1, "min_depth": 4, "depth_divisible_by": 4}
    config = transformers.MobileNetV2Config(finegrained_output=size == "full", **shape)
    model = transformers.MobileNetV2ForImageClassification(config)
    weights.randomise(model, SEED)
    side = 224 if size == "full" else 64
    return built(model, (side, side), {"logits": FIXED})


def convnext(size: Size, exporter: Exporter) -> Built:
    """Build ConvNeXt-tiny; height and width are free."""
    shape: dict[str, Any] = {"num_labels": 1000}
    if size == "small":
        shape = {"hidden_sizes": [8, 12, 16, 24], "num_labels": 10}
    model = transformers.ConvNextForImageClassification(transformers.ConvNextConfig(**shape))
    weights.randomise(model, SEED)
    side = 224 if size == "full" else 64
    return built(model, (side, side), {"logits": FIXED}, ANY_SIZE)


def segformer(size: Size, exporter: Exporter) -> Built:
    """Build SegFormer-B0 with its segmentation head."""
    shape: dict[str, Any] = {"num_labels": 150}
    if size == "small":
        shape = {"hidden_sizes": [8, 16, 20, 32], "decoder_hidden_size": 24, "num_labels": 5}
    config = transformers.SegformerConfig(attn_implementation="sdpa", **shape)
    model = transformers.SegformerForSemanticSegmentation(config)
    weights.randomise(model, SEED)
    side = 512 if size == "full" else 64
    return built(model, (side, side), {"logits": FIXED})


def swin(size: Size, exporter: Exporter) -> Built:
    """Build Swin-tiny, windows of 7 by 7."""
    shape: dict[str, Any] = {"image_size": 224, "num_labels": 1000}
    if size == "small":
        shape = {"image_size": 224, "embed_dim": 6, "num_labels": 10}
    config = transformers.SwinConfig(attn_implementation="sdpa", **shape)
    model = transformers.SwinForImageClassification(config)
    weights.randomise(model, SEED)
    return built(model, (config.image_size, config.image_size), {"logits": FIXED})


def yolos(size: Size, exporter: Exporter) -> Built:
    """Build a YOLOS as wide as YOLOS-small, with six layers: a ViT that detects objects."""
    shape: dict[str, Any] = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    side, num_labels = 224, 91
    if size == "small":
        shape = {"hidden_size": 24, "num_attention_heads": 6, "intermediate_size": 48, "num_detection_tokens": 10}
        side, num_labels = 64, 5
    config = transformers.YolosConfig(
        image_size=[side, side],
        num_labels=num_labels,
        num_hidden_layers=6,
        attn_implementation="eager",
        **shape,
    )
    model = transformers.YolosForObjectDetection(config)
    weights.randomise(model, SEED)
    return built(model, (side, side), {"logits": FIXED, "pred_boxes": FIXED})
