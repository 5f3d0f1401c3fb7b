"""Explanations of passes that match nothing: each fault is named, with its node and both values."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support import ROOT
from support.short_models import shortened

from surgery.base.errors import UsageError
from surgery.engine.bridges.run_pass import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.engine.why import explain as why
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph

MODELS = ROOT / "models"
Model = onnx.ModelProto


def explain(model: Model, name: str, **more: object) -> why.Why:
    stored = storage.from_proto(model)
    return why.explain(catalog.find(name), stored.proto, stored.weights, **more)


def upgraded(name: str, to: int) -> Model:
    """Four layers of a bundled model in a newer opset, where there are operators to fuse into, and without Dropout."""
    stored = storage.from_proto(shortened(name, layers=4))
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    for change, options in (("upgrade-opset", {"to": to}), ("drop-dropout", {})):
        declared = catalog.find(change)
        run_pass(declared, graph, declared.bind(options))
    return storage.resolve(storage.proto_from_ir(graph.ir, stored.weights))


@pytest.fixture(scope="module")
def bert_model() -> Model:
    return upgraded("bert-dropout-tiny", 20)


@pytest.fixture
def bert(bert_model: Model) -> Model:
    """A BERT whose 9 layer normalizations and 4 Gelus are written out."""
    return copy.deepcopy(bert_model)


def nodes(model: Model, op: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == op]


def maker(model: Model, value: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if value in node.output)


def readers(model: Model, value: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if value in node.input]


def set_constant(model: Model, node: onnx.NodeProto, index: int, value: object) -> None:
    name = f"{node.input[index]}_other"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    node.input[index] = name


def insert_before(model: Model, reader: onnx.NodeProto, index: int, new: onnx.NodeProto) -> None:
    new.input.append(reader.input[index])
    reader.input[index] = new.output[0]
    model.graph.node.insert(list(model.graph.node).index(reader), new)


def spy_on(model: Model, value: str) -> None:
    """Let another node read a value."""
    model.graph.node.append(helper.make_node("Identity", [value], ["spied"], name="spy"))
    model.graph.output.append(helper.make_tensor_value_info("spied", 1, None))


def the_miss(found: why.Why, sites: int) -> why.NearMiss:
    assert len(found.sites) == sites
    assert found.near_misses_total == 1
    (miss,) = found.near_misses
    assert miss.alike == ()
    return miss


def the_flaw(found: why.Why, sites: int) -> why.Flaw:
    miss = the_miss(found, sites)
    assert miss.matched == len(miss.lines) - 1
    (flaw,) = miss.flaws
    return flaw


# One wrong constant


def test_a_wrong_exponent_of_a_layer_norm(bert: Model) -> None:
    power = nodes(bert, "Pow")[3]
    set_constant(bert, power, 1, np.float32(3))
    flaw = the_flaw(explain(bert, "fuse-layer-norm"), 8)
    assert (flaw.kind, flaw.node, flaw.line) == ("constant", power.name, "q = Pow(d, 2)")
    assert (flaw.expected, flaw.actual) == ("2", f"3.0 ('{power.input[1]}')")


def test_a_wrong_root_of_a_gelu(bert: Model) -> None:
    division = maker(bert, nodes(bert, "Erf")[3].input[0])
    set_constant(bert, division, 1, np.float32(1.5))
    flaw = the_flaw(explain(bert, "fuse-gelu"), 3)
    assert (flaw.kind, flaw.node, flaw.expected) == ("constant", division.name, "~1.4142135623730951")
    assert flaw.actual.startswith("1.5 ")


def test_an_overridable_constant(bert: Model) -> None:
    addition = readers(bert, nodes(bert, "Erf")[0].output[0])[0]
    index = 1 - list(addition.input).index(nodes(bert, "Erf")[0].output[0])
    set_constant(bert, addition, index, np.float32(1))
    bert.graph.input.append(helper.make_tensor_value_info(addition.input[index], 1, []))
    flaw = the_flaw(explain(bert, "fuse-gelu"), 3)
    assert (flaw.kind, flaw.node) == ("constant", addition.name)
    assert flaw.actual == f"'{addition.input[index]}', an overridable initializer"


# One extra consumer


@pytest.mark.parametrize(("op", "name", "sites"), [("Sub", "fuse-layer-norm", 8), ("Erf", "fuse-gelu", 3)])
def test_an_extra_consumer(bert: Model, op: str, name: str, sites: int) -> None:
    value = nodes(bert, op)[3].output[0]
    spy_on(bert, value)
    miss = the_miss(explain(bert, name), sites)
    assert miss.matched == len(miss.lines)
    assert "is used outside the pattern" in miss.reason
    (escape,) = miss.escapes
    assert f"'{value}', read by Identity 'spy' too" in escape


def test_a_value_that_is_a_graph_output(bert: Model) -> None:
    value = nodes(bert, "Sqrt")[5].output[0]
    bert.graph.output.append(helper.make_tensor_value_info(value, 1, None))
    miss = the_miss(explain(bert, "fuse-layer-norm"), 8)
    assert miss.reason == "s is a graph output"
    assert miss.escapes == (f"s is the graph output '{value}'",)


# One swapped axis


@pytest.mark.parametrize("number", [6, 7])
def test_a_mean_over_another_axis(bert: Model, number: int) -> None:
    mean = nodes(bert, "ReduceMean")[number]
    set_constant(bert, mean, 1, np.array([1], np.int64))
    miss = the_miss(explain(bert, "fuse-layer-norm"), 8)
    assert miss.reason == "the mean is not over the last axes"
    assert miss.where.startswith("idioms/_shared.py:")
    assert "from_end = [-2]" in miss.values and f"node = ReduceMean '{mean.name}'" in miss.values
    axes = {bound.name: bound.contents for bound in miss.bindings}
    assert {axes["axes"], axes["mean_axes"]} == {"{1}", "{-1}"}


def test_swapped_operands(bert: Model) -> None:
    difference = nodes(bert, "Sub")[2]
    difference.input[:] = difference.input[::-1]
    flaw = the_flaw(explain(bert, "fuse-layer-norm"), 8)
    assert (flaw.kind, flaw.node, str(flaw)) == (
        "order",
        difference.name,
        "expected Sub(x, u), found its inputs in the reverse order",
    )


# One missing shape


def test_an_unknown_shape(bert: Model) -> None:
    bert.opset_import.append(helper.make_opsetid("acme", 1))
    source = nodes(bert, "Sub")[-1].input[0]
    last = list(readers(bert, source))
    insert_before(bert, last[0], 0, helper.make_node("Mystery", [], ["mystery"], name="riddle", domain="acme"))
    for reader in last[1:]:
        reader.input[:] = ["mystery" if value == source else value for value in reader.input]
    miss = the_miss(explain(bert, "fuse-layer-norm"), 8)
    assert miss.unknown and all("acme::Mystery 'riddle'" in one for one in miss.unknown)
    assert {bound.name: bound.type for bound in miss.bindings}["d"] == "?"


# Other faults


def test_another_operator(bert: Model) -> None:
    nodes(bert, "Erf")[1].op_type = "Tanh"
    flaw = the_flaw(explain(bert, "fuse-gelu"), 3)
    assert (flaw.kind, flaw.expected, flaw.actual) == ("operator", "Erf", f"Tanh '{flaw.node}'")


def test_a_node_in_between(bert: Model) -> None:
    error = nodes(bert, "Erf")[2]
    insert_before(bert, error, 0, helper.make_node("Cast", [], ["rounded"], name="between", to=1))
    flaw = the_flaw(explain(bert, "fuse-gelu"), 3)
    assert (flaw.kind, flaw.node, str(flaw)) == ("between", "between", "expected Div, found Cast 'between' in between")


def test_equal_near_misses_are_reported_once(bert: Model) -> None:
    for power in nodes(bert, "Pow")[-3:]:
        set_constant(bert, power, 1, np.float32(3))
    found = explain(bert, "fuse-layer-norm")
    assert len(found.sites) == 6 and found.near_misses_total == 1
    assert len(found.near_misses[0].alike) == 2


def test_a_convolution_with_a_computed_bias() -> None:
    model = text.parse("""g (float[N,1,4,4] x, float[1] b) => (float[N,1,4,4] y)
        <float[1,1,1,1] w = {2}, float[1] s = {3}, float[1] h = {1}, float[1] mu = {0}, float[1] v = {1}> {
            c = Conv(x, w, b)
            y = BatchNormalization(c, s, h, mu, v)
        }""")
    miss = the_miss(explain(model, "fuse-conv-bn"), 0)
    assert miss.reason == "the bias of the convolution is not constant"
    assert {bound.name: bound.contents for bound in miss.bindings}["b"] == "graph input 'b'"


def test_a_target_without_the_operator_is_named_and_weights_are_not_listed() -> None:
    model = text.parse(
        """g (float[1,2,4,4] x) => (float[1,3,4,4] y) <float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}> {
            c = Conv(x, w)
            y = Relu(c)
        }"""
    )
    [miss] = explain(model, "fuse-conv-activation").near_misses
    assert miss.reason == "the target 'standard' has no com.microsoft::FusedConv; ort-cpu has it"
    assert miss.values.startswith("m.w = float[3,2,1,1] 'w', conv = ") and "{" not in miss.summary


def test_a_batch_norm_that_does_not_follow_a_convolution() -> None:
    model = onnx.load(MODELS / "resnet-tiny.onnx")
    norm = nodes(model, "BatchNormalization")[4]
    insert_before(model, norm, 0, helper.make_node("Relu", [], ["bent"], name="bend"))
    found = explain(model, "fuse-conv-bn")
    assert len(found.sites) == 52
    flaw = found.near_misses[0].flaws[0]
    assert (flaw.kind, flaw.node, flaw.actual) == ("between", "bend", "Relu 'bend' in between")


# Whole graphs


def test_attention_with_a_dropout_is_refused() -> None:
    found = explain(onnx.load(MODELS / "bert-tiny.onnx"), "fuse-attention")
    assert found.looked == {"Softmax": 12} and found.silent == ()
    (refusals,) = found.refusals
    reason = "Dropout reads the probabilities of the Softmax instead of a product with the values"
    assert (refusals.reason, refusals.count) == (reason, 12)


ATTENTION = """<ir_version: 11, opset_import: ["" : 23, "acme": 1]>
    g (float[B,S,4] q, float[B,T,4] k, float[B,T,4] v) => (float[B,S,4] y)
    <int64[4] cut = {0, 0, 2, 2}, int64[3] flat = {0, 0, 4}, float c = {0.7}>
    {
        qr = Reshape(q, cut)
        qh = Transpose<perm = [0, 2, 1, 3]>(qr)
        kr = Reshape(k, cut)
        kh = Transpose<perm = [0, 2, 3, 1]>(kr)
        vr = Reshape(v, cut)
        vh = Transpose<perm = [0, 2, 1, 3]>(vr)
        product = MatMul(qh, kh)
        scores = Mul(product, c)
        p = Softmax(scores)
        context = MatMul(p, vh)
        rows = Transpose<perm = [0, 2, 1, 3]>(context)
        y = Reshape(rows, flat)
    }"""


def attention(old: str, new: str) -> why.Why:
    assert old in ATTENTION
    return explain(text.parse(ATTENTION.replace(old, new)), "fuse-attention")


def test_a_matching_attention_is_a_site() -> None:
    assert len(attention("0.7", "0.5").sites) == 1


def test_attention_with_an_inner_value_read_elsewhere() -> None:
    found = attention("rows =", "spied = Neg(scores) away = acme.Sink(spied) rows =")
    (refusals,) = found.refusals
    assert refusals.reason == "a value inside the attention is read elsewhere too"
    assert refusals.places[0].anchor == "Softmax -> p"
    assert "'Neg -> spied'" in refusals.places[0].values.replace("Node(Neg -> spied)", "'Neg -> spied'")


def test_attention_along_another_axis() -> None:
    (refusals,) = attention("Softmax(", "Softmax<axis = 2>(").refusals
    assert refusals.reason == "Softmax is not along the keys"
    assert "node = Softmax -> p" in refusals.places[0].values.replace("'", "")


def test_attention_of_an_unknown_rank() -> None:
    (refusals,) = attention("qh = Transpose<perm = [0, 2, 1, 3]>(qr)", "qh = acme.Turn(qr)").refusals
    assert refusals.reason == "the attention is not of rank 4, or its rank is not known"
    assert any("'Turn -> qh'" in one for one in refusals.places[0].unknown)


def test_attention_with_a_wrong_constant() -> None:
    """The pass sees a Mul that is no scale, and says that it is in the way."""
    found = attention("0.7", "-0.7")
    assert found.sites == ()
    (refusals,) = found.refusals
    assert refusals.reason.startswith("Mul is between the product of queries and keys and the Softmax")
    assert refusals.places[0].anchor == "Softmax -> p"


def test_a_node_that_a_pass_does_not_look_at() -> None:
    model = onnx.load(MODELS / "bert-tiny.onnx")
    found = explain(model, "fuse-attention", at=nodes(model, "Erf")[0].name)
    assert "does not look at this Erf" in found.remark and "Softmax" in found.remark


# One node


def test_any_node_of_a_pattern_is_explained(bert: Model) -> None:
    error = nodes(bert, "Erf")[3]
    addition = readers(bert, error.output[0])[0]
    set_constant(bert, addition, 1 - list(addition.input).index(error.output[0]), np.float32(1.01))
    for name in (error.name, error.output[0], maker(bert, error.input[0]).name):
        found = explain(bert, "fuse-gelu", at=name)
        assert found.sites == ()
        flaw = found.near_misses[0].flaws[0]
        assert (flaw.node, flaw.expected) == (addition.name, "1")


def test_a_node_of_an_operator_that_the_pattern_does_not_have(bert: Model) -> None:
    nodes(bert, "Erf")[1].op_type = "Tanh"
    found = explain(bert, "fuse-gelu", at=nodes(bert, "Tanh")[0].name)
    assert str(found.near_misses[0].flaws[0]).startswith("expected Erf, found Tanh")


def test_a_node_that_is_part_of_a_site(bert: Model) -> None:
    error = nodes(bert, "Erf")[3]
    found = explain(bert, "fuse-gelu", at=error.name)
    assert len(found.sites) == 1 and error.name in found.sites[0].removed
    assert found.near_misses == ()


def test_an_unknown_node_gets_a_suggestion(bert: Model) -> None:
    name = nodes(bert, "Erf")[0].name
    with pytest.raises(UsageError, match=f"no node '{name}x'; did you mean '{name}'"):
        explain(bert, "fuse-gelu", at=f"{name}x")
    with pytest.raises(UsageError, match="no node ''"):
        explain(bert, "fuse-gelu", at="")


# Odd models


def test_a_model_without_nodes() -> None:
    model = text.parse("g (float[N] x) => (float[N] x) { }")
    for name in ("fuse-gelu", "fuse-attention", "fold-constants"):
        found = explain(model, name)
        assert (found.sites, found.near_misses, found.refusals, found.silent) == ((), (), (), ())
    assert "no Erf" in explain(model, "fuse-gelu").lines(1)[0]


def test_near_misses_in_subgraphs_and_functions() -> None:
    model = text.parse("""<ir_version: 10, opset_import: ["": 18, "own": 1]>
        g (bool c, float[N,2] x) => (float[N,2] y) {
            z = If(c) <
                then_branch = t () => (a) { p = own.f(x) a = Neg(p) },
                else_branch = e () => (b) { m = Max(x, x) n = Identity(m) b = Min(n, n) }
            >
            y = Identity(z)
        }
        <domain: "own", opset_import: ["": 18]>
        f (v) => (w) { s = Max(v, v) w = Cos(s) }""")
    found = explain(model, "fuse-clip")
    anchors = {miss.anchor for miss in found.near_misses}
    assert any("Min -> b" in anchor or "Max -> m" in anchor for anchor in anchors)
    assert any("Max -> s" in (miss.anchor, *miss.alike) for miss in found.near_misses)


def test_a_pattern_across_the_boundary_of_a_subgraph() -> None:
    model = text.parse("""g (bool c, float[2,3] x, float[3,2] w, float[2] b) => (float[2,2] y) {
            t = MatMul(x, w)
            y = If(c) <
                then_branch = t () => (float[2,2] a) { a = Add(t, b) },
                else_branch = e () => (float[2,2] d) { d = Identity(t) }
            >
        }""")
    (miss,) = explain(model, "fuse-matmul-add").near_misses
    assert miss.reason == "the pattern crosses the boundary of a subgraph"
    assert any("is not in the graph of" in escape for escape in miss.escapes)


def test_the_matcher_and_the_explanation_agree(bert: Model) -> None:
    """What nothing is wrong with is a site, never a near miss without a flaw and a reason."""
    for name in ("fuse-gelu", "fuse-layer-norm", "fuse-matmul-add"):
        for miss in explain(bert, name, limit=100).near_misses:
            assert miss.flaws or miss.reason


def test_a_fork_returns_the_same_explanation(bert: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("fuse-matmul-add", "fuse-attention")
    monkeypatch.setattr("surgery.engine.registry.discovery.STANDARD", "none")
    assert not catalog.find(names[0]).is_standard
    found = [explain(bert, name, contained=False) for name in names]
    assert any(one.near_misses for one in found) and any(one.refusals for one in found)
    assert [explain(bert, name) for name in names] == found


def test_a_place_without_a_node_in_a_pass_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "declining_passes.py").write_text(
        "from surgery import Graph, graph_pass\n\n\n"
        '@graph_pass("decline-everything")\n'
        "def decline_everything(graph: Graph) -> None:\n"
        '    """Decline."""\n'
        "    nodes = 3\n"
        "    with graph.site() as new:\n"
        '        new.require(nodes > 4, "there is little to do")\n'
    )
    catalog.load_plugin(str(tmp_path / "declining_passes.py"))
    found = explain(text.parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"), "decline-everything")
    (refusal,) = found.refusals
    assert (refusal.reason, refusal.count) == ("there is little to do", 1)
    assert refusal.where.endswith("declining_passes.py:9")


def test_explaining_does_not_change_the_model(bert: Model) -> None:
    stored = storage.from_proto(bert)
    before = stored.proto.SerializeToString(deterministic=True)
    why.explain(catalog.find("fuse-gelu"), stored.proto, stored.weights)
    assert stored.proto.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("name", ["fuse-attention", "fuse-multi-head-attention", "fuse-group-query-attention"])
def test_an_unsupported_attention_is_refused_with_its_first_difference(name: str) -> None:
    model = text.parse(
        """<ir_version: 11, opset_import: ["" : 23]>
        g (float[B,2,S,8] q, float[B,2,T,8] k, float[B,2,T,8] v) => (float[B,2,S,8] y) {
            kt = Transpose<perm = [0, 1, 3, 2]>(k)
            product = MatMul(q, kt)
            high = Abs(product)
            bent = Tanh(product)
            both = Sub(bent, high)
            p = Softmax(bent)
            y = MatMul(p, v)
        }"""
    )
    (refused,) = explain(model, name).refusals
    assert refused.reason == "a value inside the attention is read elsewhere too"
    assert refused.places[0].anchor == "Softmax -> p"


def test_a_softmax_of_a_linear_layer_is_not_an_attention() -> None:
    model = text.parse(
        """<ir_version: 11, opset_import: ["" : 23]>
        g (float[B,2] x, float[2,2] v) => (float[B,2] y) <float[2,2] w = {1, 2, 3, 4}> {
            scores = MatMul(x, w)
            p = Softmax(scores)
            y = MatMul(p, v)
        }"""
    )
    assert explain(model, "fuse-attention").refusals == ()
