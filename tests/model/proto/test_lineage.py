"""Lineage: what is written about a node that a pass made, how it is handed on, and how it is removed."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import surgery
from surgery.base.operators.subgraphs import nodes
from surgery.engine import recipe
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node
from surgery.model.proto import lineage
from surgery.model.proto.lineage import FROM_KEY, KEYS, MOST_LETTERS, PASS_KEY, Lineage

CHAIN = "g (float[n] x) => (float[n] y) { [first] a = Neg(x) [second] b = Abs(a) [third] y = Relu(b) }"
WEIGHTED = """g (float[1,1,4,4] x) => (float[1,1,4,4] y)
<float[1,1,1,1] w = {2}, float[1] s = {3}, float[1] h = {1}, float[1] mu = {0}, float[1] v = {1}>
{ [conv] c = Conv(x, w) [norm] n = BatchNormalization(c, s, h, mu, v) [act] y = Relu(n) }"""


def graph(source: str, pass_name: str = "test") -> Graph:
    return Graph(ir.from_proto(text.parse(source)), pass_name=pass_name)


def only(g: Graph, op: str) -> Node:
    (node,) = g.nodes(op)
    return node


def fuse(g: Graph, op: str, *through: str, by: str = "test") -> Node:
    """Let a node of `op` stand for a chain of nodes, the last one named first."""
    g.begin(by)
    last, first = only(g, through[0]), only(g, through[-1])
    with g.site(last) as edit:
        edit.replace(last.outputs[0], edit.node(op, first.required_input(0)))
    assert not g.refusals
    return only(g, op)


# The text of it


@pytest.mark.parametrize(
    "known",
    [
        Lineage(("a",), ("x",)),
        Lineage(("a", "b"), ('with "quotes", and commas', "new\nline", "日本", "[1]", "")),
        Lineage(("a",), ("x", "y"), 7),
        Lineage(("a",), (), 3),
        Lineage(("a",)),
        Lineage((), ("x",)),
    ],
)
def test_lineage_round_trips(known: Lineage) -> None:
    metadata = {"namespace": "kept", FROM_KEY: "stale", PASS_KEY: "stale"}
    known.write(metadata)
    assert lineage.read(metadata) == known
    lineage.strip(metadata)
    assert metadata == {"namespace": "kept"}


def test_a_missing_lineage_reads_as_none() -> None:
    assert lineage.read({}) is None
    assert lineage.read({"surgery": "no key of ours"}) is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("conv1", Lineage((), ("conv1",))),
        ("{", Lineage((), ("{",))),
        ('{"a": 1}', Lineage((), ('{"a": 1}',))),
        ('["a", null, true, -4, 2.5, ["b"], 3]', Lineage((), ("a",), 3)),
        ("[" * 100_000, Lineage((), ("[" * 100_000,))),
        ("", Lineage()),
    ],
)
def test_foreign_metadata_is_tolerated(written: str, read: Lineage) -> None:
    assert lineage.read({FROM_KEY: written}) == read


def test_many_origins_are_counted_not_listed() -> None:
    parents = [Lineage(origins=(f"node_{number:03}",)) for number in range(500)]
    one = lineage.derive(parents, "fuse")
    assert sum(map(len, one.origins)) <= MOST_LETTERS
    assert len(one.origins) + one.more == 500
    # What is cut may be the same on both sides, so that no more than the larger number is certain.
    both = lineage.derive([one, one, Lineage(origins=("node_000",))], "again")
    assert (both.origins, both.more) == (one.origins, one.more)


def test_a_name_that_is_too_long_is_counted() -> None:
    assert lineage.derive([Lineage(origins=("x" * 1000,))], "p") == Lineage(("p",), (), 1)


def test_passes_are_listed_once_with_the_latest_last() -> None:
    parents = [Lineage(("a", "b"), ("x",)), Lineage(("c", "a"), ("y",))]
    assert lineage.derive(parents, "a").passes == ("b", "c", "a")


def test_the_first_origin_of_each_parent_is_listed_first() -> None:
    parents = [Lineage(origins=("a1", "a2")), Lineage(origins=("b1", "b2"))]
    assert lineage.derive(parents, "p").origins == ("a1", "b1", "a2", "b2")


# Sites


def test_a_fused_node_has_all_fused_nodes_as_origins() -> None:
    new = fuse(graph(CHAIN), "Gelu", "Relu", "Abs", "Neg")
    assert new.lineage == Lineage(("test",), ("third", "second", "first"))


def test_a_chain_of_passes_leads_back_to_the_original() -> None:
    g = graph(CHAIN)
    fuse(g, "Gelu", "Abs", "Neg", by="one")
    new = fuse(g, "Elu", "Relu", "Gelu", by="two")
    assert new.lineage == Lineage(("one", "two"), ("third", "second", "first"))


def test_an_unnamed_node_is_identified_by_its_output() -> None:
    g = graph("g (float[n] x) => (float[n] y) { a = Neg(x) y = Abs(a) }")
    assert fuse(g, "Gelu", "Abs", "Neg").lineage == Lineage(("test",), ("Abs -> y", "Neg -> a"))


def test_a_kept_node_is_not_an_origin_of_a_replacement() -> None:
    g = graph("g (float[n] x) => (float[n] y, float[n] a) { [stays] a = Neg(x) [goes] y = Abs(a) }")
    assert fuse(g, "Gelu", "Abs", "Neg").lineage == Lineage(("test",), ("goes",))


def test_an_edited_node_has_itself_and_removed_nodes_as_origins() -> None:
    g = graph("g (float[n] x) => (float[n] y) { [pad] a = Neg(x) [conv] y = Elu(a) }")
    elu = only(g, "Elu")
    with g.site(elu) as edit:
        edit.set_input(elu, 0, only(g, "Neg").required_input(0))
        edit.set_attribute(elu, "alpha", 2.0)
    assert elu.lineage == Lineage(("test",), ("conv", "pad"))


def test_a_node_that_is_only_rewired_is_not_stamped() -> None:
    g = graph("g (float[n] x) => (float[n] y) { [copy] a = Identity(x) [stays] y = Elu(a) }")
    g.replace(only(g, "Identity").outputs[0], only(g, "Identity").required_input(0))
    assert only(g, "Elu").lineage is None


def test_without_removed_nodes_the_site_is_the_origin() -> None:
    g = graph(CHAIN)
    third = only(g, "Relu")
    with g.site(third) as edit:
        edit.set_input(third, 0, edit.node("Elu", third.required_input(0)))
    assert only(g, "Elu").lineage == Lineage(("test",), ("third",))


def test_without_known_origins_no_origin_is_recorded() -> None:
    g = graph("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    with g.site() as edit:
        edit.replace(edit.nodes("Relu", None)[0], edit.node("Abs", None))
    stamped = [node for node in g.nodes() if node.lineage is not None]
    assert all(FROM_KEY not in node.metadata for node in stamped)


def test_each_place_of_a_site_has_separate_origins() -> None:
    g = graph("g (float[n] x) => (float[n] y, float[n] z) { [one] y = Neg(x) [two] z = Abs(x) }")
    one, two = only(g, "Neg"), only(g, "Abs")
    with g.site(one) as edit:
        edit.replace(one.outputs[0], edit.node("Elu", one.required_input(0)))
        edit.replace(two.outputs[0], edit.at(two).node("Relu", two.required_input(0)))
    assert only(g, "Elu").lineage == Lineage(("test",), ("one",))
    assert only(g, "Relu").lineage == Lineage(("test",), ("two",))


def test_a_shape_computation_is_not_an_origin_of_its_reader() -> None:
    g = graph("""g (float[a,b] x) => (float[a,b] y) {
        [elsewhere] e = Exp(x) [shape] s = Shape(e) [same] t = Identity(s) [reshape] y = Reshape(x, t) }""")
    assert only(g, "Identity").outputs[0].dtype == ir.DataType.INT64
    new = fuse(g, "Relu", "Reshape")
    assert new.lineage == Lineage(("test",), ("reshape",))


def test_a_shape_computation_is_an_origin_of_a_shape() -> None:
    g = graph("g (float[2,3] x) => (int64[2] y) { [shape] s = Shape(x) [copy] y = Identity(s) }")
    copy = only(g, "Identity")
    with g.site(copy) as edit:
        edit.replace(copy.outputs[0], edit.node("Constant", value=ir.tensor(np.array([2, 3]))))
    assert only(g, "Constant").lineage == Lineage(("test",), ("copy", "shape"))


def test_a_new_node_has_removed_nodes_of_its_operator_as_origins() -> None:
    g = graph(CHAIN)
    third = only(g, "Relu")
    first = only(g, "Neg").required_input(0)
    with g.site(third) as edit:
        edit.replace(third.outputs[0], edit.node("Abs", edit.node("Elu", first), name="new"))
    known = {node.op: node.lineage for node in g.nodes()}
    assert known["Abs"] == Lineage(("test",), ("second",))
    assert known["Elu"] == Lineage(("test",), ("third", "first"))


def test_several_new_nodes_of_one_operator_share_all_origins() -> None:
    g = graph(CHAIN)
    third = only(g, "Relu")
    first = only(g, "Neg").required_input(0)
    with g.site(third) as edit:
        edit.replace(third.outputs[0], edit.node("Abs", edit.node("Abs", first)))
    assert {node.lineage for node in g.nodes()} == {Lineage(("test",), ("third", "second", "first"))}


def test_foreign_metadata_is_kept() -> None:
    g = graph(CHAIN)
    only(g, "Relu").ir.metadata_props["namespace"] = "model.act"
    assert fuse(g, "Gelu", "Relu", "Abs").metadata["namespace"] == "model.act"


def test_inlined_nodes_have_the_call_and_body_node_as_origins() -> None:
    g = graph("""<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[n] x) => (float[n] y) { [call] y = local.f(x) }
        <domain: "local", opset_import: ["" : 21]> f (a) => (b) { [inner] b = Neg(a) }""")
    call = only(g, "local::f")
    with g.site(call) as edit:
        (made,) = edit.inline(next(iter(g.ir.functions.values())), call.inputs)
        edit.replace(call.outputs[0], made)
    copy = next(node for node in g.nodes("Neg") if not g.in_function(node))
    assert copy.lineage == Lineage(("test",), ("inner", "call"))


def test_many_nodes_through_many_passes_stay_small() -> None:
    """Each of 60 passes makes each of 60 nodes from all 60 before: what is listed must not grow."""
    size = 60
    body = " ".join(f"[node_with_a_long_name_{i}] v{i} = Neg(x)" for i in range(size))
    total = ", ".join(f"v{i}" for i in range(size))
    g = graph(f"g (float[n] x) => (float[n] y) {{ {body} [sum] y = Sum({total}) }}")
    for number in range(60):
        g.begin(f"pass-{number % 5}")
        old = g.nodes("Sum")[0]
        x = g.ir.graph.inputs[0]
        with g.site(old) as edit:
            parts = [edit.node("Neg", surgery.Value(g, x)) for _ in range(size)]
            edit.replace(old.outputs[0], edit.node("Sum", *parts))
    written = [node.metadata for node in g.nodes()]
    assert max(len(metadata[FROM_KEY]) for metadata in written) < 2 * MOST_LETTERS
    assert max(len(metadata[PASS_KEY]) for metadata in written) < 60


# Models and files


def run(model: onnx.ModelProto, *steps: str) -> onnx.ModelProto:
    result = surgery.apply(model, recipe.parse(f"steps: [{', '.join(steps)}]"))
    assert result.ok, [step.message for step in result.steps]
    return result.proto


def told(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    """The metadata of ours, by operator or name of the initializer."""
    things = [(node.op_type, node) for node in nodes(model)] + [(t.name, t) for t in model.graph.initializer]
    return {
        name: {entry.key: entry.value for entry in thing.metadata_props if entry.key in KEYS}
        for name, thing in things
        if any(entry.key in KEYS for entry in thing.metadata_props)
    }


def test_a_fused_weight_is_described_by_the_node_that_reads_it() -> None:
    assert told(run(text.parse(WEIGHTED), "fuse-conv-bn")) == {
        "Conv": {PASS_KEY: "fuse-conv-bn", FROM_KEY: '["conv","norm"]'}
    }


def test_a_folded_weight_records_its_lineage_and_passes_it_on() -> None:
    source = """g (float[2,3] x) => (float[2,2] y) <float[2,3] w = {1,2,3,4,5,6}, float[2] b = {1,2}>
    { [turn] t = Transpose(w) [layer] m = MatMul(x, t) [bias] y = Add(m, b) }"""
    folded = run(text.parse(source), "fold-constants")
    (known,) = told(folded).values()
    assert known == {PASS_KEY: "fold-constants", FROM_KEY: '["turn"]'}
    fused = run(folded, "fuse-matmul-add")
    assert told(fused)["Gemm"] == {PASS_KEY: "fuse-matmul-add", FROM_KEY: '["bias","layer"]'}


def test_a_model_that_is_optimized_again_keeps_its_first_origins() -> None:
    once = run(text.parse(WEIGHTED), "fuse-conv-bn")
    twice = run(onnx.load_model_from_string(once.SerializeToString()), "matmul-to-conv", "upgrade-opset: {to: 22}")
    assert told(twice)["Conv"][FROM_KEY] == told(once)["Conv"][FROM_KEY]


def test_nodes_of_subgraphs_have_a_lineage() -> None:
    source = """g (bool c, float[2,3] x, float[3,2] w) => (float[2,2] y) { y = If(c) <
        then_branch = t () => (float[2,2] p) { [one] m = MatMul(x, w) [two] p = Add(m, b) },
        else_branch = e () => (float[2,2] q) { q = MatMul(x, w) }> }""".replace(
        "=> (float[2,2] y) {", "=> (float[2,2] y) <float[2] b = {1,2}> {"
    )
    assert told(run(text.parse(source), "fuse-matmul-add"))["Gemm"][FROM_KEY] == '["two","one"]'


@pytest.mark.parametrize(("version", "opset"), [(3, 7), (4, 9), (7, 13), (8, 17), (10, 21)])
def test_lineage_needs_no_higher_ir_version(version: int, opset: int) -> None:
    """The fields are of IR version 10; the checker and ONNX Runtime read past them in older models."""
    inputs = "float[2] x, float[2] w" if version < 4 else "float[2] x"
    model = text.parse(f"""<ir_version: {version}, opset_import: ["" : {opset}]>
        g ({inputs}) => (float[2] y) <float[2] w = {{1, 2}}> {{ [a] i = Neg(x) [b] r = Neg(i) [c] y = Add(r, w) }}""")
    for thing in (*model.graph.node, *model.graph.initializer):
        for key, value in ((PASS_KEY, "a-pass"), (FROM_KEY, '["x"]')):
            thing.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(model, full_check=True)
    done = run(model, "strip-lineage")
    assert done.ir_version == version and not told(done)


# Removing it


def test_strip_lineage_removes_only_lineage_and_removes_it_everywhere() -> None:
    model = text.parse("""<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            a = Add(x, w)
            b = If(c) <then_branch = t () => (float[2] p) { p = Neg(a) },
                       else_branch = e () => (float[2] q) { q = Abs(a) }>
            y = local.f(b)
        }
        <domain: "local", opset_import: ["" : 21]> f (d) => (e) { e = Relu(d) }""")
    for thing in (*nodes(model), *model.graph.initializer):
        for key in (*KEYS, "namespace", "surgery.unknown"):
            thing.metadata_props.add(key=key, value="v")
    model.metadata_props.add(key=PASS_KEY, value="of the caller")
    done = run(model, "strip-lineage")
    assert [[entry.key for entry in node.metadata_props] for node in nodes(done)] == [
        ["namespace", "surgery.unknown"]
    ] * 6
    assert [entry.key for entry in done.graph.initializer[0].metadata_props] == ["namespace", "surgery.unknown"]
    assert [entry.key for entry in done.metadata_props] == [PASS_KEY]
    for thing in (*nodes(model), *model.graph.initializer):
        kept = [entry for entry in thing.metadata_props if entry.key not in KEYS]
        del thing.metadata_props[:]
        thing.metadata_props.extend(kept)
    assert done == model


def test_strip_lineage_without_lineage_is_unchanged() -> None:
    result = surgery.apply(text.parse(WEIGHTED), recipe.parse("steps: [strip-lineage]"))
    assert [step.status for step in result.steps] == ["unchanged"]


def test_passes_can_strip_single_nodes() -> None:
    g = graph(CHAIN)
    new = fuse(g, "Gelu", "Relu", "Abs")
    with g.site(new) as edit:
        edit.strip_lineage(new)
    assert new.lineage is None and len(g.sites) == 2
