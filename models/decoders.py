"""Builders of decoders with a cache: rotary, learned and ALiBi positions, grouped, single and full heads, experts."""

from __future__ import annotations

from typing import Any

import transformers

from . import weights
from .caches import causal
from .spec import Built, Exporter, Size

SEED = 0
VOCAB = {"full": 4096, "small": 300}
WINDOW = 6
"""Narrower than the sequences that models are compared on."""


def _attention(exporter: Exporter) -> str:
    """Return how attention is written: scaled_dot_product_attention by dynamo, the product of matrices by TorchScript.

    Both ways are in use with both exporters, and come out as unlike graphs.
    """
    return "sdpa" if exporter == "dy" else "eager"


def shape(size: Size, heads: int, groups: int, layers: int = 4) -> dict[str, Any]:
    """Return the sizes that configurations with the names of Llama's share."""
    width = 512 if size == "full" else 8 * heads
    return {
        "vocab_size": VOCAB[size],
        "hidden_size": width,
        "intermediate_size": width * 5 // 2,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "max_position_embeddings": 1024 if size == "full" else 256,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": None,
    }


def _built(model: Any, **options: bool) -> Built:
    weights.randomise(model, SEED)
    return causal(model, **options)


def llama(size: Size, exporter: Exporter) -> Built:
    """Build a Llama with its cache: eight heads, two of keys and values, rotary positions."""
    config = _rotary(transformers.LlamaConfig, size, exporter, groups=2)
    return _built(transformers.LlamaForCausalLM(config))


def mistral(size: Size, exporter: Exporter) -> Built:
    """Build a Mistral with its cache; a token sees the window of the last tokens only."""
    config = _rotary(transformers.MistralConfig, size, exporter, groups=2, sliding_window=WINDOW)
    return _built(transformers.MistralForCausalLM(config))


def gpt2(size: Size, exporter: Exporter) -> Built:
    """Build a GPT-2 with its cache: learned positions, one matrix for queries, keys and values."""
    full = size == "full"
    config = transformers.GPT2Config(
        vocab_size=VOCAB[size],
        n_embd=512 if full else 24,
        n_layer=4,
        n_head=8 if full else 6,
        n_positions=1024 if full else 128,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=_attention(exporter),
    )
    model = transformers.GPT2LMHeadModel(config)
    weights.randomise(model, SEED, embedding_std=config.n_embd**-0.5)
    return causal(model)


def qwen2(size: Size, exporter: Exporter) -> Built:
    """Build a Qwen2 with its cache: queries, keys and values have biases, the output has none."""
    config = _rotary(transformers.Qwen2Config, size, exporter, groups=4)
    return _built(transformers.Qwen2ForCausalLM(config))


def qwen3(size: Size, exporter: Exporter) -> Built:
    """Build a Qwen3 with its cache: queries and keys are normalized before they are rotated."""
    wide = 128 if size == "full" else 12  # not the width by the heads
    config = _rotary(transformers.Qwen3Config, size, exporter, groups=2, head_dim=wide)
    return _built(transformers.Qwen3ForCausalLM(config))


def gpt_neox(size: Size, exporter: Exporter) -> Built:
    """Build a GPT-NeoX with its cache: a quarter of each head rotates, attention and layers run in parallel."""
    config = _rotary(transformers.GPTNeoXConfig, size, exporter, rotary_pct=0.25)
    return _built(transformers.GPTNeoXForCausalLM(config))


def phi(size: Size, exporter: Exporter) -> Built:
    """Build a Phi with its cache: half of each head rotates, all layers have biases, one norm for both branches."""
    config = _rotary(transformers.PhiConfig, size, exporter, partial_rotary_factor=0.5)
    return _built(transformers.PhiForCausalLM(config))


def phi3(size: Size, exporter: Exporter) -> Built:
    """Build a Phi-3 with its cache: one matrix for queries, keys and values, one for gate and up."""
    return _built(transformers.Phi3ForCausalLM(_rotary(transformers.Phi3Config, size, exporter, groups=4)))


