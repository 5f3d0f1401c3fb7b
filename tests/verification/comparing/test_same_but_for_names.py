"""Two models that differ in names alone, and two that differ in more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.model import storage
from surgery.model.graph import text
from surgery.verification.comparing.fingerprint import same_but_for_names

MODEL = """<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
    g (float[N,2] x) => (float[N,2] y) <float[2] w = {1, 2}> { a = Mul(x, w) b = f.twice(a) y = Relu(b) }
    <domain: "f", opset_import: ["" : 21]> twice (v) => (u) { u = Add(v, v) }"""


def of_graph(old: str, new: str) -> Callable[[], onnx.ModelProto]:
    return lambda: text.parse(MODEL.replace(old, new))


def with_ir_version() -> onnx.ModelProto:
    model = text.parse(MODEL)
    model.ir_version = 9
    return model


def with_value_info() -> onnx.ModelProto:
    model = text.parse(MODEL)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("a", 1, ["N", 2]))
    return model


OTHERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "an IR version": with_ir_version,
    "a declaration": with_value_info,
    "an opset": of_graph('"" : 21, "f"', '"" : 20, "f"'),
    "a weight": of_graph("{1, 2}", "{1, 3}"),
    "an operator": of_graph("Relu", "Abs"),
    "an operand": of_graph("Relu(b)", "Relu(a)"),
    "an unused weight": of_graph("{1, 2}", "{1, 2}, float[1] z = {1}"),
    "a function": of_graph("Add(v, v)", "Mul(v, v)"),
    "the name of an output": of_graph("y", "z"),
    "the type of an input": of_graph("float[N,2] x", "float[N,M] x"),
    "a node more": of_graph("y = Relu(b)", "c = Neg(b) y = Relu(b)"),
}


def test_inner_names_do_not_count() -> None:
    renamed = MODEL.replace(" w", " weight").replace("(a)", "(p)").replace("a = ", "p = ").replace("(b)", "(q)")
    renamed = renamed.replace("b = ", "q = ")
    assert same_but_for_names(text.parse(MODEL), text.parse(renamed))


@pytest.mark.parametrize("what", OTHERS)
def test_other_parts_count(what: str) -> None:
    assert not same_but_for_names(text.parse(MODEL), OTHERS[what]())


@pytest.mark.parametrize(("name", "value", "same"), [("w", 0.25, True), ("w", 0.5, False), ("other", 0.25, False)])
def test_a_weight_in_another_file_is_the_same_if_its_bytes_are(
    name: str, value: float, same: bool, tmp_path: Path
) -> None:
    models = []
    for file, one, number in (("a.onnx", "w", 0.25), ("b.onnx", name, value)):
        model = text.parse(f"g (float[N,160] x) => (float[N,160] y) {{ y = MatMul(x, {one}) }}")
        model.graph.initializer.append(numpy_helper.from_array(np.full((160, 160), number, np.float32), one))
        onnx.save(model, tmp_path / file)
        models.append(storage.load(tmp_path / file).proto)
    assert same_but_for_names(*models) is same
