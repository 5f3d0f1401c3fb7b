"""The tree of a YAML text: values with positions, and what remains of a text with mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from surgery.engine.yaml import source
from surgery.engine.yaml.yaml_nodes import (
    Listing,
    Scalar,
    Table,
    YamlNode,
    describe,
    key_text,
    one_line,
    plain,
    resolve,
)
from surgery.engine.yaml.yaml_tree import MAX_HEIGHT, MAX_SIZE, ParsedText, compose, indents


def shown(node: YamlNode | None) -> str:
    """Write a tree with the position of each node; a `?` marks one that is cut off."""
    if node is None:
        return ""
    if isinstance(node, Scalar):
        inner = repr(node.value)
    elif isinstance(node, Listing):
        inner = f"[{', '.join(map(shown, node.items))}]"
    else:
        assert isinstance(node, Table)
        inner = f"{{{', '.join(f'{shown(key)}: {shown(value)}' for key, value in node.pairs)}}}"
    return f"{'?' * node.open}{inner}@{node.line}:{node.column}"


@pytest.mark.parametrize(
    ("text", "tree", "size", "height"),
    [
        ("", "", 0, 0),
        ("a", "'a'@1:1", 1, 0),
        ("{}", "{}@1:1", 1, 1),
        ("a: 1\nb: [x, 'y']\n", "{'a'@1:1: 1@1:4, 'b'@2:1: ['x'@2:5, 'y'@2:8]@2:4}@1:1", 7, 2),
        ("- a\n- b: c\n", "['a'@1:3, {'b'@2:3: 'c'@2:6}@2:3]@1:1", 5, 2),
        ("a: &n [1, 2]\nb: *n\n", "{'a'@1:1: [1@1:8, 2@1:11]@1:4, 'b'@2:1: [1@1:8, 2@1:11]@1:4}@1:1", 9, 2),
        ("? [a]\n: 1\n? [b]\n: 2\n", "{['a'@1:4]@1:3: 1@2:3, ['b'@3:4]@3:3: 2@4:3}@1:1", 7, 2),
        ("a: \t1\n", "{'a'@1:1: 1@1:5}@1:1", 3, 1),
        ("'a': !!str 2\nc: ! 3", "{'a'@1:1: '2'@1:6, 'c'@2:1: '3'@2:4}@1:1", 5, 1),
    ],
)
def test_each_value_has_its_place(text: str, tree: str, size: int, height: int) -> None:
    found = compose(text)
    assert (shown(found.root), found.mistakes, found.broken) == (tree, [], False)
    if found.root is not None:
        assert (found.root.size, found.root.height) == (size, height)


@pytest.mark.parametrize(
    ("text", "tree", "mistakes"),
    [
        ("a: *none\n", "{'a'@1:1: None@1:4}@1:1", ["1:4 no anchor '&none' is defined above this alias"]),
        ("a: *b-c\n", "{'a'@1:1: None@1:4}@1:1",
         ["1:4 no anchor '&b-c' is defined above this alias; put text that begins with * in quotes"]),
        ("a: &a [*a]\n", "{'a'@1:1: [None@1:8]@1:4}@1:1", ["1:8 alias '*a' is inside the node that it refers to"]),
        ("a: 1\na: 2\n1: x\n1.0: y\n'1': z\n1: u",
         "{'a'@1:1: 1@1:4, 'a'@2:1: 2@2:4, 1@3:1: 'x'@3:4, 1.0@4:1: 'y'@4:6, '1'@5:1: 'z'@5:6, 1@6:1: 'u'@6:4}@1:1",
         ["2:1 duplicate key 'a'; line 1 has it already; remove one",
          "6:1 duplicate key '1'; line 3 has it already; remove one"]),
        ("a: !x 1\nd: !!map {}\n", "{'a'@1:1: '1'@1:4, 'd'@2:1: {}@2:4}@1:1",
         ["1:4 '!x' is read as a YAML tag, which recipes do not allow; quote the text",
          "2:4 'tag:yaml.org,2002:map' is read as a YAML tag, which recipes do not allow; remove it"]),
        # From here on the text cannot be read to its last line. A value where it breaks off is dropped.
        ("a: 1\n---\nb: 2\n", "{'a'@1:1: 1@1:4}@1:1", ["2:1 a recipe is one YAML document; this begins another"]),
        ("a: [1, 2\nb: 3\n", "?{'a'@1:1: ?[1@1:5]@1:4}@1:1", ["2:2 a list in brackets needs ',' or ']' here"]),
        ("a: 'open\n", "?{}@1:1", ["1:4 this quote is never closed"]),
        ("a: b: c\n", "?{}@1:1", ["1:5 a ':' is not allowed here; check the indentation, or quote the text"]),
        ("- a\n- [b, c\n", "?['a'@1:3, ?['b'@2:4]@2:3]@1:1", ["2:3 this '[' is never closed"]),
        ('a: "\\UFFFFFFFF"\n', "?{}@1:1", ["1:1 this is not YAML; check the indentation and the quotes"]),
        ("a:\n  b: 1\n c: 2\n", "?{'a'@1:1: {'b'@2:3: 1@2:6}@2:3}@1:1",
         ["3:2 this does not line up with the keys above; check the indentation"]),
    ],
)  # fmt: skip
def test_what_remains_of_a_text_with_mistakes(text: str, tree: str, mistakes: list[str]) -> None:
    found = compose(text)
    assert shown(found.root) == tree
    assert [f"{line}:{column} {words}" for line, column, words in found.mistakes] == mistakes
    assert found.broken is ("?" in tree or "---" in text)
    assert len(found.repeated) == sum("duplicate" in one for one in mistakes)


@pytest.mark.parametrize(
    ("text", "exempt", "plain_texts"),
    [
        ("a: [1,\n  2]\nb: 3", [(2, 2, False)], []),
        ("a: {x: 1,\n y: 2,\n}\n", [(2, 3, False)], []),
        ("a: [1, 2]\n", [], []),
        ("a: 'one\n  two'\n", [(2, 2, False)], []),
        ("a: |\n  t\n  u\nc: v\n  w\n  x", [(2, 3, True)], [(5, 6)]),
        ("a: >\n x\n\n\nb: 1", [(2, 4, True)], []),
        ("- a\n- b", [], []),
    ],
)
def test_lines_that_go_on_with_a_text(
    text: str, exempt: list[tuple[int, int, bool]], plain_texts: list[tuple[int, int]]
) -> None:
    found = compose(text)
    assert (found.exempt, found.plain) == (exempt, plain_texts)


def test_the_limits_on_depth_and_size_are_exact() -> None:
    def mistakes(text: str) -> list[str]:
        return [words for _, _, words in compose(text).mistakes]

    assert mistakes("[" * MAX_HEIGHT + "]" * MAX_HEIGHT) == []
    assert mistakes("[" * (MAX_HEIGHT + 1) + "]" * (MAX_HEIGHT + 1)) == ["nested more than 64 deep"]
    # An alias counts with what it refers to: 3 more in a list that is the second one down.
    deep = f"- &a {'[' * 62}{']' * 62}\n"
    assert mistakes(f"{deep}- [*a]\n") == []
    assert mistakes(f"{deep}- [[*a]]\n") == ["nested more than 64 deep"]
    # A list of 99 numbers, 998 times: 99,800 + 200 others.
    many, one = f"- &a [{', '.join('1' * 99)}]\n" + "- *a\n" * 997, "- 1\n"
    assert mistakes(many + one * 199) == []
    assert mistakes(many + one * 200) == ["larger than 100000 entries with its aliases"]
    assert MAX_SIZE == 100_000


@pytest.mark.parametrize(
    ("text", "index", "expected"),
    [
        ("\ta", 0, True),
        (" \ta", 1, True),
        ("a\tb", 1, False),
        ("\t\n", 0, False),
        ("\t# no", 0, False),
        ("a\n\tb\n", 2, True),
        ("a\n  \t \n", 4, False),
    ],
)
def test_a_tab_indents_a_line_with_content(text: str, index: int, expected: bool) -> None:
    assert indents(text, index) is expected


@pytest.mark.parametrize(
    ("text", "column", "before"),
    [("    b: [", 9, 6), ("    b:  c: d", 10, 7), ("    ]", 5, 2), ("   ]", 4, 2), (" ]", 2, 2), ("]", 1, 1)],
)
def test_columns_are_those_before_the_indentation_was_replaced(text: str, column: int, before: int) -> None:
    """The first four columns of the second line stand for one tab."""
    assert compose(f"a:\n{text}").mistakes[-1][:2] == (2, column)
    assert compose(f"a:\n{text}", {2: (1, 4)}).mistakes[-1][:2] == (2, before)
    assert compose(f"a:\n{text}", {3: (1, 4)}).mistakes[-1][:2] == (2, column)


def interpreted(text: str) -> list[tuple[str, list[tuple[int, int, str]], int]]:
    return [(shown(one.root), one.mistakes, one.penalty) for one in source.documents(text)]


def test_tabs_in_the_indentation_are_tried_as_spaces() -> None:
    tab = "a tab in the indentation; use spaces"
    found = interpreted("a:\n\tb: 1\n\t\tc: 2\n")
    assert len(found) == 6
    ((tree, mistakes, penalty),) = interpreted("a:\n  b: 1\n")
    assert (tree, mistakes, penalty) == ("{'a'@1:1: {'b'@2:3: 1@2:6}@2:3}@1:1", [], 0)
    found = interpreted("a:\n\tb: 1\n  c: 2\n")
    assert found[0] == ("{'a'@1:1: {'b'@2:2: 1@2:5, 'c'@3:3: 2@3:6}@2:2}@1:1", [(2, 1, tab)], 0)
    # Four spaces do not line up with what follows; the line below says that two do, the line above none.
    assert found[1][2] == 2 and found[4] == found[0] and found[3][2] == 2


@pytest.mark.parametrize(
    ("data", "text", "mistakes"),
    [
        (b"a: 1", "a: 1", []),
        (b"a\0", "", [(1, 1, "this is not a text file; it must be YAML in UTF-8")]),
        (b"\xff", "\ufffd", [(1, 1, "byte 0xff is not UTF-8; save the file as UTF-8")]),
        (b"a\r\nb\rc: \xe4x", "a\r\nb\rc: \ufffdx", [(3, 4, "byte 0xe4 is not UTF-8; save the file as UTF-8")]),
    ],
)
def test_bytes_are_decoded(data: bytes, text: str, mistakes: list[tuple[int, int, str]]) -> None:
    assert source.decode(data) == (text, mistakes)


def test_characters_that_yaml_does_not_allow_are_listed() -> None:
    ((tree, mistakes, _),) = interpreted("\ufeffa: x\x85y\r\nb: \x07\rc: \x01\x02\x03\x04\x05\x06")
    assert (
        tree == "{'a'@1:1: 'x y'@1:4, 'b'@2:1: '\ufffd'@2:4, 'c'@3:1: '\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd'@3:4}@1:1"
    )
    words = "character U+{:04X} is not allowed in a recipe; remove it"
    places = [(2, 4, 7), (3, 4, 1), (3, 5, 2), (3, 6, 3), (3, 7, 4)]
    assert mistakes == [(line, column, words.format(code)) for line, column, code in places]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(text, None) for text in ("", "~", "null", "Null", "NULL")],
        *[(text, True) for text in ("true", "True", "TRUE")],
        *[(text, False) for text in ("false", "False", "FALSE")],
        *[(text, text) for text in ("nULL", "yes", "on", "0x", "1_000", "1:30", "0o8", "e5", ".", "1" * 301 + "x")],
        *[("12", 12), ("-12", -12), ("+1", 1), ("0777", 777), ("0o17", 15), ("0x1F", 31)],
        *[("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("-1e3", -1000.0), ("1E-2", 0.01)],
        *[(".inf", float("inf")), ("-.INF", float("-inf")), ("+.Inf", float("inf"))],
    ],
)  # fmt: skip
def test_a_plain_text_has_the_value_of_yaml_1_2(text: str, value: Any) -> None:
    found = resolve(text)
    assert (type(found), found) == (type(value), value)


def test_not_a_number_and_long_numbers() -> None:
    nan = resolve(".nan")
    assert nan != nan
    assert resolve("1" * 300) == int("1" * 300) and resolve("1" * 301) == float("1" * 301)


def test_values_in_messages_are_short_and_of_one_line() -> None:
    assert one_line("a\nb\x07", 5) == "a b "
    assert one_line("abcde", 5) == "abcde" and one_line("abcdef", 5) == "abcde…"
    assert len(one_line("x" * 400)) == 301

    def described(text: str) -> str:
        root = compose(text).root
        assert root is not None
        return describe(root)

    texts = ["[a]", "{a: 1}", "~", "''", "abc", "x" * 41, "12", "'12'"]
    expected = ["a list", "a mapping", "nothing", "''", "'abc'", f"'{'x' * 40}…'", "12", "'12'"]
    assert [described(text) for text in texts] == expected


def test_a_tree_as_plain_values() -> None:
    def root(text: str) -> Any:
        return compose(text).root

    assert plain(root("a: [1, {b: ~}]\na: 2\n[c]: d\n[e]: f")) == {"a": [1, {"b": None}], None: "d"}
    assert [key_text(root(text)) for text in ("a", "'1'", "1", "[a]", "~")] == ["a", "1", None, None, None]


def test_a_new_text_has_no_mistakes() -> None:
    assert (ParsedText().broken, ParsedText().penalty, ParsedText().mistakes) == (False, 0, [])
