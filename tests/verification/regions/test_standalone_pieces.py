"""Nodes of a model as standalone pieces: under which names values are read and made, and what comes along."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from surgery.model.graph import text
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.regions import _piece, nudged

BODY = "a = Neg(x) b = Mul(a, w) c = Exp(b) y = Add(c, v)"


def _model(body: str = BODY) -> onnx.ModelProto:
    model = text.parse(f"g (float[2] x, bool q) => (float[2] y) {{ {body} }}", opset=18)
    for name in ("w", "v"):
        model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2], np.float32), name))
    for name in ("s", "t"):
        values = numpy_helper.from_array(np.array([5], np.float32), name)
        indices = numpy_helper.from_array(np.array([1], np.int64), f"{name}/at")
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
    return model


def _cut(numbers: str, targets: str, given: str, body: str = BODY) -> onnx.ModelProto:
    side = Definitions(_model(body).SerializeToString())
    return _piece(side, tuple(targets), {*map(int, numbers)}, {*given})


def _written(piece: onnx.ModelProto) -> str:
    return " ".join(f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})" for node in piece.graph.node)


@pytest.mark.parametrize(
    ("numbers", "targets", "given", "nodes", "stored"),
    [
        ("12", "c", "a", "b = Mul(a, w) c/made = Exp(b)", "w"),
        ("0123", "y", "x", "a = Neg(x) b = Mul(a, w) c = Exp(b) y/made = Add(c, v)", "wv"),
        ("3", "y", "cv", "y/made = Add(c, v)", ""),
        # A target that others read, too; they are given it, or they are not.
        ("123", "by", "a", "b/made = Mul(a, w) c = Exp(b/made) y/made = Add(c, v)", "wv"),
        ("123", "by", "ab", "b/made = Mul(a, w) c = Exp(b) y/made = Add(c, v)", "wv"),
        # Targets that no node of the piece makes.
        ("", "x", "", "x/made = Identity(x)", ""),
        ("", "w", "", "w/made = Identity(w)", "w"),
        ("1", "w", "aw", "b = Mul(a, w) w/made = Identity(w/stored)", "w/stored"),
    ],
)
def test_nodes_that_are_cut_out(numbers: str, targets: str, given: str, nodes: str, stored: Any) -> None:
    piece = _cut(numbers, targets, given)
    assert _written(piece) == nodes
    assert [tensor.name for tensor in piece.graph.initializer] == ([stored] if "/" in stored else [*stored])
    assert not piece.graph.sparse_initializer and not piece.graph.input and not piece.graph.output


def test_sparse_numbers_come_along_where_they_are_read_and_not_given() -> None:
    body = "a = Mul(x, s) b = Add(a, t) y = Neg(b)"
    for numbers, given, kept in (("01", "x", "st"), ("0", "x", "s"), ("1", "a", "t"), ("01", "xs", "t"), ("", "b", "")):
        found = _cut(numbers, "b" if "1" in numbers else "a", given, body).graph.sparse_initializer
        assert [tensor.values.name for tensor in found] == [*kept]


def test_values_that_subgraphs_read_keep_their_names() -> None:
    branches = "then_branch = t () => (float[2] p) { p = Neg(a) }, else_branch = e () => (float[2] p) { p = Abs(a) }"
    body = f"a = Neg(x) b = If(q) <{branches}> y = Exp(b)"
    assert _written(_cut("01", "ab", "xq", body)) == "a = Neg(x) b/made = If(q) a/made = Identity(a)"


def test_a_piece_is_of_a_version_in_which_initializers_are_no_inputs() -> None:
    model = _model()
    for version, expected in ((3, 4), (4, 4), (9, 9)):
        model.ir_version = version
        piece = _piece(Definitions(model.SerializeToString()), ("b",), {1}, {"a"})
        assert piece.ir_version == expected and piece.opset_import == model.opset_import


def test_labels_and_functions_of_nodes() -> None:
    model = _model("a = d.F(x) y = Neg(a)")
    for name in "FG":
        model.functions.add(name=name, domain="d").node.extend(text.parse_nodes("y = Neg(x)"))
    node = model.graph.node[0]
    node.doc_string, node.name = "about it", "its name"
    node.metadata_props.add(key="k", value="v")
    piece = _piece(Definitions(model.SerializeToString()), ("a",), {0}, {"x"})
    assert [function.name for function in piece.functions] == ["F"]
    (copy,) = piece.graph.node
    assert (copy.doc_string, copy.name, len(copy.metadata_props)) == ("", "its name", 0)
    assert not _piece(Definitions(model.SerializeToString()), ("y",), {1}, {"a"}).functions


# Nudging


@pytest.mark.parametrize("element_type", [TensorProto.FLOAT, TensorProto.DOUBLE, 0])
def test_elements_are_nudged_by_a_hundredth_at_most(element_type: int) -> None:
    piece = _model("a = Neg(x) b = Exp(a) y = Identity(a)")
    found = nudged(piece, "a", element_type)
    assert found is not None and [node.op_type for node in piece.graph.node] == ["Neg", "Exp", "Identity"]
    dtype = np.float64 if element_type == TensorProto.DOUBLE else np.float32
    given = np.array([0.0, 0.5, -2.0, 30.0], dtype)
    del found.graph.output[:], found.graph.sparse_initializer[:]
    found.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("a", "b", "y"))
    nudge, after, handed = ReferenceEvaluator(found).run(None, {"x": -given})  # type: ignore[misc]
    expected = given * (1 + np.sin(1000 * given) / 100)
    expected[0] = 0.01
    np.testing.assert_allclose(nudge, expected, rtol=1e-4)
    np.testing.assert_allclose(after, np.exp(nudge), rtol=1e-6)
    assert (handed == nudge).all() and nudge.dtype == dtype


def test_only_floats_that_a_piece_makes_are_nudged() -> None:
    for name, element_type in (("a", TensorProto.INT64), ("x", TensorProto.FLOAT), ("none", 0)):
        assert nudged(_model(), name, element_type) is None
