"""Builders of image encoders and detectors: CLIP, SigLIP, DINOv2, BEiT, Swin 2, SAM, DETR."""

from __future__ import annotations

from typing import Any

import transformers

from . import vision, weights
from .spec import Built, Exporter, Size
from .vision import FIXED

SEED = 0
SIDE = {"full": 112, "small": 64}


def _attention(exporter: Exporter) -> str:
    return "sdpa" if exporter == "dy" else "eager"


def _shape(size: Size, layers: int = 4) -> dict[str, Any]:
    full = size == "full"
    return {
        "hidden_size": 384 if full else 24,
        "intermediate_size": 1536 if full else 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 6,
        "image_size": SIDE[size],
        "patch_size": 16,
    }


def _built(model: Any, size: Size, outputs: tuple[str, ...] = ("last_hidden_state",)) -> Built:
    weights.randomise(model, SEED)
    return vision.built(model, (SIDE[size], SIDE[size]), dict.fromkeys(outputs, FIXED))


def clip_vision(size: Size, exporter: Exporter) -> Built:
    """Build CLIP's image tower: a norm before the layers, QuickGelu."""
    config = transformers.CLIPVisionConfig(**_shape(size), attn_implementation=_attention(exporter))
    return _built(transformers.CLIPVisionModel(config), size)


def siglip_vision(size: Size, exporter: Exporter) -> Built:
    """Build SigLIP's image tower: its pooled output is an attention of one learned query."""
    config = transformers.SiglipVisionConfig(**_shape(size), attn_implementation=_attention(exporter))
    return _built(transformers.SiglipVisionModel(config), size, ("last_hidden_state", "pooler_output"))


def dinov2(size: Size, exporter: Exporter) -> Built:
    """Build a DINOv2: each branch is scaled by a vector."""
    shape = _shape(size)
    del shape["intermediate_size"]
    config = transformers.Dinov2Config(**shape, attn_implementation=_attention(exporter))
    return _built(transformers.Dinov2Model(config), size)


def beit(size: Size, exporter: Exporter) -> Built:
    """Build a BEiT: each layer has a table of relative positions."""
    config = transformers.BeitConfig(
        **_shape(size), use_relative_position_bias=True, attn_implementation=_attention(exporter)
    )
    return _built(transformers.BeitModel(config, add_pooling_layer=False), size)


def swin2(size: Size, exporter: Exporter) -> Built:
    """Build a Swin 2: cosines as scores, relative positions out of a small network."""
    config = transformers.Swinv2Config(
        image_size=SIDE[size],
        embed_dim=48 if size == "full" else 12,
        depths=[2, 2],
        num_heads=[3, 6],
        window_size=7 if size == "full" else 4,
    )
    return _built(transformers.Swinv2Model(config, add_pooling_layer=False), size)


def sam(size: Size, exporter: Exporter) -> Built:
    """Build the image encoder of SAM: windows, positions decomposed into rows and columns."""
    shape = _shape(size)
    del shape["intermediate_size"]
    config = transformers.SamVisionConfig(
        **shape,
        mlp_dim=1536 if size == "full" else 48,
        output_channels=64 if size == "full" else 16,
        window_size=3,
        global_attn_indexes=[1, 3],
        attn_implementation="eager" if exporter == "ts" else "sdpa",
    )
    return _built(transformers.SamVisionModel(config), size)


def sam2(size: Size, exporter: Exporter) -> Built:
    """Build the image encoder of SAM 2 (Hiera): queries are pooled, windows of several sizes."""
    width, side = (48, 128) if size == "full" else (12, 64)  # windows tile its 32 or 16 squared tokens
    backbone = {
        "hidden_size": width,
        "num_attention_heads": 1,
        "image_size": [side, side],
        "blocks_per_stage": [1, 2, 2, 1],
        "embed_dim_per_stage": [width, 2 * width, 4 * width, 8 * width],
        "num_attention_heads_per_stage": [1, 2, 4, 8],
        "window_size_per_stage": [8, 4, 4, 2],
        "global_attention_blocks": [4],
    }
    config = transformers.Sam2HieraDetConfig(**backbone, attn_implementation=_attention(exporter))
    model = transformers.Sam2HieraDetModel(config)
    weights.randomise(model, SEED)
    return vision.built(model, (side, side), {"last_hidden_state": FIXED})


def detr(size: Size, exporter: Exporter) -> Built:
    """Build a DETR on a small ResNet: a decoder of learned queries attends to the image."""
    full = size == "full"
    widths = [32, 64, 128, 256] if full else [8, 12, 16, 24]
    backbone = transformers.ResNetConfig(
        embedding_size=widths[0], hidden_sizes=widths, depths=[1, 1, 1, 1], layer_type="basic", out_features=["stage4"]
    )
    config = transformers.DetrConfig(
        backbone_config=backbone,
        use_timm_backbone=False,
        d_model=256 if full else 24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=512 if full else 48,
        decoder_ffn_dim=512 if full else 48,
        num_queries=20,
        num_labels=5,
        attn_implementation=_attention(exporter),
    )
    return _built(transformers.DetrForObjectDetection(config), size, ("logits", "pred_boxes"))
