"""Guesses about dims that the graph does not tie: dims of similar inputs, and dims that bound others.

Exporters name each dim of each key and value cache separately, although all must be equal, and slice a mask to the
total length of past and present: then it must be at least that long. Shape inference finds neither relation. The
guesses are tried, and hold if the model accepts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from surgery.verification.inputs.dims import Dims, Linear

if TYPE_CHECKING:
    from surgery.verification.inputs.input_port import InputPort

_CACHE = 3
"""Minimum number of dims of a key or value cache."""

_MOST = 6
"""Maximum number of dims that are tried as sums of the others."""


def guesses(dims: Dims, ports: Sequence[InputPort]) -> Iterator[Dims]:
    """Yield dims in which more follow from others: those of similar inputs, then also one as the sum of the others."""
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
    """Tie the batches of all inputs, and dims at the same position of caches that differ only in names.

    Inputs with two dims are tokens and masks, each of which may have its own length.
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
            # States of recurrent layers have the dims layers, batch, units.
            is_state = axis == 1 and len(port.dims) == _CACHE and None not in (fixed[0], fixed[2])
            place: object = "batch" if axis == 0 or is_state else (str(port.dtype), fixed, axis)
            leader = first.setdefault(place, extent)
            if leader != extent and extent not in first.values():
                found[extent] = {leader: 1}
    return found


def _closed(dims: Dims, ties: Mapping[str, Linear]) -> Dims:
    """Add ties to the existing ones, none of them in terms of a dim that itself follows from others."""
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
