"""Operators that neither onnx defines nor ONNX Runtime computes on the CPU: plugins of other runtimes, GPU kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import TYPE_CHECKING

from surgery.base.operators.forms import plain_domain
from surgery.base.operators.schemas import is_standard
from surgery.base.operators.subgraphs import nested
from surgery.model.targets.kernel_table import listed

if TYPE_CHECKING:
    import onnx

_Key = tuple[str, str]


def custom_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of the main graph that are custom operators, or run one in a subgraph or in a function.

    They have any domain: a plugin of TensorRT may stand in that of onnx.
    """
    custom: set[_Key] = set()
    own = {(function.domain, function.name): function.node for function in model.functions}
    while found := {key for key, body in own.items() if key not in custom and _runs_custom(body, own, custom)}:
        custom |= found
    return (node for node in model.graph.node if _runs_custom([node], own, custom))


def _runs_custom(nodes: Collection[onnx.NodeProto], own: Collection[_Key], custom: Collection[_Key]) -> bool:
    """Return whether any node is custom, given the functions of the model and those of them that run custom ones."""
    keys = ((node.domain, node.op_type) for node in nested([*nodes]))
    return any(key in custom if key in own else not _is_known(*key) for key in keys)


@cache
def _is_known(domain: str, op: str) -> bool:
    """Return whether onnx defines an operator, or some release of ONNX Runtime computes it on the CPU."""
    domain = plain_domain(domain)
    return is_standard(domain, op) or (domain, op) in listed()
