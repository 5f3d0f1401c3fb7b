"""Changes of operator versions that are invisible in their schemas: inputs, outputs, attributes and types are the same.

Needs a row for each version with the same schema as the version before: in `CHANGED_MEANING`, or in `SAME_MEANING`.
Source: the texts of the versions in the ONNX specification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from surgery.base.operators.forms import Schema
from surgery.base.operators.schemas import history


class NodeOutput(Protocol):
    """An output of a node."""

    @property
    def is_used(self) -> bool:
        """Whether it has a reader."""


class Operand(Protocol):
    """An input of a node."""

    @property
    def shape(self) -> Sequence[int | str | None] | None:
        """Its dims, if known."""

    @property
    def dtype(self) -> Any:
        """Its element type."""

    @property
    def constant(self) -> Any:
        """Its elements; None if it is not constant."""


class Call(Protocol):
    """The parts of a node that determine whether a change concerns it."""

    @property
    def inputs(self) -> Sequence[Operand | None]:
        """The inputs."""

    @property
    def outputs(self) -> Sequence[NodeOutput]:
        """The outputs."""

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""

    def has_attr(self, name: str) -> bool:
        """Return whether an attribute is set."""


@dataclass(frozen=True)
class VersionChange:
    """A difference before a version, and the nodes that it concerns; by default, all of them."""

    reason: str
    concerns: Callable[[Call], bool] = lambda node: True


def _where(name: str, *values: object) -> Callable[[Call], bool]:
    return lambda node: node.attr(name) in values


def _broadcasts(node: Call) -> bool:
    """Return whether the operands may have different shapes."""
    shapes = [operand.shape for operand in node.inputs if operand is not None]
    return any(shape is None or None in shape or shape != shapes[0] for shape in shapes)


def _takes_floats(node: Call) -> bool:
    dtype = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
    return not node.attr("fmod", 0) and (dtype is None or bool(dtype.is_floating_point()))


def _counts_back(node: Call) -> bool:
    axes = node.inputs[3] if len(node.inputs) > 3 else None
    return axes is not None and (axes.constant is None or bool((axes.constant < 0).any()))


_MASK = VersionChange(
    "the mask had another meaning before", lambda node: len(node.outputs) > 1 and node.outputs[1].is_used
)
_ROWS = VersionChange("before, all axes from axis on were flattened", lambda node: node.attr("axis") != -1)
_SAME_SHAPES = VersionChange("the operands were not broadcast before", _broadcasts)
_REDUCTIONS = VersionChange("reduction by max or min did not exist before", _where("reduction", "max", "min"))

CHANGED_MEANING: dict[tuple[str, int], VersionChange] = {
    **{(op, 13): _ROWS for op in ("Softmax", "LogSoftmax", "Hardmax")},
    **{(op, 8): _SAME_SHAPES for op in ("Max", "Mean", "Min", "Sum")},
    **{(op, 18): _REDUCTIONS for op in ("ScatterElements", "ScatterND")},
    ("DFT", 20): VersionChange("axis had another default before"),
    ("Dropout", 10): _MASK,
    ("Dropout", 12): _MASK,
    ("GridSample", 20): VersionChange("the modes had other names before"),
    ("GroupNormalization", 21): VersionChange("scale and bias were given per group before"),
    ("MeanVarianceNormalization", 13): VersionChange(
        "axes had no default before", lambda node: not node.has_attr("axes")
    ),
    ("Mod", 28): VersionChange("fmod had to be 1 for floats before", _takes_floats),
    ("PRelu", 7): VersionChange("the slope was not broadcast before"),
    ("Pad", 19): VersionChange("the mode wrap did not exist before", _where("mode", "wrap")),
    ("Resize", 19): VersionChange(
        "half_pixel_symmetric coordinates did not exist before",
        _where("coordinate_transformation_mode", "half_pixel_symmetric"),
    ),
    ("RoiAlign", 16): VersionChange("before, coordinates were not shifted by half a pixel"),
    ("Slice", 11): VersionChange("an axis could not be negative before", _counts_back),
}
"""Changes that are invisible in the schemas, by the version that introduced them."""

SAME_MEANING = frozenset(
    {
        ("AveragePool", 11),
        ("BatchNormalization", 15),
        ("Compress", 11),
        ("Conv", 11),
        ("ConvTranspose", 11),
        ("DepthToSpace", 28),
        ("Gemm", 6),
        ("If", 11),
        ("Loop", 11),
        ("LpPool", 11),
        ("MaxPool", 11),
        ("MaxUnpool", 11),
        ("NegativeLogLikelihoodLoss", 13),
        ("NonMaxSuppression", 11),
        ("Scan", 11),
    }
)
"""Versions that only clarify the specification, or improve inference."""

COUNTS_BACK = 11
"""The first opset in which an axis attribute may be negative, counted from the end."""

WITHOUT_EFFECT = {
    ("*", "consumed_inputs"): "a hint to reuse memory",
    ("BatchNormalization", "spatial"): "1 by default, which is the behavior of later versions",
    ("Dropout", "ratio"): "without effect outside of training",
}
"""Attributes of older versions with a default that a node of a newer version may lack."""


def without_row(schema: Schema) -> Iterator[str]:
    """Yield the versions up to a schema that show no change from the version before and have no row."""
    forms = [Schema.of(form) for form in history(schema.domain, schema.name, schema.since) if not form.deprecated]
    for old, new in pairwise(forms):
        key = schema.key, new.since
        counts_back = old.since < COUNTS_BACK <= new.since and not {"axis", "axes"}.isdisjoint(old.attributes)
        if _shown(old) == _shown(new) and not (key in CHANGED_MEANING or key in SAME_MEANING or counts_back):
            yield f"version {new.since}"


def _shown(schema: Schema) -> object:
    sides = [[(one.option, one.types) for one in side] for side in (schema.inputs, schema.outputs)]
    return sides, schema.attributes, schema.optional
