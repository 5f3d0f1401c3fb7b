"""`append-nms` against non-maximum suppression in NumPy, on random boxes without ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support.breadth import sampled

import surgery
from surgery.engine.recipe import single_step
from surgery.model.graph import text

Array = np.ndarray[Any, Any]
BOXES, CLASSES = 40, 3


def corners(boxes: Array, form: str) -> Array:
    """Return boxes [..., 4] as x1, y1, x2, y2."""
    if form == "xyxy":
        return boxes
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return np.concatenate([center - half, center + half], -1)


def overlap(one: Array, other: Array) -> float:
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    inner = float(np.prod(np.maximum(high - low, 0)))
    areas = [float(np.prod(box[2:] - box[:2])) for box in (one, other)]
    return inner / (sum(areas) - inner)


def suppressed(boxes: Array, scores: Array, iou: float, least: float, most: int) -> list[tuple[int, int, int]]:
    """Choose boxes [B, N, 4] as corners by scores [B, C, N], one after another: image, class, box."""
    found = []
    for image, (own, classes) in enumerate(zip(boxes, scores)):
        for kind, points in enumerate(classes):
            kept: list[int] = []
            for box in sorted(range(len(points)), key=lambda number: -points[number]):
                room = points[box] > least and len(kept) < most
                if room and all(overlap(own[box], own[other]) <= iou for other in kept):
                    kept.append(box)
            found += [(image, kind, box) for box in kept]
    return found


def drawn(batch: int, form: str, seed: int) -> tuple[Array, Array]:
    """Draw boxes [B, N, 4] that overlap often, and scores [B, C, N] that all differ."""
    rng = np.random.default_rng(seed)
    centers, sizes = rng.uniform(9, 40, (batch, BOXES, 2)), rng.uniform(4, 16, (batch, BOXES, 2))
    boxes = np.concatenate([centers, sizes], -1)
    boxes = boxes if form == "cxcywh" else corners(boxes, "cxcywh")
    points = rng.permutation(batch * CLASSES * BOXES).reshape(batch, CLASSES, BOXES) / (batch * CLASSES * BOXES)
    return boxes.astype(np.float32), (points + 1e-3).astype(np.float32)


def model(layout: str, kind: str = "float") -> onnx.ModelProto:
    if layout in ("v8", "v5"):
        dims = "B,7,N" if layout == "v8" else "B,N,8"
        return text.parse(f"g ({kind}[{dims}] x) => ({kind}[{dims}] y) {{ y = Relu(x) }}")
    dims = "B,C,N" if layout == "BCN" else "B,N,C"
    return text.parse(
        f"g ({kind}[B,N,4] x, {kind}[{dims}] p) => ({kind}[B,N,4] y, {kind}[{dims}] s) {{ y = Relu(x) s = Relu(p) }}"
    )


def feeds(layout: str, boxes: Array, scores: Array) -> dict[str, Array]:
    if layout == "v8":
        return {"x": np.concatenate([boxes.transpose(0, 2, 1), scores], 1)}
    if layout == "v5":
        sure = np.full((*boxes.shape[:2], 1), 0.5, np.float32)
        return {"x": np.concatenate([boxes, sure, scores.transpose(0, 2, 1)], 2)}
    return {"x": boxes, "p": scores if layout == "BCN" else scores.transpose(0, 2, 1)}


def appended(layout: str, options: dict[str, Any], kind: str = "float") -> onnx.ModelProto:
    where = {"layout": layout} if layout in ("v8", "v5") else {"boxes": "y", "scores": "s", "scores_layout": layout}
    result = surgery.apply(model(layout, kind), single_step("append-nms", {**where, **options}))
    assert result.ok, [step.message for step in result.steps]
    assert result.steps[0].status == "committed"
    return result.proto


def run(proto: onnx.ModelProto, feed: dict[str, Array]) -> dict[str, Array]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


@pytest.mark.parametrize(
    ("layout", "form"),
    sampled([(layout, form) for layout in ("v8", "v5", "BCN", "BNC") for form in ("xyxy", "cxcywh")], 8),
)
def test_detections_are_those_of_numpy(layout: str, form: str) -> None:
    iou, least, most = 0.35, 0.2, 5
    options = {"iou": iou, "score": least, "max_per_class": most, "box_format": form}
    full = appended(layout, options)
    assert [value.name for value in full.graph.output] == ["nms_images", "nms_boxes", "nms_scores", "nms_classes"]
    only = appended(layout, {**options, "give": "indices"})
    for batch in (1, 3):
        boxes, scores = drawn(batch, form, batch)
        feed = feeds(layout, boxes, scores)
        points = scores * np.float32(0.5) if layout == "v5" else scores
        wide = corners(boxes, form)
        expected = suppressed(wide, points, iou, least, most)
        assert 5 * batch < len(expected) <= batch * CLASSES * most
        assert [tuple(row) for row in run(only, feed)["nms_indices"].tolist()] == expected
        image, kind, box = np.array(expected).T
        found = run(full, feed)
        np.testing.assert_array_equal(found["nms_images"], image)
        np.testing.assert_array_equal(found["nms_classes"], kind)
        np.testing.assert_array_equal(found["nms_scores"], points[image, kind, box])
        np.testing.assert_allclose(found["nms_boxes"], wide[image, box], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("layout", sampled(["v8", "v5", "BCN"], 3))
def test_no_detection_gives_no_rows(layout: str) -> None:
    boxes, scores = drawn(2, "xyxy", 3)
    found = run(appended(layout, {"score": 0.5}), feeds(layout, boxes, scores * np.float32(0.1)))
    assert [value.shape for value in found.values()] == [(0,), (0, 4), (0,), (0,)]


def test_the_outputs_before_stay_on_request_and_names_get_a_prefix() -> None:
    made = appended("v8", {"keep": True, "prefix": "det/"})
    assert [value.name for value in made.graph.output][:2] == ["y", "det/images"]


def test_float16_is_suppressed_in_float32_and_returned_in_float16() -> None:
    made = appended("v8", {"score": 0.2, "iou": 0.4}, kind="float16")
    boxes, scores = (array.astype(np.float16) for array in drawn(1, "cxcywh", 5))
    found = run(made, feeds("v8", boxes, scores))
    assert found["nms_boxes"].dtype == found["nms_scores"].dtype == np.float16
    assert found["nms_scores"].min() > 0.2 and len(found["nms_scores"]) > 5


def test_known_dims_show_the_layout() -> None:
    source = text.parse("g (float[1,25,8] x) => (float[1,25,8] y) { y = Relu(x) }")
    result = surgery.apply(source, single_step("append-nms", {}))
    assert result.ok and [node.op_type for node in result.proto.graph.node].count("Mul") == 2
