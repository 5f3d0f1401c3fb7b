"""Known facts about the values at the boundary of a region: types, shapes, and integers that the original computes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.deciding import DECIDING
from surgery.base.operators.dtypes import dtype_of, is_float
from surgery.model.proto.extract import cut
from surgery.model.runtime.custom_operators import custom_nodes
from surgery.model.runtime.engine import Engine
from surgery.model.runtime.reference_runs import external_bytes
from surgery.model.shapes.declarations import Declared, declare, empty
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.cover import stands_alone
from surgery.verification.inputs.feed_plan import Binding, FeedPlan
from surgery.verification.inputs.input_sets import RECORDED
from surgery.verification.inputs.search import Found
from surgery.verification.inputs.spec import InputsSpec
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.time_budget import TimeBudget
from surgery.verification.regions.value_shapes import follow
from surgery.verification.running.stand_ins import with_stand_ins

if TYPE_CHECKING:
    import onnx

    from surgery.verification.comparing.reference_run import ReferenceRun

MOST_POINTS = 4
"""How many sizes of the dynamic dims a region is tried with, how many more with the largest extents, how many more
in which a dim is 1 where it is broadcast to another one, and how many more on either side of constants."""

_INFERRED, _INFERRED_BY_ONNX = 4e-4, 1e-4
"""Seconds per node for shape inference by surgery, and by onnx."""

_CHEAP = 0.05
"""Seconds of runs of the whole model up to which no closer estimate is made."""

_FEW_WEIGHTS = 1 << 24
"""Bytes of weights up to which creating a session takes negligible time."""

_DECIDING = 8
"""Maximum number of runs at each point in which guards decide otherwise, and whose integers are used too."""


class UnknownError(Exception):
    """Too little is known about a value at the boundary to generate it."""


@dataclass(frozen=True)
class Form:
    """The element type and shape of a tensor."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, value: Any) -> Form | None:
        """Return the form of an array; None for anything else."""
        return cls(value.dtype, value.shape) if isinstance(value, np.ndarray) else None

    @property
    def is_drawn(self) -> bool:
        """Whether arbitrary elements are legal; integers are excluded, because they may be indices or shapes."""
        return is_float(self.dtype) or self.dtype.kind in "cO"


TAKEN = "taken"
"""The profile of sets whose integers are those of a certain run of the original."""


@dataclass
class Point:
    """One choice of sizes, some runs of the original with it, and the known facts about its values."""

    dims: Mapping[str, int]
    runs: list[Run]
    forms: dict[str, Form] = field(default_factory=dict)
    recorded: list[dict[str, Any]] = field(default_factory=list)
    inferred: dict[int, Declared] = field(default_factory=dict)
    """Results of shape inference, by model."""

    @property
    def ordinary(self) -> int:
        """The number of runs with ordinary data, which come first; in the others, guards decide otherwise."""
        return sum(run.binding.character not in DECIDING for run in self.runs) or len(self.runs)

    def taken_from(self, binding: Binding, number: int) -> int:
        """Return the index of the run whose integers belong to a set of values, the `number`th of a region."""
        for index, run in enumerate(self.runs[self.ordinary :], self.ordinary):
            if binding == self.like(run.binding):
                return index
        return number % self.ordinary

    def like(self, binding: Binding) -> Binding:
        """Return the binding of these sizes with the data of another one, whose integers are taken as they are."""
        return replace(binding, dims=dict(self.dims), profile=TAKEN)

    def lacks(self, names: Collection[str]) -> bool:
        """Take missing forms of values from the inference results; return whether any form is still unknown."""
        for name in names:
            form = None if name in self.forms else self._inferred(name)
            if form is not None:
                self.forms[name] = form
        return any(name not in self.forms for name in names)

    def _inferred(self, name: str) -> Form | None:
        for found in self.inferred.values():
            number, shape = found.get(name, (0, []))
            dtype = dtype_of(number)
            # At sizes that the original may reject, a window can be larger than its input.
            if dtype is not None and all(extent >= 0 for extent in shape):
                return Form(dtype, tuple(shape))
        return None

    def shapes(self) -> dict[str, list[int]]:
        """Return all known shapes of values."""
        inferred = {name: shape for found in self.inferred.values() for name, (_, shape) in found.items()}
        return inferred | {name: list(form.shape) for name, form in self.forms.items()}

    def shapes_fed(self) -> dict[str, list[int]]:
        """Return the shapes of the original's inputs."""
        feed = self.runs[0].feed
        return {name: list(value.shape) for name, value in feed.items() if isinstance(value, np.ndarray)}

    @property
    def binding(self) -> Binding:
        """The binding of these sizes, with normal and legal data."""
        return replace(self.runs[0].binding, dims=dict(self.dims), character="normal", profile="legal")


