"""Signatures of functions and attributes as they are written in the source, and the types that they name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from importlib import import_module

from surgery.interface.docsgen import definitions_in_source as source
from surgery.interface.docsgen.definitions_in_source import Definition

_WIDTH = 100
"""The length from which a signature has a line for each parameter."""

Hint = tuple[Definition, ast.expr]
"""An annotation, after the definition that has it."""


def of_function(found: Definition, name: str, *, is_wide: bool = False) -> str:
    """Return the signature of a function under a name; on several lines if it is long, unless `is_wide`."""
    node = found.node
    assert isinstance(node, ast.FunctionDef)
    parameters = list(_parameters(found, node.args))
    if found.within and "staticmethod" not in found.marks:
        del parameters[0]
    return _joined(name, parameters, "" if node.name == "__init__" else _result(found), is_wide=is_wide)


def of_constructor(found: Definition, name: str) -> str:
    """Return the signature with which a class is constructed: that of its method, or else its fields."""
    made = source.constructor(found)
    if made is not None:
        return of_function(made, name)
    assert isinstance(found.node, ast.ClassDef)
    fields = [one for one in source.members(found).values() if isinstance(one.node, ast.AnnAssign)]
    return _joined(name, [_parameter(one, one.name, one.hint, one.value) for one in fields], "")


def of_attribute(found: Definition) -> str:
    """Return an attribute with its type; a constant of a class with its value."""
    if found.hint is not None:
        return f"{found.name}: {found.written(found.hint)}"
    return found.name if found.value is None else f"{found.name} = {found.written(found.value)}"


def parameters(found: Definition) -> list[str]:
    """List the names of the parameters of a function; of anything else, none."""
    if not isinstance(found.node, ast.FunctionDef):
        return []
    return [one.arg for one in ast.walk(found.node.args) if isinstance(one, ast.arg)]


def hints(found: Definition) -> Iterator[Hint]:
    """Yield the annotations of a function or an attribute."""
    if isinstance(found.node, ast.FunctionDef):
        arguments = found.node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        yield from ((found, one.annotation) for one in every if one is not None and one.annotation is not None)
    if found.hint is not None:
        yield found, found.hint


def named(annotations: Iterable[Hint]) -> dict[str, Definition]:
    """Return what annotations name of surgery, by the name that they write, each followed by what it is made of."""
    found: dict[str, Definition] = {}
    for holder, hint in annotations:
        for name in _words(hint):
            one = source.find(holder.module, name)
            if one is None or name in found or one.is_type_variable or isinstance(one.node, ast.FunctionDef):
                continue
            found[name] = one
            inner = named([(one, one.value)]) if one.value is not None else {}
            found = {**found, **{key: value for key, value in inner.items() if key not in found}}
    return found


def _words(hint: ast.AST) -> Iterator[str]:
    """Yield the names in an annotation, dotted ones as a whole."""
    if isinstance(hint, ast.Name | ast.Attribute):
        yield ast.unparse(hint)
    elif isinstance(hint, ast.Constant) and isinstance(hint.value, str):
        yield from _words(ast.parse(hint.value, mode="eval").body)
    elif not (isinstance(hint, ast.Subscript) and ast.unparse(hint.value) == "Literal"):
        for inner in ast.iter_child_nodes(hint):
            yield from _words(inner)


def _result(found: Definition) -> str:
    if found.hint is None:
        return ""
    if "contextmanager" in found.marks and isinstance(found.hint, ast.Subscript):
        return f" -> ContextManager[{found.written(found.hint.slice)}]"
    return f" -> {found.written(found.hint)}"


def _joined(name: str, parameters: list[str], result: str, *, is_wide: bool = False) -> str:
    line = f"{name}({', '.join(parameters)}){result}"
    if is_wide or len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in parameters), f"){result}"])


def _parameters(found: Definition, arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    for place, (one, default) in enumerate(zip(positional, [*missing, *arguments.defaults]), 1):
        yield _parameter(found, one.arg, one.annotation, default)
        if place == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg is not None:
        yield _parameter(found, f"*{arguments.vararg.arg}", arguments.vararg.annotation, None)
    elif arguments.kwonlyargs:
        yield "*"
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        yield _parameter(found, one.arg, one.annotation, default)
    if arguments.kwarg is not None:
        yield _parameter(found, f"**{arguments.kwarg.arg}", arguments.kwarg.annotation, None)


def _evaluated(module: str, written: ast.expr) -> object:
    """Return the value of an expression in a module, which is imported."""
    return eval(ast.unparse(written), vars(import_module(module)))


def _of_field(found: Definition, field: ast.Call) -> str:
    """Return the default of a field of a dataclass."""
    word = next((one for one in field.keywords if one.arg in ("default", "default_factory")), None)
    if word is None:
        return "..."
    written = found.written(word.value)
    if word.arg == "default":
        return written
    return "{}" if written in ("dict", "FrozenDict") else f"{written}()"


def _parameter(found: Definition, name: str, hint: ast.expr | None, default: ast.expr | None) -> str:
    """Return a parameter with its type and its default: that of a constant is its value."""
    kind = f": {found.written(hint)}" if hint is not None else ""
    if default is None:
        return f"{name}{kind}"
    constant = source.find(found.module, ast.unparse(default)) if isinstance(default, ast.Name) else None
    plain = _evaluated(found.module, default) if isinstance(default, ast.Attribute) else None
    if isinstance(plain, str):
        shown = f'"{plain}"'
    elif constant is not None and constant.value is not None:
        shown = constant.written(constant.value)
    elif isinstance(default, ast.Call) and ast.unparse(default.func) == "field":
        shown = _of_field(found, default)
    else:
        shown = found.written(default)
    return f"{name}{kind} = {shown}" if kind else f"{name}={shown}"
