"""Extents that operators require to be equal, and what follows for dims."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from surgery.model.graph import text
from surgery.model.shapes.facts import Fact
from surgery.verification.inputs.dim_constraints import _names, _pairs, extents, linear, solve
from surgery.verification.inputs.dim_constraints import text as written

Dims = list[Any]


def _facts(node: ir.Node, **shapes: Dims) -> dict[ir.Value, Fact]:
    """Return what is known about the inputs of a node; `n` is a list of integers with these elements."""

    def dims(shape: Dims) -> ir.Shape:
        return ir.Shape(ir.SymbolicDim(dim) if isinstance(dim, str) else dim for dim in shape)

    values = {str(value.name): value for value in node.inputs if value is not None}
    return {
        values[name]: Fact(None, ir.Shape([len(shape)]), tuple(shape)) if name == "n" else Fact(None, dims(shape))
        for name, shape in shapes.items()
    }


PAIRS: dict[str, tuple[str, dict[str, Dims], list[tuple[Any, Any]]]] = {
    "a sum": ("Add(x, z)", {"x": ["N", "W"], "z": ["P"]}, [("W", "P")]),
    "a sum of three": ("Where(w, x, z)", {"w": ["N"], "x": ["W"], "z": ["P"]}, [("N", "W"), ("W", "P")]),
    "a sum with something unknown": ("Where(w, x, z)", {"w": ["N"], "z": ["P"]}, [("N", "P")]),
    "an expansion": ("Expand(x, n)", {"x": ["N", "W"], "n": [4, "N", 5]}, [("W", 5), ("N", "N")]),
    "an expansion to an unknown shape": ("Expand(x, n)", {"x": ["N", "W"]}, []),
    "an expansion of something unknown": ("Expand(x, n)", {"n": ["N"]}, []),
    "a sum of labels": ('Einsum<equation = "ab,bc">(x, z)', {"x": ["N", "W"], "z": ["P", 3]}, [("W", "P")]),
    "a product": ("MatMul(x, z)", {"x": ["N", "S", "W"], "z": ["P", "Q", 3]}, [("W", "Q"), ("N", "P")]),
    "a product of many": ("MatMul(x, z)", {"x": ["N", "K", 2, "W"], "z": ["K", "Q", 3]}, [("W", "Q"), ("K", "K")]),
    "a product with a vector": ("MatMul(x, z)", {"x": ["N", "W"], "z": ["P"]}, [("W", "P")]),
    "a vector with a product": ("MatMul(x, z)", {"x": ["W"], "z": ["N", "P", 3]}, [("W", "P")]),
    "a product of one known shape": ("MatMul(x, z)", {"x": ["N", "W"]}, []),
    "a product of scalars": ("MatMul(x, z)", {"x": [], "z": ["N"]}, []),
    "a flipped product": ("Gemm<transA = 1>(x, z)", {"x": ["N", "W"], "z": ["P", "Q"]}, [("N", "P")]),
    "a product with a flip": ("Gemm<transB = 1>(x, z)", {"x": ["N", "W"], "z": ["P", "Q"]}, [("W", "Q")]),
    "a plain product": ("Gemm<transA = 0>(x, z)", {"x": ["N", "W"], "z": ["P", "Q"]}, [("W", "P")]),
    "joined rows": ("Concat<axis = 0>(x, z)", {"x": ["N", "W"], "z": ["P", "Q"]}, [("W", "Q")]),
    "joined columns": (
        "Concat<axis = -1>(x, z, w)", {"x": ["N", 2], "z": ["P", 3], "w": ["Q", 4]}, [("N", "P"), ("P", "Q")],
    ),
    "joined values of unlike rank": ("Concat<axis = 0>(x, z)", {"x": ["N", "W"], "z": ["P"]}, []),
    "a convolution": ("Conv(x, z)", {"x": ["N", "C", "H"], "z": [8, 3, 5]}, [("C", 3)]),
    "a convolution of groups": ("Conv<group = 2>(x, z)", {"x": ["N", "C", "H"], "z": [8, 3, 5]}, [("C", 6)]),
    "a convolution with unknown weights": ("Conv(x, z)", {"x": ["N", "C", "H"], "z": [8, "K", 5]}, []),
    "a convolution of a matrix": ("Conv(x, z)", {"x": ["N", "C"], "z": [8, 3]}, []),
    "a reshape": ("Reshape(x, n)", {"x": ["N", "W", 4], "n": ["N", 12]}, [("W", 3)]),
    "a reshape to a dim": ("Reshape(x, n)", {"x": ["N", 6, 4], "n": ["N", "W", 8]}, [("W", 3)]),
    "a reshape that does not divide": ("Reshape(x, n)", {"x": ["N", 5], "n": [12]}, []),
    "a reshape to another dim": ("Reshape(x, n)", {"x": ["N", "W"], "n": ["N", "P"]}, [("W", "P")]),
    "a reshape to two dims": ("Reshape(x, n)", {"x": ["N", "W"], "n": ["P", 6]}, []),
    "a reshape that moves dims": ("Reshape(x, n)", {"x": ["N", 4], "n": [4, "N"]}, []),
    "an open reshape": ("Reshape(x, n)", {"x": ["N", 4], "n": [-1, 2]}, []),
    "a reshape that copies": ("Reshape(x, n)", {"x": ["N", 4], "n": [0, 2]}, []),
    "a reshape of something unknown": ("Reshape(x, n)", {"n": [12]}, []),
    "a recurrent layer": (
        "LSTM(x, z, w, , , v)",
        {"x": ["T", "N", "F"], "z": [1, 8, "G"], "w": [1, 8, "H"], "v": [1, "M", "S"]},
        [("N", "M"), ("F", "G"), ("S", "H")],
    ),
    "a recurrent layer by batch": (
        "LSTM<layout = 1>(x, z, w, , l, v)",
        {"x": ["N", "T", "F"], "l": ["L"], "v": ["M", 1, 8]},
        [("N", "L"), ("N", "M")],
    ),
    "a recurrent layer of unknown rank": ("LSTM(x, z, w)", {"x": ["T", "N"], "z": [1, 8, "G"]}, []),
    "another operator": ("Transpose(x)", {"x": ["N", "W"]}, []),
    "an operator of the runtime": ("com.microsoft.FastGelu(x, z)", {"x": ["N", "W"], "z": ["P"]}, [("W", "P")]),
    "one of the same name": ("FastGelu(x, z)", {"x": ["N", "W"], "z": ["P"]}, []),
    "one of another domain": ("d.FastGelu(x, z)", {"x": ["N", "W"], "z": ["P"]}, []),
}  # fmt: skip


@pytest.mark.parametrize("what", PAIRS)
def test_extents_that_an_operator_requires_to_be_equal(what: str) -> None:
    body, shapes, expected = PAIRS[what]
    header = "g (float x, float z, float w, float v, int32 l, int64 n) => (float y)"
    (node,) = ir.from_proto(text.parse(f"{header} {{ y = {body} }}", opset=18)).graph
    assert [*_pairs(node, _facts(node, **shapes))] == expected


@pytest.mark.parametrize(
    ("pairs", "names", "expected"),
    [
        # Later dims are expressed by earlier ones.
        ([("A", "B")], "AB", {"B": {"A": 1}}),
        ([("B", "A")], "AB", {"B": {"A": 1}}),
        ([("A", 7)], "AB", {"A": {"": 7}}),
        ([("A + B", "C")], "ABC", {"C": {"A": 1, "B": 1}}),
        ([("C", "2*A + 3")], "ABC", {"C": {"A": 2, "": 3}}),
        # A difference could come out below 1: the sum is solved for instead.
        ([("A - B", "C")], "ABC", {"A": {"B": 1, "C": 1}}),
        ([("A - B", 1)], "AB", {}),
        ([("A - B", 2)], "AB", {"A": {"B": 1, "": 2}}),
        # What is known is put in, also into what was found before.
        ([("A", "B"), ("B", "C")], "ABC", {"B": {"A": 1}, "C": {"A": 1}}),
        ([("C", "A + B"), ("B", 4)], "ABC", {"C": {"A": 1, "": 4}, "B": {"": 4}}),
        # No whole number solves it, nothing is to be solved, or it is no sum.
        ([("2*A", 6)], "A", {}),
        ([("A", "A"), ("A", 1), ("A + 0", "A")], "A", {}),
        ([("A*B", "C"), ("D", "A")], "ABC", {}),
        ([("floor(A/2)", "B"), ("A", "B")], "AB", {"B": {"A": 1}}),
        ([("A", 7), ("A", 8)], "A", {"A": {"": 7}}),
        ([("A", -7)], "A", {}),
    ],
)
def test_dims_that_follow_from_others(pairs: Any, names: str, expected: Any) -> None:
    assert solve(iter(pairs), [*names]) == expected


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("N", 7), (5, "N"), ("N", 7)], {"N": [7, 5]}),
        ([("N + 1", 8), ("M", 3)], {"N": [7], "M": [3]}),
        ([("N", number) for number in range(2, 9)], {"N": [2, 3, 4, 5]}),
        ([("N", 1), ("N", 0), ("N", "M"), (4, 5), ("2*N", 8), ("N + M", 8), ("N + 9", 9), ("floor(N)", 3)], {}),
        ([("N + 8", 9)], {"N": [1]}),
    ],
)
def test_numbers_that_dims_meet(pairs: Any, expected: dict[str, list[int]]) -> None:
    assert extents(pairs, ["N", "M"]) == expected


@pytest.mark.parametrize(
    ("extent", "form", "again"),
    [
        (5, {"": 5}, "5"),
        (0, {}, "0"),
        ("my dim", {"D": 1}, "1*D"),
        ("N + 3*M - 2", {"N": 1, "M": 3, "": -2}, "1*N + 3*M + -2"),
        ("-(N - 4)", {"N": -1, "": 4}, "-1*N + 4"),
        ("(1 + 2) * N", {"N": 3}, "3*N"),
        ("N * 2 - N * 2", {}, "0"),
        ("N - N + 0", {}, "0"),
        ("N * M", None, ""),
        ("N // 2", None, ""),
        ("N +", None, ""),
        ("K", None, ""),
        ("-K", None, ""),
        ("N + K", None, ""),
        ("2.5", None, ""),
    ],
)
def test_an_extent_is_read_as_a_sum(extent: Any, form: Any, again: str) -> None:
    found = linear(extent, {"N": "N", "M": "M", "my dim": "D"})
    assert found == form
    assert found is None or written(found) == again


def test_dims_that_must_agree_with_something_else() -> None:
    assert [*_names([("N", "N"), ("N", 3), ("M", "N + 1"), (4, "K")], ["N", "M"])] == ["N", "M"]
