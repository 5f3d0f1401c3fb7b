"""Non-maximum suppression of the boxes of a detector."""

from typing import Literal

from surgery import Graph, Parity, UsageError, graph_pass

from ._asked import asked
from ._detections import Detector, Limits


@graph_pass("append-nms", parity=Parity.CLOSE, changes=("outputs", "order"))
def append_nms(
    graph: Graph,
    *,
    output: str | None = None,
    layout: Literal["v8", "v5"] | None = None,
    boxes: str | None = None,
    scores: str | None = None,
    scores_layout: Literal["BCN", "BNC"] | None = None,
    box_format: Literal["xyxy", "cxcywh"] | None = None,
    iou: float = 0.45,
    score: float = 0.25,
    max_per_class: int = 100,
    give: Literal["detections", "indices"] = "detections",
    prefix: str = "nms_",
    keep: bool = False,
) -> None:
    """Append NonMaxSuppression to a detector, so that it returns the detections themselves.

    The detector has one output with boxes and scores, as those of the YOLO family do: `v8` is [B, 4 + C, N], box and
    class scores; `v5` is [B, N, 5 + C], with an objectness after the box that multiplies the class scores. Or it has an
    output with boxes [B, N, 4], and one with scores [B, C, N] or [B, N, C]. B is the batch, N the boxes, C the classes.
    A layout that is not given follows from the dims, if these are known.

    Boxes are chosen separately for each image and class, best first: a box needs a score above `score`, and overlaps
    none of the chosen ones by more than `iou` (intersection over union). The new outputs have a row for each of the M
    detections of all images, ordered by image, class and descending score; M may be 0. With the default prefix:
    `nms_images` int64[M], `nms_boxes` [M, 4] as x1, y1, x2, y2, `nms_scores` [M] and `nms_classes` int64[M]. With
    `give: indices`, there is one output `nms_indices` int64[M, 3]: image, class, box.

    Right by the definition of NonMaxSuppression, which computes in float32. Two scores that are exactly equal may come
    in either order. Needs opset 11.

    Options:
        output: the output with boxes and scores; optional if the model has only one.
        layout: how that output is arranged.
        boxes: the output with boxes; give `scores` as well.
        scores: the output with scores.
        scores_layout: the order of the axes of the scores: BCN or BNC.
        box_format: xyxy, two opposite corners, or cxcywh, center and size; by default cxcywh for `output`, and xyxy for
            `boxes`.
        iou: the largest overlap of two detections of a class.
        score: the score that a detection must exceed.
        max_per_class: the largest number of detections for each image and class.
        give: which outputs to return.
        prefix: the beginning of the names of the new outputs.
        keep: whether to keep the outputs with boxes and scores.

    Example:
        # options: {layout: v8}
        g (float[B,6,N] x) => (float[B,6,N] y) { y = Sigmoid(x) }
    """
    limits = Limits(iou, score, max_per_class)
    detector = Detector.read(graph, (output, layout), (boxes, scores, scores_layout), box_format)
    limits.check()
    if graph.opset < 11:
        raise UsageError(f"this needs opset 11, the model has {graph.opset}", todo="run upgrade-opset before")
    names = [f"{prefix}{name}" for name in (("indices",) if give == "indices" else detector.NAMES)]
    taken = next((name for name in names if not graph.is_free(name)), None)
    if taken is not None:
        raise UsageError(f"the name '{taken}' is taken", todo="set another prefix")
    with asked(graph) as new:
        made = detector.build(new, limits, indices=give == "indices")
        for port in () if keep else detector.ports:
            new.drop_output(port)
        relations = detector.relations(indices=give == "indices")
        for value, name, text in zip(made, names, relations):
            new.add_output(value, name)
            new.relate_output(name, text, **detector.operands(), **detector.constants(limits))
