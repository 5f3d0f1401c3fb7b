"""Where a pattern nearly matches: which places are listed, in which order, and which ones are too far."""

from __future__ import annotations

from typing import Any

import pytest

from surgery.base.promises import Parity
from surgery.engine.registry.passes import Pass
from surgery.engine.why import explain as why
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.builder import Builder
from surgery.model.graph.graph import Graph
from surgery.model.patterns.match import Match


def decline(m: Match, new: Builder) -> None:
    m.require(False, "not today")


THREE = "a = Relu(x)\nb = Neg(a)\ny = Exp(b)"
FOUR = "a = Relu(x)\nb = Neg(a)\nc = Exp(b)\ny = Cos(c)"
TWO = (THREE, "a = Abs(x)\ny = Sin(a)")
BOTH = "a = Abs(x) b = Sin(a) c = Relu(b) d = Neg(c) y = Cos(d)"


def explained(match: str | tuple[str, ...], body: str, at: str | None = None, **more: Any) -> why.Why:
    declared = Pass("nearest", Parity.CLOSE, "pattern", decline, (match,) if isinstance(match, str) else match)
    head = '<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]> g (float[2] x) => (float[2] y)'
    stored = storage.from_proto(text.parse(f"{head} {{ {body} }}"))
    return why.explain(declared, stored.proto, stored.weights, at=at, contained=False, **more)


def in_words(miss: why.NearMiss) -> str:
    what = miss.reason or "; ".join(f"{flaw.kind}: {flaw}" for flaw in miss.flaws)
    return f"{miss.anchor}, {miss.matched} of {len(miss.lines)} of {miss.pattern}: {what}"


@pytest.mark.parametrize(
    ("match", "body", "at", "misses"),
    [
        (FOUR, "a = Relu(x) b = Neg(a) c = Exp(b) y = Cos(c)", None, ["Cos -> y, 4 of 4 of 1: not today"]),
        # The greatest share of a pattern comes first.
        (FOUR, "a = Relu(x) b = Abs(a) c = Exp(b) d = Cos(c) e = Relu(d) f = Neg(e) g = Exp(f) y = Sin(g)", None,
         ["Exp -> g, 3 of 4 of 1: operator: expected Cos, found 'Sin -> y'",
          "Cos -> d, 3 of 4 of 1: operator: expected Neg, found 'Abs -> b'"]),
        (TWO, BOTH, None, ["Sin -> b, 2 of 2 of 2: not today",
                           "Neg -> d, 2 of 3 of 1: operator: expected Exp, found 'Cos -> y'"]),
        (TWO, BOTH, "d", ["Neg -> d, 2 of 3 of 1: operator: expected Exp, found 'Cos -> y'"]),
        (TWO, BOTH, "a", ["Sin -> b, 2 of 2 of 2: not today"]),
        (TWO, BOTH, "y", ["Neg -> d, 2 of 3 of 1: operator: expected Exp, found 'Cos -> y'"]),
        (THREE, "a = Relu(x) b = Neg(a) y = Exp(b)", "b", ["Exp -> y, 3 of 3 of 1: not today"]),
        # Half of the lines are enough, fewer are not.
        (FOUR, "a = Relu(x) b = Neg(a) c = Sin(b) d = Tan(c) e = Exp(d) y = Cos(e)", None,
         ["Neg -> b, 2 of 4 of 1: reader: expected Exp to read 'b', found 'Sin -> c'",
          "Cos -> y, 2 of 4 of 1: source: expected the result of Neg, found the result of 'Tan -> d'"]),
        (FOUR, "a = Relu(x) b = Abs(a) c = Sin(b) d = Cos(c) e = Neg(d) y = Exp(e)", None, []),
        ("y = Softmax<axis=0>(x)", "y = Softmax(x)", None,
         ["Softmax -> y, 0 of 1 of 1: attribute: expected axis = 0, found axis = -1 by default"]),
        # Of three operators one may be absent from the model, and two may not.
        (THREE, "a = Relu(x) b = Neg(a) y = Abs(b)", None,
         ["Neg -> b, 2 of 3 of 1: operator: expected Exp, found 'Abs -> y'"]),
        (THREE, "a = Relu(x) b = Sin(a) y = Abs(b)", None, []),
        # A better explanation takes the nodes that it shares with another one.
        (THREE, "a = Relu(x) b = Neg(a) c = Cos(b) d = Relu(c) e = Neg(d) f = Cos(e) y = Exp(f)", None,
         ["Exp -> y, 2 of 3 of 1: between: expected Neg, found 'Cos -> f' in between",
          "Neg -> b, 2 of 3 of 1: operator: expected Exp, found 'Cos -> c'"]),
    ],
)  # fmt: skip
def test_near_misses_are_listed_nearest_first(
    match: str | tuple[str, ...], body: str, at: str | None, misses: list[str]
) -> None:
    found = explained(match, body, at)
    assert [in_words(miss) for miss in found.near_misses] == misses
    assert found.near_misses_total == len(misses)
    assert (found.remark, found.sites) == ("", ())


