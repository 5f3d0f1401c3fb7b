"""Hidden states as matrices."""

from surgery import RESHAPES, Graph, Parity, graph_pass

from ._matrices import Matrices
from ._regions import Regions
from ._rows import row_wise


@graph_pass("flatten-batch", parity=Parity.CLOSE)
def flatten_batch(graph: Graph) -> None:
    """Keep the hidden states of a network two-dimensional, so that each linear layer becomes one Gemm.

    A transformer computes on [batch, sequence, hidden]. There a linear layer is MatMul + Add, since Gemm takes matrices
    only. Most of its operators do not depend on the number of row axes, and work in the same way on [batch*sequence,
    hidden]. Where the axes matter, as between the heads of attention, there already is a Reshape, and only its shape
    changes.

    Right because within a region all operators work row by row: elementwise ones with operands of the same rows or with
    a vector, MatMul by a matrix, and LayerNormalization, Softmax, reductions that keep the axis, Split, Slice, Gather
    and Concat along the last axis. Reshape does not reorder elements, so the rows do not change. A MatMul whose only
    consumer is an Add that does not enlarge it becomes a Gemm, and a Reshape that only changes the row axes is removed.
    At the boundary of a region, next to other operators, graph inputs or outputs, a Reshape is inserted. A region is
    converted only if that saves nodes. OpenVINO computes MatMul and Add of any rank in one layer, and fuses elementwise
    chains only without Reshapes between them, so the target `openvino` keeps the batch.

    A Reshape back to several dynamic dims takes them from a graph input or from the value with which the region
    begins; that needs Shape with `start` and `end`, of opset 15. The sums in a Gemm may be rounded differently.

    Example:
        g (float[N,5,4] x) => (float[N,5,2] y)
        <float[4,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6}, float[3] b = {1, 2, 3}, float[2] c = {1, 2},
         float[3,3] u = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[3,2] v = {1, 2, 3, 4, 5, 6}> {
            p = MatMul(x, w)
            q = Add(p, b)
            r = Relu(q)
            s = MatMul(r, u)
            t = Add(s, b)
            m = MatMul(t, v)
            y = Add(m, c)
        }
    """
    gains = ("MatMul", *RESHAPES)
    if not graph.nodes("Gemm", "MatMul") or not any(row_wise(node) is not None for node in graph.nodes(*gains)):
        return
    regions = Regions(graph)
    for nodes in list(regions):
        with graph.site(nodes[0]) as new:
            batched = new.target.prefers.get("linear_layers") == "batched"
            new.require(not batched, "the target prefers linear layers of the batch as it is")
            gain = regions.gain(nodes)
            new.require(gain > 0, "the Reshapes at the border cost more than is saved")
            spent = Matrices(graph, regions, nodes, new).build()
            new.require(gain > spent, "the shapes at the border cost more than is saved")
