"""The order of the rows of Q and K under rotary position embeddings.

Hugging Face rotates the two halves of a head, the original LLaMA two neighboring elements. The converters of llama.cpp
permute Q and K of LLaMA back to pairs, and Hugging Face's permuted them to halves. The dims are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import onnx

from surgery.base.operators.subgraphs import graphs
from surgery.features.frameworks.row_orders import Rotary, Rotation
from surgery.model.checkpoints.checkpoints import Checkpoint

_IN_GGUF: Final = re.compile(r"blk\.(?P<layer>\d+)\.attn_(?P<role>[qk])\.(?:weight|bias)")
_IN_ORIGINAL: Final = re.compile(r"(?:.*\.)?layers\.(?P<layer>\d+)\.attention\.w(?P<role>[qk])\.(?:weight|bias)")
_IN_HUGGING_FACE: Final = re.compile(
    r"(?:.*\.)?layers\.(?P<layer>\d+)\.self_attn\.(?P<role>[qk])_proj\.(?:weight|bias)"
)

_HALVES: Final = frozenset(
    {
        *("bert", "falcon", "gemma", "gemma2", "gemma3", "gpt2", "gptneox", "nomic-bert", "phi2", "phi3"),
        *("qwen2", "qwen2moe", "qwen3", "qwen3moe", "stablelm", "starcoder2"),
    }
)
"""Architectures whose Q and K the converters of llama.cpp do not permute."""


class UnclearError(ValueError):
    """The order of the rows is not known."""


@dataclass(frozen=True)
class RotarySpec:
    """The section `rotary` of a mapping file: numbers of heads, and both orders."""

    heads: int | None = None
    kv_heads: int | None = None
    checkpoint: Rotation | None = None
    model: Rotation | None = None


def in_model(model: onnx.ModelProto) -> Rotation | None:
    """Return which elements a model rotates; None if it has no rotation of a known form, or both."""
    found: set[Rotation] = set()
    for graph in graphs(model.graph):
        producers = {name: node for node in graph.node for name in node.output}
        for node in graph.node:
            numbers = {attribute.name: attribute.i for attribute in node.attribute}
            if node.op_type == "RotaryEmbedding":
                found.add("pairs" if numbers.get("interleaved") else "halves")
            elif numbers.get("do_rotary"):
                found.add("pairs" if numbers.get("rotary_interleaved") else "halves")
            elif node.op_type == "Concat":
                found |= _turned(node, producers)
    return found.pop() if len(found) == 1 else None


def _turned(node: onnx.NodeProto, producers: Mapping[str, onnx.NodeProto]) -> set[Rotation]:
    """Return which elements are negated: a half as in `cat(-x2, x1)`, or every other one as in `stack(-x2, x1)`."""
    found: set[Rotation] = set()
    for name in node.input:
        made = producers.get(name)
        if made is not None and made.op_type == "Neg":
            found.add("halves")
        elif made is not None and made.op_type in ("Unsqueeze", "Reshape"):
            inner = producers.get(made.input[0])
            if inner is not None and inner.op_type == "Neg":
                found.add("pairs")
    return found


def reordered(name: str, home: Checkpoint, model: Rotation | None, spec: RotarySpec) -> Rotary | None:
    """Return how the outputs of a tensor must be reordered; None if they stay. Raises `UnclearError`."""
    wanted = spec.model or model
    match, have = _order(name, home, wanted, spec)
    if match is None or have is None:
        return None
    if wanted is None and have == "halves":
        return None
    if wanted is None:
        what = f"'{name}' has rotary pairs, and the graph does not show what it rotates"
        raise UnclearError(f"{what}; add 'rotary: {{model: halves}}' or 'pairs' to the mapping")
    if wanted == have:
        return None
    heads = _heads(match, home, spec)
    if heads is None:
        what = f"'{name}' has rotary {have}, and the model {wanted}; the number of heads is not known"
        todo = "add 'rotary: {heads: N, kv_heads: N}' to the mapping"
        other = f", or 'rotary: {{checkpoint: {wanted}}}' if it has the order of the model already"
        raise UnclearError(f"{what}; {todo}{'' if spec.checkpoint else other}")
    return Rotary(heads, wanted)


def _order(
    name: str, home: Checkpoint, wanted: Rotation | None, spec: RotarySpec
) -> tuple[re.Match[str] | None, Rotation | None]:
    """Return the match of the name of Q or K, and the order of its rows. Raises `UnclearError`."""
    architecture = home.metadata.get("general.architecture")
    if match := _IN_GGUF.fullmatch(name):
        if spec.checkpoint is None and architecture not in ("llama", *_HALVES):
            what = f"whether '{name}' has rotary pairs is not known for the architecture '{architecture}'"
            raise UnclearError(f"{what}; add 'rotary: {{checkpoint: pairs}}' or 'halves' to the mapping")
        return match, spec.checkpoint or ("pairs" if architecture == "llama" else "halves")
    if match := _IN_ORIGINAL.fullmatch(name):
        return match, spec.checkpoint or "pairs"
    if match := _IN_HUGGING_FACE.fullmatch(name):
        # Some models of Hugging Face rotate pairs, and weights exported from a model have the order of that model.
        if spec.checkpoint is None and wanted == "pairs":
            what = f"the model rotates pairs, and whether '{name}' has rotary pairs or halves is not known"
            raise UnclearError(f"{what}; add 'rotary: {{checkpoint: pairs}}' or 'halves' to the mapping")
        return match, spec.checkpoint or "halves"
    return None, None


def _heads(match: re.Match[str], home: Checkpoint, spec: RotarySpec) -> int | None:
    known = f"{home.metadata.get('general.architecture')}.attention.head_count"
    found: Any = spec.heads or home.metadata.get(known)
    if match["role"] == "k":
        found = spec.kv_heads or home.metadata.get(f"{known}_kv") or found
    if isinstance(found, list):
        layer = int(match["layer"])
        found = found[layer] if layer < len(found) else None
    return found if type(found) is int else None
