"""Builders of speech encoders over sound waves: wav2vec 2.0 with conformer layers, and WavLM."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

from . import weights
from .spec import Built, Exporter, Size

SEED = 0


class Waves(nn.Module):
    """Sound waves in, hidden states out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_values: torch.Tensor) -> torch.Tensor:
        """Run the model and give its first output."""
        return self.model(input_values=input_values, return_dict=False)[0]


def _shape(size: Size) -> dict[str, Any]:
    full = size == "full"
    return {
        "hidden_size": 256 if full else 24,
        "intermediate_size": 1024 if full else 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "conv_dim": (128, 128, 128) if full else (8, 8, 8),
        "conv_stride": (5, 4, 4),
        "conv_kernel": (10, 8, 4),
        "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "apply_spec_augment": False,
    }


def _built(model: nn.Module) -> Built:
    weights.randomise(model, SEED)
    waves = torch.randn(2, 3200, generator=weights.generator(SEED, "waves"))
    module = Waves(model).eval()
    weights.calibrate(module, (waves,), SEED)
    return Built(module, (waves,), {"input_values": {0: "batch"}}, {"last_hidden_state": {0: "batch"}})


def conformer(size: Size, exporter: Exporter) -> Built:
    """Build a wav2vec 2.0 with conformer layers: positions as in Transformer-XL, a convolution in each layer."""
    config = transformers.Wav2Vec2ConformerConfig(**_shape(size), position_embeddings_type="relative")
    return _built(transformers.Wav2Vec2ConformerModel(config))


def wavlm(size: Size, exporter: Exporter) -> Built:
    """Build a WavLM: relative positions, weighed by gates that each token computes."""
    config = transformers.WavLMConfig(**_shape(size), num_buckets=32, max_bucket_distance=80)
    return _built(transformers.WavLMModel(config))
