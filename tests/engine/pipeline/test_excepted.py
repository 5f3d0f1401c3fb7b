"""`except` of a step: a match that touches a selected node does not fire, whatever the pass; the report names it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import surgery
from surgery.base.errors import RecipeError, UsageError
from surgery.engine import recipe
from surgery.engine.bridges.except_selectors import (
    UNMEASURED,
    Kept,
    excepted_nodes,
    left_alone,
    unmeasured_nodes,
)
from surgery.engine.caching.keys import step_key
from surgery.engine.pipeline.records import Result
from surgery.engine.recipe import resolved
from surgery.engine.recipe.schema import pass_steps
from surgery.interface.commands import main
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import EXCEPTED, Graph
from surgery.model.graph.state import Refused

ROOT = Path(__file__).parents[3]
TWO = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N,2] x) => (float[N,2] y, float[N,2] z) <float[2,2] w = {1, 2, 3, 4}, float[2] b = {1, 2}> {
        [first] t = MatMul(x, w)
        [second] y = Add(t, b)
        [third] u = MatMul(y, w)
        [fourth] v = Add(u, b)
        [fifth] z = Identity(v)
    }
"""
LEFT_ALONE = "leaves alone: "


def run(step: Any, model: str = TWO) -> Result:
    """Run one step, given in the long form, on a model in ONNX text."""
    recipe_text = json.dumps({"steps": [step]})
    return surgery.apply(text.parse(model), recipe.parse(recipe_text))


def operators(result: Result) -> list[str]:
    return [node.op_type for node in result.proto.graph.node]


@pytest.mark.parametrize(
    ("excepted", "expected"),
    [
        ("first", ["MatMul", "Add", "Gemm", "Identity"]),
        ("second", ["MatMul", "Add", "Gemm", "Identity"]),
        ("fir*", ["MatMul", "Add", "Gemm", "Identity"]),
        ({"op": "MatMul"}, ["MatMul", "Add", "MatMul", "Add", "Identity"]),
        (["second", {"name": "fourth"}], ["MatMul", "Add", "MatMul", "Add", "Identity"]),
        ({"between": {"from": ["x"], "to": ["y"]}}, ["MatMul", "Add", "Gemm", "Identity"]),
        ("fifth", ["Gemm", "Gemm", "Identity"]),
    ],
)
def test_a_match_that_touches_a_node_does_not_fire(excepted: Any, expected: list[str]) -> None:
    result = run({"pass": "fuse-matmul-add", "except": excepted})
    assert operators(result) == expected
    assert (LEFT_ALONE in result.steps[0].message) == (excepted != "fifth")


def test_a_node_that_loses_its_last_reader_is_not_swept() -> None:
    model = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) {
            [a] s = Shape(x) [b] n = Neg(x) [c] m = Neg(n) [d] r = Reshape(m, s) [e] y = Relu(r)
        }
    """
    kept = run({"pass": "simplify-reshapes"}, model)
    assert "Shape" not in operators(kept)
    result = run({"pass": "simplify-reshapes", "except": "a"}, model)
    assert operators(result) == ["Shape", "Neg", "Neg", "Reshape", "Relu"]
    assert "1 match site touches what 'except' leaves alone: 'a'" in result.steps[0].message


def test_a_constant_of_an_excepted_node_stays() -> None:
    result = run({"pass": "to-float16", "with": {"margin": 0}, "except": "third"})
    third = next(node for node in result.proto.graph.node if node.name == "third")
    assert third.input[1] == "w"
    assert any(node.op_type == "MatMul" and node.input[1] != "w" for node in result.proto.graph.node)


def test_a_changed_source_of_an_activation_touches_nothing() -> None:
    model = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) { [a] i = Identity(x) [b] y = Relu(i) }
    """
    assert operators(run({"pass": "drop-identity", "except": "b"}, model)) == ["Relu"]
    assert operators(run({"pass": "drop-identity", "except": "a"}, model)) == ["Identity", "Relu"]


