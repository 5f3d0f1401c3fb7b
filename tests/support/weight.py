"""How much code there is, and which names stand for several things: the second half of `support.imports`."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

MOST_FILES = 25
"""Maximum number of Python files of a folder."""

_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING),
    tokenize.ENDMARKER,
}


def full_folders(files: Collection[Path], root: Path) -> dict[str, int]:
    """Return the folders with too many files, and how many each has."""
    counts = Counter(str(path.parent.relative_to(root)) for path in files)
    return {folder: count for folder, count in sorted(counts.items()) if count > MOST_FILES}


def shared_classes(files: Collection[Path]) -> dict[str, int]:
    """Return the names of classes that stand in several files, and in how many."""
    counts = Counter(name for path in files for name in outline(path).classes)
    return {name: count for name, count in sorted(counts.items()) if count > 1}


def shared_bases(files: Collection[Path]) -> dict[str, int]:
    """Return the base names that several files have, and how many have each."""
    counts = Counter(path.stem for path in files if not path.stem.startswith("__"))
    return {name: count for name, count in sorted(counts.items()) if count > 1}


def lines_of_code(path: Path) -> int:
    """Count the lines with code: neither blank, nor only a comment, nor part of a docstring."""
    text = path.read_text(encoding="utf-8")
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - outline(path).docstrings)


class Outline(NamedTuple):
    """What a file is asked for: its syntax tree is many objects, and is not kept."""

    statements: int
    imports: frozenset[str]
    """Every name that it imports, with the module that it is taken from."""
    classes: frozenset[str]
    docstrings: frozenset[int]
    """The lines of strings that are statements: docstrings, and those after constants and fields."""


@cache
def outline(path: Path) -> Outline:
    """Return what a file says about itself, of statements at any depth: wherever an import stands, it counts."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = list(_statements(tree))
    return Outline(
        len(tree.body),
        frozenset(name for statement in found for name in _imported(statement)),
        frozenset(statement.name for statement in found if isinstance(statement, ast.ClassDef)),
        frozenset(line for statement in found for line in _docstring(statement)),
    )


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements at any depth; no expression contains one."""
    pending: list[ast.AST] = [tree]
    while pending:
        for child in ast.iter_child_nodes(pending.pop()):
            if isinstance(child, ast.stmt):
                yield child
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                pending.append(child)


def _imported(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        module = "." * statement.level + (statement.module or "")
        if statement.module:
            yield module
        for alias in statement.names:
            yield f"{module}.{alias.name}" if statement.module else f"{module}{alias.name}"


def _docstring(statement: ast.stmt) -> range:
    """Return the lines of a statement that is a string, and none of another."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    return range(0)


def figures(root: Path, known: Mapping[str, Path]) -> list[str]:
    """Return the figures of a tree as lines of text."""
    files = list(known.values())
    full, classes, bases = full_folders(files, root), shared_classes(files), shared_bases(files)
    by_folder: dict[str, int] = defaultdict(int)
    for path in (*files, *(root / "passes").rglob("*.py")):
        parts = path.relative_to(root).parent.parts
        by_folder["/".join(parts[:3] if parts[0] == "surgery" else parts[:1])] += lines_of_code(path)
    return [
        f"{len(full)} folders with more than {MOST_FILES} files: "
        + (", ".join(f"{folder} {count}" for folder, count in full.items()) or "none"),
        f"{len(classes)} names of classes in several files",
        f"{len(bases)} base names of several files",
        f"{sum(by_folder.values()):,} lines of code",
        *(f"    {lines:7,} {folder}" for folder, lines in sorted(by_folder.items())),
    ]
