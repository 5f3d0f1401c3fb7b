"""The reasons for which a pass refuses, read from its source, and those that no case covers."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgery.engine.registry.passes import Pass
    from surgery.features.testing.case import Case


Reason = re.Pattern[str]
"""A reason for a refusal; placeholders in its text match anything."""

_PARTS_OF_AN_ERROR = re.compile(r"[:;] ")
"""The separators between the place of an error, the problem and the remedy."""


def reason_texts(declared: Pass) -> list[str]:
    """List the reasons for which a pass refuses, in source order; a placeholder is shown as "…"."""
    return list(dict.fromkeys(_text(reason) for reason, _ in _reasons(declared)))


def reasons_in(passes: Iterable[Pass]) -> dict[str, set[Reason]]:
    """Return the possible reasons of each pass as patterns (an f-string has placeholders)."""
    return {declared.name: {reason for reason, _ in _reasons(declared)} for declared in passes}


def without_firing(cases: Iterable[Case], passes: Iterable[Pass]) -> list[str]:
    """List the names of passes that fire in no case."""
    fires = {case.pass_name for case in cases if case.fires}
    return [declared.name for declared in passes if declared.name not in fires]


def unshown(cases: Iterable[Case], passes: Collection[Pass]) -> list[tuple[str, str]]:
    """List the reasons for refusals that no case covers, each after its pass.

    A reason is covered by a case of any pass in its module; a reason in a helper, by any pass in that folder. If a pass
    turns a refusal into an error, as for a requested edit, the error contains the reason.
    """
    modules = {declared.name: declared.module for declared in passes}
    shown: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        module = modules.get(case.pass_name, "")
        for place in (module, _folder(module)):
            shown[place] += [*case.refused, *_PARTS_OF_AN_ERROR.split(case.error or "")]
    missing = {
        (declared.name, _text(reason))
        for declared in passes
        for reason, home in _reasons(declared)
        if not any(reason.fullmatch(given) for given in shown[home])
    }
    return sorted(missing)


def _folder(module: str) -> str:
    return module.rpartition(".")[0]


def _text(reason: Reason) -> str:
    return re.sub(r"\\(.)", r"\1", reason.pattern.replace(".+", "…"))


def _reasons(declared: Pass) -> Iterator[tuple[Reason, str]]:
    """Yield the reasons in the module of a pass and in the helpers that it uses, each with its module or folder."""
    module = sys.modules[declared.module]
    yield from ((reason, module.__name__) for reason in _reasons_in(ast.parse(inspect.getsource(module))))
    for tree in (tree for helper in _helpers(module) for tree in _trees(helper)):
        yield from ((reason, _folder(module.__name__)) for reason in _reasons_in(tree))


def _trees(helper: FunctionType | type) -> list[ast.AST]:
    """Parse a helper; of a lambda, the lines of its source alone may be no statement, so its module is parsed."""
    if helper.__name__ != "<lambda>" or not isinstance(helper, FunctionType):
        return [ast.parse(textwrap.dedent(inspect.getsource(helper)))]
    tree, line = ast.parse(inspect.getsource(sys.modules[helper.__module__])), helper.__code__.co_firstlineno
    return [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == line]


def _helpers(module: ModuleType) -> list[FunctionType | type]:
    """List the functions and classes of sibling helper modules that a module uses, directly or indirectly."""
    package = _folder(module.__name__)
    found: dict[FunctionType | type, None] = {}
    pending: list[Any] = [*vars(module).values()]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += [value for value in item.values() if isinstance(value, FunctionType | type)]
        elif isinstance(item, FunctionType | type) and item.__module__.startswith(f"{package}._") and item not in found:
            found[item] = None
            pending += _used(item)
    return list(found)


def _used(item: FunctionType | type) -> Iterator[Any]:
    """Yield the objects that a function or the methods of a class refer to by global names."""
    functions = [item] if isinstance(item, FunctionType) else [f for f in map(_plain, vars(item).values()) if f]
    for function in functions:
        names = list(_names(function.__code__))
        known = [function.__globals__[name] for name in names if name in function.__globals__]
        yield from known
        for module in (one for one in known if isinstance(one, ModuleType) and _is_helper(one)):
            yield from (getattr(module, name) for name in names if hasattr(module, name))


def _is_helper(module: ModuleType) -> bool:
    """Return whether a module is a helper next to passes."""
    return module.__name__.rpartition(".")[2].startswith("_")


def _plain(member: Any) -> FunctionType | None:
    """Return the function of a method or a property."""
    inner = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
    return inner if isinstance(inner, FunctionType) else None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _reasons_in(tree: ast.AST) -> Iterator[Reason]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called == "require" and len(node.args) == 2:
            yield _reason(node.args[1])
        elif called == "Refusal" and len(node.args) == 1:
            yield _reason(node.args[0])


def _reason(expression: ast.expr) -> Reason:
    if isinstance(expression, ast.JoinedStr):
        parts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in expression.values]
        return re.compile("".join(parts))
    if isinstance(expression, ast.Constant):
        return re.compile(re.escape(str(expression.value)))
    return re.compile(".+")
