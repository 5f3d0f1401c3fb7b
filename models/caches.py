"""Decoders with a cache of keys and values among their inputs and outputs, under the names that Optimum gives them."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from . import weights
from .spec import Axes, Built

SEED = 0
BATCH, SEQUENCE, PAST = 2, 3, 5
"""Unlike each other and above 1, so that neither exporter takes one for another or for a constant."""

PADDED = 2
"""Tokens of padding on the left of the last row."""

TOKENS: Axes = {0: "batch_size", 1: "sequence_length"}
TOTAL = "past_sequence_length + sequence_length"
MASK: Axes = {0: "batch_size", 1: TOTAL}
PAST_AXES: Axes = {0: "batch_size", 2: "past_sequence_length"}
PRESENT_AXES: Axes = {0: "batch_size", 2: TOTAL}
TOKENS_PRESENT: Axes = {0: "batch_size", 2: "sequence_length"}
ENCODED = 7
STATES: Axes = {0: "batch_size", 1: "encoder_sequence_length"}
STATES_CACHE: Axes = {0: "batch_size", 2: "encoder_sequence_length"}

Pairs = list[tuple[torch.Tensor, torch.Tensor]]


def filled(pairs: Pairs) -> DynamicCache:
    """Make a cache that holds the given keys and values.

    One that is filled by `update` begins with an empty tensor of one axis: torch concatenates that with four axes,
    ONNX does not.
    """
    cache = DynamicCache()
    for keys, values in pairs:
        layer = DynamicLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


class _FirstLayer(DynamicLayer):
    """The empty cache of a layer, which takes the first keys and values as they are."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        self.lazy_initialization(key_states, value_states)
        self.keys, self.values = key_states, value_states
        return key_states, value_states


def fresh() -> DynamicCache:
    """Make an empty cache."""
    cache = DynamicCache()
    cache.layer_class_to_replicate = _FirstLayer
    return cache


def held(cache: DynamicCache) -> Pairs:
    """Return the keys and values of each layer."""
    return [(layer.keys, layer.values) for layer in cache.layers]


def flat(pairs: Pairs) -> tuple[torch.Tensor, ...]:
    """Return keys and values of all layers in one row."""
    return tuple(tensor for pair in pairs for tensor in pair)


def paired(tensors: tuple[torch.Tensor, ...]) -> Pairs:
    """Return the pairs of a row of keys and values."""
    return list(zip(tensors[::2], tensors[1::2]))


class Decoder(nn.Module):
    """A decoder whose cache is a row of tensors after its other inputs, and after its logits."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the model; return its logits and its cache."""
        given = dict(zip(self.names, tensors))
        cache = filled(paired(tensors[len(self.names) :]))
        logits = self.model(**given, past_key_values=cache, use_cache=True, return_dict=False)[0]
        return logits, *flat(held(cache))


