"""The expressions of rules: conditions, computed attributes, computed constants. They have a grammar, and are not code.

    rank(x) == 4 and dims(x)[1] % 8 == 0        # and, or, not; == != < <= > >= in; + - * / %
    dtype(x) in {float, float16}                # a list; the names of element types are words
    not present(b) or constant(b)
    p[q]                                        # a bound attribute; a list of indices picks a list

`/` of two integers that divides evenly gives an integer. Arithmetic on lists is elementwise, also between a list and a
number. An unknown value (a symbolic dim, a shape that was not inferred) makes a condition fail, with that as the
reason, unless the other side of `and` or `or` decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from surgery.model.patterns.pattern_text import LONGEST_NUMBER, LineTokens
from surgery.model.patterns.vocabulary import TYPES, Word, is_number

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t]+|\#.*|//.*)
  | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w.]))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
  | (?P<string>"[^"\n]*")
  | (?P<mark>\.\.\.|::|==|!=|<=|>=|[=(),<>|?{}\[\]+*/%-])
    """,
    re.VERBOSE,
)
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">", "in")
_DEEPEST = 30
_MOST_OPERATIONS = 150
_WORDS = ("and", "or", "not", "in", "true", "false")


@dataclass(frozen=True)
class Expression:
    """Anything with a value in a match. `text` is its source text in the rule, and `column` its position, from 1."""

    text: str = field(kw_only=True)
    column: int = field(kw_only=True)

    @property
    def parts(self) -> tuple[Expression, ...]:
        """The direct subexpressions."""
        held = [getattr(self, each.name) for each in fields(self)]
        items = [item for part in held for item in (part if isinstance(part, tuple) else (part,))]
        return tuple(item for item in items if isinstance(item, Expression))


@dataclass(frozen=True)
class ConstantExpression(Expression):
    """A number, a string, true or false, or the name of an element type."""

    value: int | float | str | bool


@dataclass(frozen=True)
class NameExpression(Expression):
    """A name of the match, with its marks `optional` and `variadic`."""

    name: str
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True)
class Listed(Expression):
    """A list: `{0, -1}` or `[0, -1]`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class CallExpression(Expression):
    """A function of the vocabulary, or the type of a constant."""

    function: str
    arguments: tuple[Expression, ...]

    @property
    def is_typed(self) -> bool:
        """Whether it makes a constant with an explicit type."""
        return self.function in TYPES or self.function == "like"


@dataclass(frozen=True)
class IndexExpression(Expression):
    """One item of a list, or several: `dims(x)[-1]`, `dims(x)[{0, 2}]`."""

    base: Expression
    index: Expression


@dataclass(frozen=True)
class Unary(Expression):
    """The negation of a condition (`not`) or of a number (`-`)."""

    op: str
    operand: Expression


@dataclass(frozen=True)
class Binary(Expression):
    """A binary operator with its two operands."""

    op: str
    left: Expression
    right: Expression


class ExpressionLine(LineTokens):
    """A line with expressions."""

    subject = "rule"
    token = _TOKEN

    def __init__(self, number: int, line: str) -> None:
        super().__init__(number, line)
        self._depth = 0
        self._operations = 0

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        """Limit the nesting depth, because parsing and evaluation recurse as deep as the text is nested."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self.fail(f"nested more than {_DEEPEST} deep")
        yield
        self._depth -= 1

    def _count(self) -> None:
        self._operations += 1
        if self._operations > _MOST_OPERATIONS:
            self.fail(f"more than {_MOST_OPERATIONS} operators on one line; split it")

    def condition(self) -> Expression:
        """Parse a condition: comparisons and functions, joined by `and`, `or`, `not`."""
        return self._joined("or", lambda: self._joined("and", self._negation))

    def _joined(self, word: str, take: Callable[[], Expression]) -> Expression:
        start = self.next
        found = take()
        while self.accept(word):
            self._count()
            found = Binary(word, found, take(), **self.place(start))
        return found

    def _negation(self) -> Expression:
        start = self.next
        if self.accept("not"):
            with self._deeper():
                return Unary("not", self._negation(), **self.place(start))
        left = self.arithmetic()
        if self.peek() == "=":
            self.fail("expected a comparison: did you mean '=='?")
        op = self.peek()
        if op not in COMPARISONS:
            return left
        self.next += 1
        found = Binary(op, left, self.arithmetic(), **self.place(start))
        if self.peek() in COMPARISONS:
            self.fail("comparisons cannot be chained; join them with 'and'")
        return found

    def arithmetic(self) -> Expression:
        """Parse a number, a list or an arithmetic expression, without comparisons."""
        return self._operators(("+", "-"), lambda: self._operators(("*", "/", "%"), self._signed))

    def _operators(self, ops: tuple[str, ...], take: Callable[[], Expression]) -> Expression:
        start = self.next
        found = take()
        while self.peek() in ops and self.kind == "mark":
            op = self.peek()
            self.next += 1
            self._count()
            found = Binary(op, found, take(), **self.place(start))
        return found

    def _signed(self) -> Expression:
        start = self.next
        if self.accept("-"):
            with self._deeper():
                operand = self._signed()
            if isinstance(operand, ConstantExpression) and is_number(operand.value):
                return ConstantExpression(-operand.value, **self.place(start))  # type: ignore[operator]
            return Unary("-", operand, **self.place(start))
        found = self._primary()
        while self.accept("["):
            self._count()
            with self._deeper():
                index = self.arithmetic()
            self.expect("]")
            found = IndexExpression(found, index, **self.place(start))
        return found

    def _primary(self) -> Expression:
        start = self.next
        for opening, closing in (("{", "}"), ("[", "]")):
            if self.accept(opening):
                return Listed(self.listed(closing, self._item), **self.place(start))
        if self.accept("("):
            with self._deeper():
                found = self.condition()
            self.expect(")")
            return found
        literal = self._literal()
        if literal is not None:
            return ConstantExpression(literal, **self.place(start))
        if self.peek() in _WORDS:
            self.fail(f"'{self.peek()}' is not allowed here")
        name = self.take("name", "a name, a number, a list or a function")
        if self.accept("("):
            return CallExpression(name, self.listed(")", self._item), **self.place(start))
        if name in TYPES:
            return ConstantExpression(Word(name), **self.place(start))
        if name == "inf":
            return ConstantExpression(float("inf"), **self.place(start))
        return NameExpression(name, **self.place(start))

    def _literal(self) -> Any:
        """Parse a number, a string or a boolean; return None if the next token is none of these."""
        start = self.next
        if self.kind == "number":
            text = self.take("number", "a number")
            if len(text) > LONGEST_NUMBER:
                self.fail("the number is too long", self.tokens[start][2])
            return int(text) if text.isdigit() else float(text)
        if self.kind == "string":
            return self.take("string", "a string")[1:-1]
        return self.take("name", "a name") == "true" if self.peek() in ("true", "false") else None

    def _item(self) -> Expression:
        with self._deeper():
            return self.condition()

    def place(self, start: int) -> dict[str, Any]:
        """Return the text and the column of the tokens from `start` up to the current one."""
        begin = self.tokens[start][2]
        _, last, position = self.tokens[self.next - 1]
        return {"text": self.line[begin : position + len(last)], "column": begin + 1}


def parse_condition(text: str) -> Expression:
    """Parse a condition on one line; raise PatternError, with the position, if it is invalid."""
    line = ExpressionLine(1, text)
    found = line.condition()
    line.end()
    return found
