"""How much code there is, and which names stand for several things: the second half of `support.imports`."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

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
    counts = Counter(
        name for path in files for name in {one.name for one in ast.walk(tree(path)) if isinstance(one, ast.ClassDef)}
    )
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
    return len(found - _docstrings(tree(path)))


def _docstrings(parsed: ast.Module) -> set[int]:
    """Return the lines of strings that are statements: docstrings, and those after constants and fields."""
    return {
        line
        for node in ast.walk(parsed)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


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
