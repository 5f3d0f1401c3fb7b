"""Two models merged into one."""

from typing import Literal

from surgery import FilePath, Graph, Other, Parity, TensorNames, UsageError, Value, graph_pass

from ._fit import require_fit


@graph_pass("merge", parity=Parity.EXACT, changes=("inputs", "outputs", "metadata"))
def merge(
    graph: Graph,
    *,
    model: FilePath,
    connect: dict[str, str | list[str]] | None = None,
    mode: Literal["chain", "parallel"] = "chain",
    prefix: str = "",
    keep: TensorNames | None = None,
) -> None:
    """Merge another model into this one, in sequence or in parallel.

    Right because each part computes the same as before; the result is compared with both models, composed
    independently, on inputs that are legal for both. Weights stay in their files until the result is saved. If both
    models have a function of the same name with different bodies, the function of the other model is renamed. Inner
    tensors of the other model whose names this model has too get a number; for its inputs and outputs, set a prefix.
    Connected dims get the names of this model, and metadata of the other model is added unless this model has the same
    key. Both must import the same opsets: `surgery merge` converts the older model first.

    In a chain, outputs of this model are connected to inputs of the other: as given by `connect`, else by equal names,
    else the only output to the only input. They are no longer outputs, unless `keep` names them. In parallel, all
    outputs stay. Inputs of the other model without a connection become inputs of the result; without a prefix, an input
    that both models have becomes one input.

    Options:
        model: the other model, an .onnx file.
        connect: one or several inputs of the other model by the tensor of this model that is connected to them.
        mode: `chain` places the other model after this one, `parallel` alongside it.
        prefix: a prefix for all names of the other model, such as `head/`.
        keep: outputs to keep although they are connected to the other model.
    """
    other = Other.read(graph, model)
    pairs = _pairs(graph, other, connect, mode)
    if not prefix:
        mine = {value.name: value for value in graph.inputs()}
        pairs |= {port.name: mine[port.name] for port in other.inputs() if port.name in mine and port.name not in pairs}
    for port in other.graph.inputs():
        if port.name in pairs:
            require_fit(pairs[port.name], port, f"the input '{port.name}' of {other.path.name}")
    outputs = graph.outputs()
    fed = [value for value in dict.fromkeys(pairs.values()) if value in outputs]
    kept = graph.tensors(keep, among=fed, kind="output that goes into the other model") if keep else []
    with graph.site() as new:
        other.join(new, pairs, prefix)
        for value in fed if mode == "chain" else ():
            if value not in kept:
                new.drop_output(value)
        for key, text in other.graph.metadata.items():
            if key not in graph.metadata:
                new.set_metadata(key, text)


def _pairs(graph: Graph, other: Other, connect: dict[str, str | list[str]] | None, mode: str) -> dict[str, Value]:
    """Return the tensor of this model that is connected to each input of the other model, by input name."""
    inputs = other.graph.inputs()
    if connect is None:
        return _matching(graph.outputs(), other.inputs(), other) if mode == "chain" else {}
    pairs: dict[str, Value] = {}
    for source, targets in connect.items():
        names = [targets] if isinstance(targets, str) else targets
        _require_sides(graph, other, source, names)
        (value,) = graph.tensors([source])
        for name in names:
            if all(port.name != name for port in inputs):
                has = ", ".join(port.name for port in inputs[:8])
                raise UsageError(f"{other.path.name}, the second model, has no input '{name}'", todo=f"it has {has}")
            if name in pairs:
                raise UsageError(f"'{pairs[name].name}' and '{source}' would both go into '{name}'")
            pairs[name] = value
    outputs = graph.outputs()
    if mode == "chain" and not any(value in outputs for value in pairs.values()):
        raise UsageError(
            "no output of the first model is connected to the second", todo="connect one, or use 'mode: parallel'"
        )
    return pairs


def _require_sides(graph: Graph, other: Other, source: str, targets: list[str]) -> None:
    """Raise UsageError if a connection is written the wrong way round."""
    mine = {value.name for value in graph.values()}
    theirs = {port.name for port in other.graph.inputs()}
    if source not in mine and source in theirs and all(name in mine for name in targets):
        raise UsageError(
            f"'{source}' is an input of {other.path.name}, the second model, and comes last in a connection",
            todo=f"write {{{targets[0]}: {source}}}: a tensor of the first model, then the input that it goes to",
        )


def _matching(outputs: list[Value], inputs: list[Value], other: Other) -> dict[str, Value]:
    """Match outputs with inputs of the same name, or the only output with the only input."""
    by_name = {value.name: value for value in outputs}
    pairs = {port.name: by_name[port.name] for port in inputs if port.name in by_name}
    if not pairs and len(outputs) == len(inputs) == 1:
        return {inputs[0].name: outputs[0]}
    if not pairs:
        mine, theirs = (", ".join(value.name for value in values[:5]) for values in (outputs, inputs))
        raise UsageError(
            f"it is not clear which outputs ({mine}) go into which inputs of {other.path.name} ({theirs})",
            todo="connect it with 'connect: {output: input}'",
        )
    return pairs
