"""Models converted to float16 for a GPU: no node of theirs falls to the CPU that did not before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest
from support import ROOT

from surgery import storage
from surgery.bridges.run_pass import run_pass
from surgery.graph.graph import Graph
from surgery.graph.misfits import misfits
from surgery.registry.catalog import catalog
from surgery.targets.shipped import find

MODELS = sorted((ROOT / "models").glob("*.onnx"))


def fallen(graph: Graph) -> Counter[str]:
    found = Counter[str]()
    for one in misfits(graph, find("ort-cuda")):
        found[one.reason.op] += one.count
    return found


def converted(path: Path, *steps: str) -> tuple[Graph, Graph]:
    stored = storage.load(path)
    made = []
    for passes in ((), steps):
        graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
        graph.target = find("ort-cuda")
        for name in passes:
            declared = catalog.find(name)
            run_pass(declared, graph, declared.bind({}, Path()))
        made.append(graph)
    return made[0], made[1]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_no_node_in_float16_falls_to_the_cpu(path: Path) -> None:
    before, after = converted(path, "to-float16")
    assert any(node.op == "Cast" for node in after.nodes())
    assert fallen(after) <= fallen(before)


def test_norms_of_a_llama_are_whole_in_float16() -> None:
    """Before opset 23, the operator that ONNX Runtime has in the standard domain; each of 17 norms was six nodes."""
    _, after = converted(ROOT / "models" / "llama-tiny.onnx", "fold-constants", "fuse-reciprocal-mul", "fuse-rms-norm")
    assert len(after.nodes("SimplifiedLayerNormalization")) == 17
    before, after = converted(
        ROOT / "models" / "llama-tiny.onnx", "fold-constants", "fuse-reciprocal-mul", "fuse-rms-norm", "to-float16"
    )
    norms = after.nodes("SimplifiedLayerNormalization")
    assert len(norms) == 17 and not after.nodes("ReduceMean")
    for norm in norms:
        kinds = {value.dtype.name for value in (*norm.inputs, *norm.outputs) if value is not None and value.dtype}
        assert kinds == {"FLOAT16"}
    assert fallen(after) <= fallen(before)


def test_batch_normalizations_of_a_network_stay_on_the_gpu(tmp_path: Path) -> None:
    """53 of 53 in a ResNet-50 had statistics in float32, which CUDA has no kernel for."""
    text = """
        <ir_version: 10, opset_import: ["" : 17]>
        g (float[N,2,4,4] x) => (float[N,2,1,1] y)
        <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] s = {1, 2}, float[2] b = {0, 1}, float[2] m = {0, 0},
         float[2] v = {1, 1}>
        {
            c = Conv(x, w)
            n = BatchNormalization(c, s, b, m, v)
            r = Relu(n)
            y = GlobalAveragePool(r)
        }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    _, after = converted(tmp_path / "m.onnx", "to-float16")
    assert not fallen(after)
    assert [node.op for node in after.nodes()].count("Cast") == 2
