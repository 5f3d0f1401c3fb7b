"""New names for inputs, outputs, tensors, nodes and dims."""

from collections.abc import Iterable

from surgery import Graph, Parity, Renames, UsageError, Value, graph_pass

from ._asked import asked


@graph_pass("rename", parity=Parity.EXACT, changes=("names", "dims"))
def rename(
    graph: Graph,
    *,
    inputs: Renames | None = None,
    outputs: Renames | None = None,
    tensors: Renames | None = None,
    nodes: Renames | None = None,
    dims: Renames | None = None,
) -> None:
    r"""Rename inputs, outputs, other tensors, nodes and dims.

    Right because names do not affect the computation. All references are updated: in subgraphs and functions, in
    quantization annotations, and in expressions of dims such as `2*sequence`. Names can be swapped, because all new
    names apply at the same time. The original name of a node remains in its lineage.

    A new name must be free, or be given up in the same step. Two dims cannot get the same name, because that would
    declare them equal. An old name that does not exist is an error, and then nothing is renamed.

    Old names may be globs, whose wildcards match the same letters in the new name, `{encoder/*: enc/*}`, or after `re:`
    regular expressions, with their groups in the new name, `{'re:layer(\d+)': 'block\1'}`.

    Example:
        # options: {inputs: {x: pixels}, outputs: {y: logits}, dims: {N: batch}}
        g (float[N,8] x) => (float[N,8] y) { y = Relu(x) }

    Options:
        inputs: new names of inputs of the model, by the old ones.
        outputs: new names of outputs of the model.
        tensors: new names of any tensors, including weights, also in subgraphs and functions.
        nodes: new names of nodes; a node without a name is identified by its result, "Relu -> y".
        dims: new names of dims, wherever they are declared.
    """
    new_names = _new_names(graph, inputs, outputs, tensors)
    new_nodes = (nodes or Renames()).of("node", (node.label for node in graph.nodes()))
    new_dims = (dims or Renames()).of("dim", graph.dim_names())
    number = next((name for name in new_dims.values() if name.isdecimal()), None)
    if number is not None:
        raise UsageError(f"a dim cannot be called '{number}'", todo="fix it with 'set-dims'")
    with asked(graph) as new:
        for value in _values(graph):
            if value.name in new_names:
                new.rename(value, new_names[value.name])
        for node in graph.nodes():
            if node.label in new_nodes:
                new.rename_node(node, new_nodes[node.label])
        new.rename_dims(new_dims)


def _new_names(
    graph: Graph, inputs: Renames | None, outputs: Renames | None, tensors: Renames | None
) -> dict[str, str]:
    """Return the new names of tensors, by the old ones; names of inputs and outputs must not clash with others."""
    every = list(_values(graph))
    found: dict[str, str] = {}
    for kind, wishes, values in (
        ("input", inputs, graph.inputs()),
        ("output", outputs, graph.outputs()),
        ("tensor", tensors, every),
    ):
        expanded = (wishes or Renames()).expand(kind, (value.name for value in values))
        for old, name in expanded.items():
            if found.setdefault(old, name) != name:
                raise UsageError(f"the tensor '{old}' would be renamed to both '{found[old]}' and '{name}'")
    return Renames(found).of("tensor", (value.name for value in every))


def _values(graph: Graph) -> Iterable[Value]:
    """Yield each named tensor of all scopes."""
    for scope in graph.scopes:
        made = (value for node in scope for value in node.outputs)
        values = dict.fromkeys([*scope.inputs, *scope.initializers.values(), *made])
        yield from (Value(graph, value) for value in values if value.name)
