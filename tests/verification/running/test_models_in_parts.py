"""Parts of models that run by themselves: pieces, ensembles, and the guards that are watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from surgery.base.operators.deciding import HIDDEN, KINDS, NOT_FINITE, PADDED, PATTERNS
from surgery.base.operators.graph_guards import Guard
from surgery.base.operators.use import Index
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.running import pieces
from surgery.verification.running.ensembles import KnownOutputs, _content, _fits, _sound, key_of_node
from surgery.verification.running.guards import GuardSearch, Watch, _arriving, _near, _origin, _same
from surgery.verification.running.pieces import Whole, _declared, _nbytes, fed, run_in_pieces, too_much

CHAIN = "g (float[2] x) => (float[2] y, float[2] z) { a = Neg(x) b = Add(a, x) y = Mul(b, w) z = Exp(a) }"


def _whole(source: str = CHAIN) -> Whole:
    return Whole(text.parse(source, opset=18))


# Pieces


def test_a_model_is_cut_where_weights_become_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_WEIGHTS_OF_PIECE", 10)
    whole = _whole("g (float x) => (float y) { a = Add(x, p) b = Add(a, q) c = Add(b, r) d = Add(c, s) y = Add(d, q) }")
    for weights, ends in (
        ({}, [5]),
        ({"p": 4, "q": 3}, [5]),
        ({"p": 4, "q": 4}, [4, 5]),
        ({"p": 20, "q": 1}, [1, 5]),
        ({"p": 6, "q": 4, "r": 1}, [2, 5]),
        ({"p": 5, "q": 5, "r": 20, "s": 9}, [2, 3, 4, 5]),
    ):
        assert [*whole.ends(weights)] == ends


def test_what_can_be_cut() -> None:
    assert _whole().can_be_cut()
    whole = _whole()
    whole.model.graph.node.insert(0, whole.model.graph.node.pop())
    assert not Whole(whole.model).can_be_cut()
    assert not _whole("g (float x) => (float x) { y = Neg(x) }").can_be_cut()
    values = dict.fromkeys(["x", "a", "b", "y", "none"], 1)
    assert [[*_whole().needed(values, end)] for end in range(5)] == [
        ["x", "a", "b", "y"], ["x", "a", "b", "y"], ["a", "b", "y"], ["a", "y"], ["y"],
    ]  # fmt: skip


def test_a_piece_declares_what_crosses() -> None:
    run = {"x": np.ones(2, np.float32), "a": np.ones((2, 3), np.float32)}
    other = {"x": np.ones(2, np.float32), "a": np.ones((2, 5), np.float32)}
    piece = _whole().piece(1, 2, [run, other])
    assert [node.op_type for node in piece.graph.node] == ["Add"]
    assert [output.name for output in piece.graph.output] == ["b"]
    # The input of the model keeps its declaration, and a dim that varies has none.
    dims = {port.name: [dim.dim_value for dim in port.type.tensor_type.shape.dim] for port in piece.graph.input}
    assert dims == {"x": [2], "a": [2, 0]}
    assert fed(piece, {**run, "b": 1}) == run
    unranked = _declared("a", [np.ones(2), np.ones((2, 3))])
    assert not unranked.type.tensor_type.HasField("shape") and unranked.type.tensor_type.elem_type == 11


def _in_pieces(outcomes: Any, most: int = 0) -> tuple[RunOutcome | None, list[list[str]]]:
    model = text.parse(CHAIN, opset=18)
    model.graph.initializer.add(name="w", data_type=1, dims=[2])
    ran: list[list[str]] = []

    def run(skeleton: bytes, feeds: Sequence[Mapping[str, Any]]) -> RunOutcome:
        ran.append(sorted(feeds[0]))
        return (
            outcomes[len(ran) - 1]
            if isinstance(outcomes[len(ran) - 1], RunOutcome)
            else RunOutcome(**outcomes[len(ran) - 1])
        )

    feeds = [{"x": np.ones(2, np.float32)}] * most
    return run_in_pieces(run, model.SerializeToString(), feeds), ran


def test_pieces_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MANY_WEIGHTS", 8)
    monkeypatch.setattr(Whole, "ends", lambda self, weights: iter([1, 2, 4]) if weights == {"w": 8} else iter([]))
    one = np.ones(2, np.float32)
    good = [
        {"runs": [{"a": one}] * 2, "seconds": [1.0, 2.0]},
        {"runs": [{"b": one * 2}] * 2, "seconds": [4.0, 8.0]},
        {"runs": [{"y": one * 3, "z": one}] * 2, "seconds": [16.0, 32.0]},
    ]
    found, ran = _in_pieces(good, 2)
    assert found is not None and found.seconds == [21.0, 42.0] and [*found.runs[0]] == ["y", "z"]  # type: ignore[misc]
    assert ran == [["x"], ["a", "x"], ["a", "b"]]
    # A run that fails, an optional that crosses, and a process that dies.
    failed = {"runs": [{"b": one}, "bad"], "seconds": [1.0, 1.0]}
    found, ran = _in_pieces([good[0], failed], 2)
    assert found is not None and found.runs[1] == "bad" and len(ran) == 2
    assert _in_pieces([good[0], {"runs": [{"b": None}] * 2, "seconds": [1.0, 1.0]}], 2)[0] is None
    assert _in_pieces(good, 0) == (None, [])
    monkeypatch.setattr(pieces, "MANY_WEIGHTS", 9)
    assert _in_pieces(good, 2) == (None, [])


def test_sizes_of_weights() -> None:
    assert _nbytes(TensorProto(data_type=1, dims=[3, 5])) == 60 and _nbytes(TensorProto(data_type=0, dims=[3])) == 0
    assert _nbytes(TensorProto(data_type=TensorProto.INT4, dims=[3])) == 3
    assert too_much(12_345_000_000, 4_000_000_000).startswith("its weights have 12.3 GB, and verification may take ")
    assert (pieces.MANY_WEIGHTS, pieces._WEIGHTS_OF_PIECE) == (512 << 20, 256 << 20)


# Ensembles


def test_outputs_are_known_until_too_many_are() -> None:
    known = KnownOutputs(_left=10)
    known.add("a", [np.zeros(6, np.uint8), np.zeros(2, np.uint8)], 1.5)
    known.add("b", [np.zeros(3, np.uint8)], 2.0)
    assert "a" in known and "b" not in known
    outputs, seconds = known.under("a", ["y", "z"])
    assert [len(outputs[name]) for name in "yz"] == [6, 2] and seconds == 1.5
    # The same key takes nothing more, and what is no array is too large.
    known.add("a", [np.zeros(1, np.uint8)], 9.0)
    known.add("c", ["text"], 1.0)
    known.add("d", [np.zeros(2, np.uint8)], 1.0)
    assert known.under("a", ["y", "z"])[1] == 1.5 and "c" not in known and "d" in known
    assert KnownOutputs.of(text.parse(CHAIN)) is None


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (np.ones((2, 3), np.float32), True),
        (np.ones((4, 3), np.float32), True),
        (np.ones((2, 4), np.float32), False),
        (np.ones(3, np.float32), False),
        (np.ones((2, 3)), False),
        ([np.ones((2, 3), np.float32)], False),
        (None, False),
    ],
)
def test_what_the_runtime_accepts_for_an_input(value: Any, fits: bool) -> None:
    model = text.parse("g (float[n,3] x, float z) => (float y) { y = Neg(x) }")
    assert _fits(model, "x", value) is fits
    # A value that is no input has no declaration, and one without a shape has any.
    assert _fits(model, "inner", value) is isinstance(value, np.ndarray)
    del model.graph.input[0].type.tensor_type.shape.dim[:]
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert _fits(model, "x", value) is (isinstance(value, np.ndarray) and value.dtype == np.float32)


def test_what_tells_tensors_and_nodes_apart() -> None:
    one = np.float32([[1, 2], [3, 4]])
    assert _content(one) == _content(np.asfortranarray(one)) != _content(one.T)
    assert _content(one) != _content(one.reshape(4)) and _content(one) != _content(one.view(np.int32))
    words = [np.array(items, object) for items in (["a", "b"], ["a", "b"], ["a", "c"])]
    assert _content(words[0]) == _content(words[1]) != _content(words[2])
    model = text.parse(CHAIN)
    nodes = text.parse_nodes(
        "y = Selu<alpha = 1.0>(x) z = Selu<alpha = 1.0>(w) v = Selu<alpha = 2.0>(x) u = Elu<alpha = 1.0>(x)"
    )
    keys = [key_of_node(model, node) for node in nodes]
    assert keys[0] == keys[1] and len({*keys}) == 3
    nodes[0].output.append("")
    assert key_of_node(model, nodes[0]) != keys[0]
    for change in ("ir_version", "opset"):
        other = text.parse(CHAIN)
        if change == "opset":
            other.opset_import[0].version += 1
        else:
            other.ir_version += 1
        assert key_of_node(other, nodes[1]) != keys[1]
    failed: Any = [RunOutcome(unsupported="no"), RunOutcome(runs=[{"y": None}], seconds=[1.0])]
    assert [_sound(one) for one in failed] == [None, None]
    sound = RunOutcome(runs=[{"y": one}, "bad"], seconds=[1.0, 1.0])
    assert _sound(sound) is sound


# Guards


def _index(body: str) -> Index:
    constants = "<float zero = {0}, float[16] few = {1}, float[17] many = {1}>"
    return Index(text.parse(f"g (float[2,3] x, float[3] z) => (float y) {constants} {{ {body} }}", opset=18))


@pytest.mark.parametrize(
    ("body", "kind", "arriving"),
    [
        ("y = IsNaN(x)", NOT_FINITE, ["x"]),
        ("y = IsInf(x)", NOT_FINITE, ["x"]),
        ("y = Softmax(x)", NOT_FINITE, []),
        ("y = Softmax(x)", HIDDEN, ["x"]),
        ("a = Transpose(x) b = Add(a, z) y = ReduceMax(b)", HIDDEN, ["x", "z"]),
        ("a = Add(x, z) y = IsNaN(a)", NOT_FINITE, []),
        ("a = Mul(x, z) y = LogSoftmax(a)", HIDDEN, []),
        ("a = Gather(x, z) y = ReduceLogSumExp(a)", HIDDEN, ["x"]),
    ],
)
def test_inputs_whose_elements_arrive_as_they_are(body: str, kind: str, arriving: list[str]) -> None:
    assert [*_arriving(_index(body), ["x", "z"], kind)] == arriving


def test_values_that_are_computed_without_weights() -> None:
    body = "a = Add(x, few) b = Add(a, many) c = Add(a, zero) d = Neg(b) y = Pad(x, , zero)"
    index = _index(body)
    graph = text.parse(f"g (float[2,3] x, float[3] z) => (float y) {{ {body} }}").graph
    assert _near(graph, index) == {"x", "z", "a", "c", "y"}


def test_guards_of_the_same_origin() -> None:
    index = _index(
        "a = Less(x, zero) b = Less(x, zero) c = Less(x, z) d = Greater(x, zero) e = Add(x, many) f = Add(x, w)"
    )
    first = _origin("a", index)
    assert first == _origin("b", index) and first != _origin("c", index) and first != _origin("d", index)
    # Weights do not matter, and neither does what is three nodes away.
    assert _origin("e", index) == ("Add", ("x", ""))
    index = _index("a = Neg(x) b = Abs(a) c = Exp(b) d = Log(c) p = Relu(x) q = Abs(p) r = Exp(q) s = Log(r)")
    assert _origin("d", index) == _origin("s", index) != _origin("c", index) != _origin("r", index)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (np.ones(2), np.ones(2), True),
        (np.ones(2), np.zeros(2), False),
        (np.ones((1, 2)), np.ones((2, 1)), False),
        (None, None, True),
        ([1], [2], True),
        ([1], None, False),
        (np.ones(1), None, False),
        (None, np.ones(1), False),
    ],
)
def test_inputs_that_are_the_same(first: Any, second: Any, same: bool) -> None:
    assert _same(first, second) is same


def _watching(**guards: Any) -> Any:
    """A watch for guards by name: what a set of inputs makes them decide is in its arrays."""
    found = Watch.__new__(Watch)
    found.sources = {Guard(name, "true", 0.0, 0): frozenset(ports) for name, ports in guards.items()}
    found.direct, found.inputs, found.skeleton = {}, ["x", "z"], b"watch"
    return found


def test_how_guards_decide() -> None:
    watch = Watch.__new__(Watch)
    one, two = Guard("a", "true", 0.0, 0), Guard("b", "empty", 0.0, 0)
    watch.sources, watch.inputs = {one: frozenset("x"), two: frozenset("x")}, ["x"]
    assert watch.states() == {(one, False), (one, True), (two, False), (two, True)}
    for hits, whole, count, decided in (
        (0, 4, 0, {(one, False), (two, True)}),
        (4, 4, 3, {(one, True), (two, False)}),
        (1, 4, 1, {(one, True), (one, False), (two, False)}),
        (0, 0, 1, {(two, False)}),
    ):
        names = ("guard/0/hits", "guard/0/all", "guard/1/hits", "guard/1/all")
        assert watch.decided(dict(zip(names, (hits, whole, 0, count)))) == decided
    assert watch.fed({"x": 1, "y": 2}) == {"x": 1}


def _search(watch: Any, feed: Any, decided: Any, tries: int = 24) -> tuple[GuardSearch, list[int]]:
    """A search in which `decided` says what each set of inputs makes guards decide."""
    ran: list[int] = []

    def run(skeleton: bytes, feeds: Sequence[Any]) -> Sequence[Any]:
        ran.append(len(feeds))
        return feeds

    watch.decided = decided
    return GuardSearch(watch, feed, run, tries), ran


def test_sets_that_reach_something_new_are_kept() -> None:
    watch = _watching(a=["x"])
    (guard,) = watch.sources

    def feed(binding: Binding) -> dict[str, Any]:
        is_given = binding.ports is None or "x" in binding.ports
        number = KINDS.index(binding.character) * 10 + binding.seed + 1
        return {"x": np.full((1, 3), number if is_given else 0), "z": np.zeros(1)}

    def decided(outputs: Any) -> set[Any]:
        number = int(outputs["x"][0, 0])
        return {(guard, number > 20)}

    search, ran = _search(watch, feed, decided)
    search.see([Binding(character=KINDS[0], ports=())])
    assert search.left == {(guard, True)}
    found = search.find(Binding())
    # Of the sets that differ from ordinary ones, the first that makes the guard decide otherwise.
    assert [(one.character, one.ports) for one in found] == [(KINDS[2], ("x",))] and not search.left
    # With one row, all patterns of padding are tried.
    assert ran == [1, PATTERNS + len(KINDS) - 1]
    assert search.tries == 24 - ran[1]
    # Nothing is left to look for, or no tries.
    assert search.find(Binding()) == []
    search, ran = _search(_watching(a=["x"]), feed, lambda outputs: set(), tries=5)
    assert search.find(Binding()) == [] and ran == [5] and search.tries == 0


def test_patterns_of_padding_follow_each_other() -> None:
    watch = _watching(a=["x"])
    (guard,) = watch.sources

    def feed(binding: Binding) -> dict[str, Any]:
        padded = binding.character == PADDED and binding.ports != ()
        return {"x": np.full((2, 3), 1 + binding.seed if padded else 0), "z": np.zeros(1)}

    search, _ = _search(watch, feed, lambda outputs: {(guard, True)} if outputs["x"].any() else set())
    found = search.find(Binding(seed=3))
    # Two rows show two of the four patterns at once.
    assert [(one.character, one.seed) for one in found[:2]] == [(PADDED, 3), (PADDED, 5)]
    rejected, _ = _search(_watching(a=["x"]), feed, lambda outputs: {(guard, True)})
    rejected.run = lambda skeleton, feeds: ["bad"] * len(feeds)
    assert rejected.find(Binding()) == []


def test_data_for_scores_is_tried_on_the_inputs_that_arrive_there() -> None:
    watch = _watching(a=["x"])
    (guard,) = watch.sources
    watch.direct = {HIDDEN: frozenset("z"), NOT_FINITE: frozenset()}

    def feed(binding: Binding) -> dict[str, Any]:
        return {"x": np.zeros(1), "z": np.full(1, binding.character == HIDDEN and binding.ports == ("z",))}

    search, _ = _search(watch, feed, lambda outputs: {(guard, True)} if outputs["z"].any() else set())
    assert [(one.character, one.ports) for one in search.find(Binding())] == [(HIDDEN, ("z",))]


def test_a_model_of_an_old_opset_is_not_watched() -> None:
    body = "g (float[2] x) => (float[2] y) { a = IsNaN(x) y = Where(a, x, x) }"
    for opset, watched in ((8, False), (9, True)):
        watch = Watch(text.parse(body, opset=opset))
        assert bool(watch.sources) is watched is bool(watch.skeleton)
    assert watch.inputs == ["x"] and watch.direct[NOT_FINITE] == {"x"} and watch.direct[HIDDEN] == frozenset()
    assert onnx.load_model_from_string(watch.skeleton).graph.output[0].name == "guard/0/hits"


@pytest.mark.parametrize(
    ("test", "few"),
    [("IsNaN(x)", 1), ("IsInf(x)", 1), ("Equal(x, z)", 1), ("Less(x, z)", 0), ("Greater(x, z)", 0)],
)
def test_few_guards_are_tests_for_particular_numbers(test: str, few: int) -> None:
    body = f"g (float[2] x) => (float[2] y) <float z = {{0}}> {{ a = {test} y = Where(a, x, z) }}"
    model = text.parse(body, opset=18)
    assert len(Watch(model).sources) == 1 and len(Watch(model, few=True).sources) == few
