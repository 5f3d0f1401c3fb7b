"""Dims that meet in a broadcast are tried at 1 against a larger extent, either way, whatever else ties them."""

from __future__ import annotations

from contextlib import closing

import onnx.parser
import pytest

from surgery.base.promises import Parity
from surgery.verification.comparing.details import Status
from surgery.verification.verdict.verifier import Verifier

BROADCASTS = {
    "elementwise": ("float[B,N] x, float[C,M] y", "z = Add(x, y)", ["BC", "CB", "NM", "MN"]),
    "three_operands": ("bool[A] c, float[B] x, float[C] y", "z = Where(c, x, y)", ["AB", "BA", "AC", "CA", "BC", "CB"]),
    "batches_of_a_product": ("float[B,N,K] x, float[C,K,M] y", "z = MatMul(x, y)", ["BC", "CB"]),
    "einsum": ("float[B,N,K] x, float[C,L,M] y", 'z = Einsum<equation = "bnk,bkm->bnm">(x, y)', ["BC", "KL", "LK"]),
    "einsum_with_an_ellipsis": (
        "float[B,N,K] x, float[C,K,M] y",
        'z = Einsum<equation = "...nk,...km->...nm">(x, y)',
        ["BC", "CB"],
    ),
    "expand_to_the_shape_of_another": ("float[B,N] x, float[C,M] y", "s = Shape(y) z = Expand(x, s)", ["BC", "NM"]),
    "the_summand_of_a_product": ("float[B,K] x, float[K,M] y, float[C,D] w", "z = Gemm(x, y, w)", ["CB", "DM"]),
    "slopes": ("float[B,N] x, float[C] y", "z = PRelu(x, y)", ["CN"]),
    "a_dim_that_another_one_follows_from": (
        "float[B,N] x, float[C,N] y, float[B,N] w",
        "s = Add(x, y) t = Concat<axis = 1>(x, w) u = ReduceSum(t) z = Mul(s, u)",
        ["CB", "BC"],
    ),
    "results_of_other_broadcasts": ("float[A] x, float[B] y, float[C] w", "s = Add(x, y) z = Mul(s, w)", ["CA", "AB"]),
}


def _model(inputs: str, body: str) -> bytes:
    text = f'<ir_version: 10, opset_import: ["": 17]> g ({inputs}) => (float z) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model.SerializeToString()


@pytest.mark.parametrize("case", sorted(BROADCASTS))
def test_each_of_two_dims_is_one_where_the_other_is_larger(case: str) -> None:
    inputs, body, pairs = BROADCASTS[case]
    with closing(Verifier(_model(inputs, body))) as verifier:
        verifier.original.prepare()
        points = [run.binding.dims for run in verifier.original.runs]
    missing = [pair for pair in pairs if not any(point[pair[0]] == 1 < point[pair[1]] for point in points)]
    assert missing == []


NARROWER = {
    "einsum_as_matmul": (
        "float[B,N,K] x, float[B,L,M] y",
        'z = Einsum<equation = "bnk,bkm->bnm">(x, y)',
        "z = MatMul(x, y)",
    ),
    "sum_as_gemm": (
        "float[B,K] x, float[K,M] y, float[N,M] w",
        "p = MatMul(x, y) z = Add(p, w)",
        "z = Gemm(x, y, w)",
    ),
}


@pytest.mark.parametrize("regional", [False, True], ids=["whole", "region"])
@pytest.mark.parametrize("case", sorted(NARROWER))
def test_a_change_that_does_not_broadcast_differs(case: str, regional: bool) -> None:
    inputs, before, after = NARROWER[case]
    first, second = _model(inputs, before), _model(inputs, after)
    with closing(Verifier(first)) as verifier:
        verdict = verifier.verify(second, Parity.CLOSE, first if regional else None)
        assert verdict.status is Status.DIFFERENT, verdict.message
        assert not verifier.changes.compare_regions(first, second).verdict.passed
