"""Models converted to float16 for a GPU: no node of theirs falls to the CPU that did not before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support import ROOT
from support.breadth import sampled

import surgery
from surgery.engine.bridges.run_pass import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.analysis.misfits import misfits
from surgery.model.graph.graph import Graph
from surgery.model.targets.shipped import find

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


@pytest.mark.parametrize("path", sampled(MODELS, 12), ids=lambda path: path.stem)
def test_no_node_in_float16_falls_to_the_cpu(path: Path, short_models: Path) -> None:
    before, after = converted(short_models / path.name, "to-float16")
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


COVERED = """
<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[B,S,8] q, float[B,S,8] k, float[B,S,8] v, bool[B,1,S,S] c) => (float[B,S,8] y)
<float keep = {0}, float low = {-3.4e38}> {
    m = Where(c, keep, low)
    y = com.microsoft.MultiHeadAttention<num_heads = 2, scale = 1.0>(q, k, v, "", "", m)
}
"""


def test_a_row_that_a_mask_covers_stays_the_mean_of_the_values(tmp_path: Path) -> None:
    path = tmp_path / "covered.onnx"
    onnx.save(onnx.parser.parse_model(COVERED), path)
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(0, 3, (1, 3, 8)).astype(np.float32) for name in "qkv"}
    feeds["c"] = np.array([[[[True, False, True], [False, False, False], [False, True, False]]]])
    np.savez(tmp_path / "seen.npz", **feeds)  # type: ignore[arg-type]
    recipe = tmp_path / "half.yaml"
    recipe.write_text("calibration: {data: seen.npz}\naccuracy: {budget: snr >= 40 dB}\nsteps: [to-float16]\n")
    assert surgery.apply(path, recipe, output=tmp_path / "half.onnx", target="ort-cuda").ok
    model = onnx.load(tmp_path / "half.onnx")
    assert sum(node.op_type == "Cast" for node in model.graph.node) == 4  # of q, k, v and y: none around the operator
    (found,) = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    values = feeds["v"]
    # Scores of 3 * 3 * 4 reach far apart: without its own rows, a mask of -49,152 gives a covered row their softmax.
    np.testing.assert_allclose(found[0, 1], values[0].mean(axis=0), atol=4e-3)
    np.testing.assert_allclose(found[0, 2], values[0, 1], atol=4e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "most"), [("llama-tiny", 5), ("llama-tiny.dy", 5), ("gpt2-tiny", 2)])
def test_casts_stand_at_true_borders_only(model: str, most: int, short_models: Path, tmp_path: Path) -> None:
    """The mask of the caller, the output, and, with rotary positions, their angle, cosine and sine."""
    result = surgery.apply(short_models / f"{model}.onnx", "fp16", output=tmp_path / "m.onnx", target="ort-cuda")
    assert result.ok
    nodes = onnx.load(tmp_path / "m.onnx").graph.node
    assert sum(node.op_type == "Cast" for node in nodes) == most
    assert not any(node.op_type == "Softmax" for node in nodes)
