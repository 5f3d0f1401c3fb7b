"""Outputs that prove nothing, whatever they are compared with.

According to the graph, an output depends on the elements of inputs, on shapes only, or on nothing. In the last two
cases, equal outputs are sufficient. An output that depends on elements is *vacuous* if over all runs

- it had no finite element;
- it was zero, or so small that it has fewer than four bits left;
- it was empty, and its declared shape does not say so;
- it was saturated: at the bounds of a Sigmoid, a Softmax or a Clip, see `saturation`;
- it stayed the same, although an input that it depends on had other elements in a run with the same dims. The same
  means the same bits under an EXACT promise, and within the tolerance otherwise: a tolerance that cannot distinguish
  the outputs for two inputs cannot distinguish a right model from a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.dtypes import is_float, smallest
from surgery.base.promises import Parity
from surgery.model.proto.randomness import Origins
from surgery.model.runtime.engine import Outputs
from surgery.verification.comparing.compare import ComparisonRules, exceeds, same_bits
from surgery.verification.comparing.compare import tensors as tensors
from surgery.verification.comparing.saturation import Saturation, bounds
from surgery.verification.comparing.tolerance import blocks
from surgery.verification.inputs.feed_plan import Binding

if TYPE_CHECKING:
    import onnx

VANISHING = 16.0
"""Multiple of the smallest number of a float type below which an output has fewer than four bits left to compare."""


ALWAYS_EMPTY, NEVER_FINITE = "is always empty", "is never finite"


@dataclass(frozen=True)
class Run:
    """One set of inputs and the original's outputs for it."""

    binding: Binding
    feed: Mapping[str, Any]
    outputs: Outputs


def vacuous(
    model: onnx.ModelProto,
    runs: list[Run],
    origins: Origins,
    rules: ComparisonRules,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, str]:
    """Return the outputs that prove nothing under a promise, with reasons; `limits`: their `bounds`, if known."""
    found = Evidence(model, origins, rules, limits)
    for run in runs:
        found.add(run)
    return found.vacuous()


