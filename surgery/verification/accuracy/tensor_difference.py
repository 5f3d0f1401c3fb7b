"""How far two models are apart at one tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surgery.base.json_record import Record
from surgery.base.operators.dtypes import Array, is_float
from surgery.base.promises import Parity
from surgery.verification.accuracy.metrics import Metrics, measure
from surgery.verification.comparing.compare import ComparisonRules, OutputDistances, TensorPair, compare
from surgery.verification.comparing.details import Element
from surgery.verification.inputs.spec import VerifySpec


@dataclass(frozen=True)
class TensorDifference(Record):
    """The difference of a tensor, over all sets of inputs.

    `unlike` says why its elements cannot be compared as numbers, or is empty. Of the `elements`, `differing` have other
    bits, and `beyond` exceed the tolerance, of which the largest difference needs `needed` times as much. `max` and
    `mean` are absolute differences, `where` is the element with the largest one, and `set` the inputs that show it.
    """

    unlike: str = ""
    equal: bool = False
    elements: int = 0
    differing: int = 0
    beyond: int = 0
    needed: float = 0.0
    max: float = 0.0
    mean: float = 0.0
    where: Element | None = None
    set: str = ""
    metrics: Metrics = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, before: Sequence[Array], after: Sequence[Array], sets: Sequence[str], verify: VerifySpec
    ) -> TensorDifference:
        """Compare the values of a tensor in two models; another element type is converted to that of the first."""
        pairs = [TensorPair(name, (), x, y, None) for x, y in zip(before, after)]
        if any(pair.expected.shape != pair.actual.shape for pair in pairs):
            return cls("the shapes differ")
        if any(array.dtype.kind in "OSUc" for pair in pairs for array in (pair.expected, pair.actual)):
            equal = all(np.array_equal(pair.expected, pair.actual) for pair in pairs)
            return cls("equal" if equal else "not equal, and no numbers", equal=equal)
        same = [TensorPair(name, (), x, y.astype(x.dtype), None) for x, y in zip(before, after)]
        types = {x.dtype for x in (before[0], after[0]) if is_float(x.dtype)}
        narrowest = min(types, key=lambda dtype: dtype.itemsize, default=before[0].dtype)
        rules = ComparisonRules.of(verify, Parity.CLOSE, precision={name: narrowest})
        found = OutputDistances()
        for pair in same:
            compare({name: pair.expected}, {name: pair.actual}, rules, found)
        with np.errstate(invalid="ignore"):  # infinity minus infinity is NaN, which is no difference
            apart = [np.abs(pair.expected.astype(np.float64) - pair.actual.astype(np.float64)) for pair in same]
        largest = [float(np.nanmax(array, initial=0.0)) for array in apart]
        number, count = int(np.argmax(largest)), sum(array.size for array in apart)
        is_measured = found.bits and is_float(before[0].dtype)
        return cls(
            equal=not found.bits,
            elements=count,
            differing=found.differing,
            beyond=found.count_beyond,
            needed=found.needed,
            max=largest[number],
            mean=float(sum(np.nansum(array) for array in apart)) / max(count, 1),
            where=_worst(same[number], apart[number]) if largest[number] > 0 else None,
            set=sets[number],
            metrics=_metrics(same) if is_measured else {},
        )


def _worst(pair: TensorPair, apart: Array) -> Element:
    """Return the element with the largest difference."""
    index = np.unravel_index(int(np.nanargmax(apart)), apart.shape)
    return pair.element(tuple(int(one) for one in index))


def _metrics(pairs: Sequence[TensorPair]) -> Mapping[str, Any]:
    """Return how near the models are as a whole, on the inputs on which they are farthest apart."""
    found = [measure(pair.expected, pair.actual) for pair in pairs]
    return {name: min(one[name] for one in found) for name in ("cosine", "snr")}
