"""Replacement of nodes by a rule, a model or a function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from surgery import (
    Builder,
    FilePath,
    Graph,
    Keeps,
    NodeSelector,
    Other,
    Parity,
    RuleText,
    UsageError,
    Value,
    graph_pass,
)

from ._asked import asked, outermost
from ._fit import require_fit
from ._region import Region


@graph_pass("replace-subgraph", parity=Parity.INTENDED, changes=("types", "dims"))
def replace_subgraph(
    graph: Graph,
    *,
    rule: RuleText | None = None,
    nodes: NodeSelector | None = None,
    file: FilePath | None = None,
    function: str | None = None,
    inputs: dict[str, str] | None = None,
    outputs: dict[str, str] | None = None,
    keeps: Keeps = "nothing",
) -> None:
    """Replace nodes by the result of a rule, another model, or a function call.

    A rule, in the form of `rules` in a recipe, is applied wherever it matches. A file or a function replaces all
    selected nodes at once. Its inputs are connected to tensors of the same names, or else to the values, except
    constants, that the nodes read from outside, in reading order. Its outputs replace tensors of the same names, or
    else the results of the nodes that are read outside, in order. Known types and dims must fit. Weights stay in the
    file until the result is saved.

    This changes the results, unless `keeps` declares otherwise.

    Example:
        # options: {rule: {match: "y = Relu(x)", emit: "y = LeakyRelu<alpha = 0.1>(x)"}}
        g (float[2] x) => (float[2] y) { y = Relu(x) }

    Options:
        rule: a mapping with `match` and `emit`, and with `where`, `opset`, `domains` and `functions` as in rules.
        nodes: the nodes that the file or the function replaces.
        file: an .onnx file.
        function: a model-local function, as domain::name.
        inputs: tensors of the model, by the names of the inputs of the file or function to connect them to.
        outputs: tensors of the model, by the names of the outputs that replace them.
        keeps: the promise about the results, which is verified; by default, results are not compared.
    """
    given = [name for name, option in (("rule", rule), ("file", file), ("function", function)) if option is not None]
    if len(given) != 1:
        raise UsageError(f"give one of rule, file and function{', not several' if given else ''}")
    if rule is not None:
        if nodes is not None or inputs or outputs:
            raise UsageError("a rule selects its nodes itself", todo="omit nodes, inputs and outputs")
        _apply(rule, graph, outdates=keeps == "nothing")
        return
    if nodes is None:
        raise UsageError(f"the nodes that the {given[0]} replaces are not given", todo="select them with 'nodes'")
    region = Region(graph, outermost(graph, graph.select(nodes)))
    part = _of_file(graph, file) if file is not None else _of_function(graph, function or "")
    operands = region.operands(part.inputs, part.optional, inputs or {}, part.name)
    results = region.results(part.outputs, outputs or {}, part.name)
    for name, value in operands.items():
        if name in part.ports:
            require_fit(value, part.ports[name], f"the input '{name}' of {part.name}")
    for name, value in results.items():
        if name in part.ports:
            require_fit(part.ports[name], value, f"'{value.name}', which it replaces,")
    with asked(graph, region.nodes[-1]) as new:
        made = dict(zip(part.outputs, part.build(new, operands)))
        for name, value in results.items():
            new.outdates(value)
            new.replace(value, made[name])


def _apply(rule: RuleText, graph: Graph, *, outdates: bool) -> None:
    rule.rewrite(graph, outdates=outdates)
    if not graph.sites:
        reason = graph.refusals[0].reason if graph.refusals else "the pattern does not match anywhere"
        where = f"node '{graph.refusals[0].anchor}'" if graph.refusals else None
        raise UsageError(f"the rule is not applied: {reason}", where=where)


@dataclass(frozen=True)
class _Part:
    """The replacement: names of inputs and outputs, and those with known types; `build` creates its nodes."""

    name: str
    inputs: list[str]
    optional: list[str]
    outputs: list[str]
    ports: Mapping[str, Value]
    build: Callable[[Builder, Mapping[str, Value]], Sequence[Value]]


def _of_file(graph: Graph, file: FilePath) -> _Part:
    other = Other.read(graph, file)
    inputs, outputs = other.graph.inputs(), other.graph.outputs()
    needed = [value.name for value in other.inputs()]
    return _Part(
        other.path.name,
        needed,
        [value.name for value in inputs if value.name not in needed],
        [value.name for value in outputs],
        {value.name: value for value in (*outputs, *inputs)},
        lambda new, operands: other.embed(new, operands),
    )


def _of_function(graph: Graph, name: str) -> _Part:
    domain, _, short = name.rpartition("::")
    found = graph.functions.get((domain, short, ""))
    if found is None:
        known = ", ".join(f"{domain}::{short}" for domain, short, _ in graph.functions) or "none"
        raise UsageError(f"the model has no function '{name}'", todo=f"it has {known}")
    inputs = [value.name or "" for value in found.inputs]
    outputs = [value.name or "" for value in found.outputs]

    def build(new: Builder, operands: Mapping[str, Value]) -> Sequence[Value]:
        return new.nodes(name, *(operands[key] for key in inputs), outputs=len(outputs))

    return _Part(name, inputs, [], outputs, {}, build)
