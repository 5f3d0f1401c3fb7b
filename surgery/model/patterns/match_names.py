"""The names of a match, and their use in expressions."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from surgery.base.errors import PatternError
from surgery.model.patterns.compiled_pattern import CompiledPattern
from surgery.model.patterns.expression import (
    Binary,
    CallExpression,
    ConstantExpression,
    Expression,
    Listed,
    NameExpression,
)
from surgery.model.patterns.vocabulary import FUNCTIONS, TYPES, Word

Kind = Literal["value", "values", "attribute"]


@dataclass(frozen=True)
class NameBinding:
    """The binding of a name of the match. `made` says that a matched node produces it."""

    kind: Kind
    optional: bool
    made: bool
    ops: frozenset[tuple[str, str]] = frozenset()


def names_of(plans: list[CompiledPattern]) -> dict[str, NameBinding]:
    """Return the binding of each name of the match; a name that is missing in some alternative is optional."""
    tables = [dict(_names_in(plan)) for plan in plans]
    found: dict[str, NameBinding] = {}
    for table in tables:
        for name, bound in table.items():
            before = found.get(name, bound)
            optional = before.optional or bound.optional or any(name not in other for other in tables)
            found[name] = NameBinding(before.kind, optional, before.made or bound.made, before.ops | bound.ops)
    return found


def _names_in(plan: CompiledPattern) -> Iterator[tuple[str, NameBinding]]:
    found: dict[str, NameBinding] = {}
    for node in plan.nodes:
        for operand in node.operands:
            if operand.name is not None:
                optional = operand.optional and found.get(operand.name, NameBinding("value", True, False)).optional
                kind: Kind = "values" if operand.variadic else "value"
                found.setdefault(operand.name, NameBinding(kind, optional, False))
                if not optional and found[operand.name].optional:
                    found[operand.name] = NameBinding(kind, False, found[operand.name].made)
        for attribute in node.attributes:
            if attribute.binding is not None:
                found[attribute.binding] = NameBinding("attribute", False, False)
        for result in node.results:
            found[result.name] = NameBinding("value", result.optional, True, frozenset(node.ops))
    return iter(found.items())


def assured(condition: Expression) -> set[str]:
    """Return the names that a condition asserts to be present."""
    if isinstance(condition, CallExpression) and condition.function == "present":
        return {part.name for part in condition.parts if isinstance(part, NameExpression)}
    if getattr(condition, "op", "") == "and":
        return {name for part in condition.parts for name in assured(part)}
    return set()


_TYPES_OF_NUMPY = {"float32": "float", "float64": "double", "half": "float16"}


@dataclass
class NameChecker:
    """Checks the names in the expressions of one text."""

    names: Mapping[str, NameBinding]
    source: list[str]
    line: int = 1
    errors: list[PatternError] = field(default_factory=list)

    def wrong(self, what: str, column: int) -> None:
        """Record a mistake in the current line."""
        source = self.source[self.line - 1]
        self.errors.append(PatternError(what, line=self.line, column=column, source=source, subject="rule"))

    def condition(self, expression: Expression) -> None:
        """Check a condition."""
        if isinstance(expression, ConstantExpression | Listed | NameExpression) or getattr(
            expression, "op", ""
        ) in tuple("+-*/%"):
            self.wrong("this is not a condition; compare it with a value", expression.column)
        self.expression(expression)

    def expression(self, expression: Expression) -> None:
        """Check an expression."""
        if isinstance(expression, NameExpression):
            bound = self.bound(expression)
            if bound is not None and bound.kind != "attribute":
                asked = "count(x...)" if bound.kind == "values" else f"dims({expression.name})"
                self.wrong(f"'{expression.name}' is a value; use a property of it, such as {asked}", expression.column)
            return
        if isinstance(expression, CallExpression):
            self._call(expression)
            return
        if isinstance(expression, Binary):
            self._compared_types(expression)
        for part in expression.parts:
            self.expression(part)

    def _compared_types(self, comparison: Binary) -> None:
        """Report comparisons of a type with a constant that is not a type: such a condition would never hold."""
        sides = comparison.parts
        if any(isinstance(side, CallExpression) and side.function == "dtype" for side in sides):
            for item in (item for side in sides for item in (side.parts if isinstance(side, Listed) else (side,))):
                if isinstance(item, ConstantExpression) and not isinstance(item.value, Word):
                    self.wrong("a type is written as a word without quotes: float, float16, int64, ...", item.column)

    def bound(self, name: NameExpression) -> NameBinding | None:
        """Return the binding of a name; report a mistake and return None if there is none."""
        found = self.names.get(name.name)
        if found is None:
            near = difflib.get_close_matches(name.name, self.names, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(sorted(self.names))}"
            hint = f"the name of this type is {_TYPES_OF_NUMPY[name.name]}" if name.name in _TYPES_OF_NUMPY else hint
            self.wrong(f"the match has no name '{name.name}'; {hint}", name.column)
        return found

    def _call(self, call: CallExpression) -> None:
        if call.is_typed:
            self.wrong(f"'{call.function}' creates a constant and cannot be part of an expression", call.column)
            return
        if call.function == "opset" and not call.arguments:
            return
        function = FUNCTIONS.get(call.function)
        if function is None:
            self.wrong(_unknown_function(call.function), call.column)
            return
        least = len(function.takes)
        if len(call.arguments) < least or (len(call.arguments) > least and not function.more):
            many = "one argument" if least == 1 else f"{least} arguments"
            self.wrong(f"'{call.function}' takes {many}, not {len(call.arguments)}", call.column)
            return
        for position, argument in enumerate(call.arguments):
            self._argument(call, function.takes[min(position, least - 1)], argument)

    def _argument(self, call: CallExpression, kind: str, argument: Expression) -> None:
        if kind not in ("value", "values", "present"):
            self.expression(argument)
            return
        if not isinstance(argument, NameExpression):
            self.wrong(f"'{call.function}' takes a name of the match", argument.column)
            return
        bound = self.bound(argument)
        if bound is not None and kind != "present" and bound.kind != kind:
            wanted = "a variadic name" if kind == "values" else "a value"
            is_a = {"value": "a value", "values": "a variadic name", "attribute": "an attribute"}[bound.kind]
            self.wrong(f"'{call.function}' takes {wanted}, and '{argument.name}' is {is_a}", argument.column)


def _unknown_function(name: str) -> str:
    known = [*FUNCTIONS, *TYPES, "like", "opset"]
    near = difflib.get_close_matches(name, known, n=1)
    return f"no function '{name}'; " + (f"did you mean '{near[0]}'?" if near else f"there are {', '.join(FUNCTIONS)}")
