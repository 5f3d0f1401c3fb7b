"""Other people's tools as steps: what comes back whole, what is refused, and what ends them ends only the step."""

from __future__ import annotations

import copy
import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import TESTS
from support.breadth import sampled

from surgery.base.errors import PassError, RecipeError, UsageError
from surgery.engine import recipe
from surgery.engine.bridges import run_tool, tool_calls, tool_packing, tool_restore
from surgery.engine.pipeline import runner
from surgery.engine.recipe.loader import single_step
from surgery.engine.registry import discovery
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.graph.state import WorkerLimits
from surgery.model.storage import Reference

TOOLS = (
    "graphsurgeon-fold",
    "onnx-version-converter",
    "onnxoptimizer",
    "onnxscript-optimize",
    "onnxsim",
    "ort",
    "ort-transformers",
)
CRASHING = TESTS / "wrong_tools/wrong/onnxoptimizer/crashes_on_a_branch_that_is_a_constant.onnxtxt"
pytestmark = pytest.mark.usefixtures("tools_at_hand")


def run(model: onnx.ModelProto | Path, name: str, options: dict[str, Any] | None = None) -> runner.Result:
    return runner.apply(model, single_step(name, options or {}, on_failure="rollback"))


def graph_of(stored: storage.StoredModel) -> Graph:
    return Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)


def references(model: onnx.ModelProto) -> dict[str, Reference]:
    return {t.name: storage.external_reference(t) for t in storage.all_tensors(model) if storage.is_external(t)}


def decorated() -> onnx.ModelProto:
    """Return a model with something to remove, and with much that tools do not know of."""
    model = text.parse("""
        g (float[batch,4] x, float[3] unused) => (float[batch,4] y) {
            a = Identity(x)
            b = Relu(a)
            y = Neg(b)
        }
    """)
    model.doc_string = "about the model"
    model.producer_name = "maker"
    model.metadata_props.add(key="classes", value="cat, dog")
    graph = model.graph
    graph.doc_string = "about the graph"
    graph.input[0].doc_string = "pixels"
    for node in graph.node:
        node.name = f"the {node.op_type}"
        node.doc_string = f"why {node.op_type}"
        node.metadata_props.add(key="module", value="model.layer")
    graph.value_info.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, ["batch", 4]))
    return model


@pytest.mark.parametrize("name", ["onnxoptimizer", "onnxsim", "onnxscript-optimize", "ort"])
def test_metadata_dropped_by_a_tool_is_restored(name: str) -> None:
    before = decorated()
    result = run(before, name)
    assert [step.status for step in result.steps] == ["committed"], result.steps[0].message
    after = result.proto
    assert [node.op_type for node in after.graph.node] == ["Relu", "Neg"]
    assert list(after.graph.input) == list(before.graph.input)
    assert list(after.graph.output) == list(before.graph.output)
    assert after.graph.node[1] == before.graph.node[2]
    relu = after.graph.node[0]
    assert (relu.name, relu.doc_string, relu.metadata_props[0].value) == ("the Relu", "why Relu", "model.layer")
    for message in (after, before):
        message.ClearField("graph")
    assert after == before


@pytest.mark.parametrize("name", sampled(TOOLS, 3))
def test_a_model_with_nothing_to_do_keeps_its_bytes(name: str) -> None:
    model = decorated()
    model.graph.node[1].input[0] = "x"
    del model.graph.node[0]
    (step,) = run(model, name).steps
    assert (step.status, step.sites) == ("unchanged", 0), step.message


def test_nodes_in_a_branch_that_lost_their_metadata_get_it_back() -> None:
    before = text.parse("""g (float[2] x, bool c) => (float[2] y) { i = Identity(x)
        [either] y = If(c) <then_branch = t () => (float[2] p) { [first] p = Neg(x) },
                            else_branch = e () => (float[2] q) { [second] r = Abs(i) [third] q = Exp(r) }> }""")
    branches = [attribute.g for attribute in before.graph.node[1].attribute]
    for branch in branches:
        for node in branch.node:
            node.metadata_props.add(key="module", value=node.name)
    made = copy.deepcopy(before)
    del made.graph.node[0]
    for attribute in made.graph.node[0].attribute:
        for node in attribute.g.node:
            node.ClearField("name")
            node.ClearField("metadata_props")
            node.input[:] = ["x" if name == "i" else name for name in node.input]
    after = tool_restore.restore(before, made)
    kept = {node.op_type: node for attribute in after.graph.node[0].attribute for node in attribute.g.node}
    assert [(op, node.name) for op, node in kept.items()] == [("Neg", "first"), ("Abs", "second"), ("Exp", "third")]
    assert all(node.metadata_props[0].value == node.name for node in kept.values())


