"""Edits of inputs and outputs on real models, and edits that do something else than they say, which must be found."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support import ROOT
from support.breadth import sampled
from surgery.passes.edit import _image, _reshaping, _scores

import surgery
from surgery.base.errors import UsageError
from surgery.engine.pipeline.runner import Result
from surgery.engine.recipe import parse
from surgery.model.graph import text
from surgery.model.graph.literals import data_type
from surgery.model.runtime.engine import Engine, EngineName
from surgery.verification.comparing.reference_run import ReferenceRun

MODELS = ROOT / "models"
IMAGENET = "scale: 0.00392156862745098, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]"


def apply(model: Path | onnx.ModelProto, *steps: str) -> Result:
    return surgery.apply(model, parse("recipe: t\nsteps:\n" + "".join(f"  - {step}\n" for step in steps)))


def ports(result: Result) -> dict[str, tuple[int, list[Any]]]:
    graph = result.proto.graph
    return {
        value.name: (
            value.type.tensor_type.elem_type,
            [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim],
        )
        for value in (*graph.input, *graph.output)
    }


def operators(result: Result) -> Counter[str]:
    return Counter(node.op_type for node in result.proto.graph.node)


def require_committed(result: Result) -> None:
    assert [(step.status, step.message) for step in result.steps] == [("committed", "")] * len(result.steps)
    assert all(step.verdict is not None and step.verdict.status in ("equal", "close") for step in result.steps)


@pytest.mark.parametrize("name", sampled(["resnet", "mobilenet"], 2))
def test_an_image_model_in_nhwc_needs_only_one_transpose(name: str) -> None:
    result = apply(MODELS / f"{name}-tiny.onnx", "set-layout: {layout: NHWC, inputs: pixel_values}")
    require_committed(result)
    assert operators(result)["Transpose"] == 1
    assert ports(result)["pixel_values"][1][3] == 3


def test_an_image_model_with_byte_input_and_class_output(monkeypatch: pytest.MonkeyPatch) -> None:
    engines: set[str] = set()
    engine_for = ReferenceRun.engine_for

    def told(self: ReferenceRun, name: EngineName, **how: bool) -> Engine:
        engines.add(name)
        return engine_for(self, name, **how)

    monkeypatch.setattr(ReferenceRun, "engine_for", told)
    result = apply(
        MODELS / "resnet-tiny.onnx",
        "set-dims: {ports: {pixel_values: [1, 3, 20, 20]}}",
        f"embed-preprocessing: {{dtype: uint8, layout: NHWC, swap_channels: true, {IMAGENET}}}",
        "embed-postprocessing: {activation: softmax, top_k: 5}",
        "set-dtype: {outputs: {logits_indices: int32}}",
    )
    require_committed(result)
    assert ports(result) == {
        "pixel_values": (onnx.TensorProto.UINT8, [1, 20, 20, 3]),
        "logits": (onnx.TensorProto.FLOAT, [1, 5]),
        "logits_indices": (onnx.TensorProto.INT32, [1, 5]),
    }
    # Two steps put something around the original, and ONNX Runtime still takes it.
    assert "reference" not in engines


def test_ids_of_a_language_model_as_int32(short_models: Path) -> None:
    result = apply(short_models / "bert-tiny.ts.onnx", "set-dtype: {inputs: {'*': int32}, outputs: {'*': float16}}")
    require_committed(result)
    assert {kind for kind, _ in ports(result).values()} == {onnx.TensorProto.INT32, onnx.TensorProto.FLOAT16}


@pytest.mark.parametrize(("wish", "batch"), sampled([("batch", "batch"), ("6", 6)], 2))
def test_a_fixed_batch_size_is_changed(tmp_path: Path, short_models: Path, wish: str, batch: int | str) -> None:
    fixed = apply(short_models / "vit-tiny.onnx", "set-dims: {dims: {batch: 2}}", "fold-constants")
    assert operators(fixed)["Shape"] == 0
    fixed.save(tmp_path / "fixed.onnx")
    result = apply(tmp_path / "fixed.onnx", f"set-dims: {{rebatch: {wish}}}")
    require_committed(result)
    assert {dims[0] for _, dims in ports(result).values()} == {batch}


def test_models_that_mix_samples_cannot_be_rebatched() -> None:
    model = text.parse("g (float[2,3] x) => (float[2,3] y) { y = Softmax<axis = 0>(x) }")
    result = apply(model, "set-dims: {rebatch: batch}")
    assert [(step.status, step.verdict and step.verdict.status) for step in result.steps] == [("failed", "different")]
    # Nobody says that it is a batch: at its size the model is what it was.
    assert apply(model, "set-dims: {dims: {2: batch}}").ok


def test_the_wrong_place_for_a_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = text.parse(
        """g (float[2,4] x) => (float[2,2,2] y) <int64[3] s = {2, 2, 2}, int64[1] axes = {1}>
        { r = Reshape(x, s) m = ReduceMean(r, axes) y = Sub(r, m) }"""
    )
    assert apply(model, "set-dims: {rebatch: batch}").ok
    monkeypatch.setattr(_reshaping, "_place", lambda *_: 1)
    assert [step.status for step in apply(model, "set-dims: {rebatch: batch}").steps] == ["failed"]


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("_affine", lambda steps: (steps.scale / steps.std, -steps.mean)),
        ("_affine", lambda steps: (1 / steps.std, -steps.mean / steps.std)),
        ("_along_channels", lambda _, numbers: np.array(numbers.mean(), np.float32)),
    ],
)
def test_wrong_arithmetic_before_the_model_is_found(monkeypatch: pytest.MonkeyPatch, method: str, wrong: Any) -> None:
    told = _image.Steps.told
    kept = _image.Steps._along_channels

    def right(self: _image.Steps, opset: int) -> Any:
        with monkeypatch.context() as inner:
            inner.setattr(_image.Steps, "_along_channels", kept)
            return told(self, opset)

    monkeypatch.setattr(_image.Steps, "told", right)
    monkeypatch.setattr(_image.Steps, method, wrong)
    model = text.parse("g (float[N,3,4,4] x) => (float[N,3,4,4] y) { y = Neg(x) }")
    steps = apply(model, f"embed-preprocessing: {{dtype: uint8, {IMAGENET}}}").steps
    assert [(step.status, step.verdict and step.verdict.status) for step in steps] == [("failed", "different")]


def test_a_swap_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    build = _image.Steps.build
    monkeypatch.setattr(_image.Steps, "build", lambda self, new: build(_without_swap(self), new))
    model = text.parse("g (float[N,3,4,4] x) => (float[N,3,4,4] y) { y = Neg(x) }")
    steps = apply(model, "embed-preprocessing: {swap_channels: true, scale: 2}").steps
    assert [(step.status, step.verdict and step.verdict.status) for step in steps] == [("failed", "different")]


def _without_swap(steps: _image.Steps) -> _image.Steps:
    return type(steps)(**{**vars(steps), "swap": False})


def test_smallest_instead_of_largest_elements_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    build = _scores.Scores.build

    def smallest(self: _scores.Scores, new: surgery.Builder) -> Any:
        made = build(self, new)
        new.edits.nodes[-1].attributes["largest"] = 0  # type: ignore[index]
        return made

    monkeypatch.setattr(_scores.Scores, "build", smallest)
    model = text.parse("g (float[N,5] x) => (float[N,5] y) { y = Neg(x) }")
    steps = apply(model, "embed-postprocessing: {top_k: 2}").steps
    assert [(step.status, step.verdict and step.verdict.status) for step in steps] == [("failed", "different")]


def test_an_element_type_without_a_size_is_asked_for_its_size() -> None:
    for kind, hint in (("int", "give its size: int8, int16, int32, int64"), ("flot16", "did you mean 'float16'")):
        with pytest.raises(UsageError) as caught:
            data_type(kind)
        assert hint in str(caught.value)


@pytest.mark.parametrize("place", ["main graph", "branch"])
def test_a_resize_to_constant_sizes_is_named_where_the_sizes_of_its_input_become_free(place: str) -> None:
    resize = 'r = Resize<mode = "nearest">(x, , , sizes)'
    body = {
        "main graph": f"{resize} y = Neg(r)",
        "branch": (
            f"y = If<then_branch = t () => (float[1,2,8,8] a) {{ {resize} a = Neg(r) }}, "
            f"else_branch = e () => (float[1,2,8,8] b) {{ {resize.replace('r =', 'q =')} b = Abs(q) }}>(c)"
        ),
    }[place]
    model = text.parse(
        f"g (float[1,2,4,4] x, bool c) => (float[1,2,8,8] y) <int64[4] sizes = {{1,2,8,8}}> {{ {body} }}"
    )
    record = apply(model, "set-dims: {ports: {x: [null, null, H, W]}}").steps[0]
    remark = "dim 2 of 'r' stays 8 and dim 3 of 'r' stays 8, as 'sizes' of node 'Resize -> r' (Resize) is constant"
    assert record.status == "committed" and record.message.startswith(remark)
    # One that follows, and one with scales, need no remark.
    kept = apply(model, "set-dims: {ports: {x: [n, null, null, null]}}").steps[0]
    assert (kept.status, kept.message) == ("committed", "")
    scaled = text.parse(
        'g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float[4] k = {1,1,2,2}> { y = Resize<mode = "nearest">(x, , k) }'
    )
    result = apply(scaled, "set-dims: {ports: {x: [null, null, H, W]}}")
    require_committed(result)
    assert ports(result)["y"][1] == [1, 2, "2*H", "2*W"]


def test_a_target_that_a_model_computes_in_part_takes_other_sizes() -> None:
    model = text.parse(
        "g (float[N,2,4,6] x) => (float[N,2,24] y) <int64[2] t = {2,24}, int64[1] z = {0}>"
        " { s = Shape(x) n = Gather(s, z) q = Concat<axis = 0>(n, t) y = Reshape(x, q) }"
    )
    result = apply(model, "set-dims: {ports: {x: [null, null, H, W]}}")
    require_committed(result)
    data = np.arange(3 * 2 * 5 * 7, dtype=np.float32).reshape(3, 2, 5, 7)
    session = onnxruntime.InferenceSession(result.proto.SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x": data})[0], data.reshape(3, 2, 35))
