"""Conversion to older opsets."""

from surgery import Builder, Graph, Parity, UsageError, graph_pass

from . import _all_parts, _lower_inputs, _lower_meaning, _lower_quantized
from ._blockers import refuse
from ._lower import downgrade, highest
from ._lowering import WRITTEN

OLDEST = 9
"""The oldest opset whose changes were reviewed one by one."""

RULES = (_lower_inputs, _lower_meaning, _lower_quantized)
PARTS = _all_parts.PARTS
"""Modules whose import registers parts; the import of RULES registers the rules."""


@graph_pass("downgrade-opset", parity=Parity.CLOSE)
def downgrade_opset(graph: Graph, *, to: int | None = None, lower_ir_version: bool = False) -> None:
    """Convert a model with its subgraphs and functions to an older opset, completely or not at all.

    Right because each operator is converted version by version. If the schemas show that the node is also valid in the
    older version with the same meaning, it does not change: it uses none of the attributes, inputs and types that were
    added later, or only with values that match the older behavior. Otherwise, a rule expresses it in the older version:
    inputs that must be constant become attributes, a Softmax over an inner axis is transposed, an integer type that the
    older version lacks is cast to a wider one and back, which is exact for operators that only move, compare, add or
    multiply. An operator that did not exist yet is decomposed, as by `decompose`. Any other node is a blocker: then
    nothing changes, the step fails, and every blocker is listed with its reason.

    Decomposed operators round differently from the original kernel. Symbolic dims are assumed not to be zero, and
    computed indices not to be negative below opset 11, where they could not be. Other domains are not changed.

    Example:
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[N,C] x) => (float[N] y) <int64[1] axes = {1}> {
            a = Gelu(x)
            y = ReduceMax<keepdims = 0>(a, axes)
        }

    Options:
        to: the target opset; by default the newest that the target of the recipe supports, with an IR version that it
        supports; 17 if the target supports any.
        lower_ir_version: lower the IR version too, to the one of the first ONNX release that had the opset: runtimes of
        that time do not read newer ones.
    """
    if to is None:
        newest, lower_ir_version = graph.target.opset[1], lower_ir_version or _is_too_new(graph)
        if highest(graph) <= newest and graph.target.limits_versions and not lower_ir_version:
            return
        to = min(newest, max(highest(graph), OLDEST)) if graph.target.limits_versions else 17
    _check(graph, to)
    blockers = downgrade(graph, Builder(graph, None), to, lower_ir_version)
    if blockers:
        refuse(graph, blockers, to)
    with graph.site() as new:
        downgrade(graph, new, to, lower_ir_version)


def _is_too_new(graph: Graph) -> bool:
    """Return whether the target supports only older IR versions."""
    return graph.ir.ir_version > graph.target.ir_version[1]


def _check(graph: Graph, to: int) -> None:
    """Raise UsageError for an opset to which no model, or not this model, can be downgraded."""
    found = highest(graph)
    if to < OLDEST:
        raise UsageError(f"opset {to} is too old", todo=f"opset {OLDEST} is the oldest supported target")
    if to > found > 0:
        raise UsageError(f"the model has opset {found}, and {to} is newer", todo="use upgrade-opset")
    if found > WRITTEN:
        raise UsageError(f"opset {found} of the model is newer than those known here")
