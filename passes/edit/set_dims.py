"""Sizes of inputs and outputs: fixed, freed, named."""

from surgery import Graph, Parity, graph_pass

from ._asked import asked
from ._baked import free
from ._wishes import Wishes


@graph_pass("set-dims", parity=Parity.CLOSE, changes=("dims",))
def set_dims(
    graph: Graph,
    *,
    dims: dict[str, int | str] | None = None,
    ports: dict[str, list[int | str | None]] | None = None,
    rebatch: int | str | None = None,
) -> None:
    """Fix, free or name dims of inputs and outputs, and update the declared shapes of all values.

    Right because a dim is fixed or renamed wherever it is declared, also in expressions such as `2*sequence`. The nodes
    stay; their computations on shapes can be folded by other passes. Two dims may get one name, which declares them
    equal.

    If a number becomes a name, or another number, nodes may contain the old one: a model exported for one batch size
    reshapes to that size. The freed dim is followed through the graph. Constant targets of Reshape, Expand and Resize
    are adapted. Constants that repeat one slice along the dim, such as a class token or the initial state of an LSTM,
    are expanded to its size or broadcast. A Resize to other constant sizes runs for any size, but its result keeps
    those sizes: the report names it.

    Constants of at least three positions that show how they go on are computed for any size: positions 0, 1, 2 that
    look up a longer table or all of a dim, slices of a longer table, rotary angles, and causal masks. This is done only
    where such a constant meets the freed dim, so that the model would be invalid with the old size; that another number
    equals the old size shows nothing. The report names these constants: no run of the original shows what they are for
    other sizes, so compare them with the source of the model. All nodes that need the old size in another way are named
    in one error, such as those that add a folded table of positions.

    `rebatch` is for a batch of independent samples: the model is then also compared at another batch size, with the
    original run on each part of the batch.

    The dims of an output follow from the inputs: they can be named or fixed if they have a name or are unknown. Names
    that only outputs have become the numbers that follow, once all inputs are fixed.

    Options:
        dims: the size or the new name of each dim, by its name; by a number, of the first dim of each input that has
            this size.
        rebatch: the size or the name of the batch: the first dim of all inputs whose first dim equals the first
            input's, or of all that have neither a name nor a number there if that has none.
        ports: a size or a name for each dim of an input or output, by its name; null leaves a dim unchanged.

    Example:
        # options: {rebatch: batch}
        g (float[2,3,4] x) => (float[2,12] y) <int64[2] s = {2, 12}>
        {
            a = Relu(x)
            y = Reshape(a, s)
        }
    """
    wishes = Wishes(graph, dims or {}, ports or {}, rebatch)
    freed = free(graph, wishes.freed)
    with asked(graph) as new:
        ends = {*graph.inputs(), *graph.outputs()}
        for value, found in {**wishes.declared, **freed.declared}.items():
            if value in ends:
                new.set_port(value, dims=found)
            else:
                new.declare(value, value.type, found)
        new.rename_dims({**wishes.names, **freed.names})
        pieces = freed.pieces(graph.outputs()) if rebatch is not None else None
        if pieces is not None:
            new.relate_pieces(*pieces)
    _number_outputs(graph)


def _number_outputs(graph: Graph) -> None:
    """Give outputs the numbers that follow from the inputs, if all dims of these are numbers."""
    if not all(isinstance(dim, int) for value in graph.inputs() for dim in value.declared_dims or ()):
        return
    for value in graph.outputs():
        declared, known = value.declared_dims, value.shape
        if declared is None or known is None or len(declared) != len(known):
            continue
        dims = tuple(
            extent if isinstance(extent, int) and not isinstance(dim, int) else dim
            for dim, extent in zip(declared, known)
        )
        if dims != declared:
            with asked(graph) as new:
                new.set_port(value, dims=dims)
