"""The direction of imports, the size of files, and what the top level holds."""

import ast
import tomllib
from pathlib import Path

import pytest
from support.imports import (
    ORDER,
    ROOT,
    against_the_order,
    arrows,
    circles,
    crossing,
    floors,
    imports,
    inside,
    modules,
    outside,
    passes,
    rank,
    rooms,
    size,
)
from support.weight import full_folders, lines_of_code, shared_bases, shared_classes

ENGINE = sorted((ROOT / "surgery").rglob("*.py"))
PASSES = sorted((ROOT / "passes").rglob("*.py"))
MODELS = sorted((ROOT / "models").rglob("*.py"))


def identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_first_level_is_the_six_wings() -> None:
    folders = {path.name for path in (ROOT / "surgery").iterdir() if any(path.rglob("*.py"))}
    assert folders == set(ORDER)
    files = {path.name for path in modules().values() if path.parent == ROOT / "surgery"}
    assert files == {"__init__.py", "__main__.py"}


def test_every_folder_has_a_place_in_the_order() -> None:
    placed = {f"surgery.{wing}.{folder}".rstrip(".") for wing, folders in ORDER.items() for folder in folders}
    assert {room for room in rooms() if rank(room) is None} == {"surgery.__main__"}
    assert placed <= rooms().keys()


