"""What single operators require of extents, and what they make of them, given shapes with symbols."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from surgery.model.graph import text
from surgery.verification.inputs.aliases import aliases
from surgery.verification.inputs.broadcasts import meeting
from surgery.verification.inputs.contrib_constraints import contrib_pairs
from surgery.verification.inputs.demands import Demand, demands
from surgery.verification.inputs.dim_constraints import _weighed
from surgery.verification.inputs.factors import factors, product

Dims = list[Any]


class Known:
    """A graph of nodes of the inputs x, z and w and the tensors `i`, with known shapes and elements of values."""

    def __init__(self, body: str, opset: int = 18, **known: Dims) -> None:
        header = "g (float x, float z, float w, int64 n) => (float out) <int64[3] i = {0, 2, -4}>"
        model = text.parse(f"{header} {{ {body} out = Identity(x) }}", opset=opset)
        self.graph = ir.from_proto(model).graph
        self.nodes = [node for node in self.graph if node.outputs[0].name != "out"]
        self.known: Mapping[str, Dims] = known

    def shape(self, value: ir.Value | None) -> Dims | None:
        return None if value is None else self.known.get(str(value.name))

    def elements(self, value: ir.Value | None) -> Dims | None:
        return None if value is None else self.known.get(f"{value.name}_elements")


DEMANDS = {
    "a window": (
        "y = MaxPool<kernel_shape = [2]>(x)",
        {"x": ["N", 3, "W"], "y": ["N", 3, "W - 1"]},
        [("N", 1, "least"), ("W - 1", 1, "least")],
    ),
    "a slice": ("y = Slice(x, i, i)", {"x": ["N"], "y": ["s", 2]}, [("s", 1, "least")]),
    "a reflection": (
        'y = Pad<mode = "reflect">(x, n)',
        {"x": ["N", "W"], "n_elements": [0, 3, 0, 2]},
        [("W", 4, "least")],
    ),
    "a reflection along axes": (
        'y = Pad<mode = "reflect">(x, n, , w)',
        {"x": ["N", "W", "H"], "n_elements": [1, 5], "w_elements": [-2]},
        [("W", 6, "least")],
    ),
    "a reflection of unknown size": ('y = Pad<mode = "reflect">(x, n)', {"x": ["N"], "n_elements": [1]}, []),
    "a pad with zeros": ("y = Pad(x, n)", {"x": ["N", "W"], "n_elements": [0, 3, 0, 2]}, []),
    "a reshape": ("y = Reshape(x, n)", {"x": ["N", "W", 4], "n_elements": ["N", 12]}, [("4*W", 12, "")]),
    "a reshape with an open dim": (
        "y = Reshape(x, n)",
        {"x": ["N", "W", 4], "n_elements": [-1, 6]},
        [("Mod(4*N*W, 6)", 0, "")],
    ),
    "a reshape that always fits": ("y = Reshape(x, n)", {"x": ["N", 4], "n_elements": [-1, 2]}, []),
    "a reshape to an extent": ("y = Reshape(x, n)", {"x": ["N", 4], "n_elements": [-1, "W"]}, [("Mod(4*N, W)", 0, "")]),
    "indices": ("y = Gather(x, i)", {"x": ["N", "W"]}, [("N", 4, "least")]),
    "indices along an axis": ("y = GatherElements<axis = -1>(x, i)", {"x": ["N", "W"]}, [("W", 4, "least")]),
    "indices beyond the axes": ("y = Gather<axis = 2>(x, i)", {"x": ["N", "W"]}, []),
    "computed indices": ("y = Gather(x, n)", {"x": ["N", "W"]}, []),
    "parts": ("y, v = Split<axis = 1>(x, n)", {"x": ["N", "W"], "n_elements": [3, 4]}, [("W", 7, "")]),
    "equal parts": ("y, v = Split<num_outputs = 2>(x)", {"x": ["N", "W"]}, []),
    "computed parts": ("y, v = Split(x, n)", {"x": ["N", "W"], "n_elements": [3, "P"]}, []),
    "blocks": (
        "y = SpaceToDepth<blocksize = 2>(x)",
        {"x": ["N", 3, "H", "W"]},
        [("Mod(H, 2)", 0, ""), ("Mod(W, 2)", 0, "")],
    ),
    "the largest": ("y, v = TopK(x, n)", {"x": ["N", "W"], "n_elements": [5]}, [("W", 5, "least")]),
    "the largest along an axis": (
        "y, v = TopK<axis = 0>(x, n)",
        {"x": ["N", "W"], "n_elements": ["K"]},
        [("N", "K", "least")],
    ),
    "a number of the largest": ("y, v = TopK<k = 3>(x)", {"x": ["N", "W"]}, [("W", 3, "least")]),
    "an unknown number of the largest": ("y, v = TopK(x, n)", {"x": ["N", "W"]}, []),
    "the largest beyond the axes": ("y, v = TopK<axis = 2>(x, n)", {"x": ["N", "W"], "n_elements": [5]}, []),
    "parts as an attribute": ("y, v = Split<axis = -1, split = [3, 4]>(x)", {"x": ["N", "W"]}, [("W", 7, "")]),
    "parts beyond the axes": ("y, v = Split<axis = 2>(x, n)", {"x": ["N", "W"], "n_elements": [3, 4]}, []),
    "a reflection as an attribute": (
        'y = Pad<mode = "reflect", pads = [0, 3, 0, 4]>(x)',
        {"x": ["N", "W"]},
        [("W", 5, "least")],
    ),
    "a reflection of opset 1": (
        'y = Pad<mode = "reflect", paddings = [1, 0, 0, 0]>(x)',
        {"x": ["N", "W"]},
        [("N", 2, "least")],
    ),
    "a reflection along unknown axes": (
        'y = Pad<mode = "reflect">(x, n, , w)',
        {"x": ["N", "W"], "n_elements": [1, 5]},
        [],
    ),
    "a reflection beyond the axes": (
        'y = Pad<mode = "reflect">(x, n, , w)',
        {"x": ["N", "W"], "n_elements": [1, 5], "w_elements": [2]},
        [],
    ),
    "a reflection of a computed size": (
        'y = Pad<mode = "reflect">(x, n)',
        {"x": ["N"], "n_elements": ["P", 2]},
        [("N", 3, "least")],
    ),
    "a cut on one side": ('y = Pad<mode = "reflect">(x, n)', {"x": ["N"], "n_elements": [-1, 0]}, []),
    "a reshape to pairs": ("y = Reshape(x, n)", {"x": ["N", "W"], "n_elements": [-1, 2]}, [("Mod(N*W, 2)", 0, "")]),
    "a reshape that cannot fit": ("y = Reshape(x, n)", {"x": [3, 4], "n_elements": [-1, 5]}, [("Mod(12, 5)", 0, "")]),
    "a reshape to all": ("y = Reshape(x, n)", {"x": ["N", 4], "n_elements": [-1]}, []),
    "a reshape to something unknown": ("y = Reshape(x, n)", {"x": ["N", 4]}, []),
    "a reshape of nothing": ("y = Reshape(x, n)", {"x": ["N", 0], "n_elements": [4]}, []),
    "blocks of 1": ("y = SpaceToDepth(x)", {"x": ["N", 3, "H", 4]}, [("Mod(H, 1)", 0, ""), ("Mod(4, 1)", 0, "")]),
    "frames": ("y = STFT(x, z)", {"x": ["N", "W", 1], "y": ["N", "F", 9, 2]}, [("N", 1, "least"), ("F", 1, "least")]),
    "an unknown shape": ("y = Gather(x, i)", {}, []),
}


@pytest.mark.parametrize("what", DEMANDS)
def test_an_operator_demands(what: str) -> None:
    body, known, expected = DEMANDS[what]
    graph = Known(body, **known)
    found = demands(graph.graph, graph.shape, graph.elements, lambda _: ())
    assert [*found] == [Demand(left, right, least=bool(least)) for left, right, least in expected]
    assert {*found.values()} <= {f"{graph.nodes[0].op_type} 'y'"}


@pytest.mark.parametrize(
    ("node", "pairs", "expected"),
    [
        ("Add(x, z)", [("N", "M"), ("K", 1)], [Demand("N", "M", broadcast=True)]),
        ("Concat<axis = 0>(x, z)", [("N", "M"), ("K", 1)], [Demand("N", "M"), Demand("K", 1)]),
        ("Conv(x, z)", [("C", 3)], [Demand("C", 3), Demand("N", 1, least=True)]),
        ("MaxPool<kernel_shape = [2]>(x)", [("C", 3)], [Demand("N", 1, least=True)]),
    ],
)
def test_operands_agree_or_are_broadcast(node: str, pairs: Any, expected: list[Demand]) -> None:
    graph = Known(f"y = {node}", y=["N", 2, 3])
    found = demands(graph.graph, graph.shape, graph.elements, lambda node: pairs if node.op_type != "Identity" else ())
    assert [*found] == expected


def test_an_output_has_elements_and_branches_come_last() -> None:
    body = """y = If(w) <then_branch = t () => (float a) { a = Gather(x, i) }, else_branch = e () => (float b) {
        b = Identity(z) }> u, v = TopK(x, n)"""
    graph = Known(body, x=["N", 4], n_elements=[7], out=["N", 4])
    found = demands(graph.graph, graph.shape, graph.elements, lambda _: ())
    assert found == {
        Demand(4, 7, least=True): "TopK 'u'",
        Demand("N", 4, least=True): "Gather 'a'",
        Demand("N", 1, least=True): "output 'out'",
    }
    assert next(iter(found)).left == 4


ALIASES = {
    "a broadcast": ("y = Add(x, z)", {"x": ["N", "W"], "z": [1, "P"], "y": ["N", "_d0"]}, {"_d0": "W"}),
    "a broadcast of one": ("y = Add(x, z)", {"x": ["N", 1], "z": ["P"], "y": ["N", "_d0"]}, {"_d0": "P"}),
    "a known dim": ("y = Add(x, z)", {"x": ["N", "W"], "z": ["W"], "y": ["N", "W"]}, {}),
    "a window that keeps sizes": (
        'y = MaxPool<kernel_shape = [3, 3], auto_pad = "SAME_UPPER", strides = [1, 2]>(x)',
        {"x": ["N", 3, "H", "W"], "y": ["N", 3, "_d0", "_d1"]},
        {"_d0": "H", "_d1": "floor((W) / 2 + 1/2)"},
    ),
    "a window without strides": (
        'y = MaxPool<kernel_shape = [3], auto_pad = "SAME_LOWER">(x)',
        {"x": ["N", 3, "H"], "y": ["N", 3, "_d0"]},
        {"_d0": "H"},
    ),
    "another window": ("y = MaxPool<kernel_shape = [3]>(x)", {"x": ["N", 3, "H"], "y": ["N", 3, "_d0"]}, {}),
    "an open dim": (
        "y = Reshape(x, n)",
        {"x": ["N", "W", 6], "n_elements": ["N", -1, 4], "y": ["N", "_d0", 4]},
        {"_d0": "floor(6*W / (4))"},
    ),
    "an open dim of all": ("y = Reshape(x, n)", {"x": ["N", "W"], "n_elements": [-1], "y": ["_d0"]}, {"_d0": "N*W"}),
    "a slice": (
        "y = Slice(x, n, w)",
        {"x": ["N", "W"], "n_elements": [2], "w_elements": [-1], "y": ["_d0", "W"]},
        {"_d0": "Max(0, Max(0, Min(N, (N) + -1)) - Max(0, Min(N, 2)))"},
    ),
    "a slice along an axis": (
        "y = Slice(x, n, w, z)",
        {"x": ["N", "W"], "n_elements": [0], "w_elements": ["K"], "z_elements": [1], "y": ["N", "_d0"]},
        {"_d0": "Max(0, Max(0, Min(W, K)) - Max(0, Min(W, 0)))"},
    ),
    "a slice with a step": (
        "y = Slice(x, n, w, z, z)",
        {"x": ["N", "W"], "n_elements": [0], "w_elements": ["K"], "z_elements": [2], "y": ["_d0", "W"]},
        {},
    ),
    "a difference": (
        "y = Sub(x, z)",
        {"x_elements": ["N", "W"], "z_elements": [1], "y_elements": ["_d0", "_d1"]},
        {"_d0": "(N) - (1)", "_d1": "(W) - (1)"},
    ),
    "a quotient": (
        "y = Div(x, z)",
        {"x_elements": ["N"], "z_elements": ["W"], "y_elements": ["_d0"]},
        {"_d0": "truncated((N) / (W))"},
    ),
    "sums": ("y = Add(x, z)", {"x_elements": ["N"], "z_elements": [2], "y_elements": ["N + 2"]}, {}),
    "the larger": (
        "y = Max(x, z, w)",
        {"x_elements": ["N"], "z_elements": [2], "w_elements": ["W"], "y_elements": ["_d0"]},
        {"_d0": "Max((N), (2), (W))"},
    ),
    "an unknown operand": ("y = Mul(x, z)", {"x_elements": ["N"], "y_elements": ["_d0"]}, {}),
    "a row and a column": (
        "y = Add(x, z)",
        {"x_elements": ["N", "W", "P"], "z_elements": [1, 2], "y_elements": ["_d0", "_d1", "_d2"]},
        {},
    ),
    "a broadcast to a longer shape": (
        "y = Add(x, z)",
        {"x": ["P"], "z": ["M", "P"], "y": ["_d0", "P"]},
        {"_d0": "M"},
    ),
    "a window over an unknown image": (
        'y = MaxPool<kernel_shape = [3], auto_pad = "SAME_UPPER">(x)',
        {"y": ["N", 3, "_d0"]},
        {},
    ),
    "a window over an image of another rank": (
        'y = MaxPool<kernel_shape = [3], auto_pad = "SAME_UPPER">(x)',
        {"x": ["N", 3, "H", "W"], "y": ["N", 3, "_d0"]},
        {},
    ),
    "a window that keeps a known size": (
        'y = MaxPool<kernel_shape = [3], auto_pad = "SAME_UPPER">(x)',
        {"x": ["N", 3, "H"], "y": ["N", 3, "H"]},
        {},
    ),
    "an open dim with a known extent": (
        "y = Reshape(x, n)",
        {"x": ["N", "W", 6], "n_elements": ["N", -1, 4], "y": ["N", "3*W", 4]},
        {},
    ),
    "an open dim with a number": ("y = Reshape(x, n)", {"x": [4, "N"], "n_elements": [-1, "N"], "y": [4, "N"]}, {}),
    "two open dims": ("y = Reshape(x, n)", {"x": ["N"], "n_elements": [-1, -1], "y": ["_d0", "_d1"]}, {}),
    "an open dim of another rank": ("y = Reshape(x, n)", {"x": ["N"], "n_elements": [-1, 2], "y": ["_d0"]}, {}),
    "a slice along an unknown axis": (
        "y = Slice(x, n, w, z)",
        {"x": ["N", "W"], "n_elements": [0], "w_elements": ["K"], "z_elements": ["A"], "y": ["N", "_d0"]},
        {},
    ),
    "a slice along an axis that there is not": (
        "y = Slice(x, n, w, z)",
        {"x": ["N", "W"], "n_elements": [0], "w_elements": ["K"], "z_elements": [2], "y": ["N", "_d0"]},
        {},
    ),
    "a slice along the last axis with the step 1": (
        "y = Slice(x, n, w, i, z)",
        {"x": ["N", "W"], "n_elements": [0], "w_elements": ["K"], "i_elements": [-1], "z_elements": [1]}
        | {"y": ["N", "_d0"]},
        {"_d0": "Max(0, Max(0, Min(W, K)) - Max(0, Min(W, 0)))"},
    ),
    "a slice of an unknown value": (
        "y = Slice(x, n, w)",
        {"n_elements": [0], "w_elements": ["K"], "y": ["_d0"]},
        {},
    ),
    "a slice up to an unknown position": ("y = Slice(x, n, w)", {"x": ["N"], "n_elements": [0], "y": ["_d0"]}, {}),
    "itself": ("y = Mul(x, z)", {"x_elements": ["_d0"], "z_elements": [2], "y_elements": ["_d0"]}, {}),
}


@pytest.mark.parametrize("what", ALIASES)
def test_a_new_symbol_gets_an_expression(what: str) -> None:
    body, known, expected = ALIASES[what]
    graph = Known(body, **known)
    assert aliases(graph.nodes, graph.shape, graph.elements) == expected


@pytest.mark.parametrize(
    ("body", "known", "expected"),
    [
        ("y = Add(x, z)", {"x": ["N", "W"], "z": ["P"]}, [["W", "P"], ["P", "W"]]),
        ("y = Add(x, z)", {"x": ["N", "W"], "z": ["W"]}, []),
        ("y = Add(x, z)", {"x": ["N", "W"], "z": [1]}, []),
        ("y = Add(x, z)", {"x": ["N", "_d"], "z": ["P + 1"]}, [["N", "P"]]),
        (
            "y = Where(w, x, z)",
            {"w": ["N"], "x": ["W"], "z": ["P"]},
            [["N", "W"], ["W", "N"], ["N", "P"], ["P", "N"], ["W", "P"], ["P", "W"]],
        ),
        ("y = Expand(x, n)", {"x": ["N"], "n_elements": ["P", "W"]}, [["N", "W"], ["W", "N"]]),
        ("y = MatMul(x, z)", {"x": ["N", 2, 3], "z": ["P", 3, "W"]}, [["N", "P"], ["P", "N"]]),
        ("y = Gemm(x, z, w)", {"x": ["N", 3], "z": [3, "W"], "w": ["P"], "y": ["N", "W"]}, [["W", "P"], ["P", "W"]]),
        (
            'y = Einsum<equation = "...ij, jk -> ...ik">(x, z)',
            {"x": ["N", 2, "W"], "z": ["P", 4]},
            [["W", "P"], ["P", "W"]],
        ),
        (
            'y = Einsum<equation = "a...,a...">(x, z)',
            {"x": ["N", "W"], "z": ["P", 2, "K"]},
            [["N", "P"], ["P", "N"], ["W", "K"], ["K", "W"]],
        ),
        ('y = Einsum<equation = "a...b,b->a...">(x, z)', {"x": ["N", 2, "W"], "z": ["P"]}, [["W", "P"], ["P", "W"]]),
        ('y = Einsum<equation = "a,b,b">(x, z, w)', {"z": ["W"], "w": ["P"]}, [["W", "P"], ["P", "W"]]),
        ('y = Einsum<equation = "ab,b">(x, z)', {"x": ["N"], "z": ["P"]}, []),
        ("y = Einsum(x, z)", {"x": ["N"], "z": ["P"]}, []),
        ("y = Expand(x, n)", {"n_elements": ["P"]}, []),
        ("y = MatMul(x, z)", {"x": ["N", 2, 3]}, []),
        ("y = Concat<axis = 0>(x, z)", {"x": ["N", "W"], "z": ["P", "K"]}, []),
    ],
)
def test_dims_that_meet_in_a_broadcast(body: str, known: dict[str, Dims], expected: list[list[str]]) -> None:
    graph = Known(body, **known)
    names = {name: name for name in "NWPK"}
    assert meeting(graph.nodes, graph.shape, graph.elements, names, {"_d": "N"}) == expected


@pytest.mark.parametrize(
    ("data", "target", "sides"),
    [
        (["N", 4], ["N", -1], ([4], [1])),
        (["N", "W", 4], ["W", 2, "K"], ([4, "N"], [2, "K"])),
        (["N", "W"], ["N", "W"], ([1], [1])),
        (["N", "W"], [0, 3], (["W"], [3])),
        (["N", 0], ["N"], None),
        (["N"], [0, 0], None),
        (["N", 4], ["N", 2, 2], ([4], [4])),
        (["N"], [2, 0], None),
    ],
)
def test_common_factors_cancel(data: Dims, target: Dims, sides: Any) -> None:
    assert factors(data, target) == sides


def test_a_product_is_an_expression() -> None:
    assert [product(one) for one in ([7], ["N"], [2, "N", "W + 1"])] == [7, "N", "2*N*(W + 1)"]
    assert math.prod([]) == 1


Q, K, V, PAST = ["B", "S", 8], ["C", "T", 8], ["D", "U", 8], ["E", 2, "P", 4]
MHA = [Q, K, V, None]
CONTRIB = {
    "heads": ("MultiHeadAttention", [Q, K, V], [("B", "C"), ("B", "D"), ("T", "U")]),
    "heads of packed keys": ("MultiHeadAttention", [Q, ["C", "T", 2, 2, 4]], [("B", "C")]),
    "heads of keys by head": (
        "MultiHeadAttention",
        [Q, ["C", 2, "T", 4], ["D", 2, "U", 4]],
        [("B", "C"), ("B", "D"), ("T", "U")],
    ),
    "a mask of heads": (
        "MultiHeadAttention",
        [*MHA, ["M", "L"]],
        [("B", "C"), ("B", "D"), ("T", "U"), ("M", "B"), ("L", "T")],
    ),
    "a mask of queries": (
        "MultiHeadAttention",
        [Q, None, None, None, ["M", "O", "L"]],
        [("M", "B"), ("L", "S"), ("O", "S")],
    ),
    "lengths as a mask": ("MultiHeadAttention", [Q, None, None, None, ["M"]], []),
    "a bias": ("MultiHeadAttention", [Q, K, None, None, None, [1, 2, "O", "L"]], [("B", "C"), ("O", "S"), ("L", "T")]),
    "a past of heads": (
        "MultiHeadAttention",
        [Q, K, None, None, ["M", "L"], None, PAST, ["F", 2, "R", 4]],
        [("B", "C"), ("B", "E"), ("B", "F"), ("P", "R"), ("M", "B"), ("L", "(P) + (T)")],
    ),
    "a buffer of heads": (
        "MultiHeadAttention",
        [Q, K, None, None, ["M", "L"], None, PAST, None, [1]],
        [("B", "C"), ("B", "E")],
    ),
    "an unknown query": ("MultiHeadAttention", [None, K, V], []),
    "attention": (
        "Attention",
        [Q, None, None, ["M", "O", "L"], [2, "E", 2, "P", 4], [1, 2, "X", "Y"]],
        [("B", "E"), ("M", "B"), ("L", "(P) + (S)"), ("O", "S"), ("X", "S"), ("Y", "(P) + (S)")],
    ),
    "attention with a buffer": ("Attention", [Q, None, None, ["M", "L"], None, None, [1]], []),
    "attention of nothing known": ("Attention", [None], []),
    "a decoder": (
        "DecoderMaskedMultiHeadAttention",
        [Q, K, V, None, None, PAST, ["F", 2, "R", 4]],
        [("B", "C"), ("B", "D"), ("T", "U"), ("B", "E"), ("B", "F"), ("P", "R")],
    ),
    "groups": (
        "GroupQueryAttention",
        [Q, K, V, PAST, ["F", 2, "R", 4], ["L"], ["t"], None, None, ["X", "Y"]],
        [
            ("B", "C"),
            ("S", "T"),
            ("B", "D"),
            ("S", "U"),
            ("B", "E"),
            ("B", "F"),
            ("P", "R"),
            ("L", "B"),
            ("X", "B"),
            ("Y", "S"),
        ],
    ),
    "embeddings": (
        "EmbedLayerNormalization",
        [["B", "S"], ["C", "T"], *[None] * 5, ["D", "U"], ["E", "P"]],
        [("B", "C"), ("S", "T"), ("B", "D"), ("S", "U"), ("S", "P")],
    ),
    "rotation": ("RotaryEmbedding", [Q, ["X", "Y"]], [("B", "X"), ("S", "Y")]),
    "rotation by head": ("RotaryEmbedding", [PAST, ["X", "Y"]], [("E", "X"), ("P", "Y")]),
    "rotation by an offset": ("RotaryEmbedding", [Q, [1]], []),
    "a bias of elements": ("BiasGelu", [["B", "S"], ["T"]], [("S", "T")]),
    "sums of elements": ("BiasAdd", [["B", "S"], ["T"], ["D", "U"]], [("S", "T"), ("S", "U"), ("B", "D")]),
    "quantized sums": ("QLinearAdd", [["B", "S"], [7], [7], ["T"]], [("S", "T")]),
    "quantized products": ("QLinearMul", [["B", "S"], [7], [7], ["T"]], [("S", "T")]),
    "a quantized choice": ("QLinearWhere", [["B", "S"], ["T"], [7], [7], ["U"]], [("S", "T"), ("S", "U")]),
    "a fast Gelu": ("FastGelu", [["B", "S"], ["T"]], [("S", "T")]),
    "another operator": ("Gelu", [["B", "S"], ["T"]], []),
}


@pytest.mark.parametrize("what", CONTRIB)
def test_extents_that_operators_of_the_runtime_require_to_be_equal(what: str) -> None:
    op, shapes, expected = CONTRIB[what]
    node = ir.from_proto(onnx.helper.make_node(op, [f"i{n}" for n in range(10)], ["y"], domain="com.microsoft"))
    assert [*contrib_pairs(node, shapes, lambda _: None)] == expected


def test_the_total_length_is_the_sum_of_the_past_and_the_new_positions() -> None:
    node = ir.from_proto(onnx.helper.make_node("GroupQueryAttention", ["q"], ["y"], domain="com.microsoft"))
    asked: list[int] = []

    def elements(index: int) -> Dims:
        asked.append(index)
        return ["t"]

    assert [*contrib_pairs(node, [Q], elements)] == [("t", "S")] and asked == [6]
    assert next(contrib_pairs(node, [Q, None, None, PAST], elements)) == ("t", "(P) + (S)")
    assert [*contrib_pairs(node, [None], elements)] == []


@pytest.mark.parametrize(
    ("shapes", "pairs"),
    [
        ([["T", "N", "F"], [1, 8, "G"], [1, 8, "H"]], [("F", "G")]),
        ([["T", "N", "F"], [1, 8, "G"], [1, 8, "H"], None, None, [1, "N", "S"]], [("F", "G"), ("S", "H")]),
        ([["T", "N", "F"], None, [1, 8, "H"], None, None, [1, "N", "S"], [1, "N", "C"]], [("S", "H"), ("C", "H")]),
        ([None, [1, 8, "G"], None, None, None, [1, "N", "S"]], []),
        ([["T", "N", "F"], [8, "G"], [1, 8, "H"], None, None, ["S"]], []),
    ],
)
def test_weights_of_recurrent_operators_decide_features(shapes: Any, pairs: Any) -> None:
    assert [*_weighed(shapes)] == pairs
