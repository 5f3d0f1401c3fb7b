"""The APIs for passes, selected by the annotation of the first parameter of the function."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

from surgery.base.errors import UsageError

Api = Literal["Graph", "onnx_ir.Model", "gs.Graph", "onnx.ModelProto"]

# Classes by their package and name, not by their module, because several packages re-export classes of others.
_APIS: dict[tuple[str, str], Api] = {
    ("surgery", "Graph"): "Graph",
    ("onnx_ir", "Model"): "onnx_ir.Model",
    ("onnx_graphsurgeon", "Graph"): "gs.Graph",
    ("onnx", "ModelProto"): "onnx.ModelProto",
}
_CHOICES = f"annotate the first parameter with one of {', '.join(get_args(Api))}"


def api_of(name: str, function: Callable[..., Any]) -> Api:
    """Return the API of the pass `name`; `Graph` without an annotation. Raises UsageError for any other annotation."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise UsageError(f"pass '{name}' has no parameter for the model", todo=_CHOICES)
    annotation = parameters[0].annotation
    if annotation is inspect.Parameter.empty:
        return "Graph"
    found = _APIS.get(_text(annotation, function) if isinstance(annotation, str) else _home(annotation))
    if found is None:
        shown = annotation if isinstance(annotation, str) else getattr(annotation, "__qualname__", annotation)
        raise UsageError(f"pass '{name}' works on '{shown}', which is not an API for passes", todo=_CHOICES)
    return found


def _home(kind: Any) -> tuple[str, str]:
    """Return the top-level package that defines a class, and the name of the class."""
    return str(getattr(kind, "__module__", "")).partition(".")[0], str(getattr(kind, "__name__", ""))


def _text(annotation: str, function: Callable[..., Any]) -> tuple[str, str]:
    """Resolve a string annotation by the names of the module, or by its imports, including those for type checking."""
    expression = annotation.strip("'\"")
    scope = inspect.unwrap(function).__globals__
    first, *rest = expression.split(".")
    if first in scope:
        found = scope[first]
        for part in rest:
            found = getattr(found, part, None)
        return ("", "") if found is None or isinstance(found, ModuleType) else _home(found)
    path = _imported(inspect.unwrap(function).__code__.co_filename).get(first, first)
    package, _, name = ".".join([path, *rest]).rpartition(".")
    return package.partition(".")[0], name


@cache
def _imported(file: str) -> dict[str, str]:
    """Return the full name of each imported name in a source file, for imports anywhere in the file."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({item.asname or item.name.partition(".")[0]: _full(item) for item in node.names})
        elif isinstance(node, ast.ImportFrom):
            names.update({item.asname or item.name: f"{node.module}.{item.name}" for item in node.names})
    return names


def _full(item: ast.alias) -> str:
    return item.name if item.asname else item.name.partition(".")[0]
