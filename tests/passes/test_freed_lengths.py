"""Models exported for one length that set-dims frees again: at other lengths they compute what the original does."""

from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from support.breadth import sampled

import surgery
from surgery.engine.pipeline.runner import Result
from surgery.engine.recipe import parse
from surgery.model.graph.graph import Graph


def apply(model: Path, *steps: str) -> Result:
    return surgery.apply(model, parse("recipe: t\nsteps:\n" + "".join(f"  - {step}\n" for step in steps)))


def session(model: bytes | str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("name", "length"), sampled([(name, length) for length in (6, 4) for name in ("llama-tiny", "llama-tiny.dy")], 4)
)
def test_a_decoder_that_was_folded_for_one_length_runs_at_all(
    name: str, length: int, short_models: Path, tmp_path: Path
) -> None:
    original = short_models / f"{name}.onnx"
    fixed = apply(original, f"set-dims: {{dims: {{batch: 1, sequence: {length}}}}}", "fold-constants")
    surgery.save(fixed.proto, tmp_path / "fixed.onnx", fixed.stored.weights)
    dims = "[1, length]"
    freed = apply(tmp_path / "fixed.onnx", f"set-dims: {{ports: {{input_ids: {dims}, attention_mask: {dims}}}}}")
    (step,) = freed.steps
    assert step.status == "committed" and step.message.startswith(f"continued beyond {length}: "), step.message
    surgery.save(freed.proto, tmp_path / "freed.onnx", freed.stored.weights)
    one, other = session(str(original)), session(str(tmp_path / "freed.onnx"))
    for size in (1, 2, 3, length, 16, 31):
        ids = np.random.default_rng(size).integers(0, 20, (1, size))
        mask = np.ones((1, size), np.int64)
        mask[:, size // 2 + 1 :] = 0
        expected, found = (run.run(None, {"input_ids": ids, "attention_mask": mask})[0] for run in (one, other))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sampled(["t5-enc-tiny", "bert-tiny"], 2))
def test_a_folded_table_of_one_length_keeps_it(name: str, short_models: Path, tmp_path: Path) -> None:
    fixed = apply(short_models / f"{name}.onnx", "set-dims: {dims: {batch: 1, sequence: 6}}", "fold-constants")
    surgery.save(fixed.proto, tmp_path / "fixed.onnx", fixed.stored.weights)
    dims = "[1, length]"
    (step,) = apply(
        tmp_path / "fixed.onnx", f"set-dims: {{ports: {{input_ids: {dims}, attention_mask: {dims}}}}}"
    ).steps
    assert step.status == "failed" and "has 6 different slices along the dim" in step.message


def test_constants_of_many_layers_are_followed_without_a_walk_over_the_graph_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mask = ", ".join(["0, -1000, -1000, -1000", "0, 0, -1000, -1000", "0, 0, 0, -1000", "0, 0, 0, 0"])
    layers = range(12)
    masks = ", ".join(f"float[1,4,4] m{layer} = {{{mask}}}" for layer in layers)
    nodes = " ".join(f"a{layer} = Tanh(b{layer}) b{layer + 1} = Add(a{layer}, m{layer})" for layer in layers)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1,4,4] b0) => (float[1,4,4] b12) <{masks}> {{ {nodes} }}'
    )
    walks: list[object] = []
    below = Graph.below
    monkeypatch.setattr(Graph, "below", lambda self, *given: walks.append(given) or below(self, *given))
    recipe = parse("recipe: t\nsteps: [{set-dims: {ports: {b0: [1, n, n]}}}]")
    freed = surgery.apply(model, recipe)
    assert freed.ok and len(walks) == 1
    run = session(freed.proto.SerializeToString())
    x = np.random.default_rng(0).normal(size=(1, 7, 7)).astype(np.float32)
    expected = x
    for _ in layers:
        expected = np.tanh(expected) + np.where(np.tri(7) > 0, 0, -1000).astype(np.float32)
    np.testing.assert_allclose(run.run(None, {"b0": x})[0], expected, rtol=1e-5)
