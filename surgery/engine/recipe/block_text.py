"""Map positions in a YAML block text to positions in the file."""

from __future__ import annotations

from surgery.base.errors import PatternError, Problem
from surgery.engine.yaml.yaml_nodes import Scalar, one_line

_LONGEST_LINE = 160


def runs_together(node: Scalar) -> bool:
    """Return whether YAML has joined several lines into one, as it does for all texts except those after `|`."""
    return node.style != "|" and sum(bool(line.strip()) for line in node.source) > 1 + (node.style == ">")


def problem(path: str, node: Scalar, error: PatternError) -> Problem:
    """Convert a mistake in a text of a recipe to a mistake of the recipe, with its line and column in the file."""
    message = one_line(error.what)
    line, column, source = _locate(node, error)
    shown = source if source.isprintable() and len(source) <= _LONGEST_LINE else ""
    return Problem(path, line, column, message, shown)


def _locate(node: Scalar, error: PatternError) -> tuple[int, int, str]:
    here = node.line, node.column, ""
    if not error.source:
        return here
    if node.style in ("|", ">"):
        if runs_together(node) or error.line >= len(node.source):
            return here
        source = node.source[error.line]
        indentation = len(source) - len(error.source)
        fits = indentation >= 0 and source.endswith(error.source)
        return (node.line + error.line, indentation + error.column, source) if fits else here
    source = node.source[0] if node.source else ""
    begin = node.column - 1 + (node.style is not None)
    fits = error.line == 1 and source[begin:].startswith(node.text)
    return (node.line, begin + error.column, source) if fits else here