class _Producers:
    """A model of the nodes that produce some values, and the estimated cost of its session and of its runs."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self._costs: dict[int, tuple[float, float]] = {}

    def cost_at(self, point: Point) -> tuple[float, float]:
        """Return the seconds to create a session, and those of a run with the sizes of a point."""
        if id(point) not in self._costs:
            plan = FeedPlan(self.model, InputsSpec())
            self._costs[id(point)] = plan.opening, plan.cost(point.shapes(), external_bytes(self.model))
        return self._costs[id(point)]


class Values:
    """The values inside the models of a chain, under their names in the original."""

    def __init__(self, original: ReferenceRun, engine: Engine) -> None:
        self._original = original
        self._engine = engine
        self.points = _points(original.trials(), original.found)
        self._empty: tuple[bytes, frozenset[str]] | None = None
        self._followed: set[int] = set()
        self._last: tuple[tuple[bytes, frozenset[str]], _Producers] | None = None

    def infer(self, before: Definitions, names: Collection[str], budget: TimeBudget) -> None:
        """Infer the forms of values with onnx's shape inference, and with surgery's where that fails."""
        for point in self.points:
            self._begin(point)
        left = [point for point in self.points if point.lacks(names)]
        nodes = len(before.nodes)
        if left and not self._is_cheap(before, names, seconds := nodes * len(left) * _INFERRED_BY_ONNX):
            budget.spend(seconds)
            self._infer(before, left)
            left = [point for point in left if point.lacks(names)]
            if left and not self._is_cheap(before, names, seconds := nodes * _INFERRED):
                budget.spend(seconds)
                self._follow(before, left)
                for point in left:
                    point.lacks(names)

    def _is_cheap(self, before: Definitions, names: Collection[str], seconds: float) -> bool:
        """Return whether running the nodes that produce the values takes less time than inferring their shapes."""
        original = self._original
        if original.problem is not None or original.weights > _FEW_WEIGHTS:
            return False
        return self.cost(before, names) < seconds

    def _infer(self, before: Definitions, points: Sequence[Point]) -> None:
        skeleton = self._runnable(before) if points else b""
        for point in points:
            self._declare(point, skeleton, hash(before.skeleton))

    def _follow(self, before: Definitions, points: Sequence[Point]) -> None:
        """Infer the forms that onnx does not find, using the contents of shape tensors."""
        key = hash(before.skeleton)
        if not points or key in self._followed:
            return
        self._followed.add(key)
        with suppress(Exception):
            for point, found in zip(points, follow(self._runnable(before), [point.shapes_fed() for point in points])):
                point.inferred[key] = {**found, **point.inferred.get(key, {})}

    def learn(self, before: Definitions, names: Collection[str]) -> dict[str, str]:
        """Find the elements of values that cannot be drawn; return why some stay unknown. Call `infer` first."""
        unknown = self._record(before, self._wanted(names))
        if unknown:
            for look in (self._infer, self._follow):
                look(before, [point for point in self.points if point.lacks(unknown)])
            for point in self.points:
                point.lacks(unknown)
            left = self._wanted(unknown)
            unknown = self._record(before, left) if len(left) < len(unknown) else unknown
        left = self._wanted(names)
        no_tensors = [name for name in names if any(name not in point.forms for point in self.points)]
        return {
            **{name: f"the elements of '{name}' are unknown" for name in left},
            **{name: f"'{name}' is not a tensor" for name in no_tensors},
            **unknown,
        }

    def _wanted(self, names: Collection[str]) -> list[str]:
        return sorted(name for name in names if self._is_to_be_recorded(name))

    def cost(self, before: Definitions, names: Collection[str]) -> float:
        """Estimate the seconds that `learn` takes.

        Only the most expensive point is estimated; the nodes are taken to have the same share of the others.
        """
        wanted = {*self._wanted(names)} - before.inputs
        if not wanted:
            return 0.0
        costs = {id(point): self._original.inputs.cost(point.runs[0].binding) for point in self.points}
        whole = sum(len(point.runs) * costs[id(point)] for point in self.points)
        if whole < _CHEAP:
            return whole
        largest = max(self.points, key=lambda point: costs[id(point)])
        opening, seconds = self._producers(before, wanted).cost_at(largest)
        return min(whole, opening + whole * seconds / costs[id(largest)])

    def _producers(self, before: Definitions, wanted: Collection[str]) -> _Producers:
        """Return the model of the nodes that produce some values; the last one is kept, because it runs next."""
        key = before.skeleton, frozenset(wanted)
        if self._last is None or self._last[0] != key:
            self._last = key, _Producers(cut(before.model, {}, dict.fromkeys(sorted(wanted)), before.flow))
        return self._last[1]

    def is_empty(self, before: Definitions, name: str) -> bool:
        """Return whether a value is empty for all sizes of the dynamic dims."""
        if self._empty is None or self._empty[0] != before.skeleton:
            found = self._engine.analyse(empty, skeleton=before.skeleton) or []
            self._empty = before.skeleton, frozenset(found)
        return name in self._empty[1]

    def _runnable(self, before: Definitions) -> bytes:
        """Return a model without custom operators that keep the original from running.

        Downstream of them, regions are compared at shapes, and with integers, that these might return.
        """
        if self._original.problem is None:
            return before.skeleton
        result: bytes = with_stand_ins(before.model).SerializeToString()
        return result

    def _blocked(self, before: Definitions, names: Collection[str]) -> list[str]:
        """Return those of some values that depend on operators unknown to ONNX Runtime; all if there is no such one."""
        custom = {name for node in custom_nodes(before.model) for name in node.output if name}
        made = custom.union(*(before.flow.makes(number) for number in before.flow.below(custom)))
        return [name for name in names if name in made] or [*names]

    def _begin(self, point: Point) -> None:
        """Take the original's inference results at this point, unless the inputs of its run have other shapes."""
        if point.inferred:
            return
        known = self._original.inputs.inferred(point.binding)
        fed = point.shapes_fed()
        if known and all(known[name][1] == shape for name, shape in fed.items() if name in known):
            point.inferred[0] = known
        else:
            self._declare(point, self._original.skeleton, 0)
        for name, value in point.runs[0].feed.items():
            form = Form.of(value)
            if form is not None:
                point.forms[name] = form

    def _declare(self, point: Point, skeleton: bytes, key: int) -> None:
        if key not in point.inferred:
            dims = point.shapes_fed()
            point.inferred[key] = self._engine.analyse(declare, skeleton=skeleton, dims=dims) or {}

    def _is_to_be_recorded(self, name: str) -> bool:
        """Return whether a value has to be recorded from runs of the original, and is not known yet."""
        if all(name in values for point in self.points for values in point.recorded):
            return False
        return not self._is_drawn(name)

    def _is_drawn(self, name: str) -> bool:
        forms = [point.forms.get(name) for point in self.points]
        return all(form is not None and form.is_drawn for form in forms)

    def _record(self, before: Definitions, names: list[str]) -> dict[str, str]:
        """Run the nodes that produce some values; return why some stay unknown. Drop drawable elements."""
        places = [(point, number) for point in self.points for number in range(len(point.runs))]
        for point, number in places:
            feed = point.runs[number].feed
            point.recorded[number].update((name, feed[name]) for name in names if name in feed)
        left = [name for name in names if name not in before.inputs]
        if left:
            model = self._producers(before, left).model
            known = {value.name for value in model.graph.input}
            feeds = [
                {name: value for name, value in point.runs[number].feed.items() if name in known}
                for point, number in places
            ]
            skeleton = (model if self._original.problem is None else with_stand_ins(model)).SerializeToString()
            outcome = self._engine.run(skeleton, feeds, bare=True)
            failure = outcome.failure or next((run for run in outcome.runs if isinstance(run, str)), None)
            if failure is not None:
                blocked = self._blocked(before, left) if self._original.problem is not None else left
                unknown = {name: f"'{name}' cannot be computed: {failure}" for name in blocked}
                rest = [name for name in names if name not in unknown]
                return unknown | self._record(before, rest) if len(rest) < len(names) and rest else unknown
            for (point, number), result in zip(places, outcome.runs):
                assert not isinstance(result, str)
                point.recorded[number].update(result)
        for name in names:
            self._note_form(name)
        return {}

    def _note_form(self, name: str) -> None:
        """Note the form of a recorded value, and drop its elements if they can be drawn."""
        for point in self.points:
            form = Form.of(point.recorded[0].get(name))
            if form is not None:
                point.forms[name] = form
        if self._is_drawn(name):
            for values in (values for point in self.points for values in point.recorded):
                values.pop(name, None)


