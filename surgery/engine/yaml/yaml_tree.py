"""YAML text -> a tree of nodes with positions, and all YAML mistakes.

A parser stops at the first syntax error. Here, that error is one mistake among others: the text before it is kept and
checked as usual, and tabs in the indentation are replaced so that reading continues.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)
from ruamel.yaml.scanner import Scanner

from surgery.engine.yaml.yaml_mistakes import OTHER, explain
from surgery.engine.yaml.yaml_nodes import Listing, Scalar, Table, YamlNode, quoted, resolve

MAX_HEIGHT = 64
MAX_SIZE = 100_000
_TOO_DEEP = f"nested more than {MAX_HEIGHT} deep"
_TOO_LARGE = f"larger than {MAX_SIZE} entries with its aliases"
_TEXT_TAG = "tag:yaml.org,2002:str"


@dataclass
class ParsedText:
    """A parsed text: its tree (None if it is empty), and its mistakes as (line, column, message).

    `broken` says that a syntax error ended the reading, and `penalty` how unlikely this interpretation is. `exempt` has
    the continuation lines of quoted texts, block texts and flow collections, as (first, last, is a block text), and
    `plain` those of plain texts, as (first, last). `repeated` has the mappings with a duplicate key.
    """

    root: YamlNode | None = None
    mistakes: list[tuple[int, int, str]] = field(default_factory=list)
    broken: bool = False
    penalty: int = 0
    exempt: list[tuple[int, int, bool]] = field(default_factory=list)
    plain: list[tuple[int, int]] = field(default_factory=list)
    repeated: list[Table] = field(default_factory=list)


def indents(text: str, index: int) -> bool:
    """Return whether the character at an index is part of the indentation of a line with content."""
    start = text.rfind("\n", 0, index) + 1
    end = text.find("\n", index)
    rest = text[index : end if end >= 0 else len(text)].strip(" \t\0")
    return not text[start:index].strip(" \t") and rest != "" and not rest.startswith("#")


class _Scanner(Scanner):
    """Treats a tab between two tokens as a space, as in YAML 1.2; the base class does so only in flow context."""

    def scan_to_next_token(self) -> Any:
        super().scan_to_next_token()
        while self.reader.peek() == "\t" and not indents(self.reader.buffer, self.reader.pointer):
            self.reader.forward()
            super().scan_to_next_token()


def compose(text: str, shifts: dict[int, tuple[int, int]] | None = None) -> ParsedText:
    """Parse a text. `shifts` has, by line, the (original, new) widths of a replaced indentation."""
    composer = _Composer(text, shifts or {})
    parser = YAML(typ="safe", pure=True)
    parser.Scanner = _Scanner
    try:
        for event in parser.parse(text):
            if not composer.take(event):
                break
    except MarkedYAMLError as error:
        words, mark = explain(error)
        composer.cut(mark, words)
    except Exception:  # the parser raises errors of any type for some texts ("\UFFFFFFFF")
        composer.cut(None, OTHER)
    return composer.document


@dataclass
class _Frame:
    """A list or mapping that is being read; `key` is a key without its value yet, `seen` has the lines of the keys."""

    node: Listing | Table
    flow: bool
    key: YamlNode | None = None
    seen: dict[object, int] = field(default_factory=dict)


class _Composer:
    """Builds the tree from the parser's events, without recursion."""

    def __init__(self, text: str, shifts: dict[int, tuple[int, int]]) -> None:
        self.document = ParsedText()
        self._lines = text.split("\n")
        self._shifts = shifts
        self._stack: list[_Frame] = []
        self._anchors: dict[str, YamlNode] = {}
        self._size = 0
        self._last: Scalar | None = None
        self._last_line = 0
        self._here = (1, 1)

    def take(self, event: Any) -> bool:
        """Process one event; return False to end the reading."""
        self._here = self._place(event.start_mark)
        if isinstance(event, DocumentStartEvent) and self.document.root is not None:
            return self._stop("a recipe is one YAML document; this begins another")
        if isinstance(event, AliasEvent):
            return self._alias(str(event.anchor))
        if isinstance(event, ScalarEvent):
            return self._scalar(event)
        if isinstance(event, CollectionStartEvent):
            return self._open(event)
        if isinstance(event, CollectionEndEvent):
            self._close(event.end_mark.line + 1)
        return True

    def cut(self, mark: Any, words: str) -> None:
        """End at a syntax error: keep the nodes so far, and mark the unfinished ones."""
        line, column = self._here if mark is None else self._place(mark)
        self._mistake(words, line, column)
        # A text that ends on the line of the error was most likely not meant to end there: drop its value.
        if self._last is not None and self._last_line == line:
            self._drop(self._last)
        self._finish()

    def _stop(self, words: str) -> bool:
        self._mistake(words)
        self._finish()
        return False

    def _finish(self) -> None:
        self.document.broken = True
        while self._stack:
            self._stack[-1].node.open = True
            self._close(0)

    def _drop(self, scalar: Scalar) -> None:
        if self.document.root is scalar:
            self.document.root = None
        top = self._stack[-1].node if self._stack else None
        if isinstance(top, Listing) and top.items and top.items[-1] is scalar:
            top.items.pop()
        elif isinstance(top, Table) and top.pairs and top.pairs[-1][1] is scalar:
            top.pairs.pop()

    def _place(self, mark: Any) -> tuple[int, int]:
        line, column = mark.line + 1, mark.column
        given, replaced = self._shifts.get(line, (0, 0))
        return line, 1 + (column - replaced + given if column >= replaced else min(column, given))

    def _mistake(self, words: str, line: int = 0, column: int = 0) -> None:
        self.document.mistakes.append((line or self._here[0], column or self._here[1], words))

    def _scalar(self, event: Any) -> bool:
        styled = event.style is not None
        text = str(event.value)
        value = text if styled or event.tag is not None else resolve(text)
        # The mark after a block text is at the start of the next line.
        last = event.end_mark.line + (event.end_mark.column > 0)
        source = tuple(self._lines[event.start_mark.line : max(last, event.start_mark.line + 1)])
        scalar = Scalar(*self._here, value, text, styled, event.style, source)
        self._tag(event)
        self._last, self._last_line = scalar, last
        if last > scalar.line:
            self._continued(scalar.line + 1, last, event.style)
        return self._new(scalar, event.anchor) and self._add(scalar)

    def _continued(self, first: int, last: int, style: str | None) -> None:
        if style is None:
            self.document.plain.append((first, last))
        else:
            self.document.exempt.append((first, last, style in "|>"))

    def _tag(self, event: Any) -> None:
        is_text = isinstance(event, ScalarEvent)
        if event.tag is None or event.tag == "!" or (is_text and event.tag == _TEXT_TAG):
            return
        hint = "quote the text" if is_text else "remove it"
        self._mistake(f"{quoted(str(event.tag))} is read as a YAML tag, which recipes do not allow; {hint}")

    def _open(self, event: Any) -> bool:
        if len(self._stack) >= MAX_HEIGHT:
            return self._stop(_TOO_DEEP)
        node = Listing(*self._here) if isinstance(event, SequenceStartEvent) else Table(*self._here)
        self._tag(event)
        self._stack.append(_Frame(node, bool(event.flow_style)))
        return self._new(node, event.anchor)

    def _close(self, last: int) -> None:
        frame = self._stack.pop()
        node = frame.node
        children = node.items if isinstance(node, Listing) else [part for pair in node.pairs for part in pair]
        node.size = 1 + sum(child.size for child in children)
        node.height = 1 + max((child.height for child in children), default=0)
        if frame.flow and last > node.line:
            self.document.exempt.append((node.line + 1, last, False))
        self._add(node)

    def _alias(self, name: str) -> bool:
        node = self._anchors.get(name)
        if node is None:
            hint = "" if name.isidentifier() else "; put text that begins with * in quotes"
            self._mistake(f"no anchor '&{name}' is defined above this alias{hint}")
        elif any(node is frame.node for frame in self._stack):
            self._mistake(f"alias '*{name}' is inside the node that it refers to")
        elif len(self._stack) + node.height > MAX_HEIGHT:
            return self._stop(_TOO_DEEP)
        else:
            return self._count(node.size) and self._add(node)
        return self._add(Scalar(*self._here, None, ""))

    def _new(self, node: YamlNode, anchor: Any) -> bool:
        if anchor is not None:
            self._anchors[str(anchor)] = node
        return self._count(1)

    def _count(self, size: int) -> bool:
        self._size += size
        return self._size <= MAX_SIZE or self._stop(_TOO_LARGE)

    def _add(self, node: YamlNode) -> bool:
        frame = self._stack[-1] if self._stack else None
        if frame is None:
            self.document.root = node
        elif isinstance(frame.node, Listing):
            frame.node.items.append(node)
        elif frame.key is None:
            frame.key = node
            self._check_key(frame.node, frame.seen, node)
        else:
            frame.node.pairs.append((frame.key, node))
            frame.key = None
        return True

    def _check_key(self, table: Table, seen: dict[object, int], key: YamlNode) -> None:
        if not isinstance(key, Scalar):
            return
        same = (type(key.value), key.value)
        if same in seen:
            words = f"duplicate key {quoted(key.text)}; line {seen[same]} has it already; remove one"
            self._mistake(words, key.line, key.column)
            self.document.repeated.append(table)
        seen.setdefault(same, key.line)
