"""Builders of encoder-decoder models: BART, and the decoders of BART, T5 and Whisper with and without caches."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

from . import weights
from .caches import crossing
from .spec import Built, Exporter, Size

SEED = 0
VOCAB = {"full": 4096, "small": 300}
SOURCE = {0: "batch_size", 1: "encoder_sequence_length"}
TARGET = {0: "batch_size", 1: "sequence_length"}


class Seq2Seq(nn.Module):
    """Both ids and both masks in, logits out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
        decoder_attention_mask: torch.Tensor,
    ) -> torch.Tensor:
        """Run encoder and decoder."""
        return self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            use_cache=False,
            return_dict=False,
        )[0]


def _bart(size: Size, attention: str) -> transformers.BartForConditionalGeneration:
    full = size == "full"
    config = transformers.BartConfig(
        vocab_size=VOCAB[size],
        d_model=512 if full else 24,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=8 if full else 6,
        decoder_attention_heads=8 if full else 6,
        encoder_ffn_dim=1024 if full else 48,
        decoder_ffn_dim=1024 if full else 48,
        max_position_embeddings=512 if full else 128,
        attn_implementation=attention,
        forced_eos_token_id=None,
    )
    model = transformers.BartForConditionalGeneration(config)
    weights.randomise(model, SEED, embedding_std=config.d_model**-0.5)
    return model


def bart(size: Size, exporter: Exporter) -> Built:
    """Build a BART with encoder and decoder, without a cache."""
    model = _bart(size, "eager" if exporter == "ts" else "sdpa")
    gen = weights.generator(SEED, "arguments")
    source = torch.randint(0, VOCAB[size], (2, 7), generator=gen)
    target = torch.randint(0, VOCAB[size], (2, 5), generator=gen)
    masks = torch.ones_like(source), torch.ones_like(target)
    masks[0][1, 5:] = 0
    masks[1][1, 4:] = 0
    inputs = {
        "input_ids": SOURCE,
        "attention_mask": SOURCE,
        "decoder_input_ids": TARGET,
        "decoder_attention_mask": TARGET,
    }
    return Built(Seq2Seq(model).eval(), (source, masks[0], target, masks[1]), inputs, {"logits": TARGET})


def bart_decoder(size: Size, exporter: Exporter, *, past: bool) -> Built:
    """Build BART's decoder."""
    model = _bart(size, "eager" if exporter == "ts" else "sdpa")
    return crossing(model, model.config.d_model, past=past)


def t5_decoder(size: Size, exporter: Exporter, *, past: bool) -> Built:
    """Build the decoder of a gated T5: relative positions in its own attention, none in that to the encoder."""
    full = size == "full"
    config = transformers.T5Config(
        vocab_size=VOCAB[size],
        d_model=512 if full else 24,
        d_kv=64 if full else 4,
        d_ff=1024 if full else 48,
        num_layers=2,
        num_decoder_layers=4,
        num_heads=6,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    model = transformers.T5ForConditionalGeneration(config)
    weights.randomise(model, SEED)
    for attention in ("SelfAttention", "EncDecAttention"):
        weights.scale(model.decoder, f"{attention}.q.weight", config.d_kv**-0.5)
    return crossing(model, config.d_model, past=past)


def whisper_decoder(size: Size, exporter: Exporter, *, past: bool) -> Built:
    """Build Whisper's decoder; its keys have no bias."""
    full = size == "full"
    shape: dict[str, Any] = {
        "vocab_size": VOCAB[size],
        "d_model": 384 if full else 24,
        "encoder_ffn_dim": 768 if full else 48,
        "decoder_ffn_dim": 1536 if full else 48,
        "max_source_positions": 100,
        "max_target_positions": 448 if full else 128,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
    }
    config = transformers.WhisperConfig(
        encoder_layers=1,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        attn_implementation="eager" if exporter == "ts" else "sdpa",
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **shape,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    weights.randomise(model, SEED, embedding_std=config.d_model**-0.5)
    return crossing(model, config.d_model, past=past, masked=False)
