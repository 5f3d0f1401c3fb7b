"""The language of patterns: a few lines of ONNX text with holes.

    c = Conv(x, w, bias?)                   # bias may be absent
    y, mask? = Dropout(c, ratio?)           # an output that may be absent
    y = Relu|Clip(c, limits...)             # either operator; all remaining inputs
    y = Mul(x, 0.5)                         # a constant whose elements all equal 0.5 (of any shape)
    y = Div(x, ~1.4142135623730951)         # the same, up to a few rounding errors of its type
    y = Reshape(x, {0, -1})                 # a constant with exactly these elements
    y = Transpose<perm=p>(x)                # the attribute is bound to m.p
    y = Softmax<axis=-1>(x)                 # the attribute, or its default, has this value
    y = com.microsoft::FusedMatMul(a, b)    # an operator of another domain
    c = Add(a, b)                           # operands of commutative operators match in either order

A name stands for the same value wherever it occurs. Values that one line produces and another reads are interior: they
may not be read elsewhere. Values that no line reads are the outputs of the pattern, in order of appearance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, NoReturn, TypeVar

from surgery.base.errors import PatternError

T = TypeVar("T")

LONGEST_NUMBER = 40

Literal = int | float | str
AttributeLiteral = Literal | tuple[Literal, ...]

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t]+|\#.*|//.*)
  | (?P<number>[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w.])|[-+]?inf\b)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
  | (?P<string>"[^"\n]*")
  | (?P<mark>\.\.\.|::|[=(),<>|?~{}\[\]])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class PatternInput:
    """An input in a pattern: a named value, or a constant given by its elements. `column` counts from 1."""

    name: str | None = None
    optional: bool = False
    variadic: bool = False
    scalar: int | float | None = None
    nearly: bool = False
    elements: tuple[int | float, ...] | None = None
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class PatternOutput:
    """An output in a pattern."""

    name: str
    optional: bool = False
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Attribute:
    """A condition on an attribute (`value`), or a name for its value (`binding`)."""

    name: str
    value: AttributeLiteral | None = None
    binding: str | None = None
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class NodePattern:
    """One line: an operator call. `ops` are pairs of domain and operator."""

    results: tuple[PatternOutput, ...]
    ops: tuple[tuple[str, str], ...]
    operands: tuple[PatternInput, ...]
    attributes: tuple[Attribute, ...]
    line: int
    column: int = 1
    """The column of the operator."""


def parse(text: str) -> tuple[NodePattern, ...]:
    """Parse a pattern, one node per line; raise PatternError, with the position, for a mistake."""
    nodes = tuple(_node(number, line) for number, line in lines(text))
    if not nodes:
        raise PatternError("the pattern is empty")
    return nodes


@cache
def _node(number: int, line: str) -> NodePattern:
    """Parse one line; cached, because alternative patterns of a pass share most of their lines."""
    return _PatternLine(number, line).node()


def line_errors(text: str) -> list[PatternError]:
    """List the mistakes of all lines; `parse` stops at the first one."""
    found = []
    for number, line in lines(text):
        try:
            _PatternLine(number, line).node()
        except PatternError as error:
            found.append(error)
    return found


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty or comments, after their numbers from 1."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.split("#")[0].split("//")[0].strip():
            yield number, line


class LineTokens:
    """The tokens of one line, for recursive descent."""

    subject: ClassVar[str] = "pattern"
    token: ClassVar[re.Pattern[str]] = _TOKEN

    def __init__(self, number: int, line: str) -> None:
        self.number = number
        self.line = line
        self.tokens: list[tuple[str, str, int]] = []
        position = 0
        while position < len(line):
            found = self.token.match(line, position)
            if found is None:
                self.fail(f"unexpected '{line[position]}'", position)
            if found.lastgroup != "space":
                self.tokens.append((str(found.lastgroup), found.group(), position))
            position = found.end()
        self.next = 0

    def fail(self, what: str, position: int | None = None) -> NoReturn:
        """Raise PatternError at the next token, or at a position."""
        position = self.position if position is None else position
        raise PatternError(what, line=self.number, column=position + 1, source=self.line, subject=self.subject)

    @property
    def position(self) -> int:
        """The position of the next token, from 0; the end of the line after the last token."""
        return self.tokens[self.next][2] if self.next < len(self.tokens) else len(self.line)

    @property
    def column(self) -> int:
        """The column of the next token, from 1."""
        return self.position + 1

    @property
    def kind(self) -> str:
        """The kind of the next token: "number", "name", "string" or "mark"; empty at the end."""
        return self.tokens[self.next][0] if self.next < len(self.tokens) else ""

    def peek(self) -> str:
        """Return the next token; empty at the end."""
        return self.tokens[self.next][1] if self.next < len(self.tokens) else ""

    def accept(self, mark: str) -> bool:
        """Take the next token if it equals `mark`; return whether it does."""
        if self.peek() != mark:
            return False
        self.next += 1
        return True

    def expect(self, mark: str) -> None:
        """Take the next token, which must equal `mark`."""
        if not self.accept(mark):
            self.fail(f"expected '{mark}'")

    def listed(self, closing: str, item: Callable[[], T]) -> tuple[T, ...]:
        """Parse items separated by commas, and the closing mark."""
        found: list[T] = []
        while not self.accept(closing):
            if found:
                self.expect(",")
            found.append(item())
        return tuple(found)

    def take(self, kind: str, what: str) -> str:
        """Take a token of a kind; messages call it `what`."""
        if self.kind != kind:
            self.fail(f"expected {what}")
        self.next += 1
        return self.tokens[self.next - 1][1]

    def end(self) -> None:
        """Check that no tokens are left."""
        if self.next < len(self.tokens):
            self.fail("expected the end of the line")

    def op(self) -> tuple[str, str]:
        """Parse an operator; return its domain and name."""
        name = self.take("name", "an operator")
        if self.accept("::"):
            return name, self.take("name", "an operator")
        domain, _, op_type = name.rpartition(".")
        return domain, op_type


class _PatternLine(LineTokens):
    """One line of a pattern."""

    def node(self) -> NodePattern:
        results = [self.result()]
        while self.accept(","):
            results.append(self.result())
        self.expect("=")
        column = self.column
        ops = [self.op()]
        while self.accept("|"):
            ops.append(self.op())
        attributes = self.attributes()
        self.expect("(")
        operands = self.listed(")", self.operand)
        attributes += self.attributes()
        self.end()
        return NodePattern(tuple(results), tuple(ops), operands, attributes, self.number, column)

    def result(self) -> PatternOutput:
        column = self.column
        name = self.take("name", "a name for an output")
        return PatternOutput(name, self.accept("?"), column)

    def attributes(self) -> tuple[Attribute, ...]:
        return self.listed(">", self.attribute) if self.accept("<") else ()

    def attribute(self) -> Attribute:
        column = self.column
        name = self.take("name", "the name of an attribute")
        self.expect("=")
        if self.kind == "name":
            return Attribute(name, binding=self.take("name", "a name"), column=column)
        return Attribute(name, value=self.literal(), column=column)

    def literal(self) -> AttributeLiteral:
        return self.listed("]", self.item) if self.accept("[") else self.item()

    def item(self) -> Literal:
        if self.peek().startswith('"'):
            return self.take("string", "a string")[1:-1]
        return self.number_literal()

    def number_literal(self) -> int | float:
        position = self.position
        text = self.take("number", "a number, a string or a list")
        if len(text) > LONGEST_NUMBER:
            self.fail("the number is too long", position)
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)

    def operand(self) -> PatternInput:
        column = self.column
        if self.accept("{"):
            return PatternInput(elements=self.listed("}", self.number_literal), column=column)
        nearly = self.accept("~")
        if nearly or self.kind == "number":
            return PatternInput(scalar=self.number_literal(), nearly=nearly, column=column)
        name = self.take("name", "an input: a name, a number or {...}")
        if self.accept("..."):
            if self.peek() != ")":
                self.fail("'...' must be the last input")
            return PatternInput(name, variadic=True, column=column)
        return PatternInput(name, optional=self.accept("?"), column=column)