class Evidence:
    """The evidence for the outputs of a model, from runs that are given one after the other.

    Of the runs, only what later ones are compared with is held: the first with each choice of dims, and of its outputs
    those that have not been seen to change.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        origins: Origins,
        rules: ComparisonRules,
        limits: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        limits = bounds(model) if limits is None else limits
        self._rules = rules
        self._shown = {
            output.name: _Shown(
                origins.inputs[output.name],
                Saturation(limits[output.name], rules) if output.name in limits else None,
            )
            for output in model.graph.output
            if origins.inputs[output.name] and output.name not in origins.random and not declares_empty(output)
        }
        self._first: Mapping[str, Any] | None = None
        self._firsts: dict[tuple[tuple[str, int], ...], Run] = {}

    @property
    def unmoved(self) -> list[str]:
        """The outputs that have been the same in all runs with the same dims, if they are to change at all."""
        return [name for name, shown in self._shown.items() if not shown.moved]

    def add(self, run: Run) -> None:
        """Note what one run shows."""
        if self._first is None:
            self._first = run.feed
        left = self.unmoved
        dims = run.binding.dim_key
        first = self._firsts.setdefault(dims, replace(run, outputs={name: run.outputs[name] for name in left}))
        for name, shown in self._shown.items():
            shown.see(run.outputs[name])
            shown.varied = shown.varied or _other(self._first, run.feed, shown.sources)
        for name in left if run.feed is not first.feed else ():
            shown = self._shown[name]
            if _other(first.feed, run.feed, shown.sources):
                shown.tried = True
                shown.moved = _differ(name, first, run, self._rules)
        self._drop(left)

    def _drop(self, left: Sequence[str]) -> None:
        """Drop what no later run has to be compared with."""
        now = self.unmoved
        if len(now) == len(left):
            return
        if not now:
            self._firsts.clear()
        for dims, first in self._firsts.items():
            self._firsts[dims] = replace(first, outputs={name: first.outputs[name] for name in now})

    def vacuous(self) -> dict[str, str]:
        """Return the outputs that prove nothing, with reasons."""
        found = ((name, shown.reason()) for name, shown in self._shown.items() if shown.varied)
        return {name: reason for name, reason in found if reason is not None}


@dataclass
class _Shown:
    """What is known of one output so far; `sources` are the inputs whose elements it depends on."""

    sources: frozenset[str]
    saturation: Saturation | None
    sized: bool = False
    floats: bool = True
    usable: bool = False
    finite: bool = False
    varied: bool = False
    tried: bool = False
    moved: bool = False

    def see(self, value: Any) -> None:
        for tensor in tensors(value):
            self.sized = self.sized or tensor.size > 0
            self.floats = self.floats and is_float(tensor.dtype)
            if self.saturation is not None:
                self.saturation.add(tensor)
            if self.floats and not self.usable:
                self._look(tensor)

    def _look(self, tensor: Any) -> None:
        """Look for a finite element that is large enough to be compared, and for any finite element."""
        # Types of a byte or less have too few bits to lose four of them.
        least = smallest(tensor.dtype) * (VANISHING if tensor.dtype.itemsize > 1 else 1.0)
        for block in blocks(tensor.shape):
            values = np.abs(np.asarray(tensor[block]).astype(np.float64))
            finite = np.isfinite(values)
            self.finite = self.finite or bool(finite.any())
            if (values[finite] >= least).any():
                self.usable = True
                return

    def reason(self) -> str | None:
        """Return why the output proves nothing; None if it proves something.

        An input with only one legal value, or without elements, leaves nothing to try: then no output can vary.
        """
        if not self.sized:
            return ALWAYS_EMPTY
        if self.floats and not self.usable:
            return "is always zero" if self.finite else NEVER_FINITE
        if self.saturation:
            return "is saturated: all elements are at its bounds"
        return "does not change with the inputs" if self.tried and not self.moved else None


def _other(first: Mapping[str, Any], second: Mapping[str, Any], sources: frozenset[str]) -> bool:
    """Return whether any of some inputs differs between two runs."""
    return any(not same(first[source], second[source]) for source in sources)


def same(first: Any, second: Any) -> bool:
    """Return whether two values, sequences included, have the same bits."""
    mine, theirs = list(tensors(first)), list(tensors(second))
    return len(mine) == len(theirs) and all(same_bits(a, b) for a, b in zip(mine, theirs))


def _differ(name: str, first: Run, second: Run, rules: ComparisonRules) -> bool:
    one, other = first.outputs[name], second.outputs[name]
    return not same(one, other) if rules.promise is Parity.EXACT else exceeds(one, other, rules)


def misdeclared(skeleton: bytes, runs: Sequence[Run]) -> frozenset[str]:
    """Return the outputs of a model whose shape in some run contradicts the declared shape."""
    import onnx

    declared = {
        output.name: [dim.dim_value if dim.HasField("dim_value") else None for dim in output.type.tensor_type.shape.dim]
        for output in onnx.load_model_from_string(skeleton).graph.output
        if output.type.tensor_type.HasField("shape")
    }
    return frozenset(
        name
        for name, dims in declared.items()
        for run in runs
        for tensor in tensors(run.outputs[name])
        if len(tensor.shape) != len(dims) or any(dim not in (None, own) for dim, own in zip(dims, tensor.shape))
    )


def declares_empty(output: onnx.ValueInfoProto) -> bool:
    """Return whether the declared shape of an output has no elements."""
    kind = output.type
    return kind.HasField("tensor_type") and any(
        dim.WhichOneof("value") == "dim_value" and dim.dim_value == 0 for dim in kind.tensor_type.shape.dim
    )


def only_floats(value: Any) -> bool:
    """Return whether all tensors in a value have elements of a float type."""
    return all(is_float(tensor.dtype) for tensor in tensors(value))
