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

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.operators.dtypes import is_float, smallest
from surgery.promises import Parity
from surgery.proto.randomness import Origins
from surgery.runtime.engine import Outputs
from surgery.verification.comparing.compare import ComparisonRules, exceeds, same_bits
from surgery.verification.comparing.compare import tensors as tensors
from surgery.verification.comparing.saturation import bounds, saturated
from surgery.verification.comparing.tolerance import blocks
from surgery.verification.inputs.plan import Binding

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
    groups: dict[tuple[tuple[str, int], ...], list[Run]] = defaultdict(list)
    for run in runs:
        groups[tuple(run.binding.dims.items())].append(run)
    found = {}
    limits = bounds(model) if limits is None else limits
    for output in model.graph.output:
        name, sources = output.name, origins.inputs[output.name]
        if sources and name not in origins.random:
            if declares_empty(output) or not _vary(runs, sources):
                continue
            values = [tensor for run in runs for tensor in tensors(run.outputs[name])]
            why = _unusable(values)
            if why is None and name in limits and saturated(values, limits[name], rules):
                why = "is saturated: all elements are at its bounds"
            why = why or _unmoved(name, sources, list(groups.values()), rules)
            if why is not None:
                found[name] = why
    return found


def _vary(runs: list[Run], sources: frozenset[str]) -> bool:
    """Return whether any input that an output depends on varied between runs.

    An input with only one legal value, or without elements, leaves nothing to try: the output cannot vary.
    """
    return any(not same(runs[0].feed[source], run.feed[source]) for run in runs[1:] for source in sources)


def same(first: Any, second: Any) -> bool:
    """Return whether two values, sequences included, have the same bits."""
    mine, theirs = list(tensors(first)), list(tensors(second))
    return len(mine) == len(theirs) and all(same_bits(a, b) for a, b in zip(mine, theirs))


def _unusable(found: list[Any]) -> str | None:
    """Return why the elements of an output, given as the tensors of all runs, prove nothing; None if they may."""
    if not any(tensor.size for tensor in found):
        return ALWAYS_EMPTY
    if not all(is_float(tensor.dtype) for tensor in found):
        return None
    # Types of a byte or less have too few bits to lose four of them.
    least = smallest(found[0].dtype) * (VANISHING if found[0].dtype.itemsize > 1 else 1.0)
    some_finite = False
    for tensor in found:
        for block in blocks(tensor.shape):
            values = np.abs(np.asarray(tensor[block]).astype(np.float64))
            finite = np.isfinite(values)
            if (values[finite] >= least).any():
                return None
            some_finite = some_finite or bool(finite.any())
    return "is always zero" if some_finite else NEVER_FINITE


def _unmoved(name: str, sources: frozenset[str], groups: list[list[Run]], rules: ComparisonRules) -> str | None:
    """Return the reason if an output does not change with its inputs in runs with the same dims, else None."""
    tried = False
    for group in groups:
        for run in group[1:]:
            if all(same(group[0].feed[source], run.feed[source]) for source in sources):
                continue
            tried = True
            if _differ(name, group[0], run, rules):
                return None
    return "does not change with the inputs" if tried else None


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
