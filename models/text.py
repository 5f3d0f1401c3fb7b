"""Builders of text models: BERT, GPT-2, Llama, T5 encoder."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

from . import weights
from .spec import Built, Exporter, Size

SEED = 0
BATCH, SEQUENCE = 2, 7
BATCH_SEQUENCE = {0: "batch", 1: "sequence"}


class Tokens(nn.Module):
    """Token ids and attention mask in, one tensor out: the signature of a text model in production."""

    def __init__(self, model: nn.Module, **fixed: Any) -> None:
        super().__init__()
        self.model = model
        self.fixed = fixed

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Run the model and give its first output."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False, **self.fixed)[0]


def built(model: nn.Module, vocab: int, output: str, **fixed: Any) -> Built:
    """Wrap a model of token ids, with example arguments of which one row is padded."""
    gen = weights.generator(SEED, "arguments")
    ids = torch.randint(0, vocab, (BATCH, SEQUENCE), generator=gen)
    mask = torch.ones(BATCH, SEQUENCE, dtype=torch.int64)
    mask[1, 5:] = 0
    return Built(
        Tokens(model, **fixed).eval(),
        (ids, mask),
        {"input_ids": BATCH_SEQUENCE, "attention_mask": BATCH_SEQUENCE},
        {output: BATCH_SEQUENCE},
    )


def bert_config(size: Size, **changes: Any) -> transformers.BertConfig:
    """Configure BERT-base, or the same twelve layers of twelve heads 24 wide."""
    if size == "small":
        small = {"vocab_size": 300, "hidden_size": 24, "intermediate_size": 48, "max_position_embeddings": 128}
        changes = {**small, **changes}
    return transformers.BertConfig(**{"attn_implementation": "eager", **changes})


def _bert(config: transformers.BertConfig) -> Built:
    model = transformers.BertModel(config, add_pooling_layer=False)
    weights.randomise(model, SEED, embedding_std=1.0)
    # Attention near the mean of all tokens, twelve times over, leaves tokens that are all alike.
    weights.scale(model, "query.weight", 2.0)
    weights.scale(model, "attention.output.dense.weight", 0.3)
    return built(model, config.vocab_size, "last_hidden_state")


def bert(size: Size, exporter: Exporter) -> Built:
    """Build BERT, with the attention written out."""
    return _bert(bert_config(size))


def bert_dropout(size: Size, exporter: Exporter) -> Built:
    """Build BERT for an export in training mode whose Dropout nodes have the inference form.

    ts: opset 11, whose Dropout has no training input. dy: scaled_dot_product_attention, whose translation writes
    Dropout without a training input; the hidden dropouts have probability 0 and come out as Identity.
    """
    if exporter == "dy":
        return _bert(bert_config(size, attn_implementation="sdpa", hidden_dropout_prob=0.0))
    return _bert(bert_config(size))


def gpt2(size: Size, exporter: Exporter) -> Built:
    """Build GPT-2 with its language head, whose matrix is the word embedding again (tied)."""
    small = {"vocab_size": 300, "n_embd": 24, "n_positions": 128, "bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(attn_implementation="eager", use_cache=False, **(small if size == "small" else {}))
    model = transformers.GPT2LMHeadModel(config)
    # Logits are sums over the width of products with the tied embedding: keep them near 1.
    weights.randomise(model, SEED, embedding_std=config.n_embd**-0.5)
    return built(model, config.vocab_size, "logits", use_cache=False)


def llama(size: Size, exporter: Exporter) -> Built:
    """Build a Llama of eight layers with grouped-query attention: several query heads share each key and value head."""
    shape = {"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816, "max_position_embeddings": 2048}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 4}
    if size == "small":
        shape = {"vocab_size": 300, "hidden_size": 24, "intermediate_size": 64, "max_position_embeddings": 256}
        heads = {"num_attention_heads": 6, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(
        num_hidden_layers=8, attn_implementation="eager", use_cache=False, **shape, **heads
    )
    model = transformers.LlamaForCausalLM(config)
    weights.randomise(model, SEED)
    return built(model, config.vocab_size, "logits", use_cache=False)


def t5_encoder(size: Size, exporter: Exporter) -> Built:
    """Build the encoder of T5-small, or the same six layers of eight heads 24 wide."""
    shape = {"d_model": 24, "d_ff": 48, "d_kv": 4, "vocab_size": 300} if size == "small" else {}
    config = transformers.T5Config(attn_implementation="sdpa", **shape)
    model = transformers.T5EncoderModel(config)
    weights.randomise(model, SEED)
    # T5 does not scale its attention by sqrt(d_kv); its query matrices carry the factor.
    weights.scale(model, "SelfAttention.q.weight", config.d_kv**-0.5)
    return built(model, config.vocab_size, "last_hidden_state")
