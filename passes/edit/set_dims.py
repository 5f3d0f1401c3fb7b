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

    Right because a dim that gets a number or another name gets it wherever it is declared, in expressions such as
    `2*sequence` too; the nodes stay, and what they compute of shapes can be folded by other passes. Two dims may get
    one name, which says that they are equal.

    Where a number becomes a name, or another number, nodes may hold the old one: a model exported for one batch size
    reshapes to that. The freed dim is followed through the graph. Constant targets of Reshape, Expand and Resize are
    adapted; constants that repeat the same along the dim, as a class token or the first state of an LSTM, are made as
    large as it is or are broadcast. A node that needs the old size in another way is an error.

    `rebatch` is for a batch, whose samples do not meet: then the model is compared at another size too, with what it
    gave for each part of the batch.

    The dims of an output follow from the inputs: they can be named or fixed where they have a name or none.

    Options:
        dims: by the name of a dim, its size or its new name; by a number, the same for the first dim of each input
            that has this size.
        rebatch: the size or the name of the first dim of all inputs that have the same as the first of them.
        ports: by the name of an input or output, a size or a name for each of its dims; none leaves it.

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