@pytest.mark.parametrize(
    ("match", "body", "absent"),
    [
        (THREE, "a = Relu(x) b = Neg(a) y = Abs(b)", ("Exp",)),
        (THREE, "a = Relu(x) b = Sin(a) y = Abs(b)", ("Exp", "Neg")),
        ("y = com.microsoft::Gelu(x)", "y = Softmax(x)", ("com.microsoft::Gelu",)),
        ("y = Relu|Clip(x)", "y = Softmax(x)", ("Relu|Clip",)),
        ("y = Relu|Softmax(x)", "y = Softmax(x)", ()),
        (TWO, "a = Abs(x) y = Cos(a)", ("Sin",)),
        (TWO, BOTH, ()),
    ],
)
def test_operators_that_the_model_does_not_have(
    match: str | tuple[str, ...], body: str, absent: tuple[str, ...]
) -> None:
    assert explained(match, body).absent == absent


def test_readers_outside_of_a_match_are_listed() -> None:
    body = "a = Relu(x) b = Neg(a) c = Exp(b) d = Cos(c) e = Add(b, c) y = Add(d, e)"
    (miss,) = explained(FOUR, body).near_misses
    assert miss.reason == "b is used outside the pattern" and miss.flaws == ()
    assert miss.escapes == ("b is 'b', read by 'Add -> e' too", "c is 'c', read by 'Add -> e' too")
    (miss,) = explained("a = Relu(x)\nb = Neg(a)", "y = Relu(x) b = Neg(y)").near_misses
    assert (miss.reason, miss.escapes) == ("a is a graph output", ("a is the graph output 'y'",))
    (miss,) = explained(THREE, "a = Relu(x) b = Neg(a) y = Exp(b)").near_misses
    assert miss.escapes == ()


def test_a_node_that_no_line_fits_is_remarked() -> None:
    found = explained(TWO, "a = Tan(x) y = Tan(a)", "a")
    assert (found.near_misses, found.remark) == ((), "no part of the pattern matches at this Tan")


def test_similar_places_are_one_near_miss_and_the_limit_applies_to_the_list() -> None:
    chain = "a = Relu(x) b = Neg(a) c = Abs(b) d = Relu(c) e = Abs(d) f = Exp(e) g = Relu(f) h = Neg(g) y = Abs(h)"
    found = explained(THREE, chain)
    assert [(miss.anchor, miss.alike) for miss in found.near_misses] == [("Exp -> f", ()), ("Neg -> b", ("Neg -> h",))]
    found = explained(THREE, chain, limit=1)
    assert (len(found.near_misses), found.near_misses_total) == (1, 2)


def walk(graph: Graph) -> None:
    for node in graph.nodes("Relu", "Neg", "Exp"):
        alike = node.op == "Neg"
        if alike and node.inputs:
            continue
        with graph.site(node) as new:
            new.require(node.op == "Relu", "it is no Relu")
            new.require(len(node.inputs) == 2, "it has one input")


def walked(body: str, at: str | None = None, **more: Any) -> why.Why:
    declared = Pass("walk", Parity.CLOSE, "graph", walk)
    stored = storage.from_proto(text.parse(f"g (float[2] x) => (float[2] y) {{ {body} }}"))
    return why.explain(declared, stored.proto, stored.weights, at=at, contained=False, **more)


def test_a_graph_pass_gives_reasons_and_skips() -> None:
    found = walked("[n] a = Neg(x) b = Exp(a) c = Relu(b) [m] d = Neg(c) e = Relu(d) y = Cos(e)")
    assert found.looked == {"Relu": 2, "Neg": 2, "Exp": 1}
    assert [(one.reason, one.count, [place.anchor for place in one.places]) for one in found.refusals] == [
        ("it has one input", 2, ["Relu -> c", "Relu -> e"]),
        ("it is no Relu", 1, ["Exp -> b"]),
    ]
    assert [(place.op, place.inputs, place.outputs) for place in found.refusals[0].places] == [
        ("Relu", ("float[2] b",), ("float[2] c",)),
        ("Relu", ("float[2] d",), ("float[2] e",)),
    ]
    (silence,) = found.silent
    assert silence.where.endswith(": if alike and node.inputs:")
    assert silence.values == "alike = True, node.inputs = [Value(x)], node = Neg 'n'"
    assert (silence.count, silence.nodes) == (2, ("n", "m"))
    assert len(walked("a = Exp(x) y = Relu(a)", limit=1).refusals) == 1


@pytest.mark.parametrize(
    ("at", "reasons", "silent", "remark"),
    [
        ("a", [], 1, ""),
        ("b", ["it is no Relu"], 0, ""),
        ("y", [], 0, "the pass does not look at this Cos; the operators that it looks at: Relu, Neg, Exp"),
    ],
)
def test_one_node_of_a_graph_pass(at: str, reasons: list[str], silent: int, remark: str) -> None:
    found = walked("a = Neg(x) b = Exp(a) c = Relu(b) y = Cos(c)", at)
    assert [one.reason for one in found.refusals] == reasons
    assert [one.count for one in found.silent] == [1] * silent
    assert found.remark == remark
