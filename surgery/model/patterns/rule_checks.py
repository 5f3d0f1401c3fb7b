"""Static checks of rules."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.base.errors import PatternError
from surgery.base.operators.schemas import forms, is_defined, unknown_attribute, unknown_operator, wrong_count
from surgery.model.patterns.check_emit import EmissionChecker
from surgery.model.patterns.compiled_pattern import CompiledPattern, compile_pattern
from surgery.model.patterns.emission import parse_emission
from surgery.model.patterns.expression import parse_condition
from surgery.model.patterns.match_names import NameBinding, NameChecker, assured, names_of
from surgery.model.patterns.pattern_text import NodePattern, line_errors

if TYPE_CHECKING:
    from onnx.defs import OpSchema

    from surgery.model.patterns.rule import Rule


@dataclass(frozen=True)
class Mistake:
    """One mistake in a text of a rule: `part` is the field, and `index` the number of the text in it, from 0."""

    part: str
    index: int
    error: PatternError


def mistakes(rule: Rule) -> list[Mistake]:
    """List the problems of a rule; empty if it can be called."""
    found: list[Mistake] = []
    plans = [plan for index, text in enumerate(rule.match) if (plan := _plan(rule, index, text, found)) is not None]
    try:
        functions = {(one.domain, one.name): one for one in rule.defined}
    except PatternError as error:
        found.append(Mistake("functions", 0, error))
        functions = {}
    names = names_of(plans)
    sure = {name for index, (text, _) in enumerate(rule.where) for name in _condition(names, index, text, found)}
    statements, errors = parse_emission(rule.emit)
    found += [Mistake("emit", 0, error) for error in errors]
    if len(plans) == len(rule.match):
        found += _disagreements(plans)
        check = EmissionChecker(rule, plans, names, sure, functions)
        check.statements(statements, complete=not errors)
        found += [Mistake("emit", 0, error) for error in check.errors]
        found += _domain_mistakes(rule, {domain for domain, _ in functions})
    return found


def _plan(rule: Rule, index: int, text: str, found: list[Mistake]) -> CompiledPattern | None:
    """Compile a pattern, and append its mistakes to `found`; return None if it cannot be compiled."""
    errors = line_errors(text)
    plan = None
    if not errors:
        try:
            plan = compile_pattern(text)
            errors = list(_pattern_mistakes(rule, plan, text))
        except PatternError as error:
            errors = [error]
    found += [Mistake("match", index, error) for error in errors]
    return plan


def _condition(names: Mapping[str, NameBinding], index: int, text: str, found: list[Mistake]) -> set[str]:
    """Append the problems of a condition to `found`; return the names that it asserts to be present."""
    try:
        condition = parse_condition(text)
    except PatternError as error:
        found.append(Mistake("where", index, error))
        return set()
    check = NameChecker(names, [text])
    if names:
        check.condition(condition)
    found += [Mistake("where", index, error) for error in check.errors]
    return assured(condition)


def _disagreements(plans: list[CompiledPattern]) -> Iterator[Mistake]:
    """Yield the alternatives whose outputs differ from the first one: the same text is emitted for all."""
    for index, plan in enumerate(plans):
        if {*plan.outputs} != {*plans[0].outputs}:
            outputs = [", ".join(sorted(one.outputs)) for one in (plan, plans[0])]
            what = f"this alternative returns {outputs[0]}, but the first one returns {outputs[1]}"
            yield Mistake("match", index, PatternError(what))


def _domain_mistakes(rule: Rule, defined: set[str]) -> Iterator[Mistake]:
    """Yield the domains with a declared version that no operator in the rule uses."""
    operators = [statement.operator for statement in rule.statements if statement.operator is not None]
    used = {domain for plan in rule.plans for node in plan.nodes for domain, _ in node.ops}
    used |= defined | {operator.domain for operator in operators}
    for index, (domain, _) in enumerate(rule.domains):
        if domain not in used:
            near = difflib.get_close_matches(domain, used - {""}, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            yield Mistake("domains", index, PatternError(f"no operator in this rule has the domain '{domain}'{hint}"))


def _pattern_mistakes(rule: Rule, plan: CompiledPattern, text: str) -> Iterator[PatternError]:
    """Yield the mistakes in lines that cannot match any node of their operators."""
    source = text.splitlines()
    values = {name for node in plan.nodes for name in _values(node)}
    for node in plan.nodes:
        for what, column in [*_line_mistakes(rule, node), *_both(node, values)]:
            yield PatternError(what, line=node.line, column=column, source=source[node.line - 1])


def _line_mistakes(rule: Rule, node: NodePattern) -> Iterator[tuple[str, int]]:
    schemas: list[OpSchema] = []
    for domain, op in node.ops:
        if not is_defined(domain):
            return
        here = forms(domain, op, rule.used_versions(domain))
        if not here:
            yield unknown_operator(domain, op, rule.opset_words), node.column
            return
        schemas += here
    open_end = bool(node.operands) and node.operands[-1].variadic
    given = len(node.operands) - open_end
    wrong = wrong_count(schemas, given, "inputs", open_end=open_end)
    wrong = wrong or wrong_count(schemas, len(node.results), "outputs", open_end=True)
    if wrong is not None:
        yield wrong, node.column
    for attribute in node.attributes:
        wrong = unknown_attribute(schemas, attribute.name)
        if wrong is not None:
            yield wrong, attribute.column


def _values(node: NodePattern) -> set[str]:
    return {result.name for result in node.results} | {one.name for one in node.operands if one.name is not None}


def _both(node: NodePattern, values: set[str]) -> Iterator[tuple[str, int]]:
    for attribute in node.attributes:
        if attribute.binding in values:
            yield f"'{attribute.binding}' is a value; choose another name for the attribute", attribute.column
