"""The search for sizes: what the graph admits, sizes that are tried after a refusal, and where it ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import onnx
import onnxruntime
import pytest
from support import installed
from support.breadth import sampled

from surgery.verification.comparing.original_inputs import OriginalInputs
from surgery.verification.inputs import search
from surgery.verification.inputs.admissible import MOST
from surgery.verification.inputs.alike import guesses
from surgery.verification.inputs.cover import Cover
from surgery.verification.inputs.dim_constraints import dim_constraints, extents
from surgery.verification.inputs.dims import UNKNOWN, Dims
from surgery.verification.inputs.feed_plan import Binding, FeedPlan
from surgery.verification.inputs.input_sets import TRIVIAL
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier


def _proto(body: str) -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>\n{body}'
    return onnx.parser.parse_model(text)


def _prepared(model: onnx.ModelProto) -> Verifier:
    verifier = Verifier(model.SerializeToString(), None, VerifySpec())
    verifier.original.prepare()
    return verifier


def _found(model: onnx.ModelProto) -> list[dict[str, int]]:
    """The points at which the original was run, no two the same."""
    verifier = _prepared(model)
    assert verifier.original.problem is None, verifier.original.problem
    points = [dict(entry["dims"]) for entry in verifier.original.bindings if "refused" not in entry]
    return [point for index, point in enumerate(points) if point not in points[:index]]


def _admitted(model: onnx.ModelProto) -> dict[str, list[int]]:
    plan = FeedPlan(model, InputsSpec())
    dims = {port.name: list(port.dims) for port in plan.ports}
    return dim_constraints(model.SerializeToString(), dims, list(plan.dims.names))["admits"]


REFLECTED = """g (float[N,S] x) => (float[N,T] y) <int64[4] pads = {0, 0, 0, 1700}>
    { y = Pad<mode = "reflect">(x, pads) }"""
REFLECTED_AXES = """g (float[N,S] x) => (float[N,T] y)
    <int64[2] pads = {1700, 20}, int64[1] axes = {-1}, float zero = {0}>
    { y = Pad<mode = "reflect">(x, pads, zero, axes) }"""
BRANCHES = """g (float[N,S] x, bool b) => (float[N,T] y)
    <int64[4] pads = {0, 0, 0, 1700}, int64[4] less = {0, 0, 0, 20}> {
    y = If(b) <then_branch = g1 () => (float[A,B] p) { p = Pad<mode = "reflect">(x, pads) },
               else_branch = g2 () => (float[C,D] q) { q = Pad<mode = "reflect">(x, less) }> }"""
WINDOW = """g (float[N,3,S] x) => (float[N,3,T] y)
    { y = MaxPool<kernel_shape = [851], dilations = [2], strides = [10]>(x) }"""
LATER = """g (float[N,3,S] x) => (float[N,3,T] y)
    { a = MaxPool<kernel_shape = [8], strides = [8]>(x) y = AveragePool<kernel_shape = [213]>(a) }"""


@pytest.mark.parametrize(
    ("body", "least"),
    sampled([(REFLECTED, 1701), (REFLECTED_AXES, 1701), (BRANCHES, 1701), (WINDOW, 1701), (LATER, 1704)], 2),
    ids=["reflection", "reflection-of-axes", "branches", "window", "windows-in-turn"],
)
def test_a_signal_is_long_enough_for_its_windows_and_reflections(body, least):
    model = _proto(body)
    if "reflect" in body and installed.fate(model) in ("", "SIGSEGV"):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} reflects more elements than there are")
    assert _admitted(model) == {"S": list(range(least, MOST + 1))}
    points = _found(model)
    assert all(point["S"] >= least for point in points)
    assert len({point["S"] for point in points}) > 1
    assert len({point["N"] for point in points}) > 1


OF_THE_RUNTIME = {
    "attention": (
        """g (float[B,S,8] q, float[C,T,8] k, float[D,U,8] v) => (float[B,S,8] y)
            { y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v) }""",
        {"C": "B", "D": "B", "U": "T"},
    ),
    "product": (
        """g (uint8[N,M] a, float p, uint8 q, uint8[K,L] b, float r, uint8 s, float t, uint8 u) => (uint8[N,M] y)
            { y = com.microsoft.QLinearMul(a, p, q, b, r, s, t, u) }""",
        {"K": "N", "L": "M"},
    ),
}


@pytest.mark.parametrize("case", OF_THE_RUNTIME)
def test_dims_follow_from_operators_of_the_runtime(case: str) -> None:
    body, follow = OF_THE_RUNTIME[case]
    model = _proto(body)
    plan = FeedPlan(model, InputsSpec())
    dims = {port.name: list(port.dims) for port in plan.ports}
    ties = dim_constraints(model.SerializeToString(), dims, list(plan.dims.names))["ties"]
    assert ties == {name: {other: 1} for name, other in follow.items()}


def test_a_number_that_a_dim_has_to_equal_somewhere_is_a_size() -> None:
    pairs: list[tuple[int | str, int | str]] = [("N", 7), (9, "N + 2"), ("2*N", 8), ("N + 9", 3), ("M", "N"), ("M", 1)]
    assert extents(pairs, ["N", "M"]) == {"N": [7]}


def test_an_expression_in_a_declared_shape_is_read() -> None:
    ones = ", ".join(["1"] * 8)
    body = (
        f"g (float[N] x, float z) => (float[A] y, float[N] v) <float[8] c = {{{ones}}}> {{ y = Add(z, c) v = Neg(x) }}"
    )
    model = _proto(body)
    model.graph.input[1].type.tensor_type.shape.dim.add(dim_param="N + 1")
    found = dim_constraints(model.SerializeToString(), {"x": ["N"], "z": ["N + 1"]}, ["N"])
    assert found["sizes"] == {"N": [7]}


def test_extents_that_a_concatenation_adds_need_not_agree() -> None:
    model = _proto("g (float[N] x, float[M] z) => (float[A] y) { y = Concat<axis = -1>(x, z) }")
    assert dim_constraints(model.SerializeToString(), {"x": ["N"], "z": ["M"]}, ["N", "M"])["ties"] == {}


def test_a_reshape_to_unknown_extents_does_not_hide_what_the_graph_implies():
    model = _proto(
        REFLECTED.replace("float[N,S] x", "float[N,S] x, int64[2] s").replace("{ y =", "{ r = Reshape(x, s) y =")
    )
    assert _admitted(model) == {"S": list(range(1701, MOST + 1))}


def test_the_open_dim_of_a_reshape_is_a_quotient():
    """A reflection by 48 needs 49 rows; of the 20 * H elements, each row takes H // 2 - 1."""
    model = _proto("""g (float[H,20] x) => (float[A,B] y) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2},
        int64[1] open = {-1}, int64[4] pads = {48, 0, 0, 0}> {
            s = Shape(x) h = Slice(s, zero, one) half = Div(h, two) less = Sub(half, one)
            to = Concat<axis = 0>(open, less) r = Reshape(x, to) y = Pad<mode = "reflect">(r, pads) }""")
    rows = {h: divmod(20 * h, h // 2 - 1) for h in range(4, MOST + 1)}
    assert _admitted(model) == {"H": [h for h, (count, rest) in rows.items() if rest == 0 and count >= 49]}


SCALED = """g (float[N,3,H,W] x) => (float[N,3,H,W] y) <float[4] scales = {1, 1, 48, 48}> {
    c = MaxPool<auto_pad = "SAME_UPPER", kernel_shape = [2, 2]>(x)
    a = MaxPool<kernel_shape = [48, 48], strides = [48, 48]>(x)
    b = Resize<mode = "nearest">(a, , scales)
    y = Add(b, c) }"""
PYRAMID = """g (float[N,3,H,W] x) => (float[N,3,H,W] y) <float[4] six = {1, 1, 6, 6}> {
    a = MaxPool<kernel_shape = [6, 6], strides = [6, 6]>(x)
    b = MaxPool<kernel_shape = [6, 6], strides = [6, 6]>(a)
    up = Resize<mode = "nearest">(b, , six)
    c = Add(up, a)
    back = Resize<mode = "nearest">(c, , six)
    y = Add(back, x) }"""


@pytest.mark.parametrize(("body", "step"), [(SCALED, 48), (PYRAMID, 36)], ids=["scaled", "pyramid"])
def test_the_size_of_a_downscaled_and_upscaled_image_is_a_multiple(body, step):
    model = _proto(body)
    multiples = list(range(step, MOST + 1, step))
    assert _admitted(model) == {"H": multiples, "W": multiples}
    points = _found(model)
    assert any(point["H"] != point["W"] and min(point["H"], point["W"]) > 1 for point in points)
    assert len({point["H"] for point in points}) > 1


def test_multiples_of_32_are_tried_early_without_hints():
    dims = Dims(("N", "H", "W"), spatial=("H", "W"))
    sizes = [(point["H"], point["W"]) for point in dims.ladder()]
    assert sizes.index((64, 96)) < sizes.index((4, 4))
    assert {(96, 64), (32, 64)} < set(sizes)


def test_long_sequences_are_tried():
    sizes = [point["S"] for point in Dims(("N", "S")).ladder()]
    assert {96, 160, 256, 512, 576, 1024} < set(sizes)


QUARTERS = ", ".join(["0.25"] * 27)
RECURRENT = f"""<float[1,9,3] w = {{{QUARTERS}}}, float[1,9,3] r = {{{QUARTERS}}}>
    {{ y = GRU<hidden_size = 3>(x, w, r, , , state) }}"""


def _recurrent(batch: str | int) -> onnx.ModelProto:
    return _proto(f"g (float[S,N,3] x, float[1,{batch},3] state) => (float[S,1,N,3] y) {RECURRENT}")


@pytest.mark.parametrize("batch", [1, 6])
def test_an_initial_state_pins_the_batch(batch):
    model = _recurrent(batch)
    assert _admitted(model) == {"N": [batch]}
    points = _found(model)
    assert {point["N"] for point in points} == {batch}
    assert len({point["S"] for point in points}) > 1


def test_the_batch_of_a_state_equals_that_of_the_data():
    points = _found(_recurrent("B"))
    assert all(point["N"] == point["B"] for point in points)
    assert len({point["N"] for point in points}) > 1


def test_counts_that_sum_to_a_dim_are_tried_as_ones():
    # There are as many rows as letters: with one word, one letter is as good as several, since it is broadcast.
    model = _proto("""g (float[N] x, int64[N] letters) => (float[M] y) {
        n = ReduceSum<keepdims = 1>(letters) rows = ConstantOfShape(n) y = Add(x, rows) }""")
    assert len({point["N"] for point in _found(model)}) > 1


def test_the_batch_of_a_state_is_guessed_for_unknown_shapes():
    model = _proto(
        "g (float[N,S] x, float[2,B,8] state) => (float[N,S] y, float[2,B,8] z) { y = Neg(x) z = Neg(state) }"
    )
    plan = FeedPlan(model, InputsSpec())
    (first, *_) = guesses(plan.dims, plan.ports)
    assert first.ties == {"B": {"N": 1}}


def test_each_dim_is_tried_at_one_with_the_others_larger():
    points = list(Dims(("A", "B", "C")).ladder())
    for name in "ABC":
        assert any(point[name] == 1 and min(point.values()) == 1 < sorted(point.values())[1] for point in points), name


def test_of_contradictory_demands_the_first_is_kept():
    body = """g (float[S,3] x) => (float[3] p, float[T,3] q) <float[7,3] c, float[5,3] d> {
        p = Sum(x, c) q = Concat<axis = 1>(x, d) }"""
    assert _admitted(_proto(body.replace("c,", f"c = {{{_zeros(21)}}},").replace("d>", f"d = {{{_zeros(15)}}}>"))) == {
        "S": [1, 7]
    }


def _zeros(count: int) -> str:
    return ", ".join(["0"] * count)


def test_a_convolution_of_unknown_rank_does_not_hide_other_demands():
    """After branches of two ranks, the rank of the data is unknown; the reflection before them counts all the same."""
    body = """g (float[N,S] x, bool b) => (float[N,1,T] y)
        <int64[4] pads = {0, 0, 0, 1700}, int64[1] one = {1}, float[1,1,3] w = {1, 2, 3}, float[1] bias = {1}> {
        p = Pad<mode = "reflect">(x, pads)
        u = If(b) <then_branch = g1 () => (a) { a = Unsqueeze(p, one) },
                   else_branch = g2 () => (c) { d = Unsqueeze(p, one) e = Unsqueeze(d, one) c = Squeeze(e, one) }>
        y = Conv(u, w, bias) }"""
    assert _admitted(_proto(body))["S"][0] == 1701


# Where the search ends


def test_the_search_does_not_depend_on_the_clock(monkeypatch):
    model = _proto(PYRAMID)
    first = _prepared(model).original.bindings
    clock = itertools.count(0, 10)
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert _prepared(model).original.bindings == first


REFUSING = """g (float[N,S] x, int64[S] i) => (float[T] y, int64[S] j) <int64[1] prime = {7001}>
    { y = Reshape(x, prime) j = Neg(i) }"""


def _probes(monkeypatch) -> int:
    count = 0
    run = search._SizeSearch._run

    def counted(self, binding):
        nonlocal count
        count += 1
        return run(self, binding)

    monkeypatch.setattr(search._SizeSearch, "_run", counted)
    verifier = _prepared(_proto(REFUSING))
    assert verifier.original.problem is not None
    assert verifier.original.problem.startswith("no legal input found")
    return count


def test_the_search_ends_after_its_limit_of_probes(monkeypatch):
    monkeypatch.setattr(search, "PROBES", 7)
    assert _probes(monkeypatch) == 7


def test_the_search_ends_after_its_estimated_time(monkeypatch):
    monkeypatch.setattr(search, "SECONDS", 0.1)
    assert 2 <= _probes(monkeypatch) <= 6


def test_no_binding_is_probed_twice(monkeypatch):
    seen: list[tuple] = []
    run = search._SizeSearch._run

    def noted(self, binding):
        seen.append((binding.profile, binding.character, tuple(sorted(binding.dims.items()))))
        return run(self, binding)

    monkeypatch.setattr(search._SizeSearch, "_run", noted)
    monkeypatch.setattr(search, "PROBES", 60)
    _prepared(_proto(REFUSING))
    assert len(seen) == len(set(seen)) > 20


EMBEDDING = """g (int32[N,L] ids, int32[N,L] segments, int32[N,L] mask, float[600,600] x)
    => (float[N,L,4] y, int32[N] lengths, float[600,600] z)
    <float[40,4] words = {WORDS}, float[6,4] places = {PLACES}, float[2,4] kinds = {1, 2, 3, 4, 5, 6, 7, 9},
     float[4] gamma = {1, 1, 1, 1}, float[4] beta = {0, 0, 0, 0}> {
    table = CONVERTED
    y, lengths = com.microsoft.EmbedLayerNormalization(ids, segments, table, places, kinds, gamma, beta, mask)
    z = MatMul(x, x) }"""


@pytest.mark.parametrize("table", ["Identity(words)", "Cast<to = 1>(words)"], ids=["stored", "computed"])
def test_ids_of_an_expensive_embedding_stay_within_its_tables(table):
    body = EMBEDDING.replace("WORDS", ", ".join(str(i % 7 + i / 50) for i in range(160))).replace("CONVERTED", table)
    verifier = _prepared(_proto(body.replace("PLACES", ", ".join(str(i % 5) for i in range(24)))))
    original = verifier.original
    assert original.problem is None
    assert original.inputs.cost(original.runs[0].binding) > TRIVIAL
    assert "refused" not in verifier.original.bindings[0]
    assert 1 < max(int(run.feed["ids"].max()) for run in original.runs) < 40
    assert {int(item) for run in original.runs for item in run.feed["segments"].reshape(-1)} == {0, 1}


@pytest.mark.parametrize(("wanted", "is_found"), [(3, True), (1_000, False)])
def test_other_data_is_tried_if_a_model_refuses_the_first(wanted: int, is_found: bool) -> None:
    """How many elements are different, or not zero, may decide about shapes."""
    model = _proto("g (float[N,4] x) => (float[M] y) { y = Unique(x) }")
    found, tried = search.Found(), []

    def probe(binding: Binding) -> str | None:
        tried.append(binding)
        return None if binding.seed >= wanted else "23 by 24"

    search.search(FeedPlan(model, InputsSpec()), 0, probe, lambda: UNKNOWN, lambda _: TRIVIAL, lambda _: {}, found)
    assert bool(found.accepted) is is_found and all(binding.seed == wanted for binding in found.accepted)
    assert found.refused[0][0].seed == 0 and len(tried) < search.PROBES


@pytest.mark.parametrize("with_one", [False, True], ids=["the-other-stays", "the-other-is-one"])
def test_a_dim_moves_by_itself_where_all_together_are_rejected(with_one: bool) -> None:
    found, tried = search.Found(), []

    def probe(binding: Binding) -> str | None:
        tried.append(binding.dims)
        usual = binding.dims["M"] == tried[0]["M"]
        holds = binding.dims["M"] == 1 or (usual and binding.dims["N"] == tried[0]["N"]) if with_one else usual
        return None if holds else "no"

    plan = FeedPlan(_proto("g (float[N,M] x) => (float[N,M] y) { y = Relu(x) }"), InputsSpec())
    search.search(plan, 0, probe, lambda: UNKNOWN, lambda _: TRIVIAL, lambda _: {}, found, covers=False)
    assert len({binding.dims["N"] for binding in found.accepted}) > 1


@pytest.mark.parametrize("wish", [{}, {"dims": {"N": (700,)}}])
def test_inputs_over_the_memory_limit_are_tried_only_on_request(wish: dict[str, Any]) -> None:
    model = _proto("g (float[N,N,N] x) => (float[N,N,N] y) { y = Relu(x) }")
    found, tried = search.Found(), []

    def probe(binding: Binding) -> str | None:
        tried.append(binding.dims["N"])
        return "no"

    search.search(
        FeedPlan(model, InputsSpec(**wish)), 0, probe, lambda: UNKNOWN, lambda _: TRIVIAL, lambda _: {}, found
    )
    assert max(tried) == (700 if wish else 224)


def test_points_at_which_a_run_takes_long_are_tried_last_and_with_two_kinds_of_data() -> None:
    model = _proto("g (float[N,N] x, int64[2] i) => (float[N,N] y, int64[2] j) { y = Relu(x) j = Neg(i) }")
    plan, found, tried = FeedPlan(model, InputsSpec()), search.Found(), []

    def probe(binding: Binding) -> str | None:
        tried.append((binding.profile, binding.seed, binding.dims["N"]))
        return f"{binding.dims['N']} is not 47"

    search.search(plan, 0, probe, lambda: UNKNOWN, lambda binding: binding.dims["N"] / 1000, lambda _: {}, found)
    extents = [extent for profile, seed, extent in tried if (profile, seed) == ("legal", 0)]
    dear = [extent for extent in extents if extent > 100]
    assert extents[-len(dear) :] == sorted(dear)
    assert {sum(extent == other for _, _, other in tried) for extent in dear} == {2}
    assert sum(extent == 2 for _, _, extent in tried) > 6


def test_integers_are_tried_where_a_run_takes_long_if_they_change_the_reason() -> None:
    model = _proto("g (float[N,N] x, int64[2] i) => (float[N,N] y, int64[2] j) { y = Relu(x) j = Neg(i) }")
    found = search.Found()

    def probe(binding: Binding) -> str | None:
        needed = binding.profile == "sixteens" and binding.dims["N"] == 224
        return None if needed else f"{binding.profile}, {binding.dims['N']}"

    def cost(binding: Binding) -> float:
        return min(binding.dims["N"] / 1000, 1.0)

    plan = FeedPlan(model, InputsSpec())
    search.search(plan, 0, probe, lambda: UNKNOWN, cost, lambda _: {}, found)
    assert found.accepted[0].dims == {"N": 224} and found.accepted[0].profile == "sixteens"


def test_no_large_size_is_run_for_an_output_that_is_empty_at_small_ones(monkeypatch) -> None:
    fed = []
    feed = OriginalInputs.feed
    monkeypatch.setattr(OriginalInputs, "feed", lambda self, binding: fed.append(binding) or feed(self, binding))
    points = _found(_proto("g (float[N,N] x) => (int64[2,M] y) { a = MatMul(x, x) b = Sub(a, a) y = NonZero(b) }"))
    assert len(points) > 1
    assert max(binding.dims["N"] for binding in fed) < 1601


CONVOLUTIONS = """g (float[N,3,H,W] x) => (float[N,3,T,U] y)
    <float[CHANNELS,3,3,3] w = {FEW}, float[3,CHANNELS,3,3] v = {FEW}> {
    a = Conv(x, w)
    b = Conv(a, v)
    y = MaxPool<kernel_shape = [2, 2], strides = [STEP, STEP]>(b) }"""


@pytest.mark.parametrize(("channels", "step", "least"), [(900, 1, 15), (900, 4, 45), (3, 1, 45)])
def test_images_are_smaller_where_a_run_takes_long_and_enough_positions_are_left(channels, step, least) -> None:
    few = ", ".join(f"{place % 7 - 3}" for place in range(channels * 27))
    body = CONVOLUTIONS.replace("CHANNELS", str(channels)).replace("STEP", str(step))
    points = _found(_proto(body.replace("FEW", few)))
    assert points[0]["H"] == least
    assert len({point["H"] for point in points[:2]}) == 2
    assert {1, 2} <= {point["N"] for point in points}


def test_large_equal_lengths_are_tried() -> None:
    """Durations of sounds have to add up, and must be as long as a window of frames."""
    model = _proto(
        "g (int64[A] notes, int64[B] sounds) => (int64 y) { a = ReduceSum(notes) b = ReduceSum(sounds) y = Add(a, b) }"
    )
    plan, found = FeedPlan(model, InputsSpec()), search.Found()

    def probe(binding: Binding) -> str | None:
        shapes = plan.shapes(binding.dims)
        fed = plan.feeds(binding, plan.domains(shapes))
        return None if fed["notes"].sum() == fed["sounds"].sum() and fed["notes"].min() >= 10 else "too short"

    search.search(plan, 0, probe, lambda: UNKNOWN, lambda _: TRIVIAL, lambda _: {}, found)
    assert len(found.accepted) > 1


def test_a_dim_of_several_axes_is_tried_at_moderate_extents_before_those_of_a_waveform() -> None:
    model = _proto("g (float[S,S,8] x) => (float[1,1] y) <int64[1,1,3] place = {4, 4, 4}> { y = GatherND(x, place) }")
    extents = [point["S"] for point in _found(model)]
    assert len(extents) > 1
    assert max(extents) <= 64


def _covered(accepts: Callable[[Mapping[str, int]], bool], *points: dict[str, int], size: int = 0) -> Cover:
    dims = Dims(("N", "M"))
    implied = {**UNKNOWN, "compared": [{"N": size}] if size else []}
    cover = Cover(dims, dims, implied, points, accepts)
    cover.run(pairs=True)
    return cover


def test_all_pairs_of_sizes_of_two_dims_are_tried() -> None:
    accepted = _covered(lambda _: True, {"N": 2, "M": 3}).accepted
    sizes = [{point[name] for point in accepted} for name in ("N", "M")]
    assert min(map(len, sizes)) > 2
    assert {(point["N"], point["M"]) for point in accepted} == set(itertools.product(*sizes))


@pytest.mark.parametrize("width", [1, 7])
def test_a_long_size_is_tried_with_the_other_dims_at_one_and_at_other_points(width: int) -> None:
    tried: list[Mapping[str, int]] = []

    def accepts(point: Mapping[str, int]) -> bool:
        tried.append(point)
        return point["N"] < 9 or point["M"] == width

    cover = _covered(accepts, {"N": 2, "M": 3}, {"N": 4, "M": 7}, size=500)
    assert next(point["M"] for point in tried if point["N"] == 500) == 1  # the cheapest comes first
    assert {"N": 500, "M": width} in cover.accepted