def test_the_nodes_of_a_tool_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = text.parse("g (float[batch,4] x, float[3] unused) => (float[batch,4] y) { b = Relu(x) y = Neg(b) }")
    first, second = map(copy.deepcopy, made.graph.node)
    del made.graph.node[:]
    made.graph.node.extend([second, first])
    monkeypatch.setattr(run_tool, "_call", lambda *_: {"model": made.SerializeToString()})
    result = run(decorated(), "onnxsim")
    assert [step.status for step in result.steps] == ["committed"], result.steps[0].message
    assert [node.op_type for node in result.proto.graph.node] == ["Relu", "Neg"]


def test_the_sites_of_onnxoptimizer_have_the_nodes_of_each_pass() -> None:
    model = text.parse("g (float[4] x) => (float[4] y) { [one] a = Identity(x) [two] b = Relu(a) [three] y = Neg(b) }")
    options = {"passes": ["eliminate_identity"], "skip": []}
    found = tool_calls.call("onnxoptimizer", model.SerializeToString(), options)
    assert found["sites"] == [["eliminate_identity", False, ["one"], []]]


def two_large_weights(folder: Path) -> Path:
    """Write a model with two weights of one shape and different values, each too large to be given by value."""
    weights = [np.full((160, 160), value, np.float32) for value in (0.25, -0.5)]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "one"], ["a"], "first"),
            helper.make_node("Identity", ["a"], ["b"], "nothing"),
            helper.make_node("MatMul", ["b", "two"], ["c"], "second"),
            helper.make_node("Relu", ["c"], ["y"], "last"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 160])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 160])],
        [numpy_helper.from_array(weight, name) for weight, name in zip(weights, ("one", "two"))],
    )
    path = folder / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
    return path


@pytest.mark.parametrize("name", sampled(TOOLS, 4))
@pytest.mark.parametrize("budget", [0, None])
def test_large_weights_stay_in_their_files(name: str, budget: int | None, tmp_path: Path) -> None:
    path = two_large_weights(tmp_path)
    before = references(storage.load(path).proto)
    options = {"weights": budget} if budget is not None and name in ("onnxoptimizer", "onnxsim") else {}
    result = run(path, name, options)
    assert result.steps[0].status in ("committed", "unchanged"), result.steps[0].message
    assert references(result.proto) == before


@pytest.mark.parametrize("name", ["onnxoptimizer", "onnxsim"])
def test_a_tool_reports_weights_over_its_budget(name: str, tmp_path: Path) -> None:
    (step,) = run(two_large_weights(tmp_path), name, {"weights": 1000}).steps
    assert {refused.anchor for refused in step.refusals} == {"one", "two"}
    assert all("exceed the budget" in refused.reason for refused in step.refusals)


@pytest.mark.slow
def test_a_large_weight_is_read_when_it_is_folded(tmp_path: Path) -> None:
    path = two_large_weights(tmp_path)
    model = onnx.load(path, load_external_data=False)
    model.graph.node[0].input[1] = "turned"
    model.graph.node.insert(0, helper.make_node("Transpose", ["one"], ["turned"], perm=[1, 0]))
    onnx.save(model, path)
    for name in ("graphsurgeon-fold", "ort", "onnxsim"):
        result = run(path, name)
        assert result.steps[0].status == "committed", result.steps[0].message
        assert "Transpose" not in [node.op_type for node in result.proto.graph.node]


