"""The probe sees a decoder that does not read its cache, and outputs that do nothing."""

from __future__ import annotations

import sys

import onnx
import pytest
from support import ROOT

sys.path.insert(0, str(ROOT))

from models import probe

DECODER = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[batch_size,sequence_length] input_ids, int64[batch_size,total] attention_mask,
   float[batch_size,1,past_sequence_length,1] cache) =>
  (float[batch_size,sequence_length,1] logits, float[batch_size,1,total,1] present)
<int64[1] one = {1}, int64[1] axis = {2}, int64 two = {2}, int64[2] ends = {1, 3}, int64[1] big = {1000000},
  float hundredth = {0.01}>
{
    number = Cast <to = 1> (input_ids)
    small = Mul(number, hundredth)
    new = Unsqueeze(small, ends)
    present = Concat <axis = 2> (cache, new)
    sums = CumSum(SUMMED, two)
    length = Shape <start = 1, end = 2> (input_ids)
    begin = Neg(length)
    last = Slice(sums, begin, big, axis)
    logits = Squeeze(last, one)
}"""


def _saved(path, summed):
    text = DECODER.replace("SUMMED", summed)
    model = onnx.parser.parse_model(text)
    model.graph.input[2].name = model.graph.node[3].input[0] = "past_key_values.0.key"
    model.graph.output[1].name = model.graph.node[3].output[0] = "present.0.key"
    for node in model.graph.node:
        node.input[:] = ["present.0.key" if name == "present" else name for name in node.input]
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "past_sequence_length + sequence_length"
    onnx.save(model, path)
    return path


def test_a_decoder_gives_the_same_result_in_steps(tmp_path):
    assert probe.steps_differ(_saved(tmp_path / "right.onnx", "present")) == pytest.approx(0, abs=1e-5)


def test_a_decoder_that_ignores_its_cache_is_found(tmp_path):
    assert probe.steps_differ(_saved(tmp_path / "wrong.onnx", "new")) > 0.1


def test_constant_outputs_are_unfit(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[batch,4] x) => (float[batch,4] same, float[batch,4] dead) <float zero = {0}> {
        same = Identity(x)
        dead = Mul(x, zero)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert {one.output: one.ok for one in probe.probe(tmp_path / "m.onnx")} == {"same": True, "dead": False}
    assert probe.steps_differ(tmp_path / "m.onnx") is None
