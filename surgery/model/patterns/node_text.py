"""NodeText: an option type of passes that is a few nodes in ONNX text, to be built anywhere in the main graph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from surgery.base.errors import UsageError
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.patterns.build import Construction
from surgery.model.patterns.compiled_pattern import compile_pattern
from surgery.model.patterns.emission import Statement, parse_emission
from surgery.model.patterns.expression import Expression, NameExpression
from surgery.model.patterns.match import Match
from surgery.model.patterns.option_value import OptionValue
from surgery.model.wire.globs import did_you_mean

if TYPE_CHECKING:
    from surgery.model.graph.builder import Builder
    from surgery.model.graph.graph import Graph

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
"""A name that can be written in the text as it is."""


class NodeText(OptionValue, str):
    """Nodes in the language of `emit` in rules: `t = Mul(x, 2)`, one on each line. Names are those of tensors."""

    type_name: ClassVar[str] = "nodes in ONNX text"
    json_schema: ClassVar[dict[str, Any]] = {"type": "string"}

    @classmethod
    def read(cls, value: Any) -> NodeText:
        """Read the value in a recipe; raise ValueError, with the line and column of a mistake."""
        if not isinstance(value, str):
            raise ValueError("expected ONNX text such as 't = Mul(x, 2)', one node on each line")
        statements, mistakes = parse_emission(value)
        for mistake in mistakes:
            raise ValueError(f"{_place(mistake.line, mistake.column) if mistake.source else ''}{mistake.what}")
        seen = set[str]()
        for statement in statements:
            for result in statement.results:
                if result.name in seen:
                    raise ValueError(f"{_place(statement.line, result.column)}'{result.name}' is defined twice")
                seen.add(result.name)
        return cls(value)

    def replaces(self, graph: Graph, names: Mapping[str, str]) -> list[Value]:
        """List the tensors of the main graph that the text defines anew.

        A name is the tensor that `names` gives, or else the one of that name. Raises UsageError for unknown ones.
        """
        tensors = _tensors(graph, names, {name for one in self._statements for name, _ in _names(one)})
        _require_read(self._statements, tensors)
        defined = dict.fromkeys(result.name for one in self._statements for result in one.results)
        return [tensors[name] for name in defined if name in tensors]

    def build(self, graph: Graph, new: Builder, names: Mapping[str, str]) -> dict[Value, Value]:
        """Build the nodes, and return the new values by the tensors that they are to replace.

        Raises UsageError for a mistake, with its line and column.
        """
        tensors = _tensors(graph, names, {name for one in self._statements for name, _ in _names(one)})
        build = Construction((), {}, _NamedTensors(graph, tensors, new.anchor), new)
        for statement in self._statements:
            for name, column in _names(statement, results=False):
                if name not in tensors and name not in build.made:
                    _fail(statement, column, f"there is no tensor '{name}'", did_you_mean(name, tensors.known))
            for setting in statement.settings:
                if isinstance(setting.value, NameExpression):
                    _fail(statement, setting.value.column, "an attribute takes a number, a text or a list")
            try:
                build.emit([statement])
            except Refusal as reason:
                column = statement.operator.column if statement.operator is not None else 1
                _fail(statement, column, str(reason))
        for name, value in build.made.items():
            if value is not None and not value.name:
                value.ir.name = graph.fresh(names.get(name, name))
        made = {tensors[name]: value for name, value in build.made.items() if name in tensors}
        return {old: value for old, value in made.items() if value is not None and value != old}

    @cached_property
    def _statements(self) -> tuple[Statement, ...]:
        return parse_emission(self)[0]


class _Tensors(dict[str, Value]):
    """The tensors that names in a text stand for; `known` are all names that it may use."""

    known: tuple[str, ...] = ()


class _NamedTensors(Match):
    """What a text refers to, in place of a match: tensors of the main graph, and the nodes that make them."""

    def __init__(self, graph: Graph, tensors: Mapping[str, Value], anchor: Node | None) -> None:
        nodes = graph.nodes()
        root = anchor or next((node for node in reversed(nodes) if node.scope is graph.main), None)
        if root is None:
            raise UsageError("the model has no nodes")
        plan = compile_pattern("y = Identity(x)")
        super().__init__(graph, plan, dict(tensors), {plan.anchor: root})
        self._tensors = tensors

    @property
    def output_names(self) -> tuple[str, ...]:
        """None: the types of replacements may differ."""
        return ()

    def node(self, name: str) -> Node:
        """Return the node that makes a tensor."""
        value = self._tensors.get(name)
        if value is None or value.producer is None:
            raise Refusal(f"no node of the model makes '{name}'")
        return value.producer


def _tensors(graph: Graph, names: Mapping[str, str], used: set[str]) -> _Tensors:
    known = {value.name: value for value in graph.values() if value.name}
    for name, tensor in names.items():
        if tensor not in known:
            raise UsageError(f"there is no tensor '{tensor}' for '{name}'", todo=did_you_mean(tensor, known) or None)
        if name not in used:
            raise UsageError(f"the text has no name '{name}'", todo=did_you_mean(name, used) or None)
    found = _Tensors({name: known[names.get(name, name)] for name in used if names.get(name, name) in known})
    found.known = (*names, *known)
    return found


def _require_read(statements: Sequence[Statement], tensors: Mapping[str, Value]) -> None:
    """Raise UsageError for a line of which no result is read or replaces a tensor."""
    read = {name for one in statements for name, _ in _names(one, results=False)}
    for statement in statements:
        results = [result.name for result in statement.results]
        if not any(name in tensors or name in read for name in results):
            what = f"'{results[0]}' is neither read nor a tensor of the model that it would replace"
            _fail(statement, statement.results[0].column, what, did_you_mean(results[0], tensors))


def _names(statement: Statement, *, results: bool = True) -> Iterator[tuple[str, int]]:
    """Yield the names in a line, with their columns: what it reads, and with `results` also what it defines."""
    for operand in (*statement.operands, *(one.value for one in statement.settings)):
        if operand is not None:
            yield from _in(operand)
    for one in statement.settings:
        if one.spread:
            yield one.name, one.column
    if statement.operator is not None and statement.operator.like:
        yield statement.operator.like, statement.operator.column
    if results:
        yield from ((one.name, one.column) for one in statement.results)


def _in(expression: Expression) -> Iterator[tuple[str, int]]:
    if isinstance(expression, NameExpression):
        yield expression.name, expression.column
    for part in expression.parts:
        yield from _in(part)


def _fail(statement: Statement, column: int, what: str, todo: str = "") -> NoReturn:
    raise UsageError(f"{_place(statement.line, column)}{what}", todo=todo or None)


def _place(line: int, column: int) -> str:
    return f"line {line}, column {column}: "
