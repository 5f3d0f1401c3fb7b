"""Rules of onnxscript on a graph, by themselves: sites, skipped sites, refusals, and what stays."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.proto import lineage

rewriter = pytest.importorskip("onnxscript.rewriter")

from surgery.engine.bridges.onnxscript_rules import rewrite_all, rule_of  # noqa: E402

CHAIN = """<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y) <float[1] unread = {1}> {
    [first] a = Neg(x) [second] b = Neg(a) [mid] c = Abs(b) [third] d = Neg(c) [fourth] e = Neg(d)
    [idle] i = Exp(x) y = Relu(e)
}"""


def rule(check: Any = lambda context, **_: True, **more: Any) -> Any:
    return rewriter.RewriteRule(
        lambda op, x: op.Neg(op.Neg(x)), lambda op, x: op.Identity(x), check, name="NegNeg", **more
    )


def graph_of(source: str = CHAIN, skip: frozenset[int] = frozenset()) -> Graph:
    graph = Graph(ir.from_proto(text.parse(source)))
    graph.begin("rules", skip)
    return graph


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes()]


def test_each_application_is_a_site() -> None:
    graph = graph_of()
    rewrite_all(graph, [rule()])
    assert ops(graph) == ["Identity", "Abs", "Identity", "Exp", "Relu"]
    assert [(site.number, site.anchor, site.removed, site.skipped) for site in graph.sites] == [
        (1, "second", ("second", "first"), False),
        (2, "fourth", ("fourth", "third"), False),
    ]
    assert [len(site.added) for site in graph.sites] == [1, 1] and graph.refusals == []
    new = graph.nodes("Identity")[0]
    assert lineage.read(new.ir.metadata_props) == lineage.Lineage(("rules",), ("second", "first"))
    # What nothing read before stays.
    assert list(graph.ir.graph.initializers) == ["unread"] and "Exp" in ops(graph)


@pytest.mark.parametrize(
    ("skip", "left"), [({1}, ["Neg", "Neg", "Abs", "Identity"]), ({2}, ["Identity", "Abs", "Neg", "Neg"])]
)
def test_a_site_is_skipped_by_its_number(skip: set[int], left: list[str]) -> None:
    graph = graph_of(skip=frozenset(skip))
    rewrite_all(graph, [rule()])
    assert ops(graph)[:4] == left
    assert [(site.number, site.skipped) for site in graph.sites] == [(1, 1 in skip), (2, 2 in skip)]
    assert all(site.removed == () for site in graph.sites if site.skipped)


def test_a_rewrite_that_is_skipped_leaves_the_opsets() -> None:
    made = rewriter.RewriteRule(
        lambda op, x: op.Relu(x), lambda op, x: op.Own(x, _domain="acme", _version=3), name="Foreign"
    )
    for skip, domains in ((frozenset(), {"": 20, "acme": 3}), (frozenset({1}), {"": 20})):
        graph = graph_of(skip=skip)
        rewrite_all(graph, [made])
        assert dict(graph.ir.opset_imports) == domains
        assert len(graph.nodes()[0].ir.outputs[0].uses()) == 1


def test_why_a_rule_declines_is_a_refusal() -> None:
    def check(context: Any, x: Any) -> Any:
        result = rewriter.MatchResult()
        if x.name == "x":
            result.fail("it is\n  an input")
        return result

    graph = graph_of()
    rewrite_all(graph, [rule(check)])
    assert [(one.anchor, one.reason) for one in graph.refusals] == [("second", "NegNeg: it is an input")]
    assert [site.anchor for site in graph.sites] == ["fourth"]
    graph = graph_of()
    rewrite_all(graph, [rule(lambda context, **_: False)])
    assert len(graph.refusals) == 2 and graph.sites == [] and "NegNeg: " in graph.refusals[0].reason


WEIGHTS = rewriter.RewriteRule(
    lambda op, x: op.Relu(x), lambda op, x: op.Max(x, op.initializer(ir.tensor([0.0]), name="w")), name="Weights"
)
FUNCTION = """<ir_version: 10, opset_import: ["": 20, "own": 1]> g (float[n] x) => (float[n] y) <float[1] w = {2}> {
    a = own.f(x) b = Mul(a, w) y = Relu(b) }
    <domain: "own", opset_import: ["": 20]> f (v) => (u) { [inner] u = Relu(v) }"""


def test_new_weights_have_new_names_and_are_none_of_a_function() -> None:
    graph = graph_of(FUNCTION)
    rewrite_all(graph, [WEIGHTS])
    assert [one.reason for one in graph.refusals] == ["Weights: it creates initializers, which a function cannot have"]
    assert graph.refusals[0].anchor == "inner"
    names = list(graph.ir.graph.initializers)
    assert len(names) == 2 and names[0] == "w" and names[1] not in ("w", "")
    assert len(graph.sites) == 1 and len(graph.nodes("Relu")) == 1


def test_declarations_of_constants_stay() -> None:
    graph = graph_of("g (float[n] x) => (float[n] y) { c = Constant<value = float[1] {1}>() y = Add(x, c) }")
    (value,) = graph.nodes("Constant")[0].outputs
    value.ir.type = value.ir.shape = None
    rewrite_all(graph, [rule()])
    (value,) = graph.nodes("Constant")[0].outputs
    assert (value.ir.type, value.ir.shape, value.ir.const_value) == (None, None, None)


class Documented(rewriter.RewriteRuleClassBase):
    def pattern(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Abs(x)


def test_a_class_and_an_object_of_it_are_rules() -> None:
    for thing, name in ((Documented, "Documented"), (Documented(name="Other", remove_nodes=False), "Other")):
        found = rule_of(thing)
        assert (found.name, found.remove_nodes) == (name, name == "Documented")
        graph = graph_of()
        rewrite_all(graph, [found])
        assert ops(graph)[-1] == "Abs" and [len(site.removed) for site in graph.sites] == [int(name == "Documented")]


def test_weights_that_a_rewrite_no_longer_reads_are_removed() -> None:
    source = """<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y)
        <float[1] w = {2}, float[1] both = {3}> { a = Add(x, w) b = Add(a, both) y = Mul(b, both) }"""
    graph = graph_of(source)
    rewrite_all(
        graph, [rewriter.RewriteRule(lambda op, x, w: op.Add(x, w), lambda op, x, w: op.Abs(x), name="Without")]
    )
    assert ops(graph) == ["Abs", "Abs", "Mul"] and list(graph.ir.graph.initializers) == ["both"]
