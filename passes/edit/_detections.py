"""The detections of a detector: as nodes, and as a relation of the new outputs to the old ones.

The relation has the same operators as the nodes: with another rounding, another of two nearly equal boxes would win.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from surgery import Builder, Graph, UsageError, Value

from ._ports import only

Array = np.ndarray[Any, Any]
_FLOAT = 1
"""TensorProto.FLOAT, the only type that NonMaxSuppression takes."""
_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Limits:
    """The limits of NonMaxSuppression, as options of the pass."""

    iou: float
    score: float
    most: int

    def check(self) -> None:
        """Raise UsageError for a limit out of range."""
        if not 0 <= self.iou <= 1:
            raise UsageError(f"iou is {self.iou:g}", todo="give a number from 0 to 1")
        if not np.isfinite(self.score):
            raise UsageError(f"score is {self.score}", todo="give a number such as 0.25")
        if self.most < 1:
            raise UsageError(f"max_per_class is {self.most}", todo="give at least 1")


@dataclass(frozen=True)
class Detector:
    """The outputs of a detector and what they mean.

    `layout` is v8 or v5 for one output, BCN or BNC for boxes and scores; `centered` is whether boxes have a center and
    a size.
    """

    ports: tuple[Value, ...]
    layout: str
    centered: bool

    NAMES: ClassVar[tuple[str, ...]] = ("images", "boxes", "scores", "classes")

    @classmethod
    def read(
        cls,
        graph: Graph,
        joined: tuple[str | None, str | None],
        apart: tuple[str | None, str | None, str | None],
        box_format: str | None,
    ) -> Detector:
        """Find the outputs; UsageError if they are not given, of another rank or type, or arranged in an unclear way.

        `joined` is one output and its layout, `apart` those of boxes and scores and the layout of these.
        """
        boxes, scores, order = apart
        if boxes is None and scores is None:
            if order is not None:
                raise UsageError("scores_layout needs boxes and scores", todo="give both, or set layout instead")
            port = _checked(only(graph, joined[0], graph.outputs(), "output"))
            return cls((port,), joined[1] or _layout_of(port), box_format != "xyxy")._consistent()
        if boxes is None or scores is None or joined != (None, None):
            raise UsageError("give either output and layout, or both boxes and scores")
        ports = [_checked(only(graph, name, graph.outputs(), "output")) for name in (boxes, scores)]
        if ports[0] == ports[1]:
            raise UsageError("boxes and scores are the same output", todo="give it as output, with its layout")
        return cls((ports[0], ports[1]), order or _order_of(*ports), box_format == "cxcywh")._consistent()

    def _consistent(self) -> Detector:
        """Return the detector; UsageError if a known dim contradicts the layout."""
        shapes = [port.shape or () for port in self.ports]
        axis, least = {"v8": (1, 5), "v5": (2, 6)}.get(self.layout, (2, 4))
        extent = shapes[0][axis]
        right = extent == least if len(shapes) == 2 else isinstance(extent, int) and extent >= least
        if isinstance(extent, int) and not right:
            needed = "4" if len(shapes) == 2 else f"at least {least} for the layout {self.layout}"
            raise UsageError(f"'{self.ports[0].name}' has {extent} along axis {axis}, not {needed}")
        if len(shapes) == 2:
            count, other = shapes[0][1], shapes[1][2 if self.layout == "BCN" else 1]
            if isinstance(count, int) and isinstance(other, int) and count != other:
                raise UsageError(f"there are {count} boxes, and scores of {other}", todo="set scores_layout")
        return self

    # As nodes

    def build(self, new: Builder, limits: Limits, *, indices: bool) -> list[Value]:
        """Add the nodes, and return the new outputs."""
        held = {name: new.constant(array, name) for name, array in self.constants(limits).items() if name in _USED}
        boxes, scores = self._parts(new, held)
        wide = [self._as_float(value, new) for value in (boxes, scores)]
        centered = 1 if self.centered else None
        limited = held["most"], held["iou"], held["least"]
        chosen = new.node("NonMaxSuppression", *wide, *limited, center_point_box=centered)
        if indices:
            return [chosen]
        column = {name: new.constant(self.constants(limits)[name], name) for name in ("first", "second", "place")}
        found = new.node("GatherND", boxes, new.node("Gather", chosen, column["place"], axis=1))
        return [
            new.node("Gather", chosen, column["first"], axis=1),
            self._corners(found, new, self.constants(limits)) if self.centered else new.node("Identity", found),
            new.node("GatherND", scores, chosen),
            new.node("Gather", chosen, column["second"], axis=1),
        ]

    def _parts(self, new: Builder, held: dict[str, Value]) -> tuple[Value, Value]:
        """Return boxes [B, N, 4] and scores [B, C, N]."""
        if len(self.ports) == 2:
            boxes, scores = self.ports
            return boxes, scores if self.layout == "BCN" else _turned(scores, new)
        (port,) = self.ports
        zero, four, end = (held[name] for name in ("zero", "four", "end"))
        if self.layout == "v8":
            box = new.node("Slice", port, zero, four, held["one"])
            return _turned(box, new), new.node("Slice", port, four, end, held["one"])
        two, five = held["two"], held["five"]
        sure = new.node("Slice", port, four, five, two)
        scores = new.node("Mul", new.node("Slice", port, five, end, two), sure)
        return new.node("Slice", port, zero, four, two), _turned(scores, new)

    def _as_float(self, value: Value, new: Builder) -> Value:
        return value if self._is_float else new.node("Cast", value, to=_FLOAT)

    @property
    def _is_float(self) -> bool:
        return all(port.dtype is not None and port.dtype.value == _FLOAT for port in self.ports)

    def _corners(self, found: Value, new: Builder, arrays: dict[str, Array]) -> Value:
        """Return boxes [M, 4] as corners."""
        zero, two, four, one = (new.constant(arrays[name], name) for name in ("zero", "two", "four", "one"))
        center, size = new.node("Slice", found, zero, two, one), new.node("Slice", found, two, four, one)
        half = new.node("Mul", size, new.constant(arrays["half"], "half"))
        return new.node("Concat", new.node("Sub", center, half), new.node("Add", center, half), axis=1)

    # As a relation

    def relations(self, *, indices: bool) -> list[str]:
        """Return the relation of each new output to the old ones, as ONNX text."""
        lines = self._relation_of_parts()
        cast = "wide = Identity" if self._is_float else f"wide = Cast<to = {_FLOAT}>"
        lines += [f"{cast}(box)", f"{cast.replace('wide', 'much')}(score)"]
        how = "<center_point_box = 1>" if self.centered else ""
        lines.append(f"i = NonMaxSuppression{how}(wide, much, most, iou, least)")
        if indices:
            return ["\n".join([*lines, "out = Identity(i)"])]
        boxes = ["p = Gather<axis = 1>(i, place)", "found = GatherND(box, p)"]
        if self.centered:
            boxes += ["center = Slice(found, zero, two, one)", "size = Slice(found, two, four, one)"]
            boxes += ["half_size = Mul(size, half)", "low = Sub(center, half_size)", "high = Add(center, half_size)"]
        boxes.append("out = Concat<axis = 1>(low, high)" if self.centered else "out = Identity(found)")
        endings = [
            ["out = Gather<axis = 1>(i, first)"],
            boxes,
            ["out = GatherND(score, i)"],
            ["out = Gather<axis = 1>(i, second)"],
        ]
        return ["\n".join([*lines, *ending]) for ending in endings]

    def _relation_of_parts(self) -> list[str]:
        turn = "Transpose<perm = [0, 2, 1]>"
        if len(self.ports) == 2:
            return ["box = Identity(raw)", f"score = {'Identity' if self.layout == 'BCN' else turn}(points)"]
        if self.layout == "v8":
            return ["b = Slice(raw, zero, four, one)", f"box = {turn}(b)", "score = Slice(raw, four, end, one)"]
        return [
            "box = Slice(raw, zero, four, two)",
            "sure = Slice(raw, four, five, two)",
            "each = Slice(raw, five, end, two)",
            "joint = Mul(each, sure)",
            f"score = {turn}(joint)",
        ]

    def operands(self) -> dict[str, Value]:
        """Return the outputs that the text reads."""
        return dict(zip(("raw", "points"), self.ports))

    def constants(self, limits: Limits) -> dict[str, Array]:
        """Return the arrays that the text and the nodes read."""
        numbers = {"zero": 0, "one": 1, "two": 2, "four": 4, "five": 5, "end": _END, "most": limits.most}
        kind = self.ports[0].dtype
        assert kind is not None
        return {
            **{name: np.array([number], np.int64) for name, number in numbers.items()},
            "iou": np.array([limits.iou], np.float32),
            "least": np.array([limits.score], np.float32),
            "half": np.array(0.5, kind.numpy()),
            "first": np.array(0, np.int64),
            "second": np.array(1, np.int64),
            "place": np.array([0, 2], np.int64),
        }


_USED = ("zero", "one", "two", "four", "five", "end", "most", "iou", "least")


def _turned(value: Value, new: Builder) -> Value:
    """Return a value with its last two axes exchanged."""
    return new.node("Transpose", value, perm=[0, 2, 1])


def _checked(port: Value) -> Value:
    """Return an output; UsageError unless it is a tensor of real numbers with three axes."""
    kind = port.dtype
    if kind is None or not kind.is_floating_point():
        raise UsageError(f"the output '{port.name}' is not a tensor of real numbers")
    if port.rank is None:
        raise UsageError(f"the rank of '{port.name}' is not known", todo="run infer-shapes, or declare its shape")
    if port.rank != 3:
        raise UsageError(f"the output '{port.name}' has {port.rank} dims, not 3: batch, boxes, and what they have")
    return port


def _layout_of(port: Value) -> str:
    """Return the layout of an output with boxes and scores: there are more boxes than features.

    Where one extent is known, it is that of the features: weights fix their number, while that of boxes follows from
    the size of the image.
    """
    _, one, two = port.shape or (None, None, None)
    if isinstance(one, int) and isinstance(two, int) and one != two:
        return "v8" if one < two else "v5"
    if isinstance(one, int) != isinstance(two, int):
        return "v8" if isinstance(one, int) else "v5"
    raise UsageError(f"the dims of '{port.name}' do not show its layout", todo="set 'layout: v8' or 'layout: v5'")


def _order_of(boxes: Value, scores: Value) -> str:
    """Return the order of the axes of scores, by the number of boxes, which may be a name."""
    count, (_, one, two) = (boxes.shape or (None, None))[1], scores.shape or (None, None, None)
    if count is not None and (one == count) != (two == count):
        return "BNC" if one == count else "BCN"
    todo = "set 'scores_layout: BCN' or 'scores_layout: BNC'"
    raise UsageError(f"the dims of '{scores.name}' do not show the order of its axes", todo=todo)
