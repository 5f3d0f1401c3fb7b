"""Models whose declared shapes are stale: check names the command, and what it writes is valid and runs."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from support import ROOT, installed
from support.breadth import sampled
from support.short_models import shortened, without_residuals

import surgery
from surgery.engine.recipe import parse
from surgery.interface import commands as cli
from surgery.model.graph import text

Dims = list[int | str]
Array = np.ndarray[Any, Any]
FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (float[2,3] x, float[2,5] u) => (float[2,3] y, float[2,5] v, float[2,3] z) {
    y = local.twice(x)
    v = local.twice(u)
    z = local.once(x)
}
<domain: "local", opset_import: ["" : 21]> twice (x) => (y) { a = Exp(x) y = Neg(a) }
<domain: "local", opset_import: ["" : 21]> once (x) => (y) { a = Exp(x) b = Abs(a) y = Neg(b) }
"""
LOOP = (
    "g (float[2] x) => (float[3] y) <int64 n = {2}, bool k = {1}> { y = Loop(n, k, x)"
    " <body = b (int64 it, bool on, float[3] v) => (bool go, float[3] w) { go = Identity(on) w = Exp(v) }> }"
)
X = np.linspace(-1, 1, 1 * 3 * 2 * 2, dtype=np.float32)
WEIGHT = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
# A model, its input, the dims of the values that declare others, and the output computed by hand.
STALE: dict[str, tuple[str, Array, dict[str, Dims], Array]] = {
    "another size": (
        "g (float[1,3,2,2] x) => (float[1,2,4,4] y)"
        " <float[1,2,4,4] a, float[2,3,1,1] w = {1,2,3,4,5,6}> { a = Conv(x, w) y = Relu(a) }",
        X.reshape(1, 3, 2, 2),
        {"a": [1, 2, 2, 2], "y": [1, 2, 2, 2]},
        np.maximum(np.einsum("oc,nchw->nohw", WEIGHT, X.reshape(1, 3, 2, 2)), 0),
    ),
    "another rank": (
        "g (float[3,4] x) => (float[12] y) <float[12] a> { a = Relu(x) y = Neg(a) }",
        X.reshape(3, 4),
        {"a": [3, 4], "y": [3, 4]},
        -np.maximum(X.reshape(3, 4), 0),
    ),
    "a branch": (
        "g (float[12] x) => (float[3] y) <bool c> { c = Constant<value = bool {1}>() y = If(c)"
        " <then_branch = t () => (float[3] a) <float[3] i> { i = Abs(x) a = Exp(i) },"
        " else_branch = e () => (float[12] b) { b = Neg(x) }> }",
        X,
        {"i": [12], "a": [12], "b": [12], "y": [12]},
        np.exp(np.abs(X)),
    ),
}


def declared(model: onnx.ModelProto) -> dict[str, Dims]:
    """Return the declared dims of all values except the inputs of the model."""
    found = [*model.graph.output, *model.graph.value_info]
    for node in model.graph.node:
        for attribute in node.attribute:
            found += [*attribute.g.input, *attribute.g.output, *attribute.g.value_info]
    return {one.name: dims_of(one) for one in found}


def dims_of(value: onnx.ValueInfoProto) -> Dims:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize("name", sampled(STALE, 3))
def test_one_command_repairs_stale_shapes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def surgery_(*arguments: str) -> tuple[int, str]:
        code = cli.main([*arguments])
        return code, capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    source, data, right, wanted = STALE[name]
    model = text.parse(source)
    onnx.save(model, "m.onnx")
    with pytest.raises(onnx.shape_inference.InferenceError, match=r"Inferred shape"):
        onnx.shape_inference.infer_shapes(model, strict_mode=True)
    code, out = surgery_("check", "m.onnx")
    # Where ONNX Runtime fails at the wrong size of a branch, there is no run of the original to compare with.
    accepted = ["--unverified", "accept"] if installed.fate(model) else []
    command = " ".join(["surgery run redeclare-shapes MODEL -o OUT", *accepted])
    assert code == 1 and "what the nodes compute: that of '" in out
    assert f"'{command}' repairs that" in out
    _, out = surgery_("apply", "default", "m.onnx", "-o", "default.onnx")
    assert f"'{command}' repairs that" in " ".join(out.split())
    code, out = surgery_("run", "redeclare-shapes", "m.onnx", "-o", "out.onnx", *accepted)
    assert code == 0, out
    made = onnx.load("out.onnx")
    found = declared(made)
    assert {name: found[name] for name in right} == right
    assert [dims_of(one) for one in made.graph.input] == [dims_of(one) for one in model.graph.input]
    assert surgery_("check", "out.onnx") == (0, "out.onnx: valid\n")
    got = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": data})[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
    assert list(got.shape) == found["y"]


def test_functions_are_compared_with_their_calls() -> None:
    model = text.parse(FUNCTIONS)
    for function, dims in zip(model.functions, ({"a": [2, 3]}, {"a": [4, 3], "b": [2, 3]})):
        for name, shape in dims.items():
            function.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    result = surgery.apply(model, parse("steps: [redeclare-shapes]"))
    assert result.ok
    made = {
        (function.name, one.name): [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
        for function in result.proto.functions
        for one in function.value_info
        if (dims := one.type.tensor_type.shape.dim)
    }
    # Two calls have only the number of rows in common; what is right stays.
    assert made == {("twice", "a"): [2, None], ("once", "a"): [2, 3], ("once", "b"): [2, 3]}


def test_a_carried_value_keeps_the_size_of_the_first_iteration() -> None:
    result = surgery.apply(text.parse(LOOP), parse("steps: [redeclare-shapes]"))
    assert result.ok
    found = declared(result.proto)
    assert (found["v"], found["w"], found["y"]) == ([2], [2], [2])


def test_a_carried_value_that_grows_has_no_size() -> None:
    source = LOOP.replace("w = Exp(v)", "w = Concat<axis = 0>(v, v)").replace("float[3] y", "float[q] y")
    model = text.parse(source.replace("float[3] w", "float[r] w"))
    result = surgery.apply(model, parse("steps: [redeclare-shapes]"))
    body = result.proto.graph.node[0].attribute[0].g
    assert [dim.WhichOneof("value") for dim in body.input[2].type.tensor_type.shape.dim] == [None]


def test_nothing_is_found_in_a_model_that_is_right() -> None:
    whisper = onnx.load(ROOT / "models" / "whisper-enc-tiny.onnx")
    for model in (shortened("bert-tiny.dy"), whisper, without_residuals("mobilenet-tiny")):
        result = surgery.apply(model, parse("steps: [redeclare-shapes]"))
        assert [step.status for step in result.steps] == ["unchanged"]