def test_a_weight_that_a_tool_gets_is_no_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = two_large_weights(tmp_path)
    model = onnx.load(path, load_external_data=False)
    model.graph.node[0].input[1] = "turned"
    model.graph.node.insert(0, helper.make_node("Transpose", ["one"], ["turned"], perm=[1, 0]))
    onnx.save(model, path)
    sent: list[bytes] = []

    def call(limits: WorkerLimits, tool: str, model: bytes, options: dict[str, Any]) -> dict[str, Any]:
        sent.append(model)
        return {"model": model}

    monkeypatch.setattr(run_tool, "_call", call)
    run(path, "onnxsim")
    tensors = {tensor.name: tensor for tensor in onnx.load_model_from_string(sent[0]).graph.initializer}
    assert len(tensors["one"].raw_data) == 160 * 160 * 4 and not tensors["one"].external_data


@pytest.mark.slow
def test_a_default_of_an_input_is_not_a_constant() -> None:
    model = text.parse("""
        g (float[N,4] x, bool keep) => (float[N,4] y) <bool keep = {1}> {
            a = Identity(x)
            y = If(keep) <
                then_branch = t () => (float[N,4] o) { o = Relu(a) },
                else_branch = e () => (float[N,4] p) { p = Neg(a) }
            >
        }
    """)
    for name in ("onnxoptimizer", "onnxsim", "onnxscript-optimize", "ort", "graphsurgeon-fold"):
        result = run(model, name)
        assert result.steps[0].status in ("committed", "unchanged"), result.steps[0].message
        assert "If" in [node.op_type for node in result.proto.graph.node]
        assert [value.name for value in result.proto.graph.input] == ["x", "keep"]


@pytest.mark.parametrize("listed", ["value_ints: ints = []", "value_ints = [3]"])
def test_an_integer_list_constant_is_kept(listed: str) -> None:
    model = text.parse(f"""
        g (float x) => (float[shape] y) {{
            shape = Constant<{listed}>()
            y = Expand(x, shape)
        }}
    """)
    result = run(model, "graphsurgeon-fold")
    assert result.steps[0].status in ("committed", "unchanged"), result.steps[0].message


def test_functions_dropped_by_a_tool_are_restored() -> None:
    model = text.parse("""
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[N] x) => (float[N] y) {
            a = local.twice(x)
            y = Identity(a)
        }
        <domain: "local", opset_import: ["" : 17]>
        twice (a) => (b) { b = Add(a, a) }
    """)
    for name, options in (("onnxoptimizer", {}), ("onnx-version-converter", {"target": 19})):
        result = run(model, name, options)
        assert result.steps[0].status == "committed", result.steps[0].message
        assert [function.name for function in result.proto.functions] == ["twice"]


def test_the_ir_version_rises_as_far_as_the_opset_requires() -> None:
    model = text.parse('<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Relu(x) }')
    result = run(model, "onnx-version-converter", {"target": 21})
    assert (result.proto.ir_version, result.proto.opset_import[0].version) == (10, 21)
    assert run(model, "onnx-version-converter", {"target": 17}).steps[0].status == "unchanged"


@pytest.mark.slow
def test_bisect_leaves_out_the_pass_that_is_wrong() -> None:
    source = """
        g (float[1,1,2,2] x) => (float[1,1,3,3] y)
        <float[1,1,2,2] w = {1, 2, 3, 4}>
        {
            a = Identity(x)
            t = Pad<pads = [0, 0, 1, 1, 0, 0, 1, 1], value = 5.0>(a)
            y = Conv(t, w)
        }
    """
    model = text.parse(source, opset=10)
    options = {"passes": ["eliminate_identity", "fuse_pad_into_conv"]}
    result = runner.apply(model, single_step("onnxoptimizer", options, on_failure="bisect"))
    (step,) = result.steps
    assert step.status == "committed", step.message
    assert [(site.number, site.anchor) for site in step.refused_sites] == [(2, "fuse_pad_into_conv")]
    assert [node.op_type for node in result.proto.graph.node] == ["Pad", "Conv"]


# Wrong input


def problems(source: str) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        recipe.parse(source, "r.yaml")
    assert caught.value.exit_code == 2
    return [str(problem) for problem in caught.value.problems]


