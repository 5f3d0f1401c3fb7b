"""Builder of the audio model: Whisper's encoder."""

from __future__ import annotations

import torch
import transformers
from torch import nn

from . import weights
from .spec import Built, Exporter, Size

SEED = 0
FIXED = {0: "batch"}


class Features(nn.Module):
    """Log-mel features in, hidden states out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_features: torch.Tensor) -> torch.Tensor:
        """Run the model and give its first output."""
        return self.model(input_features=input_features, return_dict=False)[0]


def whisper_encoder(size: Size, exporter: Exporter) -> Built:
    """Build the encoder of Whisper-tiny; its length is fixed by its table of positions (30 s are 3000 frames)."""
    shape = {"d_model": 384, "encoder_ffn_dim": 1536, "max_source_positions": 1500}
    if size == "small":
        shape = {"d_model": 24, "encoder_ffn_dim": 48, "max_source_positions": 32, "num_mel_bins": 16}
    config = transformers.WhisperConfig(
        encoder_layers=4, encoder_attention_heads=6, attn_implementation="eager", **shape
    )
    model = transformers.WhisperModel(config).encoder
    weights.randomise(model, SEED)
    gen = weights.generator(SEED, "features")
    features = torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions, generator=gen)
    return Built(Features(model).eval(), (features,), {"input_features": FIXED}, {"last_hidden_state": FIXED})
