"""The search for bindings that the original accepts, by running it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, islice
from typing import TYPE_CHECKING

from surgery.base.operators import traits
from surgery.base.operators.use import Index, TypedIndex
from surgery.verification.inputs.alike import guesses
from surgery.verification.inputs.comparisons import compares
from surgery.verification.inputs.cover import Cover, CoverBudget
from surgery.verification.inputs.dims import NARROW, UNKNOWN, Dims, Implied
from surgery.verification.inputs.feed_plan import PROFILES, Binding, DimKey, FeedPlan
from surgery.verification.inputs.input_sets import CHEAP, SECOND, TRIVIAL

if TYPE_CHECKING:
    import onnx

Probe = Callable[[Binding], "str | None"]
"""Runs the original with a binding; returns None if that succeeds, else the runtime's message."""

Implications = Callable[[], Implied]
"""Finds what the graph implies for its dims. This takes a while, so it is called only after a rejection."""

_PROBE, _PROBE_NODE = 0.02, 3e-4
"""Seconds to try a point, and additional seconds per node, because shapes are inferred again."""

PROBES = 240
"""Maximum number of runs of the original; a count, because results must not depend on how busy the machine is."""

SECONDS = 60.0
"""Estimated seconds after which the search ends with the points found so far."""

PATIENCE = 900.0
"""Wall-clock seconds after which it ends as well, in case the estimate is far off."""


