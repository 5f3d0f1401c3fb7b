"""The growth limit of fold-constants over several runs, and sites that are skipped."""

from pathlib import Path

import onnx

from surgery import Graph
from surgery.engine.bridges import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.graph import text

FOLD = catalog.find("fold-constants")

# Three expansions of 4000 bytes each, of which two fit
SOURCE = """
    g (float[1000] x) => (float[1000] y) <float[1] a = {1}, float[1] b = {2}, float[1] c = {3}, int64[1] n = {1000}>
    {
        e = Expand(a, n)
        h = Expand(b, n)
        i = Expand(c, n)
        p = Mul(x, e)
        q = Add(p, h)
        y = Sub(q, i)
    }
"""


def folded(model: onnx.ModelProto | Path, skip: frozenset[int] = frozenset()) -> tuple[Graph, storage.StoredModel]:
    stored = storage.load(model) if isinstance(model, Path) else storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights, skip=skip)
    run_pass.apply(FOLD, graph, FOLD.bind({"max_growth": 9000}))
    return graph, stored


def test_the_growth_limit_holds_across_runs(tmp_path: Path) -> None:
    graph, stored = folded(text.parse(SOURCE))
    assert len(graph.nodes("Expand")) == 1
    path = tmp_path / "folded.onnx"
    storage.save(storage.proto_from_ir(graph.ir, stored.weights), path, stored.weights)
    again, _ = folded(path)
    assert again.sites == []
    assert [refused.reason for refused in again.refusals] == ["the file would grow by more than max_growth"]


def test_skipped_sites_are_left_alone() -> None:
    graph, _ = folded(text.parse(SOURCE), frozenset({1}))
    assert [site.skipped for site in graph.sites].count(True) == 1
    assert graph.nodes("Expand")[0].outputs[0].name == graph.sites[0].anchor.split(" -> ")[1]


def test_skipping_all_sites_changes_nothing() -> None:
    graph, stored = folded(text.parse(SOURCE), frozenset(range(1, 10)))
    assert storage.proto_from_ir(graph.ir, stored.weights).graph.node == stored.proto.graph.node