@pytest.mark.parametrize("path", [ROOT / "surgery" / wing / "__init__.py" for wing in ORDER], ids=identify)
def test_a_wing_says_what_it_is_and_what_may_not_be_in_it(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert len(tree.body) == 1 and len((ast.get_docstring(tree) or "").split("\n\n")) == 2


def test_imports_follow_the_order() -> None:
    assert against_the_order(rooms()) == []


def test_imports_are_not_circular() -> None:
    assert circles(arrows()) == []
    assert circles(rooms()) == []
    assert circles(passes()) == []


# Rooms, floors and arrows: of the wings, each of which is one room from outside, and of the rooms in each. Before there
# were wings, all folders were rooms of one house: 39 on 14 floors, with 283 arrows. They may only fall, except for a
# capability that is none of those before: `features/workbench` is a live model, and reads what a run is made of;
# `interface/workbench` serves it, and alone needs a server.
CEILINGS = {
    "base": (3, 2, 1),
    "model": (11, 5, 23),
    "verification": (8, 6, 20),
    "engine": (9, 5, 21),
    "features": (9, 2, 2),
    "interface": (9, 5, 15),
}


def test_the_wings_stay_few() -> None:
    found = size(outside(rooms()))
    assert all(count <= most for count, most in zip(found, (6, 6, 15))), found
    assert len(crossing()) <= 615


@pytest.mark.parametrize("wing", ORDER)
def test_a_wing_stays_small(wing: str) -> None:
    found = size(inside(rooms(), wing))
    assert all(count <= most for count, most in zip(found, CEILINGS[wing])), found


def test_the_house_stays_small() -> None:
    """Folders at any depth: finer ones are more rooms, so that none has too many files."""
    found = size(rooms())
    assert all(count <= most for count, most in zip(found, (50, 17, 396))), found


# How many files a folder may have that has more than others: one for each command. It may only fall, too.
FULL = {"surgery/interface/commands": 43}


def test_folders_and_names_stay_few() -> None:
    files = list(modules().values())
    assert {folder: count for folder, count in full_folders(files, ROOT).items() if count > FULL.get(folder, 0)} == {}
    assert len(shared_classes(files)) <= 5
    assert len(shared_bases(files)) <= 19


def test_folders_of_tests_mirror_the_source() -> None:
    tests = [path for path in (ROOT / "tests").iterdir() if any(path.glob("**/*.py")) and path.name not in NO_MIRROR]
    within = [path for folder in tests for path in folder.rglob("*") if any(path.glob("*.py"))]
    missing = [
        identify(path)
        for path in (*tests, *within)
        if path.is_dir() and not (ROOT / "surgery" / path.relative_to(ROOT / "tests") / "__init__.py").is_file()
    ]
    assert missing == []
    assert {path.name for path in (ROOT / "tests").glob("test_*.py")} == {"test_layers.py", "test_locks.py"}


# What runs from end to end, what the tests share, suites, and what is next to the package.
NO_MIRROR = {
    *("behaviour", "support", "cases", "gpu", "mutation", "power", "random_graphs", "wrong_tools", "tools"),
    *("passes", "benchmarks", "docs", "zoo"),
}


def has_a_docstring(path: Path) -> bool:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    return first.startswith('"""') and first.rstrip('"').endswith(".")


def test_each_folder_has_a_docstring() -> None:
    folders = [path for path in ENGINE if path.name == "__init__.py"]
    assert len(folders) > 50
    assert [identify(path) for path in folders if not has_a_docstring(path)] == []


def imported(paths: list[Path], *begins: str) -> list[str]:
    """List the imports of these files that begin in one of these ways, each after its file."""
    assert len(paths) > 10
    return [f"{identify(path)}: {module}" for path in paths for module in imports(path) if module.startswith(begins)]


def test_the_engine_has_no_relative_imports() -> None:
    assert imported(ENGINE, ".") == []


def test_the_engine_names_no_pass() -> None:
    assert imported(ENGINE, "passes", "surgery.passes.") == []


def test_passes_import_little() -> None:
    assert len(PASSES) > 10
    assert [found for found in map(disallowed, PASSES) if any(found[1:])] == []


def disallowed(path: Path) -> tuple[str, set[str], set[str], set[str], set[str]]:
    """Return what a file of passes imports and must not."""
    found = imports(path)
    allowed = ALLOWED_IN_PASSES | EXEMPTIONS.get(identify(path), set())
    # A relative import may only name what a folder shares within itself.
    relative = {module for module in found if module.startswith(".") and not module.lstrip(".").startswith("_")}
    outside = {m for m in found if not m.startswith(".") and m.split(".")[0] not in allowed}
    deep = {module for module in found if module.startswith(tuple(f"surgery.{wing}" for wing in ORDER))}
    siblings = {module for module in found if module.startswith(("passes", "surgery.passes", ".."))}
    return identify(path), relative, outside, deep, siblings


ALLOWED_IN_PASSES = {
    "surgery",
    "numpy",
    "__future__",
    "typing",
    "collections",
    "contextlib",
    "dataclasses",
    "difflib",
    "enum",
    "functools",
    "itertools",
    "math",
    "hashlib",
    "json",
}
# The rules that a change of opset follows are read from the operator schemas themselves.
EXEMPTIONS = {"passes/opset/_schemas.py": {"onnx"}, "passes/opset/_forms.py": {"onnx"}}


def test_builders_do_not_know_surgery() -> None:
    assert imported(MODELS, "surgery.") == []
    assert not any("surgery" in imports(path) for path in MODELS)


def test_files_are_short() -> None:
    lengths = {
        identify(path): len(path.read_text(encoding="utf-8").splitlines()) for path in (*ENGINE, *PASSES, *MODELS)
    }
    assert {path: length for path, length in lengths.items() if length > 500} == {}


def test_the_wheel_contains_every_package() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"])
    homes = [("surgery", ROOT / "surgery"), ("surgery.passes", ROOT / "passes"), ("surgery.recipes", ROOT / "recipes")]
    there = {
        ".".join((name, *path.parent.relative_to(folder).parts))
        for name, folder in homes
        for path in folder.rglob("__init__.py")
    }
    assert listed == there


def test_a_circular_import_is_found() -> None:
    assert circles({"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"b"})}) == [["b", "c"]]
    assert floors({"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset()}) == 3


def test_an_import_against_the_order_is_found() -> None:
    base, wire, verdict = "surgery.base", "surgery.model.wire", "surgery.verification.verdict"
    assert against_the_order({verdict: frozenset({base, wire}), wire: frozenset({base})}) == []
    wrong = {wire: frozenset({"surgery.model.storage", base, verdict}), base: frozenset({"surgery.elsewhere"})}
    assert against_the_order(wrong) == [
        (base, "surgery.elsewhere"),
        (wire, "surgery.model.storage"),
        (wire, verdict),
    ]


def test_only_code_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(
        '"""About."""\n\n# Why.\nX = 1\n"""What."""\n\n\ndef f() -> str:\n    """Do."""\n    return """a\nb"""\n'
    )
    assert lines_of_code(path) == 4


def test_shared_names_and_full_folders_are_found(tmp_path: Path) -> None:
    path, other = tmp_path / "some.py", tmp_path / "other.py"
    path.write_text("class A: ...\n")
    other.write_text("class A: ...\nclass B: ...\n")
    assert shared_classes([path, other]) == {"A": 2}
    assert shared_bases([path, tmp_path / "deep" / "some.py", other]) == {"some": 2}
    assert full_folders([tmp_path / "a" / f"{number}.py" for number in range(26)], tmp_path) == {"a": 26}
