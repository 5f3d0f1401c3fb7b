"""Random operators with a seed, which draw the same numbers in each session of ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgery.base.operators import traits
from surgery.base.operators.forms import key_of
from surgery.base.operators.subgraphs import nodes

if TYPE_CHECKING:
    import onnx


def seeded(node: onnx.NodeProto) -> bool:
    """Return whether a node has a seed."""
    return key_of(node.domain, node.op_type) in traits.SEEDED and any(one.name == "seed" for one in node.attribute)


def repeats_draws(model: onnx.ModelProto) -> bool:
    """Return whether a model draws random numbers with a seed, in its functions included."""
    return any(map(seeded, nodes(model)))
