"""Inputs for decoders with caches of keys and values, as exporters write them, and the sizes that are tried."""

from __future__ import annotations

import onnx
import pytest
from support.breadth import sampled

from surgery.interface.report import terminal
from surgery.verification.verdict.verifier import Verifier

LAYERS = 2
STARTS = """
    e = Gather(table, ids)
    shape = Shape(ids) new = Gather<axis = 0>(shape, c1) cache = Shape(k0) past = Gather<axis = 0>(cache, c2)
    length = Add(past, new) queries = Range(past, length, c1) keys = Range(c0, length, c1)
    row = Unsqueeze(queries, a1) column = Unsqueeze(keys, a0) causal = LessOrEqual(column, row)
    causal4 = Unsqueeze(causal, a01) seen = Cast<to = 9>(mask)
"""
CUTS = {
    "slice": "end = Unsqueeze(length, a0) cut = Slice(seen, a0, end, a1)",
    "gather": "cut = Gather<axis = 1>(seen, keys)",
}
LAYER = """
    q@ = MatMul(h@, w) qr@ = Reshape(q@, split) qt@ = Transpose<perm = [0, 2, 1, 3]>(qr@)
    nk@ = Concat<axis = 2>(k@, qt@) nv@ = Concat<axis = 2>(v@, qt@) t@ = Transpose<perm = [0, 1, 3, 2]>(nk@)
    s@ = MatMul(qt@, t@) m@ = Add(s@, bias) p@ = Softmax(m@) c@ = MatMul(p@, nv@)
    ct@ = Transpose<perm = [0, 2, 1, 3]>(c@) cr@ = Reshape(ct@, join) h# = Add(h@, cr@)
"""
CONSTANTS = """int64 c0 = {0}, int64 c1 = {1}, int64 c2 = {2}, int64[1] a0 = {0}, int64[1] a1 = {1},
    int64[2] a01 = {0, 1}, int64[2] a12 = {1, 2}, float zero = {0}, float low = {-10000},
    int64[4] split = {0, 0, 2, 4}, int64[3] join = {0, 0, 8}"""


def _numbers(name: str, rows: int) -> str:
    return f"float[{rows},8] {name} = {{{', '.join(str((i * 7 % 23 - 11) / 16) for i in range(8 * rows))}}}"


def decoder(cut: str, independent: bool) -> bytes:
    inputs = ["int64[B,S] ids", f"int64[{'MB' if independent else 'B'},T] mask"]
    for layer in range(LAYERS):
        for kind in "kv":
            batch, past = (f"{kind}{layer}_0", f"{kind}{layer}_2") if independent else ("B", "P")
            inputs.append(f"float[{batch},2,{past},4] {kind}{layer}")
    layers = "".join(LAYER.replace("@", str(n)).replace("#", str(n + 1)) for n in range(LAYERS)).replace("h0", "e")
    mask = f"{CUTS[cut]} cut4 = Unsqueeze(cut, a12) both = And(causal4, cut4) bias = Where(both, zero, low)"
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g ({", ".join(inputs)}) => (float[X,Y,8] h{LAYERS})
        <{CONSTANTS}, {_numbers("table", 11)}, {_numbers("w", 8)}> {{ {STARTS} {mask} {layers} }}"""
    return onnx.parser.parse_model(text).SerializeToString()


@pytest.mark.parametrize("independent", sampled([False, True], 2), ids=["named-alike", "named-apart"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_sliced_mask_is_long_enough(cut, independent):
    verifier = Verifier(decoder(cut, independent))
    verifier.original.prepare()
    assert verifier.original.problem is None, verifier.original.problem
    points = [entry["dims"] for entry in verifier.original.bindings if "refused" not in entry]
    past = "k0_2" if independent else "P"
    assert any(point["T"] >= point["S"] + point[past] > point["S"] + 1 > 2 for point in points)
    for name in ("B", "S", past):
        assert len({point[name] for point in points}) > 2, name


def test_a_broadcast_size_is_tried_even_if_another_is_refused():
    """At N = 2 neither runs, at N = 3 both are right, at N = 1 only the first repeats its rows."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N,3] x) => (float[M,3] y)
        <float k = {0.3}, float[3,1] z = {0, 0, 0}> { a = Mul(x, k) y = Add(a, z) }"""
    right = onnx.parser.parse_model(text)
    wrong = onnx.parser.parse_model(text.replace("a = Mul(x, k) y = Add(a, z)", "y = Mul(x, k)"))
    verifier = Verifier(right.SerializeToString())
    assert verifier.verify(wrong.SerializeToString()).status == "different"
    used = {entry["dims"]["N"] for entry in verifier.original.bindings if "refused" not in entry}
    refused = {entry["dims"]["N"] for entry in verifier.original.bindings if "refused" in entry}
    assert used >= {1, 3}
    assert 2 in refused
    assert terminal.refused_sizes(verifier.original.bindings) == ["sizes rejected by the original: N = 2"]


@pytest.mark.parametrize("dims", ["N", "N,M", "N,M,K", "A,B,C,D"])
def test_every_dim_is_tried_at_one_two_and_a_larger_odd_size(dims):
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[{dims}] x) => (float[{dims}] y) {{ y = Neg(x) }}'
    verifier = Verifier(onnx.parser.parse_model(text).SerializeToString())
    verifier.original.prepare()
    points = [entry["dims"] for entry in verifier.original.bindings if "refused" not in entry]
    for name in dims.split(","):
        sizes = {point[name] for point in points}
        assert sizes >= {1, 2}
        assert any(size % 2 and size > 2 for size in sizes)
    assert len(points) <= 32, "further points take the place of others"
