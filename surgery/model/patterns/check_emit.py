"""Checks of the emitted lines of a rule."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from surgery.base.errors import PatternError, counted
from surgery.base.operators.schemas import (
    alike,
    fixed_type,
    forms,
    is_defined,
    missing_attribute,
    parameter,
    unknown_attribute,
    unknown_operator,
    wrong_count,
)
from surgery.model.patterns.compiled_pattern import CompiledPattern
from surgery.model.patterns.emission import EmittedAttributes, EmittedOperator, Statement
from surgery.model.patterns.expression import CallExpression, Expression, NameExpression
from surgery.model.patterns.match_names import NameBinding, NameChecker

if TYPE_CHECKING:
    from onnx import FunctionProto
    from onnx.defs import OpSchema

    from surgery.model.patterns.rule import Rule


class EmissionChecker(NameChecker):
    """Checks the lines of `emit` against the names of the match and the schemas of the operators."""

    def __init__(
        self,
        rule: Rule,
        plans: list[CompiledPattern],
        names: Mapping[str, NameBinding],
        assured: set[str],
        functions: Mapping[tuple[str, str], FunctionProto],
    ) -> None:
        super().__init__(names, rule.emit.splitlines())
        self.rule = rule
        self.assured = assured
        self.functions = functions
        self.wanted = dict.fromkeys(name for plan in plans for name in plan.outputs)
        self.made: dict[str, tuple[int, int]] = {}
        self.read: set[str] = set()
        self.later: set[str] = set()

    def statements(self, statements: Iterable[Statement], *, complete: bool) -> None:
        """Check all lines, and for missing lines only if the text is complete."""
        statements = list(statements)
        self.later = {result.name for one in statements for result in one.results}
        for statement in statements:
            self.line = statement.line
            for operand in statement.operands:
                if operand is not None:
                    self._operand(statement, operand)
            for setting in statement.settings:
                self._setting(setting)
            if statement.operator is not None:
                self._node(statement, statement.operator)
            self._results(statement)
        if complete:
            self._missing()

    def _results(self, statement: Statement) -> None:
        for result in statement.results:
            bound = self.names.get(result.name)
            if result.name in self.made:
                self.wrong(f"'{result.name}' is defined twice", result.column)
            elif bound is not None and not bound.made:
                self.wrong(f"'{result.name}' is an input of the match; choose another name", result.column)
            self.made.setdefault(result.name, (statement.line, result.column))

    def _missing(self) -> None:
        """Report lines whose results are never read, or else outputs that no line defines."""
        lines: dict[int, list[str]] = {}
        for name, (line, _) in self.made.items():
            lines.setdefault(line, []).append(name)
        idle = {line: names for line, names in lines.items() if not {*names} & {*self.wanted, *self.read}}
        for line, names in idle.items():
            self.line = line
            near = difflib.get_close_matches(names[0], self.wanted, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"the match returns {', '.join(self.wanted)}"
            self.wrong(f"'{names[0]}' is never read; {hint}", self.made[names[0]][1])
        absent = [name for name in self.wanted if name not in self.made and not self.names[name].optional]
        if absent and not idle:
            self.errors.append(PatternError(f"no line defines '{absent[0]}', which the match returns"))

    # Operands

    def _operand(self, statement: Statement, operand: Expression) -> None:
        if isinstance(operand, NameExpression):
            self._named(statement, operand)
        elif isinstance(operand, CallExpression) and operand.is_typed:
            self._typed(operand)
        else:
            self.expression(operand)
            if statement.operator is None:
                self.wrong("a constant alone needs a type: float(1) or like(x, 1)", operand.column)

    def _named(self, statement: Statement, name: NameExpression) -> None:
        if name.name in self.made:
            self.read.add(name.name)
            return
        bound = self.names.get(name.name)
        if name.name in self.later and (bound is None or bound.made):
            self.read.add(name.name)
            self.wrong(f"'{name.name}' is read before it is defined", name.column)
            return
        if name.name in self.wanted:
            self.wrong(f"'{name.name}' is replaced by the rule; it cannot be read", name.column)
            return
        bound = self.bound(name)
        if bound is None:
            return
        if (bound.kind == "values") != name.variadic:
            mark = f"'{name.name}...'" if bound.kind == "values" else f"'{name.name}'"
            self.wrong(f"the match has {mark} here, not '{name.text}'", name.column)
        elif bound.optional and not name.optional and name.name not in self.assured:
            hint = f"write '{name.name}?' to omit it then, or add 'where: present({name.name})'"
            self.wrong(f"'{name.name}' may be absent; {hint}", name.column)
        elif bound.optional and statement.operator is None and name.name not in self.assured:
            self.wrong(f"'{name.name}' may be absent; add 'where: present({name.name})'", name.column)

    def _typed(self, call: CallExpression) -> None:
        if len(call.arguments) != (2 if call.function == "like" else 1):
            example = "like(x, {0, 1})" if call.function == "like" else f"{call.function}({{0, 1}})"
            self.wrong(f"'{call.function}' creates a constant: write {example}", call.column)
            return
        if call.function == "like":
            self._argument(call, "value", call.arguments[0])
        self.expression(call.arguments[-1])

    # Nodes

    def _node(self, statement: Statement, operator: EmittedOperator) -> None:
        if operator.like:
            self._made_by_match(operator.like, operator.column, "op")
            return
        open_end = any(isinstance(one, NameExpression) and one.variadic for one in statement.operands)
        given = len(statement.operands) - open_end
        function = self.functions.get((operator.domain, operator.name))
        if function is not None:
            self._call_of_function(statement, operator, function, given, open_end)
            return
        if not is_defined(operator.domain):
            self._foreign(statement, operator)
            return
        schemas = forms(operator.domain, operator.name, self.rule.used_versions(operator.domain))
        if not schemas:
            self.wrong(unknown_operator(operator.domain, operator.name, self.rule.opset_words), operator.column)
            return
        wrong = wrong_count(schemas, given, "inputs", open_end=open_end)
        wrong = wrong or wrong_count(schemas, len(statement.results), "outputs")
        if wrong is not None:
            self.wrong(wrong, operator.column)
            return
        for setting in statement.settings:
            what = self._spread(setting, operator) if setting.spread else unknown_attribute(schemas, setting.name)
            if what is not None:
                self.wrong(what, setting.column)
        if not any(setting.spread for setting in statement.settings):
            lacking = missing_attribute(schemas, [setting.name for setting in statement.settings])
            if lacking is not None:
                self.wrong(lacking, operator.column)
        self._required(statement, schemas)
        self._types(statement, schemas)

    def _call_of_function(
        self, statement: Statement, operator: EmittedOperator, function: FunctionProto, given: int, open_end: bool
    ) -> None:
        most, results = len(function.input), len(function.output)
        if given > most or (given < most and not open_end):
            self.wrong(f"function {operator.name} takes {counted(most, 'input')}, not {given}", operator.column)
        elif len(statement.results) > results:
            self.wrong(f"function {operator.name} has {counted(results, 'output')}", operator.column)
        known = {*function.attribute, *(one.name for one in function.attribute_proto)}
        for setting in statement.settings:
            if not setting.spread and setting.name not in known:
                self.wrong(f"function {operator.name} has no attribute '{setting.name}'", setting.column)

    def _foreign(self, statement: Statement, operator: EmittedOperator) -> None:
        """Check an operator without a schema: its constants must state their types."""
        near = difflib.get_close_matches(operator.name, [n for d, n in self.functions if d == operator.domain], n=1)
        if near:
            self.wrong(f"no function '{operator.name}' in this rule; did you mean '{near[0]}'?", operator.column)
        for operand in statement.operands:
            self._untyped(operand, operator.name)

    def _untyped(self, operand: Expression | None, op: str) -> None:
        if operand is None or (isinstance(operand, CallExpression) and operand.is_typed):
            return
        bound = self.names.get(operand.name) if isinstance(operand, NameExpression) else None
        if isinstance(operand, NameExpression) and (bound is None or bound.kind != "attribute"):
            return
        self.wrong(f"{op} does not determine the type of this constant: write float({operand.text})", operand.column)

    def _required(self, statement: Statement, schemas: list[OpSchema]) -> None:
        least = min(schema.min_input for schema in schemas)
        for operand in statement.operands[:least]:
            if isinstance(operand, NameExpression) and operand.optional and operand.name not in self.assured:
                self.wrong(f"{schemas[0].name} needs this input, but '{operand.name}' may be absent", operand.column)

    def _types(self, statement: Statement, schemas: list[OpSchema]) -> None:
        """Report constants whose type is not determined by their node."""
        for position, operand in enumerate(statement.operands):
            if operand is None or any(self._decided(schema, position, statement) for schema in schemas):
                continue
            self._untyped(operand, schemas[0].name)

    def _decided(self, schema: OpSchema, position: int, statement: Statement) -> bool:
        formal = parameter(schema, position)
        if formal is None:
            return False
        if fixed_type(formal.type_str) is not None:
            return True
        others = [statement.operands[at] for at in alike(schema, position) if at < len(statement.operands)]
        return any(
            isinstance(other, NameExpression) or (isinstance(other, CallExpression) and other.is_typed)
            for other in others
        )

    # Attributes

    def _setting(self, setting: EmittedAttributes) -> None:
        if setting.spread:
            self._made_by_match(setting.name, setting.column, "...")
        elif isinstance(setting.value, NameExpression):
            bound = self.bound(setting.value)
            if bound is not None and bound.kind != "attribute":
                what = f"'{setting.value.name}' is a value, not an attribute"
                self.wrong(f"{what}; bind one in the match: <{setting.name}=p>", setting.value.column)
        elif isinstance(setting.value, CallExpression) and setting.value.is_typed:
            self._typed(setting.value)
        elif setting.value is not None:
            self.expression(setting.value)

    def _made_by_match(self, name: str, column: int, what: str) -> None:
        bound = self.names.get(name)
        if bound is None or not bound.made:
            shown = f"op({name})" if what == "op" else f"{name}..."
            self.wrong(f"'{shown}' refers to the node that produces '{name}', but no line of the match does", column)

    def _spread(self, setting: EmittedAttributes, operator: EmittedOperator) -> str | None:
        bound = self.names.get(setting.name)
        if bound is None or not bound.made or bound.ops == {(operator.domain, operator.name)}:
            return None
        ops = " or ".join(sorted(name for _, name in bound.ops))
        return f"'{setting.name}...' are attributes of {ops}, not of {operator.name}"
