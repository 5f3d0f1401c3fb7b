"""Pass objects of other packages: onnx-ir passes and onnxscript rewrite rules."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

import onnx_ir as ir

from surgery.base.errors import UsageError
from surgery.base.promises import Change, Parity
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import Pass
from surgery.model.graph.graph import Graph

_CHOICES = "give an onnx_ir.passes.PassBase, or a RewriteRule, RewriteRuleSet or RewriteRuleClassBase of onnxscript"


def add_pass(name: str, thing: Any, *, parity: Parity = Parity.CLOSE, changes: Iterable[Change] = ()) -> None:
    """Register an object as a pass: an `onnx_ir.passes.PassBase`, or an onnxscript rule, rule set or list of rules.

    The description of the pass is the docstring of the class, or the names of the rules. `changes` declares the
    intended changes of the signature, as in `graph_pass`.
    """
    function = _function(thing)
    function.__name__ = name.replace("-", "_")
    function.__doc__ = _doc(thing)
    caller = sys._getframe(1)
    function.__module__ = str(caller.f_globals.get("__name__", ""))
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    catalog.register(Pass(name, parity, "graph", function, changes=frozenset(changes), declared_at=place))


def _function(thing: Any) -> Callable[..., Any]:
    """Return a function in one of the APIs that applies the object; raise UsageError if it is not a pass."""
    if isinstance(thing, ir.passes.PassBase):

        def run(model: ir.Model) -> ir.Model:
            return thing(model).model

        return run
    rules = _rules(thing)

    def rewrite(graph: Graph) -> None:
        from surgery.engine.bridges.onnxscript_rules import rewrite_all

        rewrite_all(graph, rules)

    return rewrite


def _rules(thing: Any) -> list[Any]:
    """List the rules in an onnxscript object, without importing onnxscript."""
    if _is(type(thing), "RewriteRule"):
        return [thing]
    if _is(type(thing), "RewriteRuleSet"):
        return list(thing.rules)
    if _is(thing if isinstance(thing, type) else type(thing), "RewriteRuleClassBase"):
        from surgery.engine.bridges.onnxscript_rules import rule_of

        return [rule_of(thing)]
    if isinstance(thing, list | tuple) and thing:
        return [rule for item in thing for rule in _rules(item)]
    if isinstance(thing, type):
        what = f"the class {thing.__name__}"
    else:
        what = f"an {'empty' if thing in ([], ()) else 'object of the type'} {type(thing).__name__}"
    raise UsageError(f"{what} is not a pass", todo=_CHOICES)


def _is(kind: type, name: str) -> bool:
    """Return whether a class is, or derives from, the onnxscript class of this name."""
    return any(base.__name__ == name and base.__module__.startswith("onnxscript.") for base in kind.__mro__)


def _doc(thing: Any) -> str:
    """Return the docstring of an object's class, without sections that have another meaning here."""
    if isinstance(thing, list | tuple) or hasattr(thing, "rules"):
        rules = _rules(thing)
        names = ", ".join(dict.fromkeys(str(rule) for rule in rules))
        return f"Apply rewrite rules of onnxscript: {names}."
    # A rule made by a rule class refers to that class through its bound check method.
    owner = getattr(getattr(thing, "_condition_function", None), "__self__", thing)
    kind = owner if isinstance(owner, type) else type(owner)
    doc = inspect.cleandoc(kind.__dict__.get("__doc__") or "")
    if not doc or kind.__name__ == "RewriteRule":
        return f"Apply {thing if _is(kind, 'RewriteRule') else kind.__name__} of {kind.__module__.partition('.')[0]}."
    return re.split(r"^(?:Options|Example):$", doc, flags=re.MULTILINE)[0].strip()
