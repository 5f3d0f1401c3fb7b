"""Where in the file a mistake in a text of a recipe is."""

from __future__ import annotations

import pytest

from surgery.base.errors import PatternError
from surgery.engine.recipe.block_text import problem, runs_together
from surgery.engine.yaml.yaml_nodes import Scalar


def scalar(style: str | None, *source: str, text: str = "", line: int = 5, column: int = 10) -> Scalar:
    return Scalar(line, column, value=text, text=text, style=style, source=source)


@pytest.mark.parametrize(
    ("node", "error", "place"),
    [
        # A block begins in the line after its mark; its lines are indented.
        (scalar("|", "match: |", "  y = Rel(x)", "  z = y"), (1, 5, "y = Rel(x)"), (6, 7, "  y = Rel(x)")),
        (scalar("|", "match: |", "  y = Rel(x)", "  z = y"), (2, 1, "z = y"), (7, 3, "  z = y")),
        (scalar("|", "match: |", "  y = Rel(x)"), (1, 5, "another line"), (5, 10, "")),
        (scalar("|", "match: |", "  y = Rel(x)"), (2, 5, "y = Rel(x)"), (5, 10, "")),
        (scalar("|", "match: |", "y = Rel(x)"), (1, 5, "   y = Rel(x)"), (5, 10, "")),
        (scalar("|", "match: |", "  y = Rel(x)"), (1, 5, ""), (5, 10, "")),
        (scalar(">", "match: >", "  y = Rel(x)"), (1, 5, "y = Rel(x)"), (6, 7, "  y = Rel(x)")),
        (scalar(">", "match: >", "  y =", "  Rel(x)"), (1, 5, "y = Rel(x)"), (5, 10, "")),
        # A text in the line of its key, with or without quotes.
        (scalar(None, "  match: y = Rel(x)", text="y = Rel(x)"), (1, 5, "y = Rel(x)"), (5, 14, "  match: y = Rel(x)")),
        (scalar("'", "  match: 'y = Rel(x)'", text="y = Rel(x)"), (1, 5, "y"), (5, 15, "  match: 'y = Rel(x)'")),
        (scalar(None, "  match: y = Rel(x)", text="y = Rel(x)"), (2, 5, "y = Rel(x)"), (5, 10, "")),
        (scalar('"', '  match: "y\\t= x"', text="y\t= x"), (1, 5, "y\t= x"), (5, 10, "")),
        (scalar(None, text="y"), (1, 1, "y"), (5, 10, "")),
    ],
)  # fmt: skip
def test_a_mistake_is_shown_where_it_is_in_the_file(
    node: Scalar, error: tuple[int, int, str], place: tuple[int, int, str]
) -> None:
    line, column, source = error
    found = problem("r.yaml", node, PatternError("no\n'Rel'", line=line, column=column, source=source))
    assert (found.line, found.column, found.source) == place
    assert (found.path, found.message) == ("r.yaml", "no 'Rel'")


@pytest.mark.parametrize(("line", "shown"), [("y" * 158, True), ("y" * 159, False), ("y\x07", False)])
def test_a_line_is_shown_if_it_is_short_and_printable(line: str, shown: bool) -> None:
    node = scalar("|", "match: |", f"  {line}")
    found = problem("r.yaml", node, PatternError("wrong", line=1, column=1, source=line))
    assert bool(found.source) is shown and found.column == 3


@pytest.mark.parametrize(
    ("node", "joined"),
    [
        (scalar("|", "|", " a", " b"), False),
        (scalar(">", ">", " a"), False),
        (scalar(">", ">", " a", "", " "), False),
        (scalar(">", ">", " a", " b"), True),
        (scalar(None, "a"), False),
        (scalar(None, "a", "b"), True),
        (scalar("'", "'a", "", "b'"), True),
    ],
)
def test_lines_run_together_except_after_a_bar(node: Scalar, joined: bool) -> None:
    assert runs_together(node) is joined
