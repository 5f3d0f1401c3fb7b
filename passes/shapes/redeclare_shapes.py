"""Declared shapes that inference contradicts, replaced."""

from surgery import Graph, Parity, graph_pass


@graph_pass("redeclare-shapes", parity=Parity.EXACT, changes=("dims",))
def redeclare_shapes(graph: Graph) -> None:
    """Replace declared shapes of inner values and outputs that inference contradicts.

    For models whose inputs were given other sizes by a script or an editor that left the declarations after them as
    they were: the checker, runtimes and converters reject these, or believe them.

    Right because a declaration does not compute anything. A number is wrong if inference finds another number, or an
    expression in the names of dims; a rank is, if it finds another one. What is not known stays as it is declared, also
    names of dims. Inputs of the model are never changed: they say what it takes. In branches and loops the same holds.
    The values of a function are compared with each call, and only what all calls have in common is declared anew.
    `infer-shapes` then declares the shapes of the other values.

    Example:
        g (float[1,3,N] x) => (float[1,5,N] y) <float[1,3,7] a>
        {
            a = Relu(x)
            y = Exp(a)
        }
    """
    outputs = set(graph.outputs())
    for value, dims in graph.contradicted().items():
        with graph.site(value.producer) as new:
            if value in outputs:
                new.set_port(value, dims=dims)
            else:
                new.declare(value, value.type, dims)
