"""Inferred shapes that the run of the original contradicts: no pass relies on them."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from surgery.base.promises import Parity
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.doubting import Doubting
from surgery.engine.registry.declare import graph_pass
from surgery.engine.registry.passes import Pass
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.runtime.engine import Engine
from surgery.model.shapes import inference
from surgery.verification.comparing.observed_shapes import Seen

# A wrong rule says that c has the dims of d, which has 3 rows; it has n + 1. The test for 9 rows fails at every size
# that is drawn, so no verdict shows that folding it is wrong.
MODEL = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 2] x, float[1, 2] e, float[3, 2] d) => (float[m, 2] y, bool[1] t, float[3, 2] z)
<int64[1] nine = {9}, int64[1] zero = {0}> {
    r = Relu(x)
    c = Concat<axis = 0>(r, e)
    s = Shape(c)
    rows = Gather(s, zero)
    t = Equal(rows, nine)
    y = Neg(c)
    a = Identity(d)
    z = Neg(a)
}"""


@pytest.fixture
def wrong_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    apply_rule = inference._apply

    def guess(rule: Any, context: Any, node: Any) -> None:
        apply_rule(rule, context, node)
        if node.op_type == "Concat":
            node.outputs[0].shape = node.graph.inputs[2].shape

    monkeypatch.setattr(inference, "_apply", guess)
    # Workers are other processes, which have the right rule.
    monkeypatch.setattr(Engine, "analyse", lambda self, function, *, skeleton, **given: function(skeleton, **given))


def apply(steps: str, rows: str) -> runner.Result:
    recipe = recipes.parse(
        f"recipe: test\ninputs: {{dims: {{n: {rows}}}}}\non_failure: bisect\nsteps: {steps}", "t.yaml"
    )
    return runner.apply(text.parse(MODEL), recipe)


@pytest.mark.usefixtures("wrong_rule")
@pytest.mark.parametrize("steps", ["[fold-constants, drop-identity]", "[drop-identity, fold-constants]"])
def test_no_step_relies_on_a_shape_that_the_run_contradicts(steps: str) -> None:
    result = apply(steps, "[2, 6]")
    counts = [node.op_type for node in result.proto.graph.node]
    assert result.ok and "Equal" in counts and "Identity" not in counts
    assert not any(step.refused_sites for step in result.steps)


@pytest.mark.usefixtures("wrong_rule")
def test_a_step_relies_on_the_shape_where_no_run_contradicts_it() -> None:
    assert "Equal" not in [node.op_type for node in apply("[fold-constants]", "[2]").proto.graph.node]


class Runs:
    """What a verifier shows of two runs: a has n rows, b twice as many and c three more."""

    def seen(self, changed: bytes = b"", names: Sequence[str] = ()) -> list[Seen]:
        return [
            Seen({"a": (2, 4), "b": (4,), "c": (5, 1), "d": (7,)}, frozenset("a")),
            Seen({"a": (5, 4), "b": (10,), "c": (8, 1), "d": (9,)}, frozenset("a")),
        ]


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("b", ["2*n"], {}),
        ("b", ["n + 2"], {"b": (0,)}),  # as in the first run
        ("c", ["n + 3", 1], {}),
        ("c", ["n + 3", 2], {"c": (1,)}),
        ("c", [5, "n"], {"c": (0, 1)}),
        ("c", ["n + 3"], {"c": None}),
        ("d", ["unknown"], {}),
        ("d", [None], {}),
        ("d", ["Max(n, 7)"], {"d": (0,)}),  # as in the first run
        ("b", ["floor(n/2 + 3)"], {"b": (0,)}),
        ("b", ["floor(4*n/2)"], {}),
        ("d", ["floor(n/2 - 3) + 1"], {}),  # a window is larger than its input
        ("d", ["n - 7"], {"d": (0,)}),
        ("d", ["sqrt(n)"], {}),  # not read
    ],
)
def test_a_shape_is_doubted_that_is_not_so_in_each_run(name: str, dims: list[Any], expected: dict[str, Any]) -> None:
    doubting = Doubting()
    doubting.learn(cast(Any, Runs()), {"a": ir.Shape(["n", 4]), name: ir.Shape(dims)}, onnx.ModelProto())
    assert doubting.found == expected


