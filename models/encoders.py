"""Builders of text encoders: learned, rotary and relative positions, windows, disentangled attention, CLIP."""

from __future__ import annotations

from typing import Any

import transformers

from . import text, weights
from .spec import Built, Exporter, Size

SEED = 0


def _attention(exporter: Exporter) -> str:
    return "sdpa" if exporter == "dy" else "eager"


def _shape(size: Size, layers: int = 4) -> dict[str, Any]:
    """Return the sizes that configurations with the names of BERT's share."""
    full = size == "full"
    return {
        "vocab_size": 4096 if full else 300,
        "hidden_size": 384 if full else 24,
        "intermediate_size": 1536 if full else 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 6,
        "max_position_embeddings": 514 if full else 130,
    }


def _built(model: Any, vocab: int, output: str = "last_hidden_state") -> Built:
    """Draw weights that keep the tokens of a row apart, as for BERT."""
    weights.randomise(model, SEED, embedding_std=1.0)
    return text.built(model, vocab, output)


def distilbert(size: Size, exporter: Exporter) -> Built:
    """Build a DistilBERT: no token types, and a mask of its own making."""
    full = size == "full"
    config = transformers.DistilBertConfig(
        vocab_size=4096 if full else 300,
        dim=384 if full else 24,
        hidden_dim=1536 if full else 48,
        n_layers=4,
        n_heads=6,
        attn_implementation=_attention(exporter),
    )
    return _built(transformers.DistilBertModel(config), config.vocab_size)


def roberta(size: Size, exporter: Exporter) -> Built:
    """Build a RoBERTa: positions count the tokens that are not padding."""
    config = transformers.RobertaConfig(**_shape(size), pad_token_id=1, attn_implementation=_attention(exporter))
    return _built(transformers.RobertaModel(config, add_pooling_layer=False), config.vocab_size)


def electra(size: Size, exporter: Exporter) -> Built:
    """Build an ELECTRA: embeddings narrower than the layers."""
    config = transformers.ElectraConfig(
        **_shape(size), embedding_size=128 if size == "full" else 16, attn_implementation=_attention(exporter)
    )
    return _built(transformers.ElectraModel(config), config.vocab_size)


def albert(size: Size, exporter: Exporter) -> Built:
    """Build an ALBERT: one layer, four times."""
    config = transformers.AlbertConfig(
        **_shape(size), embedding_size=128 if size == "full" else 16, attn_implementation=_attention(exporter)
    )
    return _built(transformers.AlbertModel(config, add_pooling_layer=False), config.vocab_size)


def mpnet(size: Size, exporter: Exporter) -> Built:
    """Build an MPNet: a table of relative positions, shared by all layers, is added to the scores."""
    config = transformers.MPNetConfig(**_shape(size), relative_attention_num_buckets=32)
    return _built(transformers.MPNetModel(config, add_pooling_layer=False), config.vocab_size)


def deberta(size: Size, exporter: Exporter) -> Built:
    """Build a DeBERTa v2: content and position attend to each other, each by a Gather over the scores."""
    config = transformers.DebertaV2Config(
        **_shape(size, layers=3),
        relative_attention=True,
        position_buckets=32,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        type_vocab_size=0,
    )
    return _built(transformers.DebertaV2Model(config), config.vocab_size)


def modernbert(size: Size, exporter: Exporter) -> Built:
    """Build a ModernBERT: rotary positions, a window in two layers of three, gated layers."""
    config = transformers.ModernBertConfig(
        **_shape(size),
        local_attention=6,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0),
        attn_implementation=_attention(exporter),
        reference_compile=False,
    )
    return _built(transformers.ModernBertModel(config), config.vocab_size)


def clip_text(size: Size, exporter: Exporter) -> Built:
    """Build CLIP's text tower: causal and padded, QuickGelu."""
    shape = {**_shape(size), "max_position_embeddings": 77}
    config = transformers.CLIPTextConfig(
        **shape, bos_token_id=0, eos_token_id=2, attn_implementation=_attention(exporter)
    )
    return _built(transformers.CLIPTextModel(config), config.vocab_size)