def test_subgraphs_of_an_excepted_node_stay() -> None:
    model = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (bool c, float[2] x) => (float[2] y) {
            [outer] y = If(c) <
                then_branch = t () => (float[2] a) { [inner] i = Identity(x) a = Relu(i) },
                else_branch = e () => (float[2] d) { d = Neg(x) }
            >
        }
    """
    for excepted in ("outer", "inner"):
        assert run({"pass": "drop-identity", "except": excepted}, model).steps[0].status == "unchanged"
    assert run({"pass": "drop-identity"}, model).steps[0].sites == 1


def test_passes_of_a_whole_model_leave_everything() -> None:
    pytest.importorskip("onnxsim")
    model = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) { [a] i = Identity(x) [b] j = Identity(i) [c] y = Relu(j) }
    """
    assert operators(run({"pass": "onnxsim"}, model)) == ["Relu"]
    result = run({"pass": "onnxsim", "except": "b"}, model)
    assert operators(result) == ["Identity", "Identity", "Relu"]
    assert "'b'; this pass changes the model as a whole" in result.steps[0].message
    assert operators(run({"pass": "onnxsim", "except": "c"}, model)) == ["Relu"]


def test_one_number_of_a_large_constant_of_an_excepted_node_is_compared() -> None:
    model = text.parse("g (float[N,40] x) => (float[N,40] y) { y = Add(x, w) }")
    values = np.arange(100 * 40, dtype=np.float32).reshape(100, 40)
    constant = onnx.helper.make_node("Constant", [], ["w"], "large", value=numpy_helper.from_array(values[:1]))
    model.graph.node.insert(0, constant)

    def with_table(table: Any) -> Graph:
        model.graph.node[0].attribute[0].t.CopyFrom(numpy_helper.from_array(table))
        stored = storage.from_proto(model)
        return Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)

    graph = with_table(values)
    graph.excepted = excepted_nodes(["large"], graph)
    kept = Kept(graph)
    assert not kept.lost(with_table(values).ir)
    values[50, 20] += 1
    assert "'large'" in kept.lost(with_table(values).ir)


def test_used_recipes_and_repetitions_pass_it_on() -> None:
    inner = {"steps": [{"pass": "drop-identity", "except": "fourth"}, "fuse-matmul-add"]}
    for step in ({"use": inner, "except": "second"}, {"repeat": 2, "steps": [{"use": inner}], "except": "second"}):
        result = run(step)
        assert operators(result) == ["MatMul", "Add", "Gemm"]
        shown = resolved.text(recipe.parse(json.dumps({"steps": [step]})))
        again = recipe.parse(shown)
        assert [one.excepted for one in pass_steps(again.steps)] == [("fourth", "second"), ("second",)]


def test_a_selector_that_selects_nothing_ends_the_run() -> None:
    with pytest.raises(
        UsageError, match=r"step 'drop-identity': 'except' selects nothing: no node has the name 'frst'"
    ):
        run({"use": {"on_failure": "rollback", "steps": ["drop-identity"]}, "except": "frst"})


def test_a_node_that_an_earlier_step_removed_is_no_mistake() -> None:
    inner = {"steps": ["drop-identity", {"pass": "fuse-matmul-add", "except": "fifth"}]}
    assert operators(run({"use": inner})) == ["Gemm", "Gemm"]


