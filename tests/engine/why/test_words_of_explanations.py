"""What an explanation says in a few lines, and when a step is explained at all; from parts built by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from surgery.base.promises import Parity
from surgery.engine import recipe as recipes
from surgery.engine.registry.passes import Pass
from surgery.engine.why import explain
from surgery.engine.why.explain import (
    BoundValue,
    Flaw,
    NearMiss,
    PatternLine,
    Refusals,
    RefusedNode,
    Silence,
    Why,
    explained,
    why_so_few,
)
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.graph.state import Refused, Site

NODE = RefusedNode("n", "Relu", (), (), "", ())
FLAW = Flaw("y = Relu(x)", "operator", "n", "Relu", "Neg")
LINES = (PatternLine("a = Abs(x)", "m", True), PatternLine("y = Relu(x)", "n", False))
MISS = NearMiss("m", "Abs", 21, 1, 1, LINES, (FLAW,), "", (), "", "", (), ())


@pytest.mark.parametrize(
    ("miss", "summary"),
    [
        (MISS, "'m': expected Relu, found Neg in 'y = Relu(x)', at 'n'"),
        (replace(MISS, anchor="n"), "'n': expected Relu, found Neg in 'y = Relu(x)'"),
        (replace(MISS, flaws=(FLAW,) * 3), "'m': expected Relu, found Neg in 'y = Relu(x)', at 'n' and 2 more"),
        (replace(MISS, flaws=()), "'m': 1 of 2 lines fit"),
        (replace(MISS, reason="no"), "'m': no"),
        (replace(MISS, reason="no", values="a = 1"), "'m': no (a = 1)"),
        (replace(MISS, reason="no", values="a = 1", unknown=("dim 0 of 'x'",)), "'m': no (not known: dim 0 of 'x')"),
        (replace(MISS, reason="no", escapes=("a is an output", "b is read")), "'m': no (a is an output; b is read)"),
    ],
)
def test_a_near_miss_in_one_line(miss: NearMiss, summary: str) -> None:
    assert miss.summary == summary


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (Why("p", "pattern"), ["no part of the model resembles the pattern"]),
        (Why("p", "pattern", remark="not here"), ["not here"]),
        (Why("p", "pattern", absent=("Erf", "Exp")), ["no pattern can match completely: the model has no Erf, no Exp"]),
        (Why("p", "pattern", near_misses=(MISS,), absent=("Erf",)), [f"near miss {MISS.summary}"]),
        (Why("p", "pattern", near_misses=(replace(MISS, alike=("a", "b")),)),
         [f"near miss {MISS.summary}; and 2 more like it"]),
        (Why("p", "graph", refusals=(Refusals("no", "", 3, (NODE,)), Refusals("nor here", "", 1, ()))),
         ["refused 3 times: no, first at 'n'", "refused 1 times: nor here"]),
        (Why("p", "graph", silent=(Silence("x.py:3: if a:", "a = 1", 2, ("n",)),), looked={"Relu": 2}),
         ["passed over 2 times without a reason: x.py:3: if a: (a = 1)"]),
        (Why("p", "graph", looked={"Relu": 2, "": 5}), ["the pass refused nothing; it looked at 2 Relu, 5 nodes"]),
        (Why("p", "graph", looked={}), ["the pass refused nothing; it looked at no node"]),
        (Why("p", "graph", refusals=(Refusals("no", "", 1, (replace(NODE, anchor=""),)),)), ["refused 1 times: no"]),
    ],
)  # fmt: skip
def test_the_nearest_comes_first(found: Why, lines: list[str]) -> None:
    assert found.lines(9) == lines
    assert found.lines(1) == lines[:1]
    assert explained("failed", found) == "\n".join(["failed", *lines])
    assert explained("failed", None) == "failed"


def test_a_message_has_three_lines_of_an_explanation() -> None:
    refusals = tuple(Refusals(f"reason {number}", "", 1, ()) for number in range(5))
    assert explained("failed", Why("p", "graph", refusals=refusals)).count("\n") == 3


def test_sites_and_misses_are_counted() -> None:
    site = Site(1, "a", (), ())
    assert repr(Why("p", "graph")) == "<Why of 'p': 0 sites, 0 near misses>"
    assert repr(Why("p", "graph", sites=(site,), near_misses_total=1)) == "<Why of 'p': 1 site, 1 near miss>"
    found = Why("p", "pattern", near_misses=(MISS,), near_misses_total=4).to_json()
    assert (found["pass"], found["kind"], found["near_misses_total"]) == ("p", "pattern", 4)


@pytest.mark.parametrize(
    ("expected", "found", "is_explained"),
    [
        ("", 0, False),
        ("{nodes: 3}", 0, False),
        ("{sites: 2}", 2, False),
        ("{sites: 2}", 1, True),
        ("{sites: 2}", 3, False),
        ("{sites: '>= 2'}", 1, True),
        ("{sites: '> 2'}", 2, True),
        ("{sites: '> 2'}", 3, False),
        ("{sites: '<= 2'}", 3, False),
        ("{sites: '!= 2'}", 2, False),
    ],
)
def test_a_step_is_explained_if_more_sites_were_expected(
    monkeypatch: pytest.MonkeyPatch, expected: str, found: int, is_explained: bool
) -> None:
    monkeypatch.setattr(explain, "explain", lambda *_, **__: Why("drop-identity", "graph"))
    more = f", expect: {expected}" if expected else ""
    step: Any = recipes.parse(f"steps: [{{pass: drop-identity{more}}}]").steps[0]
    nothing: Any = None
    assert (why_so_few(step, found, nothing, nothing) is not None) is is_explained


def test_refusals_without_code_are_grouped_by_reason() -> None:
    found = [Refused("a", "one"), Refused("b", "two"), Refused("c", "one"), Refused("", "two")]
    grouped = explain._without_code(found, "")
    assert [(one.reason, one.count, [node.anchor for node in one.places]) for one in grouped] == [
        ("one", 2, ["a", "c"]),
        ("two", 2, ["b", ""]),
    ]
    assert [(one.reason, one.count) for one in explain._without_code(found, "b")] == [("two", 1)]
    (many,) = explain._without_code([Refused(str(number), "one") for number in range(150)], "")
    assert (many.count, len(many.places)) == (150, 100)


def test_a_pass_in_another_api_has_its_changes() -> None:
    before = text.parse("g (float[2] x) => (float[2] y) { a = Relu(x) b = Neg(a) y = Neg(b) }")
    after = text.parse("g (float[2] x) => (float[2] y) { a = Relu(x) b = Neg(a) y = Exp(b) }")
    why = Why("p", "onnx_ir.Model")
    found = explain._of_other_api(why, before, SimpleNamespace(proto=after, refusals=()))  # type: ignore[arg-type]
    assert found.operators == {"Exp": (0, 1), "Neg": (2, 1)} and "in the API onnx_ir.Model" in found.remark
    refused = (Refused("a", "no"),)
    found = explain._of_other_api(why, before, SimpleNamespace(proto=None, refusals=refused))  # type: ignore[arg-type]
    assert (found.operators, found.remark, found.refusals[0].reason) == ({}, "", "no")


def test_names_of_a_pattern_and_what_they_stand_for() -> None:
    found = [*explain._bound({"a": None, "b": 3, "c": [None, None], "d": (1, 2)})]
    assert found == [BoundValue("a", "", "", "absent"), BoundValue("b", "", "", "3"), BoundValue("d", "", "", "(1, 2)")]


def walk(graph: Graph) -> None:
    """Look at nothing."""


@pytest.mark.parametrize("memory", [None, 1 << 30])
def test_a_pass_of_the_user_is_explained_in_a_fork_with_its_limits(
    monkeypatch: pytest.MonkeyPatch, memory: int | None
) -> None:
    given: dict[str, Any] = {}

    def fork(work: Any, **more: Any) -> tuple[Any, str]:
        given.update(more)
        return work(), "printed"

    monkeypatch.setattr(explain, "call_in_fork", fork)
    monkeypatch.setattr(explain, "default_memory", lambda: 7)
    declared = Pass("own", Parity.EXACT, "graph", walk)
    stored = storage.from_proto(text.parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    said: list[str] = []
    found = explain.explain(declared, stored.proto, stored.weights, timeout=3.0, memory=memory, said=said.append)
    assert found == explain.explain(declared, stored.proto, stored.weights, contained=False)
    assert given == {"stage": "pass 'own'", "timeout": 3.0, "memory": memory or 7, "home": declared.file}
    assert said == ["printed"] and found.lines(1) == ["the pass refused nothing; it looked at no node"]
