"""Conversion to newer opsets."""

from surgery import Builder, Graph, Parity, UsageError, graph_pass

from . import _adapters_inputs, _adapters_legacy, _adapters_meaning
from ._blockers import refuse
from ._schemas import newest_opset
from ._shared import upgrade

NEWEST = 28
"""The newest opset whose changes were reviewed one by one, in schema and text."""

ADAPTERS = (_adapters_inputs, _adapters_legacy, _adapters_meaning)
"""Modules whose import registers the adapters."""


@graph_pass("upgrade-opset", parity=Parity.CLOSE)
def upgrade_opset(graph: Graph, *, to: int = 21) -> None:
    """Convert a model with its subgraphs and functions to a newer opset, completely or not at all.

    Right because each operator is converted version by version. If the schemas show that a node has the same meaning in
    the new version, it does not change: the new version only adds types, optional inputs, or attributes whose default
    matches the old behavior. Otherwise, an adapter expresses the same computation in the new version: attributes become
    inputs, defaults that changed are written down, Softmax over several axes flattens them first, GroupNormalization
    repeats its scale for each channel. Any other node is a blocker: then nothing changes, the step fails, and every
    blocker is listed with its reason. A model with a newer opset is not changed.

    Kernels of a runtime may round differently from one version to the next (AveragePool 19 in ONNX Runtime does). The
    IR version is raised to the one that came with the opset, never lowered; constants that had to be listed as inputs
    before IR version 4 no longer are. Other domains are not changed.

    Example:
        <ir_version: 7, opset_import: ["" : 12]>
        g (float[N,C,H] x) => (float[N,C] y) {
            a = Softmax<axis = 1>(x)
            y = ReduceSum<axes = [2], keepdims = 0>(a)
        }

    Options:
        to: the target opset. 21 is the newest that onnxruntime 1.31 fully runs on the CPU: it accepts opsets up
            to 26, but from 22 on some operators of older opsets have no kernel (RoiAlign, for one).
    """
    if to > NEWEST:
        raise UsageError(f"opset {to} is not known here", todo=f"opset {NEWEST} is the newest")
    if to > newest_opset():
        raise UsageError(f"the installed onnx has no opset {to}", todo=f"opset {newest_opset()} is its newest")
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
