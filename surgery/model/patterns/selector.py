"""NodeSelector: an option type of passes that selects nodes.

A node selector has one of three forms:

    encoder/layer.*/attention/*             the nodes with these names; `*` stands for any letters, `?` for one
    {op: Conv, attribute: {group: 1}}       the nodes that meet all conditions
    [{op: Relu}, head/*]                    the nodes that match any of the items

A mapping may have these keys, each with a text or a list of alternative texts:

    name        the name of a node, or a glob; a node without a name is identified by its outputs, "Relu -> y"
    op          the operator: Conv, com.acme::Foo, or a glob
    domain      the domain of the operator, or a glob; ai.onnx is the default one
    attribute   names and values of attributes, {axis: 1}; an unset attribute has its default value
    pattern     a pattern in ONNX text: all nodes of each match
    made_by     a pass that made or edited the node, or a glob
    from        the name of an original node that the node comes from, or a glob
    between     {from: [tensors], to: [tensors]}: the nodes on paths between these tensors; either may be omitted

Nodes of subgraphs and functions are also selected. A selector that selects nothing is a user error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from surgery.base.errors import PatternError, UsageError
from surgery.model.patterns.compiled_pattern import compile_pattern
from surgery.model.patterns.criteria import WORDS, Criterion, FitsPattern, HasAttribute, HasWord, LiesBetween
from surgery.model.patterns.option_value import TEXTS, OptionValue
from surgery.model.wire.globs import Globs, did_you_mean

if TYPE_CHECKING:
    from surgery.model.graph.graph import Graph
    from surgery.model.graph.values import Node

KEYS = ("name", "op", "domain", "attribute", "pattern", "made_by", "from", "between")
"""The keys of a selector mapping."""

_ENDS = {"type": "object", "properties": {"from": TEXTS, "to": TEXTS}, "minProperties": 1}
_MAPPING = {
    "type": "object",
    "properties": {
        **dict.fromkeys(WORDS, TEXTS),
        "attribute": {"type": "object", "minProperties": 1},
        "pattern": {"type": "string"},
        "between": {**_ENDS, "additionalProperties": False},
    },
    "minProperties": 1,
    "additionalProperties": False,
}
_ONE = {"anyOf": [{"type": "string"}, _MAPPING]}


@dataclass(frozen=True)
class NodeSelector(OptionValue):
    """Selects the nodes of a graph that meet all criteria of any of the alternatives."""

    alternatives: tuple[tuple[Criterion, ...], ...]
    type_name: ClassVar[str] = "node selector"
    json_schema: ClassVar[dict[str, Any]] = {"anyOf": [*_ONE["anyOf"], {"type": "array", "items": _ONE, "minItems": 1}]}

    @classmethod
    def read(cls, value: Any) -> NodeSelector:
        """Read the value in a recipe, see the module docstring; raise ValueError, with one line, for a mistake."""
        if isinstance(value, NodeSelector):
            return value
        given = value if isinstance(value, list | tuple) else [value]
        if not given:
            raise ValueError("an empty list selects nothing")
        return cls(tuple(tuple(_criteria(item)) for item in given))

    def nodes(self, graph: Graph) -> list[Node]:
        """List the selected nodes, in graph order; raise UsageError if there are none."""
        every = graph.nodes()
        ways = [[criterion.predicate(graph) for criterion in criteria] for criteria in self.alternatives]
        found = [node for node in every if any(all(holds(node) for holds in way) for way in ways)]
        if not found:
            raise UsageError(self._absence(graph, every), todo="see 'surgery inspect MODEL' for what the model has")
        return found

    def _absence(self, graph: Graph, nodes: list[Node]) -> str:
        """Return why nothing was selected: the first condition that no node meets, or that none meets all of them."""
        for criterion in (one for criteria in self.alternatives for one in criteria):
            if not any(map(criterion.predicate(graph), nodes)):
                return criterion.absence(nodes)
        return "no node meets all conditions of the selector, although some nodes meet each of them"


def _criteria(value: Any) -> list[Criterion]:
    if isinstance(value, str) and (value[:1], value[-1:]) in (("{", "}"), ("[", "]")):
        raise ValueError(f"'{value}' is a quoted text, not the name of a node; write it without quotes")
    if isinstance(value, str) and value:
        return [HasWord("name", Globs((value,)))]
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"{value!r} is neither the name of a node nor a mapping of {', '.join(KEYS)}")
    return [criterion for key, item in value.items() for criterion in _criterion(key, item)]


def _criterion(key: object, value: Any) -> list[Criterion]:
    """Read one key of a mapping."""
    if key in WORDS:
        return [HasWord(str(key), Globs(texts(key, value)))]
    match key:
        case "attribute":
            if not isinstance(value, Mapping) or not value:
                raise ValueError("attribute takes a mapping of names and values, such as {axis: 1}")
            return [HasAttribute(str(name), wanted) for name, wanted in value.items()]
        case "pattern":
            return [_pattern(value)]
        case "between":
            return [_between(value)]
    hint = did_you_mean(str(key), KEYS) or f"there are {', '.join(KEYS)}"
    raise ValueError(f"a selector has no key '{key}'; {hint}")


def _pattern(value: Any) -> FitsPattern:
    if not isinstance(value, str):
        raise ValueError("pattern takes ONNX text, such as 'y = Relu(x)'")
    try:
        compile_pattern(value)
    except PatternError as error:
        raise ValueError(f"line {error.line} of the pattern: {error.what}") from None
    return FitsPattern(value)


def _between(value: Any) -> LiesBetween:
    if not isinstance(value, Mapping) or not value or set(value) - {"from", "to"}:
        raise ValueError("between takes {from: [tensors], to: [tensors]}, at least one of them")
    start, end = (texts(key, value[key]) if key in value else () for key in ("from", "to"))
    return LiesBetween(start, end)


def texts(key: object, value: Any) -> tuple[str, ...]:
    """Read a text or a list of texts."""
    given = value if isinstance(value, list | tuple) else [value]
    if not given or not all(isinstance(item, str) for item in given):
        raise ValueError(f"{key} takes a text or a list of texts; quote text that looks like a number")
    return tuple(given)