def test_an_unknown_pass_of_onnxoptimizer_is_found_when_the_recipe_loads() -> None:
    source = "recipe: r\nsteps:\n  - onnxoptimizer: {passes: [nop, eliminate_nop_dropuot]}\n"
    (problem,) = problems(source)
    assert problem.startswith("r.yaml:3:21: option 'passes' of 'onnxoptimizer'")
    version = importlib.metadata.version("onnxoptimizer")
    assert (
        f"onnxoptimizer {version} has no pass 'eliminate_nop_dropuot'; did you mean 'eliminate_nop_dropout'?" in problem
    )


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("ort: {level: fast}", "basic | extended | all"),
        ("ort-transformers: {model_type: brt}", "option 'model_type'"),
        ("onnx-version-converter: {target: new}", "option 'target'"),
        ("onnxsim: {skip_fusions: true}", "no option 'skip_fusions'"),
        ("onnxoptimizer: [nop]", "a mapping of options"),
    ],
)
def test_wrong_options_are_found_when_the_recipe_loads(step: str, says: str) -> None:
    (problem,) = problems(f"recipe: r\nsteps:\n  - {step}\n")
    assert says in problem


@pytest.mark.parametrize("name", TOOLS)
def test_a_missing_tool_names_the_package_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = catalog.find(name).requires
    monkeypatch.setattr(discovery, "is_installed", lambda wanted: wanted != distribution)
    (problem,) = problems(f"recipe: r\nsteps:\n  - {name}\n")
    assert problem.startswith("r.yaml:3:5: ")
    assert problem.endswith(f"not installed; pip install {distribution}")
    with pytest.raises(UsageError, match=f"pip install {distribution}"):
        single_step(name)


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_listed_with_its_version(name: str) -> None:
    declared = catalog.find(name)
    name, _, version = declared.origin.partition(" ")
    assert name.replace("_", "-") == declared.requires
    assert version == importlib.metadata.version(declared.requires)


def test_a_tool_that_crashes_ends_its_step_alone() -> None:
    model = text.parse(CRASHING.read_text(encoding="utf-8"))
    result = run(model, "onnxoptimizer", {"passes": ["eliminate_if_with_const_cond"]})
    (step,) = result.steps
    assert (step.status, step.exit_code) == ("rolled_back", 3)
    assert "onnxoptimizer's eliminate_if_with_const_cond crashed with SIG" in step.message


def test_a_tool_that_raises_is_named() -> None:
    model = text.parse('<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Relu(x) }')
    (step,) = run(model, "onnx-version-converter", {"target": 999}).steps
    assert (step.status, step.exit_code) == ("rolled_back", 3)
    assert step.message.startswith("onnx-version-converter failed: ")


def test_an_opset_too_new_for_a_tool_is_reported_as_its_failure() -> None:
    # Newer than what any release knows, not only the one that is installed.
    model = text.parse('<ir_version: 10, opset_import: ["" : 9999]> g (float[N] x) => (float[N] y) { y = Relu(x) }')
    stored = storage.from_proto(model)
    with pytest.raises(PassError, match=r"ort failed: .*Opset 9999") as caught:
        run_tool.run_tool(graph_of(stored), "ort", level="basic", without=[])
    assert caught.value.exit_code == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "says"), [(WorkerLimits(1e-4), "took more than"), (WorkerLimits(60, 1 << 20), "memory")]
)
def test_a_tool_keeps_within_the_limits_of_the_recipe(limits: WorkerLimits, says: str) -> None:
    model = decorated()
    # More than is free in the heap that a worker inherits, whatever that was left with.
    model.metadata_props.add(key="padding", value="x" * (64 << 20))
    graph = graph_of(storage.from_proto(model))
    graph.limits = limits
    before = text.print_model(storage.resolve(storage.proto_from_ir(graph.ir, storage.Weights())))
    with pytest.raises(PassError, match=f"onnxsim.*{says}"):
        run_tool.run_tool(graph, "onnxsim")
    assert text.print_model(storage.resolve(storage.proto_from_ir(graph.ir, storage.Weights()))) == before


def test_a_model_larger_than_a_protobuf_message_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_packing, "MOST", 100)
    with pytest.raises(PassError, match="more than 2 GiB without its large weights"):
        run_tool.run_tool(graph_of(storage.load(two_large_weights(tmp_path))), "ort", level="basic", without=[])
