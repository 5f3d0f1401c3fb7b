"""Two models composed as messages, which is what a merge is compared with."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from support import SUPPORT

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.registry.catalog import catalog
from surgery.model.graph import text
from surgery.verification.signature.composition import compose, obstacle

HEAD = '<ir_version: 8, opset_import: ["" : 17, "l" : 1]>'
FIRST = f"""{HEAD}
g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) <float[4] w = {{1, -2, 3, 4}}> {{
    y = Mul(x, w)
    z = l.f(y)
}}
<domain: "l", opset_import: ["" : 17]>
f (a) => (b) {{ b = Exp(a) }}"""
SECOND = f"""{HEAD}
g (float[n, 4] x, float[4] w, bool c) => (float[n, 4] y) <float[4] w = {{9, 8, 7, 6}}> {{
    y = If(c) <
        then_branch = t () => (float[n, 4] r) {{ r = l.f(x) }},
        else_branch = e () => (float[n, 4] s) {{ s = Add(x, w) }}
    >
}}
<domain: "l", opset_import: ["" : 17]>
f (a) => (b) {{ b = Neg(a) }}"""


def models() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    return text.parse(FIRST), text.parse(SECOND)


def test_outputs_of_the_first_model_feed_the_second() -> None:
    first, second = models()
    both = compose(first, second, {"x": "y"}, "b/")
    onnx.checker.check_model(both, full_check=True)
    assert [port.name for port in both.graph.input] == ["x", "b/c"]
    assert [value.name for value in both.graph.output] == ["y", "z", "b/y"]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for c in (True, False):
        y, z, theirs = ReferenceEvaluator(both).run(None, {"x": x, "b/c": np.array(c)})
        assert np.array_equal(y, x * np.float32([1, -2, 3, 4]))
        assert np.allclose(z, np.exp(y))
        assert np.array_equal(theirs, -y if c else y + np.float32([9, 8, 7, 6]))


def test_functions_of_one_name_are_merged_only_if_equal() -> None:
    first, second = models()
    both = compose(first, second, {"x": "y"}, "b_")
    assert sorted(function.name for function in both.functions) == ["b_f", "f"]
    same = compose(first, text.parse(SECOND.replace("Neg", "Exp")), {"x": "y"}, "b_")
    assert [function.name for function in same.functions] == ["f"]


def test_a_dim_of_the_second_model_need_not_be_that_of_the_first() -> None:
    first, second = models()
    both = compose(first, second, {}, "b_")
    params = {dim.dim_param for port in both.graph.input for dim in port.type.tensor_type.shape.dim if dim.dim_param}
    assert params == {"n", "b_n"}


@pytest.mark.parametrize(
    ("change", "connect", "prefix", "expected"),
    [
        (
            ("17", "18"),
            {"x": "y"},
            "b/",
            "one imports ai.onnx 17, the other 18; convert the older one first, as 'surgery merge' does",
        ),
        (("", ""), {"x": "y"}, "", "both have a value 'w'; give the other one a prefix"),
        (("", ""), {"q": "y"}, "b/", "the other model has no input 'q'"),
        (
            ("float[n, 4] x", "double[n, 4] x"),
            {"x": "y"},
            "b/",
            "input 'x' is tensor(double), and 'y' is tensor(float)",
        ),
        (("", ""), {"x": "y"}, "b/", ""),
    ],
)
def test_models_that_cannot_be_merged_are_reported(
    change: tuple[str, str], connect: dict[str, str], prefix: str, expected: str
) -> None:
    second = text.parse(SECOND.replace(*change) if change[0] else SECOND)
    assert obstacle(text.parse(FIRST), second, connect, prefix) == expected


# As a step


@pytest.fixture(autouse=True, scope="module")
def passes_of_the_tests() -> None:
    catalog.load_plugin(str(SUPPORT / "plugin_intended.py"))


def apply(folder: Path, steps: str, first: str = FIRST, second: str = SECOND) -> runner.Result:
    onnx.save(text.parse(second), folder / "second.onnx")
    recipe = recipes.parse(f"recipe: test\nsteps: {steps}", str(folder / "test.yaml"))
    return runner.apply(text.parse(first), recipe)


def joining(folder: Path, **options: object) -> str:
    given = {"path": str(folder / "second.onnx"), **options}
    return f"[{{int-join: {given}}}, drop-identity]".replace("True", "true")


def test_a_merge_is_compared_with_both_models(tmp_path: Path) -> None:
    result = apply(tmp_path, joining(tmp_path))
    first = result.steps[0]
    assert (first.status, first.verdict and first.verdict.status) == ("committed", "equal")
    assert [value.name for value in result.proto.graph.output] == ["y", "z", "b/y"]


@pytest.mark.parametrize("wrong", ["feeds", "computes"])
def test_a_wrong_merge_is_a_difference(tmp_path: Path, wrong: str) -> None:
    (step,) = apply(tmp_path, joining(tmp_path, wrong=wrong)).steps
    assert (step.status, step.verdict and step.verdict.status) == ("failed", "different")


def test_weights_of_the_second_model_are_read_from_their_files(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(4, 512)).astype(np.float32)
    second = text.parse(f"{HEAD} g (float[n, 4] x, float[4, 512] v) => (float[n, 512] y) {{ y = MatMul(x, v) }}")
    del second.graph.input[1:]
    second.graph.initializer.append(onnx.numpy_helper.from_array(weight, "v"))
    onnx.save(second, tmp_path / "second.onnx", save_as_external_data=True, location="second.data", size_threshold=0)
    recipe = recipes.parse(f"recipe: test\nsteps: {joining(tmp_path)}", str(tmp_path / "test.yaml"))
    result = runner.apply(text.parse(FIRST), recipe, output=tmp_path / "out.onnx")
    assert result.ok, [step.message for step in result.steps]
    x = np.ones((2, 4), np.float32)
    found = ReferenceEvaluator(str(tmp_path / "out.onnx")).run(["b/y"], {"x": x})[0]
    assert np.allclose(found, (x * np.float32([1, -2, 3, 4])) @ weight, atol=1e-5)
