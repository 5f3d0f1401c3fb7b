"""The notebooks of the documentation: every cell runs, and shows what is stored; nothing of a machine is stored."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, lacking, notebooks

pytestmark = pytest.mark.usefixtures("standard_passes")

LINK = re.compile(r"\]\(([^)#\s]+)")
EDITS = ("g.rename(", "g.set_dtype(", "g.remove(", "g.add_output(", "g.remove_output(")


def identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


def of_code(*sources: str) -> dict[str, Any]:
    return {"cells": [{"cell_type": "code", "source": source.splitlines(keepends=True)} for source in sources]}


def test_a_notebook_is_in_the_tutorials() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\(([\w/.-]+\.ipynb)\)", index))
    assert {str(path.relative_to(ROOT / "docs")) for path in notebooks.NOTEBOOKS} == listed != set()


@pytest.mark.slow
@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=identify)
def test_cells_show_what_is_stored(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    notebook = notebooks.read(path)
    shown = notebooks.executed(notebook, path.name)
    if lacking.are_old():
        pytest.skip("other releases of ONNX Runtime and onnx make other numbers of nodes")
    assert shown == list(map(notebooks.stored, notebooks.code_cells(notebook))), f"run {notebooks.__file__}"
    assert list(tmp_path.iterdir()) == [tmp_path / "models"]


@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=identify)
def test_what_is_stored_is_of_no_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert text == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert set(notebook["metadata"]["language_info"]) == {"name"}
    cells = notebooks.code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    for cell in cells:
        assert [list(output["data"]) for output in cell["outputs"]] in ([], [["text/plain"]])
        assert re.search(r"/(home|root|tmp|usr|work|Users)\b|\d s\b|[Ss]econds", notebooks.stored(cell)) is None


@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=identify)
def test_links_of_a_notebook_lead_to_files(path: Path) -> None:
    prose = "".join(notebooks.source_of(cell) for cell in notebooks.read(path)["cells"] if cell["cell_type"] != "code")
    links = LINK.findall(prose)
    assert links and [link for link in links if not (path.parent / link).is_file()] == []


def test_the_edits_are_the_five_of_the_text() -> None:
    (path,) = notebooks.NOTEBOOKS
    cells = [notebooks.source_of(cell) for cell in notebooks.code_cells(notebooks.read(path))]
    (edits,) = [cell for cell in cells if "g.rename" in cell]
    assert [edits.count(edit) for edit in EDITS] == [1] * 5
    used = {name for name in ("check", "inspect", "edit", "apply", "verify") if f"surgery.{name}(" in "".join(cells)}
    assert len(used) == 5 and "result.save(" in "".join(cells)


def test_cells_share_their_names_and_show_the_last_value() -> None:
    shown = notebooks.executed(of_code("x = 1\nx + 1", "y = x", "{'b': y, 'a': 2}"), "one")
    assert shown == ["2", "", "{'b': 1, 'a': 2}"]


def test_an_exception_of_a_cell_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        notebooks.executed(of_code("x = 0", "1 / x"), "one")


def test_printed_text_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"one\[2\] prints"):
        notebooks.executed(of_code("x = 0", "print(x)"), "one")
