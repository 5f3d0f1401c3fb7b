"""What of a model a target does not run, why, and what would help."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import helper

import surgery
from surgery.base.errors import RecipeError
from surgery.engine import recipe as recipes
from surgery.engine.recipe import PassStep, Recipe
from surgery.features.inspection.fit import Fit, fit
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.targets.profile import read
from surgery.model.targets.shipped import find

HEAD = "target: mine\noperators: {Add: , Relu: , Reshape: , Resize: , Conv: , Concat: , Shape: , MaxPool: }\n"


def look(tmp_path: Path, profile: str, source: str | onnx.ModelProto, opset: int = 17) -> Fit:
    (tmp_path / "mine.yaml").write_text(profile)
    model = text.parse(source, opset=opset) if isinstance(source, str) else source
    return fit(storage.from_proto(model), read(tmp_path / "mine.yaml"))


def told(found: Fit) -> list[tuple[str, int, str]]:
    return [(row.misfit.reason.words, row.misfit.count, row.help) for row in found.rows]


def test_a_model_that_fits(tmp_path: Path) -> None:
    found = look(tmp_path, HEAD, "g (float[N,4] x) => (float[N,4] y) { a = Relu(x) y = Add(a, x) }")
    assert found.fits
    assert told(found) == []


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("Shrinker", None),
        ("acme.Shrinker", None),
        ("com.microsoft.Shrinker", None),
        ("Grower", "Grower is not run"),
        ("acme.Grower", "acme::Grower: operators of acme are not run"),
        # A plugin does not replace an operator of onnx, which the parser knows.
        ("Tanh", "Tanh is not run"),
    ],
)
def test_plugins_are_run_in_any_domain(tmp_path: Path, operator: str, expected: str | None) -> None:
    body = f"g (float[N,4] x) => (float[N,4] y) {{ a = {operator}(x) y = Relu(a) }}"
    found = look(tmp_path, f"{HEAD}plugins: [Shrinker, Tanh]\n", body)
    assert [words for words, *_ in told(found)] == ([] if expected is None else [expected])


def test_tensorrt_runs_the_plugins_that_come_with_it() -> None:
    model = text.parse("g (float[N,4] x) => (float[N,4] y) { a = Relu(x) y = EfficientNMS_TRT(a, a) }", opset=17)
    assert fit(storage.from_proto(model), find("tensorrt")).fits
    model.graph.node[1].op_type = "EfficientNMS"
    assert not fit(storage.from_proto(model), find("tensorrt")).fits


def test_an_operator_that_is_not_listed(tmp_path: Path) -> None:
    body = "g (float[N,4] x) => (float[N,4] y) { a = HardSwish(x) b = HardSwish(a) c = Sin(b) y = Relu(c) }"
    profile = "target: mine\noperators: {Relu: , Mul: , Add: , Clip: }\n"
    assert told(look(tmp_path, profile, body)) == [
        ("HardSwish is not run", 2, "decompose"),
        ("Sin is not run", 1, ""),
    ]


@pytest.mark.parametrize(
    ("row", "node", "expected"),
    [
        ("Relu: {versions: [6, 13]}", "Relu(x)", "Relu is not run in version 14"),
        ("Relu: {types: [float16, int8]}", "Relu(x)", "Relu is not run in float"),
        ("Relu: {types: {T: [float16]}}", "Relu(x)", "Relu is not run in float"),
        ("Relu: [{types: [float16]}, {types: [float]}]", "Relu(x)", None),
        ("Relu: {rank: 4}", "Relu(x)", "Relu of rank 2: the target takes 4"),
        ("Relu: {rank: [2, 4]}", "Relu(x)", None),
        ("Add: {constant: [B]}", "Add(x, x)", "Add with an input 'B' that is not constant"),
        ("Add: {constant: [B]}", "Add(x, w)", None),
        ("Add: {zeros: [B]}", "Add(x, w)", "Add with an input 'B' that is not 0"),
        ("Add: {zeros: [B]}", "Add(x, x)", "Add with an input 'B' that is not 0"),
        ("Add: {zeros: [B]}", "Add(x, z)", None),
        ("Clip: {zeros: [max]}", "Clip(x)", None),
        ("LeakyRelu: {attributes: {alpha: 0.5}}", "LeakyRelu(x)", "LeakyRelu with alpha 0.01"),
        ("LeakyRelu: {attributes: {alpha: [0.5, 0.25]}}", "LeakyRelu<alpha=0.25>(x)", None),
        ("Transpose: {attributes: {perm: [[0, 1]]}}", "Transpose<perm=[1,0]>(x)", "Transpose with perm [1, 0]"),
        ("Add:", "Relu(x)", "Relu is not run"),
    ],
)
def test_each_restriction_of_an_operator(tmp_path: Path, row: str, node: str, expected: str | None) -> None:
    constants = "float[4,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}, float z = {0}"
    body = f"g (float[4,4] x) => (float[4,4] y) <{constants}> {{ y = {node} }}"
    found = told(look(tmp_path, f"target: mine\noperators:\n  {row}\n", body))
    assert len(found) == (expected is not None)
    assert expected is None or found[0][0].startswith(expected)


def test_only_used_outputs_are_counted(tmp_path: Path) -> None:
    profile = "target: mine\noperators: {MaxPool: {outputs: 1}}\n"
    pool = "MaxPool<kernel_shape=[2,2]>(x)"
    plain = look(tmp_path, profile, f"g (float[1,1,4,4] x) => (float[1,1,3,3] y) {{ y, i = {pool} }}")
    both = look(tmp_path, profile, f"g (float[1,1,4,4] x) => (float[1,1,3,3] y, int64[1,1,3,3] i) {{ y, i = {pool} }}")
    assert told(plain) == []
    assert told(both) == [("MaxPool is run with at most 1 output(s)", 1, "")]


def test_the_step_for_dims_without_a_name_runs(tmp_path: Path) -> None:
    """Inference gives them names, which the model does not have."""
    limits = "limits: {dynamic_dims: false}\n"
    body = 'g (float[?,4,n] x, float[?,4] "b:0") => (float[?,4,n] y) { u = Relu("b:0") y = Relu(x) }'
    found = look(tmp_path, HEAD + limits, body)
    (step,) = found.steps
    assert [words for words, _, _ in told(found)] == [f"dim {one} is dynamic" for one in ("x[0]", "n", "b:0[0]")]
    assert step == 'set-dims: {dims: {n: 1}, ports: {x: [1, null, null], "b:0": [1, null]}}'
    image = "g (float[?,3,?,?] x) => (float[?,3,?,?] y) { y = Relu(x) }"
    assert look(tmp_path, HEAD + limits, image).steps == ["set-dims: {ports: {x: [1, null, 224, 224]}}"]
    result = surgery.apply(text.parse(body), f"steps: [{step}]")
    assert result.ok and [one.status for one in result.steps] == ["committed"]


def test_the_limits_of_a_model(tmp_path: Path) -> None:
    limits = "opset: [7, 13]\nir_version: [3, 7]\nlimits: {rank: 3, dynamic_dims: false, bytes: 8}\n"
    body = (
        "g (float[batch,sequence,4,4] x) => (float[batch,sequence,4,4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }"
    )
    found = look(tmp_path, HEAD + limits, body)
    assert told(found) == [
        ("opset 17: the target takes 7 to 13", 0, "downgrade-opset: {to: 13, lower_ir_version: true}"),
        ("IR version 10: the target takes 3 to 7", 0, "downgrade-opset: {to: 13, lower_ir_version: true}"),
        ("16 bytes of constants: the target takes 8", 0, ""),
        ("dim batch is dynamic", 1, "set-dims: {dims: {batch: 1, sequence: 128}}"),
        ("dim sequence is dynamic", 1, "set-dims: {dims: {batch: 1, sequence: 128}}"),
        ("Add of rank 4: the target takes at most 3", 1, ""),
    ]
    assert found.steps == [
        "set-dims: {dims: {batch: 1, sequence: 128}}",
        "downgrade-opset: {to: 13, lower_ir_version: true}",
    ]


def test_an_opset_older_than_the_target_supports(tmp_path: Path) -> None:
    found = look(tmp_path, f"{HEAD}opset: [18]\n", "g (float[4] x) => (float[4] y) { y = Relu(x) }", opset=13)
    assert told(found) == [("opset 13: the target takes 18 and newer", 0, "upgrade-opset: {to: 18}")]


def test_computed_shapes_can_be_folded_but_data_dependent_dims_cannot(tmp_path: Path) -> None:
    limits = "limits: {dynamic_dims: false}\n"
    folded = """g (float[2,3] x) => (float[3,2] y) <int64[1] two = {2}>
    { s = Shape(x) n = Gather(s, two) y = Reshape(x, s) }""".replace("two = {2}", "two = {0}")
    profile = "target: mine\noperators: {Shape: , Reshape: {constant: [shape]}}\n"
    body = folded.replace("[3,2] y", "[2,3] y")
    assert told(look(tmp_path, profile, body)) == [
        ("Gather is not run", 1, "fold-constants"),
        ("Reshape with an input 'shape' that is not constant", 1, "fold-constants"),
    ]
    data = "g (float[2,3] x) => (int64[2,k] y) { y = NonZero(x) }"
    found = look(tmp_path, f"target: mine\noperators: {{NonZero: }}\n{limits}", data)
    assert told(found) == [("NonZero produces dims that are only known at run time", 1, "")]


def test_types_of_values_and_not_of_constants(tmp_path: Path) -> None:
    profile = f"{HEAD}types: [float16]\n"
    body = "g (float16[2,3] x) => (float16[3,2] y) <int64[2] s = {3, 2}> { y = Reshape(x, s) }"
    assert told(look(tmp_path, profile, body)) == []
    body = body.replace("float16", "float")
    assert told(look(tmp_path, profile, body)) == [
        ("inputs in float", 1, "to-float16"),
        ("Reshape is not run in float", 1, "to-float16"),
    ]


def test_control_flow_functions_and_domains(tmp_path: Path) -> None:
    then = helper.make_graph([helper.make_node("Relu", ["x"], ["t"])], "a", [], [tensor("t")])
    other = helper.make_graph([helper.make_node("Add", ["x", "x"], ["u"])], "b", [], [tensor("u")])
    nodes = [
        helper.make_node("If", ["c"], ["v"], then_branch=then, else_branch=other),
        helper.make_node("Own", ["v"], ["w"], domain="com.acme"),
        helper.make_node("Twice", ["w"], ["y"], domain="local"),
    ]
    inputs = [tensor("x"), helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [tensor("y")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1), helper.make_opsetid("local", 1)]
    body = [helper.make_node("Sin", ["p"], ["q"])]
    twice = helper.make_function("local", "Twice", ["p"], ["q"], body, imports[:1])
    model = helper.make_model(graph, opset_imports=imports, functions=[twice], ir_version=8)
    found = look(tmp_path, f"{HEAD}limits: {{subgraphs: false, functions: false}}\n", model)
    assert told(found) == [
        ("functions of the model", 1, "inline-functions"),
        ("If has subgraphs", 1, "inline-if"),
        ("com.acme::Own: operators of com.acme are not run", 1, ""),
        ("Sin is not run", 1, ""),
    ]


def tensor(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4])


# The command, the recipe and the Python API

SWISH = "g (float[N,4] x) => (float[N,4] y) { a = Swish(x) y = Swish(a) }"


@pytest.fixture
def swish(tmp_path: Path) -> Path:
    """A model that ONNX Runtime runs at opset 24, and not at opset 25, where the body of Swish holds no more."""
    model = text.parse(SWISH, opset=25)
    model.ir_version = 11
    onnx.save(model, tmp_path / "swish.onnx")
    return tmp_path / "swish.onnx"


def test_the_exit_code_shows_whether_a_model_fits(
    swish: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inspect", str(swish), "--target", "ort-cpu"]) == 1
    shown = capsys.readouterr().out
    assert "ort-cpu does not run 2 of 2 nodes" in shown
    assert "  - decompose" in shown
    assert cli.main(["inspect", str(swish), "--target", "ort-cpu", "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["misfits"][0]["op"] == "Swish"
    assert report["steps"] == ["decompose"]
    assert not report["fits"]
    written = str(tmp_path / "apart.onnx")
    assert cli.main(["run", "decompose", str(swish), "--target", "ort-cpu", "-o", written]) in (0, 1)
    result = surgery.apply(
        swish, recipes.parse("verify: {mode: 'off'}\nsteps: [decompose]\nexpect: {target: ort-cpu}\n"), target="ort-cpu"
    )
    assert result.ok
    assert result.target == "ort-cpu"
    assert result.to_json()["target"] == "ort-cpu"
    onnx.save(result.proto, tmp_path / "ran.onnx")
    capsys.readouterr()
    assert cli.main(["inspect", str(tmp_path / "ran.onnx"), "--target", "ort-cpu"]) == 0
    assert capsys.readouterr().out.strip() == "ort-cpu runs all 4 nodes"


def test_an_expected_target_names_the_misfits(tmp_path: Path) -> None:
    onnx.save(text.parse("g (float[N,4] x) => (float[N,4] y) { d = Identity(x) y = Sin(d) }"), tmp_path / "m.onnx")
    (tmp_path / "mine.yaml").write_text(HEAD)
    recipe = "steps: [drop-identity]\nexpect: {target: mine.yaml}\n"
    result = surgery.apply(tmp_path / "m.onnx", recipes.parse(recipe, tmp_path / "r.yaml"))
    (found,) = result.expectations
    assert not found.ok
    assert not result.ok
    assert found.what.startswith("target: mine (Sin is not run (")
    step = "steps: [{pass: drop-identity, expect: {target: mine.yaml}}]\n"
    result = surgery.apply(tmp_path / "m.onnx", recipes.parse(step, tmp_path / "r.yaml"))
    assert result.failure is not None
    assert "expected target: mine (Sin is not run" in result.failure.message


def test_an_unknown_target_is_a_mistake_of_the_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"^r.yaml:1:19: no target 'npu'; there are"):
        recipes.parse("expect: {target: npu}\nsteps: [drop-identity]\n".replace("{target", "{ target"), "r.yaml")


def test_the_target_of_a_nested_recipe_counts_unless_the_outer_one_has_its_own(swish: Path, tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text("target: ort-cpu\nsteps: [decompose]\n")
    inner = recipes.load(tmp_path / "inner.yaml")
    outer = recipes.parse("verify: {mode: 'off'}\nsteps: [{use: inner.yaml}]\n", tmp_path / "outer.yaml")
    assert inner.target == outer.target == "ort-cpu"
    own = "target: standard\nverify: {mode: 'off'}\nsteps: [{use: inner.yaml}]\n"
    outer = recipes.parse(own, tmp_path / "outer.yaml")
    assert outer.target == "standard"
    result = surgery.apply(swish, outer)
    assert [step.status for step in result.steps] == ["unchanged"]
    assert surgery.apply(swish, outer, target="ort-cpu").steps[0].status == "committed"


def test_why_explains_a_pass_for_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Path(__file__).parents[2] / "cases/fuse-gelu/leaves_the_formula_to_a_target_without_gelu.onnxtxt"
    onnx.save(text.parse(case.read_text()), tmp_path / "gelu.onnx")
    assert cli.main(["why", "fuse-gelu", str(tmp_path / "gelu.onnx"), "--target", "rknn-like"]) == 0
    assert "the target 'rknn-like' has no Gelu" in capsys.readouterr().out
    assert cli.main(["why", "fuse-gelu", str(tmp_path / "gelu.onnx")]) == 0
    assert "the target 'rknn-like' has no Gelu" not in capsys.readouterr().out


def test_a_number_is_compared_with_itself_where_the_target_does_not_know_nan(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text("target: plain\noperators: {Where: , Softmax: , Equal: , Not: }\n")
    model = text.parse("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,4] x, bool[2,4] seen) => (float[2,4] y) <float lowest = {-inf}, float zero = {0}> {
            s = Where(seen, x, lowest)  p = Softmax(s)  n = IsNaN(p)  y = Where(n, zero, p)
        }""")
    result = surgery.apply(model, Recipe("r", steps=(PassStep("decompose"),)), target=tmp_path / "plain.yaml")
    assert result.ok, result
    made = [node.op_type for node in result.proto.graph.node]
    assert made == ["Where", "Softmax", "Equal", "Not", "Where"]