@pytest.mark.parametrize(
    ("excepted", "message"),
    [
        ("{opp: Conv}", "'except': a selector has no key 'opp'; did you mean 'op'?"),
        ("5", "'except': 5 is neither the name of a node nor a mapping"),
        ("[]", "'except': an empty list selects nothing"),
        ("{pattern: 'y = '}", "'except': line 1 of the pattern: "),
    ],
)
def test_wrong_selectors_are_mistakes_of_the_recipe(excepted: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe.parse(f"steps:\n  - pass: drop-identity\n    except: {excepted}\n", "r.yaml")
    assert message in str(caught.value)
    assert "r.yaml:3:13" in str(caught.value)


def test_the_short_form_says_how_to_write_it() -> None:
    with pytest.raises(RecipeError, match="write 'pass: drop-identity' and put its options under 'with'"):
        recipe.parse("steps:\n  - drop-identity:\n    except: a\n")


def test_the_key_of_a_cached_step_contains_it() -> None:
    keys = set()
    for excepted in ("", "except: a", "except: b", "except: {op: a}"):
        step = recipe.parse(f"steps:\n  - pass: drop-identity\n    {excepted}\n").steps[0]
        keys.add(step_key(step))  # type: ignore[arg-type]
    assert len(keys) == 4
    assert None not in keys


def test_the_flag_reaches_all_steps_and_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out, plan = (str(tmp_path / name) for name in ("m.onnx", "out.onnx", "plan.json"))
    onnx.save(text.parse(TWO), model)
    assert main(["apply", "default", model, "-o", out, "--except", "first", "--except", "{op: Identity}"]) == 0
    kept = {node.name: node.op_type for node in onnx.load(out).graph.node}
    assert (kept["first"], kept["fifth"]) == ("MatMul", "Identity")
    assert main(["plan", "default", model, "-o", plan, "--except", "first"]) == 0
    assert main(["apply", plan, "-o", out, "--force"]) == 0
    assert {node.name: node.op_type for node in onnx.load(out).graph.node}["first"] == "MatMul"
    assert main(["apply", plan, "-o", out, "--force", "--except", "second"]) == 2
    assert "the plan was made with --except first, not with --except second" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ("nothing", 2, "'except' selects nothing: no node has the name 'nothing'"),
        ("{op: [}", 2, "--except {op: [}: "),
        ("{opp: a}", 2, "--except {opp: a}: a selector has no key 'opp'"),
        ("fi*", 0, 'except: ["fi*"]'),
    ],
)
def test_run_takes_it_and_prints_the_recipe(
    tmp_path: Path, given: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tmp_path / "m.onnx")
    onnx.save(text.parse(TWO), model)
    assert main(["run", "fuse-matmul-add", model, "-o", str(tmp_path / "o.onnx"), "--except", given]) == code
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model"), [("default", "whisper-enc-tiny"), ("modern", "bert-tiny"), ("ort", "gpt2-tiny")]
)
def test_no_pass_of_a_recipe_touches_them(name: str, model: str, short_models: Path, tmp_path: Path) -> None:
    path, out = short_models / f"{model}.onnx", tmp_path / "out.onnx"
    nodes = [node for node in onnx.load(path).graph.node if node.name and node.op_type != "Constant"]
    chosen = random.Random(f"{name} {model}").sample(nodes, 12)
    flags = [flag for node in chosen for flag in ("--except", node.name)]
    assert main(["apply", name, str(path), "-o", str(out), *flags]) == 0
    kept = {node.name: node.op_type for node in onnx.load(out).graph.node}
    assert {node.name: kept.get(node.name) for node in chosen} == {node.name: node.op_type for node in chosen}


def test_nodes_of_subgraphs_and_functions_of_unmeasured_nodes_are_left_alone() -> None:
    proto = text.parse("""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[N,2] x, bool c) => (float[N,2] y, float[N,2] z)
        {
            [one] t = own.Outer(x)
            [two] y = If(c) <
                then_branch = p () => (a) { [then] a = Neg(t) }, else_branch = e () => (b) { [other] b = Abs(t) }
            >
            [three] z = own.Plain(x)
        }
        <domain: "own", opset_import: ["" : 17, "own" : 1]> Outer (v) => (w) { [call] w = own.Inner(v) }
        <domain: "own", opset_import: ["" : 17]> Inner (v) => (w) { [inner] w = Tanh(v) }
        <domain: "own", opset_import: ["" : 17]> Plain (v) => (w) { [plain] w = Tanh(v) }""")
    graph = Graph(storage.ir_from_proto(proto))
    found = {node.name or node.op_type for node in unmeasured_nodes(graph, ["t", "y"])}
    assert found == {"one", "two", "then", "other", "call", "inner"}
    assert set(unmeasured_nodes(graph, ["y"]).values()) == {UNMEASURED} and unmeasured_nodes(graph, ()) == {}


NOT_MEASURED = "nodes on which no measured value depends, and which --unverified accept converts"


@pytest.mark.parametrize(
    ("reasons", "message"),
    [
        ([], ""),
        (["no bias"], ""),
        ([f"{UNMEASURED}a'"], f"1 match site touches {NOT_MEASURED}: 'a'"),
        ([f"{UNMEASURED}a'", f"{UNMEASURED}b'"], f"2 match sites touch {NOT_MEASURED}: 'a', 'b'"),
        (
            [f"{UNMEASURED}a'", f"{EXCEPTED}b'"],
            f"1 match site touches what 'except' leaves alone: 'b'; 1 match site touches {NOT_MEASURED}: 'a'",
        ),
    ],
)
def test_what_is_left_alone_is_said_by_reason(reasons: list[str], message: str) -> None:
    assert left_alone([Refused(str(number), reason) for number, reason in enumerate(reasons)]) == message
    whole = f"{UNMEASURED}a'; it is whole"
    assert left_alone([Refused("", whole)]) == f"nothing was changed: {whole}"
