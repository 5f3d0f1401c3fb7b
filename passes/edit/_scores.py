"""The steps from an output to the values derived from it: as nodes, and in an independent form to verify them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Builder, UsageError, Value

Array = np.ndarray[Any, Any]
_UPGRADE = "run upgrade-opset before"


@dataclass(frozen=True)
class Scores:
    """The steps applied to an output; `axis` counts from the first axis."""

    port: Value
    activation: str | None
    scale: float | None
    clip: tuple[float, float] | None
    argmax: bool
    top_k: int | None
    axis: int

    @property
    def _opset(self) -> int:
        return self.port.graph.opset

    @property
    def _chooses(self) -> bool:
        return self.argmax or self.top_k is not None

    def check(self) -> None:
        """Raise UsageError if no step is requested, or a step that the output or the opset does not support."""
        name, kind = self.port.name, self.port.dtype
        if not self._chooses and self.activation is None and self.scale is None and self.clip is None:
            raise UsageError("there is nothing to do", todo="set activation, scale, clip, argmax or top_k")
        if kind is None or not kind.is_floating_point():
            told = "no tensor" if kind is None else kind.name.lower()
            raise UsageError(f"the output '{name}' is {told}, not a tensor of real numbers")
        if self.argmax and self.top_k is not None:
            raise UsageError("give either argmax or top_k", todo="the first index of top_k is the argmax")
        if self.clip is not None and not self.clip[0] <= self.clip[1]:
            raise UsageError(f"clip goes from {self.clip[0]} to {self.clip[1]}", todo="put the smaller value first")
        extent = (self.port.shape or ())[self.axis]
        if self.top_k is not None and not 1 <= self.top_k <= (extent if isinstance(extent, int) else self.top_k):
            raise UsageError(f"top_k is {self.top_k}, and '{name}' has {extent} along axis {self.axis}")
        last = self.axis == (self.port.rank or 0) - 1
        if self.activation == "softmax" and self._opset < 13 and not last:
            what = f"Softmax along axis {self.axis} of '{name}' requires opset 13, but the model has {self._opset}"
            raise UsageError(what, todo=_UPGRADE)
        if self.top_k is not None and self._opset < 10:
            raise UsageError(
                f"TopK gives the largest in order since opset 10, the model has {self._opset}", todo=_UPGRADE
            )

    # As nodes

    def build(self, new: Builder) -> tuple[Value, ...]:
        """Build the nodes, and return the new outputs: values, and indices if the largest are chosen."""
        value = self.port
        if self.activation == "softmax":
            value = new.node("Softmax", value, axis=self.axis)
        elif self.activation == "sigmoid":
            value = new.node("Sigmoid", value)
        if self.scale is not None:
            value = new.node("Mul", value, new.constant(self._number(self.scale), "scale"))
        if self.clip is not None:
            value = self._clipped(value, self.clip, new)
        if self.argmax:
            return (new.node("ArgMax", value, axis=self.axis, keepdims=0),)
        if self.top_k is not None:
            return new.nodes(
                "TopK", value, new.constant(np.array([self.top_k], np.int64), "k"), outputs=2, axis=self.axis
            )
        return (value,)

    def _clipped(self, value: Value, bounds: tuple[float, float], new: Builder) -> Value:
        if self._opset < 11:
            return new.node("Clip", value, min=bounds[0], max=bounds[1])
        least, most = (new.constant(self._number(bound), name) for bound, name in zip(bounds, ("least", "most")))
        return new.node("Clip", value, least, most)

    def _number(self, number: float) -> Array:
        assert self.port.dtype is not None
        return np.array(number, self.port.dtype.numpy())

    # In an independent form

    def told(self) -> list[str]:
        """Return, as ONNX text, the relation of the new outputs to the old one.

        If values are chosen, the steps before are the same operators as in `build`: with a different rounding, another
        one of several nearly equal values would be chosen.
        """
        lines = self._activation_told()
        if self.scale is not None:
            lines.append("v = Mul(factor, v)")
        if self.clip is not None:
            lines += ["v = Max(v, least)", "v = Min(v, most)"]
        if self.argmax:
            squeeze = "v = Squeeze(i, axes)" if self._opset >= 13 else f"v = Squeeze<axes = [{self.axis}]>(i)"
            return ["\n".join([*lines, f"t, i = TopK<axis = {self.axis}>(v, one)", squeeze])]
        if self.top_k is not None:
            lines.append(f"t, i = TopK<axis = {self.axis}>(v, k)")
            return ["\n".join(lines), "\n".join([*lines, "j = Identity(i)"])]
        return ["\n".join(lines)]

    def _activation_told(self) -> list[str]:
        if self.activation is None:
            return ["v = Identity(scores)"]
        if self._chooses:
            operator = f"Softmax<axis = {self.axis}>" if self.activation == "softmax" else "Sigmoid"
            return [f"v = {operator}(scores)"]
        if self.activation == "softmax":
            return [f"v = LogSoftmax<axis = {self.axis}>(scores)", "v = Exp(v)"]
        return ["v = Mul(scores, half)", "v = Tanh(v)", "v = Mul(v, half)", "v = Add(v, half)"]

    def constants(self) -> dict[str, Array]:
        """Return the arrays that the text reads."""
        found: dict[str, Array] = {"half": self._number(0.5), "axes": np.array([self.axis], np.int64)}
        found |= {"one": np.array([1], np.int64), "k": np.array([self.top_k or 1], np.int64)}
        if self.scale is not None:
            found["factor"] = self._number(self.scale)
        if self.clip is not None:
            found |= {"least": self._number(self.clip[0]), "most": self._number(self.clip[1])}
        return found
