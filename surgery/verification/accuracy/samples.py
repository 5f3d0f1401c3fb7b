"""Representative inputs: given ones, or else drawn ones.

Inputs for calibration and inputs for measuring accuracy are drawn with different seeds, to reveal a range that fits
only the former.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from surgery.base.errors import UsageError
from surgery.base.operators.dtypes import is_float
from surgery.base.operators.scenes import LEAST_EXTENT, SCENES
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.given import Given, GivenBinding
from surgery.verification.inputs.input_sets import CHEAP, TRIVIAL
from surgery.verification.inputs.spec import AccuracySpec, InputsSpec, SampleSpec

CALIBRATION_SEED, EVALUATION_SEED = 10_000, 20_000
"""The first seed of either kind, relative to the seed of the recipe; verification uses the first few seeds."""

_PLAIN = ("normal", "image")
"""Kinds of data without places that resemble real inputs: centered, and between 0 and 1."""


_SETS = ((TRIVIAL, 64), (CHEAP, 32), (math.inf, 12))
"""Maximum estimated seconds of one run, and the number of sets that are then drawn."""


_LARGER, _LARGER_IMAGE, _LARGER_VOLUME = 24, 96, 48
"""The minimum extent of a dim at the largest size at which inputs are drawn, except for extents of 1 and batches, and
the minimum height or width of an image, and of a volume or video. More rows of a batch would show the same again, in a
multiple of the time."""

_LONG_ROW = 1024
"""The first dim of inputs is a batch, whatever its name, if its rows have so many elements: images, volumes, caches of
attention, windows of a signal."""


@dataclass(frozen=True)
class Samples:
    """Sets of inputs under the names of the original, and the origin of each. Synthetic ones are drawn."""

    feeds: Sequence[Mapping[str, Any]]
    bindings: Sequence[Binding]
    synthetic: bool

    def kind(self, number: int) -> str:
        """Return the kind of data of a set; given sets are of one kind."""
        binding = self.bindings[number]
        return "given" if isinstance(binding, GivenBinding) else binding.character

    def only(self, numbers: Collection[int]) -> Samples:
        """Return the sets with these numbers."""
        if len(numbers) == len(self.feeds):
            return self
        kept = ([self.feeds[number] for number in numbers], [self.bindings[number] for number in numbers])
        return Samples(*kept, self.synthetic)

    @property
    def labelled(self) -> list[dict[str, Any]]:
        """All arrays of each set: inputs, the outputs that came with them, and others such as labels."""
        found = []
        for feed, binding in zip(self.feeds, self.bindings):
            more = {**binding.others, **binding.expected} if isinstance(binding, GivenBinding) else {}
            found.append({**more, **feed})
        return found


def samples(reference: ReferenceRun, spec: SampleSpec, first_seed: int) -> Samples:
    """Return the sets of inputs for a model that runs; raise `UsageError` if there are none."""
    if reference.problem is not None:
        raise UsageError(f"there are no inputs to run the model on: {reference.problem}", todo="give some under data")
    given = _given(reference, spec)
    if given:
        return Samples([one.feed for one in given], given, synthetic=False)
    drawn = _drawn(reference, spec, reference.seed + first_seed)
    return Samples([reference.inputs.feed(one) for one in drawn], drawn, synthetic=reference.inputs.draws_all)


def measured_on(spec: AccuracySpec, inputs: InputsSpec) -> AccuracySpec:
    """Return the settings with the calibration data as evaluation data, if nothing else shows real inputs."""
    calibration = inputs.calibration.data
    if not calibration or spec.samples.data or inputs.generator or not all(one.found for one in inputs.data):
        return spec
    return replace(spec, samples=replace(spec.samples, data=calibration))


def _given(reference: ReferenceRun, spec: SampleSpec) -> list[GivenBinding]:
    """Return the sets given for this purpose, else those given for verification."""
    if spec.data:
        return Given(reference.skeleton, InputsSpec(data=spec.data), labelled=True).sets
    return [run.binding for run in reference.runs if isinstance(run.binding, GivenBinding) and not run.binding.found]


def _drawn(reference: ReferenceRun, spec: SampleSpec, seed: int) -> list[Binding]:
    """Choose sets at the first two sizes of the dims that the model accepts."""
    points = [run.binding for run in reference.runs if not isinstance(run.binding, GivenBinding)]
    bases = list({one.dim_key: one for one in points}.values())[:2]
    if not bases:
        found = [run.binding for run in reference.runs]
        raise UsageError("no inputs can be drawn for this model", todo=f"give some under data; it ran on {len(found)}")
    bases += _larger(reference, bases[0])
    count = len(bases)
    sets = spec.sets if spec.sets is not None else _worthwhile(max(reference.inputs.cost(one) for one in bases))
    kinds = [_kinds(reference.inputs.feed(base).values()) for base in bases]
    drawn = [_nth(bases[n % count], kinds[n % count], n // count + 2 * (n % count), seed + n) for n in range(sets)]
    return reference.inputs.numbered(drawn, seed - reference.seed)


def _nth(base: Binding, kinds: Sequence[str], number: int, seed: int) -> Binding:
    """Return a set at a size, with the kinds of data in turn."""
    return replace(base, character=kinds[number % len(kinds)], seed=seed)


def _kinds(arrays: Iterable[Any]) -> tuple[str, ...]:
    """Return the kinds of data for inputs of these shapes: scenes are for images, signals and sequences.

    In a few places, or in a vector of features, there is no region to be of one value.
    """
    found = [one for one in arrays if getattr(one, "ndim", 0) > 2 and is_float(one.dtype)]
    return (*_PLAIN, *SCENES) if any(max(one.shape[1:]) > LEAST_EXTENT for one in found) else _PLAIN


def _larger(reference: ReferenceRun, base: Binding) -> list[Binding]:
    """Return a point of realistic size, if the original accepts it: verification runs at sizes of 1 to 5."""
    plan, spatial = reference.inputs.plan, reference.inputs.spatial
    image = _LARGER_IMAGE if len(spatial) <= 2 else _LARGER_VOLUME
    dims = {
        name: _larger_extent(name, extent, image if name in spatial else _LARGER) for name, extent in base.dims.items()
    }
    batches = {str(port.dims[0]) for port in plan.ports if port.dims and _row(port.dims, dims) >= _LONG_ROW}
    dims |= {name: extent for name, extent in base.dims.items() if name in batches}
    binding = replace(base, dims=dims)
    return [binding] if dims != base.dims and reference.inputs.draws_all and reference.accepts(binding) else []


def _row(dims: Sequence[int | str], extents: Mapping[str, int]) -> int:
    """Return the number of elements of a row of an input; a dim that other dims decide counts as 1."""
    return math.prod(extent if isinstance(extent, int) else extents.get(extent, 1) for extent in dims[1:])


def _larger_extent(name: str, extent: int, least: int) -> int:
    return extent if extent == 1 or "batch" in name.lower() else max(extent, least)


def _worthwhile(cost: float) -> int:
    return next(sets for limit, sets in _SETS if cost <= limit)
