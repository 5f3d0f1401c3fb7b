"""Passes over a whole model, in each API: what they return, raise, refuse, and what is restored."""

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnx_ir as ir
import pytest
from support.breadth import sampled

from surgery import Parity, Refusal, graph_pass
from surgery.engine import recipe
from surgery.engine.bridges.except_selectors import excepted_nodes
from surgery.engine.bridges.run_pass import run_pass
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.registry.catalog import catalog
from surgery.engine.why.explain import explain
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.proto import lineage

APIS = ("proto", "ir", "gs")
IDENTITY = """g (float[n] x) => (float[n] y) {
    [first] a = Exp(x)
    [copy] b = Identity(a)
    [last] y = Neg(b)
}"""


@graph_pass("whole-drop-proto", parity=Parity.EXACT)
def drop_proto(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove the Identity nodes, in a new model."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for node in [node for node in made.graph.node if node.op_type == "Identity"]:
        for reader in made.graph.node:
            reader.input[:] = [node.input[0] if name == node.output[0] else name for name in reader.input]
        made.graph.node.remove(node)
    return made


@graph_pass("whole-drop-ir", parity=Parity.EXACT)
def drop_ir(model: ir.Model) -> ir.Model:
    """Remove the Identity nodes, in a new model."""
    made = model.clone()
    for node in made.graph:
        if node.op_type == "Identity":
            node.outputs[0].replace_all_uses_with(node.inputs[0])
            made.graph.remove(node, safe=True)
    return made


@graph_pass("whole-drop-gs", parity=Parity.EXACT)
def drop_gs(graph: gs.Graph) -> gs.Graph:
    """Remove the Identity nodes, in a new graph."""
    made = graph.copy()
    for node in [node for node in made.nodes if node.op == "Identity"]:
        node.i().outputs = node.outputs
        node.outputs.clear()
    return made.cleanup()


@graph_pass("whole-relu-ir")
def relu_ir(model: ir.Model) -> None:
    """Turn Exp into Relu, which is wrong."""
    for node in model.graph:
        if node.op_type == "Exp":
            node.op_type = "Relu"


@graph_pass("whole-fuse-gs", parity=Parity.EXACT)
def fuse_gs(graph: gs.Graph) -> None:
    """Put one Abs in place of Neg and Abs."""
    (end,) = (node for node in graph.nodes if node.op == "Abs")
    node = gs.Node("Abs", "fused", inputs=[end.i().inputs[0]], outputs=list(end.outputs))
    end.outputs.clear()
    node.outputs = graph.outputs
    graph.nodes.append(node)
    graph.cleanup().toposort()


@graph_pass("whole-nothing-proto")
def nothing_proto(model: onnx.ModelProto) -> None:
    """Do nothing."""


@graph_pass("whole-nothing-ir")
def nothing_ir(model: ir.Model) -> None:
    """Do nothing."""


@graph_pass("whole-nothing-gs")
def nothing_gs(graph: gs.Graph) -> None:
    """Do nothing."""


@graph_pass("whole-refuse-proto")
def refuse_proto(model: onnx.ModelProto) -> None:
    """Change half of it, then refuse."""
    model.graph.node[0].op_type = "Relu"
    raise Refusal("not this one")


@graph_pass("whole-refuse-ir")
def refuse_ir(model: ir.Model) -> None:
    """Change half of it, then refuse."""
    relu_ir(model)
    raise Refusal("not this one")


@graph_pass("whole-refuse-gs")
def refuse_gs(graph: gs.Graph) -> None:
    """Change half of it, then refuse."""
    graph.nodes[0].op = "Relu"
    raise Refusal("not this one")


@graph_pass("whole-fate-proto")
def fate_proto(model: onnx.ModelProto, *, fate: str) -> object:
    """End badly.

    Options:
        fate: how
    """
    return _end(fate)


@graph_pass("whole-fate-ir")
def fate_ir(model: ir.Model, *, fate: str) -> object:
    """End badly.

    Options:
        fate: how
    """
    return _end(fate)


@graph_pass("whole-fate-gs")
def fate_gs(graph: gs.Graph, *, fate: str) -> object:
    """End badly.

    Options:
        fate: how
    """
    return _end(fate)


def _end(fate: str) -> object:
    match fate:
        case "abort":
            os.abort()
        case "raise":
            raise KeyError("no such node")
        case "graph":
            return onnx.GraphProto()
    return fate


def run(model: onnx.ModelProto | Path, steps: str, **options: bool) -> runner.Result:
    return runner.apply(
        model, recipe.parse(f"recipe: whole\nsteps: [{steps}]", "whole.yaml"), options=RunOptions(**options)
    )


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("contained", sampled([True, False], 2))
def test_a_new_model_replaces_the_old_one(api: str, contained: bool) -> None:
    result = run(text.parse(IDENTITY), f"whole-drop-{api}", contained=contained)
    (step,) = result.steps
    assert (step.status, step.sites, step.verdict.status) == ("committed", 1, "equal")
    assert [node.name for node in result.proto.graph.node] == ["first", "last"]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("contained", sampled([True, False], 2))
def test_a_pass_that_changes_nothing_has_no_site(api: str, contained: bool) -> None:
    result = run(text.parse(IDENTITY), f"whole-nothing-{api}", contained=contained)
    assert [(step.status, step.sites) for step in result.steps] == [("unchanged", 0)]
    assert result.proto is result.stored.proto


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("contained", sampled([True, False], 2))
def test_a_refusal_leaves_the_model_unchanged(api: str, contained: bool) -> None:
    result = run(text.parse(IDENTITY), f"whole-refuse-{api}, drop-identity", contained=contained)
    assert [step.status for step in result.steps] == ["unchanged", "committed"]
    assert [refused.reason for refused in result.steps[0].refusals] == ["not this one"]
    assert result.output.ops == {"Exp": 1, "Neg": 1}


@pytest.mark.parametrize("api", APIS)
def test_a_result_without_an_excepted_node_is_refused(api: str) -> None:
    stored = storage.from_proto(text.parse(IDENTITY))
    for excepted, count in (("copy", 3), ("first", 2)):
        graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
        graph.excepted = excepted_nodes([excepted], graph)
        run_pass(catalog.find(f"whole-drop-{api}"), graph, {}, contained=False)
        assert len(graph.nodes()) == count
        assert ["'copy'; this pass changes the model as a whole" in one.reason for one in graph.refusals] == [True] * (
            count - 2
        )


@pytest.mark.parametrize("api", APIS)
def test_a_refusal_is_explained(api: str) -> None:
    stored = storage.from_proto(text.parse(IDENTITY))
    why = explain(catalog.find(f"whole-refuse-{api}"), stored.proto, stored.weights, contained=False)
    assert [(refusals.reason, refusals.count) for refusals in why.refusals] == [("not this one", 1)]


NAMES = {"proto": "onnx.ModelProto", "ir": "onnx_ir.Model", "gs": "gs.Graph"}
FATES = {
    "nonsense": "pass 'whole-fate-{api}' returned a str; return the {name} instead",
    "graph": "pass 'whole-fate-{api}' returned a GraphProto; return the {name} instead",
    "raise": "pass 'whole-fate-{api}' raised KeyError: 'no such node'",
    "abort": "pass 'whole-fate-{api}' crashed with SIGABRT",
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("fate", sampled(FATES, 2))
def test_an_error_is_reported_in_one_line(api: str, fate: str) -> None:
    result = run(text.parse(IDENTITY), f"whole-fate-{api}: {{fate: {fate}}}")
    (step,) = result.steps
    assert (step.status, result.exit_code) == ("failed", 3)
    assert FATES[fate].format(api=api, name=NAMES[api]) in step.message


def test_the_whole_change_is_one_refused_site() -> None:
    result = run(text.parse(IDENTITY), "{pass: whole-relu-ir, on_failure: bisect}, whole-drop-gs")
    wrong, right = result.steps
    assert wrong.status == "rolled_back" and [site.number for site in wrong.refused_sites] == [1]
    assert right.status == "committed" and result.output.ops == {"Exp": 1, "Neg": 1}


@pytest.mark.parametrize("api", APIS)
def test_a_graph_without_nodes(api: str) -> None:
    result = run(text.parse("g (float[n] x) => (float[n] x) { }"), f"whole-drop-{api}")
    assert [step.status for step in result.steps] == ["unchanged"]


def test_new_nodes_record_their_origins() -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { a = Exp(x) [n] b = Neg(a) [e] y = Abs(b) }")
    result = run(model, "whole-fuse-gs")
    made = {
        node.op_type: lineage.read({p.key: p.value for p in node.metadata_props}) for node in result.proto.graph.node
    }
    assert made["Exp"] is None
    assert made["Abs"] == lineage.Lineage(("whole-fuse-gs",), ("e", "n"))


BRANCHES = """g (float[n] x, bool cond) => (float[n] y) <float[1] w = {3}> {
    a = Identity(x)
    y = If (cond) <then_branch = t () => (float[n] p) { q = Mul(a, w) p = Neg(q) },
                   else_branch = e () => (float[n] r) { r = Abs(a) }>
}"""


@pytest.mark.parametrize("api", ["ir", "gs"])
def test_if_branches_are_unchanged(api: str) -> None:
    model = text.parse(BRANCHES)
    result = run(model, f"whole-nothing-{api}, drop-identity, whole-nothing-{api}")
    assert [step.status for step in result.steps] == ["unchanged", "committed", "unchanged"]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A model whose weight is in a separate file."""
    model = text.parse(IDENTITY.replace("[n]", "[300]").replace("Neg(b)", "Mul(b, w)"))
    weight = onnx.numpy_helper.from_array(np.random.default_rng(0).normal(size=300).astype(np.float32), "w")
    model.graph.initializer.append(weight)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


@pytest.mark.parametrize("api", APIS)
def test_weights_stay_in_their_files(stored: Path, api: str) -> None:
    result = run(stored, f"whole-drop-{api}")
    assert [step.status for step in result.steps] == ["committed"]
    (weight,) = result.proto.graph.initializer
    assert storage.external_reference(weight).location == str(stored.with_name("weights.bin")).lstrip("/")