class Counting:
    """A verifier that notes which values are looked at: an original with a and b, of two rows each."""

    def __init__(self, rows: int = 2) -> None:
        self.rows = rows
        self.asked: list[list[str]] = []

    def seen(self, changed: bytes = b"", names: Sequence[str] = ()) -> list[Seen]:
        self.asked.append([*names])
        return [Seen(dict.fromkeys(["a", *(names or "b")], (self.rows, 4)), frozenset("a"))]


def test_each_kind_of_node_is_looked_at_once() -> None:
    model = text.parse("""g (float[n,4] a) => (float[n,4] f) {
        b = Softmax(a) c = Softmax(b) d = LogSoftmax(c) e = LogSoftmax(d) f = Softmax<axis = 0>(e) }""")
    doubting, verifier = Doubting(), Counting()
    shapes = {"a": ir.Shape(["n", 4]), "b": ir.Shape(["n", 4])}

    def learn(given: Any, **more: ir.Shape) -> list[list[str]]:
        shapes.update(more)
        asked = len(given.asked)
        doubting.learn(given, shapes, model)
        return cast(list[list[str]], given.asked[asked:])

    assert learn(verifier) == [[]]  # the original
    assert learn(verifier) == []
    assert learn(verifier, c=ir.Shape(["n", 4])) == []  # as b
    assert learn(verifier, d=ir.Shape([2, 4]), e=ir.Shape(["n", 4])) == [["d"]]
    assert learn(verifier, f=ir.Shape(["n", 5])) == [["f"]]
    assert doubting.found == {"f": (1,)}
    assert learn(verifier, f=ir.Shape(["n", 4])) == [["f"]]  # nothing has confirmed that kind
    assert learn(verifier) == []
    other = Counting(rows=3)
    assert learn(other) == [[], ["f"]] and learn(other) == []
    doubting.learn(cast(Any, Counting()), {}, model)


@pytest.mark.parametrize(
    ("dim", "extent", "agrees"),
    [("n", 0, True), ("n + 3", 0, True), ("m", 0, True), ("n", 2, False), ("n + 3", 4, True), ("n + 3", 5, False)],
)
def test_an_empty_value_contradicts_no_expression(dim: str, extent: int, agrees: bool) -> None:
    class One:
        def seen(self, changed: bytes = b"", names: Sequence[str] = ()) -> list[Seen]:
            return [Seen({"a": (1 if extent else 0,), "b": (extent,)}, frozenset("a"))]

    doubting = Doubting()
    doubting.learn(cast(Any, One()), {"a": ir.Shape(["n"]), "b": ir.Shape([dim])}, onnx.ModelProto())
    assert doubting.found == ({} if agrees else {"b": (0,)})


# A pass writes the Concat; at first, there is none to which the wrong rule applies.
PADDED = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 2] x, float[1, 2] e, float[3, 2] d) => (float[m, 2] y, bool[1] t, float[3, 2] z)
<int64[1] nine = {9}, int64[1] zero = {0}, int64[4] pads = {0, 0, 1, 0}> {
    r = Relu(x)
    c = Pad(r, pads)
    s = Shape(c)
    rows = Gather(s, zero)
    t = Equal(rows, nine)
    y = Neg(c)
    z = Neg(d)
}"""


@graph_pass("contradicted-concat", parity=Parity.EXACT)
def write_concat(graph: Graph) -> None:
    """Write a Pad by one row of zeros as a Concat."""
    for node in graph.nodes("Pad"):
        with graph.site(node) as new:
            row = new.constant(np.zeros((1, 2), np.float32))
            new.replace(node.outputs[0], new.node("Concat", node.required_input(0), row, axis=0))


@pytest.mark.usefixtures("wrong_rule")
@pytest.mark.parametrize(
    "steps", ["[contradicted-concat, fold-constants]", "[contradicted-concat, drop-identity, fold-constants]"]
)
def test_no_step_relies_on_a_wrong_shape_of_a_node_that_a_pass_wrote(
    monkeypatch: pytest.MonkeyPatch, steps: str
) -> None:
    monkeypatch.setattr(Pass, "is_standard", property(lambda self: True))
    recipe = recipes.parse(f"recipe: test\ninputs: {{dims: {{n: [2, 6]}}}}\nsteps: {steps}", "t.yaml")
    result = runner.apply(text.parse(PADDED), recipe)
    counts = [node.op_type for node in result.proto.graph.node]
    assert result.ok and "Equal" in counts and "Concat" in counts
