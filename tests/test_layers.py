"""The direction of imports, the size of files, and what the top level holds."""

import tomllib
from pathlib import Path

import pytest
from support.imports import ROOT, arrows, circles, floors, imports, modules, rooms

# From the bottom to the top: a folder imports from those before it, and from itself.
FOLDERS = [
    *(
        "errors",
        "promises",
        "pages",
        "workers",
        "operators",
        "storage",
        "proto",
        "shapes",
        "runtime",
        "targets",
        "graph",
    ),
    *(
        "patterns",
        "registry",
        "bridges",
        "verification",
        "benchmarking",
        "recipe",
        "provenance",
        "why",
        "engine",
        "caching",
        "batching",
    ),
    *(
        "bisection",
        "inspection",
        "frameworks",
        "planning",
        "drawing",
        "splitting",
        "testing",
        "report",
        "cli",
        "docsgen",
        "__main__",
    ),
]
RANK = {name: rank for rank, name in enumerate(FOLDERS)}
ENGINE = sorted((ROOT / "surgery").rglob("*.py"))
PASSES = sorted((ROOT / "passes").rglob("*.py"))
MODELS = sorted((ROOT / "models").rglob("*.py"))


def folder(module: str) -> str | None:
    """The second part of `surgery.x.y`, when it is a folder or a file of the engine."""
    parts = module.split(".")
    return parts[1] if parts[0] == "surgery" and len(parts) > 1 and parts[1] in RANK else None


def identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("module", [module for module in modules() if module != "surgery"])
def test_imports_point_down(module: str) -> None:
    own = folder(module)
    assert own is not None, f"{module} has no place among the folders"
    above = {other for other in arrows()[module] if RANK[str(folder(other))] > RANK[own]}
    assert above == set()


def test_imports_are_not_circular() -> None:
    assert circles(arrows()) == []
    assert circles(rooms()) == []


def test_the_number_of_modules_stays_small() -> None:
    between = rooms()
    assert len(between) <= 39
    assert floors(between) <= 14
    assert sum(map(len, between.values())) <= 283


def test_only_four_files_are_outside_folders() -> None:
    alone = {path.name for path in modules().values() if path.parent == ROOT / "surgery"}
    assert alone == {"__init__.py", "__main__.py", "errors.py", "promises.py"}


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


@pytest.mark.parametrize("path", [path for path in ENGINE if path.name == "__init__.py"], ids=identify)
def test_each_folder_has_a_docstring(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith('"""') and first.rstrip('"').endswith(".")


@pytest.mark.parametrize("path", ENGINE, ids=identify)
def test_the_engine_has_no_relative_imports(path: Path) -> None:
    assert not {module for module in imports(path) if module.startswith(".")}


@pytest.mark.parametrize("path", ENGINE, ids=identify)
def test_the_engine_names_no_pass(path: Path) -> None:
    assert not {module for module in imports(path) if module.startswith(("passes", "surgery.passes."))}


@pytest.mark.parametrize("path", PASSES, ids=identify)
def test_passes_import_little(path: Path) -> None:
    found = imports(path)
    allowed = ALLOWED_IN_PASSES | EXEMPTIONS.get(identify(path), set())
    # A relative import may only name what a folder shares within itself.
    relative = {module for module in found if module.startswith(".") and not module.lstrip(".").startswith("_")}
    outside = {m for m in found if not m.startswith(".") and m.split(".")[0] not in allowed}
    deep = {module for module in found if folder(module) is not None}
    siblings = {module for module in found if module.startswith(("passes", "surgery.passes", ".."))}
    assert (relative, outside, deep, siblings) == (set(), set(), set(), set())


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


@pytest.mark.parametrize("path", MODELS, ids=identify)
def test_builders_do_not_know_surgery(path: Path) -> None:
    assert not {module for module in imports(path) if module.split(".")[0] == "surgery"}


@pytest.mark.parametrize("path", [*ENGINE, *PASSES, *MODELS], ids=identify)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


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