def gptj(size: Size, exporter: Exporter) -> Built:
    """Build a GPT-J with its cache: pairs of neighbours rotate, in part of each head."""
    full = size == "full"
    config = transformers.GPTJConfig(
        vocab_size=VOCAB[size],
        n_embd=512 if full else 64,
        n_layer=4,
        n_head=8 if full else 4,
        n_positions=1024 if full else 128,
        rotary_dim=32 if full else 8,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    return _built(transformers.GPTJForCausalLM(config))


def opt(size: Size, exporter: Exporter) -> Built:
    """Build an OPT with its cache: learned positions that begin at two, Relu."""
    full = size == "full"
    config = transformers.OPTConfig(
        vocab_size=VOCAB[size],
        hidden_size=512 if full else 24,
        word_embed_proj_dim=512 if full else 24,
        ffn_dim=2048 if full else 48,
        num_hidden_layers=4,
        num_attention_heads=8 if full else 6,
        max_position_embeddings=1024 if full else 128,
        attn_implementation=_attention(exporter),
    )
    model = transformers.OPTForCausalLM(config)
    weights.randomise(model, SEED, embedding_std=config.hidden_size**-0.5)
    return causal(model)


def gemma2(size: Size, exporter: Exporter) -> Built:
    """Build a Gemma 2 with its cache: scores and logits go through tanh, every other layer has a window."""
    config = _rotary(
        transformers.Gemma2Config,
        size,
        exporter,
        groups=2,
        attention="eager",  # scaled_dot_product_attention leaves the tanh out
        head_dim=64 if size == "full" else 8,
        query_pre_attn_scalar=64 if size == "full" else 8,
        sliding_window=WINDOW,
    )
    return _built(transformers.Gemma2ForCausalLM(config))


def gemma3(size: Size, exporter: Exporter) -> Built:
    """Build a Gemma 3 with its cache: normalized queries and keys, windows, two bases of rotation."""
    config = _rotary(
        transformers.Gemma3TextConfig,
        size,
        exporter,
        groups=2,
        head_dim=64 if size == "full" else 8,
        query_pre_attn_scalar=64 if size == "full" else 8,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
    )
    return _built(transformers.Gemma3ForCausalLM(config))


def falcon(size: Size, exporter: Exporter) -> Built:
    """Build a Falcon with its cache: all heads share one of keys and values, rotary positions."""
    full = size == "full"
    config = transformers.FalconConfig(
        vocab_size=VOCAB[size],
        hidden_size=512 if full else 64,
        num_hidden_layers=4,
        num_attention_heads=8,
        multi_query=True,
        new_decoder_architecture=False,
        parallel_attn=True,
        bias=False,
        alibi=False,  # its ALiBi is computed in bfloat16, which ONNX Runtime does not multiply on a CPU
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=_attention(exporter),
    )
    return _built(transformers.FalconForCausalLM(config))


def bigcode(size: Size, exporter: Exporter) -> Built:
    """Build a GPTBigCode (StarCoder) with its cache: all heads share one of keys and values, learned positions."""
    full = size == "full"
    config = transformers.GPTBigCodeConfig(
        vocab_size=VOCAB[size],
        n_embd=512 if full else 24,
        n_layer=4,
        n_head=8 if full else 6,
        n_positions=1024 if full else 128,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=_attention(exporter),
    )
    model = transformers.GPTBigCodeForCausalLM(config)
    weights.randomise(model, SEED, embedding_std=config.n_embd**-0.5)
    return causal(model)


def bloom(size: Size, exporter: Exporter) -> Built:
    """Build a BLOOM with its cache: ALiBi from the mask, queries, keys and values interleaved by head."""
    config = transformers.BloomConfig(
        vocab_size=VOCAB[size],
        hidden_size=512 if size == "full" else 48,
        n_layer=4,
        n_head=8 if size == "full" else 6,  # six is not a power of two, which has slopes of its own
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    model = transformers.BloomForCausalLM(config)
    weights.randomise(model, SEED, embedding_std=config.hidden_size**-0.5)
    return causal(model, positions=False)


def mpt(size: Size, exporter: Exporter) -> Built:
    """Build an MPT with its cache: ALiBi that is the end of a table, no biases."""
    config = transformers.MptConfig(
        vocab_size=VOCAB[size],
        d_model=512 if size == "full" else 48,
        n_layers=4,
        n_heads=8,
        max_seq_len=512 if size == "full" else 64,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    model = transformers.MptForCausalLM(config)
    weights.randomise(model, SEED, embedding_std=config.d_model**-0.5)
    return causal(model, positions=False)


def mixtral(size: Size, exporter: Exporter) -> Built:
    """Build a Mixtral with its cache: two of four experts for each token."""
    config = _rotary(
        transformers.MixtralConfig,
        size,
        exporter,
        groups=2,
        layers=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=None,
        experts_implementation="batched_mm",  # the others loop over experts, or have no translation
    )
    return _experts(transformers.MixtralForCausalLM(config), config.hidden_size, config.intermediate_size)


def qwen2_moe(size: Size, exporter: Exporter) -> Built:
    """Build a Qwen2-MoE with its cache: two of four experts, and one for all tokens with a gate of its own."""
    wide = 256 if size == "full" else 32
    config = _rotary(
        transformers.Qwen2MoeConfig,
        size,
        exporter,
        groups=4,
        layers=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=wide,
        shared_expert_intermediate_size=wide,
        experts_implementation="batched_mm",
    )
    return _experts(transformers.Qwen2MoeForCausalLM(config), config.hidden_size, wide)


def _rotary(
    kind: Any,
    size: Size,
    exporter: Exporter,
    *,
    groups: int = 8,
    layers: int = 4,
    attention: str | None = None,
    **changes: Any,
) -> Any:
    """Configure a model whose sizes have the names of Llama's."""
    shared = shape(size, 8, groups, layers)
    if kind is transformers.GPTNeoXConfig:
        del shared["num_key_value_heads"]
    return kind(**{**shared, "attn_implementation": attention or _attention(exporter), **changes})


def _experts(model: Any, width: int, inner: int) -> Built:
    """Draw the weights of experts, which are in one tensor for all, like those of other layers."""
    weights.randomise(model, SEED)
    weights.scale(model, "experts.gate_up_proj", width**-0.5 / weights.LOOSE_STD)
    weights.scale(model, "experts.down_proj", inner**-0.5 / weights.LOOSE_STD)
    return causal(model)
