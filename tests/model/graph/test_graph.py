"""The editing surface: boundaries, names, sweeping, scopes, sites."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
import pytest

from surgery.base.errors import PassError
from surgery.engine.registry.catalog import catalog
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.proto.lineage import FROM_KEY, PASS_KEY
from surgery.model.storage.ir_scopes import scopes


def graph(source: str, **options: frozenset[int]) -> Graph:
    return Graph(ir.from_proto(text.parse(source)), pass_name="test", **options)


def shown(g: Graph) -> list[str]:
    """The nodes of the main graph, as text."""
    lines = text.print_graph(ir.to_proto(g.ir)).splitlines()
    return [line.strip() for line in lines if " = " in line and "<" not in line.split("=")[0]]


def drop_identities(g: Graph) -> None:
    for node in g.nodes("Identity"):
        g.replace(node.outputs[0], node.required_input(0))
    g.finish()


def test_an_output_keeps_its_name_when_its_producer_is_removed() -> None:
    g = graph("g (float[n] x) => (float[n] y) { a = Relu(x) y = Identity(a) }")
    drop_identities(g)
    assert shown(g) == ["y = Relu (x)"]
    assert [value.name for value in g.ir.graph.outputs] == ["y"]


def test_an_output_that_copies_an_input_keeps_its_identity() -> None:
    g = graph("g (float[n] x) => (float[n] y) { y = Identity(x) }")
    drop_identities(g)
    assert shown(g) == ["y = Identity (x)"]
    assert "needs an Identity" in g.refusals[0].reason


def test_two_outputs_of_one_value_keep_both_names() -> None:
    g = graph("g (float[n] x) => (float[n] y, float[n] z) { a = Relu(x) y = Identity(a) z = Identity(a) }")
    drop_identities(g)
    assert sorted(shown(g)) == ["y = Relu (x)", "z = Identity (y)"]


def test_an_identity_is_inserted_if_another_operator_produces_the_output() -> None:
    g = graph("g (float[n] x) => (float[n] y) { y = Dropout(x) }")
    (node,) = g.nodes("Dropout")
    g.replace(node.outputs[0], node.required_input(0))
    assert shown(g) == ["y = Identity (x)"]


def test_an_overridable_initializer_is_not_constant() -> None:
    model = text.parse("g (float[1] x, float[1] w) => (float[1] y) <float[1] v = {2}> { y = Add(x, w) }")
    tensor = model.graph.initializer.add()
    tensor.CopyFrom(model.graph.initializer[0])
    tensor.name = "w"
    g = Graph(ir.from_proto(model))
    (node,) = g.nodes("Add")
    assert node.required_input(1).is_overridable
    assert node.required_input(1).constant is None
    model.ir_version = 3
    assert Graph(ir.from_proto(model)).nodes("Add")[0].required_input(1).constant is not None


def test_sweeping_removes_only_newly_dead_nodes() -> None:
    g = graph(
        """g (float[n] x) => (float[n] y) <float[1] one = {1}, float[1] two = {2}> {
            dead = Neg(x)
            a = Add(x, one)
            b = Mul(a, two)
            y = Relu(x)
        }"""
    )
    (mul,) = g.nodes("Mul")
    g.remove(mul)
    assert shown(g) == ["dead = Neg (x)", "y = Relu (x)"]
    assert list(g.ir.graph.initializers) == []
    assert g.sites[0].removed == ("Mul -> b", "Add -> a")


def test_a_node_that_is_read_is_not_removed() -> None:
    g = graph("g (float[n] x) => (float[n] y) { a = Neg(x) y = Relu(a) }")
    g.remove(g.nodes("Neg")[0])
    assert len(g.nodes()) == 2
    assert g.refusals[0].reason == "Neg -> a is still read"


CAPTURED = """g (float[n] x, bool c) => (float[n] y) <float[1] w = {3}> {
    a = Identity(x)
    y = If(c) <then_branch = t () => (float[n] q) { q = Add(a, w) }, else_branch = e () => (float[n] r) { r = Neg(a) }>
}"""


def test_captured_values_are_redirected_in_subgraphs() -> None:
    g = graph(CAPTURED)
    drop_identities(g)
    assert [node.inputs[0].name for node in g.nodes("Add", "Neg") if node.inputs[0]] == ["x", "x"]


def test_removing_a_control_flow_node_releases_captured_values() -> None:
    g = graph(CAPTURED.replace("y = If", "z = If").replace("}>\n}", "}>\n    y = Relu(x)\n}"))
    g.remove(g.nodes("If")[0])
    assert [node.op for node in g.nodes()] == ["Relu"]
    assert list(g.ir.graph.initializers) == []


def test_functions_are_a_scope_without_initializers() -> None:
    g = graph(
        """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[n] x) => (float[n] y) { y = local.f(x) }
        <domain: "local", opset_import: ["" : 18]> f (a) => (b) { t = Identity(a) b = Neg(t) }"""
    )
    (neg,) = g.nodes("Neg")
    assert neg.opset == 18
    with g.site(neg) as edit:
        one = edit.constant(np.ones(1, np.float32))
        edit.replace(neg.outputs[0], edit.node("Add", neg.required_input(0), one))
    g.finish()
    assert [node.op for node in g.nodes()] == ["local::f", "Identity", "Constant", "Add"]


def test_new_nodes_carry_the_pass_and_their_origin() -> None:
    g = graph("g (float[n] x) => (float[n] y) { [first] a = Neg(x) [second] y = Neg(a) }")
    second = g.nodes("Neg")[1]
    with g.site(second) as edit:
        edit.replace(second.outputs[0], edit.node("Abs", second.required_input(0)))
    (new,) = g.nodes("Abs")
    assert new.ir.metadata_props[PASS_KEY] == "test"
    assert new.ir.metadata_props[FROM_KEY] == '["second"]'


def test_names_are_fresh_in_every_scope() -> None:
    g = graph(CAPTURED)
    assert g.fresh("q") == "q_1"
    assert g.fresh("q") == "q_2"
    assert g.fresh("new") == "new"


def test_a_skipped_site_is_not_applied_and_keeps_its_number() -> None:
    g = graph(
        "g (float[n] x) => (float[n] y) { a = Identity(x) b = Neg(a) c = Identity(b) y = Abs(c) }", skip=frozenset({1})
    )
    drop_identities(g)
    assert shown(g) == ["a = Identity (x)", "b = Neg (a)", "y = Abs (b)"]
    assert [(site.number, site.skipped) for site in g.sites] == [(1, True), (2, False)]


def test_a_refusal_leaves_the_graph_unchanged() -> None:
    g = graph("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    (neg,) = g.nodes("Neg")
    with g.site(neg) as edit:
        edit.constant(np.zeros(4, np.float32))
        edit.replace(neg.outputs[0], edit.node("Abs", neg.required_input(0)))
        edit.require(False, "no")
    assert shown(g) == ["y = Neg (x)"]
    assert list(g.ir.graph.initializers) == []
    assert [(refused.anchor, refused.reason) for refused in g.refusals] == [("Neg -> y", "no")]


def test_a_value_of_another_type_is_refused() -> None:
    g = graph("g (float[n] x, int64[n] i) => (float[n] y) { a = Neg(x) b = Neg(i) y = Abs(a) }")
    first, second = g.nodes("Neg")
    g.replace(first.outputs[0], second.outputs[0])
    assert "INT64 would replace a FLOAT" in g.refusals[0].reason


def test_topological_order_is_restored() -> None:
    g = graph("g (float[n] x) => (float[n] y) { a = Neg(x) b = Abs(x) c = Relu(b) y = Add(a, c) }")
    neg, relu = g.nodes("Neg")[0], g.nodes("Relu")[0]
    with g.site(neg) as edit:
        edit.replace(neg.outputs[0], edit.node("Exp", relu.outputs[0]))
    g.finish()
    assert shown(g)[-1].startswith("y = Add")
    assert [node.op for node in g.nodes()].index("Relu") < [node.op for node in g.nodes()].index("Exp")


def test_a_cycle_is_an_error_of_the_pass() -> None:
    g = graph("g (float[n] x) => (float[n] y) { a = Neg(x) b = Abs(a) y = Relu(b) }")
    neg, relu = g.nodes("Neg")[0], g.nodes("Relu")[0]
    with g.site(neg) as edit:
        edit.set_input(neg, 0, relu.required_input(0))
    with pytest.raises(PassError, match="cycle"):
        g.finish()


def test_old_models_list_their_initializers_as_inputs() -> None:
    g = graph('<ir_version: 3, opset_import: ["" : 7]> g (float[1] x) => (float[1] y) { y = Neg(x) }')
    (neg,) = g.nodes("Neg")
    with g.site(neg) as edit:
        one = edit.constant(np.ones(1, np.float32), "one")
        edit.replace(neg.outputs[0], edit.node("Add", neg.required_input(0), one))
    assert [value.name for value in g.ir.graph.inputs] == ["x", "one"]
    with g.site(g.nodes("Add")[0]) as edit:
        add = g.nodes("Add")[0]
        edit.replace(add.outputs[0], edit.node("Neg", add.required_input(0)))
    assert [value.name for value in g.ir.graph.inputs] == ["x"]


def test_new_domains_are_imported() -> None:
    g = graph("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    (neg,) = g.nodes("Neg")
    with g.site(neg) as edit:
        edit.replace(neg.outputs[0], edit.node("com.microsoft::Gelu", neg.required_input(0)))
    g.finish()
    assert g.ir.opset_imports["com.microsoft"] == 1


def test_reading_shapes_does_not_change_the_graph() -> None:
    g = graph("g (float[n, ?] x) => (float[] y) { a = Shape(x) b = Cast<to = 1>(a) c = ReduceSum(b) y = Squeeze(c) }")
    before = ir.to_proto(g.ir).SerializeToString()
    (cast,) = g.nodes("Cast")
    assert cast.outputs[0].shape == (2,)
    assert cast.required_input(0).elements is not None
    assert ir.to_proto(g.ir).SerializeToString() == before


def test_networkx_export_includes_nodes_and_captures() -> None:
    found = graph(CAPTURED).to_networkx()
    assert sorted(data["op"] for _, data in found.nodes(data=True)) == ["Identity", "If"]
    assert found.number_of_edges() == 2


@pytest.mark.parametrize("name", ["fold-constants", "drop-identity", "common-subexpressions"])
def test_a_site_does_not_traverse_the_whole_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the cost of a pass follows its sites."""
    looks = 0

    def counted(model: ir.Model) -> Iterator[ir.Graph]:
        nonlocal looks
        looks += 1
        return scopes(model)

    def looks_at(blocks: int) -> int:
        nonlocal looks
        body = " ".join(map(_BLOCK.format, range(blocks), range(1, blocks + 1)))
        g = graph(f"g (float[2] s0) => (float[2] y) {{ {body} y = Neg(s{blocks}) }}")
        looks = 0
        declared = catalog.find(name)
        declared.function(g, **declared.bind({}))
        assert len(g.sites) >= blocks
        return looks

    monkeypatch.setattr("surgery.model.graph.graph.scopes", counted)
    monkeypatch.setattr("surgery.model.graph.signature_edits.scopes", counted)
    assert looks_at(40) == looks_at(10)


_BLOCK = "c{1} = Constant<value_floats=[1.0, 2.0]>() i{1} = Identity(c{1}) d{1} = Identity(s{0}) s{1} = Add(d{1}, i{1})"


@pytest.mark.parametrize("constant", ["float k = {1e400}", "int64 k = {99999999999999999999}"])
def test_a_number_that_its_type_does_not_hold_is_a_mistake_in_text(constant: str) -> None:
    with pytest.raises(text.TextError, match="not ONNX text: "):
        text.parse(f"g (float[n] x) => (float[n] y) <{constant}> {{ y = Relu(x) }}")
