"""The direction of imports, the size of files, and what the top level holds."""

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# From the bottom to the top. A module may import what stands before it, and its own layer.
LAYERS = [
    {"errors", "parity", "relations"},
    {"workers", "storage"},
    {
        "facts",
        "globs",
        "reach",
        "inference",
        "ops",
        "views",
        "copies",
        "ends",
        "edits",
        "lineage",
        "naming",
        "literals",
        "redeclare",
        "ports",
        "commit",
        "graph",
        "joining",
        "text",
        "describe",
        "silence",
        "watching",
    },
    {"pattern", "delta"},
    {"select", "attributes"},
    {"apis", "discovery"},
    {"registry"},
    {"bridges"},
    {"transform"},
    {"recipe"},
    {"summary", "expectations", "exporting"},
    {"verify"},
    {"evaluate"},
    {"why"},
    {"records"},
    {"ahead", "attempt", "beginning", "transactions", "chain", "runner"},
    {"approach"},
    {"repro"},
    {"bisect", "splitting"},
    {"inspect", "opsets", "analysis"},
    {"diff"},
    {"report"},
    {"testing", "scaffold"},
    {"reference"},
    {"cli", "__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
ENGINE = sorted((ROOT / "surgery").rglob("*.py"))
PASSES = sorted((ROOT / "passes").rglob("*.py"))
MODELS = sorted((ROOT / "models").rglob("*.py"))


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file, except for type checking."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                visit(other)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if node.module:
                found.add(module)
            found.update(f"{module}.{a.name}" if node.module else f"{module}{a.name}" for a in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def layer(module: str) -> str | None:
    """The second part of `surgery.x.y`, when it is a module of the engine."""
    parts = module.split(".")
    return parts[1] if parts[0] == "surgery" and len(parts) > 1 and parts[1] in RANK else None


def identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", ENGINE, ids=identify)
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(ROOT / "surgery").parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert own in RANK, f"{own} has no place among the layers"
    above = {module for module in imports(path) if (name := layer(module)) and RANK[name] > RANK[own]}
    assert above == set()


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
    deep = {module for module in found if layer(module) is not None and module not in SURFACE}
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
SURFACE = {
    "surgery.apply",
    "surgery.differences.diff",
    "surgery.inspection.inspect",
    "surgery.verification",
    "surgery.graph.evaluate",
}


@pytest.mark.parametrize("path", MODELS, ids=identify)
def test_builders_do_not_know_surgery(path: Path) -> None:
    assert not {module for module in imports(path) if module.split(".")[0] == "surgery"}


@pytest.mark.parametrize("path", [*ENGINE, *PASSES, *MODELS], ids=identify)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


def test_the_wheel_holds_every_package() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"])
    homes = [("surgery", ROOT / "surgery"), ("surgery.passes", ROOT / "passes"), ("surgery.recipes", ROOT / "recipes")]
    there = {
        ".".join((name, *path.parent.relative_to(folder).parts))
        for name, folder in homes
        for path in folder.rglob("__init__.py")
    }
    assert listed == there
