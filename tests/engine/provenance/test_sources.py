"""Digests of source code, compared with the imports that Python itself finds."""

import ast
import hashlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.breadth import sampled
from support.imports import ROOT, imports

from surgery.base.promises import Parity
from surgery.engine.provenance import code_digests
from surgery.engine.provenance.referred import imported
from surgery.engine.registry.passes import Pass

PASSES = sorted((ROOT / "passes").glob("*/[a-z]*.py"))


def used(path: Path) -> set[Path]:
    """The modules of its folder that a pass imports, by the syntax tree."""
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        names = {name.lstrip(".").split(".")[0] for name in imports(waiting.pop()) if name.startswith(".")}
        new = {path.with_name(f"{name}.py") for name in names} - found
        found |= new
        waiting += new
    return found


@pytest.mark.parametrize("path", sampled(PASSES, 4), ids=lambda path: path.stem)
def test_shared_modules_are_found(path: Path) -> None:
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        new = set(code_digests._used(waiting.pop())) - found
        found |= new
        waiting += new
    assert found == used(path)


def test_a_changed_shared_module_changes_the_digest_of_its_passes(tmp_path: Path) -> None:
    def digest(folder: str, name: str) -> str:
        return code_digests._standard(tmp_path / folder / f"{name}.py")

    for folder in ("old", "new"):
        shutil.copytree(ROOT / "passes" / "chains", tmp_path / folder)
    assert digest("old", "merge_layouts") == digest("new", "merge_layouts")
    shutil.copytree(ROOT / "passes" / "chains", tmp_path / "newer")
    with (tmp_path / "newer" / "_layout.py").open("a") as file:
        file.write("# changed")
    assert digest("newer", "merge_layouts") != digest("old", "merge_layouts")
    assert digest("newer", "merge_casts") == digest("old", "merge_casts")


def test_a_module_that_two_others_import_hides_no_further_ones(tmp_path: Path) -> None:
    def digest(folder: str, first: str) -> str:
        (tmp_path / folder).mkdir()
        one = "from ._first import a\nfrom ._second import b\nfrom ._third import c\n"
        for name, source in {
            "one": one,
            "_first": first,
            "_second": "b = 1\n",
            "_third": "from ._second import b\n",
        }.items():
            (tmp_path / folder / f"{name}.py").write_text(source)
        return code_digests._standard(tmp_path / folder / "one.py")

    assert digest("old", "a = 1\n") == digest("same", "a = 1\n") != digest("new", "a = 2\n")


def test_a_pass_without_a_file_has_the_source_of_its_function() -> None:
    """As in a notebook."""

    def declared(body: str) -> str:
        scope: dict[str, Any] = {"__name__": "nowhere"}
        exec(compile(f"def f(graph):\n    {body}\n", "<cell>", "exec"), scope)
        return code_digests.source_of(Pass("nowhere", Parity.EXACT, "graph", scope["f"])).digest

    assert declared("return None") == declared("return None")
    assert declared("return None") != declared("return graph")


def test_a_registered_object_has_the_source_of_the_file_that_declares_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("# mine")
    one = Pass("mine", Parity.EXACT, "graph", test_shared_modules_are_found, declared_at=f"{file}:1")
    assert code_digests.source_of(one).digest == hashlib.sha256(b"# mine").hexdigest()


def test_a_file_is_parsed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("one_for_imports", "other_for_imports"):
        (tmp_path / f"{name}.py").write_text(f"name = {name!r}")
    file = tmp_path / "mine.py"
    file.write_text("import one_for_imports")
    parsed: list[bytes] = []
    parse = ast.parse

    def noted(source: bytes) -> ast.Module:
        parsed.append(source)
        return parse(source)

    monkeypatch.setattr("surgery.engine.provenance.referred.ast", SimpleNamespace(**{**vars(ast), "parse": noted}))
    assert imported(file) == imported(file) == [tmp_path / "one_for_imports.py"]
    assert parsed == [b"import one_for_imports", b"name = 'one_for_imports'"]
    file.write_text("import other_for_imports")
    assert imported(file) == [tmp_path / "other_for_imports.py"]
    assert parsed[2:] == [b"import other_for_imports", b"name = 'other_for_imports'"]
