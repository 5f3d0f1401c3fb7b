"""Types and shapes of intermediate values, written into the model."""

from surgery import Graph, Parity, Value, graph_pass

Dims = tuple[int | str | None, ...]


@graph_pass("infer-shapes", parity=Parity.EXACT)
def infer_shapes(graph: Graph) -> None:
    """Declare the inferred type and shape of each intermediate value.

    Right because a declaration does not compute anything. Extents are numbers, or expressions in the names of dims that
    the model has, such as "2*batch"; the contents of shape tensors count. A dim that is only known at run time, as of
    NonZero, is left unknown. Existing declarations stay, even wrong ones, except that a symbolic or unknown dim may
    become a number; `redeclare-shapes` replaces wrong ones. Inputs and outputs of graphs are not changed, nor are
    function bodies, which differ between calls.

    Example:
        g (float[batch,2,3] x) => (float[batch,n] y) <int64[2] s = {0, -1}>
        {
            a = Reshape(x, s)
            y = Relu(a)
        }
    """
    for node in graph.nodes():
        if graph.in_function(node):
            continue
        for value in node.outputs:
            if value.name and not value.is_output:
                _declare(graph, value)


def _declare(graph: Graph, value: Value) -> None:
    declared, known = value.declared_dims, _known(graph, value)
    same_rank = declared is None or known is None or len(declared) == len(known)
    dims = tuple(map(_finer, declared, known)) if declared is not None and known is not None and same_rank else known
    dims = declared if dims is None else dims
    if value.producer is None or value.type is None or (value.ir.type is not None and dims == declared and same_rank):
        return
    with graph.site(value.producer) as new:
        new.require(same_rank, "another rank is declared")
        new.require(_agree(declared, dims), "another extent is declared")
        new.declare(value, value.type, dims)


def _known(graph: Graph, value: Value) -> Dims | None:
    """Return the dims that inference knows, with None for a dim whose name it invented."""
    shape = value.shape
    if shape is None:
        return None
    return tuple(None if isinstance(dim, str) and graph.facts.is_made_up(dim) else dim for dim in shape)


def _finer(old: int | str | None, new: int | str | None) -> int | str | None:
    """Choose between a declared and an inferred dim: an inferred number, else the declared dim, else the inferred."""
    return new if old is None or isinstance(new, int) else old


def _agree(declared: Dims | None, dims: Dims | None) -> bool:
    return not any(isinstance(old, int) and old != new for old, new in zip(declared or (), dims or ()))
