"""What can be done with selected nodes and tensors: agreement with real runs, forms, and reasons."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import ROOT
from support.breadth import sampled

import surgery
from surgery.base.errors import UsageError
from surgery.engine.bridges.run_pass import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.features.workbench.offers import Offer, Offers
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.targets import STANDARD

CONVS = """g (float[n, 2, 4, 4] x) => (float[n, 2, 4, 4] y, float[n, 2, 4, 4] z)
<float[2, 2, 1, 1] w = {1, 2, 3, 4}, float[2] one = {1, 1}, float[2] zero = {0, 0}, float[2] v = {2, 3}> {
    [conv] c = Conv(x, w)
    [norm] b = BatchNormalization(c, one, zero, zero, v)
    [relu] r = Relu(b)
    [drop] d = Dropout(r)
    [other] z = Conv(d, w)
    [shared] y = BatchNormalization(z, one, zero, zero, v)
}"""


def index(model: onnx.ModelProto) -> Offers:
    stored = storage.opened(model)
    return Offers(stored.proto, stored.weights, STANDARD)


def found(offers: list[Offer]) -> dict[str, Offer]:
    return {one.name: one for one in offers}


def test_every_pass_is_listed_and_those_with_a_site_come_first() -> None:
    offers = index(text.parse(CONVS)).of(["conv"])
    assert {one.name for one in offers} == {one.name for one in catalog.passes().values() if one.is_standard}
    assert offers == sorted(offers, key=lambda one: one.rank)
    assert found(offers)["fuse-conv-bn"].sites == 1 and found(offers)["fuse-conv-bn"].step == "fuse-conv-bn"
    assert found(offers)["drop-dropout"].sites == 0


def test_a_pass_without_a_site_says_why_not() -> None:
    offers = found(index(text.parse(CONVS)).of(["other"]))
    assert offers["fuse-conv-bn"].sites == 0
    assert offers["fuse-conv-bn"].why_not == "c is a graph output"


def test_the_reason_for_a_place_comes_with_the_missing_part() -> None:
    with surgery.Session.open(text.parse(CONVS)) as session:
        why = session.why("fuse-conv-bn", "other")
        assert why.sites == () and why.near_misses and "other" in why.near_misses[0].summary + str(why.near_misses)
        assert session.why("fuse-conv-bn", "conv").sites


@pytest.mark.parametrize("name", sampled(["resnet-tiny", "bert-dropout-tiny", "gpt2-tiny", "mobilenet-tiny"], 4))
def test_what_is_offered_is_what_a_run_does(name: str, short_models: Path) -> None:
    stored = storage.load(short_models / f"{name}.onnx")
    offers = Offers(stored.proto, stored.weights, STANDARD)
    nodes = [node for node in stored.proto.graph.node if node.op_type in ("Conv", "MatMul", "Add", "Mul", "Dropout")]
    checked = 0
    for node in nodes[:: max(1, len(nodes) // 3)][:3]:
        label = node.name or f"{node.op_type} -> {', '.join(node.output)}"
        for offer in offers.of([label]):
            if offer.sites and not offer.is_for_selection:
                assert label in _touched(stored, offer.name), (label, offer.name)
                checked += 1
    assert checked


def _touched(stored: storage.StoredModel, name: str) -> set[str]:
    """Return the labels of the nodes that a run of a pass on the whole model removes, changes or is at."""
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    before = {node.label: str(node.ir) for node in graph.nodes()}
    declared = catalog.find(name)
    run_pass(declared, graph, declared.bind({}))
    after = {node.label: str(node.ir) for node in graph.nodes()}
    changed = {label for label, written in before.items() if after.get(label) != written}
    return changed | {site.anchor for site in graph.sites} | {one for site in graph.sites for one in site.removed}


def test_nothing_is_applied_to_the_model_that_is_asked_about() -> None:
    offers = index(text.parse(CONVS))
    first = [one.to_json() for one in offers.of(["conv"])]
    offers.of(["drop"])
    assert [one.to_json() for one in offers.of(["conv"])] == first


def test_the_form_of_a_pass_is_filled_in_from_the_selection() -> None:
    offers = index(text.parse(CONVS))
    one = found(offers.of(["drop"]))
    assert one["remove-nodes"].step == {"remove-nodes": {"nodes": "drop"}} and one["remove-nodes"].sites == 1
    assert one["bypass"].step == {"bypass": {"start": "r", "end": "d"}}
    assert one["add-outputs"].step == {"add-outputs": {"outputs": "d"}} and one["add-outputs"].missing == ()
    assert one["replace-op"].missing == ("op",) and one["replace-op"].is_for_selection
    two = found(offers.of(["conv", "relu"]))
    assert two["set-attribute"].step == {"set-attribute": {"nodes": ["conv", "relu"]}}
    keeps = next(field for field in two["remove-nodes"].fields if field.name == "keeps")
    assert keeps.choices == ("exact", "close", "nothing") and keeps.about and not keeps.required
    assert two["set-initializer"].step == {"set-initializer": {"name": "w"}}


def test_tensors_inputs_and_outputs_have_forms_too() -> None:
    offers = index(text.parse(CONVS))
    port = found(offers.of(["x"]))
    assert port["set-dims"].step == {"set-dims": {"ports": {"x": ["n", 2, 4, 4]}}}
    assert port["embed-preprocessing"].step == {"embed-preprocessing": {"input": "x"}}
    end = found(offers.of(["y"]))
    assert end["remove-outputs"].step == {"remove-outputs": {"outputs": "y"}}
    assert end["embed-postprocessing"].step == {"embed-postprocessing": {"output": "y"}}
    inner = found(offers.of(["r"]))
    assert inner["insert-after"].step == {"insert-after": {"tensors": "r"}}
    assert found(offers.of(["w"]))["set-initializer"].step == {"set-initializer": {"name": "w"}}
    with pytest.raises(UsageError, match="the model has no node and no tensor 'q'"):
        offers.of(["q"])


def test_a_filled_in_offer_can_be_added_as_it_is() -> None:
    with surgery.Session.open(text.parse(CONVS)) as session:
        added = []
        for offer in session.offers(["drop"]):
            if offer.sites and offer.is_for_selection:
                assert session.add(offer.step).ok, offer
                added.append(offer.name)
                session.undo()
        assert "remove-nodes" in added


def test_what_does_not_restrict_itself_is_run_once_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = 400
    nodes, value = [], "x"
    for layer in range(layers):
        for op in ("MatMul", "Dropout", "Relu"):
            more = ["w"] if op == "MatMul" else []
            nodes.append(helper.make_node(op, [value, *more], [f"{op}{layer}"], name=f"{op}/{layer}"))
            value = f"{op}{layer}"
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", value)]
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "g", inputs[:1], inputs[1:], [weight])
    offers = index(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    visited = 0
    nodes_of = Graph.nodes

    def counted(self: Graph, *ops: str) -> object:
        nonlocal visited
        listed = nodes_of(self, *ops)
        visited = max(visited, len(listed))
        return listed

    monkeypatch.setattr(Graph, "nodes", counted)
    around = found(offers.of(["Dropout/200"]))
    assert around["drop-dropout"].sites == 1 and around["strip-metadata"].sites is not None
    assert 0 < visited < layers


def test_the_bundled_models_answer_for_every_node_of_a_kind() -> None:
    stored = storage.load(ROOT / "models" / "resnet-tiny.onnx")
    offers = Offers(stored.proto, stored.weights, STANDARD)
    convs = [node.name for node in stored.proto.graph.node if node.op_type == "Conv"]
    assert found(offers.of(convs))["quantize-dynamic"].is_for_selection
