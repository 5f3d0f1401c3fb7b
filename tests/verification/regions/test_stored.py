"""Stored numbers that keep their name: a weight into which a scale was folded is judged by what is computed from it."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.breadth import sampled

import surgery
from surgery.base.promises import Parity
from surgery.verification.verdict.verifier import Verifier

RNG = np.random.default_rng(3)
W, B = RNG.normal(size=(8, 3, 3, 3)), RNG.normal(size=8)
SCALE, SHIFT, MEAN, VARIANCE = (RNG.uniform(0.5, 2, 8) for _ in range(4))
FACTOR = SCALE / np.sqrt(VARIANCE + 1e-5)


def _model(nodes: list[onnx.NodeProto], dims: list[int | str], /, **stored: np.ndarray) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in stored.items()]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [made], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _convs(folded: bool, joint: str, weight: np.ndarray = W, tail: str = "Relu") -> onnx.ModelProto:
    """Return Conv and BatchNormalization, or the Conv alone; `joint` is the name of its output."""
    last = helper.make_node(tail, [joint if folded else "n"], ["y"])
    if folded:
        conv = helper.make_node("Conv", ["x", "W", "B"], [joint], pads=[1, 1, 1, 1])
        scaled = weight * FACTOR[:, None, None, None]
        return _model([conv, last], ["N", 3, 8, 8], W=scaled, B=(B - MEAN) * FACTOR + SHIFT)
    nodes = [
        helper.make_node("Conv", ["x", "W", "B"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "h", "m", "v"], ["n"]),
    ]
    return _model([*nodes, last], ["N", 3, 8, 8], W=W, B=B, s=SCALE, h=SHIFT, m=MEAN, v=VARIANCE)


@pytest.mark.parametrize("tail", sampled(["Relu", "GlobalAveragePool"], 2))
@pytest.mark.parametrize("joint", ["n", "c", "other"])
def test_a_scale_folded_into_a_weight_of_the_same_name_is_close(joint: str, tail: str) -> None:
    found = surgery.verify(_convs(False, joint, tail=tail), _convs(True, joint, tail=tail))
    assert found.ok, found.verdict.message
    assert found.verdict.status == "close"


@pytest.mark.parametrize("tail", sampled(["Relu", "GlobalAveragePool"], 2))
@pytest.mark.parametrize("joint", ["n", "c", "other"])
def test_a_weight_with_a_wrong_channel_is_different(joint: str, tail: str) -> None:
    wrong = W.copy()
    wrong[5] *= 1.01
    found = surgery.verify(_convs(False, joint, tail=tail), _convs(True, joint, wrong, tail))
    assert found.verdict.status == "different", found.verdict.message


def test_the_region_of_a_folded_scale_is_enough() -> None:
    before, after = (_convs(folded, "n").SerializeToString() for folded in (False, True))
    with closing(Verifier(before)) as verifier:
        verdict = verifier.changes.compare_regions(before, after).verdict
    assert verdict.passed, verdict.message


def _lookup(name: str, table: np.ndarray, scaled: bool) -> onnx.ModelProto:
    nodes = [helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64)]
    nodes.append(helper.make_node("Gather", ["W", "i"], ["e" if scaled else name]))
    nodes += [helper.make_node("Mul", ["e", "s"], [name])] if scaled else []
    nodes.append(helper.make_node("Relu", [name], ["y"]))
    more = {"s": np.array(2.0)} if scaled else {}
    made = _model(nodes, ["N"], W=table, **more)
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    return made


def test_rows_of_a_table_that_no_input_reads_are_not_taken_for_equal() -> None:
    table = RNG.normal(size=(50_000, 4))
    other = 2 * table
    other[40_000:40_003] += 1
    found = surgery.verify(_lookup("g", table, True), _lookup("g", other, False))
    assert not found.ok
    found = surgery.verify(_lookup("g", table, True), _lookup("f", other, False))
    assert found.verdict.status in ("different", "unverified"), found.verdict.message


def test_a_number_that_unchanged_nodes_read_is_not_taken_for_another() -> None:
    first, second = (
        _model(
            [
                helper.make_node("Mul", ["x", "s"], ["a"]),
                helper.make_node("Clip", ["a", "low", "high"], ["c"]),
                helper.make_node("ArgMax", ["c"], ["y"], axis=1),
            ],
            ["N", 4],
            s=np.array(number),
            low=np.array(0),
            high=np.array(1e-3),
        )
        for number in (1.0, 1.5)
    )
    for one in (first, second):
        one.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    before, after = first.SerializeToString(), second.SerializeToString()
    with closing(Verifier(before)) as verifier:
        verdict = verifier.confirm(after, verifier.verify(after, Parity.CLOSE), Parity.CLOSE)
    assert not verdict.passed, verdict.message


def test_a_table_with_another_number_of_rows_is_not_taken_for_equal() -> None:
    """An index of -1 reads another row, but no tried input has one."""
    table = RNG.normal(size=(50_000, 4))
    longer = np.vstack([table, table[:1]])
    before, after = (_lookup("g", one, False).SerializeToString() for one in (table, longer))
    with closing(Verifier(before)) as verifier:
        verdict = verifier.confirm(after, verifier.verify(after, Parity.CLOSE), Parity.CLOSE)
    assert (verdict.status, verdict.reason) == ("unverified", "vacuous"), verdict
    assert verdict.message.endswith("; but the stored numbers of 'W' differ, but no tried input reads them")


def test_numbers_that_are_read_and_close_hide_nothing() -> None:
    """Another value differs in the largest region that is tried, but in no run."""
    weight = np.arange(1, 5)
    before, after = (
        _model(
            [
                helper.make_node("Sigmoid", ["x"], ["t0"]),
                *(helper.make_node("Tanh", [f"t{number}"], [f"t{number + 1}"]) for number in range(80)),
                helper.make_node(op, ["t80"], ["c"]),
                helper.make_node("Exp", ["c"], ["e"]),
                helper.make_node("Mul", ["x", "W"], ["p"]),
                helper.make_node("Add", ["e", "p"], ["y"]),
            ],
            ["N", 4],
            W=scaled,
        ).SerializeToString()
        for op, scaled in (("Abs", weight), ("Identity", weight * (1 + 3e-7)))
    )
    with closing(Verifier(before)) as verifier:
        assert verifier.changes.compare_regions(before, after).differing == ("c",)
        verdict = verifier.confirm(after, verifier.verify(after, Parity.CLOSE), Parity.CLOSE)
    assert verdict.passed, verdict.message
