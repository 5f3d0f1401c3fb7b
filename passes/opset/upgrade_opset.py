"""Newer opsets."""

from surgery import Builder, Graph, Parity, UsageError, graph_pass

from . import _adapters_inputs, _adapters_legacy, _adapters_meaning
from ._blockers import refuse
from ._shared import upgrade

NEWEST = 28
"""The last opset whose changes were read one by one, in schema and in text."""

ADAPTERS = (_adapters_inputs, _adapters_legacy, _adapters_meaning)
"""To import them is to register what they hold."""


@graph_pass("upgrade-opset", parity=Parity.CLOSE)
def upgrade_opset(graph: Graph, *, to: int = 21) -> None:
    """Convert a model with its subgraphs and functions to a newer opset, completely or not at all.

    Right because each operator goes from version to version. Where the schemas say that a node of the old version
    is one of the new version with the same meaning, it stays as it is: there are more types, or another optional
    input, or an attribute whose default is what the operator did before. Where they do not, an adapter says what
    the new version calls the same computation: attributes become inputs, defaults that changed are written down,
    Softmax over several axes flattens them first, GroupNormalization repeats its scale for each channel. A node
    for which neither holds is a blocker; then nothing changes, the step fails, and every blocker is listed with its
    reason. A model that has a newer opset already stays as it is.

    Kernels of a runtime may round differently from one version to the next (AveragePool 19 in ONNX Runtime does).
    The IR version is raised to the one that came with the opset, never lowered; from before 4, constants that had
    to be listed as inputs no longer are. Other domains stay as they are.

    Example:
        <ir_version: 7, opset_import: ["" : 12]>
        g (float[N,C,H] x) => (float[N,C] y) {
            a = Softmax<axis = 1>(x)
            y = ReduceSum<axes = [2], keepdims = 0>(a)
        }

    Options:
        to: the opset to reach. 21 is the newest that onnxruntime 1.31 runs whole on the CPU: it accepts opsets up
            to 26, but from 22 on some operators of older opsets have no kernel (RoiAlign, for one).
    """
    if to > NEWEST:
        raise UsageError(f"opset {to} is not known here", todo=f"opset {NEWEST} is the newest")
    newest = max(graph.opset, *(function.opset_imports.get("", 0) for function in graph.functions.values()), 0)
    with graph.site() as new:
        new.require(newest <= to, "the model has a newer opset, but this pass does not downgrade")
    if newest > to:
        return
    blockers = upgrade(graph, Builder(graph, None), to)
    if blockers:
        refuse(graph, blockers, to)
    with graph.site() as new:
        upgrade(graph, new, to)