def _points(runs: Sequence[Run], known: Found) -> list[Point]:
    """Choose runs with different sizes: some of the first, those with the largest extent of each dim, and broadcasts.

    The largest may show what small sizes do not: a stride, a position beyond a window. Where a dim is 1 and another one
    that it meets is not, a broadcast shows; on either side of a constant that it is compared with, what that decides.
    """
    found: dict[tuple[tuple[str, int], ...], Point] = {}
    for run in runs:
        key = run.binding.dim_key
        point = found.setdefault(key, Point(run.binding.dims, []))
        decides = run.binding.character in DECIDING
        if len(point.runs) < (RECORDED + _DECIDING if decides else RECORDED):
            point.runs.append(run)
            point.recorded.append({})
    points = list(found.values())
    names = dict.fromkeys(name for point in points for name in point.dims)
    largest = [max(points, key=lambda point: point.dims.get(name, 0)) for name in names]
    chosen = {id(point): point for point in (*points[:MOST_POINTS], *largest[:MOST_POINTS])}
    most = len(chosen) + MOST_POINTS
    for name, others in known.meets:
        if len(chosen) < most and not any(stands_alone(point.dims, name, others) for point in chosen.values()):
            alone = [point for point in points if stands_alone(point.dims, name, others)]
            chosen.update((id(point), point) for point in alone[:1])
    sides = [next((point for point in points if side.items() <= point.dims.items()), None) for side in known.compared]
    more = [point for point in sides if point is not None and id(point) not in chosen]
    chosen.update((id(point), point) for point in more[:MOST_POINTS])
    return list(chosen.values())
