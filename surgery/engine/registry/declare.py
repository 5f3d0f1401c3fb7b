"""Decorators that declare passes and predicates.

A pass is a function with a decorator. Its keyword-only parameters are its options: the keys in recipes, the flags on
the command line and the table in the docs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from surgery.base.promises import Change, Parity
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import Pass
from surgery.engine.registry.predicates import Predicate

F = TypeVar("F", bound=Callable[..., Any])


def graph_pass(
    name: str, *, parity: Parity = Parity.CLOSE, changes: Iterable[Change] = (), requires: str = ""
) -> Callable[[F], F]:
    """Declare a pass that walks the graph itself: `def f(graph: Graph, *, option: int = 1) -> None`.

    The annotation of the first parameter selects the API. With `onnx_ir.Model`, `gs.Graph` (onnx-graphsurgeon) or
    `onnx.ModelProto` instead of `Graph`, the function gets the whole model, and returns a new one, or None if it
    changed the given one.

    `changes` lists the parts of the signature that the pass changes; all other parts must stay
    the same. `requires` is the distribution of the tool that the pass runs, see `surgery.run_tool`.
    """

    def declare(function: F) -> F:
        catalog.register(Pass(name, parity, "graph", function, changes=frozenset(changes), requires=requires))
        return function

    return declare


def pattern_pass(name: str, *, match: str | Iterable[str], parity: Parity = Parity.CLOSE) -> Callable[[F], F]:
    """Declare a pass by a pattern: `def f(m: Match, new: Builder, *, option: int = 1) -> Value`.

    The function is called once for each match. It checks its conditions with `m.require`, builds with `new`, and
    returns the replacement of the pattern's output (a tuple if there are several).

    `match` may be several alternative patterns. They are tried in order over the whole graph, so a longer one must come
    before a shorter one that it contains.
    """
    patterns = (match,) if isinstance(match, str) else tuple(match)

    def declare(function: F) -> F:
        catalog.register(Pass(name, parity, "pattern", function, patterns))
        return function

    return declare


def predicate(name: str) -> Callable[[F], F]:
    """Declare a condition on a model: `def f(graph: Graph) -> bool`, for `when` and `expect` in recipes.

    The function only reads the graph; any changes are lost.
    """

    def declare(function: F) -> F:
        catalog.register_predicate(Predicate(name, function))
        return function

    return declare
