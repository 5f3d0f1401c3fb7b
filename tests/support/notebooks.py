"""Runs notebooks without Jupyter: the cells in order, in one namespace.

What a cell shows is the text of its last expression. `python tests/support/notebooks.py` stores these texts in the
notebooks of docs/.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from pprint import pformat
from typing import Any

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    """Return a notebook, which is a JSON object."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def source_of(cell: dict[str, Any]) -> str:
    """Return the text of a cell, which is stored as a list of lines."""
    return "".join(cell["source"])


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """List the cells with code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(cell: dict[str, Any]) -> str:
    """Return the stored output of a cell; empty if it shows nothing."""
    return "".join(line for output in cell["outputs"] for line in output["data"]["text/plain"])


def executed(notebook: dict[str, Any], name: str) -> list[str]:
    """Run the cells in the current folder, and return what each shows; an exception of a cell is raised."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_run(source_of(cell), f"{name}[{number}]", names) for number, cell in enumerate(code_cells(notebook), 1)]


def _run(source: str, place: str, names: dict[str, Any]) -> str:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, place, "exec"), names)
        value = eval(compile(ast.Expression(last.value), place, "eval"), names) if isinstance(last, ast.Expr) else None
    if printed.getvalue():
        raise AssertionError(f"{place} prints: show a value instead, as the last expression")
    return "" if value is None else pformat(value, width=100, sort_dicts=False)


def renew(path: Path) -> None:
    """Store what the cells of a notebook show now."""
    notebook, before = read(path), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "models").symlink_to(ROOT / "models")
        os.chdir(folder)
        try:
            shown = executed(notebook, path.name)
        finally:
            os.chdir(before)
    for number, (cell, text) in enumerate(zip(code_cells(notebook), shown, strict=True), 1):
        data = {"text/plain": text.splitlines(keepends=True)}
        output = {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        cell.update(execution_count=number, outputs=[output] if text else [])
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for one in map(Path, sys.argv[1:]) if sys.argv[1:] else NOTEBOOKS:
        renew(one.resolve())
