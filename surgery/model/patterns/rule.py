"""Rules: a pattern and its replacement, both as ONNX text. Rules are data, not code."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from surgery.base.operators.schemas import newest_opset
from surgery.model.graph.builder import Builder
from surgery.model.graph.values import Value
from surgery.model.patterns.compiled_pattern import CompiledPattern, compile_pattern
from surgery.model.patterns.emission import Statement, parse_emission
from surgery.model.patterns.expression import Expression, parse_condition
from surgery.model.patterns.expression_values import check_condition
from surgery.model.patterns.match import Match

if TYPE_CHECKING:
    from onnx import FunctionProto

_HOLDS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Rule:
    """One rule, as text. `surgery.model.patterns.rule_checks.mistakes` lists its mistakes; a valid rule can be called.

    `where` has pairs of a condition and the reason of the refusal if it fails, which may be empty. `opset` is a
    comparison such as ">= 13", or empty. `domains` has the versions of the domains that the rule uses. `functions` is
    the ONNX text of model-local functions.
    """

    match: tuple[str, ...]
    emit: str
    where: tuple[tuple[str, str], ...] = ()
    opset: str = ""
    domains: tuple[tuple[str, int], ...] = ()
    functions: str = ""
    about: str = ""

    @cached_property
    def plans(self) -> tuple[CompiledPattern, ...]:
        """The compiled patterns; PatternError if one is invalid."""
        return tuple(compile_pattern(text) for text in self.match)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The parsed lines of `emit`."""
        return parse_emission(self.emit)[0]

    @cached_property
    def conditions(self) -> tuple[tuple[Expression, str], ...]:
        """The conditions and their reasons; the condition on the opset comes first."""
        opset = ((f"opset() {self.opset}", f"the rule is for opset {self.opset}"),) if self.opset else ()
        return tuple((parse_condition(text), reason) for text, reason in (*opset, *self.where))

    @cached_property
    def versions(self) -> Mapping[str, int]:
        """The declared versions by domain."""
        return dict(self.domains)

    @cached_property
    def opsets(self) -> frozenset[int]:
        """The versions of the default domain that the rule supports."""
        known = range(1, newest_opset() + 1)
        if not self.opset:
            return frozenset(known)
        comparison, number = self.opset.split()
        return frozenset(version for version in known if _HOLDS[comparison](version, int(number)))

    @property
    def opset_words(self) -> str:
        """The wording for the supported opsets in messages."""
        return f"where opset {self.opset}" if self.opset else "of any opset"

    @cached_property
    def defined(self) -> tuple[FunctionProto, ...]:
        """The model-local functions."""
        from surgery.model.patterns.functions import parse_functions

        return parse_functions(self.functions) if self.functions else ()

    def used_versions(self, domain: str) -> frozenset[int]:
        """Return the versions of a domain in models that the rule may be applied to."""
        if not domain:
            return self.opsets
        return frozenset({self.versions[domain]}) if domain in self.versions else frozenset(range(1, 100))

    def __call__(self, match: Match, new: Builder) -> tuple[Value | None, ...]:
        """Check the conditions, build the emitted nodes, and return one value for each output of the match."""
        from surgery.model.patterns.build import Construction

        build = Construction(self.defined, self.versions, match, new)
        build.require_outside()
        for condition, reason in self.conditions:
            check_condition(condition, match, reason)
        made = build.emit(self.statements)
        return tuple(made.get(name) for name in match.output_names)
