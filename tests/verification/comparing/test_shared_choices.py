"""Nodes that choose elements by their order, which both models have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from surgery.model.graph import text
from surgery.verification.comparing.details import Details, Status, Verdict
from surgery.verification.comparing.ties import _content, _shared, _without, settled

TOP = """g (float[4] x, int64[1] k) => (float[1] y, int64[1] i) {{
    a = Neg(x) v, i = TopK<largest = {}>(a, k) y = Exp(v) }}"""


def _parsed(source: str) -> onnx.ModelProto:
    return text.parse(source, opset=18)


def test_nodes_that_choose_alike() -> None:
    first = _parsed(TOP.format(1))
    assert _shared(first, _parsed(TOP.format(1))) == [("v", "i")]
    assert _shared(first, _parsed(TOP.format(0))) == [] == _shared(first, _parsed(TOP.format(1).replace("v", "w")))
    # A constant operand is part of the node, whatever its name is and wherever it is stored.
    pairs = []
    for number in (1, 2):
        stored, made = _parsed(TOP.format(1)), _parsed(TOP.format(1))
        stored.graph.initializer.append(numpy_helper.from_array(np.array([number]), "k"))
        constant = numpy_helper.from_array(np.array([number]))
        made.graph.node.insert(0, helper.make_node("Constant", [], ["k"], value=constant))
        pairs.append((stored, made))
    assert _shared(*pairs[0]) == [("v", "i")]
    assert _shared(pairs[0][0], pairs[1][1]) == [] == _shared(pairs[0][0], first)
    ours = _parsed("g (float[4] x) => (int64[1] y) { a = d.ArgMax(x) y = ArgMax(x) }")
    assert _shared(ours, ours) == [("y",)]
    listed = [helper.make_node("Constant", [], ["k"], value_ints=[number]) for number in (1, 1, 2)]
    assert _content(listed[0]) == _content(listed[1]) != _content(listed[2])
    outside = TensorProto(data_type=7, data_location=TensorProto.EXTERNAL, dims=[1])
    outside.external_data.add(key="location", value="w")
    assert b"w" in _content(outside)


def test_a_model_without_its_choices() -> None:
    model = _parsed(TOP.format(1))
    model.graph.value_info.extend(helper.make_tensor_value_info(name, 1, [1]) for name in "av")
    feed = {"v": np.ones(1, np.float32), "i": np.ones(1, np.int64)}
    found = onnx.load_model_from_string(_without(model, [("v", "i")], feed))
    assert [(node.op_type, *node.input, *node.output) for node in found.graph.node] == [
        ("Neg", "x", "a"), ("Identity", "a", "choice/0/0"), ("Identity", "k", "choice/0/1"), ("Exp", "v", "y"),
    ]  # fmt: skip
    types = [(port.name, port.type.tensor_type.elem_type) for port in found.graph.input]
    assert types == [("x", 1), ("k", 7), ("i", 7), ("v", 1)]
    assert [output.name for output in found.graph.output] == ["y", "choice/0/0", "choice/0/1"]
    assert [value.name for value in found.graph.value_info] == ["a"]
    assert len(model.graph.node) == 3


def test_when_ties_are_not_looked_for() -> None:
    original: Any = SimpleNamespace(runs=[1], random=frozenset(), skeleton=_parsed(TOP.format(1)).SerializeToString())
    other = _parsed(TOP.format(0)).SerializeToString()
    different, equal = Verdict(Status.DIFFERENT, details=Details()), Verdict(Status.EQUAL)
    assert settled(original, other, equal) is equal and settled(original, other, different) is different
    for more in ({"runs": []}, {"random": frozenset("y")}):
        changed: Any = SimpleNamespace(**{**vars(original), **more})
        assert settled(changed, original.skeleton, different) is different
