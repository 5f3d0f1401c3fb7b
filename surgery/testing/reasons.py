"""The reasons for which a pass refuses, read from its source, and which of them no case shows."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgery.registry.declare import Pass
    from surgery.testing.case import Case


def reason_texts(declared: Pass) -> list[str]:
    """List the reasons for which a pass refuses, in the order of its source; a hole in one is shown as "…"."""
    return list(dict.fromkeys(_text(reason) for reason in _reasons(declared)))


def reasons_in(passes: Iterable[Pass]) -> dict[str, set[re.Pattern[str]]]:
    """List, by pass, the reasons that its module can refuse with, as patterns (an f-string has holes)."""
    return {declared.name: set(_reasons(declared)) for declared in passes}


def without_firing(cases: Iterable[Case], passes: Iterable[Pass]) -> list[str]:
    """List the names of the passes that fire in no case."""
    fires = {case.pass_name for case in cases if case.fires}
    return [declared.name for declared in passes if declared.name not in fires]


def unshown(cases: Iterable[Case], passes: Collection[Pass]) -> list[tuple[str, str]]:
    """List the reasons to refuse that no case shows, each after its pass.

    Of several passes in one module any may show a reason of that module.
    """
    modules = {declared.name: declared.module for declared in passes}
    shown: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        if case.pass_name in modules:
            shown[modules[case.pass_name]] += case.refused
    return [
        (name, _text(reason))
        for name, reasons in reasons_in(passes).items()
        for reason in sorted(reasons, key=lambda reason: reason.pattern)
        if not any(reason.fullmatch(given) for given in shown[modules[name]])
    ]


def _text(reason: re.Pattern[str]) -> str:
    return re.sub(r"\\(.)", r"\1", reason.pattern.replace(".+", "…"))


def _reasons(declared: Pass) -> Iterator[re.Pattern[str]]:
    """Yield the reasons in the module of a pass and in what it uses of the `_shared` module next to it."""
    module = sys.modules[declared.module]
    sources: list[Any] = [module, *_shared_functions(vars(module).values())]
    for source in sources:
        yield from _reasons_in(inspect.getsource(source))


def _shared_functions(names: Iterable[Any]) -> list[FunctionType]:
    """List the functions of `_shared` modules among these objects, those in tables too, and what they call."""
    found: dict[FunctionType, None] = {}
    pending = list(names)
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += [value for value in item.values() if isinstance(value, FunctionType)]
        elif isinstance(item, FunctionType) and item.__module__.endswith("._shared") and item not in found:
            found[item] = None
            pending += [item.__globals__[name] for name in _names(item.__code__) if name in item.__globals__]
    return list(found)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _reasons_in(source: str) -> Iterator[re.Pattern[str]]:
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called == "require" and len(node.args) == 2:
            yield _reason(node.args[1])
        elif called == "Refusal" and len(node.args) == 1:
            yield _reason(node.args[0])


def _reason(expression: ast.expr) -> re.Pattern[str]:
    if isinstance(expression, ast.JoinedStr):
        parts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in expression.values]
        return re.compile("".join(parts))
    if isinstance(expression, ast.Constant):
        return re.compile(re.escape(str(expression.value)))
    return re.compile(".+")
