"""Which parts of a model a target does not run, and why: first the model as a whole, then node by node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir

from surgery.base.operators.forms import Parameter, key_of, plain_domain
from surgery.base.operators.schemas import form_of, is_standard
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.shapes.symbols import parse
from surgery.model.targets import Target
from surgery.model.targets.support import ANY_RANK, FIRST, MANY, ONNX, Support
from surgery.model.targets.target import has_body, version_of

_FIRST = 3
"""Maximum number of nodes named per reason."""


@dataclass(frozen=True)
class Reason:
    """Why something is not run: `kind` is the rule it violates, `op` the operator, `words` the message.

    `subject` is the detail that the rule concerns: the version, the types, or the name of an input or attribute.
    """

    kind: str
    op: str
    words: str
    subject: str = ""


@dataclass(frozen=True)
class Misfit:
    """Nodes, or inputs of the model, that are not run for the same reason, with the names of the first ones."""

    reason: Reason
    count: int
    first: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(f"'{name}'" for name in self.first)
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return f"{self.reason.words}{f' ({names}{more})' if names else ''}"


def misfits(graph: Graph, target: Target | None = None) -> list[Misfit]:
    """List the parts of a model that a target does not run, by reason; by default, the target of the graph.

    Problems of the model as a whole come first, then problems of nodes, the most frequent first. Raises `SurgeryError`
    if the kernels of the installed runtime are needed and cannot be read.
    """
    target = target or graph.target
    found: dict[Reason, list[str]] = {}
    for reason, names in _of_model(graph, target):
        found.setdefault(reason, []).extend(names)
    whole = len(found)
    for node in graph.nodes():
        wrong = misfit(graph, node, target)
        if wrong is not None:
            found.setdefault(wrong, []).append(node.label)
    listed = [Misfit(reason, len(names), tuple(names[:_FIRST])) for reason, names in found.items()]
    return [*listed[:whole], *sorted(listed[whole:], key=lambda one: -one.count)]


# The model


def _of_model(graph: Graph, target: Target) -> Iterator[tuple[Reason, list[str]]]:
    first, last = target.opset
    if graph.opset and not first <= graph.opset <= last:  # models of ai.onnx.ml alone import no other
        yield Reason("opset", "", f"opset {graph.opset}: the target takes {_range(target.opset)}", str(last)), []
    version = graph.ir.ir_version
    if not target.ir_version[0] <= version <= target.ir_version[1]:
        yield Reason("ir-version", "", f"IR version {version}: the target takes {_range(target.ir_version)}"), []
    functions = [function.name for function in graph.ir.functions.values()]
    if functions and not target.limits.functions:
        yield Reason("functions", "", "functions of the model"), functions
    most = target.limits.bytes
    size = sum(value.ir.const_value.nbytes for value in graph.constants() if value.ir.const_value is not None)
    if most and size > most:
        yield Reason("bytes", "", f"{size} bytes of constants: the target takes {most}"), []
    if not target.limits.dynamic_dims:
        yield from _dynamic(graph)
    yield from _interface(graph, target)


def _dynamic(graph: Graph) -> Iterator[tuple[Reason, list[str]]]:
    """List the dynamic dims of inputs."""
    for value in graph.inputs():
        if value.is_initializer:
            continue
        if value.shape is None:
            yield Reason("dims", "", "inputs without a declared shape", ""), [value.name]
        for axis, dim in enumerate(value.declared_dims or ()):
            if not isinstance(dim, int):
                name = dim or f"{value.name}[{axis}]"
                yield Reason("dims", "", f"dim {name} is dynamic", name), [value.name]


def _interface(graph: Graph, target: Target) -> Iterator[tuple[Reason, list[str]]]:
    """List the inputs with an element type that the target does not support."""
    for value in graph.inputs():
        dtype = _dtype(value)
        if target.types and not value.is_initializer and dtype and dtype not in target.types:
            yield Reason("input-type", "", f"inputs in {dtype}", dtype), [value.name]


def _range(pair: tuple[int, int]) -> str:
    first, last = pair
    return f"{first} and newer" if last == MANY else f"{first}" if first == last else f"{first} to {last}"


# The nodes


def misfit(graph: Graph, node: Node, target: Target | None = None) -> Reason | None:
    """Return why a target does not run a node; None if it does, as far as is known."""
    target = target or graph.target
    domain, op = plain_domain(node.ir.domain), node.ir.op_type
    if node.identifier in graph.ir.functions or (op == "Constant" and not domain):
        return None  # constants become initializers before the run, and function bodies are checked separately
    return _operator(node, domain, op, target, Kinds.of(node)) or _operands(graph, node, target)


def misfit_narrowed(
    node: Node, target: Target, dtype: str, inputs: Collection[int], outputs: Collection[int]
) -> Reason | None:
    """Return why a target that runs a node would not run it with these inputs and outputs in another element type.

    None if it would, or if it does not run the node as it is either.
    """
    domain, op = plain_domain(node.ir.domain), node.ir.op_type
    if _operator(node, domain, op, target, Kinds.of(node)) is not None:
        return None
    if target.types and dtype not in target.types:
        name = key_of(domain, op)
        return Reason("type", name, f"{name} is not run in {dtype}", dtype)
    return _operator(node, domain, op, target, Kinds.of(node, dtype, inputs, outputs))


def _operator(node: Node, domain: str, op: str, target: Target, kinds: Kinds) -> Reason | None:
    """Return the problem with the operator of a node, its version, types, operands, attributes or subgraphs."""
    name = key_of(domain, op)
    if (domain, op) in target.excluded:
        return Reason("excluded", name, f"{name} is not run: {target.excluded[domain, op]}")
    if op in target.plugins and not is_standard(domain, op):
        return None
    if (domain or ONNX) not in target.domains and (domain, op) not in target.operators:
        return Reason("domain", name, f"{name}: operators of {domain or ONNX} are not run", domain)
    if node.has_subgraphs and not target.limits.subgraphs:
        return Reason("subgraphs", name, f"{name} has subgraphs")
    if not target.operators:
        return None
    rows = target.operators.get((domain, op), ())
    version = version_of(domain, op, node.opset)
    of_version = [row for row in rows if row.has_version(version)]
    is_expanded = target.expands and not any(_takes_types(row, kinds, target) for row in of_version)
    if is_expanded and has_body(domain, op, node.opset):
        return None
    if not rows:
        return Reason("operator", name, f"{name} is not run")
    if not of_version:
        return Reason("version", name, f"{name} is not run in version {version}", str(version))
    return _restricted(node, name, of_version, target, kinds)


def _restricted(node: Node, name: str, rows: list[Support], target: Target, kinds: Kinds) -> Reason | None:
    """Return a restriction of the rows for its version that a node violates; None if a row accepts it."""
    typed = [row for row in rows if _takes_types(row, kinds, target)]
    if not typed:
        listed = ", ".join(sorted({kind for kind in kinds.variables.values() if kind}))
        return Reason("type", name, f"{name} is not run in {listed or 'this type'}", listed)
    found = [_broken(node, name, row) for row in typed]
    return None if None in found else found[-1]


def _broken(node: Node, name: str, row: Support) -> Reason | None:
    """Return the restriction of a row that a node of accepted types violates, or None."""
    return _attributes(node, name, row) or _constants(node, name, row) or _form(node, name, row)


def _form(node: Node, name: str, row: Support) -> Reason | None:
    given = len(node.ir.inputs)
    if given > row.inputs:
        return Reason("inputs", name, f"{name} is run with at most {row.inputs} inputs", str(row.inputs))
    used = sum(1 for value in node.outputs if value.is_used or value.is_output)
    if used > row.outputs:
        return Reason("outputs", name, f"{name} is run with at most {row.outputs} output(s)", str(row.outputs))
    first = next((value for value in node.inputs if value is not None), None)
    rank = first.rank if first is not None else None
    if row.rank != ANY_RANK and rank is not None and not row.rank[0] <= rank <= row.rank[1]:
        return Reason("rank", name, f"{name} of rank {rank}: the target takes {_range(row.rank)}", str(rank))
    return None


def _attributes(node: Node, name: str, row: Support) -> Reason | None:
    for key, allowed in row.attributes.items():
        try:
            held = node.attr(key)
        except Refusal:
            continue  # a parameter of the enclosing function
        if not row.takes_attribute(key, held):
            shown = " or ".join(map(str, allowed))
            given = f"{held:.6g}" if isinstance(held, float) else held
            limit = f"the target takes {shown}" if allowed else "the target has no such attribute"
            return Reason("attribute", name, f"{name} with {key} {given}: {limit}", key)
    return None


def _constants(node: Node, name: str, row: Support) -> Reason | None:
    for parameter, value in _pairs(node, "inputs"):
        if parameter.name in row.constant and not value.is_constant:
            words = f"{name} with an input '{parameter.name}' that is not constant"
            return Reason("constant", name, words, parameter.name)
        if parameter.name in row.zeros and (value.constant is None or value.constant.any()):
            words = f"{name} with an input '{parameter.name}' that is not 0"
            return Reason("zeros", name, words, parameter.name)
    return None


def operand(node: Node, name: str) -> Value | None:
    """Return the input of a node whose parameter has this name, or None."""
    return next((value for parameter, value in _pairs(node, "inputs") if parameter.name == name), None)


def _operands(graph: Graph, node: Node, target: Target) -> Reason | None:
    """Return the problem with the types, ranks or dims of the operands and outputs of a node, for any operator."""
    name = key_of(plain_domain(node.ir.domain), node.ir.op_type)
    computed = [value for value in node.inputs if value is not None and not value.is_constant]
    for value in (*computed, *(value for value in node.outputs if value.name)):
        dtype = _dtype(value)
        if target.types and dtype and dtype not in target.types:
            return Reason("type", name, f"{name} is not run in {dtype}", dtype)
        if value.rank is not None and value.rank > target.limits.rank:
            words = f"{name} of rank {value.rank}: the target takes at most {target.limits.rank}"
            return Reason("rank", name, words, str(value.rank))
    return None if target.limits.dynamic_dims else _depends_on_data(graph, node, name)


def _depends_on_data(graph: Graph, node: Node, name: str) -> Reason | None:
    """Return a reason if a node makes dims from data; dims that follow from its inputs are reported at the inputs."""
    made = [value for value in node.outputs if value.name and value.static_shape is None]
    if not made:
        return None
    read = (*graph.inputs(), *(value for value in node.inputs if value is not None))
    known = {dim for value in read for dim in _names(value)}
    for value in made:
        if None in (value.shape or (None,)) or not _names(value) <= known:
            return Reason("data-dims", name, f"{name} produces dims that are only known at run time")
    return None


def _names(value: Value) -> set[str]:
    """Return the symbol names in the dims of a value."""
    return {name for dim in value.shape or () if isinstance(dim, str) for name in _symbols(dim)}


@cache
def _symbols(dim: str) -> frozenset[str]:
    try:
        return frozenset(map(str, parse(dim).free_symbols))
    except (ValueError, AttributeError):
        return frozenset({dim})


# Types


@dataclass(frozen=True)
class Kinds:
    """The element types of a node: of its first operand, and per type variable of its operator; empty if unknown."""

    first: str
    variables: Mapping[str, str]

    @classmethod
    def of(cls, node: Node, dtype: str = "", inputs: Collection[int] = (), outputs: Collection[int] = ()) -> Kinds:
        """Return the types of a node, with `dtype` for the inputs and outputs at the given positions."""
        first, variables = "", dict[str, str]()
        for side, changed in (("inputs", inputs), ("outputs", outputs)):
            for index, value in enumerate(getattr(node, side)):
                if value is None:
                    continue
                kind = dtype if index in changed else _dtype(value)
                first = first or kind
                parameter = _parameter(node, side, index)
                if parameter is not None:
                    variables.setdefault(parameter.variable, kind)
        return cls(first, variables)


def _takes_types(row: Support, kinds: Kinds, target: Target) -> bool:
    """Return whether a row accepts the types of a node, as far as these are known."""
    if FIRST in row.types:
        return not kinds.first or _takes(kinds.first, row.types[FIRST], target)
    return all(
        not kinds.variables[variable] or _takes(kinds.variables[variable], allowed, target)
        for variable, allowed in row.types.items()
        if variable in kinds.variables
    )


def _takes(actual: str, allowed: Iterable[str], target: Target) -> bool:
    return actual in allowed or target.widens.get(actual, "") in allowed


def _pairs(node: Node, side: str) -> Iterator[tuple[Parameter, Value]]:
    """Yield the parameters of the operator of a node with the values given for them."""
    for index, value in enumerate(getattr(node, side)):
        parameter = _parameter(node, side, index)
        if value is not None and parameter is not None:
            yield parameter, value


def _parameter(node: Node, side: str, index: int) -> Parameter | None:
    """Return the parameter of the operator of a node at a position; None if it is not known."""
    form = form_of(plain_domain(node.ir.domain), node.ir.op_type, node.opset)
    parameters: tuple[Parameter, ...] = () if form is None else getattr(form, side)
    if not parameters or (index >= len(parameters) and not parameters[-1].variadic):
        return None
    return parameters[min(index, len(parameters) - 1)]


def _dtype(value: Value) -> str:
    """Return the element type of a tensor; empty if it is unknown or the value is not a tensor."""
    kind = value.type
    return kind.dtype.name.lower() if isinstance(kind, ir.TensorType) else ""
