"""The language of `emit`: ONNX text in the style of patterns that describes the replacement of a match.

    w2 = Mul(w, {2.0})                      # a constant with the type of the other operand
    k4 = Reshape(k, {-1, 1, dims(w)[1]})    # a computed constant; Reshape requires int64
    z  = Where(mask, float(0), x)           # a constant with an explicit type; like(x, 0) takes the type of x
    y  = Conv<c...>(x, w2, b?)              # all attributes of the matched node that produces c; b may be absent
    y  = op(c)<c..., group=1>(x, w2)        # the operator of that node, if the match allows several
    y  = Concat<axis=a + 1>(xs...)          # a computed attribute; all values of a variadic name
    y  = Clip(x, , 6)                       # an omitted input
    y  = x                                  # no node at all

Names are those of the match, and those defined by earlier lines. Every output of the match is defined by one line.
Expressions always refer to the matched graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from surgery.base.errors import PatternError
from surgery.model.patterns.expression import Expression, ExpressionLine, NameExpression
from surgery.model.patterns.pattern_text import PatternOutput, lines
from surgery.model.patterns.vocabulary import FUNCTIONS, TYPES


@dataclass(frozen=True)
class EmittedOperator:
    """The operator to emit; with `like`, the operator of the matched node that produces this name."""

    domain: str
    name: str
    column: int
    like: str = ""


@dataclass(frozen=True)
class EmittedAttributes:
    """One attribute, or with `spread` all attributes of the matched node that produces that name."""

    name: str
    value: Expression | None
    column: int
    spread: bool = False


@dataclass(frozen=True)
class Statement:
    """One line. Without an operator, the result is the single operand itself; an operand of None is omitted."""

    results: tuple[PatternOutput, ...]
    operator: EmittedOperator | None
    operands: tuple[Expression | None, ...]
    settings: tuple[EmittedAttributes, ...]
    line: int


def parse_emission(text: str) -> tuple[tuple[Statement, ...], tuple[PatternError, ...]]:
    """Parse the `emit` text of a rule; return the lines that can be parsed, and the mistakes in the others."""
    found: list[Statement] = []
    mistakes: list[PatternError] = []
    for number, line in lines(text):
        try:
            found.append(_EmissionLine(number, line).statement())
        except PatternError as error:
            mistakes.append(error)
    if not found and not mistakes:
        mistakes.append(PatternError("nothing is emitted; 'y = x' replaces y by x"))
    return tuple(found), tuple(mistakes)


class _EmissionLine(ExpressionLine):
    """One line of an `emit` text."""

    def statement(self) -> Statement:
        results = [self._result()]
        while self.accept(","):
            results.append(self._result())
        self.expect("=")
        if not self._is_call():
            if len(results) > 1:
                self.fail("expected an operator: several values on one line come from one node")
            operand = self._operand()
            self.end()
            return Statement(tuple(results), None, (operand,), (), self.number)
        operator = self._operator()
        settings = self._settings()
        self.expect("(")
        operands = self.listed(")", self._input)
        settings += self._settings()
        self.end()
        return Statement(tuple(results), operator, operands, settings, self.number)

    def _is_call(self) -> bool:
        """Return whether a node follows and not a value: after its name come `::`, `|`, attributes or operands."""
        following = self.tokens[self.next + 1][1] if self.next + 1 < len(self.tokens) else ""
        if self.kind != "name" or following not in ("::", "<", "(", "|"):
            return False
        return self.peek() == "op" or following != "(" or self.peek() not in {*FUNCTIONS, *TYPES, "like", "opset"}

    def _result(self) -> PatternOutput:
        column = self.column
        return PatternOutput(self.take("name", "a name for an output"), column=column)

    def _operator(self) -> EmittedOperator:
        column = self.column
        if self.peek() == "op" and self.tokens[self.next + 1][1] == "(":
            self.next += 2
            like = self.take("name", "the name of an output of the match")
            self.expect(")")
            return EmittedOperator("", "", column, like)
        domain, name = self.op()
        if self.peek() == "|":
            self.fail("emit needs a single operator; 'op(y)' is the operator that y matched")
        return EmittedOperator(domain, name, column)

    def _settings(self) -> tuple[EmittedAttributes, ...]:
        return self.listed(">", self._setting) if self.accept("<") else ()

    def _setting(self) -> EmittedAttributes:
        column = self.column
        name = self.take("name", "the name of an attribute")
        if self.accept("..."):
            return EmittedAttributes(name, None, column, spread=True)
        self.expect("=")
        return EmittedAttributes(name, self.arithmetic(), column)

    def _input(self) -> Expression | None:
        return None if self.peek() in (",", ")") and self.kind == "mark" else self._operand()

    def _operand(self) -> Expression:
        found = self.arithmetic()
        if isinstance(found, NameExpression):
            start = self.next - 1
            variadic = self.accept("...")
            optional = not variadic and self.accept("?")
            return replace(found, variadic=variadic, optional=optional, **self.place(start))
        return found
