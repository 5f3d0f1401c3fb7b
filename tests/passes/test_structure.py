"""What case files cannot say of inlining, folding and storing: what stays as it was, and what is not copied."""

import numpy as np
import onnx_ir as ir
import pytest

from surgery.engine.bridges import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.analysis import evaluate
from surgery.model.graph import text
from surgery.model.graph.graph import Graph

BRANCHES = """
    g (float[2] x, bool c) => (float[2] y) <bool yes = {1}>
    {
        k = Relu(x)
        y = If (yes) <
            then_branch = t () => (float[2] p) {
                p = If (c) <
                    then_branch = tt () => (float[2] q) { q = Neg(k) },
                    else_branch = te () => (float[2] r) { r = Exp(k) }
                >
            },
            else_branch = e () => (float[2] s) { s = Neg(x) }
        >
    }
"""


def graph_of(source: str) -> Graph:
    stored = storage.from_proto(text.parse(source))
    return Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)


def run(graph: Graph, name: str) -> None:
    declared = catalog.find(name)
    run_pass.apply(declared, graph, declared.bind({}))


def test_a_skipped_site_is_not_read_by_later_sites() -> None:
    graph = graph_of(BRANCHES)
    graph.skip = frozenset({1})
    value = graph.nodes("Relu")[0].outputs[0]
    reads = value.reads
    run(graph, "inline-if")
    assert [site.skipped for site in graph.sites] == [True]
    assert value.reads == reads


def test_copied_subgraphs_are_found_by_their_operators() -> None:
    graph = graph_of(BRANCHES)
    run(graph, "inline-if")
    assert [len(graph.nodes(op)) for op in ("If", "Neg", "Exp", "Relu")] == [1, 1, 1, 1]
    assert len({node.scope for node in graph.nodes("Neg", "Exp")}) == 2


def test_a_moved_weight_is_folded_without_a_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "Worker", None)
    graph = graph_of("""
        g (float[1,200] x) => (float[1,300] y)
        {
            w = Constant <value = float[1] {1}> ()
            t = Transpose(w)
            y = MatMul(x, t)
        }
    """)
    weight = np.arange(60_000, dtype=np.float32).reshape(300, 200)
    constant = graph.nodes("Constant")[0]
    constant.ir.attributes["value"] = ir.AttrTensor("value", ir.Tensor(weight))
    graph.refresh()
    run(graph, "fold-constants")
    (matmul,) = graph.nodes("MatMul")
    folded = matmul.required_input(1)
    assert isinstance(folded.tensor, ir.ExternalTensor), "it lies in the scratch file"
    assert folded.constant is not None and np.array_equal(folded.constant, weight.T)
