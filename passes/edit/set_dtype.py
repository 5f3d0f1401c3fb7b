"""New element types of inputs and outputs."""

from surgery import Graph, Parity, UsageError, Value, data_type, graph_pass

from ._asked import asked

_NEEDED_OPSET = {"BFLOAT16": 13, "FLOAT8": 19, "INT4": 21, "UINT4": 21, "FLOAT4": 23}
"""The first opset in which Cast supports a type, by the start of its name; source: the schemas of Cast."""


@graph_pass("set-dtype", parity=Parity.EXACT, changes=("types",))
def set_dtype(graph: Graph, *, inputs: dict[str, str] | None = None, outputs: dict[str, str] | None = None) -> None:
    """Change the element type of inputs and outputs, with a Cast to the type used inside.

    Right because the model computes the same from the converted elements: an int32 has the same value as an int64. An
    output is rounded to the new type if it has fewer digits; values beyond its range become what Cast defines. Types
    inside the model do not change.

    Options:
        inputs: the new types, such as int32 or float16, by input name or glob.
        outputs: the new types, by output name or glob.

    Example:
        # options: {inputs: {ids: int32}, outputs: {y: float16}}
        g (int64[N] ids) => (float[N,4] y) <float[9,4] w>
        {
            y = Gather(w, ids)
        }
    """
    if not inputs and not outputs:
        raise UsageError("nothing to do: set 'inputs' or 'outputs'")
    for name, kind in (inputs or {}).items():
        for value in graph.tensors([name], among=graph.inputs(), kind="input of the model"):
            _take(graph, value, kind)
    for name, kind in (outputs or {}).items():
        for value in graph.tensors([name], among=graph.outputs(), kind="output of the model"):
            _give(graph, value, kind)


def _take(graph: Graph, port: Value, kind: str) -> None:
    """Insert a Cast after an input."""
    wanted, known = data_type(kind), port.dtype
    _require_castable(graph, port, kind)
    if port.is_overridable:
        raise UsageError(f"the input '{port.name}' has a default", todo="make it a constant or a plain input before")
    if port.is_output:
        raise UsageError(f"'{port.name}' is an input and an output", todo="insert an Identity between them")
    if wanted == known:
        return
    with asked(graph, next(iter(graph.below([port])), None)) as new:
        new.replace(port, new.node("Cast", port, to=known))
        new.set_port(port, wanted)
        new.relate_input(port, f"x = Cast<to={known:d}>(y)", inverse=f"y = Cast<to={wanted:d}>(x)", y=port)


def _give(graph: Graph, port: Value, kind: str) -> None:
    """Insert a Cast before an output."""
    wanted = data_type(kind)
    _require_castable(graph, port, kind)
    if wanted == port.dtype:
        return
    with asked(graph) as new:
        made = new.node("Cast", port, to=wanted)
        new.set_port(made, wanted, port.declared_dims)
        new.drop_output(port)
        new.add_output(made, port.name)
        new.relate_output(port.name, f"y = Cast<to={wanted:d}>(x)", x=port)


def _require_castable(graph: Graph, port: Value, kind: str) -> None:
    wanted, known = data_type(kind), port.dtype
    if known is None:
        raise UsageError(f"'{port.name}' is not a tensor and has no element type")
    for each in (wanted, known):
        if each.name == "STRING" or each.name.startswith("COMPLEX"):
            what = f"'{port.name}' is {known.name.lower()}, and cannot be cast to {kind}"
            raise UsageError(what, todo="numbers and bool can be cast")
        needed = next((opset for name, opset in _NEEDED_OPSET.items() if each.name.startswith(name)), 0)
        if graph.opset < needed:
            what = f"Cast supports {each.name.lower()} since opset {needed}, but the model has {graph.opset}"
            raise UsageError(what, where=f"'{port.name}'", todo="run upgrade-opset before")