@dataclass
class Found:
    """Bindings that the original accepts, and those that it rejected, with the reason.

    `demands` says in words what the graph requires of several dims together. `meets` holds dims that are broadcast to
    others, with these, and `compared` points on either side of the constants that extents are compared with. `sizes`
    has the bytes that a run output, by its dims.
    """

    accepted: list[Binding] = field(default_factory=list)
    refused: list[tuple[Binding, str]] = field(default_factory=list)
    demands: list[str] = field(default_factory=list)
    meets: list[tuple[str, list[str]]] = field(default_factory=list)
    compared: list[dict[str, int]] = field(default_factory=list)
    sizes: dict[DimKey, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes that a run outputs at the first two points, the larger of both."""
        return max((self.sizes.get(binding.dim_key, 0) for binding in self.accepted[:2]), default=0)


_MOST_ELEMENTS = 1 << 27
"""Maximum number of elements of all inputs together, at sizes that the user did not ask for: 1 GiB in float64."""

_LEAST_POSITIONS = 5
"""The smallest number of positions of a window along an axis that is enough."""

_Shapes = Mapping[str, Sequence[int]]

_DEARER = 4
"""How much longer a run takes than the first at points that are tried last."""

_OTHER_DATA, _POINTS_OF_OTHER_DATA = 6, 3
"""Number of other sets of data that are tried if a model rejects everything, and number of points for each."""

Cost = Callable[[Binding], float]
"""Estimates the seconds of one run."""

Shapes = Callable[[Binding], Mapping[str, Sequence[int]]]
"""Infers the shapes of all values for a binding."""


def search(
    plan: FeedPlan,
    seed: int,
    probe: Probe,
    implied: Implications,
    cost: Cost,
    shapes: Shapes,
    found: Found,
    *,
    covers: bool = True,
    once: bool = False,
) -> None:
    """Find at least two points for the free dims, distinct in each dim where the model allows it.

    Then, with `covers`, try each dim at the most informative sizes. With `once`, one point is enough. Adds
    to `found` as it goes, so that nothing is lost if `probe` raises.
    """
    _SizeSearch(plan, seed, probe, implied, cost, shapes, found).run(covers, once)


_BUDGETS = ((64, 14, 1.5), (24, 5, 1.5), (4, 1, 60.0))
"""For a model whose run is trivial, cheap or expensive: the number of points tried to cover sizes, the number of them
that are kept, and the estimated seconds that trying may take."""


class _SizeSearch:
    def __init__(
        self, plan: FeedPlan, seed: int, probe: Probe, implied: Implications, cost: Cost, shapes: Shapes, found: Found
    ) -> None:
        self.free = self.dims = plan.dims
        self.seed = seed
        self.probe = probe
        self.implied = implied
        self.plan = plan
        self.cost = cost
        self.shapes = shapes
        self.tied: Dims | None = None
        self.known = UNKNOWN
        self.deadline = time.monotonic() + PATIENCE
        self.probes = 0
        self.seconds = 0.0
        self.refused: set[Hashable] = set()
        self.reasons: dict[Hashable, tuple[str, bool]] = {}
        self.found = found
        self.profile = PROFILES[0]

    def run(self, covers: bool, once: bool) -> None:
        self.free = self.dims = self._narrowed()
        base = self._first()
        if base is None:
            return
        self.found.accepted.append(base)
        if once:
            return
        if self.dims.names:
            self._vary(base.dims)
            self._vary_from_one(base.dims)
            self._vary_with_simpler_integers(base.dims)
            if self.cost(base) <= TRIVIAL:
                fixed = {*self.dims.spatial, *self.dims.together}
                ones = {name: 1 for name in self.dims.names[1:] if name not in fixed}
                self._add({**base.dims, **ones}, TRIVIAL)
        if self.free.names and covers:
            self._cover(base)
        if self.dims.names:
            self._add(self.dims.long(), CHEAP)

    def _cover(self, base: Binding) -> None:
        """Try each free dim at 1, at 2, at an odd size and at sizes that constants suggest."""
        cost = self.cost(base)
        budget = CoverBudget(*_BUDGETS[(cost > TRIVIAL) + (cost > CHEAP)])
        most = max(cost, CHEAP)

        def probe(point: Mapping[str, int]) -> bool:
            binding = replace(Binding(seed=self.seed, profile=self.profile), dims=dict(point))
            if self._late() or self.cost(binding) > most or self._is_refused(binding):
                return False
            if not budget.spend(self.plan.opening + self.cost(binding)):
                return False
            message = self._run(binding)
            if message is None:
                self.found.accepted.append(binding)
                budget.room -= 1
            else:
                self._refuse(binding, message)
            return message is None

        guessed = self.dims is not self.free
        solves = bool(self.found.refused) or self._compares()
        tied = self.dims if guessed else self._implied() if solves else self.free
        points = [dict(binding.dims) for binding in self.found.accepted]
        self.found.meets = [(name, others) for name, *others in self.known["meets"]]
        self.found.compared = self.known["compared"]
        Cover(self.free, tied, self.known, points, probe).run(pairs=cost <= TRIVIAL)

    def _compares(self) -> bool:
        """Return whether the graph compares extents with constants; looking for these takes less than solving them."""
        points = self.found.accepted[:2]
        return len(points) > 1 and compares(self.plan.index, *map(self.shapes, points))

    def _narrowed(self) -> Dims:
        """Return the dims with smaller images if the usual ones take long, and the smaller ones show as much."""
        dims = self.free
        narrow = replace(dims, images=NARROW)
        if not dims.spatial or self.cost(self._binding(dims.point(0))) <= TRIVIAL:
            return dims
        shapes = [self.shapes(self._binding(narrow.point(which))) for which in (0, 1)]
        leaves = shapes[0] and _leaves_positions(self.plan.index, *shapes)
        return narrow if leaves and self._accepts(narrow.point(0)) else dims

    def _first(self) -> Binding | None:
        """Try points with the integers that the graph suggests, then with simpler ones, then with other data.

        The number of distinct or of nonzero elements may determine shapes.
        """
        for profile in self.plan.profiles:
            self.profile = profile
            for point in self._points():
                if self._accepts(point):
                    return self._binding(point)
                if self._late():
                    return None
        self.profile = PROFILES[0]
        for seed in range(self.seed + 1, self.seed + 1 + _OTHER_DATA):
            self.seed = seed
            for point in islice(self._points(), _POINTS_OF_OTHER_DATA):
                if self._late():
                    return None
                if self._accepts(point):
                    return self._binding(point)
        return None

    def _points(self) -> Iterator[dict[str, int]]:
        """Yield points to try; last come those at which a run takes much longer than at the first, ordered by cost.

        If one is accepted, the dims that it is made for stay in use.
        """
        most = 0.0
        dear: list[tuple[float, int, Dims, dict[str, int]]] = []
        for point in self._in_turn():
            cost = self.cost(self._binding(point))
            most = most or max(CHEAP, _DEARER * cost)
            if cost > most:
                dear.append((cost, len(dear), self.dims, point))
            else:
                yield point
        for _, _, dims, point in sorted(dear, key=lambda item: item[:2]):
            self.dims = dims
            yield point
        self.dims = self.free

    def _in_turn(self) -> Iterator[dict[str, int]]:
        """Yield points; after the first, which is rejected, those that respect what the graph implies come first."""
        self.dims = self.free
        first, *others = self.free.ladder()
        yield first
        tied = self._implied()
        yield from self._of(tied, tied.starts())
        for guess in guesses(tied, self.plan.ports):
            yield from self._of(guess, guess.starts())
        if tied is not self.free:
            yield from self._of(tied, tied.ladder())
        yield from others

    def _of(self, dims: Dims, points: Iterable[dict[str, int]]) -> Iterator[dict[str, int]]:
        """Yield points of `dims`, with the dims that follow from others; if one is accepted, `dims` stay in use."""
        self.dims = dims
        for point in points:
            yield dims.complete(point)
        self.dims = self.free

    def _implied(self) -> Dims:
        if self.tied is None:
            self.known = self.implied() if self.free.names else UNKNOWN
            self.found.demands += [demand for group in self.known["joint"] for demand in group["demands"]]
            self.tied = self.free.tied(self.known["ties"]) if self.known["ties"] else self.free
            if self.known["admits"] or self.known["joint"]:
                self.tied = replace(self.tied, admits=self.known["admits"]).joined(self.known["joint"])
        return self.tied

    def _vary(self, base: Mapping[str, int]) -> None:
        """Move every dim away from the base: all at once, else one by one, else tied ones together."""
        if self._move_all(base):
            return
        tied = self._implied()
        if self.dims is self.free and tied is not self.free and tied.complete(base) == dict(base):
            self.dims = tied
            if not tied.names or self._move_all(base):
                return
        moved: dict[str, int] = {}
        stuck: list[str] = []
        for name in self.dims.names:
            other = self._other(name, base)
            if other is None:
                stuck.append(name)
            else:
                moved[name] = other
        if len(moved) == 1:
            self.found.accepted.append(self._binding({**base, **moved}))  # it has just been run
        elif moved and not self._accept({**base, **moved}):
            for name, extent in list(moved.items())[:3]:
                self._accept({**base, name: extent})
        self._vary_tied(base, stuck)

    def _move_all(self, base: Mapping[str, int]) -> bool:
        first, second, *others = self.dims.starts()
        points = [self.dims.complete(point) for point in (second, first, *others)]
        unlike = (point for point in points if all(point[name] != base[name] for name in self.dims.names))
        target = next((point for point in unlike if not self._is_refused(self._binding(point))), None)
        return target is not None and self._accept(target)

    def _other(self, name: str, base: Mapping[str, int]) -> int | None:
        for extent in self.dims.alternatives(name, base[name]):
            if not self._late() and self._accepts({**base, name: extent}):
                return extent
        return None

    def _vary_tied(self, base: Mapping[str, int], stuck: list[str]) -> None:
        """Move dims that only move together, by the same amount: equal ones, and sums such as past + present."""
        groups = [list(pair) for pair in combinations(stuck, 2)][:20]
        if len(stuck) > 2:
            groups.append(stuck)
        for group in groups:
            for step in (1, 2, 4, 32):
                point = {**base, **{name: base[name] + step for name in group}}
                if not self._late() and not self._is_wished(group) and self._accept(point):
                    return

    def _vary_from_one(self, base: Mapping[str, int]) -> None:
        """Move dims that only move if another one is 1, like a batch of sequences that get one more position each."""
        points = [binding.dims for binding in self.found.accepted]
        loose = [name for name in self.dims.names if name not in self.dims.together]
        stuck = [name for name in loose if len({point[name] for point in points}) == 1]
        for name in stuck[:3]:
            extent = next(iter(self.dims.alternatives(name, base[name])), None)
            for other in loose:
                wished = extent is None or other == name or base[other] == 1 or self._is_wished([name, other])
                if not wished and not self._late() and self._accept({**base, name: extent or 1, other: 1}):
                    break

    def _vary_with_simpler_integers(self, base: Mapping[str, int]) -> None:
        """Move every dim with simpler integers, if the integers that the graph suggests allow no other size.

        Counts that must add up to a dim do so at 1, whatever they are drawn from, and if each of them is 1.
        """
        usual, others = self.profile, self.plan.profiles
        for profile in others[others.index(usual) + 1 :] if len(self.found.accepted) == 1 else ():
            if self._late():
                break
            self.profile = profile
            if self._move_all(base):
                return
        self.profile = usual

    def _add(self, point: Mapping[str, int], most: float) -> None:
        """Add an extra point, if it is accepted and a run costs no more than `most` seconds.

        In one such point, every dim but the first, most often the batch, is 1; in another, they are large.
        """
        binding = self._binding(point)
        there = any(binding.dims == other.dims for other in self.found.accepted)
        if there or self._late() or self._is_wished([*self.dims.names]) or self.cost(binding) > most:
            return
        if not self._is_refused(binding) and self._run(binding) is None:
            self.found.accepted.append(binding)

    def _is_wished(self, names: list[str]) -> bool:
        return any(name in self.dims.wishes for name in names)

    def _accept(self, point: Mapping[str, int]) -> bool:
        if not self._accepts(point):
            return False
        self.found.accepted.append(self._binding(point))
        return True

    def _accepts(self, point: Mapping[str, int]) -> bool:
        binding = self._binding(point)
        if self._is_refused(binding):
            return False
        expensive = self.found.accepted and self.cost(binding) > CHEAP
        # Use the data that an expensive model gets at its second point, so that it is not run there again.
        if expensive and self._run(replace(binding, character=SECOND)) is None:
            return True
        message = self._run(binding)
        if message is not None:
            self._refuse(binding, message)
        return message is None

    def _run(self, binding: Binding) -> str | None:
        """Run the original with a binding, and charge the run to the budget."""
        self.probes += 1
        if self._is_too_large(binding.dims):
            return f"its inputs have more than {_MOST_ELEMENTS:,} elements; give sizes with --dims"
        nodes = self._reflecting
        message = reflected_too_far(self.plan.index, nodes, self.shapes(binding)) if nodes else None
        if message is not None:
            return message
        message = self.probe(binding)
        self.seconds += _PROBE + _PROBE_NODE * self.plan.nodes + self.cost(binding)
        return message

    @cached_property
    def _reflecting(self) -> list[onnx.NodeProto]:
        return reflecting(self.plan.index)

    def _is_too_large(self, dims: Mapping[str, int]) -> bool:
        """Return whether the inputs of dims that nobody asked for take too much memory."""
        if all(name in self.dims.wishes for name in dims):
            return False
        return sum(map(math.prod, self.plan.shapes(dims).values())) > _MOST_ELEMENTS

    def _refuse(self, binding: Binding, message: str) -> None:
        self.found.refused.append((binding, message))
        self.refused.add(_key(binding))
        point = tuple(sorted(binding.dims.items()))
        self.reasons[point] = message, self.reasons.get(point, ("", False))[0] == message

    def _is_refused(self, binding: Binding) -> bool:
        """Return whether the original has rejected the same inputs before.

        Where it rejects two kinds of data for the same reason, other data is not tried, unless a run is trivial.
        """
        _, is_repeated = self.reasons.get(tuple(sorted(binding.dims.items())), ("", False))
        return _key(binding) in self.refused or (is_repeated and self.cost(binding) > TRIVIAL)

    def _binding(self, point: Mapping[str, int]) -> Binding:
        return replace(Binding(seed=self.seed, profile=self.profile), dims=self.dims.complete(point))

    def _late(self) -> bool:
        """Return whether the budget is used up."""
        return self.probes >= PROBES or self.seconds > SECONDS or time.monotonic() > self.deadline


def _key(binding: Binding) -> Hashable:
    return binding.profile, binding.seed, tuple(sorted(binding.dims.items()))


def _leaves_positions(index: Index, first: _Shapes, second: _Shapes) -> bool:
    """Return whether in two runs each window has enough positions along every axis that differs between the runs.

    With few positions on an image, padding is all that most taps of a kernel see.
    """
    for node, _ in index.nodes:
        if traits.slides(node.op_type) and not node.op_type.startswith("Global"):
            axes = _moved(node.input[0], first, second)
            results = [shapes.get(node.output[0], ()) for shapes in (first, second)]
            if not axes or any(
                len(shape) <= axes[-1] or min(shape[axis] for axis in axes) < _LEAST_POSITIONS for shape in results
            ):
                return False
    return True


def _moved(name: str, first: _Shapes, second: _Shapes) -> list[int]:
    """Return the axes of an image, without batch and channels, that differ between two runs."""
    one, other = first.get(name, ()), second.get(name, ())
    return [axis for axis in range(2, len(one)) if len(one) == len(other) and one[axis] != other[axis]]


def reflecting(index: Index) -> list[onnx.NodeProto]:
    """Return the nodes of a model that reflect their input."""
    pads = [node for node, _ in index.nodes if node.op_type == "Pad" and not node.domain]
    return [node for node in pads if any(one.name == "mode" and one.s == b"reflect" for one in node.attribute)]


def reflected_too_far(index: Index, nodes: Sequence[onnx.NodeProto], shapes: _Shapes) -> str | None:
    """Return which node reflects an axis that is too short, given the shapes of one run; None if none does.

    ONNX Runtime up to 1.24 runs it, and pads with what is beyond the tensor.
    """
    view = TypedIndex(index, {name: tuple(shape) for name, shape in shapes.items()})
    for node in nodes:
        data = view.shape(node.input[0])
        pads, axes = _pads(node, view)
        if not data or len(pads) != 2 * len(axes or data):
            continue
        for place, axis in enumerate(axes or range(len(data))):
            most = max(pads[place], pads[place + len(pads) // 2])
            if most >= max(1, data[axis]):
                return f"Pad '{node.name or node.output[0]}': an axis of {data[axis]} is reflected by {most}"
    return None


def _pads(node: onnx.NodeProto, view: TypedIndex) -> tuple[list[int], list[int]]:
    """Return the pads of a node and the axes that they are for, if both are constant; no axes means all."""
    given = [view.constant(node.input[place]) if place < len(node.input) else None for place in (1, 3)]
    if len(node.input) > 3 and node.input[3] and given[1] is None:
        return [], []
    pads, axes = ([] if one is None else [int(item) for item in one.reshape(-1)] for one in given)
    return pads or [item for one in node.attribute if one.name == "pads" for item in one.ints], axes
