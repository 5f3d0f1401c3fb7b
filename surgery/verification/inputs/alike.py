"""Guesses about dims that the graph does not tie: those of inputs that are alike, and those that bound others.

Exporters name each dim of each cache of keys and values by itself, though all must be equal, and slice a mask to the
length of past and present together: then it must be at least as long. Neither is an equation that shape inference
finds. What is guessed here is tried, and holds when the model accepts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from surgery.verification.inputs.dims import Dims, Linear

if TYPE_CHECKING:
    from surgery.verification.inputs.ports import InputPort

_CACHE = 3
"""So many dims at least has a cache of keys or values."""

_MOST = 6
"""So many dims are taken for sums of the others in turn."""


def guesses(dims: Dims, ports: Sequence[InputPort]) -> Iterator[Dims]:
    """Yield dims in which more follow from others: those of inputs that are alike, then one as a sum of the others."""
    batch = {str(port.dims[0]) for port in ports if port.dims}
    same = _closed(dims, _equal(dims, ports))
    if same is not dims:
        yield same
    lengths = [name for name in same.names if name not in batch]
    for name in lengths[:_MOST]:
        others = {other: 1 for other in lengths if other != name}
        if others and name not in dims.wishes:
            yield _closed(same, {name: others})


def _equal(dims: Dims, ports: Sequence[InputPort]) -> dict[str, Linear]:
    """Let the batches of all inputs be equal, and dims in the same place of caches that differ in names only.

    Inputs of two dims are tokens and masks, of which each may have a length of its own.
    """
    first: dict[object, str] = {}
    found: dict[str, Linear] = {}
    for port in ports:
        fixed = tuple(extent if isinstance(extent, int) else None for extent in port.dims)
        for axis, extent in enumerate(port.dims):
            if extent not in dims.names or not isinstance(extent, str) or extent in found:
                continue
            if axis and len(port.dims) < _CACHE:
                continue
            # States of recurrent layers are of layers, batch, units.
            is_state = axis == 1 and len(port.dims) == _CACHE and None not in (fixed[0], fixed[2])
            place: object = "batch" if axis == 0 or is_state else (str(port.dtype), fixed, axis)
            leader = first.setdefault(place, extent)
            if leader != extent and extent not in first.values():
                found[extent] = {leader: 1}
    return found


def _closed(dims: Dims, ties: Mapping[str, Linear]) -> Dims:
    """Add ties to those that there are, none of them in terms of a dim that follows itself."""
    new = {name: form for name, form in ties.items() if name not in dims.wishes}
    if not new:
        return dims
    old: dict[str, Linear] = {}
    for name, form in dims.ties.items():
        total: Linear = {}
        for other, times in form.items():
            for part, count in new.get(other, {other: 1}).items():
                total[part] = total.get(part, 0) + times * count
        old[name] = total
    return replace(dims, names=tuple(name for name in dims.names if name not in new), ties={**old, **new})
