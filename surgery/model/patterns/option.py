"""RuleText: an option type of passes that is a rule, as in the `rules` of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from surgery.base.errors import PatternError
from surgery.model.patterns.match import Match
from surgery.model.patterns.option_value import TEXTS, OptionValue
from surgery.model.patterns.rewrite import rewrite_any
from surgery.model.patterns.rule import Rule
from surgery.model.patterns.rule_checks import mistakes

if TYPE_CHECKING:
    from surgery.model.graph.builder import Builder
    from surgery.model.graph.graph import Graph
    from surgery.model.graph.values import Value

_KEYS = ("match", "emit", "where", "opset", "domains", "functions")
_CONDITION = {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}


class RuleText(OptionValue, Rule):
    """A rule given in a step: the patterns to match and the nodes to emit, in ONNX text."""

    type_name: ClassVar[str] = "rule"
    json_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "match": TEXTS,
            **{key: {"type": "string"} for key in ("emit", "opset", "functions")},
            "where": {"anyOf": [_CONDITION, {"type": "array", "items": _CONDITION}]},
            "domains": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["match", "emit"],
        "additionalProperties": False,
    }

    @classmethod
    def read(cls, value: Any) -> RuleText:
        """Read the value in a recipe; raise ValueError, with a one-line description, for a mistake."""
        if isinstance(value, RuleText):
            return value
        if not isinstance(value, Mapping) or not {"match", "emit"} <= {*value}:
            raise ValueError("expected a mapping with 'match', 'emit' and other keys of a rule")
        unknown = next((key for key in value if key not in _KEYS), None)
        if unknown is not None:
            raise ValueError(f"a rule has no key '{unknown}'; there are {', '.join(_KEYS)}")
        rule = cls(
            match=_texts("match", value["match"]),
            emit=_texts("emit", [value["emit"]])[0],
            where=tuple(_conditions(value.get("where", []))),
            opset=str(value.get("opset", "")),
            domains=tuple(sorted(dict(value.get("domains", {})).items())),
            functions=_texts("functions", [value.get("functions", "")])[0],
        )
        for mistake in mistakes(rule):
            raise ValueError(f"{mistake.part}, {_line(mistake.error)}")
        return rule

    def rewrite(self, graph: Graph, *, outdates: bool) -> None:
        """Apply the rule wherever it matches; with `outdates`, types and dims of the replacements may differ."""

        def emit(match: Match, new: Builder) -> tuple[Value | None, ...]:
            for value in match.outputs if outdates else ():
                if value is not None:
                    new.outdates(value)
            return self(match, new)

        rewrite_any(graph, self.match, emit, {})


def _texts(key: str, value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not all(isinstance(item, str) for item in items):
        raise ValueError(f"{key} takes ONNX text such as 'y = Relu(x)'")
    return tuple(items)


def _conditions(value: Any) -> list[tuple[str, str]]:
    """Read conditions: texts, or mappings from conditions to reasons."""
    found: list[tuple[str, str]] = []
    for item in value if isinstance(value, list | tuple) else [value]:
        pairs = list(item.items()) if isinstance(item, Mapping) else [(item, "")]
        if not all(isinstance(part, str) for pair in pairs for part in pair):
            raise ValueError("where takes conditions such as 'rank(x) == 4'")
        found += pairs
    return found


def _line(error: PatternError) -> str:
    return f"line {error.line}: {error.what}" if error.source else error.what
