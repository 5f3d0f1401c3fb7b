"""Choice of cuts: at given tensors, or such that the parts are balanced and few tensors cross."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from surgery.base.errors import UsageError
from surgery.features.splitting.cutting import Cut, SourceModel
from surgery.model.storage import payload_bytes
from surgery.model.wire.globs import Globs, did_you_mean

Balance = Literal["weights", "nodes"]
"""What parts have about the same amount of."""

_SLACK = 0.3
"""Maximum distance of a cut from the balanced place, as a fraction of a part, to find a cheaper crossing."""

_UNKNOWN = 64
"""The size assumed for an unknown dim when tensors are compared by size."""


def named_cuts(source: SourceModel, at: Sequence[str | Sequence[str]]) -> list[Cut]:
    """Return the cuts that a user names: a name or glob is a cut at each matching tensor, a list is a single cut."""
    known = [name for name in source.made(range(len(source.flow.nodes))) if name not in source.fixed]
    cuts: list[Cut] = []
    for item in at:
        if isinstance(item, str):
            cuts += [[name] for name in _fitting(source, item, known)]
        else:
            cuts.append([name for text in item for name in _fitting(source, text, known)])
    return cuts


def _fitting(source: SourceModel, text: str, known: Sequence[str]) -> list[str]:
    """List the tensors that match a name or glob; UsageError with a suggestion if there are none."""
    globs = Globs((text,))
    found = [text] if text in known else [name for name in known if globs.fit(name)]
    if found:
        return found
    if text in source.flow:
        kind = "a constant" if text in source.fixed else "an input of the model"
        raise UsageError(
            f"'{text}' is {kind}: no node is computed before it", todo="name a tensor that a node produces"
        )
    raise UsageError(
        f"no node of the main graph produces a tensor '{text}'",
        todo=did_you_mean(text, known) or "see 'surgery inspect'",
    )


def balanced_cuts(
    source: SourceModel, parts: int, balance: Balance, shapes: Mapping[str, Sequence[int | None]]
) -> list[Cut]:
    """Find cuts into parts of similar size, each at a place where the fewest and smallest tensors cross.

    The size is that of the weights, or the number of nodes if there are none. `shapes` are the known dims.
    """
    if parts < 2:
        raise UsageError(f"cannot split into {parts} parts", todo="use 2 or more")
    crossings = _crossings(source)
    sizes = _sizes(source, balance)
    total, places = sizes[-1], [place for place, names in enumerate(crossings) if names]
    if len(places) < parts - 1:
        raise UsageError(f"the model cannot be cut into {parts} parts: there are only {len(places)} places to cut at")
    cuts: list[Cut] = []
    slack = _SLACK * total / parts
    for part in range(1, parts):
        target, rest = total * part / parts, parts - 1 - part
        choice = places[: len(places) - rest] if rest else places
        near = [place for place in choice if abs(sizes[place] - target) <= slack]
        near = near or [min(choice, key=lambda place: abs(sizes[place] - target))]
        best = min(near, key=lambda p: (*_burden(crossings[p], shapes), abs(sizes[p] - target), -p))
        cuts.append(crossings[best])
        places = [place for place in places if place > best]
    return cuts


def _crossings(source: SourceModel) -> list[tuple[str, ...]]:
    """List, for the place after each node, the tensors that are produced before it and read after it."""
    flow = source.flow
    needed = flow.above(flow.outputs) - source.constants
    last = {name: max((n for n in numbers if n in needed), default=-1) for name, numbers in flow.readers.items()}
    alive: dict[str, None] = {}
    found: list[tuple[str, ...]] = []
    for number in range(len(flow.nodes)):
        if number in needed:
            alive.update((name, None) for name in flow.makes(number) if last.get(name, -1) > number)
            for name in flow.reads[number]:
                if last.get(name) == number:
                    alive.pop(name, None)
        found.append(tuple(alive) if number in needed else ())
    return found


def _sizes(source: SourceModel, balance: Balance) -> list[float]:
    """Return the cumulative size after each node: bytes of weights read for the first time, or number of nodes."""
    flow, graph = source.flow, source.model.graph
    weight = {tensor.name: payload_bytes(tensor) for tensor in graph.initializer}
    weight |= {tensor.values.name: payload_bytes(tensor.values) for tensor in graph.sparse_initializer}
    if balance == "nodes" or not any(weight.values()):
        return [float(number + 1) for number in range(len(flow.nodes))]
    sizes, total = [], 0.0
    for reads in flow.reads:
        total += sum(weight.pop(name, 0) for name in reads)
        sizes.append(total)
    return sizes


def _burden(names: Sequence[str], shapes: Mapping[str, Sequence[int | None]]) -> tuple[int, int]:
    """Return the number of crossing tensors and their total number of elements."""
    return len(names), sum(
        math.prod(_UNKNOWN if dim is None else dim for dim in shapes.get(name, (_UNKNOWN,))) for name in names
    )