class CrossDecoder(nn.Module):
    """The decoder of an encoder-decoder model, with the caches of both attentions of each layer.

    With `past`, keys and values of the encoder's states are inputs, as when the second and later tokens are decoded.
    Without, they are computed from `encoder_hidden_states`, and are outputs.
    """

    def __init__(self, model: nn.Module, names: tuple[str, ...], *, past: bool) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.past = past

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the model; return its logits and the caches that this step changed."""
        given = dict(zip(self.names, tensors))
        pairs = paired(tensors[len(self.names) :])
        mine, other = (filled(pairs[::2]), filled(pairs[1::2])) if self.past else (fresh(), fresh())
        # Of the encoder's states only the shape is read where their keys and values are known.
        states = pairs[1][0][:, 0] if self.past else given["encoder_hidden_states"]
        logits = self.model(
            decoder_input_ids=given["input_ids"],
            attention_mask=given.get("encoder_attention_mask"),
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            past_key_values=EncoderDecoderCache(mine, other),
            use_cache=True,
            return_dict=False,
        )[0]
        if self.past:
            return logits, *flat(held(mine))
        return logits, *(tensor for layer in zip(held(mine), held(other)) for tensor in flat(list(layer)))


def causal(model: transformers.PreTrainedModel, *, positions: bool = True) -> Built:
    """Wrap a decoder: ids, mask, positions where it takes them, and the cache; one row is padded on the left.

    The cache of the example is that of a first run, so that keys have the shape and the scale of the model's own.
    """
    model = model.eval()
    vocab = model.config.get_text_config().vocab_size
    gen = weights.generator(SEED, "arguments")
    ids = torch.randint(0, vocab, (BATCH, PAST + SEQUENCE), generator=gen)
    mask = torch.ones(BATCH, PAST + SEQUENCE, dtype=torch.int64)
    mask[-1, :PADDED] = 0
    place = (mask.cumsum(-1) - 1).clamp(min=0)
    first = DynamicCache()
    before: dict[str, Any] = {"position_ids": place[:, :PAST]} if positions else {}
    with torch.no_grad():
        model(input_ids=ids[:, :PAST], attention_mask=mask[:, :PAST], past_key_values=first, use_cache=True, **before)
    tensors = {"input_ids": ids[:, PAST:], "attention_mask": mask}
    axes = {"input_ids": TOKENS, "attention_mask": MASK}
    if positions:
        tensors["position_ids"], axes["position_ids"] = place[:, PAST:], TOKENS
    pairs = held(first)
    past = {f"past_key_values.{n}.{part}": PAST_AXES for n in range(len(pairs)) for part in ("key", "value")}
    present = {f"present.{n}.{part}": PRESENT_AXES for n in range(len(pairs)) for part in ("key", "value")}
    return Built(
        Decoder(model, tuple(tensors)).eval(),
        (*tensors.values(), *flat(pairs)),
        {**axes, **past},
        {"logits": TOKENS, **present},
    )


def crossing(model: transformers.PreTrainedModel, width: int, *, past: bool, masked: bool = True) -> Built:
    """Wrap the decoder of an encoder-decoder model; the encoder's states of one row are padded.

    Without `masked`, the decoder sees all of the encoder's states, as Whisper's.
    """
    model = model.eval()
    gen = weights.generator(SEED, "arguments")
    ids = torch.randint(0, model.config.vocab_size, (BATCH, PAST + SEQUENCE), generator=gen)
    states = torch.randn(BATCH, ENCODED, width, generator=gen)
    mask = torch.ones(BATCH, ENCODED, dtype=torch.int64)
    mask[-1, ENCODED - PADDED :] = 0
    axes: dict[str, Axes] = {"input_ids": TOKENS}
    shared: dict[str, torch.Tensor] = {}
    if masked:
        shared["encoder_attention_mask"], axes["encoder_attention_mask"] = mask, STATES
    first = {"input_ids": ids[:, :PAST], **shared, "encoder_hidden_states": states}
    module = CrossDecoder(model, tuple(first), past=False).eval()
    if not past:
        with torch.no_grad():
            count = len(module(*first.values())) // 4
        present = _cross_names("present", count, TOKENS_PRESENT)
        return Built(
            module, tuple(first.values()), {**axes, "encoder_hidden_states": STATES}, {"logits": TOKENS, **present}
        )
    with torch.no_grad():
        caches = module(*first.values())[1:]
    inputs = {"input_ids": ids[:, PAST:], **shared}
    return Built(
        CrossDecoder(model, tuple(inputs), past=True).eval(),
        (*inputs.values(), *caches),
        {**axes, **_cross_names("past_key_values", len(caches) // 4, PAST_AXES)},
        {"logits": TOKENS, **_cross_names("present", len(caches) // 4, PRESENT_AXES, encoder=False)},
    )


def _cross_names(prefix: str, layers: int, axes: Axes, *, encoder: bool = True) -> dict[str, Axes]:
    """Name the caches of all layers as Optimum does, and their dynamic axes."""
    sides = {"decoder": axes, **({"encoder": STATES_CACHE} if encoder else {})}
    return {
        f"{prefix}.{n}.{side}.{part}": dims
        for n in range(layers)
        for side, dims in sides.items()
        for part in ("key", "value")
    }
